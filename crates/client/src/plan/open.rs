//! Open: one request, and a glimpse if the frontend wants the size. After an open for writing the
//! data shard has the size, so both are sent at once. A frontend that may cache the contents gets the
//! size too, if it can be had: its first read would ask for it.
//!
//! A reply from the slot may be from an earlier boot of the server, whose handles are lost: then
//! the handle is reopened.

use super::sized::{Size, SizedFor, complete};
use super::{FollowUp, Next, Plan, PlanReply};
use crate::handles::Handles;
use wire::{Attr, Glimpse, Handle, InodeNo, Op, Reopen, Status};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(super) handle: Handle,
    sizes: bool,
    /// The frontend may cache the contents.
    caches: bool,
    size: Size,
    /// The reply to the open.
    opened: Option<Result<Attr, Status>>,
}

impl Open {
    /// The plan, and the request that is sent together with the open.
    pub(super) fn begin(inode: InodeNo, handle: Handle, sizes: bool) -> (Self, Option<FollowUp>) {
        let at_once = sizes && handle.open_for.writes();
        let size = if at_once { Size::Asked } else { Size::Unasked };
        let glimpse = at_once.then_some(FollowUp::Glimpse(Glimpse { inode }));
        (Self { handle, sizes, caches: false, size, opened: None }, glimpse)
    }

    /// Whether the size was asked for together with the open.
    pub(crate) const fn asks_at_once(&self) -> bool {
        !matches!(self.size, Size::Unasked)
    }

    pub(super) fn next(mut self, reply: PlanReply, handles: &mut Handles) -> Next {
        if reply.op == Op::Glimpse {
            self.size = Size::of(reply);
            return self.wait(reply.last);
        }
        if reply.op == Op::Reopen {
            if let Err(status) = reply.outcome {
                self.opened = Some(Err(status));
            }
            return self.wait(reply.last);
        }
        let attr = reply.outcome.and_then(super::Body::entry);
        self.opened = Some(attr);
        self.caches = reply.grants_contents;
        if let Ok(attr) = attr {
            handles.opened(self.handle.id, attr.inode);
            if reply.from_slot {
                let reopen = FollowUp::Reopen(Reopen { inode: attr.inode, handle: self.handle });
                return Next::Send(Plan::Open(self), reopen);
            }
        }
        self.wait(reply.last)
    }

    /// Answers if all replies were received.
    fn wait(self, last: bool) -> Next {
        let sized_for = SizedFor::Open { handle: self.handle.id, needs_size: self.sizes };
        match self.opened {
            Some(Ok(attr)) if last && !self.sizes && !self.caches => {
                Next::Done(Ok(sized_for.answer(attr)))
            }
            Some(opened) if last => complete(opened, self.size, sized_for),
            Some(_) | None => Next::Wait(Plan::Open(self)),
        }
    }
}
