//! `Setattr`: mode, owner, group and times. Sizes are set at the data shards.

use crate::acl::{self, Acl};
use crate::credentials::{Credentials, Permissions, SET_GID, SET_UID};
use crate::needs::Needs;
use crate::txn::Txn;
use crate::xattr;
use disk::InodeRow;
use wire::{Bytes, ClearPrivileges, Entry, FileKind, SetTime, Setattr, Status};

pub(crate) fn needs(args: &Setattr<'_>, needs: &mut Needs<'_>) {
    needs.shown_inode(args.inode);
}

pub(crate) fn execute(args: &Setattr<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let credentials = txn.credentials(args.caller);
    let old = txn.row(args.inode)?;
    let mut row = old;
    set_owner(args, &old, &credentials, &mut row)?;
    set_mode(args, &old, &credentials, &mut row)?;
    let times = set_times(args, &old, &credentials, txn, &mut row)?;
    let capable = clears(args, &old, &credentials, txn, &mut row)?;
    let set = args.mode.is_some() || args.uid.is_some() || args.gid.is_some() || times;
    let requested = set || capable || row.mode != old.mode;
    if !requested {
        txn.refresh_privileged_bits(args.inode);
        return Ok(Entry { attr: txn.attr_of(&old) });
    }
    row.ctime = txn.now;
    if args.mode.is_some()
        && let Some(acl) = Acl::access(txn.inode(args.inode)?)
    {
        let value = acl.with_mode(row.mode);
        txn.put_xattr(args.inode, Bytes(acl::ACCESS), Bytes(&value));
    }
    if capable {
        txn.drop_xattr(args.inode, Bytes(xattr::CAPABILITY));
    }
    if args.mtime != SetTime::Keep {
        row.mtime_set = txn.now;
    }
    let row = txn.put(row);
    let attr = txn.attr_of(&row);
    txn.refresh_privileged_bits(args.inode);
    Ok(Entry { attr })
}

/// Root may change owner and group; the owner may change the group to one of its groups.
fn set_owner(
    args: &Setattr<'_>,
    old: &InodeRow,
    credentials: &Credentials<'_>,
    row: &mut InodeRow,
) -> Result<(), Status> {
    if args.uid.is_none() && args.gid.is_none() {
        return Ok(());
    }
    let uid = args.uid.unwrap_or(old.uid);
    let gid = args.gid.unwrap_or(old.gid);
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Status::Invalid);
    }
    if !credentials.is_root() {
        let keeps_owner = credentials.uid == old.uid && uid == old.uid;
        if !keeps_owner || (gid != old.gid && !credentials.in_group(gid)?) {
            return Err(Status::NotPermitted);
        }
    }
    (row.uid, row.gid) = (uid, gid);
    // Linux clears the bits on a change of owner, so that a program never runs with the rights of
    // an owner that did not allow it.
    if old.kind != FileKind::Directory {
        row.mode = without_set_id(old, credentials)?;
    }
    Ok(())
}

/// Without x for the group, set-gid does not concern execution, and members of the group may keep
/// it.
fn without_set_id(old: &InodeRow, credentials: &Credentials<'_>) -> Result<u32, Status> {
    let mode = old.mode & !SET_UID;
    let runs = mode & 0o010 != 0;
    let drops = mode & SET_GID != 0
        && (runs || !(credentials.is_root() || credentials.in_group(old.gid)?));
    Ok(if drops { mode & !SET_GID } else { mode })
}

/// Clears the privileges that a change of contents or owner must clear. Returns whether
/// capabilities are among them.
fn clears(
    args: &Setattr<'_>,
    old: &InodeRow,
    credentials: &Credentials<'_>,
    txn: &Txn<'_>,
    row: &mut InodeRow,
) -> Result<bool, Status> {
    let changes_owner = args.uid.is_some() || args.gid.is_some();
    if args.clears == ClearPrivileges::Nothing && !changes_owner {
        return Ok(false);
    }
    if !changes_owner {
        txn.permit_contents(old, credentials)?;
    }
    if args.clears == ClearPrivileges::All && old.kind == FileKind::File {
        row.mode = without_set_id(row, credentials)?;
    }
    Ok(txn.inode(old.inode)?.xattrs.contains_key(xattr::CAPABILITY))
}

fn set_mode(
    args: &Setattr<'_>,
    old: &InodeRow,
    credentials: &Credentials<'_>,
    row: &mut InodeRow,
) -> Result<(), Status> {
    let Some(mode) = args.mode else {
        return Ok(());
    };
    if old.kind == FileKind::Symlink {
        return Err(Status::NotSupported);
    }
    if !credentials.owns(old) {
        return Err(Status::NotPermitted);
    }
    row.mode = mode & 0o7777;
    if mode & SET_GID != 0 && !credentials.is_root() && !credentials.in_group(row.gid)? {
        row.mode &= !SET_GID;
    }
    Ok(())
}

/// Sets times; returns whether any was requested. The owner sets any time; a caller with write
/// permission sets both to the present.
fn set_times(
    args: &Setattr<'_>,
    old: &InodeRow,
    credentials: &Credentials<'_>,
    txn: &Txn<'_>,
    row: &mut InodeRow,
) -> Result<bool, Status> {
    let mut requested = false;
    for (set, time) in [(args.atime, &mut row.atime), (args.mtime, &mut row.mtime)] {
        match set {
            SetTime::Keep => {}
            SetTime::Now => {
                if !credentials.owns(old) {
                    if (args.atime, args.mtime) != (SetTime::Now, SetTime::Now) {
                        return Err(Status::NotPermitted);
                    }
                    txn.permit(old.inode, credentials, Permissions::WRITE)?;
                }
                (requested, *time) = (true, txn.now);
            }
            SetTime::At(at) => {
                if !credentials.owns(old) {
                    return Err(Status::NotPermitted);
                }
                (requested, *time) = (true, at);
            }
        }
    }
    Ok(requested)
}
