//! The bare loop: what TCP and io_uring cost when nothing stands around them. The limit that a lane
//! is held against.
//!
//! It counts bytes instead of reading frames, keeps one receive in flight a connection, and
//! answers everything that has arrived with one send; one `io_uring_enter` submits, waits and reaps.
//! Invariant: a connection's bytes stay in place while the kernel works on them, because they are
//! boxed and live as long as the loop.

use crate::number::{u32_of, usize_of};
use crate::socket::{tune_listener, tune_socket};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

const ENTRY_COUNT: u32 = 1024;
/// Bytes received at a time.
const ROOM_BYTES: usize = 64 * 1024;
/// Marks the completions of receives; accepts have [`ACCEPT`], sends none.
const ACCEPT: u64 = u64::MAX;
const SEND: u64 = u64::MAX - 1;

struct Peer {
    socket: OwnedFd,
    room: Box<[u8]>,
    /// Bytes of a request that has not wholly arrived.
    part_bytes: usize,
    out: Vec<u8>,
}

/// Answers every `request_bytes` that arrive on a connection with `reply`, on all connections of
/// `listener`, until the process ends.
///
/// # Errors
/// When the kernel refuses the ring, or a reply does not fit into a socket at once (it is meant for
/// replies of some kilobytes a turn).
pub fn echo(listener: &OwnedFd, request_bytes: usize, reply: &[u8]) -> io::Result<()> {
    assert!(request_bytes > 0, "a request has bytes");
    let mut ring: IoUring<squeue::Entry, cqueue::Entry> = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(4 * ENTRY_COUNT)
        .build(ENTRY_COUNT)?;
    let mut peers: Vec<Option<Box<Peer>>> = Vec::new();
    tune_listener(listener);
    let accept = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).build().user_data(ACCEPT);
    push(&mut ring, &accept)?;
    let mut completed = Vec::new();
    loop {
        ring.submit_and_wait(1)?;
        completed.extend(ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (tag, result) in completed.drain(..) {
            match tag {
                ACCEPT => {
                    let Ok(socket) = check(result) else { continue };
                    let index = peers.len();
                    peers.push(Some(Box::new(Peer::new(socket))));
                    receive(&mut ring, &mut peers, index)?;
                }
                // Only failures are told: see `answer`.
                SEND => drop(check(result)?),
                tag => {
                    let index = usize_of(tag);
                    match result {
                        1.. => {
                            let count = usize_of(u64::from(result.unsigned_abs()));
                            answer(&mut ring, &mut peers, (index, count), (request_bytes, reply))?;
                            receive(&mut ring, &mut peers, index)?;
                        }
                        // The peer has gone.
                        _ => peers[index] = None,
                    }
                }
            }
        }
    }
}

impl Peer {
    fn new(socket: i32) -> Self {
        // SAFETY: the accept has just made it for this loop; nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        tune_socket(&socket);
        let room = vec![0; ROOM_BYTES].into_boxed_slice();
        Self { socket, room, part_bytes: 0, out: Vec::new() }
    }
}

fn receive(ring: &mut IoUring, peers: &mut [Option<Box<Peer>>], index: usize) -> io::Result<()> {
    let Some(peer) = &mut peers[index] else { return Ok(()) };
    let (at, room_bytes) = (peer.room.as_mut_ptr(), u32_of(peer.room.len()));
    let recv = opcode::Recv::new(Fd(peer.socket.as_raw_fd()), at, room_bytes).build();
    push(ring, &recv.user_data(index as u64))
}

fn answer(
    ring: &mut IoUring,
    peers: &mut [Option<Box<Peer>>],
    (index, arrived_bytes): (usize, usize),
    (request_bytes, reply): (usize, &[u8]),
) -> io::Result<()> {
    let Some(peer) = &mut peers[index] else { return Ok(()) };
    let there_bytes = peer.part_bytes + arrived_bytes;
    peer.part_bytes = there_bytes % request_bytes;
    peer.out.clear();
    (0..there_bytes / request_bytes).for_each(|_| peer.out.extend_from_slice(reply));
    if peer.out.is_empty() {
        return Ok(());
    }
    // Sent within the submitting call or failed: so `out` is free again when the next bytes come.
    let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT;
    let (at, out_bytes) = (peer.out.as_ptr(), u32_of(peer.out.len()));
    let send = opcode::Send::new(Fd(peer.socket.as_raw_fd()), at, out_bytes).flags(flags).build();
    push(ring, &send.flags(squeue::Flags::SKIP_SUCCESS).user_data(SEND))
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    loop {
        // SAFETY: what the entry names is boxed in a peer, which lives while its receive is in
        // flight; a send ends within the call that submits it.
        let pushed = unsafe { ring.submission().push(entry) };
        if pushed.is_ok() {
            return Ok(());
        }
        ring.submit()?;
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}
