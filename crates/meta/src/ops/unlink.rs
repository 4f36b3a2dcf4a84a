//! `Unlink`: removes a name of an inode other than a directory, and with the last name, if it is
//! not open, the inode.

use crate::needs::Needs;
use crate::txn::{Done, EntryDelta, Txn};
use wire::{FileKind, Status, Unlink};

pub(crate) fn needs<'a>(args: &Unlink<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Unlink<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let credentials = txn.credentials(args.caller);
    let target = txn.search(args.parent, args.name, &credentials)?.ok_or(Status::NotFound)?;
    if let Some(at) = args.behind {
        if !txn.is_here(target.inode) {
            return Err(Status::Stale); // Its caller cannot have known that nobody else knows it.
        }
        txn.set_behind(at);
    }
    txn.require_entry(args.parent, args.name);
    txn.require_inode(target.inode);
    txn.requirements_met()?;
    txn.permit_remove(args.parent, target, &credentials)?;
    if target.kind == FileKind::Directory {
        return Err(Status::IsDirectory);
    }
    let row = txn.row(target.inode)?;
    txn.drop_entry(args.parent, args.name);
    txn.touch(args.parent, -EntryDelta::FILE);
    txn.unname(row, args.parent);
    Ok(Done)
}
