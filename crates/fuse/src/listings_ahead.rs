//! Directories of which programs look up one name after the other, as `git status` and `make` do, after
//! their leases were lost: the server was started again, a connection was lost, or the mount was idle
//! for long. Each name would cost an exchange. So the mount lists such a directory again, with
//! attributes, for its cache.
//!
//! ```text
//! LOOKUP of a lost name, another one ─▶ Readdir ─▶ the cache learns; the next LOOKUPs need no exchange
//!                  one that is still unknown ─▶ Readdir of the next part
//! ```
//! Only directories whose names were all known before are listed, and only as far as names are asked for.
//! Invariant: the cache learns from these listings as from those of programs, under the leases that they
//! are granted.

use crate::cache::begin_call;
use crate::lane::MountLane;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use client::{Answer, Asked, Call, CallId, Granted, TakenAnswer};
use interface::{Mono, Turn};
use wire::{Caller, Groups, InodeNo, Listing, Lookup, Readdir, Status, Wire as _};

/// Ids of these calls begin here; those of requests are smaller.
const FIRST_CALL: u64 = 1 << 60;
/// Different names that are asked for before a directory is listed.
const NAME_COUNT_MIN: u32 = 2;
/// Directories in which names were asked for last.
const DIRECTORY_COUNT_MAX: usize = 32;
/// The first part of a listing, about 190 entries, and the others.
const FIRST_BYTES: u32 = 32 << 10;
const PART_BYTES: u32 = 128 << 10;
/// A directory whose leases are lost again and again is listed no more often than this, and each time
/// seldomer.
const AGAIN_MS_MIN: u64 = 10_000;
const AGAIN_MS_MAX: u64 = 640_000;

/// What is next for a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Its listing may begin then.
    Begin(Mono),
    /// A part is asked for.
    Answer,
    /// The part behind this cookie.
    Part(u64),
}

/// A directory in which names are asked for.
#[derive(Debug)]
struct Directory {
    inode: InodeNo,
    /// Of the lane's leases.
    term_no: u64,
    name_last: Vec<u8>,
    name_count: u32,
    next: Next,
    again_ms: u64,
}

/// A part that is to be asked for, or was.
#[derive(Clone, Copy, Debug)]
struct Part {
    dir: InodeNo,
    /// User and group of the caller that looks the names up.
    ids: (u32, u32),
    cookie: u64,
}

impl Part {
    const fn call(&self) -> Call<'static> {
        let (uid, gid) = self.ids;
        Call::Readdir(Readdir {
            caller: Caller { uid, gid, groups: Groups::Unknown },
            inode: self.dir,
            cookie: self.cookie,
            listing_bytes_max: if self.cookie == 0 { FIRST_BYTES } else { PART_BYTES },
            attrs: true,
            handle: None,
        })
    }
}

/// What a lane lists by itself.
#[derive(Default, Debug)]
pub(crate) struct ListingsAhead {
    /// That of the last name is the last.
    directories: Vec<Directory>,
    wanted: Vec<Part>,
    calls: BTreeMap<u64, (Part, Asked)>,
    call_count: u64,
}

impl ListingsAhead {
    /// Whether this is the id of such a call.
    pub(crate) const fn has_made(call: CallId) -> bool {
        call.0 >= FIRST_CALL && call.0 < FIRST_CALL << 1
    }

    /// The server is asked for a name.
    pub(crate) fn see(&mut self, now: Mono, term_no: u64, lookup: &Lookup<'_>) {
        let inode = lookup.parent;
        let known = self.directories.iter().position(|it| it.inode == inode);
        let known = known.map(|index| self.directories.remove(index));
        let mut directory = known.filter(|it| it.term_no == term_no).unwrap_or_else(|| Directory {
            inode,
            term_no,
            name_last: Vec::new(),
            name_count: 0,
            next: Next::Begin(now),
            again_ms: AGAIN_MS_MIN,
        });
        let name = lookup.name.bytes();
        if directory.name_last != name {
            directory.name_last.clear();
            directory.name_last.extend_from_slice(name);
            directory.name_count += 1;
            let cookie = match directory.next {
                Next::Begin(at) => {
                    (at <= now && directory.name_count >= NAME_COUNT_MIN).then_some(0)
                }
                Next::Answer => None,
                Next::Part(cookie) => Some(cookie),
            };
            let ids = (lookup.caller.uid, lookup.caller.gid);
            self.wanted.extend(cookie.map(|cookie| Part { dir: inode, ids, cookie }));
        }
        if self.directories.len() >= DIRECTORY_COUNT_MAX {
            self.directories.remove(0);
        }
        self.directories.push(directory);
    }

    fn directory_mut(&mut self, inode: InodeNo) -> Option<&mut Directory> {
        self.directories.iter_mut().find(|it| it.inode == inode)
    }

    /// A part has been listed; `None`: it was the last one.
    fn on_listed(&mut self, now: Mono, dir: InodeNo, cookie: Option<u64>) {
        let Some(directory) = self.directory_mut(dir) else { return };
        if let Some(cookie) = cookie {
            directory.next = Next::Part(cookie);
            return;
        }
        directory.name_count = 0;
        directory.next = Next::Begin(now.after_ms(directory.again_ms));
        directory.again_ms = (directory.again_ms * 2).min(AGAIN_MS_MAX);
    }
}

impl MountLane {
    /// Lists directories of which names were asked for that were known before.
    pub(crate) fn list_ahead(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        for part in core::mem::take(&mut self.listings.wanted) {
            let may = self.leases.on
                && self.is_serving()
                && self.client.was_granted_any()
                && self.client.takes_calls();
            let is_lost = self.cache.as_ref().is_some_and(|it| it.has_lost_names(now, part.dir));
            // What is under way would have to be waited for.
            let is_behind = self.behind.table.as_ref().is_some_and(|it| it.is_held(part.dir));
            if !is_lost && let Some(directory) = self.listings.directory_mut(part.dir) {
                directory.next = Next::Begin(now); // A program has listed it.
            }
            if !may || !is_lost || is_behind {
                continue;
            }
            let call = part.call();
            let Some(asked) = begin_call(self.cache.as_ref(), &mut self.client, (now, &call))
            else {
                continue;
            };
            let listings = &mut self.listings;
            listings.call_count += 1;
            let call_id = CallId(FIRST_CALL + listings.call_count);
            listings.calls.insert(call_id.0, (part, asked));
            if let Some(directory) = listings.directory_mut(part.dir) {
                directory.next = Next::Answer;
            }
            self.client.call(turn, call_id, call);
        }
    }

    /// A part of a directory was listed.
    pub(crate) fn on_listed_ahead(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        (result, granted): (Result<Answer, Status>, Granted),
    ) {
        let Some((part, asked)) = self.listings.calls.remove(&call.0) else { return };
        let bytes = match result {
            Ok(Answer::Listing(span)) => Some(turn.arena.get(span)),
            _ => None,
        };
        let now = turn.now.mono;
        if let Some(cache) = &self.cache {
            let further = self.client.granted_further();
            let taken = TakenAnswer { result: &result, granted: &granted, further, listing: bytes };
            cache.learn((now, asked), &part.call(), &taken);
        }
        let listing = bytes.and_then(|bytes| Listing::decode_all(bytes).ok());
        let unfinished = listing.filter(|it| !it.end && granted.entries.is_some());
        let last = unfinished.and_then(|it| it.entries.iter().last());
        let cookie = last.map(|entry| entry.cookie);
        self.listings.on_listed(now, part.dir, cookie);
    }
}
