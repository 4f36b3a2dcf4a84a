//! What metadata shards and data shards tell each other of a file by mail: what it gives to whoever
//! runs it, and times of access, as relatime has them: the first read after a change counts, and one
//! a day.
//!
//! ```text
//! read at a data shard, not told since the last write ─▶ Accessed ─▶ metadata shard: a note, if it
//!                                                                    counts; then the answer
//! changed at the metadata shard, read since before    ─▶ Changed  ─▶ data shard: tell again
//! ```
//! Nobody waits for the note's being durable, and no client brings it back: a crash may lose it.
//! What is not in memory, or would take the log's last room, is left alone.

use crate::Lane;
use interface::{LaneMessage, Turn};
use meta::Access;
use wire::{InodeNo, PrivilegedBits, Timestamp};

impl Lane {
    /// What a request at a metadata shard of this lane has to do with it.
    pub(crate) fn on_access(&mut self, turn: &mut Turn<'_>, access: Access) {
        match access {
            Access::None => {}
            Access::Reads(inode) => self.note_access(turn, inode, 0),
            Access::Ends(inode, other) => {
                [Some(inode), other].into_iter().flatten().for_each(|inode| {
                    self.send_changed(turn, inode);
                });
            }
        }
    }

    /// A file changed otherwise than in its contents.
    pub(crate) fn send_changed(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        self.send_message(turn, self.data_lane(inode), LaneMessage::Changed { inode });
    }

    /// What a file that is being written gives is told to its data shard before the answer leaves,
    /// and so it is there before any write of whoever has the answer.
    pub(crate) fn send_privileged_bits(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        gives: PrivilegedBits,
    ) {
        self.send_message(
            turn,
            self.data_lane(inode),
            LaneMessage::PrivilegedBits { inode, gives },
        );
    }

    /// A data shard of this lane tells of a read.
    pub(crate) fn on_accessed(&mut self, turn: &mut Turn<'_>, inode: InodeNo, write_time_ns: u64) {
        let to = self.config.map.lane(inode.shard());
        self.send_message(turn, to, LaneMessage::Accessed { inode, write_time_ns });
    }

    /// An inode of this lane is read.
    pub(crate) fn note_access(&mut self, turn: &Turn<'_>, inode: InodeNo, write_time_ns: u64) {
        let shard = inode.shard();
        if !self.is_own(shard)
            || shard.is_data()
            || self.fenced
            || self.stopping
            || !self.space_for_own()
        {
            return;
        }
        if self.metas[self.meta_index(shard)].is_locked(inode) {
            // A change that this read may come after is about to be made.
            return self.txns.defer_access(inode, write_time_ns);
        }
        let write_time = (write_time_ns > 0).then(|| Timestamp::from_ns(write_time_ns));
        let now = Timestamp::from_ns(turn.now.wall_ns);
        let index = self.meta_index(shard);
        let mut changes = core::mem::take(&mut self.changes);
        changes.clear();
        let effect = self.metas[index].accessed(inode, write_time, now, &mut changes);
        if effect.transno.0 > 0 {
            self.record_own(shard, effect.transno, &changes);
        }
        self.changes = changes;
    }
}
