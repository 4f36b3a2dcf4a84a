//! A minimal io_uring server: the cost of TCP and io_uring alone, as the limit that a lane is
//! compared with.
//!
//! It counts bytes instead of decoding frames, keeps one receive in flight per connection, and
//! answers all received requests with one send; one `io_uring_enter` submits, waits and reaps.
//! Invariant: a connection's buffers do not move while the kernel uses them, because they are boxed
//! and live as long as the loop.

use crate::number::{u32_of, usize_of};
use crate::socket::{tune_listener, tune_socket};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

const ENTRY_COUNT: u32 = 1024;
/// Bytes per receive.
const SPACE_BYTES: usize = 64 * 1024;
/// User data of accept completions; a receive has the index of its peer.
const ACCEPT: u64 = u64::MAX;
/// Added to a peer's index for its sends.
const SEND: u64 = 1 << 32;

struct Peer {
    socket: OwnedFd,
    space: Box<[u8]>,
    /// Received bytes of an incomplete request.
    part_bytes: usize,
    out: Vec<u8>,
}

/// Answers every `request_bytes` received on a connection with `reply`, on all connections of
/// `listener`, until the process ends.
///
/// # Errors
/// When the kernel refuses the ring. A connection is dropped when its peer closes it, or when a
/// reply does not fit its socket at once (replies are meant to be some kilobytes a turn).
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
        if let Err(error) = ring.submit_and_wait(1)
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        completed.extend(ring.completion());
        for entry in completed.drain(..) {
            let result = entry.result();
            match entry.user_data() {
                ACCEPT => {
                    if !cqueue::more(entry.flags()) {
                        push(&mut ring, &accept)?;
                    }
                    if result < 0 {
                        continue;
                    }
                    let index = peers.len();
                    peers.push(Some(Box::new(Peer::new(result))));
                    receive(&mut ring, &mut peers, index)?;
                }
                // Only failed sends complete: see `answer`. The shutdown also ends the receive in
                // flight, which drops the peer.
                tag if tag >= SEND => {
                    if let Some(peer) = &peers[usize_of(tag - SEND)] {
                        // Fails where the connection has already ended.
                        rustix::net::shutdown(&peer.socket, rustix::net::Shutdown::Both).ok();
                    }
                }
                tag => {
                    let index = usize_of(tag);
                    match result {
                        1.. => {
                            let count = usize_of(u64::from(result.unsigned_abs()));
                            answer(&mut ring, &mut peers, (index, count), (request_bytes, reply))?;
                            receive(&mut ring, &mut peers, index)?;
                        }
                        // The peer has closed the connection.
                        _ => peers[index] = None,
                    }
                }
            }
        }
    }
}

impl Peer {
    fn new(socket: i32) -> Self {
        // SAFETY: the accept has just made the descriptor for this loop, which is its only owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        tune_socket(&socket);
        let space = vec![0; SPACE_BYTES].into_boxed_slice();
        Self { socket, space, part_bytes: 0, out: Vec::new() }
    }
}

fn receive(ring: &mut IoUring, peers: &mut [Option<Box<Peer>>], index: usize) -> io::Result<()> {
    let Some(peer) = &mut peers[index] else { return Ok(()) };
    let (at, space_bytes) = (peer.space.as_mut_ptr(), u32_of(peer.space.len()));
    let recv = opcode::Recv::new(Fd(peer.socket.as_raw_fd()), at, space_bytes).build();
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
    // A send succeeds or fails within the submitting call, so `out` may be reused for the next
    // request.
    let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT;
    let (at, out_bytes) = (peer.out.as_ptr(), u32_of(peer.out.len()));
    let send = opcode::Send::new(Fd(peer.socket.as_raw_fd()), at, out_bytes).flags(flags).build();
    push(ring, &send.flags(squeue::Flags::SKIP_SUCCESS).user_data(SEND + index as u64))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{DriverChoice, DriverKind};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_a_client_that_does_not_read_is_dropped() {
        const REPLY_BYTES: usize = 4096;
        const REQUEST_COUNT: usize = 16_384;
        if DriverChoice::Only(DriverKind::IoUring).find().is_err() {
            crate::driver::skip("the bare loop", "there is no io_uring");
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = std::thread::spawn(move || echo(&listener.into(), 4, &[7; REPLY_BYTES]));
        let mut one = TcpStream::connect(address).unwrap();
        for _ in 0..8 {
            let mut other = TcpStream::connect(address).unwrap();
            // Fails once the loop has dropped the connection.
            other.write_all(&b"ping".repeat(REQUEST_COUNT)).ok();
            one.write_all(b"pingping").unwrap();
            let mut replies = [0; 2 * REPLY_BYTES];
            one.read_exact(&mut replies).unwrap();
            assert_eq!(replies, [7; 2 * REPLY_BYTES]);
            let mut rest = Vec::new();
            // End of file or a reset.
            other.read_to_end(&mut rest).ok();
            assert!(rest.len() < REQUEST_COUNT * REPLY_BYTES, "{}", rest.len());
        }
        assert!(!served.is_finished());
    }
}
