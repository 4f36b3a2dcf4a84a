//! `Readlink`: the target of a symbolic link, also of one that was removed a moment ago.

use crate::inode::Body;
use crate::needs::Needs;
use crate::shard::Access;
use crate::txn::Txn;
use wire::{Bytes, Readlink, Status, Target};

pub(crate) fn needs(args: &Readlink, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute<'t>(args: &Readlink, txn: &'t mut Txn<'_>) -> Result<Target<'t>, Status> {
    txn.access = Access::Reads(args.inode);
    let Ok(known) = txn.inode(args.inode) else {
        let target = txn.removed_link(args.inode)?;
        return Ok(Target { target: Bytes(target) });
    };
    match &known.body {
        Body::Symlink(target) => Ok(Target { target: Bytes(target) }),
        Body::File | Body::Directory(_) | Body::Special => Err(Status::Invalid),
    }
}
