//! `Setxattr`: sets an extended attribute.

use crate::needs::Needs;
use crate::txn::{Done, Txn};
use crate::xattr;
use disk::InodeRow;
use wire::{Setxattr, Status, XATTR_VALUE_BYTES_MAX};

/// It must not exist yet.
const CREATE: u32 = 1;
/// It must exist.
const REPLACE: u32 = 2;

pub(crate) fn needs(args: &Setxattr<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Setxattr<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let who = txn.who(args.caller);
    let inode = txn.inode(args.inode)?;
    let name = args.name.0;
    if args.flags & !(CREATE | REPLACE) != 0 || args.flags == CREATE | REPLACE {
        return Err(Status::Invalid);
    }
    if args.value.0.len() > XATTR_VALUE_BYTES_MAX {
        return Err(Status::Range);
    }
    xattr::permit(&inode.row, name, true, &who)?;
    let exists = inode.xattrs.contains_key(name);
    if exists && args.flags == CREATE {
        return Err(Status::Exists);
    }
    if !exists && args.flags == REPLACE {
        return Err(Status::NoData);
    }
    xattr::check_room(inode, name, args.value.0.len())?;
    let row = inode.row;
    txn.put_xattr(args.inode, args.name, args.value);
    txn.put(InodeRow { ctime: txn.now, ..row });
    Ok(Done)
}
