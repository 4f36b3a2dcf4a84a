//! `Getxattr`: the value of an extended attribute.

use crate::needs::Needs;
use crate::txn::Txn;
use crate::xattr;
use wire::{Bytes, Getxattr, Status, Value};

pub(crate) fn needs(args: &Getxattr<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute<'t>(args: &Getxattr<'_>, txn: &'t mut Txn<'_>) -> Result<Value<'t>, Status> {
    let credentials = txn.credentials(args.caller);
    let inode = txn.inode(args.inode)?;
    xattr::permit(inode, args.name.0, false, &credentials)?;
    let value = inode.xattrs.get(args.name.0).ok_or(Status::NoData)?;
    Ok(Value { value: Bytes(value) })
}
