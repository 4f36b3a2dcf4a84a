//! Locks on files (flock, fcntl) of a shard's inodes: held ranges and waiters.
//!
//! Locks are volatile: after a restart clients set theirs again before new requests are admitted.
//! An owner does not conflict with itself, and the two kinds do not conflict with each other. A
//! waiter is granted its lock in queue order as soon as no *held* lock conflicts. A later request
//! may overtake waiters (as on Linux): otherwise an owner could wait for its own locks.
//!
//! ```text
//! SetLock ─▶ no conflict? ─▶ held               unlock, drop ─▶ wake: the queue, in order
//!                └─ wait_id ─▶ queue by place ─────────────────▶ held, and an `EndedWait`
//! ```

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{
    ClientUuid, GetLock, InodeNo, LockKind, LockRow, LockSet, LockType, Ranges, Relock, SessionId,
    SetLock, Status, Term,
};

/// The owner of a lock: a client and its number for the owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockOwner {
    /// The client.
    pub client: ClientUuid,
    /// The client's number for the owner.
    pub owner: u64,
}

/// The caller of a lock request, and the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockCaller {
    /// The client.
    pub client: ClientUuid,
    /// The session that gets the outcome of a wait.
    pub session: SessionId,
    /// By a monotonic clock, the same for all shards of a server.
    pub now_ns: u64,
}

/// A wait that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedWait {
    /// The session to notify.
    pub session: SessionId,
    /// The file.
    pub inode: InodeNo,
    /// The client's number of the wait.
    pub wait_id: u64,
    /// `Ok`: the lock is granted.
    pub status: Status,
    /// Whose wait it was.
    pub client: ClientUuid,
    /// The process that waited, at its client.
    pub pid: u32,
    /// The start of the wait.
    pub since_ns: u64,
    /// The client of a lock that conflicted at the start, and the process that set it.
    pub blocker: Option<(ClientUuid, u32)>,
}

/// A wait, for deadlock detection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockWait {
    /// The file.
    pub inode: InodeNo,
    /// The client's number of the wait.
    pub wait_id: u64,
    /// The start of the wait.
    pub since_ns: u64,
    /// The owners of conflicting locks.
    pub blockers: BTreeSet<LockOwner>,
}

/// A wait, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownWait {
    /// The file.
    pub inode: InodeNo,
    /// Whose wait it is.
    pub client: ClientUuid,
    /// The session that gets the outcome.
    pub session: SessionId,
    /// The process that waits, at its client.
    pub pid: u32,
    /// The start of the wait.
    pub since_ns: u64,
    /// The clients of conflicting locks, and the process that set each.
    pub blockers: Vec<(ClientUuid, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiter {
    client: ClientUuid,
    session: SessionId,
    since_ns: u64,
    request: SetLock,
    /// The client of a lock that conflicts at the start, and the process that set it.
    blocker: Option<(ClientUuid, u32)>,
}

impl Waiter {
    const fn ended(&self, status: Status) -> EndedWait {
        let Self { client, session, since_ns, request, blocker } = *self;
        let SetLock { inode, wait_id, pid, .. } = request;
        EndedWait { session, inode, wait_id, status, client, pid, since_ns, blocker }
    }

    const fn key(&self) -> (LockKind, LockOwner) {
        key(self.client, self.request.kind, self.request.owner)
    }
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Held {
    ranges: Ranges,
    pid: u32,
}

#[derive(Default, Debug)]
struct Inode {
    held: BTreeMap<(LockKind, LockOwner), Held>,
    /// Waiters by place.
    queue: BTreeMap<u64, Waiter>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    ranges: usize,
    waits: usize,
}

/// The locks of one shard's inodes.
#[derive(Debug, Default)]
pub struct FileLocks {
    inodes: BTreeMap<InodeNo, Inode>,
    counts: BTreeMap<ClientUuid, Count>,
    /// The inodes at which an owner waits with fcntl, for deadlock detection.
    waiting: BTreeMap<LockOwner, BTreeSet<InodeNo>>,
    place_last: u64,
}

const fn key(client: ClientUuid, kind: LockKind, owner: u64) -> (LockKind, LockOwner) {
    (kind, LockOwner { client, owner })
}

impl FileLocks {
    /// Most ranges of one client at one shard; beyond: ENOLCK.
    pub const RANGE_COUNT_MAX: usize = 65_536;
    /// Most waits of one client at one shard; beyond: ENOLCK.
    pub const WAIT_COUNT_MAX: usize = 8_192;

    /// Begins a term: drops all locks; places of earlier terms precede new ones.
    pub(crate) fn start_term(&mut self, term: Term) {
        *self = Self { place_last: u64::from(term.0) << 32, ..Self::default() };
    }

    /// Locks, unlocks or begins to wait. A request with the `wait_id` of a present wait replaces
    /// that wait.
    ///
    /// # Errors
    /// `Again`: the lock conflicts and the request does not wait. `NoLocks`: too many.
    pub fn set(
        &mut self,
        caller: LockCaller,
        request: &SetLock,
        woken: &mut Vec<EndedWait>,
    ) -> Result<LockSet, Status> {
        let LockCaller { client, session, now_ns } = caller;
        if request.wait_id > 0 {
            self.cancel(client, request.inode, request.wait_id);
        }
        let key = key(client, request.kind, request.owner);
        let Some(lock) = request.lock else {
            self.put(key, request, None);
            self.wake(request.inode, woken);
            return Ok(LockSet { granted: true, place: 0 });
        };
        if request.kind == LockKind::Flock && !self.has(key, request, lock) {
            // As on Linux: the old lock is released, whatever becomes of the new one.
            self.put(key, request, None);
        }
        let count = self.counts.get(&client).copied().unwrap_or_default();
        let outcome = if self.is_blocked(key, request, lock) {
            if request.wait_id == 0 {
                Err(Status::Again)
            } else if count.waits >= Self::WAIT_COUNT_MAX {
                Err(Status::NoLocks)
            } else {
                let waiter =
                    Waiter { client, session, since_ns: now_ns, request: *request, blocker: None };
                let inode = self.inodes.get(&request.inode);
                let blocker = inode.and_then(|inode| inode.blocking(&waiter).next());
                let blocker = blocker.map(|(owner, pid)| (owner.client, pid));
                let waiter = Waiter { blocker, ..waiter };
                Ok(LockSet { granted: false, place: self.enqueue(waiter) })
            }
        } else if count.ranges + 2 > Self::RANGE_COUNT_MAX {
            Err(Status::NoLocks)
        } else {
            self.put(key, request, Some(lock));
            Ok(LockSet { granted: true, place: 0 })
        };
        // A smaller lock may unblock waiters.
        self.wake(request.inode, woken);
        outcome
    }

    /// A lock that its client holds; a recovering server sets it again. Whether it is held.
    #[must_use]
    pub fn relock(&mut self, client: ClientUuid, relock: &Relock, recovering: bool) -> bool {
        let Relock { inode, kind, owner, lock, range, pid } = *relock;
        let lock_set = Some(lock);
        let (wait_id, place) = (0, 0);
        let request = SetLock { inode, kind, owner, lock: lock_set, range, pid, wait_id, place };
        let key = key(client, kind, owner);
        if recovering && !self.is_blocked(key, &request, lock) {
            self.put(key, &request, Some(lock));
        }
        self.has(key, &request, lock)
    }

    /// The first conflicting lock.
    #[must_use]
    pub fn get(&self, client: ClientUuid, request: &GetLock) -> Option<LockRow> {
        let me = key(client, request.kind, request.owner);
        let inode = self.inodes.get(&request.inode)?;
        let others = inode
            .held
            .iter()
            .filter(|((kind, owner), _)| *kind == request.kind && (*kind, *owner) != me);
        let rows = others.filter_map(|((_, owner), held)| {
            let (range, lock) = held.ranges.conflict(request.range, request.lock)?;
            // Process ids of another client mean nothing here.
            let pid = if owner.client == client { held.pid } else { 0 };
            Some(LockRow { lock, range, pid })
        });
        rows.min_by_key(|row| row.range)
    }

    /// Cancels a wait; whether there was one.
    pub fn cancel(&mut self, client: ClientUuid, inode: InodeNo, wait_id: u64) -> bool {
        self.take_wait(client, inode, wait_id).is_some()
    }

    /// Ends a deadlocked wait.
    pub fn deny(&mut self, client: ClientUuid, inode: InodeNo, wait_id: u64) -> Option<EndedWait> {
        let waiter = self.take_wait(client, inode, wait_id)?;
        Some(waiter.ended(Status::Deadlock))
    }

    /// Drops all locks and waits of a client.
    pub fn drop_client(&mut self, client: ClientUuid, woken: &mut Vec<EndedWait>) {
        if !self.counts.contains_key(&client) {
            return;
        }
        let mut touched = Vec::new();
        for (number, inode) in &mut self.inodes {
            let before = (inode.held.len(), inode.queue.len());
            inode.held.retain(|(_, owner), _| owner.client != client);
            inode.queue.retain(|_, waiter| waiter.client != client);
            if before != (inode.held.len(), inode.queue.len()) {
                touched.push(*number);
            }
        }
        self.counts.remove(&client);
        self.waiting.retain(|owner, _| owner.client != client);
        for inode in touched {
            self.wake(inode, woken);
        }
    }

    /// Whether a client has locks or waits.
    #[must_use]
    pub fn has_client(&self, client: ClientUuid) -> bool {
        self.counts.contains_key(&client)
    }

    /// The files that a client has locked.
    pub(crate) fn inodes_of(&self, client: ClientUuid) -> impl Iterator<Item = InodeNo> {
        let inodes = self
            .inodes
            .iter()
            .filter(move |(_, inode)| inode.held.keys().any(|(_, owner)| owner.client == client));
        inodes.map(|(inode, _)| *inode)
    }

    /// Whether other clients wait for locks of a client.
    #[must_use]
    pub fn blocks_others(&self, client: ClientUuid) -> bool {
        self.has_client(client)
            && self.inodes.values().any(|inode| {
                let mut waiters = inode.queue.values();
                waiters.any(|waiter| {
                    let mut blockers = inode.blockers(waiter);
                    blockers.any(|owner| owner.client == client)
                })
            })
    }

    /// The clients whose locks conflict with a request.
    #[must_use]
    pub fn blocking_clients(&self, client: ClientUuid, request: &SetLock) -> BTreeSet<ClientUuid> {
        let (session, blocker) = (SessionId(0), None);
        let waiter = Waiter { client, session, since_ns: 0, request: *request, blocker };
        let inode = self.inodes.get(&request.inode).into_iter();
        let blockers = inode.flat_map(|inode| inode.blockers(&waiter).map(|owner| owner.client));
        blockers.collect()
    }

    /// All waits: since when, and the clients whose locks conflict.
    pub fn waits(&self) -> impl Iterator<Item = (u64, BTreeSet<ClientUuid>)> {
        self.inodes.values().flat_map(|inode| {
            inode.queue.values().map(|waiter| {
                let holders = inode.blockers(waiter).map(|owner| owner.client).collect();
                (waiter.since_ns, holders)
            })
        })
    }

    /// The fcntl waits of an owner.
    #[must_use]
    pub fn waits_of(&self, owner: LockOwner) -> Vec<LockWait> {
        let mut waits = Vec::new();
        for number in self.waiting.get(&owner).into_iter().flatten() {
            let Some(inode) = self.inodes.get(number) else { continue };
            for waiter in inode.queue.values() {
                if waiter.key() == (LockKind::Posix, owner) {
                    waits.push(LockWait {
                        inode: *number,
                        wait_id: waiter.request.wait_id,
                        since_ns: waiter.since_ns,
                        blockers: inode.blockers(waiter).collect(),
                    });
                }
            }
        }
        waits
    }

    /// All waits, for people.
    pub fn all_waits(&self) -> impl Iterator<Item = ShownWait> {
        self.inodes.iter().flat_map(|(number, inode)| {
            inode.queue.values().map(|waiter| ShownWait {
                inode: *number,
                client: waiter.client,
                session: waiter.session,
                pid: waiter.request.pid,
                since_ns: waiter.since_ns,
                blockers: inode.blocking(waiter).map(|(owner, pid)| (owner.client, pid)).collect(),
            })
        })
    }

    /// Whether an owner holds all of a request's range.
    fn has(&self, key: (LockKind, LockOwner), request: &SetLock, lock: LockType) -> bool {
        let held = self.inodes.get(&request.inode).and_then(|inode| inode.held.get(&key));
        held.is_some_and(|held| match key.0 {
            LockKind::Posix => held.ranges.covers(request.range, lock),
            LockKind::Flock => held.ranges.iter().all(|(_, held)| held == lock),
        })
    }

    fn is_blocked(&self, key: (LockKind, LockOwner), request: &SetLock, lock: LockType) -> bool {
        let Some(inode) = self.inodes.get(&request.inode) else { return false };
        inode.others(key).any(|(_, held)| held.ranges.conflict(request.range, lock).is_some())
    }

    /// Stores an owner's new lock state.
    fn put(&mut self, key: (LockKind, LockOwner), request: &SetLock, lock: Option<LockType>) {
        let inode = self.inodes.entry(request.inode).or_default();
        let held = inode.held.entry(key).or_default();
        let before = held.ranges.count();
        held.ranges.set(request.range, lock);
        if lock.is_some() {
            // An unlock does not state the process.
            held.pid = request.pid;
        }
        let after = held.ranges.count();
        if after == 0 {
            inode.held.remove(&key);
        }
        let count = self.counts.entry(key.1.client).or_default();
        count.ranges = count.ranges + after - before;
        self.tidy(key.1.client, request.inode);
    }

    fn enqueue(&mut self, waiter: Waiter) -> u64 {
        let inode = self.inodes.entry(waiter.request.inode).or_default();
        // An earlier place is kept unless it is taken: places of lost boots may be assigned twice.
        let mut place = waiter.request.place;
        if place == 0 || place > self.place_last || inode.queue.contains_key(&place) {
            self.place_last += 1;
            place = self.place_last;
        }
        inode.queue.insert(place, waiter);
        self.counts.entry(waiter.client).or_default().waits += 1;
        if waiter.request.kind == LockKind::Posix {
            self.waiting.entry(waiter.key().1).or_default().insert(waiter.request.inode);
        }
        place
    }

    fn take_wait(&mut self, client: ClientUuid, number: InodeNo, wait_id: u64) -> Option<Waiter> {
        let inode = self.inodes.get(&number)?;
        let mut places = inode.queue.iter();
        let found = places
            .find(|(_, waiter)| waiter.client == client && waiter.request.wait_id == wait_id)?;
        let place = *found.0;
        self.dequeue(number, place)
    }

    fn dequeue(&mut self, number: InodeNo, place: u64) -> Option<Waiter> {
        let inode = self.inodes.get_mut(&number)?;
        let waiter = inode.queue.remove(&place)?;
        let waits_on = inode.queue.values().any(|other| other.key() == waiter.key());
        if waiter.request.kind == LockKind::Posix
            && !waits_on
            && let Some(inodes) = self.waiting.get_mut(&waiter.key().1)
        {
            inodes.remove(&number);
            if inodes.is_empty() {
                self.waiting.remove(&waiter.key().1);
            }
        }
        if let Some(count) = self.counts.get_mut(&waiter.client) {
            count.waits -= 1;
        }
        self.tidy(waiter.client, number);
        Some(waiter)
    }

    /// Removes empty entries.
    fn tidy(&mut self, client: ClientUuid, number: InodeNo) {
        if self.counts.get(&client).is_some_and(|count| count.ranges + count.waits == 0) {
            self.counts.remove(&client);
        }
        let idle = |inode: &Inode| inode.held.is_empty() && inode.queue.is_empty();
        if self.inodes.get(&number).is_some_and(idle) {
            self.inodes.remove(&number);
        }
    }

    /// Grants the locks of unblocked waiters, in order.
    fn wake(&mut self, number: InodeNo, woken: &mut Vec<EndedWait>) {
        let mut again = true;
        while core::mem::take(&mut again) {
            let Some(inode) = self.inodes.get(&number) else { return };
            let places: Vec<u64> = inode.queue.keys().copied().collect();
            for place in places {
                let Some(inode) = self.inodes.get(&number) else { return };
                let Some(waiter) = inode.queue.get(&place).copied() else { continue };
                if inode.blockers(&waiter).next().is_some() {
                    continue;
                }
                let held = inode.held.get(&waiter.key());
                // A smaller lock may unblock an earlier waiter.
                again |=
                    held.is_some_and(|held| held.ranges.within(waiter.request.range).count() > 0);
                self.dequeue(number, place);
                self.put(waiter.key(), &waiter.request, waiter.request.lock);
                woken.push(waiter.ended(Status::Ok));
            }
        }
    }
}

impl Inode {
    /// Other owners' locks of the same kind.
    fn others(
        &self,
        key: (LockKind, LockOwner),
    ) -> impl Iterator<Item = (&(LockKind, LockOwner), &Held)> {
        self.held.iter().filter(move |(other, _)| other.0 == key.0 && **other != key)
    }

    /// The owners of locks that conflict with a waiter's.
    fn blockers(&self, waiter: &Waiter) -> impl Iterator<Item = LockOwner> {
        self.blocking(waiter).map(|(owner, _)| owner)
    }

    /// The same, with the processes that set the locks.
    fn blocking(&self, waiter: &Waiter) -> impl Iterator<Item = (LockOwner, u32)> {
        let (range, lock) = (waiter.request.range, waiter.request.lock);
        let conflicting = self.others(waiter.key()).filter(move |(_, held)| {
            lock.is_some_and(|lock| held.ranges.conflict(range, lock).is_some())
        });
        conflicting.map(|((_, owner), held)| (*owner, held.pid))
    }
}
