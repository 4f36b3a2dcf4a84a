//! Bulk that is sent from an object's file, without a copy in our memory.
//!
//! The lane's thread calls sendfile on a non-blocking socket; the rest is sent when the driver
//! reports space in the socket. Invariants: a connection sends about [`Limits::TURN_BYTES_MAX`] a
//! turn this way, so that no client delays the others; a file that became shorter than the promised
//! bulk ends the connection, because bytes are never made up.

use super::{Conn, Conns, State};
use crate::counters::Counters;
use crate::driver::{Kind, Op, Token};
use crate::io_context::IoContext;
use crate::limits::Limits;
use crate::number::{errno_of, u64_of, usize_of};
use crate::send::Own;
use interface::{CloseReason, Errno};
use rustix::io::{Errno as Failure, ioctl_fionbio};
use std::os::fd::{AsRawFd as _, OwnedFd};

/// The file ended before the promised bulk.
const IO: Errno = Errno(5);

impl Conns {
    /// Sends file ranges, and the bytes in memory before them. Returns whether all of these were
    /// sent, so that the rest may be sent through the driver.
    pub(super) fn send_files(&mut self, index: u32, io: &mut IoContext) -> bool {
        let mut left_bytes = Limits::TURN_BYTES_MAX;
        loop {
            let Conn { outbox, socket, nonblocking, .. } = self.conn(index);
            let Some(own) = outbox.next_own(left_bytes, &mut io.pool) else { return true };
            let Some(socket) = socket else { return false };
            if left_bytes == 0 {
                self.touch(index);
                return false;
            }
            let asked_bytes = own.own_bytes();
            match leave(own, socket, nonblocking, &mut io.counters) {
                Ok(sent_bytes @ 1..) => {
                    io.counters.out_bytes += u64_of(sent_bytes);
                    left_bytes = left_bytes.saturating_sub(sent_bytes);
                    self.conn(index).outbox.sent(sent_bytes);
                    // Short: the socket is full, or the file has ended, which the next call
                    // reports.
                    if sent_bytes < asked_bytes {
                        self.wait_for_space(index, io);
                        return false;
                    }
                }
                Err(Failure::AGAIN) => {
                    self.wait_for_space(index, io);
                    return false;
                }
                Err(Failure::INTR) => {}
                failed => {
                    self.fail_sending(index, failed.map_or_else(errno_of, |_| IO), io);
                    return false;
                }
            }
        }
    }

    fn wait_for_space(&mut self, index: u32, io: &mut IoContext) {
        let conn = self.conn(index);
        conn.writable_armed = true;
        conn.sending.queue(io.now.mono);
        let op = Op::Writable { socket: conn.raw() };
        // SAFETY: the operation names no memory, and the connection keeps the socket until nothing
        // is armed.
        unsafe { io.driver.queue(Token::new(Kind::Writable, index), op) };
        self.watch(index, io.now.mono);
    }

    /// The socket has space, or is broken, which the next send reports.
    pub(crate) fn on_writable(&mut self, index: u32, io: &mut IoContext) {
        let conn = self.conn(index);
        conn.writable_armed = false;
        if matches!(conn.state, State::Dead) {
            self.remove_if_quiet(index, io);
        } else {
            self.touch(index);
        }
    }

    pub(super) fn fail_sending(&mut self, index: u32, errno: Errno, io: &mut IoContext) {
        if matches!(self.conn(index).state, State::Closing { .. }) {
            self.abort(index, io);
        } else {
            self.fail(index, CloseReason::Failed(errno), io);
        }
    }
}

/// Sends as much as the socket takes now.
fn leave(
    own: Own<'_>,
    socket: &OwnedFd,
    nonblocking: &mut bool,
    counters: &mut Counters,
) -> Result<usize, Failure> {
    if !*nonblocking {
        counters.syscall_count += 1;
        ioctl_fionbio(socket, true)?;
        *nonblocking = true;
    }
    counters.syscall_count += 1;
    match own {
        Own::Message { header, .. } => {
            counters.send_count += 1;
            send_message(socket, header)
        }
        Own::File { file, mut offset, file_bytes } => {
            counters.sendfile_count += 1;
            let sent_bytes = rustix::fs::sendfile(socket, file, Some(&mut offset), file_bytes)?;
            counters.sendfile_bytes += u64_of(sent_bytes);
            Ok(sent_bytes)
        }
    }
}

/// Sends bytes in memory that precede a file range; MSG_MORE avoids a segment of their own.
fn send_message(socket: &OwnedFd, header: &libc::msghdr) -> Result<usize, Failure> {
    let flags = libc::MSG_MORE | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header and the pieces it names belong to the outbox, in place and retained until
    // they are sent; the kernel reads them within the call.
    let result = unsafe { libc::sendmsg(socket.as_raw_fd(), header, flags) };
    match u64::try_from(result) {
        Ok(sent_bytes) => Ok(usize_of(sent_bytes)),
        Err(_) => {
            let error = std::io::Error::last_os_error();
            Err(Failure::from_io_error(&error).unwrap_or(Failure::IO))
        }
    }
}
