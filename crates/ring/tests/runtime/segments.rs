//! Objects of several segments, compared with bytes in memory.

use super::support::{Recorder, ask, noise, ring_config, tempdir, turns, write};
use interface::{
    Action, Errno, Event, Object, ObjectAction, ObjectEvent, ObjectStat, SumRange, Ticket,
};
use ring::Ring;
use std::fs::{self, File};
use std::path::Path;
use wire::{Allocation, InodeNo, LaneId, Piece, Pieces, Wire as _};

const SEGMENT_BYTES: u64 = 8192;
const OBJECT: Object = Object { shard_index: 3, stripe_index: 0, inode: InodeNo(7) };
const TICKET: Ticket = Ticket(1);

struct Fixture {
    ring: Ring,
    recorder: Recorder,
}

impl Fixture {
    fn open(dir: &Path) -> Self {
        let mut config = ring_config(LaneId(0));
        config.store = Some(File::open(dir).unwrap().into());
        config.checksum_reads = true;
        config.limits.segment_bytes = SEGMENT_BYTES;
        Self { ring: Ring::new(config).unwrap(), recorder: Recorder::default() }
    }

    fn ask(&mut self, action: Action) -> Event {
        ask(&mut self.ring, &mut self.recorder, action)
    }

    fn done(&mut self, action: Action) {
        assert_eq!(
            self.ask(action),
            Event::Object(ObjectEvent::Done { ticket: TICKET, result: Ok(()) })
        );
    }

    fn write(&mut self, object_offset: u64, bytes: &[u8]) {
        let at = (TICKET, OBJECT, object_offset);
        let written = write(&mut self.ring, &mut self.recorder, at, 0, bytes);
        let done = Event::Object(ObjectEvent::Done { ticket: TICKET, result: Ok(()) });
        assert_eq!(written, done);
    }

    fn read(&mut self, object_offset: u64, read_bytes: u32) -> Vec<u8> {
        let (ticket, object) = (TICKET, OBJECT);
        match self.ask(Action::Object(ObjectAction::Read {
            ticket,
            object,
            object_offset,
            read_bytes,
            only_cached: false,
        })) {
            Event::Object(ObjectEvent::Read { result, .. }) => {
                let Some(bulk) = result.unwrap() else { return Vec::new() };
                let bytes = self.ring.bulk_bytes(bulk).to_vec();
                self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
                bytes
            }
            other => panic!("{other:?}"),
        }
    }

    fn read_list(&mut self, pieces: &[(u64, u32)]) -> Vec<u8> {
        let piece = |&(file_offset, piece_bytes): &(u64, u32)| Piece { file_offset, piece_bytes };
        let pieces = Pieces::new(pieces.iter().map(piece).collect()).unwrap();
        let known_count = self.recorder.events.len();
        self.ring.with(|turn| {
            let pieces = turn.arena.put(&pieces.to_bytes());
            turn.act(ObjectAction::ReadList {
                ticket: TICKET,
                object: OBJECT,
                pieces,
                only_cached: false,
            });
        });
        turns(&mut self.ring, &mut self.recorder, |recorder| recorder.events.len() > known_count);
        match self.recorder.events[known_count] {
            Event::Object(ObjectEvent::Read { ticket: TICKET, result }) => {
                let bulk = result.unwrap().unwrap();
                let bytes = self.ring.bulk_bytes(bulk).to_vec();
                self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
                bytes
            }
            other => panic!("{other:?}"),
        }
    }

    fn stat(&mut self) -> Option<ObjectStat> {
        match self.ask(Action::Object(ObjectAction::Stat { ticket: TICKET, object: OBJECT })) {
            Event::Object(ObjectEvent::Stat { result, .. }) => result.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn size(&mut self) -> u64 {
        self.stat().map_or(0, |stat| stat.size_bytes)
    }

    fn truncate(&mut self, size_bytes: u64) {
        self.done(Action::Object(ObjectAction::Truncate {
            ticket: TICKET,
            object: OBJECT,
            size_bytes,
        }));
    }

    fn allocate(&mut self, range: (u64, u64), what: Allocation, keep_size: bool) -> Event {
        let (object_offset, range_bytes) = range;
        self.ask(Action::Object(ObjectAction::Allocate {
            ticket: TICKET,
            object: OBJECT,
            object_offset,
            range_bytes,
            allocation: what,
            keep_size,
        }))
    }

    fn seek(&mut self, object_offset: u64, hole: bool) -> Option<u64> {
        let (ticket, object) = (TICKET, OBJECT);
        match self.ask(Action::Object(ObjectAction::Seek { ticket, object, object_offset, hole })) {
            Event::Object(ObjectEvent::Sought { result, .. }) => result.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Bytes that a seek reports as a hole are zeros, and the results lie within the object.
    fn check_holes(&mut self, bytes: &[u8]) {
        let size = bytes.len() as u64;
        let mut at = 0;
        while at < size {
            let data = self.seek(at, false);
            let until = data.unwrap_or(size);
            assert!(at <= until && until <= size, "{at} {data:?} of {size}");
            let hole = &bytes[at as usize..until as usize];
            assert!(hole.iter().all(|byte| *byte == 0), "from {at} to {until} of {size}");
            if data.is_none() {
                assert_eq!(self.seek(at, true), Some(at), "of {size}");
                return;
            }
            at = self.seek(until, true).unwrap();
            assert!(until < at && at <= size, "{until} {at} of {size}");
        }
    }
}

fn unsupported() -> Event {
    Event::Object(ObjectEvent::Done { ticket: TICKET, result: Err(Errno(95)) })
}

/// A number below `end`.
fn below(seed: u64, salt: u64, end: u64) -> u64 {
    let bytes = noise(seed * 8 + salt, 8);
    u64::from_le_bytes(bytes.try_into().unwrap()) % end
}

fn step(fixture: &mut Fixture, model: &mut Vec<u8>, seed: u64) {
    const SPAN_BYTES: u64 = 6 * SEGMENT_BYTES;
    let from = below(seed, 1, SPAN_BYTES);
    let count = 1 + below(seed, 2, 2 * SEGMENT_BYTES);
    let end = from + count;
    let keep_size = below(seed, 3, 2) == 0;
    let (first, last) = (from as usize, end as usize);
    match below(seed, 0, 7) {
        0 | 1 => {
            let bytes = noise(seed, count as usize);
            fixture.write(from, &bytes);
            model.resize(model.len().max(last), 0);
            model[first..last].copy_from_slice(&bytes);
        }
        2 => {
            // Often exactly to a boundary.
            let size = if keep_size { from / SEGMENT_BYTES * SEGMENT_BYTES } else { from };
            fixture.truncate(size);
            model.resize(size as usize, 0);
        }
        3 => {
            let punched = fixture.allocate((from, count), Allocation::Punch, true);
            assert_eq!(
                punched,
                Event::Object(ObjectEvent::Done { ticket: TICKET, result: Ok(()) })
            );
            let (first, last) = (first.min(model.len()), last.min(model.len()));
            model[first..last].fill(0);
        }
        kind @ (4 | 5) => {
            let what = if kind == 4 { Allocation::Zero } else { Allocation::Reserve };
            let done = fixture.allocate((from, count), what, keep_size);
            if done == unsupported() {
                assert!(keep_size && last > model.len(), "{from} {count} of {}", model.len());
                return;
            }
            assert_eq!(done, Event::Object(ObjectEvent::Done { ticket: TICKET, result: Ok(()) }));
            if !keep_size {
                model.resize(model.len().max(last), 0);
            }
            let (first, last) = (first.min(model.len()), last.min(model.len()));
            if kind == 4 {
                model[first..last].fill(0);
            }
        }
        _ => {
            // The core reads only up to the object's end.
            let (first, last) = (first.min(model.len()), last.min(model.len()));
            if first < last {
                let bytes = fixture.read(first as u64, (last - first) as u32);
                assert!(bytes == model[first..last], "{first}..{last} of {}", model.len());
            }
        }
    }
}

#[test]
fn objects_of_several_segments_match_bytes_in_memory() {
    let dir = tempdir();
    let mut fixture = Fixture::open(dir.path());
    let mut model = Vec::new();
    assert_eq!(fixture.stat(), None);
    for seed in 0..1500 {
        if seed % 100 == 99 {
            // A new ring has no state of the object.
            fixture.done(Action::Object(ObjectAction::Sync { ticket: TICKET, object: OBJECT }));
            drop(fixture);
            fixture = Fixture::open(dir.path());
        }
        step(&mut fixture, &mut model, seed);
        let size = fixture.size();
        assert_eq!(size, model.len() as u64, "after {seed}");
        if seed % 10 == 0 && size > 0 {
            assert!(fixture.read(0, size as u32) == model, "after {seed}");
            // Pieces anywhere, also across boundaries and the end, behind which there are zeros.
            let pieces: Vec<(u64, u32)> = (0..9)
                .map(|salt| (below(seed, salt, size + 100), 1 + below(seed, salt + 9, 3000) as u32))
                .collect();
            let byte = |at: u64| model.get(at as usize).copied().unwrap_or(0);
            let wanted: Vec<u8> = pieces
                .iter()
                .flat_map(|(from, count)| (*from..from + u64::from(*count)).map(byte))
                .collect();
            assert!(fixture.read_list(&pieces) == wanted, "{pieces:?} of {size} after {seed}");
            fixture.check_holes(&model);
        }
    }
}

#[test]
fn a_large_object_is_removed_with_all_its_files() {
    let dir = tempdir();
    let folder = dir.path().join("03/00");
    for restart in [false, true] {
        let mut fixture = Fixture::open(dir.path());
        fixture.write(0, b"first");
        let end = i64::MAX.unsigned_abs();
        fixture.write(end - 1, b"z");
        assert_eq!(fixture.size(), end);
        assert_eq!(fixture.read(end - 3, 3), b"\0\0z");
        assert_eq!(fixture.read(0, 6), b"first\0");
        assert_eq!(fixture.seek(5000, false), Some(end - end % 4096), "in a page of it");
        fixture.done(Action::Object(ObjectAction::Sync { ticket: TICKET, object: OBJECT }));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        if restart {
            fixture = Fixture::open(dir.path());
        }
        fixture.done(Action::Object(ObjectAction::Remove { ticket: TICKET, object: OBJECT }));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        assert_eq!(fixture.stat(), None);
    }
}

/// Segments that a crash leaves beside a shorter first file do not belong to the object.
#[test]
fn leftover_segments_beside_a_short_object_are_never_read() {
    let dir = tempdir();
    let mut fixture = Fixture::open(dir.path());
    fixture.write(0, b"short");
    let left = dir.path().join("03/00/0000000000000007.0.d");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("2"), "old").unwrap();
    assert_eq!(fixture.size(), 5);
    fixture.write(SEGMENT_BYTES + 10, b"new");
    assert_eq!(fixture.size(), SEGMENT_BYTES + 13);
    fixture.truncate(4 * SEGMENT_BYTES);
    assert_eq!(fixture.read(2 * SEGMENT_BYTES, 3), b"\0\0\0");
}

#[test]
fn checksums_span_segments() {
    let dir = tempdir();
    let mut fixture = Fixture::open(dir.path());
    let bytes = noise(3, 20_000);
    fixture.write(0, &bytes);
    let known_count = fixture.recorder.events.len();
    fixture.ring.with(|turn| {
        let ranges = [(100, 10_000), (16_000, 10_000)]
            .map(|(object_offset, range_bytes)| SumRange { object_offset, range_bytes }.to_bytes());
        let ranges = turn.arena.put(&ranges.concat());
        turn.act(ObjectAction::Sums { ticket: TICKET, object: OBJECT, ranges });
    });
    turns(&mut fixture.ring, &mut fixture.recorder, |recorder| recorder.events.len() > known_count);
    let first = (wire::crc32c(&bytes[100..10_100]), 10_000);
    assert_eq!(fixture.recorder.sums, [[first, (wire::crc32c(&bytes[16_000..]), 4_000)]]);
}
