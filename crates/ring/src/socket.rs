//! How a lane's sockets are set, which everything that is measured against a lane sets alike.

use rustix::net::{SocketAddrAny, getpeername, getsockname, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// Plain congestion control, the cheapest first; a kernel has one of them at least.
const PLAIN: [&str; 2] = ["cubic", "reno"];

/// Sends what is ready at once; and where both ends are on one host, does without the pacing that a
/// wide-area congestion control (BBR) brings: there is no queue to spare, and its timers cost ten
/// times the processor time of the bytes.
///
/// Only for connected sockets. What the kernel refuses is left as it was: these are no promises.
pub fn tune_socket(socket: impl AsFd) {
    // Fails only for what is no TCP socket, which has neither delay nor congestion control.
    if sockopt::set_tcp_nodelay(&socket, true).is_err() || !is_local(&socket) {
        return;
    }
    // None may be allowed to this user; then the system's own stays.
    let _plain = PLAIN.iter().any(|name| sockopt::set_tcp_congestion(&socket, name).is_ok());
}

/// Whether both ends are on this host.
fn is_local(socket: impl AsFd) -> bool {
    let peer = getpeername(&socket).ok().flatten().and_then(ip_of);
    let own = getsockname(&socket).ok().and_then(ip_of);
    peer.is_some_and(|peer| peer.is_loopback() || Some(peer) == own)
}

fn ip_of(address: SocketAddrAny) -> Option<IpAddr> {
    SocketAddr::try_from(address).ok().map(|address| address.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_local_connection_is_not_paced_and_sends_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(is_local(&socket));
        sockopt::set_tcp_congestion(&socket, "reno").unwrap();
        tune_socket(&socket);
        assert!(socket.nodelay().unwrap());
        assert!(PLAIN.contains(&sockopt::tcp_congestion(&socket).unwrap().as_str()));
    }

    #[test]
    fn what_is_not_connected_or_no_tcp_is_left_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!is_local(&listener));
        let (one, _other) = UnixStream::pair().unwrap();
        tune_socket(&one);
        assert!(!is_local(&one));
    }
}
