//! `Getattr`: attributes of an inode. Needs no permission besides the inode's number.

use crate::needs::Needs;
use crate::txn::Txn;
use wire::{Entry, Getattr, Status};

pub(crate) fn needs(args: &Getattr, needs: &mut Needs<'_>) {
    needs.shown_inode(args.inode);
}

pub(crate) fn execute(args: &Getattr, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    Ok(Entry { attr: txn.attr_of(&txn.inode(args.inode)?.row) })
}
