//! The space of all replay lists of a client lane: what they hold, what requests in flight may add,
//! which requests wait for it, and the client's own copies of written bytes.
//!
//! Invariant: `list_bytes` is the sum over the entries of all lists, `promised_bytes` the sum over
//! the requests in flight.

use crate::replay::{Entry, cost_bytes};
use crate::requests::Exchange;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::{Action, BufId, Bulk, CORE_BUF_ID_MIN, NO_MAC, Turn};

#[derive(Debug)]
pub(crate) struct ReplaySpace {
    bytes_max: usize,
    list_bytes: usize,
    promised_bytes: usize,
    /// Changing requests that wait for space.
    waiters: VecDeque<usize>,
    copies: Copies,
}

impl ReplaySpace {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            list_bytes: 0,
            promised_bytes: 0,
            waiters: VecDeque::new(),
            copies: Copies::default(),
        }
    }

    /// Bytes of the replay lists.
    pub(crate) const fn list_bytes(&self) -> usize {
        self.list_bytes
    }

    /// Whether the lists take half of the space.
    pub(crate) const fn is_half_full(&self) -> bool {
        self.list_bytes >= self.bytes_max / 2
    }

    /// Whether a request may be sent. One is always allowed, or a small limit would stop all
    /// changes. An urgent one does not wait.
    pub(crate) fn has_space_for(&self, exchange: &Exchange) -> bool {
        let cost_bytes = cost_bytes(exchange.body.len(), exchange.bulk);
        exchange.urgent || self.fits(self.taken_bytes(), cost_bytes)
    }

    /// Reserves space for the reply to a request.
    pub(crate) fn promise(&mut self, exchange: &mut Exchange) {
        exchange.promised_bytes = cost_bytes(exchange.body.len(), exchange.bulk);
        self.promised_bytes += exchange.promised_bytes;
    }

    /// The request's reply came, or it is not sent under its xid again.
    pub(crate) fn end_promise(&mut self, exchange: &mut Exchange) {
        self.promised_bytes -= core::mem::take(&mut exchange.promised_bytes);
    }

    /// An entry was added to a list.
    pub(crate) fn add(&mut self, entry: &Entry) {
        self.list_bytes += entry.bytes();
    }

    /// An entry has left its list. Returns its body.
    pub(crate) fn remove(&mut self, entry: Entry) -> Vec<u8> {
        self.list_bytes -= entry.bytes();
        if let Some(copy) = entry.retained {
            self.release(copy);
        }
        entry.body
    }

    /// The request waits for space.
    pub(crate) fn wait(&mut self, exchange_id: usize) {
        self.waiters.push_back(exchange_id);
    }

    /// Ends one request's wait.
    pub(crate) fn end_wait(&mut self, exchange_id: usize) {
        self.waiters.retain(|id| *id != exchange_id);
    }

    /// Ends all waits.
    pub(crate) fn end_waits(&mut self) {
        self.waiters.clear();
    }

    /// Takes the waiting requests that fit, in order. `cost_bytes` says what each needs.
    pub(crate) fn take_fitting(&mut self, cost_bytes: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut taken_bytes = self.taken_bytes();
        let mut fitting = Vec::new();
        while let Some(exchange_id) = self.waiters.front().copied() {
            let cost_bytes = cost_bytes(exchange_id);
            if !self.fits(taken_bytes, cost_bytes) {
                break;
            }
            taken_bytes += cost_bytes;
            self.waiters.pop_front();
            fitting.push(exchange_id);
        }
        fitting
    }

    /// Copies bulk into a buffer of this client.
    pub(crate) fn copy(&mut self, turn: &mut Turn<'_>, bulk: Bulk) -> Bulk {
        self.copies.make(turn, bulk)
    }

    /// A copy of several buffers, one behind the other, 4 GiB at most.
    pub(crate) fn join(&mut self, turn: &mut Turn<'_>, bulks: &[Bulk]) -> Bulk {
        self.copies.join(turn, bulks)
    }

    /// Releases a copy.
    pub(crate) fn release(&mut self, copy: Bulk) {
        self.copies.release(copy);
    }

    /// Ends the turn: releases the buffers that are no longer used.
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>) {
        self.copies.settle(turn);
    }

    const fn taken_bytes(&self) -> usize {
        self.list_bytes + self.promised_bytes
    }

    const fn fits(&self, taken_bytes: usize, cost_bytes: usize) -> bool {
        taken_bytes == 0 || taken_bytes + cost_bytes <= self.bytes_max
    }
}

/// The client's own buffers.
#[derive(Debug, Default)]
struct Copies {
    free: Vec<u32>,
    count: u32,
    /// To be released at the end of the turn.
    released: Vec<BufId>,
}

impl Copies {
    fn take(&mut self) -> BufId {
        let number = self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            CORE_BUF_ID_MIN + (self.count - 1)
        });
        BufId(number)
    }

    fn join(&mut self, turn: &mut Turn<'_>, bulks: &[Bulk]) -> Bulk {
        let as_buf = self.take();
        let bulk_bytes = bulks.iter().map(|bulk| bulk.bulk_bytes).sum();
        turn.act(Action::Zeros { as_buf, bulk_bytes });
        let mut at = 0;
        for bulk in bulks {
            turn.act(Action::Copy { to: as_buf, at, bulk: *bulk });
            at += bulk.bulk_bytes;
        }
        Bulk { buf: as_buf, start: 0, bulk_bytes, crc32c: None, mac: NO_MAC }
    }

    fn make(&mut self, turn: &mut Turn<'_>, bulk: Bulk) -> Bulk {
        let as_buf = self.take();
        turn.act(Action::Retain { as_buf, bulk });
        Bulk { buf: as_buf, start: 0, ..bulk }
    }

    fn release(&mut self, copy: Bulk) {
        assert!(copy.buf.0 >= CORE_BUF_ID_MIN, "a frontend's buffer is not ours to release");
        self.released.push(copy.buf);
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        for buf in self.released.drain(..) {
            turn.act(Action::Release { buf });
            self.free.push(buf.0);
        }
    }
}
