//! Close of an open file. Its size becomes known at the metadata shard behind everybody's back.
//!
//! A reply from the slot may speak of an earlier boot; if the handle was registered again since, it
//! is closed a second time. An unknown handle is closed already.

use super::{Ask, Got, Next, Plan};
use crate::Answer;
use crate::handles::{Handles, OpenFile};
use wire::{HandleId, InodeNo, Status};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Close {
    pub(super) handle: HandleId,
    inode: InodeNo,
    again: bool,
}

impl Close {
    /// The plan and its first request.
    pub(crate) const fn begin(handle: HandleId, file: OpenFile) -> (Self, Ask) {
        Self { handle, inode: file.inode, again: false }.ask()
    }

    const fn ask(self) -> (Self, Ask) {
        (self, Ask::Close(wire::Close { inode: self.inode, handle: self.handle }))
    }

    pub(super) fn next(self, got: Got, handles: &mut Handles) -> Next {
        if got.from_slot && !self.again {
            let (plan, ask) = Self { again: true, ..self }.ask();
            return Next::Ask(Plan::Close(plan), ask);
        }
        handles.remove(self.handle);
        Next::Done(match got.outcome {
            Ok(_) | Err(Status::BadHandle) => Ok(Answer::Done),
            Err(status) => Err(status),
        })
    }
}
