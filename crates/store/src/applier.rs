//! The applier: a thread that reads the lanes' logs behind them and puts what they say into the rows.
//!
//! It never stops a lane and shares nothing with one but a few numbers. Invariants: only what is
//! durable in a log is applied; a log file is removed only when every record in it is durable in the
//! rows; a lane is told of a checkpoint only when it is durable.
//!
//! ```text
//! asleep ─ a lane wrote ─▶ collecting (a while, so that hot rows are written once)
//!    ▲                          │ or somebody cannot wait
//!    └── nothing is left ── round: read, gather, write durably, tell, remove files
//! ```

use crate::gathered::Gathered;
use crate::logs::{self, LogName, RESERVED_BYTES_MIN};
use crate::reserve;
use crate::rows::{Gathering, RowStore};
use crate::tail::{Tail, TailError};
use disk::LogHeader;
use disk::rows::{Key, LogRow, Rows as _, ShardRow};
use ring::feed::{Applier, Feed, LogPosition, RowReply, Segment};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::{FsUuid, LaneId, ShardId, Wire as _};

/// How long to wait after the medium failed, until it is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Log bytes of all lanes in one write of the rows.
const ROUND_BYTES_MAX: u64 = 8 << 20;
/// How far it stands back behind the lanes for a core.
const NICE: i32 = 5;

/// Takes a line for people.
pub type Alarm = Arc<dyn Fn(&str) + Send + Sync>;

/// What the applier works on.
pub(crate) struct Work {
    pub(crate) path: PathBuf,
    pub(crate) fs: FsUuid,
    pub(crate) boot_id: u64,
    /// No boot before this one has made a record.
    pub(crate) is_first: bool,
    pub(crate) cold: RowStore,
    pub(crate) applier: Arc<Applier>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) alarm: Alarm,
    /// How long records gather before they are applied.
    pub(crate) collect: Duration,
    /// Memory to gather in, while there is much to be applied.
    pub(crate) spare: Gathered,
    /// What failed last was said.
    pub(crate) complained: bool,
}

/// One lane's log, as far as it was applied.
pub(crate) struct Lane {
    pub(crate) feed: Feed,
    pub(crate) tail: Tail,
    /// The last of its files that was made.
    pub(crate) segment_no: u32,
    /// There was no space for another one; tried again when the lane has written.
    pub(crate) segment_refused: bool,
    /// The first of its files that is still there.
    pub(crate) first_segment_no: u32,
}

/// How far shards are.
type Reached = Vec<(ShardId, ShardRow)>;

/// What a round came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// There may be more.
    More,
    /// Everything durable is applied.
    Done,
    /// The medium failed; it may get better.
    Failed,
    /// A log is damaged: nothing is applied any more.
    Over,
}

impl Work {
    /// Works until the server ends.
    pub(crate) fn run(mut self) {
        self.applier.begin();
        // Lanes come first. Where that is not to be had, it goes without.
        rustix::process::nice(NICE).ok();
        loop {
            let stopping = self.stop.load(Ordering::SeqCst);
            self.give_segments();
            let round = self.round();
            match round {
                Round::More => continue,
                Round::Over => return self.wait_for_end(),
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

    /// The lanes have ended, and all they made durable is in the rows: no log is needed any more.
    fn end(&self) {
        let row = |lane: &Lane| LogRow { is_applied: true, ..self.log_row(lane, &lane.tail) };
        let rows: Vec<_> = self
            .lanes
            .iter()
            .map(|lane| (Key::log(lane.feed.lane()), row(lane).to_bytes()))
            .collect();
        if let Err(error) = self.cold.put(&rows) {
            (self.alarm)(&format!("{error}: the next start reads the logs again"));
        }
    }

    /// What there must be of a lane's log that was applied up to the end of `tail`.
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

    /// Sleeps until a lane writes, if none has.
    fn sleep(&self) {
        self.applier.fall_asleep();
        let news =
            |lane: &Lane| lane.tail.place() < lane.feed.durable() || lane.feed.wants_segment();
        while !self.lanes.iter().any(news)
            && !self.applier.is_urgent()
            && !self.stop.load(Ordering::SeqCst)
        {
            std::thread::park();
            self.applier.fall_asleep();
        }
        self.applier.wake_up();
    }

    /// Lets time pass, unless somebody cannot wait.
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

    /// Applies what is there, up to a bound.
    fn round(&mut self) -> Round {
        let mut tails: Vec<Tail> = self.lanes.iter().map(|lane| lane.tail.clone()).collect();
        let spare = std::mem::take(&mut self.spare);
        let gathered = self.gather(&mut tails, spare);
        let shards = match gathered {
            Ok(None) => return Round::Done,
            Ok(Some((shards, spare))) => {
                self.spare = spare;
                shards
            }
            Err(error) => return self.complain(error),
        };
        self.complained = false;
        for (index, tail) in tails.into_iter().enumerate() {
            let lane = &mut self.lanes[index];
            lane.tail = tail;
            lane.feed.set_freed(lane.tail.read_bytes());
            lane.feed.tell(shards[index].iter().map(|(shard, row)| {
                let ShardRow { lsn, transno, .. } = *row;
                RowReply::Checkpointed { shard: *shard, lsn, transno }
            }));
        }
        self.remove_files();
        Round::More
    }

    /// Reads on in every log and writes the rows. Which shards of each lane are how far, if anything
    /// was new.
    fn gather(
        &self,
        tails: &mut [Tail],
        spare: Gathered,
    ) -> Result<Option<(Vec<Reached>, Gathered)>, TailError> {
        let mut gathering = self.cold.gather(spare)?;
        let (mut round_bytes, mut shards, mut piece) = (0, Vec::new(), Vec::new());
        for (tail, lane) in tails.iter_mut().zip(&self.lanes) {
            let durable = lane.feed.durable();
            let start_bytes = tail.read_bytes();
            let mut touched = Vec::new();
            while tail.place() < durable
                && round_bytes + (tail.read_bytes() - start_bytes) < ROUND_BYTES_MAX
                && !gathering.is_full()
            {
                tail.read(durable, &mut piece, |record| {
                    if !touched.contains(&record.shard) {
                        touched.push(record.shard);
                    }
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
        let spare = gathering.write(&self.cold)?;
        Ok(Some((shards, spare)))
    }

    fn complain(&mut self, error: TailError) -> Round {
        match error {
            TailError::Io(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    (self.alarm)(&format!(
                        "the log cannot be applied to the rows in {}: {error}. The server goes on \
                         until its log is as long as it may get; make room or mend the disk",
                        self.cold.path().display()
                    ));
                }
                Round::Failed
            }
            TailError::Damage(fault) => {
                (self.alarm)(&format!(
                    "{fault}. What the server acknowledged is damaged on the disk; nothing is applied \
                     to the rows any more. Mend the disk under the store and bring the file back \
                     from a copy"
                ));
                Round::Over
            }
        }
    }

    /// Removes files whose every record is in the rows. What cannot be removed now is removed by the
    /// next start.
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

    /// Makes files to go on in for lanes that will need one. The rows know of each before its lane
    /// does.
    fn give_segments(&mut self) {
        for index in 0..self.lanes.len() {
            if !self.lanes[index].feed.wants_segment() {
                continue;
            }
            let made = self.make_segment(index);
            let lane = &mut self.lanes[index];
            match made {
                Ok(Some(segment)) => {
                    lane.segment_refused = false;
                    lane.feed.give_segment(segment);
                }
                // The log goes on in its file meanwhile, as far as there is space.
                Ok(None) => lane.segment_refused = true,
                Err(error) => {
                    if !std::mem::replace(&mut lane.segment_refused, true) {
                        (self.alarm)(&format!("a log file cannot be made: {error}"));
                    }
                }
            }
        }
    }

    /// A file for a lane to go on in, with as much space as there is; `None` without any.
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
        let made = logs::make(&self.path, &head, wanted_bytes.max(RESERVED_BYTES_MIN))?;
        let segment_no = head.segment_no;
        let name = LogName { boot_id: head.boot_id, lane: head.lane, segment_no };
        if made.reserved_bytes == 0 {
            crate::files::remove(&name.path(&self.path))?;
            return Ok(None);
        }
        lane.segment_no = segment_no;
        let lane = &self.lanes[index];
        let row = self.log_row(lane, &lane.tail);
        if self.cold.put(&[(Key::log(head.lane), row.to_bytes())]).is_err() {
            // The next round says why the rows cannot be written.
            self.lanes[index].segment_no -= 1;
            crate::files::remove(&name.path(&self.path))?;
            return Ok(None);
        }
        let logs::Creation { file, start_offset, reserved_bytes } = made;
        Ok(Some(Segment { file: OwnedFd::from(file), segment_no, start_offset, reserved_bytes }))
    }
}

fn rows_of(gathering: &Gathering<'_>, touched: &[ShardId]) -> Result<Reached, TailError> {
    let row = |shard: &ShardId| gathering.shard(*shard).map(|row| (*shard, row));
    touched.iter().map(row).collect::<Result<_, _>>().map_err(TailError::Damage)
}

impl Lane {
    /// A lane's log whose first file was just made.
    pub(crate) fn new(feed: Feed, (path, boot_id): (PathBuf, u64)) -> Self {
        let lane: LaneId = feed.lane();
        // From its beginning: the lane may have written to it already.
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
