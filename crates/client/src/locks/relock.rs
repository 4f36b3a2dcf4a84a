//! Locks after a reconnect or an eviction.

use super::{Entry, LockAction, LockKey, Requester, Task};
use crate::client::Client;
use crate::plan::Plan;
use crate::plan::{NewRequest, Target};
use crate::report::Report;
use alloc::vec::Vec;
use wire::{ByteRange, InodeNo, Op, Relock, Status, Wire as _, Writer};

impl Client {
    /// A connection to a server lane was made: asserts the locks at its shards, and requests again
    /// the locks that are waited for. `new_boot`: the shards have none of them.
    pub(crate) fn relock(&mut self, link_index: usize, new_boot: bool) {
        let keys = self.locks.entries.keys().copied();
        let keys: Vec<LockKey> = keys.filter(|key| self.is_at(key.inode, link_index)).collect();
        for key in keys {
            let Some(entry) = self.locks.entries.get_mut(&key) else { continue };
            if entry.relocking_count == 0 {
                let (pid, asserted) = (entry.pid, entry.asserted());
                entry.relocking_count = asserted.len();
                for (range, lock) in asserted {
                    let LockKey { inode, kind, owner } = key;
                    self.begin_relock(key, Relock { inode, kind, owner, lock, range, pid });
                }
            }
            self.execute_suspended_again(key, new_boot);
        }
    }

    fn begin_relock(&mut self, key: LockKey, relock: Relock) {
        let mut body = self.requests.take_body();
        relock.encode(&mut Writer::new(&mut body));
        let (op, target) = (Op::Relock, Target::Inode(key.inode));
        let server_index = self.servers.server_of_inode(key.inode);
        let plan = Plan::Relock { key, range: relock.range, server_index };
        self.servers.begin_registering(server_index);
        self.begin_job(None, NewRequest::new(plan, op, target), body);
    }

    fn execute_suspended_again(&mut self, key: LockKey, new_boot: bool) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        let mut again: Vec<Task> = Vec::new();
        let mut left: Vec<Task> = Vec::new();
        for task in core::mem::take(&mut entry.suspended) {
            match task.requester {
                Requester::Waiter(_) => again.push(task),
                Requester::Abandoned | Requester::Keeper if new_boot => {}
                Requester::Abandoned | Requester::Keeper => left.push(task),
            }
        }
        entry.suspended = left;
        for task in again {
            entry.tasks.push_back(Task { action: LockAction::Set, ..task });
        }
        for task in entry.suspended.clone() {
            let action = LockAction::Cancel;
            if !entry.cancels(&task) {
                entry.tasks.push_back(Task { action, requester: Requester::Keeper, ..task });
            }
        }
        self.pump_lock(key);
    }

    /// A relock was answered; an error means that the lock is lost.
    pub(crate) fn on_relocked(&mut self, key: LockKey, range: ByteRange, status: Option<Status>) {
        let Some(entry) = self.locks.entries.get_mut(&key) else { return };
        entry.relocking_count = entry.relocking_count.saturating_sub(1);
        if status.is_some() && entry.held.within(range).next().is_some() {
            entry.held.set(range, None);
            self.lose_lock(key.inode);
        }
        self.pump_lock(key);
    }

    /// The client continues under a new uuid, which holds no locks.
    pub(crate) fn lose_locks(&mut self) {
        let has = |entry: &Entry| !entry.held.is_empty();
        let locks = self.locks.entries.iter().filter(|(_, entry)| has(entry));
        let mut inodes: Vec<InodeNo> = locks.map(|(key, _)| key.inode).collect();
        inodes.dedup();
        for entry in self.locks.entries.values_mut() {
            entry.held.set(ByteRange::ALL, None);
        }
        inodes.into_iter().for_each(|inode| self.lose_lock(inode));
    }

    /// The holder's next fsync fails, as after lost bytes: another client may have changed the file
    /// in spite of the lock.
    fn lose_lock(&mut self, inode: InodeNo) {
        self.reports.push(Report::LockLost { inode });
        self.lose_inode(inode);
    }

    /// Whether a file's shard belongs to a server lane.
    pub(crate) fn is_at(&self, inode: InodeNo, link_index: usize) -> bool {
        self.servers.link_of_inode(inode) == Some(link_index)
    }
}
