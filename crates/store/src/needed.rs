//! What there must be of the logs, and whether it is there.
//!
//! The rows say of each lane's log which files were made and up to where it is applied. A log's head
//! says how long its file was made, and the trailer behind each batch how long it was then and how
//! far every lane's log was durable. Invariant: of what is said here nothing may be missing; what is
//! said nowhere is the end of the log that was written last, where it lies on the medium as if it had
//! never been written.

use crate::logs::LogName;
use crate::{StoreError, StoreFault};
use disk::rows::LogRow;
use disk::{LOG_HEADER_BYTES, LogPosition};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use wire::LaneId;

/// A boot and one of its lanes.
type Log = (u64, LaneId);

/// What there must be of the logs of the last boot that made some.
#[derive(Clone, Debug)]
pub struct Needed {
    /// The file of the rows.
    by: PathBuf,
    rows: BTreeMap<LaneId, LogRow>,
}

/// Who says up to where a log must be there.
struct Witness {
    place: LogPosition,
    by: PathBuf,
}

/// What was found of the logs, and what they say of each other.
pub(crate) struct Found {
    needed: Needed,
    witnesses: BTreeMap<Log, Witness>,
    /// Where each log ends, and its last file.
    ends: BTreeMap<Log, (LogPosition, PathBuf)>,
    /// A boot that made logs and that the rows do not know.
    later_boot_id: Option<u64>,
}

impl Needed {
    pub(crate) const fn new(by: PathBuf, rows: BTreeMap<LaneId, LogRow>) -> Self {
        Self { by, rows }
    }

    /// The last boot that made logs, 0 without one.
    #[must_use]
    pub fn boot_id(&self) -> u64 {
        self.rows.values().map(|row| row.boot_id).max().unwrap_or(0)
    }

    /// The rows have all of the logs of earlier boots; those of this one are needed.
    #[must_use]
    pub fn first_boot_id(&self) -> u64 {
        self.boot_id() + u64::from(self.is_applied())
    }

    /// Whether the rows have all of that boot's logs as well.
    fn is_applied(&self) -> bool {
        !self.rows.is_empty() && self.rows.values().all(|row| row.is_applied)
    }

    /// What the rows say when they have all of the logs.
    pub(crate) fn over(&self) -> impl Iterator<Item = (LaneId, LogRow)> {
        self.rows.iter().map(|(lane, row)| (*lane, LogRow { is_applied: true, ..*row }))
    }

    /// The files that must be there are.
    pub(crate) fn check_files(&self, path: &Path, logs: &[LogName]) -> Result<(), StoreError> {
        let there: BTreeSet<&LogName> = logs.iter().collect();
        for (lane, row) in self.rows.iter().filter(|(_, row)| !row.is_applied) {
            for segment_no in row.place.segment_no..=row.segment_no_last {
                let name = LogName { boot_id: row.boot_id, lane: *lane, segment_no };
                if !there.contains(&name) {
                    let by = self.by.clone();
                    return Err(StoreError::new(&name.path(path), StoreFault::LogMissing { by }));
                }
            }
        }
        Ok(())
    }
}

impl Found {
    pub(crate) fn new(needed: &Needed) -> Self {
        let witness = |(lane, row): (&LaneId, &LogRow)| {
            ((row.boot_id, *lane), Witness { place: row.place, by: needed.by.clone() })
        };
        let witnesses = needed.rows.iter().map(witness).collect();
        Self { needed: needed.clone(), witnesses, ends: BTreeMap::new(), later_boot_id: None }
    }

    /// A log was read up to here, the last of its files being `file`. Its last trailer says that
    /// `places` of all lanes were durable.
    pub(crate) fn end(&mut self, log: Log, end: LogPosition, file: &Path, places: &[LogPosition]) {
        // The rows know of a boot's logs before anything is written to them.
        if log.0 > self.needed.boot_id() {
            self.later_boot_id = Some(log.0);
        }
        self.ends.insert(log, (end, file.to_owned()));
        for (lane, place) in (0..).map(LaneId).zip(places) {
            let witness = Witness { place: *place, by: file.to_owned() };
            let known = self.witnesses.get(&(log.0, lane));
            if known.is_none_or(|known| known.place < witness.place) {
                self.witnesses.insert((log.0, lane), witness);
            }
        }
    }

    /// Each log that is needed goes on to where it was durable.
    pub(crate) fn check(&self, path: &Path) -> Result<(), StoreError> {
        if let Some(log) = self.later_boot_id {
            let fault = StoreFault::WentBack { rows: self.needed.boot_id(), log, what: "boot" };
            return Err(StoreError::new(&self.needed.by, fault));
        }
        for (lane, row) in self.needed.rows.iter().filter(|(_, row)| !row.is_applied) {
            let log = (row.boot_id, *lane);
            let Some(witness) = self.witnesses.get(&log) else { continue };
            let none = || {
                let segment_no = row.place.segment_no;
                let name = LogName { boot_id: row.boot_id, lane: *lane, segment_no };
                let offset = u64::try_from(LOG_HEADER_BYTES).unwrap_or(0);
                (LogPosition { segment_no, offset }, name.path(path))
            };
            let (end, file) = self.ends.get(&log).cloned().unwrap_or_else(none);
            if end < witness.place {
                let (durable, by) = (witness.place, witness.by.clone());
                return Err(StoreError::new(&file, StoreFault::LogShort { end, durable, by }));
            }
        }
        Ok(())
    }
}
