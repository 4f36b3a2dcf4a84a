//! `Reopen`: registers a handle that was opened before, without asking for permission again: who had it
//! may have lost the permission since. Through an export the lane has asked [`crate::Rights`] before.

use crate::needs::Needs;
use crate::txn::{Done, Txn};
use crate::uses::{How, Key};
use wire::{FileKind, Reopen, Status};

pub(crate) fn needs(args: &Reopen, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Reopen, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let row = txn.row(args.inode)?;
    let openable = match row.kind {
        FileKind::File => true,
        FileKind::Directory => !args.handle.open_for.writes(),
        FileKind::Symlink
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice => false,
    };
    if !openable {
        return Err(Status::Invalid);
    }
    if row.nlink == 0 && txn.handles.is_free(args.inode) {
        return Err(Status::Stale); // It is being destroyed.
    }
    txn.permit_handle()?;
    txn.uses(Key::Exists(args.inode), How::Depend);
    txn.open(row, args.handle);
    txn.handles.open(args.inode, txn.client, args.handle);
    txn.look_at_gives(args.inode);
    Ok(Done)
}
