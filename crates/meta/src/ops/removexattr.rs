//! `Removexattr`: takes an extended attribute away.

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
    let who = txn.who(args.caller);
    let inode = txn.inode(args.inode)?;
    if let Some(list) = List::named(args.name.0) {
        return set_list(args.inode, list, None, &who, txn);
    }
    // The kernel takes a program's capabilities away in the name of whoever changes its contents.
    let changes_contents = match args.name.0 {
        xattr::CAPABILITY => txn.permit_contents(&inode.row, &who),
        _ => Err(Status::NotPermitted),
    };
    match changes_contents {
        Ok(()) => {}
        Err(Status::NeedGroups) => return Err(Status::NeedGroups),
        Err(_) => xattr::permit(inode, args.name.0, true, &who)?,
    }
    if !inode.xattrs.contains_key(args.name.0) {
        return Err(Status::NoData);
    }
    let row = inode.row;
    txn.drop_xattr(args.inode, args.name);
    txn.put(InodeRow { ctime: txn.now, ..row });
    txn.look_at_gives(args.inode);
    Ok(Done)
}
