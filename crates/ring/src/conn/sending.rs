//! The end of sends, and how long replies take from the lane to the kernel.
//!
//! Sends are timed, not frames, and by the clock of turns: what the kernel takes within the turn in
//! which it was queued took 0. Only what it does not take at once takes longer: the client does not
//! read, or the network is slow.

use super::{Conns, State};
use crate::io_context::IoContext;
use interface::{CloseReason, Errno, Event, Mono, NetEvent};

/// EAGAIN: the socket's send buffer is full.
const FULL: Errno = Errno(11);
const BROKEN_PIPE: Errno = Errno(32);
/// A send that took this long is reported to the core of a server.
const LATE_US: u64 = 20_000;

/// The times of a connection's sends.
#[derive(Default)]
pub(super) struct Sending {
    /// When what waits behind the send in flight was queued; what is queued later is not older.
    queued: Option<Mono>,
    /// The same of what is in flight.
    since: Mono,
    /// When the send began.
    begun: Mono,
}

impl Sending {
    /// Bytes are queued that cannot be sent now.
    pub(super) fn queue(&mut self, now: Mono) {
        self.queued.get_or_insert(now);
    }

    /// A send of all that is queued begins.
    pub(super) fn begin(&mut self, now: Mono) {
        (self.since, self.begun) = (self.queued.take().unwrap_or(now), now);
    }
}

impl Conns {
    /// A send has ended.
    pub(crate) fn on_send(&mut self, index: u32, result: Result<u32, Errno>, io: &mut IoContext) {
        let conn = self.conn(index);
        conn.send_armed = false;
        if let Ok(sent_bytes) = result {
            conn.outbox.sent(sent_bytes as usize);
            io.counters.out_bytes += u64::from(sent_bytes);
        }
        let was_at_once = !std::mem::replace(&mut conn.socket_full, !conn.outbox.is_through());
        if matches!(result, Ok(_) | Err(FULL)) {
            self.time_send(index, io);
        }
        match (&self.conn(index).state, result) {
            (State::Dead, _) => self.remove_if_quiet(index, io),
            (_, Err(FULL)) if was_at_once => self.touch(index),
            (_, Ok(sent_bytes)) if sent_bytes > 0 => self.touch(index),
            (State::Closing { .. }, _) => self.abort(index, io),
            (_, result) => {
                let errno = result.err().unwrap_or(BROKEN_PIPE);
                self.fail(index, CloseReason::Failed(errno), io);
            }
        }
    }

    /// All of a send was taken, or the rest is sent next.
    fn time_send(&mut self, index: u32, io: &mut IoContext) {
        let conn = self.conn(index);
        let Sending { since, begun, .. } = conn.sending;
        if !conn.outbox.is_through() {
            // What was queued behind it is not older.
            conn.sending.queued = Some(since);
            return;
        }
        let ended = if conn.sends_at_once { begun } else { io.now.mono };
        self.record(index, ended.since_ns(since) / 1000, io);
    }

    /// File ranges were sent, and nothing is left.
    pub(super) fn time_files(&mut self, index: u32, io: &mut IoContext) {
        if let Some(queued) = self.conn(index).sending.queued.take() {
            self.record(index, io.now.mono.since_ns(queued) / 1000, io);
        }
    }

    fn record(&mut self, index: u32, took_us: u64, io: &mut IoContext) {
        io.counters.send_times.record(took_us);
        let conn = self.conn(index);
        if took_us >= LATE_US && conn.accepted && matches!(conn.state, State::Open) {
            io.events.push(Event::Net(NetEvent::SentLate { conn: conn.id, took_us }));
        }
    }
}
