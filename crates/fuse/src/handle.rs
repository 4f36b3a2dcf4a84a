//! The kernel's file handles: our handle id, and whether the file had, when it was opened,
//! privileges that a write clears. So the lane that gets a write knows it, whichever lane opened
//! the file, and no exchange is needed for files without privileges.
//!
//! ```text
//! bit 63  set-id bits      bit 62  capabilities      bit 61  cached      bit 60  spread
//! below: HandleId
//! ```
//! A cached file is read through the kernel's page cache. The stripes of a spread file are at several
//! data shards: a lane that does not know its layout must ask for it before it reads. Those of a file
//! that grows may be: its home shard says so.

use crate::abi::Opcode;
use crate::args::split;
use client::KeptOpen;
use wire::{Attr, ClearPrivileges, HandleId, InodeNo};

const SET_ID: u64 = 1 << 63;
const CAPABILITY: u64 = 1 << 62;
const CACHED: u64 = 1 << 61;
const SPREAD: u64 = 1 << 60;

/// A file handle as the kernel has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileHandle(pub(crate) u64);

impl FileHandle {
    /// The handle of a file that was opened with these attributes.
    pub(crate) fn new(handle: HandleId, attr: &Attr) -> Self {
        assert!(handle.0 < SPREAD, "the upper bits of a handle are its client lane");
        let set_id = attr.cleared_by_write(false) == ClearPrivileges::All;
        let capability = attr.cleared_by_write(true) == ClearPrivileges::Capability;
        let bit = |bit: u64, is_set: bool| if is_set { bit } else { 0 };
        let spread = attr.layout.is_some_and(|layout| layout.is_spread());
        Self(handle.0 | bit(SET_ID, set_id) | bit(CAPABILITY, capability) | bit(SPREAD, spread))
    }

    /// The handle of a file that is opened without the server, to read it.
    pub(crate) const fn kept(kept: KeptOpen) -> Self {
        Self(kept.handle.0 | if kept.is_spread { SPREAD } else { 0 })
    }

    pub(crate) const fn id(self) -> HandleId {
        HandleId(self.0 & !(SET_ID | CAPABILITY | CACHED | SPREAD))
    }

    /// The same handle, of a cached file.
    pub(crate) const fn cached(self) -> Self {
        Self(self.0 | CACHED)
    }

    pub(crate) const fn is_cached(self) -> bool {
        self.0 & CACHED != 0
    }

    pub(crate) const fn is_spread(self) -> bool {
        self.0 & SPREAD != 0
    }

    /// The privileges that a write through this handle clears.
    pub(crate) const fn cleared_by_write(self, keeps_set_id: bool) -> ClearPrivileges {
        if self.0 & SET_ID != 0 && !keeps_set_id {
            ClearPrivileges::All
        } else if self.0 & CAPABILITY != 0 {
            ClearPrivileges::Capability
        } else {
            ClearPrivileges::Nothing
        }
    }
}

/// The file of a READ, and the open file that it is read through.
pub(crate) fn read_through(request: &[u8]) -> Option<(InodeNo, FileHandle)> {
    let (header, mut args) = split(request).ok()?;
    let reads = header.opcode == Opcode::Read as u32;
    reads.then(|| Some((header.inode, FileHandle(args.u64().ok()?))))?
}

/// The file of a request, if the open file says that its stripes are at several data shards. What
/// changes contents needs the layout of any file.
pub(crate) fn spread_file(request: &[u8]) -> Option<InodeNo> {
    let (header, mut args) = split(request).ok()?;
    let opcode = Opcode::from_number(header.opcode)?;
    let (Opcode::Read | Opcode::Lseek | Opcode::Fsync | Opcode::CopyFileRange) = opcode else {
        return None;
    };
    FileHandle(args.u64().ok()?).is_spread().then_some(header.inode)
}
