//! Messages between the lanes of a server: one place sends them, one receives them.
//!
//! A message is addressed to a shard; the map says which lane has it. One to a shard of the same
//! lane takes the same way without an encoding. What does not decode is a bug of the sender: it is
//! counted and logged, and nothing that this lane sends later is applied, so that requests that
//! depend on it stop rather than see half of a change.

pub(crate) mod containment;
pub(crate) mod message;
pub(crate) mod tagged;

use crate::Lane;
use crate::sizes::Sizing;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use interface::{LogLevel, PeerAction, Span, Turn};
use message::{Bits, ExportDefinition, PeerBody, PeerMessage};
use wire::{LaneId, PeerCounts, ShardId, Term, Wire as _, Writer};

/// This lane's side of the messages between lanes.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Lanes that have sent what does not decode.
    broken: BTreeSet<LaneId>,
    counts: PeerCounts,
    /// Scratch: a received message.
    received: Vec<u8>,
}

impl Peers {
    pub(crate) const fn counts(&self) -> PeerCounts {
        self.counts
    }
}

/// The shard that stands for a lane as a whole: the first that the map gives to it, or would if
/// the store had more.
pub(crate) const fn shard_of_lane(lane: LaneId) -> ShardId {
    ShardId::meta(lane.0)
}

impl Lane {
    /// Sends a message to the lane that has this shard. One to this lane is applied at once, or
    /// queued if it is about a transaction.
    pub(crate) fn send_to_shard(&mut self, turn: &mut Turn<'_>, to: ShardId, body: &PeerBody<'_>) {
        let lane = self.config.map.lane(to);
        if lane != self.config.lane {
            return self.send_to_lane(turn, lane, to, body);
        }
        match body {
            PeerBody::Txn { message } => self.queue_for_self(message),
            body => self.apply_message(turn, body),
        }
    }

    /// Sends a message to every other lane.
    pub(crate) fn send_to_peer_lanes(&mut self, turn: &mut Turn<'_>, body: &PeerBody<'_>) {
        for lane in (0..self.config.lane_count()).map(LaneId) {
            if lane != self.config.lane {
                self.send_to_lane(turn, lane, shard_of_lane(lane), body);
            }
        }
    }

    fn send_to_lane(
        &mut self,
        turn: &mut Turn<'_>,
        lane: LaneId,
        to: ShardId,
        body: &PeerBody<'_>,
    ) {
        self.peers.counts.sent_count += 1;
        let (from, from_term) =
            (shard_of_lane(self.config.lane), Term::of_boot(self.config.boot_id));
        let message = PeerMessage { from, from_term, to, body: *body };
        let body = turn.arena.write(|out| message.encode(&mut Writer::new(out)));
        turn.act(PeerAction::Send { to: lane, body });
    }

    /// Bytes of a peer lane.
    pub(crate) fn on_received(&mut self, turn: &mut Turn<'_>, from: LaneId, body: Span) {
        if self.peers.broken.contains(&from) {
            self.peers.counts.refused_count += 1;
            return;
        }
        let mut received = core::mem::take(&mut self.peers.received);
        received.clear();
        received.extend_from_slice(turn.arena.get(body));
        match PeerMessage::decode_all(&received) {
            Ok(message) => self.apply_message(turn, &message.body),
            Err(reason) => {
                self.peers.broken.insert(from);
                self.peers.counts.refused_count += 1;
                let lane = from.0;
                let line = format!(
                    "bug: a message of lane {lane} does not decode ({reason:?}); nothing from \
                     that lane is applied any more"
                );
                self.log(turn, LogLevel::Alarm, &line);
            }
        }
        self.peers.received = received;
    }

    pub(crate) fn apply_message(&mut self, turn: &mut Turn<'_>, body: &PeerBody<'_>) {
        match *body {
            PeerBody::Txn { message } => self.on_txn_message(turn, &message),
            PeerBody::DestroyObject { inode } => self.on_destroy_message(turn, inode),
            PeerBody::ObjectDestroyed { inode } => self.on_object_destroyed(inode),
            PeerBody::Accessed { inode, write_time_ns } => {
                self.record_access(turn, inode, write_time_ns);
            }
            PeerBody::Changed { inode } => self.data.forget_access(inode),
            PeerBody::QueryContents { inode, number } => {
                self.query_durable_size(turn, Sizing { inode, number });
            }
            PeerBody::DurableContents { inode, number, contents } => {
                self.record_size(Sizing { inode, number }, contents);
            }
            PeerBody::PrivilegedBits { inode, bits: Bits(bits) } => {
                self.data.set_privileged_bits(inode, bits);
            }
            PeerBody::Containment { message } => self.on_containment_message(turn, message),
            PeerBody::Export { change: ExportDefinition(change) } => {
                self.take_export(turn, &change);
            }
            PeerBody::Evicted { client } => self.on_eviction_message(turn, client),
            PeerBody::FollowWaits { search, hops_left, owners } => {
                self.on_follow_waits(turn, &search, hops_left, owners);
            }
            PeerBody::CycleFound { search } => self.break_cycle(turn, search),
        }
    }
}
