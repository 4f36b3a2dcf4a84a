//! Which descriptors epoll watches, for whom, and for what.
//!
//! Readiness is level-triggered: what is true is asked of the kernel each time, so calls that others make
//! on a socket change nothing here. A descriptor stays registered for reading between two receives, which
//! saves a call an exchange, and until it has_other without anybody waiting for it. Invariants: a descriptor has at most one
//! reader and one writer; a readiness that is out of date leads to an attempt that finds nothing, never
//! to an answer; before a descriptor is closed or given away it is forgotten.

use super::{Completion, Op, Token};
use crate::number::{errno_of, usize_of};
use interface::Errno;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// Ready for reading; also whatever ends a connection, so that a call finds out what it was.
const IN: EventFlags = EventFlags::IN;
const OUT: EventFlags = EventFlags::OUT;
const BROKEN: EventFlags = EventFlags::ERR.union(EventFlags::HUP);

/// Somebody waits until a descriptor is ready.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) token: Token,
    pub(super) op: Op,
    /// Done of it so far.
    pub(super) moved_bytes: usize,
}

/// Which of a descriptor's two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Reader,
    Writer,
}

#[derive(Default)]
struct Watch {
    /// What the kernel was asked to tell; `None`: it does not know the descriptor.
    registered: Option<EventFlags>,
    reader: Option<Waiting>,
    writer: Option<Waiting>,
    /// It was ready for reading and nobody waited for that.
    unread: bool,
    /// What is registered may not be what is wanted.
    touched: bool,
}

impl Watch {
    /// What the kernel shall tell from now on.
    fn wanted(&self) -> Option<EventFlags> {
        let was_read =
            self.registered.is_some_and(|registered| registered.contains(IN)) && !self.unread;
        let mut wanted = EventFlags::empty();
        wanted.set(IN, self.reader.is_some() || was_read);
        wanted.set(OUT, self.writer.is_some());
        (!wanted.is_empty()).then_some(wanted)
    }
}

/// All that is watched, by descriptor.
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

    /// System calls made for this.
    pub(super) const fn call_count(&self) -> u64 {
        self.call_count
    }

    /// Watches an eventfd that nobody reads: every write to it is registered once.
    pub(super) fn watch_wakeup(&self, wakeup: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.epoll, wakeup, EventData::new_u64(data), flags)?)
    }

    /// Somebody waits from now on.
    pub(super) fn wait(&mut self, file: RawFd, side: Side, waiting: Waiting) {
        let place = self.place(file, side);
        assert!(place.is_none(), "a descriptor has one reader and one writer");
        *place = Some(waiting);
        self.touch(file);
    }

    /// Takes out who waits, if somebody does.
    pub(super) fn take(&mut self, file: RawFd, side: Side) -> Option<Waiting> {
        let waiting = self.place(file, side).take();
        if waiting.is_some() && side == Side::Writer {
            // There is space nearly always: nobody shall be woken by it.
            self.touch(file);
        }
        waiting
    }

    /// Puts back who has to wait on.
    pub(super) fn put_back(&mut self, file: RawFd, side: Side, waiting: Waiting) {
        *self.place(file, side) = Some(waiting);
    }

    /// Takes out an operation by its name.
    pub(super) fn find(&mut self, file: RawFd, token: Token) -> Option<Waiting> {
        [Side::Reader, Side::Writer].into_iter().find_map(|side| {
            let place = self.place(file, side);
            let is_it = place.is_some_and(|waiting| waiting.token == token);
            if is_it { self.take(file, side) } else { None }
        })
    }

    /// A descriptor is about to be closed or given away.
    pub(super) fn forget(&mut self, file: RawFd) {
        let Some(watch) = self.known.get_mut(index_of(file)) else { return };
        let Watch { registered, reader, writer, .. } = std::mem::take(watch);
        assert!(reader.is_none() && writer.is_none(), "nobody waits for what is forgotten");
        if registered.is_some() {
            self.call_count += 1;
            // It is open, so this cannot fail; were it closed, there would be nothing to be taken out.
            epoll::delete(&self.epoll, borrowed(file)).ok();
        }
    }

    /// A descriptor is ready: which of its two may try.
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

    /// Tells the kernel what has changed. Who cannot be watched is answered with the reason.
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

    /// Nobody waits any more. Returns how many did.
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

/// Which descriptor an event is about.
pub(super) fn file_of(data: u64) -> RawFd {
    RawFd::try_from(data).unwrap_or(-1)
}

fn index_of(file: RawFd) -> usize {
    assert!(file >= 0, "what is watched is open");
    usize_of(u64::from(file.unsigned_abs()))
}

/// For one call of epoll's.
fn borrowed<'f>(file: RawFd) -> BorrowedFd<'f> {
    // SAFETY: it is not -1, or it had no index; whoever waits keeps it open, or it has been waited for until now. Were it
    // closed, the kernel would say so.
    unsafe { BorrowedFd::borrow_raw(file) }
}

/// Who was cancelled gets what was done of it, or is registered that it was.
pub(super) fn cancelled(waiting: Waiting) -> Completion {
    const CANCELLED: Errno = Errno(125);
    let Waiting { token, moved_bytes, .. } = waiting;
    let result = match moved_bytes {
        0 => Err(CANCELLED),
        moved_bytes => Ok(crate::number::u32_of(moved_bytes)),
    };
    Completion { token, result, more: false }
}
