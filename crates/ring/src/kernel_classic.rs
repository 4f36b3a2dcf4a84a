//! FUSE over `/dev/fuse`: the driver reads a request when there is one, and writes a small reply with
//! the turn's other operations; writev(2) a large one at once. A lone FLUSH is replied to at once too:
//! a close goes on with a RELEASE, which then comes with what its process asks next.
//!
//! Beside queues over io_uring it brings little but FORGETs, one for each file that is removed, and nobody
//! waits for these: behind some, the lane looks again a moment later, and the kernel gives several together.
//!
//! The kernel wakes one lane for a request: each waits exclusively. A lane that has no buffer for a
//! request does not wait for one, so that another lane gets it. Invariant: a request's slot retains
//! the buffer of its WRITE data until the reply.

use crate::abi::{
    IN_HEADER_BYTES, InHeader, KERNEL_DATA_BYTES_MAX, OP_BATCH_FORGET, OP_FORGET, OP_INIT,
    OP_WRITE, WRITE_IN_BYTES, out_header,
};
use crate::buffer::BUFFER_BYTES_MAX;
use crate::driver::{Kind, Op, Token};
use crate::io_context::IoContext;
use crate::kernel::{Answer, Life};
use crate::number::u32_of;
use interface::{BufId, Bulk, Event, KernelEvent, KernelSlot, Mono, NO_MAC};
use rustix::io::Errno;
use slab::Slab;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use wire::Status;

/// Maximum of requests read in one turn.
const READ_COUNT_MAX: usize = 64;
/// The most wake-ups without a second read.
const PAUSE_COUNT_MAX: u32 = 63;
/// How long FORGETs may gather.
const REST_MS: u64 = 4;

/// The largest reply that is copied for the driver to write: a copy of more costs more than a call.
const COPIED_BYTES_MAX: usize = 8 * 1024;

struct Slot {
    unique: u64,
    is_init: bool,
    /// The data of a WRITE.
    buf: Option<BufId>,
}

/// A channel to the kernel.
pub(crate) struct Classic {
    device: OwnedFd,
    /// The driver is reading a request.
    armed: bool,
    /// The result of its read.
    arrived: Option<Result<u32, interface::Errno>>,
    /// The last turn has read as many requests as it may: there may be more.
    has_more: bool,
    /// There was no buffer to read into.
    starved: bool,
    /// The buffer for the next request.
    buf: Option<BufId>,
    slots: Slab<Slot>,
    /// Replies that the driver writes.
    replies: Slab<Vec<u8>>,
    /// Memory of written ones, for reuse.
    spare: Vec<Vec<u8>>,
    more: SecondReads,
    rest: Rest,
}

/// Whether the lane waits for requests.
#[derive(Debug)]
struct Rest {
    /// All other requests but FORGET, INTERRUPT and INIT come over queues.
    has_queues: bool,
    /// FORGETs were read: until when it does not wait for more.
    until: Option<Mono>,
}

impl Rest {
    /// A request was read. Returns whether a rest begins.
    fn begins(&mut self, request: &[u8], now: Mono) -> bool {
        let header = InHeader::read(request).filter(|_| self.has_queues);
        let begins = header.is_some_and(|it| matches!(it.opcode, OP_FORGET | OP_BATCH_FORGET));
        if begins {
            self.until = Some(now.after_ms(REST_MS));
        }
        begins
    }

    fn is_over(&mut self, now: Mono) -> bool {
        self.until = self.until.filter(|until| now < *until);
        self.until.is_none()
    }
}

/// Whether a wake-up reads on after its first request. A read that finds nothing costs a system
/// call; waiting again shows a further request too. So second reads become rare while they find
/// nothing. After a request that no caller waits for, as the RELEASE of a close, the lane always reads
/// on: its process goes on, and what it asks next belongs to the same turn.
#[derive(Default)]
struct SecondReads {
    /// Wake-ups without one, after the last that found nothing.
    pause_count: u32,
    /// Of those, still to come.
    left_count: u32,
}

impl SecondReads {
    const fn may_try(&mut self) -> bool {
        let may_try = self.left_count == 0;
        self.left_count = self.left_count.saturating_sub(1);
        may_try
    }

    fn on_tried(&mut self, found: bool) {
        self.pause_count = if found { 0 } else { (2 * self.pause_count + 1).min(PAUSE_COUNT_MAX) };
        self.left_count = self.pause_count;
    }
}

/// The result of a reply.
pub(crate) struct Replied {
    pub(crate) life: Life,
    /// It was a successful reply to INIT.
    pub(crate) opened: bool,
}

impl Classic {
    pub(crate) const fn new(device: OwnedFd, has_queues: bool) -> Self {
        Self {
            device,
            rest: Rest { has_queues, until: None },
            armed: false,
            arrived: None,
            has_more: false,
            starved: false,
            buf: None,
            slots: Slab::new(),
            replies: Slab::new(),
            spare: Vec::new(),
            more: SecondReads { pause_count: 0, left_count: 0 },
        }
    }

    pub(crate) fn arm(&mut self, io: &mut IoContext) {
        if self.armed || self.has_more || !self.rest.is_over(io.now.mono) {
            return;
        }
        let Some(buf) = self.take_buf(io) else { return };
        self.armed = true;
        let at = io.pool.at(buf, 0, BUFFER_BYTES_MAX);
        let (device, space_bytes) = (self.device.as_raw_fd(), u32_of(BUFFER_BYTES_MAX));
        let op = Op::ReadRequest { device, at, space_bytes };
        // SAFETY: the buffer is ours, and nothing touches it while the read is armed; the device
        // lives as long as the ring.
        unsafe { io.driver.queue(Token::new(Kind::KernelRead, 0), op) };
    }

    pub(crate) const fn on_read(&mut self, result: Result<u32, interface::Errno>) {
        self.armed = false;
        self.arrived = Some(result);
    }

    /// When the lane waits for requests again.
    pub(crate) const fn rests_until(&self) -> Option<Mono> {
        self.rest.until
    }

    pub(crate) const fn is_ready(&self) -> bool {
        self.has_more && !self.starved
    }

    pub(crate) const fn is_starved(&self) -> bool {
        self.starved
    }

    /// Buffers were released.
    pub(crate) const fn feed(&mut self) {
        self.starved = false;
    }

    /// The buffer for the next request.
    fn take_buf(&mut self, io: &mut IoContext) -> Option<BufId> {
        if self.buf.is_none() {
            self.buf = io.pool.take(BUFFER_BYTES_MAX);
            self.starved = self.buf.is_none();
        }
        self.buf
    }

    /// Takes the request that was read, and reads those behind it if there usually are some.
    pub(crate) fn read(&mut self, io: &mut IoContext) -> Life {
        let mut request_count = 0;
        match (self.arrived.take(), self.buf) {
            (Some(Ok(request_bytes)), Some(buf)) => {
                let request = io.pool.bytes(buf, 0, request_bytes as usize);
                let rests = self.rest.begins(request, io.now.mono);
                let is_awaited = self.take(buf, request_bytes as usize, io);
                if rests {
                    return Life::On;
                }
                request_count = 1;
                if is_awaited && !self.more.may_try() {
                    return Life::On;
                }
            }
            (Some(Err(errno)), _) => return after(Errno::from_raw_os_error(i32::from(errno.0))),
            (Some(Ok(_)) | None, _) if !self.has_more => return Life::On,
            (Some(Ok(_)) | None, _) => {}
        }
        self.has_more = true;
        while request_count < READ_COUNT_MAX {
            let Some(buf) = self.take_buf(io) else { return Life::On };
            let space = io.pool.bytes_mut(buf, 0, BUFFER_BYTES_MAX);
            io.counters.syscall_count += 1;
            match rustix::io::read(&self.device, space) {
                Ok(request_bytes) => {
                    self.take(buf, request_bytes, io);
                    request_count += 1;
                }
                Err(Errno::AGAIN) => {
                    if request_count > 0 {
                        self.more.on_tried(request_count > 1);
                    }
                    self.has_more = false;
                    return Life::On;
                }
                Err(errno) if after(errno) == Life::On => {}
                Err(_) => return Life::Over,
            }
        }
        Life::On
    }

    /// Passes a request to the core. Returns whether a caller waits for the reply.
    fn take(&mut self, buf: BufId, request_bytes: usize, io: &mut IoContext) -> bool {
        let request = io.pool.bytes(buf, 0, request_bytes);
        let Some(header) = InHeader::read(request) else { return true };
        io.counters.kernel_request_count += 1;
        if header.is_unanswered() {
            let request = io.arena.put(request);
            io.events.push(Event::Kernel(KernelEvent::Request { slot: None, request, bulk: None }));
            return false;
        }
        let args_bytes = IN_HEADER_BYTES + WRITE_IN_BYTES;
        let has_data = header.opcode == OP_WRITE && request_bytes > args_bytes;
        let small_bytes = if has_data { args_bytes } else { request_bytes };
        let bulk = has_data.then(|| {
            let data = &request[args_bytes..];
            let (start, bulk_bytes) = (u32_of(args_bytes), u32_of(data.len()));
            Bulk { buf, start, bulk_bytes, crc32c: None, mac: NO_MAC }
        });
        let request = io.arena.put(&request[..small_bytes]);
        let retained = if has_data { self.buf.take() } else { None };
        let slot = u32_of(self.slots.insert(Slot {
            unique: header.unique,
            is_init: header.opcode == OP_INIT,
            buf: retained,
        }));
        io.events.push(Event::Kernel(KernelEvent::Request {
            slot: Some(KernelSlot(slot)),
            request,
            bulk,
        }));
        header.is_awaited()
    }

    /// Writes a reply.
    pub(crate) fn reply(&mut self, index: u32, answer: Answer, io: &mut IoContext) -> Replied {
        // A request is answered once.
        let Slot { unique, is_init, buf } = self.slots.remove(index as usize);
        let ok = answer.status == Status::Ok;
        let payload = if ok { io.arena.get(answer.payload) } else { &[] };
        let data = answer.bulk.filter(|_| ok).map_or(&[][..], |bulk| io.bulk_bytes(bulk));
        let header = out_header(unique, answer.status, u32_of(payload.len() + data.len()));
        // The caller of a lone request goes on while this turn ends; replies to several leave with one call.
        let is_at_once = is_init || self.slots.is_empty();
        if !is_at_once && payload.len() + data.len() <= COPIED_BYTES_MAX {
            let mut reply = self.spare.pop().unwrap_or_default();
            reply.clear();
            [&header, payload, data].into_iter().for_each(|piece| reply.extend_from_slice(piece));
            if let Some(buf) = buf {
                io.pool.release(buf);
            }
            self.queue_reply(reply, io);
            return Replied { life: Life::On, opened: false };
        }
        let pieces = [IoSlice::new(&header), IoSlice::new(payload), IoSlice::new(data)];
        let written = rustix::io::writev(&self.device, &pieces);
        io.counters.syscall_count += 1;
        if let Some(buf) = buf {
            io.pool.release(buf);
        }
        let life = written.map_or_else(after_reply, |_| Life::On);
        Replied { life, opened: is_init && ok && written.is_ok() }
    }

    fn queue_reply(&mut self, reply: Vec<u8>, io: &mut IoContext) {
        let (at, reply_bytes) = (reply.as_ptr(), u32_of(reply.len()));
        let index = u32_of(self.replies.insert(reply));
        let op = Op::WriteReply { device: self.device.as_raw_fd(), at, reply_bytes };
        // SAFETY: the bytes are on the heap, untouched until the completion; the device lives as
        // long as the ring.
        unsafe { io.driver.queue(Token::new(Kind::KernelReply, index), op) };
    }

    /// The driver has written a reply.
    pub(crate) fn on_replied(&mut self, index: u32, result: Result<u32, interface::Errno>) -> Life {
        self.spare.push(self.replies.remove(index as usize));
        let after =
            |errno: interface::Errno| after_reply(Errno::from_raw_os_error(i32::from(errno.0)));
        result.map_or_else(after, |_| Life::On)
    }
}

/// What a failed reply means.
const fn after_reply(errno: Errno) -> Life {
    match errno {
        // NOENT: the request no longer exists; its process was killed. INVAL: the reply was
        // malformed, which fails only that request.
        Errno::NOENT | Errno::INTR | Errno::INVAL => Life::On,
        _ => Life::Over,
    }
}

/// What a failed read means.
const fn after(errno: Errno) -> Life {
    match errno {
        // NOENT, INTR: the request was interrupted before it was read.
        Errno::AGAIN | Errno::NOENT | Errno::INTR => Life::On,
        _ => Life::Over,
    }
}

const _: () = assert!(
    BUFFER_BYTES_MAX >= KERNEL_DATA_BYTES_MAX + IN_HEADER_BYTES + WRITE_IN_BYTES,
    "the largest WRITE fits a buffer"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_gather_beside_queues_and_nothing_else_does() {
        let request = |opcode: u32| {
            let mut bytes = [0; IN_HEADER_BYTES];
            bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
            bytes
        };
        let (now, later) = (Mono(5), Mono(5).after_ms(REST_MS));
        let mut rest = Rest { has_queues: true, until: None };
        assert!(!rest.begins(&request(crate::abi::OP_INTERRUPT), now) && rest.is_over(now));
        for opcode in [OP_FORGET, OP_BATCH_FORGET] {
            assert!(rest.begins(&request(opcode), now));
            assert!(!rest.is_over(now) && rest.until == Some(later));
            assert!(rest.is_over(later) && rest.until.is_none(), "no further wake-up");
        }
        let mut rest = Rest { has_queues: false, until: None };
        assert!(!rest.begins(&request(OP_FORGET), now) && rest.is_over(now));
    }

    #[test]
    fn second_reads_that_find_nothing_become_rare_and_one_that_finds_some_ends_that() {
        let mut more = SecondReads::default();
        let tried: Vec<usize> = (0..300)
            .filter(|_| {
                let tries = more.may_try();
                if tries {
                    more.on_tried(false);
                }
                tries
            })
            .collect();
        assert_eq!(tried, [0, 2, 6, 14, 30, 62, 126, 190, 254]);
        let next = (300..).find(|_| more.may_try());
        assert_eq!(next, Some(318));
        more.on_tried(true);
        assert!(more.may_try());
    }
}
