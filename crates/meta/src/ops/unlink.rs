//! `Unlink`: takes away a name of something that is no directory, and with the last name, when
//! nobody has it open, the thing.

use crate::needs::Needs;
use crate::txn::{Came, Done, Txn};
use wire::{FileKind, Status, Unlink};

pub(crate) fn needs<'a>(args: &Unlink<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Unlink<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let who = txn.who(args.caller);
    let target = txn.search(args.parent, args.name, &who)?.ok_or(Status::NotFound)?;
    txn.reach_entry(args.parent, args.name);
    txn.reach(target.inode);
    txn.reached()?;
    txn.permit_remove(args.parent, target, &who)?;
    if target.kind == FileKind::Directory {
        return Err(Status::IsDirectory);
    }
    let row = txn.row(target.inode)?;
    txn.drop_entry(args.parent, args.name);
    txn.touch(args.parent, -Came::FILE);
    txn.unname(row, args.parent);
    Ok(Done)
}
