//! Files that are at their home shard alone until they need a second stripe (docs/protocol.md
//! R13.39 to R13.42).
//!
//! ```text
//! a request that takes the file for narrow ─ it is ─▶ executed, as of a file at one shard
//!                                          ├ it is wide ─▶ MustWiden
//!                                          └ in between ─▶ RetryLater, for as long as the log can
//!                                                         still make it wide
//! Widen ─▶ no client has pages of it ─▶ data::Shards: recorded durably ─▶ answer
//! ```

use crate::Lane;
use crate::request::ReceivedRequest;
use crate::response::Response;
use data::Width;
use interface::{Action, Turn};
use wire::{HEADER_BYTES, InodeNo, Op, Retry, Rule, Status};

impl Lane {
    /// Refuses a request about contents that changes nothing. Returns whether it did.
    pub(crate) fn refuses_look(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        self.refuses_narrow_file(turn, received) || self.hinders_append(turn, received)
    }

    /// The same for one that takes its file for narrow, and may not.
    pub(crate) fn refuses_narrow_file(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let inode = received.request.op.inodes(body)[0];
        inode.is_some_and(|inode| self.refuses_narrow(turn, received, inode))
    }

    /// The same for this file. The request's bulk is released then.
    pub(crate) fn refuses_narrow(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        inode: InodeNo,
    ) -> bool {
        let request = received.request;
        // One that states no layout takes the file for one at a single shard, too.
        let is_narrow = match request.layout {
            Some(layout) => layout.narrow,
            None => self.config.map.servers().len() > 1,
        };
        // The size of a wide file is that of all its parts, for every client.
        if !is_narrow || request.op == Op::Glimpse || !self.config.rules.hold(Rule::NarrowRefused) {
            return false;
        }
        let width = self.data.width(inode);
        if width == Width::Narrow {
            return false;
        }
        if let Some(bulk) = received.bulk {
            turn.act(Action::Release { buf: bulk.buf });
        }
        let status = match width {
            Width::Widening => Status::RetryLater,
            Width::Narrow | Width::Wide => Status::MustWiden,
        };
        if status == Status::MustWiden && request.op.row().retry == Retry::Once {
            self.end_refused(turn, received, status);
        } else {
            self.reset_slot(received);
            self.send(turn, received.conn, &received.header(), &Response::plain(status, &[]));
        }
        true
    }
}
