//! The listening socket, and socket addresses in the kernel's format.
//!
//! Invariant: while the lane has a listener, an accept is in flight or scheduled.

use crate::driver::{Completion, Kind, Op, Token, owned};
use crate::io_context::IoContext;
use crate::socket::tune_listener;
use interface::Mono;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Delay after a failed accept, such as for lack of descriptors.
const RETRY_MS: u64 = 100;

/// A lane's listening socket.
pub(crate) struct Listener {
    socket: OwnedFd,
    armed: bool,
    retry_at: Option<Mono>,
}

impl Listener {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        tune_listener(&socket);
        Self { socket, armed: false, retry_at: None }
    }

    /// Starts an accept, if it is due.
    pub(crate) fn arm(&mut self, io: &mut IoContext) {
        if self.armed || self.retry_at.is_some_and(|at| at > io.now.mono) {
            return;
        }
        self.armed = true;
        self.retry_at = None;
        let op = Op::AcceptMany { listener: self.socket.as_raw_fd() };
        // SAFETY: names no memory; the socket lives as long as the ring.
        unsafe { io.driver.queue(Token::new(Kind::Accept, 0), op) };
    }

    /// Processes a completion; returns the accepted connection, if any.
    pub(crate) fn on_accept(&mut self, completion: Completion, now: Mono) -> Option<OwnedFd> {
        self.armed = completion.more;
        match completion.result {
            Ok(socket) => Some(owned(socket)),
            Err(_) => {
                self.retry_at = Some(now.after_ms(RETRY_MS));
                None
            }
        }
    }

    /// When to accept again.
    pub(crate) const fn deadline(&self) -> Option<Mono> {
        self.retry_at
    }
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
#[repr(C, align(8))]
pub(crate) struct Address {
    bytes: [u8; 28],
    address_bytes: u32,
}

impl Address {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut bytes = [0; 28];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let (family, address_bytes) = match address.ip() {
            IpAddr::V4(ip) => {
                bytes[4..8].copy_from_slice(&ip.octets());
                (libc::AF_INET, 16)
            }
            IpAddr::V6(ip) => {
                bytes[8..24].copy_from_slice(&ip.octets());
                (libc::AF_INET6, 28)
            }
        };
        if let SocketAddr::V6(address) = address {
            bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
        }
        let family = u16::try_from(family).unwrap_or(0);
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        Self { bytes, address_bytes }
    }

    /// Pointer and length for the kernel.
    pub(crate) const fn raw(&self) -> (*const libc::sockaddr, u32) {
        (self.bytes.as_ptr().cast(), self.address_bytes)
    }
}
