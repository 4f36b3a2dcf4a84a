//! Lookup and create that found an entry whose inode is another shard's: that shard is asked for
//! the rest, with a getattr, or with an open for whoever creates to open.
//!
//! ```text
//! Lookup ─▶ elsewhere ─▶ Getattr ─▶ size        Create ─▶ elsewhere ─▶ Open ─▶ (Reopen) ─▶ size
//!   ▲                       │ gone meanwhile      ▲                      │
//!   └───────────────────────┘                     └──────────────────────┘
//! ```

use super::entry::{SizedFor, complete};
use super::{Ask, Body, Got, Next, Plan};
use crate::handles::Handles;
use wire::{Attr, Create, Getattr, Handle, HandleId, InodeNo, Op, Reopen, Status, Wire};

#[derive(Clone, Copy, Debug)]
enum For {
    Lookup,
    Create {
        handle: Option<Handle>,
        /// The reply, while the handle is being registered once more.
        attr: Option<Attr>,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere {
    found_for: For,
}

/// An inode of another shard, as its entry tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) inode: InodeNo,
}

impl Elsewhere {
    /// Goes on with the request `op` that had this body. An open for a create is written by whoever
    /// has the body: it names the caller.
    pub(crate) fn begin(op: Op, body: &[u8], found: Found) -> Option<(Self, Ask)> {
        let getattr = Ask::Getattr(Getattr { inode: found.inode });
        let found_for = if op == Op::Create {
            let create = Create::decode_all(body).ok()?;
            For::Create { handle: create.handle, attr: None }
        } else {
            For::Lookup
        };
        let ask = match found_for {
            For::Create { handle: Some(_), .. } => Ask::OpenCreated { inode: found.inode },
            For::Create { handle: None, .. } | For::Lookup => getattr,
        };
        Some((Self { found_for }, ask))
    }

    /// The plan that waits for the first request's reply once more.
    pub(crate) const fn first(self) -> Plan {
        match self.found_for {
            For::Lookup => Plan::Entry,
            For::Create { handle, .. } => Plan::Create(super::Create::new(handle)),
        }
    }

    pub(super) fn next(self, got: Got, handles: &mut Handles) -> Next {
        let body = match got.outcome {
            Ok(body) => body,
            // Another inode may stand under the name by now.
            Err(Status::Stale) => return Next::Again,
            Err(status) => return Next::Done(Err(status)),
        };
        let (handle, known) = match self.found_for {
            For::Lookup => return entry(body, SizedFor::Entry),
            For::Create { handle: None, .. } => {
                return entry(body, SizedFor::Create { made: false, handle: None });
            }
            For::Create { handle: Some(handle), attr } => (handle, attr),
        };
        let sized_for = SizedFor::Create { made: false, handle: Some(handle.id) };
        if let Some(attr) = known {
            return complete(attr, sized_for);
        }
        let attr = match body.entry() {
            Ok(attr) => attr,
            Err(status) => return Next::Done(Err(status)),
        };
        handles.opened(handle.id, attr.inode);
        if !got.from_slot {
            return complete(attr, sized_for);
        }
        let found_for = For::Create { handle: Some(handle), attr: Some(attr) };
        let reopen = Ask::Reopen(Reopen { inode: attr.inode, handle });
        Next::Ask(Plan::Elsewhere(Self { found_for }), reopen)
    }

    pub(super) const fn handle(&self) -> Option<HandleId> {
        match self.found_for {
            For::Create { handle: Some(handle), .. } => Some(handle.id),
            For::Create { handle: None, .. } | For::Lookup => None,
        }
    }
}

fn entry(body: Body, sized_for: SizedFor) -> Next {
    match body.entry() {
        Ok(attr) => complete(attr, sized_for),
        Err(status) => Next::Done(Err(status)),
    }
}
