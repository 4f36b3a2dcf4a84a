//! The kernel's requests that are not answered yet, by a small number that is also the call's.

use crate::args::split;
use crate::node::Node;
use alloc::vec::Vec;
use interface::{Bulk, KernelSlot, Mono, Process};
use wire::{ClearPrivileges, HandleId};

/// What an answer becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// No payload.
    Done,
    /// The same, of what may wait for ever.
    LockWait,
    /// No payload; directories among what was renamed are below other nodes now.
    Renamed { from: Node, to: Node },
    /// `fuse_entry_out`.
    Entry,
    /// `fuse_attr_out`.
    Attr,
    /// `fuse_statx_out`.
    Statx,
    /// The size is set; then what the file loses by that, and the rest of a SETATTR.
    Resized { keeps_set_id: bool, rest: bool },
    /// Nothing of a WRITE is left but the write.
    Revoked,
    /// `fuse_entry_out` and `fuse_open_out`; an existing file is emptied first if told so.
    Create { truncate: bool, keeps_set_id: bool },
    /// As the one before, after the emptying.
    CreateTruncated { handle: HandleId, keeps_set_id: bool },
    /// `fuse_open_out`.
    Open,
    /// `fuse_open_out` of a directory.
    Opendir,
    /// The target's bytes.
    Target,
    /// `fuse_dirent`s from a position on, with attributes or without, in a buffer of this size.
    Listing { position: u64, buffer_bytes: u32, plus: bool },
    /// The value's bytes, or their number when the buffer's size is 0.
    Value { buffer_bytes: u32 },
    /// Bytes of a file.
    Bytes,
    /// `fuse_write_out`.
    Written,
    /// The bytes are to be written to another place, or another file.
    CopyRead { to: wire::InodeNo, file_offset: u64, clears: ClearPrivileges },
    /// As `Written`; the buffer is given back then.
    CopyWritten { buf: interface::BufId },
    /// `fuse_lseek_out`.
    Sought,
    /// `fuse_statfs_out`.
    Space,
    /// `fuse_lk_out`.
    LockFound,
}

/// Whom it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    Call,
    /// The groups of the calling process.
    Groups,
}

/// Which part of a request is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behind {
    Nothing,
    /// A SETATTR's size; the file must still lose this.
    Size(ClearPrivileges),
    /// What a change of contents takes away must go first.
    Refused,
    /// It is gone.
    ClearPrivileges,
}

impl Pending {
    /// Whose request it is.
    pub(crate) fn asker(&self) -> Process {
        // It was split when it came.
        let header = split(&self.request).map(|(header, _)| header);
        let (uid, gid) = header.map_or((u32::MAX, u32::MAX), |header| (header.uid, header.gid));
        Process { pid: self.pid, uid, gid, since: self.since }
    }
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) slot: KernelSlot,
    pub(crate) unique: u64,
    pub(crate) pid: u32,
    /// When it came.
    pub(crate) since: Mono,
    pub(crate) then: Then,
    pub(crate) wait: Wait,
    /// The supplementary groups of the process, once looked up.
    pub(crate) groups: Option<Vec<u8>>,
    pub(crate) behind: Behind,
    /// The data of a WRITE; the kernel keeps it until the reply.
    pub(crate) bulk: Option<Bulk>,
    /// The caller is to end and will not look at the answer.
    pub(crate) given_up: bool,
    /// Header and arguments, for asking again.
    pub(crate) request: Vec<u8>,
}

/// All of them; numbers are used again.
#[derive(Debug, Default)]
pub(crate) struct Pendings {
    places: Vec<Option<Pending>>,
    free: Vec<usize>,
    spare_requests: Vec<Vec<u8>>,
}

impl Pendings {
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
        let pending = Pending {
            slot,
            unique,
            pid,
            since,
            then: Then::Done,
            wait: Wait::Call,
            groups: None,
            behind: Behind::Nothing,
            bulk,
            given_up: false,
            request: copy,
        };
        if let Some(index) = self.free.pop() {
            self.places[index] = Some(pending);
            return index;
        }
        self.places.push(Some(pending));
        self.places.len() - 1
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Pending> {
        self.places.get(index)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Pending> {
        self.places.get_mut(index)?.as_mut()
    }

    /// Ends one; where its answer goes.
    pub(crate) fn remove(&mut self, index: usize) -> Option<KernelSlot> {
        const SPARE_COUNT_MAX: usize = 256;
        const SPARE_BYTES_MAX: usize = 4096;
        let pending = self.places.get_mut(index)?.take()?;
        self.free.push(index);
        let mut request = pending.request;
        if self.spare_requests.len() < SPARE_COUNT_MAX && request.capacity() <= SPARE_BYTES_MAX {
            request.clear();
            self.spare_requests.push(request);
        }
        Some(pending.slot)
    }

    pub(crate) fn by_unique(&self, unique: u64) -> Option<usize> {
        self.places
            .iter()
            .position(|place| place.as_ref().is_some_and(|pending| pending.unique == unique))
    }

    /// How many wait for a lock.
    pub(crate) fn lock_wait_count(&self) -> usize {
        self.lock_waits().count()
    }

    /// The numbers of those that wait for a lock.
    pub(crate) fn lock_waits(&self) -> impl Iterator<Item = usize> {
        let waits = |place: &Option<Pending>| {
            place.as_ref().is_some_and(|pending| pending.then == Then::LockWait)
        };
        self.places.iter().enumerate().filter(move |(_, it)| waits(it)).map(|(index, _)| index)
    }

    pub(crate) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The numbers of all.
    pub(crate) fn all(&self) -> Vec<usize> {
        let places = self.places.iter().enumerate();
        places.filter(|(_, place)| place.is_some()).map(|(index, _)| index).collect()
    }
}
