//! Rebuilding the rows from the logs, where the logs still have everything since the store's
//! creation.
//!
//! That is the case until the first server of a store has ended, or until the next start, as long
//! as no log file was removed. Invariant: the damaged file is retained beside the new rows, and
//! nothing is changed where a record may be missing.

use crate::layout::ROWS;
use crate::log_name::LogName;
use crate::logs::Logs;
use crate::rows::{self, FirstRows};
use crate::{Store, StoreError};
use disk::rows::{Key, LogRow, StoreRow};
use disk::{LOG_HEADER_BYTES, LogHeader, LogPosition, Promised};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use wire::{LaneId, Wire as _};

/// The extension of a damaged file of rows.
const DAMAGED: &str = "damaged";

/// The logs of the first boot, all of them.
pub(crate) struct FirstLogs {
    boot_id: u64,
    lane_count: u16,
    /// The last file of each lane.
    segments: BTreeMap<LaneId, u32>,
}

impl Store {
    /// Rebuilds the rows if the logs have everything; returns a message then. The rows are as in a
    /// new store, and name the required logs.
    pub(crate) fn rebuild_rows(&self, why: &StoreError) -> Result<Option<String>, StoreError> {
        let Some(first) = self.logs().first()? else { return Ok(None) };
        let path = self.path.join(ROWS).join(bind_lmdb::FILE);
        let aside = path.with_added_extension(DAMAGED);
        if path.exists() {
            let moved = std::fs::rename(&path, &aside);
            moved.map_err(|error| StoreError::io("put aside", &path, error))?;
        }
        // What was promised is not known any more.
        let store_row = StoreRow {
            fs: self.superblock.fs,
            boot_id: first.boot_id,
            first_boot_id: first.boot_id,
            promised: Some(Promised::UNKNOWN),
        };
        let mut first_rows = FirstRows::new();
        first_rows.insert(Key::store().bytes().to_vec(), store_row.to_bytes());
        for (lane, segment_no_last) in &first.segments {
            let offset = u64::try_from(LOG_HEADER_BYTES).unwrap_or(u64::MAX);
            let row = LogRow {
                boot_id: first.boot_id,
                lane_count: first.lane_count,
                segment_no_last: *segment_no_last,
                place: LogPosition { segment_no: 1, offset },
                batch_no: 0,
                is_applied: false,
            };
            first_rows.insert(Key::log(*lane).bytes().to_vec(), row.to_bytes());
        }
        rows::create(&self.path, &self.superblock, first_rows)?;
        Ok(Some(format!(
            "{why}. The logs have everything since the store was made: {} is rebuilt from them, \
             and the damaged file is retained as {}",
            path.display(),
            aside.display()
        )))
    }
}

impl Logs<'_> {
    /// The logs, if they are complete from the first record of the store on.
    pub(crate) fn first(&self) -> Result<Option<FirstLogs>, StoreError> {
        let logs = self.all()?;
        let Some(first) = logs.first() else { return Ok(None) };
        let mut found =
            FirstLogs { boot_id: first.boot_id, lane_count: 0, segments: BTreeMap::new() };
        for log in &logs {
            let Some(head) = read_head(self.path, log)? else { return Ok(None) };
            let next_no = found.segments.get(&log.lane).map_or(1, |last| last + 1);
            let is_next = head.is_first
                && head.fs == self.fs
                && (log.boot_id, log.segment_no) == (found.boot_id, next_no);
            if !is_next {
                return Ok(None);
            }
            found.lane_count = head.lane_count;
            found.segments.insert(log.lane, log.segment_no);
        }
        Ok((found.segments.len() == usize::from(found.lane_count)).then_some(found))
    }
}

/// The head of a log file; `None` if it is not valid.
fn read_head(path: &Path, log: &LogName) -> Result<Option<LogHeader>, StoreError> {
    let path = log.path(path);
    let mut bytes = Vec::new();
    let head_bytes = u64::try_from(LOG_HEADER_BYTES).unwrap_or(u64::MAX);
    let read = File::open(&path).and_then(|file| file.take(head_bytes).read_to_end(&mut bytes));
    read.map_err(|error| StoreError::io("read", &path, error))?;
    Ok(LogHeader::decode(&bytes).ok())
}
