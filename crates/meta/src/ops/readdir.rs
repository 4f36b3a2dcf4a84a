//! `Readdir`: entries of a directory behind a cookie. An entry keeps its cookie for life, so a
//! listing in pieces misses no entry that exists all the time and shows none twice.

use crate::credentials::{Credentials, Permissions};
use crate::directory::Target;
use crate::locks::Locks;
use crate::needs::Needs;
use crate::residency::{LISTED_COUNT_MAX, Unit};
use crate::shard::Access;
use crate::state::State;
use crate::txn::Txn;
use alloc::vec::Vec;
use disk::InodeRow;
use wire::{Attr, Dirent, FileKind, InodeNo, List, Listing, Name, Readdir, Status, Writer};

/// Bytes of a listing before its entries.
const LISTING_HEADER_BYTES: usize = 8 + 1 + 4;
const LISTING_BYTES_MIN: u32 = 512;
const LISTING_BYTES_MAX: u32 = 131_072;

/// Bytes for entries in a reply of at most `listing_bytes_max` with this header.
pub(super) fn space_bytes(listing_bytes_max: u32, head_bytes: usize) -> usize {
    let reply_bytes = listing_bytes_max.clamp(LISTING_BYTES_MIN, LISTING_BYTES_MAX);
    usize::try_from(reply_bytes).unwrap_or(0) - head_bytes
}

pub(crate) fn needs(args: &Readdir<'_>, needs: &mut Needs<'_>) {
    needs.shown_inode(args.inode);
    needs.list(args.inode, args.cookie);
}

pub(crate) fn execute<'t>(args: &Readdir<'_>, txn: &'t mut Txn<'_>) -> Result<Listing<'t>, Status> {
    let credentials = txn.credentials(args.caller);
    let InodeRow { parent, next_cookie, .. } = *txn.directory(args.inode)?.0;
    permit(args.inode, &credentials, txn)?;
    let attrs =
        args.attrs && may_search(txn.permit(args.inode, &credentials, Permissions::EXECUTE))?;
    let space_bytes = space_bytes(args.listing_bytes_max, LISTING_HEADER_BYTES);
    let ends = args.handle.and_then(|handle| {
        txn.handles.list((args.inode, txn.client, handle), args.cookie, next_cookie)
    });
    let ends_before = ends.unwrap_or(u64::MAX);
    let cookie = begin(args.inode, args.cookie, ends_before, txn)?;
    let piece = Piece { dir: args.inode, cookie, ends_before, space_bytes, attrs };
    if attrs {
        fetch_shown(&piece, txn)?;
    }
    txn.access = Access::Reads(args.inode);
    let (locks, export_root, hides) = (txn.locks, txn.export_root, txn.hides());
    let mut named = Vec::new();
    let (out, state) = txn.scratch();
    let (count, end) = list(&piece, state, out, |target| {
        let is_shown = is_free(target, locks, state) && !hides(target.inode);
        let known = if is_shown { state.inode(target.inode) } else { None }?;
        if export_root.is_some() && known.row.is_named_elsewhere(args.inode) {
            named.push(known.row.inode);
        }
        Some(known.attr())
    });
    named.into_iter().for_each(|inode| state.export_tracking.name(inode, args.inode));
    let parent = if export_root == Some(args.inode) { args.inode } else { parent };
    Ok(Listing { parent, end, entries: List::new(count, out) })
}

/// Whether the caller may list a directory.
pub(super) fn permit(
    dir: InodeNo,
    credentials: &Credentials<'_>,
    txn: &Txn<'_>,
) -> Result<(), Status> {
    // The open checked the permission, if there was one, and it may have changed since.
    if txn.handles.reads(dir, txn.client) {
        return Ok(());
    }
    txn.permit(dir, credentials, Permissions::READ)
}

/// The part of a directory to list.
struct Piece {
    dir: InodeNo,
    cookie: u64,
    /// Entries from this cookie on are left out.
    ends_before: u64,
    space_bytes: usize,
    attrs: bool,
}

/// The cookie to continue from. Behind the requested one there may be no entries for a while, if
/// all fetched ones were removed since.
pub(super) fn begin(
    dir: InodeNo,
    requested: u64,
    ends_before: u64,
    txn: &mut Txn<'_>,
) -> Result<u64, Status> {
    let mut cookie = requested;
    loop {
        if cookie.saturating_add(1) >= ends_before {
            return Ok(cookie);
        }
        txn.state.need(Unit::Listing(dir, cookie));
        if !txn.state.has_all() {
            return Err(Status::Busy);
        }
        let (mut entries, until) = txn.state.listed(dir, cookie);
        if entries.next().is_some() || until == u64::MAX {
            return Ok(cookie);
        }
        cookie = until;
    }
}

/// Entries shown with attributes must be in memory.
fn fetch_shown(piece: &Piece, txn: &mut Txn<'_>) -> Result<(), Status> {
    let locks = txn.locks;
    let mut shown = Vec::new();
    let (out, state) = txn.scratch();
    if state.residency.is_some() {
        list(piece, state, out, |target| {
            let free = is_free(target, locks, state);
            if free && target.kind != FileKind::Directory {
                shown.push(target.inode);
            }
            free.then(|| target.elsewhere())
        });
    }
    shown.into_iter().for_each(|inode| txn.state.need(Unit::Inode(inode)));
    if txn.state.has_all() { Ok(()) } else { Err(Status::Busy) }
}

/// Without permission to search a listing has names, but no attributes.
pub(super) const fn may_search(permitted: Result<(), Status>) -> Result<bool, Status> {
    match permitted {
        Ok(()) => Ok(true),
        Err(Status::NeedGroups) => Err(Status::NeedGroups),
        Err(_) => Ok(false),
    }
}

/// Encodes entries while they fit, with attributes if wanted and available; returns their number
/// and whether that was all.
fn list(
    piece: &Piece,
    state: &State,
    out: &mut Vec<u8>,
    mut attr_of: impl FnMut(&Target) -> Option<Attr>,
) -> (u32, bool) {
    let bounded = piece.attrs && state.residency.is_some();
    let count_max = if bounded { u32::from(LISTED_COUNT_MAX) } else { u32::MAX };
    let (entries, until) = state.listed(piece.dir, piece.cookie);
    let mut count = 0;
    for (name, target) in entries {
        if target.cookie >= piece.ends_before {
            return (count, true);
        }
        let Ok(name) = Name::new(name) else {
            continue; // What was put in was a `Name`.
        };
        if count == count_max {
            return (count, false);
        }
        let attr = if piece.attrs { attr_of(&target) } else { None };
        let Target { cookie, inode, kind, .. } = target;
        let entry = Dirent { cookie, inode, kind, name, attr, granted: false };
        let fitting_bytes = out.len();
        Writer::new(out).write(&entry);
        if out.len() > piece.space_bytes {
            out.truncate(fitting_bytes);
            return (count, false);
        }
        count += 1;
    }
    (count, until >= piece.ends_before - 1)
}

/// Whether an inode's attributes can be shown: it is of this shard, and no transaction over several
/// shards has locked it.
pub(super) fn is_free(target: &Target, locks: &Locks, state: &State) -> bool {
    let here = state.shard();
    let entered = locks.entered_from_afar(target.inode, here, None);
    target.inode.shard() == here && locks.inode(target.inode, None).or(entered).is_none()
}
