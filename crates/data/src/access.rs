//! Reads that a metadata shard has to know of, because a time of access may change.

use crate::{Outcome, Shards};
use wire::InodeNo;

impl Shards {
    /// A file is read.
    pub(crate) fn access(&mut self, inode: InodeNo, now_ns: u64) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        if object.tells_access(now_ns) {
            let write_time_ns = object.write_time_ns;
            self.outcomes.push_back(Outcome::Accessed { inode, write_time_ns });
        }
    }

    /// A file changed at its metadata shard: the next read is the first one after that.
    pub fn forget_access(&mut self, inode: InodeNo) {
        if let Some(object) = self.objects.get_mut(&inode) {
            object.accessed_ns = 0;
        }
    }
}
