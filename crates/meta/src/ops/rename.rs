//! `Rename`: moves a name, over an existing one if need be, or exchanges two.
//!
//! ```text
//!            before        Replace       Whiteout            Exchange
//! old name   source        -             whiteout            target
//! new name   target or -   source        source              source
//! ```

use crate::credentials::{Credentials, Permissions};
use crate::directory::Target;
use crate::mode::NewMode;
use crate::needs::Needs;
use crate::ops::LINK_COUNT_MAX;
use crate::txn::{EntryDelta, Txn};
use crate::uses::{AccessMode, DependencyKey};
use disk::InodeRow;
use wire::{FileKind, InodeNo, Rename, RenameHow, Renamed, Status};

pub(crate) fn needs<'a>(args: &Rename<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.inode(args.new_parent);
    needs.removed_entry(args.parent, args.name);
    needs.removed_entry(args.new_parent, args.new_name);
}

pub(crate) fn execute(args: &Rename<'_>, txn: &mut Txn<'_>) -> Result<Renamed, Status> {
    let credentials = txn.credentials(args.caller);
    let source = txn.search(args.parent, args.name, &credentials)?.ok_or(Status::NotFound)?;
    txn.require_entry(args.parent, args.name);
    txn.require_entry(args.new_parent, args.new_name);
    txn.require_inode(source.inode);
    require_topology(args, source, txn);
    if args.how.leaves_whiteout() {
        txn.require_new_inode(args.parent);
    }
    txn.requirements_met()?;
    let target = txn.search(args.new_parent, args.new_name, &credentials)?;
    if target.is_some() && args.how.keeps_target() {
        return Err(Status::Exists);
    }
    if target.is_some_and(|target| target.inode == source.inode) {
        // Two names of one inode: POSIX leaves both. Directories have one name.
        return Ok(Renamed { moved: None, exchanged: None });
    }
    if let Some(target) = target {
        txn.require_inode(target.inode);
        if args.how == RenameHow::Exchange {
            require_topology(args, target, txn);
        }
        txn.requirements_met()?;
    }
    if args.how == RenameHow::Exchange {
        let target = target.ok_or(Status::NotFound)?;
        permit_exchange(args, source, target, &credentials, txn)?;
        return exchange(args, source, target, txn);
    }
    permit(args, source, target, &credentials, txn)?;
    apply(args, source, target, &credentials, txn)
}

/// A directory moves to another parent: other moves of directories are locked out.
fn require_topology(args: &Rename<'_>, moved: Target, txn: &mut Txn<'_>) {
    if moved.kind == FileKind::Directory && args.parent != args.new_parent {
        txn.require_topology(args.parent, args.new_parent);
    }
}

/// Checks all preconditions.
fn permit(
    args: &Rename<'_>,
    source: Target,
    victim: Option<Target>,
    credentials: &Credentials<'_>,
    txn: &mut Txn<'_>,
) -> Result<(), Status> {
    let is_directory = source.kind == FileKind::Directory;
    let moves = args.parent != args.new_parent;
    if is_directory && moves && txn.is_within(args.new_parent, source.inode)? {
        return Err(Status::Invalid);
    }
    txn.permit_remove(args.parent, source, credentials)?;
    match victim {
        Some(victim) => {
            txn.permit_remove(args.new_parent, victim, credentials)?;
            match (is_directory, victim.kind == FileKind::Directory) {
                (true, false) => return Err(Status::NotDirectory),
                (false, true) => return Err(Status::IsDirectory),
                (true, true) => {
                    if txn.dir_row(victim.inode)?.entry_count > 0 {
                        return Err(Status::NotEmpty);
                    }
                }
                (false, false) => {}
            }
        }
        None => txn.permit_change(args.new_parent, credentials)?,
    }
    if is_directory && moves {
        // Its `..` changes.
        txn.permit(source.inode, credentials, Permissions::WRITE)?;
        // A replaced directory is removed.
        if victim.is_none() && txn.row(args.new_parent)?.nlink >= LINK_COUNT_MAX {
            return Err(Status::TooManyLinks);
        }
    }
    Ok(())
}

/// Checks the preconditions of an exchange: each name moves as if there was no target.
fn permit_exchange(
    args: &Rename<'_>,
    source: Target,
    target: Target,
    credentials: &Credentials<'_>,
    txn: &mut Txn<'_>,
) -> Result<(), Status> {
    let moves = args.parent != args.new_parent;
    let ways = [(source, args.new_parent), (target, args.parent)];
    for (moved, to) in ways.into_iter().filter(|_| moves) {
        if moved.kind == FileKind::Directory && txn.is_within(to, moved.inode)? {
            return Err(Status::Invalid);
        }
    }
    txn.permit_remove(args.parent, source, credentials)?;
    txn.permit_remove(args.new_parent, target, credentials)?;
    for (moved, to) in ways.into_iter().filter(|_| moves) {
        if moved.kind != FileKind::Directory {
            continue;
        }
        txn.permit(moved.inode, credentials, Permissions::WRITE)?;
        let comes_alone = source.kind != target.kind;
        if comes_alone && txn.row(to)?.nlink >= LINK_COUNT_MAX {
            return Err(Status::TooManyLinks);
        }
    }
    Ok(())
}

fn apply(
    args: &Rename<'_>,
    source: Target,
    victim: Option<Target>,
    credentials: &Credentials<'_>,
    txn: &mut Txn<'_>,
) -> Result<Renamed, Status> {
    let row = txn.row(source.inode)?;
    let victim_row = victim.map(|victim| txn.row(victim.inode)).transpose()?;
    let whiteout =
        args.how.leaves_whiteout().then(|| whiteout(args, credentials, txn)).transpose()?;
    let is_directory = source.kind == FileKind::Directory;
    let row = put_moved(row, (args.parent, args.new_parent), txn);
    let left = if let Some(row) = whiteout {
        let row = txn.put_new(args.parent, row);
        txn.put_entry(args.parent, args.name, &row, Some(source));
        EntryDelta::of(row.kind)
    } else {
        txn.drop_entry(args.parent, args.name);
        EntryDelta::NOTHING
    };
    txn.put_entry(args.new_parent, args.new_name, &row, victim);
    let moved = EntryDelta::of(source.kind);
    let replaced = victim.map_or(EntryDelta::NOTHING, |victim| EntryDelta::of(victim.kind));
    if args.parent == args.new_parent {
        txn.touch(args.parent, left + -replaced);
    } else {
        if is_directory {
            txn.uses(DependencyKey::Topology, AccessMode::Change);
        }
        txn.touch(args.parent, left + -moved);
        txn.touch(args.new_parent, moved + -replaced);
    }
    match victim_row {
        Some(victim) if victim.kind == FileKind::Directory => {
            txn.uses(DependencyKey::Entries(victim.inode), AccessMode::Whole);
            txn.remove_directory(victim);
        }
        Some(victim) => txn.unname(victim, args.new_parent),
        None => {}
    }
    Ok(Renamed { moved: directory(source), exchanged: None })
}

fn exchange(
    args: &Rename<'_>,
    source: Target,
    target: Target,
    txn: &mut Txn<'_>,
) -> Result<Renamed, Status> {
    let (source_row, target_row) = (txn.row(source.inode)?, txn.row(target.inode)?);
    let source_row = put_moved(source_row, (args.parent, args.new_parent), txn);
    let target_row = put_moved(target_row, (args.new_parent, args.parent), txn);
    txn.put_entry(args.parent, args.name, &target_row, Some(source));
    txn.put_entry(args.new_parent, args.new_name, &source_row, Some(target));
    let renamed = Renamed { moved: directory(source), exchanged: directory(target) };
    if args.parent == args.new_parent {
        txn.touch(args.parent, EntryDelta::NOTHING);
        return Ok(renamed);
    }
    if [source.kind, target.kind].contains(&FileKind::Directory) {
        txn.uses(DependencyKey::Topology, AccessMode::Change);
    }
    let delta = EntryDelta::of(source.kind) + -EntryDelta::of(target.kind);
    txn.touch(args.parent, -delta);
    txn.touch(args.new_parent, delta);
    Ok(renamed)
}

fn directory(target: Target) -> Option<InodeNo> {
    (target.kind == FileKind::Directory).then_some(target.inode)
}

/// Stores a moved inode's row, with a directory's new parent.
fn put_moved(row: InodeRow, (from, to): (InodeNo, InodeNo), txn: &mut Txn<'_>) -> InodeRow {
    let other = row.kind != FileKind::Directory && row.nlink > 1 && row.parent != from;
    let parent = if other && row.parent != InodeNo(0) { row.parent } else { to };
    txn.put(InodeRow { parent, ctime: txn.now, ..row })
}

/// A whiteout: marks a name of lower layers as removed in a union mount. A character device without
/// permissions and with number 0; it opens nothing, so any caller may create one.
fn whiteout(
    args: &Rename<'_>,
    credentials: &Credentials<'_>,
    txn: &Txn<'_>,
) -> Result<InodeRow, Status> {
    txn.new_inode(args.parent, FileKind::CharDevice, NewMode::exactly(0), credentials)
}
