//! Allocating, deallocating and zeroing ranges; finding data and holes.
//!
//! Like a truncation, an allocation runs alone at its object, is recorded before its reply, and is
//! a fence for later changes until its record is durable. So it is never replayed, and no replayed
//! write precedes an acknowledged one.

use crate::in_flight::InFlight;
use crate::object::{Effect, Object};
use crate::request::{Allocating, Seeking};
use crate::unstable::ByteAccess;
use crate::{Answer, Outcome, Shards, Token};
use core::ops::Bound;
use disk::ContentsChange;
use interface::{Errno, ObjectAction, Ticket, Turn};
use wire::{Allocation, InodeNo, Layout, Status, Transno};

impl Shards {
    pub(crate) fn begin_allocate(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        allocating: &Allocating,
    ) {
        let Allocating { token, client, object_offset, range_bytes, allocation, keep_size } =
            *allocating;
        if allocation != Allocation::Reserve {
            let end = object_offset.saturating_add(range_bytes);
            self.cut(turn, inode, &(object_offset..end));
        }
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.exclusive = true;
        object.fence_count += 1;
        let end = object_offset.saturating_add(range_bytes);
        let size_bytes = if keep_size { object.size_bytes() } else { object.size_bytes().max(end) };
        let write_time_ns = 0;
        let change = ContentsChange::Allocate {
            inode,
            object_offset,
            range_bytes,
            allocation,
            size_bytes,
            write_time_ns,
        };
        let (answer, transno, place_no, change_no) = (Answer::Empty, Transno(0), 0, 0);
        let effect = Effect { token, change, answer, client, transno, place_no, change_no };
        let ticket = self.ticket(InFlight::Reshape { inode, effect, size_bytes });
        let range = object_offset..end;
        self.allocate_objects(turn, (inode, ticket), range, (allocation, keep_size));
    }

    pub(crate) fn begin_seek(&mut self, turn: &mut Turn<'_>, inode: InodeNo, seeking: &Seeking) {
        let Seeking { token, client, object_offset, hole } = *seeking;
        let durable = self.durable(self.shard(inode));
        let is_spread = self.spread_layout(inode).is_some();
        let Some(object) = self.objects.get_mut(&inode) else { return };
        // Where a file over several data shards ends does not follow from this part: behind its end
        // it has a hole.
        if object_offset >= object.size_bytes() && !(hole && is_spread) {
            return self.answer(token, Err(Status::NoDevice));
        }
        object.unstable.settle(durable);
        let touch = ByteAccess {
            client,
            from: object_offset,
            until: u64::MAX,
            extends: false,
            at_end: true,
        };
        let shown = object.unstable.depends(&touch).foreign;
        object.running_count += 1;
        self.seek_on(turn, (inode, hole), (token, shown), object_offset);
    }

    /// The layout of a file that is over several data shards.
    pub(crate) fn spread_layout(&self, inode: InodeNo) -> Option<Layout> {
        self.known_layout(inode).filter(Layout::is_spread)
    }

    /// From an offset on nothing was written to the stripes of this part.
    fn hole_of_part(&self, inode: InodeNo, layout: Layout, at: u64) -> Result<Answer, Status> {
        let found = layout.next_of_part(self.part(inode), at);
        found.map(Answer::Sought).ok_or(Status::NoDevice)
    }

    /// Seeks in the object of an offset, and in those behind it. What an object lacks is a hole.
    fn seek_on(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, hole): (InodeNo, bool),
        (token, shown): (Token, Transno),
        mut file_offset: u64,
    ) {
        let layout = self.layout(inode);
        let spread = self.spread_layout(inode);
        let Some(object) = self.objects.get(&inode) else { return };
        if let Some(layout) = spread.filter(|_| hole) {
            let next = layout.next_of_part(self.part(inode), file_offset);
            match next.filter(|next| *next < object.size_bytes()) {
                // The stripes of other parts between them are none of this one's.
                Some(next) => file_offset = next,
                None => {
                    let result = self.hole_of_part(inode, layout, file_offset);
                    return self.sought(turn, inode, (token, shown), result);
                }
            }
        }
        let mut stripe_index = layout.stripe(file_offset);
        let mut object_offset = file_offset - layout.start(stripe_index);
        if self.is_striped(inode) {
            let has = |index: u32| object.stripe_bytes.get(&index).copied().unwrap_or(0);
            if hole && object_offset >= has(stripe_index) {
                let result = Ok(Answer::Sought(file_offset.min(object.size_bytes())));
                return self.sought(turn, inode, (token, shown), result);
            }
            if !hole && object_offset >= has(stripe_index) {
                let behind = (Bound::Excluded(stripe_index), Bound::Unbounded);
                let mut next = object.stripe_bytes.range(behind).filter(|(_, bytes)| **bytes > 0);
                let Some((next, _)) = next.next() else {
                    return self.sought(turn, inode, (token, shown), Err(Status::NoDevice));
                };
                (stripe_index, object_offset) = (*next, 0);
            }
        }
        let object = self.object_name(inode, stripe_index);
        let ticket = self.ticket(InFlight::Seek { inode, token, shown, stripe_index, hole });
        turn.act(ObjectAction::Seek { ticket, object, object_offset, hole });
    }

    /// The outcome of a seek.
    pub(crate) fn on_sought(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<Option<u64>, Errno>,
    ) {
        let Some(InFlight::Seek { inode, token, shown, stripe_index, hole }) =
            self.in_flight.remove(&ticket.0)
        else {
            return;
        };
        let layout = self.layout(inode);
        let behind = layout.start(stripe_index).saturating_add(layout.stripe_unit_bytes);
        let size_bytes = self.objects.get(&inode).map_or(0, Object::size_bytes);
        let goes_on = behind < size_bytes || hole && self.spread_layout(inode).is_some();
        let result = match result {
            // The end of a whole object is no hole of the file.
            Ok(Some(at)) if !(hole && goes_on && at >= layout.stripe_unit_bytes) => {
                Ok(Answer::Sought(layout.start(stripe_index) + at))
            }
            Ok(_) if goes_on => {
                return self.seek_on(turn, (inode, hole), (token, shown), behind);
            }
            Ok(_) => Err(Status::NoDevice),
            Err(errno) => Err(errno.status()),
        };
        self.sought(turn, inode, (token, shown), result);
    }

    fn sought(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        (token, shown): (Token, Transno),
        result: Result<Answer, Status>,
    ) {
        self.outcomes.push_back(Outcome::Answered { token, result, shown });
        self.ran(turn, inode);
    }
}
