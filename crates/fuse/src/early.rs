//! What a lane has answered before the server has done it, and what waits for that (`write_behind`,
//! `create_behind`, `behind_waits`).

use crate::behind::Behind;
use crate::behind_counts::BehindCounts;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use client::{Asked, CallId};
use interface::Bulk;
use wire::{ClearPrivileges, CreateBehind, Handle, HandleId, InodeNo, Status, Timestamp};

/// Ids of these calls begin here; those of requests are smaller.
const FIRST_CALL: u64 = 1 << 62;

/// A call whose caller has its answer.
#[derive(Debug)]
pub(crate) enum Early {
    Write(InodeNo, QueuedWrite, Option<Asked>),
    Setting { inode: InodeNo, request: Vec<u8>, asked: Option<Asked> },
    Create(EarlyCreate),
    Unlink(EarlyUnlink),
}

/// The bytes of a write whose caller has its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedWrite {
    pub(crate) file_offset: u64,
    pub(crate) copy: Bulk,
    pub(crate) clears: ClearPrivileges,
    /// As many writes of its callers.
    pub(crate) write_count: u64,
}

/// What a lane has under way and waiting.
#[derive(Default, Debug)]
pub(crate) struct WriteBehind {
    pub(crate) table: Option<Arc<Behind>>,
    pub(crate) calls: BTreeMap<u64, Early>,
    call_count: u64,
    pub(crate) waiting: Vec<(InodeNo, Waiting)>,
    /// Of each file of which this lane has a write under way, those that follow it (`joined`).
    pub(crate) joined: BTreeMap<InodeNo, Vec<QueuedWrite>>,
    /// Creates under way.
    pub(crate) create_count: usize,
    /// Requests that wait for one of them.
    pub(crate) further: VecDeque<usize>,
    /// Files whose creates were answered, and of which the kernel drops the attributes.
    pub(crate) dropping: BTreeMap<u64, Created>,
    /// Those of which it has.
    pub(crate) dropped: Vec<Created>,
    /// So many opens to read and write are the server's (`local_writes`).
    pub(crate) to_server_count: u8,
}

impl WriteBehind {
    /// Whether nothing is under way and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.is_empty()
            && self.waiting.is_empty()
            && self.dropping.is_empty()
            && self.dropped.is_empty()
    }

    /// What the mount has written behind, if it does.
    pub(crate) fn counts(&self) -> Option<BehindCounts> {
        self.table.as_ref().map(|table| table.counts())
    }

    /// A request waits for nothing of this any more. Returns whether it did.
    pub(crate) fn end_wait_of(&mut self, pending_id: usize) -> bool {
        let count = self.waiting.len() + self.further.len();
        let is_it =
            |waiting: &Waiting| matches!(waiting, Waiting::Request(id) if *id == pending_id);
        self.waiting.retain(|(_, waiting)| !is_it(waiting));
        self.further.retain(|id| *id != pending_id);
        self.waiting.len() + self.further.len() < count
    }

    /// Whether this is the id of such a call.
    pub(crate) const fn has_made(call: CallId) -> bool {
        call.0 >= FIRST_CALL && call.0 < FIRST_CALL << 1
    }

    pub(crate) fn add(&mut self, early: Early) -> CallId {
        self.call_count += 1;
        let number = FIRST_CALL + self.call_count;
        self.calls.insert(number, early);
        CallId(number)
    }
}

/// A create whose caller has its answer.
#[derive(Debug)]
pub(crate) struct EarlyCreate {
    pub(crate) directory: InodeNo,
    pub(crate) request: Vec<u8>,
    pub(crate) handle: Handle,
    pub(crate) behind: CreateBehind,
    pub(crate) asked: Option<Asked>,
    /// The kernel may keep the attributes.
    pub(crate) is_given: bool,
}

/// A removal whose caller has its answer.
#[derive(Debug)]
pub(crate) struct EarlyUnlink {
    pub(crate) directory: InodeNo,
    pub(crate) inode: InodeNo,
    pub(crate) request: Vec<u8>,
    pub(crate) at: Timestamp,
    pub(crate) asked: Option<Asked>,
}

/// A create that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Created {
    pub(crate) directory: InodeNo,
    pub(crate) inode: InodeNo,
    pub(crate) result: Result<(), Status>,
    /// The file may be written behind.
    pub(crate) is_granted: bool,
}

/// What waits until nothing of a file or directory is under way.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// A request of the kernel.
    Request(usize),
    /// A write, for the create of its file.
    Write(QueuedWrite),
    /// A change of attributes with its number, for what comes before it.
    Setting(u64, Vec<u8>),
    Release(HandleId),
    /// A recall.
    Recall(u64),
    /// A recall of attributes, for a handle that is being registered.
    Registered(u64),
    /// The server is told that the file was written.
    Written,
    /// The directory in which the file was made is busy as long as the file is.
    Directory(InodeNo),
}
