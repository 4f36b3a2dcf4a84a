//! The recorded state of a shard's objects, gathered at a start.
//!
//! Bytes become durable in the object before their record. A server that dies in between leaves an
//! object longer than recorded, and a resent append would add its bytes twice. So the first use of
//! an object after a start compares the sizes: bytes beyond the recorded size were never
//! acknowledged and are cut off. Times of changes come from the records only, because redoing and
//! cutting change the file's own time.

use crate::sums::Sums;
use alloc::collections::{BTreeMap, BTreeSet};
use disk::rows::ObjectRow;
use disk::{BlockSums, Change, Changes, ContentsChange, Fault, GROUP_BLOCK_COUNT};
use wire::{InodeNo, ShardId, Term, Transno};

/// One data shard's recorded state.
#[derive(Clone, Debug)]
pub struct Recorded {
    shard: ShardId,
    transno_last: Transno,
    term: Term,
    objects: BTreeMap<InodeNo, ObjectRow>,
    sums: BTreeMap<InodeNo, Sums>,
    /// The stripes that may exist, behind the first.
    stripes: BTreeMap<InodeNo, BTreeSet<u32>>,
}

/// One file's recorded state.
pub(crate) struct RecordedObject {
    pub(crate) inode: InodeNo,
    pub(crate) row: ObjectRow,
    pub(crate) sums: Option<Sums>,
    pub(crate) stripes: Option<BTreeSet<u32>>,
}

impl Recorded {
    /// A shard without records.
    #[must_use]
    pub const fn new(shard: ShardId) -> Self {
        Self {
            shard,
            transno_last: Transno(0),
            term: Term(0),
            objects: BTreeMap::new(),
            sums: BTreeMap::new(),
            stripes: BTreeMap::new(),
        }
    }

    /// Redoes one record; records come in order.
    ///
    /// # Errors
    /// [`Fault`] when its changes are not those of a data shard.
    pub fn replay(&mut self, transno: Transno, changes: &[u8]) -> Result<(), Fault> {
        for change in Changes::new(changes) {
            match change? {
                Change::Contents(change) => self.redo(change),
                // For the lane.
                Change::Client(_) => {}
                Change::Inode { .. }
                | Change::Touch { .. }
                | Change::DirAttrs { .. }
                | Change::Accessed { .. }
                | Change::Settled { .. }
                | Change::Dirent { .. }
                | Change::DirentRemoved { .. }
                | Change::Symlink { .. }
                | Change::Xattr { .. }
                | Change::XattrRemoved { .. }
                | Change::InodeRemoved { .. }
                | Change::Txn(_)
                | Change::Export(_) => {
                    return Err(Fault::new("a metadata change at a data shard", 0));
                }
            }
        }
        self.transno_last = self.transno_last.max(transno);
        Ok(())
    }

    fn redo(&mut self, change: ContentsChange) {
        if let ContentsChange::ObjectRemoved { inode } = change {
            self.objects.remove(&inode);
            self.sums.remove(&inode);
            self.stripes.remove(&inode);
        } else {
            self.objects.entry(change.inode()).or_default().redo(&change);
            if matches!(change, ContentsChange::Sums { .. } | ContentsChange::SumsRemoved { .. }) {
                self.sums.entry(change.inode()).or_default().redo(&change);
            }
            if let ContentsChange::Stripe { inode, stripe_index, .. } = change {
                self.load_stripe(inode, stripe_index);
            }
        }
    }

    /// Loads an object's row.
    pub fn load(&mut self, inode: InodeNo, row: ObjectRow) {
        if !row.first_sum.is_none() {
            self.sums.entry(inode).or_default().load_first(&row);
        }
        self.objects.insert(inode, row);
    }

    /// Loads the checksums of a group of an object's blocks.
    pub fn load_sums(&mut self, inode: InodeNo, group: u64, sums: &BlockSums) {
        self.sums.entry(inode).or_default().load(group * GROUP_BLOCK_COUNT, sums);
    }

    /// Loads a stripe of a file, behind its first.
    pub fn load_stripe(&mut self, inode: InodeNo, stripe_index: u32) {
        self.stripes.entry(inode).or_default().insert(stripe_index);
    }

    /// Loads the last transaction.
    pub fn load_transno(&mut self, transno: Transno) {
        self.transno_last = self.transno_last.max(transno);
    }

    /// The shard.
    #[must_use]
    pub const fn shard(&self) -> ShardId {
        self.shard
    }

    /// Begins a term, later than every earlier one: numbers without a trace in the log may have been
    /// assigned as well.
    pub const fn start_term(&mut self, term: Term) {
        self.term = term;
    }

    /// The first number of the term minus one: numbers assigned in an earlier term but lost are
    /// never reused (docs/protocol.md §3).
    #[must_use]
    pub const fn start_transno(&self) -> Transno {
        Transno::at_start(self.transno_last, self.term)
    }

    /// The state of every object.
    pub(crate) fn objects(self) -> impl Iterator<Item = RecordedObject> {
        let Self { objects, mut sums, mut stripes, .. } = self;
        objects.into_iter().map(move |(inode, row)| RecordedObject {
            inode,
            row,
            sums: sums.remove(&inode),
            stripes: stripes.remove(&inode),
        })
    }
}
