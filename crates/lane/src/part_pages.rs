//! Pages of files over several data shards: each part grants those of its own stripes, and a
//! truncation waits at all of them (docs/protocol.md R20.36).
//!
//! ```text
//! home shard:  Truncate ─▶ RecallPages to all parts ─▶ PagesRecalled by all ─▶ cut, as `spread` says
//! a part:      RecallPages ─▶ grants none any more; recalls ─▶ ended ─▶ PagesRecalled
//!              CutPart ─▶ pages after all? recalls ─▶ ended ─▶ cut, and grants again
//! ```
//! What is recalled may wait for a look at the file, since its kernel drops no page that is being
//! read. So all is recalled before the truncation runs, which looks wait for.
//!
//! Invariants: a part is cut only while no other client has a lease of its pages; one truncation of
//! a file at a time has them recalled; no size is settled before all of them have ended; what waits
//! at a part ends with the connection to the lane that asked, which asks again.

use crate::Lane;
use crate::peers::message::PeerBody;
use crate::request::{Asked, Sizing, WholeRequest};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use interface::{Mono, Turn};
use meta::{LeaseConflict, LeaseKey};
use wire::{ClientUuid, InodeNo, LaneId, Layout, PeerLane, Rule, ServerId, ShardId};

/// The truncations of a file at its home shard. The first has begun.
#[derive(Debug, Default)]
struct Cuts {
    /// Of the recalls.
    number: u64,
    /// The shards that have pages to recall, as far as is known.
    left: BTreeSet<ShardId>,
    queue: VecDeque<(Layout, u64, WholeRequest)>,
    /// The last question for a settled size, which waits for all of them.
    settles: Option<(Sizing, Layout)>,
}

/// What a lane recalls for truncations.
#[derive(Debug, Default)]
pub(crate) struct PartPages {
    cuts: BTreeMap<InodeNo, Cuts>,
    /// Parts that are about to be cut for other lanes, or this one, and whose client keeps its
    /// pages: nobody is granted any.
    cutting: BTreeMap<(InodeNo, PeerLane), ClientUuid>,
    /// What waits for leases to end.
    waiting: Vec<(PeerLane, Asked)>,
}

impl PartPages {
    /// Whether no truncation is under way.
    pub(crate) fn has_no_cuts(&self) -> bool {
        self.cuts.is_empty()
    }

    /// Whether leases end as time passes that something waits for.
    pub(crate) const fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a question for a settled size waits for truncations.
    pub(crate) fn settles_later(&mut self, sizing: Sizing, layout: Layout) -> bool {
        let cuts = self.cuts.get_mut(&sizing.inode);
        cuts.map(|cuts| cuts.settles = Some((sizing, layout))).is_some()
    }

    /// Whether this lane's part of a file is about to be cut.
    pub(crate) fn is_cutting(&self, inode: InodeNo) -> bool {
        let first = PeerLane { server: ServerId(0), lane: LaneId(0) };
        let last = PeerLane { server: ServerId(u16::MAX), lane: LaneId(u16::MAX) };
        let lanes = (inode, first)..=(inode, last);
        self.cutting.range(lanes).next().is_some()
    }
}

impl Lane {
    // At the home shard.

    /// A client truncates a file.
    pub(crate) fn begin_cut(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, layout): (InodeNo, Layout),
        (size_bytes, request): (u64, WholeRequest),
    ) {
        if !self.config.rules.hold(Rule::CutPages) {
            return self.run_cut(turn, (inode, layout), (size_bytes, request));
        }
        let cuts = self.spread.pages.cuts.entry(inode).or_default();
        cuts.queue.push_back((layout, size_bytes, request));
        if cuts.queue.len() == 1 {
            self.recall_parts(turn, inode);
        }
    }

    /// Has the pages of all parts recalled for the first truncation of a file.
    fn recall_parts(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let number = self.next_whole_number();
        let Some(cuts) = self.spread.pages.cuts.get_mut(&inode) else { return };
        let Some((layout, _, _)) = cuts.queue.front() else { return };
        cuts.number = number;
        cuts.left = self.config.map.data_shards(inode, *layout).collect();
        for shard in cuts.left.clone() {
            self.ask_to_recall(turn, inode, shard);
        }
    }

    fn ask_to_recall(&mut self, turn: &mut Turn<'_>, inode: InodeNo, shard: ShardId) {
        let Some(cuts) = self.spread.pages.cuts.get(&inode) else { return };
        let Some((_, _, request)) = cuts.queue.front() else { return };
        let (number, client) = (cuts.number, request.client);
        self.send_to_shard(turn, shard, &PeerBody::RecallPages { inode, number, client });
    }

    /// A connection to a lane begins: likewise.
    pub(crate) fn restate_recalls(&mut self, turn: &mut Turn<'_>, lane: PeerLane) {
        let all = self.spread.pages.cuts.iter();
        let left = all.flat_map(|(inode, cuts)| cuts.left.iter().map(|shard| (*inode, *shard)));
        let asks: Vec<_> = left.filter(|(_, shard)| self.lane_of(*shard) == lane).collect();
        asks.into_iter().for_each(|(inode, shard)| self.ask_to_recall(turn, inode, shard));
    }

    /// No other client than that of the truncation has pages of a part, nor will it be granted any.
    pub(crate) fn on_pages_recalled(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, number, shard): (InodeNo, u64, ShardId),
    ) {
        let Some(cuts) = self.spread.pages.cuts.get_mut(&inode) else { return };
        let is_last = cuts.number == number && cuts.left.remove(&shard) && cuts.left.is_empty();
        let Some((layout, size_bytes, request)) = cuts.queue.front().filter(|_| is_last) else {
            return;
        };
        let (layout, size_bytes, request) = (*layout, *size_bytes, request.clone());
        self.run_cut(turn, (inode, layout), (size_bytes, request));
    }

    /// A truncation has ended: the next one begins, or what waits for the last one.
    pub(crate) fn end_cut(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let me = self.me();
        self.spread.pages.cutting.remove(&(inode, me));
        let Some(cuts) = self.spread.pages.cuts.get_mut(&inode) else { return };
        cuts.queue.pop_front();
        if !cuts.queue.is_empty() {
            return self.recall_parts(turn, inode);
        }
        let ended = self.spread.pages.cuts.remove(&inode);
        if let Some((sizing, layout)) = ended.and_then(|cuts| cuts.settles) {
            self.begin_settling(turn, sizing, layout);
        }
    }

    /// The lane stops: truncations that have not begun will be sent again to its next start.
    pub(crate) fn drop_waiting_cuts(&mut self) {
        for cuts in self.spread.pages.cuts.values_mut() {
            let has_begun = cuts.left.is_empty();
            for (_, _, request) in cuts.queue.drain(usize::from(has_begun)..) {
                self.waiters.answers.take_request(request.token);
            }
        }
        self.spread.pages.cuts.retain(|_, cuts| !cuts.queue.is_empty());
    }

    // At each part.

    pub(crate) fn recall_pages(
        &mut self,
        turn: &mut Turn<'_>,
        from: PeerLane,
        (inode, number, client): (InodeNo, u64, ClientUuid),
    ) {
        let Some(shard) = self.part_shard(inode) else { return };
        self.spread.pages.cutting.insert((inode, from), client);
        if !self.awaits_pages(turn.now.mono, from, Asked::Recall { inode, number, client }) {
            let home = self.config.map.data_shard(inode, 0);
            self.send_to_shard(turn, home, &PeerBody::PagesRecalled { inode, number, shard });
        }
    }

    /// Whether a cut waits for pages that were granted although they had been recalled for it: a
    /// connection was lost, or this lane was started, since then.
    pub(crate) fn cut_awaits_pages(
        &mut self,
        now: Mono,
        from: PeerLane,
        (inode, asked): (InodeNo, Asked),
    ) -> bool {
        if !self.config.rules.hold(Rule::CutPages) {
            return false;
        }
        let waits = self.awaits_pages(now, from, asked);
        if !waits {
            self.spread.pages.cutting.remove(&(inode, from));
        }
        waits
    }

    fn awaits_pages(&mut self, now: Mono, from: PeerLane, asked: Asked) -> bool {
        let inode = asked.inode();
        let cutting = &mut self.spread.pages.cutting;
        let client = *cutting.entry((inode, from)).or_insert(ClientUuid::NONE);
        let key = LeaseKey::Pages(inode);
        if self.leases.is_empty() || !self.leases.recall(&LeaseConflict::of(key), client, now) {
            return false;
        }
        self.leases.begin_wait(&[key], now);
        self.spread.pages.waiting.push((from, asked));
        true
    }

    /// Leases of a file's pages have ended: what waited for them is looked at anew.
    pub(crate) fn on_pages_ended(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let waiting = &mut self.spread.pages.waiting;
        let ended: Vec<_> = waiting.extract_if(.., |(_, asked)| asked.inode() == inode).collect();
        for _ in &ended {
            self.leases.end_wait(&[LeaseKey::Pages(inode)], turn.now.mono);
        }
        ended.into_iter().for_each(|(from, asked)| self.on_part_asked(turn, from, asked));
    }

    /// The connection to a lane has ended: it asks again.
    pub(crate) fn forget_recalls_of(&mut self, now: Mono, lane: PeerLane) {
        let pages = &mut self.spread.pages;
        pages.cutting.retain(|(_, from), _| *from != lane);
        for (_, asked) in pages.waiting.extract_if(.., |(from, _)| *from == lane) {
            self.leases.end_wait(&[LeaseKey::Pages(asked.inode())], now);
        }
    }
}
