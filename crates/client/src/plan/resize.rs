//! Resize: sets a file's size at its data shard and answers with the new attributes.
//!
//! ```text
//! closed: Open ─▶ (Reopen) ─▶ Truncate ─▶ Close, Getattr and Glimpse at once
//! open:                       Truncate ─▶ Getattr and Glimpse at once
//! ```
//! The open checks the permission, and records at the metadata shard that the data shard has the
//! size. The file is closed after a failure, too, and the answer waits for the close.

use super::sized::{Size, SizedFor, complete};
use super::{FollowUp, Next, Plan, PlanReply};
use crate::handles::Handles;
use alloc::vec::Vec;
use wire::{Attr, Getattr, Glimpse, Handle, HandleId, InodeNo, Op, Reopen, Status, Truncate};

#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a call has one, and every call ends with it")]
enum Step {
    Opening(Handle),
    Reopening(Handle),
    Truncating(Option<Handle>),
    Ending {
        /// Until it is closed.
        handle: Option<Handle>,
        /// The close was sent a second time.
        is_second: bool,
        attr: Option<Result<Attr, Status>>,
        size: Size,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Resize {
    inode: InodeNo,
    size_bytes: u64,
    step: Step,
}

impl Resize {
    /// The plan whose first request is an open with `handle`.
    pub(crate) const fn with_open(inode: InodeNo, size_bytes: u64, handle: Handle) -> Self {
        Self { inode, size_bytes, step: Step::Opening(handle) }
    }

    /// The plan whose first request is the truncate.
    pub(crate) const fn of_open_file(inode: InodeNo, size_bytes: u64) -> (Self, Truncate) {
        let plan = Self { inode, size_bytes, step: Step::Truncating(None) };
        (plan, Truncate { inode, size_bytes })
    }

    pub(super) fn next(self, reply: PlanReply, handles: &mut Handles) -> Next {
        match self.step {
            Step::Opening(handle) => self.on_open(handle, reply, handles),
            Step::Reopening(handle) => self.truncate(handle),
            Step::Truncating(handle) => self.on_truncate(handle, reply),
            Step::Ending { .. } => self.on_end(reply, handles),
        }
    }

    fn on_open(self, handle: Handle, reply: PlanReply, handles: &mut Handles) -> Next {
        match reply.outcome {
            Ok(_) => {}
            // A special file has no size.
            Err(Status::NoDevice) => return Next::Done(Err(Status::Invalid)),
            Err(status) => return Next::Done(Err(status)),
        }
        handles.opened(handle.id, self.inode);
        if !reply.from_slot {
            return self.truncate(handle);
        }
        let reopen = FollowUp::Reopen(Reopen { inode: self.inode, handle });
        self.go(Step::Reopening(handle), reopen)
    }

    const fn truncate(self, handle: Handle) -> Next {
        let follow_up = Truncate { inode: self.inode, size_bytes: self.size_bytes };
        self.go(Step::Truncating(Some(handle)), FollowUp::Truncate(follow_up))
    }

    /// Closes the file if the plan has opened it, and asks for the attributes.
    fn on_truncate(self, handle: Option<Handle>, reply: PlanReply) -> Next {
        let inode = self.inode;
        let failed = reply.outcome.err();
        let close = handle.map(|handle| FollowUp::Close(wire::Close { inode, handle: handle.id }));
        let mut requests: Vec<FollowUp> = close.into_iter().collect();
        let attr = failed.map(Err);
        if failed.is_none() {
            requests.push(FollowUp::Getattr(Getattr { inode }));
            requests.push(FollowUp::Glimpse(Glimpse { inode }));
        }
        let step = Step::Ending { handle, is_second: false, attr, size: Size::Asked };
        match (failed, requests.is_empty()) {
            (Some(status), true) => Next::Done(Err(status)),
            (Some(_) | None, _) => Next::SendAll(Plan::Resize(Self { step, ..self }), requests),
        }
    }

    fn on_end(mut self, reply: PlanReply, handles: &mut Handles) -> Next {
        let Step::Ending { handle, is_second, attr, size } = &mut self.step else {
            return Next::Done(Err(Status::Protocol));
        };
        match (reply.op, *handle) {
            (Op::Glimpse, _) => {
                *size = Size::of(reply);
            }
            (Op::Close, Some(Handle { id, .. })) if reply.from_slot && !*is_second => {
                // The handle may have been reopened since.
                *is_second = true;
                let close = FollowUp::Close(wire::Close { inode: self.inode, handle: id });
                return Next::Send(Plan::Resize(self), close);
            }
            (Op::Close, closed) => {
                closed.into_iter().for_each(|closed| handles.remove(closed.id));
                *handle = None;
            }
            _ => *attr = Some(reply.outcome.and_then(super::Body::entry)),
        }
        match *attr {
            Some(attr) if reply.last => complete(attr, *size, SizedFor::Entry),
            Some(_) | None => Next::Wait(Plan::Resize(self)),
        }
    }

    const fn go(self, step: Step, follow_up: FollowUp) -> Next {
        Next::Send(Plan::Resize(Self { step, ..self }), follow_up)
    }

    pub(super) const fn handle(&self) -> Option<HandleId> {
        match self.step {
            Step::Opening(handle)
            | Step::Reopening(handle)
            | Step::Truncating(Some(handle))
            | Step::Ending { handle: Some(handle), .. } => Some(handle.id),
            Step::Truncating(None) | Step::Ending { handle: None, .. } => None,
        }
    }
}
