//! Logs that are applied to rows while a lane writes them: with a real ring, real files, real threads,
//! and kills at any moment. In a program of its own, as children hold copies of descriptors.
#![allow(clippy::unwrap_used, missing_docs)]

use disk::rows::{self, Key, Range, Row, Rows, ShardRow};
use disk::{Batch, Change, InodeRow, Origin, PreVersions, Record};
use door::{Action, Brain, Event, Ticket, Turn};
use ring::feed::LogLengths;
use ring::{LogFile, Mesh, Ring};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{ColdStore, Keeper, Pace, Store, StoreFault};
use wire::{Bytes, FileKind, InodeNo, LaneId, Name, ShardId, Timestamp, Transno, Wire};

const SHARD: ShardId = ShardId::meta(0);
const BATCH_RECORD_COUNT: u64 = 20;
const LENGTHS: LogLengths = LogLengths { log_bytes_max: 1 << 24, segment_bytes: 300 << 10 };
type Table = BTreeMap<Vec<u8>, Vec<u8>>;

/// The `lsn`-th record of a life: a new file, or one less.
fn changes(lsn: u64) -> Vec<u8> {
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
            vec![Change::DirentGone { dir, name }, touch(-1), Change::InodeGone { inode }]
        }
        _ => Vec::new(),
    };
    changes.iter().flat_map(|change| change.to_bytes()).collect()
}

fn with_record<T>(lsn: u64, take: impl FnOnce(&Record<'_>) -> T) -> T {
    let changes = changes(lsn);
    let (transno, origin, pre_versions) = (Transno(lsn), Origin::Internal, PreVersions::new());
    take(&Record { shard: SHARD, lsn, transno, pre_versions, origin, changes: &changes })
}

/// What the rows are after so many records.
fn expected(store: &Store, lsn_last: u64) -> Table {
    let mut table = Table::new();
    rows::begin(store.superblock().made, &mut table).unwrap();
    let mut shard = ShardRow::decode_all(
        Rows::get(&table, Key::shard(SHARD).bytes()).unwrap().unwrap().as_ref(),
    )
    .unwrap();
    for lsn in 1..=lsn_last {
        with_record(lsn, |record| rows::apply(record, &mut shard, &mut table)).unwrap();
    }
    table.put(Key::shard(SHARD).bytes(), &shard.to_bytes());
    table.put(Key::store().bytes(), &store.boot_id().to_bytes());
    table
}

/// All rows, and the last record in them.
fn found(cold: &ColdStore) -> (Vec<String>, u64) {
    let (mut lines, mut lsn) = (Vec::new(), 0);
    cold.read(&Range::all(), |row| {
        if let Row::Shard { row, .. } = row {
            lsn = row.lsn;
        }
        lines.push(format!("{row:?}"));
        Ok(())
    })
    .unwrap();
    (lines, lsn)
}

fn lines(table: &Table) -> Vec<String> {
    table.iter().map(|(key, value)| format!("{:?}", Row::decode(key, value).unwrap())).collect()
}

/// Writes records, one batch at a time, and tells of each batch that is durable.
struct Writer<F> {
    boot_id: u64,
    lsn: u64,
    lsn_last: u64,
    batch_no: u64,
    flying: bool,
    tell: F,
    checkpointed: u64,
    room_bytes: u64,
    /// It waits for room instead of ending without it.
    waits: bool,
    /// It ends when its log has become so long behind the last checkpoint that no batch fits any more,
    /// and somebody was told something.
    fills_bytes: Option<u64>,
    alarms: Arc<Mutex<Vec<String>>>,
    /// It goes on only when all that it wrote is checkpointed.
    keeps_pace: bool,
    /// Batches that are not checkpointed, by their last record.
    kept: VecDeque<(u64, u64)>,
    /// It asks for this row and for these entries when everything is checkpointed; what it got.
    asks: bool,
    found: Vec<Vec<u8>>,
}

/// No record of this test's needs more.
const BATCH_BYTES_MAX: u64 = 64 << 10;

impl<F: FnMut(u64)> Brain for Writer<F> {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        if let Event::Logged { result: Ok(room), .. } | Event::LogRoom(room) = event {
            self.room_bytes = room.room_bytes;
        }
        if let Event::ColdRows { result, .. } = event {
            self.found.push(turn.arena.get(result.unwrap()).to_vec());
        }
        if let Event::Logged { result, .. } = event {
            result.unwrap();
            self.flying = false;
            (self.tell)(self.lsn);
        }
        if let Event::Checkpointed { shard, lsn, transno } = event {
            assert_eq!((shard, transno), (SHARD, Transno(lsn)));
            let known = (self.checkpointed, self.lsn);
            assert!(lsn > known.0 && lsn <= known.1, "{lsn} behind {known:?}");
            self.checkpointed = lsn;
            while self.kept.pop_front_if(|(last, _)| *last <= lsn).is_some() {}
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        if self.flying {
            return;
        }
        if self.waits && self.lsn < self.lsn_last && self.room_bytes < BATCH_BYTES_MAX {
            return;
        }
        // Nobody makes checkpoints before the second batch.
        let waits = self.keeps_pace && self.batch_no >= 2 && self.lsn < self.lsn_last;
        if waits && self.checkpointed < self.lsn {
            return;
        }
        if let Some(log_bytes_max) = self.fills_bytes
            && self.room_bytes < BATCH_BYTES_MAX
        {
            let kept_bytes: u64 = self.kept.iter().map(|(_, bytes)| bytes).sum();
            if kept_bytes + BATCH_BYTES_MAX <= log_bytes_max {
                // Space that is reserved ahead is still on its way, of which an event tells.
                return;
            }
            if self.alarms.lock().unwrap().is_empty() {
                return turn.act(Action::WakeAt { at: turn.now.mono.after_ms(5) });
            }
        }
        if self.lsn >= self.lsn_last || self.room_bytes < BATCH_BYTES_MAX {
            if self.asks && self.found.len() < 2 {
                return self.ask(turn);
            }
            return turn.act(Action::Stopped);
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
        self.kept.push_back((self.lsn, batch_bytes as u64));
        turn.act(Action::LogAppend { ticket: Ticket(1), batch });
        self.flying = true;
    }
}

impl<F> Writer<F> {
    fn new(boot_id: u64, lsns: (u64, u64), tell: F) -> Self {
        Self {
            boot_id,
            lsn: lsns.0,
            lsn_last: lsns.1,
            batch_no: 0,
            flying: false,
            tell,
            checkpointed: 0,
            room_bytes: u64::MAX,
            waits: false,
            fills_bytes: None,
            alarms: Arc::default(),
            keeps_pace: false,
            kept: VecDeque::new(),
            asks: false,
            found: Vec::new(),
        }
    }

    /// Asks for the root and for ten entries of it, once all is checkpointed.
    fn ask(&mut self, turn: &mut Turn<'_>) {
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
        turn.act(Action::ColdRead { ticket: Ticket(2), from, until, row_count_max: 10 });
    }
}

/// Opens a store, checks that its rows are those of some number of records, and writes more.
/// Returns that number.
fn live(path: &Path, record_count: u64, tell: impl FnMut(u64)) -> u64 {
    live_as(path, record_count, tell, |_| ())
}

/// The same with another writer.
fn live_as<F: FnMut(u64)>(
    path: &Path,
    record_count: u64,
    tell: F,
    tune: impl FnOnce(&mut Writer<F>),
) -> u64 {
    let store = store::open(path).unwrap();
    let cold = store.open_rows(ColdStore::ROWS_BYTES_MAX).unwrap();
    store.redo(&cold).unwrap();
    let (rows, lsn) = found(&cold);
    assert_eq!(rows, lines(&expected(&store, lsn)));
    let pace = Pace { lengths: LENGTHS, collect: Duration::ZERO };
    let mut writer = Writer::new(store.boot_id(), (lsn, lsn + record_count), tell);
    tune(&mut writer);
    assert_eq!(write(&store, &cold, pace, &mut writer), Vec::<String>::new());
    let (rows, lsn_last) = found(&cold);
    assert_eq!(lsn_last, writer.lsn, "a clean end leaves nothing to redo");
    assert_eq!(rows, lines(&expected(&store, lsn_last)));
    lsn
}

/// Lets a writer work until it is done; what people were told meanwhile.
fn write<F: FnMut(u64)>(
    store: &Store,
    cold: &ColdStore,
    pace: Pace,
    writer: &mut Writer<F>,
) -> Vec<String> {
    let mut keeper = Keeper::new(cold.clone(), pace);
    let post = Mesh::posts(1).unwrap().pop().unwrap();
    let (file, start_offset) = store.new_log(LaneId(0), 1).unwrap();
    let feed = Some(keeper.feed(post.waker(), start_offset));
    let (file, reserve_bytes) = (file.into(), 256 << 10);
    let mut config = ring::Config::new(LaneId(0));
    config.post = Some(post);
    config.log = Some(LogFile { file, start_offset, reserve_bytes, feed });
    store.remove_earlier_logs().unwrap();
    let heard = Arc::clone(&writer.alarms);
    let alarm = Arc::new(move |line: &str| heard.lock().unwrap().push(line.to_owned()));
    let mut ring = Ring::new(config).unwrap();
    // A lane may have a durable batch before the thread behind it has begun.
    let long = writer.lsn_last - writer.lsn > 2 * BATCH_RECORD_COUNT;
    while long && writer.batch_no < 2 && ring.turn(writer).unwrap() {}
    let keeping = keeper.start(store, alarm).unwrap();
    while ring.turn(writer).unwrap() {}
    drop(ring);
    keeping.stop();
    let alarms = writer.alarms.lock().unwrap();
    alarms.clone()
}

fn new_store() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    store::create(&path, &store::Shape::default()).unwrap();
    (folder, path)
}

fn log_files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(path.join("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_log_goes_on_in_new_files_and_old_ones_are_removed() {
    let (_folder, path) = new_store();
    // A file to go on in is there in time when nobody hurries. One who does goes on in the file he has.
    assert_eq!(live_as(&path, 6000, |_| (), |writer| writer.keeps_pace = true), 0);
    let files = log_files(&path);
    let last = files.last().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let segment_no = u32::from_str_radix(&last[22..30], 16).unwrap();
    assert!(segment_no > 3, "{last}");
    assert!(files.len() <= 3, "{files:?}");
    assert_eq!(live(&path, 100, |_| ()), 6000);
    assert!(log_files(&path).iter().all(|file| !files.contains(file)), "an earlier boot's");
}

#[test]
fn a_lane_gets_the_rows_it_asks_for() {
    let (_folder, path) = new_store();
    let store = store::open(&path).unwrap();
    let cold = store.open_rows(ColdStore::ROWS_BYTES_MAX).unwrap();
    let pace = Pace { lengths: LENGTHS, collect: Duration::ZERO };
    let mut writer = Writer::new(store.boot_id(), (0, 100), |_| ());
    writer.asks = true;
    assert_eq!(write(&store, &cold, pace, &mut writer), Vec::<String>::new());
    let table = expected(&store, 100);
    let rows = |range: &Range, count: usize| -> Vec<u8> {
        let inside = table.iter().filter(|(key, _)| range.contains(key)).take(count);
        inside
            .flat_map(|(key, value)| {
                let bytes = |part: &[u8]| u32::try_from(part.len()).unwrap().to_le_bytes();
                [&bytes(key)[..], &bytes(value)[..], key, value].concat()
            })
            .collect()
    };
    let root = rows(&Range::inode(InodeNo::ROOT), 1);
    assert_eq!(writer.found, [root, rows(&Range::listing(InodeNo::ROOT, 0), 10)]);
}

#[test]
fn a_lane_whose_log_gets_long_does_not_wait_until_enough_is_gathered() {
    let (_folder, path) = new_store();
    let store = store::open(&path).unwrap();
    let cold = store.open_rows(ColdStore::ROWS_BYTES_MAX).unwrap();
    let lengths = LogLengths { log_bytes_max: 256 << 10, segment_bytes: 1 << 30 };
    let pace = Pace { lengths, collect: Duration::from_secs(1 << 20) };
    let mut writer = Writer::new(store.boot_id(), (0, 3000), |_| ());
    writer.waits = true;
    assert_eq!(write(&store, &cold, pace, &mut writer), Vec::<String>::new());
    assert_eq!((writer.lsn, found(&cold).1), (3000, 3000));
}

#[test]
fn when_the_rows_are_full_the_server_goes_on_until_its_log_is() {
    let (_folder, path) = new_store();
    let store = store::open(&path).unwrap();
    let cold = store.open_rows(256 << 10).unwrap();
    let lengths = LogLengths { log_bytes_max: 2 << 20, segment_bytes: 300 << 10 };
    let pace = Pace { lengths, collect: Duration::ZERO };
    let mut writer = Writer::new(store.boot_id(), (0, 1 << 40), |_| ());
    writer.fills_bytes = Some(lengths.log_bytes_max);
    let alarms = write(&store, &cold, pace, &mut writer);
    assert_eq!(alarms.len(), 1, "said once: {alarms:?}");
    assert!(alarms[0].contains("greatest size"), "{alarms:?}");
    let (lsn, checkpointed) = (writer.lsn, writer.checkpointed);
    assert!(lsn > 3000 && checkpointed < lsn, "{lsn}, {checkpointed} of them checkpointed");
    drop((cold, store));
    // With room again, nothing is missing.
    assert_eq!(live(&path, 100, |_| ()), writer.lsn);
}

#[test]
fn rows_of_an_older_copy_are_refused() {
    let (folder, path) = new_store();
    live(&path, 200, |_| ());
    let copy = folder.path().join("copy");
    let copy_rows = |from: &Path, to: &Path| {
        fs::create_dir_all(to).unwrap();
        fs::copy(from.join("data.mdb"), to.join("data.mdb")).unwrap();
    };
    copy_rows(&path.join("rows"), &copy);
    live(&path, 200, |_| ());
    copy_rows(&copy, &path.join("rows"));
    let store = store::open(&path).unwrap();
    let refused = store.open_rows(ColdStore::ROWS_BYTES_MAX).unwrap_err();
    assert!(matches!(refused.fault(), StoreFault::WentBack { .. }), "{refused}");
    assert!(refused.to_string().contains("rows went back"), "{refused}");
}

#[test]
fn a_missing_record_between_rows_and_log_is_refused() {
    let (folder, path) = new_store();
    live(&path, 200, |_| ());
    // The rows as they were at the beginning of this boot, with the log of its end.
    let store = store::open(&path).unwrap();
    drop(store.open_rows(ColdStore::ROWS_BYTES_MAX).unwrap());
    let boot_id = store.boot_id();
    drop(store);
    let rows = folder.path().join("rows");
    fs::create_dir(&rows).unwrap();
    fs::copy(path.join("rows/data.mdb"), rows.join("data.mdb")).unwrap();
    let mut batch = Batch::new();
    with_record(300, |record| batch.push(record));
    let head = disk::LogHead {
        fs: store::open(&path).unwrap().superblock().fs,
        boot_id,
        lane: LaneId(0),
        lane_count: 1,
        segment_no: 4,
    };
    let mut bytes = head.encode().to_vec();
    batch.seal(boot_id, 15, &mut bytes);
    for file in log_files(&path) {
        fs::remove_file(file).unwrap();
    }
    fs::write(path.join(format!("log/{boot_id:016x}-0000-00000004.log")), bytes).unwrap();
    let store = store::open(&path).unwrap();
    let cold = store.open_rows(ColdStore::ROWS_BYTES_MAX).unwrap();
    let refused = store.redo(&cold).unwrap_err();
    assert!(
        refused.to_string().contains("it ends with record 200, the log goes on with record 300"),
        "{refused}"
    );
}

#[test]
fn killed_at_any_moment_nothing_durable_is_missing() {
    const LIVE: &str = "LANEFS_TEST_LIVE";
    if let Some(path) = std::env::var_os(LIVE) {
        // The child: writes until it is killed.
        let mut out = std::io::stdout();
        live(Path::new(&path), 1 << 40, |lsn| {
            writeln!(out, "durable {lsn}").unwrap();
            out.flush().unwrap();
        });
        return;
    }
    let (_folder, path) = new_store();
    let (mut durable, mut dice) = (0, 0x9E37_79B9_7F4A_7C15_u64);
    for round in 0..12 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let batch_count = usize::try_from(dice >> 40).unwrap() % 120;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "killed_at_any_moment_nothing_durable_is_missing"])
            .env(LIVE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines.map(Result::unwrap).filter_map(|line| {
            line.strip_prefix("durable ").map(|lsn| lsn.parse::<u64>().unwrap())
        });
        let told: Vec<u64> = told.take(batch_count + 1).collect();
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        let (Some(first), Some(last)) = (told.first(), told.last()) else {
            panic!("the child ended without a batch: {ended}, round {round}, {durable} durable")
        };
        assert!(*first > durable, "round {round}: {durable} was durable, the child said {told:?}");
        durable = *last;
    }
    let store = store::open(&path).unwrap();
    let cold = store.open_rows(ColdStore::ROWS_BYTES_MAX).unwrap();
    store.redo(&cold).unwrap();
    let (rows, lsn) = found(&cold);
    assert!(lsn >= durable, "{lsn} of {durable}");
    assert_eq!(rows, lines(&expected(&store, lsn)));
}
