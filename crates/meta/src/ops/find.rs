//! `Find`: a directory's entries behind a cookie, filtered by a predicate.
//!
//! Permissions are those of [`super::readdir`]; without permission to search, attributes are not
//! used. Invariant: the work of one request is bounded, whatever the predicate: the reply has the
//! cookie to continue from, and the lane does other work in between.

use super::readdir::{begin, is_free, may_search, permit, space_bytes};
use crate::credentials::Permissions;
use crate::directory::Target;
use crate::needs::Needs;
use crate::residency::{LISTED_COUNT_MAX, Unit};
use crate::shard::Access;
use crate::state::State;
use crate::txn::Txn;
use alloc::vec::Vec;
use wire::{
    Attr, FileKind, Find, Found, FoundEntry, InodeNo, List, Name, Status, Verdict, Writer,
    attr_flag,
};

/// Bytes of a reply before its entries.
const FOUND_HEADER_BYTES: usize = 8 + 1 + 1 + 4;
/// Steps of one request, for entries and for matching their names. The last entry may exceed the
/// limit by the steps of one name.
const STEP_COUNT_MAX: usize = 64 * 1024;
/// Steps for an entry beside those of its name.
const ENTRY_STEP_COUNT: usize = 16;

pub(crate) fn needs(args: &Find<'_>, needs: &mut Needs<'_>) {
    needs.shown_inode(args.inode);
    needs.list(args.inode, args.cookie);
}

pub(crate) fn execute<'t>(args: &Find<'_>, txn: &'t mut Txn<'_>) -> Result<Found<'t>, Status> {
    let credentials = txn.credentials(args.caller);
    txn.directory(args.inode)?;
    permit(args.inode, &credentials, txn)?;
    let search = may_search(txn.permit(args.inode, &credentials, Permissions::EXECUTE))?;
    let piece = Piece {
        dir: args.inode,
        cookie: begin(args.inode, args.cookie, u64::MAX, txn)?,
        space_bytes: space_bytes(args.listing_bytes_max, FOUND_HEADER_BYTES),
        search,
        args,
    };
    if txn.state.residency.is_some() {
        fetch_evaluated(&piece, txn)?;
    }
    txn.access = Access::Reads(args.inode);
    let (locks, export_root, hides) = (txn.locks, txn.export_root, txn.hides());
    let mut named = Vec::new();
    let (out, state) = txn.scratch();
    let searched = search_entries(&piece, state, out, |target| {
        let is_shown = is_free(target, locks, state) && !hides(target.inode);
        let known = if is_shown { state.inode(target.inode) } else { None }?;
        if export_root.is_some() && known.row.is_named_elsewhere(args.inode) {
            named.push(known.row.inode);
        }
        Some(known.attr())
    });
    named.into_iter().for_each(|inode| state.export_tracking.name(inode, args.inode));
    Ok(Found {
        cookie: searched.cookie,
        end: searched.end,
        search,
        entries: List::new(searched.count, out),
    })
}

/// The part of a directory to search, and the request.
struct Piece<'p> {
    dir: InodeNo,
    cookie: u64,
    space_bytes: usize,
    search: bool,
    args: &'p Find<'p>,
}

/// How far a search came.
struct Searched {
    cookie: u64,
    end: bool,
    count: u32,
}

/// Entries that are evaluated by their attributes, or shown with them, must be in memory.
fn fetch_evaluated(piece: &Piece<'_>, txn: &mut Txn<'_>) -> Result<(), Status> {
    let piece = Piece { space_bytes: usize::MAX, ..*piece };
    let locks = txn.locks;
    let mut evaluated = Vec::new();
    let (out, state) = txn.scratch();
    search_entries(&piece, state, out, |target| {
        // Directories are always in memory.
        if target.kind != FileKind::Directory && is_free(target, locks, state) {
            evaluated.push(target.inode);
        }
        None
    });
    evaluated.into_iter().for_each(|inode| txn.state.need(Unit::Inode(inode)));
    if txn.state.has_all() { Ok(()) } else { Err(Status::Busy) }
}

/// Encodes matching entries within the limits on space and steps.
fn search_entries(
    piece: &Piece<'_>,
    state: &State,
    out: &mut Vec<u8>,
    mut attr_of: impl FnMut(&Target) -> Option<Attr>,
) -> Searched {
    let Find { predicate, attrs, directories, .. } = piece.args;
    let attr_count_max =
        if state.residency.is_some() { usize::from(LISTED_COUNT_MAX) } else { usize::MAX };
    let (entries, until) = state.listed(piece.dir, piece.cookie);
    let mut searched = Searched { cookie: piece.cookie, end: false, count: 0 };
    let (mut step_count, mut attr_count) = (0, 0);
    for (name, target) in entries {
        let Ok(name) = Name::new(name) else {
            continue; // What was put in was a `Name`.
        };
        if step_count >= STEP_COUNT_MAX || attr_count >= attr_count_max {
            return searched;
        }
        step_count += ENTRY_STEP_COUNT;
        let mut verdict = predicate.evaluate(name.bytes(), target.kind, &mut step_count);
        let mut attr = None;
        let wanted = verdict == Verdict::Undecided || (*attrs && verdict == Verdict::Yes);
        if wanted && piece.search {
            step_count += ENTRY_STEP_COUNT;
            attr_count += 1;
            // A size at the data shard is not known here.
            attr = attr_of(&target).filter(|attr| attr.flags & attr_flag::SIZE_AT_DATA == 0);
        }
        if let (Verdict::Undecided, Some(attr)) = (verdict, &attr) {
            verdict = if predicate.fits_attr(attr) { Verdict::Yes } else { Verdict::No };
        }
        if verdict != Verdict::No || (*directories && target.kind == FileKind::Directory) {
            let attr = attr.filter(|_| *attrs && verdict == Verdict::Yes);
            let entry = FoundEntry { inode: target.inode, kind: target.kind, name, verdict, attr };
            let fitting_bytes = out.len();
            Writer::new(out).write(&entry);
            if out.len() > piece.space_bytes {
                out.truncate(fitting_bytes);
                return searched;
            }
            searched.count += 1;
        }
        searched.cookie = target.cookie;
    }
    searched.end = until == u64::MAX;
    if !searched.end {
        searched.cookie = until;
    }
    searched
}
