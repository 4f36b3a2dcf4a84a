//! FUSE over io_uring: a queue per core, each with some entries; an entry's command completes when
//! it holds a request, and the next command commits the reply and fetches the next request.
//!
//! ```text
//! entry:   header (in_out 128 | op_in 128 | commit_id, payload_sz)     payload, 1 MiB
//! request: fuse_in_header  op's struct                                 names, values, WRITE data
//! reply:   fuse_out_header                                             everything else
//! ```
//! Invariant: an entry's memory is the kernel's while its command is in flight; otherwise it is
//! ours, and WRITE data in it stay until their last reference is dropped, even if the reply is
//! earlier.

use crate::abi::{
    COMMAND_COMMIT_AND_FETCH, COMMAND_REGISTER, EntryHeader, IN_HEADER_BYTES, InHeader,
    KERNEL_DATA_BYTES_MAX, OP_WRITE, OUT_HEADER_BYTES, command_body, out_header,
};
use crate::driver::{Kind, Op, Token};
use crate::io_context::IoContext;
use crate::kernel::{Answer, Life, QUEUE_SLOT};
use crate::number::{u32_of, usize_of};
use interface::{BufId, Bulk, Errno, Event, KernelEvent, KernelSlot, NO_MAC};
use std::os::fd::{AsRawFd, OwnedFd};
use wire::Status;

const AGAIN: Errno = Errno(11);
const INTERRUPTED: Errno = Errno(4);
const CANCELLED: Errno = Errno(125);
const NOT_CONNECTED: Errno = Errno(107);
const ABORTED: Errno = Errno(103);

#[derive(Debug)]
enum EntryState {
    /// The kernel owns the entry.
    Fetching { registered: bool },
    /// The core has its request.
    Taken { unique: u64, commit_id: u64 },
    /// The core has replied, but its WRITE data are still being sent: status and payload wait.
    Late { unique: u64, commit_id: u64, status: Status, payload: Vec<u8> },
    /// Its mount has ended.
    Over,
}

struct Entry {
    queue: u16,
    header: BufId,
    payload: BufId,
    iovecs: Box<[libc::iovec; 2]>,
    state: EntryState,
}

/// The queues of a lane.
pub(crate) struct Queues {
    device: OwnedFd,
    cores: Vec<u16>,
    depth: u16,
    entries: Vec<Entry>,
    late_count: usize,
}

impl Queues {
    pub(crate) const fn new(device: OwnedFd, cores: Vec<u16>, depth: u16) -> Self {
        Self { device, cores, depth, entries: Vec::new(), late_count: 0 }
    }

    /// Registers all entries of all queues with the kernel.
    pub(crate) fn register(&mut self, io: &mut IoContext) {
        if !self.entries.is_empty() {
            return;
        }
        for queue in self.cores.clone() {
            for _ in 0..self.depth {
                let entry = Entry::new(queue, io);
                self.entries.push(entry);
                self.fetch(self.entries.len() - 1, COMMAND_REGISTER, 0, io);
            }
        }
    }

    fn fetch(&mut self, index: usize, command: u32, commit_id: u64, io: &mut IoContext) {
        let entry = &mut self.entries[index];
        entry.state = EntryState::Fetching { registered: command != COMMAND_REGISTER };
        let op = Op::Kernel {
            file: self.device.as_raw_fd(),
            command,
            iovecs: entry.iovecs.as_ptr(),
            body: command_body(commit_id, entry.queue),
        };
        // SAFETY: header and payload are pinned for the ring's life, the iovecs are boxed in the
        // entry, and nothing touches them while the state is `Fetching`.
        unsafe { io.driver.queue(Token::new(Kind::KernelEntry, u32_of(index)), op) };
    }

    /// An entry's command has completed: with a request, or because the mount ended.
    pub(crate) fn on_entry(
        &mut self,
        index: u32,
        result: Result<u32, Errno>,
        io: &mut IoContext,
    ) -> (Life, Option<String>) {
        let index = index as usize;
        let entry = &mut self.entries[index];
        let EntryState::Fetching { registered } = entry.state else {
            panic!("entry {index} was not with the kernel")
        };
        match result {
            Ok(_) => {
                self.take(index, io);
                (Life::On, None)
            }
            Err(AGAIN | INTERRUPTED) if !registered => {
                self.fetch(index, COMMAND_REGISTER, 0, io);
                (Life::On, None)
            }
            Err(NOT_CONNECTED | ABORTED | CANCELLED) => {
                entry.state = EntryState::Over;
                (Life::Over, None)
            }
            Err(errno) => {
                let queue = entry.queue;
                entry.state = EntryState::Over;
                let line = format!(
                    "the kernel refuses FUSE queue {queue} (errno {}): set \
                     /sys/module/fuse/parameters/enable_uring to N and mount again",
                    errno.0
                );
                (Life::Over, Some(line))
            }
        }
    }

    fn take(&mut self, index: usize, io: &mut IoContext) {
        let Self { entries, .. } = self;
        let entry = &mut entries[index];
        let (commit_id, payload_bytes) = entry.read_trailer(io);
        let header = io.pool.bytes(entry.header, 0, 256);
        let Some(in_header) = InHeader::read(header) else { panic!("256 bytes hold a header") };
        let args_bytes = (in_header.request_bytes as usize)
            .saturating_sub(IN_HEADER_BYTES + payload_bytes)
            .min(128);
        let has_data = in_header.opcode == OP_WRITE && payload_bytes > 0;
        let payload = io.pool.bytes(entry.payload, 0, payload_bytes);
        let request = io.arena.write(|out| {
            out.extend_from_slice(&header[..IN_HEADER_BYTES]);
            out.extend_from_slice(&header[128..128 + args_bytes]);
            if !has_data {
                out.extend_from_slice(payload);
            }
        });
        let bulk = has_data.then(|| Bulk {
            buf: entry.payload,
            start: 0,
            bulk_bytes: u32_of(payload_bytes),
            crc32c: None,
            mac: NO_MAC,
        });
        entry.state = EntryState::Taken { unique: in_header.unique, commit_id };
        io.counters.kernel_request_count += 1;
        let slot = Some(KernelSlot(QUEUE_SLOT | u32_of(index)));
        io.events.push(Event::Kernel(KernelEvent::Request { slot, request, bulk }));
    }

    /// Replies to a request.
    pub(crate) fn reply(&mut self, index: u32, answer: Answer, io: &mut IoContext) {
        let index = index as usize;
        let entry = &mut self.entries[index];
        let EntryState::Taken { unique, commit_id } = entry.state else {
            panic!("a request is answered once")
        };
        let ok = answer.status == Status::Ok;
        let payload = if ok { io.arena.get(answer.payload) } else { &[] };
        if io.pool.refs_count(entry.payload) > 1 {
            // An interrupted WRITE is answered while its data are still being sent to the server.
            let mut late = payload.to_vec();
            if let Some(bulk) = answer.bulk.filter(|_| ok) {
                late.extend_from_slice(io.bulk_bytes(bulk));
            }
            let status = answer.status;
            entry.state = EntryState::Late { unique, commit_id, status, payload: late };
            self.late_count += 1;
            return;
        }
        let bulk = answer.bulk.filter(|_| ok);
        let data_bytes = bulk.map_or(0, |bulk| bulk.bulk_bytes as usize);
        let payload_bytes = payload.len() + data_bytes;
        assert!(payload_bytes <= KERNEL_DATA_BYTES_MAX, "an answer fits its entry");
        let to = io.pool.bytes_mut(entry.payload, 0, payload_bytes);
        let small = io.arena.get(answer.payload);
        let small_bytes = payload_bytes - data_bytes;
        to[..small_bytes].copy_from_slice(&small[..small_bytes]);
        if let Some(bulk) = bulk {
            let from = io.pool.at(bulk.buf, bulk.start as usize, data_bytes);
            let to = io.pool.at(entry.payload, small_bytes, data_bytes);
            assert!(bulk.buf != entry.payload, "an answer's data lie elsewhere");
            // SAFETY: both pieces were checked to lie within their buffers, which are distinct; the
            // entry is ours until it is fetched again, and nothing writes the bulk's bytes.
            unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), to, data_bytes) };
        }
        entry.write_header(unique, answer.status, payload_bytes, io);
        self.fetch(index, COMMAND_COMMIT_AND_FETCH, commit_id, io);
    }

    /// Whether replies wait until their entries are no longer referenced.
    pub(crate) const fn is_late(&self) -> bool {
        self.late_count > 0
    }

    /// Commits replies whose entries are no longer referenced.
    pub(crate) fn flush(&mut self, io: &mut IoContext) {
        if self.late_count == 0 {
            return;
        }
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            if io.pool.refs_count(entry.payload) > 1 {
                continue;
            }
            let EntryState::Late { unique, commit_id, status, payload } = &mut entry.state else {
                continue;
            };
            let (unique, commit_id, status) = (*unique, *commit_id, *status);
            let payload = std::mem::take(payload);
            io.pool.bytes_mut(entry.payload, 0, payload.len()).copy_from_slice(&payload);
            entry.write_header(unique, status, payload.len(), io);
            self.late_count -= 1;
            self.fetch(index, COMMAND_COMMIT_AND_FETCH, commit_id, io);
        }
    }
}

impl Entry {
    fn new(queue: u16, io: &mut IoContext) -> Self {
        let header_bytes = size_of::<EntryHeader>();
        let header = io.pool.pin(header_bytes);
        let payload = io.pool.pin(KERNEL_DATA_BYTES_MAX);
        let iovec = |buf, piece_bytes| libc::iovec {
            iov_base: io.pool.at(buf, 0, piece_bytes).cast(),
            iov_len: piece_bytes,
        };
        let iovecs = Box::new([iovec(header, header_bytes), iovec(payload, KERNEL_DATA_BYTES_MAX)]);
        let state = EntryState::Fetching { registered: false };
        Self { queue, header, payload, iovecs, state }
    }

    /// `commit_id` and `payload_sz`.
    fn read_trailer(&self, io: &IoContext) -> (u64, usize) {
        const COMMIT_ID_OFFSET: usize = std::mem::offset_of!(EntryHeader, commit_id);
        const PAYLOAD_OFFSET: usize = std::mem::offset_of!(EntryHeader, payload_bytes);
        let header = io.pool.bytes(self.header, 0, size_of::<EntryHeader>());
        let mut commit_id = [0; 8];
        commit_id.copy_from_slice(&header[COMMIT_ID_OFFSET..COMMIT_ID_OFFSET + 8]);
        let mut payload_bytes = [0; 4];
        payload_bytes.copy_from_slice(&header[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4]);
        let payload_bytes = usize_of(u64::from(u32::from_ne_bytes(payload_bytes)));
        assert!(payload_bytes <= KERNEL_DATA_BYTES_MAX, "the kernel keeps to the payload's size");
        (u64::from_ne_bytes(commit_id), payload_bytes)
    }

    fn write_header(&self, unique: u64, status: Status, payload_bytes: usize, io: &mut IoContext) {
        const PAYLOAD_OFFSET: usize = std::mem::offset_of!(EntryHeader, payload_bytes);
        let payload_bytes = u32_of(payload_bytes);
        let header = io.pool.bytes_mut(self.header, 0, size_of::<EntryHeader>());
        let out = out_header(unique, status, payload_bytes);
        header[..OUT_HEADER_BYTES].copy_from_slice(&out);
        header[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&payload_bytes.to_ne_bytes());
    }
}
