//! The threads of an open store: one applies logs, the others read rows for lanes.

use crate::applier::{Alarm, Lane, Work};
use crate::gathered::Gathered;
use crate::rows::RowStore;
use crate::{Store, StoreError};
use bind_lmdb::Table;
use interface::Errno;
use ring::Waker;
use ring::feed::{Applier, Feed, LogLengths, LogPosition, RowQueries, RowQuery, RowReply};
use std::collections::BTreeMap;
use std::fs::File;
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

/// How far the rows may be behind the logs.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The lengths of each lane's log.
    pub lengths: LogLengths,
    /// How long to collect records, so that rows that change often are written once.
    pub collect: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { lengths: LogLengths::default(), collect: Duration::from_secs(1) }
    }
}

/// The threads before their start; lanes get their feeds from it.
pub struct RowThreads {
    applier: Arc<Applier>,
    queries: Arc<RowQueries>,
    row_store: RowStore,
    feeds: Vec<Feed>,
    pace: Pace,
}

/// The running threads.
pub struct RunningRowThreads {
    applier: Arc<Applier>,
    queries: Arc<RowQueries>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl RowThreads {
    /// For this number of lanes.
    #[must_use]
    pub fn new(row_store: RowStore, pace: Pace, lane_count: u16) -> Self {
        let (applier, queries) = (Arc::new(Applier::new(lane_count)), Arc::default());
        Self { applier, queries, row_store, feeds: Vec::new(), pace }
    }

    /// The feed of the next lane, whose log's first file begins at `start_offset`.
    pub fn feed(&mut self, waker: Waker, start_offset: u64) -> Feed {
        let start = LogPosition { segment_no: 1, offset: start_offset };
        let (applier, queries) = (Arc::clone(&self.applier), Arc::clone(&self.queries));
        let feed = Feed::new(waker, start, self.pace.lengths, applier, queries);
        self.feeds.push(feed.clone());
        feed
    }

    /// Starts the threads. `alarm` is called with lines for the operator.
    ///
    /// # Errors
    /// [`StoreError`] when no thread can be started.
    pub fn start(self, store: &Store, alarm: Alarm) -> Result<RunningRowThreads, StoreError> {
        let stop = Arc::new(AtomicBool::new(false));
        let place = (store.path().to_owned(), store.boot_id());
        let objects = store.objects_path();
        let objects =
            File::open(&objects).map_err(|error| StoreError::io("open", &objects, error))?;
        let work = Work {
            path: store.path().to_owned(),
            fs: store.superblock().fs,
            boot_id: store.boot_id(),
            is_first: self.row_store.store_row()?.first_boot_id == store.boot_id(),
            row_store: self.row_store.clone(),
            objects,
            applier: Arc::clone(&self.applier),
            lanes: self.feeds.iter().map(|feed| Lane::new(feed.clone(), place.clone())).collect(),
            stop: Arc::clone(&stop),
            alarm: Arc::clone(&alarm),
            collect: self.pace.collect,
            spare: Gathered::default(),
            error_reported: false,
        };
        let io = |error| StoreError::io("start a thread for", store.path(), error);
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let mut threads = vec![named("applier").spawn(move || work.run()).map_err(io)?];
        let feeds: BTreeMap<LaneId, Feed> =
            self.feeds.into_iter().map(|feed| (feed.lane(), feed)).collect();
        // Damage is reported once.
        let reported = Arc::new(AtomicBool::new(false));
        for _ in 0..READER_COUNT {
            let (queries, row_store) = (Arc::clone(&self.queries), self.row_store.clone());
            let (feeds, alarm, reported) =
                (feeds.clone(), Arc::clone(&alarm), Arc::clone(&reported));
            let reader = named("reader").spawn(move || {
                while let Some(query) = queries.next() {
                    let Some(error) = answer(&row_store.table, &feeds, &query) else { continue };
                    if !reported.swap(true, Ordering::Relaxed) {
                        alarm(&format!(
                            "{}: EIO for what needs it",
                            row_store.error_of_read(error)
                        ));
                    }
                }
            });
            threads.push(reader.map_err(io)?);
        }
        Ok(RunningRowThreads { applier: self.applier, queries: self.queries, stop, threads })
    }
}

impl RunningRowThreads {
    /// Ends the threads after all durable records are applied. The lanes have ended before.
    pub fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.applier.mark_urgent();
        self.queries.end();
        for thread in self.threads {
            // The panic message was printed already.
            drop(thread.join());
        }
    }
}

/// Answers a query; returns the error if it failed.
fn answer(table: &Table, feeds: &BTreeMap<LaneId, Feed>, query: &RowQuery) -> Option<io::Error> {
    let feed = feeds.get(&query.lane)?;
    let (result, failed) = match read(table, query) {
        Ok(rows) => (Ok(rows), None),
        Err(error) => {
            let errno = error.raw_os_error().and_then(|errno| u16::try_from(errno).ok());
            (Err(errno.map_or(IO, Errno)), Some(error))
        }
    };
    feed.notify([RowReply::Rows { ticket: query.ticket, result }]);
    failed
}

fn read(table: &Table, query: &RowQuery) -> io::Result<Box<[u8]>> {
    let snapshot = table.snapshot()?;
    let mut answer = Vec::new();
    if query.until.is_empty() {
        if let Some(value) = snapshot.get(&query.from)? {
            put(&mut answer, &query.from, value);
        }
        return Ok(answer.into());
    }
    let row_count_max = usize::try_from(query.row_count_max).unwrap_or(usize::MAX);
    for row in snapshot.range(&query.from, &query.until)?.take(row_count_max) {
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
