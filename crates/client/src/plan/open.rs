//! Open: one request; a glimpse if the face wants sizes with it.
//!
//! A reply from the slot may speak of an earlier boot of the server, which forgot the handle with
//! it: then the handle is registered once more.

use super::entry::{SizedFor, complete};
use super::{Ask, Got, Next, Plan};
use crate::handles::Handles;
use wire::{Attr, Handle, Reopen};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(super) handle: Handle,
    sizes: bool,
    /// The reply, while the handle is being registered once more.
    attr: Option<Attr>,
}

impl Open {
    pub(crate) const fn new(handle: Handle, sizes: bool) -> Self {
        Self { handle, sizes, attr: None }
    }

    pub(super) fn next(self, got: Got, handles: &mut Handles) -> Next {
        let body = match got.outcome {
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
        if !got.from_slot {
            return self.answer(attr);
        }
        let reopen = Ask::Reopen(Reopen { inode: attr.inode, handle: self.handle });
        Next::Ask(Plan::Open(Self { attr: Some(attr), ..self }), reopen)
    }

    fn answer(self, attr: Attr) -> Next {
        let sized_for = SizedFor::Open { handle: self.handle.id };
        if self.sizes { complete(attr, sized_for) } else { Next::Done(Ok(sized_for.answer(attr))) }
    }
}
