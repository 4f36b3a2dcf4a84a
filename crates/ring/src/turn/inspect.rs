//! Inspections: the core's requests go to the thread that runs them, and its replies come as
//! events.

use super::Parts;
use interface::{ConnId, Event, StoreEvent};
use wire::{Inspect, Status};

impl Parts {
    /// Passes replies of inspections to the core.
    pub(super) fn read_inspected(&mut self) {
        let Self { inspections: Some(queue), io, .. } = self else { return };
        for reply in queue.take_replies() {
            let body = io.arena.put(&reply.reply);
            io.events.push(Event::Store(StoreEvent::Inspected {
                conn: reply.conn,
                status: reply.status,
                reply: body,
            }));
        }
    }

    /// Passes a request on; without such a thread inspections are refused.
    pub(super) fn inspect(&mut self, conn: ConnId, inspect: Option<Inspect>) {
        if let Some(queue) = &self.inspections {
            queue.request(conn, inspect);
        } else if inspect.is_some() {
            let reply = self.io.arena.put(&[]);
            let status = Status::NotImplemented;
            self.io.events.push(Event::Store(StoreEvent::Inspected { conn, status, reply }));
        }
    }
}
