//! Locks on files (flock, fcntl) at the client. Each file's locks are managed by one lane of the
//! client, its keeper: it alone sends lock requests to the server, knows which locks this client
//! holds, and asserts them again after a restart. The lane that gets a call sends it to the keeper.
//!
//! ```text
//! SetLock ─▶ tasks (one under way per owner) ─▶ server ─ granted ─▶ held
//!                ▲  ▲                              └ waits ─▶ suspended ─ Grant ─▶ held
//!   reconnected ─┘  └──────── interrupted: Cancel ──────────────┘
//! ```
//! Invariants: a lock in this table is held at the server, or was lost and reported: an unlock
//! counts from its request, a lock from its grant. Each owner has one request in flight, so that
//! replies and grants arrive in the order in which the server executed. A lock that is granted
//! after its waiter was answered is released.

mod call;
mod keeper;
mod relock;
mod tasks;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use interface::Mono;
use wire::{HandleId, InodeNo, LaneId, LockKind, Ranges, SetLock};

/// The most files whose closes peer lanes report; beyond, files without locks are dropped.
const WATCHED_COUNT_MAX: usize = 4096;

/// How long a process waits for the server after a signal, or in its close.
const GRACE_MS: u64 = 1_000;

/// One owner's locks on one file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LockKey {
    pub(crate) inode: InodeNo,
    pub(crate) kind: LockKind,
    pub(crate) owner: u64,
}

/// The call that waits for a task: its lane and its job there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Waiter {
    pub(crate) lane: LaneId,
    pub(crate) job: u64,
}

/// Who requested a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Requester {
    /// A call that waits.
    Waiter(Waiter),
    /// A call that was answered meanwhile: a granted lock is released.
    Abandoned,
    /// The keeper itself.
    Keeper,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LockAction {
    Set,
    /// Release the owner's locks at a close, which does not wait long.
    Flush,
    /// Once more, without waiting: whether the lock was granted is not known.
    Try,
    /// End the wait of this number.
    Cancel,
}

/// A lock request to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Task {
    action: LockAction,
    lock: SetLock,
    handle: HandleId,
    requester: Requester,
    interrupted: bool,
}

/// One owner's locks on one file.
#[derive(Debug)]
struct Entry {
    held: Ranges,
    pid: u32,
    /// The open file through which the last lock was taken.
    handle: HandleId,
    tasks: VecDeque<Task>,
    /// The first task's request is in flight.
    busy: bool,
    /// Tasks that wait at the server.
    suspended: Vec<Task>,
    /// Relock requests in flight.
    relocking_count: usize,
}

impl Entry {
    const fn new(handle: HandleId) -> Self {
        Self {
            held: Ranges::new(),
            pid: 0,
            handle,
            tasks: VecDeque::new(),
            busy: false,
            suspended: Vec::new(),
            relocking_count: 0,
        }
    }

    fn is_idle(&self) -> bool {
        self.held.is_empty()
            && self.tasks.is_empty()
            && self.suspended.is_empty()
            && self.relocking_count == 0
    }
}

/// The lock state of a client lane.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    entries: BTreeMap<LockKey, Entry>,
    /// The key of a waiter's task.
    waiters: BTreeMap<Waiter, LockKey>,
    wait_count: u64,
    /// Files whose closes peer lanes report, with the number of lanes that have not confirmed.
    watched: BTreeMap<InodeNo, usize>,
    /// Files whose keeper wants reports of closes.
    close_watchers: BTreeSet<InodeNo>,
    /// When a waiter is answered at the latest.
    deadlines: Vec<(Mono, Waiter)>,
}

impl Locks {
    /// Whether any lock is held or requested.
    pub(crate) fn is_any(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The owners that have locks on a file, or requests about them.
    pub(crate) fn keys_of(&self, inode: InodeNo) -> impl Iterator<Item = LockKey> {
        self.entries.keys().filter(move |key| key.inode == inode).copied()
    }

    /// The next deadline of a waiter.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.deadlines.iter().map(|(at, _)| *at).min()
    }
}
