//! The mode of what is made.

use crate::acl::Acl;

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

    /// The mode in a directory with this default list: the list stands in the umask's place.
    pub(crate) fn within(self, inherits: Option<Acl<'_>>) -> u32 {
        match inherits {
            Some(acl) => acl.inherited(self.mode).1,
            None => self.mode & !(self.umask & 0o777),
        }
    }
}
