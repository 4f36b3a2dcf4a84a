//! List reads of an object, on a real file: missing bytes are zeros, a failure is reported once,
//! and buffers are released.

use super::support::{Recorder, noise, pieces_of, ring_config, tempdir, turns};
use interface::{Action, Bulk, Errno, Event, Object, ObjectAction, ObjectEvent, Ticket};
use ring::{FaultPoint, Ring};
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use wire::{InodeNo, LaneId};

const OBJECT: Object = Object { shard_index: 3, stripe_index: 0, inode: InodeNo(7) };
const BULK_BYTES_MAX: usize = 1 << 20;

/// Which of the coming reads fail; the last element is the next read.
type Fails = Arc<Mutex<Vec<bool>>>;

struct Fixture {
    ring: Ring,
    recorder: Recorder,
    fails: Fails,
}

impl Fixture {
    fn open(dir: &Path, buffer_bytes_max: usize) -> Self {
        let mut config = ring_config(LaneId(0));
        config.store = Some(File::open(dir).unwrap().into());
        config.checksum_reads = true;
        config.limits.buffer_bytes_max = buffer_bytes_max;
        let fails = Fails::default();
        let known = Arc::clone(&fails);
        config.fault = Some(Arc::new(move |point| {
            let fails =
                point == FaultPoint::ObjectRead && known.lock().unwrap().pop().unwrap_or_default();
            fails.then_some(Errno(5))
        }));
        Self { ring: Ring::new(config).unwrap(), recorder: Recorder::default(), fails }
    }

    fn begin(&mut self, ticket: u64, pieces: &[(u64, u32)]) {
        self.ring.with(|turn| {
            let pieces = turn.arena.put(&pieces_of(OBJECT.stripe_index, pieces));
            turn.act(ObjectAction::ReadList {
                ticket: Ticket(ticket),
                object: OBJECT,
                pieces,
                only_cached: false,
            });
        });
    }

    fn next(&mut self) -> (u64, Result<Option<Bulk>, Errno>) {
        turns(&mut self.ring, &mut self.recorder, |recorder| !recorder.events.is_empty());
        match self.recorder.events.remove(0) {
            Event::Object(ObjectEvent::Read { ticket, result }) => (ticket.0, result),
            other => panic!("{other:?}"),
        }
    }

    /// After one more turn no buffer is in use.
    fn assert_freed(&mut self) {
        let action = Action::Object(ObjectAction::Stat {
            ticket: Ticket(99),
            object: OBJECT,
            may_make: false,
        });
        self.ring.with(|turn| turn.act(action));
        turns(&mut self.ring, &mut self.recorder, |recorder| !recorder.events.is_empty());
        self.recorder.events.clear();
        assert_eq!(self.ring.buffer_bytes(), 0, "buffers are released");
    }

    /// The bytes of the next list that completes; its buffer is released.
    fn bytes(&mut self, ticket: u64) -> Vec<u8> {
        let (found, result) = self.next();
        assert_eq!(found, ticket);
        let bulk = result.unwrap().unwrap();
        let bytes = self.ring.bulk_bytes(bulk).to_vec();
        self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
        bytes
    }
}

/// A store with the object in it.
fn store(dir: &TempDir, bytes: &[u8]) {
    fs::create_dir_all(dir.path().join("03/00")).unwrap();
    fs::write(dir.path().join("03/00/0000000000000007.0"), bytes).unwrap();
}

#[test]
fn a_list_has_all_pieces_in_their_order() {
    let dir = tempdir();
    let model = noise(1, 100_000);
    store(&dir, &model);
    let mut fixture = Fixture::open(dir.path(), 8 << 20);
    // Reused buffers hold bytes of other lists.
    for round in 0..20_u64 {
        let pieces: Vec<(u64, u32)> = (0..256)
            .map(|index| {
                ((index * 7919 + round * 104_729) % 110_000, 1 + (index as u32 * 13) % 4000)
            })
            .collect();
        fixture.begin(round, &pieces);
        let byte = |at: u64| model.get(at as usize).copied().unwrap_or(0);
        let wanted: Vec<u8> = pieces
            .iter()
            .flat_map(|(from, count)| (*from..from + u64::from(*count)).map(byte))
            .collect();
        assert!(fixture.bytes(round) == wanted, "round {round}");
    }
    fixture.assert_freed();
}

#[test]
fn an_absent_object_reads_as_zeros() {
    let dir = tempdir();
    let mut fixture = Fixture::open(dir.path(), 8 << 20);
    fixture.begin(1, &[(0, 10), (5000, 20)]);
    assert_eq!(fixture.bytes(1), [0; 30]);
    assert!(!dir.path().join("03").exists(), "nothing is made by reading");
    fixture.assert_freed();
}

#[test]
fn a_piece_that_fails_fails_its_list_once() {
    let dir = tempdir();
    store(&dir, &noise(2, 10_000));
    let mut fixture = Fixture::open(dir.path(), 8 << 20);
    for failing in 0..4 {
        *fixture.fails.lock().unwrap() = (0..4).rev().map(|index| index == failing).collect();
        fixture.begin(failing, &[(0, 10), (100, 10), (200, 10), (300, 10)]);
        assert_eq!(fixture.next(), (failing, Err(Errno(5))), "piece {failing}");
        fixture.assert_freed();
    }
    fixture.begin(9, &[(0, 10), (300, 10)]);
    assert_eq!(fixture.bytes(9).len(), 20);
}

/// With one buffer at a time, lists wait for each other, and all complete.
#[test]
fn lists_wait_for_buffers() {
    let dir = tempdir();
    let model = noise(3, BULK_BYTES_MAX);
    store(&dir, &model);
    let mut fixture = Fixture::open(dir.path(), BULK_BYTES_MAX);
    let half = u32::try_from(BULK_BYTES_MAX / 2).unwrap();
    for ticket in 0..5 {
        fixture.begin(ticket, &[(u64::from(half), half), (0, half)]);
    }
    for _ in 0..5 {
        let (_, result) = fixture.next();
        let bulk = result.unwrap().unwrap();
        let bytes = fixture.ring.bulk_bytes(bulk).to_vec();
        assert!(bytes[..half as usize] == model[half as usize..]);
        assert!(bytes[half as usize..] == model[..half as usize]);
        fixture.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
    }
    fixture.assert_freed();
}
