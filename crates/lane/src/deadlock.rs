//! Deadlock detection among owners that wait for fcntl locks, over all shards and lanes.
//!
//! A new wait starts a search through the wait-for graph: its blockers, their blockers, and so on,
//! at every lane. If the search returns to its own owner, the wait is refused with EDEADLK. Only
//! waits that are older than the searching one are followed: so the youngest wait of a cycle finds
//! it, and no other. The lanes' answers are not a consistent snapshot; a cycle is therefore
//! searched twice, and a wait that ended meanwhile has broken it. A search may get lost, or meet a
//! wait that a lane has not begun yet: it is repeated each second while its wait lasts.
//!
//! ```text
//! lane of the wait ─ Follow (owners) ─▶ all ─ Follow (owners found there) ─▶ all …
//!        ▲───────────────── Cycle ────────┘
//! ```

use crate::Lane;
use crate::peers::message::{Owner, PeerBody, Search};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use interface::{Mono, Turn};
use meta::LockOwner;
use wire::{List, Wire, Writer};

/// Most hops of a search between lanes: cycles that cross lanes more often are not found.
const HOP_COUNT_MAX: u8 = 32;
/// Owners in a message; more take several messages.
const MESSAGE_OWNER_COUNT_MAX: usize = 256;

/// How often the search of a wait is repeated.
const REPEAT_MS: u64 = 1000;
/// Searches that are repeated in one turn at most, and the time until further ones.
const REPEAT_COUNT_MAX: usize = 64;
const REPEAT_PAUSE_MS: u64 = 10;

/// The searches of this lane's waits that are to be repeated, by time.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    due: VecDeque<(Mono, Search)>,
    /// Too many were due at once: the time of the next ones.
    paused_until: Option<Mono>,
}

impl Searches {
    /// The next repetition.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        let (at, _) = self.due.front()?;
        Some(self.paused_until.map_or(*at, |until| until.max(*at)))
    }

    fn repeat_later(&mut self, now: Mono, search: Search) {
        self.due.push_back((now.after_ms(REPEAT_MS), search));
    }

    fn next_due(&mut self, now: Mono) -> Option<Search> {
        self.due.pop_front_if(|(at, _)| *at <= now).map(|(_, search)| search)
    }
}

impl Lane {
    /// The time of a wait that begins now: later than all others at this lane, also within one
    /// turn. So waits are ordered like their searches.
    pub(crate) fn wait_begins_ns(&mut self, turn: &Turn<'_>) -> u64 {
        self.waiters.lock_wait_begins_ns(turn.now.mono)
    }

    /// A wait began at this lane: starts a search. Within one lane nothing gets lost.
    pub(crate) fn on_wait_begun(&mut self, turn: &mut Turn<'_>, search: Search) {
        if self.has_peers() {
            self.searches.repeat_later(turn.now.mono, search);
        }
        self.look_for_deadlock(turn, search);
    }

    /// Repeats the searches that are due and whose waits last.
    pub(crate) fn repeat_searches(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        if self.searches.paused_until.is_some_and(|until| until > now) {
            return;
        }
        self.searches.paused_until = Some(now.after_ms(REPEAT_PAUSE_MS));
        for _ in 0..REPEAT_COUNT_MAX {
            let Some(search) = self.searches.next_due(now) else {
                self.searches.paused_until = None;
                return;
            };
            let waits = self.lock_waits_of(search.owner);
            let lasts = |wait: &meta::LockWait| {
                (wait.wait_id, wait.since_ns) == (search.wait_id, search.since_ns)
            };
            if waits.iter().any(lasts) {
                self.searches.repeat_later(now, search);
                self.look_for_deadlock(turn, search);
            }
        }
    }

    fn look_for_deadlock(&mut self, turn: &mut Turn<'_>, search: Search) {
        let waits = self.lock_waits_of(search.owner);
        let wait = waits.into_iter().find(|wait| wait.wait_id == search.wait_id);
        let Some(wait) = wait else { return };
        self.follow(turn, &search, HOP_COUNT_MAX, (BTreeSet::new(), wait.blockers));
    }

    /// Follows owners through the waits of this lane, and sends the owners found to the other
    /// lanes. `known` owners came with a message, so all lanes have them.
    fn follow(
        &mut self,
        turn: &mut Turn<'_>,
        search: &Search,
        hops_left: u8,
        (known, mut next): (BTreeSet<LockOwner>, BTreeSet<LockOwner>),
    ) {
        let mut followed: BTreeSet<LockOwner> = BTreeSet::new();
        while let Some(owner) = next.pop_first() {
            if owner == search.owner {
                return self.on_cycle_found(turn, search);
            }
            if !followed.insert(owner) {
                continue;
            }
            for wait in self.lock_waits_of(owner) {
                let age = (wait.since_ns, owner, wait.wait_id);
                if age < (search.since_ns, search.owner, search.wait_id) {
                    next.extend(wait.blockers);
                }
            }
        }
        let news: Vec<LockOwner> = followed.difference(&known).copied().collect();
        if hops_left == 0 || !self.has_peers() {
            return;
        }
        for owners in news.chunks(MESSAGE_OWNER_COUNT_MAX) {
            let mut rows = Vec::new();
            owners.iter().for_each(|owner| Owner(*owner).encode(&mut Writer::new(&mut rows)));
            let rows = List::<Owner>::new(u32::try_from(owners.len()).unwrap_or(0), &rows);
            let hops_left = hops_left - 1;
            let body = PeerBody::FollowWaits { search: *search, hops_left, owners: rows };
            self.send_to_peer_lanes(turn, &body);
        }
    }

    fn lock_waits_of(&mut self, owner: LockOwner) -> Vec<meta::LockWait> {
        let metas = self.metas.iter_mut();
        metas.flat_map(|meta| meta.file_locks().waits_of(owner)).collect()
    }

    /// The search has returned to its owner.
    fn on_cycle_found(&mut self, turn: &mut Turn<'_>, search: &Search) {
        if search.lane == self.me() {
            return self.break_cycle(turn, *search);
        }
        let body = PeerBody::CycleFound { search: *search };
        self.send_to_lane(turn, search.lane, &body);
    }

    pub(crate) fn break_cycle(&mut self, turn: &mut Turn<'_>, search: Search) {
        if !search.is_certain {
            return self.look_for_deadlock(turn, Search { is_certain: true, ..search });
        }
        let shard = search.inode.shard();
        if !self.is_own(shard) {
            return;
        }
        let index = self.meta_index(shard);
        let locks = self.metas[index].file_locks();
        let denied = locks.deny(search.owner.client, search.inode, search.wait_id);
        self.send_grants(turn, shard, denied.into_iter().collect());
    }

    /// A peer lane has found these owners.
    pub(crate) fn on_follow_waits(
        &mut self,
        turn: &mut Turn<'_>,
        search: &Search,
        hops_left: u8,
        owners: List<'_, Owner>,
    ) {
        let owners: BTreeSet<LockOwner> = owners.iter().map(|row| row.0).collect();
        self.follow(turn, search, hops_left, (owners.clone(), owners));
    }
}
