//! Close. Of a file open for writing: a glimpse, then a close that settles the size at the metadata
//! shard. The glimpse is answered when what it says is durable: else a size could outlive the bytes
//! it speaks of. Of any other file: just the close.
//!
//! A reply from the slot may speak of an earlier boot; if the handle was registered again since, it
//! is closed a second time. An unknown handle is closed already.

use super::{Ask, Got, Next, Plan};
use crate::Answer;
use crate::handles::{Handles, OpenFile};
use wire::{Contents, Glimpse, HandleId, InodeNo, Status};

#[derive(Clone, Copy, Debug)]
enum Step {
    Sizing,
    Closing { settle: Option<Contents>, again: bool },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Close {
    pub(super) handle: HandleId,
    inode: InodeNo,
    step: Step,
}

impl Close {
    /// The plan and its first request.
    pub(crate) const fn begin(handle: HandleId, file: OpenFile) -> (Self, Ask) {
        let close = Self { handle, inode: file.inode, step: Step::Sizing };
        if file.write {
            return (close, Ask::Glimpse(Glimpse { inode: file.inode, durable: true }));
        }
        close.closing(None, false)
    }

    const fn closing(self, settle: Option<Contents>, again: bool) -> (Self, Ask) {
        let ask = wire::Close { inode: self.inode, handle: self.handle, settle };
        (Self { step: Step::Closing { settle, again }, ..self }, Ask::Close(ask))
    }

    pub(super) fn next(self, got: Got, handles: &mut Handles) -> Next {
        let (plan, ask) = match self.step {
            // Without a size the file is closed all the same; its size stays with the data shard.
            Step::Sizing => self.closing(got.outcome.and_then(super::Body::contents).ok(), false),
            Step::Closing { settle, again: false } if got.from_slot => self.closing(settle, true),
            Step::Closing { .. } => {
                handles.remove(self.handle);
                return Next::Done(match got.outcome {
                    Ok(_) | Err(Status::BadHandle) => Ok(Answer::Done),
                    Err(status) => Err(status),
                });
            }
        };
        Next::Ask(Plan::Close(plan), ask)
    }
}
