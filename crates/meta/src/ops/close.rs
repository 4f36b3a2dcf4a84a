//! `Close`: drops a handle. After the last writer's the data shard is asked for the size, which it
//! tells when all that was written is durable ([`crate::Shard::settle`]): else a size could outlive
//! the bytes it speaks of.

use crate::needs::Needs;
use crate::txn::{Done, Txn};
use wire::{Close, Status};

pub(crate) fn needs(args: &Close, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Close, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let last = txn.handles.close(args.inode, txn.client, args.handle);
    txn.look_at_gives(args.inode);
    txn.state.exported.touch(args.inode);
    let Ok(row) = txn.row(args.inode) else {
        return Ok(Done); // Gone is as closed as can be.
    };
    if last && row.size_at_data && row.nlink > 0 {
        txn.settling = Some((args.inode, txn.handles.ask(args.inode)));
    }
    txn.check_orphan(args.inode);
    Ok(Done)
}
