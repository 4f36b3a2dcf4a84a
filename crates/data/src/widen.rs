//! Files that are at their home data shard alone until they need a second stripe (docs/protocol.md
//! R13.39): how that ends.
//!
//! ```text
//! Widen ─▶ queue, behind all that came before ─▶ a Stripe record ─ durable ─▶ answer
//! ```
//! A file is wide when a further stripe of it is recorded, so that nothing else has to be stored.

use crate::Shards;
use crate::request::QueuedOp;
use alloc::collections::BTreeSet;
use wire::{InodeNo, Layout};

/// How far a file that begins at one data shard is spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// It is at its home shard alone.
    Narrow,
    /// It is about to be spread; a crash may undo that.
    Widening,
    /// It is spread for good.
    Wide,
}

impl Shards {
    /// How far a file is spread whose home shard is at this lane.
    #[must_use]
    pub fn width(&self, inode: InodeNo) -> Width {
        let object = self.objects.get(&inode);
        let widens = |pending: &QueuedOp| matches!(pending, QueuedOp::Widen { .. });
        let is_queued = object.is_some_and(|object| object.queue.iter().any(widens));
        if self.wide_layout(inode).is_none() {
            return if is_queued { Width::Widening } else { Width::Narrow };
        }
        let is_lasting = object.is_none_or(|object| !object.widening);
        if is_lasting { Width::Wide } else { Width::Widening }
    }

    /// The layout of a file of which a record says that its stripes are spread.
    #[must_use]
    pub fn wide_layout(&self, inode: InodeNo) -> Option<Layout> {
        self.stripes.get(&inode).map(|stripes| stripes.layout).filter(Layout::is_spread)
    }

    /// Records that the file is wide, if the first queued operation demands that. Returns whether
    /// it waits for what is in progress, which takes the file for narrow.
    pub(crate) fn widens(&mut self, inode: InodeNo) -> bool {
        let is_wide = self.is_striped(inode);
        let Some(object) = self.objects.get_mut(&inode) else { return false };
        let Some(QueuedOp::Widen { layout, .. }) = object.queue.front() else { return false };
        let layout = *layout;
        if is_wide {
            return false;
        }
        if !object.may_begin_alone() {
            return true;
        }
        object.layout = Some(layout);
        object.widening = true;
        // The next stripe of this part: it would be recorded soon.
        self.record_stripes(inode, layout, BTreeSet::from([layout.stripe_count.into()]));
        false
    }

    /// Nothing more will be recorded. A file that was about to be spread is at its home shard
    /// alone, as before: nobody was told otherwise.
    pub(crate) fn stop_widening(&mut self, inode: InodeNo) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        if !core::mem::take(&mut object.widening) {
            return;
        }
        object.layout = object.layout.map(|layout| Layout { narrow: true, ..layout });
        object.stripe_bytes.clear();
        object.unsynced_stripes.clear();
        self.stripes.remove(&inode);
    }
}
