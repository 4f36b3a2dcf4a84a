//! Deadlines of connections: of closing ones, of those not admitted yet, of those that read nothing
//! of what is queued for them, and (`unfinished`) of those that do not complete a frame.
//!
//! Invariant: a connection that was closed or admitted in time causes no turn. If there are too
//! many that are not admitted, the oldest is closed: an honest client is admitted within two round
//! trips.

use super::Conns;
use crate::io_context::IoContext;
use crate::limits::Limits;
use crate::socket::acked_bytes;
use interface::{CloseReason, ConnId, Errno, Mono};

const TIMED_OUT: Errno = Errno(110);

impl Conns {
    /// Sets the deadline of admission.
    pub(super) fn watch_handshake(&mut self, index: u32, io: &mut IoContext) {
        let id = self.conn(index).id;
        let until = io.now.mono.after_ms(self.limits.handshake_ms_max);
        self.handshake.push_back((until, id));
        if self.handshake.len() > self.limits.handshake_count_max {
            self.shed(io);
        }
    }

    /// Removes admitted and closed connections from the list; if it is still too long, closes the
    /// oldest.
    fn shed(&mut self, io: &mut IoContext) {
        let mut handshake = std::mem::take(&mut self.handshake);
        handshake.retain(|(_, id)| self.is_handshake(*id));
        while handshake.len() > self.limits.handshake_count_max
            && let Some((_, id)) = handshake.pop_front()
        {
            if let Some(index) = self.open_index(id) {
                io.counters.shed_count += 1;
                self.fail(index, CloseReason::Failed(TIMED_OUT), io);
            }
        }
        self.handshake = handshake;
    }

    /// Makes space for one more connection: at the limit the oldest that is not admitted is closed.
    /// An admitted connection is never closed for one that is not.
    pub(super) fn evict_for_new(&mut self, io: &mut IoContext) -> bool {
        if !self.is_full() {
            return true;
        }
        while let Some((_, id)) = self.handshake.pop_front() {
            if let Some(index) = self.open_index(id).filter(|_| self.is_handshake(id)) {
                io.counters.shed_count += 1;
                self.fail(index, CloseReason::Failed(TIMED_OUT), io);
                return true;
            }
        }
        io.counters.refused_count += 1;
        false
    }

    /// Starts watching a connection that has bytes to send.
    pub(super) fn watch(&mut self, index: u32, now: Mono) {
        let conn = self.conn(index);
        if !std::mem::replace(&mut conn.watched, true) {
            conn.acked_bytes = None;
            let id = conn.id;
            self.stalling.push_back((now, id));
        }
    }

    /// Checks the watched connections, and closes those whose peer acknowledged nothing since the
    /// last check.
    fn expire_stalled(&mut self, starving: bool, io: &mut IoContext) {
        let check_ms = self.check_ms(starving);
        let now = io.now.mono;
        while let Some((_, id)) =
            self.stalling.pop_front_if(|(since, _)| since.after_ms(check_ms) <= now)
        {
            let Some(index) = self.open_index(id) else { continue };
            let conn = self.conn(index);
            if conn.outbox.unsent_bytes() == 0 {
                conn.watched = false;
                continue;
            }
            io.counters.syscall_count += 1;
            // The kernel does not report it for sockets that are not TCP.
            let acked_bytes = conn.socket.as_ref().and_then(acked_bytes).unwrap_or(0);
            if conn.acked_bytes.replace(acked_bytes) == Some(acked_bytes) {
                self.fail(index, CloseReason::TooSlow, io);
            } else {
                self.stalling.push_back((now, id));
            }
        }
    }

    /// Half of the limit, so that a stalled connection is found within one and a half times the
    /// limit.
    const fn check_ms(&self, starving: bool) -> u64 {
        let Limits { stall_ms_max, starving_stall_ms_max, .. } = self.limits;
        if starving { starving_stall_ms_max / 2 } else { stall_ms_max / 2 }
    }

    /// The next deadline.
    pub(crate) fn deadline(&mut self, starving: bool) -> Option<Mono> {
        // Connections that were closed or admitted in time need no turn.
        while self.closing.front().is_some_and(|(_, id)| self.index_of(*id).is_none()) {
            self.closing.pop_front();
        }
        while self.stalling.front().is_some_and(|(_, id)| self.open_index(*id).is_none()) {
            self.stalling.pop_front();
        }
        while self.handshake.front().is_some_and(|(_, id)| !self.is_handshake(*id)) {
            self.handshake.pop_front();
        }
        let closing = self.closing.front().map(|(at, _)| *at);
        let handshake = self.handshake.front().map(|(at, _)| *at);
        let check_ms = self.check_ms(starving);
        let stalling = self.stalling.front().map(|(since, _)| since.after_ms(check_ms));
        let unfinished = self.unfinished_at(check_ms);
        [closing, handshake, stalling, unfinished].into_iter().flatten().min()
    }

    /// Closes connections past their deadline.
    pub(crate) fn expire(&mut self, starving: bool, io: &mut IoContext) {
        let now = io.now.mono;
        self.expire_stalled(starving, io);
        self.expire_unfinished(self.check_ms(starving), io);
        while let Some((_, id)) = self.closing.pop_front_if(|(at, _)| *at <= now) {
            if let Some(index) = self.index_of(id) {
                self.abort(index, io);
            }
        }
        while let Some((_, id)) = self.handshake.pop_front_if(|(at, _)| *at <= now) {
            if let Some(index) = self.open_index(id).filter(|_| self.is_handshake(id)) {
                self.fail(index, CloseReason::Failed(TIMED_OUT), io);
            }
        }
    }

    /// Bytes that all peers together have acknowledged.
    #[cfg(test)]
    pub(crate) fn acked_bytes(&self) -> u64 {
        let sockets = self.slots.iter().filter_map(|(_, conn)| conn.socket.as_ref());
        sockets.filter_map(acked_bytes).sum()
    }

    /// Whether a connection exists and is not admitted yet.
    fn is_handshake(&self, id: ConnId) -> bool {
        let conn = self.open_index(id).and_then(|index| self.slots.get(index as usize));
        conn.is_some_and(|conn| !conn.admitted)
    }
}
