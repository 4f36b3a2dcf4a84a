//! Messages between the lanes of one server: in some runs they get lost, repeated, delayed and reordered.

use crate::due::{Due, Place, ServerLaneId};
use crate::simulation::Simulation;
use interface::{PeerEvent, Span};
use std::collections::BTreeMap;
use test_runtime::Incoming;
use wire::LaneId;

/// A fault happens to one message in so many.
const ONE_IN: u64 = 8;
/// A late message is this many times later than a request, on average.
const LATE_FACTOR: u64 = 20;

/// Delayed messages, by number.
#[derive(Default)]
pub(crate) struct LateMessages {
    by_number: BTreeMap<u64, (ServerLaneId, LaneId, Vec<u8>)>,
    count: u64,
}

impl Simulation {
    /// A lane sends a message to another one of its server.
    pub(crate) fn send_to_peer(&mut self, to: ServerLaneId, from: LaneId, body: Vec<u8>) {
        let place = Place::Server(to.0, to.1);
        if !self.plan.peer_faults || self.faults_stopped {
            return self.deliver(place, received(from, body));
        }
        if self.prng.one_in(ONE_IN) {
            return;
        }
        let count = 1 + u64::from(self.prng.one_in(ONE_IN));
        for _ in 0..count {
            if !self.prng.one_in(ONE_IN) {
                let body = body.clone();
                self.deliver(place, received(from, body));
                continue;
            }
            let late = &mut self.late_messages;
            late.count += 1;
            let number = late.count;
            late.by_number.insert(number, (to, from, body.clone()));
            let delay_ns = self.prng.span_ns(self.plan.speeds.request_ns * LATE_FACTOR);
            let (server, life) = (to.0, self.life(place));
            self.schedule_in(delay_ns, Due::PeerMessage { server, life, number });
        }
    }

    /// A delayed message arrives.
    pub(crate) fn receive_late(&mut self, server: usize, (life, number): (u64, u64)) {
        let Some((to, from, body)) = self.late_messages.by_number.remove(&number) else { return };
        if life == self.servers[server].life {
            self.deliver(Place::Server(server, to.1), received(from, body));
        }
    }
}

fn received(from: LaneId, body: Vec<u8>) -> Incoming {
    Incoming::new(PeerEvent::Received { from, body: Span::default() }, body)
}
