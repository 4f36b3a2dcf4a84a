//! Socket options of lanes; everything that is benchmarked against a lane uses them too.
//!
//! Within a host there is no queue to avoid: a wide-area congestion control (BBR), where it is the
//! system's default, paces each connection with timers, at ten times the processor time. A
//! connection once paced stays paced, so the choice is made before it is established: connections
//! to a loopback address, and those of a listener on one, get a loss-based congestion control.

use crate::limits::Limits;
use rustix::net::{getpeername, getsockname, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::Duration;

/// Loss-based congestion controls, the better first; every kernel has the last.
const PLAIN: [&str; 2] = ["cubic", "reno"];

/// Sets up a listening socket; its connections inherit it.
pub fn tune_listener(listener: impl AsFd) {
    // It listens already; a longer backlog is optional.
    rustix::net::listen(&listener, Limits::BACKLOG_COUNT).ok();
    let own = getsockname(&listener).ok();
    let own = own.and_then(|address| SocketAddr::try_from(address).ok());
    if let Some(own) = own {
        choose_congestion_control(listener, own.ip());
    }
}

/// Keepalive of idle connections: first probe after this time, then every interval. Far shorter
/// than a recovery waits: an idle client must notice in time that the server's machine crashed and
/// is back.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_COUNT: u32 = 5;
/// Data, or a connection attempt, that is unacknowledged for so long ends the connection.
const UNACKNOWLEDGED_MS: u32 = 10_000;

/// Sets up a connection: bytes are sent without delay, and the kernel detects a dead peer.
pub fn tune_socket(socket: impl AsFd) {
    // Fails only for sockets that are not TCP (a test's socket pair), which need no options.
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true).ok();
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE).ok();
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL).ok();
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT).ok();
    sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MS).ok();
    sockopt::set_socket_keepalive(socket, true).ok();
}

/// Sets up a socket before it is connected to `peer`.
pub(crate) fn tune_before_connect(socket: impl AsFd, peer: IpAddr) {
    choose_congestion_control(&socket, peer);
    tune_socket(socket);
}

fn choose_congestion_control(socket: impl AsFd, address: IpAddr) {
    if address.to_canonical().is_loopback() {
        // This user may not be allowed to choose; the system's default works as well.
        let _plain = PLAIN.iter().any(|name| sockopt::set_tcp_congestion(&socket, name).is_ok());
    }
}

/// Whether a connection's peer has a loopback address, which no other host has.
pub(crate) fn is_from_this_host(socket: &OwnedFd) -> bool {
    let peer = getpeername(socket).ok().flatten();
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
}

/// Bytes that a TCP connection's peer has acknowledged.
pub(crate) fn acked_bytes(socket: &OwnedFd) -> Option<u64> {
    /// Offset of the end of `tcpi_bytes_acked` in `struct tcp_info` (linux/tcp.h; Linux 4.2).
    const OFFSET: usize = 120;
    tcp_count::<{ OFFSET + 8 }>(socket)
}

/// Bytes that a TCP connection's kernel socket has received, read or not.
pub(crate) fn received_bytes(socket: &OwnedFd) -> Option<u64> {
    /// Offset of the end of `tcpi_bytes_received`, likewise.
    const OFFSET: usize = 128;
    tcp_count::<{ OFFSET + 8 }>(socket)
}

/// An eight-byte counter at the end of the first `STRUCT_BYTES` bytes of a connection's `struct tcp_info`.
fn tcp_count<const STRUCT_BYTES: usize>(socket: &OwnedFd) -> Option<u64> {
    let mut info = [0_u8; STRUCT_BYTES];
    let mut info_bytes = libc::socklen_t::try_from(info.len()).ok()?;
    // SAFETY: the kernel writes at most `info_bytes` bytes into the array, and how many it wrote
    // into the length; both live until the call returns.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut info_bytes,
        )
    };
    let whole = result == 0 && usize::try_from(info_bytes).is_ok_and(|bytes| bytes == info.len());
    let count = info.last_chunk().copied().filter(|_| whole)?;
    Some(u64::from_ne_bytes(count))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::net::{AddressFamily, SocketType, socket};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    fn is_plain(socket: impl AsFd) -> bool {
        PLAIN.contains(&sockopt::tcp_congestion(socket).unwrap().as_str())
    }

    #[test]
    fn connections_of_a_local_listener_are_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        sockopt::set_tcp_congestion(&listener, "reno").unwrap();
        tune_listener(&listener);
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        tune_socket(&accepted);
        assert!(is_plain(&accepted) && accepted.nodelay().unwrap());
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), UNACKNOWLEDGED_MS);
    }

    #[test]
    fn only_loopback_connections_get_another_congestion_control() {
        let new = || socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let (near, far) = (new(), new());
        let before = sockopt::tcp_congestion(&far).unwrap();
        tune_before_connect(&near, Ipv4Addr::LOCALHOST.into());
        tune_before_connect(&far, Ipv4Addr::new(192, 0, 2, 1).into());
        assert!(is_plain(&near));
        assert_eq!(sockopt::tcp_congestion(&far).unwrap(), before);
        tune_listener(&far);
        assert_eq!(sockopt::tcp_congestion(&far).unwrap(), before);
    }
}
