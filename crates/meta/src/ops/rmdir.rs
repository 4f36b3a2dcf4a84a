//! `Rmdir`: removes an empty directory.

use crate::needs::Needs;
use crate::txn::{Done, EntryDelta, Txn};
use crate::uses::{AccessMode, DependencyKey};
use wire::{FileKind, Rmdir, Status};

pub(crate) fn needs<'a>(args: &Rmdir<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.removed_entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Rmdir<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let credentials = txn.credentials(args.caller);
    let target = txn.search(args.parent, args.name, &credentials)?.ok_or(Status::NotFound)?;
    txn.require_entry(args.parent, args.name);
    txn.require_inode(target.inode);
    txn.requirements_met()?;
    txn.permit_remove(args.parent, target, &credentials)?;
    if target.kind != FileKind::Directory {
        return Err(Status::NotDirectory);
    }
    let row = txn.dir_row(target.inode)?;
    if row.entry_count > 0 {
        return Err(Status::NotEmpty);
    }
    txn.drop_entry(args.parent, args.name);
    txn.touch(args.parent, -EntryDelta::DIRECTORY);
    txn.uses(DependencyKey::Entries(row.inode), AccessMode::Whole);
    txn.remove_directory(row);
    Ok(Done)
}
