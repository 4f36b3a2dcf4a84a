//! Tasks: one request of an owner after the other, and what its reply means.

use super::keeper::unlock;
use super::{Entry, For, LockKey, Task, What};
use crate::client::Client;
use crate::plan::begin::{Begun, Target};
use crate::plan::{Body, Got, Plan};
use alloc::vec::Vec;
use wire::{ByteRange, CancelLock, LockKind, LockType, Op, SetLock, Status, Wire as _, Writer};

impl Client {
    /// Sends an owner's next request, if none is under way; forgets an owner that has nothing.
    pub(crate) fn pump_lock(&mut self, key: LockKey) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        if entry.is_idle() {
            self.locks.entries.remove(&key);
            return;
        }
        if entry.busy {
            return;
        }
        let heard = self.locks.watched.get(&key.inode).is_none_or(|left_count| *left_count == 0);
        let Some(task) = entry.tasks.front().copied() else { return };
        if !heard && task.lock.lock.is_some() {
            return; // Peer lanes must know that there are closes to tell of.
        }
        entry.busy = true;
        let mut body = self.spare_bodies.pop().unwrap_or_default();
        let inode = key.inode;
        let op = match task.what {
            What::Set | What::Flush | What::Try => {
                entry.give_up(&task.lock);
                task.lock.encode(&mut Writer::new(&mut body));
                Op::SetLock
            }
            What::Cancel => {
                let cancel = CancelLock { inode, wait_id: task.lock.wait_id };
                cancel.encode(&mut Writer::new(&mut body));
                Op::CancelLock
            }
        };
        let (plan, target) = (Plan::LockTask(key), Target::Inode(inode));
        self.begin_job(None, Begun { plan, op, target, bulk: None, sync: false }, body);
    }

    /// The reply to an owner's request.
    pub(crate) fn on_lock_reply(&mut self, key: LockKey, got: Got) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        entry.busy = false;
        let Some(task) = entry.tasks.pop_front() else { return };
        match (task.what, got.outcome) {
            (What::Cancel, Ok(Body::LockCancelled(waited))) => self.end_cancel(key, task, waited),
            (What::Cancel, _) => self.end_cancel(key, task, true),
            (_, Ok(Body::LockSet(set))) => {
                if got.from_slot && task.lock.lock.is_some() {
                    // That was long ago, or in an earlier boot: what is there now?
                    entry.tasks.push_front(task);
                } else if set.granted {
                    self.end_set(key, task, Ok(()));
                } else {
                    self.suspend_for_lock(key, task, set.place);
                }
            }
            (_, Ok(_)) => self.end_set(key, task, Err(Status::Io)),
            (_, Err(status)) => self.end_set(key, task, Err(status)),
        }
        self.pump_lock(key);
    }

    /// It waits at the server.
    fn suspend_for_lock(&mut self, key: LockKey, mut task: Task, place: u64) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        task.lock.place = place;
        let cancels = task.interrupted || task.asked_for == For::Gone;
        entry.suspended.push(task);
        if cancels {
            let cancel = Task { what: What::Cancel, asked_for: For::Us, ..task };
            entry.tasks.push_front(cancel);
        }
    }

    /// A lock was granted, given up, or refused.
    pub(super) fn end_set(&mut self, key: LockKey, task: Task, result: Result<(), Status>) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        let lock = task.lock;
        match (result, task.asked_for) {
            (Ok(()), For::Asker(_) | For::Us) => {
                // A grant may have come after the unlock was asked for, and before it was done.
                if lock.lock.is_none() || matches!(task.asked_for, For::Asker(_)) {
                    entry.held.set(lock.range, lock.lock);
                }
                if lock.lock.is_some() {
                    (entry.pid, entry.handle) = (lock.pid, task.handle);
                }
            }
            (Ok(()), For::Gone) => self.give_back(key, lock.range),
            (Err(Status::Again | Status::NoLocks | Status::Deadlock), _) => {}
            // Whether it was done is not known.
            (Err(_), _) if lock.lock.is_some() => self.give_back(key, lock.range),
            (Err(_), _) => {}
        }
        if let For::Asker(asker) = task.asked_for {
            let tried = task.what == What::Try;
            self.tell_lock(
                asker,
                match result {
                    Err(Status::Again) if tried => Err(Status::Interrupted),
                    // The server has nothing of ours any more, or will forget it with us.
                    Err(_) if lock.lock.is_none() => Ok(()),
                    result => result,
                },
            );
        }
    }

    /// A wait was to end.
    fn end_cancel(&mut self, key: LockKey, task: Task, waited: bool) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        let mine = |suspended: &Task| suspended.lock.wait_id == task.lock.wait_id;
        let Some(at) = entry.suspended.iter().position(mine) else { return };
        let suspended = entry.suspended.remove(at);
        match suspended.asked_for {
            For::Asker(asker) if waited => self.tell_lock(asker, Err(Status::Interrupted)),
            For::Asker(_) => {
                // It was granted or refused, and word of that was lost with a connection.
                let lock = SetLock { wait_id: 0, ..suspended.lock };
                entry.tasks.push_front(Task { what: What::Try, lock, ..suspended });
            }
            For::Gone | For::Us if waited => {}
            For::Gone | For::Us => self.give_back(key, suspended.lock.range),
        }
    }

    /// Makes the server's view of a range what is held here.
    fn give_back(&mut self, key: LockKey, range: ByteRange) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        if self.refused.is_some() {
            return;
        }
        let mut pieces: Vec<SetLock> = Vec::new();
        let mut free_from = Some(range.start());
        for (piece, lock) in entry.held.within(range) {
            if let Some(from) = free_from
                && let Some(before) = piece.start().checked_sub(1)
                && let Some(free) = ByteRange::new(from, before)
            {
                pieces.push(unlock(key, free));
            }
            let (lock, pid) = (Some(lock), entry.pid);
            pieces.push(SetLock { lock, pid, ..unlock(key, piece) });
            free_from = piece.end().checked_add(1);
        }
        if let Some(free) = free_from.and_then(|from| ByteRange::new(from, range.end())) {
            pieces.push(unlock(key, free));
        }
        let (what, handle, asked_for) = (What::Set, entry.handle, For::Us);
        // Behind what is under way, before everything else.
        let next = usize::from(entry.busy);
        for lock in pieces.into_iter().rev() {
            let task = Task { what, lock, handle, asked_for, interrupted: false };
            entry.tasks.insert(next, task);
        }
    }
}

impl Entry {
    /// What an ask gives up counts as given up from now on: a restart may come between the doing of
    /// it and the reply, and then it may be another's.
    fn give_up(&mut self, ask: &SetLock) {
        match (ask.kind, ask.lock) {
            (_, None) => self.held.set(ask.range, None),
            (LockKind::Flock, Some(lock)) => {
                if self.held.iter().any(|(_, held)| held != lock) {
                    self.held.set(ByteRange::ALL, None);
                }
            }
            (LockKind::Posix, Some(_)) => {}
        }
    }

    /// Whether the end of a wait is being asked for.
    pub(super) fn cancels(&self, suspended: &Task) -> bool {
        let mut cancels = self.tasks.iter().filter(|task| task.what == What::Cancel);
        cancels.any(|task| task.lock.wait_id == suspended.lock.wait_id)
    }

    /// What is held, as it may be said again: what is just becoming less is said to be less.
    pub(super) fn asserted(&self) -> Vec<(ByteRange, LockType)> {
        let mut held = self.held.clone();
        let shrinking = self.tasks.iter().take(usize::from(self.busy)).chain(&self.suspended);
        for task in shrinking.filter(|task| task.lock.lock == Some(LockType::Read)) {
            let pieces: Vec<_> = held.within(task.lock.range).collect();
            for (piece, _) in pieces {
                held.set(piece, Some(LockType::Read));
            }
        }
        held.iter().collect()
    }
}
