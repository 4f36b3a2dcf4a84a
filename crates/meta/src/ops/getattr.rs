//! `Getattr`: attributes of an inode. Needs no permission besides the inode's number. A file without
//! a name and without a handle is gone already, as for `Reopen`.

use crate::needs::Needs;
use crate::txn::Txn;
use wire::{Entry, Getattr, Status};

pub(crate) fn needs(args: &Getattr, needs: &mut Needs<'_>) {
    needs.shown_inode(args.inode);
}

pub(crate) fn execute(args: &Getattr, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let attr = txn.inode(args.inode)?.attr();
    if attr.nlink == 0 && txn.handles.is_free(args.inode) {
        return Err(Status::Stale);
    }
    Ok(Entry { attr })
}
