//! Locks on files (flock, fcntl), as a client keeps them. Each file's are kept by one lane of the
//! client, its keeper: it alone asks the server, knows what this client has, and says it again after
//! a restart. Whoever is asked by a face writes to the keeper.
//!
//! ```text
//! SetLock ─▶ tasks (one under way per owner) ─▶ server ─ granted ─▶ held
//!                ▲  ▲                              └ waits ─▶ suspended ─ Grant ─▶ held
//!   reconnected ─┘  └──────── interrupted: Cancel ──────────────┘
//! ```
//! Invariants: what is held here is held at the server, or is lost and was reported: an unlock counts
//! from when it is asked, a lock from when it is granted. Of one owner one request is under way, so
//! that replies and grants come in the order in which the server executed. A lock that was granted
//! when nobody waited any more is given back.

mod asker;
mod keeper;
mod relock;
mod tasks;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use interface::Mono;
use wire::{HandleId, InodeNo, LaneId, LockKind, Ranges, SetLock};

/// Files of which the peer lanes tell closes; beyond, those without locks are forgotten.
const WATCHED_COUNT_MAX: usize = 4096;

/// How long a process waits for the server after a signal, or in its close.
const PATIENCE_MS: u64 = 1_000;

/// Whose locks on what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LockKey {
    pub(crate) inode: InodeNo,
    pub(crate) kind: LockKind,
    pub(crate) owner: u64,
}

/// Who waits for the end of a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Asker {
    pub(crate) lane: LaneId,
    pub(crate) job: u64,
}

/// For whom a task is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum For {
    /// A process that waits.
    Asker(Asker),
    /// One that does not wait any more: what it gets is given back.
    Gone,
    /// Nobody: our own work, of which the table knows.
    Us,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Set,
    /// A process closed the file; it does not wait long.
    Flush,
    /// Once more, without waiting: whether it was granted is not known.
    Try,
    /// The wait of this number ends.
    Cancel,
}

/// Something to ask of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Task {
    what: What,
    lock: SetLock,
    handle: HandleId,
    asked_for: For,
    interrupted: bool,
}

/// One owner's locks on one file.
#[derive(Debug)]
struct Entry {
    held: Ranges,
    pid: u32,
    /// Through which open file the last one was taken.
    handle: HandleId,
    tasks: VecDeque<Task>,
    /// The first task's request is under way.
    busy: bool,
    /// They wait at the server.
    suspended: Vec<Task>,
    /// Locks that are being said again.
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

/// What a lane knows of locks.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    entries: BTreeMap<LockKey, Entry>,
    /// Where an asker's task is.
    askers: BTreeMap<Asker, LockKey>,
    wait_count: u64,
    /// Files whose closes the peer lanes tell; how many have not heard of it yet.
    watched: BTreeMap<InodeNo, usize>,
    /// Files whose keeper wants to hear of closes.
    told: BTreeSet<InodeNo>,
    /// Askers that are answered then, whatever the server says.
    patience: Vec<(Mono, Asker)>,
}

impl Locks {
    /// Whether anything is held, asked for, or waited for.
    pub(crate) fn is_any(&self) -> bool {
        !self.entries.is_empty()
    }

    /// When the next asker is given up.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.patience.iter().map(|(at, _)| *at).min()
    }
}
