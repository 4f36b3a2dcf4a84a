//! Inspection requests of connections, from lanes to the thread that runs inspections, and their
//! replies.
//!
//! Invariant: a lane never waits here, and finds a reply when it is woken for it.

use crate::mailbox::Waker;
use interface::ConnId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{Inspect, LaneId, Status};

/// A request.
#[derive(Debug)]
pub struct InspectRequest {
    /// The lane of the connection.
    pub lane: LaneId,
    /// The connection.
    pub conn: ConnId,
    /// The inspection; `None`: the connection has ended, and no reply is expected.
    pub inspect: Option<Inspect>,
}

/// A reply.
#[derive(Debug)]
pub(crate) struct InspectReply {
    pub(crate) conn: ConnId,
    pub(crate) status: Status,
    pub(crate) reply: Box<[u8]>,
}

/// Passes a lane's requests on. Must not block.
pub type SubmitInspect = Arc<dyn Fn(InspectRequest) + Send + Sync>;

/// A lane's end.
#[derive(Clone)]
pub struct InspectQueue {
    submit: SubmitInspect,
    waker: Waker,
    replies: Arc<Mutex<Vec<InspectReply>>>,
}

impl InspectQueue {
    /// For the lane that `waker` wakes.
    #[must_use]
    pub fn new(waker: Waker, submit: SubmitInspect) -> Self {
        Self { submit, waker, replies: Arc::default() }
    }

    /// The lane it belongs to.
    #[must_use]
    pub fn lane(&self) -> LaneId {
        self.waker.lane()
    }

    /// Replies to the last request of a connection. `reply` is an encoded [`wire::Inspected`] if
    /// the status is Ok.
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

    /// Locks; a poisoned lock is used, because every critical section leaves the data consistent.
    fn lock(&self) -> MutexGuard<'_, Vec<InspectReply>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
