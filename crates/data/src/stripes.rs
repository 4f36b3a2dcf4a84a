//! A file's stripe objects: an operation on a range of the file becomes steps on its objects.
//!
//! ```text
//! first stripe alone ─▶ its object, at once      (every file of less than a stripe unit)
//! more stripes ─▶ fan-out ─▶ a step an object ─ the last one ended ─▶ the operation has ended
//! ```
//! Bytes that an object lacks before the file's end are zeros, so all but the last may be short or
//! missing. Invariants: an object behind the first is made only when the record that names it
//! ([`ContentsChange::Stripe`]) is durable, so the records know every object that there may be; the
//! operation's own record names a range of the file, and is emitted when all its steps are durable;
//! a truncation removes objects from the last one down, so that after a crash in between the file
//! has a size from the old to the new one.

use crate::fan_out::{Gathered, Step};
use crate::object::{LoggedState, Object};
use crate::ranges::{may_open, written_by};
use crate::request::{QueuedOp, Truncating, bulk_bytes};
use crate::{Outcome, Shards};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use disk::{BlockSum, Change, ContentsChange};
use interface::{
    Bulk, NO_MAC, Object as ObjectName, ObjectAction, ObjectPiece, SumRange, Ticket, Turn,
};
use wire::{Allocation, InodeNo, Layout, Status, StripePart, Transno, Wire as _, Writer};

/// Most steps in progress of a file's operation that needs no order.
const STEP_COUNT_MAX: usize = 64;
/// Most stripes that one operation may add: an allocation of more finds no space anywhere.
const ADDED_COUNT_MAX: usize = Layout::ALLOCATED_COUNT_MAX as usize;

/// Most stripes that are recorded before a file that is written in order has come to them, and most
/// of small ones: as many as this part has of these bytes.
const NEXT_COUNT_MAX: usize = 16;
const NEXT_BYTES: u64 = 16 << 20;

/// The stripes of a file that may have objects, behind the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stripes {
    pub(crate) layout: Layout,
    pub(crate) further: BTreeSet<u32>,
}

/// The first queued operation of an object, as far as its objects behind the first go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Front {
    /// They are known, or about to be.
    MayBegin,
    /// It waits for those in progress, which know of the first object only.
    Waits,
    /// It was refused, and another one is the first.
    Refused,
}

impl Shards {
    /// How a file lies in objects: as recorded with its objects, else as its requests say. A file
    /// about which only replays have come has one object, because a further one is recorded before
    /// anything is written to it.
    pub(crate) fn layout(&self, inode: InodeNo) -> Layout {
        self.known_layout(inode).unwrap_or(Layout::ONE_OBJECT)
    }

    pub(crate) fn is_striped(&self, inode: InodeNo) -> bool {
        self.stripes.contains_key(&inode)
    }

    pub(crate) fn object_name(&self, inode: InodeNo, stripe_index: u32) -> ObjectName {
        ObjectName { shard_index: self.shard(inode).index(), stripe_index, inode }
    }

    /// The object of a byte of a file.
    pub(crate) fn object_at(&self, inode: InodeNo, file_offset: u64) -> ObjectName {
        self.object_name(inode, self.layout(inode).stripe(file_offset))
    }

    // Objects behind the first.

    /// Records the objects behind the first that the first queued operation is about to make; it
    /// does not begin before that is durable.
    pub(crate) fn add_stripes(&mut self, turn: &mut Turn<'_>, inode: InodeNo) -> Front {
        let layout = self.layout(inode);
        let Some(object) = self.objects.get(&inode).filter(|object| may_open(object)) else {
            return Front::MayBegin;
        };
        let Some(front) = object.queue.front() else { return Front::MayBegin };
        let end = end_of(front, object);
        if layout.must_widen(end) {
            return self.refuse_front(turn, inode, Status::MustWiden);
        }
        if end <= layout.stripe_unit_bytes || end > layout.file_bytes_max() {
            return Front::MayBegin; // It needs the first object only, or is refused.
        }
        let known = self.stripes.get(&inode).map(|stripes| &stripes.further);
        let mut added = BTreeSet::new();
        let parts = filled_by(front, object).into_iter().flat_map(|range| layout.parts(range));
        let part = self.part(inode);
        let own = parts.map(|it| it.stripe_index).filter(|index| layout.part(*index) == part);
        for stripe_index in own.filter(|index| *index > 0) {
            if known.is_none_or(|known| !known.contains(&stripe_index)) {
                added.insert(stripe_index);
            }
            if added.len() > ADDED_COUNT_MAX {
                return self.refuse_front(turn, inode, Status::NoSpace);
            }
        }
        if added.is_empty() {
            return Front::MayBegin;
        }
        if layout.is_spread() && matches!(front, QueuedOp::Write { .. } | QueuedOp::Append { .. }) {
            let next = next_stripes(layout, known, &added);
            added.extend(next);
        }
        if known.is_none() && object.running_count > 0 {
            return Front::Waits;
        }
        self.record_stripes(inode, layout, added);
        Front::MayBegin
    }

    fn refuse_front(&mut self, turn: &mut Turn<'_>, inode: InodeNo, status: Status) -> Front {
        let front = self.objects.get_mut(&inode).and_then(|object| object.queue.pop_front());
        self.fail_all(turn, inode, front.into_iter().collect(), status);
        Front::Refused
    }

    pub(crate) fn record_stripes(&mut self, inode: InodeNo, layout: Layout, added: BTreeSet<u32>) {
        let shard = self.shard(inode);
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.absent = false;
        object.fence_count += u32::try_from(added.len()).unwrap_or(u32::MAX);
        let write_time_ns = object.write_time_ns;
        let logged = LoggedState { size_bytes: None, write_time_ns };
        self.logged.entry(inode).or_insert(logged);
        if !self.stripes.contains_key(&inode) {
            let first_bytes = object.blocks.short_bytes.unwrap_or(object.size_bytes());
            object.stripe_bytes.insert(0, first_bytes);
            object.unsynced_stripes.insert(0);
        }
        let stripes = self.stripes.entry(inode);
        let stripes = stripes.or_insert(Stripes { layout, further: BTreeSet::new() });
        stripes.further.extend(&added);
        for stripe_index in added {
            let change = ContentsChange::Stripe { inode, stripe_index, layout };
            // It has no position in the shard's order: the change that it announces has not begun.
            let (transno, change) = (Transno(0), Change::Contents(change));
            self.outcomes.push_back(Outcome::Record { shard, transno, change });
        }
    }

    // Operations.

    /// Queries size and space.
    pub(crate) fn stat_objects(&mut self, turn: &mut Turn<'_>, inode: InodeNo, ticket: Ticket) {
        let Some(stripes) = self.stripes.get(&inode) else {
            let object = self.object_name(inode, 0);
            let waiting = self.objects.get(&inode);
            let may_make = !self.fenced && waiting.is_some_and(|object| object.is_made_next());
            return turn.act(ObjectAction::Stat { ticket, object, may_make });
        };
        let all = core::iter::once(0).chain(stripes.further.iter().copied());
        let steps = all.map(|stripe_index| (stripe_index, Step::Stat)).collect();
        let gathered = Gathered::Stats(BTreeMap::new());
        self.fan_out(turn, (inode, ticket), (steps, STEP_COUNT_MAX), gathered);
    }

    /// Reads a range below the end of the file.
    pub(crate) fn read_objects(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, ticket): (InodeNo, Ticket),
        (file_offset, read_bytes): (u64, u32),
        only_cached: bool,
    ) {
        let range = file_offset..file_offset.saturating_add(u64::from(read_bytes));
        let layout = self.layout(inode);
        let stripe_index = layout.stripe(file_offset);
        let object_offset = file_offset - layout.start(stripe_index);
        let is_in_one =
            object_offset.saturating_add(u64::from(read_bytes)) <= layout.stripe_unit_bytes;
        let Some(object) = self.objects.get(&inode) else { return };
        let is_last = stripe_index == layout.last(object.size_bytes()).0;
        let length_bytes = object.stripe_bytes.get(&stripe_index).copied().unwrap_or(0);
        let until = object_offset.saturating_add(u64::from(read_bytes));
        if is_in_one && (is_last || until <= length_bytes) {
            let object = self.object_name(inode, stripe_index);
            let action =
                ObjectAction::Read { ticket, object, object_offset, read_bytes, only_cached };
            return turn.act(action);
        }
        self.read_ranges(turn, (inode, ticket), &[range], only_cached);
    }

    /// Reads ranges; missing bytes are zeros.
    pub(crate) fn read_ranges(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, ticket): (InodeNo, Ticket),
        ranges: &[Range<u64>],
        only_cached: bool,
    ) {
        let layout = self.layout(inode);
        let pieces = turn.arena.write(|out| {
            let mut to = Writer::new(out);
            for part in ranges.iter().flat_map(|range| layout.parts(range.clone())) {
                let StripePart { stripe_index, object_offset, .. } = part;
                let piece_bytes = narrow(part.part_bytes);
                ObjectPiece { stripe_index, object_offset, piece_bytes }.encode(&mut to);
            }
        });
        let object = self.object_name(inode, 0);
        turn.act(ObjectAction::ReadList { ticket, object, pieces, only_cached });
    }

    /// Writes a bulk. `block_bytes`: block size of the wanted checksums, or 0.
    pub(crate) fn write_objects(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, ticket): (InodeNo, Ticket),
        (file_offset, bulk): (u64, Bulk),
        block_bytes: u32,
    ) {
        if !self.is_striped(inode) {
            let (object, object_offset) = (self.object_name(inode, 0), file_offset);
            let action = ObjectAction::Write { ticket, object, object_offset, bulk, block_bytes };
            return turn.act(action);
        }
        let range = file_offset..file_offset.saturating_add(u64::from(bulk.bulk_bytes));
        let gathered = match block_bytes {
            0 => Gathered::Nothing,
            _ => Gathered::Written(BTreeMap::new()),
        };
        let steps = self.write_steps(inode, &[range], (bulk, block_bytes));
        self.fan_out(turn, (inode, ticket), (steps, usize::MAX), gathered);
    }

    /// Writes consecutive parts of a bulk to ranges: as an operation of several objects.
    pub(crate) fn write_ranges(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, ticket): (InodeNo, Ticket),
        ranges: &[Range<u64>],
        bulk: Bulk,
    ) {
        let steps = self.write_steps(inode, ranges, (bulk, 0));
        self.fan_out(turn, (inode, ticket), (steps, usize::MAX), Gathered::Nothing);
    }

    fn write_steps(
        &self,
        inode: InodeNo,
        ranges: &[Range<u64>],
        (bulk, block_bytes): (Bulk, u32),
    ) -> VecDeque<(u32, Step)> {
        let layout = self.layout(inode);
        let mut start = bulk.start;
        let mut steps = VecDeque::new();
        for part in ranges.iter().flat_map(|range| layout.parts(range.clone())) {
            let StripePart { stripe_index, object_offset, part_bytes } = part;
            let bulk_bytes = narrow(part_bytes);
            let is_whole = bulk_bytes == bulk.bulk_bytes;
            // No checksum of a part is known.
            let crc32c = bulk.crc32c.filter(|_| is_whole);
            let mac = if is_whole { bulk.mac } else { NO_MAC };
            let bulk = Bulk { buf: bulk.buf, start, bulk_bytes, crc32c, mac };
            steps.push_back((stripe_index, Step::Write { object_offset, bulk, block_bytes }));
            start += bulk_bytes;
        }
        steps
    }

    /// Computes checksums of blocks' first bytes.
    pub(crate) fn sum_objects(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, ticket): (InodeNo, Ticket),
        blocks: &[(u64, u32)],
    ) {
        let (block_bytes, layout) = (self.block_bytes(), self.layout(inode));
        let mut by_stripe: BTreeMap<u32, Vec<(usize, SumRange)>> = BTreeMap::new();
        for (index, (block, range_bytes)) in blocks.iter().enumerate() {
            let file_offset = block * block_bytes;
            let stripe_index = layout.stripe(file_offset);
            let object_offset = file_offset - layout.start(stripe_index);
            let range = SumRange { object_offset, range_bytes: *range_bytes };
            by_stripe.entry(stripe_index).or_default().push((index, range));
        }
        let encoded = |turn: &mut Turn<'_>, ranges: &[(usize, SumRange)]| {
            turn.arena.write(|out| {
                let mut to = Writer::new(out);
                ranges.iter().for_each(|(_, range)| to.write(range));
            })
        };
        if let (1, Some((stripe_index, ranges))) = (by_stripe.len(), by_stripe.first_key_value()) {
            let (object, ranges) = (self.object_name(inode, *stripe_index), encoded(turn, ranges));
            return turn.act(ObjectAction::Sums { ticket, object, ranges });
        }
        let indices = by_stripe
            .iter()
            .map(|(stripe_index, ranges)| {
                (*stripe_index, ranges.iter().map(|(at, _)| *at).collect())
            })
            .collect();
        let found = alloc::vec![BlockSum::NONE; blocks.len()];
        let gathered = Gathered::Sums { found, indices, from_disk: false };
        let fan_out_no = self.new_fan_out((inode, ticket), (VecDeque::new(), usize::MAX), gathered);
        for (stripe_index, ranges) in by_stripe {
            let ticket = self.step_ticket(fan_out_no, stripe_index, None);
            let (object, ranges) = (self.object_name(inode, stripe_index), encoded(turn, &ranges));
            turn.act(ObjectAction::Sums { ticket, object, ranges });
        }
    }

    /// Sets the file's size. What is allocated before `kept_bytes` stays. `settles`: of a file of
    /// several objects durably, as far as it removes bytes.
    pub(crate) fn truncate_objects(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, ticket): (InodeNo, Ticket),
        (size_bytes, kept_bytes): (u64, u64),
        settles: bool,
    ) {
        // The part ends here already, and may have space up to there.
        let is_kept = kept_bytes > size_bytes;
        if !self.is_striped(inode) && !is_kept {
            let object = self.object_name(inode, 0);
            return turn.act(ObjectAction::Truncate { ticket, object, size_bytes });
        }
        let layout = self.layout(inode);
        let ((last, last_bytes), (kept, _)) = (layout.last(size_bytes), layout.last(kept_bytes));
        let Some(object) = self.objects.get(&inode) else { return };
        let behind = object.stripe_bytes.keys().rev().take_while(|index| **index > kept);
        let mut steps: VecDeque<_> = behind.map(|index| (*index, Step::Remove)).collect();
        let known_bytes = object.stripe_bytes.get(&last).copied().unwrap_or(0);
        if !steps.is_empty() && last_bytes > 0 {
            // Once those behind it are removed, this object says where the file ends. An earlier
            // sync of it may have failed.
            let size_bytes = known_bytes.max(last_bytes);
            steps.push_front((last, Step::Sync));
            steps.push_front((last, Step::Truncate { size_bytes }));
        }
        if !is_kept && (steps.is_empty() || known_bytes > last_bytes) {
            steps.push_back((last, Step::Truncate { size_bytes: last_bytes }));
        }
        steps.extend(settles.then_some((last, Step::Sync)));
        self.fan_out(turn, (inode, ticket), (steps, 1), Gathered::Nothing);
    }

    /// Allocates, deallocates or zeroes the stripes of this part in a range. Objects that do not
    /// exist have nothing to deallocate.
    pub(crate) fn allocate_objects(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, ticket): (InodeNo, Ticket),
        range: Range<u64>,
        (allocation, keep_size): (Allocation, bool),
    ) {
        let Some(object) = self.objects.get(&inode) else { return };
        let layout = self.layout(inode);
        let is_striped = self.is_striped(inode);
        let punches = allocation == Allocation::Punch;
        let (last, _) = layout.last(range.end);
        let parts: Vec<StripePart> = if punches {
            let (first, mut all) = (layout.stripe(range.start), Vec::new());
            let known = object.stripe_bytes.range(first..=last).map(|(index, _)| *index);
            let single = core::iter::once(0).filter(|_| !is_striped && first == 0);
            for index in known.chain(single) {
                let start = layout.start(index);
                let end = start.saturating_add(layout.stripe_unit_bytes).min(range.end);
                all.extend(layout.parts(range.start.max(start)..end));
            }
            all
        } else {
            let part = self.part(inode);
            layout.parts(range).filter(|it| layout.part(it.stripe_index) == part).collect()
        };
        if let (false, [part]) = (is_striped, &parts[..]) {
            let StripePart { object_offset, part_bytes: range_bytes, .. } = *part;
            let object = self.object_name(inode, 0);
            let action = ObjectAction::Allocate {
                ticket,
                object,
                object_offset,
                range_bytes,
                allocation,
                keep_size,
            };
            return turn.act(action);
        }
        let step = |part: StripePart| {
            let is_empty = object.stripe_bytes.get(&part.stripe_index) == Some(&0);
            if punches && is_empty && part.part_bytes == layout.stripe_unit_bytes {
                // Some file systems punch nothing behind an object's end.
                return (part.stripe_index, Step::Truncate { size_bytes: 0 });
            }
            // Only the last object has to become longer.
            let keep_size = keep_size || part.stripe_index != last;
            (part.stripe_index, Step::Allocate { part, allocation, keep_size })
        };
        let steps = parts.into_iter().map(step).collect();
        self.fan_out(turn, (inode, ticket), (steps, 1), Gathered::Nothing);
    }

    /// Makes everything written durable.
    pub(crate) fn sync_objects(&mut self, turn: &mut Turn<'_>, inode: InodeNo, ticket: Ticket) {
        let is_striped = self.is_striped(inode);
        let Some(object) = self.objects.get_mut(&inode).filter(|_| is_striped) else {
            let object = self.object_name(inode, 0);
            return turn.act(ObjectAction::Sync { ticket, object });
        };
        let mut written = core::mem::take(&mut object.unsynced_stripes);
        if written.is_empty() {
            written.insert(0); // The change was one of a hole.
        }
        let steps = written.into_iter().map(|index| (index, Step::Sync)).collect();
        self.fan_out(turn, (inode, ticket), (steps, STEP_COUNT_MAX), Gathered::Nothing);
    }

    /// Removes all objects.
    pub(crate) fn remove_objects(&mut self, turn: &mut Turn<'_>, inode: InodeNo, ticket: Ticket) {
        let Some(stripes) = self.stripes.get(&inode) else {
            let object = self.object_name(inode, 0);
            return turn.act(ObjectAction::Remove { ticket, object });
        };
        let all = stripes.further.iter().rev().copied().chain(core::iter::once(0));
        let steps = all.map(|stripe_index| (stripe_index, Step::Remove)).collect();
        self.fan_out(turn, (inode, ticket), (steps, STEP_COUNT_MAX), Gathered::Nothing);
    }
}

impl Object {
    /// The bytes from an offset on that the offset's object has.
    pub(crate) fn held_bytes(&self, layout: Layout, file_offset: u64) -> u64 {
        let stripe_index = layout.stripe(file_offset);
        let object_bytes = self.stripe_bytes.get(&stripe_index).copied().unwrap_or(0);
        object_bytes.saturating_sub(file_offset - layout.start(stripe_index))
    }
}

/// The stripes of this part that a file which is written from its beginning to its end goes on
/// with. They are recorded with those that it needs now, so that not every write waits for a flush
/// of the log; of a short file only a few.
fn next_stripes(
    layout: Layout,
    known: Option<&BTreeSet<u32>>,
    added: &BTreeSet<u32>,
) -> BTreeSet<u32> {
    let known_last = known.and_then(BTreeSet::last).copied().unwrap_or(0);
    let (Some(first), Some(last)) = (added.first(), added.last()) else { return BTreeSet::new() };
    let goes_on = *first == known_last.saturating_add(layout.stripe_count.into());
    let small = usize::try_from(NEXT_BYTES / layout.stripe_unit_bytes).unwrap_or(0);
    let count = known.map_or(0, BTreeSet::len).min(NEXT_COUNT_MAX.max(small));
    let all = (1..=count).filter_map(|ahead| {
        let ahead = u32::try_from(ahead).ok()?.checked_mul(layout.stripe_count.into())?;
        last.checked_add(ahead).filter(|index| layout.start(*index) < layout.file_bytes_max())
    });
    all.filter(|_| goes_on).collect()
}

/// The ranges that an operation fills: their objects must exist.
fn filled_by(pending: &QueuedOp, object: &Object) -> Vec<Range<u64>> {
    let mut filled = written_by(pending, object);
    if let QueuedOp::Truncate(Truncating { size_bytes, .. }) = *pending {
        // The object of its last byte says where the file ends.
        filled.push(size_bytes.saturating_sub(1)..size_bytes);
    }
    if let QueuedOp::Allocate(allocating) = pending
        && allocating.allocation != Allocation::Punch
    {
        let from = allocating.object_offset;
        filled.push(from..from.saturating_add(allocating.range_bytes));
    }
    filled
}

/// The end of what an operation fills; 0 for one that fills nothing.
fn end_of(pending: &QueuedOp, object: &Object) -> u64 {
    let end = |from: u64, bytes: u32| from.saturating_add(u64::from(bytes));
    match pending {
        QueuedOp::Write { object_offset, bulk, .. } => end(*object_offset, bulk_bytes(*bulk)),
        QueuedOp::Append { bulk, at, .. } => end(object.append_offset(*at), bulk_bytes(*bulk)),
        QueuedOp::WriteList(writing) => writing.pieces.end(),
        QueuedOp::Replay { lost, .. } => match &lost.change {
            ContentsChange::WriteList { pieces, .. } => pieces.end(),
            ContentsChange::Write { object_offset, write_bytes, .. } => {
                end(*object_offset, *write_bytes)
            }
            ContentsChange::Truncate { .. }
            | ContentsChange::Allocate { .. }
            | ContentsChange::ObjectRemoved { .. }
            | ContentsChange::Sums { .. }
            | ContentsChange::SumsRemoved { .. }
            | ContentsChange::Stripe { .. }
            | ContentsChange::Logged { .. } => 0,
        },
        QueuedOp::Truncate(truncating) => truncating.size_bytes,
        QueuedOp::Allocate(allocating) => {
            allocating.object_offset.saturating_add(allocating.range_bytes)
        }
        QueuedOp::Read { .. }
        | QueuedOp::ReadList(_)
        | QueuedOp::Glimpse(_)
        | QueuedOp::Seek(_)
        | QueuedOp::Widen { .. }
        | QueuedOp::Remove => 0,
    }
}

/// A length within a request's bulk.
fn narrow(bytes: u64) -> u32 {
    let Ok(bytes) = u32::try_from(bytes) else { panic!("{bytes} bytes are no part of a bulk") };
    bytes
}
