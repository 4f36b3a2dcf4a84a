//! How lanes of one process write to each other, and how a sleeping lane is woken.
//!
//! Each ordered pair of lanes has a lock-free queue with one writer and one reader. A message that
//! does not fit stays with its sender, in order. Invariant: the reader sees a message sent before
//! it checked its queues, and is woken by one sent after it set its sleep flag: the reader sets the
//! flag and checks once more, the writer writes and checks the flag, both in one total order.

use crate::conn::{ToExecutor, ToProxy};
use interface::{ConnId, MountMessage};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use rustix::event::{EventfdFlags, eventfd};
use seal::Seal;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{LaneId, Map, Secrets, Wire as _};

/// Maximum of messages in a queue between two lanes.
pub(crate) const QUEUE_COUNT_MAX: usize = 1024;

/// Capacity of a queue; smaller where there are many pairs of lanes.
const fn queue_count(lane_count: usize) -> usize {
    if lane_count <= 8 { QUEUE_COUNT_MAX } else { 128 }
}

/// A message from lane to lane.
pub(crate) enum QueuedMessage {
    /// Between the lanes of a mount.
    Mount(MountMessage),
    /// Between the lanes of a server.
    Peer(Box<[u8]>),
    /// A connection that is handed over: its socket, its TLS state, and the only frame read from
    /// it.
    Socket { socket: OwnedFd, seal: Option<Box<Seal>>, hello: Box<[u8]> },
    /// Between rings: about a connection whose socket one lane has and whose requests the other
    /// executes.
    Relayed(Relayed),
    /// Between rings: the kernel accepted queues over io_uring; register yours.
    RegisterKernelQueues,
}

/// Between a connection's proxy lane, which has the socket, and its executing lane.
pub(crate) struct Relayed {
    /// The proxy lane's id of the connection.
    pub(crate) proxy_conn: ConnId,
    pub(crate) message: RelayedMessage,
}

/// About such a connection.
pub(crate) enum RelayedMessage {
    /// From the proxy lane.
    ToExecutor(ToExecutor),
    /// To the proxy lane.
    ToProxy(ToProxy),
}

/// New secrets for a lane; `taken` is dropped when the lane takes them.
struct SecretsUpdate {
    secrets: Option<Secrets>,
    taken: Option<Sender<Infallible>>,
}

/// A question of another thread to a lane, and where its answer goes.
pub(crate) struct Question {
    pub(crate) bytes: Vec<u8>,
    pub(crate) answer: Sender<Vec<u8>>,
}

/// The most questions that a lane has not taken.
const QUESTION_COUNT_MAX: usize = 64;

/// Locks; a poisoned lock is used, because every critical section leaves the data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What other threads signal to a lane.
struct LaneSignals {
    sleeping: AtomicBool,
    stop: AtomicBool,
    /// Another thread has something for this lane.
    notified: AtomicBool,
    /// The latest secrets that were set and not taken.
    secrets: Mutex<Option<SecretsUpdate>>,
    /// The latest map that was set and not taken, encoded.
    map: Mutex<Option<Vec<u8>>>,
    /// Not taken yet.
    questions: Mutex<Vec<Question>>,
    event: OwnedFd,
}

impl LaneSignals {
    /// Wakes the lane if it sleeps; returns whether it did.
    fn wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let asleep = self.sleeping.load(Ordering::Relaxed);
        let mine = asleep && self.sleeping.swap(false, Ordering::SeqCst);
        if mine {
            self.write_event();
        }
        mine
    }

    fn write_event(&self) {
        // Fails only if the counter is full, after 2^64 - 2 unread wakeups.
        rustix::io::write(&self.event, &1_u64.to_ne_bytes()).ok();
    }
}

/// Stops a lane, from any thread.
#[derive(Clone)]
pub struct Stopper {
    signals: Arc<[LaneSignals]>,
    lane: usize,
}

impl Stopper {
    /// The lane's core gets [`interface::Event::Stop`], once.
    pub fn stop(&self) {
        let signals = &self.signals[self.lane];
        signals.stop.store(true, Ordering::SeqCst);
        signals.write_event();
    }
}

/// Wakes a lane, from any thread.
#[derive(Clone)]
pub struct Waker {
    signals: Arc<[LaneSignals]>,
    lane: usize,
}

impl Waker {
    /// The lane takes a turn soon, whatever it waits for.
    pub fn wake(&self) {
        let signals = &self.signals[self.lane];
        signals.notified.store(true, Ordering::SeqCst);
        signals.wake();
    }

    /// The lane's core gets [`interface::Event::Secrets`] soon, instead of earlier ones that it has
    /// not taken. `taken` is dropped when the lane takes them: frames that arrive later are checked
    /// against them.
    pub fn set_secrets(&self, secrets: Option<Secrets>, taken: Option<Sender<Infallible>>) {
        let update = Some(SecretsUpdate { secrets, taken });
        *lock(&self.signals[self.lane].secrets) = update;
        self.wake();
    }

    /// The lane's core gets [`interface::Event::Map`] soon, instead of an earlier one that it has not
    /// taken.
    pub fn set_map(&self, map: &Map) {
        *lock(&self.signals[self.lane].map) = Some(map.to_bytes());
        self.wake();
    }

    /// The lane's core gets [`interface::Event::Asked`] soon; its answer is sent to `answer`, which is
    /// dropped without one when the lane ends or has too many questions.
    pub fn ask(&self, bytes: Vec<u8>, answer: Sender<Vec<u8>>) {
        let mut questions = lock(&self.signals[self.lane].questions);
        if questions.len() < QUESTION_COUNT_MAX {
            questions.push(Question { bytes, answer });
        }
        drop(questions);
        self.wake();
    }

    pub(crate) fn lane(&self) -> LaneId {
        LaneId(u16::try_from(self.lane).unwrap_or(u16::MAX))
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waker({})", self.lane)
    }
}

/// Makes the mailboxes of a process, one per lane.
#[derive(Debug)]
pub struct Mesh;

impl Mesh {
    /// Mailboxes for lanes 0 .. `lane_count`, which may be sent to their threads.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn mailboxes(lane_count: u16) -> io::Result<Vec<Mailbox>> {
        let lane_count = usize::from(lane_count);
        let mut signals = Vec::with_capacity(lane_count);
        for _ in 0..lane_count {
            let event = eventfd(0, EventfdFlags::CLOEXEC)?;
            signals.push(LaneSignals {
                sleeping: AtomicBool::new(false),
                stop: AtomicBool::new(false),
                notified: AtomicBool::new(false),
                secrets: Mutex::new(None),
                map: Mutex::new(None),
                questions: Mutex::new(Vec::new()),
                event,
            });
        }
        let signals: Arc<[LaneSignals]> = signals.into();
        let mut mailboxes: Vec<Mailbox> = (0..lane_count)
            .map(|lane| Mailbox {
                lane,
                signals: Arc::clone(&signals),
                outgoing: Vec::with_capacity(lane_count),
                incoming: Vec::with_capacity(lane_count),
                waiting_count: 0,
                in_count: 0,
                out_count: 0,
            })
            .collect();
        for from in 0..lane_count {
            for to in 0..lane_count {
                let (producer, consumer) = RingBuffer::new(queue_count(lane_count));
                mailboxes[from].outgoing.push(Outgoing {
                    queue: producer,
                    waiting: VecDeque::new(),
                    written: false,
                });
                mailboxes[to].incoming.push(consumer);
            }
        }
        Ok(mailboxes)
    }
}

struct Outgoing {
    queue: Producer<QueuedMessage>,
    /// Messages that did not fit.
    waiting: VecDeque<QueuedMessage>,
    /// Something was put into the queue since the last wakeup.
    written: bool,
}

/// One lane's mailbox.
pub struct Mailbox {
    lane: usize,
    signals: Arc<[LaneSignals]>,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Consumer<QueuedMessage>>,
    waiting_count: usize,
    in_count: u64,
    out_count: u64,
}

impl Mailbox {
    /// The lane it belongs to.
    #[must_use]
    pub fn lane(&self) -> LaneId {
        LaneId(u16::try_from(self.lane).unwrap_or(u16::MAX))
    }

    /// How many lanes there are.
    #[must_use]
    pub fn lane_count(&self) -> usize {
        self.signals.len()
    }

    /// Stops this lane.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { signals: Arc::clone(&self.signals), lane: self.lane }
    }

    /// Wakes this lane.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker { signals: Arc::clone(&self.signals), lane: self.lane }
    }

    /// Sends to a lane, which the next [`Self::wake_readers`] wakes.
    pub(crate) fn send(&mut self, to: usize, message: QueuedMessage) {
        self.out_count += u64::from(to != self.lane);
        let outgoing = &mut self.outgoing[to];
        if outgoing.waiting.is_empty() {
            outgoing.written = true;
            if let Err(PushError::Full(message)) = outgoing.queue.push(message) {
                outgoing.waiting.push_back(message);
                self.waiting_count += 1;
            }
        } else {
            outgoing.waiting.push_back(message);
            self.waiting_count += 1;
        }
    }

    /// Wakes every sleeping lane that was sent to; returns how many.
    pub(crate) fn wake_readers(&mut self) -> u64 {
        let mut woken_count = 0;
        for (to, outgoing) in self.outgoing.iter_mut().enumerate() {
            while let Some(message) = outgoing.waiting.pop_front() {
                if let Err(PushError::Full(message)) = outgoing.queue.push(message) {
                    outgoing.waiting.push_front(message);
                    break;
                }
                outgoing.written = true;
                self.waiting_count -= 1;
            }
            if std::mem::take(&mut outgoing.written) && self.signals[to].wake() {
                woken_count += 1;
            }
        }
        woken_count
    }

    /// Messages read from peer lanes so far.
    pub(crate) const fn in_count(&self) -> u64 {
        self.in_count
    }

    /// Messages sent to peer lanes so far.
    pub(crate) const fn out_count(&self) -> u64 {
        self.out_count
    }

    /// Whether messages wait here because a reader's queue is full.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting_count > 0
    }

    /// Sets the sleep flag. Returns whether the lane may sleep: there is nothing to read.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        self.signals[self.lane].sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let nothing = !self.has_pending();
        if !nothing {
            self.wake_up();
        }
        nothing
    }

    /// Whether there is something to read, or the lane was asked to stop.
    pub(crate) fn has_pending(&mut self) -> bool {
        let signals = &self.signals[self.lane];
        let signalled =
            signals.stop.load(Ordering::SeqCst) || signals.notified.load(Ordering::SeqCst);
        signalled || !self.incoming.iter().all(Consumer::is_empty)
    }

    /// Clears the sleep flag.
    pub(crate) fn wake_up(&self) {
        self.signals[self.lane].sleeping.store(false, Ordering::Relaxed);
    }

    /// Reads messages, at most `count_max` per lane.
    pub(crate) fn read(&mut self, count_max: usize, mut take: impl FnMut(LaneId, QueuedMessage)) {
        for (from, consumer) in self.incoming.iter_mut().enumerate() {
            let from = LaneId(u16::try_from(from).unwrap_or(u16::MAX));
            for _ in 0..count_max {
                let Ok(message) = consumer.pop() else { break };
                self.in_count += u64::from(usize::from(from.0) != self.lane);
                take(from, message);
            }
        }
    }

    /// Whether a stop was requested since the last call.
    pub(crate) fn take_stop(&self) -> bool {
        let stop = &self.signals[self.lane].stop;
        stop.load(Ordering::Relaxed) && stop.swap(false, Ordering::SeqCst)
    }

    /// Whether another thread signalled this lane since the last call.
    pub(crate) fn take_notified(&self) -> bool {
        let notified = &self.signals[self.lane].notified;
        notified.load(Ordering::Relaxed) && notified.swap(false, Ordering::SeqCst)
    }

    /// The secrets that were set since the last call; `Some(None)`: there are none.
    pub(crate) fn take_secrets(&self) -> Option<Option<Secrets>> {
        let SecretsUpdate { secrets, taken } = lock(&self.signals[self.lane].secrets).take()?;
        drop(taken);
        Some(secrets)
    }

    /// The map that was set since the last call, encoded.
    pub(crate) fn take_map(&self) -> Option<Vec<u8>> {
        lock(&self.signals[self.lane].map).take()
    }

    /// The questions since the last call.
    pub(crate) fn take_questions(&self) -> Vec<Question> {
        std::mem::take(&mut *lock(&self.signals[self.lane].questions))
    }

    /// The eventfd of wakeups; 8 bytes are read from it.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.signals[self.lane].event.as_fd()
    }
}
