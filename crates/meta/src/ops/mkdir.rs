//! `Mkdir`: a new directory.

use crate::mode::NewMode;
use crate::needs::Needs;
use crate::ops::LINK_COUNT_MAX;
use crate::txn::{Came, Txn};
use wire::{Entry, FileKind, Mkdir, Status};

pub(crate) fn needs<'a>(args: &Mkdir<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Mkdir<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let who = txn.who(args.caller);
    if txn.search(args.parent, args.name, &who)?.is_some() {
        return Err(Status::Exists);
    }
    txn.permit_change(args.parent, &who)?;
    if txn.row(args.parent)?.nlink >= LINK_COUNT_MAX {
        return Err(Status::TooManyLinks);
    }
    txn.reach_place(args.parent);
    if txn.is_across() {
        txn.reach_entry(args.parent, args.name);
    }
    txn.reached()?;
    let mode = NewMode { mode: args.mode & 0o1777, umask: args.umask };
    let row = txn.new_inode(args.parent, FileKind::Directory, mode, &who)?;
    let row = txn.put_new(args.parent, row);
    txn.put_entry(args.parent, args.name, &row, None);
    txn.touch(args.parent, Came::DIRECTORY);
    Ok(Entry { attr: row.attr() })
}
