//! How a lane's sockets are set, which everything that is measured against a lane sets alike.
//!
//! Within a host there is no queue to spare: a wide-area congestion control (BBR), where it is the
//! system's default, paces every connection with timers, at ten times the processor time of the
//! bytes. A connection once paced stays paced, so the choice is made before it is there: connections
//! to a loopback address, and those of a listener on one, get a plain congestion control.

use crate::config::Limits;
use rustix::net::{getpeername, getsockname, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::Duration;

/// Plain congestion control, the better first; every kernel has the last.
const PLAIN: [&str; 2] = ["cubic", "reno"];

/// Sets a listening socket up; its connections inherit it.
pub fn tune_listener(listener: impl AsFd) {
    // It listens already; that it holds more is no condition of its working.
    rustix::net::listen(&listener, Limits::BACKLOG_COUNT).ok();
    let own = getsockname(&listener).ok();
    let own = own.and_then(|address| SocketAddr::try_from(address).ok());
    if let Some(own) = own {
        choose_congestion_control(listener, own.ip());
    }
}

/// A connection on which nobody speaks is asked after so long whether its peer still knows it, and
/// then again and again. Far less than a recovery waits: whoever is idle must hear in time that the
/// server's machine died and is back.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_COUNT: u32 = 5;
/// What is sent and not acknowledged for so long, the first packet too, ends the connection.
const UNACKNOWLEDGED_MS: u32 = 10_000;

/// Sets a connection up: what is ready is sent at once, and a machine that is gone is noticed, by
/// the kernel.
pub fn tune_socket(socket: impl AsFd) {
    // Fails only for what is no TCP socket (a test's socket pair), which has nothing to set.
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true).ok();
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE).ok();
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL).ok();
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT).ok();
    sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MS).ok();
    sockopt::set_socket_keepalive(socket, true).ok();
}

/// Sets a socket up that is about to be connected to `peer`.
pub(crate) fn tune_before_connect(socket: impl AsFd, peer: IpAddr) {
    choose_congestion_control(&socket, peer);
    tune_socket(socket);
}

fn choose_congestion_control(socket: impl AsFd, address: IpAddr) {
    if address.to_canonical().is_loopback() {
        // None may be allowed to this user; then the system's own stays, which works as well.
        let _plain = PLAIN.iter().any(|name| sockopt::set_tcp_congestion(&socket, name).is_ok());
    }
}

/// Whether a connection's peer has a loopback address: no other host has one.
pub(crate) fn is_from_this_host(socket: &OwnedFd) -> bool {
    let peer = getpeername(socket).ok().flatten();
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
}

/// Bytes that a TCP connection's peer has acknowledged, so that it had space for them.
pub(crate) fn acked_bytes(socket: &OwnedFd) -> Option<u64> {
    /// Of `tcpi_bytes_acked` in `struct tcp_info` (linux/tcp.h; since Linux 4.2).
    const OFFSET: usize = 120;
    tcp_count::<{ OFFSET + 8 }>(socket)
}

/// Bytes that have come over a TCP connection, whether anybody has received them or not.
pub(crate) fn received_bytes(socket: &OwnedFd) -> Option<u64> {
    /// Of `tcpi_bytes_received`, likewise.
    const OFFSET: usize = 128;
    tcp_count::<{ OFFSET + 8 }>(socket)
}

/// A count of eight bytes at the end of the first `TOLD_BYTES` of a connection's `struct tcp_info`.
fn tcp_count<const TOLD_BYTES: usize>(socket: &OwnedFd) -> Option<u64> {
    let mut info = [0_u8; TOLD_BYTES];
    let mut info_bytes = libc::socklen_t::try_from(info.len()).ok()?;
    // SAFETY: the kernel writes at most `info_bytes` bytes into the array, and how many it wrote into
    // the length; both live until the call returns.
    let told = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut info_bytes,
        )
    };
    let whole = told == 0 && usize::try_from(info_bytes).is_ok_and(|bytes| bytes == info.len());
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
    fn only_what_stays_within_the_host_is_touched() {
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
