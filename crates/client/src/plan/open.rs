//! Open: one request, and a glimpse if the frontend wants the size.
//!
//! A reply from the slot may be from an earlier boot of the server, whose handles are lost: then
//! the handle is reopened.

use super::entry::{SizedFor, complete};
use super::{FollowUp, Next, Plan, PlanReply};
use crate::handles::Handles;
use wire::{Attr, Handle, Reopen};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(super) handle: Handle,
    sizes: bool,
    /// The reply, while the handle is being reopened.
    attr: Option<Attr>,
}

impl Open {
    pub(crate) const fn new(handle: Handle, sizes: bool) -> Self {
        Self { handle, sizes, attr: None }
    }

    pub(super) fn next(self, reply: PlanReply, handles: &mut Handles) -> Next {
        let body = match reply.outcome {
            Ok(body) => body,
            Err(status) => return Next::Done(Err(status)),
        };
        if let Some(attr) = self.attr {
            return self.answer(attr);
        }
        let attr = match body.entry() {
            Ok(attr) => attr,
            Err(status) => return Next::Done(Err(status)),
        };
        handles.opened(self.handle.id, attr.inode);
        if !reply.from_slot {
            return self.answer(attr);
        }
        let reopen = FollowUp::Reopen(Reopen { inode: attr.inode, handle: self.handle });
        Next::Send(Plan::Open(Self { attr: Some(attr), ..self }), reopen)
    }

    fn answer(self, attr: Attr) -> Next {
        let sized_for = SizedFor::Open { handle: self.handle.id };
        if self.sizes { complete(attr, sized_for) } else { Next::Done(Ok(sized_for.answer(attr))) }
    }
}
