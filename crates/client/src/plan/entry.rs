//! Lookup, getattr, setattr, mkdir, symlink, mknod, link: one request, and a glimpse if the data
//! shard has the file's size.

use super::{FollowUp, Next, Plan, PlanReply};
use crate::Answer;
use wire::{Attr, Glimpse, HandleId};

/// The answer that the attributes are for.
#[derive(Clone, Copy, Debug)]
pub(super) enum SizedFor {
    Entry,
    Create { made: bool, handle: Option<HandleId> },
    Open { handle: HandleId },
}

/// NotConnected for the contents' size and times, which complete `attr`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizing {
    attr: Attr,
    sized_for: SizedFor,
}

pub(super) fn next(reply: PlanReply) -> Next {
    match reply.outcome.and_then(super::Body::entry) {
        Ok(attr) => complete(attr, SizedFor::Entry),
        Err(status) => Next::Done(Err(status)),
    }
}

/// Answers with `attr`, after a glimpse if the data shard has the size.
pub(super) fn complete(attr: Attr, sized_for: SizedFor) -> Next {
    if !attr.is_size_at_data() {
        return Next::Done(Ok(sized_for.answer(attr)));
    }
    let glimpse = FollowUp::Glimpse(Glimpse { inode: attr.inode });
    Next::Send(Plan::Sizing(Sizing { attr, sized_for }), glimpse)
}

impl Sizing {
    pub(super) fn next(self, reply: PlanReply) -> Next {
        let contents = reply.outcome.and_then(super::Body::contents);
        Next::Done(
            contents.map(|contents| self.sized_for.answer(self.attr.with_contents(contents))),
        )
    }

    pub(super) const fn handle(&self) -> Option<HandleId> {
        match self.sized_for {
            SizedFor::Entry => None,
            SizedFor::Create { handle, .. } => handle,
            SizedFor::Open { handle } => Some(handle),
        }
    }
}

impl SizedFor {
    pub(super) const fn answer(self, attr: Attr) -> Answer {
        match self {
            Self::Entry => Answer::Entry(attr),
            Self::Create { made, handle } => Answer::Created { attr, made, handle },
            Self::Open { handle } => Answer::Opened { attr, handle },
        }
    }
}
