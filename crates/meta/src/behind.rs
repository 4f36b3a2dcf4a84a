//! Names that are changed behind: their callers have the answer before the change is executed
//! (docs/protocol.md 20.7). So it has the time of the answer, and may be executed in another order
//! than it was answered.
//!
//! Invariant: what a client has shown of its directory meanwhile is what the shard comes to.

use crate::txn::Txn;
use disk::InodeRow;
use wire::{InodeNo, Timestamp};

impl<'s> Txn<'s> {
    /// Its caller has the answer since that time.
    pub(crate) fn set_behind(&mut self, at: Timestamp) {
        self.behind_until = Some(self.now);
        self.now = self.now.min(at);
    }

    /// The directories that other clients change behind: what they are is not shown.
    pub(crate) fn hides(&self) -> impl Fn(InodeNo) -> bool + use<'s> {
        let (changed_behind, client) = (self.changed_behind, self.client);
        move |inode| {
            let holder = changed_behind.and_then(|directories| directories.get(&inode));
            holder.is_some_and(|holder| *holder != client)
        }
    }

    /// When the names of a directory were changed last: it is raised, and lowered only from a time
    /// that was set to the future.
    pub(crate) fn mtime_of_names(&self, dir: InodeNo) -> Timestamp {
        let Some(until) = self.behind_until else { return self.now };
        let known = self.row(dir).map(|row| row.mtime).unwrap_or_default();
        if known > until { self.now } else { known.max(self.now) }
    }

    /// When an inode was changed last that loses a name.
    pub(crate) fn ctime_behind(&self, row: &InodeRow) -> Timestamp {
        let is_behind = self.behind_until.is_some();
        if is_behind { row.ctime.max(self.now) } else { self.now }
    }
}
