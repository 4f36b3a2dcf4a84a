//! A file over several data shards: what one of them, with its part of the stripes, does otherwise.
//!
//! Each shard orders, records and answers the changes of its own stripes. The end of a part is that
//! of its last byte, as an offset in the file: so the file ends where the longest part does. A
//! truncation comes to every part; only the one with the new last byte may become longer by it.

use crate::decode::{Decoded, decode};
use crate::request::{Glimpsing, QueuedOp, Truncating};
use crate::{DataRequest, Outcome, Shards, Token};
use interface::Turn;
use wire::{ClientUuid, Contents, InodeNo, Layout, Op};

/// A request about all of a file over several data shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WholeFile {
    /// The file.
    pub inode: InodeNo,
    /// Its layout.
    pub layout: Layout,
    /// The new size, for a truncation.
    pub cut: Option<u64>,
    /// The file is to be appended to.
    pub appends: bool,
}

impl Shards {
    /// Whether a valid request is about all of a file over several data shards.
    #[must_use]
    pub fn whole_file(&self, request: &DataRequest<'_>) -> Option<WholeFile> {
        let is_whole = matches!(request.op, Op::Glimpse | Op::Truncate | Op::Reserve);
        if !is_whole || request.bulk.is_some() {
            return None;
        }
        let Decoded { inode, pending, .. } = decode(request, &self.shape).ok()?;
        let stated = || request.layout.or_else(|| self.known_layout(inode));
        let layout = self.wide_layout(inode).or_else(stated);
        let layout = layout.filter(Layout::is_spread)?;
        let (mut cut, mut appends) = (None, false);
        match pending {
            QueuedOp::Truncate(truncating) => cut = Some(truncating.size_bytes),
            QueuedOp::Glimpse(glimpsing) => appends = glimpsing.alone,
            QueuedOp::Read { .. }
            | QueuedOp::ReadList(_)
            | QueuedOp::Write { .. }
            | QueuedOp::WriteList(_)
            | QueuedOp::Append { .. }
            | QueuedOp::Allocate(_)
            | QueuedOp::Seek(_)
            | QueuedOp::Replay { .. }
            | QueuedOp::Widen { .. }
            | QueuedOp::Remove => {}
        }
        // The end of an append concerns what the home shard remembers.
        (appends || request.op != Op::Reserve).then_some(WholeFile { inode, layout, cut, appends })
    }

    /// What this lane has of a file now. Ends in [`Outcome::Answered`].
    pub fn look(&mut self, turn: &mut Turn<'_>, token: Token, inode: InodeNo) {
        let client = ClientUuid::NONE;
        let glimpsing = Glimpsing { token, durable: false, alone: false, client };
        self.wait(turn, inode, QueuedOp::Glimpse(glimpsing));
    }

    /// The same when all changes before it have ended, for an append. Ends in
    /// [`Outcome::Sized`], or in [`Outcome::Answered`] on failure.
    pub fn look_for_append(&mut self, turn: &mut Turn<'_>, token: Token, inode: InodeNo) {
        let client = ClientUuid::NONE;
        let glimpsing = Glimpsing { token, durable: true, alone: true, client };
        self.wait(turn, inode, QueuedOp::Glimpse(glimpsing));
    }

    /// The part of a file's contents that this lane has, if it has any.
    pub(crate) fn part(&self, inode: InodeNo) -> u32 {
        self.shape.map.part_of(inode, self.shape.server)
    }

    /// The layout of a file, if a record or a request has stated it.
    #[must_use]
    pub fn known_layout(&self, inode: InodeNo) -> Option<Layout> {
        let stated = || self.objects.get(&inode).and_then(|object| object.layout);
        self.stripes.get(&inode).map(|stripes| stripes.layout).or_else(stated)
    }

    /// Cuts this lane's part of a file that is truncated. Ends in [`Outcome::Changed`]; in
    /// [`Outcome::Sized`] if there was nothing to do, for the part may be so by a change that is not
    /// durable; or in [`Outcome::Answered`] on failure.
    pub fn cut_part(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        inode: InodeNo,
        (size_bytes, layout): (u64, Layout),
    ) {
        let object = self.known_or_new(inode);
        object.layout = object.layout.or(Some(layout));
        let (client, kept_bytes, spread) = (ClientUuid::NONE, size_bytes, Some(layout));
        let is_cut = false;
        let truncating = Truncating { token, client, size_bytes, kept_bytes, spread, is_cut };
        self.wait(turn, inode, QueuedOp::Truncate(truncating));
    }

    /// Decides what becomes of this part by a truncation that comes next, once everything before it
    /// has ended. Returns whether it must wait for that.
    pub(crate) fn awaits_cut(&mut self, inode: InodeNo) -> bool {
        let (part, shard) = (self.part(inode), self.shard(inode));
        let durable_last = self.durable(shard);
        loop {
            let Some(object) = self.objects.get_mut(&inode) else { return false };
            let known_bytes = object.size_bytes();
            let may_begin = object.may_begin_alone();
            let Some(QueuedOp::Truncate(truncating)) = object.queue.front_mut() else {
                return false;
            };
            let Truncating { token, client, size_bytes, spread, is_cut, .. } = *truncating;
            let Some(layout) = spread else { return false };
            if !may_begin {
                return true;
            }
            let end = layout.part_end(part, size_bytes);
            let has_last = size_bytes > 0 && end == size_bytes;
            let (end, target) = match (is_cut, has_last) {
                (true, _) => (layout.file_bytes_max(), known_bytes),
                (false, true) => (end, end),
                (false, false) => (end, end.min(known_bytes)),
            };
            let is_of_other_shard = client == ClientUuid::NONE;
            // What was allocated behind the end goes with the truncation.
            let (last, _) = layout.last(end);
            let ends_there = object.stripe_bytes.keys().next_back().is_none_or(|at| *at <= last);
            if target == known_bytes && ends_there && is_of_other_shard {
                object.queue.pop_front();
                object.unstable.settle(durable_last);
                let until = object.unstable.last();
                let (allocated_bytes, write_time) = (0, None);
                let contents = Contents { size_bytes: target, allocated_bytes, write_time };
                self.outcomes.push_back(Outcome::Sized { token, shard, until, contents });
                continue;
            }
            let (size_bytes, kept_bytes) = (target, end);
            *truncating =
                Truncating { token, client, size_bytes, kept_bytes, spread: None, is_cut };
            return false;
        }
    }
}
