//! Every engine, through the page cache and past it, on real files.

use super::support::{
    Diary, Dir, ask, cores_of, is_tmpfs, noise, ring_config, takes_direct, turns, write,
};
use interface::{Action, Bulk, Errno, Event, Object, ObjectAction, ObjectEvent, SumRange, Ticket};
use ring::{FaultPoint, IoEngine, Ring};
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use wire::{InodeNo, LaneId, Piece, Pieces, Wire as _};

const PAGE: usize = 4096;

/// An engine, and whether it goes past the page cache.
#[derive(Clone, Copy, Debug)]
struct Way {
    engine: IoEngine,
    direct: bool,
}

/// A ring with objects, and what it said.
struct Stand {
    way: Way,
    dir: Dir,
    ring: Ring,
    diary: Diary,
    faults: Arc<Mutex<Vec<(FaultPoint, Errno)>>>,
}

/// Runs a test with each engine that this driver may have, both ways where the file system allows it.
fn on_each(name: &str, run: impl Fn(&mut Stand)) {
    let directs: &[bool] = if takes_direct() { &[false, true] } else { &[false] };
    for engine in IoEngine::ALL {
        for direct in directs.iter().copied().filter(|_| engine.check(super::DRIVER).is_ok()) {
            let way = Way { engine, direct };
            eprintln!("{way:?}");
            run(&mut Stand::new(way, &format!("{name}-{}-{direct}", engine.text())));
        }
    }
}

impl Stand {
    fn new(way: Way, name: &str) -> Self {
        Self::new_in(way, Dir::new(name))
    }

    fn new_in(way: Way, dir: Dir) -> Self {
        let mut config = ring_config(LaneId(0));
        (config.engine, config.direct) = (way.engine, way.direct);
        config.store = Some(File::open(&dir.0).unwrap().into());
        let faults: Arc<Mutex<Vec<(FaultPoint, Errno)>>> = Arc::default();
        let found = Arc::clone(&faults);
        config.fault = Some(Arc::new(move |point| {
            let mut faults = found.lock().unwrap();
            let index = faults.iter().position(|(at, _)| *at == point)?;
            // 0: this time it goes well.
            Some(faults.remove(index).1).filter(|errno| errno.0 != 0)
        }));
        let ring = Ring::new(config).unwrap();
        Self { way, dir, ring, diary: Diary::default(), faults }
    }

    /// Whether large reads may stay in their file.
    fn lends(&self) -> bool {
        matches!(self.way.engine, IoEngine::Auto | IoEngine::Uring) && !self.way.direct
    }

    fn ask(&mut self, action: Action) -> Event {
        ask(&mut self.ring, &mut self.diary, action)
    }

    fn write(&mut self, object: Object, object_offset: usize, bytes: &[u8]) -> Event {
        let at = (Ticket(1), object, object_offset as u64);
        write(&mut self.ring, &mut self.diary, at, 0, bytes)
    }

    /// What was read; of what stays in its file, what the file has there.
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
        let bytes = if self.lends() && count >= 64 * 1024 {
            self.contents(object)[offset..offset + count].to_vec()
        } else {
            self.ring.bulk_bytes(bulk).to_vec()
        };
        self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
        bytes
    }

    /// The object's file, as others see it.
    fn contents(&self, object: Object) -> Vec<u8> {
        fs::read(self.path(object)).unwrap()
    }

    fn path(&self, object: Object) -> PathBuf {
        let inode = object.inode.0;
        self.dir.0.join(format!("03/{:02x}/{inode:016x}.1", inode >> 14))
    }

    /// An object of these bytes that the page cache has nothing of.
    fn write_evicted(&mut self, object: Object, bytes: &[u8]) {
        assert_eq!(self.write(object, 0, bytes), done(Ok(())));
        let file = File::open(self.path(object)).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    fn read_list(&mut self, object: Object, pieces: &[(u64, u32)], only_cached: bool) -> Event {
        let piece = |&(file_offset, piece_bytes): &(u64, u32)| Piece { file_offset, piece_bytes };
        let pieces = Pieces::new(pieces.iter().map(piece).collect()).unwrap().to_bytes();
        let known_count = self.diary.events.len();
        self.ring.with(|turn| {
            let pieces = turn.arena.put(&pieces);
            turn.act(ObjectAction::ReadList { ticket: Ticket(4), object, pieces, only_cached });
        });
        turns(&mut self.ring, &mut self.diary, |diary| diary.events.len() > known_count);
        self.diary.events[known_count]
    }

    /// Whether the last checksums came from the disk.
    fn summed_from_disk(&self) -> bool {
        let Some(Event::Object(ObjectEvent::Sums { from_disk, .. })) = self.diary.events.last()
        else {
            panic!("{:?}", self.diary.events.last())
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
fn reads_and_writes_of_every_size_and_place_are_right_and_short_only_at_the_end() {
    on_each("engine-sizes", |stand| {
        let object = object(1);
        let mut model = Vec::new();
        for (index, count) in
            [PAGE, 1, 16 * PAGE, 100, 3 * PAGE, 70_001, 1 << 20].iter().enumerate()
        {
            for offset in [0, PAGE, 5000, 8 * PAGE, 700_000] {
                let bytes = noise(index as u64 + offset as u64, *count);
                assert_eq!(stand.write(object, offset, &bytes), done(Ok(())));
                let end = offset + count;
                model.resize(model.len().max(end), 0);
                model[offset..end].copy_from_slice(&bytes);
            }
        }
        assert!(stand.contents(object) == model, "{:?}", stand.way);
        for count in [1, PAGE, 16 * PAGE, 65_537, 1 << 20] {
            for offset in [0, 1, PAGE, 700_000, 175 * PAGE, model.len() - PAGE, model.len() - 3] {
                let end = model.len().min(offset + count);
                let found = stand.read(object, offset, count);
                assert!(found == model[offset..end], "{:?}: {count} at {offset}", stand.way);
            }
        }
        let pages = model.len().next_multiple_of(PAGE);
        assert!(model.len() < pages, "its end is within a page");
        assert!(stand.read(object, pages - PAGE, PAGE) == model[pages - PAGE..], "short");
        assert!(stand.read(object, pages, PAGE).is_empty(), "behind the end");
        let direct_count = stand.ring.counters().object_direct_count;
        assert_eq!(direct_count > 0, stand.way.direct, "{:?}", stand.way);
        assert_eq!(stand.ring.buffer_bytes(), 0, "every buffer came back");
    });
}

#[test]
fn what_went_through_the_page_cache_and_what_went_past_it_are_one_file() {
    on_each("engine-mixed", |stand| {
        let object = object(2);
        let mut model = vec![0; 64 * PAGE];
        let mut dice = noise(7, 4000).into_iter().map(usize::from);
        let mut roll = |below: usize| dice.next().unwrap() * below / 256;
        for step in 0..300 {
            let aligned = roll(2) == 0;
            let unit = if aligned { PAGE } else { 1000 };
            let (offset, count) = (roll(40) * unit, (1 + roll(8)) * unit);
            if roll(2) == 0 {
                let bytes = noise(step, count);
                assert_eq!(stand.write(object, offset, &bytes), done(Ok(())));
                model[offset..offset + count].copy_from_slice(&bytes);
            } else if roll(16) == 0 {
                let size = roll(60) * unit;
                let ticket = Ticket(1);
                let cut = Action::Object(ObjectAction::Truncate {
                    ticket,
                    object,
                    size_bytes: size as u64,
                });
                assert_eq!(stand.ask(cut), done(Ok(())));
                model[size..].fill(0);
            } else {
                let found = stand.read(object, offset, count);
                let (there, behind) = model[offset..offset + count].split_at(found.len());
                assert!(found == there, "{:?}: {count} at {offset}", stand.way);
                assert!(behind.iter().all(|byte| *byte == 0), "{:?}", stand.way);
            }
            let seen = stand.dir.0.join("03/00/0000000000000002.1");
            let seen = fs::read(seen).unwrap_or_default();
            assert!(seen == model[..seen.len()], "{:?}: others see it too", stand.way);
        }
    });
}

#[test]
fn a_failing_medium_is_told_and_the_next_try_works_with_every_engine() {
    on_each("engine-faults", |stand| {
        let object = object(3);
        let bytes = noise(3, PAGE);
        let fail =
            |stand: &Stand, point, errno| stand.faults.lock().unwrap().push((point, Errno(errno)));
        fail(stand, FaultPoint::ObjectOpen, 24);
        assert_eq!(stand.write(object, 0, &bytes), done(Err(Errno(24))));
        fail(stand, FaultPoint::ObjectWrite, 28);
        assert_eq!(stand.write(object, 0, &bytes), done(Err(Errno(28))));
        assert_eq!(stand.write(object, 0, &bytes), done(Ok(())));
        fail(stand, FaultPoint::ObjectRead, 5);
        let failed = Event::Object(ObjectEvent::Read { ticket: Ticket(2), result: Err(Errno(5)) });
        assert_eq!(stand.ask(read(object, 2, 0, PAGE)), failed);
        fail(stand, FaultPoint::ObjectRead, 4);
        assert!(stand.read(object, 0, PAGE) == bytes, "a signal is no failure");
        // Where the file cannot be opened once more, all goes through the page cache.
        let before = stand.ring.counters().object_direct_count;
        fail(stand, FaultPoint::ObjectOpen, 0);
        fail(stand, FaultPoint::ObjectOpen, 24);
        assert_eq!(stand.write(super::engines::object(4), 0, &bytes), done(Ok(())));
        assert_eq!(stand.ring.counters().object_direct_count, before);
        assert_eq!(stand.ring.buffer_bytes(), 0, "every buffer came back");
    });
}

#[test]
fn nothing_of_ours_queues_reads_by_file() {
    const COUNT: usize = 64;
    on_each("engine-queue", |stand| {
        let bytes = noise(5, COUNT * PAGE);
        for inode in 1..=4 {
            assert_eq!(stand.write(object(inode), 0, &bytes), done(Ok(())));
        }
        let before = stand.ring.counters();
        let read_all = |stand: &mut Stand, inodes: &[u64]| {
            let known_count = stand.diary.events.len();
            stand.ring.with(|turn| {
                for index in 0..COUNT {
                    let inode = inodes[index % inodes.len()];
                    turn.act(read(object(inode), index as u64, index * PAGE, PAGE));
                }
            });
            turns(&mut stand.ring, &mut stand.diary, |diary| {
                diary.events.len() == known_count + COUNT
            });
            for event in stand.diary.events.split_off(known_count) {
                let Event::Object(ObjectEvent::Read { ticket, result: Ok(Some(bulk)) }) = event
                else {
                    panic!("{event:?}")
                };
                let at = usize::try_from(ticket.0).unwrap() * PAGE;
                assert!(stand.ring.bulk_bytes(bulk) == &bytes[at..at + PAGE]);
                stand.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
            }
            stand.ring.counters()
        };
        // Of four files: the same number of all, a quarter of each.
        let apart = read_all(stand, &[1, 2, 3, 4]);
        assert_eq!((apart.object_under_way_max, apart.object_under_way_one_max), (64, 16));
        let shared = read_all(stand, &[1]);
        assert_eq!((shared.object_under_way_max, shared.object_under_way_one_max), (64, 64));
        let handed_count = shared.object_handed_count - before.object_handed_count;
        let thread_count = shared.object_thread_count - before.object_thread_count;
        match stand.way.engine {
            IoEngine::Inline => assert_eq!((handed_count, thread_count), (0, 0)),
            IoEngine::ThreadPerOp => assert_eq!((handed_count, thread_count), (128, 128)),
            IoEngine::Pool => {
                assert_eq!(handed_count, 128);
                assert!(thread_count <= 16, "{thread_count} threads");
            }
            IoEngine::PosixAio => {
                assert_eq!(handed_count, 128);
                // One may tell of a write that was seen to have ended before.
                let (told, given) = (shared.object_thread_count, shared.object_handed_count);
                assert!(told <= given, "{told} threads told of {given} operations");
            }
            IoEngine::Auto | IoEngine::Uring => {
                let on_epoll = super::DRIVER == ring::DriverKind::Epoll;
                // Past the page cache nothing is tried at once.
                assert!(handed_count == 0 || on_epoll);
                assert!(handed_count == 128 || !on_epoll || !stand.way.direct);
            }
        }
    });
}

#[test]
fn a_ring_that_ends_waits_for_what_its_engine_has() {
    for round in 0..3 {
        on_each("engine-end", |stand| {
            let object = object(6);
            let old = vec![1; 64 * PAGE];
            assert_eq!(stand.write(object, 0, &old), done(Ok(())));
            let bulk = stand.ring.bulk_of(&vec![2; PAGE]).unwrap();
            stand.ring.with(|turn| {
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
            // Not even begun; or begun and nothing taken; or some taken.
            for _ in 0..round {
                stand.ring.with(|turn| turn.act(Action::WakeAt { at: turn.now.mono }));
                stand.ring.turn(&mut stand.diary).unwrap();
            }
            let other = Stand::new(stand.way, "engine-end-other");
            drop(std::mem::replace(&mut stand.ring, other.ring));
            let found = stand.contents(object);
            assert!(found.chunks(PAGE).all(|page| page == [1; PAGE] || page == [2; PAGE]));
            fs::remove_file(stand.dir.0.join("03/00/0000000000000006.1")).unwrap();
        });
    }
}

#[test]
fn threads_of_engines_stay_on_the_cores_they_were_given_and_the_lane_on_its_own() {
    let cores = ring::usable_cores().unwrap();
    let core = cores[0];
    for engine in [IoEngine::Pool, IoEngine::ThreadPerOp, IoEngine::PosixAio] {
        if engine.check(super::DRIVER).is_err() {
            continue;
        }
        let dir = Dir::new(&format!("engine-cores-{}", engine.text()));
        let mut config = ring_config(LaneId(0));
        (config.engine, config.worker_cores) = (engine, vec![core]);
        config.store = Some(File::open(&dir.0).unwrap().into());
        let (mut ring, mut diary) = (Ring::new(config).unwrap(), Diary::default());
        let bulk = ring.bulk_of(&noise(1, PAGE)).unwrap();
        let action = Action::Object(ObjectAction::Write {
            ticket: Ticket(1),
            object: object(1),
            object_offset: 0,
            bulk,
            block_bytes: 0,
        });
        assert_eq!(ask(&mut ring, &mut diary, action), done(Ok(())));
        assert_eq!(ring::usable_cores().unwrap(), cores, "the lane is back where it was");
        if engine == IoEngine::Pool {
            let name = format!("objects-{}", rustix::thread::gettid().as_raw_nonzero());
            assert_eq!(cores_of(&name), [core.to_string()]);
        }
    }
}

fn sum(bytes: &[u8]) -> (u32, u32) {
    (wire::crc32c(bytes), u32::try_from(bytes.len()).unwrap())
}

impl Stand {
    /// The checksums of ranges.
    fn sums(&mut self, object: Object, ranges: &[(usize, usize)]) -> Vec<(u32, u32)> {
        let encoded: Vec<u8> = ranges
            .iter()
            .flat_map(|(offset, count)| {
                let range_bytes = u32::try_from(*count).unwrap();
                SumRange { object_offset: *offset as u64, range_bytes }.to_bytes()
            })
            .collect();
        let known_count = self.diary.events.len();
        self.ring.with(|turn| {
            let ranges = turn.arena.put(&encoded);
            turn.act(ObjectAction::Sums { ticket: Ticket(6), object, ranges });
        });
        turns(&mut self.ring, &mut self.diary, |diary| diary.events.len() > known_count);
        let event = self.diary.events[known_count];
        assert!(
            matches!(
                event,
                Event::Object(ObjectEvent::Sums { ticket: Ticket(6), result: Ok(_), .. })
            ),
            "{event:?}"
        );
        self.diary.sums.pop().unwrap()
    }

    /// Writes, and the checksums of what was written, by blocks.
    fn write_summed(&mut self, object: Object, offset: usize, bytes: &[u8]) -> Vec<(u32, u32)> {
        let at = (Ticket(1), object, offset as u64);
        let event = write(&mut self.ring, &mut self.diary, at, 65_536, bytes);
        assert!(
            matches!(event, Event::Object(ObjectEvent::Written { result: Ok(_), .. })),
            "{event:?}"
        );
        self.diary.sums.pop().unwrap()
    }
}

#[test]
fn checksums_are_those_of_what_was_written_and_of_what_is_there() {
    on_each("sums", |stand| {
        const BLOCK: usize = 65_536;
        let bytes = noise(9, 20 * BLOCK + 77);
        let first = stand.write_summed(object(1), 0, &bytes[..BLOCK + 100]);
        assert_eq!(first, [sum(&bytes[..BLOCK]), sum(&bytes[BLOCK..BLOCK + 100])]);
        let rest = stand.write_summed(object(1), BLOCK + 100, &bytes[BLOCK + 100..16 * BLOCK]);
        assert_eq!(rest.len(), 15);
        assert_eq!(rest[0], sum(&bytes[BLOCK + 100..2 * BLOCK]));
        stand.write_summed(object(1), 16 * BLOCK, &bytes[16 * BLOCK..]);
        let ranges: Vec<(usize, usize)> = (0..21).map(|block| (block * BLOCK, BLOCK)).collect();
        let expected: Vec<(u32, u32)> = bytes.chunks(BLOCK).map(sum).collect();
        assert_eq!(stand.sums(object(1), &ranges), expected, "what is not there is not covered");
        let few = [(3, 5), (4 * BLOCK, 10), (20 * BLOCK, 50), (30 * BLOCK, 5)];
        let expected = [
            sum(&bytes[3..8]),
            sum(&bytes[4 * BLOCK..4 * BLOCK + 10]),
            sum(&bytes[20 * BLOCK..20 * BLOCK + 50]),
            sum(&[]),
        ];
        assert_eq!(stand.sums(object(1), &few), expected);
        assert_eq!(stand.sums(object(2), &[(0, 10)]), [sum(&[])], "there is no such object");
    });
}

/// Each engine, through the page cache.
fn buffered_ways() -> impl Iterator<Item = Way> {
    let engines = IoEngine::ALL.into_iter().filter(|engine| engine.check(super::DRIVER).is_ok());
    engines.map(|engine| Way { engine, direct: false })
}

#[test]
fn what_the_page_cache_has_is_read_from_it_alone() {
    for way in buffered_ways() {
        let dir = Dir::in_memory(&format!("cached-{}", way.engine.text()));
        let mut stand = Stand::new_in(way, dir);
        let bytes = noise(4, 300_000);
        assert_eq!(stand.write(object(1), 0, &bytes), done(Ok(())));
        for (offset, count) in [(0, 4096), (5, 100_000), (299_000, 1000)] {
            let expected = &bytes[offset..offset + count];
            let found = match stand.ask(read_cached(object(1), 2, offset, count)) {
                Event::Object(ObjectEvent::Read { result: Ok(Some(bulk)), .. }) => {
                    stand.bytes(object(1), offset, bulk)
                }
                other => panic!("{way:?}: {other:?}"),
            };
            assert!(found == expected, "{way:?}: {count} bytes at {offset}");
        }
        let Event::Object(ObjectEvent::Read { result: Ok(Some(bulk)), .. }) =
            stand.read_list(object(1), &[(0, 10), (200_000, 10)], true)
        else {
            panic!("{way:?}")
        };
        let both = [&bytes[..10], &bytes[200_000..200_010]].concat();
        assert_eq!(stand.ring.bulk_bytes(bulk), both, "{way:?}");
        assert_eq!(stand.sums(object(1), &[(0, 65_536)]), [sum(&bytes[..65_536])]);
        assert!(!stand.summed_from_disk(), "{way:?}");
    }
}

#[test]
fn what_has_left_the_page_cache_is_not_read_from_it_and_checksums_say_so() {
    if is_tmpfs(&File::open(std::env::temp_dir()).unwrap()) {
        eprintln!("a file system in memory keeps all");
        return;
    }
    for way in buffered_ways() {
        let mut stand = Stand::new(way, &format!("evicted-{}", way.engine.text()));
        let bytes = noise(4, 300_000);
        // Each of its own: a read that misses has the kernel begin to read.
        for (inode, count) in [(1, 4096), (2, 200_000)] {
            stand.write_evicted(object(inode), &bytes);
            let missed = stand.ask(read_cached(object(inode), 2, 4096, count));
            assert_eq!(
                missed,
                Event::Object(ObjectEvent::Uncached { ticket: Ticket(2) }),
                "{way:?}"
            );
            assert!(stand.read(object(inode), 4096, count) == bytes[4096..4096 + count]);
        }
        stand.write_evicted(object(3), &bytes);
        let missed = stand.read_list(object(3), &[(0, 10), (200_000, 10)], true);
        assert_eq!(missed, Event::Object(ObjectEvent::Uncached { ticket: Ticket(4) }), "{way:?}");
        let read = stand.read_list(object(3), &[(0, 10), (200_000, 10)], false);
        assert!(
            matches!(read, Event::Object(ObjectEvent::Read { result: Ok(Some(_)), .. })),
            "{read:?}"
        );
        stand.write_evicted(object(4), &bytes);
        assert_eq!(stand.sums(object(4), &[(65_536, 65_536)]), [sum(&bytes[65_536..131_072])]);
        assert!(stand.summed_from_disk(), "{way:?}");
    }
}
