//! Files that are at one data shard until they need a second stripe (docs/protocol.md R13.39 to
//! R13.42): this client lane takes one for narrow until it learns otherwise.
//!
//! ```text
//! a change behind the first stripe ─┐
//! a change that is refused ─────────┴▶ Widen ─▶ again, as of a wide file
//! a read or a sync that is refused ───────────▶ again, as of a wide file
//! ```

use crate::Answer;
use crate::client::Client;
use crate::plan::{Plan, Target};
use crate::requests::{Exchange, Place};
use wire::{
    Allocate, InodeNo, Layout, Op, Retry, Status, SyncNarrow, Truncate, Widen, Wire as _, Write,
    WriteList, Writer, request_flag,
};

impl Client {
    /// A request that takes its file for narrow was refused: it is made anew. Returns false if it
    /// is no such request.
    pub(crate) fn on_must_widen(&mut self, exchange_id: usize) -> bool {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return false };
        let inode = exchange.inode();
        let is_about_contents =
            matches!(exchange.target, Target::Contents(..) | Target::DataShard(_));
        let layout = exchange.layout.or_else(|| self.layouts.get(inode));
        let changes = exchange.op.row().retry == Retry::Once;
        if !is_about_contents
            || exchange.layout.is_some_and(|layout| !layout.narrow)
            || layout.is_some_and(|layout| !layout.may_spread())
        {
            return false;
        }
        exchange.layout = None;
        exchange.place = Place::Unrouted;
        let layout = layout.map(Layout::widened);
        if self.is_unwanted(exchange_id) {
            self.forget(exchange_id);
        } else if let Some(layout) =
            layout.filter(|layout| changes && self.layouts.get(inode) != Some(*layout))
        {
            self.await_wide(exchange_id, (inode, layout));
        } else {
            match layout {
                Some(layout) => self.layouts.learn(inode, layout),
                None => self.layouts.expect_spread(inode),
            }
            self.route(exchange_id);
        }
        true
    }

    /// The request waits until its file is wide.
    pub(crate) fn await_wide(&mut self, exchange_id: usize, (inode, layout): (InodeNo, Layout)) {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        exchange.layout = None;
        exchange.place = Place::LayoutWait;
        if !self.layouts.wait_for_width(inode, exchange_id) {
            return;
        }
        let job_id = self.jobs.add(None, Plan::Widen { inode, layout });
        if let Some(job) = self.jobs.get_mut(job_id) {
            job.pending_count = 1;
        }
        let mut body = self.requests.take_body();
        Widen { inode }.encode(&mut Writer::new(&mut body));
        let (layout, is_split, is_awaited) = (Some(layout.widened()), true, true);
        let request = Exchange::new(job_id, Op::Widen, Target::Contents(inode, 0));
        self.add_and_route(Exchange { body, layout, is_split, is_awaited, ..request });
    }

    /// A Widen has ended: what waits for it goes on, or fails.
    pub(crate) fn on_widened(
        &mut self,
        (inode, layout): (InodeNo, Layout),
        result: Result<Answer, Status>,
    ) {
        if result.is_ok() {
            self.layouts.learn(inode, layout.widened());
        }
        for exchange_id in self.layouts.take_waiting_for_width(inode) {
            match result {
                Ok(_) => self.route(exchange_id),
                Err(status) => self.advance(exchange_id, Err(status), false),
            }
        }
    }
}

impl Exchange {
    /// This sync of a file's contents says that they are at the home shard alone: it is refused if other
    /// lanes of the client may have changed some elsewhere.
    pub(crate) fn sync_narrow(&mut self, inode: InodeNo) {
        self.body.clear();
        SyncNarrow { inode }.encode(&mut Writer::new(&mut self.body));
    }

    /// Where the bytes end that it makes a file have; 0 if that is not known yet.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other op makes a file longer")]
    pub(crate) fn file_end(&self) -> u64 {
        let bulk_bytes = self.bulk.map_or(0, |bulk| bulk.bulk_bytes);
        let is_behind = self.flags & request_flag::BEHIND != 0;
        let body = &self.body;
        let end = match self.op {
            Op::Write => Write::decode_all(body).map(|write| {
                let is_at_end = write.append && !is_behind;
                let end = write.file_offset.saturating_add(bulk_bytes.into());
                if is_at_end || bulk_bytes == 0 { 0 } else { end }
            }),
            Op::WriteList => WriteList::decode_all(body).map(|write| write.pieces.end()),
            Op::Truncate => Truncate::decode_all(body).map(|truncate| truncate.size_bytes),
            Op::Allocate => {
                Allocate::decode_all(body).map(|it| it.file_offset.saturating_add(it.range_bytes))
            }
            _ => return 0,
        };
        end.unwrap_or(0) // The server refuses it.
    }
}
