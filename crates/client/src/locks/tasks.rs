//! Tasks: an owner's requests, one at a time, and the effects of their replies.

use super::keeper::unlock;
use super::{Entry, LockAction, LockKey, Requester, Task};
use crate::client::Client;
use crate::plan::{Body, Plan};
use crate::plan::{NewRequest, Target};
use crate::wait_cause::WaitCause;
use alloc::vec::Vec;
use wire::{ByteRange, CancelLock, LockKind, LockType, Op, SetLock, Status, Wire as _, Writer};

impl Client {
    /// Sends an owner's next request, if none is in flight; removes an owner without locks.
    pub(crate) fn pump_lock(&mut self, key: LockKey) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        if entry.is_idle() {
            self.locks.entries.remove(&key);
            return;
        }
        if entry.busy {
            return;
        }
        let peers_ready =
            self.locks.watched.get(&key.inode).is_none_or(|pending_count| *pending_count == 0);
        let Some(task) = entry.tasks.front().copied() else { return };
        if !peers_ready && task.lock.lock.is_some() {
            return; // Peer lanes must first confirm that they report closes.
        }
        let is_unlock = task.lock.lock.is_none() && task.action != LockAction::Cancel;
        if is_unlock && self.abandoned.has(key.inode) {
            return;
        }
        entry.busy = true;
        let mut body = self.requests.take_body();
        let inode = key.inode;
        let op = match task.action {
            LockAction::Set | LockAction::Flush | LockAction::Try => {
                entry.remove_released(&task.lock);
                task.lock.encode(&mut Writer::new(&mut body));
                Op::SetLock
            }
            LockAction::Cancel => {
                let cancel = CancelLock { inode, wait_id: task.lock.wait_id };
                cancel.encode(&mut Writer::new(&mut body));
                Op::CancelLock
            }
        };
        let (plan, target) = (Plan::LockTask(key), Target::Inode(inode));
        self.begin_job(None, NewRequest::new(plan, op, target), body);
    }

    /// The reply to an owner's request.
    pub(crate) fn on_lock_reply(
        &mut self,
        key: LockKey,
        outcome: Result<Body, Status>,
        from_slot: bool,
    ) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        entry.busy = false;
        let Some(task) = entry.tasks.pop_front() else { return };
        match (task.action, outcome) {
            (LockAction::Cancel, Ok(Body::LockCancelled(waited))) => {
                self.end_cancel(key, task, waited)
            }
            (LockAction::Cancel, _) => self.end_cancel(key, task, true),
            (_, Ok(Body::LockSet(set))) => {
                if from_slot && task.lock.lock.is_some() {
                    // The reply may be old, or of an earlier boot: asks again.
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

    /// The task waits at the server.
    fn suspend_for_lock(&mut self, key: LockKey, mut task: Task, place: u64) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        task.lock.place = place;
        let cancels = task.interrupted || task.requester == Requester::Abandoned;
        entry.suspended.push(task);
        self.counts.count_wait(WaitCause::FileLock);
        if cancels {
            let cancel = Task { action: LockAction::Cancel, requester: Requester::Keeper, ..task };
            entry.tasks.push_front(cancel);
        }
    }

    /// A lock was granted, released, or refused.
    pub(super) fn end_set(&mut self, key: LockKey, task: Task, result: Result<(), Status>) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        let lock = task.lock;
        match (result, task.requester) {
            (Ok(()), Requester::Waiter(_) | Requester::Keeper) => {
                // A grant may have arrived after the unlock was requested, and before it was
                // executed.
                if lock.lock.is_none() || matches!(task.requester, Requester::Waiter(_)) {
                    entry.held.set(lock.range, lock.lock);
                }
                if lock.lock.is_some() {
                    (entry.pid, entry.handle) = (lock.pid, task.handle);
                }
            }
            (Ok(()), Requester::Abandoned) => self.release_range(key, lock.range),
            (Err(Status::Again | Status::NoLocks | Status::Deadlock), _) => {}
            // Whether it was executed is not known.
            (Err(_), _) if lock.lock.is_some() => self.release_range(key, lock.range),
            (Err(_), _) => {}
        }
        if let Requester::Waiter(waiter) = task.requester {
            let tried = task.action == LockAction::Try;
            self.answer_lock(
                waiter,
                match result {
                    Err(Status::Again) if tried => Err(Status::Interrupted),
                    // The server has no lock of this owner any more, or drops it with the session.
                    Err(_) if lock.lock.is_none() => Ok(()),
                    result => result,
                },
            );
        }
    }

    /// A cancel was answered.
    fn end_cancel(&mut self, key: LockKey, task: Task, waited: bool) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        let mine = |suspended: &Task| suspended.lock.wait_id == task.lock.wait_id;
        let Some(at) = entry.suspended.iter().position(mine) else { return };
        let suspended = entry.suspended.remove(at);
        match suspended.requester {
            Requester::Waiter(waiter) if waited => {
                self.answer_lock(waiter, Err(Status::Interrupted))
            }
            Requester::Waiter(_) => {
                // It was granted or refused, and that message was lost with a connection.
                let lock = SetLock { wait_id: 0, ..suspended.lock };
                entry.tasks.push_front(Task { action: LockAction::Try, lock, ..suspended });
            }
            Requester::Abandoned | Requester::Keeper if waited => {}
            Requester::Abandoned | Requester::Keeper => {
                self.release_range(key, suspended.lock.range)
            }
        }
    }

    /// Makes the server's locks in a range equal to the table's.
    fn release_range(&mut self, key: LockKey, range: ByteRange) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        if self.identity.refused().is_some() {
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
        let (action, handle, requester) = (LockAction::Set, entry.handle, Requester::Keeper);
        // Behind the task in flight, before everything else.
        let next = usize::from(entry.busy);
        for lock in pieces.into_iter().rev() {
            let task = Task { action, lock, handle, requester, interrupted: false };
            entry.tasks.insert(next, task);
        }
    }
}

impl Entry {
    /// Removes from the table action a request releases: if the server restarts after executing it
    /// and before the reply, another client may hold the lock.
    fn remove_released(&mut self, request: &SetLock) {
        match (request.kind, request.lock) {
            (_, None) => self.held.set(request.range, None),
            (LockKind::Flock, Some(lock)) => {
                if self.held.iter().any(|(_, held)| held != lock) {
                    self.held.set(ByteRange::ALL, None);
                }
            }
            (LockKind::Posix, Some(_)) => {}
        }
    }

    /// Whether a cancel of this wait is queued.
    pub(super) fn cancels(&self, suspended: &Task) -> bool {
        let mut cancels = self.tasks.iter().filter(|task| task.action == LockAction::Cancel);
        cancels.any(|task| task.lock.wait_id == suspended.lock.wait_id)
    }

    /// The locks to assert at a restarted server. A downgrade in flight is asserted as a read lock.
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
