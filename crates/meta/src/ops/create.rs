//! `Create`: a new regular file, or an existing one opened, as `open` with O_CREAT does. One that its
//! caller has the answer of makes a file, with the number and the time of the answer.

use crate::credentials::{Credentials, Permissions};
use crate::directory::Target;
use crate::mode::NewMode;
use crate::needs::Needs;
use crate::txn::{EntryDelta, Txn};
use disk::InodeRow;
use wire::{Create, CreateBehind, Created, FileKind, Rule, Status};

pub(crate) fn needs<'a>(args: &Create<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.new_entry(args.parent, args.name);
    needs.opened(args.handle);
    args.behind.into_iter().for_each(|behind| needs.inode(behind.inode));
}

pub(crate) fn execute(args: &Create<'_>, txn: &mut Txn<'_>) -> Result<Created, Status> {
    let credentials = txn.credentials(args.caller);
    let target = txn.search(args.parent, args.name, &credentials)?;
    if let Some(behind) = args.behind {
        let is_known = txn.state.inode(behind.inode).is_some();
        if target.is_some() || is_known || !txn.is_here(behind.inode) {
            return Err(Status::Stale);
        }
        txn.set_behind(behind.at);
    }
    if let Some(target) = target {
        return open_existing(args, target, &credentials, txn);
    }
    txn.permit_change(args.parent, &credentials)?;
    txn.permit_handle()?;
    let mode = NewMode { mode: args.mode & 0o7777, umask: args.umask };
    let row = txn.new_inode(args.parent, FileKind::File, mode, &credentials)?;
    let row = match args.behind {
        Some(CreateBehind { inode, .. }) => {
            InodeRow { inode, layout: Some(txn.state.layout_behind(inode)), ..row }
        }
        None => row,
    };
    // The creator of a file may open it in any mode, whatever its permission bits are.
    let writes = args.handle.is_some_and(|handle| handle.open_for.writes());
    let size_at_data = writes && txn.rules.hold(Rule::SizeFlag);
    let row = txn.put_new(args.parent, InodeRow { size_at_data, ..row });
    txn.put_entry(args.parent, args.name, &row, None);
    txn.touch(args.parent, EntryDelta::FILE);
    let row = match args.handle {
        Some(handle) => txn.open(row, handle),
        None => row,
    };
    Ok(Created { attr: txn.attr_of(&row), made: true })
}

fn open_existing(
    args: &Create<'_>,
    target: Target,
    credentials: &Credentials<'_>,
    txn: &mut Txn<'_>,
) -> Result<Created, Status> {
    if args.exclusive {
        return Err(Status::Exists);
    }
    match target.kind {
        FileKind::Directory => return Err(Status::IsDirectory),
        FileKind::Symlink => return Err(Status::Loop),
        // The name is new since the client's lookup: after another lookup the client opens it by
        // its kind.
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            return Err(Status::Stale);
        }
        FileKind::File => {}
    }
    txn.found(args.parent, target);
    if !txn.is_here(target.inode) {
        // Its own shard opens it and checks the permission.
        return Ok(Created { attr: target.elsewhere(), made: false });
    }
    let row = txn.row(target.inode)?;
    let permissions =
        args.handle.map_or(Permissions::NOTHING, |handle| Permissions::to_open(handle.open_for));
    txn.permit(target.inode, credentials, permissions)?;
    txn.permit_handle()?;
    let row = match args.handle {
        Some(handle) => txn.open(row, handle),
        None => row,
    };
    Ok(Created { attr: txn.attr_of(&row), made: false })
}
