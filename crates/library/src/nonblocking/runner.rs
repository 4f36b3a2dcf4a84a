//! The thread of a volume: it drives the session's ring and the operations that wait for it.
//!
//! ```text
//! future ── task ──▶ channel, waker ─▶ [thread: take tasks, poll operations, turn the ring] ──────┐
//!    ▲─────────────────────────── oneshot ────────────────────────────────────────────────────────┘
//! ```
//! Invariant: a task that was taken runs to its end, whether or not its caller still waits.

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
pub(super) type LocalSession = Rc<Session>;

/// An operation, for that thread.
type Task = Box<dyn FnOnce(LocalSession) -> LocalBoxFuture<'static, ()> + Send>;

enum Command {
    Run(Task),
    Leave(oneshot::Sender<Result<(), Error>>),
}

/// A volume's thread. It ends after it is dropped and no operation is in flight, or after a
/// goodbye.
pub(super) struct Runner {
    /// Taken to end the thread.
    commands: Option<Sender<Command>>,
    waker: Waker,
}

impl Runner {
    /// Starts the thread and its ring.
    pub(super) fn start(options: &ConnectOptions) -> Result<Self, Error> {
        let mailbox = Mesh::mailboxes(1).map_err(Error::Ring)?.pop();
        let mailbox = mailbox.ok_or_else(|| Error::Ring(io::Error::other("no mailbox")))?;
        let waker = mailbox.waker();
        let (commands, inbox) = channel();
        let options = options.clone();
        let thread = thread::Builder::new().name("lanefs volume".to_owned());
        let (result_sender, result) = std::sync::mpsc::sync_channel(1);
        let spawned = thread.spawn(move || match Session::new(&options, Some(mailbox)) {
            Ok(session) => {
                let _waited_for = result_sender.send(Ok(()));
                serve(&Rc::new(session), &inbox);
            }
            Err(error) => {
                let _waited_for = result_sender.send(Err(error));
            }
        });
        spawned.map_err(Error::Ring)?;
        // This does not wait for the server.
        result.recv().unwrap_or(Err(Error::Left))?;
        Ok(Self { commands: Some(commands), waker })
    }

    /// Runs an operation on the thread, and waits for its result.
    pub(super) async fn run<T, F, O>(&self, task: F) -> Result<T, Error>
    where
        F: FnOnce(LocalSession) -> O + Send + 'static,
        O: Future<Output = Result<T, Error>> + 'static,
        T: Send + 'static,
    {
        let (result_sender, result) = oneshot::channel();
        self.send(Command::Run(Box::new(move |session| {
            Box::pin(async move {
                // The caller may have given up waiting.
                drop(result_sender.send(task(session).await));
            })
        })));
        result.await.unwrap_or(Err(Error::Left))
    }

    /// Ends in order.
    pub(super) async fn leave(&self) -> Result<(), Error> {
        let (result_sender, result) = oneshot::channel();
        self.send(Command::Leave(result_sender));
        result.await.unwrap_or(Err(Error::Left))
    }

    fn send(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // If the thread has ended, the caller notices by the dropped sender.
            drop(commands.send(command));
            self.waker.wake();
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.commands = None;
        self.waker.wake();
    }
}

/// Why the thread ends.
enum End {
    /// All clones were dropped.
    Dropped,
    Left(oneshot::Sender<Result<(), Error>>),
}

/// The thread's loop: takes tasks, polls operations, and sleeps in the ring.
fn serve(session: &LocalSession, inbox: &Receiver<Command>) {
    let mut pool = LocalPool::new();
    let spawner = pool.spawner();
    let running_count = Rc::new(Cell::new(0_usize));
    let mut end = None;
    while end.is_none() || running_count.get() > 0 {
        while end.is_none() {
            match inbox.try_recv() {
                Ok(Command::Run(task)) => {
                    running_count.set(running_count.get() + 1);
                    let (ran, count) = (task(Rc::clone(session)), Rc::clone(&running_count));
                    let spawned: Result<(), SpawnError> = spawner.spawn_local(async move {
                        ran.await;
                        count.set(count.get() - 1);
                    });
                    assert!(spawned.is_ok(), "the pool is here");
                }
                Ok(Command::Leave(result_sender)) => end = Some(End::Left(result_sender)),
                Err(TryRecvError::Disconnected) => end = Some(End::Dropped),
                Err(TryRecvError::Empty) => break,
            }
        }
        pool.run_until_stalled();
        if (end.is_none() || running_count.get() > 0) && !session.turn() {
            // All operations have failed with the ring; this delivers their errors.
            pool.run_until_stalled();
            return;
        }
    }
    match end {
        // A later task is dropped, and its caller notices by that.
        Some(End::Left(result_sender)) => {
            drop(result_sender.send(session.block_on(session.leave())))
        }
        Some(End::Dropped) | None => session.block_on(session.leave_soon()),
    }
}
