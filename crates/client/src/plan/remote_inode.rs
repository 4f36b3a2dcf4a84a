//! Lookup and create that found an entry whose inode is in another shard: the client requests
//! the attributes, by a getattr, or by an open if the create opens the file.
//!
//! ```text
//! Lookup ─▶ remote ─▶ Getattr ─▶ size           Create ─▶ remote ─▶ Open ─▶ (Reopen) ─▶ size
//!   ▲                    │ removed                ▲                  │
//!   └────────────────────┘                        └──────────────────┘
//! ```

use super::sized::{Size, SizedFor, complete};
use super::{Body, FollowUp, Next, Plan, PlanReply};
use crate::handles::Handles;
use wire::{Attr, Create, Getattr, Handle, HandleId, InodeNo, Op, Reopen, Status, Wire};

#[derive(Clone, Copy, Debug)]
enum Origin {
    Lookup,
    Create {
        handle: Option<Handle>,
        /// The reply, while the handle is being reopened.
        attr: Option<Attr>,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteInode {
    origin: Origin,
}

/// The inode that an entry names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteRef {
    pub(crate) inode: InodeNo,
}

impl RemoteInode {
    /// Continues the request `op` with this body. The caller of this function encodes an open for a
    /// create, because the create's body has the credentials.
    pub(crate) fn begin(op: Op, body: &[u8], found: RemoteRef) -> Option<(Self, FollowUp)> {
        let getattr = FollowUp::Getattr(Getattr { inode: found.inode });
        let origin = if op == Op::Create {
            let create = Create::decode_all(body).ok()?;
            Origin::Create { handle: create.handle, attr: None }
        } else {
            Origin::Lookup
        };
        let follow_up = match origin {
            Origin::Create { handle: Some(_), .. } => FollowUp::OpenCreated { inode: found.inode },
            Origin::Create { handle: None, .. } | Origin::Lookup => getattr,
        };
        Some((Self { origin }, follow_up))
    }

    /// The plan for a retry of the first request.
    pub(crate) const fn first(self) -> Plan {
        match self.origin {
            Origin::Lookup => Plan::Entry,
            Origin::Create { handle, .. } => Plan::Create(super::Create::new(handle)),
        }
    }

    pub(super) fn next(self, reply: PlanReply, handles: &mut Handles) -> Next {
        let body = match reply.outcome {
            Ok(body) => body,
            // The name may refer to another inode since.
            Err(Status::Stale) => return Next::Retry,
            Err(status) => return Next::Done(Err(status)),
        };
        let (handle, known) = match self.origin {
            Origin::Lookup => return entry(body, SizedFor::Entry),
            Origin::Create { handle: None, .. } => {
                return entry(body, SizedFor::Create { made: false, handle: None });
            }
            Origin::Create { handle: Some(handle), attr } => (handle, attr),
        };
        let sized_for = SizedFor::Create { made: false, handle: Some(handle.id) };
        if let Some(attr) = known {
            return complete(Ok(attr), Size::Unasked, sized_for);
        }
        let attr = match body.entry() {
            Ok(attr) => attr,
            Err(status) => return Next::Done(Err(status)),
        };
        handles.opened(handle.id, attr.inode);
        if !reply.from_slot {
            return complete(Ok(attr), Size::Unasked, sized_for);
        }
        let origin = Origin::Create { handle: Some(handle), attr: Some(attr) };
        let reopen = FollowUp::Reopen(Reopen { inode: attr.inode, handle });
        Next::Send(Plan::RemoteInode(Self { origin }), reopen)
    }

    pub(super) const fn handle(&self) -> Option<HandleId> {
        match self.origin {
            Origin::Create { handle: Some(handle), .. } => Some(handle.id),
            Origin::Create { handle: None, .. } | Origin::Lookup => None,
        }
    }
}

fn entry(body: Body, sized_for: SizedFor) -> Next {
    complete(body.entry(), Size::Unasked, sized_for)
}
