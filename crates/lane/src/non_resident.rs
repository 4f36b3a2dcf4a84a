//! Non-resident metadata: read from the key-value store when a request needs it; the request is
//! suspended meanwhile. Only with a limit on the memory of names ([`crate::Restore::bound`]).
//!
//! ```text
//! execute ─ Busy, missing ─▶ suspend, pin ─▶ ReadRows ─▶ Rows ─▶ resident ─▶ unpin, execute
//! ```
//! Invariant: at most one read per unit is in flight.

use crate::Lane;
use crate::request::SuspendedRequest;
use crate::ticket::ROWS_TICKET;
use crate::waiters::{Cause, Waiter};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use disk::rows::Row;
use disk::{Fault, Record};
use interface::{Errno, LogLevel, Mono, Span, StoreAction, Ticket, Turn};
use meta::Unit;
use wire::{SessionId, ShardId, Transno, Wire};

/// Units read for a request that retries stay resident for this long.
const LINGER_MS: u64 = 100;
/// A failed read is repeated after this long, as long as a replay needs it.
const AGAIN_MS: u64 = 200;
/// Units examined for eviction in a turn. Each takes a handful of steps, so this bounds the turn to
/// a few thousand.
pub(crate) const LOOK_COUNT_MAX: usize = 1024;
/// Reads in flight at a time. Each brings the rows of an inode or at most a hundred entries: this
/// bounds the work of a turn.
pub(crate) const READ_COUNT_MAX: usize = 64;

/// This lane's reads of non-resident units.
#[derive(Default, Debug)]
pub(crate) struct NonResident {
    /// Whether any shard has a memory limit.
    pub(crate) limits: bool,
    ticket_count: u64,
    /// The reads in flight.
    readings: BTreeMap<u64, (ShardId, Unit)>,
    /// The units to be read next.
    queue: VecDeque<(ShardId, Unit)>,
    /// All of these units, and whether a request will retry and needs the unit then.
    wanted: BTreeMap<(ShardId, Unit), bool>,
    /// Units pinned until a time.
    lingering: VecDeque<(Mono, ShardId, Vec<Unit>)>,
    /// After a failed read: when the replays that need it retry.
    pub(crate) again_at: Option<Mono>,
}

impl NonResident {
    /// Whether the time for a retry has come.
    pub(crate) fn tries_again(&mut self, now: Mono) -> bool {
        self.again_at.take_if(|at| *at <= now).is_some()
    }

    pub(crate) fn is_reading(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Reads in flight, and units wanted.
    #[cfg(test)]
    pub(crate) fn reading_counts(&self) -> (usize, usize) {
        (self.readings.len(), self.wanted.len())
    }
}

impl Lane {
    /// Suspends a request until the units that its execution missed are resident.
    pub(crate) fn suspend_for_rows(
        &mut self,
        turn: &mut Turn<'_>,
        shard: ShardId,
        mut suspended: SuspendedRequest,
    ) {
        let index = self.meta_index(shard);
        let meta = &mut self.metas[index];
        let missing = meta.missing().to_vec();
        // The last unit requested usually arrives last.
        let Some(last) = missing.last().cloned() else { return };
        suspended.pins = meta.needed().to_vec();
        meta.pin(&suspended.pins);
        self.read_all(turn, shard, missing, false);
        let cause = Cause::Rows(shard, last);
        self.waiters.suspend(cause, Waiter::Suspended(Box::new(suspended)));
    }

    /// Reads the units that a shard just missed, for a request that retries soon.
    pub(crate) fn read_missing(&mut self, turn: &mut Turn<'_>, shard: ShardId) {
        let index = self.meta_index(shard);
        let meta = &self.metas[index];
        let (missing, needed) = (meta.missing().to_vec(), meta.needed().to_vec());
        if !missing.is_empty() {
            self.linger(turn, shard, needed);
            self.read_all(turn, shard, missing, true);
        }
    }

    fn linger(&mut self, turn: &Turn<'_>, shard: ShardId, units: Vec<Unit>) {
        let index = self.meta_index(shard);
        self.metas[index].pin(&units);
        let until = turn.now.mono.after_ms(LINGER_MS);
        self.non_resident.lingering.push_back((until, shard, units));
    }

    fn read_all(&mut self, turn: &mut Turn<'_>, shard: ShardId, missing: Vec<Unit>, lingers: bool) {
        for unit in missing {
            let is_new = !self.non_resident.wanted.contains_key(&(shard, unit.clone()));
            *self.non_resident.wanted.entry((shard, unit.clone())).or_default() |= lingers;
            if is_new {
                self.non_resident.queue.push_back((shard, unit));
            }
        }
        self.read_next(turn);
    }

    /// Starts reads up to the limit.
    fn read_next(&mut self, turn: &mut Turn<'_>) {
        while self.non_resident.readings.len() < READ_COUNT_MAX
            && let Some((shard, unit)) = self.non_resident.queue.pop_front()
        {
            self.non_resident.ticket_count += 1;
            let number = self.non_resident.ticket_count;
            let index = self.meta_index(shard);
            self.metas[index].begin_fetch(&unit);
            let range = unit.range();
            let from = turn.arena.put(range.from.bytes());
            let until = turn.arena.put(range.until.bytes());
            let row_count_max = unit.row_count_max();
            self.non_resident.readings.insert(number, (shard, unit));
            let ticket = Ticket(ROWS_TICKET | number);
            turn.act(StoreAction::ReadRows { ticket, from, until, row_count_max });
        }
    }

    /// Rows have been read.
    pub(crate) fn on_rows(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<Span, Errno>,
    ) {
        let number = ticket.0 & !crate::ticket::TICKET_TAG;
        let Some((shard, unit)) = self.non_resident.readings.remove(&number) else { return };
        let key = (shard, unit.clone());
        if self.non_resident.wanted.remove(&key).unwrap_or_default() {
            self.linger(turn, shard, Vec::from([unit.clone()]));
        }
        let index = self.meta_index(shard);
        let taken = match result {
            Ok(rows) => decoded(turn.arena.get(rows))
                .and_then(|rows| self.metas[index].fetch(&unit, &rows))
                .map_err(|fault| format!("{fault:?}")),
            Err(errno) => Err(format!("{}, errno {}", errno.status().text(), errno.0)),
        };
        self.read_next(turn);
        match taken {
            Ok(()) => {
                self.waiters.make_due(&Cause::Rows(shard, unit));
                self.work(turn);
                self.containment.due = true;
                self.execute_replays(turn);
            }
            Err(text) => {
                self.metas[index].fetch_failed(&unit);
                let line = format!("names cannot be read back from the store: {text}");
                self.log(turn, LogLevel::Alarm, &line);
                self.fail_cause(turn, &Cause::Rows(shard, unit));
                self.non_resident.again_at = Some(turn.now.mono.after_ms(AGAIN_MS));
            }
        }
    }

    /// The key-value store has applied a shard's log up to this transaction.
    pub(crate) fn on_checkpointed(&mut self, shard: ShardId, transno: Transno) {
        if !shard.is_data() && self.is_own(shard) {
            let index = self.meta_index(shard);
            self.metas[index].checkpointed(transno);
        }
    }

    /// Evicts names above the limit; once a turn. Not during recovery: what clients replay and
    /// reopen must be resident at its end.
    pub(crate) fn shrink(&mut self, now: Mono) {
        while self.non_resident.lingering.front().is_some_and(|(until, ..)| *until <= now)
            && let Some((_, shard, units)) = self.non_resident.lingering.pop_front()
        {
            let index = self.meta_index(shard);
            self.metas[index].unpin(&units);
        }
        if self.non_resident.limits && self.recovery.is_over() {
            self.metas.iter_mut().for_each(|meta| meta.shrink(LOOK_COUNT_MAX));
        }
    }

    /// Whether the next replay of a session needs units that are not resident.
    pub(crate) fn replay_misses(
        &mut self,
        turn: &mut Turn<'_>,
        (shard, session): (ShardId, SessionId),
    ) -> bool {
        if shard.is_data() || self.metas[self.meta_index(shard)].resident_bytes().is_none() {
            return false;
        }
        let queue = self.recovery.queues.get((shard, session));
        let Some(replay) = queue.and_then(|queue| queue.replays.front()) else { return false };
        let Ok(message) = wire::Replay::decode_all(&replay.body) else { return false };
        let (reply, contents) = (message.reply.0, replay.contents());
        let Some(redo) = self.commit.tokens().open(message.token.0, reply, contents) else {
            return false;
        };
        let Ok((record, _)) = Record::decode(redo) else { return false };
        let index = self.meta_index(shard);
        if self.metas[index].has_to_fit(record.changes) {
            return false;
        }
        self.read_missing(turn, shard);
        true
    }

    /// A handle is reopened before recovery ends: its inode must be resident then.
    pub(crate) fn read_reopened(&mut self, turn: &mut Turn<'_>, shard: ShardId, body: &[u8]) {
        if shard.is_data() {
            return;
        }
        let Ok(reopen) = wire::Reopen::decode_all(body) else { return };
        let index = self.meta_index(shard);
        if !self.metas[index].has_inode(reopen.inode) {
            self.read_missing(turn, shard);
        }
    }
}

/// Decodes rows as [`interface::StoreEvent::Rows`] encodes them.
pub(crate) fn decoded(mut bytes: &[u8]) -> Result<Vec<Row<'_>>, Fault> {
    let torn = || Fault::new("rows that end too early", 0);
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        let (key_bytes, rest) = bytes.split_first_chunk().ok_or_else(torn)?;
        let (value_bytes, rest) = rest.split_first_chunk().ok_or_else(torn)?;
        let count = |bytes: &[u8; 4]| usize::try_from(u32::from_le_bytes(*bytes));
        let key_count = count(key_bytes).map_err(|_| torn())?;
        let value_count = count(value_bytes).map_err(|_| torn())?;
        let (key, rest) = rest.split_at_checked(key_count).ok_or_else(torn)?;
        let (value, rest) = rest.split_at_checked(value_count).ok_or_else(torn)?;
        rows.push(Row::decode(key, value)?);
        bytes = rest;
    }
    Ok(rows)
}
