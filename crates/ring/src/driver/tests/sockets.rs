//! Sockets: waiting, cancelled, slow and closed peers.

use super::*;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketType, socket};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

const ACCEPT: Token = Token::new(Kind::Accept, 0);
const CONNECT: Token = Token::new(Kind::Connect, 1);
const SHORT_SLEEP: Duration = Duration::from_millis(20);

/// A connection over loopback: the lane's socket, and its peer.
fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, peer)
}

#[test]
fn bytes_are_received_whether_they_come_before_or_after_the_receive() {
    on_both("what_arrives_is_received", |harness| {
        let (socket, mut peer) = tcp_pair();
        let mut space = [0; 16];
        peer.write_all(b"early").unwrap();
        assert_eq!(harness.ask(RECV, recv(socket.as_raw_fd(), &mut space)), Ok(5));
        harness.queue(RECV, recv(socket.as_raw_fd(), &mut space));
        harness.enter(Wait::No);
        assert!(harness.reaped.is_empty());
        peer.write_all(b"late").unwrap();
        assert_eq!(harness.result(RECV), Ok(4));
        assert_eq!(&space[..4], b"late");
        harness.driver.forget(socket.as_raw_fd());
    });
}

#[test]
fn a_whole_receive_completes_when_full_or_at_the_end() {
    on_both("what_is_wanted_whole", |harness| {
        let (socket, mut peer) = tcp_pair();
        let mut space = vec![0; 300_000];
        harness.queue(RECV, recv_whole(socket.as_raw_fd(), &mut space));
        let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        for piece in bytes.chunks(70_000) {
            harness.enter(Wait::No);
            assert!(harness.reaped.is_empty());
            peer.write_all(piece).unwrap();
        }
        assert_eq!(harness.result(RECV), Ok(300_000));
        assert!(space == bytes);
        harness.queue(RECV, recv_whole(socket.as_raw_fd(), &mut space));
        peer.write_all(b"rest").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(harness.result(RECV), Ok(4));
        harness.driver.forget(socket.as_raw_fd());
    });
}

#[test]
fn discarded_bytes_are_counted_and_not_written() {
    on_both("what_is_thrown_away", |harness| {
        let (socket, mut peer) = tcp_pair();
        let mut space = [7; 1000];
        peer.write_all(&[1; 600]).unwrap();
        let (socket_fd, at) = (socket.as_raw_fd(), space.as_mut_ptr());
        let op = Op::Recv { socket: socket_fd, at, space_bytes: 400, whole: false, discard: true };
        assert_eq!((harness.ask(RECV, op), harness.ask(RECV, op)), (Ok(400), Ok(200)));
        assert_eq!(space, [7; 1000]);
        harness.driver.forget(socket_fd);
    });
}

#[test]
fn a_half_closed_connection_takes_a_send_and_a_closed_one_fails_it() {
    on_both("half_closed_connection", |harness| {
        let (socket, mut peer) = tcp_pair();
        let mut space = [0; 16];
        harness.queue(RECV, recv(socket.as_raw_fd(), &mut space));
        harness.enter(Wait::No);
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(harness.result(RECV), Ok(0));
        assert_eq!(harness.ask(SEND, send(socket.as_raw_fd(), b"still", true)), Ok(5));
        let mut received = [0; 5];
        peer.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"still");
        drop(peer);
        // The first send is answered by a reset; a later one fails.
        while harness.ask(SEND, send(socket.as_raw_fd(), b"closed", true)).is_ok() {}
        assert!(
            harness.ask(WAIT, Op::Writable { socket: socket.as_raw_fd() }).is_ok(),
            "the failure is reported"
        );
        assert!(harness.ask(RECV, recv(socket.as_raw_fd(), &mut space)).unwrap_or(0) == 0);
        let sleep_count = harness.sleep_count(SHORT_SLEEP);
        assert!(sleep_count <= 2, "no operation waits for it any more: {sleep_count} sleeps");
        harness.driver.forget(socket.as_raw_fd());
    });
}

#[test]
fn bytes_without_a_receive_cause_few_wakeups() {
    on_both("what_nobody_receives", |harness| {
        let (socket, mut peer) = tcp_pair();
        let mut space = [0; 4];
        peer.write_all(b"more than that").unwrap();
        assert_eq!(harness.ask(RECV, recv(socket.as_raw_fd(), &mut space)), Ok(4));
        let sleep_count = harness.sleep_count(SHORT_SLEEP);
        assert!(sleep_count <= 2, "{sleep_count} sleeps");
        assert_eq!(harness.ask(RECV, recv(socket.as_raw_fd(), &mut space)), Ok(4));
        harness.driver.forget(socket.as_raw_fd());
    });
}

#[test]
fn a_complete_send_at_once_ends_no_wait_and_a_short_one_does() {
    on_both("a_send_at_once", |harness| {
        // Not over TCP, where acknowledgements free space in the socket.
        let (socket, mut peer) = UnixStream::pair().unwrap();
        harness.queue(SEND, send(socket.as_raw_fd(), b"fits", true));
        assert_eq!(harness.sleep_count(SHORT_SLEEP), 1);
        assert_eq!(harness.result(SEND), Ok(4));
        let mut iovecs = [b"so d", b"oes!"].map(|piece| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        });
        // SAFETY: zeros are an empty header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (iovecs.as_mut_ptr(), iovecs.len());
        let (socket_fd, message) = (socket.as_raw_fd(), &raw const message);
        harness.queue(
            SEND,
            Op::SendGathered { socket: socket_fd, message, send_bytes: 8, at_once: true },
        );
        assert_eq!(harness.sleep_count(SHORT_SLEEP), 1);
        assert_eq!(harness.result(SEND), Ok(8));
        let bytes = vec![5; 1 << 20];
        let mut sent_bytes = 12;
        loop {
            match harness.ask(SEND, send(socket.as_raw_fd(), &bytes, true)) {
                Ok(now_bytes) => sent_bytes += now_bytes as usize,
                Err(errno) => {
                    assert_eq!(errno, Errno(11));
                    break;
                }
            }
        }
        let full = Op::SendGathered { socket: socket_fd, message, send_bytes: 8, at_once: true };
        assert_eq!(harness.ask(SEND, full), Err(Errno(11)));
        harness.queue(WAIT, Op::Writable { socket: socket.as_raw_fd() });
        harness.enter(Wait::No);
        assert!(harness.reaped.is_empty(), "there is no space");
        let mut received = vec![0; sent_bytes];
        peer.read_exact(&mut received).unwrap();
        assert!(harness.result(WAIT).is_ok());
        let sleep_count = harness.sleep_count(SHORT_SLEEP);
        assert!(
            sleep_count <= 2,
            "free space causes no wakeup without a waiting send: {sleep_count} sleeps"
        );
        peer.set_nonblocking(true).unwrap();
        assert_eq!(peer.read(&mut received).unwrap_err().kind(), ErrorKind::WouldBlock);
        harness.driver.forget(socket.as_raw_fd());
    });
}

#[test]
fn a_slow_reader_gets_all_of_a_gathered_send_in_order() {
    on_both("a_slow_reader", |harness| {
        let (socket, mut peer) = tcp_pair();
        let pieces: Vec<Vec<u8>> =
            (0..100_u8).map(|index| vec![index; 1000 + usize::from(index) * 1700]).collect();
        let mut iovecs: Vec<libc::iovec> = pieces
            .iter()
            .map(|piece| libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            })
            .collect();
        // SAFETY: zeros are an empty header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (iovecs.as_mut_ptr(), iovecs.len());
        let sent: Vec<u8> = pieces.concat();
        let send_bytes = u32::try_from(sent.len()).unwrap();
        let (socket_fd, message) = (socket.as_raw_fd(), &raw const message);
        harness.queue(
            SEND,
            Op::SendGathered { socket: socket_fd, message, send_bytes, at_once: false },
        );
        let heard_bytes = sent.len();
        let reading = std::thread::spawn(move || {
            let (mut received, mut space) = (Vec::new(), vec![0; 33_333]);
            while received.len() < heard_bytes {
                let read_bytes = peer.read(&mut space).unwrap();
                assert!(read_bytes > 0, "the end after {} bytes", received.len());
                received.extend_from_slice(&space[..read_bytes]);
            }
            received
        });
        assert_eq!(harness.result(SEND), Ok(u32::try_from(sent.len()).unwrap()));
        assert!(reading.join().unwrap() == sent);
        harness.driver.forget(socket.as_raw_fd());
    });
}

#[test]
fn a_sockets_receive_and_send_wait_and_are_cancelled_separately() {
    on_both("both_ways_of_a_socket", |harness| {
        let (socket, mut peer) = tcp_pair();
        let file = socket.as_raw_fd();
        let (mut space, bytes) = ([0; 16], vec![1; 16 << 20]);
        harness.queue(RECV, recv(file, &mut space));
        harness.queue(SEND, send(file, &bytes, false));
        harness.enter(Wait::No);
        assert!(harness.reaped.is_empty(), "one has nothing to receive, the other no space");
        peer.write_all(b"later").unwrap();
        assert_eq!(harness.result(RECV), Ok(5));
        harness.queue(RECV, recv(file, &mut space));
        harness.enter(Wait::No);
        harness.driver.cancel(RECV, file);
        assert_eq!(harness.result(RECV), Err(CANCELLED));
        harness.driver.cancel(SEND, file);
        let sent_bytes = harness.result(SEND).unwrap();
        assert!((1..16 << 20).contains(&sent_bytes), "the sent bytes are reported: {sent_bytes}");
        let mut received = vec![0; sent_bytes as usize];
        peer.read_exact(&mut received).unwrap();
        peer.set_nonblocking(true).unwrap();
        assert_eq!(peer.read(&mut space).unwrap_err().kind(), ErrorKind::WouldBlock);
        harness.driver.forget(file);
    });
}

#[test]
fn a_reused_descriptor_belongs_to_its_new_socket() {
    on_both("a_descriptor_that_is_used_again", |harness| {
        // A descriptor number that nothing else in this process gets.
        const FILE: RawFd = 900;
        for round in 0..200_u8 {
            let (low, mut peer) = UnixStream::pair().unwrap();
            let socket = rustix::io::fcntl_dupfd_cloexec(&low, FILE).unwrap();
            drop(low);
            let file = socket.as_raw_fd();
            assert_eq!(file, FILE, "it is used again");
            let mut space = [0; 4];
            harness.queue(RECV, recv(file, &mut space));
            harness.enter(Wait::No);
            assert!(harness.reaped.is_empty(), "nothing of an earlier socket has_other");
            match round % 3 {
                0 => {
                    peer.write_all(&[round]).unwrap();
                    assert_eq!(harness.result(RECV), Ok(1));
                    assert_eq!(space[0], round);
                }
                1 => {
                    harness.driver.cancel(RECV, file);
                    assert_eq!(harness.result(RECV), Err(CANCELLED));
                    // Unread when it is closed.
                    peer.write_all(&[round]).unwrap();
                }
                _ => {
                    drop(peer);
                    assert_eq!(harness.result(RECV), Ok(0));
                }
            }
            harness.driver.forget(file);
        }
    });
}

#[test]
fn a_handed_over_socket_causes_no_events_at_its_former_lane() {
    on_both("a_socket_that_is_given_away", |harness| {
        let other = Driver::new(DriverChoice::Only(harness.kind()), false).unwrap();
        let mut other = Harness { driver: other, reaped: Vec::new(), engine: IoEngine::Auto };
        let (socket, mut peer) = tcp_pair();
        let (file, mut space) = (socket.as_raw_fd(), [0; 16]);
        harness.queue(RECV, recv(file, &mut space));
        harness.enter(Wait::No);
        harness.driver.cancel(RECV, file);
        assert_eq!(harness.result(RECV), Err(CANCELLED));
        harness.driver.forget(file);
        other.queue(RECV, recv(file, &mut space));
        other.enter(Wait::No);
        peer.write_all(b"for the other").unwrap();
        assert_eq!(harness.sleep_count(SHORT_SLEEP), 1, "the former lane gets no event");
        assert_eq!(other.result(RECV), Ok(13));
        other.driver.forget(file);
    });
}

#[test]
fn both_drivers_accept_until_cancelled() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let file = listener.as_raw_fd();
    // Twice: flags that one driver sets on the listener must not disturb the other.
    for _ in 0..2 {
        on_both("connections_are_accepted", |harness| {
            harness.queue(ACCEPT, Op::AcceptMany { listener: file });
            harness.enter(Wait::No);
            assert!(harness.reaped.is_empty());
            for _ in 0..3 {
                let mut peer = TcpStream::connect(address).unwrap();
                let completion = harness.next();
                assert_eq!((completion.token, completion.more), (ACCEPT, true));
                let mut accepted = TcpStream::from(owned(completion.result.unwrap()));
                accepted.write_all(b"hi").unwrap();
                peer.read_exact(&mut [0; 2]).unwrap();
            }
            harness.driver.cancel(ACCEPT, file);
            assert_eq!(harness.result(ACCEPT), Err(CANCELLED));
            harness.driver.forget(file);
        });
    }
}

/// A socket, and an address for it.
fn unconnected(address: SocketAddr) -> (OwnedFd, crate::listen::Address) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    (socket, crate::listen::Address::new(address))
}

#[test]
fn connecting_succeeds_is_refused_or_is_cancelled() {
    on_both("connecting", |harness| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let (socket, to) = unconnected(address);
        let (at, address_bytes) = to.raw();
        let op = |socket: &OwnedFd| Op::Connect {
            socket: socket.as_raw_fd(),
            address: at,
            address_bytes,
        };
        assert!(harness.ask(CONNECT, op(&socket)).is_ok());
        harness.driver.forget(socket.as_raw_fd());
        // The backlog has one place, which is taken once the listener is readable.
        let queued = PollFd::new(&listener, PollFlags::IN);
        assert_eq!(rustix::event::poll(&mut [queued], None).unwrap(), 1);
        let (waiting, _) = unconnected(address);
        harness.queue(CONNECT, op(&waiting));
        harness.enter(Wait::No);
        assert!(harness.reaped.is_empty());
        harness.driver.cancel(CONNECT, waiting.as_raw_fd());
        assert_eq!(harness.result(CONNECT), Err(CANCELLED));
        harness.driver.forget(waiting.as_raw_fd());
        // An address that no other socket can have, with no listener.
        let bound = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = SocketAddr::try_from(rustix::net::getsockname(&bound).unwrap()).unwrap();
        let (refused, to) = unconnected(address);
        let (address, address_bytes) = to.raw();
        let op = Op::Connect { socket: refused.as_raw_fd(), address, address_bytes };
        assert_eq!(harness.ask(CONNECT, op), Err(Errno(111)));
        harness.driver.forget(refused.as_raw_fd());
    });
}

#[test]
fn quiescing_cancels_waiting_operations() {
    on_both("the_end_takes_back", |harness| {
        let (socket, _peer) = tcp_pair();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let space = Box::leak(Box::new([0; 8]));
        harness.queue(RECV, recv(socket.as_raw_fd(), space));
        harness.queue(ACCEPT, Op::AcceptMany { listener: listener.as_raw_fd() });
        harness.enter(Wait::No);
        let _unaccepted = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        harness.queue(WAIT, Op::Writable { socket: socket.into_raw_fd() });
        assert!(harness.driver.quiesce());
    });
}

#[test]
fn busy_polling_finds_completions() {
    for kind in DriverKind::ALL {
        let Ok(driver) = Driver::new(DriverChoice::Only(kind), true) else {
            skip(
                &format!("what_comes_is_found on {}", kind.name()),
                "it cannot be used in this run",
            );
            continue;
        };
        let mut harness = Harness { driver, reaped: Vec::new(), engine: IoEngine::Auto };
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let mut space = [0; 4];
        for _ in 0..10 {
            harness.queue(RECV, recv(socket.as_raw_fd(), &mut space));
            harness.enter(Wait::No);
            assert!(!harness.driver.poll(10, || false), "nothing has_other on {}", kind.text());
            assert!(harness.driver.poll(10, || true), "the other condition on {}", kind.text());
            peer.write_all(b"come").unwrap();
            assert!(
                harness.driver.poll(10, || false),
                "the completion was reaped on {}",
                kind.text()
            );
            harness.enter(Wait::No);
            assert_eq!(harness.result(RECV), Ok(4));
        }
        harness.driver.forget(socket.as_raw_fd());
    }
}
