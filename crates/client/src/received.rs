//! Which replies the lanes of a client have received: a table that all of them read and write without
//! locks. A lane says of the others what the server may not know yet, before a change of its own (docs/protocol.md R3.6): a
//! program may have been woken on another core since its last call.
//!
//! ```text
//! lane 0: reply ─▶ table ─▶ program ─▶ lane 1: Received(lane 0), then the change
//! ```
//! Invariants: what is in the table was received; a place is read as it was written at one time.

use crate::client::Client;
use crate::session::Acks;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use interface::{ConnId, NetAction, Turn};
use wire::{
    Header, LANES_TOLD_MAX, LaneAcks, LaneId, List, Received, Rule, ShardId, Wire as _, Writer, Xid,
};

/// Shards of a kind that have a place. Of others nothing is said.
const SHARD_COUNT: usize = 256;

/// What one lane has received from one shard.
#[derive(Default, Debug)]
struct Place {
    /// 0: nothing.
    ack_xid: AtomicU64,
    sack: AtomicU64,
}

impl Place {
    /// Only the lane writes. The bits are of no number while it changes.
    fn set(&self, acks: Acks) {
        self.sack.store(0, Ordering::SeqCst);
        self.ack_xid.store(acks.ack_xid.0, Ordering::SeqCst);
        self.sack.store(acks.sack, Ordering::SeqCst);
    }

    fn get(&self) -> Acks {
        let ack_xid = self.ack_xid.load(Ordering::SeqCst);
        let sack = self.sack.load(Ordering::SeqCst);
        let is_of_it = self.ack_xid.load(Ordering::SeqCst) == ack_xid;
        Acks { ack_xid: Xid(ack_xid), sack: if is_of_it { sack } else { 0 } }
    }
}

/// The table of a client.
#[derive(Debug)]
pub struct ReceivedByLanes {
    lanes: Box<[Box<[Place]>]>,
}

impl ReceivedByLanes {
    /// For a client with so many lanes.
    #[must_use]
    pub fn new(lane_count: u16) -> Self {
        let places = |_| (0..2 * SHARD_COUNT).map(|_| Place::default()).collect();
        Self { lanes: (0..lane_count).map(places).collect() }
    }

    fn place(&self, lane: LaneId, shard: ShardId) -> Option<&Place> {
        self.lanes.get(usize::from(lane.0))?.get(place_of(shard)?)
    }
}

fn place_of(shard: ShardId) -> Option<usize> {
    let index = usize::from(shard.index());
    let first = if shard.is_data() { SHARD_COUNT } else { 0 };
    (index < SHARD_COUNT).then_some(first + index)
}

/// The table as one lane uses it.
#[derive(Debug)]
pub(crate) struct ReceivedOfOthers {
    table: Arc<ReceivedByLanes>,
    /// What was said last of each lane, over connections that are up.
    told: Vec<Acks>,
}

const NONE: Acks = Acks { ack_xid: Xid(0), sack: 0 };

impl Client {
    /// The same client, as one of several lanes that say of each other which replies they have
    /// received.
    #[must_use]
    pub fn with_received(mut self, table: Arc<ReceivedByLanes>) -> Self {
        let told = alloc::vec![NONE; table.lanes.len() * 2 * SHARD_COUNT];
        self.received = Some(ReceivedOfOthers { table, told });
        self
    }

    /// A reply was received from a shard, in a session of this lane.
    pub(crate) fn publish_received(&self, shard: ShardId, acks: Acks) {
        let place = self.received.as_ref().and_then(|it| it.table.place(self.config.lane, shard));
        if let Some(place) = place {
            place.set(acks);
        }
    }

    /// A request was sent to a shard: without the rule it counts as answered.
    pub(crate) fn publish_sent(&self, shard: ShardId, sent: Xid) {
        if !self.config.rules.hold(Rule::PeerLaneReceived) {
            self.publish_received(shard, Acks { ack_xid: sent, sack: 0 });
        }
    }

    /// Says what the other lanes have received from a shard, as far as this lane has not said so.
    pub(crate) fn tell_received(&mut self, turn: &mut Turn<'_>, conn: ConnId, shard: ShardId) {
        let Some(ReceivedOfOthers { table, told }) = &mut self.received else { return };
        let Some(place_index) = place_of(shard) else { return };
        let (mut count, mut encoded) = (0, Vec::new());
        let lanes = table.lanes.iter().zip(told.chunks_mut(2 * SHARD_COUNT));
        for (client_lane, (places, told)) in (0..).map(LaneId).zip(lanes).take(LANES_TOLD_MAX) {
            let (Some(place), Some(told)) = (places.get(place_index), told.get_mut(place_index))
            else {
                continue;
            };
            let acks = place.get();
            if client_lane != self.config.lane && acks != *told {
                *told = acks;
                count += 1;
                let Acks { ack_xid, sack } = acks;
                LaneAcks { client_lane, ack_xid, sack }.encode(&mut Writer::new(&mut encoded));
            }
        }
        if count > 0 {
            let received = Received { shard, lanes: List::new(count, &encoded) };
            let frame = turn
                .arena
                .write(|out| Header::Received.encode(out, None, |to| to.write(&received)));
            turn.act(NetAction::Send { conn, frame, bulk: None });
        }
    }

    /// A connection was made, or shards are at other lanes: what was said may not have arrived there.
    pub(crate) fn forget_told(&mut self) {
        if let Some(ReceivedOfOthers { told, .. }) = &mut self.received {
            told.fill(NONE);
        }
    }
}
