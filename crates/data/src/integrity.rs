//! Checksums of blocks at rest: removed before an overwrite, and verified. `reading` decides when a
//! read needs that, `closing` restores them when the object is quiet.

use crate::fan_out::StepResult;
use crate::in_flight::{Closing, InFlight, Verifying};
use crate::ranges::{cut_by, may_open, written_by};
use crate::request::QueuedOp;
use crate::sums::{SumEntry, damage_of, decoded};
use crate::{Damage, Outcome, Shards};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use disk::{BlockSum, Change, ContentsChange, REGION_BLOCK_COUNT};
use interface::{Errno, ObjectStat, Span, Ticket, Turn};
use wire::{InodeNo, Rule, Status, Transno};

/// Shortest time between two reports of a damaged block.
const REPORT_MS: u64 = 60_000;
/// Most damaged blocks whose reports are remembered.
const REPORT_COUNT_MAX: usize = 1_024;

impl Shards {
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.shape.block_bytes)
    }

    /// Removes the checksums that the first queued operation is about to invalidate. No change
    /// begins before that is durable.
    pub(crate) fn open_front(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        if self.must_verify_front(turn, inode) {
            return;
        }
        let block_bytes = self.block_bytes();
        let intends = self.shape.rules.hold(Rule::OverwriteIntent);
        let Some(sums) = self.sums.get_mut(&inode) else { return };
        let Some(object) = self.objects.get_mut(&inode).filter(|object| may_open(object)) else {
            return;
        };
        let mut removed: Vec<Range<u64>> = Vec::new();
        for bytes in object.queue.front().map(|front| written_by(front, object)).unwrap_or_default()
        {
            for region in object.blocks.must_open(sums, &bytes, block_bytes) {
                object.blocks.intend(region, turn.now.mono);
                removed.push(region * REGION_BLOCK_COUNT..(region + 1) * REGION_BLOCK_COUNT);
            }
        }
        if let Some(bytes) = object.queue.front().and_then(|front| cut_by(front, object))
            && sums.covering(bytes.clone(), block_bytes).next().is_some()
        {
            object.blocks.cut(sums, &bytes, (block_bytes, turn.now.mono));
            removed.push(bytes.start / block_bytes..bytes.end.div_ceil(block_bytes));
        }
        removed.retain(|_| intends);
        self.awaiting_sums.extend((!object.blocks.open.is_empty()).then_some(inode));
        object.fence_count += u32::try_from(removed.len()).unwrap_or(u32::MAX);
        let shard = self.shard(inode);
        for Range { start: from_block, end: until_block } in removed {
            let change = ContentsChange::SumsRemoved { inode, from_block, until_block };
            // It has no position in the shard's order: the change that it announces has not begun.
            let (transno, change) = (Transno(0), Change::Contents(change));
            self.outcomes.push_back(Outcome::Record { shard, transno, change });
        }
    }

    /// Whether the first queued operation changes a part of an unverified block: otherwise its
    /// remaining bytes would get a checksum unverified. The replay of a lost write does not wait
    /// for that.
    fn must_verify_front(&mut self, turn: &mut Turn<'_>, inode: InodeNo) -> bool {
        let block_bytes = self.block_bytes();
        if !self.shape.rules.hold(Rule::VerifyContents) {
            return false;
        }
        let Some(sums) = self.sums.get_mut(&inode) else { return false };
        let Some(object) = self.objects.get_mut(&inode).filter(|object| may_open(object)) else {
            return false;
        };
        let Some(front) = object.queue.front() else { return false };
        sums.age(turn.now.mono);
        if matches!(front, QueuedOp::Replay { .. }) {
            return false;
        }
        let mut blocks: Vec<(u64, BlockSum)> = Vec::new();
        for bytes in written_by(front, object).into_iter().chain(cut_by(front, object)) {
            for (block, entry) in sums.covering(bytes.clone(), block_bytes) {
                let start = block * block_bytes;
                let end = start + u64::from(entry.sum().covered_bytes);
                let leaves = start < bytes.start || bytes.end < end;
                let is_new = blocks.last().is_none_or(|(last, _)| *last < block);
                if leaves && is_new && !entry.is_verified() {
                    blocks.push((block, entry.sum()));
                }
            }
        }
        if blocks.is_empty() {
            return false;
        }
        object.stat_running = true;
        self.verify(turn, Verifying { inode, read: None, blocks });
        true
    }

    pub(crate) fn verify(&mut self, turn: &mut Turn<'_>, verifying: Verifying) {
        let inode = verifying.inode;
        let blocks = verifying.blocks.iter();
        let ranges: Vec<(u64, u32)> =
            blocks.map(|(block, sum)| (*block, sum.covered_bytes)).collect();
        let ticket = self.ticket(InFlight::Verify(verifying));
        self.sum_objects(turn, (inode, ticket), &ranges);
    }

    /// A write to these ranges of an object begins.
    pub(crate) fn begin_places(&mut self, turn: &Turn<'_>, inode: InodeNo, places: &[(u64, u64)]) {
        let grid = (self.block_bytes(), turn.now.mono);
        let sums = self.sums.entry(inode).or_default();
        let Some(object) = self.objects.get_mut(&inode) else { return };
        sums.age(turn.now.mono);
        for (from, until) in places {
            object.blocks.begin(sums, &(*from..*until), grid);
        }
        self.awaiting_sums.extend((!object.blocks.open.is_empty()).then_some(inode));
    }

    /// A write ended, successfully or not. `pieces`: the checksums of the blocks' parts, where
    /// known.
    pub(crate) fn end_places(
        &mut self,
        turn: &Turn<'_>,
        inode: InodeNo,
        places: &[(u64, u64)],
        pieces: Option<&[u32]>,
    ) {
        let (block_bytes, now) = (self.block_bytes(), turn.now.mono);
        let sums = self.sums.entry(inode).or_default();
        let Some(object) = self.objects.get_mut(&inode) else { return };
        let change_no = object.change_no;
        for (from, until) in places {
            object.blocks.end(sums, &(*from..*until), pieces, (block_bytes, change_no, now));
        }
        self.awaiting_sums.extend((!object.blocks.open.is_empty()).then_some(inode));
    }

    /// A range is about to be cut off or zeroed.
    pub(crate) fn cut(&mut self, turn: &Turn<'_>, inode: InodeNo, bytes: &Range<u64>) {
        let grid = (self.block_bytes(), turn.now.mono);
        let sums = self.sums.entry(inode).or_default();
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.blocks.cut(sums, bytes, grid);
        self.awaiting_sums.extend((!object.blocks.open.is_empty()).then_some(inode));
    }

    /// The checksums to record with a synced write.
    pub(crate) fn bind(
        &mut self,
        change: &ContentsChange,
        change_no: u64,
    ) -> Option<ContentsChange> {
        let ContentsChange::Write { inode, object_offset, write_bytes, .. } = *change else {
            return None;
        };
        let bytes = object_offset..object_offset.saturating_add(u64::from(write_bytes));
        let grid = (self.block_bytes(), change_no);
        let object = self.objects.get_mut(&inode)?;
        let (first_block, sums) =
            object.blocks.bind(self.sums.entry(inode).or_default(), bytes, grid)?;
        Some(ContentsChange::Sums { inode, first_block, sums })
    }

    // Verification.

    /// The outcome of computing checksums. `from_disk`: not all of the bytes were in the page
    /// cache.
    pub fn on_sums(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        (result, from_disk): (Result<Span, Errno>, bool),
    ) {
        let found = result.map(|span| decoded(turn.arena.get(span)));
        let in_flight = self.in_flight.remove(&ticket.0);
        if let Some(
            InFlight::Verify(Verifying { inode, .. }) | InFlight::Close(Closing { inode, .. }),
        ) = in_flight
            && from_disk
        {
            self.unverify(inode);
        }
        match in_flight {
            Some(InFlight::Verify(verifying)) => self.on_verified(turn, verifying, found),
            Some(InFlight::Close(closing)) => self.on_closed(turn, &closing, found),
            Some(InFlight::Step { fan_out_no }) => {
                self.on_step(turn, fan_out_no, (ticket, StepResult::Sums(found, from_disk)));
            }
            Some(
                InFlight::Read { .. }
                | InFlight::ReadList { .. }
                | InFlight::Stat { .. }
                | InFlight::Glimpse { .. }
                | InFlight::Write { .. }
                | InFlight::WritePiece { .. }
                | InFlight::LogFirst { .. }
                | InFlight::Reshape { .. }
                | InFlight::Seek { .. }
                | InFlight::Trim { .. }
                | InFlight::TrimSync { .. }
                | InFlight::Sync { .. }
                | InFlight::Remove { .. }
                | InFlight::Load { .. },
            )
            | None => {}
        }
    }

    fn on_verified(
        &mut self,
        turn: &mut Turn<'_>,
        Verifying { inode, read, blocks }: Verifying,
        found: Result<Vec<BlockSum>, Errno>,
    ) {
        let block_bytes = self.block_bytes();
        let mut damage = Vec::new();
        let mut all_same = true;
        let result = match found {
            Ok(found) => {
                let sums = self.sums.entry(inode).or_default();
                for (index, (block, expected)) in blocks.iter().enumerate() {
                    // A block appended to meanwhile has another checksum.
                    let same = sums.get(*block).is_some_and(|entry| entry.sum() == *expected);
                    all_same &= same;
                    let found = found.get(index).copied().unwrap_or(BlockSum::NONE);
                    if same && found == *expected {
                        sums.put(*block, SumEntry::new(*expected, true));
                    } else if same {
                        damage.push((block * block_bytes, damage_of(*expected, found)));
                    }
                }
                if damage.is_empty() { Ok(()) } else { Err(Status::Io) }
            }
            Err(errno) => Err(errno.status()),
        };
        for found in damage {
            self.damaged(turn, inode, found);
        }
        let Some(read) = read else { return self.on_front_verified(turn, inode, result) };
        if let Some(object) = self.objects.get_mut(&inode) {
            object.blocks.end_comparison(&blocks, block_bytes);
        }
        match result {
            Ok(()) if all_same => self.begin(turn, inode, read.compared()),
            Ok(()) => self.queue_again(inode, read),
            Err(status) => self.fail_all(turn, inode, VecDeque::from([read]), status),
        }
        self.ran(turn, inode);
    }

    /// The blocks for the first queued change were verified.
    fn on_front_verified(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        result: Result<(), Status>,
    ) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.stat_running = false;
        // Reads that begin again may have come before it.
        let index = object.queue.iter().position(QueuedOp::is_change);
        if let (Some(index), Err(status)) = (index, result) {
            let change = object.queue.remove(index).into_iter().collect();
            self.fail_all(turn, inode, change, status);
        }
        self.advance(turn, inode);
    }

    /// Reports damaged contents.
    pub(crate) fn damaged(
        &mut self,
        turn: &Turn<'_>,
        inode: InodeNo,
        (file_offset, damage): (u64, Damage),
    ) {
        let now = turn.now.mono;
        self.reports.retain(|_, at| at.after_ms(REPORT_MS) > now);
        if self.reports.len() >= REPORT_COUNT_MAX {
            self.reports.clear();
        }
        let is_new = !self.reports.contains_key(&(inode, file_offset));
        if is_new {
            self.reports.insert((inode, file_offset), now);
        }
        let object = self.object_at(inode, file_offset);
        self.outcomes.push_back(Outcome::Damaged { object, file_offset, damage, is_new });
    }

    /// The size of an object whose file was found shorter than its checksums cover.
    pub(crate) fn shortened(
        &mut self,
        turn: &Turn<'_>,
        inode: InodeNo,
        (known_bytes, found): (Option<u64>, Option<ObjectStat>),
    ) -> Option<u64> {
        let found_bytes = found.map_or(0, |found| found.size_bytes);
        let block_bytes = self.block_bytes();
        let missing = self.sums.get(&inode)?.covering(found_bytes..u64::MAX, block_bytes);
        let end = |(block, entry): (u64, SumEntry)| {
            block * block_bytes + u64::from(entry.sum().covered_bytes)
        };
        let covered_bytes = missing.map(end).max()?;
        let damage = match found {
            None => Damage::Missing,
            Some(_) => Damage::Short { found_bytes },
        };
        self.objects.get_mut(&inode)?.blocks.short_bytes = Some(found_bytes);
        self.damaged(turn, inode, (found_bytes, damage));
        Some(known_bytes.unwrap_or(0).max(covered_bytes))
    }
}
