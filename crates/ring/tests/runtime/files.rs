//! The log and the objects, on real files.

use super::support::{Recorder, ask, cores_of, noise, ring_config, tempdir, turns};
use interface::{
    Action, Bulk, Errno, Event, LogSpace, Object, ObjectAction, ObjectEvent, ObjectStat,
    StoreAction, StoreEvent, Ticket,
};
use ring::{DriverKind, FaultPoint, LogFile, Ring};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use wire::{Allocation, InodeNo, LaneId};

const RESERVE_BYTES: u64 = 1 << 20;

/// Faults to inject, in order.
type Faults = Arc<Mutex<Vec<(FaultPoint, Errno)>>>;

fn open(dir: &Path, start_offset: u64, faults: &Faults) -> (Ring, Recorder) {
    let mut config = ring_config(LaneId(0));
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("log"))
        .unwrap()
        .into();
    config.log = Some(LogFile { file, start_offset, reserve_bytes: RESERVE_BYTES, feed: None });
    config.store = Some(File::open(dir).unwrap().into());
    config.checksum_reads = true;
    config.limits.open_object_count_max = 4;
    let faults = Arc::clone(faults);
    config.fault = Some(Arc::new(move |point| {
        let mut faults = faults.lock().unwrap();
        let found = faults.iter().position(|(at, _)| *at == point)?;
        Some(faults.remove(found).1)
    }));
    (Ring::new(config).unwrap(), Recorder::default())
}

fn append(ring: &mut Ring, recorder: &mut Recorder, batch: &[u8]) -> Result<LogSpace, Errno> {
    let known_count = recorder.events.len();
    ring.with(|turn| {
        let batch = turn.arena.put(batch);
        turn.act(StoreAction::LogAppend { ticket: Ticket(7), batch });
    });
    let logged = |recorder: &mut Recorder| {
        recorder.events[known_count..].iter().find_map(|event| match event {
            Event::Store(StoreEvent::Logged { ticket: Ticket(7), result }) => Some(*result),
            _ => None,
        })
    };
    turns(ring, recorder, |recorder| logged(recorder).is_some());
    logged(recorder).unwrap()
}

fn object(inode: u64) -> Object {
    Object { shard_index: 3, stripe_index: 1, inode: InodeNo(inode) }
}

fn done(result: Result<(), Errno>) -> Event {
    Event::Object(ObjectEvent::Done { ticket: Ticket(1), result })
}

fn write(ring: &mut Ring, recorder: &mut Recorder, at: (Object, u64), bytes: &[u8]) -> Event {
    let (object, object_offset) = at;
    super::support::write(ring, recorder, (Ticket(1), object, object_offset), 0, bytes)
}

fn read(
    ring: &mut Ring,
    recorder: &mut Recorder,
    at: (Object, u64),
    read_bytes: u32,
) -> Option<Bulk> {
    let (object, object_offset) = at;
    let action = Action::Object(ObjectAction::Read {
        ticket: Ticket(2),
        object,
        object_offset,
        read_bytes,
        only_cached: false,
    });
    match ask(ring, recorder, action) {
        Event::Object(ObjectEvent::Read { ticket: Ticket(2), result }) => result.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn stat(ring: &mut Ring, recorder: &mut Recorder, object: Object) -> Option<ObjectStat> {
    stat_or_make(ring, recorder, (object, false))
}

fn stat_or_make(
    ring: &mut Ring,
    recorder: &mut Recorder,
    (object, may_make): (Object, bool),
) -> Option<ObjectStat> {
    let action = ObjectAction::Stat { ticket: Ticket(4), object, may_make };
    match ask(ring, recorder, Action::Object(action)) {
        Event::Object(ObjectEvent::Stat { ticket: Ticket(4), result }) => result.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn batches_are_contiguous_and_the_reserve_shrinks_and_grows() {
    let dir = tempdir();
    let (mut ring, mut recorder) = open(dir.path(), 0, &Faults::default());
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    assert_eq!(
        recorder.events,
        [Event::Store(StoreEvent::LogSpace(LogSpace {
            space_bytes: RESERVE_BYTES,
            awaits_checkpoint: true
        }))]
    );
    // The first event reported the initial reservation.
    let grown = |recorder: &Recorder| {
        recorder.events[1..].iter().find_map(|event| match event {
            Event::Store(StoreEvent::LogSpace(space)) => Some(space.space_bytes),
            _ => None,
        })
    };
    let batches: Vec<Vec<u8>> = (0..12).map(|count| noise(count, 100_000)).collect();
    let mut space_bytes = RESERVE_BYTES;
    for batch in &batches {
        let space = append(&mut ring, &mut recorder, batch).unwrap();
        assert!(
            space.space_bytes == space_bytes - 100_000
                || space.space_bytes == space_bytes - 100_000 + RESERVE_BYTES,
            "{space:?} after {space_bytes}"
        );
        space_bytes = space.space_bytes;
        if space_bytes < 100_000 {
            // The kernel may be slow to reserve more.
            turns(&mut ring, &mut recorder, |recorder| grown(recorder).is_some());
            space_bytes = grown(&recorder).unwrap();
        }
    }
    turns(&mut ring, &mut recorder, |recorder| grown(recorder).is_some());
    let written = fs::read(dir.path().join("log")).unwrap();
    let expected = batches.concat();
    assert_eq!(written[..expected.len()], expected);
    assert!(written[expected.len()..].iter().all(|byte| *byte == 0));
    assert!(written.len() > expected.len());
}

#[test]
fn a_log_continues_at_its_start_offset() {
    let dir = tempdir();
    {
        let (mut ring, mut recorder) = open(dir.path(), 0, &Faults::default());
        append(&mut ring, &mut recorder, b"first").unwrap();
    }
    let (mut ring, mut recorder) = open(dir.path(), 5, &Faults::default());
    append(&mut ring, &mut recorder, b"second").unwrap();
    let written = fs::read(dir.path().join("log")).unwrap();
    // The kernel may be slow to reserve the space behind.
    let behind = written.strip_prefix(b"firstsecond").unwrap();
    assert!(behind.iter().all(|byte| *byte == 0));
}

#[test]
fn a_full_disk_reduces_log_space_and_a_failed_write_breaks_the_log() {
    let dir = tempdir();
    let faults = Faults::default();
    // Smaller and smaller reservations are requested, down to the minimum.
    faults.lock().unwrap().extend([(FaultPoint::LogReserve, Errno(28)); 64]);
    let (mut ring, mut recorder) = open(dir.path(), 0, &faults);
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    assert_eq!(
        recorder.events,
        [Event::Store(StoreEvent::LogSpace(LogSpace { space_bytes: 0, awaits_checkpoint: false }))]
    );
    // The next reservation is requested only after a second.
    assert_eq!(
        append(&mut ring, &mut recorder, b"x"),
        Ok(LogSpace { space_bytes: 0, awaits_checkpoint: false })
    );
    faults.lock().unwrap().push((FaultPoint::LogWrite, Errno(5)));
    assert_eq!(append(&mut ring, &mut recorder, b"y"), Err(Errno(5)));
    assert_eq!(append(&mut ring, &mut recorder, b"z"), Err(Errno(5)), "it stays broken");
    assert_eq!(fs::read(dir.path().join("log")).unwrap(), b"x");
}

#[test]
fn a_frozen_batch_is_reported_durable_without_being_written() {
    let dir = tempdir();
    let faults = Faults::default();
    let (mut ring, mut recorder) = open(dir.path(), 0, &faults);
    faults.lock().unwrap().push((FaultPoint::LogFreeze, Errno(5)));
    append(&mut ring, &mut recorder, b"lost").unwrap();
    append(&mut ring, &mut recorder, b"kept").unwrap();
    assert_eq!(fs::read(dir.path().join("log")).unwrap()[..8], *b"\0\0\0\0kept");
}

#[test]
fn freed_disk_space_is_found_without_an_append() {
    let dir = tempdir();
    let faults = Faults::default();
    faults.lock().unwrap().extend([(FaultPoint::LogReserve, Errno(28)); 64]);
    let (mut ring, mut recorder) = open(dir.path(), 0, &faults);
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    assert_eq!(
        recorder.events,
        [Event::Store(StoreEvent::LogSpace(LogSpace { space_bytes: 0, awaits_checkpoint: false }))]
    );
    faults.lock().unwrap().clear();
    recorder.events.clear();
    let found = |event: &Event| matches!(event, Event::Store(StoreEvent::LogSpace(space)) if space.space_bytes > 0);
    turns(&mut ring, &mut recorder, |recorder| recorder.events.iter().any(found));
}

#[test]
fn an_object_is_written_read_truncated_synced_and_removed() {
    let dir = tempdir();
    let (mut ring, mut recorder) = open(dir.path(), 0, &Faults::default());
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    let object = object(0xb_c123);
    let path = dir.path().join("03/2f/00000000000bc123.1");

    assert_eq!(read(&mut ring, &mut recorder, (object, 0), 100), None);
    assert_eq!(stat(&mut ring, &mut recorder, object), None);
    assert!(!dir.path().join("03").exists(), "looking makes nothing");

    let bytes = noise(1, 1 << 20);
    assert_eq!(write(&mut ring, &mut recorder, (object, 5000), &bytes), done(Ok(())));
    assert_eq!(fs::read(&path).unwrap(), [vec![0; 5000], bytes.clone()].concat());
    let found = stat(&mut ring, &mut recorder, object).unwrap();
    assert_eq!(found.size_bytes, 5000 + (1 << 20));
    assert!(found.allocated_bytes >= 1 << 20);

    let bulk = read(&mut ring, &mut recorder, (object, 5000), 1 << 20).unwrap();
    assert_eq!(ring.bulk_bytes(bulk), bytes);
    ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
    let short = read(&mut ring, &mut recorder, (object, 5000 + (1 << 20) - 3), 100).unwrap();
    assert_eq!(ring.bulk_bytes(short), &bytes[bytes.len() - 3..]);
    ring.with(|turn| turn.act(Action::Release { buf: short.buf }));
    assert_eq!(read(&mut ring, &mut recorder, (object, 1 << 30), 100), None);

    let action =
        Action::Object(ObjectAction::Truncate { ticket: Ticket(1), object, size_bytes: 10 });
    assert_eq!(ask(&mut ring, &mut recorder, action), done(Ok(())));
    assert_eq!(fs::metadata(&path).unwrap().len(), 10);
    allocations(&mut ring, &mut recorder, (object, &path));
    let sync = Action::Object(ObjectAction::Sync { ticket: Ticket(1), object });
    assert_eq!(ask(&mut ring, &mut recorder, sync), done(Ok(())));
    let remove = Action::Object(ObjectAction::Remove { ticket: Ticket(1), object });
    assert_eq!(ask(&mut ring, &mut recorder, remove), done(Ok(())));
    assert!(!path.exists());
    assert_eq!(
        ask(&mut ring, &mut recorder, remove),
        done(Ok(())),
        "removing an absent object succeeds"
    );
    assert_eq!(read(&mut ring, &mut recorder, (object, 0), 100), None);
    assert_eq!(ring.buffer_bytes(), 0, "every buffer was released");
}

#[test]
fn a_read_writes_no_time_of_access_and_works_where_that_is_refused() {
    let dir = tempdir();
    let open = |faults: Vec<(FaultPoint, Errno)>| {
        let (mut ring, mut recorder) = open(dir.path(), 0, &Arc::new(Mutex::new(faults)));
        turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
        (ring, recorder)
    };
    let (mut ring, mut recorder) = open(vec![]);
    assert_eq!(write(&mut ring, &mut recorder, (object(9), 0), b"bytes"), done(Ok(())));
    drop(ring);
    let path = dir.path().join("03/00/0000000000000009.1");
    let early = UNIX_EPOCH + Duration::from_secs(1);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_times(FileTimes::new().set_accessed(early)).unwrap();
    let reads = |faults: Vec<(FaultPoint, Errno)>| {
        let (mut ring, mut recorder) = open(faults);
        read(&mut ring, &mut recorder, (object(9), 0), 5).map(|bulk| bulk.bulk_bytes)
    };
    assert_eq!(reads(vec![]), Some(5));
    assert_eq!(fs::metadata(&path).unwrap().accessed().unwrap(), early);
    // As of a file that belongs to another user.
    assert_eq!(reads(vec![(FaultPoint::ObjectOpen, Errno(1))]), Some(5));
}

#[test]
fn a_query_before_the_first_write_makes_the_object() {
    let dir = tempdir();
    let faults = Faults::default();
    let (mut ring, mut recorder) = open(dir.path(), 0, &faults);
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    let object = object(0xb_c123);
    let path = dir.path().join("03/2f/00000000000bc123.1");

    // Where it cannot, the write that follows meets the error.
    faults.lock().unwrap().push((FaultPoint::ObjectOpen, Errno(28)));
    assert_eq!(stat_or_make(&mut ring, &mut recorder, (object, true)), None);
    assert!(!path.exists());

    let made = stat_or_make(&mut ring, &mut recorder, (object, true));
    assert_eq!(made, Some(ObjectStat { size_bytes: 0, allocated_bytes: 0 }));
    assert!(path.exists());
    assert_eq!(write(&mut ring, &mut recorder, (object, 0), b"abc"), done(Ok(())));
    let found = stat_or_make(&mut ring, &mut recorder, (object, true));
    assert_eq!(found.map(|found| found.size_bytes), Some(3), "what is there stays");
    assert_eq!(fs::read(&path).unwrap(), b"abc");
}

/// On an object of 10 bytes.
fn allocations(
    ring: &mut Ring,
    recorder: &mut Recorder,
    (object, path): (interface::Object, &Path),
) {
    let allocate = |ring: &mut Ring, recorder: &mut Recorder, offset, allocation, keep_size| {
        let action = Action::Object(ObjectAction::Allocate {
            ticket: Ticket(1),
            object,
            object_offset: offset,
            range_bytes: 1 << 20,
            allocation,
            keep_size,
        });
        assert_eq!(ask(ring, recorder, action), done(Ok(())));
        let found = fs::metadata(path).unwrap();
        (found.len(), found.blocks() * 512)
    };
    let seek = |ring: &mut Ring, recorder: &mut Recorder, object_offset, hole| {
        let action =
            Action::Object(ObjectAction::Seek { ticket: Ticket(1), object, object_offset, hole });
        match ask(ring, recorder, action) {
            Event::Object(ObjectEvent::Sought { result, .. }) => result.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let (size, space) = allocate(ring, recorder, 0, Allocation::Reserve, true);
    assert!(size == 10 && space >= 1 << 20, "{size} {space}");
    assert_eq!(allocate(ring, recorder, 1 << 20, Allocation::Zero, false).0, 2 << 20);
    let (size, space) = allocate(ring, recorder, 1 << 20, Allocation::Punch, true);
    assert!(size == 2 << 20 && space < 2 << 20, "{size} {space}");
    assert_eq!(seek(ring, recorder, 0, false), Some(0));
    assert_eq!(seek(ring, recorder, 1 << 20, true), Some(1 << 20));
    assert_eq!(seek(ring, recorder, 1 << 20, false), None, "no more bytes");
    assert_eq!(seek(ring, recorder, 2 << 20, true), None, "the end");
}

#[test]
fn the_bytes_that_the_log_wants_are_loaded_from_their_buffer() {
    let dir = tempdir();
    let (mut ring, mut recorder) = open(dir.path(), 0, &Faults::default());
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    let bytes = noise(1, 1000);
    let bulk = ring.bulk_of(&bytes).unwrap();
    let known_count = recorder.events.len();
    ring.with(|turn| {
        turn.act(ObjectAction::LoadWrite { ticket: Ticket(2), bulk });
        turn.act(Action::Release { buf: bulk.buf });
    });
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() > known_count);
    assert_eq!(recorder.loaded, [[&1000_u32.to_le_bytes()[..], &bytes].concat()]);
}

#[test]
fn operations_of_one_turn_run_in_order() {
    let dir = tempdir();
    let (mut ring, mut recorder) = open(dir.path(), 0, &Faults::default());
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    let object = object(1);
    let bulk = ring.bulk_of(&noise(1, 1000)).unwrap();
    ring.with(|turn| {
        let ticket = Ticket(1);
        turn.act(ObjectAction::Write { ticket, object, object_offset: 0, bulk, block_bytes: 0 });
        turn.act(ObjectAction::Truncate { ticket, object, size_bytes: 400 });
        turn.act(ObjectAction::Sync { ticket, object });
        turn.act(ObjectAction::Write { ticket, object, object_offset: 600, bulk, block_bytes: 0 });
        turn.act(ObjectAction::Sync { ticket, object });
        turn.act(ObjectAction::Remove { ticket, object });
        turn.act(ObjectAction::Truncate { ticket, object, size_bytes: 77 });
        turn.act(Action::Release { buf: bulk.buf });
    });
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == 8);
    assert_eq!(recorder.events[1..], [done(Ok(())); 7]);
    let path = dir.path().join("03/00/0000000000000001.1");
    assert_eq!(fs::read(path).unwrap(), [0; 77]);
}

#[test]
fn more_objects_than_may_be_open_work() {
    let dir = tempdir();
    let (mut ring, mut recorder) = open(dir.path(), 0, &Faults::default());
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    for inode in 1..40 {
        let bytes = noise(inode, 5000);
        assert_eq!(write(&mut ring, &mut recorder, (object(inode), 0), &bytes), done(Ok(())));
    }
    let known_count = recorder.events.len();
    ring.with(|turn| {
        for inode in 1..40 {
            let object = object(inode);
            turn.act(ObjectAction::Read {
                ticket: Ticket(inode),
                object,
                object_offset: 0,
                read_bytes: 8192,
                only_cached: false,
            });
        }
    });
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == known_count + 39);
    for event in &recorder.events[known_count..] {
        let Event::Object(ObjectEvent::Read { ticket, result: Ok(Some(bulk)) }) = event else {
            panic!("{event:?}")
        };
        assert_eq!(ring.bulk_bytes(*bulk), noise(ticket.0, 5000));
    }
}

#[test]
fn an_io_error_is_reported_and_a_retry_works() {
    let dir = tempdir();
    let faults = Faults::default();
    let (mut ring, mut recorder) = open(dir.path(), 0, &faults);
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    let object = object(2);
    let fail = |point, errno| faults.lock().unwrap().push((point, Errno(errno)));

    fail(FaultPoint::ObjectOpen, 24);
    assert_eq!(write(&mut ring, &mut recorder, (object, 0), b"abc"), done(Err(Errno(24))));
    fail(FaultPoint::ObjectWrite, 28);
    assert_eq!(write(&mut ring, &mut recorder, (object, 0), b"abc"), done(Err(Errno(28))));
    assert_eq!(write(&mut ring, &mut recorder, (object, 0), b"abc"), done(Ok(())));
    fail(FaultPoint::ObjectRead, 5);
    let read_action = Action::Object(ObjectAction::Read {
        ticket: Ticket(2),
        object,
        object_offset: 0,
        read_bytes: 3,
        only_cached: false,
    });
    let failed = Event::Object(ObjectEvent::Read { ticket: Ticket(2), result: Err(Errno(5)) });
    assert_eq!(ask(&mut ring, &mut recorder, read_action), failed);
    let bulk = read(&mut ring, &mut recorder, (object, 0), 3).unwrap();
    assert_eq!(ring.bulk_bytes(bulk), b"abc");
    ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
    let sync = Action::Object(ObjectAction::Sync { ticket: Ticket(1), object });
    fail(FaultPoint::ObjectSync, 5);
    assert_eq!(ask(&mut ring, &mut recorder, sync), done(Err(Errno(5))));
    assert_eq!(ask(&mut ring, &mut recorder, sync), done(Ok(())));
    fail(FaultPoint::ObjectTruncate, 28);
    let truncate =
        Action::Object(ObjectAction::Truncate { ticket: Ticket(1), object, size_bytes: 1 });
    assert_eq!(ask(&mut ring, &mut recorder, truncate), done(Err(Errno(28))));
    fail(FaultPoint::ObjectRemove, 5);
    let remove = Action::Object(ObjectAction::Remove { ticket: Ticket(1), object });
    assert_eq!(ask(&mut ring, &mut recorder, remove), done(Err(Errno(5))));
    assert_eq!(ask(&mut ring, &mut recorder, remove), done(Ok(())));
    assert_eq!(ring.buffer_bytes(), 0);
}

/// A ring that counts syncs of objects and directories.
fn counting_syncs(dir: &Path, names_follow_files: bool) -> (Ring, Arc<Mutex<u32>>) {
    let syncs = Arc::new(Mutex::new(0));
    let mut config = ring_config(LaneId(0));
    config.store = Some(File::open(dir).unwrap().into());
    config.names_follow_files = Some(names_follow_files);
    let counted = Arc::clone(&syncs);
    config.fault = Some(Arc::new(move |point| {
        *counted.lock().unwrap() += u32::from(point == FaultPoint::ObjectSync);
        None
    }));
    (Ring::new(config).unwrap(), syncs)
}

fn count_sync(ring: &mut Ring, syncs: &Mutex<u32>, inode: u64) -> u32 {
    let mut recorder = Recorder::default();
    let object = object(inode);
    assert_eq!(write(ring, &mut recorder, (object, 0), b"abc"), done(Ok(())));
    let action = Action::Object(ObjectAction::Sync { ticket: Ticket(1), object });
    assert_eq!(ask(ring, &mut recorder, action), done(Ok(())));
    std::mem::take(&mut *syncs.lock().unwrap())
}

/// Removes many objects at once; returns the number of syncs.
fn count_removals(ring: &mut Ring, syncs: &Mutex<u32>, dir: &Path) -> u32 {
    let inodes = 1..=40;
    for inode in inodes.clone() {
        count_sync(ring, syncs, inode);
    }
    assert!(dir.join("03/00/0000000000000028.1").exists());
    let mut recorder = Recorder::default();
    ring.with(|turn| {
        for inode in inodes {
            turn.act(ObjectAction::Remove { ticket: Ticket(1), object: object(inode) });
        }
    });
    let ended = |recorder: &Recorder| {
        recorder.events.iter().filter(|event| **event == done(Ok(()))).count()
    };
    turns(ring, &mut recorder, |recorder| ended(recorder) == 40);
    assert!(!dir.join("03/00/0000000000000028.1").exists());
    std::mem::take(&mut *syncs.lock().unwrap())
}

#[test]
fn the_first_sync_makes_an_objects_path_durable_and_the_next_only_its_bytes() {
    let dir = tempdir();
    let (mut ring, syncs) = counting_syncs(dir.path(), false);
    let mut sync = |inode| count_sync(&mut ring, &syncs, inode);
    // The file; then its directory, the shard's and the store, each opened and synced.
    assert_eq!(sync(1), 7);
    assert_eq!(sync(1), 1);
    // Another object in the same directory needs only that directory.
    assert_eq!(sync(2), 3);
    assert_eq!(sync(0x4000), 7);
    // Each removal opens and syncs the directory.
    assert_eq!(count_removals(&mut ring, &syncs, dir.path()), 80);
}

#[test]
fn where_names_follow_files_one_sync_is_enough_for_a_file_and_for_many_removals() {
    let dir = tempdir();
    let (mut ring, syncs) = counting_syncs(dir.path(), true);
    assert_eq!(count_sync(&mut ring, &syncs, 1), 1);
    let sync_count = count_removals(&mut ring, &syncs, dir.path());
    assert!((2..80).contains(&sync_count), "{sync_count} syncs and opens for 40 removals");
}

#[test]
fn a_sync_that_fails_fails_all_removals_that_waited_for_it() {
    let dir = tempdir();
    let faults = Faults::default();
    let (mut ring, mut recorder) = open(dir.path(), 0, &faults);
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    // The leader's sync fails at either of its two steps: no removal is reported as durable, and a
    // second try works.
    for inode in 1..=8 {
        assert_eq!(write(&mut ring, &mut recorder, (object(inode), 0), b"abc"), done(Ok(())));
    }
    faults.lock().unwrap().push((FaultPoint::ObjectSync, Errno(5)));
    let known_count = recorder.events.len();
    ring.with(|turn| {
        for inode in 1..=8 {
            turn.act(ObjectAction::Remove { ticket: Ticket(1), object: object(inode) });
        }
    });
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == known_count + 8);
    let failed =
        recorder.events[known_count..].iter().filter(|event| **event == done(Err(Errno(5))));
    assert!(failed.count() >= 1);
    for inode in 1..=8 {
        let remove =
            Action::Object(ObjectAction::Remove { ticket: Ticket(1), object: object(inode) });
        assert_eq!(ask(&mut ring, &mut recorder, remove), done(Ok(())));
    }
}

#[test]
fn reads_wait_for_buffers() {
    let dir = tempdir();
    let mut config = ring_config(LaneId(0));
    config.store = Some(File::open(dir.path()).unwrap().into());
    config.checksum_reads = true;
    config.limits.buffer_bytes_max = 2 << 20;
    let mut ring = Ring::new(config).unwrap();
    let mut recorder = Recorder::default();
    let object = object(3);
    let bytes = noise(3, 1 << 20);
    assert_eq!(write(&mut ring, &mut recorder, (object, 0), &bytes), done(Ok(())));
    ring.with(|turn| {
        for ticket in 0..6 {
            turn.act(ObjectAction::Read {
                ticket: Ticket(ticket),
                object,
                object_offset: 0,
                read_bytes: 1 << 20,
                only_cached: false,
            });
        }
    });
    for ticket in 0..6_u64 {
        let known_count = 1 + usize::try_from(ticket).unwrap();
        turns(&mut ring, &mut recorder, |recorder| recorder.events.len() > known_count);
        let Event::Object(ObjectEvent::Read { result: Ok(Some(bulk)), .. }) =
            recorder.events[known_count]
        else {
            panic!("{:?}", recorder.events[known_count])
        };
        assert_eq!(ring.bulk_bytes(bulk), bytes);
        ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
    }
}

#[test]
fn the_file_systems_space_is_reported() {
    let dir = tempdir();
    let (mut ring, mut recorder) = open(dir.path(), 0, &Faults::default());
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    let event =
        ask(&mut ring, &mut recorder, Action::Store(StoreAction::Space { ticket: Ticket(9) }));
    let Event::Store(StoreEvent::Space { ticket: Ticket(9), result: Ok(space) }) = event else {
        panic!("{event:?}")
    };
    assert!(space.total_bytes >= space.free_bytes);
    assert!(space.free_bytes >= space.available_bytes);
    assert!(space.total_bytes > 0);
}

#[test]
fn worker_threads_run_on_their_cores() {
    let core = ring::usable_cores().unwrap()[0];
    let dir = tempdir();
    let mut config = ring_config(LaneId(0));
    let file = File::create(dir.path().join("log")).unwrap().into();
    config.log = Some(LogFile { file, start_offset: 0, reserve_bytes: RESERVE_BYTES, feed: None });
    config.worker_cores = vec![core];
    let (mut ring, mut recorder) = (Ring::new(config).unwrap(), Recorder::default());
    let own_id = rustix::thread::gettid().as_raw_nonzero();
    let worker_name = match ring.driver() {
        DriverKind::IoUring => format!("iou-wrk-{own_id}"),
        DriverKind::Epoll => format!("files-{own_id}"),
    };
    // A durable write is never done on the lane's own thread. An idle kernel worker ends after a
    // while, which on a busy machine may be before the test finds it; one of our own threads takes its
    // core when it first runs.
    let cores_of_worker = std::iter::repeat_with(|| {
        append(&mut ring, &mut recorder, b"x").unwrap();
        cores_of(&worker_name)
    });
    let wanted = [(core.into(), core.into())];
    let is_on_core =
        |found: &Vec<_>| !found.is_empty() && found.iter().all(|cores| *cores == wanted);
    assert!(cores_of_worker.take(10_000).any(|found| is_on_core(&found)), "{worker_name}");
}
