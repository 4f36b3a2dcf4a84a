//! Which bytes of an object an operation reads, writes or cuts off, and whether it may begin.

use crate::LostWrite;
use crate::object::Object;
use crate::request::{QueuedOp, bulk_bytes};
use alloc::vec::Vec;
use core::ops::Range;
use disk::ContentsChange;
use wire::{Allocation, Pieces};

/// Whether the first queued operation of an object may change it once its checksums are removed.
/// One that cuts a range off keeps them until the reads before it have ended, which may compare
/// them.
pub(crate) fn may_open(object: &Object) -> bool {
    let known = object.stat.is_some() && !object.doubtful && !object.stat_running;
    let cuts = object.queue.front().is_some_and(|front| cut_by(front, object).is_some());
    let alone = object.running_count == 0 || !cuts;
    known && alone && object.fence_count == 0 && !object.exclusive
}

/// Whether the first queued operation of an object waits for one in progress: a read for a write
/// that removed the checksum of its bytes, a write for a read that compares the checksum which the
/// write removes.
pub(crate) fn must_wait(object: &Object) -> bool {
    let blocks = &object.blocks;
    let Some(front) = object.queue.front().filter(|_| blocks.is_contended()) else { return false };
    let mut read = read_by(front, object.size_bytes()).into_iter();
    read.any(|(from, until)| blocks.is_overwritten(&(from..until)))
        || written_by(front, object).iter().any(|bytes| blocks.is_compared(bytes))
}

/// The ranges that an operation will write.
pub(crate) fn written_by(pending: &QueuedOp, object: &Object) -> Vec<Range<u64>> {
    let range = |from: u64, bytes: u32| from..from.saturating_add(u64::from(bytes));
    let one = |from: u64, bytes: u32| core::iter::once(range(from, bytes)).collect();
    let all = |places: Vec<(u64, u64)>| places.into_iter().map(|(from, until)| from..until);
    match pending {
        QueuedOp::Write { object_offset, bulk, .. } => one(*object_offset, bulk_bytes(*bulk)),
        QueuedOp::Append { bulk, at, .. } => one(object.append_offset(*at), bulk_bytes(*bulk)),
        QueuedOp::WriteList(writing) => all(places_of(&writing.pieces)).collect(),
        QueuedOp::Replay { lost: LostWrite { change, bulk, .. }, .. } => match change {
            ContentsChange::Write { object_offset, .. } => one(*object_offset, bulk.bulk_bytes),
            ContentsChange::WriteList { pieces, .. } => all(places_of(pieces)).collect(),
            ContentsChange::Truncate { .. }
            | ContentsChange::Allocate { .. }
            | ContentsChange::ObjectRemoved { .. }
            | ContentsChange::Sums { .. }
            | ContentsChange::SumsRemoved { .. }
            | ContentsChange::Stripe { .. }
            | ContentsChange::Logged { .. } => Vec::new(),
        },
        QueuedOp::Read { .. }
        | QueuedOp::ReadList(_)
        | QueuedOp::Glimpse(_)
        | QueuedOp::Seek(_)
        | QueuedOp::Truncate(_)
        | QueuedOp::Allocate(_)
        | QueuedOp::Widen { .. }
        | QueuedOp::Remove => Vec::new(),
    }
}

/// The range that an operation will cut off or zero.
pub(crate) fn cut_by(pending: &QueuedOp, object: &Object) -> Option<Range<u64>> {
    match pending {
        QueuedOp::Truncate(truncating) => {
            let size_bytes = truncating.size_bytes;
            (size_bytes < object.size_bytes()).then_some(size_bytes..u64::MAX)
        }
        QueuedOp::Allocate(allocating) => {
            (allocating.allocation != Allocation::Reserve).then(|| {
                let from = allocating.object_offset;
                from..from.saturating_add(allocating.range_bytes)
            })
        }
        QueuedOp::Read { .. }
        | QueuedOp::ReadList(_)
        | QueuedOp::Glimpse(_)
        | QueuedOp::Seek(_)
        | QueuedOp::Write { .. }
        | QueuedOp::WriteList(_)
        | QueuedOp::Append { .. }
        | QueuedOp::Replay { .. }
        | QueuedOp::Widen { .. }
        | QueuedOp::Remove => None,
    }
}

/// The ranges that a request reads of an object of this size.
pub(crate) fn read_by(pending: &QueuedOp, size_bytes: u64) -> Vec<(u64, u64)> {
    match pending {
        QueuedOp::Read { object_offset, read_bytes, .. } => {
            let until = object_offset.saturating_add(u64::from(*read_bytes)).min(size_bytes);
            if *object_offset < until { Vec::from([(*object_offset, until)]) } else { Vec::new() }
        }
        QueuedOp::ReadList(reading) => places_of(&reading.pieces.within(size_bytes)),
        QueuedOp::Glimpse(_)
        | QueuedOp::Seek(_)
        | QueuedOp::Write { .. }
        | QueuedOp::WriteList(_)
        | QueuedOp::Append { .. }
        | QueuedOp::Truncate(_)
        | QueuedOp::Allocate(_)
        | QueuedOp::Replay { .. }
        | QueuedOp::Widen { .. }
        | QueuedOp::Remove => Vec::new(),
    }
}

/// The range that a write changed.
pub(crate) fn written_places(change: &ContentsChange) -> Vec<(u64, u64)> {
    match change {
        ContentsChange::Write { object_offset, write_bytes, .. } => {
            Vec::from([(*object_offset, object_offset.saturating_add(u64::from(*write_bytes)))])
        }
        ContentsChange::WriteList { .. }
        | ContentsChange::Truncate { .. }
        | ContentsChange::Allocate { .. }
        | ContentsChange::ObjectRemoved { .. }
        | ContentsChange::Sums { .. }
        | ContentsChange::SumsRemoved { .. }
        | ContentsChange::Stripe { .. }
        | ContentsChange::Logged { .. } => changed_places(change),
    }
}

/// The ranges that a list changes; empty for other changes.
pub(crate) fn changed_places(change: &ContentsChange) -> Vec<(u64, u64)> {
    match change {
        ContentsChange::WriteList { pieces, .. } => places_of(pieces),
        ContentsChange::Write { .. }
        | ContentsChange::Truncate { .. }
        | ContentsChange::Allocate { .. }
        | ContentsChange::ObjectRemoved { .. }
        | ContentsChange::Sums { .. }
        | ContentsChange::SumsRemoved { .. }
        | ContentsChange::Stripe { .. }
        | ContentsChange::Logged { .. } => Vec::new(),
    }
}

/// The changed ranges of an object as pairs of start and end, in rising order and disjoint.
pub(crate) fn places_of(pieces: &Pieces) -> Vec<(u64, u64)> {
    let mut places: Vec<(u64, u64)> = Vec::with_capacity(pieces.count());
    for piece in pieces.sorted() {
        match places.last_mut().filter(|(_, until)| *until >= piece.file_offset) {
            Some((_, until)) => *until = piece.end().max(*until),
            None => places.push((piece.file_offset, piece.end())),
        }
    }
    places
}
