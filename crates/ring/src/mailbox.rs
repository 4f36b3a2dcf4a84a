//! How lanes of one process write to each other, and how a sleeping lane is woken.
//!
//! Every ordered pair of lanes has a queue of its own with one writer and one reader, no lock.
//! What does not fit stays with its sender, in order. Invariant: a letter sent before its reader
//! looked is seen, and one sent after the reader said that it sleeps wakes it: the reader sets its
//! flag and looks once more, the writer writes and looks at the flag, both in one total order.

use crate::conn::{Said, Told};
use interface::{ConnId, LaneMessage};
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
use wire::{LaneId, Secrets};

/// Letters that a queue between two lanes holds at most.
pub(crate) const QUEUE_COUNT_MAX: usize = 1024;

/// Letters between two lanes that need no memory of the sender; fewer where the pairs are many.
const fn queue_count(lane_count: usize) -> usize {
    if lane_count <= 8 { QUEUE_COUNT_MAX } else { 128 }
}

/// What goes from lane to lane.
pub(crate) enum Letter {
    /// From core to core.
    Mail(LaneMessage),
    /// From core to core, more than fits a mail.
    Words(Box<[u8]>),
    /// A connection, its TLS, and the only frame that was read from it.
    Socket { socket: OwnedFd, seal: Option<Box<Seal>>, hello: Box<[u8]> },
    /// From ring to ring: of a connection that one has and the other is asked by.
    Relayed(Relayed),
    /// From ring to ring: the kernel has been told that its queues are welcome; register yours.
    RegisterKernelQueues,
}

/// What goes between the lane that has a connection's socket and the one that has its requests.
pub(crate) struct Relayed {
    /// What the former calls it.
    pub(crate) front: ConnId,
    pub(crate) word: Word,
}

/// Of such a connection.
pub(crate) enum Word {
    /// From the lane with the socket.
    Said(Said),
    /// To it.
    Told(Told),
}

/// Secrets for a lane; the sender is dropped when the lane takes them.
struct Delivery {
    secrets: Option<Secrets>,
    taken: Option<Sender<Infallible>>,
}

/// Nothing is ever left half done in there.
fn lock(secrets: &Mutex<Option<Delivery>>) -> MutexGuard<'_, Option<Delivery>> {
    secrets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What others need to know of a lane.
struct Bell {
    sleeping: AtomicBool,
    stop: AtomicBool,
    /// Another thread has something for this lane.
    news: AtomicBool,
    /// Of that, the secrets that were given last.
    secrets: Mutex<Option<Delivery>>,
    event: OwnedFd,
}

impl Bell {
    /// Wakes the lane if it sleeps.
    fn wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let asleep = self.sleeping.load(Ordering::Relaxed);
        let mine = asleep && self.sleeping.swap(false, Ordering::SeqCst);
        if mine {
            self.knock();
        }
        mine
    }

    fn knock(&self) {
        // Fails only when 2^64 - 2 knocks were not heard.
        rustix::io::write(&self.event, &1_u64.to_ne_bytes()).ok();
    }
}

/// Tells a lane from any thread that the process is asked to end.
#[derive(Clone)]
pub struct Stopper {
    bells: Arc<[Bell]>,
    lane: usize,
}

impl Stopper {
    /// The lane's core gets [`interface::Event::Stop`], once.
    pub fn stop(&self) {
        let bell = &self.bells[self.lane];
        bell.stop.store(true, Ordering::SeqCst);
        bell.knock();
    }
}

/// Tells a lane from any thread that there is something for it.
#[derive(Clone)]
pub struct Waker {
    bells: Arc<[Bell]>,
    lane: usize,
}

impl Waker {
    /// The lane takes a turn soon, whatever it waits for.
    pub fn wake(&self) {
        let bell = &self.bells[self.lane];
        bell.news.store(true, Ordering::SeqCst);
        bell.wake();
    }

    /// The lane's core gets [`interface::Event::Secrets`] soon, instead of earlier ones that it has not taken yet.
    /// `taken` is dropped when the lane takes them: frames that arrive later are checked against them.
    pub fn give_secrets(&self, secrets: Option<Secrets>, taken: Option<Sender<Infallible>>) {
        let delivery = Some(Delivery { secrets, taken });
        *lock(&self.bells[self.lane].secrets) = delivery;
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
    pub fn posts(lane_count: u16) -> io::Result<Vec<Post>> {
        let lane_count = usize::from(lane_count);
        let mut bells = Vec::with_capacity(lane_count);
        for _ in 0..lane_count {
            let event = eventfd(0, EventfdFlags::CLOEXEC)?;
            bells.push(Bell {
                sleeping: AtomicBool::new(false),
                stop: AtomicBool::new(false),
                news: AtomicBool::new(false),
                secrets: Mutex::new(None),
                event,
            });
        }
        let bells: Arc<[Bell]> = bells.into();
        let mut posts: Vec<Post> = (0..lane_count)
            .map(|lane| Post {
                lane,
                bells: Arc::clone(&bells),
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
                posts[from].outgoing.push(Outgoing {
                    queue: producer,
                    waiting: VecDeque::new(),
                    written: false,
                });
                posts[to].incoming.push(consumer);
            }
        }
        Ok(posts)
    }
}

struct Outgoing {
    queue: Producer<Letter>,
    /// What did not fit.
    waiting: VecDeque<Letter>,
    /// Something was put into the queue since the last wake-up.
    written: bool,
}

/// One lane's mailbox.
pub struct Post {
    lane: usize,
    bells: Arc<[Bell]>,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Consumer<Letter>>,
    waiting_count: usize,
    in_count: u64,
    out_count: u64,
}

impl Post {
    /// Whose it is.
    #[must_use]
    pub fn lane(&self) -> LaneId {
        LaneId(u16::try_from(self.lane).unwrap_or(u16::MAX))
    }

    /// How many lanes there are.
    #[must_use]
    pub fn lane_count(&self) -> usize {
        self.bells.len()
    }

    /// For stopping this lane from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { bells: Arc::clone(&self.bells), lane: self.lane }
    }

    /// For telling this lane from elsewhere that there is something for it.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker { bells: Arc::clone(&self.bells), lane: self.lane }
    }

    /// Writes to a lane; it is woken by the next [`Self::wake_readers`].
    pub(crate) fn send(&mut self, to: usize, letter: Letter) {
        self.out_count += u64::from(to != self.lane);
        let outgoing = &mut self.outgoing[to];
        if outgoing.waiting.is_empty() {
            outgoing.written = true;
            if let Err(PushError::Full(letter)) = outgoing.queue.push(letter) {
                outgoing.waiting.push_back(letter);
                self.waiting_count += 1;
            }
        } else {
            outgoing.waiting.push_back(letter);
            self.waiting_count += 1;
        }
    }

    /// Wakes every lane that was written to and sleeps; returns how many that were.
    pub(crate) fn wake_readers(&mut self) -> u64 {
        let mut woken_count = 0;
        for (to, outgoing) in self.outgoing.iter_mut().enumerate() {
            while let Some(letter) = outgoing.waiting.pop_front() {
                if let Err(PushError::Full(letter)) = outgoing.queue.push(letter) {
                    outgoing.waiting.push_front(letter);
                    break;
                }
                outgoing.written = true;
                self.waiting_count -= 1;
            }
            if std::mem::take(&mut outgoing.written) && self.bells[to].wake() {
                woken_count += 1;
            }
        }
        woken_count
    }

    /// Letters read from peer lanes so far.
    pub(crate) const fn in_count(&self) -> u64 {
        self.in_count
    }

    /// Letters written to peer lanes so far.
    pub(crate) const fn out_count(&self) -> u64 {
        self.out_count
    }

    /// Whether letters wait here for room at their reader.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting_count > 0
    }

    /// Says that this lane is about to sleep. Returns whether it may: nothing is there to be read.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        self.bells[self.lane].sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let nothing = !self.has_news();
        if !nothing {
            self.wake_up();
        }
        nothing
    }

    /// Whether there is something to be read, or the process was asked to end.
    pub(crate) fn has_news(&mut self) -> bool {
        let bell = &self.bells[self.lane];
        let called = bell.stop.load(Ordering::SeqCst) || bell.news.load(Ordering::SeqCst);
        called || !self.incoming.iter().all(Consumer::is_empty)
    }

    /// Says that this lane is up.
    pub(crate) fn wake_up(&self) {
        self.bells[self.lane].sleeping.store(false, Ordering::Relaxed);
    }

    /// Reads letters, at most `count_max` per lane.
    pub(crate) fn read(&mut self, count_max: usize, mut take: impl FnMut(LaneId, Letter)) {
        for (from, consumer) in self.incoming.iter_mut().enumerate() {
            let from = LaneId(u16::try_from(from).unwrap_or(u16::MAX));
            for _ in 0..count_max {
                let Ok(letter) = consumer.pop() else { break };
                self.in_count += u64::from(usize::from(from.0) != self.lane);
                take(from, letter);
            }
        }
    }

    /// Whether the process was asked to end since the last call.
    pub(crate) fn take_stop(&self) -> bool {
        let stop = &self.bells[self.lane].stop;
        stop.load(Ordering::Relaxed) && stop.swap(false, Ordering::SeqCst)
    }

    /// Whether another thread had something for this lane since the last call.
    pub(crate) fn take_news(&self) -> bool {
        let news = &self.bells[self.lane].news;
        news.load(Ordering::Relaxed) && news.swap(false, Ordering::SeqCst)
    }

    /// The secrets that another thread gave since the last call; `Some(None)`: it found none.
    pub(crate) fn take_secrets(&self) -> Option<Option<Secrets>> {
        let Delivery { secrets, taken } = lock(&self.bells[self.lane].secrets).take()?;
        drop(taken);
        Some(secrets)
    }

    /// Readable when somebody knocked; 8 bytes to be read.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.bells[self.lane].event.as_fd()
    }
}
