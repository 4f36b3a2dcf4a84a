//! Small changes that are waited for become durable in the log and not in their object: one flush
//! for all of a lane, none for each object (docs/protocol.md, 13.7).
//!
//! ```text
//! written ─ waited for, few bytes ─▶ ObjectLoad ─▶ Loaded ─▶ Changed with Logged ─▶ (lane: record)
//!                                                   └ short, or failed: ObjectSync, as all others
//! ```
//! The applier syncs the object before the rows pass the record. Invariants: what is loaded is the
//! object after the changes whose records it goes with, and no other: no change runs meanwhile; whole
//! pages are loaded, so that redoing them never mixes two writes in a page; a record without
//! [`ContentsChange::Logged`] follows a sync that began when all earlier changes were in the object.

use crate::in_flight::InFlight;
use crate::object::Object;
use crate::{Answer, Shards};
use alloc::vec::Vec;
use disk::{ContentsChange, LoggedRange};
use interface::{Errno, ObjectAction, Span, SumRange, Ticket, Turn};
use wire::{Bytes, InodeNo, Reader, Writer};

/// Most separate ranges of an object that the log takes.
const RANGE_COUNT_MAX: usize = 8;

impl Shards {
    /// Begins to load an object's unsynced changes for the log, which may take `log_bytes` more than
    /// it was promised. Returns whether it does; otherwise the object must be synced.
    pub(crate) fn load_for_log(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        log_bytes: u64,
    ) -> bool {
        let (bytes_max, page_bytes) = (self.shape.logged_bytes_max, self.shape.page_bytes);
        let is_striped = self.is_striped(inode);
        let Some(object) = self.objects.get_mut(&inode).filter(|object| may_load(object)) else {
            return false;
        };
        if is_striped || object.unsynced_bytes > bytes_max {
            return false;
        }
        let Some(ranges) = ranges_of(object, page_bytes) else { return false };
        let range_bytes = ranges.iter().map(|range| u64::from(range.range_bytes)).sum::<u64>();
        let held_bytes = self.held_bytes.saturating_add(range_bytes);
        if range_bytes > bytes_max || held_bytes > log_bytes {
            return false;
        }
        self.held_bytes = held_bytes;
        object.begin_load();
        let encoded = turn.arena.write(|out| {
            let mut to = Writer::new(out);
            ranges.iter().for_each(|range| to.write(range));
        });
        let ticket = self.ticket(InFlight::Load { inode, ranges });
        let object = self.object_name(inode, 0);
        turn.act(ObjectAction::Load { ticket, object, ranges: encoded });
        true
    }

    /// The changes are loaded: their records take the bytes. If they are not there, the object is
    /// synced.
    pub(crate) fn on_loaded(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<Span, Errno>,
    ) {
        let Some(InFlight::Load { inode, ranges }) = self.in_flight.remove(&ticket.0) else {
            return;
        };
        let loaded = result.ok().and_then(|span| decoded(turn.arena.get(span), &ranges));
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.load_running = false;
        let Some(loaded) = loaded else {
            self.held_bytes -= ranges.iter().map(|range| u64::from(range.range_bytes)).sum::<u64>();
            let ticket = self.ticket(InFlight::Sync { inode });
            self.sync_objects(turn, inode, ticket);
            return self.advance(turn, inode);
        };
        object.sync_running = false;
        let mut ended = core::mem::take(&mut object.syncing);
        let first_no = ended.iter().map(|effect| effect.place_no).min();
        let mut loaded = Some(loaded);
        for effect in ended.drain(..) {
            // The first record has the bytes of all.
            let is_first = Some(effect.place_no) == first_no;
            let ranges = loaded.take_if(|_| is_first).unwrap_or_default();
            self.changed(inode, effect, Some(ContentsChange::Logged { inode, ranges }));
        }
        self.record_next(self.shard(inode));
        if let Some(object) = self.objects.get_mut(&inode) {
            object.syncing = ended; // Keeps its memory.
        }
        self.waits_for_sync(inode);
        self.advance(turn, inode);
    }
}

/// Whether the log may take an object's unsynced changes: plain writes that have all succeeded.
fn may_load(object: &Object) -> bool {
    let known = object.stat.is_some() && !object.stat_running && !object.doubtful && !object.lost;
    let quiet = object.writing_count == 0 && !object.exclusive && !object.sync_running;
    // A replay is recorded as its original.
    let is_write = |change: &ContentsChange| matches!(change, ContentsChange::Write { .. });
    let plain = object
        .written
        .iter()
        .all(|effect| is_write(&effect.change) && matches!(effect.answer, Answer::Written(_)));
    known && quiet && plain && !object.written.is_empty() && !object.blocks.unsynced
}

/// The pages that an object's unsynced changes are in, as far as it has them; `None`: too many.
fn ranges_of(object: &Object, page_bytes: u64) -> Option<Vec<SumRange>> {
    let size_bytes = object.size_bytes();
    let mut pages: Vec<(u64, u64)> = Vec::new();
    for effect in &object.written {
        let ContentsChange::Write { object_offset, .. } = effect.change else { return None };
        let from = object_offset - object_offset % page_bytes;
        let until = effect.end().checked_next_multiple_of(page_bytes)?.min(size_bytes);
        pages.push((from, until));
    }
    pages.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, until) in pages {
        match joined.last_mut().filter(|(_, end)| *end >= from) {
            Some((_, end)) => *end = until.max(*end),
            None => joined.push((from, until)),
        }
    }
    let range = |(from, until): (u64, u64)| {
        let range_bytes = u32::try_from(until.checked_sub(from)?).ok()?;
        (range_bytes > 0).then_some(SumRange { object_offset: from, range_bytes })
    };
    if joined.len() > RANGE_COUNT_MAX {
        return None;
    }
    joined.into_iter().map(range).collect()
}

/// Decodes what was loaded; `None` if some of it was missing.
fn decoded(encoded: &[u8], ranges: &[SumRange]) -> Option<Vec<LoggedRange>> {
    let mut from = Reader::new(encoded);
    let mut loaded = Vec::new();
    for SumRange { object_offset, range_bytes } in ranges {
        let Bytes(bytes) = from.read().ok()?;
        if u32::try_from(bytes.len()) != Ok(*range_bytes) {
            return None;
        }
        loaded.push(LoggedRange { object_offset: *object_offset, bytes: bytes.to_vec() });
    }
    Some(loaded)
}

/// The bytes that a record takes.
pub(crate) fn logged_bytes(logged: &ContentsChange) -> u64 {
    let ContentsChange::Logged { ranges, .. } = logged else { return 0 };
    let bytes = ranges.iter().map(|range| u64::try_from(range.bytes.len()).unwrap_or(u64::MAX));
    bytes.fold(0, u64::saturating_add)
}
