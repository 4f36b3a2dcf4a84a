//! Inspections: what the core asks goes to the thread that keeps them, and its answers come as events.

use super::Parts;
use interface::{ConnId, Event, StoreEvent};
use wire::{Inspect, Status};

impl Parts {
    /// What the thread that keeps inspections says.
    pub(super) fn read_inspected(&mut self) {
        let Self { inspections: Some(desk), tools, .. } = self else { return };
        for news in desk.take_news() {
            let reply = tools.arena.put(&news.reply);
            tools.events.push(Event::Store(StoreEvent::Inspected {
                conn: news.conn,
                status: news.status,
                reply,
            }));
        }
    }

    /// Passes a question on; without such a thread there are no inspections.
    pub(super) fn inspect(&mut self, conn: ConnId, ask: Option<Inspect>) {
        if let Some(desk) = &self.inspections {
            desk.ask(conn, ask);
        } else if ask.is_some() {
            let reply = self.tools.arena.put(&[]);
            let status = Status::NotImplemented;
            self.tools.events.push(Event::Store(StoreEvent::Inspected { conn, status, reply }));
        }
    }
}
