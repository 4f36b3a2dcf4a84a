//! Messages between the lanes.

use super::{PendingEvent, TestServer};
use crate::peers::message::PeerBody;
use alloc::vec::Vec;
use interface::{Core as _, Turn};
use wire::LaneId;

impl TestServer {
    /// A lane takes a turn in which it applies this message.
    pub(crate) fn apply_message(&mut self, index: usize, body: &PeerBody<'_>) {
        let host = &mut self.hosts[index];
        host.arena.reset();
        let mut actions = Vec::new();
        let mut turn = Turn { now: self.now, arena: &mut host.arena, actions: &mut actions };
        host.lane.apply_message(&mut turn, body);
        host.lane.settle(&mut turn);
        actions.into_iter().for_each(|action| self.perform(index, action));
    }

    /// Bytes arrive from a lane.
    pub(crate) fn receive(&mut self, index: usize, from: LaneId, body: Vec<u8>) {
        self.hosts[index].pending_events.push(PendingEvent::Encoded { from, body });
    }
}
