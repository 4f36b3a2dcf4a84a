//! The test server's key-value store: rows to which the logs are applied at random times.

use super::{MADE, PendingEvent, TestServer};
use crate::{Loading, Restore};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use disk::LogReader;
use disk::rows::{self, Key, Range, Row, Rows, ShardRow};
use interface::{Event, StoreEvent};
use wire::{ShardId, Wire};

/// The rows, and the memory limit of names.
pub(super) struct RowStore {
    pub(super) bytes_max: u64,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) read_count: usize,
}

impl RowStore {
    fn shard(&self, shard: ShardId) -> ShardRow {
        let row = self.rows.get(Key::shard(shard).bytes());
        let new = ShardRow { next_count: 1, ..ShardRow::default() };
        row.map_or(new, |row| ShardRow::decode_all(row).unwrap())
    }

    /// Applies at most `count` further records; returns the shards that advanced.
    fn apply(&mut self, log: &[u8], mut count: usize) -> BTreeMap<ShardId, ShardRow> {
        let mut shards: BTreeMap<ShardId, ShardRow> = BTreeMap::new();
        let (_, mut reader) = LogReader::new(log).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            for record in batch.records() {
                let mut row = shards.get(&record.shard).copied();
                let row = row.get_or_insert_with(|| self.shard(record.shard));
                if record.lsn > row.lsn && count > 0 {
                    count -= 1;
                    assert_eq!(rows::apply(&record, row, &mut self.rows), Ok(true));
                    shards.insert(record.shard, *row);
                }
            }
        }
        for (shard, row) in &shards {
            Rows::put(&mut self.rows, Key::shard(*shard).bytes(), &row.to_bytes());
        }
        shards
    }

    /// Encodes the rows of a read.
    pub(super) fn read(&mut self, from: &[u8], until: &[u8], count: usize) -> Vec<u8> {
        self.read_count += 1;
        let mut out = Vec::new();
        for (key, value) in self.rows.range(from.to_vec()..until.to_vec()).take(count) {
            for part in [key, value] {
                out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            }
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
        out
    }
}

impl TestServer {
    /// Limits the memory of names, from the first start on.
    pub(crate) fn bound_names(&mut self, bytes_max: u64) {
        let mut rows = BTreeMap::new();
        rows::begin(MADE, &mut rows).unwrap();
        self.row_store = Some(RowStore { bytes_max, rows, read_count: 0 });
    }

    pub(crate) const fn has_bounded_names(&self) -> bool {
        self.row_store.is_some()
    }

    /// The number of row reads.
    pub(crate) fn row_read_count(&self) -> usize {
        self.row_store.as_ref().map_or(0, |row_store| row_store.read_count)
    }

    /// Restores from the rows, after applying all logs.
    pub(super) fn restore_non_resident(&mut self) -> Option<Restore> {
        let row_store = self.row_store.as_mut()?;
        for log in &mut self.logs {
            row_store.apply(log, usize::MAX);
            let (_, mut reader) = LogReader::new(log).unwrap();
            while reader.next_batch().unwrap().is_some() {}
            let valid_bytes = reader.valid_bytes() as usize;
            log.truncate(valid_bytes);
        }
        let mut restore = Restore::new(self.shard_counts, MADE);
        restore.bound(row_store.bytes_max);
        let mut loading = Loading::new(restore);
        let in_range = |range: Range| {
            let all = row_store.rows.iter();
            all.filter(move |(key, _)| range.contains(key))
                .map(|(key, value)| Row::decode(key, value).unwrap())
        };
        in_range(Range::inodes()).for_each(|row| loading.load(&row).unwrap());
        in_range(Range::start()).for_each(|row| loading.load(&row).unwrap());
        for unit in loading.missing() {
            in_range(unit.range()).for_each(|row| loading.fetch(&unit, &row).unwrap());
            loading.fetched(&unit);
        }
        Some(loading.finish().unwrap())
    }

    /// Applies a random part of a lane's log.
    pub(super) fn checkpoint(&mut self, index: usize) {
        let Some(row_store) = &mut self.row_store else { return };
        if self.rng.usize(..10) != 0 {
            return;
        }
        let host = &mut self.hosts[index];
        let count = self.rng.usize(..30);
        for (shard, ShardRow { lsn, transno, .. }) in row_store.apply(&host.log, count) {
            host.pending_events.push(PendingEvent::Plain(Event::Store(StoreEvent::Checkpointed {
                shard,
                lsn,
                transno,
            })));
        }
    }
}
