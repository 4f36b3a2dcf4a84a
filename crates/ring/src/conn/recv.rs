//! From received bytes to frames for the brain.
//!
//! A bulk is received straight into its buffer, behind what had already come with its head.
//! Invariant: what the brain gets is whole and its bulk's checksum fits.

use super::{Conns, Incoming, State};
use crate::framing::Cut;
use crate::tools::Tools;
use door::{BufId, Bulk, CloseReason, Event};
use wire::{Breach, Lengths};

impl Conns {
    pub(super) fn received(&mut self, index: u32, received_bytes: usize, tools: &mut Tools) {
        let conn = self.conn(index);
        match &mut conn.incoming {
            Some(incoming) => {
                incoming.received_bytes += received_bytes;
                let whole = incoming.received_bytes == incoming.lengths.bulk_bytes as usize;
                if whole {
                    let Incoming { buf, lengths, .. } = *incoming;
                    conn.incoming = None;
                    self.deliver(index, lengths, Some(buf), tools);
                }
            }
            None => conn.inbox.arrived(received_bytes),
        }
        self.cut(index, tools);
        self.touch(index);
    }

    /// Delivers what is whole; begins to receive the bulk of what is not.
    pub(super) fn cut(&mut self, index: u32, tools: &mut Tools) {
        // It may be gone: a frame before this one was a breach.
        while let Some(conn) = self.slots[index as usize].as_mut() {
            let open = matches!(conn.state, State::Open);
            if !open || conn.paused || conn.starved || conn.incoming.is_some() {
                return;
            }
            let lengths = match conn.inbox.cut(conn.admitted) {
                Ok(Cut::Frame(lengths)) => lengths,
                Ok(Cut::More) => return,
                Err(reason) => return self.fail(index, reason, tools),
            };
            let bulk_bytes = lengths.bulk_bytes as usize;
            if bulk_bytes == 0 {
                self.deliver(index, lengths, None, tools);
                continue;
            }
            let Some(buf) = tools.pool.take(bulk_bytes) else {
                conn.starved = true;
                self.starved.push_back(index);
                return;
            };
            let to = tools.pool.bytes_mut(buf, 0, bulk_bytes);
            let received_bytes = conn.inbox.take_behind(lengths.frame_bytes, to);
            if received_bytes < bulk_bytes {
                conn.incoming = Some(Incoming { buf, lengths, received_bytes });
                return;
            }
            self.deliver(index, lengths, Some(buf), tools);
        }
    }

    fn deliver(&mut self, index: u32, lengths: Lengths, buf: Option<BufId>, tools: &mut Tools) {
        let conn = self.conn(index);
        let bulk = buf.map(|buf| {
            let bulk_bytes = lengths.bulk_bytes;
            // A reply whose bulk never was in the server's memory has no checksum.
            let sum = |_| wire::crc32c(tools.pool.bytes(buf, 0, bulk_bytes as usize));
            let crc32c = lengths.bulk_crc32c.map(sum);
            Bulk { buf, start: 0, bulk_bytes, crc32c }
        });
        if let Some(bulk) = bulk.filter(|bulk| bulk.crc32c != lengths.bulk_crc32c) {
            tools.pool.release(bulk.buf);
            return self.fail(index, CloseReason::Breach(Breach::Checksum), tools);
        }
        let frame = tools.arena.put(conn.inbox.front(lengths.frame_bytes));
        conn.inbox.consume(lengths.frame_bytes);
        conn.announced = true;
        conn.paused = !conn.admitted;
        tools.counters.frame_in_count += 1;
        tools.events.push(Event::Frame { conn: conn.id, frame, bulk });
    }
}
