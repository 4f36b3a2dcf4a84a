//! `Lookup`: a name in a directory to its inode.

use crate::needs::Needs;
use crate::txn::Txn;
use wire::{Entry, Lookup, Status};

pub(crate) fn needs<'a>(args: &Lookup<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.entry(args.parent, args.name);
}

pub(crate) fn execute(args: &Lookup<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let credentials = txn.credentials(args.caller);
    let target = txn.search(args.parent, args.name, &credentials)?.ok_or(Status::NotFound)?;
    txn.found(args.parent, target);
    if !txn.is_here(target.inode) {
        return Ok(Entry { attr: target.elsewhere() });
    }
    Ok(Entry { attr: txn.inode(target.inode)?.attr() })
}
