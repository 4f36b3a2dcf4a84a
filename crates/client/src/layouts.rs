//! The layouts of files that this client lane reads and writes, and the requests that wait for one.
//!
//! Attributes bring a file's layout when it is opened. A request that may make a file longer must
//! state it; where a peer lane has opened the file, the layout is requested first:
//!
//! ```text
//! Write, layout unknown ─▶ waits ─ Getattr ─▶ layout ─▶ routed, with all that wait for this file
//! ```
//! A layout never changes, but for a file that becomes wide once (R13.39), and an inode number is never assigned again, so what is known is right.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use hashbrown::HashMap;
use interface::Seed;
use wire::{InodeNo, Layout};

/// Most layouts that are known at a time. When exceeded, all are dropped.
const LAYOUT_COUNT_MAX: usize = 65_536;

/// The known layouts, and what waits for others.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    known: HashMap<InodeNo, Layout, Seed>,
    /// Requests by the file whose layout was requested for them.
    waiting: BTreeMap<InodeNo, Vec<usize>>,
    /// Requests by the file for whose second stripe they wait.
    widening: BTreeMap<InodeNo, Vec<usize>>,
    /// Files whose stripes are spread, how is not known here.
    spread: BTreeSet<InodeNo>,
    /// Some were dropped: one that is not known may be spread.
    has_dropped: bool,
}

impl Layouts {
    pub(crate) fn get(&self, inode: InodeNo) -> Option<Layout> {
        self.known.get(&inode).copied()
    }

    /// Attributes say nothing of whether a file that grows is wide already.
    pub(crate) fn learn(&mut self, inode: InodeNo, layout: Layout) {
        if layout.narrow && self.get(inode) == Some(layout.widened()) {
            return;
        }
        if self.known.len() >= LAYOUT_COUNT_MAX {
            self.has_dropped |= self.known.values().any(Layout::is_spread);
            self.known.clear();
        }
        let is_wide = self.spread.remove(&inode);
        self.known.insert(inode, if is_wide { layout.widened() } else { layout });
    }

    /// The stripes of a file are spread, says its open file or its home shard.
    pub(crate) fn expect_spread(&mut self, inode: InodeNo) {
        if self.known.contains_key(&inode) {
            return;
        }
        if self.spread.len() >= LAYOUT_COUNT_MAX {
            self.spread.clear();
            self.has_dropped = true;
        }
        self.spread.insert(inode);
    }

    /// Whether any request about a file's contents needs its layout. Where stripes are not spread, only
    /// those do that must state it.
    pub(crate) fn must_be_known(&self, inode: InodeNo) -> bool {
        self.has_dropped || self.spread.contains(&inode)
    }

    /// The request waits for a file's layout. True if that must be requested.
    pub(crate) fn wait(&mut self, inode: InodeNo, exchange_id: usize) -> bool {
        let is_first = !self.waiting.contains_key(&inode);
        self.waiting.entry(inode).or_default().push(exchange_id);
        is_first
    }

    /// Ends a request's wait. The layout still comes.
    pub(crate) fn end_wait(&mut self, inode: InodeNo, exchange_id: usize) {
        for waits in [&mut self.waiting, &mut self.widening] {
            if let Some(waiting) = waits.get_mut(&inode) {
                waiting.retain(|id| *id != exchange_id);
            }
        }
    }

    /// The request for a file's layout has ended: takes what waits for it, in order.
    pub(crate) fn take_waiting(&mut self, inode: InodeNo) -> Vec<usize> {
        self.waiting.remove(&inode).unwrap_or_default()
    }

    /// The request waits until the file is wide. True if that must be requested.
    pub(crate) fn wait_for_width(&mut self, inode: InodeNo, exchange_id: usize) -> bool {
        let is_first = !self.widening.contains_key(&inode);
        self.widening.entry(inode).or_default().push(exchange_id);
        is_first
    }

    /// The request for that has ended: takes what waits for it, in order.
    pub(crate) fn take_waiting_for_width(&mut self, inode: InodeNo) -> Vec<usize> {
        self.widening.remove(&inode).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{LAYOUT_COUNT_MAX, Layouts};
    use wire::{InodeNo, Layout};

    #[test]
    fn the_number_of_layouts_is_limited() {
        let mut layouts = Layouts::default();
        for count in 1..=LAYOUT_COUNT_MAX as u64 + 1 {
            layouts.learn(InodeNo(count), Layout::DEFAULT);
        }
        assert_eq!(layouts.known.len(), 1);
        assert_eq!(layouts.get(InodeNo(LAYOUT_COUNT_MAX as u64 + 1)), Some(Layout::DEFAULT));
    }

    #[test]
    fn a_layout_is_requested_once() {
        let (mut layouts, file) = (Layouts::default(), InodeNo(7));
        assert!(layouts.wait(file, 1));
        layouts.end_wait(file, 1);
        assert!(!layouts.wait(file, 2), "it is on its way");
        assert_eq!(layouts.take_waiting(file), [2]);
        assert!(layouts.wait(file, 3));
    }
}
