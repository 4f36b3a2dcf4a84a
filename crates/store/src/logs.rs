//! The log files: listing and reading them.
//!
//! A file's name has its boot, its lane and its number; its head repeats them. A start reads the
//! files of earlier boots in the order of boots and does not change them; an incomplete last batch
//! is ignored. Invariant: only the very last batch of a lane's log may be incomplete; any other
//! missing or wrong part is damage.

use crate::layout::LOG;
use crate::log_name::LogName;
use crate::required_logs::{LogEnds, RequiredLogs};
use crate::{Store, StoreError, StoreFault, files, reserve};
use disk::{Fault, LOG_HEADER_BYTES, LogPosition, LogReader, Record};
use std::path::Path;
use wire::FsUuid;

/// What a start read from the logs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Replayed {
    /// Log files with records.
    pub file_count: u64,
    /// Their batches.
    pub batch_count: u64,
    /// Their records.
    pub record_count: u64,
    /// Records that were not yet in the rows.
    pub new_count: u64,
    /// Bytes of all batches.
    pub log_bytes: u64,
    /// Files whose last batch was incomplete and was ignored.
    pub torn_count: u64,
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

/// Removes unfinished log files of a crashed server: no batch was written to them yet.
pub(crate) fn remove_unfinished(path: &Path) -> Result<(), StoreError> {
    let folder = path.join(LOG);
    for name in files::names(&folder)? {
        if is_unfinished(&name) {
            files::remove(&folder.join(name))?;
        }
    }
    Ok(())
}

/// Whether a name is that of an unfinished log file.
fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(|name| LogName::parse(name).is_some())
}

/// The highest boot with a log, 0 without any.
pub(crate) fn boot_id_max(path: &Path) -> Result<u64, StoreError> {
    Ok(list(path)?.last().map_or(0, |log| log.boot_id))
}

/// The position in a lane's log of one boot.
#[derive(Default)]
struct Reading {
    log: Option<LogName>,
    /// Its last batch, 0 before the first.
    batch_no: u64,
    /// The end of that batch.
    end_offset: u64,
    /// The file of that batch.
    last: Option<LogName>,
    /// The durable ends of all lanes' logs, from its last trailer.
    places: Vec<LogPosition>,
}

/// The logs of a store, of boots before one.
#[derive(Clone, Copy)]
pub(crate) struct Logs<'a> {
    /// The store.
    pub(crate) path: &'a Path,
    pub(crate) fs: FsUuid,
    /// The first boot that is not read.
    pub(crate) boot_id_end: u64,
}

impl Logs<'_> {
    /// Reads every record that the rows may lack, of boots from this one on, in the order of boots
    /// and lanes. An incomplete last batch of a log is ignored.
    ///
    /// # Errors
    /// [`StoreError`] when a log is damaged, naming file and offset, when `visit` rejects a record,
    /// or when the file system refuses.
    pub(crate) fn replay(
        &self,
        first_boot_id: u64,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), Fault>,
    ) -> Result<Replayed, StoreError> {
        self.read_logs(first_boot_id, &mut visit, |_| ())
    }

    /// Compares the logs with the required ones, and visits their records. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError`] when one is damaged, missing, or cut short, or when `visit` rejects a record.
    pub(crate) fn check(
        &self,
        required: &RequiredLogs,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), Fault>,
    ) -> Result<(), StoreError> {
        required.check_files(self.path, &self.all()?)?;
        let mut found = LogEnds::new(required);
        self.read_logs(required.first_boot_id(), &mut visit, |reading| {
            if let Some(LogName { boot_id, lane, segment_no }) = reading.last {
                let end = LogPosition { segment_no, offset: reading.end_offset };
                let name = LogName { boot_id, lane, segment_no };
                found.end((boot_id, lane), end, &name.path(self.path), &reading.places);
            }
        })?;
        found.check(self.path)
    }

    /// Reads all logs from a boot on; `ended` is called for each log of a boot and lane with a
    /// batch.
    fn read_logs(
        &self,
        first_boot_id: u64,
        visit: &mut impl FnMut(&Record<'_>) -> Result<(), Fault>,
        mut ended: impl FnMut(&Reading),
    ) -> Result<Replayed, StoreError> {
        let mut replayed = Replayed::default();
        let mut reading = Reading::default();
        let mut logs = self.all()?;
        logs.retain(|log| log.boot_id >= first_boot_id);
        for log in logs {
            let same = |before: &LogName| (before.boot_id, before.lane) == (log.boot_id, log.lane);
            if !reading.log.as_ref().is_some_and(same) {
                ended(&std::mem::take(&mut reading));
            }
            self.replay_file(log, &mut reading, visit, &mut replayed)?;
        }
        ended(&reading);
        Ok(replayed)
    }

    pub(crate) fn all(&self) -> Result<Vec<LogName>, StoreError> {
        let mut logs = list(self.path)?;
        logs.retain(|log| log.boot_id < self.boot_id_end);
        Ok(logs)
    }

    fn replay_file(
        &self,
        log: LogName,
        reading: &mut Reading,
        visit: &mut impl FnMut(&Record<'_>) -> Result<(), Fault>,
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
        let file_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let mut batch_count = 0;
        while let Some(batch) = reader.next_batch().map_err(damage)? {
            if batch_count == 0 {
                self.check_follows(&log, reading, batch.head().batch_no)?;
            }
            for record in batch.records() {
                visit(&record).map_err(|fault| {
                    let fault = fault.in_file(&path.display().to_string(), batch.offset());
                    StoreError::damage(fault)
                })?;
                replayed.record_count += 1;
            }
            batch_count += 1;
        }
        let wanted = reader.trailer().map_or(0, |trailer| trailer.file_bytes).max(head.file_bytes);
        if file_bytes < wanted {
            let fault = Fault::new("the file was cut short", file_bytes);
            return Err(damage(fault.numbers(wanted, file_bytes)));
        }
        let head_bytes = u64::try_from(LOG_HEADER_BYTES).unwrap_or(u64::MAX);
        replayed.torn_count += u64::from(reader.is_torn());
        replayed.batch_count += batch_count;
        replayed.file_count += u64::from(batch_count > 0);
        replayed.log_bytes += reader.valid_bytes().saturating_sub(head_bytes);
        if batch_count > 0 {
            reading.batch_no = reader.batch_no();
            reading.end_offset = reader.valid_bytes();
            reading.last = Some(log.clone());
        }
        if let Some(trailer) = reader.trailer() {
            reading.places.clone_from(&trailer.places);
        }
        reading.log = Some(log);
        Ok(())
    }

    /// A file's first batch follows the last one of the file before: that one was durable before
    /// the lane continued, so it cannot be incomplete.
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
        if last.segment_no + 1 < log.segment_no {
            let missing = LogName { segment_no: last.segment_no + 1, ..log.clone() };
            let by = log.path(self.path);
            let fault = StoreFault::LogMissing { by };
            return Err(StoreError::new(&missing.path(self.path), fault));
        }
        let fault = Fault::new("a damaged batch in front of a later file", before.end_offset);
        let damage = StoreFault::Damage(fault.numbers(next_no, batch_no));
        Err(StoreError::new(&last.path(self.path), damage))
    }
}

impl Store {
    /// Reads every record that the rows may lack, of boots from this one to the one before the
    /// current, in the order of boots and lanes. An incomplete last batch of a log is ignored.
    ///
    /// # Errors
    /// [`StoreError`] when a log is damaged, naming file and offset, when `visit` rejects a record,
    /// or when the file system refuses.
    pub fn replay(
        &self,
        first_boot_id: u64,
        visit: impl FnMut(&Record<'_>) -> Result<(), Fault>,
    ) -> Result<Replayed, StoreError> {
        self.logs().replay(first_boot_id, visit)
    }

    pub(crate) fn logs(&self) -> Logs<'_> {
        let Self { path, superblock, boot_id, .. } = self;
        Logs { path, fs: superblock.fs, boot_id_end: *boot_id }
    }

    /// Removes the logs of earlier boots, whose records are all in the rows, durably.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn remove_earlier_logs(&self) -> Result<(), StoreError> {
        self.free_earlier_logs()?;
        reserve::fill(&self.path);
        Ok(())
    }

    /// The same, without making the reserve again.
    pub(crate) fn free_earlier_logs(&self) -> Result<(), StoreError> {
        for log in self.logs().all()? {
            files::remove(&log.path(&self.path))?;
        }
        files::sync_folder(&self.path.join(LOG))
    }
}
