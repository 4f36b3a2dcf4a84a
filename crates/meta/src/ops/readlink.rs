//! `Readlink`: the target of a symbolic link.

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
    match &txn.inode(args.inode)?.body {
        Body::Symlink(target) => Ok(Target { target: Bytes(target) }),
        Body::File | Body::Directory(_) | Body::Special => Err(Status::Invalid),
    }
}
