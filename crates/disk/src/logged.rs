//! Bytes of objects that are durable in the log only, and what a start redoes of them.
//!
//! A small write is durable when its record is: the record, or an earlier one, has the bytes of its
//! pages ([`ContentsChange::Logged`]). Records of other changes of contents are written behind a sync
//! of their object, so such a record says that the object has all bytes of earlier records.
//! [`LoggedContents`] visits the records that the rows lack, in their order, and keeps of each object
//! what must be written to it:
//!
//! ```text
//! Logged ─▶ kept, over what it overlaps          Truncate ─▶ cut at the size
//! Write or list without Logged, Allocate, ObjectRemoved ─▶ nothing is kept any more
//! ```
//! Invariant: a kept byte was in the object at its record, and no later record changes it.

use crate::{Change, Changes, ContentsChange, Fault, LoggedRange, Record, to_u64};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{InodeNo, Rule, Rules, ShardId};

/// Whether a record has bytes that its object may lack.
///
/// # Errors
/// [`Fault`] when it does not decode.
pub fn has_logged(record: &Record<'_>) -> Result<bool, Fault> {
    if !record.shard.is_data() {
        return Ok(false);
    }
    for change in Changes::new(record.changes) {
        if let Change::Contents(ContentsChange::Logged { ranges, .. }) = change?
            && !ranges.is_empty()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The bytes to be written to objects, by file and offset.
#[derive(Clone, Default, Debug)]
pub struct LoggedContents {
    rules: Rules,
    objects: BTreeMap<(ShardId, InodeNo), BTreeMap<u64, Vec<u8>>>,
}

impl LoggedContents {
    /// Without any record.
    #[must_use]
    pub const fn new(rules: Rules) -> Self {
        Self { rules, objects: BTreeMap::new() }
    }

    /// Visits the next record that the rows lack.
    ///
    /// # Errors
    /// [`Fault`] when it does not decode.
    pub fn visit(&mut self, record: &Record<'_>) -> Result<(), Fault> {
        if !record.shard.is_data() {
            return Ok(());
        }
        // It is in front of the record's write.
        let mut logged = None;
        for change in Changes::new(record.changes) {
            let Change::Contents(change) = change? else { continue };
            let key = (record.shard, change.inode());
            match change {
                ContentsChange::Logged { inode, ranges } => {
                    logged = Some(inode);
                    let kept = self.objects.entry(key).or_default();
                    ranges.into_iter().for_each(|range| put(kept, range));
                }
                ContentsChange::Write { inode, .. } | ContentsChange::WriteList { inode, .. }
                    if logged == Some(inode) => {}
                ContentsChange::Write { .. }
                | ContentsChange::WriteList { .. }
                | ContentsChange::Allocate { .. }
                | ContentsChange::ObjectRemoved { .. } => {
                    if self.rules.hold(Rule::ContentsOrder) {
                        self.objects.remove(&key);
                    }
                }
                // Also of an object that was found shorter than its recorded size, without a sync.
                ContentsChange::Truncate { size_bytes, .. } => {
                    if let Some(kept) = self.objects.get_mut(&key) {
                        cut(kept, size_bytes);
                    }
                }
                ContentsChange::Sums { .. }
                | ContentsChange::SumsRemoved { .. }
                | ContentsChange::Stripe { .. } => {}
            }
        }
        Ok(())
    }

    /// The objects with bytes to be written: each is the first of its file.
    pub fn objects(&self) -> impl Iterator<Item = (ShardId, InodeNo)> {
        self.objects.iter().filter(|(_, kept)| !kept.is_empty()).map(|(key, _)| *key)
    }

    /// What must be written to an object, in rising order and disjoint.
    pub fn ranges(&self, shard: ShardId, inode: InodeNo) -> impl Iterator<Item = (u64, &[u8])> {
        let kept = self.objects.get(&(shard, inode)).into_iter().flatten();
        kept.map(|(object_offset, bytes)| (*object_offset, bytes.as_slice()))
    }

    /// Whether there is nothing to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects().next().is_none()
    }
}

/// Puts a range over what it overlaps.
fn put(kept: &mut BTreeMap<u64, Vec<u8>>, range: LoggedRange) {
    let (start, end) = (range.object_offset, range.end());
    let before = kept.range(..start).next_back().map(|(at, _)| *at);
    let within = kept.range(start..end).map(|(at, _)| *at);
    let overlapped: Vec<u64> = before.into_iter().chain(within).collect();
    for at in overlapped {
        let Some(mut old) = kept.remove(&at) else { continue };
        let old_end = at.saturating_add(to_u64(old.len()));
        if old_end > end {
            kept.insert(end, old.split_off(index_of(end - at)));
        }
        if at < start {
            old.truncate(index_of(start - at));
            kept.insert(at, old);
        }
    }
    kept.insert(start, range.bytes);
}

/// Drops what is behind a size.
fn cut(kept: &mut BTreeMap<u64, Vec<u8>>, size_bytes: u64) {
    drop(kept.split_off(&size_bytes));
    if let Some((at, last)) = kept.iter_mut().next_back() {
        last.truncate(index_of(size_bytes - at));
    }
}

fn index_of(bytes_count: u64) -> usize {
    usize::try_from(bytes_count).unwrap_or(usize::MAX)
}
