//! `Listxattr`: the names of the extended attributes that are visible to the caller.

use crate::needs::Needs;
use crate::txn::Txn;
use crate::xattr;
use wire::{Bytes, Listxattr, Status, Value};

pub(crate) fn needs(args: &Listxattr<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute<'t>(args: &Listxattr<'_>, txn: &'t mut Txn<'_>) -> Result<Value<'t>, Status> {
    let credentials = txn.credentials(args.caller);
    let (names, state) = txn.scratch();
    let inode = state.inode(args.inode).ok_or(Status::Stale)?;
    for name in inode.xattrs.keys().filter(|name| xattr::is_visible(name, &credentials)) {
        names.extend_from_slice(name);
        names.push(0);
    }
    Ok(Value { value: Bytes(names) })
}
