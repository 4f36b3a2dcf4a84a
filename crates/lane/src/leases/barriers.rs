//! Barriers: a Sync with the flag BEHIND at a metadata shard waits until what other clients had
//! answered before it came was executed, and is durable (docs/protocol.md R20.42).
//!
//! ```text
//! Sync ─▶ write leases recalled ─▶ the last of them has ended ─▶ records durable ─▶ reply
//! ```
//! Invariant: a barrier waits only for leases that were granted before it came, so it ends whatever
//! clients do meanwhile.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::InodeNo;

/// A barrier of a lane.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BarrierNo(u64);

/// The barriers that wait.
#[derive(Default, Debug)]
pub(crate) struct Barriers {
    /// The files and directories whose write leases are to end.
    awaited: BTreeMap<BarrierNo, BTreeSet<InodeNo>>,
    last_no: BarrierNo,
}

impl Barriers {
    /// Waits for the end of the write leases of these.
    pub(crate) fn add(&mut self, inodes: BTreeSet<InodeNo>) -> BarrierNo {
        self.last_no.0 += 1;
        self.awaited.insert(self.last_no, inodes);
        self.last_no
    }

    /// A write lease has ended. Adds the barriers that wait for none any more.
    pub(super) fn end(&mut self, inode: InodeNo, ended: &mut Vec<BarrierNo>) {
        self.awaited.retain(|barrier_no, inodes| {
            let is_last = inodes.remove(&inode) && inodes.is_empty();
            if is_last {
                ended.push(*barrier_no);
            }
            !is_last
        });
    }
}
