//! The kernel's unanswered requests, by a small number that is also the call's id.

use crate::args::split;
use crate::handle::FileHandle;
use crate::node::Node;
use alloc::vec::Vec;
use client::Asked;
use interface::{Bulk, KernelSlot, Mono, Process};
use slab::Slab;
use wire::{ClearPrivileges, HandleId, Status};

/// How an answer is handled: the reply's payload, or the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Continuation {
    /// No payload.
    Done,
    /// The same, for a request that may wait for a lock.
    LockWait,
    /// No payload; renamed directories move below other nodes.
    Renamed { from: Node, to: Node },
    /// The name of an UNLINK was looked up; the UNLINK follows.
    LookedUp,
    /// `fuse_entry_out`.
    Entry,
    /// `fuse_attr_out`.
    Attr,
    /// The same, of a file that is about to be read through the page cache, and this open file.
    CachedAttr { through: FileHandle },
    /// `fuse_statx_out`.
    Statx,
    /// The size is set; next privileges are cleared, then the other attributes of a SETATTR are
    /// set.
    Resized { keeps_set_id: bool, rest: bool },
    /// Privileges are cleared; the change of contents follows.
    Cleared,
    /// `fuse_entry_out` and `fuse_open_out`; `truncate` truncates an existing file first.
    Create { truncate: bool, keeps_set_id: bool },
    /// As `Create`, after the truncation.
    CreateTruncated { handle: HandleId, keeps_set_id: bool },
    /// `fuse_open_out`.
    Open,
    /// `fuse_open_out` of a directory.
    Opendir,
    /// As `Entry`, of a file whose attributes are asked for again.
    EntryAgain,
    /// As `Create`, the same.
    CreatedAgain { handle: HandleId },
    /// The target's bytes.
    Target,
    /// `fuse_dirent`s from a position on, with attributes or without, in a buffer of this size.
    Listing { position: u64, buffer_bytes: u32, plus: bool },
    /// The value's bytes, or their number when the buffer's size is 0.
    Value { buffer_bytes: u32 },
    /// The same of an SELinux label: without one, the reply says that there are none.
    Label { buffer_bytes: u32 },
    /// Bytes of a file.
    Bytes,
    /// The same, for the page cache.
    Pages,
    /// `fuse_write_out`.
    Written,
    /// The bytes are to be written to another position, or another file.
    CopyRead { to: wire::InodeNo, file_offset: u64, clears: ClearPrivileges },
    /// As `Written`; then the buffer is released.
    CopyWritten { buf: interface::BufId },
    /// `fuse_lseek_out`.
    Sought,
    /// `fuse_statfs_out`.
    Space,
    /// `fuse_lk_out`.
    LockFound,
}

/// A file whose size a request changes, for which others wait (`opened_behind`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Awaited {
    pub(crate) inode: wire::InodeNo,
    /// The size that it leaves, as far as it is known.
    pub(crate) size_bytes: Option<u64>,
}

/// What the request waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    Call,
    /// The groups of the calling process.
    Groups,
    /// What is under way of a file whose sync has begun; its call may have ended already.
    Written(Option<Result<(), Status>>),
}

/// Which part of a request is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    Begun,
    /// A SETATTR's size; these privileges are still to be cleared.
    Size(ClearPrivileges),
    /// The server refuses the change until privileges are cleared.
    NeedsClear,
    /// Privileges are cleared.
    Cleared,
    /// The name of an UNLINK is being looked up.
    LooksUp,
    /// It was.
    LookedUp,
}

/// When the groups of a process were asked for, and when they came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupsLookup {
    pub(crate) begun: Mono,
    pub(crate) ended: Option<Mono>,
}

impl PendingRequest {
    /// The groups of its process are looked up.
    pub(crate) const fn ask_groups(&mut self, now: Mono) {
        self.wait = Wait::Groups;
        self.groups_lookup = Some(GroupsLookup { begun: now, ended: None });
    }

    /// They are known.
    pub(crate) fn take_groups(&mut self, now: Mono, groups: Vec<u8>) {
        (self.wait, self.groups) = (Wait::Call, Some(groups));
        if let Some(lookup) = &mut self.groups_lookup {
            lookup.ended = Some(now);
        }
    }

    /// The process that made the request.
    pub(crate) fn calling_process(&self) -> Process {
        // The header was decoded when the request arrived.
        let header = split(&self.request).map(|(header, _)| header);
        let (uid, gid) = header.map_or((u32::MAX, u32::MAX), |header| (header.uid, header.gid));
        Process { pid: self.pid, uid, gid, since: self.since }
    }
}

#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) slot: KernelSlot,
    pub(crate) unique: u64,
    pub(crate) pid: u32,
    /// When it arrived.
    pub(crate) since: Mono,
    pub(crate) continuation: Continuation,
    /// It has waited for the server.
    pub(crate) asked_server: bool,
    /// Its name does not exist, and the kernel may cache that: the reply has no errno.
    pub(crate) is_absent: bool,
    /// Its call, for the cache.
    pub(crate) asked: Option<Asked>,
    pub(crate) wait: Wait,
    /// The supplementary groups of the process, once looked up.
    pub(crate) groups: Option<Vec<u8>>,
    pub(crate) groups_lookup: Option<GroupsLookup>,
    pub(crate) progress: Progress,
    /// The data of a WRITE; valid until the reply.
    pub(crate) bulk: Option<Bulk>,
    /// The calling process is being killed and will not read the reply, or the request is overdue.
    pub(crate) abandoned: bool,
    /// It has waited longer than a soft mount lets it (`soft`).
    pub(crate) is_overdue: bool,
    /// Others wait for it.
    pub(crate) awaited: Option<Awaited>,
    /// The file whose size it may change.
    pub(crate) resizes: Option<wire::InodeNo>,
    /// Those of the file that it opens, when it began.
    pub(crate) resizes_seen: u64,
    /// Files up to this place of the table have been waited for.
    pub(crate) scanned: usize,
    /// Header and arguments, for decoding again.
    pub(crate) request: Vec<u8>,
}

/// All pending requests; numbers are reused.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    requests: Slab<PendingRequest>,
    spare_requests: Vec<Vec<u8>>,
}

impl PendingRequests {
    pub(crate) fn insert(
        &mut self,
        (slot, since): (KernelSlot, Mono),
        unique: u64,
        pid: u32,
        request: &[u8],
        bulk: Option<Bulk>,
    ) -> usize {
        let mut copy = self.spare_requests.pop().unwrap_or_default();
        copy.extend_from_slice(request);
        self.requests.insert(PendingRequest {
            slot,
            unique,
            pid,
            since,
            continuation: Continuation::Done,
            asked_server: false,
            is_absent: false,
            asked: None,
            wait: Wait::Call,
            groups: None,
            groups_lookup: None,
            progress: Progress::Begun,
            bulk,
            abandoned: false,
            is_overdue: false,
            awaited: None,
            resizes: None,
            resizes_seen: 0,
            scanned: 0,
            request: copy,
        })
    }

    pub(crate) fn get(&self, index: usize) -> Option<&PendingRequest> {
        self.requests.get(index)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut PendingRequest> {
        self.requests.get_mut(index)
    }

    /// Removes a request and returns its reply slot.
    pub(crate) fn remove(&mut self, index: usize) -> Option<KernelSlot> {
        const SPARE_COUNT_MAX: usize = 256;
        const SPARE_BYTES_MAX: usize = 4096;
        let pending = self.requests.try_remove(index)?;
        let mut request = pending.request;
        if self.spare_requests.len() < SPARE_COUNT_MAX && request.capacity() <= SPARE_BYTES_MAX {
            request.clear();
            self.spare_requests.push(request);
        }
        Some(pending.slot)
    }

    pub(crate) fn by_unique(&self, unique: u64) -> Option<usize> {
        let found = self.requests.iter().find(|(_, pending)| pending.unique == unique);
        found.map(|(index, _)| index)
    }

    /// The number of requests that wait for the groups of their process.
    pub(crate) fn groups_wait_count(&self) -> usize {
        self.requests.iter().filter(|(_, pending)| pending.wait == Wait::Groups).count()
    }

    /// The number of requests that wait for a lock.
    pub(crate) fn lock_wait_count(&self) -> usize {
        self.lock_waits().count()
    }

    /// The requests that wait for a lock.
    pub(crate) fn lock_waits(&self) -> impl Iterator<Item = usize> {
        let waits = |pending: &PendingRequest| pending.continuation == Continuation::LockWait;
        self.requests.iter().filter(move |(_, it)| waits(it)).map(|(index, _)| index)
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.len()
    }

    /// All requests.
    pub(crate) fn all(&self) -> Vec<usize> {
        self.requests.iter().map(|(index, _)| index).collect()
    }
}
