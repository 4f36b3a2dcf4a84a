//! `Link`: an additional name for an inode other than a directory, or the first name for an open
//! file that was created without one.

use crate::needs::Needs;
use crate::ops::LINK_COUNT_MAX;
use crate::txn::{EntryDelta, Txn};
use disk::InodeRow;
use wire::{Entry, FileKind, InodeNo, Link, Status};

pub(crate) fn needs<'a>(args: &Link<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.inode);
    needs.inode(args.parent);
    needs.new_entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Link<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let credentials = txn.credentials(args.caller);
    if txn.search(args.parent, args.name, &credentials)?.is_some() {
        return Err(Status::Exists);
    }
    txn.permit_change(args.parent, &credentials)?;
    txn.require_entry(args.parent, args.name);
    txn.require_inode(args.inode);
    txn.requirements_met()?;
    let row = txn.row(args.inode)?;
    if row.kind == FileKind::Directory {
        return Err(Status::NotPermitted);
    }
    // A snapshot of another shard is valid for an open inode only.
    let is_open = !txn.is_here(args.inode) || !txn.handles.is_free(args.inode);
    if row.nlink == 0 && !(row.linkable && is_open) {
        return Err(Status::NotFound);
    }
    if row.nlink >= LINK_COUNT_MAX {
        return Err(Status::TooManyLinks);
    }
    let nameless = row.nlink == 0 || row.parent == InodeNo(0);
    let parent = if nameless { args.parent } else { row.parent };
    let (nlink, ctime) = (row.nlink + 1, txn.now);
    let row = txn.put(InodeRow { nlink, parent, linkable: false, ctime, ..row });
    txn.put_entry(args.parent, args.name, &row, None);
    txn.touch(args.parent, EntryDelta::FILE);
    Ok(Entry { attr: txn.attr_of(&row) })
}
