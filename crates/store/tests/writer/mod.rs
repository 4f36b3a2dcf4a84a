//! A lane that writes a log, the threads that apply it, and the expected rows.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use disk::rows::{self, Key, Range, Row, Rows, ShardRow};
use disk::{Batch, Change, InodeRow, Origin, PreVersions, Record};
use interface::{Action, Core, Event, StoreAction, StoreEvent, Ticket, Turn};
use ring::feed::LogLengths;
use ring::{LogFile, Mesh, Ring};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Pace, RowStore, RowThreads, Store};
use wire::{Bytes, FileKind, InodeNo, LaneId, Name, ShardId, Term, Timestamp, Transno, Wire};

pub(crate) const SHARD: ShardId = ShardId::meta(0);
pub(crate) const BATCH_RECORD_COUNT: u64 = 20;
pub(crate) const LENGTHS: LogLengths =
    LogLengths { log_bytes_max: 1 << 24, segment_bytes: 300 << 10 };
pub(crate) type Table = BTreeMap<Vec<u8>, Vec<u8>>;

/// The `lsn`-th record of a store: a file is created or removed.
pub(crate) fn changes(lsn: u64) -> Vec<u8> {
    let (dir, inode) = (InodeNo::ROOT, InodeNo(1 + lsn - lsn % 3));
    let text = format!("file {}", inode.0);
    let (name, now) = (Name::new(text.as_bytes()).unwrap(), Timestamp { secs: 5, nanos: 0 });
    let (version, kind) = (Transno(lsn), FileKind::File);
    let (nlink_delta, cookie) = (0, inode.0);
    let touch = |entry_delta| Change::Touch {
        inode: dir,
        mtime: now,
        ctime: now,
        nlink_delta,
        entry_delta,
    };
    let row = InodeRow::new(inode, kind, 0o644, now);
    let value = [7; 600];
    let changes = match lsn % 3 {
        0 => vec![
            Change::Inode { row },
            Change::Dirent { dir, name, cookie, inode, kind, version },
            touch(1),
        ],
        1 if lsn > 1 => {
            vec![Change::Xattr { inode, name: Bytes(b"user.x"), value: Bytes(&value) }]
        }
        2 if lsn > 2 && lsn.is_multiple_of(2) => {
            vec![Change::DirentRemoved { dir, name }, touch(-1), Change::InodeRemoved { inode }]
        }
        _ => Vec::new(),
    };
    changes.iter().flat_map(|change| change.to_bytes()).collect()
}

pub(crate) fn with_record<T>(lsn: u64, take: impl FnOnce(&Record<'_>) -> T) -> T {
    let changes = changes(lsn);
    let (transno, origin, pre_versions) = (Transno(lsn), Origin::Internal, PreVersions::new());
    let term = Term(1);
    take(&Record { shard: SHARD, lsn, term, transno, pre_versions, origin, changes: &changes })
}

/// The expected rows after so many records.
pub(crate) fn expected(store: &Store, lsn_last: u64) -> Table {
    let mut table = Table::new();
    rows::begin(store.superblock().creation, &mut table).unwrap();
    let mut shard = ShardRow::decode_all(
        Rows::get(&table, Key::shard(SHARD).bytes()).unwrap().unwrap().as_ref(),
    )
    .unwrap();
    for lsn in 1..=lsn_last {
        with_record(lsn, |record| rows::apply(record, &mut shard, &mut table)).unwrap();
    }
    table.put(Key::shard(SHARD).bytes(), &shard.to_bytes());
    table
}

/// All rows that records make, and the last record in them.
pub(crate) fn found(row_store: &RowStore) -> (Vec<String>, u64) {
    let (mut lines, mut lsn) = (Vec::new(), 0);
    row_store
        .read(&Range::all(), |row| {
            if let Row::Shard { row, .. } = row {
                lsn = row.lsn;
            }
            if !matches!(row, Row::Store(_) | Row::Log { .. }) {
                lines.push(format!("{row:?}"));
            }
            Ok(())
        })
        .unwrap();
    (lines, lsn)
}

pub(crate) fn lines(table: &Table) -> Vec<String> {
    table.iter().map(|(key, value)| format!("{:?}", Row::decode(key, value).unwrap())).collect()
}

/// What becomes of bytes that the log may have alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// Their object fails to get them, later.
    Failed,
    /// It has them in the writer's last turn.
    ToTheEnd,
    /// It never has them.
    Never,
}

/// Writes records, one batch at a time, and reports each durable batch.
pub(crate) struct Writer<F> {
    pub(crate) boot_id: u64,
    pub(crate) lsn: u64,
    pub(crate) lsn_last: u64,
    pub(crate) batch_no: u64,
    pub(crate) flying: bool,
    pub(crate) on_durable: F,
    pub(crate) checkpointed: u64,
    pub(crate) space_bytes: u64,
    /// It ends when its log is so long since the last checkpoint that no batch fits any more, and
    /// an alarm was raised. Otherwise it waits until a batch fits.
    pub(crate) fills_bytes: Option<u64>,
    pub(crate) alarms: Arc<Mutex<Vec<String>>>,
    /// It continues only when all that it wrote is checkpointed.
    pub(crate) keeps_pace: bool,
    /// Batches that are not checkpointed, by their last record.
    pub(crate) pending: VecDeque<(u64, u64)>,
    /// It queries this row and these entries when everything is checkpointed; the answers.
    pub(crate) queries: bool,
    pub(crate) found: Vec<Vec<u8>>,
    /// The log may have bytes alone from the tenth batch on.
    pub(crate) holds_rows: Option<Held>,
}

/// No record of these tests is longer.
pub(crate) const BATCH_BYTES_MAX: u64 = 64 << 10;

impl<F: FnMut(u64)> Core for Writer<F> {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        if let Event::Store(StoreEvent::Logged { result: Ok(space), .. })
        | Event::Store(StoreEvent::LogSpace(space)) = event
        {
            self.space_bytes = space.space_bytes;
        }
        if let Event::Store(StoreEvent::Rows { result, .. }) = event {
            self.found.push(turn.arena.get(result.unwrap()).to_vec());
        }
        if let Event::Store(StoreEvent::Logged { result, .. }) = event {
            result.unwrap();
            self.flying = false;
            (self.on_durable)(self.lsn);
        }
        if let Event::Store(StoreEvent::Checkpointed { shard, lsn, transno }) = event {
            assert_eq!((shard, transno), (SHARD, Transno(lsn)));
            let known = (self.checkpointed, self.lsn);
            assert!(lsn > known.0 && lsn <= known.1, "{lsn} behind {known:?}");
            self.checkpointed = lsn;
            while self.pending.pop_front_if(|(last, _)| *last <= lsn).is_some() {}
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        if self.flying {
            return;
        }
        // There is no checkpoint before the second batch.
        let is_done = self.lsn >= self.lsn_last;
        let waits = self.keeps_pace && self.batch_no >= 2 && !is_done;
        if waits && self.checkpointed < self.lsn {
            return;
        }
        if !is_done && self.space_bytes < BATCH_BYTES_MAX {
            let Some(log_bytes_max) = self.fills_bytes else { return };
            let pending_bytes: u64 = self.pending.iter().map(|(_, bytes)| bytes).sum();
            if pending_bytes + BATCH_BYTES_MAX <= log_bytes_max {
                // An event will announce the space that is reserved ahead.
                return;
            }
            if self.alarms.lock().unwrap().is_empty() {
                return turn.act(Action::WakeAt { at: turn.now.mono.after_ms(5) });
            }
            return turn.act(Action::Stopped);
        }
        if is_done {
            if self.holds_rows == Some(Held::ToTheEnd) {
                turn.act(StoreAction::ReleaseRows { number: 1, has_failed: false });
            }
            if self.queries && self.found.len() < 2 {
                return self.query(turn);
            }
            return turn.act(Action::Stopped);
        }
        if self.holds_rows.is_some() && self.batch_no == 10 {
            turn.act(StoreAction::HoldRows { number: 1 });
        }
        if self.holds_rows == Some(Held::Failed) && self.batch_no == 20 {
            turn.act(StoreAction::ReleaseRows { number: 1, has_failed: true });
        }
        let mut batch = Batch::new();
        for _ in 0..BATCH_RECORD_COUNT {
            self.lsn += 1;
            with_record(self.lsn, |record| batch.push(record));
        }
        self.batch_no += 1;
        let (boot_id, batch_no) = (self.boot_id, self.batch_no);
        let mut batch_bytes = 0;
        let batch = turn.arena.write(|out| {
            let before = out.len();
            batch.seal(boot_id, batch_no, out);
            batch_bytes = out.len() - before;
        });
        let trailer_bytes = disk::Trailer::bytes_count(1);
        self.pending.push_back((self.lsn, (batch_bytes + trailer_bytes) as u64));
        turn.act(StoreAction::LogAppend { ticket: Ticket(1), batch });
        self.flying = true;
    }
}

impl<F> Writer<F> {
    pub(crate) fn new(boot_id: u64, lsns: (u64, u64), on_durable: F) -> Self {
        Self {
            boot_id,
            lsn: lsns.0,
            lsn_last: lsns.1,
            batch_no: 0,
            flying: false,
            on_durable,
            checkpointed: 0,
            space_bytes: u64::MAX,
            fills_bytes: None,
            alarms: Arc::default(),
            keeps_pace: false,
            pending: VecDeque::new(),
            queries: false,
            found: Vec::new(),
            holds_rows: None,
        }
    }

    /// Queries the root and ten entries of it, once all is checkpointed.
    fn query(&mut self, turn: &mut Turn<'_>) {
        if self.checkpointed < self.lsn {
            return;
        }
        let range = match self.found.len() {
            0 => (Key::inode(InodeNo::ROOT), None),
            _ => {
                let range = Range::listing(InodeNo::ROOT, 0);
                (range.from, Some(range.until))
            }
        };
        let from = turn.arena.put(range.0.bytes());
        let until = turn.arena.put(range.1.as_ref().map_or(&[], Key::bytes));
        turn.act(StoreAction::ReadRows { ticket: Ticket(2), from, until, row_count_max: 10 });
    }
}

/// Opens a store, checks that its rows are those of some number of records, and writes more.
/// Returns that number.
pub(crate) fn live(path: &Path, record_count: u64, on_durable: impl FnMut(u64)) -> u64 {
    live_as(path, record_count, on_durable, |_| ())
}

/// The same with another writer.
pub(crate) fn live_as<F: FnMut(u64)>(
    path: &Path,
    record_count: u64,
    on_durable: F,
    tune: impl FnOnce(&mut Writer<F>),
) -> u64 {
    let mut store = store::open(path).unwrap();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    store.redo(&row_store).unwrap();
    let (rows, lsn) = found(&row_store);
    assert_eq!(rows, lines(&expected(&store, lsn)));
    let pace = Pace { lengths: LENGTHS, collect: Duration::ZERO };
    let mut writer = Writer::new(store.boot_id(), (lsn, lsn + record_count), on_durable);
    tune(&mut writer);
    assert_eq!(write(&store, &row_store, pace, &mut writer), Vec::<String>::new());
    let (rows, lsn_last) = found(&row_store);
    assert_eq!(writer.lsn, lsn + record_count, "it wrote all");
    assert_eq!(lsn_last, writer.lsn, "a clean end leaves nothing to redo");
    assert_eq!(rows, lines(&expected(&store, lsn_last)));
    lsn
}

/// Runs a writer until it is done; returns the alarms.
pub(crate) fn write<F: FnMut(u64)>(
    store: &Store,
    row_store: &RowStore,
    pace: Pace,
    writer: &mut Writer<F>,
) -> Vec<String> {
    let mut row_threads = RowThreads::new(row_store.clone(), pace, 1);
    let mailbox = Mesh::mailboxes(1).unwrap().pop().unwrap();
    let (file, start_offset) = store.new_logs(row_store, 1, 256 << 10).unwrap().remove(0);
    let feed = Some(row_threads.feed(mailbox.waker(), start_offset));
    let (file, reserve_bytes) = (file.into(), 256 << 10);
    let mut config = ring::Config::new(LaneId(0));
    config.mailbox = Some(mailbox);
    config.log = Some(LogFile { file, start_offset, reserve_bytes, feed });
    store.remove_earlier_logs().unwrap();
    let alarms = Arc::clone(&writer.alarms);
    let alarm = Arc::new(move |line: &str| alarms.lock().unwrap().push(line.to_owned()));
    let mut ring = Ring::new(config).unwrap();
    // A lane may have a durable batch before the applier has started.
    let long = writer.lsn_last - writer.lsn > 2 * BATCH_RECORD_COUNT;
    while long && writer.batch_no < 2 && ring.turn(writer).unwrap() {}
    let running = row_threads.start(store, alarm).unwrap();
    while ring.turn(writer).unwrap() {}
    drop(ring);
    running.stop();
    let alarms = writer.alarms.lock().unwrap();
    alarms.clone()
}

pub(crate) fn new_store() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    store::create(&path, &store::Shape::default()).unwrap();
    (folder, path)
}
