//! Messages between the lanes, and faults of their delivery.

use super::{Incoming, TestServer};
use crate::Lane;
use crate::peers::message::{PeerBody, PeerMessage};
use alloc::vec::Vec;
use interface::{Core as _, Event, PeerEvent, Span, Turn};
use wire::{InodeNo, LaneId, Wire as _};

/// What happens to messages between lanes: each fault to one in so many; 0: never.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Delivery {
    pub(crate) loses_one_in: usize,
    pub(crate) repeats_one_in: usize,
    /// Overtakes messages that its receiver has not seen.
    pub(crate) reorders_one_in: usize,
    /// Searches for deadlocks arrive without their contents: their receiver has lost them.
    pub(crate) empties_searches: bool,
    /// The messages lost so far.
    pub(crate) lost_count: usize,
}

impl Delivery {
    /// From this seed on messages between lanes get lost, repeated and reordered.
    pub(crate) const LOSSY_SEED_MIN: u64 = 1 << 32;

    pub(super) fn of_seed(seed: u64) -> Self {
        if seed < Self::LOSSY_SEED_MIN {
            return Self::default();
        }
        Self { loses_one_in: 5, repeats_one_in: 5, reorders_one_in: 3, ..Self::default() }
    }
}

impl TestServer {
    /// A message leaves for a lane.
    pub(super) fn deliver(&mut self, to: LaneId, from: LaneId, mut body: Vec<u8>) {
        let Delivery { loses_one_in, repeats_one_in, reorders_one_in, .. } = self.delivery;
        if self.delivery.empties_searches {
            body = emptied(body);
        }
        let rng = &mut self.rng;
        let mut rolls = |one_in: usize| one_in > 0 && rng.usize(..one_in) == 0;
        let (lost, repeated) = (rolls(loses_one_in), rolls(repeats_one_in));
        self.delivery.lost_count += usize::from(lost);
        let count = if lost { 0 } else { 1 + usize::from(repeated) };
        for _ in 0..count {
            let early = rolls(reorders_one_in);
            let inbox = &mut self.hosts[usize::from(to.0)].state.inbox;
            let first = inbox.iter().position(is_message).filter(|_| early);
            let at = first.unwrap_or(inbox.len());
            inbox.insert(at, message(from, body.clone()));
        }
    }

    /// Passes the time until lost messages are sent again; `false`: none was lost.
    pub(super) fn pass_redelivery(&mut self) -> bool {
        let loses = self.delivery.loses_one_in > 0;
        let waits = loses && self.hosts.iter().any(|host| host.lane.peers.is_waiting());
        if waits {
            self.pass_ms(10);
        }
        waits
    }

    /// A lane takes a turn in which it applies this message.
    pub(crate) fn apply_message(&mut self, index: usize, body: &PeerBody<'_>) {
        self.act(index, |lane, turn| {
            let me = lane.me();
            lane.apply_message(turn, me, body);
            lane.settle(turn);
        });
    }

    /// A lane sends a message about a file to the lane of its contents.
    pub(crate) fn send_message(&mut self, index: usize, inode: InodeNo) {
        let to = self.map.data_shard(inode, 0);
        self.act(index, |lane, turn| lane.send_to_shard(turn, to, &PeerBody::Changed { inode }));
    }

    fn act(&mut self, index: usize, act: impl FnOnce(&mut Lane, &mut Turn<'_>)) {
        let host = &mut self.hosts[index];
        let arena = &mut host.state.arena;
        arena.reset();
        let mut actions = Vec::new();
        act(&mut host.lane, &mut Turn { now: self.now, arena, actions: &mut actions });
        actions.into_iter().for_each(|action| self.perform(index, action));
    }

    /// All messages on their way are lost.
    pub(crate) fn lose_messages(&mut self) {
        let arrives = |incoming: &Incoming| !is_message(incoming);
        self.hosts.iter_mut().for_each(|host| host.state.inbox.retain(arrives));
    }

    /// Bytes arrive from a lane.
    pub(crate) fn receive(&mut self, index: usize, from: LaneId, body: Vec<u8>) {
        self.hosts[index].state.deliver(message(from, body));
    }
}

/// A message without its contents, if it belongs to a search for a deadlock.
fn emptied(bytes: Vec<u8>) -> Vec<u8> {
    let message = PeerMessage::decode_all(&bytes).unwrap();
    match message.body {
        PeerBody::FollowWaits { .. } | PeerBody::CycleFound { .. } => {
            PeerMessage { body: PeerBody::Acknowledgement {}, ..message }.to_bytes()
        }
        _ => bytes,
    }
}

fn message(from: LaneId, body: Vec<u8>) -> Incoming {
    Incoming::new(PeerEvent::Received { from, body: Span::default() }, body)
}

const fn is_message(incoming: &Incoming) -> bool {
    matches!(incoming.event, Event::Peer(PeerEvent::Received { .. }))
}
