//! `Close`: drops a handle. After the last writer's the data shard is queried for the size and
//! replies when all written bytes are durable ([`crate::Shard::settle`]): otherwise a size could
//! survive a crash that its bytes do not.

use crate::needs::Needs;
use crate::txn::{Done, Txn};
use wire::{Close, Status};

pub(crate) fn needs(args: &Close, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Close, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let closed = txn.handles.close(args.inode, txn.client, args.handle);
    txn.refresh_privileged_bits(args.inode);
    txn.state.export_tracking.touch(args.inode);
    let Ok(row) = txn.row(args.inode) else {
        return Ok(Done); // The inode was removed.
    };
    if let Some(closed) = closed.filter(|_| row.size_at_data && row.nlink > 0) {
        txn.settling = Some((args.inode, txn.handles.begin_query(args.inode, closed)));
    }
    txn.check_orphan(args.inode);
    Ok(Done)
}
