//! The log files: which there are, what stands in them, and new ones for a lane.
//!
//! A file's name carries its boot, its lane and which of the lane's files it is; its head says them
//! again. Files of earlier boots are read once, at a start, in the order of boots; a batch that was
//! being written when the server died is cut off. Invariant: only the very last batch of a lane's
//! log may be incomplete; whatever else is missing or wrong in it is damage.

use crate::{LOG, Store, StoreError, StoreFault, files, reserve};
use disk::{Fault, LOG_HEAD_BYTES, LogHead, LogReader, Record};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use wire::{FsUuid, LaneId};

/// What a start found in the logs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Replayed {
    /// Log files with records.
    pub file_count: u64,
    /// Batches in them.
    pub batch_count: u64,
    /// Records in those.
    pub record_count: u64,
    /// Of them, those that the rows did not have yet.
    pub new_count: u64,
    /// Bytes of all batches.
    pub log_bytes: u64,
    /// Files whose last batch was being written when the server died; it was cut off.
    pub torn_count: u64,
}

/// A log file by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LogName {
    pub(crate) boot_id: u64,
    pub(crate) lane: LaneId,
    pub(crate) segment_no: u32,
}

impl LogName {
    fn text(&self) -> String {
        let Self { boot_id, lane, segment_no } = self;
        format!("{boot_id:016x}-{:04x}-{segment_no:08x}.log", lane.0)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(".log")?.split('-');
        let (boot, lane, segment) = (parts.next()?, parts.next()?, parts.next()?);
        let parsed = Self {
            boot_id: u64::from_str_radix(boot, 16).ok()?,
            lane: LaneId(u16::from_str_radix(lane, 16).ok()?),
            segment_no: u32::from_str_radix(segment, 16).ok()?,
        };
        (text == parsed.text()).then_some(parsed)
    }

    /// In the store at `path`.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        path.join(LOG).join(self.text())
    }
}

/// All log files, by boot, lane and number.
fn list(path: &Path) -> Result<Vec<LogName>, StoreError> {
    let folder = path.join(LOG);
    let mut logs = Vec::new();
    for name in files::names(&folder)? {
        if is_unfinished(&name) {
            continue;
        }
        let Some(log) = LogName::parse(&name) else {
            return Err(StoreError::new(&folder, StoreFault::Foreign { name }));
        };
        logs.push(log);
    }
    logs.sort_unstable();
    Ok(logs)
}

/// Removes what a server that died while making a log left behind: nothing was written to it yet.
pub(crate) fn remove_unfinished(path: &Path) -> Result<(), StoreError> {
    let folder = path.join(LOG);
    for name in files::names(&folder)? {
        if is_unfinished(&name) {
            files::remove(&folder.join(name))?;
        }
    }
    Ok(())
}

/// Whether a name in the folder is that of a log that was being made: no batch was written to it.
fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(|name| LogName::parse(name).is_some())
}

/// The highest boot that left a log, 0 without any.
pub(crate) fn boot_id_max(path: &Path) -> Result<u64, StoreError> {
    Ok(list(path)?.last().map_or(0, |log| log.boot_id))
}

/// How far a lane's log of one boot was read.
#[derive(Default)]
struct Reading {
    log: Option<LogName>,
    /// Its last batch, 0 before the first.
    batch_no: u64,
    end_offset: u64,
}

/// What is done about the incomplete last batch of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Torn {
    /// It is cut off its file.
    Cut,
    /// It stays; its file is not changed.
    Leave,
}

/// The logs of a store.
#[derive(Clone, Copy)]
pub(crate) struct Logs<'a> {
    /// The store.
    pub(crate) path: &'a Path,
    pub(crate) fs: FsUuid,
    pub(crate) torn: Torn,
}

impl Logs<'_> {
    /// Reads every record of every boot before `boot_id`, in the order of boots and lanes.
    pub(crate) fn replay(
        &self,
        boot_id: u64,
        mut feed: impl FnMut(&Record<'_>) -> Result<(), Fault>,
    ) -> Result<Replayed, StoreError> {
        let mut replayed = Replayed::default();
        let mut reading = Reading::default();
        for log in self.before(boot_id)? {
            let same = |before: &LogName| (before.boot_id, before.lane) == (log.boot_id, log.lane);
            if !reading.log.as_ref().is_some_and(same) {
                reading = Reading::default();
            }
            self.replay_file(log, &mut reading, &mut feed, &mut replayed)?;
        }
        Ok(replayed)
    }

    fn before(&self, boot_id: u64) -> Result<Vec<LogName>, StoreError> {
        let mut logs = list(self.path)?;
        logs.retain(|log| log.boot_id < boot_id);
        Ok(logs)
    }

    fn replay_file(
        &self,
        log: LogName,
        reading: &mut Reading,
        feed: &mut impl FnMut(&Record<'_>) -> Result<(), Fault>,
        replayed: &mut Replayed,
    ) -> Result<(), StoreError> {
        let path = log.path(self.path);
        let damage = |fault| StoreError::new(&path, StoreFault::Damage(fault));
        let bytes = files::read(&path)?;
        let (head, mut reader) = LogReader::new(&bytes).map_err(damage)?;
        let named = (self.fs, log.boot_id, log.lane, log.segment_no);
        if (head.fs, head.boot_id, head.lane, head.segment_no) != named {
            return Err(damage(Fault::new("the log of another store, boot or lane", 16)));
        }
        let mut batch_count = 0;
        while let Some(batch) = reader.next_batch().map_err(damage)? {
            if batch_count == 0 {
                self.check_follows(&log, reading, batch.head().batch_no)?;
            }
            for record in batch.records() {
                feed(&record).map_err(|fault| damage(fault.behind(batch.offset())))?;
                replayed.record_count += 1;
            }
            batch_count += 1;
        }
        let head_bytes = u64::try_from(LOG_HEAD_BYTES).unwrap_or(u64::MAX);
        replayed.torn_count += u64::from(reader.is_torn());
        replayed.batch_count += batch_count;
        replayed.file_count += u64::from(batch_count > 0);
        replayed.log_bytes += reader.valid_bytes().saturating_sub(head_bytes);
        let batch_no = reader.batch_no().max(reading.batch_no);
        *reading = Reading { log: Some(log), batch_no, end_offset: reader.valid_bytes() };
        let file_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if reader.valid_bytes() == file_bytes || self.torn == Torn::Leave {
            return Ok(());
        }
        cut(&path, reader.valid_bytes())
    }

    /// A file's first batch follows the last one of the file before: that one was durable before the
    /// lane went on, so nothing behind it was torn.
    fn check_follows(
        &self,
        log: &LogName,
        before: &Reading,
        batch_no: u64,
    ) -> Result<(), StoreError> {
        let Some(last) = &before.log else { return Ok(()) };
        let next_no = before.batch_no + 1;
        if last.segment_no + 1 == log.segment_no && next_no == batch_no {
            return Ok(());
        }
        let fault = Fault::new("a damaged batch in front of a later file", before.end_offset);
        let damage = StoreFault::Damage(fault.numbers(next_no, batch_no));
        Err(StoreError::new(&last.path(self.path), damage))
    }
}

impl Store {
    /// Reads every record of every earlier boot, in the order of boots and lanes. A torn tail is cut
    /// off its file.
    ///
    /// # Errors
    /// [`StoreError`] when a log is damaged, naming file and offset, when `feed` finds fault with a
    /// record, or when the file system refuses. Files read until then may have been cut; no record
    /// is.
    pub fn replay(
        &self,
        feed: impl FnMut(&Record<'_>) -> Result<(), Fault>,
    ) -> Result<Replayed, StoreError> {
        self.logs().replay(self.boot_id, feed)
    }

    /// Removes the logs of earlier boots, whose every record is elsewhere, durably.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn remove_earlier_logs(&self) -> Result<(), StoreError> {
        for log in self.logs().before(self.boot_id)? {
            files::remove(&log.path(&self.path))?;
        }
        files::sync_folder(&self.path.join(LOG))?;
        reserve::fill(&self.path);
        Ok(())
    }

    fn logs(&self) -> Logs<'_> {
        Logs { path: &self.path, fs: self.superblock.fs, torn: Torn::Cut }
    }

    /// Makes a log file of a lane of this boot, durably. It is open for reading and writing; batches
    /// follow from the offset on, in bytes.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn new_log(&self, lane: LaneId, lane_count: u16) -> Result<(File, u64), StoreError> {
        let head = LogHead {
            fs: self.superblock.fs,
            boot_id: self.boot_id,
            lane,
            lane_count,
            segment_no: 1,
        };
        make(&self.path, &head)
    }
}

/// Makes a log file, durably.
pub(crate) fn make(path: &Path, head: &LogHead) -> Result<(File, u64), StoreError> {
    let LogHead { boot_id, lane, segment_no, .. } = *head;
    let bytes = head.encode();
    let file = files::place(&LogName { boot_id, lane, segment_no }.path(path), &bytes)?;
    Ok((file, u64::try_from(bytes.len()).unwrap_or(u64::MAX)))
}

/// Ends a file after its last whole batch, durably.
fn cut(path: &Path, valid_bytes: u64) -> Result<(), StoreError> {
    let cut = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(valid_bytes).and_then(|()| file.sync_all()));
    cut.map_err(|error| StoreError::io("cut the torn end off", path, error))
}
