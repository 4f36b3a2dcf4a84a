//! Create: one request. A file that was just made is empty; an existing one may need a glimpse.
//!
//! A reply from the slot may speak of an earlier boot of the server, which forgot the handle with
//! it: then the handle is registered once more. If others have removed the file meanwhile, it was made
//! all the same: an error would have the kernel make it a second time. One without a name is made anew.

use super::entry::{SizedFor, complete};
use super::{Ask, Body, Got, Next, Plan};
use crate::handles::Handles;
use wire::{Created, Handle, HandleId, Reopen, Status};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Create {
    handle: Option<Handle>,
    /// The reply, while the handle is being registered once more.
    created: Option<Created>,
    /// Of a file without a name: a server that has forgotten the handle has destroyed it.
    nameless: bool,
}

impl Create {
    pub(crate) const fn new(handle: Option<Handle>) -> Self {
        Self { handle, created: None, nameless: false }
    }

    pub(crate) const fn nameless(handle: Handle) -> Self {
        Self { handle: Some(handle), created: None, nameless: true }
    }

    /// The plan that waits for the first request's reply once more.
    pub(crate) const fn first(self) -> Plan {
        Plan::Create(Self { created: None, ..self })
    }

    pub(super) fn next(self, got: Got, handles: &mut Handles) -> Next {
        let body = match (got.outcome, self.created) {
            (Ok(_), Some(created)) => return self.answer(created),
            (Err(Status::Stale | Status::NotFound), Some(_)) if self.nameless => {
                return Next::Again;
            }
            (Err(Status::Stale | Status::NotFound), Some(created)) if created.made => {
                return self.answer(created);
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
        if !got.from_slot {
            return self.answer(created);
        }
        let reopen = Ask::Reopen(Reopen { inode: created.attr.inode, handle });
        Next::Ask(Plan::Create(Self { created: Some(created), ..self }), reopen)
    }

    fn answer(self, created: Created) -> Next {
        let sized_for = SizedFor::Create { made: created.made, handle: self.handle() };
        if created.made {
            return Next::Done(Ok(sized_for.answer(created.attr)));
        }
        complete(created.attr, sized_for)
    }

    pub(super) const fn handle(&self) -> Option<HandleId> {
        match self.handle {
            Some(handle) => Some(handle.id),
            None => None,
        }
    }
}
