//! What stands in the kernel's file handles: the number of ours, and whether the file, when it was
//! opened, gave something that a write takes away. So every lane knows at a write, whichever lane
//! opened the file, and nobody asks about a file that gives nothing.
//!
//! ```text
//! bit 63  set-id bits      bit 62  capabilities      below: HandleId
//! ```

use wire::{Attr, ClearPrivileges, HandleId};

const SET_ID: u64 = 1 << 63;
const CAPABILITY: u64 = 1 << 62;

/// A file handle of the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileHandle(pub(crate) u64);

impl FileHandle {
    /// For a file that was opened with these attributes.
    pub(crate) fn new(handle: HandleId, attr: &Attr) -> Self {
        assert!(handle.0 < CAPABILITY, "the upper bits of a handle are its client lane");
        let set_id = attr.cleared_by_write(false) == ClearPrivileges::All;
        let capability = attr.cleared_by_write(true) == ClearPrivileges::Capability;
        let bit = |bit: u64, is_set: bool| if is_set { bit } else { 0 };
        Self(handle.0 | bit(SET_ID, set_id) | bit(CAPABILITY, capability))
    }

    pub(crate) const fn id(self) -> HandleId {
        HandleId(self.0 & !(SET_ID | CAPABILITY))
    }

    /// What a write through it takes away.
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
