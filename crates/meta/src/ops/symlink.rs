//! `Symlink`: a new symbolic link. Its target is not resolved.

use crate::mode::NewMode;
use crate::needs::Needs;
use crate::txn::{EntryDelta, Txn};
use disk::InodeRow;
use wire::{Entry, FileKind, SYMLINK_BYTES_MAX, Status, Symlink};

pub(crate) fn needs<'a>(args: &Symlink<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.new_entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Symlink<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let credentials = txn.credentials(args.caller);
    let target = args.target.0;
    if target.is_empty() {
        return Err(Status::NotFound);
    }
    if target.len() > SYMLINK_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    if target.contains(&0) {
        return Err(Status::Invalid);
    }
    if txn.search(args.parent, args.name, &credentials)?.is_some() {
        return Err(Status::Exists);
    }
    txn.permit_change(args.parent, &credentials)?;
    let row =
        txn.new_inode(args.parent, FileKind::Symlink, NewMode::exactly(0o777), &credentials)?;
    let size_bytes = u64::try_from(target.len()).unwrap_or(u64::MAX);
    let row = txn.put_new(args.parent, InodeRow { size_bytes, ..row });
    txn.put_target(row.inode, args.target);
    txn.put_entry(args.parent, args.name, &row, None);
    txn.touch(args.parent, EntryDelta::FILE);
    Ok(Entry { attr: txn.attr_of(&row) })
}
