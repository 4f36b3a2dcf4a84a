//! `Getxattr`: the value of an extended attribute.

use crate::needs::Needs;
use crate::txn::Txn;
use crate::xattr;
use wire::{Bytes, Getxattr, Layout, Status, Value};

pub(crate) fn needs(args: &Getxattr<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute<'t>(args: &Getxattr<'_>, txn: &'t mut Txn<'_>) -> Result<Value<'t>, Status> {
    let credentials = txn.credentials(args.caller);
    let inode = txn.inode(args.inode)?;
    xattr::permit(inode, args.name.0, false, &credentials)?;
    if let Some(layout) = inode.row.layout.filter(|_| args.name.0 == Layout::XATTR) {
        return Ok(Value { value: Bytes(txn.text(&layout.text())) });
    }
    let value = txn.inode(args.inode)?.xattrs.get(args.name.0).ok_or(Status::NoData)?;
    Ok(Value { value: Bytes(value) })
}
