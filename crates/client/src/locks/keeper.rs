//! The keeper's inputs: requests from the client's lanes, grants from the server.

use super::{Entry, GRACE_MS, LockAction, LockKey, Requester, Task, WATCHED_COUNT_MAX, Waiter};
use crate::client::Client;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use interface::{LockRequest, MountMessage, Turn};
use wire::{ByteRange, Grant, HandleId, InodeNo, LaneId, LockKind, SetLock, Status};

impl Client {
    pub(crate) fn on_lock_request(
        &mut self,
        turn: &Turn<'_>,
        waiter: Waiter,
        request: LockRequest,
    ) {
        let (mut lock, handle, action) = match request {
            LockRequest::Set { lock, handle } => (lock, handle, LockAction::Set),
            LockRequest::Flush { inode, owner } => {
                let key = LockKey { inode, kind: LockKind::Posix, owner };
                match self.locks.entries.get(&key) {
                    Some(entry) if !entry.is_idle() => {
                        (unlock(key, ByteRange::ALL), entry.handle, LockAction::Flush)
                    }
                    Some(_) | None => return self.answer_lock(waiter, Ok(())),
                }
            }
        };
        if let Some(refused) = self.identity.refused() {
            return self.answer_lock(waiter, Err(refused.status()));
        }
        let key = LockKey { inode: lock.inode, kind: lock.kind, owner: lock.owner };
        if lock.lock.is_some() {
            self.watch(key.inode);
        } else if self.locks.entries.get(&key).is_none_or(Entry::is_idle) {
            // There is no lock to release.
            return self.answer_lock(waiter, Ok(()));
        }
        if lock.wait_id > 0 {
            self.locks.wait_count += 1;
            lock.wait_id = (u64::from(self.config.lane.0) << 48) | self.locks.wait_count;
        }
        self.locks.waiters.insert(waiter, key);
        let requester = Requester::Waiter(waiter);
        self.add_task(key, Task { action, lock, handle, requester, interrupted: false });
        if action == LockAction::Flush {
            self.limit_wait(turn, waiter);
        }
    }

    pub(super) fn add_task(&mut self, key: LockKey, task: Task) {
        let entry = self.locks.entries.entry(key).or_insert_with(|| Entry::new(task.handle));
        entry.tasks.push_back(task);
        self.pump_lock(key);
    }

    /// Releases all locks taken through an open file.
    pub(crate) fn on_lock_release(&mut self, inode: InodeNo, handle: HandleId) {
        let first = LockKey { inode, kind: LockKind::Posix, owner: 0 };
        let of_file = self.locks.entries.range(first..).take_while(|(key, _)| key.inode == inode);
        let taken = of_file.filter(|(_, entry)| entry.handle == handle && !entry.is_idle());
        let keys: Vec<LockKey> = taken.map(|(key, _)| *key).collect();
        for key in keys {
            let lock = unlock(key, ByteRange::ALL);
            let (action, requester) = (LockAction::Set, Requester::Keeper);
            self.add_task(key, Task { action, lock, handle, requester, interrupted: false });
        }
    }

    /// The waiter was interrupted: drops a request that was not sent, cancels a wait at the server.
    pub(crate) fn on_lock_interrupt(&mut self, turn: &Turn<'_>, waiter: Waiter) {
        let Some(key) = self.locks.waiters.get(&waiter).copied() else { return };
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        let mine = |task: &Task| task.requester == Requester::Waiter(waiter);
        let first_unsent = usize::from(entry.busy);
        let unsent = entry.tasks.iter().skip(first_unsent).position(|task| {
            // One that waited before may still be queued at the server.
            mine(task) && task.action == LockAction::Set && task.lock.place == 0
        });
        if let Some(at) = unsent {
            entry.tasks.remove(first_unsent + at);
            self.answer_lock(waiter, Err(Status::Interrupted));
            return self.pump_lock(key);
        }
        for task in entry.tasks.iter_mut().chain(&mut entry.suspended).filter(|task| mine(task)) {
            task.interrupted = true;
        }
        let suspended = entry.suspended.iter().find(|task| mine(task)).copied();
        if let Some(suspended) = suspended.filter(|suspended| !entry.cancels(suspended)) {
            let cancel =
                Task { action: LockAction::Cancel, requester: Requester::Keeper, ..suspended };
            self.add_task(key, cancel);
        }
        self.limit_wait(turn, waiter);
    }

    /// The waiter is answered after a grace period at the latest.
    fn limit_wait(&mut self, turn: &Turn<'_>, waiter: Waiter) {
        if !self.locks.waiters.contains_key(&waiter) {
            return;
        }
        if !self.locks.deadlines.iter().any(|(_, known)| *known == waiter) {
            let until = turn.now.mono.after_ms(GRACE_MS);
            self.locks.deadlines.push((until, waiter));
        }
    }

    /// Answers waiters whose grace period is over, or whose server is away.
    pub(crate) fn give_up_locks(&mut self, turn: &Turn<'_>) {
        let mut index = 0;
        while let Some((at, waiter)) = self.locks.deadlines.get(index).copied() {
            let key = self.locks.waiters.get(&waiter).copied();
            let reachable = key.is_some_and(|key| self.is_lock_reachable(key));
            if reachable && at > turn.now.mono {
                index += 1;
                continue;
            }
            self.locks.deadlines.swap_remove(index);
            let Some(entry) = key.and_then(|key| self.locks.entries.get_mut(&key)) else {
                continue;
            };
            let mut flushes = false;
            for task in entry.tasks.iter_mut().chain(&mut entry.suspended) {
                if task.requester == Requester::Waiter(waiter) {
                    flushes = task.action == LockAction::Flush;
                    task.requester = if task.lock.lock.is_some() {
                        Requester::Abandoned
                    } else {
                        Requester::Keeper
                    };
                }
            }
            self.answer_lock(waiter, if flushes { Ok(()) } else { Err(Status::Interrupted) });
        }
    }

    fn is_lock_reachable(&self, key: LockKey) -> bool {
        let link_index = self.servers.link_of_inode(key.inode);
        let link = link_index.and_then(|link_index| self.servers.link(link_index));
        link.is_some_and(crate::link::Link::is_up)
    }

    /// Answers a waiter, once.
    pub(crate) fn answer_lock(&mut self, waiter: Waiter, result: Result<(), Status>) {
        self.locks.waiters.remove(&waiter);
        let Waiter { lane, job } = waiter;
        if lane == self.config.lane {
            self.on_lock_done(job, result);
        } else {
            self.peer_lanes.send(lane, MountMessage::LockDone { job, result });
        }
    }

    /// The server announces the end of a wait.
    pub(crate) fn on_grant(&mut self, grant: Grant) {
        let Grant { inode, wait_id, status } = grant;
        let first = LockKey { inode, kind: LockKind::Posix, owner: 0 };
        let mut of_file =
            self.locks.entries.range_mut(first..).take_while(|(key, _)| key.inode == inode);
        let found = of_file.find_map(|(key, entry)| {
            let at = entry.suspended.iter().position(|task| task.lock.wait_id == wait_id)?;
            Some((*key, entry.suspended.remove(at)))
        });
        // A wait that is being requested again gets its result by that reply.
        let Some((key, task)) = found else { return };
        let result = if status == Status::Ok { Ok(()) } else { Err(status) };
        self.end_set(key, task, result);
        self.pump_lock(key);
    }

    /// Makes peer lanes report closes of this file from now on.
    fn watch(&mut self, inode: InodeNo) {
        let peer_lane_count = usize::from(self.config.lane_count).saturating_sub(1);
        if peer_lane_count == 0 || self.locks.watched.contains_key(&inode) {
            return;
        }
        if self.locks.watched.len() >= WATCHED_COUNT_MAX {
            let used: BTreeSet<InodeNo> = self.locks.entries.keys().map(|key| key.inode).collect();
            let watched = core::mem::take(&mut self.locks.watched);
            for (idle, pending_count) in watched {
                if used.contains(&idle) || pending_count > 0 {
                    self.locks.watched.insert(idle, pending_count);
                } else {
                    self.announce_watch(idle, false);
                }
            }
        }
        self.locks.watched.insert(inode, peer_lane_count);
        self.announce_watch(inode, true);
    }

    fn announce_watch(&mut self, inode: InodeNo, some: bool) {
        for lane in (0..self.config.lane_count).map(LaneId) {
            if lane != self.config.lane {
                self.peer_lanes.send(lane, MountMessage::LocksPresent { inode, present: some });
            }
        }
    }

    /// A peer lane confirms that it reports closes.
    pub(crate) fn on_locks_seen(&mut self, inode: InodeNo) {
        let Some(pending_count) = self.locks.watched.get_mut(&inode) else { return };
        *pending_count = pending_count.saturating_sub(1);
        if *pending_count > 0 {
            return;
        }
        let first = LockKey { inode, kind: LockKind::Posix, owner: 0 };
        let of_file = self.locks.entries.range(first..).take_while(|(key, _)| key.inode == inode);
        let keys: Vec<LockKey> = of_file.map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.pump_lock(key));
    }

    /// The client has stopped: answers all waiters.
    pub(crate) fn refuse_locks(&mut self, status: Status) {
        self.locks.entries.clear();
        self.locks.deadlines.clear();
        for (waiter, _) in core::mem::take(&mut self.locks.waiters) {
            self.answer_lock(waiter, Err(status));
        }
    }
}

/// The request that unlocks `range`.
pub(super) const fn unlock(key: LockKey, range: ByteRange) -> SetLock {
    let LockKey { inode, kind, owner } = key;
    SetLock { inode, kind, owner, lock: None, range, pid: 0, wait_id: 0, place: 0 }
}
