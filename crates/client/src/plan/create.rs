//! Create: one request. A new file is empty; for an existing one the size may need a glimpse.
//!
//! A reply from the slot may be from an earlier boot of the server, whose handles are lost: then
//! the handle is reopened. If the file was removed meanwhile, the create succeeds all the same, with
//! attributes that say so: after an error the kernel would create it a second time. A file without a
//! name is created anew.

use super::sized::{Size, SizedFor, complete};
use super::{Body, FollowUp, Next, Plan, PlanReply};
use crate::handles::Handles;
use wire::{Attr, Created, Handle, HandleId, InodeNo, Reopen, Status};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Create {
    handle: Option<Handle>,
    /// The reply, while the handle is being reopened.
    created: Option<Created>,
    /// A file without a name: a server that lost the handle has destroyed the file.
    nameless: bool,
    /// The number that this client has chosen.
    behind: Option<InodeNo>,
}

impl Create {
    pub(crate) const fn new(handle: Option<Handle>) -> Self {
        Self { handle, created: None, nameless: false, behind: None }
    }

    pub(crate) const fn nameless(handle: Handle) -> Self {
        Self { handle: Some(handle), created: None, nameless: true, behind: None }
    }

    pub(crate) const fn behind(handle: Handle, inode: InodeNo) -> Self {
        Self { behind: Some(inode), ..Self::new(Some(handle)) }
    }

    /// The number that this client has chosen, of a create that its caller has the answer of.
    pub(crate) const fn chosen(self) -> Option<InodeNo> {
        self.behind
    }

    /// The plan for a retry of the first request.
    pub(crate) const fn first(self) -> Plan {
        Plan::Create(Self { created: None, ..self })
    }

    pub(super) fn next(self, reply: PlanReply, handles: &mut Handles) -> Next {
        let body = match (reply.outcome, self.created) {
            (Ok(_), Some(created)) => return self.answer(created),
            (Err(Status::Stale | Status::NotFound), Some(_)) if self.nameless => {
                return Next::Retry;
            }
            (Err(Status::Stale | Status::NotFound), Some(created)) if created.made => {
                let attr = Attr { nlink: 0, ..created.attr };
                return self.answer(Created { attr, ..created });
            }
            (Ok(body), None) => body,
            (Err(status), _) => return Next::Done(Err(status)),
        };
        let Body::Created(created) = body else {
            return Next::Done(Err(Status::Protocol));
        };
        let Some(handle) = self.handle else {
            return self.answer(created);
        };
        handles.opened(handle.id, created.attr.inode);
        if !reply.from_slot {
            return self.answer(created);
        }
        let reopen = FollowUp::Reopen(Reopen { inode: created.attr.inode, handle });
        Next::Send(Plan::Create(Self { created: Some(created), ..self }), reopen)
    }

    fn answer(self, created: Created) -> Next {
        let sized_for = SizedFor::Create { made: created.made, handle: self.handle() };
        if created.made {
            return Next::Done(Ok(sized_for.answer(created.attr)));
        }
        complete(Ok(created.attr), Size::Unasked, sized_for)
    }

    pub(super) const fn handle(&self) -> Option<HandleId> {
        match self.handle {
            Some(handle) => Some(handle.id),
            None => None,
        }
    }
}
