//! `Tmpfile`: a new open file without a name, as with O_TMPFILE. It is destroyed like an open file
//! whose last name was removed, unless [`super::link`] gives it a name before.

use crate::mode::NewMode;
use crate::needs::Needs;
use crate::txn::Txn;
use disk::InodeRow;
use wire::{Created, FileKind, Rule, Status, Tmpfile};

pub(crate) fn needs(args: &Tmpfile<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.parent);
}

pub(crate) fn execute(args: &Tmpfile<'_>, txn: &mut Txn<'_>) -> Result<Created, Status> {
    let credentials = txn.credentials(args.caller);
    txn.permit_change(args.parent, &credentials)?;
    txn.permit_handle()?;
    let mode = NewMode { mode: args.mode & 0o7777, umask: args.umask };
    let row = txn.new_inode(args.parent, FileKind::File, mode, &credentials)?;
    let size_at_data = args.handle.open_for.writes() && txn.rules.hold(Rule::SizeFlag);
    let row = InodeRow { nlink: 0, linkable: args.linkable, size_at_data, ..row };
    let row = txn.put_new(args.parent, row);
    let row = txn.open(row, args.handle);
    Ok(Created { attr: txn.attr_of(&row), made: true })
}
