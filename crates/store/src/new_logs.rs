//! New log files of lanes, durably and with reserved space.

use crate::log_name::LogName;
use crate::rows::RowStore;
use crate::{Store, StoreError, files, reserve};
use disk::rows::{Key, LogRow, StoreRow};
use disk::{LOG_HEADER_BYTES, LogHeader, LogPosition};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use wire::{LaneId, Wire as _};

impl Store {
    /// Makes the first log file of each lane of this boot, with this much reserved space if there
    /// is (on a full disk in place of the logs of earlier boots, which are over), and records in the rows that they are required; all durably. The files are open for
    /// reading and writing; batches start at the offset, in bytes.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn new_logs(
        &self,
        row_store: &RowStore,
        lane_count: u16,
        reserve_bytes: u64,
    ) -> Result<Vec<(File, u64)>, StoreError> {
        let store_row = row_store.store_row()?;
        let is_first = store_row.first_boot_id == 0;
        // Where space is short, all heads are made before any reserve, which the lanes request
        // later.
        let all_bytes = reserve_bytes.saturating_mul(u64::from(lane_count));
        let has_space = reserve::free_bytes(&self.path) / 2 > all_bytes;
        let reserve_bytes = if has_space { reserve_bytes } else { 0 };
        let boot_id = self.boot_id;
        let (mut logs, mut rows) = (Vec::new(), Vec::new());
        for lane in (0..lane_count).map(LaneId) {
            let (fs, file_bytes) = (self.superblock.fs, 0);
            let head =
                LogHeader { fs, boot_id, lane, lane_count, segment_no: 1, file_bytes, is_first };
            let made = match make(&self.path, &head, reserve_bytes) {
                // The rows have all records of earlier boots (`Store::redo`).
                Err(error) if error.is_of_space() => {
                    self.free_earlier_logs()?;
                    make(&self.path, &head, reserve_bytes)?
                }
                made => made?,
            };
            let place = LogPosition { segment_no: 1, offset: made.start_offset };
            let (segment_no_last, batch_no, is_applied) = (1, 0, false);
            let row = LogRow { boot_id, lane_count, segment_no_last, place, batch_no, is_applied };
            rows.push((Key::log(lane), row.to_bytes()));
            logs.push((made.file, made.start_offset));
        }
        if is_first {
            let row = StoreRow { first_boot_id: boot_id, ..store_row };
            rows.push((Key::store(), row.to_bytes()));
        }
        row_store.put(&rows)?;
        Ok(logs)
    }
}

/// A new log file.
pub(crate) struct Creation {
    pub(crate) file: File,
    /// The offset of its first batch.
    pub(crate) start_offset: u64,
    /// Reserved space from there on.
    pub(crate) reserved_bytes: u64,
}

/// Less reserved space than this in a new file is useless.
pub(crate) const RESERVED_BYTES_MIN: u64 = 256 << 10;

/// Makes a log file, durably. Its head has its length.
pub(crate) fn make(
    path: &Path,
    head: &LogHeader,
    reserve_bytes: u64,
) -> Result<Creation, StoreError> {
    let LogHeader { boot_id, lane, segment_no, .. } = *head;
    let start_offset = u64::try_from(LOG_HEADER_BYTES).unwrap_or(u64::MAX);
    let mut reserved_bytes = 0;
    let name = LogName { boot_id, lane, segment_no };
    let file = files::place_made(&name.path(path), |file| {
        reserved_bytes = reserve(file, start_offset, reserve_bytes);
        LogHeader { file_bytes: start_offset + reserved_bytes, ..*head }.encode()
    })?;
    Ok(Creation { file, start_offset, reserved_bytes })
}

/// Reserves this much space, or as much as there is; returns how much.
fn reserve(file: &File, offset: u64, mut reserve_bytes: u64) -> u64 {
    while reserve_bytes >= RESERVED_BYTES_MIN {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, reserve_bytes) {
            Ok(()) => return reserve_bytes,
            Err(Errno::INTR) => {}
            Err(_) => reserve_bytes /= 2,
        }
    }
    0
}
