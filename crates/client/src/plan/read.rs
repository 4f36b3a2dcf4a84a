//! Read and ReadList: one request. An object that was removed reads like one that was never
//! written; so where the server may have dropped this client's handles, an empty file must still
//! exist at its metadata shard.
//!
//! ```text
//! Read ─▶ bytes, or no handle was dropped ─▶ answer
//!      └▶ empty ─▶ Getattr ─▶ Stale, or the answer
//! ```
//! The object of a file is removed before its inode, and Getattr denies an inode that is about to
//! be removed: so a Getattr behind the read finds what the read did not.

use super::{Body, FollowUp, Next, Plan, PlanReply};
use crate::handles::Handles;
use wire::{Getattr, InodeNo, ListRead, Op};

/// A read, and what it has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    inode: InodeNo,
    found: Body,
}

impl Read {
    pub(super) const fn new(inode: InodeNo) -> Self {
        Self { inode, found: Body::Empty }
    }

    pub(super) fn next(self, reply: PlanReply, handles: &mut Handles) -> Next {
        let Self { inode, found } = self;
        let body = match reply.outcome {
            Ok(_) if reply.op == Op::Getattr => return Next::Done(Ok(found.answer())),
            Ok(body) => body,
            Err(status) => return Next::Done(Err(status)),
        };
        let is_empty =
            matches!(body, Body::Bytes(None) | Body::List(_, ListRead { size_bytes: 0 }));
        if is_empty && handles.may_lack(inode) {
            let plan = Plan::Read(Self { inode, found: body });
            return Next::Send(plan, FollowUp::Getattr(Getattr { inode }));
        }
        Next::Done(Ok(body.answer()))
    }
}
