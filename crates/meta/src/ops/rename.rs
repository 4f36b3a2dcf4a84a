//! `Rename`: moves a name, over an existing one if need be, or exchanges two.
//!
//! ```text
//!            before        Replace       Whiteout            Exchange
//! old name   source        -             whiteout            target
//! new name   target or -   source        source              source
//! ```

use crate::directory::Target;
use crate::mode::NewMode;
use crate::needs::Needs;
use crate::ops::LINK_COUNT_MAX;
use crate::txn::{Came, Txn};
use crate::uses::{How, Key};
use crate::who::{Want, Who};
use disk::InodeRow;
use wire::{FileKind, InodeNo, Rename, RenameHow, Renamed, Status};

pub(crate) fn needs<'a>(args: &Rename<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.inode(args.new_parent);
    needs.removed_entry(args.parent, args.name);
    needs.removed_entry(args.new_parent, args.new_name);
}

pub(crate) fn execute(args: &Rename<'_>, txn: &mut Txn<'_>) -> Result<Renamed, Status> {
    let who = txn.who(args.caller);
    let source = txn.search(args.parent, args.name, &who)?.ok_or(Status::NotFound)?;
    txn.reach_entry(args.parent, args.name);
    txn.reach_entry(args.new_parent, args.new_name);
    txn.reach(source.inode);
    reach_topology(args, source, txn);
    if args.how.leaves_whiteout() {
        txn.reach_new(args.parent);
    }
    txn.reached()?;
    let target = txn.search(args.new_parent, args.new_name, &who)?;
    if target.is_some() && args.how.keeps_target() {
        return Err(Status::Exists);
    }
    if target.is_some_and(|target| target.inode == source.inode) {
        // Two names of one inode: POSIX leaves both. Directories have one name.
        return Ok(Renamed { moved: None, exchanged: None });
    }
    if let Some(target) = target {
        txn.reach(target.inode);
        if args.how == RenameHow::Exchange {
            reach_topology(args, target, txn);
        }
        txn.reached()?;
    }
    if args.how == RenameHow::Exchange {
        let target = target.ok_or(Status::NotFound)?;
        permit_exchange(args, source, target, &who, txn)?;
        return exchange(args, source, target, txn);
    }
    permit(args, source, target, &who, txn)?;
    apply(args, source, target, &who, txn)
}

/// A directory among what moves from one parent to the other: no other may move meanwhile.
fn reach_topology(args: &Rename<'_>, moved: Target, txn: &mut Txn<'_>) {
    if moved.kind == FileKind::Directory && args.parent != args.new_parent {
        txn.reach_topology(args.parent, args.new_parent);
    }
}

/// All the reasons why not.
fn permit(
    args: &Rename<'_>,
    source: Target,
    victim: Option<Target>,
    who: &Who<'_>,
    txn: &mut Txn<'_>,
) -> Result<(), Status> {
    let is_directory = source.kind == FileKind::Directory;
    let moves = args.parent != args.new_parent;
    if is_directory && moves && txn.is_within(args.new_parent, source.inode)? {
        return Err(Status::Invalid);
    }
    txn.permit_remove(args.parent, source, who)?;
    match victim {
        Some(victim) => {
            txn.permit_remove(args.new_parent, victim, who)?;
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
        None => txn.permit_change(args.new_parent, who)?,
    }
    if is_directory && moves {
        // Its `..` changes.
        txn.permit(source.inode, who, Want::WRITE)?;
        // A directory that it replaces goes.
        if victim.is_none() && txn.row(args.new_parent)?.nlink >= LINK_COUNT_MAX {
            return Err(Status::TooManyLinks);
        }
    }
    Ok(())
}

/// The same for two names that are to be exchanged: each goes as if it was moved over nothing.
fn permit_exchange(
    args: &Rename<'_>,
    source: Target,
    target: Target,
    who: &Who<'_>,
    txn: &mut Txn<'_>,
) -> Result<(), Status> {
    let moves = args.parent != args.new_parent;
    let ways = [(source, args.new_parent), (target, args.parent)];
    for (moved, to) in ways.into_iter().filter(|_| moves) {
        if moved.kind == FileKind::Directory && txn.is_within(to, moved.inode)? {
            return Err(Status::Invalid);
        }
    }
    txn.permit_remove(args.parent, source, who)?;
    txn.permit_remove(args.new_parent, target, who)?;
    for (moved, to) in ways.into_iter().filter(|_| moves) {
        if moved.kind != FileKind::Directory {
            continue;
        }
        txn.permit(moved.inode, who, Want::WRITE)?;
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
    who: &Who<'_>,
    txn: &mut Txn<'_>,
) -> Result<Renamed, Status> {
    let row = txn.row(source.inode)?;
    let victim_row = victim.map(|victim| txn.row(victim.inode)).transpose()?;
    let whiteout = args.how.leaves_whiteout().then(|| whiteout(args, who, txn)).transpose()?;
    let is_directory = source.kind == FileKind::Directory;
    let row = put_moved(row, (args.parent, args.new_parent), txn);
    let left = if let Some(row) = whiteout {
        let row = txn.put_new(args.parent, row);
        txn.put_entry(args.parent, args.name, &row, Some(source));
        Came::of(row.kind)
    } else {
        txn.drop_entry(args.parent, args.name);
        Came::NOTHING
    };
    txn.put_entry(args.new_parent, args.new_name, &row, victim);
    let moved = Came::of(source.kind);
    let replaced = victim.map_or(Came::NOTHING, |victim| Came::of(victim.kind));
    if args.parent == args.new_parent {
        txn.touch(args.parent, left + -replaced);
    } else {
        if is_directory {
            txn.uses(Key::Topology, How::Change);
        }
        txn.touch(args.parent, left + -moved);
        txn.touch(args.new_parent, moved + -replaced);
    }
    match victim_row {
        Some(victim) if victim.kind == FileKind::Directory => {
            txn.uses(Key::Entries(victim.inode), How::Whole);
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
        txn.touch(args.parent, Came::NOTHING);
        return Ok(renamed);
    }
    if [source.kind, target.kind].contains(&FileKind::Directory) {
        txn.uses(Key::Topology, How::Change);
    }
    let came = Came::of(source.kind) + -Came::of(target.kind);
    txn.touch(args.parent, -came);
    txn.touch(args.new_parent, came);
    Ok(renamed)
}

fn directory(target: Target) -> Option<InodeNo> {
    (target.kind == FileKind::Directory).then_some(target.inode)
}

/// What moves is changed, and a directory's `..` with it.
fn put_moved(row: InodeRow, (from, to): (InodeNo, InodeNo), txn: &mut Txn<'_>) -> InodeRow {
    let other = row.kind != FileKind::Directory && row.nlink > 1 && row.parent != from;
    let parent = if other && row.parent != InodeNo(0) { row.parent } else { to };
    txn.put(InodeRow { parent, ctime: txn.now, ..row })
}

/// What says in one layer of a union that a name of the layers below is gone: a character device
/// without permissions whose number is 0. It opens nothing, so anybody may leave one.
fn whiteout(args: &Rename<'_>, who: &Who<'_>, txn: &Txn<'_>) -> Result<InodeRow, Status> {
    txn.new_inode(args.parent, FileKind::CharDevice, NewMode::exactly(0), who)
}
