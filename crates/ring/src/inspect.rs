//! What lanes and the thread that keeps inspections of the store say to each other: questions of
//! connections, and their answers.
//!
//! Invariant: a lane never waits here; what it is told before it is woken is there when it looks.

use crate::mailbox::Waker;
use interface::ConnId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{Inspect, LaneId, Status};

/// A question of a lane's.
#[derive(Debug)]
pub struct InspectRequest {
    /// Which lane's connection.
    pub lane: LaneId,
    /// The connection.
    pub conn: ConnId,
    /// What is asked; `None`: the connection is gone, and nothing is to be answered.
    pub inspect: Option<Inspect>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct InspectReply {
    pub(crate) conn: ConnId,
    pub(crate) status: Status,
    pub(crate) reply: Box<[u8]>,
}

/// Where a lane's questions go. Must not block.
pub type SubmitInspect = Arc<dyn Fn(InspectRequest) + Send + Sync>;

/// A lane's end of it.
#[derive(Clone)]
pub struct InspectQueue {
    submit: SubmitInspect,
    waker: Waker,
    replies: Arc<Mutex<Vec<InspectReply>>>,
}

impl InspectQueue {
    /// For the lane of this mailbox.
    #[must_use]
    pub fn new(waker: Waker, submit: SubmitInspect) -> Self {
        Self { submit, waker, replies: Arc::default() }
    }

    /// Whose it is.
    #[must_use]
    pub fn lane(&self) -> LaneId {
        self.waker.lane()
    }

    /// Answers the last question of a connection. `reply` is an encoded [`wire::Inspected`], if it went well.
    pub fn reply(&self, conn: ConnId, status: Status, reply: Box<[u8]>) {
        self.lock().push(InspectReply { conn, status, reply });
        self.waker.wake();
    }

    pub(crate) fn request(&self, conn: ConnId, inspect: Option<Inspect>) {
        (self.submit)(InspectRequest { lane: self.lane(), conn, inspect });
    }

    pub(crate) fn take_replies(&self) -> Vec<InspectReply> {
        std::mem::take(&mut *self.lock())
    }

    /// Nothing is ever left half done in there.
    fn lock(&self) -> MutexGuard<'_, Vec<InspectReply>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
