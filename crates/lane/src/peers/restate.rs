//! What is lost with a connection to a lane of another server, and what each side says when there
//! is one again (docs/protocol.md §12.4). Nothing outlives a connection on its way, so it makes no
//! difference whether the other server has restarted meanwhile.

use super::containment::ContainmentQuery;
use super::message::{Bits, ExportDefinition, PeerBody};
use crate::Lane;
use alloc::collections::BTreeMap;
use disk::ExportChange;
use interface::Turn;
use wire::{Executor, InodeNo, Op, PeerLane, PrivilegedBits, ShardId, Wire as _};

impl Lane {
    /// A connection to a lane begins: tells it what it must know of this one, and asks again what
    /// it has not answered.
    pub(super) fn restate_to(&mut self, turn: &mut Turn<'_>, lane: PeerLane) {
        // It may have started again since they were made.
        self.made_elsewhere.clear();
        if self.is_own(ShardId::meta(0)) {
            for export in self.exports.stored_rows() {
                let Ok(export) = wire::Export::decode_all(&export) else { continue };
                let change = ExportDefinition(ExportChange::Put(export));
                self.restate(turn, lane, &PeerBody::Export { change });
            }
        }
        for client in self.evictions.remembered() {
            self.evictions.on_told(lane);
            self.restate(turn, lane, &PeerBody::Evicted { client });
        }
        for (inode, client) in self.leases.taken_writing() {
            if self.has_contents(lane, inode) {
                self.restate(turn, lane, &PeerBody::WriterFenced { inode, client });
            }
        }
        // Of those that the lane was being told of it may not know that they have none any more.
        let told = self.channel(lane).being_told().map(|inode| (inode, PrivilegedBits::default()));
        let mut bits: BTreeMap<InodeNo, PrivilegedBits> = told.collect();
        bits.extend(self.metas.iter().flat_map(meta::Shard::privileged_bits));
        for (inode, bits) in bits {
            if self.has_contents(lane, inode) {
                self.restate(turn, lane, &PeerBody::PrivilegedBits { inode, bits: Bits(bits) });
            }
        }
        for removal in self.removals_at(lane) {
            self.restate(turn, lane, &removal);
        }
        self.restate_recalls(turn, lane);
        self.restate_parts(turn, lane);
        self.restate_txns(turn, lane);
        self.restate(turn, lane, &PeerBody::Restated {});
        self.channel(lane).attach_held();
        // What waits for the lane is asked again.
        self.containment.due = true;
    }

    /// Whether a lane may have contents of a file of this lane's metadata shards.
    fn has_contents(&self, lane: PeerLane, inode: InodeNo) -> bool {
        self.contents_shards(inode).into_iter().any(|shard| self.lane_of(shard) == lane)
    }

    /// What waits for a barrier waits for the last of these messages.
    fn restate(&mut self, turn: &mut Turn<'_>, lane: PeerLane, body: &PeerBody<'_>) {
        self.push_to_lane(turn, lane, body);
    }

    /// A lane tells which privileged bits a file of its shards has.
    pub(super) fn on_privileged_bits(
        &mut self,
        from: PeerLane,
        (inode, bits): (InodeNo, PrivilegedBits),
    ) {
        if from.server != self.config.server {
            let told = self.peers.bits.entry(from).or_default();
            if bits == PrivilegedBits::default() {
                told.remove(&inode);
            } else {
                told.insert(inode);
            }
        }
        self.data.set_privileged_bits(inode, bits);
    }

    /// The connection to a lane has ended: it forgets what this lane has only begun there, and this
    /// lane what that one has only begun here.
    pub(super) fn forget_peer(&mut self, turn: &mut Turn<'_>, lane: PeerLane) {
        let by_lane = |query: &ContainmentQuery| match query {
            ContainmentQuery::Below { by, .. } | ContainmentQuery::Use { by, .. } => *by == lane,
        };
        self.containment.questions.retain(|(_, query)| !by_lane(query));
        self.containment.forget_queries();
        self.containment.due = true;
        self.evictions.forget_lane(lane);
        self.forget_early_parts_of(lane);
        self.forget_appends_of(lane);
        self.forget_recalls_of(turn.now.mono, lane);
        self.forget_txns_with(turn, lane);
        // If it has started again it does not know of whom it has told. No contents of its files are
        // changed before it has told again.
        for inode in self.peers.bits.remove(&lane).unwrap_or_default() {
            self.data.set_privileged_bits(inode, PrivilegedBits::default());
        }
        if self.is_exporter(lane) {
            self.exports.restates();
        }
    }

    /// A lane has said everything that this lane must know of it.
    pub(super) fn on_restated(&mut self, turn: &mut Turn<'_>, from: PeerLane) {
        if self.is_exporter(from) {
            for name in self.exports.not_restated() {
                let name = wire::Bytes(&name);
                self.take_export(turn, &ExportChange::Removed { name });
            }
        }
        self.peers.links.set_restated(from);
        self.containment.due = true;
    }

    /// A definition, from the lane that records them.
    pub(super) fn on_export_message(
        &mut self,
        turn: &mut Turn<'_>,
        from: PeerLane,
        change: &ExportChange<'_>,
    ) {
        if !self.is_exporter(from) {
            return;
        }
        if let ExportChange::Put(export) = change
            && self.exports.restated(export)
        {
            return; // It is the one that is known.
        }
        self.take_export(turn, change);
    }

    /// Whether a lane of another server records the exports.
    fn is_exporter(&self, lane: PeerLane) -> bool {
        let place = self.config.map.place(ShardId::meta(0));
        (place.server, place.lane) == (lane.server, lane.lane)
    }

    /// Whether this lane knows the exports: its server records them, or it was told.
    pub(crate) fn knows_exports(&self) -> bool {
        let exporter = self.lane_of(ShardId::meta(0));
        exporter.server == self.config.server || self.exports.are_known()
    }

    /// The lanes of other servers with a proven connection.
    #[cfg(test)]
    pub(crate) fn connected_peer_count(&self) -> usize {
        let lanes = self.peers.links.all();
        lanes.into_iter().filter(|lane| self.peers.links.conn_to(*lane).is_some()).count()
    }

    /// Whether a request must wait for what other lanes have to say.
    pub(crate) fn awaits_peers(&mut self, op: Op, body: &[u8]) -> bool {
        self.awaits_bits(op, body) || self.awaits_fence(op, body)
    }

    /// Whether a change of contents must wait: the lane of the file's metadata shard has not said
    /// which files have privileged bits that a write would have to clear.
    fn awaits_bits(&self, op: Op, body: &[u8]) -> bool {
        let row = op.row();
        if self.peers.links.is_alone() || row.executor != Executor::Data || !row.changes_store() {
            return false;
        }
        let inodes = op.inodes(body).into_iter().flatten();
        let mut shards = inodes.map(InodeNo::shard).filter(|shard| self.config.map.has(*shard));
        shards.any(|shard| {
            let lane = self.lane_of(shard);
            lane.server != self.config.server && !self.peers.links.is_restated(lane)
        })
    }
}
