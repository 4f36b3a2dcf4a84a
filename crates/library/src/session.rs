//! A session: what an operation asks of the server, and the waiting for it. Every operation is written
//! once, as a future that needs nothing but its session; who drives it is the blocking
//! [`crate::Volume`] or the thread of a [`crate::nonblocking::Volume`].
//!
//! ```text
//! operation ── ask ─▶ lane.begin ─▶ (ring, server) ─▶ lane.turn ─▶ oneshot ─▶ operation
//! ```
//! Invariant: the lane is borrowed between awaits only.

use crate::lane::{Answered, ClientLane, Failure, Reply};
use crate::{ConnectOptions, Error};
use client::Call;
use futures::channel::oneshot;
use interface::Bulk;
use ring::Mailbox;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use wire::{InodeNo, LaneId, Map, Status};

mod exports;
mod lists;
mod names;
mod open;
mod search;
mod server;
mod transfer;
mod walk;

pub use exports::{Export, NewExport, Removed};
pub use lists::{ListRead, Stride};
pub use search::{Fit, FoundEntry, Search, Wanted};

/// Closes of one session that nobody has waited for yet.
const CLOSE_COUNT_MAX: usize = 32;

/// One client of a server.
pub(crate) struct Session {
    lane: RefCell<ClientLane>,
    pub(crate) options: ConnectOptions,
    /// Closes that nobody has waited for yet, oldest first.
    closing: RefCell<VecDeque<(Answered, PathBuf)>>,
    /// The goodbye was said.
    left: Cell<bool>,
    /// See [`crate::Volume::refuse_links`].
    pub(crate) refused_link_count: Cell<usize>,
}

impl Session {
    /// A session that is not connected yet. `mailbox`: for being woken by other threads.
    pub(crate) fn new(options: &ConnectOptions, mailbox: Option<Mailbox>) -> Result<Self, Error> {
        let lane = RefCell::new(ClientLane::new(options, mailbox)?);
        Ok(Self {
            lane,
            options: options.clone(),
            closing: RefCell::default(),
            left: Cell::new(false),
            refused_link_count: Cell::new(0),
        })
    }

    /// Connects, proves the secret both ways and waits for the welcome.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        self.ask("ping", Path::new("/"), &Call::Ping(LaneId(0))).await.map(drop)
    }

    /// Does something to its end, on this thread.
    pub(crate) fn block_on<T>(&self, operation: impl Future<Output = T>) -> T {
        let mut operation = pin!(operation);
        // Nobody has to be woken: what was waited for has come in the turn, or not.
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(outcome) = operation.as_mut().poll(&mut context) {
                return outcome;
            }
            self.turn();
        }
    }

    /// Sleeps until something happens. Whether anything ever can: the ring may be broken.
    pub(crate) fn turn(&self) -> bool {
        self.lane.borrow_mut().turn()
    }

    /// Asks and waits for the answer.
    pub(crate) async fn ask(
        &self,
        op: &'static str,
        path: &Path,
        call: &Call<'_>,
    ) -> Result<Reply, Error> {
        let answered = self.begin(call).await;
        self.end(op, path, answered).await
    }

    /// Begins a call, as soon as there is room for one more; [`Self::end`] waits for its answer.
    pub(crate) async fn begin(&self, call: &Call<'_>) -> Answered {
        loop {
            let room = self.lane.borrow_mut().room();
            match room {
                None => return self.lane.borrow_mut().begin(call),
                // Whoever was let in may have been overtaken: it looks again.
                Some(room) => drop(room.await),
            }
        }
    }

    /// The answer of a call that was begun.
    pub(crate) async fn end(
        &self,
        op: &'static str,
        path: &Path,
        answered: Answered,
    ) -> Result<Reply, Error> {
        let address = self.options.address;
        match answered.await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(Failure::Status(status))) => Err(refused(op, path, status)),
            Ok(Err(Failure::Refused(reason))) => Err(Error::Refused { address, reason }),
            Ok(Err(Failure::Ring(kind, text))) => Err(Error::Ring(io::Error::new(kind, text))),
            Ok(Err(Failure::Away { busy })) => Err(Error::Unreachable { address, busy }),
            // A lane that is gone is away for ever.
            Err(oneshot::Canceled) => Err(Error::Unreachable { address, busy: false }),
        }
    }

    /// Bytes in a buffer that the ring sends from; to be given back by [`Self::release`].
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Bulk, Error> {
        self.lane.borrow_mut().put(bytes)
    }

    pub(crate) fn release(&self, bulk: Bulk) {
        self.lane.borrow_mut().release(bulk);
    }

    /// Lets a close go on behind its caller; waits while there are many. An error is an earlier one's.
    pub(crate) async fn end_later(&self, answered: Answered, path: PathBuf) -> Result<(), Error> {
        self.closing.borrow_mut().push_back((answered, path));
        self.reap_closes(CLOSE_COUNT_MAX).await
    }

    /// Waits until no more than so many closes are under way; the first error of those that ended.
    pub(crate) async fn reap_closes(&self, left_count: usize) -> Result<(), Error> {
        let mut outcome = Ok(());
        loop {
            let oldest = {
                let mut closing = self.closing.borrow_mut();
                if closing.len() > left_count { closing.pop_front() } else { None }
            };
            let Some((answered, path)) = oldest else { return outcome };
            let closed = self.end("close", &path, answered).await.map(drop);
            outcome = outcome.and(closed);
        }
    }

    /// Waits until everything that was done is durable, and has the server forget us.
    pub(crate) async fn leave(&self) -> Result<(), Error> {
        if self.left.replace(true) {
            return Ok(());
        }
        let synced = self.sync().await;
        if matches!(synced, Ok(()) | Err(Error::Op { .. })) {
            // Without it the server remembers us for a while, which harms nobody.
            drop(self.ask("goodbye", Path::new("/"), &Call::Goodbye).await);
        }
        synced
    }

    /// As [`Self::leave`], but a server that is away is given up soon, and nobody is told how it went.
    pub(crate) async fn leave_soon(&self) {
        self.lane.borrow_mut().hurry();
        drop(self.leave().await);
    }

    pub(crate) fn is_root_trusted(&self) -> bool {
        self.lane.borrow().is_root_trusted()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.lane.borrow().is_read_only()
    }

    /// The inode that is the root of this export.
    pub(crate) fn root(&self) -> InodeNo {
        self.lane.borrow().root().unwrap_or(InodeNo::ROOT)
    }

    pub(crate) fn map(&self) -> Option<Map> {
        self.lane.borrow().map()
    }

    pub(crate) fn take_reports(&self) -> Vec<client::Report> {
        self.lane.borrow_mut().take_reports()
    }
}

pub(crate) fn refused(op: &'static str, path: &Path, status: Status) -> Error {
    Error::Op { op, path: path.to_path_buf(), status }
}

/// The client answered with something else than the call has.
pub(crate) fn broken(op: &'static str, path: &Path) -> Error {
    refused(op, path, Status::Protocol)
}
