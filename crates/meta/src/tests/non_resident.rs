//! Shards that have little of their state in memory, over a cold store that takes the log over when
//! it likes and answers late, in any order, in small pieces.

use super::{Dice, Harness, MADE};
use crate::{Shard, Unit};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use disk::rows::{self, Key, Range, Row, Rows, ShardRow};
use disk::{Origin, PreVersions, Record};
use wire::{InodeNo, ShardId, Transno, Wire};

type KeyValue = (Vec<u8>, Vec<u8>);

struct Asked {
    at: ShardId,
    unit: Unit,
    found: Option<Vec<KeyValue>>,
}

/// The cold store of all shards.
pub(crate) struct RowStore {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    shards: Vec<ShardRow>,
    /// Questions without an answer yet; some were looked up when they were asked.
    asked: Vec<Asked>,
    /// What the operation at work needs.
    held: Option<(ShardId, Vec<Unit>)>,
    dice: Dice,
    pub(crate) answer_count: usize,
    pub(crate) row_count: usize,
    pub(crate) bytes_max: u64,
    pub(crate) peak_bytes: u64,
}

impl RowStore {
    fn new(seed: u64, shard_count: u16, bytes_max: u64) -> Self {
        let mut rows = BTreeMap::new();
        rows::begin(MADE, &mut rows).unwrap();
        let mut shards = alloc::vec![
            ShardRow { next_count: 1, ..ShardRow::default() };
            usize::from(shard_count)
        ];
        (shards[0].next_count, shards[0].inode_count) = (2, 1);
        let (asked, dice) = (Vec::new(), Dice::new(seed));
        let (answer_count, row_count, peak_bytes) = (0, 0, 0);
        let held = None;
        Self { rows, shards, asked, held, dice, answer_count, row_count, bytes_max, peak_bytes }
    }

    /// Takes over so many records at most; the last transaction.
    fn apply(&mut self, id: ShardId, log: &[(Transno, Vec<u8>)], count: usize) -> Transno {
        let row = &mut self.shards[usize::from(id.index())];
        let done = usize::try_from(row.lsn).unwrap();
        for (transno, changes) in log.iter().skip(done).take(count) {
            let (lsn, origin) = (row.lsn + 1, Origin::Internal);
            let (pre_versions, transno) = (PreVersions::new(), *transno);
            let record = Record { shard: id, lsn, transno, pre_versions, origin, changes };
            assert_eq!(rows::apply(&record, row, &mut self.rows), Ok(true));
        }
        Rows::put(&mut self.rows, Key::shard(id).bytes(), &row.to_bytes());
        row.transno
    }

    fn read(&self, range: &Range, count: usize) -> Vec<KeyValue> {
        let found = self.rows.range(range.from.bytes().to_vec()..range.until.bytes().to_vec());
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
    /// A world of shards with so many bytes each.
    pub(crate) fn with_cold(seed: u64, shard_count: u16, bytes_max: u64) -> Self {
        let mut harness = Self::of_shards(shard_count);
        harness.cold = Some(RowStore::new(seed, shard_count, bytes_max));
        for index in 0..shard_count {
            harness.at(ShardId::meta(index)).0.bound(bytes_max);
        }
        harness
    }

    fn ids(&self) -> Vec<ShardId> {
        let count = self.cold.as_ref().map_or(0, |cold| cold.shards.len());
        (0..count).map(|index| ShardId::meta(u16::try_from(index).unwrap())).collect()
    }

    /// Brings what the last operation at a shard misses; whether that was anything.
    pub(crate) fn bring(&mut self, at: ShardId) -> bool {
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
            if self.cold.as_ref().unwrap().is_asked(at, unit) {
                self.answer_any();
                self.churn();
            } else {
                missing.pop();
            }
        }
        self.cold.as_mut().unwrap().held = Some((at, needed));
        true
    }

    /// The operation at work has ended.
    pub(crate) fn let_go(&mut self) {
        if let Some((at, needed)) = self.cold.as_mut().and_then(|cold| cold.held.take()) {
            self.at(at).0.unpin(&needed);
        }
    }

    fn request(&mut self, at: ShardId, unit: &Unit) {
        let cold = self.cold.as_mut().unwrap();
        if !cold.is_asked(at, unit) {
            let found = cold.dice.chance(50).then(|| cold.read_unit(unit));
            cold.asked.push(Asked { at, unit: unit.clone(), found });
            self.at(at).0.begin_fetch(unit);
        }
    }

    /// Answers any question.
    fn answer_any(&mut self) {
        let mut cold = self.cold.take().unwrap();
        let index = cold.dice.below(cold.asked.len());
        let Asked { at, unit, found } = cold.asked.swap_remove(index);
        cold.answer_count += 1;
        let found = found.unwrap_or_else(|| cold.read_unit(&unit));
        let rows = found.iter().map(|(key, value)| Row::decode(key, value).unwrap());
        let rows: Vec<Row<'_>> = rows.collect();
        cold.row_count += rows.len();
        self.at(at).0.fetch(&unit, &rows).unwrap();
        self.cold = Some(cold);
    }

    /// The store goes on a little, says so or not, and what can go goes.
    pub(crate) fn churn(&mut self) {
        for at in self.ids() {
            let mut cold = self.cold.take().unwrap();
            let (shard, log) = self.at(at);
            let count = cold.dice.below(6);
            let transno = cold.apply(at, log, count);
            if cold.dice.chance(60) {
                shard.checkpointed(transno);
            }
            let count = cold.dice.below(30);
            shard.shrink(count);
            cold.peak_bytes = cold.peak_bytes.max(shard.resident_bytes().unwrap());
            self.cold = Some(cold);
        }
    }

    /// Somebody asks for something nobody needs, and some late answer comes.
    pub(crate) fn stray(&mut self, inode: InodeNo) {
        let dice = &mut self.cold.as_mut().unwrap().dice;
        let unit = match dice.below(3) {
            0 => Unit::Inode(inode),
            1 => Unit::Entry(inode, alloc::format!("n{}", dice.below(20)).into_bytes().into()),
            _ => Unit::Listing(inode, dice.roll() % 100),
        };
        let answers = dice.chance(30);
        if self.misses(&unit) {
            self.request(inode.shard(), &unit);
        }
        if answers && !self.cold.as_ref().unwrap().asked.is_empty() {
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
        let mut cold = self.cold.take().unwrap();
        for index in 0..cold.shards.len() {
            let at = ShardId::meta(u16::try_from(index).unwrap());
            let (shard, log) = self.at(at);
            shard.checkpointed(cold.apply(at, log, usize::MAX));
        }
        self.cold = Some(cold);
    }

    /// Starts all shards from the cold store, with as little in memory as can be.
    pub(crate) fn start_cold(&mut self) {
        self.all_applied();
        let mut cold = self.cold.take().unwrap();
        cold.asked.clear();
        for index in 0..cold.shards.len() {
            let at = ShardId::meta(u16::try_from(index).unwrap());
            let mut fresh = Shard::new(at, MADE);
            fresh.bound(cold.bytes_max);
            for (key, value) in &cold.rows {
                let row = Row::decode(key, value).unwrap();
                let of = match row {
                    Row::Inode(row) => row.inode.shard(),
                    Row::Target { inode, .. } | Row::Xattr { inode, .. } => inode.shard(),
                    Row::Orphan { inode } => inode.shard(),
                    Row::Listing { dir, .. } | Row::Dirent { dir, .. } => dir.shard(),
                    Row::Shard { shard, .. } => shard,
                    _ => at,
                };
                if of == at {
                    fresh.load(&row).unwrap();
                }
            }
            let (shard, _) = self.at(at);
            assert_eq!(fresh.inode_count(), shard.inode_count());
            *shard = fresh;
        }
        self.cold = Some(cold);
    }

    /// Brings everything into memory that is not.
    pub(crate) fn warm_up(&mut self) {
        self.all_applied();
        while !self.cold.as_ref().unwrap().asked.is_empty() {
            self.answer_any();
        }
        for at in self.ids() {
            self.at(at).0.bound_again(u64::MAX);
        }
        let keys: Vec<KeyValue> = self.cold.as_ref().unwrap().read(&Range::all(), usize::MAX);
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
