//! `Reopen`: registers a handle that was opened before, without checking permission again, which
//! the caller may have lost since. For an export the lane has checked [`crate::Rights`] before.

use crate::needs::Needs;
use crate::txn::{Done, Txn};
use crate::uses::{AccessMode, DependencyKey};
use wire::{FileKind, Reopen, Status};

pub(crate) fn needs(args: &Reopen, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
    needs.opened(Some(args.handle));
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
    txn.uses(DependencyKey::Exists(args.inode), AccessMode::Depend);
    txn.open(row, args.handle);
    txn.handles.open(args.inode, txn.client, args.handle);
    txn.refresh_privileged_bits(args.inode);
    Ok(Done)
}
