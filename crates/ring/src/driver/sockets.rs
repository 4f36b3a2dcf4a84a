//! One non-blocking attempt at an operation on a socket, an eventfd or a device.
//!
//! Invariant: no call here blocks, whatever flags the descriptor has. Bytes transferred before a
//! failure are the result; the next call meets the failure.

use super::Op;
use super::files::outcome;
use super::watch::Waiting;
use crate::number::u32_of;
use interface::Errno;
use rustix::io::ioctl_fionbio;
use std::os::fd::{BorrowedFd, RawFd};

const AGAIN: Errno = Errno(11);
const INTERRUPTED: Errno = Errno(4);
const IN_PROGRESS: Errno = Errno(115);
const ABORTED: Errno = Errno(103);
const NOT_SUPPORTED: Errno = Errno(95);

/// Tries, `count`ing system calls; `None`: it must wait.
///
/// # Safety
/// What the operation names is valid, and memory that it writes is untouched.
pub(super) unsafe fn attempt(waiting: &mut Waiting, count: &mut u64) -> Option<Result<u32, Errno>> {
    loop {
        // SAFETY: the caller vouches.
        let result = unsafe { attempt_once(waiting, count) };
        let moved_bytes = waiting.moved_bytes;
        let done = match result {
            Err(INTERRUPTED) => continue,
            Err(AGAIN) => return None,
            Err(_) if moved_bytes > 0 => Ok(u32_of(moved_bytes)),
            Ok(now_bytes) => match wanted_bytes(waiting) {
                None => Ok(now_bytes),
                Some(wanted_bytes) => {
                    waiting.moved_bytes += now_bytes as usize;
                    if now_bytes > 0 && waiting.moved_bytes < wanted_bytes {
                        continue;
                    }
                    Ok(u32_of(waiting.moved_bytes))
                }
            },
            failed @ Err(_) => failed,
        };
        return Some(done);
    }
}

/// How many bytes complete the operation; `None`: one call does.
fn wanted_bytes(waiting: &Waiting) -> Option<usize> {
    if let Op::Recv { space_bytes, whole: true, .. } = waiting.op {
        return Some(space_bytes as usize);
    }
    if let Op::Send { send_bytes, at_once: false, .. } = waiting.op {
        return Some(send_bytes as usize);
    }
    let Op::SendGathered { send_bytes, at_once: false, .. } = waiting.op else { return None };
    Some(send_bytes as usize)
}

/// # Safety
/// As [`attempt`].
unsafe fn attempt_once(waiting: &Waiting, count: &mut u64) -> Result<u32, Errno> {
    let moved_bytes = waiting.moved_bytes;
    *count += 1;
    match waiting.op {
        Op::Recv { socket, at, space_bytes, discard, .. } => {
            // tcp(7): with MSG_TRUNC received bytes are discarded.
            let flags = libc::MSG_DONTWAIT | if discard { libc::MSG_TRUNC } else { 0 };
            let at = at.wrapping_add(moved_bytes).cast();
            // SAFETY: there is so much space behind `at`, because the caller vouches for all of it.
            outcome(unsafe { libc::recv(socket, at, space_bytes as usize - moved_bytes, flags) })
        }
        Op::Send { socket, at, send_bytes, .. } => {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let at = at.wrapping_add(moved_bytes).cast();
            // SAFETY: as above.
            outcome(unsafe { libc::send(socket, at, send_bytes as usize - moved_bytes, flags) })
        }
        // SAFETY: the caller vouches.
        Op::SendGathered { socket, message, .. } => unsafe {
            send_gathered(socket, message, moved_bytes)
        },
        Op::ReadEvent { event, at } => {
            // SAFETY: eight bytes are at `at`.
            outcome(unsafe { libc::read(event, at.cast(), 8) })
        }
        Op::ReadRequest { device, at, space_bytes } => {
            // SAFETY: there is so much space at `at`.
            outcome(unsafe { libc::read(device, at.cast(), space_bytes as usize) })
        }
        Op::WriteReply { device, at, reply_bytes } => {
            // SAFETY: so many bytes are at `at`.
            outcome(unsafe { libc::write(device, at.cast(), reply_bytes as usize) })
        }
        // Epoll reported readiness, which is the result.
        Op::Writable { .. } => {
            *count -= 1;
            Ok(1)
        }
        Op::Connect { socket, .. } => connected(socket),
        Op::AcceptMany { .. }
        | Op::Read { .. }
        | Op::Write { .. }
        | Op::WriteDurable { .. }
        | Op::Sync { .. }
        | Op::Allocate { .. }
        | Op::Truncate { .. }
        | Op::Open { .. }
        | Op::MakeDir { .. }
        | Op::Remove { .. }
        | Op::Kernel { .. }
        | Op::Cancel { .. } => Err(NOT_SUPPORTED),
    }
}

/// # Safety
/// The message and what it names are valid.
unsafe fn send_gathered(
    socket: RawFd,
    message: *const libc::msghdr,
    skip_bytes: usize,
) -> Result<u32, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if skip_bytes == 0 {
        // SAFETY: the caller vouches.
        return outcome(unsafe { libc::sendmsg(socket, message, flags) });
    }
    // SAFETY: the caller vouches.
    let mut rest = unsafe { *message };
    // SAFETY: as above.
    let pieces = unsafe { std::slice::from_raw_parts(rest.msg_iov, rest.msg_iovlen) };
    let mut skip_bytes = skip_bytes;
    let mut left: Vec<libc::iovec> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let skipped_bytes = skip_bytes.min(piece.iov_len);
        skip_bytes -= skipped_bytes;
        if skipped_bytes < piece.iov_len {
            left.push(libc::iovec {
                iov_base: piece.iov_base.wrapping_byte_add(skipped_bytes),
                iov_len: piece.iov_len - skipped_bytes,
            });
        }
    }
    (rest.msg_iov, rest.msg_iovlen) = (left.as_mut_ptr(), left.len());
    // SAFETY: the pieces are parts of those that the caller vouches for.
    outcome(unsafe { libc::sendmsg(socket, &raw const rest, flags) })
}

/// Starts to connect; `None`: it is in progress.
///
/// # Safety
/// The address is valid.
pub(super) unsafe fn connect(op: Op, count: &mut u64) -> Option<Result<u32, Errno>> {
    let Op::Connect { socket, address, address_bytes } = op else {
        return Some(Err(NOT_SUPPORTED));
    };
    *count += 2;
    // SAFETY: the connection keeps the socket open.
    let open = unsafe { BorrowedFd::borrow_raw(socket) };
    // Fails for descriptors that are not sockets, which the next call reports.
    ioctl_fionbio(open, true).ok();
    // SAFETY: the caller vouches.
    match outcome(unsafe { libc::connect(socket, address, address_bytes) }) {
        Err(IN_PROGRESS | INTERRUPTED) => None,
        result => Some(result),
    }
}

/// The result of a connect in progress.
fn connected(socket: RawFd) -> Result<u32, Errno> {
    // SAFETY: the connection keeps the socket open.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    match rustix::net::sockopt::socket_error(socket) {
        Ok(Ok(())) => match rustix::net::getpeername(socket) {
            Ok(_) => Ok(0),
            // Still in progress.
            Err(rustix::io::Errno::NOTCONN) => Err(AGAIN),
            Err(error) => Err(crate::number::errno_of(error)),
        },
        Ok(Err(error)) | Err(error) => Err(crate::number::errno_of(error)),
    }
}

/// Accepts one connection; `None`: there is none.
pub(super) fn accept(listener: RawFd, count: &mut u64) -> Option<Result<u32, Errno>> {
    loop {
        *count += 1;
        let nobody = std::ptr::null_mut();
        // SAFETY: no address is asked for; the listener is open.
        let taken =
            unsafe { libc::accept4(listener, nobody, std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
        match outcome(taken) {
            Err(AGAIN) => return None,
            // The connection ended before it was accepted.
            Err(INTERRUPTED | ABORTED) => {}
            result => return Some(result),
        }
    }
}

/// Another process may accept from this listener: an accept must not block the lane.
pub(super) fn set_nonblocking(listener: RawFd) -> Result<(), Errno> {
    // SAFETY: the lane keeps its listener open.
    let listener = unsafe { BorrowedFd::borrow_raw(listener) };
    ioctl_fionbio(listener, true).map_err(crate::number::errno_of)
}
