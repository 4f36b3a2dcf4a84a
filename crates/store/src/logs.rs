//! The log files: which there are, what stands in them, and a new one for a lane.
//!
//! A file's name carries its boot and lane, its head says them again. Files of earlier boots are
//! read once, at a start, in the order of boots; a batch that was being written when the server died
//! is cut off, and files that hold nothing are removed.

use crate::{LOG, Store, StoreError, StoreFault, files};
use disk::{Fault, LOG_HEAD_BYTES, LogHead, LogReader, Record};
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use wire::LaneId;

/// What a start found in the logs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Replayed {
    /// Log files with records.
    pub file_count: u64,
    /// Batches in them.
    pub batch_count: u64,
    /// Records in those.
    pub record_count: u64,
    /// Bytes of all batches.
    pub log_bytes: u64,
    /// Files whose last batch was being written when the server died; it was cut off.
    pub torn_count: u64,
}

/// A log file by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct LogFile {
    boot_id: u64,
    lane: LaneId,
    path: PathBuf,
}

fn name_of(boot_id: u64, lane: LaneId) -> String {
    format!("{boot_id:016x}-{:04x}.log", lane.0)
}

fn parse(name: &str) -> Option<(u64, LaneId)> {
    let (boot, lane) = name.strip_suffix(".log")?.split_once('-')?;
    let parsed = (u64::from_str_radix(boot, 16).ok()?, LaneId(u16::from_str_radix(lane, 16).ok()?));
    (name == name_of(parsed.0, parsed.1)).then_some(parsed)
}

/// All log files, by boot and lane.
fn list(path: &Path) -> Result<Vec<LogFile>, StoreError> {
    let folder = path.join(LOG);
    let mut logs = Vec::new();
    for name in files::names(&folder)? {
        let path = folder.join(&name);
        let Some((boot_id, lane)) = parse(&name) else {
            return Err(StoreError::new(&folder, StoreFault::Foreign { name }));
        };
        logs.push(LogFile { boot_id, lane, path });
    }
    logs.sort_unstable();
    Ok(logs)
}

/// Removes what a server that died while making a log left behind: nothing was written to it yet.
pub(crate) fn remove_unfinished(path: &Path) -> Result<(), StoreError> {
    let folder = path.join(LOG);
    for name in files::names(&folder)? {
        if name.strip_suffix(".tmp").is_some_and(|name| parse(name).is_some()) {
            files::remove(&folder.join(name))?;
        }
    }
    Ok(())
}

/// The highest boot that left a log, 0 without any.
pub(crate) fn boot_id_max(path: &Path) -> Result<u64, StoreError> {
    Ok(list(path)?.last().map_or(0, |log| log.boot_id))
}

impl Store {
    /// Reads every record of every earlier boot, in the order of boots and lanes. A torn tail is cut
    /// off its file; files without a record are removed.
    ///
    /// # Errors
    /// [`StoreError`] when a log is damaged, naming file and offset, when `feed` finds fault with a
    /// record, or when the file system refuses. Files read until then may have been cut or removed;
    /// no record is.
    pub fn replay(
        &self,
        mut feed: impl FnMut(&Record<'_>) -> Result<(), Fault>,
    ) -> Result<Replayed, StoreError> {
        let mut replayed = Replayed::default();
        for log in list(&self.path)?.into_iter().filter(|log| log.boot_id < self.boot_id) {
            self.replay_file(&log, &mut feed, &mut replayed)?;
        }
        files::sync_folder(&self.path.join(LOG))?;
        Ok(replayed)
    }

    fn replay_file(
        &self,
        log: &LogFile,
        feed: &mut impl FnMut(&Record<'_>) -> Result<(), Fault>,
        replayed: &mut Replayed,
    ) -> Result<(), StoreError> {
        let damage = |fault| StoreError::new(&log.path, StoreFault::Damage(fault));
        let bytes = files::read(&log.path)?;
        let (head, mut reader) = LogReader::new(&bytes).map_err(damage)?;
        let named = (self.superblock.fs, log.boot_id, log.lane);
        if (head.fs, head.boot_id, head.lane) != named {
            return Err(damage(Fault::new("the log of another store, boot or lane", 16)));
        }
        let mut batch_count = 0;
        while let Some(batch) = reader.next_batch().map_err(damage)? {
            for record in batch.records() {
                feed(&record).map_err(|fault| damage(fault.behind(batch.offset())))?;
                replayed.record_count += 1;
            }
            batch_count += 1;
        }
        let head_bytes = u64::try_from(LOG_HEAD_BYTES).unwrap_or(u64::MAX);
        replayed.torn_count += u64::from(reader.is_torn());
        replayed.batch_count += batch_count;
        replayed.log_bytes += reader.valid_bytes().saturating_sub(head_bytes);
        if batch_count == 0 {
            return files::remove(&log.path);
        }
        replayed.file_count += 1;
        let file_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if reader.valid_bytes() == file_bytes {
            return Ok(());
        }
        cut(&log.path, reader.valid_bytes())
    }

    /// Makes the log file of a lane of this boot, durably. The descriptor is open for reading and
    /// writing; batches follow from the offset on, in bytes.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn new_log(&self, lane: LaneId, lane_count: u16) -> Result<(OwnedFd, u64), StoreError> {
        let path = self.path.join(LOG).join(name_of(self.boot_id, lane));
        let head = LogHead {
            fs: self.superblock.fs,
            boot_id: self.boot_id,
            lane,
            lane_count,
            segment_no: 0,
        }
        .encode();
        let file = files::place(&path, &head)?;
        Ok((OwnedFd::from(file), u64::try_from(head.len()).unwrap_or(u64::MAX)))
    }
}

/// Ends a file after its last whole batch, durably.
fn cut(path: &Path, valid_bytes: u64) -> Result<(), StoreError> {
    let cut = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(valid_bytes).and_then(|()| file.sync_all()));
    cut.map_err(|error| StoreError::io("cut the torn end off", path, error))
}
