//! Locks on files, against a model of single bytes.

use crate::file_locks::{EndedWait, FileLocks, LockCaller};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{
    ByteRange, ClientUuid, GetLock, InodeNo, LOCK_END_MAX, LockKind, LockType, Relock, SessionId,
    SetLock, Status, Term,
};

const FILE: InodeNo = InodeNo(9);
const READ: Option<LockType> = Some(LockType::Read);
const WRITE: Option<LockType> = Some(LockType::Write);

fn caller(client: u8) -> LockCaller {
    let session = SessionId(u64::from(client) + 100);
    LockCaller { client: ClientUuid([client; 16]), session, now_ns: 0 }
}

fn request(owner: u64, lock: Option<LockType>, range: ByteRange) -> SetLock {
    let (kind, pid) = (LockKind::Posix, 1000);
    SetLock { inode: FILE, kind, owner, lock, range, pid, wait_id: 0, place: 0 }
}

fn flock(owner: u64, lock: Option<LockType>) -> SetLock {
    SetLock { kind: LockKind::Flock, ..request(owner, lock, ByteRange::ALL) }
}

fn waits(wait_id: u64, request: SetLock) -> SetLock {
    SetLock { wait_id, ..request }
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).unwrap()
}

/// Locks, and late grants as (client, wait).
struct Harness {
    locks: FileLocks,
    woken: Vec<EndedWait>,
}

impl Harness {
    fn new() -> Self {
        Self { locks: FileLocks::default(), woken: Vec::new() }
    }

    /// True: granted; false: waits.
    fn set(&mut self, client: u8, request: SetLock) -> Result<bool, Status> {
        self.locks.set(caller(client), &request, &mut self.woken).map(|set| set.granted)
    }

    fn woken(&mut self) -> Vec<(u64, u64)> {
        let woken = self.woken.drain(..);
        woken.map(|woken| (woken.session.0 - 100, woken.wait_id)).collect()
    }
}

#[test]
fn readers_share_writers_exclude_and_an_owner_never_conflicts_with_itself() {
    let mut harness = Harness::new();
    for (owner, client) in [(1, 1), (2, 1), (1, 2)] {
        assert_eq!(harness.set(client, request(owner, READ, range(0, 9))), Ok(true));
    }
    assert_eq!(
        harness.set(1, request(1, WRITE, range(0, 9))),
        Err(Status::Again),
        "others read there"
    );
    assert_eq!(harness.set(2, request(1, None, ByteRange::ALL)), Ok(true));
    assert_eq!(harness.set(1, request(2, None, range(0, 4))), Ok(true));
    assert_eq!(harness.set(1, request(1, WRITE, range(0, 4))), Ok(true), "an upgrade of a part");
    assert_eq!(harness.set(1, request(1, WRITE, range(0, 5))), Err(Status::Again));
    assert_eq!(harness.set(2, request(7, READ, range(5, 5))), Ok(true), "not upgraded");
    assert_eq!(harness.set(2, request(7, READ, range(4, 5))), Err(Status::Again));
    assert_eq!(harness.set(2, flock(7, WRITE)), Ok(true), "flock does not know of fcntl");
}

#[test]
fn flock_releases_one_type_before_it_acquires_the_other() {
    let mut harness = Harness::new();
    assert_eq!(harness.set(1, flock(1, READ)), Ok(true));
    assert_eq!(harness.set(2, flock(2, READ)), Ok(true));
    assert_eq!(harness.set(1, flock(1, WRITE)), Err(Status::Again));
    assert_eq!(harness.set(2, flock(2, WRITE)), Ok(true), "the other's went with his attempt");
    assert_eq!(harness.set(2, flock(2, WRITE)), Ok(true), "twice is as once");
    assert_eq!(harness.set(1, waits(5, flock(1, READ))), Ok(false));
    assert_eq!(harness.set(2, flock(2, READ)), Ok(true));
    assert_eq!(harness.woken(), [(1, 5)], "a downgrade lets readers in");
}

#[test]
fn waiters_are_granted_in_order_and_as_many_as_possible() {
    let mut harness = Harness::new();
    assert_eq!(harness.set(1, request(1, WRITE, ByteRange::ALL)), Ok(true));
    assert_eq!(harness.set(2, waits(1, request(2, WRITE, range(0, 4)))), Ok(false));
    assert_eq!(harness.set(2, waits(2, request(3, READ, range(3, 8)))), Ok(false));
    assert_eq!(harness.set(3, waits(3, request(4, READ, range(4, 9)))), Ok(false));
    assert_eq!(harness.set(1, request(1, None, range(5, LOCK_END_MAX))), Ok(true));
    assert_eq!(harness.woken(), []);
    assert_eq!(harness.set(1, request(1, None, range(0, 4))), Ok(true));
    assert_eq!(harness.woken(), [(2, 1)], "the first keeps the others waiting");
    assert!(harness.locks.cancel(caller(2).client, FILE, 2));
    assert!(!harness.locks.cancel(caller(2).client, FILE, 2), "once");
    harness.locks.drop_client(caller(2).client, &mut harness.woken);
    assert_eq!(harness.woken(), [(3, 3)], "and not the cancelled one");
}

#[test]
fn the_same_wait_again_is_one_wait_and_keeps_its_place() {
    let mut harness = Harness::new();
    harness.locks.start_term(Term(1));
    assert_eq!(harness.set(1, request(1, WRITE, ByteRange::ALL)), Ok(true));
    let mut places = Vec::new();
    for client in [2, 3, 2] {
        let again = SetLock { place: places.first().copied().unwrap_or(0), ..flock(1, None) };
        let place = if client == 2 { again.place } else { 0 };
        let wait = SetLock { place, ..waits(1, request(1, WRITE, ByteRange::ALL)) };
        let set = harness.locks.set(caller(client), &wait, &mut harness.woken).unwrap();
        places.push(set.place);
    }
    assert_eq!((places[0], places.len()), (places[2], 3));
    // The next boot, in the other order.
    harness.locks.start_term(Term(2));
    let relock = Relock {
        inode: FILE,
        kind: LockKind::Posix,
        owner: 1,
        lock: LockType::Write,
        range: ByteRange::ALL,
        pid: 1,
    };
    assert!(harness.locks.relock(caller(1).client, &relock, true));
    assert!(!harness.locks.relock(caller(2).client, &relock, true), "it is another's");
    for (client, place) in [(3, places[1]), (4, 0), (2, places[0])] {
        let wait = SetLock { place, ..waits(1, request(1, WRITE, ByteRange::ALL)) };
        assert_eq!(harness.set(client, wait), Ok(false));
    }
    for (client, next) in [(1, 2), (2, 3), (3, 4)] {
        assert!(harness.locks.relock(caller(client).client, &relock, false), "it has it");
        assert_eq!(harness.set(client, request(1, None, ByteRange::ALL)), Ok(true));
        assert!(!harness.locks.relock(caller(client).client, &relock, false));
        assert_eq!(harness.woken(), [(next, 1)]);
    }
}

#[test]
fn get_returns_the_first_conflict_and_its_process_to_the_same_client_only() {
    let mut harness = Harness::new();
    let get =
        |owner, lock, range| GetLock { inode: FILE, kind: LockKind::Posix, owner, lock, range };
    harness.set(1, request(1, WRITE, range(10, 19))).unwrap();
    harness.set(2, request(1, READ, range(30, 39))).unwrap();
    let all = get(2, LockType::Write, ByteRange::ALL);
    let found = harness.locks.get(caller(1).client, &all).unwrap();
    assert_eq!((found.lock, found.range, found.pid), (LockType::Write, range(10, 19), 1000));
    assert_eq!(harness.locks.get(caller(2).client, &all).unwrap().pid, 0);
    harness.set(1, SetLock { pid: 0, ..request(1, None, range(15, 19)) }).unwrap();
    let found = harness.locks.get(caller(1).client, &all).unwrap();
    assert_eq!(
        (found.range, found.pid),
        (range(10, 14), 1000),
        "the process of a partly unlocked range is still known"
    );
    let own = get(1, LockType::Write, range(0, 29));
    assert_eq!(harness.locks.get(caller(1).client, &own), None);
    let reads = get(3, LockType::Read, range(20, 99));
    assert_eq!(harness.locks.get(caller(1).client, &reads), None);
}

#[test]
fn too_many_locks_are_refused_and_released_ones_count_no_more() {
    let mut harness = Harness::new();
    let mut taken = 0;
    while harness.set(1, request(1, WRITE, range(2 * taken, 2 * taken))).is_ok() {
        taken += 1;
    }
    assert_eq!(usize::try_from(taken).unwrap(), FileLocks::RANGE_COUNT_MAX - 1);
    let one_more = request(2, READ, range(1, 1));
    assert_eq!(harness.set(1, one_more), Err(Status::NoLocks));
    assert_eq!(harness.set(2, one_more), Ok(true), "another client has its own");
    assert_eq!(harness.set(1, request(1, None, range(0, 10))), Ok(true), "an unlock never fails");
    assert_eq!(harness.set(1, one_more), Ok(true));
    harness.set(1, request(1, None, ByteRange::ALL)).unwrap();
    harness.set(1, request(2, None, ByteRange::ALL)).unwrap();
    assert!(!harness.locks.has_client(caller(1).client));
}

#[test]
fn the_wait_graph_is_reported() {
    let mut harness = Harness::new();
    harness.set(1, request(1, WRITE, range(0, 9))).unwrap();
    harness.set(2, request(2, READ, range(10, 19))).unwrap();
    harness.set(3, waits(4, request(3, WRITE, range(5, 15)))).unwrap();
    harness.set(3, waits(5, flock(3, WRITE))).unwrap();
    let me = crate::LockOwner { client: caller(3).client, owner: 3 };
    let found = harness.locks.waits_of(me);
    assert_eq!(found.len(), 1, "flock is not looked at");
    assert_eq!((found[0].wait_id, found[0].blockers.len()), (4, 2));
    assert!(
        harness.locks.blocks_others(caller(2).client) && !harness.locks.blocks_others(me.client)
    );
    let denied = harness.locks.deny(me.client, FILE, 4).unwrap();
    assert_eq!((denied.status, denied.wait_id), (Status::Deadlock, 4));
    assert!(
        harness.locks.waits_of(me).is_empty() && !harness.locks.blocks_others(caller(1).client)
    );
}

/// The lock of each byte, and the waiters in order.
#[derive(Default)]
struct Model {
    bytes: BTreeMap<(u8, u64), [Option<LockType>; 8]>,
    queue: Vec<(u8, SetLock)>,
}

impl Model {
    fn blocked(&self, client: u8, request: &SetLock) -> bool {
        let Some(lock) = request.lock else { return false };
        self.bytes.iter().any(|(owner, bytes)| {
            *owner != (client, request.owner)
                && (request.range.start()..=request.range.end()).any(|byte| {
                    bytes[usize::try_from(byte).unwrap()].is_some_and(|held| held.conflicts(lock))
                })
        })
    }

    fn put(&mut self, client: u8, request: &SetLock) {
        let bytes = self.bytes.entry((client, request.owner)).or_default();
        for byte in request.range.start()..=request.range.end() {
            bytes[usize::try_from(byte).unwrap()] = request.lock;
        }
    }

    fn wake(&mut self) -> Vec<(u64, u64)> {
        let mut woken = Vec::new();
        loop {
            let mut granted = false;
            let mut at = 0;
            while let Some((client, request)) = self.queue.get(at).copied() {
                if self.blocked(client, &request) {
                    at += 1;
                    continue;
                }
                self.queue.remove(at);
                self.put(client, &request);
                woken.push((u64::from(client), request.wait_id));
                granted = true;
            }
            if !granted {
                return woken;
            }
        }
    }
}

#[test]
fn random_locks_match_the_model() {
    let mut rng = test_runtime::Prng::new(41);
    for _ in 0..300 {
        let (mut harness, mut model) = (Harness::new(), Model::default());
        let mut wait_id = 0;
        for _ in 0..120 {
            let client = u8::try_from(1 + rng.below(3)).unwrap();
            let (one, other) = (rng.number() >> 20 & 7, rng.number() >> 20 & 7);
            let range = range(one.min(other), one.max(other));
            let lock = [None, READ, WRITE][rng.below(3)];
            let mut request = request(rng.number() >> 20 & 1, lock, range);
            if rng.below(40) == 0 {
                harness.locks.drop_client(caller(client).client, &mut harness.woken);
                model.bytes.retain(|(owner, _), _| *owner != client);
                model.queue.retain(|(waiter, _)| *waiter != client);
                assert_eq!(harness.woken(), model.wake());
                continue;
            }
            if rng.below(2) == 0 {
                wait_id += 1;
                request.wait_id = wait_id;
            }
            let blocked = model.blocked(client, &request);
            let expected = match (blocked, request.wait_id) {
                (false, _) => Ok(true),
                (true, 0) => Err(Status::Again),
                (true, _) => Ok(false),
            };
            assert_eq!(harness.set(client, request), expected);
            match expected {
                Ok(true) => model.put(client, &request),
                Ok(false) => model.queue.push((client, request)),
                Err(_) => {}
            }
            assert_eq!(harness.woken(), model.wake());
        }
    }
}
