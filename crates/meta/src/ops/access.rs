//! `Access`: whether the caller may read, write or execute.

use crate::credentials::Permissions;
use crate::needs::Needs;
use crate::txn::{Done, Txn};
use wire::{Access, Status};

pub(crate) fn needs(args: &Access<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Access<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let permissions = Permissions::from_mask(args.mask).ok_or(Status::Invalid)?;
    let credentials = txn.credentials(args.caller);
    txn.permit(args.inode, &credentials, permissions)?;
    Ok(Done)
}
