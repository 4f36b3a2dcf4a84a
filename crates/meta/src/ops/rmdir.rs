//! `Rmdir`: takes away an empty directory.

use crate::needs::Needs;
use crate::txn::{Came, Done, Txn};
use crate::uses::{How, Key};
use wire::{FileKind, Rmdir, Status};

pub(crate) fn needs<'a>(args: &Rmdir<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.removed_entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Rmdir<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let who = txn.who(args.caller);
    let target = txn.search(args.parent, args.name, &who)?.ok_or(Status::NotFound)?;
    txn.reach_entry(args.parent, args.name);
    txn.reach(target.inode);
    txn.reached()?;
    txn.permit_remove(args.parent, target, &who)?;
    if target.kind != FileKind::Directory {
        return Err(Status::NotDirectory);
    }
    let row = txn.dir_row(target.inode)?;
    if row.entry_count > 0 {
        return Err(Status::NotEmpty);
    }
    txn.drop_entry(args.parent, args.name);
    txn.touch(args.parent, -Came::DIRECTORY);
    txn.uses(Key::Entries(row.inode), How::Whole);
    txn.remove_directory(row);
    Ok(Done)
}
