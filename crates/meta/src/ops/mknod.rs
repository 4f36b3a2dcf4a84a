//! `Mknod`: a new fifo, socket or device. The kernel that opens one implements it.

use crate::mode::NewMode;
use crate::needs::Needs;
use crate::txn::{EntryDelta, Txn};
use disk::InodeRow;
use wire::{Entry, FileKind, Mknod, Status};

pub(crate) fn needs<'a>(args: &Mknod<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.new_entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Mknod<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let credentials = txn.credentials(args.caller);
    if !args.kind.is_special() {
        return Err(Status::Invalid);
    }
    if txn.search(args.parent, args.name, &credentials)?.is_some() {
        return Err(Status::Exists);
    }
    txn.permit_change(args.parent, &credentials)?;
    // A device opens hardware; a whiteout opens nothing, and any caller may create one.
    let is_whiteout = args.kind == FileKind::CharDevice && args.rdev == 0;
    if args.kind.is_device() && !is_whiteout && !credentials.is_root() {
        return Err(Status::NotPermitted);
    }
    let mode = NewMode { mode: args.mode & 0o7777, umask: args.umask };
    let row = txn.new_inode(args.parent, args.kind, mode, &credentials)?;
    let rdev = if args.kind.is_device() { args.rdev } else { 0 };
    let row = txn.put_new(args.parent, InodeRow { rdev, ..row });
    txn.put_entry(args.parent, args.name, &row, None);
    txn.touch(args.parent, EntryDelta::FILE);
    Ok(Entry { attr: txn.attr_of(&row) })
}
