//! Names that are not in memory: asked of the cold store when a request needs them, which waits as
//! long. Only with a limit on the memory of names ([`crate::Restore::bound`]).
//!
//! ```text
//! execute ─ Busy, missing ─▶ park, pin ─▶ ColdRead ─▶ ColdRows ─▶ in memory ─▶ unpin, execute
//! ```
//! Invariant: one read per unit is out, and while it is, the unit is not in memory.

use crate::Lane;
use crate::txns::Parked;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use disk::rows::Row;
use disk::{Fault, Record};
use door::{Action, Errno, Mono, Say, Span, Ticket, Turn};
use meta::Unit;
use wire::{SessionId, ShardId, Transno, Wire};

/// Questions to the cold store.
const COLD_TICKET: u64 = 5 << 56;
/// Entries of a directory read at once.
const ENTRY_COUNT_MAX: u32 = 4096;
/// An inode with all its attributes is read at once.
const PART_COUNT_MAX: u32 = 1 << 16;
/// What was read, and what somebody needs who comes back for it, stays this long.
const LINGER_MS: u64 = 100;
/// What could not be read is tried again after this long, as long as somebody needs it.
const AGAIN_MS: u64 = 200;
/// Units looked at for eviction in a turn.
const LOOK_COUNT_MAX: usize = 256;

/// What is being read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    shard: ShardId,
    unit: Unit,
}

/// What this lane reads from the cold store.
#[derive(Default, Debug)]
pub(crate) struct Cold {
    ticket_count: u64,
    readings: BTreeMap<u64, Reading>,
    /// Who waits for what is read.
    waiting: BTreeMap<(ShardId, Unit), Vec<Parked>>,
    /// Pinned until then.
    lingering: VecDeque<(Mono, ShardId, Unit)>,
    /// Something could not be read: replays that need it try again then.
    pub(crate) again_at: Option<Mono>,
}

impl Cold {
    /// Whether the time has come to try again.
    pub(crate) fn tries_again(&mut self, now: Mono) -> bool {
        self.again_at.take_if(|at| *at <= now).is_some()
    }

    pub(crate) fn is_reading(&self) -> bool {
        !self.readings.is_empty()
    }
}

impl Lane {
    /// Lets a request wait for what its execution missed.
    pub(crate) fn park_cold(&mut self, turn: &mut Turn<'_>, shard: ShardId, mut parked: Parked) {
        let index = self.meta_index(shard);
        let meta = &mut self.metas[index];
        let missing = meta.missing().to_vec();
        let Some(first) = missing.first() else { return };
        parked.pins = meta.needed().to_vec();
        meta.pin(&parked.pins);
        self.read_all(turn, shard, &missing);
        self.cold.waiting.entry((shard, *first)).or_default().push(parked);
    }

    /// Reads what a shard just missed, for somebody who comes back for it soon.
    pub(crate) fn read_missing(&mut self, turn: &mut Turn<'_>, shard: ShardId) {
        let index = self.meta_index(shard);
        let missing = self.metas[index].missing().to_vec();
        let until = turn.now.mono.after_ms(LINGER_MS);
        for unit in &missing {
            self.metas[index].pin(&[*unit]);
            self.cold.lingering.push_back((until, shard, *unit));
        }
        self.read_all(turn, shard, &missing);
    }

    fn read_all(&mut self, turn: &mut Turn<'_>, shard: ShardId, units: &[Unit]) {
        let index = self.meta_index(shard);
        for unit in units {
            let missing = !self.metas[index].is_resident(*unit);
            if missing && !self.cold.waiting.contains_key(&(shard, *unit)) {
                self.cold.waiting.insert((shard, *unit), Vec::new());
                self.read_rows(turn, Reading { shard, unit: *unit }, 0);
            }
        }
    }

    fn read_rows(&mut self, turn: &mut Turn<'_>, reading: Reading, cookie: u64) {
        self.cold.ticket_count += 1;
        let number = self.cold.ticket_count;
        self.cold.readings.insert(number, reading);
        let range = reading.unit.range(cookie);
        let from = turn.arena.put(range.from.bytes());
        let until = turn.arena.put(range.until.bytes());
        let row_count_max = window(reading.unit);
        let ticket = Ticket(COLD_TICKET | number);
        turn.act(Action::ColdRead { ticket, from, until, row_count_max });
    }

    /// The cold store has answered.
    pub(crate) fn on_cold_rows(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<Span, Errno>,
    ) {
        let number = ticket.0 & !crate::lane::TICKET_TAG;
        let Some(reading) = self.cold.readings.remove(&number) else { return };
        let Reading { shard, unit } = reading;
        let taken = match result {
            Ok(rows) => {
                let rows = turn.arena.get(rows).to_vec();
                self.take_rows(reading, &rows).map_err(|fault| format!("{fault:?}"))
            }
            Err(errno) => Err(format!("{}, errno {}", errno.status().text(), errno.0)),
        };
        match taken {
            Ok(Some(cookie)) => self.read_rows(turn, reading, cookie),
            Ok(None) => {
                // What is larger than the limit would be read for every request otherwise.
                let until = turn.now.mono.after_ms(LINGER_MS);
                let index = self.meta_index(shard);
                self.metas[index].pin(&[unit]);
                self.cold.lingering.push_back((until, shard, unit));
                let waiting = self.cold.waiting.remove(&(shard, unit));
                self.txns.due.extend(waiting.into_iter().flatten());
                self.work(turn);
                self.execute_replays(turn);
            }
            Err(text) => {
                let line = format!("names cannot be read back from the store: {text}");
                self.say(turn, Say::Alarm, &line);
                let waiting = self.cold.waiting.remove(&(shard, unit));
                waiting.into_iter().flatten().for_each(|parked| self.fail_one(turn, parked));
                self.cold.again_at = Some(turn.now.mono.after_ms(AGAIN_MS));
            }
        }
    }

    /// Takes rows over; the place behind which to go on.
    fn take_rows(&mut self, reading: Reading, rows: &[u8]) -> Result<Option<u64>, Fault> {
        let rows = decoded(rows)?;
        let index = self.meta_index(reading.shard);
        self.metas[index].fetch(reading.unit, &rows)?;
        let is_full = u32::try_from(rows.len()).is_ok_and(|count| count >= window(reading.unit));
        if let Some(Row::Listing { row, .. }) = rows.last().filter(|_| is_full) {
            return Ok(Some(row.cookie));
        }
        self.metas[index].fetched(reading.unit);
        Ok(None)
    }

    /// The cold store has a shard's log up to this transaction.
    pub(crate) fn on_checkpointed(&mut self, shard: ShardId, transno: Transno) {
        if !shard.is_data() && self.is_own(shard) {
            let index = self.meta_index(shard);
            self.metas[index].checkpointed(transno);
        }
    }

    /// Lets names go when there are too many; once a turn. Not while clients come back: what they
    /// bring and open again must be there at the end.
    pub(crate) fn shrink(&mut self, now: Mono) {
        while let Some((until, shard, unit)) = self.cold.lingering.front().copied() {
            if until > now {
                break;
            }
            self.cold.lingering.pop_front();
            let index = self.meta_index(shard);
            self.metas[index].unpin(&[unit]);
        }
        if self.recovery.is_over() {
            self.metas.iter_mut().for_each(|meta| meta.shrink(LOOK_COUNT_MAX));
        }
    }

    /// Whether the next replay of a session has to wait for what it is about.
    pub(crate) fn replay_misses(
        &mut self,
        turn: &mut Turn<'_>,
        (shard, session): (ShardId, SessionId),
    ) -> bool {
        if shard.is_data() || self.metas[self.meta_index(shard)].resident_bytes().is_none() {
            return false;
        }
        let queue = self.recovery.queues.get(&(shard, session));
        let Some(replay) = queue.and_then(|queue| queue.replays.front()) else { return false };
        let Ok(message) = wire::Replay::decode_all(&replay.body) else { return false };
        let Some(redo) = self.seal.open(message.token.0, message.reply.0) else { return false };
        let Ok((record, _)) = Record::decode(redo) else { return false };
        let index = self.meta_index(shard);
        if self.metas[index].has_changed(record.changes) {
            return false;
        }
        self.read_missing(turn, shard);
        true
    }

    /// A handle will be opened again before recovery ends: its inode must be there then.
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

const fn window(unit: Unit) -> u32 {
    match unit {
        Unit::Inode(_) => PART_COUNT_MAX,
        Unit::Entries(_) => ENTRY_COUNT_MAX,
    }
}

/// Rows as [`door::Event::ColdRows`] has them.
fn decoded(mut bytes: &[u8]) -> Result<Vec<Row<'_>>, Fault> {
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
