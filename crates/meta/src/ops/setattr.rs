//! `Setattr`: mode, owner, group and times. Sizes are the data shards'.

use crate::acl::{self, Acl};
use crate::needs::Needs;
use crate::txn::Txn;
use crate::who::{SET_GID, SET_UID, Want, Who};
use disk::InodeRow;
use wire::{Bytes, Entry, FileKind, SetTime, Setattr, Status};

pub(crate) fn needs(args: &Setattr<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Setattr<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let who = txn.who(args.caller);
    let old = txn.row(args.inode)?;
    let mut row = old;
    set_owner(args, &old, &who, &mut row)?;
    set_mode(args, &old, &who, &mut row)?;
    let times = set_times(args, &old, &who, txn, &mut row)?;
    let asked = args.mode.is_some() || args.uid.is_some() || args.gid.is_some() || times;
    if !asked {
        return Ok(Entry { attr: old.attr() });
    }
    row.ctime = txn.now;
    if args.mode.is_some()
        && let Some(acl) = Acl::access(txn.inode(args.inode)?)
    {
        let value = acl.with_mode(row.mode);
        txn.put_xattr(args.inode, Bytes(acl::ACCESS), Bytes(&value));
    }
    if args.mtime != SetTime::Keep {
        row.mtime_set = txn.now;
    }
    Ok(Entry { attr: txn.put(row).attr() })
}

/// Root gives to whom it likes; the owner may change the group to one he is in.
fn set_owner(
    args: &Setattr<'_>,
    old: &InodeRow,
    who: &Who<'_>,
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
    if !who.is_root() {
        let keeps_owner = who.uid == old.uid && uid == old.uid;
        if !keeps_owner || (gid != old.gid && !who.in_group(gid)?) {
            return Err(Status::NotPermitted);
        }
    }
    (row.uid, row.gid) = (uid, gid);
    // A program never runs with the rights of an owner who did not allow it: Linux takes the bits
    // away whoever changes the owner. Without x for the group, set-gid is not about running.
    if old.kind != FileKind::Directory {
        row.mode &= !SET_UID;
        if row.mode & 0o010 != 0 {
            row.mode &= !SET_GID;
        }
    }
    Ok(())
}

fn set_mode(
    args: &Setattr<'_>,
    old: &InodeRow,
    who: &Who<'_>,
    row: &mut InodeRow,
) -> Result<(), Status> {
    let Some(mode) = args.mode else {
        return Ok(());
    };
    if old.kind == FileKind::Symlink {
        return Err(Status::NotSupported);
    }
    if !who.owns(old) {
        return Err(Status::NotPermitted);
    }
    row.mode = mode & 0o7777;
    if mode & SET_GID != 0 && !who.is_root() && !who.in_group(row.gid)? {
        row.mode &= !SET_GID;
    }
    Ok(())
}

/// Whether any time was asked to be set. The owner sets any time; who may write, the present.
fn set_times(
    args: &Setattr<'_>,
    old: &InodeRow,
    who: &Who<'_>,
    txn: &Txn<'_>,
    row: &mut InodeRow,
) -> Result<bool, Status> {
    let mut asked = false;
    for (set, time) in [(args.atime, &mut row.atime), (args.mtime, &mut row.mtime)] {
        match set {
            SetTime::Keep => {}
            SetTime::Now => {
                if !who.owns(old) {
                    txn.permit(old.inode, who, Want::WRITE)?;
                }
                (asked, *time) = (true, txn.now);
            }
            SetTime::At(at) => {
                if !who.owns(old) {
                    return Err(Status::NotPermitted);
                }
                (asked, *time) = (true, at);
            }
        }
    }
    Ok(asked)
}
