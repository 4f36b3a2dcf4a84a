//! The simulated disk: logs and objects, as readers see them and as a crash leaves them.
//!
//! ```text
//! write ─▶ seen, unsynced ─ sync ─▶ base      crash: any subset of the unsynced, torn
//! log batch under way ─ complete ─▶ log       crash: nothing, a torn part, or all of it
//! ```

use crate::number::{narrow, wide};
use crate::prng::Prng;
use disk::{LogHeader, LogReader};
use interface::Object;
use std::collections::{BTreeMap, BTreeSet};
use wire::{FsUuid, LaneId};

/// A change of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Patch {
    Write { from: usize, bytes: Vec<u8> },
    Truncate { size: usize },
    Allocate { from: usize, count: usize, zeros: bool, keep_size: bool },
}

impl Patch {
    /// What a failed change leaves: nothing, a prefix of a write, or all.
    pub(crate) fn half_done(self, prng: &mut Prng) -> Option<Self> {
        if prng.one_in(3) {
            return None;
        }
        match self {
            Self::Write { from, mut bytes } => {
                bytes.truncate(prng.below(bytes.len() + 1));
                Some(Self::Write { from, bytes })
            }
            Self::Truncate { size } => Some(Self::Truncate { size }),
            Self::Allocate { from, count, zeros, keep_size } => {
                let count = prng.below(count + 1);
                Some(Self::Allocate { from, count, zeros, keep_size })
            }
        }
    }

    /// The checksums of the written bytes, by blocks.
    pub(crate) fn sums(&self, block_bytes: u32) -> Vec<u8> {
        let mut sums = Vec::new();
        if let (Self::Write { from, bytes }, 1..) = (self, block_bytes) {
            let block_bytes = narrow(u64::from(block_bytes));
            let first_bytes = (block_bytes - from % block_bytes).min(bytes.len());
            let (first, more) = bytes.split_at(first_bytes);
            put_sum(&mut sums, first);
            more.chunks(block_bytes).for_each(|piece| put_sum(&mut sums, piece));
        }
        sums
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { from, bytes: written } => {
                let end = from + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*from..end].copy_from_slice(written);
            }
            Self::Truncate { size } => bytes.resize(*size, 0),
            Self::Allocate { from, count, zeros, keep_size } => {
                let end = from + count;
                if !keep_size && bytes.len() < end {
                    bytes.resize(end, 0);
                }
                let (from, end) = ((*from).min(bytes.len()), end.min(bytes.len()));
                if *zeros {
                    bytes[from..end].fill(0);
                }
            }
        }
    }
}

/// Appends a checksum and how many bytes it covers.
pub(crate) fn put_sum(sums: &mut Vec<u8>, bytes: &[u8]) {
    sums.extend_from_slice(&wire::crc32c(bytes).to_le_bytes());
    sums.extend_from_slice(&crate::number::narrow_u32(bytes.len()).to_le_bytes());
}

/// An object.
#[derive(Clone, Default, Debug)]
pub(crate) struct File {
    seen: Vec<u8>,
    /// What survives every crash. `None`: the file need not survive at all.
    base: Option<Vec<u8>>,
    unsynced: Vec<(u64, Patch)>,
}

/// The log file of a boot and a lane.
#[derive(Clone, Debug)]
struct Log {
    boot_id: u64,
    lane: u16,
    bytes: Vec<u8>,
}

/// The contents of the disk.
#[derive(Default, Debug)]
pub(crate) struct Disk {
    logs: Vec<Log>,
    files: BTreeMap<Object, File>,
    patch_count: u64,
    /// Objects that are not in the page cache.
    evicted: BTreeSet<Object>,
}

impl Disk {
    // ---- objects ----

    pub(crate) fn read(&self, object: Object, from: usize, count: usize) -> Vec<u8> {
        let seen = self.files.get(&object).map_or(&[][..], |file| &file.seen);
        let from = from.min(seen.len());
        seen[from..seen.len().min(from.saturating_add(count))].to_vec()
    }

    /// The first offset from here on that is in a hole, or that is not: a page of zeros is a hole.
    pub(crate) fn seek(&self, object: Object, from: usize, hole: bool) -> Option<usize> {
        const PAGE_BYTES: usize = 4096;
        let seen = self.files.get(&object).map_or(&[][..], |file| &file.seen);
        if from >= seen.len() {
            return None;
        }
        let pages = seen.chunks(PAGE_BYTES).enumerate().skip(from / PAGE_BYTES);
        let mut places = pages
            .filter(|(_, page)| page.iter().all(|byte| *byte == 0) == hole)
            .map(|(index, _)| (index * PAGE_BYTES).max(from));
        places.next().or(hole.then_some(seen.len()))
    }

    pub(crate) fn size(&self, object: Object) -> Option<usize> {
        self.files.get(&object).map(|file| file.seen.len())
    }

    pub(crate) fn patch(&mut self, object: Object, patch: Patch) {
        self.patch_count += 1;
        let file = self.files.entry(object).or_default();
        patch.apply(&mut file.seen);
        file.unsynced.push((self.patch_count, patch));
    }

    /// The last change that a sync that begins now covers.
    pub(crate) const fn patch_count(&self) -> u64 {
        self.patch_count
    }

    /// Makes everything up to `patch_no` durable.
    pub(crate) fn sync(&mut self, object: Object, patch_no: u64) {
        let Some(file) = self.files.get_mut(&object) else { return };
        let base = file.base.get_or_insert_default();
        for (_, patch) in file.unsynced.iter().filter(|(number, _)| *number <= patch_no) {
            patch.apply(base);
        }
        file.unsynced.retain(|(number, _)| *number > patch_no);
    }

    /// A sync failed: the kernel may have dropped the dirty pages.
    pub(crate) fn sync_failed(&mut self, object: Object, patch_no: u64) {
        if let Some(file) = self.files.get_mut(&object) {
            file.unsynced.retain(|(number, _)| *number > patch_no);
        }
    }

    pub(crate) fn remove(&mut self, object: Object) {
        self.files.remove(&object);
    }

    /// Evicts a clean object from the page cache.
    pub(crate) fn evict(&mut self, object: Object) -> bool {
        let is_clean = self.files.get(&object).is_some_and(|file| file.unsynced.is_empty());
        is_clean && self.evicted.insert(object)
    }

    pub(crate) fn is_evicted(&self, object: Object) -> bool {
        self.evicted.contains(&object)
    }

    /// A read loads the whole object into the page cache; returns whether it was missing.
    pub(crate) fn load_into_cache(&mut self, object: Object) -> bool {
        self.evicted.remove(&object)
    }

    /// Flips a bit of an object.
    pub(crate) fn flip_bit(&mut self, object: Object, at: usize, prng: &mut Prng) {
        let bit = 1 << prng.below(8);
        let Some(file) = self.files.get_mut(&object) else { return };
        for bytes in [Some(&mut file.seen), file.base.as_mut()].into_iter().flatten() {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= bit;
            }
        }
    }

    pub(crate) fn crash_objects(&mut self, prng: &mut Prng) {
        for file in self.files.values_mut() {
            for (_, patch) in std::mem::take(&mut file.unsynced) {
                match patch {
                    _ if prng.one_in(2) => {}
                    Patch::Write { from, bytes } if prng.one_in(4) => {
                        let written_bytes = prng.below(bytes.len() + 1);
                        let torn = Patch::Write { from, bytes: bytes[..written_bytes].to_vec() };
                        torn.apply(file.base.get_or_insert_default());
                    }
                    Patch::Write { .. } | Patch::Truncate { .. } | Patch::Allocate { .. } => {
                        patch.apply(file.base.get_or_insert_default());
                    }
                }
            }
            if let Some(base) = &file.base {
                file.seen.clone_from(base);
            }
        }
        self.files.retain(|_, file| file.base.is_some());
    }

    // ---- logs ----

    /// Creates a log file of this boot.
    pub(crate) fn new_log(&mut self, fs: FsUuid, boot_id: u64, lane: u16, lane_count: u16) {
        let head = LogHeader::first(fs, boot_id, LaneId(lane), lane_count);
        self.logs.push(Log { boot_id, lane, bytes: head.encode().to_vec() });
    }

    pub(crate) fn append(&mut self, boot_id: u64, lane: u16, bytes: &[u8]) {
        let log = self.logs.iter_mut().find(|log| (log.boot_id, log.lane) == (boot_id, lane));
        if let Some(log) = log {
            log.bytes.extend_from_slice(bytes);
        }
    }

    /// A crash during an append: whether the whole batch survived. None, all and a torn part are
    /// equally likely.
    pub(crate) fn crash_append(
        &mut self,
        (boot_id, lane): (u64, u16),
        batch: &[u8],
        prng: &mut Prng,
    ) -> bool {
        const SECTOR_BYTES: usize = 64;
        let mut torn = batch.to_vec();
        match prng.below(3) {
            0 => torn.clear(),
            1 => {
                let mut lost_count = 0;
                for sector in torn.chunks_mut(SECTOR_BYTES) {
                    if prng.one_in(2) {
                        sector.fill(0);
                        lost_count += 1;
                    }
                }
                if lost_count == 0 {
                    torn.clear();
                }
            }
            _ => {}
        }
        self.append(boot_id, lane, &torn);
        torn == batch
    }

    /// The logs in the order of boots and lanes. The reader truncates torn ends.
    pub(crate) fn logs(&mut self) -> Vec<&mut Vec<u8>> {
        self.logs.sort_by_key(|log| (log.boot_id, log.lane));
        self.logs.iter_mut().map(|log| &mut log.bytes).collect()
    }

    /// Removes the last batch of a log, as a lying disk does.
    pub(crate) fn lose_last_batch(
        &mut self,
        prng: &mut Prng,
        may_be_lost: impl Fn(usize, &[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let boot_id = self.logs.iter().map(|log| log.boot_id).max()?;
        let mut latest: Vec<_> =
            self.logs.iter_mut().filter(|log| log.boot_id == boot_id).collect();
        let index = prng.below(latest.len());
        let log = latest.get_mut(index)?;
        let (_, mut reader) = LogReader::new(&log.bytes).ok()?;
        let mut last = None;
        while let Ok(Some(batch)) = reader.next_batch() {
            last = Some(narrow(batch.offset()));
        }
        let end = narrow(reader.valid_bytes());
        let last = last?;
        let lost = log.bytes[last..end].to_vec();
        if !may_be_lost(usize::from(log.lane), &lost) {
            return None;
        }
        log.bytes.truncate(last);
        debug_assert!(wide(lost.len()) > 0, "a batch has bytes");
        Some(lost)
    }
}
