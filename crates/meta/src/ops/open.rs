//! `Open`: checks permission and registers the handle.

use crate::needs::Needs;
use crate::txn::Txn;
use crate::uses::{How, Key};
use crate::who::Want;
use wire::{Entry, FileKind, Open, Status};

pub(crate) fn needs(args: &Open<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Open<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let who = txn.who(args.caller);
    let row = txn.row(args.inode)?;
    match row.kind {
        FileKind::Symlink => return Err(Status::Loop),
        FileKind::Directory if args.handle.write => return Err(Status::IsDirectory),
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            return Err(Status::NoDevice);
        }
        FileKind::Directory | FileKind::File => {}
    }
    if row.nlink == 0 && txn.handles.is_free(args.inode) {
        return Err(Status::Stale); // It is being destroyed.
    }
    let want = Want::NOTHING
        .and(Want::READ, args.read)
        .and(Want::EXECUTE, args.execute)
        .and(Want::WRITE, args.handle.write);
    txn.permit(args.inode, &who, want)?;
    txn.permit_handle()?;
    txn.uses(Key::Exists(args.inode), How::Depend);
    let row = txn.open(row, args.handle);
    Ok(Entry { attr: txn.attr_of(&row) })
}
