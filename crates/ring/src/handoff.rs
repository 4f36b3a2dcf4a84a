//! Ways to pass numbers to another thread and wake it, to measure the cost of each.
//!
//! The numbers go through the kind of queue that lanes use; the ways differ in how the other thread
//! sleeps and is woken. Only benchmarks use this. Invariant: a woken thread sees all items that
//! were sent before the wakeup.
//!
//! ```text
//! send: push, push, ... then one wakeup          receive: pop all ─▶ enough? else sleep, again
//! ```

use crate::mailbox::{Mailbox, Mesh, QueuedMessage};
use interface::MountMessage;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, retry_on_intr};
use rustix::thread::futex;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of items in flight in one direction.
pub const ITEM_COUNT_MAX: usize = 1024;

/// How the receiving thread waits and is woken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wake {
    /// It polls and is not woken.
    Spin,
    /// It sleeps on a futex; every send wakes it.
    Futex,
    /// It sleeps in a read of an eventfd; every send writes to it.
    Eventfd,
    /// It sleeps in its io_uring; every send posts a message from the sender's ring to it.
    MsgRing,
    /// The lanes' mailbox: the receiver sets a sleep flag, and an eventfd is written only if it is
    /// set.
    Mailbox,
}

/// Makes an [`End`] on the thread that will use it.
pub struct EndBuilder(EndPlan);

enum EndPlan {
    Queue { to: Producer<u64>, from: Consumer<u64>, wakeup: WakeupPlan },
    Mailbox(Box<Mailbox>),
}

enum WakeupPlan {
    Ready(Wakeup),
    /// A ring belongs to its thread, so the descriptors are exchanged once both rings exist.
    MsgRing {
        ring_fd_to: Sender<OwnedFd>,
        ring_fd_from: Receiver<OwnedFd>,
    },
}

/// In cache lines of its own.
#[repr(align(128))]
struct FutexWord(AtomicU32);

enum Wakeup {
    Spin,
    Futex { mine: Arc<FutexWord>, theirs: Arc<FutexWord> },
    Eventfd { mine: Arc<OwnedFd>, theirs: Arc<OwnedFd> },
    MsgRing { mine: Box<IoUring<squeue::Entry, cqueue::Entry>>, theirs: OwnedFd },
}

/// Two connected ends.
///
/// # Errors
/// When the process has no descriptors left.
pub fn pair(wake: Wake) -> io::Result<[EndBuilder; 2]> {
    if wake == Wake::Mailbox {
        let mailboxes = Mesh::mailboxes(2)?
            .into_iter()
            .map(|mailbox| EndBuilder(EndPlan::Mailbox(Box::new(mailbox))));
        let mailboxes: Result<[EndBuilder; 2], _> = mailboxes.collect::<Vec<_>>().try_into();
        return mailboxes.map_err(|_| io::Error::other("two lanes have two mailboxes"));
    }
    let (to_second, from_first) = RingBuffer::new(ITEM_COUNT_MAX);
    let (to_first, from_second) = RingBuffer::new(ITEM_COUNT_MAX);
    let [first, second] = wakeups(wake)?;
    Ok([
        EndBuilder(EndPlan::Queue { to: to_second, from: from_second, wakeup: first }),
        EndBuilder(EndPlan::Queue { to: to_first, from: from_first, wakeup: second }),
    ])
}

fn wakeups(wake: Wake) -> io::Result<[WakeupPlan; 2]> {
    Ok(match wake {
        Wake::Spin | Wake::Mailbox => [Wakeup::Spin, Wakeup::Spin].map(WakeupPlan::Ready),
        Wake::Futex => {
            let words = [0, 0].map(|start| Arc::new(FutexWord(AtomicU32::new(start))));
            let [first, second] = words.clone();
            let [mine, theirs] = words;
            [Wakeup::Futex { mine, theirs }, Wakeup::Futex { mine: second, theirs: first }]
                .map(WakeupPlan::Ready)
        }
        Wake::Eventfd => {
            let first = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
            let second = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
            let other = Wakeup::Eventfd { mine: Arc::clone(&second), theirs: Arc::clone(&first) };
            [Wakeup::Eventfd { mine: first, theirs: second }, other].map(WakeupPlan::Ready)
        }
        Wake::MsgRing => {
            let (to_second, second_from) = channel();
            let (to_first, first_from) = channel();
            [
                WakeupPlan::MsgRing { ring_fd_to: to_second, ring_fd_from: first_from },
                WakeupPlan::MsgRing { ring_fd_to: to_first, ring_fd_from: second_from },
            ]
        }
    })
}

impl EndBuilder {
    /// Makes the end, on the thread that will use it. With [`Wake::MsgRing`] it waits until the
    /// other end is made.
    ///
    /// # Errors
    /// When the kernel refuses a ring, or the other end was dropped.
    pub fn start(self) -> io::Result<End> {
        Ok(End(match self.0 {
            EndPlan::Mailbox(mailbox) => Link::Mailbox(mailbox),
            EndPlan::Queue { to, from, wakeup: WakeupPlan::Ready(wakeup) } => {
                Link::Queue { to, from, wakeup }
            }
            EndPlan::Queue {
                to,
                from,
                wakeup: WakeupPlan::MsgRing { ring_fd_to, ring_fd_from },
            } => {
                let mine =
                    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(8)?;
                // SAFETY: the ring is alive, and so is its descriptor.
                let descriptor = unsafe { BorrowedFd::borrow_raw(mine.as_raw_fd()) };
                let dropped = || io::Error::other("the other end was dropped");
                ring_fd_to.send(descriptor.try_clone_to_owned()?).map_err(|_| dropped())?;
                let theirs = ring_fd_from.recv().map_err(|_| dropped())?;
                Link::Queue { to, from, wakeup: Wakeup::MsgRing { mine: Box::new(mine), theirs } }
            }
        }))
    }
}

/// The end of one of the two threads.
pub struct End(Link);

enum Link {
    Queue { to: Producer<u64>, from: Consumer<u64>, wakeup: Wakeup },
    Mailbox(Box<Mailbox>),
}

impl End {
    /// Sends items and wakes the other thread.
    ///
    /// # Errors
    /// When the wakeup fails.
    ///
    /// # Panics
    /// When more than [`ITEM_COUNT_MAX`] items would be in flight.
    pub fn send(&mut self, items: &[u64]) -> io::Result<()> {
        match &mut self.0 {
            Link::Queue { to, wakeup, .. } => {
                for item in items {
                    assert!(to.push(*item).is_ok(), "{ITEM_COUNT_MAX} items are under way");
                }
                wakeup.wake()
            }
            Link::Mailbox(mailbox) => {
                let other = 1 - usize::from(mailbox.lane().0);
                for item in items {
                    mailbox.send(
                        other,
                        QueuedMessage::Mount(MountMessage::Interrupt { unique: *item }),
                    );
                }
                assert!(!mailbox.is_waiting(), "{ITEM_COUNT_MAX} items are under way");
                mailbox.wake_readers();
                Ok(())
            }
        }
    }

    /// Receives until `items` holds `item_count`, sleeping while there are none.
    ///
    /// # Errors
    /// When the sleep fails.
    pub fn receive(&mut self, items: &mut Vec<u64>, item_count: usize) -> io::Result<()> {
        loop {
            match &mut self.0 {
                Link::Queue { from, wakeup, .. } => {
                    let seen = wakeup.observe();
                    items.extend(std::iter::from_fn(|| from.pop().ok()));
                    if items.len() >= item_count {
                        return Ok(());
                    }
                    wakeup.sleep(seen)?;
                }
                Link::Mailbox(mailbox) => {
                    mailbox.read(ITEM_COUNT_MAX, |_, message| match message {
                        QueuedMessage::Mount(MountMessage::Interrupt { unique }) => {
                            items.push(unique)
                        }
                        QueuedMessage::Mount(_)
                        | QueuedMessage::Peer(_)
                        | QueuedMessage::Socket { .. }
                        | QueuedMessage::Relayed(_)
                        | QueuedMessage::RegisterKernelQueues => {}
                    });
                    if items.len() >= item_count {
                        return Ok(());
                    }
                    if mailbox.fall_asleep() {
                        wait_for_event(mailbox.event())?;
                        mailbox.wake_up();
                    }
                }
            }
        }
    }
}

fn wait_for_event(event: BorrowedFd<'_>) -> io::Result<()> {
    retry_on_intr(|| rustix::io::read(event, &mut [0_u8; 8]))?;
    Ok(())
}

/// User data of messages sent; they complete only if they fail.
const SENT: u64 = 1;
/// User data of messages received.
const RECEIVED: u64 = 2;

impl Wakeup {
    /// The state that must be unchanged when this end goes to sleep; read before the queue is
    /// checked.
    fn observe(&self) -> u32 {
        match self {
            Self::Futex { mine, .. } => mine.0.load(Ordering::Acquire),
            Self::Spin | Self::Eventfd { .. } | Self::MsgRing { .. } => 0,
        }
    }

    fn wake(&mut self) -> io::Result<()> {
        match self {
            Self::Spin => {}
            Self::Futex { theirs, .. } => {
                theirs.0.fetch_add(1, Ordering::Release);
                futex::wake(&theirs.0, futex::Flags::PRIVATE, 1)?;
            }
            Self::Eventfd { theirs, .. } => {
                rustix::io::write(&**theirs, &1_u64.to_ne_bytes())?;
            }
            Self::MsgRing { mine, theirs } => {
                let message = opcode::MsgRingData::new(Fd(theirs.as_raw_fd()), 0, RECEIVED, None)
                    .build()
                    .flags(squeue::Flags::SKIP_SUCCESS)
                    .user_data(SENT);
                // SAFETY: the message refers to no memory, and its ring's descriptor is owned.
                let pushed = unsafe { mine.submission().push(&message) };
                pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
                mine.submit()?;
            }
        }
        Ok(())
    }

    fn sleep(&mut self, seen: u32) -> io::Result<()> {
        match self {
            Self::Spin => std::hint::spin_loop(),
            Self::Futex { mine, .. } => {
                match futex::wait(&mine.0, futex::Flags::PRIVATE, seen, None) {
                    Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Self::Eventfd { mine, .. } => {
                retry_on_intr(|| rustix::io::read(&**mine, &mut [0_u8; 8]))?;
            }
            Self::MsgRing { mine, .. } => {
                match mine.submit_and_wait(1) {
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                    Ok(_) | Err(_) => {}
                }
                for entry in mine.completion() {
                    if entry.user_data() == SENT {
                        return Err(io::Error::from_raw_os_error(-entry.result()));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::driver::{DriverChoice, DriverKind};
    use crate::number::usize_of;

    /// `rounds` exchanges of `item_count` items each; returns the sum of the replies.
    fn exchange(wake: Wake, rounds: u64, item_count: u64) -> u64 {
        let [here, there] = pair(wake).unwrap();
        let answering = std::thread::spawn(move || {
            let mut end = there.start().unwrap();
            let mut items = Vec::new();
            for _ in 0..rounds {
                items.clear();
                end.receive(&mut items, usize_of(item_count)).unwrap();
                let answers: Vec<u64> = items.iter().map(|item| item + 1).collect();
                end.send(&answers).unwrap();
            }
        });
        let mut end = here.start().unwrap();
        let mut sum = 0;
        for round in 0..rounds {
            let items: Vec<u64> = (0..item_count).map(|item| round + item).collect();
            end.send(&items).unwrap();
            let mut back = Vec::new();
            end.receive(&mut back, items.len()).unwrap();
            assert_eq!(back.len(), items.len());
            sum += back.iter().sum::<u64>();
        }
        answering.join().unwrap();
        sum
    }

    #[test]
    fn every_way_passes_all_items_and_always_wakes() {
        let mut wakes = vec![Wake::Futex, Wake::Eventfd, Wake::Mailbox, Wake::Spin];
        match DriverChoice::Only(DriverKind::IoUring).find() {
            Ok(_) => wakes.push(Wake::MsgRing),
            Err(_) => crate::driver::skip("handoff by ring message", "there is no io_uring"),
        }
        for wake in wakes {
            let rounds = if wake == Wake::Spin { 50 } else { 2000 };
            for item_count in [1, 64] {
                let sum: u64 = (0..rounds)
                    .flat_map(|round| (0..item_count).map(move |item| round + item + 1))
                    .sum();
                assert_eq!(exchange(wake, rounds, item_count), sum, "{wake:?} {item_count}");
            }
        }
    }

    #[test]
    fn an_end_fails_to_start_if_the_other_was_dropped() {
        let [here, there] = pair(Wake::MsgRing).unwrap();
        drop(there);
        assert!(here.start().is_err());
    }
}
