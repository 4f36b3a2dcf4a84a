//! `Setattr`: mode, owner, group and times. Sizes are the data shards'.

use crate::acl::{self, Acl};
use crate::needs::Needs;
use crate::txn::Txn;
use crate::who::{SET_GID, SET_UID, Want, Who};
use crate::xattr;
use disk::InodeRow;
use wire::{Bytes, ClearPrivileges, Entry, FileKind, SetTime, Setattr, Status};

pub(crate) fn needs(args: &Setattr<'_>, needs: &mut Needs<'_>) {
    needs.shown_inode(args.inode);
}

pub(crate) fn execute(args: &Setattr<'_>, txn: &mut Txn<'_>) -> Result<Entry, Status> {
    let who = txn.who(args.caller);
    let old = txn.row(args.inode)?;
    let mut row = old;
    set_owner(args, &old, &who, &mut row)?;
    set_mode(args, &old, &who, &mut row)?;
    let times = set_times(args, &old, &who, txn, &mut row)?;
    let capable = revoke(args, &old, &who, txn, &mut row)?;
    let set = args.mode.is_some() || args.uid.is_some() || args.gid.is_some() || times;
    let asked = set || capable || row.mode != old.mode;
    if !asked {
        txn.look_at_gives(args.inode);
        return Ok(Entry { attr: old.attr() });
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
    let attr = txn.put(row).attr();
    txn.look_at_gives(args.inode);
    Ok(Entry { attr })
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
    // away whoever changes the owner.
    if old.kind != FileKind::Directory {
        row.mode = without_set_id(old, who)?;
    }
    Ok(())
}

/// Without x for the group, set-gid is not about running, and those in the group may leave it.
fn without_set_id(old: &InodeRow, who: &Who<'_>) -> Result<u32, Status> {
    let mode = old.mode & !SET_UID;
    let runs = mode & 0o010 != 0;
    let drops = mode & SET_GID != 0 && (runs || !(who.is_root() || who.in_group(old.gid)?));
    Ok(if drops { mode & !SET_GID } else { mode })
}

/// Takes away what a file with other contents, or another owner, must not give. Whether that is its
/// capabilities, too.
fn revoke(
    args: &Setattr<'_>,
    old: &InodeRow,
    who: &Who<'_>,
    txn: &Txn<'_>,
    row: &mut InodeRow,
) -> Result<bool, Status> {
    let given = args.uid.is_some() || args.gid.is_some();
    if args.revoke == ClearPrivileges::Nothing && !given {
        return Ok(false);
    }
    if !given {
        txn.permit_contents(old, who)?;
    }
    if args.revoke == ClearPrivileges::All && old.kind == FileKind::File {
        row.mode = without_set_id(row, who)?;
    }
    Ok(txn.inode(old.inode)?.xattrs.contains_key(xattr::CAPABILITY))
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

/// Whether any time was asked to be set. The owner sets any time; who may write, both to the
/// present.
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
                    if (args.atime, args.mtime) != (SetTime::Now, SetTime::Now) {
                        return Err(Status::NotPermitted);
                    }
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
