//! Inspections: the core's requests go to the thread that runs them, and its replies come as
//! events.

use super::Parts;
use interface::{ConnId, Event, StoreEvent};
use wire::{Inspect, Status};

impl Parts {
    /// Passes replies of inspections to the core.
    pub(super) fn read_inspected(&mut self) {
        let Self { inspections: Some(queue), tools, .. } = self else { return };
        for reply in queue.take_replies() {
            let body = tools.arena.put(&reply.reply);
            tools.events.push(Event::Store(StoreEvent::Inspected {
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
            let reply = self.tools.arena.put(&[]);
            let status = Status::NotImplemented;
            self.tools.events.push(Event::Store(StoreEvent::Inspected { conn, status, reply }));
        }
    }
}
