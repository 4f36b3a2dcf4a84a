//! Every engine, through and past the page cache, on real files.

use super::support::{
    Recorder, ask, cores_of, is_tmpfs, noise, pieces_of, ring_config, takes_direct, tempdir,
    tempdir_in_memory, turns, write,
};
use interface::{Action, Bulk, Errno, Event, Object, ObjectAction, ObjectEvent, SumRange, Ticket};
use ring::{FaultPoint, IoEngine, Ring};
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use wire::{InodeNo, LaneId, Wire as _};

const PAGE: usize = 4096;

/// An engine, and whether it bypasses the page cache.
#[derive(Clone, Copy, Debug)]
struct Way {
    engine: IoEngine,
    direct: bool,
}

/// A ring with objects, and its events.
struct Fixture {
    way: Way,
    dir: TempDir,
    ring: Ring,
    recorder: Recorder,
    faults: Arc<Mutex<Vec<(FaultPoint, Errno)>>>,
}

/// Runs a test with each engine of this driver, through the page cache, and past it where the file
/// system supports that.
fn on_each(run: impl Fn(&mut Fixture)) {
    let directs: &[bool] = if takes_direct() { &[false, true] } else { &[false] };
    for engine in IoEngine::ALL {
        for direct in directs.iter().copied().filter(|_| engine.check(super::DRIVER).is_ok()) {
            let way = Way { engine, direct };
            eprintln!("{way:?}");
            run(&mut Fixture::new(way));
        }
    }
}

impl Fixture {
    fn new(way: Way) -> Self {
        Self::new_in(way, tempdir())
    }

    fn new_in(way: Way, dir: TempDir) -> Self {
        let mut config = ring_config(LaneId(0));
        (config.engine, config.direct) = (way.engine, way.direct);
        config.store = Some(File::open(dir.path()).unwrap().into());
        let faults: Arc<Mutex<Vec<(FaultPoint, Errno)>>> = Arc::default();
        let found = Arc::clone(&faults);
        config.fault = Some(Arc::new(move |point| {
            let mut faults = found.lock().unwrap();
            let index = faults.iter().position(|(at, _)| *at == point)?;
            // Errno 0: this call succeeds.
            Some(faults.remove(index).1).filter(|errno| errno.0 != 0)
        }));
        let ring = Ring::new(config).unwrap();
        Self { way, dir, ring, recorder: Recorder::default(), faults }
    }

    /// Whether large reads may be sent from their file.
    fn uses_file_ranges(&self) -> bool {
        matches!(self.way.engine, IoEngine::Auto | IoEngine::Uring) && !self.way.direct
    }

    fn ask(&mut self, action: Action) -> Event {
        ask(&mut self.ring, &mut self.recorder, action)
    }

    fn write(&mut self, object: Object, object_offset: usize, bytes: &[u8]) -> Event {
        let at = (Ticket(1), object, object_offset as u64);
        write(&mut self.ring, &mut self.recorder, at, 0, bytes)
    }

    /// The bytes read; for a file range, the file's.
    fn read(&mut self, object: Object, offset: usize, count: usize) -> Vec<u8> {
        match self.ask(read(object, 2, offset, count)) {
            Event::Object(ObjectEvent::Read { result: Ok(None), .. }) => Vec::new(),
            Event::Object(ObjectEvent::Read { result: Ok(Some(bulk)), .. }) => {
                self.bytes(object, offset, bulk)
            }
            other => panic!("{other:?}"),
        }
    }

    fn bytes(&mut self, object: Object, offset: usize, bulk: Bulk) -> Vec<u8> {
        let count = bulk.bulk_bytes as usize;
        let bytes = if self.uses_file_ranges() && count >= 64 * 1024 {
            self.contents(object)[offset..offset + count].to_vec()
        } else {
            self.ring.bulk_bytes(bulk).to_vec()
        };
        self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
        bytes
    }

    /// The object's file, read independently.
    fn contents(&self, object: Object) -> Vec<u8> {
        fs::read(self.path(object)).unwrap()
    }

    fn path(&self, object: Object) -> PathBuf {
        let inode = object.inode.0;
        self.dir.path().join(format!("03/{:02x}/{inode:016x}.1", inode >> 14))
    }

    /// Writes an object and evicts it from the page cache.
    fn write_evicted(&mut self, object: Object, bytes: &[u8]) {
        assert_eq!(self.write(object, 0, bytes), done(Ok(())));
        let file = File::open(self.path(object)).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    fn read_list(&mut self, object: Object, pieces: &[(u64, u32)], only_cached: bool) -> Event {
        let pieces = pieces_of(object.stripe_index, pieces);
        let known_count = self.recorder.events.len();
        self.ring.with(|turn| {
            let pieces = turn.arena.put(&pieces);
            turn.act(ObjectAction::ReadList { ticket: Ticket(4), object, pieces, only_cached });
        });
        turns(&mut self.ring, &mut self.recorder, |recorder| recorder.events.len() > known_count);
        self.recorder.events[known_count]
    }

    /// Whether the last checksums came from the disk.
    fn summed_from_disk(&self) -> bool {
        let Some(Event::Object(ObjectEvent::Sums { from_disk, .. })) = self.recorder.events.last()
        else {
            panic!("{:?}", self.recorder.events.last())
        };
        *from_disk
    }
}

fn object(inode: u64) -> Object {
    Object { shard_index: 3, stripe_index: 1, inode: InodeNo(inode) }
}

fn read(object: Object, ticket: u64, offset: usize, count: usize) -> Action {
    let (ticket, object_offset) = (Ticket(ticket), offset as u64);
    Action::Object(ObjectAction::Read {
        ticket,
        object,
        object_offset,
        read_bytes: count as u32,
        only_cached: false,
    })
}

fn read_cached(object: Object, ticket: u64, offset: usize, count: usize) -> Action {
    let (ticket, object_offset) = (Ticket(ticket), offset as u64);
    let read_bytes = count as u32;
    Action::Object(ObjectAction::Read {
        ticket,
        object,
        object_offset,
        read_bytes,
        only_cached: true,
    })
}

fn done(result: Result<(), Errno>) -> Event {
    Event::Object(ObjectEvent::Done { ticket: Ticket(1), result })
}

#[test]
fn reads_and_writes_of_every_size_and_offset_are_short_only_at_the_end() {
    on_each(|fixture| {
        let object = object(1);
        let mut model = Vec::new();
        for (index, count) in
            [PAGE, 1, 16 * PAGE, 100, 3 * PAGE, 70_001, 1 << 20].iter().enumerate()
        {
            for offset in [0, PAGE, 5000, 8 * PAGE, 700_000] {
                let bytes = noise(index as u64 + offset as u64, *count);
                assert_eq!(fixture.write(object, offset, &bytes), done(Ok(())));
                let end = offset + count;
                model.resize(model.len().max(end), 0);
                model[offset..end].copy_from_slice(&bytes);
            }
        }
        assert!(fixture.contents(object) == model, "{:?}", fixture.way);
        for count in [1, PAGE, 16 * PAGE, 65_537, 1 << 20] {
            for offset in [0, 1, PAGE, 700_000, 175 * PAGE, model.len() - PAGE, model.len() - 3] {
                let end = model.len().min(offset + count);
                let found = fixture.read(object, offset, count);
                assert!(found == model[offset..end], "{:?}: {count} at {offset}", fixture.way);
            }
        }
        let pages = model.len().next_multiple_of(PAGE);
        assert!(model.len() < pages, "its end is within a page");
        assert!(fixture.read(object, pages - PAGE, PAGE) == model[pages - PAGE..], "short");
        assert!(fixture.read(object, pages, PAGE).is_empty(), "behind the end");
        let direct_count = fixture.ring.counters().object_direct_count;
        assert_eq!(direct_count > 0, fixture.way.direct, "{:?}", fixture.way);
        assert_eq!(fixture.ring.buffer_bytes(), 0, "every buffer was released");
    });
}

#[test]
fn buffered_and_direct_transfers_of_a_file_are_consistent() {
    on_each(|fixture| {
        let object = object(2);
        let mut model = vec![0; 64 * PAGE];
        let mut rng = fastrand::Rng::with_seed(7);
        let mut roll = |below: usize| rng.usize(..below);
        for step in 0..300 {
            let aligned = roll(2) == 0;
            let unit = if aligned { PAGE } else { 1000 };
            let (offset, count) = (roll(40) * unit, (1 + roll(8)) * unit);
            if roll(2) == 0 {
                let bytes = noise(step, count);
                assert_eq!(fixture.write(object, offset, &bytes), done(Ok(())));
                model[offset..offset + count].copy_from_slice(&bytes);
            } else if roll(16) == 0 {
                let size = roll(60) * unit;
                let ticket = Ticket(1);
                let cut = Action::Object(ObjectAction::Truncate {
                    ticket,
                    object,
                    size_bytes: size as u64,
                });
                assert_eq!(fixture.ask(cut), done(Ok(())));
                model[size..].fill(0);
            } else {
                let found = fixture.read(object, offset, count);
                let (there, behind) = model[offset..offset + count].split_at(found.len());
                assert!(found == there, "{:?}: {count} at {offset}", fixture.way);
                assert!(behind.iter().all(|byte| *byte == 0), "{:?}", fixture.way);
            }
            let seen = fixture.dir.path().join("03/00/0000000000000002.1");
            let seen = fs::read(seen).unwrap_or_default();
            assert!(seen == model[..seen.len()], "{:?}: others see it too", fixture.way);
        }
    });
}

#[test]
fn with_every_engine_an_io_error_is_reported_and_a_retry_works() {
    on_each(|fixture| {
        let object = object(3);
        let bytes = noise(3, PAGE);
        let fail = |fixture: &Fixture, point, errno| {
            fixture.faults.lock().unwrap().push((point, Errno(errno)))
        };
        fail(fixture, FaultPoint::ObjectOpen, 24);
        assert_eq!(fixture.write(object, 0, &bytes), done(Err(Errno(24))));
        fail(fixture, FaultPoint::ObjectWrite, 28);
        assert_eq!(fixture.write(object, 0, &bytes), done(Err(Errno(28))));
        assert_eq!(fixture.write(object, 0, &bytes), done(Ok(())));
        fail(fixture, FaultPoint::ObjectRead, 5);
        let failed = Event::Object(ObjectEvent::Read { ticket: Ticket(2), result: Err(Errno(5)) });
        assert_eq!(fixture.ask(read(object, 2, 0, PAGE)), failed);
        fail(fixture, FaultPoint::ObjectRead, 4);
        assert!(fixture.read(object, 0, PAGE) == bytes, "a signal is no failure");
        // If the file cannot be opened with O_DIRECT, all I/O goes through the page cache.
        let before = fixture.ring.counters().object_direct_count;
        fail(fixture, FaultPoint::ObjectOpen, 0);
        fail(fixture, FaultPoint::ObjectOpen, 24);
        assert_eq!(fixture.write(super::engines::object(4), 0, &bytes), done(Ok(())));
        assert_eq!(fixture.ring.counters().object_direct_count, before);
        assert_eq!(fixture.ring.buffer_bytes(), 0, "every buffer was released");
    });
}

#[test]
fn reads_of_one_file_are_concurrent() {
    const COUNT: usize = 64;
    on_each(|fixture| {
        let bytes = noise(5, COUNT * PAGE);
        for inode in 1..=4 {
            assert_eq!(fixture.write(object(inode), 0, &bytes), done(Ok(())));
        }
        let before = fixture.ring.counters();
        let read_all = |fixture: &mut Fixture, inodes: &[u64]| {
            let known_count = fixture.recorder.events.len();
            fixture.ring.with(|turn| {
                for index in 0..COUNT {
                    let inode = inodes[index % inodes.len()];
                    turn.act(read(object(inode), index as u64, index * PAGE, PAGE));
                }
            });
            turns(&mut fixture.ring, &mut fixture.recorder, |recorder| {
                recorder.events.len() == known_count + COUNT
            });
            for event in fixture.recorder.events.split_off(known_count) {
                let Event::Object(ObjectEvent::Read { ticket, result: Ok(Some(bulk)) }) = event
                else {
                    panic!("{event:?}")
                };
                let at = usize::try_from(ticket.0).unwrap() * PAGE;
                assert!(fixture.ring.bulk_bytes(bulk) == &bytes[at..at + PAGE]);
                fixture.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
            }
            fixture.ring.counters()
        };
        // Reads of four files: the same number in all, a quarter of each.
        let apart = read_all(fixture, &[1, 2, 3, 4]);
        assert_eq!((apart.object_under_way_max, apart.object_under_way_one_max), (64, 16));
        let shared = read_all(fixture, &[1]);
        assert_eq!((shared.object_under_way_max, shared.object_under_way_one_max), (64, 64));
        let handed_count = shared.object_handed_count - before.object_handed_count;
        let thread_count = shared.object_thread_count - before.object_thread_count;
        match fixture.way.engine {
            IoEngine::Inline => assert_eq!((handed_count, thread_count), (0, 0)),
            IoEngine::ThreadPerOp => assert_eq!((handed_count, thread_count), (128, 128)),
            IoEngine::Pool => {
                assert_eq!(handed_count, 128);
                assert!(thread_count <= 16, "{thread_count} threads");
            }
            IoEngine::PosixAio => {
                assert_eq!(handed_count, 128);
                // A thread may report a write that was already seen to have ended.
                let (notified, offloaded) =
                    (shared.object_thread_count, shared.object_handed_count);
                assert!(
                    notified <= offloaded,
                    "{notified} threads reported {offloaded} operations"
                );
            }
            IoEngine::Auto | IoEngine::Uring => {
                let on_epoll = super::DRIVER == ring::DriverKind::Epoll;
                // Direct transfers are never tried on the lane's thread.
                assert!(handed_count == 0 || on_epoll);
                assert!(handed_count == 128 || !on_epoll || !fixture.way.direct);
            }
        }
    });
}

#[test]
fn a_dropped_ring_waits_for_operations_of_its_engine() {
    for round in 0..3 {
        on_each(|fixture| {
            let object = object(6);
            let old = vec![1; 64 * PAGE];
            assert_eq!(fixture.write(object, 0, &old), done(Ok(())));
            let bulk = fixture.ring.bulk_of(&vec![2; PAGE]).unwrap();
            fixture.ring.with(|turn| {
                for index in 0..64 {
                    let (ticket, object_offset) = (Ticket(1), index * PAGE as u64);
                    turn.act(ObjectAction::Write {
                        ticket,
                        object,
                        object_offset,
                        bulk,
                        block_bytes: 0,
                    });
                    turn.act(read(object, 2, usize::try_from(index).unwrap() * PAGE, PAGE));
                }
                turn.act(Action::Release { buf: bulk.buf });
            });
            // Not even started; or started and no result taken; or some taken.
            for _ in 0..round {
                fixture.ring.with(|turn| turn.act(Action::WakeAt { at: turn.now.mono }));
                fixture.ring.turn(&mut fixture.recorder).unwrap();
            }
            let other = Fixture::new(fixture.way);
            drop(std::mem::replace(&mut fixture.ring, other.ring));
            let found = fixture.contents(object);
            assert!(found.chunks(PAGE).all(|page| page == [1; PAGE] || page == [2; PAGE]));
            fs::remove_file(fixture.dir.path().join("03/00/0000000000000006.1")).unwrap();
        });
    }
}

#[test]
fn engine_threads_run_on_their_cores_and_the_lane_on_its_own() {
    let cores = ring::usable_cores().unwrap();
    let core = cores[0];
    for engine in [IoEngine::Pool, IoEngine::ThreadPerOp, IoEngine::PosixAio] {
        if engine.check(super::DRIVER).is_err() {
            continue;
        }
        let dir = tempdir();
        let mut config = ring_config(LaneId(0));
        (config.engine, config.worker_cores) = (engine, vec![core]);
        config.store = Some(File::open(dir.path()).unwrap().into());
        let (mut ring, mut recorder) = (Ring::new(config).unwrap(), Recorder::default());
        let bulk = ring.bulk_of(&noise(1, PAGE)).unwrap();
        let action = Action::Object(ObjectAction::Write {
            ticket: Ticket(1),
            object: object(1),
            object_offset: 0,
            bulk,
            block_bytes: 0,
        });
        assert_eq!(ask(&mut ring, &mut recorder, action), done(Ok(())));
        assert_eq!(ring::usable_cores().unwrap(), cores, "the lane is back where it was");
        if engine == IoEngine::Pool {
            let name = format!("objects-{}", rustix::thread::gettid().as_raw_nonzero());
            assert_eq!(cores_of(&name), [[(core.into(), core.into())]]);
        }
    }
}

fn sum(bytes: &[u8]) -> (u32, u32) {
    (wire::crc32c(bytes), u32::try_from(bytes.len()).unwrap())
}

impl Fixture {
    /// The checksums of ranges.
    fn sums(&mut self, object: Object, ranges: &[(usize, usize)]) -> Vec<(u32, u32)> {
        let encoded: Vec<u8> = ranges
            .iter()
            .flat_map(|(offset, count)| {
                let range_bytes = u32::try_from(*count).unwrap();
                SumRange { object_offset: *offset as u64, range_bytes }.to_bytes()
            })
            .collect();
        let known_count = self.recorder.events.len();
        self.ring.with(|turn| {
            let ranges = turn.arena.put(&encoded);
            turn.act(ObjectAction::Sums { ticket: Ticket(6), object, ranges });
        });
        turns(&mut self.ring, &mut self.recorder, |recorder| recorder.events.len() > known_count);
        let event = self.recorder.events[known_count];
        assert!(
            matches!(
                event,
                Event::Object(ObjectEvent::Sums { ticket: Ticket(6), result: Ok(_), .. })
            ),
            "{event:?}"
        );
        self.recorder.sums.pop().unwrap()
    }

    /// Writes, and returns the checksums of the written data, by blocks.
    fn write_summed(&mut self, object: Object, offset: usize, bytes: &[u8]) -> Vec<(u32, u32)> {
        let at = (Ticket(1), object, offset as u64);
        let event = write(&mut self.ring, &mut self.recorder, at, 65_536, bytes);
        assert!(
            matches!(event, Event::Object(ObjectEvent::Written { result: Ok(_), .. })),
            "{event:?}"
        );
        self.recorder.sums.pop().unwrap()
    }
}

#[test]
fn checksums_match_the_written_and_the_stored_bytes() {
    on_each(|fixture| {
        const BLOCK: usize = 65_536;
        let bytes = noise(9, 20 * BLOCK + 77);
        let first = fixture.write_summed(object(1), 0, &bytes[..BLOCK + 100]);
        assert_eq!(first, [sum(&bytes[..BLOCK]), sum(&bytes[BLOCK..BLOCK + 100])]);
        let rest = fixture.write_summed(object(1), BLOCK + 100, &bytes[BLOCK + 100..16 * BLOCK]);
        assert_eq!(rest.len(), 15);
        assert_eq!(rest[0], sum(&bytes[BLOCK + 100..2 * BLOCK]));
        fixture.write_summed(object(1), 16 * BLOCK, &bytes[16 * BLOCK..]);
        let ranges: Vec<(usize, usize)> = (0..21).map(|block| (block * BLOCK, BLOCK)).collect();
        let expected: Vec<(u32, u32)> = bytes.chunks(BLOCK).map(sum).collect();
        assert_eq!(fixture.sums(object(1), &ranges), expected, "what is not there is not covered");
        let few = [(3, 5), (4 * BLOCK, 10), (20 * BLOCK, 50), (30 * BLOCK, 5)];
        let expected = [
            sum(&bytes[3..8]),
            sum(&bytes[4 * BLOCK..4 * BLOCK + 10]),
            sum(&bytes[20 * BLOCK..20 * BLOCK + 50]),
            sum(&[]),
        ];
        assert_eq!(fixture.sums(object(1), &few), expected);
        assert_eq!(fixture.sums(object(2), &[(0, 10)]), [sum(&[])], "there is no such object");
    });
}

/// Each engine, through the page cache.
fn buffered_ways() -> impl Iterator<Item = Way> {
    let engines = IoEngine::ALL.into_iter().filter(|engine| engine.check(super::DRIVER).is_ok());
    engines.map(|engine| Way { engine, direct: false })
}

#[test]
fn a_cached_only_read_returns_bytes_in_the_page_cache() {
    for way in buffered_ways() {
        let dir = tempdir_in_memory();
        let mut fixture = Fixture::new_in(way, dir);
        let bytes = noise(4, 300_000);
        assert_eq!(fixture.write(object(1), 0, &bytes), done(Ok(())));
        for (offset, count) in [(0, 4096), (5, 100_000), (299_000, 1000)] {
            let expected = &bytes[offset..offset + count];
            let found = match fixture.ask(read_cached(object(1), 2, offset, count)) {
                Event::Object(ObjectEvent::Read { result: Ok(Some(bulk)), .. }) => {
                    fixture.bytes(object(1), offset, bulk)
                }
                other => panic!("{way:?}: {other:?}"),
            };
            assert!(found == expected, "{way:?}: {count} bytes at {offset}");
        }
        let Event::Object(ObjectEvent::Read { result: Ok(Some(bulk)), .. }) =
            fixture.read_list(object(1), &[(0, 10), (200_000, 10)], true)
        else {
            panic!("{way:?}")
        };
        let both = [&bytes[..10], &bytes[200_000..200_010]].concat();
        assert_eq!(fixture.ring.bulk_bytes(bulk), both, "{way:?}");
        assert_eq!(fixture.sums(object(1), &[(0, 65_536)]), [sum(&bytes[..65_536])]);
        assert!(!fixture.summed_from_disk(), "{way:?}");
    }
}

#[test]
fn a_cached_only_read_of_evicted_bytes_fails_and_checksums_report_the_disk() {
    if is_tmpfs(&File::open(std::env::temp_dir()).unwrap()) {
        eprintln!("a file system in memory keeps all");
        return;
    }
    for way in buffered_ways() {
        let mut fixture = Fixture::new(way);
        let bytes = noise(4, 300_000);
        // An object each: a read that misses makes the kernel start reading.
        for (inode, count) in [(1, 4096), (2, 200_000)] {
            fixture.write_evicted(object(inode), &bytes);
            let missed = fixture.ask(read_cached(object(inode), 2, 4096, count));
            assert_eq!(
                missed,
                Event::Object(ObjectEvent::Uncached { ticket: Ticket(2) }),
                "{way:?}"
            );
            assert!(fixture.read(object(inode), 4096, count) == bytes[4096..4096 + count]);
        }
        fixture.write_evicted(object(3), &bytes);
        let missed = fixture.read_list(object(3), &[(0, 10), (200_000, 10)], true);
        assert_eq!(missed, Event::Object(ObjectEvent::Uncached { ticket: Ticket(4) }), "{way:?}");
        let read = fixture.read_list(object(3), &[(0, 10), (200_000, 10)], false);
        assert!(
            matches!(read, Event::Object(ObjectEvent::Read { result: Ok(Some(_)), .. })),
            "{read:?}"
        );
        fixture.write_evicted(object(4), &bytes);
        assert_eq!(fixture.sums(object(4), &[(65_536, 65_536)]), [sum(&bytes[65_536..131_072])]);
        assert!(fixture.summed_from_disk(), "{way:?}");
    }
}
