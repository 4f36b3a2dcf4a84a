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
pub struct InspectAsk {
    /// Which lane's connection.
    pub lane: LaneId,
    /// The connection.
    pub conn: ConnId,
    /// What is asked; `None`: the connection is gone, and nothing is to be answered.
    pub ask: Option<Inspect>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct InspectNews {
    pub(crate) conn: ConnId,
    pub(crate) status: Status,
    pub(crate) reply: Box<[u8]>,
}

/// Where a lane's questions go. Must not block.
pub type TakeInspectAsk = Arc<dyn Fn(InspectAsk) + Send + Sync>;

/// A lane's end of it.
#[derive(Clone)]
pub struct InspectDesk {
    ask: TakeInspectAsk,
    waker: Waker,
    news: Arc<Mutex<Vec<InspectNews>>>,
}

impl InspectDesk {
    /// For the lane of this mailbox.
    #[must_use]
    pub fn new(waker: Waker, ask: TakeInspectAsk) -> Self {
        Self { ask, waker, news: Arc::default() }
    }

    /// Whose it is.
    #[must_use]
    pub fn lane(&self) -> LaneId {
        self.waker.lane()
    }

    /// Answers the last question of a connection. `reply` is an encoded [`wire::Inspected`], if it went well.
    pub fn tell(&self, conn: ConnId, status: Status, reply: Box<[u8]>) {
        self.lock().push(InspectNews { conn, status, reply });
        self.waker.wake();
    }

    pub(crate) fn ask(&self, conn: ConnId, ask: Option<Inspect>) {
        (self.ask)(InspectAsk { lane: self.lane(), conn, ask });
    }

    pub(crate) fn take_news(&self) -> Vec<InspectNews> {
        std::mem::take(&mut *self.lock())
    }

    /// Nothing is ever left half done in there.
    fn lock(&self) -> MutexGuard<'_, Vec<InspectNews>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
