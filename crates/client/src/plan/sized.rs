//! Attributes and the contents' size and times, which complete them where the data shard has them.
//! If the data shard is likely to have the size, both requests are sent in parallel; otherwise the second one
//! follows if the attributes require it.

use super::{FollowUp, Next, Plan, PlanReply};
use crate::Answer;
use wire::{Attr, Contents, Glimpse, HandleId, InodeNo, Op, Status};

/// The answer that the attributes are for.
#[derive(Clone, Copy, Debug)]
pub(super) enum SizedFor {
    Entry,
    Create { made: bool, handle: Option<HandleId> },
    Open { handle: HandleId, needs_size: bool },
}

/// What the data shard has said.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    Unasked,
    Asked,
    Found(Result<Contents, Status>),
    /// It was not told the layout, and has answered for itself alone.
    FoundAlone(Result<Contents, Status>),
}

impl Size {
    /// The reply to a glimpse.
    pub(super) fn of(reply: PlanReply) -> Self {
        let found = reply.outcome.and_then(super::Body::contents);
        if reply.states_layout { Self::Found(found) } else { Self::FoundAlone(found) }
    }
}

/// Waits for attributes, for a size, or for both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sized {
    attr: Option<Result<Attr, Status>>,
    size: Size,
    sized_for: SizedFor,
}

impl Sized {
    /// A getattr is sent together with the glimpse returned.
    pub(super) const fn beside_getattr(inode: InodeNo) -> (Self, FollowUp) {
        let plan = Self { attr: None, size: Size::Asked, sized_for: SizedFor::Entry };
        (plan, FollowUp::Glimpse(Glimpse { inode }))
    }

    /// The reply to a lookup, getattr, setattr, mkdir, symlink, mknod or link.
    pub(super) fn of_entry(reply: PlanReply) -> Next {
        complete(reply.outcome.and_then(super::Body::entry), Size::Unasked, SizedFor::Entry)
    }

    pub(super) fn next(mut self, reply: PlanReply) -> Next {
        if reply.op == Op::Glimpse {
            self.size = Size::of(reply);
        } else {
            self.attr = Some(reply.outcome.and_then(super::Body::entry));
        }
        match self.attr {
            Some(attr) if reply.last => complete(attr, self.size, self.sized_for),
            Some(_) | None => Next::Wait(Plan::Sized(self)),
        }
    }

    pub(super) const fn handle(&self) -> Option<HandleId> {
        match self.sized_for {
            SizedFor::Entry => None,
            SizedFor::Create { handle, .. } => handle,
            SizedFor::Open { handle, .. } => Some(handle),
        }
    }
}

/// Answers with `attr`, after a glimpse if the data shard has the size and was not asked. No other
/// request is out.
pub(super) fn complete(attr: Result<Attr, Status>, size: Size, sized_for: SizedFor) -> Next {
    let attr = match attr {
        Ok(attr) => attr,
        Err(status) => return Next::Done(Err(status)),
    };
    if !attr.is_size_at_data() {
        return Next::Done(Ok(sized_for.answer(attr)));
    }
    let is_spread = attr.layout.is_some_and(|layout| layout.is_spread());
    match size {
        Size::FoundAlone(contents) if !is_spread => Next::Done(sized_for.completed(attr, contents)),
        Size::Found(contents) => Next::Done(sized_for.completed(attr, contents)),
        Size::Unasked | Size::Asked | Size::FoundAlone(_) => {
            let glimpse = FollowUp::Glimpse(Glimpse { inode: attr.inode });
            let plan = Sized { attr: Some(Ok(attr)), size: Size::Asked, sized_for };
            Next::Send(Plan::Sized(plan), glimpse)
        }
    }
}

impl SizedFor {
    fn completed(self, attr: Attr, contents: Result<Contents, Status>) -> Result<Answer, Status> {
        match (self, contents) {
            (Self::Open { needs_size: false, .. }, Err(_)) => Ok(self.answer(attr)),
            (_, contents) => Ok(self.answer(attr.with_contents(contents?))),
        }
    }

    pub(super) const fn answer(self, attr: Attr) -> Answer {
        match self {
            Self::Entry => Answer::Entry(attr),
            Self::Create { made, handle } => Answer::Created { attr, made, handle },
            Self::Open { handle, .. } => Answer::Opened { attr, handle },
        }
    }
}
