//! Close of an open file. The metadata shard queries the data shard for the file's size later.
//!
//! A reply from the slot may be from an earlier boot; the handle may have been reopened since, so
//! it is closed a second time. An unknown handle counts as closed.

use super::{FollowUp, Next, Plan, PlanReply};
use crate::Answer;
use crate::handles::{Handles, OpenFile};
use wire::{HandleId, InodeNo, Status};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Close {
    pub(super) handle: HandleId,
    inode: InodeNo,
    is_second: bool,
}

impl Close {
    /// The plan and its first request.
    pub(crate) const fn begin(handle: HandleId, file: OpenFile) -> (Self, FollowUp) {
        Self { handle, inode: file.inode, is_second: false }.request()
    }

    const fn request(self) -> (Self, FollowUp) {
        (self, FollowUp::Close(wire::Close { inode: self.inode, handle: self.handle }))
    }

    pub(super) fn next(self, reply: PlanReply, handles: &mut Handles) -> Next {
        if reply.from_slot && !self.is_second {
            let (plan, follow_up) = Self { is_second: true, ..self }.request();
            return Next::Send(Plan::Close(plan), follow_up);
        }
        handles.remove(self.handle);
        Next::Done(match reply.outcome {
            Ok(_) | Err(Status::BadHandle) => Ok(Answer::Done),
            Err(status) => Err(status),
        })
    }
}
