//! A session: the operations, as sequences of calls. Every operation is written once, as a future
//! that needs only its session; the blocking [`crate::Volume`] or the thread of a
//! [`crate::nonblocking::Volume`] drives it.
//!
//! ```text
//! operation ── call ─▶ lane.begin ─▶ (ring, server) ─▶ lane.turn ─▶ oneshot ─▶ operation
//! ```
//! Invariant: the lane is borrowed only between awaits.

use crate::lane::{ClientLane, Failure, PendingAnswer, Reply};
use crate::{ConnectOptions, Error, File};
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
use wire::{InodeNo, Map, Status};

mod exports;
mod lists;
mod names;
mod open;
mod search;
mod server;
mod transfer;
mod walk;

pub use exports::{Export, NewExport, Removal};
pub use lists::{ListRead, Stride};
pub use search::{Fit, FoundEntry, Search, SearchOptions};

/// The most closes of one session that run in the background.
const CLOSE_COUNT_MAX: usize = 32;

/// One client of a server.
pub(crate) struct Session {
    lane: RefCell<ClientLane>,
    pub(crate) options: ConnectOptions,
    /// Closed files whose closes were not sent yet, oldest first. They are sent together with the next
    /// call that is not a walk's: that usually goes to the same server.
    closed: RefCell<VecDeque<File>>,
    /// Closes in the background, oldest first.
    closing: RefCell<VecDeque<(PendingAnswer, PathBuf)>>,
    /// Walks in progress.
    walk_count: Cell<usize>,
    /// The goodbye was begun.
    left: Cell<bool>,
    /// See [`crate::Volume::refuse_links`].
    pub(crate) refused_link_count: Cell<usize>,
}

impl Session {
    /// A session that is not connected yet. `mailbox`: for wakeups by other threads.
    pub(crate) fn new(options: &ConnectOptions, mailbox: Option<Mailbox>) -> Result<Self, Error> {
        let lane = RefCell::new(ClientLane::new(options, mailbox)?);
        Ok(Self {
            lane,
            options: options.clone(),
            closed: RefCell::default(),
            closing: RefCell::default(),
            walk_count: Cell::new(0),
            left: Cell::new(false),
            refused_link_count: Cell::new(0),
        })
    }

    /// Connects, with mutual proof of the secret, and waits for the Welcome.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        self.ping().await
    }

    /// Runs an operation to its end, on this thread.
    pub(crate) fn block_on<T>(&self, operation: impl Future<Output = T>) -> T {
        let mut operation = pin!(operation);
        // No waker is needed: each turn is followed by a poll.
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(outcome) = operation.as_mut().poll(&mut context) {
                return outcome;
            }
            self.turn();
        }
    }

    /// Sleeps until an event. False when there will be no further event: the ring failed.
    pub(crate) fn turn(&self) -> bool {
        let mut lane = self.lane.borrow_mut();
        while self.walk_count.get() == 0 && lane.has_space() {
            let Some(file) = self.closed.borrow_mut().pop_front() else { break };
            let answered = lane.begin(&Call::Close(file.handle));
            self.closing.borrow_mut().push_back((answered, file.path));
        }
        lane.turn()
    }

    /// Makes a call and waits for the answer.
    pub(crate) async fn call(
        &self,
        op: &'static str,
        path: &Path,
        call: &Call<'_>,
    ) -> Result<Reply, Error> {
        let answered = self.begin(call).await;
        self.end(op, path, answered).await
    }

    /// Begins a call, as soon as fewer than the maximum are in flight; [`Self::end`] waits for its
    /// answer.
    pub(crate) async fn begin(&self, call: &Call<'_>) -> PendingAnswer {
        if !matches!(call, Call::Resolve(_)) {
            self.send_closes().await;
        }
        self.begin_alone(call).await
    }

    async fn begin_alone(&self, call: &Call<'_>) -> PendingAnswer {
        loop {
            let permit = self.lane.borrow_mut().permit();
            match permit {
                None => return self.lane.borrow_mut().begin(call),
                // Another caller may have been faster: checks again.
                Some(permit) => drop(permit.await),
            }
        }
    }

    /// Waits for the answer of a call.
    pub(crate) async fn end(
        &self,
        op: &'static str,
        path: &Path,
        answered: PendingAnswer,
    ) -> Result<Reply, Error> {
        let address = self.options.address;
        match answered.await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(Failure::Status(status))) => Err(refused(op, path, status)),
            Ok(Err(Failure::Refused(reason))) => Err(Error::Refused { address, reason }),
            Ok(Err(Failure::Ring(kind, text))) => Err(Error::Ring(io::Error::new(kind, text))),
            Ok(Err(Failure::Away { busy })) => Err(Error::Unreachable { address, busy }),
            // The lane was dropped.
            Err(oneshot::Canceled) => Err(Error::Unreachable { address, busy: false }),
        }
    }

    /// Copies bytes to a buffer of the ring; [`Self::release`] releases it.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Bulk, Error> {
        self.lane.borrow_mut().put(bytes)
    }

    pub(crate) fn release(&self, bulk: Bulk) {
        self.lane.borrow_mut().release(bulk);
    }

    /// Closes a file in the background; waits while there are too many. An error is an earlier
    /// close's.
    pub(crate) async fn close(&self, file: File) -> Result<(), Error> {
        self.closed.borrow_mut().push_back(file);
        if self.closed.borrow().len() >= CLOSE_COUNT_MAX {
            self.send_closes().await;
        }
        self.reap_closes(CLOSE_COUNT_MAX).await
    }

    async fn send_closes(&self) {
        loop {
            let Some(file) = self.closed.borrow_mut().pop_front() else { return };
            let answered = self.begin_alone(&Call::Close(file.handle)).await;
            self.closing.borrow_mut().push_back((answered, file.path));
        }
    }

    /// Waits until at most `pending_count` closes are in flight; returns the first error of the
    /// others.
    pub(crate) async fn reap_closes(&self, pending_count: usize) -> Result<(), Error> {
        let mut outcome = Ok(());
        if pending_count == 0 {
            self.send_closes().await;
        }
        loop {
            let oldest = {
                let mut closing = self.closing.borrow_mut();
                if closing.len() > pending_count { closing.pop_front() } else { None }
            };
            let Some((answered, path)) = oldest else { return outcome };
            let closed = self.end("close", &path, answered).await.map(drop);
            outcome = outcome.and(closed);
        }
    }

    /// Waits until all changes are durable, and ends the sessions at the server.
    pub(crate) async fn leave(&self) -> Result<(), Error> {
        if self.left.replace(true) {
            return Ok(());
        }
        let synced = self.sync().await;
        if matches!(synced, Ok(()) | Err(Error::Op { .. })) {
            // If it fails, the server retains the session for a while, which is harmless.
            drop(self.call("goodbye", Path::new("/"), &Call::Goodbye).await);
        }
        synced
    }

    /// As [`Self::leave`], but an absent server is given up soon, and errors are ignored.
    pub(crate) async fn leave_soon(&self) {
        self.lane.borrow_mut().shorten_timeout();
        drop(self.leave().await);
    }

    pub(crate) fn are_ids_replaced(&self) -> bool {
        self.lane.borrow().are_ids_replaced()
    }

    pub(crate) fn is_root_trusted(&self) -> bool {
        self.lane.borrow().is_root_trusted()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.lane.borrow().is_read_only()
    }

    pub(crate) fn server_time_ns(&self) -> Option<u64> {
        self.lane.borrow().server_time_ns()
    }

    /// The export's root inode.
    pub(crate) fn root(&self) -> InodeNo {
        self.lane.borrow().root().unwrap_or(InodeNo::ROOT)
    }

    pub(crate) fn map(&self) -> Option<Map> {
        self.lane.borrow().map().cloned()
    }

    pub(crate) fn take_reports(&self) -> Vec<client::Report> {
        self.lane.borrow_mut().take_reports()
    }
}

pub(crate) fn refused(op: &'static str, path: &Path, status: Status) -> Error {
    Error::Op { op, path: path.to_path_buf(), status }
}

/// The client gave an answer of the wrong kind.
pub(crate) fn broken(op: &'static str, path: &Path) -> Error {
    refused(op, path, Status::Protocol)
}
