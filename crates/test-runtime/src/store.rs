//! The store: logs, objects and rows, as a lane sees them and as a crash leaves them.
//!
//! ```text
//! write ─▶ seen, unsynced ─ sync ─▶ base      crash: any subset of the unsynced, torn
//! log batch under way ─ complete ─▶ log       crash: nothing, a torn part, or all of it
//!                                    └ redo ─▶ base, of what only the log has
//! ```

use crate::{Applied, Incoming, LogId, Operation, Patch, Prng, RowStore, put_sum, records};
use disk::{Change, Changes, ContentsChange, Fault, LogHeader, LogReader, LoggedContents};
use interface::{
    Errno, LogSpace, Object, ObjectEvent, ObjectPiece, ObjectStat, Span, StoreEvent, StoreSpace,
};
use std::collections::{BTreeMap, BTreeSet};
use wire::{FsUuid, LaneId, Rule, Rules};

#[derive(Clone, Debug)]
struct Log {
    bytes: Vec<u8>,
    space: LogSpace,
}

/// An object.
#[derive(Clone, Default, Debug)]
struct File {
    seen: Vec<u8>,
    /// What survives every crash. `None`: the file need not survive at all.
    base: Option<Vec<u8>>,
    unsynced: Vec<(u64, Patch)>,
}

/// The contents of the store.
#[derive(Debug)]
pub struct Store {
    pub rows: RowStore,
    page_bytes: usize,
    logs: BTreeMap<LogId, Log>,
    files: BTreeMap<Object, File>,
    patch_count: u64,
    /// Objects that are not in the page cache.
    evicted: BTreeSet<Object>,
    /// Removed since they were last written to.
    removed: BTreeSet<Object>,
    /// A sync has failed in this boot, or a write of what the log may have alone: that stays there.
    has_failed_sync: bool,
    /// Nothing goes to the rows while something is held.
    held_rows_count: u32,
}

impl Store {
    /// An empty store, whose objects have holes of whole pages.
    pub fn new(page_bytes: usize) -> Self {
        Self {
            rows: RowStore::default(),
            page_bytes,
            logs: BTreeMap::new(),
            files: BTreeMap::new(),
            patch_count: 0,
            evicted: BTreeSet::new(),
            removed: BTreeSet::new(),
            has_failed_sync: false,
            held_rows_count: 0,
        }
    }

    /// An action on the rows ([`interface::StoreAction::HoldRows`]).
    pub const fn hold_rows(&mut self) {
        self.held_rows_count += 1;
    }

    /// It is over ([`interface::StoreAction::ReleaseRows`]).
    pub const fn release_rows(&mut self, has_failed: bool) {
        self.held_rows_count -= 1;
        self.has_failed_sync |= has_failed;
    }

    /// Ends an operation. One that fails leaves nothing behind.
    pub fn complete(&mut self, operation: Operation, result: Result<(), Errno>) -> Incoming {
        match operation {
            Operation::Log { ticket, log, batch } => {
                let result = result.map(|()| self.append(log, &batch));
                StoreEvent::Logged { ticket, result }.into()
            }
            Operation::Read { ticket, object, from, count, .. } => {
                self.load_into_cache(object);
                Incoming::read(ticket, result.map(|()| self.read(object, from, count)))
            }
            Operation::ReadList { ticket, object, pieces, .. } => {
                let mut bytes = Vec::new();
                for ObjectPiece { stripe_index, object_offset, piece_bytes } in pieces {
                    let object = Object { stripe_index, ..object };
                    self.load_into_cache(object);
                    let end = bytes.len() + piece_bytes as usize;
                    bytes.append(&mut self.read(
                        object,
                        object_offset as usize,
                        piece_bytes as usize,
                    ));
                    bytes.resize(end, 0);
                }
                Incoming::read(ticket, result.map(|()| bytes))
            }
            Operation::Sums { ticket, object, ranges } => {
                let from_disk = self.load_into_cache(object);
                let mut sums = Vec::new();
                for range in ranges {
                    let (from, count) = (range.object_offset as usize, range.range_bytes as usize);
                    put_sum(&mut sums, &self.read(object, from, count));
                }
                let result = result.map(|()| Span::default());
                Incoming::new(ObjectEvent::Sums { ticket, result, from_disk }, sums)
            }
            Operation::Load { ticket, object, ranges } => {
                let mut loaded = Vec::new();
                for range in ranges {
                    let (from, count) = (range.object_offset as usize, range.range_bytes as usize);
                    let bytes = self.read(object, from, count);
                    loaded.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                    loaded.extend_from_slice(&bytes);
                }
                let result = result.map(|()| Span::default());
                Incoming::new(ObjectEvent::Loaded { ticket, result }, loaded)
            }
            Operation::LoadWrite { ticket, bytes } => {
                let mut loaded = (bytes.len() as u32).to_le_bytes().to_vec();
                loaded.extend_from_slice(&bytes);
                let result = Ok(Span::default());
                Incoming::new(ObjectEvent::Loaded { ticket, result }, loaded)
            }
            Operation::Patch { ticket, object, patch, block_bytes } => {
                let sums = if block_bytes > 0 { patch.sums(block_bytes) } else { Vec::new() };
                if result.is_ok() {
                    self.removed.remove(&object);
                    self.patch(object, patch);
                }
                if block_bytes == 0 {
                    return ObjectEvent::Done { ticket, result }.into();
                }
                let result = result.map(|()| Span::default());
                Incoming::new(ObjectEvent::Written { ticket, result }, sums)
            }
            Operation::Sync { ticket, object, patch_no } => {
                if result.is_ok() {
                    self.sync(object, patch_no);
                }
                ObjectEvent::Done { ticket, result }.into()
            }
            Operation::Stat { ticket, object } => {
                let stat = self.size(object).map(|size| ObjectStat {
                    size_bytes: size as u64,
                    allocated_bytes: size.next_multiple_of(4096) as u64,
                });
                ObjectEvent::Stat { ticket, result: result.map(|()| stat) }.into()
            }
            Operation::Seek { ticket, object, from, hole } => {
                let found = self.seek(object, from, hole).map(|at| at as u64);
                ObjectEvent::Sought { ticket, result: result.map(|()| found) }.into()
            }
            Operation::Remove { ticket, object } => {
                if result.is_ok() {
                    self.remove(object);
                }
                ObjectEvent::Done { ticket, result }.into()
            }
            Operation::Space { ticket } => {
                let space = StoreSpace {
                    total_bytes: 1 << 40,
                    free_bytes: 1 << 39,
                    available_bytes: 1 << 38,
                    available_file_count: Some(1 << 20),
                };
                StoreEvent::Space { ticket, result: result.map(|()| space) }.into()
            }
            Operation::ReadRows { ticket, from, until, row_count_max } => {
                let rows = self.rows.read(&from, &until, row_count_max);
                let result = result.map(|()| Span::default());
                Incoming::new(StoreEvent::Rows { ticket, result }, rows)
            }
        }
    }

    /// A crash ends an operation under way: it may have taken effect. Returns a batch that is in
    /// its log as a whole.
    pub fn interrupt(&mut self, operation: Operation, prng: &mut Prng) -> Option<Vec<u8>> {
        match operation {
            Operation::Log { log, batch, .. } => {
                return self.tear_append(log, &batch, prng).then_some(batch);
            }
            Operation::Patch { object, patch, .. } if prng.one_in(2) => self.patch(object, patch),
            Operation::Remove { object, .. } if prng.one_in(2) => self.remove(object),
            _ => {}
        }
        None
    }

    /// A crash: of what was not synced some is lost.
    pub fn crash(&mut self, prng: &mut Prng) {
        for file in self.files.values_mut() {
            for (_, patch) in std::mem::take(&mut file.unsynced) {
                let is_write = matches!(patch, Patch::Write { .. });
                let patch = match patch {
                    _ if prng.one_in(2) => continue,
                    write if is_write && prng.one_in(4) => write.torn(prng),
                    whole => whole,
                };
                patch.apply(file.base.get_or_insert_default());
            }
            if let Some(base) = &file.base {
                file.seen.clone_from(base);
            }
        }
        self.files.retain(|_, file| file.base.is_some());
        (self.has_failed_sync, self.held_rows_count) = (false, 0);
    }

    // ---- objects ----

    pub fn objects(&self) -> impl ExactSizeIterator<Item = Object> {
        self.files.keys().copied()
    }

    /// What is durable of each object.
    pub fn durable(&self) -> impl Iterator<Item = (Object, &[u8])> {
        self.files.iter().filter_map(|(object, file)| Some((*object, file.base.as_deref()?)))
    }

    fn seen(&self, object: Object) -> &[u8] {
        self.files.get(&object).map_or(&[], |file| &file.seen)
    }

    pub fn read(&self, object: Object, from: usize, count: usize) -> Vec<u8> {
        let seen = self.seen(object);
        let from = from.min(seen.len());
        seen[from..seen.len().min(from.saturating_add(count))].to_vec()
    }

    /// The first offset from here on that is in a hole, or that is not: a page of zeros is a hole.
    fn seek(&self, object: Object, from: usize, hole: bool) -> Option<usize> {
        let page_bytes = self.page_bytes;
        let seen = self.seen(object);
        if from >= seen.len() {
            return None;
        }
        let pages = seen.chunks(page_bytes).enumerate().skip(from / page_bytes);
        let mut places = pages
            .filter(|(_, page)| page.iter().all(|byte| *byte == 0) == hole)
            .map(|(index, _)| (index * page_bytes).max(from));
        places.next().or(hole.then_some(seen.len()))
    }

    pub fn size(&self, object: Object) -> Option<usize> {
        self.files.get(&object).map(|file| file.seen.len())
    }

    /// Whether the object was removed since it was last written to. A start that redoes logged bytes
    /// may have made it again, with these bytes alone; then it is removed again.
    pub fn was_removed(&self, object: Object) -> bool {
        self.removed.contains(&object)
    }

    fn remove(&mut self, object: Object) {
        self.files.remove(&object);
        self.removed.insert(object);
    }

    pub fn patch(&mut self, object: Object, patch: Patch) {
        self.patch_count += 1;
        let file = self.files.entry(object).or_default();
        patch.apply(&mut file.seen);
        file.unsynced.push((self.patch_count, patch));
    }

    /// The last change that a sync that begins now covers.
    pub const fn patch_count(&self) -> u64 {
        self.patch_count
    }

    /// Makes everything up to `patch_no` durable.
    pub fn sync(&mut self, object: Object, patch_no: u64) {
        let Some(file) = self.files.get_mut(&object) else { return };
        let base = file.base.get_or_insert_default();
        for (_, patch) in file.unsynced.iter().filter(|(number, _)| *number <= patch_no) {
            patch.apply(base);
        }
        file.unsynced.retain(|(number, _)| *number > patch_no);
    }

    /// A sync failed: the kernel may have dropped the dirty pages.
    pub fn sync_failed(&mut self, object: Object, patch_no: u64) {
        self.has_failed_sync = true;
        if let Some(file) = self.files.get_mut(&object) {
            file.unsynced.retain(|(number, _)| *number > patch_no);
        }
    }

    /// Evicts a clean object from the page cache.
    pub fn evict(&mut self, object: Object) -> bool {
        let is_clean = self.files.get(&object).is_some_and(|file| file.unsynced.is_empty());
        is_clean && self.evicted.insert(object)
    }

    pub fn is_evicted(&self, object: Object) -> bool {
        self.evicted.contains(&object)
    }

    /// A read loads the whole object into the page cache; returns whether it was missing.
    fn load_into_cache(&mut self, object: Object) -> bool {
        self.evicted.remove(&object)
    }

    /// Flips a bit of an object.
    pub fn flip_bit(&mut self, object: Object, at: usize, prng: &mut Prng) {
        let bit = 1 << prng.below(8);
        let Some(file) = self.files.get_mut(&object) else { return };
        for bytes in [Some(&mut file.seen), file.base.as_mut()].into_iter().flatten() {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= bit;
            }
        }
    }

    // ---- logs ----

    /// Creates a log of this boot.
    pub fn new_log(
        &mut self,
        (boot_id, lane): LogId,
        fs: FsUuid,
        lane_count: u16,
        space: LogSpace,
    ) {
        let bytes = LogHeader::first(fs, boot_id, LaneId(lane), lane_count).encode().to_vec();
        self.logs.insert((boot_id, lane), Log { bytes, space });
    }

    /// Changes the space of a log.
    pub fn set_space(&mut self, log: LogId, space: LogSpace) {
        self.logs.get_mut(&log).unwrap().space = space;
    }

    fn append(&mut self, log: LogId, batch: &[u8]) -> LogSpace {
        let Log { bytes, space } = self.logs.get_mut(&log).unwrap();
        bytes.extend_from_slice(batch);
        let left_bytes = space.space_bytes.checked_sub(batch.len() as u64);
        space.space_bytes = left_bytes.expect("the log never outgrows its reserve");
        *space
    }

    /// An append is interrupted or fails: whether the whole batch survived. None, all and a torn
    /// part are equally likely.
    pub fn tear_append(&mut self, log: LogId, batch: &[u8], prng: &mut Prng) -> bool {
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
        self.logs.get_mut(&log).unwrap().bytes.extend_from_slice(&torn);
        torn == batch
    }

    /// Writes to objects what only the logs have of them, brings the rows up to the ends of the
    /// logs, in the order of boots and lanes, and truncates torn ends.
    ///
    /// # Errors
    /// What a record does not fit.
    pub fn redo(&mut self, rules: Rules) -> Result<(), Fault> {
        let mut logged = LoggedContents::new(rules);
        for log in self.logs.values() {
            let (_, mut reader) = LogReader::new(&log.bytes)?;
            while let Some(batch) = reader.next_batch()? {
                for record in batch.records() {
                    if record.lsn > self.rows.shard(record.shard)?.lsn {
                        logged.visit(&record)?;
                    }
                }
            }
        }
        for (shard, inode) in logged.objects() {
            let object = Object { shard_index: shard.index(), stripe_index: 0, inode };
            for (object_offset, bytes) in logged.ranges(shard, inode) {
                let (from, bytes) = (object_offset as usize, bytes.to_vec());
                self.patch(object, Patch::Write { from, bytes });
            }
            self.sync(object, self.patch_count);
        }
        let Self { rows, logs, .. } = self;
        logs.values_mut().try_for_each(|log| rows.redo(&mut log.bytes))
    }

    /// Applies the oldest waiting batch, behind a sync of the objects that it has bytes of; returns
    /// its lane, and how far its shards are applied now.
    pub fn advance(&mut self, rules: Rules) -> Option<Result<(usize, Vec<Applied>), Fault>> {
        let (_, batch) = self.rows.behind.front()?;
        let mut objects = Vec::new();
        for record in records(batch) {
            for change in Changes::new(record.changes).flatten() {
                if let Change::Contents(ContentsChange::Logged { inode, .. }) = change {
                    let shard_index = record.shard.index();
                    objects.push(Object { shard_index, stripe_index: 0, inode });
                }
            }
        }
        if !objects.is_empty() && self.has_failed_sync {
            return None;
        }
        if self.held_rows_count > 0 && rules.hold(Rule::LogFirst) {
            return None;
        }
        for object in objects.into_iter().filter(|_| rules.hold(Rule::ContentsFlush)) {
            self.sync(object, self.patch_count);
        }
        self.rows.advance()
    }

    /// Removes the last batch of a log of the last boot, as a lying disk does. With `unapplied` only
    /// one that is not in the rows.
    pub fn lose_last_batch(&mut self, prng: &mut Prng, unapplied: bool) -> Option<Vec<u8>> {
        let boot_id = self.logs.keys().last()?.0;
        let mut latest: Vec<_> = self.logs.range_mut((boot_id, 0)..).collect();
        let index = prng.below(latest.len());
        let ((_, lane), log) = latest.get_mut(index)?;
        let (_, mut reader) = LogReader::new(&log.bytes).ok()?;
        let mut last = None;
        while let Ok(Some(batch)) = reader.next_batch() {
            last = Some(batch.offset() as usize);
        }
        let end = reader.valid_bytes() as usize;
        let lost = log.bytes[last?..end].to_vec();
        let mut behind = self.rows.behind.iter();
        if unapplied && !behind.any(|(at, waits)| *at == usize::from(*lane) && *waits == lost) {
            return None;
        }
        log.bytes.truncate(last?);
        Some(lost)
    }
}
