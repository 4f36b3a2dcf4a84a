//! What a keeper is asked and told: by lanes of its client, by the server unasked.

use super::{Asker, Entry, For, LockKey, PATIENCE_MS, Task, WATCHED_COUNT_MAX, What};
use crate::client::Client;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use interface::{LaneMessage, LockRequest, Turn};
use wire::{ByteRange, Grant, HandleId, InodeNo, LaneId, LockKind, SetLock, Status};

impl Client {
    pub(crate) fn on_lock_ask(&mut self, turn: &Turn<'_>, asker: Asker, ask: LockRequest) {
        let (mut lock, handle, what) = match ask {
            LockRequest::Set { lock, handle } => (lock, handle, What::Set),
            LockRequest::Flush { inode, owner } => {
                let key = LockKey { inode, kind: LockKind::Posix, owner };
                match self.locks.entries.get(&key) {
                    Some(entry) if !entry.is_idle() => {
                        (unlock(key, ByteRange::ALL), entry.handle, What::Flush)
                    }
                    Some(_) | None => return self.tell_lock(asker, Ok(())),
                }
            }
        };
        if let Some(refused) = self.refused {
            return self.tell_lock(asker, Err(refused.status()));
        }
        let key = LockKey { inode: lock.inode, kind: lock.kind, owner: lock.owner };
        if lock.lock.is_some() {
            self.watch(key.inode);
        } else if self.locks.entries.get(&key).is_none_or(Entry::is_idle) {
            // There is nothing to give up.
            return self.tell_lock(asker, Ok(()));
        }
        if lock.wait_id > 0 {
            self.locks.wait_count += 1;
            lock.wait_id = (u64::from(self.config.lane.0) << 48) | self.locks.wait_count;
        }
        self.locks.askers.insert(asker, key);
        let asked_for = For::Asker(asker);
        self.add_task(key, Task { what, lock, handle, asked_for, interrupted: false });
        if what == What::Flush {
            self.be_patient(turn, asker);
        }
    }

    pub(super) fn add_task(&mut self, key: LockKey, task: Task) {
        let entry = self.locks.entries.entry(key).or_insert_with(|| Entry::new(task.handle));
        entry.tasks.push_back(task);
        self.pump_lock(key);
    }

    /// All that was locked through an open file goes.
    pub(crate) fn on_lock_release(&mut self, inode: InodeNo, handle: HandleId) {
        let first = LockKey { inode, kind: LockKind::Posix, owner: 0 };
        let of_file = self.locks.entries.range(first..).take_while(|(key, _)| key.inode == inode);
        let taken = of_file.filter(|(_, entry)| entry.handle == handle && !entry.is_idle());
        let keys: Vec<LockKey> = taken.map(|(key, _)| *key).collect();
        for key in keys {
            let lock = unlock(key, ByteRange::ALL);
            let (what, asked_for) = (What::Set, For::Us);
            self.add_task(key, Task { what, lock, handle, asked_for, interrupted: false });
        }
    }

    /// The asker gives up: what was never sent is dropped, who waits at the server is taken from there.
    pub(crate) fn on_lock_interrupt(&mut self, turn: &Turn<'_>, asker: Asker) {
        let Some(key) = self.locks.askers.get(&asker).copied() else { return };
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        let mine = |task: &Task| task.asked_for == For::Asker(asker);
        let first_unsent = usize::from(entry.busy);
        let unsent = entry.tasks.iter().skip(first_unsent).position(|task| {
            // What waited before may still wait there.
            mine(task) && task.what == What::Set && task.lock.place == 0
        });
        if let Some(at) = unsent {
            entry.tasks.remove(first_unsent + at);
            self.tell_lock(asker, Err(Status::Interrupted));
            return self.pump_lock(key);
        }
        for task in entry.tasks.iter_mut().chain(&mut entry.suspended).filter(|task| mine(task)) {
            task.interrupted = true;
        }
        let suspended = entry.suspended.iter().find(|task| mine(task)).copied();
        if let Some(suspended) = suspended.filter(|suspended| !entry.cancels(suspended)) {
            let cancel = Task { what: What::Cancel, asked_for: For::Us, ..suspended };
            self.add_task(key, cancel);
        }
        self.be_patient(turn, asker);
    }

    /// The asker is answered within a moment, whatever the server does.
    fn be_patient(&mut self, turn: &Turn<'_>, asker: Asker) {
        if !self.locks.askers.contains_key(&asker) {
            return;
        }
        if !self.locks.patience.iter().any(|(_, known)| *known == asker) {
            let until = turn.now.mono.after_ms(PATIENCE_MS);
            self.locks.patience.push((until, asker));
        }
    }

    /// Askers whose patience is over, or whose server is away.
    pub(crate) fn give_up_locks(&mut self, turn: &Turn<'_>) {
        let mut index = 0;
        while let Some((at, asker)) = self.locks.patience.get(index).copied() {
            let key = self.locks.askers.get(&asker).copied();
            let reachable = key.is_some_and(|key| self.is_lock_reachable(key));
            if reachable && at > turn.now.mono {
                index += 1;
                continue;
            }
            self.locks.patience.swap_remove(index);
            let Some(entry) = key.and_then(|key| self.locks.entries.get_mut(&key)) else {
                continue;
            };
            let mut flushes = false;
            for task in entry.tasks.iter_mut().chain(&mut entry.suspended) {
                if task.asked_for == For::Asker(asker) {
                    flushes = task.what == What::Flush;
                    task.asked_for = if task.lock.lock.is_some() { For::Gone } else { For::Us };
                }
            }
            self.tell_lock(asker, if flushes { Ok(()) } else { Err(Status::Interrupted) });
        }
    }

    fn is_lock_reachable(&self, key: LockKey) -> bool {
        let lane = self.map.map(|map| map.lane(key.inode.shard()));
        let link = lane.and_then(|lane| self.links.get(usize::from(lane.0)));
        link.is_some_and(crate::link::Link::is_up)
    }

    /// Answers an asker, once.
    pub(crate) fn tell_lock(&mut self, asker: Asker, result: Result<(), Status>) {
        self.locks.askers.remove(&asker);
        let Asker { lane, job } = asker;
        if lane == self.config.lane {
            self.on_lock_done(job, result);
        } else {
            self.questions.push((lane, LaneMessage::LockDone { job, result }));
        }
    }

    /// The server says what became of a wait.
    pub(crate) fn on_grant(&mut self, grant: Grant) {
        let Grant { inode, wait_id, status } = grant;
        let first = LockKey { inode, kind: LockKind::Posix, owner: 0 };
        let mut of_file =
            self.locks.entries.range_mut(first..).take_while(|(key, _)| key.inode == inode);
        let found = of_file.find_map(|(key, entry)| {
            let at = entry.suspended.iter().position(|task| task.lock.wait_id == wait_id)?;
            Some((*key, entry.suspended.remove(at)))
        });
        // One that is being asked again hears of it by that.
        let Some((key, task)) = found else { return };
        let result = if status == Status::Ok { Ok(()) } else { Err(status) };
        self.end_set(key, task, result);
        self.pump_lock(key);
    }

    /// Peer lanes tell of closes of this file from now on.
    fn watch(&mut self, inode: InodeNo) {
        let peer_lane_count = usize::from(self.config.lane_count).saturating_sub(1);
        if peer_lane_count == 0 || self.locks.watched.contains_key(&inode) {
            return;
        }
        if self.locks.watched.len() >= WATCHED_COUNT_MAX {
            let used: BTreeSet<InodeNo> = self.locks.entries.keys().map(|key| key.inode).collect();
            let watched = core::mem::take(&mut self.locks.watched);
            for (idle, left_count) in watched {
                if used.contains(&idle) || left_count > 0 {
                    self.locks.watched.insert(idle, left_count);
                } else {
                    self.tell_watch(idle, false);
                }
            }
        }
        self.locks.watched.insert(inode, peer_lane_count);
        self.tell_watch(inode, true);
    }

    fn tell_watch(&mut self, inode: InodeNo, some: bool) {
        for lane in (0..self.config.lane_count).map(LaneId) {
            if lane != self.config.lane {
                self.questions.push((lane, LaneMessage::LocksPresent { inode, present: some }));
            }
        }
    }

    /// A peer lane has heard of it.
    pub(crate) fn on_locks_seen(&mut self, inode: InodeNo) {
        let Some(left_count) = self.locks.watched.get_mut(&inode) else { return };
        *left_count = left_count.saturating_sub(1);
        if *left_count > 0 {
            return;
        }
        let first = LockKey { inode, kind: LockKind::Posix, owner: 0 };
        let of_file = self.locks.entries.range(first..).take_while(|(key, _)| key.inode == inode);
        let keys: Vec<LockKey> = of_file.map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.pump_lock(key));
    }

    /// Nothing is asked of the server any more: everybody is told.
    pub(crate) fn refuse_locks(&mut self, status: Status) {
        self.locks.entries.clear();
        self.locks.patience.clear();
        for (asker, _) in core::mem::take(&mut self.locks.askers) {
            self.tell_lock(asker, Err(status));
        }
    }
}

/// Giving up `range`.
pub(super) const fn unlock(key: LockKey, range: ByteRange) -> SetLock {
    let LockKey { inode, kind, owner } = key;
    SetLock { inode, kind, owner, lock: None, range, pid: 0, wait_id: 0, place: 0 }
}
