//! The thread behind a volume: it drives the session's ring and the operations that wait for it.
//!
//! ```text
//! future ── order ─▶ channel, waker ─▶ [thread: take orders, poll what can go on, turn the ring] ─┐
//!    ▲─────────────────────────── oneshot ────────────────────────────────────────────────────────┘
//! ```
//! Invariant: an order that was taken is carried to its end, whoever still waits for it.

use crate::session::Session;
use crate::{ConnectOptions, Error};
use futures::channel::oneshot;
use futures::executor::LocalPool;
use futures::future::LocalBoxFuture;
use futures::task::{LocalSpawnExt as _, SpawnError};
use ring::{Mesh, Waker};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

/// The session, on its thread.
pub(super) type Here = Rc<Session>;

/// Something to be done there.
type Order = Box<dyn FnOnce(Here) -> LocalBoxFuture<'static, ()> + Send>;

enum Letter {
    Do(Order),
    Leave(oneshot::Sender<Result<(), Error>>),
}

/// A volume's thread. It ends when this is dropped and nothing is under way, or after a goodbye.
pub(super) struct Runner {
    /// Taken to end the thread.
    letters: Option<Sender<Letter>>,
    waker: Waker,
}

impl Runner {
    /// Starts the thread and its ring.
    pub(super) fn start(options: &ConnectOptions) -> Result<Self, Error> {
        let mailbox = Mesh::mailboxes(1).map_err(Error::Ring)?.pop();
        let mailbox = mailbox.ok_or_else(|| Error::Ring(io::Error::other("no mailbox")))?;
        let waker = mailbox.waker();
        let (letters, inbox) = channel();
        let options = options.clone();
        let thread = thread::Builder::new().name("lanefs volume".to_owned());
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let spawned = thread.spawn(move || match Session::new(&options, Some(mailbox)) {
            Ok(session) => {
                let _waited_for = tell.send(Ok(()));
                serve(&Rc::new(session), &inbox);
            }
            Err(error) => {
                let _waited_for = tell.send(Err(error));
            }
        });
        spawned.map_err(Error::Ring)?;
        // Soon: it makes a ring and asks nobody.
        told.recv().unwrap_or(Err(Error::Left))?;
        Ok(Self { letters: Some(letters), waker })
    }

    /// Has something done there, and waits for its outcome.
    pub(super) async fn run<T, F, O>(&self, order: F) -> Result<T, Error>
    where
        F: FnOnce(Here) -> O + Send + 'static,
        O: Future<Output = Result<T, Error>> + 'static,
        T: Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        self.send(Letter::Do(Box::new(move |session| {
            Box::pin(async move {
                // Who does not wait any more need not be told.
                drop(tell.send(order(session).await));
            })
        })));
        told.await.unwrap_or(Err(Error::Left))
    }

    /// Ends in order.
    pub(super) async fn leave(&self) -> Result<(), Error> {
        let (tell, told) = oneshot::channel();
        self.send(Letter::Leave(tell));
        told.await.unwrap_or(Err(Error::Left))
    }

    fn send(&self, letter: Letter) {
        if let Some(letters) = &self.letters {
            // Nobody takes it when the thread has ended; its sender sees that nobody answers.
            drop(letters.send(letter));
            self.waker.wake();
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.letters = None;
        self.waker.wake();
    }
}

/// How a thread ends.
enum End {
    /// Nobody can ask for anything any more.
    Dropped,
    Left(oneshot::Sender<Result<(), Error>>),
}

/// Until it ends: takes orders, polls what can go on, and sleeps in the ring.
fn serve(session: &Here, inbox: &Receiver<Letter>) {
    let mut pool = LocalPool::new();
    let spawner = pool.spawner();
    let running_count = Rc::new(Cell::new(0_usize));
    let mut end = None;
    while end.is_none() || running_count.get() > 0 {
        while end.is_none() {
            match inbox.try_recv() {
                Ok(Letter::Do(order)) => {
                    running_count.set(running_count.get() + 1);
                    let (ran, count) = (order(Rc::clone(session)), Rc::clone(&running_count));
                    let spawned: Result<(), SpawnError> = spawner.spawn_local(async move {
                        ran.await;
                        count.set(count.get() - 1);
                    });
                    assert!(spawned.is_ok(), "the pool is here");
                }
                Ok(Letter::Leave(tell)) => end = Some(End::Left(tell)),
                Err(TryRecvError::Disconnected) => end = Some(End::Dropped),
                Err(TryRecvError::Empty) => break,
            }
        }
        pool.run_until_stalled();
        if (end.is_none() || running_count.get() > 0) && !session.turn() {
            // All that ran has failed with the ring, and is told so.
            pool.run_until_stalled();
            return;
        }
    }
    match end {
        // Whoever comes later finds nobody.
        Some(End::Left(tell)) => drop(tell.send(session.block_on(session.leave()))),
        Some(End::Dropped) | None => session.block_on(session.leave_soon()),
    }
}
