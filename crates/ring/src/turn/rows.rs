//! Row queries to the row store's threads, and their replies.

use super::Parts;
use crate::feed::{Feed, RowQuery, RowReply};
use crate::log::Log;
use interface::{Event, Span, StoreEvent, Ticket};

impl Parts {
    /// Passes the row store's replies to the core.
    pub(super) fn read_row_replies(&mut self) {
        let Self { log: Some(log), io, .. } = self else { return };
        for reply in log.feed().map(Feed::take_replies).unwrap_or_default() {
            io.events.push(match reply {
                RowReply::Rows { ticket, result } => {
                    let result = result.map(|rows| io.arena.put(&rows));
                    Event::Store(StoreEvent::Rows { ticket, result })
                }
                RowReply::Checkpointed { shard, lsn, transno } => {
                    Event::Store(StoreEvent::Checkpointed { shard, lsn, transno })
                }
            });
        }
        if log.is_behind() {
            io.events.push(Event::Store(StoreEvent::LogSpace(log.space())));
        }
    }

    /// Passes a query on; without a row store nothing answers.
    pub(super) fn read_rows(
        &mut self,
        ticket: Ticket,
        (from, until): (Span, Span),
        row_count_max: u32,
    ) {
        let arena = &self.io.arena;
        let (from, until) = (arena.get(from).into(), arena.get(until).into());
        let lane = self.mailbox.lane();
        let query = RowQuery { lane, ticket, from, until, row_count_max };
        match self.log.as_ref().and_then(Log::feed) {
            Some(feed) => feed.push_query(query),
            None => {
                let result = Err(interface::Errno(wire::Status::NotImplemented.number()));
                self.io
                    .events
                    .push(Event::Store(StoreEvent::Rows { ticket: query.ticket, result }));
            }
        }
    }
}
