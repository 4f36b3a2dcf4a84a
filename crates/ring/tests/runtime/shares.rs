//! Buffer shares: which party may have buffers, for how long, and which one yields.

use super::support::{
    Closure, GIVE_UP_AFTER, frame, hello, noise, only_mailbox, read_frame, ring_config, start,
};
use interface::{Action, CloseReason, Event, NetAction, NetEvent, Party, Turn};
use ring::{Config, Ring, Stopper};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::LaneId;

const MIB: usize = 1 << 20;
/// A client with this Hello may not write.
const READER: &[u8] = b"reader";
const PARTY_A: &[u8] = b"party a";
const PARTY_B: &[u8] = b"party b";

/// Admits clients as the party that their Hello names, and echoes.
fn echo(ended: Sender<Event>) -> Closure<impl FnMut(&mut Turn<'_>, Event)> {
    Closure(move |turn: &mut Turn<'_>, event| match event {
        Event::Net(NetEvent::Frame { conn, frame, bulk }) => {
            let bytes = turn.arena.get(frame);
            let says = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
            let party = match (says(READER), says(PARTY_A), says(PARTY_B)) {
                (true, _, _) => Some((false, Party::of_export(1))),
                (_, true, _) => Some((true, Party::of_export(2))),
                (_, _, true) => Some((true, Party::STORE)),
                _ => None,
            };
            if let Some((writes, party)) = party {
                turn.act(NetAction::Admit { conn, writes, party });
            }
            turn.act(NetAction::Send { conn, frame, bulk });
            bulk.iter().for_each(|bulk| turn.act(Action::Release { buf: bulk.buf }));
        }
        Event::Stop => turn.act(Action::Stopped),
        // Not every test receives it.
        Event::Net(NetEvent::Closed { .. }) => drop(ended.send(event)),
        _ => {}
    })
}

/// An echo server with buffer shares, and the bytes of buffers in use when it ended.
struct Server {
    address: SocketAddr,
    ended: Receiver<Event>,
    stopper: Stopper,
    thread: JoinHandle<usize>,
}

impl Server {
    fn start(tune: impl FnOnce(&mut Config) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mailbox = only_mailbox();
        let stopper = mailbox.stopper();
        let (sender, ended) = channel();
        let thread = std::thread::spawn(move || {
            let mut config = ring_config(LaneId(0));
            config.mailbox = Some(mailbox);
            config.listener = Some(listener.into());
            tune(&mut config);
            let mut ring = Ring::new(config).unwrap();
            let mut core = echo(sender);
            while ring.turn(&mut core).unwrap() {}
            ring.buffer_bytes()
        });
        Self { address, ended, stopper, thread }
    }

    fn connect(&self, as_whom: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(GIVE_UP_AFTER)).unwrap();
        stream.write_all(&hello(as_whom)).unwrap();
        assert_eq!(read_frame(&mut stream).unwrap(), hello(as_whom));
        stream
    }

    /// Sends all but a few bytes of a frame with a bulk of maximum size.
    fn half_send(&self, as_whom: &[u8]) -> TcpStream {
        let mut stream = self.connect(as_whom);
        let sent = frame(1, &noise(1, MIB));
        stream.write_all(&sent[..sent.len() - 5]).unwrap();
        stream
    }

    fn stop(self) -> usize {
        self.stopper.stop();
        self.thread.join().unwrap()
    }
}

/// Sends a frame whose bulk comes back.
fn exchange(stream: &mut TcpStream, xid: u64) {
    let sent = frame(xid, &noise(xid, MIB));
    let mut writer = stream.try_clone().unwrap();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&copy).unwrap());
    assert!(read_frame(stream).unwrap() == sent);
    writing.join().unwrap();
}

/// Half a bulk on each of many read-only connections: none of them takes a buffer.
#[test]
fn bulk_on_a_connection_that_may_not_write_takes_no_buffer() {
    let server = Server::start(|config| config.limits.buffer_bytes_max = 2 * MIB);
    let _half: Vec<_> = (0..20).map(|_| server.half_send(READER)).collect();
    let mut writer = server.connect(PARTY_B);
    (0..5).for_each(|xid| exchange(&mut writer, xid));
    assert_eq!(server.stop(), 0);
}

/// An honest read-only client that writes gets an answer to each of its requests.
#[test]
fn unwanted_bulk_is_discarded_and_its_frame_arrives() {
    let server = Server::start(|_| {});
    let mut stream = server.connect(READER);
    for bulk_bytes in [0, 1, 4095, 4096, 70_000, MIB] {
        let sent = frame(9, &noise(3, bulk_bytes));
        let head_bytes = sent.len() - bulk_bytes;
        stream.write_all(&sent).unwrap();
        stream.write_all(&frame(10, &[])).unwrap();
        let mut received_reply = vec![0; head_bytes];
        stream.read_exact(&mut received_reply).unwrap();
        assert!(received_reply == sent[..head_bytes], "{bulk_bytes} bytes of bulk");
        assert_eq!(read_frame(&mut stream).unwrap(), frame(10, &[]));
    }
    assert_eq!(server.stop(), 0);
}

/// However many bulks one party leaves incomplete, another party gets buffers.
#[test]
fn incomplete_bulks_of_one_party_leave_buffers_for_others() {
    let server = Server::start(|config| config.limits.buffer_bytes_max = 8 * MIB);
    let _half: Vec<_> = (0..20).map(|_| server.half_send(PARTY_A)).collect();
    let mut other = server.connect(PARTY_B);
    (0..5).for_each(|xid| exchange(&mut other, xid));
    server.stop();
}

/// While connections wait for a buffer, those that hold one and send nothing are closed.
#[test]
fn incomplete_bulks_do_not_withhold_buffers_from_their_own_party() {
    let server = Server::start(|config| {
        config.limits.buffer_bytes_max = 8 * MIB;
        config.limits.starving_stall_ms_max = 100;
    });
    let _half: Vec<_> = (0..20).map(|_| server.half_send(PARTY_A)).collect();
    let mut same = server.connect(PARTY_A);
    (0..5).for_each(|xid| exchange(&mut same, xid));
    let event = server.ended.recv().unwrap();
    assert!(
        matches!(event, Event::Net(NetEvent::Closed { reason: CloseReason::Unfinished, .. })),
        "{event:?}"
    );
    server.stop();
}

#[test]
fn an_incomplete_frame_ends_its_connection_at_the_deadline() {
    let server = Server::start(|config| {
        config.limits.frame_ms_max = 200;
        config.limits.stall_ms_max = 20;
    });
    let whole = frame(1, &noise(1, 64));
    // Its header, body or bulk is incomplete.
    for sent_bytes in [1, whole.len() - 65, whole.len() - 1] {
        for as_whom in [PARTY_A, READER] {
            let mut stream = server.connect(as_whom);
            stream.write_all(&whole[..sent_bytes]).unwrap();
            let event = server.ended.recv().unwrap();
            let unfinished = CloseReason::Unfinished;
            assert!(
                matches!(event, Event::Net(NetEvent::Closed { reason, .. }) if reason == unfinished),
                "{event:?}"
            );
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap_or(0);
        }
    }
    // A connection that has begun no frame is not closed.
    let mut idle = server.connect(PARTY_A);
    std::thread::sleep(Duration::from_millis(400));
    exchange(&mut idle, 1);
    server.stop();
}

/// A peer on a slow line may take as long as its line does.
#[test]
fn a_slow_peer_that_keeps_sending_stays_connected() {
    let server = Server::start(|config| {
        config.limits.frame_ms_max = 100;
        config.limits.stall_ms_max = 20;
    });
    let mut slow = server.connect(PARTY_A);
    let sent = frame(1, &noise(1, 32 * 1024));
    for piece in sent.chunks(1024) {
        slow.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(15));
    }
    assert!(read_frame(&mut slow).unwrap() == sent);
    server.stop();
}

/// Silent connections are closed for new ones.
#[test]
fn at_the_connection_limit_an_unadmitted_connection_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, _ended) = channel();
    let lane = start(only_mailbox(), move |config| {
        config.listener = Some(listener.into());
        config.limits.conn_count_max = 3;
        echo(sender)
    });
    let connect = |as_whom: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&hello(as_whom)).unwrap();
        assert_eq!(read_frame(&mut stream).unwrap(), hello(as_whom));
        stream
    };
    let mut first = connect(PARTY_A);
    let silent: Vec<_> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut second = connect(PARTY_B);
    let mut third = connect(PARTY_B);
    for stream in [&mut first, &mut second, &mut third] {
        exchange(stream, 1);
    }
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    }
    assert_eq!(lane.stop().shed_count, 2);
}
