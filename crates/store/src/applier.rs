//! The applier: a thread that reads the lanes' logs and applies their records to the rows.
//!
//! It never blocks a lane and shares only a few numbers with it. Invariants: only durable records
//! are applied; objects are durable before the rows have records with bytes of them; a log file is removed only when all its records are durable in the rows; a lane
//! learns of a checkpoint only when it is durable.
//!
//! ```text
//! asleep ─ a lane wrote ─▶ collecting (for a while, so that hot rows are written once)
//!    ▲                          │ or a lane's log gets long
//!    └── nothing is left ── round: read, gather, sync objects, write durably, report, remove files
//! ```

use crate::gathered::Gathered;
use crate::log_name::LogName;
use crate::logged::sync_all;
use crate::new_logs::{Creation, RESERVED_BYTES_MIN, make};
use crate::reserve;
use crate::rows::{Gathering, RowStore};
use crate::tail::{Tail, TailError};
use disk::rows::{Key, LogRow, Rows as _, ShardRow};
use disk::{LogHeader, has_logged};
use ring::feed::{Applier, Feed, LogPosition, RowReply, Segment};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::{FsUuid, LaneId, ShardId, Wire as _};

/// How long to wait after an error of the medium before the next attempt.
const RETRY: Duration = Duration::from_secs(5);
/// The most log bytes, of all lanes, in one write of the rows.
const ROUND_BYTES_MAX: u64 = 8 << 20;
/// The thread's nice value: lanes have priority.
const NICE: i32 = 5;

/// Called with a line for the operator.
pub type Alarm = Arc<dyn Fn(&str) + Send + Sync>;

/// The applier's state.
pub(crate) struct Work {
    pub(crate) path: PathBuf,
    pub(crate) fs: FsUuid,
    pub(crate) boot_id: u64,
    /// No earlier boot has made a record.
    pub(crate) is_first: bool,
    pub(crate) row_store: RowStore,
    /// The objects' folder, open since before the first record of this boot.
    pub(crate) objects: File,
    pub(crate) applier: Arc<Applier>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) alarm: Alarm,
    /// How long to collect records before they are applied.
    pub(crate) collect: Duration,
    /// Memory for gathered rows, reused between rounds.
    pub(crate) spare: Gathered,
    /// The current error was reported.
    pub(crate) error_reported: bool,
}

/// One lane's log, and how far it is applied.
pub(crate) struct Lane {
    pub(crate) feed: Feed,
    pub(crate) tail: Tail,
    /// The last of its files.
    pub(crate) segment_no: u32,
    /// There was no space for another file; tried again when the lane has written.
    pub(crate) segment_refused: bool,
    /// The first of its files that still exists.
    pub(crate) first_segment_no: u32,
}

/// The shards that a round touched, and how far they are applied.
type Applied = Vec<(ShardId, ShardRow)>;

/// The result of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// There may be more records.
    More,
    /// There may be more records, and objects were synced: others wait until some have gathered.
    Synced,
    /// All durable records are applied.
    Done,
    /// An error of the medium; the round is repeated later.
    Failed,
    /// A log is damaged, or objects cannot be made durable: no further record is applied.
    Ended,
}

impl Work {
    /// Runs until the server ends.
    pub(crate) fn run(mut self) {
        self.applier.begin();
        // Lanes have priority. If that is not permitted, it runs without.
        rustix::process::nice(NICE).ok();
        loop {
            let stopping = self.stop.load(Ordering::SeqCst);
            self.provide_segments();
            let round = self.round();
            match round {
                Round::More => continue,
                Round::Synced if stopping => continue,
                Round::Synced => self.rest(self.collect),
                Round::Ended => return self.wait_for_end(),
                Round::Done if stopping => return self.end(),
                Round::Failed if stopping => return,
                Round::Failed => self.rest(RETRY),
                Round::Done => {
                    reserve::fill(&self.path);
                    self.sleep();
                    self.rest(self.collect);
                }
            }
        }
    }

    /// The lanes have ended. A log of which all durable records are in the rows is not needed any more.
    fn end(&self) {
        let row = |lane: &Lane| {
            let is_applied = lane.tail.place() >= lane.feed.durable();
            LogRow { is_applied, ..self.log_row(lane, &lane.tail) }
        };
        let rows: Vec<_> = self
            .lanes
            .iter()
            .map(|lane| (Key::log(lane.feed.lane()), row(lane).to_bytes()))
            .collect();
        if let Err(error) = self.row_store.put(&rows) {
            (self.alarm)(&format!("{error}: the next start reads the logs again"));
        }
    }

    /// The row of a lane's log that is applied up to the end of `tail`.
    fn log_row(&self, lane: &Lane, tail: &Tail) -> LogRow {
        LogRow {
            boot_id: self.boot_id,
            lane_count: u16::try_from(self.lanes.len()).unwrap_or(u16::MAX),
            segment_no_last: lane.segment_no,
            place: tail.place(),
            batch_no: tail.batch_no(),
            is_applied: false,
        }
    }

    /// Sleeps until a lane has written.
    fn sleep(&self) {
        self.applier.fall_asleep();
        let news = |lane: &Lane| lane.tail.place() < lane.feed.ready() || lane.feed.needs_segment();
        while !self.lanes.iter().any(news)
            && !self.applier.is_urgent()
            && !self.stop.load(Ordering::SeqCst)
        {
            std::thread::park();
            self.applier.fall_asleep();
        }
        self.applier.wake_up();
    }

    /// Waits for `time`, or until a lane's log gets long.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.applier.take_urgent() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stop.load(Ordering::SeqCst) {
                return;
            }
            std::thread::park_timeout(left);
        }
    }

    fn wait_for_end(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            std::thread::park();
        }
    }

    /// Applies the available records, up to a limit.
    fn round(&mut self) -> Round {
        let mut tails: Vec<Tail> = self.lanes.iter().map(|lane| lane.tail.clone()).collect();
        let spare = std::mem::take(&mut self.spare);
        let gathered = self.gather(&mut tails, spare);
        let (shards, synced) = match gathered {
            Ok(None) => return Round::Done,
            Ok(Some((shards, spare, synced))) => {
                self.spare = spare;
                (shards, synced)
            }
            Err(error) => return self.report_error(error),
        };
        self.error_reported = false;
        for (index, tail) in tails.into_iter().enumerate() {
            let lane = &mut self.lanes[index];
            lane.tail = tail;
            lane.feed.set_freed(lane.tail.read_bytes());
            lane.feed.notify(shards[index].iter().map(|(shard, row)| {
                let ShardRow { lsn, transno, .. } = *row;
                RowReply::Checkpointed { shard: *shard, lsn, transno }
            }));
        }
        self.remove_files();
        if synced { Round::Synced } else { Round::More }
    }

    /// Reads further in every log and writes the rows. Returns how far the touched shards of each
    /// lane are, if there were new records, and whether objects were synced.
    fn gather(
        &self,
        tails: &mut [Tail],
        spare: Gathered,
    ) -> Result<Option<(Vec<Applied>, Gathered, bool)>, TailError> {
        let mut gathering = self.row_store.gather(spare)?;
        let (mut round_bytes, mut shards, mut piece) = (0, Vec::new(), Vec::new());
        let mut logged = false;
        if self.lanes.iter().any(|lane| lane.feed.has_failed_contents()) {
            return Err(TailError::Objects(io::Error::other("a write failed")));
        }
        for (tail, lane) in tails.iter_mut().zip(&self.lanes) {
            let ready = lane.feed.ready();
            let start_bytes = tail.read_bytes();
            let mut touched = Vec::new();
            while tail.place() < ready
                && round_bytes + (tail.read_bytes() - start_bytes) < ROUND_BYTES_MAX
                && !gathering.is_full()
            {
                tail.read(ready, &mut piece, |record| {
                    if !touched.contains(&record.shard) {
                        touched.push(record.shard);
                    }
                    logged = logged || has_logged(record)?;
                    gathering.apply(record).map(drop)
                })?;
            }
            round_bytes += tail.read_bytes() - start_bytes;
            shards.push(rows_of(&gathering, &touched)?);
        }
        if round_bytes == 0 {
            return Ok(None);
        }
        for (tail, lane) in tails.iter().zip(&self.lanes) {
            let key = Key::log(lane.feed.lane());
            gathering.put(key.bytes(), &self.log_row(lane, tail).to_bytes());
        }
        if logged {
            sync_all(&self.objects).map_err(TailError::Objects)?;
        }
        let spare = gathering.write(&self.row_store)?;
        Ok(Some((shards, spare, logged)))
    }

    fn report_error(&mut self, error: TailError) -> Round {
        match error {
            TailError::Io(error) => {
                if !std::mem::replace(&mut self.error_reported, true) {
                    (self.alarm)(&format!(
                        "the log cannot be applied to the rows in {}: {error}. The server \
                         continues until its log has its greatest length; free some space or \
                         repair the disk",
                        self.row_store.path().display()
                    ));
                }
                Round::Failed
            }
            TailError::Objects(error) => {
                (self.alarm)(&format!(
                    "contents of files cannot be made durable: {error}. The logs have what clients \
                     have synced, and are kept: no further record is applied to the rows. Repair the \
                     disk under the store and start the server again"
                ));
                Round::Ended
            }
            TailError::Damage(fault) => {
                (self.alarm)(&format!(
                    "{fault}. A change that the server acknowledged is damaged on the disk; no \
                     further record is applied to the rows. Repair the disk under the store and \
                     restore the file from a copy"
                ));
                Round::Ended
            }
        }
    }

    /// Removes files whose records are all in the rows. The next start removes the files that
    /// cannot be removed now.
    fn remove_files(&mut self) {
        for lane in &mut self.lanes {
            drop(lane.feed.take_retired());
            while lane.first_segment_no < lane.tail.place().segment_no {
                let name = LogName {
                    boot_id: self.boot_id,
                    lane: lane.feed.lane(),
                    segment_no: lane.first_segment_no,
                };
                if let Err(error) = std::fs::remove_file(name.path(&self.path)) {
                    (self.alarm)(&format!("cannot remove a log file: {error}"));
                }
                lane.first_segment_no += 1;
            }
        }
    }

    /// Makes the next log file for lanes that will need one. The rows name each file before its
    /// lane uses it.
    fn provide_segments(&mut self) {
        for index in 0..self.lanes.len() {
            if !self.lanes[index].feed.needs_segment() {
                continue;
            }
            let made = self.make_segment(index);
            let lane = &mut self.lanes[index];
            match made {
                Ok(Some(segment)) => {
                    lane.segment_refused = false;
                    lane.feed.set_next_segment(segment);
                }
                // The lane continues in its current file, as far as there is space.
                Ok(None) => lane.segment_refused = true,
                Err(error) => {
                    if !std::mem::replace(&mut lane.segment_refused, true) {
                        (self.alarm)(&format!("a log file cannot be made: {error}"));
                    }
                }
            }
        }
    }

    /// The next log file of a lane, with as much reserved space as possible; `None` without any.
    fn make_segment(&mut self, index: usize) -> Result<Option<Segment>, crate::StoreError> {
        let lane_count = u16::try_from(self.lanes.len()).unwrap_or(u16::MAX);
        let lane = &mut self.lanes[index];
        let head = LogHeader {
            fs: self.fs,
            boot_id: self.boot_id,
            lane: lane.feed.lane(),
            lane_count,
            segment_no: lane.segment_no + 1,
            file_bytes: 0,
            is_first: self.is_first,
        };
        let start_bytes = u64::try_from(disk::LOG_HEADER_BYTES).unwrap_or(u64::MAX);
        let wanted_bytes = lane.feed.file_bytes().saturating_sub(start_bytes);
        let made = make(&self.path, &head, wanted_bytes.max(RESERVED_BYTES_MIN))?;
        let segment_no = head.segment_no;
        let name = LogName { boot_id: head.boot_id, lane: head.lane, segment_no };
        if made.reserved_bytes == 0 {
            crate::files::remove(&name.path(&self.path))?;
            return Ok(None);
        }
        lane.segment_no = segment_no;
        let lane = &self.lanes[index];
        let row = self.log_row(lane, &lane.tail);
        if self.row_store.put(&[(Key::log(head.lane), row.to_bytes())]).is_err() {
            // The next round reports why the rows cannot be written.
            self.lanes[index].segment_no -= 1;
            crate::files::remove(&name.path(&self.path))?;
            return Ok(None);
        }
        let Creation { file, start_offset, reserved_bytes } = made;
        Ok(Some(Segment { file: OwnedFd::from(file), segment_no, start_offset, reserved_bytes }))
    }
}

fn rows_of(gathering: &Gathering<'_>, touched: &[ShardId]) -> Result<Applied, TailError> {
    let row = |shard: &ShardId| gathering.shard(*shard).map(|row| (*shard, row));
    touched.iter().map(row).collect::<Result<_, _>>().map_err(TailError::Damage)
}

impl Lane {
    /// A lane's log whose first file was just made.
    pub(crate) fn new(feed: Feed, (path, boot_id): (PathBuf, u64)) -> Self {
        let lane: LaneId = feed.lane();
        // From the beginning: the lane may have written to it already.
        let offset = u64::try_from(disk::LOG_HEADER_BYTES).unwrap_or(u64::MAX);
        let tail = Tail::new(path, boot_id, lane, LogPosition { segment_no: 1, offset });
        Self { feed, tail, segment_no: 1, segment_refused: false, first_segment_no: 1 }
    }
}

impl From<io::Error> for TailError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
