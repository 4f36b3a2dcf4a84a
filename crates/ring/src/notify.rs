//! Notifies, by which a lane makes the kernel drop something from its caches.
//!
//! Some cannot wait: the lane writes them itself. The others wait within the kernel for requests
//! that this very lane may have to answer. Two threads write them: one those about names, one those
//! about contents, so that a read that takes long holds up no name. A thread begins with its first
//! notify and ends with the lane; nothing waits for its end.
//!
//! Invariant: a lane writes no notify that can wait.

use crate::abi::{NOTIFY_INC_EPOCH, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, OUT_HEADER_BYTES};
use crate::io_context::IoContext;
use crate::mailbox::Waker;
use crate::mount_table::MountsBelow;
use crate::number::u32_of;
use interface::{Errno, Event, KernelEvent, KernelNotify, Ticket};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

const BUSY: Errno = Errno(16);
const IO: Errno = Errno(5);
/// `FUSE_EXPIRE_ONLY`, Linux 6.2 and later.
const EXPIRE_ONLY: u32 = 1;
/// The offset that means: attributes only.
const NO_PAGES: i64 = -1;

type Outcome = (Ticket, Result<(), Errno>);

/// A lane's notifies.
pub(crate) struct Notifier {
    device: Arc<OwnedFd>,
    waker: Waker,
    names: Option<Sender<(Ticket, Vec<u8>)>>,
    contents: Option<Sender<(Ticket, Vec<u8>)>>,
    outcome_sender: Sender<Outcome>,
    outcomes: Receiver<Outcome>,
    below: MountsBelow,
}

impl Notifier {
    pub(crate) fn new(device: OwnedFd, waker: Waker, below: MountsBelow) -> Self {
        let (outcome_sender, outcomes) = channel();
        let device = Arc::new(device);
        Self { device, waker, names: None, contents: None, outcome_sender, outcomes, below }
    }

    /// Begins a notify, whose outcome becomes an event.
    pub(crate) fn begin(&mut self, ticket: Ticket, notify: KernelNotify, io: &mut IoContext) {
        let begun = match notify {
            KernelNotify::Attributes { node } => {
                io.counters.syscall_count += 1;
                Err(write(&self.device, &inode_bytes(node, NO_PAGES)))
            }
            KernelNotify::AllNames | KernelNotify::Name { of_directory: true, .. }
                if self.below.is_any() =>
            {
                Err(Err(BUSY))
            }
            KernelNotify::AllNames => {
                io.counters.syscall_count += 1;
                Err(write(&self.device, &notify_bytes(NOTIFY_INC_EPOCH, &[])))
            }
            KernelNotify::Name { parent, name, of_directory: _ } => {
                let bytes = name_bytes(parent, io.arena.get(name), 0);
                self.hand_over(ticket, bytes, false).map_err(Err)
            }
            KernelNotify::ExpiredName { parent, name } => {
                let bytes = name_bytes(parent, io.arena.get(name), EXPIRE_ONLY);
                self.hand_over(ticket, bytes, false).map_err(Err)
            }
            KernelNotify::Contents { node } => {
                self.hand_over(ticket, inode_bytes(node, 0), true).map_err(Err)
            }
        };
        if let Err(result) = begun {
            io.events.push(Event::Kernel(KernelEvent::Notified { ticket, result }));
        }
    }

    /// Passes a notify to its thread.
    fn hand_over(&mut self, ticket: Ticket, bytes: Vec<u8>, contents: bool) -> Result<(), Errno> {
        let worker = if contents { &mut self.contents } else { &mut self.names };
        if worker.is_none() {
            let name = if contents { "notify contents" } else { "notify names" };
            let outcomes = self.outcome_sender.clone();
            let (device, waker) = (Arc::clone(&self.device), self.waker.clone());
            *worker = Some(start(name, device, waker, outcomes).map_err(|_| IO)?);
        }
        let sent = worker.as_ref().map(|worker| worker.send((ticket, bytes)));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(IO) }
    }

    /// The outcomes of notifies that threads have written become events.
    pub(crate) fn read_outcomes(&self, io: &mut IoContext) {
        for (ticket, result) in self.outcomes.try_iter() {
            io.events.push(Event::Kernel(KernelEvent::Notified { ticket, result }));
        }
    }
}

fn start(
    name: &str,
    device: Arc<OwnedFd>,
    waker: Waker,
    outcomes: Sender<Outcome>,
) -> io::Result<Sender<(Ticket, Vec<u8>)>> {
    let (sender, notifies) = channel::<(Ticket, Vec<u8>)>();
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        for (ticket, bytes) in notifies {
            let result = write(&device, &bytes);
            if outcomes.send((ticket, result)).is_err() {
                return; // The lane has ended.
            }
            waker.wake();
        }
    })?;
    Ok(sender)
}

fn write(device: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    let written = rustix::io::retry_on_intr(|| rustix::io::write(device, bytes));
    written.map(drop).map_err(|errno| Errno(u16::try_from(errno.raw_os_error()).unwrap_or(IO.0)))
}

/// `fuse_out_header` with a notify's code in place of the errno.
fn notify_bytes(code: i32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OUT_HEADER_BYTES + payload.len());
    bytes.extend(u32_of(OUT_HEADER_BYTES + payload.len()).to_ne_bytes());
    bytes.extend(code.to_ne_bytes());
    bytes.extend(0_u64.to_ne_bytes());
    bytes.extend(payload);
    bytes
}

/// `fuse_notify_inval_inode_out`; a length of 0 means all pages from the offset on.
fn inode_bytes(node: u64, offset: i64) -> Vec<u8> {
    let fields = [node, offset.cast_unsigned(), 0].map(u64::to_ne_bytes);
    notify_bytes(NOTIFY_INVAL_INODE, fields.as_flattened())
}

/// `fuse_notify_inval_entry_out` and a name, ended by NUL.
fn name_bytes(parent: u64, name: &[u8], flags: u32) -> Vec<u8> {
    let mut payload = Vec::with_capacity(16 + name.len() + 1);
    payload.extend(parent.to_ne_bytes());
    payload.extend(u32_of(name.len()).to_ne_bytes());
    payload.extend(flags.to_ne_bytes());
    payload.extend(name);
    payload.push(0);
    notify_bytes(NOTIFY_INVAL_ENTRY, &payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifies_are_encoded_as_the_kernel_reads_them() {
        let epoch = notify_bytes(NOTIFY_INC_EPOCH, &[]);
        let numbers = |parts: &[&[u8]]| parts.concat();
        let (header, zeros) = ([16_u32, 8].map(u32::to_ne_bytes), [0; 8]);
        assert_eq!(epoch, numbers(&[header.as_flattened(), &zeros]));

        let header = [40_u32, 2].map(u32::to_ne_bytes);
        let node = 77_u64.to_ne_bytes();
        let attributes = numbers(&[header.as_flattened(), &zeros, &node, &[0xff; 8], &zeros]);
        assert_eq!(inode_bytes(77, NO_PAGES), attributes);
        let contents = numbers(&[header.as_flattened(), &zeros, &node, &zeros, &zeros]);
        assert_eq!(inode_bytes(77, 0), contents);

        let header = [36_u32, 3].map(u32::to_ne_bytes);
        let lengths = [3_u32, 0].map(u32::to_ne_bytes);
        let parts: [&[u8]; 5] =
            [header.as_flattened(), &zeros, &node, lengths.as_flattened(), b"abc\0"];
        assert_eq!(name_bytes(77, b"abc", 0), numbers(&parts));
        let lengths = [3_u32, 1].map(u32::to_ne_bytes);
        let parts: [&[u8]; 5] =
            [header.as_flattened(), &zeros, &node, lengths.as_flattened(), b"abc\0"];
        assert_eq!(name_bytes(77, b"abc", EXPIRE_ONLY), numbers(&parts));
    }
}
