//! The mode of what is made.

use disk::InodeRow;

/// The mode a maker asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewMode {
    /// Permission bits, 0 ..= 0o7777.
    pub(crate) mode: u32,
    /// Bits that are not given.
    pub(crate) umask: u32,
}

impl NewMode {
    /// What no umask changes.
    pub(crate) const fn exactly(mode: u32) -> Self {
        Self { mode, umask: 0 }
    }

    /// The mode in this directory.
    pub(crate) const fn within(self, _dir: &InodeRow) -> u32 {
        self.mode & !(self.umask & 0o777)
    }
}
