//! The row store: log records applied to rows, behind the lanes, in atomic and durable
//! transactions.

use disk::rows::{self, Key, Range, Row, Rows, ShardRow};
use disk::{BATCH_HEADER_BYTES, BatchHeader, Creation, Fault, LogReader, Record};
use std::collections::{BTreeMap, VecDeque};
use wire::{ShardId, Transno, Wire};

/// How far a shard's log was applied.
pub type Applied = (ShardId, u64, Transno);

/// The rows.
#[derive(Default, Debug)]
pub struct RowStore {
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Batches of this boot, with their lane, that are durable in their logs and not applied.
    pub behind: VecDeque<(usize, Vec<u8>)>,
    pub read_count: usize,
}

impl RowStore {
    /// The rows of a new store.
    ///
    /// # Errors
    /// As all of these functions: a fault of the rows.
    pub fn begin(&mut self, made: Creation) -> Result<(), Fault> {
        rows::begin(made, &mut self.rows).map(drop)
    }

    /// Applies the rest of a log, and truncates its torn end.
    pub fn redo(&mut self, log: &mut Vec<u8>) -> Result<(), Fault> {
        let (_, mut reader) = LogReader::new(log)?;
        while let Some(batch) = reader.next_batch()? {
            self.apply(batch.records())?;
        }
        let valid_bytes = reader.valid_bytes() as usize;
        log.truncate(valid_bytes);
        Ok(())
    }

    /// Applies records in one transaction.
    pub fn apply<'a>(
        &mut self,
        records: impl Iterator<Item = Record<'a>>,
    ) -> Result<Vec<Applied>, Fault> {
        let mut shards: BTreeMap<ShardId, ShardRow> = BTreeMap::new();
        for record in records {
            let shard = match shards.get_mut(&record.shard) {
                Some(shard) => shard,
                None => {
                    let row = self.shard(record.shard)?;
                    shards.entry(record.shard).or_insert(row)
                }
            };
            rows::apply(&record, shard, &mut self.rows)?;
        }
        for (shard, row) in &shards {
            Rows::put(&mut self.rows, Key::shard(*shard).bytes(), &row.to_bytes());
        }
        Ok(shards.into_iter().map(|(shard, row)| (shard, row.lsn, row.transno)).collect())
    }

    pub fn shard(&self, shard: ShardId) -> Result<ShardRow, Fault> {
        let value = self.rows.get(Key::shard(shard).bytes());
        let Some(value) = value else {
            return Ok(ShardRow { next_count: 1, ..ShardRow::default() });
        };
        ShardRow::decode_all(value).map_err(|_| Fault::new("a shard's row does not decode", 0))
    }

    /// Visits the rows of a range.
    pub fn each(
        &self,
        range: &Range,
        mut take: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for (key, value) in self.rows.iter().filter(|(key, _)| range.contains(key)) {
            take(&Row::decode(key, value)?)?;
        }
        Ok(())
    }

    /// Rows from `from` until `until`, or only `from` where `until` is empty, encoded as a lane
    /// reads them.
    pub(crate) fn read(&mut self, from: &[u8], until: &[u8], row_count_max: usize) -> Vec<u8> {
        self.read_count += 1;
        let mut out = Vec::new();
        let found = self.rows.range(from.to_vec()..);
        let wanted = found.take_while(|(key, _)| {
            if until.is_empty() { key.as_slice() == from } else { key.as_slice() < until }
        });
        for (key, value) in wanted.take(row_count_max) {
            for part in [key, value] {
                out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            }
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
        out
    }

    /// Applies the oldest waiting batch; returns its lane, and how far its shards are applied now.
    pub fn advance(&mut self) -> Option<Result<(usize, Vec<Applied>), Fault>> {
        let (lane, batch) = self.behind.pop_front()?;
        let records = records(&batch).into_iter();
        Some(self.apply(records).map(|applied| (lane, applied)))
    }
}

/// The records of a batch.
pub fn records(batch: &[u8]) -> Vec<Record<'_>> {
    let mut records = Vec::new();
    let Some(head) = BatchHeader::decode(batch) else { return records };
    let mut rest = batch.get(BATCH_HEADER_BYTES..).unwrap_or_default();
    for _ in 0..head.record_count {
        let Ok((record, left)) = Record::decode(rest) else { break };
        records.push(record);
        rest = left;
    }
    records
}
