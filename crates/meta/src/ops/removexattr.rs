//! `Removexattr`: removes an extended attribute.

use super::setxattr::{List, set_list};
use crate::needs::Needs;
use crate::txn::{Done, Txn};
use crate::xattr;
use disk::InodeRow;
use wire::{Removexattr, Status};

pub(crate) fn needs(args: &Removexattr<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Removexattr<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let credentials = txn.credentials(args.caller);
    let inode = txn.inode(args.inode)?;
    if let Some(list) = List::named(args.name.0) {
        return set_list(args.inode, list, None, &credentials, txn);
    }
    // The kernel removes a program's capabilities on behalf of a caller that changes its contents.
    let changes_contents = match args.name.0 {
        xattr::CAPABILITY => txn.permit_contents(&inode.row, &credentials),
        _ => Err(Status::NotPermitted),
    };
    match changes_contents {
        Ok(()) => {}
        Err(Status::NeedGroups) => return Err(Status::NeedGroups),
        Err(_) => xattr::permit(inode, args.name.0, true, &credentials)?,
    }
    if !inode.xattrs.contains_key(args.name.0) {
        return Err(Status::NoData);
    }
    let row = inode.row;
    txn.drop_xattr(args.inode, args.name);
    txn.put(InodeRow { ctime: txn.now, ..row });
    txn.refresh_privileged_bits(args.inode);
    Ok(Done)
}
