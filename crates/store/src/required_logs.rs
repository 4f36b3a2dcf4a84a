//! The logs that a store must have, and whether they are complete.
//!
//! The rows record for each lane's log which files were made and up to where it is applied. A log's
//! head has the length of its file, and the trailer of each batch the length at that time and the
//! durable end of every lane's log. Invariant: nothing that these records name may be missing; the
//! end of the last log beyond them is indistinguishable from bytes never written.

use crate::log_name::LogName;
use crate::{StoreError, StoreFault};
use disk::rows::LogRow;
use disk::{LOG_HEADER_BYTES, LogPosition};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use wire::LaneId;

/// A boot and one of its lanes.
type Log = (u64, LaneId);

/// The required logs of the last boot that made some.
#[derive(Clone, Debug)]
pub struct RequiredLogs {
    /// The file of the rows.
    by: PathBuf,
    rows: BTreeMap<LaneId, LogRow>,
}

/// A durable end of a log, and the file that names it.
struct DurableEnd {
    place: LogPosition,
    by: PathBuf,
}

/// The logs that were found, and the durable ends that they name.
pub(crate) struct LogEnds {
    required: RequiredLogs,
    durable_ends: BTreeMap<Log, DurableEnd>,
    /// The end of each log, and its last file.
    ends: BTreeMap<Log, (LogPosition, PathBuf)>,
    /// A boot with logs that is not in the rows.
    later_boot_id: Option<u64>,
}

impl RequiredLogs {
    pub(crate) const fn new(by: PathBuf, rows: BTreeMap<LaneId, LogRow>) -> Self {
        Self { by, rows }
    }

    /// The last boot that made logs, 0 without one.
    #[must_use]
    pub fn boot_id(&self) -> u64 {
        self.rows.values().map(|row| row.boot_id).max().unwrap_or(0)
    }

    /// The first boot whose logs are required: all records of earlier boots are in the rows.
    #[must_use]
    pub fn first_boot_id(&self) -> u64 {
        self.boot_id() + u64::from(self.is_applied())
    }

    /// Whether all records of that boot's logs are in the rows as well.
    fn is_applied(&self) -> bool {
        !self.rows.is_empty() && self.rows.values().all(|row| row.is_applied)
    }

    /// The rows when all records of the logs are in them.
    pub(crate) fn over(&self) -> impl Iterator<Item = (LaneId, LogRow)> {
        self.rows.iter().map(|(lane, row)| (*lane, LogRow { is_applied: true, ..*row }))
    }

    /// Checks that all required files exist.
    pub(crate) fn check_files(&self, path: &Path, logs: &[LogName]) -> Result<(), StoreError> {
        let existing: BTreeSet<&LogName> = logs.iter().collect();
        for (lane, row) in self.rows.iter().filter(|(_, row)| !row.is_applied) {
            for segment_no in row.place.segment_no..=row.segment_no_last {
                let name = LogName { boot_id: row.boot_id, lane: *lane, segment_no };
                if !existing.contains(&name) {
                    let by = self.by.clone();
                    return Err(StoreError::new(&name.path(path), StoreFault::LogMissing { by }));
                }
            }
        }
        Ok(())
    }
}

impl LogEnds {
    pub(crate) fn new(required: &RequiredLogs) -> Self {
        let durable_end = |(lane, row): (&LaneId, &LogRow)| {
            ((row.boot_id, *lane), DurableEnd { place: row.place, by: required.by.clone() })
        };
        let durable_ends = required.rows.iter().map(durable_end).collect();
        Self {
            required: required.clone(),
            durable_ends,
            ends: BTreeMap::new(),
            later_boot_id: None,
        }
    }

    /// Records the end of a log, whose last file is `file`. Its last trailer names `places`, the
    /// durable ends of all lanes' logs.
    pub(crate) fn end(&mut self, log: Log, end: LogPosition, file: &Path, places: &[LogPosition]) {
        // The rows name a boot's logs before anything is written to them.
        if log.0 > self.required.boot_id() {
            self.later_boot_id = Some(log.0);
        }
        self.ends.insert(log, (end, file.to_owned()));
        for (lane, place) in (0..).map(LaneId).zip(places) {
            let durable_end = DurableEnd { place: *place, by: file.to_owned() };
            let known = self.durable_ends.get(&(log.0, lane));
            if known.is_none_or(|known| known.place < durable_end.place) {
                self.durable_ends.insert((log.0, lane), durable_end);
            }
        }
    }

    /// Checks that each required log reaches its durable end.
    pub(crate) fn check(&self, path: &Path) -> Result<(), StoreError> {
        if let Some(log) = self.later_boot_id {
            let fault = StoreFault::RolledBack { rows: self.required.boot_id(), log, what: "boot" };
            return Err(StoreError::new(&self.required.by, fault));
        }
        for (lane, row) in self.required.rows.iter().filter(|(_, row)| !row.is_applied) {
            let log = (row.boot_id, *lane);
            let Some(durable_end) = self.durable_ends.get(&log) else { continue };
            let none = || {
                let segment_no = row.place.segment_no;
                let name = LogName { boot_id: row.boot_id, lane: *lane, segment_no };
                let offset = u64::try_from(LOG_HEADER_BYTES).unwrap_or(0);
                (LogPosition { segment_no, offset }, name.path(path))
            };
            let (end, file) = self.ends.get(&log).cloned().unwrap_or_else(none);
            if end < durable_end.place {
                let (durable, by) = (durable_end.place, durable_end.by.clone());
                return Err(StoreError::new(&file, StoreFault::LogShort { end, durable, by }));
            }
        }
        Ok(())
    }
}
