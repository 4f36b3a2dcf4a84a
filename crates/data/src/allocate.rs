//! Allocating, deallocating and zeroing ranges; finding data and holes.
//!
//! Like a truncation, an allocation runs alone at its object, is recorded before its reply, and is
//! a fence for later changes until its record is durable. So it is never replayed, and no replayed
//! write precedes an acknowledged one.

use crate::object::Effect;
use crate::unstable::ByteAccess;
use crate::work::InFlight;
use crate::{Answer, Outcome, Shards, Token};
use disk::ContentsChange;
use interface::{Errno, ObjectAction, Ticket, Turn};
use wire::{Allocation, ClientUuid, InodeNo, Status, Transno};

/// An allocation request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocating {
    pub(crate) token: Token,
    pub(crate) client: ClientUuid,
    pub(crate) object_offset: u64,
    pub(crate) range_bytes: u64,
    pub(crate) allocation: Allocation,
    pub(crate) keep_size: bool,
}

/// A seek request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seeking {
    pub(crate) token: Token,
    pub(crate) client: ClientUuid,
    pub(crate) object_offset: u64,
    pub(crate) hole: bool,
}

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
        let object = object.name;
        let ticket = self.ticket(InFlight::Reshape { inode, effect, size_bytes });
        turn.act(ObjectAction::Allocate {
            ticket,
            object,
            object_offset,
            range_bytes,
            allocation,
            keep_size,
        });
    }

    pub(crate) fn begin_seek(&mut self, turn: &mut Turn<'_>, inode: InodeNo, seeking: &Seeking) {
        let Seeking { token, client, object_offset, hole } = *seeking;
        let durable = self.durable(self.shard(inode));
        let Some(object) = self.objects.get_mut(&inode) else { return };
        if object_offset >= object.size_bytes() {
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
        let object = object.name;
        let ticket = self.ticket(InFlight::Seek { inode, token, shown });
        turn.act(ObjectAction::Seek { ticket, object, object_offset, hole });
    }

    /// The outcome of a seek.
    pub(crate) fn on_sought(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<Option<u64>, Errno>,
    ) {
        let Some(InFlight::Seek { inode, token, shown }) = self.in_flight.remove(&ticket.0) else {
            return;
        };
        let result = match result {
            Ok(Some(file_offset)) => Ok(Answer::Sought(file_offset)),
            Ok(None) => Err(Status::NoDevice),
            Err(errno) => Err(errno.status()),
        };
        self.outcomes.push_back(Outcome::Answered { token, result, shown });
        self.ran(turn, inode);
    }
}
