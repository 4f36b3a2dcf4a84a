//! Export containment: a connection bound to an export may name inodes below the export's root, and
//! inodes that it has open; through a read-only export it changes nothing but what it had answered.
//!
//! ```text
//! named inodes ─▶ ancestor walk ─▶ the export's root?   in this lane's shards: parent by parent
//!                      │                               in others: a query, the request waits
//!                      └─▶ Stale, if the walk does not reach it
//! ```
//! Clients hold no proof of containment, and everything cached here ([`Containment`]) can be
//! queried again. Invariant: no request of such a connection is executed unchecked, and the op
//! table says what to check (`named_inodes`).

use crate::Lane;
use crate::connections::Open;
use crate::named_inodes::{Named, Wants, changes, named};
use crate::peers::containment::{ContainmentQuery, Use};
use crate::request::ReceivedRequest;
use crate::response::Response;
use crate::waiters::Cause;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hashbrown::HashMap;
use interface::{Mono, Seed, Turn};
use meta::{Access, ParentLink, Rights};
use wire::{ClientUuid, HEADER_BYTES, InodeNo, LaneId, Op, Route, Status};

/// The outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Checked {
    /// It may be executed.
    Passes,
    /// The answer must come from another lane or from the key-value store.
    Waits,
    /// It may not be executed.
    Denied(Status),
}

/// A lane's cache of containment at other lanes, and its queries.
#[derive(Debug)]
pub(crate) struct Containment {
    /// Whether a directory of another lane lies below an export's root: (root, directory).
    pub(crate) below: HashMap<(InodeNo, InodeNo), Cached<bool>, Seed>,
    /// The clients' rights to inodes of other lanes.
    pub(crate) uses: HashMap<InodeNo, Vec<(ClientUuid, Cached<Use>)>, Seed>,
    /// Queries without a reply yet, and their times.
    pub(crate) queried_below: BTreeMap<(InodeNo, InodeNo), Mono>,
    pub(crate) queried_uses: BTreeMap<(InodeNo, ClientUuid), Mono>,
    /// Queries of other lanes that this lane could not answer at once, with their arrival.
    pub(crate) questions: Vec<(Mono, ContainmentQuery)>,
    /// Waiting requests must be checked again.
    pub(crate) due: bool,
    /// A request that waited is being checked again.
    pub(crate) again: bool,
    /// The sum of the ids of all directory moves that this lane knows of, and how many moves it
    /// made itself.
    pub(crate) moves: u64,
    pub(crate) move_count: u64,
    lane: LaneId,
    /// Rises when all rights are dropped; replies to older queries are not cached.
    pub(crate) number: u64,
}

/// A reply, and for whom it is good: for what arrived before this time. One that only lanes of this
/// server had a part in is good for all: they announce what changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cached<T> {
    pub(crate) known: T,
    pub(crate) asked_at: Mono,
}

impl<T> Cached<T> {
    /// No other server had a part in it.
    pub(crate) const STAYS: Mono = Mono(u64::MAX);
}

/// Most cached replies of each kind; when exceeded, the cache is cleared.
const CACHED_COUNT_MAX: usize = 65_536;

impl Containment {
    pub(crate) fn new(seed: Seed, lane: LaneId) -> Self {
        Self {
            below: HashMap::with_hasher(seed),
            uses: HashMap::with_hasher(seed),
            queried_below: BTreeMap::new(),
            queried_uses: BTreeMap::new(),
            questions: Vec::new(),
            due: false,
            again: false,
            moves: 0,
            move_count: 0,
            lane,
            number: 0,
        }
    }

    /// Drops all cached rights.
    pub(crate) fn forget_uses(&mut self) {
        self.uses.clear();
        self.queried_uses.clear();
        self.number += 1;
    }

    /// Replies to the queries that are on their way may be lost.
    pub(crate) fn forget_queries(&mut self) {
        self.queried_below.clear();
        self.queried_uses.clear();
        self.number += 1;
    }

    /// A directory was moved at some lane: drops all that may depend on it.
    pub(crate) fn apply_move(&mut self, id: u64) {
        self.moves = self.moves.wrapping_add(id);
        self.below.clear();
        self.forget_uses();
    }

    /// The id of this lane's next move: unique, and no sum of a few ids equals another.
    pub(crate) fn next_move(&mut self) -> u64 {
        self.move_count += 1;
        let mut id = (u64::from(self.lane.0) << 48) | self.move_count;
        // splitmix64.
        id = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
        id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        id ^ (id >> 31)
    }

    pub(crate) fn cache_below(&mut self, pair: (InodeNo, InodeNo), below: Cached<bool>) {
        if self.below.len() >= CACHED_COUNT_MAX {
            self.below.clear();
        }
        self.below.insert(pair, below);
    }

    pub(crate) fn cache_use(&mut self, inode: InodeNo, client: ClientUuid, granted: Cached<Use>) {
        if self.uses.len() >= CACHED_COUNT_MAX {
            self.uses.clear();
        }
        let uses = self.uses.entry(inode).or_default();
        uses.retain(|(known, _)| *known != client);
        uses.push((client, granted));
    }
}

impl Lane {
    /// Checks a request before its execution. Replays are not checked: they are signed, and were
    /// checked when they were executed.
    pub(crate) fn check_containment(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Checked {
        let (open, request) = (received.open, received.request);
        let binding = open.binding;
        if binding.top.is_none() && !binding.read_only {
            return Checked::Passes;
        }
        let body = turn.arena.get(received.frame)[HEADER_BYTES..].to_vec();
        let is_refused = binding.read_only
            && changes(request.op, &body)
            && !self.was_answered_early(received, &body);
        if is_refused {
            if received.bulk.is_some() {
                // Nothing more is executed that was answered early.
                self.readmit(turn, Vec::from([received.conn]));
            }
            return Checked::Denied(Status::ReadOnly);
        }
        if request.op.row().route == Route::Lane {
            return Checked::Passes;
        }
        let mut checked = Checked::Passes;
        for name in named(request.op, &body) {
            match self.check_named(turn, (&open, received.times.arrived), request.op, name) {
                Checked::Passes => {}
                Checked::Denied(status) => return Checked::Denied(status),
                Checked::Waits => checked = Checked::Waits,
            }
        }
        checked
    }

    fn check_named(
        &mut self,
        turn: &mut Turn<'_>,
        (open, arrived): (&Open, Mono),
        op: Op,
        Named { inode, wants }: Named,
    ) -> Checked {
        let Some(top) = open.binding.top else { return Checked::Passes };
        if !self.config.map.has(inode.shard()) || inode.count() == 0 {
            return Checked::Denied(Status::Stale);
        }
        let granted = self.granted(turn, (open, arrived), top, inode);
        let Some(granted) = granted else { return Checked::Waits };
        let lacks = match wants {
            Wants::Knowledge => false,
            Wants::Contents => !granted.read && !granted.execute,
            Wants::Change => !granted.write,
            Wants::Handle(open_for) => {
                (open_for.reads() && !granted.read)
                    || (open_for.writes() && !granted.write)
                    || (open_for.executes() && !granted.execute)
            }
        };
        // A handle that is refused at Reopen is lost for good.
        if !granted.known || (lacks && op == Op::Reopen) {
            Checked::Denied(Status::Stale)
        } else if lacks {
            Checked::Denied(Status::Access)
        } else {
            Checked::Passes
        }
    }

    /// A connection's rights to an inode, if this lane knows them.
    fn granted(
        &mut self,
        turn: &mut Turn<'_>,
        (open, arrived): (&Open, Mono),
        top: InodeNo,
        inode: InodeNo,
    ) -> Option<Use> {
        let (client, squash) = (open.client, open.binding.squash);
        if self.is_own(inode.shard()) {
            let here = self.use_here(turn, (inode, client), (top, arrived), squash);
            return here.map(|(granted, _)| granted);
        }
        let known = self.containment.uses.get(&inode);
        let known = known.and_then(|uses| uses.iter().find(|(known, _)| *known == client));
        if let Some((_, granted)) = known.filter(|(_, granted)| arrived <= granted.asked_at) {
            return Some(granted.known);
        }
        self.ask_use(turn, (inode, client), top, squash);
        None
    }

    /// The same for an inode of one of this lane's shards, and whether that stays so until this
    /// lane announces a change.
    pub(crate) fn use_here(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, client): (InodeNo, ClientUuid),
        (top, arrived): (InodeNo, Mono),
        squash: wire::Squash,
    ) -> Option<(Use, bool)> {
        let index = self.meta_index(inode.shard());
        if !self.metas[index].has_inode(inode) {
            self.read_missing(turn, inode.shard());
            return None;
        }
        if self.metas[index].is_locked(inode) {
            // A cross-shard transaction may be about to move it.
            return None;
        }
        let ways: Vec<InodeNo> = self.metas[index].containing_directories(inode).collect();
        // An open directory that was moved out of the export is not granted: it would give access
        // to its entries.
        let is_directory = ways.first() == Some(&inode);
        let mut known = !is_directory && self.metas[index].has_open(inode, client);
        let (mut waits, mut all_stay) = (false, true);
        for way in ways {
            match self.lies_below(turn, (top, arrived), way) {
                Some((below, stays)) => {
                    known |= below;
                    all_stay &= stays;
                }
                None => waits = true,
            }
        }
        if waits && !known {
            return None;
        }
        let Rights { read, write, execute } = self.metas[index].rights(inode, client, squash);
        Some((Use { known, read, write, execute }, all_stay))
    }

    /// Whether a directory is `top` or lies below it, if that is known here; and whether that stays
    /// so until a lane of this server announces a change.
    pub(crate) fn lies_below(
        &mut self,
        turn: &mut Turn<'_>,
        (top, arrived): (InodeNo, Mono),
        dir: InodeNo,
    ) -> Option<(bool, bool)> {
        let mut at = dir;
        loop {
            if at == top {
                return Some((true, true));
            }
            if !self.config.map.has(at.shard()) {
                return Some((false, true));
            }
            if !self.is_own(at.shard()) {
                let known = self.containment.below.get(&(top, at)).copied();
                let known = known.filter(|known| arrived <= known.asked_at);
                if known.is_none() {
                    self.ask_below(turn, top, at);
                }
                let stays = |known: &Cached<bool>| known.asked_at == Cached::<bool>::STAYS;
                return known.map(|known| (known.known, stays(&known)));
            }
            let meta = &self.metas[self.meta_index(at.shard())];
            if meta.is_locked(at) {
                return None;
            }
            match meta.above(at) {
                ParentLink::Parent(parent) => at = parent,
                ParentLink::Top => return Some((false, true)),
            }
        }
    }

    /// Checks all waiting requests again.
    pub(crate) fn rerun_containment_waits(&mut self, turn: &mut Turn<'_>) {
        self.answer_questions(turn);
        self.containment.again = true;
        self.run_received(turn, &Cause::Containment);
        self.containment.again = false;
    }

    /// Refuses a request that changes nothing.
    pub(crate) fn deny(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        status: Status,
    ) {
        let response = Response::plain(status, &[]);
        let header = received.header();
        if received.request.op.row().is_answered_at_once() {
            self.send_reply(turn, received.conn, &header, &response);
        } else {
            self.send(turn, received.conn, &header, &response);
        }
    }

    /// Applies a request's effect on access times, unless its export is read-only.
    pub(crate) fn on_access_of(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        access: Access,
    ) {
        if !received.open.binding.read_only {
            self.on_access(turn, access);
        }
    }
}
