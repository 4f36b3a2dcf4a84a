//! `Close`: drops a handle; the last writer's settles what the data shards knew.

use crate::needs::Needs;
use crate::txn::{Done, Txn};
use disk::InodeRow;
use wire::{Close, Contents, Status, Times};

pub(crate) fn needs(args: &Close, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Close, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let settle = args.settle.as_ref();
    let settles = txn.handles.close(args.inode, txn.client, args.handle, settle);
    txn.look_at_gives(args.inode);
    let Ok(row) = txn.row(args.inode) else {
        return Ok(Done); // Gone is as closed as can be.
    };
    if settles
        && row.size_at_data
        && row.nlink > 0
        && let Some(contents) = settle
    {
        txn.put(settled(row, contents));
    }
    txn.check_orphan(args.inode);
    Ok(Done)
}

/// Takes size and space over, and the time of the last write as [`Times::after_write`] says.
fn settled(row: InodeRow, contents: &Contents) -> InodeRow {
    let InodeRow { mtime, mtime_set, ctime, .. } = row;
    let times = Times { mtime, mtime_set, ctime }.after_write(contents.write_time);
    InodeRow {
        size_bytes: contents.size_bytes,
        allocated_bytes: contents.allocated_bytes,
        size_at_data: false,
        mtime: times.mtime,
        mtime_set: times.mtime_set,
        ctime: times.ctime,
        ..row
    }
}
