//! Lookup, getattr, setattr, mkdir, symlink, mknod, link: one request, and a glimpse when the size of the
//! file it found is with the data shard.

use super::{Ask, Got, Next, Plan};
use crate::Answer;
use wire::{Attr, Glimpse, HandleId};

/// What the attributes are wanted for.
#[derive(Clone, Copy, Debug)]
pub(super) enum SizedFor {
    Entry,
    Create { made: bool, handle: Option<HandleId> },
    Open { handle: HandleId },
}

/// Waiting for the contents that complete `attr`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizing {
    attr: Attr,
    sized_for: SizedFor,
}

pub(super) fn next(got: Got) -> Next {
    match got.outcome.and_then(super::Body::entry) {
        Ok(attr) => complete(attr, SizedFor::Entry),
        Err(status) => Next::Done(Err(status)),
    }
}

/// Answers with `attr`, after asking for its size if need be.
pub(super) fn complete(attr: Attr, sized_for: SizedFor) -> Next {
    if !attr.is_size_at_data() {
        return Next::Done(Ok(sized_for.answer(attr)));
    }
    let glimpse = Ask::Glimpse(Glimpse { inode: attr.inode });
    Next::Ask(Plan::Sizing(Sizing { attr, sized_for }), glimpse)
}

impl Sizing {
    pub(super) fn next(self, got: Got) -> Next {
        let contents = got.outcome.and_then(super::Body::contents);
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
