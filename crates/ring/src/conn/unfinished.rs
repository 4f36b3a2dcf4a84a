//! Incomplete frames of clients: their buffers and deadlines.
//!
//! A bulk gets its buffer when the header of its frame has come, and only on a connection that may
//! write; on other connections it is discarded. Invariants: incomplete bulks have at most three
//! quarters of the buffers together, and those of one party at most half, so complete ones and
//! reads always progress; a frame is complete in time or its connection is closed; while
//! connections wait for a buffer, a bulk must come at the minimum rate, and the party whose
//! incomplete bulks hold most of the buffers yields to one that holds less.

use super::{Conn, Conns};
use crate::buffer::Pool;
use crate::io_context::IoContext;
use crate::limits::Limits;
use crate::number::u64_of;
use crate::socket::received_bytes;
use interface::{BufId, CloseReason, ConnId, Mono, Party};

/// The core's admission of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// Its bulk is passed to the core.
    pub(crate) writes: bool,
    pub(crate) party: Party,
}

impl Admission {
    /// Before the core has admitted it.
    pub(super) const NONE: Self = Self { writes: false, party: Party::NONE };
}

/// Buffer bytes that count against a party until the bulk is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    party: Party,
    space_bytes: u64,
}

/// The deadline of an incomplete frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    since: Mono,
    until: Mono,
    /// Bytes that the connection had received at the last check, if a buffer was waited for then.
    received_bytes: Option<u64>,
}

impl Conns {
    /// Takes a buffer for a bulk whose header has come. `None`: there is none for its party now.
    pub(super) fn take_for(
        &mut self,
        index: u32,
        bulk_bytes: usize,
        io: &mut IoContext,
    ) -> Option<(BufId, Option<Charge>)> {
        let conn = self.conn(index);
        let party = conn.admission.party;
        let charge = conn
            .accepted
            .then(|| Charge { party, space_bytes: u64_of(Pool::space_bytes(bulk_bytes)) });
        if charge.is_some_and(|charge| !self.may_charge(charge, io)) {
            return None;
        }
        let buf = io.pool.take(bulk_bytes)?;
        if let Some(Charge { party, space_bytes }) = charge {
            self.charged.add(party, space_bytes);
        }
        Some((buf, charge))
    }

    fn may_charge(&self, charge: Charge, io: &IoContext) -> bool {
        let limit_bytes = u64_of(io.pool.used_bytes_max());
        let Charge { party, space_bytes } = charge;
        let total_bytes = self.charged.total() + space_bytes;
        let party_bytes = self.charged.of(party) + space_bytes;
        let fits = total_bytes <= limit_bytes / 4 * 3 && party_bytes <= limit_bytes / 2;
        // The first charge is always granted, however few buffers there are.
        fits || self.charged.total() == 0
    }

    /// A bulk is complete, or was abandoned.
    pub(super) fn discharge(&mut self, charge: Option<Charge>) {
        if let Some(Charge { party, space_bytes }) = charge {
            self.charged.sub(party, space_bytes);
            self.discharged = true;
        }
    }

    /// Whether a waiting connection's party may have a buffer now.
    pub(crate) fn is_discharged(&self) -> bool {
        self.discharged && self.is_starved()
    }

    /// A connection has begun a frame of which so many bytes may be missing.
    pub(super) fn began(&mut self, index: u32, missing_bytes: usize, io: &IoContext) {
        let (now, frame_ms_max) = (io.now.mono, self.limits.frame_ms_max);
        let conn = self.conn(index);
        if !conn.accepted {
            return;
        }
        let ms = frame_ms_max + u64_of(missing_bytes) * 1000 / Limits::RATE_BYTES_MIN;
        conn.unfinished =
            Some(Unfinished { since: now, until: now.after_ms(ms), received_bytes: None });
        if !std::mem::replace(&mut conn.finish_watched, true) {
            let id = conn.id;
            self.unfinished.push_back((now, id));
        }
    }

    /// A connection waits for the rest of a frame or record, if part of one was received and the
    /// connection is still open. A bulk has a deadline of its own.
    pub(super) fn awaits(&mut self, index: u32, io: &IoContext) {
        let Some(conn) = self.slots.get_mut(index as usize) else { return };
        if conn.incoming.is_some() {
            return;
        }
        let records = conn.seal.as_ref().is_some_and(|seal| !seal.is_empty());
        if conn.inbox.is_empty() && !records {
            conn.unfinished = None;
        } else if conn.unfinished.is_none() {
            let wanted_bytes = conn.inbox.wanted_bytes();
            self.began(index, wanted_bytes, io);
        }
    }

    /// The next check of incomplete frames. Completed ones cause no turn.
    pub(super) fn unfinished_at(&mut self, check_ms: u64) -> Option<Mono> {
        while let Some((since, id)) = self.unfinished.front().copied() {
            let Some(index) = self.open_index(id) else {
                self.unfinished.pop_front();
                continue;
            };
            let conn = self.conn(index);
            if conn.unfinished.is_some() {
                return Some(since.after_ms(check_ms));
            }
            conn.finish_watched = false;
            self.unfinished.pop_front();
        }
        None
    }

    /// Checks incomplete frames.
    pub(super) fn expire_unfinished(&mut self, check_ms: u64, io: &mut IoContext) {
        let now = io.now.mono;
        let due = |since: Mono| since.after_ms(check_ms) <= now;
        let mut has_expired = false;
        while let Some((_, id)) = self.unfinished.pop_front_if(|(since, _)| due(*since)) {
            has_expired = true;
            let Some(index) = self.open_index(id) else { continue };
            if self.conn(index).unfinished.is_none() {
                self.conn(index).finish_watched = false;
            } else if self.is_late(index, check_ms, io) {
                self.fail(index, CloseReason::Unfinished, io);
            } else {
                self.unfinished.push_back((now, id));
            }
        }
        if has_expired && self.is_starved() {
            self.end_greediest(check_ms, io);
        }
    }

    fn is_late(&mut self, index: u32, check_ms: u64, io: &mut IoContext) -> bool {
        let scarce = self.is_starved();
        let conn = self.conn(index);
        let held = conn.incoming.is_some();
        let recv_armed = conn.recv_armed;
        let Some(unfinished) = &mut conn.unfinished else { return false };
        // Bytes that are not being received are not late.
        if !recv_armed {
            unfinished.received_bytes = None;
            return false;
        }
        if unfinished.until <= io.now.mono {
            return true;
        }
        if !(scarce && held) {
            unfinished.received_bytes = None;
            return false;
        }
        io.counters.syscall_count += 1;
        // The kernel does not report it for sockets that are not TCP.
        let received = conn.socket.as_ref().and_then(received_bytes).unwrap_or(0);
        let wanted_bytes = Limits::RATE_BYTES_MIN * check_ms / 1000;
        let before = unfinished.received_bytes.replace(received);
        before.is_some_and(|before| received.saturating_sub(before) < wanted_bytes.max(1))
    }

    /// Connections wait for a buffer: for each whose party holds less than another party, the
    /// oldest incomplete bulk of that other party is ended, if it began long enough ago.
    fn end_greediest(&mut self, check_ms: u64, io: &mut IoContext) {
        let began_last = io.now.mono;
        let waiting: Vec<u32> = self.starved.iter().copied().collect();
        for index in waiting {
            let Some(conn) = self.slots.get_mut(index as usize) else { continue };
            let space_bytes = u64_of(Pool::space_bytes(conn.wanted_bulk_bytes()));
            let waiting_party = conn.admission.party;
            let Some(party) = self.charged.yielding_party(waiting_party, space_bytes) else {
                continue;
            };
            let of_party = |(_, id): &&(Mono, ConnId)| {
                let found = self.index_of(*id).and_then(|at| self.slots.get(at as usize));
                let since = found.filter(|conn| conn.is_charged_to(party));
                since
                    .and_then(|conn| conn.unfinished)
                    .is_some_and(|unfinished| unfinished.since.after_ms(check_ms) <= began_last)
            };
            let Some((_, id)) = self.unfinished.iter().find(of_party).copied() else { continue };
            if let Some(index) = self.open_index(id) {
                self.fail(index, CloseReason::Unfinished, io);
            }
        }
    }
}

impl Conn {
    /// Discards received bytes of an unwanted bulk. Returns whether all of it has come.
    pub(super) fn skip(&mut self) -> bool {
        if self.skip_bytes > 0 {
            self.skip_bytes -= self.inbox.skip(self.skip_bytes);
            if self.skip_bytes == 0 {
                self.unfinished = None;
            }
        }
        self.skip_bytes == 0
    }

    fn is_charged_to(&self, party: Party) -> bool {
        let charge = self.incoming.as_ref().and_then(|incoming| incoming.charge);
        charge.is_some_and(|charge| charge.party == party)
    }

    /// Bytes of the bulk that waits for a buffer.
    fn wanted_bulk_bytes(&mut self) -> usize {
        match self.inbox.cut(self.body_bytes_max()) {
            Ok(crate::framing::Cut::Frame(lengths)) => lengths.bulk_bytes as usize,
            Ok(crate::framing::Cut::More) | Err(_) => 0,
        }
    }
}
