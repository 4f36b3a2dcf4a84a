//! `Mkdir`: a new directory.

use crate::mode::NewMode;
use crate::needs::Needs;
use crate::ops::LINK_COUNT_MAX;
use crate::txn::{EntryDelta, Txn};
use wire::{Entry, FileKind, Mkdir, Status};

pub(crate) fn needs<'a>(args: &Mkdir<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.new_entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Mkdir<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let credentials = txn.credentials(args.caller);
    if txn.search(args.parent, args.name, &credentials)?.is_some() {
        return Err(Status::Exists);
    }
    txn.permit_change(args.parent, &credentials)?;
    if txn.row(args.parent)?.nlink >= LINK_COUNT_MAX {
        return Err(Status::TooManyLinks);
    }
    txn.require_placement(args.parent);
    if txn.is_multi_shard() {
        txn.require_entry(args.parent, args.name);
    }
    txn.requirements_met()?;
    let mode = NewMode { mode: args.mode & 0o1777, umask: args.umask };
    let row = txn.new_inode(args.parent, FileKind::Directory, mode, &credentials)?;
    let row = txn.put_new(args.parent, row);
    txn.put_entry(args.parent, args.name, &row, None);
    txn.touch(args.parent, EntryDelta::DIRECTORY);
    Ok(Entry { attr: txn.attr_of(&row) })
}
