//! The row store: log records applied to rows, behind the lanes, in atomic and durable
//! transactions.

use crate::number::narrow;
use crate::plan::Plan;
use disk::rows::{Key, Range, Row, Rows, ShardRow, apply, begin};
use disk::{BlockSum, BlockSums, Creation, Fault, GROUP_BLOCK_COUNT, LogReader, Record};
use interface::Object;
use lane::{Loading, Restore};
use std::collections::{BTreeMap, VecDeque};
use wire::{ShardCounts, ShardId, Transno, Wire};

/// How far a shard's log was applied.
pub(crate) type Applied = (ShardId, u64, Transno);

/// The store.
#[derive(Default, Debug)]
pub(crate) struct RowStore {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Batches of this boot, with their lane, that are durable in their logs and not applied.
    pub(crate) behind: VecDeque<(usize, Vec<u8>)>,
}

impl RowStore {
    /// The rows of a new store.
    pub(crate) fn begin(&mut self, made: Creation) -> Result<(), Fault> {
        begin(made, &mut self.rows).map(drop)
    }

    /// Applies the rest of a log, and truncates its torn end.
    pub(crate) fn redo(&mut self, log: &mut Vec<u8>) -> Result<(), Fault> {
        let (_, mut reader) = LogReader::new(log)?;
        while let Some(batch) = reader.next_batch()? {
            self.take(batch.records())?;
        }
        let valid_bytes = narrow(reader.valid_bytes());
        log.truncate(valid_bytes);
        Ok(())
    }

    /// Applies a batch in one transaction.
    fn take<'a>(&mut self, batch: impl Iterator<Item = Record<'a>>) -> Result<Vec<Applied>, Fault> {
        let mut shards: BTreeMap<ShardId, ShardRow> = BTreeMap::new();
        for record in batch {
            let shard = match shards.get_mut(&record.shard) {
                Some(shard) => shard,
                None => {
                    let row = self.shard(record.shard)?;
                    shards.entry(record.shard).or_insert(row)
                }
            };
            apply(&record, shard, &mut self.rows)?;
        }
        for (shard, row) in &shards {
            Rows::put(&mut self.rows, Key::shard(*shard).bytes(), &row.to_bytes());
        }
        Ok(shards.into_iter().map(|(shard, row)| (shard, row.lsn, row.transno)).collect())
    }

    fn shard(&self, shard: ShardId) -> Result<ShardRow, Fault> {
        let value = self.rows.get(Key::shard(shard).bytes());
        let Some(value) = value else {
            return Ok(ShardRow { next_count: 1, ..ShardRow::default() });
        };
        ShardRow::decode_all(value).map_err(|_| Fault::new("a shard's row does not decode", 0))
    }

    /// The checksums that the rows have, by object and block of the object.
    pub(crate) fn sums(&self, plan: &Plan) -> Vec<(Object, u64, BlockSum)> {
        let unit_blocks = plan.stripe_unit_bytes / u64::from(plan.block_bytes);
        let mut all = Vec::new();
        for (key, value) in &self.rows {
            let of = |shard: ShardId, inode, block: u64, sum| {
                let stripe_index = u32::try_from(block / unit_blocks).unwrap_or(u32::MAX);
                let object = Object { shard_index: shard.index(), stripe_index, inode };
                (object, block % unit_blocks, sum)
            };
            match Row::decode(key, value) {
                Ok(Row::Object { shard, inode, row }) => {
                    all.push(of(shard, inode, 0, row.first_sum))
                }
                Ok(Row::Sums { shard, inode, group, sums }) => {
                    let sums = BlockSums::decode_all(sums).unwrap_or_default();
                    let blocks = (group * GROUP_BLOCK_COUNT..).zip(sums.0);
                    all.extend(blocks.map(|(block, sum)| of(shard, inode, block, sum)));
                }
                Ok(_) | Err(_) => {}
            }
        }
        all.retain(|(_, _, sum)| !sum.is_none());
        all
    }

    /// Restores the lanes' shards and slots. With a memory limit, only the names that a start
    /// needs.
    pub(crate) fn restore(
        &self,
        shards: ShardCounts,
        made: Creation,
        bytes_max: Option<u64>,
    ) -> Result<Restore, Fault> {
        let mut restore = Restore::new(shards, made);
        let Some(bytes_max) = bytes_max else {
            let mut loading = Loading::new(restore);
            self.each(None, |row| loading.load(row))?;
            return loading.finish();
        };
        restore.bound(bytes_max);
        let mut loading = Loading::new(restore);
        self.each(Some(&Range::inodes()), |row| loading.load(row))?;
        self.each(Some(&Range::start()), |row| loading.load(row))?;
        for unit in loading.missing() {
            self.each(Some(&unit.range()), |row| loading.fetch(&unit, row))?;
            loading.fetched(&unit);
        }
        loading.finish()
    }

    fn each(
        &self,
        range: Option<&Range>,
        mut take: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let wanted = |key: &[u8]| range.is_none_or(|range| range.contains(key));
        for (key, value) in self.rows.iter().filter(|(key, _)| wanted(key)) {
            take(&Row::decode(key, value)?)?;
        }
        Ok(())
    }

    /// Rows from `from` until `until`, or only `from` where `until` is empty, encoded as a lane
    /// reads them.
    pub(crate) fn read(&self, from: &[u8], until: &[u8], row_count_max: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let found = self.rows.range(from.to_vec()..);
        let wanted = found.take_while(|(key, _)| {
            if until.is_empty() { key.as_slice() == from } else { key.as_slice() < until }
        });
        for (key, value) in wanted.take(row_count_max) {
            for part in [key, value] {
                out.extend_from_slice(&crate::number::narrow_u32(part.len()).to_le_bytes());
            }
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
        out
    }

    /// Applies the oldest waiting batch; returns its lane, and how far its shards are applied now.
    pub(crate) fn advance(&mut self) -> Option<Result<(usize, Vec<Applied>), Fault>> {
        let (lane, batch) = self.behind.pop_front()?;
        let records = crate::tap::records(&batch).into_iter();
        Some(self.take(records).map(|applied| (lane, applied)))
    }
}
