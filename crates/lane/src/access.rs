//! Messages between a file's metadata shard and its data shard: its privileged bits, and access
//! times as with relatime (the first read after a change counts, and one a day).
//!
//! ```text
//! read at a data shard, first since the last write ─▶ Accessed ─▶ metadata shard: a record, if it
//!                                                                counts; then the reply
//! changed at the metadata shard, read since before ─▶ Changed ─▶ data shard: report again
//! ```
//! No request waits for the record of an access time, and no client replays it: a crash may lose
//! it. A non-resident inode's access time is not updated, nor one whose record would take the log's
//! last space.

use crate::Lane;
use crate::peers::message::{Bits, PeerBody};
use crate::request::ReceivedRequest;
use interface::Turn;
use meta::Access;
use wire::{InodeNo, PrivilegedBits, Timestamp};

impl Lane {
    /// Applies what a request at a metadata shard of this lane means for access times.
    pub(crate) fn on_access(&mut self, turn: &mut Turn<'_>, access: Access) {
        match access {
            Access::None => {}
            Access::Reads(inode) => self.record_access(turn, inode, 0),
            Access::Ends(inode, other) => {
                [Some(inode), other].into_iter().flatten().for_each(|inode| {
                    self.send_changed(turn, inode);
                });
            }
        }
    }

    /// A file's attributes changed: its data shard reports the next read.
    pub(crate) fn send_changed(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        self.send_to_contents(turn, inode, &PeerBody::Changed { inode });
    }

    /// Sends the privileged bits of a file that is open for writing to its data shard. The reply to
    /// the request that has changed them waits until they are there ([`crate::telling`]).
    pub(crate) fn send_privileged_bits(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        (inode, privileged_bits): (InodeNo, PrivilegedBits),
    ) {
        let bits = Bits(privileged_bits);
        self.send_to_contents(turn, inode, &PeerBody::PrivilegedBits { inode, bits });
        self.answer_when_told(turn, received);
    }

    /// A data shard of this lane reports a read.
    pub(crate) fn on_accessed(&mut self, turn: &mut Turn<'_>, inode: InodeNo, write_time_ns: u64) {
        self.send_to_shard(turn, inode.shard(), &PeerBody::Accessed { inode, write_time_ns });
    }

    /// Records that an inode of this lane was read.
    pub(crate) fn record_access(&mut self, turn: &Turn<'_>, inode: InodeNo, write_time_ns: u64) {
        let shard = inode.shard();
        if !self.is_own(shard)
            || shard.is_data()
            || self.commit.has_failed()
            || self.is_stopping()
            || !self.space_for_own()
        {
            return;
        }
        if self.metas[self.meta_index(shard)].is_locked(inode) {
            // The read may follow the change that holds the lock.
            return self.txns.defer_access(inode, write_time_ns);
        }
        let write_time = (write_time_ns > 0).then(|| Timestamp::from_ns(write_time_ns));
        let now = Timestamp::from_ns(turn.now.wall_ns);
        let index = self.meta_index(shard);
        let mut changes = self.scratch.empty();
        let effect = self.metas[index].accessed(inode, write_time, now, &mut changes);
        if effect.transno.0 > 0 {
            self.record_own(shard, effect.transno, &changes);
        }
        self.scratch.recycle(changes);
    }
}
