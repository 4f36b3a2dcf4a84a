//! Rows made anew from the logs, where the logs still have everything since the store was made.
//!
//! That is so while the first server of a store has not ended, or until the start after it, as long
//! as no log file was removed. Invariant: what was found damaged is kept beside the new rows, and
//! nothing is touched where a record may be missing.

use crate::logs::{LogName, Logs};
use crate::rows::{self, Begun};
use crate::{ROWS, Store, StoreError};
use disk::rows::{Key, LogRow, StoreRow};
use disk::{LOG_HEADER_BYTES, LogHeader, LogPosition, Share};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use wire::{LaneId, Wire as _};

/// What damaged rows are called from then on, behind their name.
const DAMAGED: &str = "damaged";

/// The logs of the first boot, all of them.
pub(crate) struct FirstLogs {
    boot_id: u64,
    lane_count: u16,
    /// The last file of each lane.
    segments: BTreeMap<LaneId, u32>,
}

impl Store {
    /// Makes the rows anew if the logs have all that ever was in them; what to tell people then. They
    /// are as a new store's, and say which logs they need.
    pub(crate) fn rebuild_rows(&self, why: &StoreError) -> Result<Option<String>, StoreError> {
        let Some(first) = self.logs().first()? else { return Ok(None) };
        let path = self.path.join(ROWS).join(bind_lmdb::FILE);
        let aside = path.with_added_extension(DAMAGED);
        if path.exists() {
            let moved = std::fs::rename(&path, &aside);
            moved.map_err(|error| StoreError::io("put aside", &path, error))?;
        }
        // Nobody knows the mode any more: the weakest is assumed.
        let store_row = StoreRow {
            fs: self.superblock.fs,
            boot_id: first.boot_id,
            first_boot_id: first.boot_id,
            share: Some(Share::Off),
        };
        let mut begun = Begun::new();
        begun.insert(Key::store().bytes().to_vec(), store_row.to_bytes());
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
            begun.insert(Key::log(*lane).bytes().to_vec(), row.to_bytes());
        }
        rows::create(&self.path, &self.superblock, begun)?;
        Ok(Some(format!(
            "{why}. The logs have all since the store was made: {} is made anew from them, and what was \
             damaged is kept as {}",
            path.display(),
            aside.display()
        )))
    }
}

impl Logs<'_> {
    /// The logs, if they are whole from the first record of the store on.
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

/// The head of a log file; `None` if it is not whole.
fn read_head(path: &Path, log: &LogName) -> Result<Option<LogHeader>, StoreError> {
    let path = log.path(path);
    let mut bytes = Vec::new();
    let head_bytes = u64::try_from(LOG_HEADER_BYTES).unwrap_or(u64::MAX);
    let read = File::open(&path).and_then(|file| file.take(head_bytes).read_to_end(&mut bytes));
    read.map_err(|error| StoreError::io("read", &path, error))?;
    Ok(LogHeader::decode(&bytes).ok())
}
