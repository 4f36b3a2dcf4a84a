//! Reads that a metadata shard must be notified of, because the access time may change.

use crate::{Outcome, Shards};
use wire::InodeNo;

impl Shards {
    /// Reports a read, if it may change the access time.
    pub(crate) fn access(&mut self, inode: InodeNo, now_ns: u64) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        if object.access_is_due(now_ns) {
            let write_time_ns = object.write_time_ns;
            self.outcomes.push_back(Outcome::Accessed { inode, write_time_ns });
        }
    }

    /// A file changed at its metadata shard: the next read must be reported.
    pub fn forget_access(&mut self, inode: InodeNo) {
        if let Some(object) = self.objects.get_mut(&inode) {
            object.accessed_ns = 0;
        }
    }
}
