//! `Access`: whether the caller may read, write or execute.

use crate::needs::Needs;
use crate::txn::{Done, Txn};
use crate::who::Want;
use wire::{Access, Status};

pub(crate) fn needs(args: &Access<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Access<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let want = Want::from_mask(args.mask).ok_or(Status::Invalid)?;
    let who = txn.who(args.caller);
    txn.permit(args.inode, &who, want)?;
    Ok(Done)
}
