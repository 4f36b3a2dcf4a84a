//! `Tmpfile`: a new regular file without a name, open, as `open` with O_TMPFILE makes. It goes as
//! one whose last name was taken away while it was open, unless [`super::link`] gives it one before.

use crate::mode::NewMode;
use crate::needs::Needs;
use crate::txn::Txn;
use disk::InodeRow;
use wire::{Created, FileKind, Rule, Status, Tmpfile};

pub(crate) fn needs(args: &Tmpfile<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.parent);
}

pub(crate) fn execute(args: &Tmpfile<'_>, txn: &mut Txn<'_>) -> Result<Created, Status> {
    let who = txn.who(args.caller);
    txn.permit_change(args.parent, &who)?;
    txn.permit_handle()?;
    let mode = NewMode { mode: args.mode & 0o7777, umask: args.umask };
    let row = txn.new_inode(args.parent, FileKind::File, mode, &who)?;
    let size_at_data = args.handle.open_for.writes() && txn.rules.hold(Rule::SizeFlag);
    let row = InodeRow { nlink: 0, linkable: args.linkable, size_at_data, ..row };
    let row = txn.put_new(args.parent, row);
    Ok(Created { attr: txn.open(row, args.handle).attr(), made: true })
}
