//! A client lane's state about its peer lanes, and the messages to send to them at the end of the turn.

use alloc::vec;
use alloc::vec::Vec;
use interface::{MountMessage, PeerAction, Turn};
use wire::LaneId;

#[derive(Debug)]
pub(crate) struct PeerLanes {
    own: LaneId,
    /// The evictions of each lane.
    evicted_counts: Vec<u64>,
    /// Messages to all of them.
    broadcasts: Vec<MountMessage>,
    /// Messages to single ones.
    messages: Vec<(LaneId, MountMessage)>,
}

impl PeerLanes {
    pub(crate) fn new(own: LaneId, lane_count: u16) -> Self {
        let evicted_counts = vec![0; usize::from(lane_count)];
        Self { own, evicted_counts, broadcasts: Vec::new(), messages: Vec::new() }
    }

    /// Queues a message to one peer lane.
    pub(crate) fn send(&mut self, to: LaneId, message: MountMessage) {
        self.messages.push((to, message));
    }

    /// Queues a message to all peer lanes.
    pub(crate) fn broadcast(&mut self, message: MountMessage) {
        self.broadcasts.push(message);
    }

    /// A peer lane was evicted so many times.
    pub(crate) fn set_evicted_count(&mut self, from: LaneId, count: u64) {
        if let Some(known) = self.evicted_counts.get_mut(usize::from(from.0)) {
            *known = count;
        }
    }

    /// Whether all peer lanes have processed that many evictions: then no answer under an earlier
    /// uuid can still be lost.
    pub(crate) fn have_processed(&self, evicted_count: u64) -> bool {
        let own = usize::from(self.own.0);
        let mut counts = self.evicted_counts.iter().enumerate();
        counts.all(|(lane, count)| lane == own || *count >= evicted_count)
    }

    /// Ends the turn: sends the messages.
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>) {
        for (to, message) in self.messages.drain(..) {
            turn.act(PeerAction::Message { to, message });
        }
        for message in self.broadcasts.drain(..) {
            for lane in 0..self.evicted_counts.len() {
                let to = LaneId(u16::try_from(lane).unwrap_or(u16::MAX));
                if to != self.own {
                    turn.act(PeerAction::Message { to, message });
                }
            }
        }
    }
}
