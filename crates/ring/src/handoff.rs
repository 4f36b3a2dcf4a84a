//! Ways to hand numbers to another thread and wake it, for measuring what each costs.
//!
//! The numbers go through the queue that lanes write to each other through; what differs is how
//! the other thread sleeps and is woken. Nothing but benchmarks uses it. Invariant: what was
//! handed over before a wake-up is seen by whoever is woken by it.
//!
//! ```text
//! send: push, push, ... then one wake-up         receive: pop all ─▶ enough? else sleep, again
//! ```

use crate::mailbox::{Letter, Mesh, Post};
use interface::LaneMessage;
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

/// Most items that may be under way in one direction.
pub const ITEM_COUNT_MAX: usize = 1024;

/// How the other thread waits and is woken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wake {
    /// It looks again and again, and is not woken.
    Spin,
    /// It sleeps on a futex; every hand-over wakes.
    Futex,
    /// It sleeps in a read of an eventfd; every hand-over writes to it.
    Eventfd,
    /// It sleeps in its io_uring; every hand-over sends it a message from one's own.
    MsgRing,
    /// The mailbox of lanes: it says that it sleeps, and only then an eventfd is written to.
    Mailbox,
}

/// What becomes an [`End`] on its thread.
pub struct Seed(Planned);

enum Planned {
    Queue { to: Producer<u64>, from: Consumer<u64>, bell: PlannedBell },
    Mailbox(Box<Post>),
}

enum PlannedBell {
    Ready(Bell),
    /// A ring belongs to its thread; where messages go is told once it is there.
    MsgRing {
        tell: Sender<OwnedFd>,
        hear: Receiver<OwnedFd>,
    },
}

/// Alone in its cache lines.
#[repr(align(128))]
struct Word(AtomicU32);

enum Bell {
    Spin,
    Futex { mine: Arc<Word>, theirs: Arc<Word> },
    Eventfd { mine: Arc<OwnedFd>, theirs: Arc<OwnedFd> },
    MsgRing { mine: Box<IoUring<squeue::Entry, cqueue::Entry>>, theirs: OwnedFd },
}

/// Two ends that hand each other items.
///
/// # Errors
/// When the process has no descriptors left.
pub fn pair(wake: Wake) -> io::Result<[Seed; 2]> {
    if wake == Wake::Mailbox {
        let posts = Mesh::posts(2)?.into_iter().map(|post| Seed(Planned::Mailbox(Box::new(post))));
        let posts: Result<[Seed; 2], _> = posts.collect::<Vec<_>>().try_into();
        return posts.map_err(|_| io::Error::other("two lanes have two mailboxes"));
    }
    let (to_second, from_first) = RingBuffer::new(ITEM_COUNT_MAX);
    let (to_first, from_second) = RingBuffer::new(ITEM_COUNT_MAX);
    let [first, second] = bells(wake)?;
    Ok([
        Seed(Planned::Queue { to: to_second, from: from_second, bell: first }),
        Seed(Planned::Queue { to: to_first, from: from_first, bell: second }),
    ])
}

fn bells(wake: Wake) -> io::Result<[PlannedBell; 2]> {
    Ok(match wake {
        Wake::Spin | Wake::Mailbox => [Bell::Spin, Bell::Spin].map(PlannedBell::Ready),
        Wake::Futex => {
            let words = [0, 0].map(|start| Arc::new(Word(AtomicU32::new(start))));
            let [first, second] = words.clone();
            let [mine, theirs] = words;
            [Bell::Futex { mine, theirs }, Bell::Futex { mine: second, theirs: first }]
                .map(PlannedBell::Ready)
        }
        Wake::Eventfd => {
            let first = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
            let second = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
            let other = Bell::Eventfd { mine: Arc::clone(&second), theirs: Arc::clone(&first) };
            [Bell::Eventfd { mine: first, theirs: second }, other].map(PlannedBell::Ready)
        }
        Wake::MsgRing => {
            let (tell_second, second_hears) = channel();
            let (tell_first, first_hears) = channel();
            [
                PlannedBell::MsgRing { tell: tell_second, hear: first_hears },
                PlannedBell::MsgRing { tell: tell_first, hear: second_hears },
            ]
        }
    })
}

impl Seed {
    /// Makes the end, on the thread that will use it. With [`Wake::MsgRing`] it waits until the
    /// other end is made, too.
    ///
    /// # Errors
    /// When the kernel has no ring for it, or the other end was dropped.
    pub fn start(self) -> io::Result<End> {
        Ok(End(match self.0 {
            Planned::Mailbox(post) => Way::Mailbox(post),
            Planned::Queue { to, from, bell: PlannedBell::Ready(bell) } => {
                Way::Queue { to, from, bell }
            }
            Planned::Queue { to, from, bell: PlannedBell::MsgRing { tell, hear } } => {
                let mine =
                    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(8)?;
                // SAFETY: the ring is alive, and so is its descriptor.
                let descriptor = unsafe { BorrowedFd::borrow_raw(mine.as_raw_fd()) };
                let gone = || io::Error::other("the other end was dropped");
                tell.send(descriptor.try_clone_to_owned()?).map_err(|_| gone())?;
                let theirs = hear.recv().map_err(|_| gone())?;
                Way::Queue { to, from, bell: Bell::MsgRing { mine: Box::new(mine), theirs } }
            }
        }))
    }
}

/// One of two threads' end.
pub struct End(Way);

enum Way {
    Queue { to: Producer<u64>, from: Consumer<u64>, bell: Bell },
    Mailbox(Box<Post>),
}

impl End {
    /// Hands items over and wakes the other thread.
    ///
    /// # Errors
    /// When it cannot be woken.
    ///
    /// # Panics
    /// When more than [`ITEM_COUNT_MAX`] items would be under way.
    pub fn send(&mut self, items: &[u64]) -> io::Result<()> {
        match &mut self.0 {
            Way::Queue { to, bell, .. } => {
                for item in items {
                    assert!(to.push(*item).is_ok(), "{ITEM_COUNT_MAX} items are under way");
                }
                bell.wake()
            }
            Way::Mailbox(post) => {
                let other = 1 - usize::from(post.lane().0);
                for item in items {
                    post.send(other, Letter::Mail(LaneMessage::Interrupt { unique: *item }));
                }
                assert!(!post.is_waiting(), "{ITEM_COUNT_MAX} items are under way");
                post.wake_readers();
                Ok(())
            }
        }
    }

    /// Takes items until `items` holds `item_count`, and sleeps whenever there are none.
    ///
    /// # Errors
    /// When it cannot sleep.
    pub fn receive(&mut self, items: &mut Vec<u64>, item_count: usize) -> io::Result<()> {
        loop {
            match &mut self.0 {
                Way::Queue { from, bell, .. } => {
                    let seen = bell.look();
                    items.extend(std::iter::from_fn(|| from.pop().ok()));
                    if items.len() >= item_count {
                        return Ok(());
                    }
                    bell.sleep(seen)?;
                }
                Way::Mailbox(post) => {
                    post.read(ITEM_COUNT_MAX, |_, letter| match letter {
                        Letter::Mail(LaneMessage::Interrupt { unique }) => items.push(unique),
                        Letter::Mail(_)
                        | Letter::Words(_)
                        | Letter::Socket { .. }
                        | Letter::Relayed(_)
                        | Letter::RegisterKernelQueues => {}
                    });
                    if items.len() >= item_count {
                        return Ok(());
                    }
                    if post.fall_asleep() {
                        wait_for_event(post.event())?;
                        post.wake_up();
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

/// Marks messages that were sent, should they fail.
const SENT: u64 = 1;
/// Marks messages that came.
const CAME: u64 = 2;

impl Bell {
    /// What must not have changed when it goes to sleep; to be asked before the queue is looked at.
    fn look(&self) -> u32 {
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
                let message = opcode::MsgRingData::new(Fd(theirs.as_raw_fd()), 0, CAME, None)
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

    /// `rounds` exchanges of `item_count` items each; the sum of what came back.
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
    fn every_way_hands_everything_over_and_always_wakes() {
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
    fn an_end_whose_other_end_is_gone_says_so() {
        let [here, there] = pair(Wake::MsgRing).unwrap();
        drop(there);
        assert!(here.start().is_err());
    }
}
