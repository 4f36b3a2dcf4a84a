//! The threads of an open store: the one that applies logs, and those that read rows for lanes.

use crate::applier::{Alarm, Lane, Work};
use crate::gathered::Gathered;
use crate::rows::RowStore;
use crate::{Store, StoreError};
use bind_lmdb::Table;
use interface::Errno;
use ring::Waker;
use ring::feed::{Applier, Feed, LogLengths, LogPosition, RowQueries, RowQuery, RowReply};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::LaneId;

/// Threads that read rows.
const READER_COUNT: usize = 2;
/// EIO.
const IO: Errno = Errno(5);

/// How far the rows may stay behind the logs.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Of each lane's log.
    pub lengths: LogLengths,
    /// How long records gather, so that rows that change often are written once.
    pub collect: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { lengths: LogLengths::default(), collect: Duration::from_secs(1) }
    }
}

/// What is needed before lanes are there.
pub struct Keeper {
    applier: Arc<Applier>,
    asks: Arc<RowQueries>,
    cold: RowStore,
    feeds: Vec<Feed>,
    pace: Pace,
}

/// Running threads; they end when this is told to.
pub struct Keeping {
    applier: Arc<Applier>,
    asks: Arc<RowQueries>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    /// For so many lanes, which are still to come.
    #[must_use]
    pub fn new(cold: RowStore, pace: Pace, lane_count: u16) -> Self {
        let (applier, asks) = (Arc::new(Applier::new(lane_count)), Arc::default());
        Self { applier, asks, cold, feeds: Vec::new(), pace }
    }

    /// The feed of the next lane, whose log's first file begins at `start_offset`.
    pub fn feed(&mut self, waker: Waker, start_offset: u64) -> Feed {
        let start = LogPosition { segment_no: 1, offset: start_offset };
        let (applier, asks) = (Arc::clone(&self.applier), Arc::clone(&self.asks));
        let feed = Feed::new(waker, start, self.pace.lengths, applier, asks);
        self.feeds.push(feed.clone());
        feed
    }

    /// Starts the threads. `alarm` is called with what somebody must know.
    ///
    /// # Errors
    /// [`StoreError`] when there are no threads to be had.
    pub fn start(self, store: &Store, alarm: Alarm) -> Result<Keeping, StoreError> {
        let stop = Arc::new(AtomicBool::new(false));
        let place = (store.path().to_owned(), store.boot_id());
        let work = Work {
            path: store.path().to_owned(),
            fs: store.superblock().fs,
            boot_id: store.boot_id(),
            is_first: self.cold.store_row()?.first_boot_id == store.boot_id(),
            cold: self.cold.clone(),
            applier: Arc::clone(&self.applier),
            lanes: self.feeds.iter().map(|feed| Lane::new(feed.clone(), place.clone())).collect(),
            stop: Arc::clone(&stop),
            alarm: Arc::clone(&alarm),
            collect: self.pace.collect,
            spare: Gathered::default(),
            complained: false,
        };
        let io = |error| StoreError::io("start a thread for", store.path(), error);
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let mut threads = vec![named("applier").spawn(move || work.run()).map_err(io)?];
        let feeds: BTreeMap<LaneId, Feed> =
            self.feeds.into_iter().map(|feed| (feed.lane(), feed)).collect();
        // What is damaged is said once.
        let said = Arc::new(AtomicBool::new(false));
        for _ in 0..READER_COUNT {
            let (asks, cold) = (Arc::clone(&self.asks), self.cold.clone());
            let (feeds, alarm, said) = (feeds.clone(), Arc::clone(&alarm), Arc::clone(&said));
            let reader = named("reader").spawn(move || {
                while let Some(ask) = asks.next() {
                    let Some(error) = answer(&cold.table, &feeds, &ask) else { continue };
                    if !said.swap(true, Ordering::Relaxed) {
                        alarm(&format!("{}: EIO for what needs it", cold.error_of_read(error)));
                    }
                }
            });
            threads.push(reader.map_err(io)?);
        }
        Ok(Keeping { applier: self.applier, asks: self.asks, stop, threads })
    }
}

impl Keeping {
    /// Ends the threads after everything that is durable was applied. The lanes have ended.
    pub fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.applier.mark_urgent();
        self.asks.end();
        for thread in self.threads {
            // One that panicked has said so.
            drop(thread.join());
        }
    }
}

/// Answers a question; why it could not, if so.
fn answer(table: &Table, feeds: &BTreeMap<LaneId, Feed>, ask: &RowQuery) -> Option<io::Error> {
    let feed = feeds.get(&ask.lane)?;
    let (result, failed) = match read(table, ask) {
        Ok(rows) => (Ok(rows), None),
        Err(error) => {
            let errno = error.raw_os_error().and_then(|errno| u16::try_from(errno).ok());
            (Err(errno.map_or(IO, Errno)), Some(error))
        }
    };
    feed.notify([RowReply::Rows { ticket: ask.ticket, result }]);
    failed
}

fn read(table: &Table, ask: &RowQuery) -> io::Result<Box<[u8]>> {
    let snapshot = table.snapshot()?;
    let mut answer = Vec::new();
    if ask.until.is_empty() {
        if let Some(value) = snapshot.get(&ask.from)? {
            put(&mut answer, &ask.from, value);
        }
        return Ok(answer.into());
    }
    let row_count_max = usize::try_from(ask.row_count_max).unwrap_or(usize::MAX);
    for row in snapshot.range(&ask.from, &ask.until)?.take(row_count_max) {
        let (key, value) = row?;
        put(&mut answer, key, value);
    }
    Ok(answer.into())
}

fn put(answer: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    for part in [key, value] {
        let part_bytes = u32::try_from(part.len()).unwrap_or(u32::MAX);
        answer.extend_from_slice(&part_bytes.to_le_bytes());
    }
    answer.extend_from_slice(key);
    answer.extend_from_slice(value);
}
