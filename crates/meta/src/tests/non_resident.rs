//! Shards with little of their state in memory, over a row store that applies the log with random
//! delay and replies late, in any order, in small pieces.

use super::{Harness, MADE, records};
use crate::{Shard, Unit};
use alloc::vec::Vec;
use disk::rows::{Range, Row};
use test_runtime::Prng;
use wire::{InodeNo, ShardId, Transno};

type KeyValue = (Vec<u8>, Vec<u8>);

struct FetchInFlight {
    at: ShardId,
    unit: Unit,
    found: Option<Vec<KeyValue>>,
}

/// The row store of all shards.
pub(crate) struct RowStore {
    store: test_runtime::RowStore,
    shard_count: u16,
    /// Fetches in flight; some have read their rows already.
    asked: Vec<FetchInFlight>,
    /// The units of the current operation.
    held: Option<(ShardId, Vec<Unit>)>,
    rng: Prng,
    pub(crate) answer_count: usize,
    pub(crate) row_count: usize,
    pub(crate) bytes_max: u64,
    pub(crate) peak_bytes: u64,
}

impl RowStore {
    fn new(seed: u64, shard_count: u16, bytes_max: u64) -> Self {
        let mut store = test_runtime::RowStore::default();
        store.begin(MADE).unwrap();
        let (asked, rng) = (Vec::new(), Prng::new(seed));
        let (answer_count, row_count, peak_bytes) = (0, 0, 0);
        let held = None;
        Self {
            store,
            shard_count,
            asked,
            held,
            rng,
            answer_count,
            row_count,
            bytes_max,
            peak_bytes,
        }
    }

    /// Applies at most so many records; returns the last transaction.
    fn apply(&mut self, id: ShardId, log: &[(Transno, Vec<u8>)], count: usize) -> Transno {
        let done_count = usize::try_from(self.store.shard(id).unwrap().lsn).unwrap();
        self.store.apply(records(id, log).skip(done_count).take(count)).unwrap();
        self.store.shard(id).unwrap().transno
    }

    fn read(&self, range: &Range, count: usize) -> Vec<KeyValue> {
        let found =
            self.store.rows.range(range.from.bytes().to_vec()..range.until.bytes().to_vec());
        found.take(count).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn read_unit(&self, unit: &Unit) -> Vec<KeyValue> {
        self.read(&unit.range(), usize::try_from(unit.row_count_max()).unwrap())
    }

    fn is_asked(&self, at: ShardId, unit: &Unit) -> bool {
        self.asked.iter().any(|asked| asked.at == at && asked.unit == *unit)
    }
}

impl Harness {
    /// Shards with this memory limit each.
    pub(crate) fn with_row_store(seed: u64, shard_count: u16, bytes_max: u64) -> Self {
        let mut harness = Self::of_shards(shard_count);
        harness.row_store = Some(RowStore::new(seed, shard_count, bytes_max));
        for index in 0..shard_count {
            harness.at(ShardId::meta(index)).0.bound(bytes_max);
        }
        harness
    }

    fn ids(&self) -> Vec<ShardId> {
        let count = self.row_store.as_ref().map_or(0, |row_store| row_store.shard_count);
        (0..count).map(ShardId::meta).collect()
    }

    /// Fetches what the last operation at a shard misses; returns whether that was anything.
    pub(crate) fn fetch_missing(&mut self, at: ShardId) -> bool {
        let (shard, _) = self.at(at);
        let (mut missing, needed) = (shard.missing().to_vec(), shard.needed().to_vec());
        if missing.is_empty() {
            return false;
        }
        shard.pin(&needed);
        self.let_go();
        for unit in &missing {
            self.request(at, unit);
        }
        while let Some(unit) = missing.last() {
            if self.row_store.as_ref().unwrap().is_asked(at, unit) {
                self.answer_any();
                self.churn();
            } else {
                missing.pop();
            }
        }
        self.row_store.as_mut().unwrap().held = Some((at, needed));
        true
    }

    /// The current operation has ended.
    pub(crate) fn let_go(&mut self) {
        if let Some((at, needed)) =
            self.row_store.as_mut().and_then(|row_store| row_store.held.take())
        {
            self.at(at).0.unpin(&needed);
        }
    }

    fn request(&mut self, at: ShardId, unit: &Unit) {
        let row_store = self.row_store.as_mut().unwrap();
        if !row_store.is_asked(at, unit) {
            let found = row_store.rng.per_mille(500).then(|| row_store.read_unit(unit));
            row_store.asked.push(FetchInFlight { at, unit: unit.clone(), found });
            self.at(at).0.begin_fetch(unit);
        }
    }

    /// Completes a random fetch.
    fn answer_any(&mut self) {
        let mut row_store = self.row_store.take().unwrap();
        let index = row_store.rng.below(row_store.asked.len());
        let FetchInFlight { at, unit, found } = row_store.asked.swap_remove(index);
        row_store.answer_count += 1;
        let found = found.unwrap_or_else(|| row_store.read_unit(&unit));
        let rows = found.iter().map(|(key, value)| Row::decode(key, value).unwrap());
        let rows: Vec<Row<'_>> = rows.collect();
        row_store.row_count += rows.len();
        self.at(at).0.fetch(&unit, &rows).unwrap();
        self.row_store = Some(row_store);
    }

    /// The row store applies some records, with or without a notification, and units are evicted.
    pub(crate) fn churn(&mut self) {
        for at in self.ids() {
            let mut row_store = self.row_store.take().unwrap();
            let (shard, log) = self.at(at);
            let count = row_store.rng.below(6);
            let transno = row_store.apply(at, log, count);
            if row_store.rng.per_mille(600) {
                shard.checkpointed(transno);
            }
            let count = row_store.rng.below(30);
            shard.shrink(count);
            row_store.peak_bytes = row_store.peak_bytes.max(shard.resident_bytes().unwrap());
            self.row_store = Some(row_store);
        }
    }

    /// Fetches a unit without need, and completes some fetch.
    pub(crate) fn request_unneeded(&mut self, inode: InodeNo) {
        let rng = &mut self.row_store.as_mut().unwrap().rng;
        let unit = match rng.below(3) {
            0 => Unit::Inode(inode),
            1 => Unit::Entry(inode, alloc::format!("n{}", rng.below(20)).into_bytes().into()),
            _ => Unit::Listing(inode, rng.number() % 100),
        };
        let answers = rng.per_mille(300);
        if self.misses(&unit) {
            self.request(inode.shard(), &unit);
        }
        if answers && !self.row_store.as_ref().unwrap().asked.is_empty() {
            self.answer_any();
        }
    }

    fn misses(&mut self, unit: &Unit) -> bool {
        let (shard, _) = self.at(unit.shard());
        shard.state.begin_needs();
        shard.state.need(unit.clone());
        !shard.missing().is_empty()
    }

    pub(crate) fn all_applied(&mut self) {
        let mut row_store = self.row_store.take().unwrap();
        for at in (0..row_store.shard_count).map(ShardId::meta) {
            let (shard, log) = self.at(at);
            shard.checkpointed(row_store.apply(at, log, usize::MAX));
        }
        self.row_store = Some(row_store);
    }

    /// Starts all shards from the row store, with as little in memory as possible.
    pub(crate) fn start_from_rows(&mut self) {
        self.all_applied();
        let mut row_store = self.row_store.take().unwrap();
        row_store.asked.clear();
        for at in (0..row_store.shard_count).map(ShardId::meta) {
            let mut fresh = Shard::new(at, MADE);
            fresh.bound(row_store.bytes_max);
            let load = row_store.store.each(&Range::all(), |row| {
                let of = match *row {
                    Row::Inode(row) => row.inode.shard(),
                    Row::Target { inode, .. } | Row::Xattr { inode, .. } => inode.shard(),
                    Row::Orphan { inode } => inode.shard(),
                    Row::Listing { dir, .. } | Row::Dirent { dir, .. } => dir.shard(),
                    Row::Shard { shard, .. } => shard,
                    _ => at,
                };
                if of == at { fresh.load(row) } else { Ok(()) }
            });
            assert_eq!(load, Ok(()));
            let (shard, _) = self.at(at);
            assert_eq!(fresh.inode_count(), shard.inode_count());
            *shard = fresh;
        }
        self.row_store = Some(row_store);
    }

    /// Fetches everything into memory.
    pub(crate) fn fetch_all(&mut self) {
        self.all_applied();
        while !self.row_store.as_ref().unwrap().asked.is_empty() {
            self.answer_any();
        }
        for at in self.ids() {
            self.at(at).0.bound_again(u64::MAX);
        }
        let keys: Vec<KeyValue> = self.row_store.as_ref().unwrap().read(&Range::all(), usize::MAX);
        for (key, value) in keys {
            let unit = match Row::decode(&key, &value).unwrap() {
                Row::Inode(row) => Unit::Inode(row.inode),
                Row::Dirent { dir, name, .. } => Unit::entry(dir, name.bytes()),
                _ => continue,
            };
            if self.misses(&unit) {
                self.request(unit.shard(), &unit);
                self.answer_any();
            }
        }
    }
}
