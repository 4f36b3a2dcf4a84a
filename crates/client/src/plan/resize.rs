//! Resize: sets a file's size at its data shard and answers with the new attributes.
//!
//! ```text
//! closed: Open ─▶ (Reopen) ─▶ Truncate ─▶ Close ─▶ Getattr ─▶ size
//! open:                       Truncate ──────────▶ Getattr ─▶ size
//! ```
//! The open checks the permission and tells the metadata shard that the data shard has the size.
//! The file is closed after a failure, too.

use super::entry::{SizedFor, complete};
use super::{FollowUp, Next, Plan, PlanReply};
use crate::handles::Handles;
use wire::{Getattr, Handle, HandleId, InodeNo, Reopen, Status, Truncate};

#[derive(Clone, Copy, Debug)]
enum Step {
    Opening(Handle),
    Reopening(Handle),
    Truncating(Option<Handle>),
    Closing { handle: Handle, outcome: Result<(), Status> },
    Reading,
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
            Step::Closing { handle, outcome } => {
                handles.remove(handle.id);
                match outcome {
                    Ok(()) => self.read(),
                    Err(status) => Next::Done(Err(status)),
                }
            }
            Step::Reading => match reply.outcome.and_then(super::Body::entry) {
                Ok(attr) => complete(attr, SizedFor::Entry),
                Err(status) => Next::Done(Err(status)),
            },
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

    fn on_truncate(self, handle: Option<Handle>, reply: PlanReply) -> Next {
        let outcome = reply.outcome.map(|_| ());
        match (handle, outcome) {
            (Some(handle), outcome) => self.close(handle, outcome),
            (None, Ok(())) => self.read(),
            (None, Err(status)) => Next::Done(Err(status)),
        }
    }

    const fn close(self, handle: Handle, outcome: Result<(), Status>) -> Next {
        let follow_up = wire::Close { inode: self.inode, handle: handle.id };
        self.go(Step::Closing { handle, outcome }, FollowUp::Close(follow_up))
    }

    const fn read(self) -> Next {
        self.go(Step::Reading, FollowUp::Getattr(Getattr { inode: self.inode }))
    }

    const fn go(self, step: Step, follow_up: FollowUp) -> Next {
        Next::Send(Plan::Resize(Self { step, ..self }), follow_up)
    }

    pub(super) const fn handle(&self) -> Option<HandleId> {
        match self.step {
            Step::Opening(handle)
            | Step::Reopening(handle)
            | Step::Truncating(Some(handle))
            | Step::Closing { handle, .. } => Some(handle.id),
            Step::Truncating(None) | Step::Reading => None,
        }
    }
}
