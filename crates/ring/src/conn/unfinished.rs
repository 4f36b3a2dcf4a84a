//! What clients have begun to send and not finished: buffers for it, and patience with it.
//!
//! A bulk gets its buffer when the head of its frame has come, and only on a connection that may write;
//! what comes on another one is thrown away. Invariants: bulks that are not whole have at most three
//! quarters of the buffers together and those of one party at most half, so whole ones and reads always
//! go on; a frame that has begun is whole in time or its connection ends; while connections wait for a
//! buffer, a bulk must come at the least rate all the time, and the party whose unfinished bulks hold
//! most of the buffers gives way to one that holds less.

use super::{Conn, Conns};
use crate::buffer::Pool;
use crate::config::Limits;
use crate::number::u64_of;
use crate::socket::received_bytes;
use crate::tools::Tools;
use interface::{BufId, CloseReason, ConnId, Mono, Party};

/// What the core said of a connection that it admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// Bulk is kept for the core.
    pub(crate) writes: bool,
    pub(crate) party: Party,
}

impl Admission {
    /// Before the core has said anything.
    pub(super) const NONE: Self = Self { writes: false, party: Party::NONE };
}

/// What of a buffer counts as held by a party until its bulk is whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    party: Party,
    space_bytes: u64,
}

/// How long a connection may still take to finish what it has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    since: Mono,
    until: Mono,
    /// What it had sent in all at the last look, if somebody waited for a buffer then.
    received_bytes: Option<u64>,
}

impl Conns {
    /// A buffer for a bulk whose frame's head has come. None: there is none for its party now.
    pub(super) fn take_for(
        &mut self,
        index: u32,
        bulk_bytes: usize,
        tools: &mut Tools,
    ) -> Option<(BufId, Option<Charge>)> {
        let conn = self.conn(index);
        let party = conn.admission.party;
        let charge = conn
            .accepted
            .then(|| Charge { party, space_bytes: u64_of(Pool::space_bytes(bulk_bytes)) });
        if charge.is_some_and(|charge| !self.may_charge(charge, tools)) {
            return None;
        }
        let buf = tools.pool.take(bulk_bytes)?;
        if let Some(Charge { party, space_bytes }) = charge {
            self.charged.add(party, space_bytes);
        }
        Some((buf, charge))
    }

    fn may_charge(&self, charge: Charge, tools: &Tools) -> bool {
        let limit_bytes = u64_of(tools.pool.used_bytes_max());
        let Charge { party, space_bytes } = charge;
        let total_bytes = self.charged.total() + space_bytes;
        let party_bytes = self.charged.of(party) + space_bytes;
        let fits = total_bytes <= limit_bytes / 4 * 3 && party_bytes <= limit_bytes / 2;
        // However few buffers there are, something moves.
        fits || self.charged.total() == 0
    }

    /// A bulk is whole, or will never be.
    pub(super) fn discharge(&mut self, charge: Option<Charge>) {
        if let Some(Charge { party, space_bytes }) = charge {
            self.charged.sub(party, space_bytes);
            self.discharged = true;
        }
    }

    /// Whether a connection that waits for a buffer may have its party's room now.
    pub(crate) fn is_discharged(&self) -> bool {
        self.discharged && self.is_starved()
    }

    /// A connection has begun something of which so many bytes may be missing.
    pub(super) fn began(&mut self, index: u32, missing_bytes: usize, tools: &Tools) {
        let (now, frame_ms_max) = (tools.now.mono, self.limits.frame_ms_max);
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

    /// A connection waits for the rest of what has come of a frame or a record, if anything has, and if
    /// what came has not ended it. A bulk has a time of its own.
    pub(super) fn awaits(&mut self, index: u32, tools: &Tools) {
        let Some(conn) = self.slots[index as usize].as_mut() else { return };
        if conn.incoming.is_some() {
            return;
        }
        let records = conn.seal.as_ref().is_some_and(|seal| !seal.is_empty());
        if conn.inbox.is_empty() && !records {
            conn.unfinished = None;
        } else if conn.unfinished.is_none() {
            let wanted_bytes = conn.inbox.wanted_bytes();
            self.began(index, wanted_bytes, tools);
        }
    }

    /// The next look at those that have not finished. Who has costs no turn.
    pub(super) fn unfinished_at(&mut self, look_ms: u64) -> Option<Mono> {
        while let Some((since, id)) = self.unfinished.front().copied() {
            let Some(index) = self.open_index(id) else {
                self.unfinished.pop_front();
                continue;
            };
            let conn = self.conn(index);
            if conn.unfinished.is_some() {
                return Some(since.after_ms(look_ms));
            }
            conn.finish_watched = false;
            self.unfinished.pop_front();
        }
        None
    }

    /// Looks at those that have not finished what they began.
    pub(super) fn expire_unfinished(&mut self, look_ms: u64, tools: &mut Tools) {
        let now = tools.now.mono;
        let due = |since: Mono| since.after_ms(look_ms) <= now;
        let mut looked = false;
        while let Some((_, id)) = self.unfinished.pop_front_if(|(since, _)| due(*since)) {
            looked = true;
            let Some(index) = self.open_index(id) else { continue };
            if self.conn(index).unfinished.is_none() {
                self.conn(index).finish_watched = false;
            } else if self.is_late(index, look_ms, tools) {
                self.fail(index, CloseReason::Unfinished, tools);
            } else {
                self.unfinished.push_back((now, id));
            }
        }
        if looked && self.is_starved() {
            self.give_way(look_ms, tools);
        }
    }

    fn is_late(&mut self, index: u32, look_ms: u64, tools: &mut Tools) -> bool {
        let scarce = self.is_starved();
        let conn = self.conn(index);
        let held = conn.incoming.is_some();
        let recv_armed = conn.recv_armed;
        let Some(unfinished) = &mut conn.unfinished else { return false };
        // What is not received is not missed.
        if !recv_armed {
            unfinished.received_bytes = None;
            return false;
        }
        if unfinished.until <= tools.now.mono {
            return true;
        }
        if !(scarce && held) {
            unfinished.received_bytes = None;
            return false;
        }
        tools.counters.syscall_count += 1;
        // The kernel does not tell it of a socket that is no TCP connection.
        let received = conn.socket.as_ref().and_then(received_bytes).unwrap_or(0);
        let wanted_bytes = Limits::RATE_BYTES_MIN * look_ms / 1000;
        let before = unfinished.received_bytes.replace(received);
        before.is_some_and(|before| received.saturating_sub(before) < wanted_bytes.max(1))
    }

    /// Connections wait for a buffer: for each of them whose party holds less than another one, the
    /// other's bulk that began first ends, if that was a while ago.
    fn give_way(&mut self, look_ms: u64, tools: &mut Tools) {
        let began_last = tools.now.mono;
        let waiting: Vec<u32> = self.starved.iter().copied().collect();
        for index in waiting {
            let Some(conn) = self.slots[index as usize].as_mut() else { continue };
            let space_bytes = u64_of(Pool::space_bytes(conn.wanted_bulk_bytes()));
            let asking = conn.admission.party;
            let Some(party) = self.charged.yielding_party(asking, space_bytes) else {
                continue;
            };
            let of_party = |(_, id): &&(Mono, ConnId)| {
                let found = self.index_of(*id).and_then(|at| self.slots[at as usize].as_ref());
                let since = found.filter(|conn| conn.is_charged_to(party));
                since
                    .and_then(|conn| conn.unfinished)
                    .is_some_and(|unfinished| unfinished.since.after_ms(look_ms) <= began_last)
            };
            let Some((_, id)) = self.unfinished.iter().find(of_party).copied() else { continue };
            if let Some(index) = self.open_index(id) {
                self.fail(index, CloseReason::Unfinished, tools);
            }
        }
    }
}

impl Conn {
    /// Drops bytes of a bulk that nobody gets. Whether all of it has come.
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
        match self.inbox.cut(self.admitted) {
            Ok(crate::framing::Cut::Frame(lengths)) => lengths.bulk_bytes as usize,
            Ok(crate::framing::Cut::More) | Err(_) => 0,
        }
    }
}
