//! Inspections: what the core asks goes to the thread that keeps them, and its answers come as events.

use super::Parts;
use interface::{ConnId, Event, StoreEvent};
use wire::{Inspect, Status};

impl Parts {
    /// What the thread that keeps inspections says.
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

    /// Passes a question on; without such a thread there are no inspections.
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
