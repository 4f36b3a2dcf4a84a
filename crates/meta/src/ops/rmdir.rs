//! `Rmdir`: takes away an empty directory.

use crate::needs::Needs;
use crate::txn::{Done, Txn};
use wire::{FileKind, Rmdir, Status};

pub(crate) fn needs<'a>(args: &Rmdir<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Rmdir<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let who = txn.who(args.caller);
    let target = txn.search(args.parent, args.name, &who)?.ok_or(Status::NotFound)?;
    txn.permit_remove(args.parent, target, &who)?;
    if target.kind != FileKind::Directory {
        return Err(Status::NotDirectory);
    }
    let (row, entries) = txn.directory(target.inode)?;
    if !entries.is_empty() {
        return Err(Status::NotEmpty);
    }
    let row = *row;
    txn.saw(target.version);
    txn.drop_entry(args.parent, args.name);
    txn.touch(args.parent, -1);
    txn.remove_directory(row);
    Ok(Done)
}
