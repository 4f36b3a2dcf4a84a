//! The descriptors that epoll watches, and the operations that wait for them.
//!
//! Readiness is level-triggered, so calls of other code on a socket change nothing here. A
//! descriptor stays registered for reading between two receives, which saves a call per exchange,
//! until it is ready without a waiting reader. Invariants: a descriptor has at most one reader and
//! one writer; outdated readiness leads to an attempt that finds nothing, never to a completion; a
//! descriptor is forgotten before it is closed or handed over.

use super::{Completion, Op, Token};
use crate::number::{errno_of, usize_of};
use interface::Errno;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// Ready for reading; errors also count, so that a call finds out what they are.
const IN: EventFlags = EventFlags::IN;
const OUT: EventFlags = EventFlags::OUT;
const BROKEN: EventFlags = EventFlags::ERR.union(EventFlags::HUP);

/// An operation that waits until a descriptor is ready.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) token: Token,
    pub(super) op: Op,
    /// Bytes transferred so far.
    pub(super) moved_bytes: usize,
}

/// A descriptor's reader or writer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Reader,
    Writer,
}

#[derive(Default)]
struct Watch {
    /// Events registered with the kernel; `None`: the descriptor is not registered.
    registered: Option<EventFlags>,
    reader: Option<Waiting>,
    writer: Option<Waiting>,
    /// Lanes wait for the same file, and one is woken: a registration that cannot be modified, only
    /// removed.
    exclusive: bool,
    /// It was ready for reading without a waiting reader.
    unread: bool,
    /// The registration may be outdated.
    touched: bool,
}

impl Watch {
    /// The events to register.
    fn wanted(&self) -> Option<EventFlags> {
        let was_read =
            self.registered.is_some_and(|registered| registered.contains(IN)) && !self.unread;
        let mut wanted = EventFlags::empty();
        let reads = self.reader.is_some() || was_read;
        wanted.set(IN, reads);
        wanted.set(EventFlags::EXCLUSIVE, reads && self.exclusive);
        wanted.set(OUT, self.writer.is_some());
        (!wanted.is_empty()).then_some(wanted)
    }
}

/// All watches, by descriptor.
pub(super) struct Watches {
    epoll: OwnedFd,
    known: Vec<Watch>,
    touched: Vec<RawFd>,
    call_count: u64,
}

impl Watches {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, known: Vec::new(), touched: Vec::new(), call_count: 0 })
    }

    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// System calls made for watching.
    pub(super) const fn call_count(&self) -> u64 {
        self.call_count
    }

    /// Watches an eventfd that is never read: every write to it is one event.
    pub(super) fn watch_wakeup(&self, wakeup: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.epoll, wakeup, EventData::new_u64(data), flags)?)
    }

    /// Adds a waiting operation.
    pub(super) fn wait(&mut self, file: RawFd, side: Side, waiting: Waiting) {
        let place = self.place(file, side);
        assert!(place.is_none(), "a descriptor has one reader and one writer");
        *place = Some(waiting);
        self.known[index_of(file)].exclusive = matches!(waiting.op, Op::ReadRequest { .. });
        self.touch(file);
    }

    /// Takes out a waiting operation, if there is one.
    pub(super) fn take(&mut self, file: RawFd, side: Side) -> Option<Waiting> {
        let waiting = self.place(file, side).take();
        if waiting.is_some() && side == Side::Writer {
            // A socket is writable nearly always, so the registration must be removed.
            self.touch(file);
        }
        waiting
    }

    /// Puts back an operation that must wait on.
    pub(super) fn put_back(&mut self, file: RawFd, side: Side, waiting: Waiting) {
        *self.place(file, side) = Some(waiting);
    }

    /// Takes out an operation by its token.
    pub(super) fn find(&mut self, file: RawFd, token: Token) -> Option<Waiting> {
        [Side::Reader, Side::Writer].into_iter().find_map(|side| {
            let place = self.place(file, side);
            let is_it = place.is_some_and(|waiting| waiting.token == token);
            if is_it { self.take(file, side) } else { None }
        })
    }

    /// A descriptor is about to be closed or handed over.
    pub(super) fn forget(&mut self, file: RawFd) {
        let Some(watch) = self.known.get_mut(index_of(file)) else { return };
        let Watch { registered, reader, writer, .. } = std::mem::take(watch);
        assert!(
            reader.is_none() && writer.is_none(),
            "no operation waits on a forgotten descriptor"
        );
        if registered.is_some() {
            self.call_count += 1;
            // The descriptor is open, so this cannot fail; a closed one would not be registered.
            epoll::delete(&self.epoll, borrowed(file)).ok();
        }
    }

    /// A descriptor is ready: returns which of its operations may try.
    pub(super) fn on_ready(&mut self, file: RawFd, flags: EventFlags) -> [Option<Side>; 2] {
        let broken = flags.intersects(BROKEN);
        let Some(watch) = self.known.get_mut(index_of(file)) else { return [None; 2] };
        let reads = broken || flags.contains(IN);
        let writes = broken || flags.contains(OUT);
        if reads && watch.reader.is_none() {
            watch.unread = true;
            self.touch(file);
        }
        let watch = &self.known[index_of(file)];
        [
            (reads && watch.reader.is_some()).then_some(Side::Reader),
            (writes && watch.writer.is_some()).then_some(Side::Writer),
        ]
    }

    /// Updates registrations. An operation whose descriptor cannot be watched completes with the
    /// error.
    pub(super) fn settle(&mut self, mut answered: impl FnMut(Completion)) {
        let mut touched = std::mem::take(&mut self.touched);
        for file in touched.drain(..) {
            let watch = &mut self.known[index_of(file)];
            watch.touched = false;
            let wanted = watch.wanted();
            watch.unread = false;
            if wanted == watch.registered {
                continue;
            }
            self.call_count += 1;
            let (epoll, file_fd) = (self.epoll.as_fd(), borrowed(file));
            let data = EventData::new_u64(u64::from(file.unsigned_abs()));
            let registered = match (watch.registered, wanted) {
                (None, Some(wanted)) => epoll::add(epoll, file_fd, data, wanted),
                (Some(_), Some(wanted)) => epoll::modify(epoll, file_fd, data, wanted),
                (_, None) => epoll::delete(epoll, file_fd),
            };
            match registered {
                Ok(()) => watch.registered = wanted,
                Err(error) => {
                    let result = Err(errno_of(error));
                    let both = [watch.reader.take(), watch.writer.take()];
                    for Waiting { token, .. } in both.into_iter().flatten() {
                        answered(Completion { token, result, more: false });
                    }
                }
            }
        }
        self.touched = touched;
    }

    /// Removes all waiting operations; returns how many.
    pub(super) fn clear(&mut self) -> usize {
        let waiting = |watch: &mut Watch| {
            usize::from(watch.reader.take().is_some()) + usize::from(watch.writer.take().is_some())
        };
        self.known.iter_mut().map(waiting).sum()
    }

    fn touch(&mut self, file: RawFd) {
        let watch = &mut self.known[index_of(file)];
        if !std::mem::replace(&mut watch.touched, true) {
            self.touched.push(file);
        }
    }

    fn place(&mut self, file: RawFd, side: Side) -> &mut Option<Waiting> {
        let index = index_of(file);
        if index >= self.known.len() {
            self.known.resize_with(index + 1, Watch::default);
        }
        let watch = &mut self.known[index];
        match side {
            Side::Reader => &mut watch.reader,
            Side::Writer => &mut watch.writer,
        }
    }
}

/// The descriptor of an event.
pub(super) fn file_of(data: u64) -> RawFd {
    RawFd::try_from(data).unwrap_or(-1)
}

fn index_of(file: RawFd) -> usize {
    assert!(file >= 0, "what is watched is open");
    usize_of(u64::from(file.unsigned_abs()))
}

/// Borrows a descriptor for one epoll call.
fn borrowed<'f>(file: RawFd) -> BorrowedFd<'f> {
    // SAFETY: it is not -1, because it has an index; the operation's owner keeps it open while it
    // waits. If it were closed, the kernel would report that.
    unsafe { BorrowedFd::borrow_raw(file) }
}

/// Completes a cancelled operation: with its transferred bytes, or as cancelled.
pub(super) fn cancelled(waiting: Waiting) -> Completion {
    const CANCELLED: Errno = Errno(125);
    let Waiting { token, moved_bytes, .. } = waiting;
    let result = match moved_bytes {
        0 => Err(CANCELLED),
        moved_bytes => Ok(crate::number::u32_of(moved_bytes)),
    };
    Completion { token, result, more: false }
}
