//! `Rename`: moves a name, over an existing one if need be.

use crate::directory::Target;
use crate::needs::Needs;
use crate::ops::LINK_COUNT_MAX;
use crate::txn::{Came, Done, Txn};
use crate::uses::{How, Key};
use crate::who::{Want, Who};
use disk::InodeRow;
use wire::{FileKind, Rename, RenameHow, Status};

pub(crate) fn needs<'a>(args: &Rename<'a>, needs: &mut Needs<'a>) {
    needs.inode(args.parent);
    needs.inode(args.new_parent);
    needs.entry(args.parent, args.name);
    needs.entry(args.new_parent, args.new_name);
}

pub(crate) fn execute(args: &Rename<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    if args.how == RenameHow::Exchange || args.how.leaves_whiteout() {
        return Err(Status::Invalid);
    }
    let who = txn.who(args.caller);
    let source = txn.search(args.parent, args.name, &who)?.ok_or(Status::NotFound)?;
    txn.reach_entry(args.parent, args.name);
    txn.reach_entry(args.new_parent, args.new_name);
    txn.reach(source.inode);
    if source.kind == FileKind::Directory && args.parent != args.new_parent {
        txn.reach_topology(args.parent, args.new_parent);
    }
    txn.reached()?;
    let victim = txn.search(args.new_parent, args.new_name, &who)?;
    if victim.is_some() && args.how.keeps_target() {
        return Err(Status::Exists);
    }
    if victim.is_some_and(|victim| victim.inode == source.inode) {
        return Ok(Done); // Two names of one inode: POSIX leaves both.
    }
    if let Some(victim) = victim {
        txn.reach(victim.inode);
        txn.reached()?;
    }
    permit(args, source, victim, &who, txn)?;
    apply(args, source, victim, txn)
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
        who.permit(&txn.row(source.inode)?, Want::WRITE)?;
        if txn.row(args.new_parent)?.nlink >= LINK_COUNT_MAX {
            return Err(Status::TooManyLinks);
        }
    }
    Ok(())
}

fn apply(
    args: &Rename<'_>,
    source: Target,
    victim: Option<Target>,
    txn: &mut Txn<'_>,
) -> Result<Done, Status> {
    let row = txn.row(source.inode)?;
    let victim_row = victim.map(|victim| txn.row(victim.inode)).transpose()?;
    let is_directory = source.kind == FileKind::Directory;
    let parent = if is_directory { args.new_parent } else { row.parent };
    let row = txn.put(InodeRow { parent, ctime: txn.now, ..row });
    txn.drop_entry(args.parent, args.name);
    txn.put_entry(args.new_parent, args.new_name, &row, victim);
    let moved = Came::of(source.kind);
    let replaced = victim.map_or(Came::NOTHING, |victim| Came::of(victim.kind));
    if args.parent == args.new_parent {
        txn.touch(args.parent, -replaced);
    } else {
        if is_directory {
            txn.uses(Key::Topology, How::Change);
        }
        txn.touch(args.parent, -moved);
        txn.touch(args.new_parent, moved + -replaced);
    }
    match victim_row {
        Some(victim) if victim.kind == FileKind::Directory => {
            txn.uses(Key::Entries(victim.inode), How::Whole);
            txn.remove_directory(victim);
        }
        Some(victim) => txn.unname(victim),
        None => {}
    }
    Ok(Done)
}
