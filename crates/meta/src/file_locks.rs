//! Locks on files (flock, fcntl) of a shard's inodes: who has which bytes, and who waits for them.
//!
//! They are volatile: clients set them again after a restart, before anybody else may ask. Nobody
//! conflicts with himself, the two kinds do not conflict with each other, and whoever waits is let
//! in by his place in the queue as soon as nothing that is *held* is in his way. Who comes later may
//! pass those who wait (as on Linux): only then can an owner never wait for his own locks.
//!
//! ```text
//! SetLock ─▶ nothing in the way? ─▶ held        unlock, gone ─▶ wake: the queue, in order
//!                └─ wait_id ─▶ queue by place ─────────────────▶ held, and a `Woken` for the lane
//! ```

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{
    ClientUuid, GetLock, InodeNo, LockKind, LockRow, LockSet, LockType, Ranges, Relock, SessionId,
    SetLock, Status,
};

/// Whose a lock is: no two clients share owners.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockOwner {
    /// The client.
    pub client: ClientUuid,
    /// Its number for the owner.
    pub owner: u64,
}

/// Who asks, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockAsker {
    /// The client.
    pub client: ClientUuid,
    /// Whom to tell when a wait is over.
    pub session: SessionId,
    /// By a clock that never goes back and is the same for all shards of a server.
    pub now_ns: u64,
}

/// A wait that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Woken {
    /// Whom to tell.
    pub session: SessionId,
    /// The file.
    pub inode: InodeNo,
    /// Which wait of its client.
    pub wait_id: u64,
    /// `Ok`: it has the lock.
    pub status: Status,
}

/// A wait, as the search for deadlocks sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockWait {
    /// The file.
    pub inode: InodeNo,
    /// Which wait of its client.
    pub wait_id: u64,
    /// Since when.
    pub since_ns: u64,
    /// Whose locks are in its way.
    pub blockers: BTreeSet<LockOwner>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiter {
    client: ClientUuid,
    session: SessionId,
    since_ns: u64,
    ask: SetLock,
}

impl Waiter {
    const fn key(&self) -> (LockKind, LockOwner) {
        key(self.client, self.ask.kind, self.ask.owner)
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
    /// By place.
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
    /// Where an owner waits with fcntl, for the search for deadlocks.
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

    /// Begins a boot: all are forgotten, and places of earlier boots stand before new ones.
    pub(crate) fn start_boot(&mut self, boot_id: u64) {
        *self = Self { place_last: boot_id << 32, ..Self::default() };
    }

    /// Locks, unlocks or begins to wait. An ask with a `wait_id` that waits already is the same one
    /// again.
    ///
    /// # Errors
    /// `Again`: it is in another's hands and is not to be waited for. `NoLocks`: too many.
    pub fn set(
        &mut self,
        asker: LockAsker,
        ask: &SetLock,
        woken: &mut Vec<Woken>,
    ) -> Result<LockSet, Status> {
        let LockAsker { client, session, now_ns } = asker;
        if ask.wait_id > 0 {
            self.cancel(client, ask.inode, ask.wait_id);
        }
        let key = key(client, ask.kind, ask.owner);
        let Some(lock) = ask.lock else {
            self.put(key, ask, None);
            self.wake(ask.inode, woken);
            return Ok(LockSet { granted: true, place: 0 });
        };
        if ask.kind == LockKind::Flock && !self.has(key, ask, lock) {
            // As on Linux: the old one is gone, whatever becomes of the new one.
            self.put(key, ask, None);
        }
        let count = self.counts.get(&client).copied().unwrap_or_default();
        let outcome = if self.is_blocked(key, ask, lock) {
            if ask.wait_id == 0 {
                Err(Status::Again)
            } else if count.waits >= Self::WAIT_COUNT_MAX {
                Err(Status::NoLocks)
            } else {
                let waiter = Waiter { client, session, since_ns: now_ns, ask: *ask };
                Ok(LockSet { granted: false, place: self.park(waiter) })
            }
        } else if count.ranges + 2 > Self::RANGE_COUNT_MAX {
            Err(Status::NoLocks)
        } else {
            self.put(key, ask, Some(lock));
            Ok(LockSet { granted: true, place: 0 })
        };
        // Whoever has less than before has made room for others.
        self.wake(ask.inode, woken);
        outcome
    }

    /// A lock that its client has. While the server recovers it is set again.
    #[must_use]
    pub fn relock(&mut self, client: ClientUuid, relock: &Relock, recovering: bool) -> bool {
        let Relock { inode, kind, owner, lock, range, pid } = *relock;
        let lock_set = Some(lock);
        let (wait_id, place) = (0, 0);
        let ask = SetLock { inode, kind, owner, lock: lock_set, range, pid, wait_id, place };
        let key = key(client, kind, owner);
        if recovering && !self.is_blocked(key, &ask, lock) {
            self.put(key, &ask, Some(lock));
        }
        self.has(key, &ask, lock)
    }

    /// The first lock that is in the way.
    #[must_use]
    pub fn get(&self, client: ClientUuid, ask: &GetLock) -> Option<LockRow> {
        let me = key(client, ask.kind, ask.owner);
        let inode = self.inodes.get(&ask.inode)?;
        let others = inode
            .held
            .iter()
            .filter(|((kind, owner), _)| *kind == ask.kind && (*kind, *owner) != me);
        let rows = others.filter_map(|((_, owner), held)| {
            let (range, lock) = held.ranges.conflict(ask.range, ask.lock)?;
            // Processes of another client have numbers of their own.
            let pid = if owner.client == client { held.pid } else { 0 };
            Some(LockRow { lock, range, pid })
        });
        rows.min_by_key(|row| row.range)
    }

    /// Ends a wait; whether it stood.
    pub fn cancel(&mut self, client: ClientUuid, inode: InodeNo, wait_id: u64) -> bool {
        self.take_wait(client, inode, wait_id).is_some()
    }

    /// Ends a wait that can never be granted.
    pub fn deny(&mut self, client: ClientUuid, inode: InodeNo, wait_id: u64) -> Option<Woken> {
        let waiter = self.take_wait(client, inode, wait_id)?;
        let (session, status) = (waiter.session, Status::Deadlock);
        Some(Woken { session, inode, wait_id, status })
    }

    /// Takes away all that a client has or waits for.
    pub fn client_gone(&mut self, client: ClientUuid, woken: &mut Vec<Woken>) {
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

    /// Whether a client has or waits for anything.
    #[must_use]
    pub fn knows(&self, client: ClientUuid) -> bool {
        self.counts.contains_key(&client)
    }

    /// Whether locks of a client are what others wait for.
    #[must_use]
    pub fn is_in_the_way(&self, client: ClientUuid) -> bool {
        self.knows(client)
            && self.inodes.values().any(|inode| {
                let mut waiters = inode.queue.values();
                waiters.any(|waiter| {
                    let mut blockers = inode.blockers(waiter);
                    blockers.any(|owner| owner.client == client)
                })
            })
    }

    /// The clients whose locks are in the way of an ask.
    #[must_use]
    pub fn clients_in_the_way(&self, client: ClientUuid, ask: &SetLock) -> BTreeSet<ClientUuid> {
        let waiter = Waiter { client, session: SessionId(0), since_ns: 0, ask: *ask };
        let inode = self.inodes.get(&ask.inode).into_iter();
        let blockers = inode.flat_map(|inode| inode.blockers(&waiter).map(|owner| owner.client));
        blockers.collect()
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
                        wait_id: waiter.ask.wait_id,
                        since_ns: waiter.since_ns,
                        blockers: inode.blockers(waiter).collect(),
                    });
                }
            }
        }
        waits
    }

    /// Whether an owner has all of that.
    fn has(&self, key: (LockKind, LockOwner), ask: &SetLock, lock: LockType) -> bool {
        let held = self.inodes.get(&ask.inode).and_then(|inode| inode.held.get(&key));
        held.is_some_and(|held| match key.0 {
            LockKind::Posix => held.ranges.covers(ask.range, lock),
            LockKind::Flock => held.ranges.iter().all(|(_, held)| held == lock),
        })
    }

    fn is_blocked(&self, key: (LockKind, LockOwner), ask: &SetLock, lock: LockType) -> bool {
        let Some(inode) = self.inodes.get(&ask.inode) else { return false };
        inode.others(key).any(|(_, held)| held.ranges.conflict(ask.range, lock).is_some())
    }

    /// Writes down what an owner has from now on.
    fn put(&mut self, key: (LockKind, LockOwner), ask: &SetLock, lock: Option<LockType>) {
        let inode = self.inodes.entry(ask.inode).or_default();
        let held = inode.held.entry(key).or_default();
        let before = held.ranges.count();
        held.ranges.set(ask.range, lock);
        if lock.is_some() {
            // Who unlocks a part does not say who he is.
            held.pid = ask.pid;
        }
        let after = held.ranges.count();
        if after == 0 {
            inode.held.remove(&key);
        }
        let count = self.counts.entry(key.1.client).or_default();
        count.ranges = count.ranges + after - before;
        self.tidy(key.1.client, ask.inode);
    }

    fn park(&mut self, waiter: Waiter) -> u64 {
        let inode = self.inodes.entry(waiter.ask.inode).or_default();
        // A place of before, unless somebody has it: places of lost boots may be given twice.
        let mut place = waiter.ask.place;
        if place == 0 || place > self.place_last || inode.queue.contains_key(&place) {
            self.place_last += 1;
            place = self.place_last;
        }
        inode.queue.insert(place, waiter);
        self.counts.entry(waiter.client).or_default().waits += 1;
        if waiter.ask.kind == LockKind::Posix {
            self.waiting.entry(waiter.key().1).or_default().insert(waiter.ask.inode);
        }
        place
    }

    fn take_wait(&mut self, client: ClientUuid, number: InodeNo, wait_id: u64) -> Option<Waiter> {
        let inode = self.inodes.get(&number)?;
        let mut places = inode.queue.iter();
        let found =
            places.find(|(_, waiter)| waiter.client == client && waiter.ask.wait_id == wait_id)?;
        let place = *found.0;
        self.unpark(number, place)
    }

    fn unpark(&mut self, number: InodeNo, place: u64) -> Option<Waiter> {
        let inode = self.inodes.get_mut(&number)?;
        let waiter = inode.queue.remove(&place)?;
        let waits_on = inode.queue.values().any(|other| other.key() == waiter.key());
        if waiter.ask.kind == LockKind::Posix
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

    /// Keeps nothing about who has nothing.
    fn tidy(&mut self, client: ClientUuid, number: InodeNo) {
        if self.counts.get(&client).is_some_and(|count| count.ranges + count.waits == 0) {
            self.counts.remove(&client);
        }
        let idle = |inode: &Inode| inode.held.is_empty() && inode.queue.is_empty();
        if self.inodes.get(&number).is_some_and(idle) {
            self.inodes.remove(&number);
        }
    }

    /// Lets in whoever waits for nobody any more, in order.
    fn wake(&mut self, number: InodeNo, woken: &mut Vec<Woken>) {
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
                // Who has less than before makes room for one who stands before him.
                again |= held.is_some_and(|held| held.ranges.within(waiter.ask.range).count() > 0);
                self.unpark(number, place);
                self.put(waiter.key(), &waiter.ask, waiter.ask.lock);
                let (session, wait_id, status) = (waiter.session, waiter.ask.wait_id, Status::Ok);
                woken.push(Woken { session, inode: number, wait_id, status });
            }
        }
    }
}

impl Inode {
    /// What others have of the same kind.
    fn others(
        &self,
        key: (LockKind, LockOwner),
    ) -> impl Iterator<Item = (&(LockKind, LockOwner), &Held)> {
        self.held.iter().filter(move |(other, _)| other.0 == key.0 && **other != key)
    }

    /// Whose locks are in the way of a waiter.
    fn blockers(&self, waiter: &Waiter) -> impl Iterator<Item = LockOwner> {
        let (range, lock) = (waiter.ask.range, waiter.ask.lock);
        let in_the_way = self.others(waiter.key()).filter(move |(_, held)| {
            lock.is_some_and(|lock| held.ranges.conflict(range, lock).is_some())
        });
        in_the_way.map(|((_, owner), _)| *owner)
    }
}
