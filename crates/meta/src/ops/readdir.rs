//! `Readdir`: entries of a directory behind a cookie. A cookie stays its entry's for life, so a
//! listing in pieces misses nothing that was there all the time and shows nothing twice.

use crate::locks::Locks;
use crate::needs::Needs;
use crate::state::{Body, Inode, State};
use crate::txn::Txn;
use crate::who::Want;
use alloc::vec::Vec;
use wire::{Dirent, List, Listing, Name, Readdir, Status, Writer};

/// Bytes of a listing before its entries.
const LISTING_HEAD_BYTES: usize = 8 + 1 + 4;
const LISTING_BYTES_MIN: u32 = 512;
const LISTING_BYTES_MAX: u32 = 131_072;

pub(crate) fn needs(args: &Readdir<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
    needs.list(args.inode);
}

pub(crate) fn execute<'t>(args: &Readdir<'_>, txn: &'t mut Txn<'_>) -> Result<Listing<'t>, Status> {
    let who = txn.who(args.caller);
    let (row, _) = txn.directory(args.inode)?;
    let (row, parent) = (*row, row.parent);
    // Permission was checked by the open, if there was one, and may have changed since.
    if !txn.handles.has_open(args.inode, txn.client) {
        who.permit(&row, Want::READ)?;
    }
    let attrs = args.attrs && may_search(who.permit(&row, Want::EXECUTE))?;
    let listing_bytes_max = args.listing_bytes_max.clamp(LISTING_BYTES_MIN, LISTING_BYTES_MAX);
    let room_bytes = usize::try_from(listing_bytes_max).unwrap_or(0) - LISTING_HEAD_BYTES;
    let locks = txn.locks;
    let (out, state) = txn.scratch();
    let shown = attrs.then_some(locks);
    let inode = state.inode(args.inode).ok_or(Status::Stale)?;
    let (count, end) = list(inode, args.cookie, (state, shown), room_bytes, out);
    Ok(Listing { parent, end, entries: List::new(count, out) })
}

/// Without permission to search there are names, but no attributes.
const fn may_search(permitted: Result<(), Status>) -> Result<bool, Status> {
    match permitted {
        Ok(()) => Ok(true),
        Err(Status::NeedGroups) => Err(Status::NeedGroups),
        Err(_) => Ok(false),
    }
}

/// Encodes entries while they fit, with attributes if `shown`; how many, and whether that was all.
/// Of what another shard has, a change over several shards has locked or is not in memory, there
/// are none.
fn list(
    inode: &Inode,
    cookie: u64,
    (state, shown): (&State, Option<&Locks>),
    room_bytes: usize,
    out: &mut Vec<u8>,
) -> (u32, bool) {
    let Body::Directory(directory) = &inode.body else {
        return (0, true);
    };
    let mut count = 0;
    for (name, target) in directory.after(cookie) {
        let Ok(name) = Name::new(name) else {
            continue; // What was put in was a `Name`.
        };
        let free = shown.is_some_and(|locks| {
            let here = state.shard();
            let entered = locks.entered_from_afar(target.inode, here, None);
            locks.inode(target.inode, None).or(entered).is_none()
        });
        let known = if free { state.inode(target.inode) } else { None };
        let attr = known.map(|known| known.row.attr());
        let entry =
            Dirent { cookie: target.cookie, inode: target.inode, kind: target.kind, name, attr };
        let fitting_bytes = out.len();
        Writer::new(out).write(&entry);
        if out.len() > room_bytes {
            out.truncate(fitting_bytes);
            return (count, false);
        }
        count += 1;
    }
    (count, true)
}
