//! The mode of a new inode.

use crate::acl::Acl;

/// The mode that a creator requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewMode {
    /// Permission bits, 0 ..= 0o7777.
    pub(crate) mode: u32,
    /// Bits to clear.
    pub(crate) umask: u32,
}

impl NewMode {
    /// A mode without umask.
    pub(crate) const fn exactly(mode: u32) -> Self {
        Self { mode, umask: 0 }
    }

    /// The mode in a directory with this default list, which replaces the umask.
    pub(crate) fn within(self, inherits: Option<Acl<'_>>) -> u32 {
        match inherits {
            Some(acl) => acl.inherited(self.mode).1,
            None => self.mode & !(self.umask & 0o777),
        }
    }
}
