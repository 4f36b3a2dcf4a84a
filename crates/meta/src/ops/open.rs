//! `Open`: checks permission and registers the handle.

use crate::credentials::Permissions;
use crate::needs::Needs;
use crate::txn::Txn;
use crate::uses::{AccessMode, DependencyKey};
use wire::{Entry, FileKind, Open, Status};

pub(crate) fn needs(args: &Open<'_>, needs: &mut Needs<'_>) {
    needs.shown_inode(args.inode);
    needs.opened(Some(args.handle));
}

pub(crate) fn execute(args: &Open<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let credentials = txn.credentials(args.caller);
    let row = txn.row(args.inode)?;
    match row.kind {
        FileKind::Symlink => return Err(Status::Loop),
        FileKind::Directory if args.handle.open_for.writes() => return Err(Status::IsDirectory),
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            return Err(Status::NoDevice);
        }
        FileKind::Directory | FileKind::File => {}
    }
    if row.nlink == 0 && txn.handles.is_free(args.inode) {
        return Err(Status::Stale); // It is being destroyed.
    }
    txn.permit(args.inode, &credentials, Permissions::to_open(args.handle.open_for))?;
    txn.permit_handle()?;
    txn.uses(DependencyKey::Exists(args.inode), AccessMode::Depend);
    let row = txn.open(row, args.handle);
    Ok(Entry { attr: txn.attr_of(&row) })
}
