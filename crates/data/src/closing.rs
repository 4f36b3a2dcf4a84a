//! Restores the checksums of touched blocks when their object is quiet: they are computed from the
//! disk and recorded. A write in the meantime invalidates the result.

use crate::in_flight::{Closing, InFlight};
use crate::object::Object;
use crate::sums::{SumEntry, damage_of};
use crate::{Damage, Outcome, Shards, SumRecording};
use alloc::vec::Vec;
use disk::{BlockSum, Change, ContentsChange, REGION_BLOCK_COUNT};
use interface::{Errno, Turn};
use wire::{InodeNo, Transno};

/// Most regions closed at a time.
const CLOSING_COUNT_MAX: usize = 4;

impl Shards {
    /// Begins summing the touched blocks of quiet objects, to restore their checksums.
    pub(crate) fn close_quiet(&mut self, turn: &mut Turn<'_>, sum_recording: SumRecording) {
        let now = turn.now.mono;
        if self.awaiting_sums.is_empty() || self.fenced || sum_recording == SumRecording::GiveUp {
            self.awaiting_sums.clear();
            self.close_at = None;
            return;
        }
        let hurried = sum_recording == SumRecording::All;
        let due = *self.close_at.get_or_insert(now.after_ms(self.shape.quiet_ms));
        if !hurried && due > now {
            return;
        }
        self.close_at = Some(now.after_ms(self.shape.quiet_ms));
        let mut left_count =
            if sum_recording == SumRecording::Later { 0 } else { CLOSING_COUNT_MAX };
        for inode in self.awaiting_sums.clone() {
            let durable = self.durable(self.shard(inode));
            let Some(object) = self.objects.get_mut(&inode) else {
                self.awaiting_sums.remove(&inode);
                continue;
            };
            // An object of unknown state is examined before it is used again, and returns here
            // then.
            let is_known = object.stat.is_some() && !object.doubtful && !object.lost;
            // No more syncs follow at the end.
            let is_given_up = hurried && object.blocks.unsynced;
            if object.blocks.open.is_empty() || !is_known || is_given_up {
                self.awaiting_sums.remove(&inode);
                continue;
            }
            object.unstable.settle(durable);
            left_count = left_count.saturating_sub(usize::from(object.blocks.closing));
            let is_due = hurried || object.blocks.touched_at.after_ms(self.shape.quiet_ms) <= now;
            if is_due && may_close(object) {
                if left_count == 0 {
                    return;
                }
                left_count -= 1;
                self.close_first(turn, inode);
            }
        }
    }

    fn close_first(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let (block_bytes, layout) = (self.block_bytes(), self.layout(inode));
        let is_striped = self.is_striped(inode);
        let Some(object) = self.objects.get_mut(&inode) else { return };
        let Some((region, stamp)) =
            object.blocks.open.first_key_value().map(|(number, region)| (*number, region.stamp))
        else {
            return;
        };
        let size_bytes = object.size_bytes();
        let touched = object.blocks.touched(region).map(|block| {
            let start = block * block_bytes;
            let mut left_bytes = size_bytes.saturating_sub(start).min(block_bytes);
            if is_striped {
                left_bytes = left_bytes.min(object.held_bytes(layout, start));
            }
            (block, u32::try_from(left_bytes).unwrap_or(u32::MAX))
        });
        let blocks: Vec<(u64, u32)> = touched.filter(|(_, bytes)| *bytes > 0).collect();
        object.blocks.closing = true;
        let sums = self.sums.entry(inode).or_default();
        let unverified = |block: u64| sums.get(block).filter(|entry| !entry.is_verified());
        let checks: Vec<(u64, BlockSum)> = blocks
            .iter()
            .filter_map(|(block, _)| unverified(*block).map(|entry| (*block, entry.sum())))
            .collect();
        let closing = Closing { inode, region, stamp, blocks, checks };
        if closing.blocks.is_empty() {
            return self.on_closed(turn, &closing, Ok(Vec::new()));
        }
        let mut ranges = closing.blocks.clone();
        ranges.extend(closing.checks.iter().map(|(block, sum)| (*block, sum.covered_bytes)));
        let ticket = self.ticket(InFlight::Close(closing));
        self.sum_objects(turn, (inode, ticket), &ranges);
    }

    pub(crate) fn on_closed(
        &mut self,
        turn: &mut Turn<'_>,
        closing: &Closing,
        found: Result<Vec<BlockSum>, Errno>,
    ) {
        let Closing { inode, region, stamp, ref blocks, ref checks } = *closing;
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.blocks.closing = false;
        self.close_at = Some(turn.now.mono);
        let known = object.blocks.open.get(&region).map(|region| region.stamp);
        if known != Some(stamp) || !may_close(object) {
            return;
        }
        let intended = object.blocks.open.remove(&region).is_some_and(|region| region.intended);
        // An unreadable block stays without a checksum.
        let found = found.unwrap_or_default();
        let compared = found.get(blocks.len()..).unwrap_or_default();
        let differs = |((block, expected), found): (&(u64, BlockSum), &BlockSum)| {
            (expected != found).then(|| (*block, damage_of(*expected, *found)))
        };
        let damaged: Vec<(u64, Damage)> = checks.iter().zip(compared).filter_map(differs).collect();
        for (block, damage) in &damaged {
            self.damaged(turn, inode, (block * self.block_bytes(), *damage));
        }
        let sums = self.sums.entry(inode).or_default();
        for ((block, block_bytes), sum) in blocks.iter().zip(&found) {
            let is_damaged = damaged.iter().any(|(other, _)| other == block);
            if sum.covered_bytes == *block_bytes && !is_damaged {
                sums.put(*block, SumEntry::new(*sum, true));
            }
        }
        let first = region * REGION_BLOCK_COUNT;
        let whole = first..first + REGION_BLOCK_COUNT;
        let touched = blocks.first().zip(blocks.last());
        let span = match touched {
            Some(((from, _), (last, _))) if !intended => *from..last + 1,
            Some(_) | None => whole,
        };
        if let Some((first_block, sums)) = sums.run(span) {
            let shard = self.shard(inode);
            let change = Change::Contents(ContentsChange::Sums { inode, first_block, sums });
            self.outcomes.push_back(Outcome::Record { shard, transno: Transno(0), change });
        }
    }
}

/// Whether the touched blocks of an object can be summed: all of it is durable and recorded.
fn may_close(object: &Object) -> bool {
    let quiet = object.queue.is_empty() && object.running_count == 0 && !object.exclusive;
    let synced = object.written.is_empty() && !object.blocks.unsynced;
    let durable = synced && !object.sync_running && object.fence_count == 0;
    let known = object.stat.is_some() && !object.stat_running && !object.doubtful && !object.lost;
    quiet && durable && known && object.unstable.is_empty() && object.blocks.is_quiet()
}
