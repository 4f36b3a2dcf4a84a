//! Relayed connections: one lane has the socket, another executes the requests.

use super::support::{
    Closure, GIVE_UP_AFTER, Lane, NEVER_MS, Recorder, echo, frame, hello, noise, read_frame,
    ring_config, start, tempdir_in_memory,
};
use interface::{
    Action, Bulk, CloseReason, ConnId, Core, Errno, Event, MountMessage, NetAction, NetEvent,
    Object, ObjectAction, ObjectEvent, PeerAction, PeerEvent, Ticket, Turn,
};
use ring::{Config, Counters, Mesh, Ring};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use wire::{HEADER_BYTES, LaneId, ProtocolError};

/// The executing lane.
const EXECUTOR: LaneId = LaneId(1);

/// Keeps sockets and relays to the executing lane; its core gets one event per connection.
fn relaying_core() -> impl Core {
    Closure(|turn: &mut Turn<'_>, event| match event {
        Event::Net(NetEvent::Frame { conn, frame: hello, bulk: None }) => {
            turn.act(NetAction::Proxy { conn, lane: EXECUTOR, hello });
        }
        Event::Stop => turn.act(Action::Stopped),
        // Also sends that a busy machine delays.
        Event::Tick | Event::Net(NetEvent::SentLate { .. }) => {}
        other => panic!("the proxy lane's core gets only Hellos: {other:?}"),
    })
}

/// The executing lane's response to a Hello: it echoes it and admits the peer.
fn welcome(turn: &mut Turn<'_>, event: Event) {
    if let Event::Net(NetEvent::HandedOver { conn, hello }) = event {
        turn.act(NetAction::admit(conn));
        turn.act(NetAction::Send { conn, frame: hello, bulk: None });
    }
}

struct Pair {
    proxy: Lane,
    executor: Lane,
    address: SocketAddr,
}

impl Pair {
    fn start<B: Core>(
        tune: impl Fn(&mut Config) + Copy + Send + 'static,
        executor: impl FnOnce(&mut Config) -> B + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut mailboxes = Mesh::mailboxes(2).unwrap();
        let executor = start(mailboxes.pop().unwrap(), move |config| {
            tune(config);
            executor(config)
        });
        let proxy = start(mailboxes.pop().unwrap(), move |config| {
            config.listener = Some(listener.into());
            // A stopping proxy lane waits for executing lanes, most of which send nothing more
            // here.
            config.limits.stop_ms_max = 10;
            tune(config);
            relaying_core()
        });
        Self { proxy, executor, address }
    }

    /// The executing lane echoes.
    fn echoes(tune: impl Fn(&mut Config) + Copy + Send + 'static) -> (Self, Receiver<Event>) {
        let (sender, ended) = channel();
        let pair = Self::start(tune, move |_| {
            let mut echo = echo(sender);
            Closure(move |turn: &mut Turn<'_>, event| {
                welcome(turn, event);
                echo.apply(turn, event);
            })
        });
        (pair, ended)
    }

    /// The counters of the proxy lane and of the executing lane.
    fn stop(self) -> (Counters, Counters) {
        (self.proxy.stop(), self.executor.stop())
    }

    fn connect(&self) -> TcpStream {
        connect(TcpStream::connect(self.address).unwrap())
    }
}

fn connect(mut stream: TcpStream) -> TcpStream {
    stream.write_all(&hello(b"hi")).unwrap();
    assert_eq!(read_frame(&mut stream).unwrap(), hello(b"hi"));
    stream
}

fn reason_of(event: Event) -> CloseReason {
    let Event::Net(NetEvent::Closed { reason, .. }) = event else { panic!("{event:?}") };
    reason
}

fn ends(stream: &mut TcpStream) {
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
}

#[test]
fn frames_with_bulk_of_every_size_pass_both_ways() {
    let (pair, _ended) = Pair::echoes(|_| {});
    let mut stream = pair.connect();
    for bulk_bytes in [0, 1, 4095, 4096, 70_000, 1 << 20] {
        let sent = frame(7, &noise(bulk_bytes as u64, bulk_bytes));
        stream.write_all(&sent).unwrap();
        assert_eq!(read_frame(&mut stream).unwrap(), sent, "{bulk_bytes} bytes of bulk");
    }
    let (proxy, executor) = pair.stop();
    assert_eq!((proxy.frame_in_count, proxy.frame_out_count), (7, 7));
    assert_eq!(proxy.in_bytes, proxy.out_bytes);
    assert_eq!(
        (executor.recv_count, executor.send_count),
        (0, 0),
        "the executing lane has no socket"
    );
    assert!(proxy.message_out_count >= 7, "{proxy:?}");
    assert_eq!(proxy.message_out_count, executor.message_in_count);
    assert_eq!(proxy.protocol_error_count + executor.protocol_error_count, 0);
}

#[test]
fn many_frames_at_once_come_back_in_order() {
    let (pair, _ended) = Pair::echoes(|_| {});
    let mut stream = pair.connect();
    let sent: Vec<Vec<u8>> = (0..5000)
        .map(|xid| frame(xid, &noise(xid, if xid % 50 == 0 { 90_000 } else { 0 })))
        .collect();
    let all = sent.concat();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&all).unwrap());
    for expected in &sent {
        assert_eq!(&read_frame(&mut stream).unwrap(), expected);
    }
    writing.join().unwrap();
    let (proxy, _) = pair.stop();
    assert_eq!(proxy.frame_out_count, 5001);
}

#[test]
fn many_clients_wait_for_buffers_at_both_lanes_and_continue() {
    let (pair, _ended) = Pair::echoes(|config| config.limits.buffer_bytes_max = 2 << 20);
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let mut stream = pair.connect();
            std::thread::spawn(move || {
                for round in 0..10 {
                    let sent = frame(round, &noise(client * 100 + round, 1 << 20));
                    let mut writer = stream.try_clone().unwrap();
                    let copy = sent.clone();
                    let writing = std::thread::spawn(move || writer.write_all(&copy).unwrap());
                    assert_eq!(read_frame(&mut stream).unwrap(), sent);
                    writing.join().unwrap();
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(pair.stop().0.frame_in_count, 88);
}

#[test]
fn the_proxy_lane_finds_a_wrong_checksum_and_reports_it_to_the_executing_lane() {
    let (pair, ended) = Pair::echoes(|_| {});
    let mut stream = pair.connect();
    let mut sent = frame(1, &noise(1, 100_000));
    let last = sent.len() - 1;
    sent[last] ^= 1;
    stream.write_all(&sent).unwrap();
    assert_eq!(
        reason_of(ended.recv().unwrap()),
        CloseReason::ProtocolError(ProtocolError::Checksum)
    );
    ends(&mut stream);
    let (proxy, executor) = pair.stop();
    assert_eq!((proxy.protocol_error_count, executor.protocol_error_count), (1, 0));
}

#[test]
fn a_closed_connection_is_reported_to_the_executing_lane() {
    let (pair, ended) = Pair::echoes(|_| {});
    for part in 0..20 {
        let mut stream = pair.connect();
        let sent = frame(1, &noise(1, 1 << 20));
        // Nothing, or part of a header, or part of a bulk.
        stream.write_all(&sent[..part * 50_000]).unwrap();
        if part % 2 == 0 {
            drop(stream);
        } else {
            // A reset, with or without unread bytes.
            sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
            drop(stream);
        }
        let reason = reason_of(ended.recv().unwrap());
        let closed = matches!(reason, CloseReason::Ended | CloseReason::Failed(Errno(104)));
        assert!(closed, "{reason:?}");
    }
    let (proxy, executor) = pair.stop();
    assert_eq!(proxy.frame_in_count, 20, "no part of a frame is a frame");
    assert_eq!(executor.protocol_error_count, 0);
}

#[test]
fn frames_sent_by_the_executing_lane_before_a_close_arrive() {
    let pair = Pair::start(
        |_| {},
        |_| {
            Closure(|turn: &mut Turn<'_>, event| {
                welcome(turn, event);
                match event {
                    Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                        (0..2000)
                            .for_each(|_| turn.act(NetAction::Send { conn, frame, bulk: None }));
                        turn.act(NetAction::Close { conn });
                        // This has no effect any more.
                        turn.act(NetAction::Send { conn, frame, bulk: None });
                    }
                    Event::Stop => turn.act(Action::Stopped),
                    Event::Net(NetEvent::Closed { .. }) => panic!("no event follows a close"),
                    _ => {}
                }
            })
        },
    );
    for round in 0..5 {
        let mut stream = pair.connect();
        let sent = frame(round, &[]);
        stream.write_all(&sent).unwrap();
        for _ in 0..2000 {
            assert_eq!(read_frame(&mut stream).unwrap(), sent);
        }
        ends(&mut stream);
    }
    pair.stop();
}

/// Both lanes are asked to stop, the proxy lane first; the executing lane sends its last replies
/// after that.
#[test]
fn an_orderly_stop_sends_the_executing_lanes_last_replies() {
    let pair = Pair::start(
        |config| config.limits.stop_ms_max = NEVER_MS,
        |_| {
            let mut pending = Vec::new();
            Closure(move |turn: &mut Turn<'_>, event| {
                welcome(turn, event);
                match event {
                    Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                        pending.push((conn, turn.arena.get(frame).to_vec()));
                        turn.act(NetAction::Send { conn, frame, bulk: None });
                    }
                    Event::Stop => {
                        for (conn, frame) in pending.drain(..) {
                            let frame = turn.arena.put(&frame);
                            (0..1000).for_each(|_| {
                                turn.act(NetAction::Send { conn, frame, bulk: None })
                            });
                            turn.act(NetAction::Close { conn });
                        }
                        turn.act(Action::Stopped);
                    }
                    _ => {}
                }
            })
        },
    );
    let mut stream = pair.connect();
    let sent = frame(3, &[]);
    stream.write_all(&sent).unwrap();
    assert_eq!(read_frame(&mut stream).unwrap(), sent);
    pair.proxy.stopper.stop();
    pair.executor.stopper.stop();
    for _ in 0..1000 {
        assert_eq!(read_frame(&mut stream).unwrap(), sent);
    }
    ends(&mut stream);
    pair.proxy.thread.join().unwrap();
    pair.executor.thread.join().unwrap();
}

/// The connection receives no more than its limit allows, and is closed; the executing lane gets
/// the reason.
#[test]
fn a_relayed_client_that_does_not_read_is_bounded_and_closed() {
    let (pair, ended) = Pair::echoes(|config| {
        config.limits.conn_out_bytes_pause = 8 << 20;
        config.limits.stall_ms_max = 200;
    });
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 32 * 1024).unwrap();
    rustix::net::connect(&socket, &pair.address).unwrap();
    let mut stream = connect(TcpStream::from(socket));
    let sent = frame(1, &noise(1, 1 << 20));
    while stream.write_all(&sent).is_ok() {}
    assert_eq!(reason_of(ended.recv().unwrap()), CloseReason::TooSlow);
    let (proxy, executor) = pair.stop();
    assert_eq!(proxy.protocol_error_count + executor.protocol_error_count, 0);
    // The limit, bytes on their way to the executing lane and back, and bytes in the kernel that
    // are not counted because their send was cut off.
    assert!(proxy.in_bytes - proxy.out_bytes <= 20 << 20, "{proxy:?}");
}

#[test]
fn before_admission_frames_are_applied_one_at_a_time() {
    let (sender, received) = channel();
    let pair =
        Pair::start(|_| {}, move |_| Counting { sender, turn_count: 0, event_count: 0, limit: 10 });
    let mut stream = TcpStream::connect(pair.address).unwrap();
    let all: Vec<u8> = (0..10).flat_map(|number| hello(&[number; 40])).collect();
    stream.write_all(&all).unwrap();
    let counts: Vec<u64> = received.iter().take(10).collect();
    assert!(counts.iter().all(|count| *count == 1), "in a turn: {counts:?}");
    let mut back = vec![0; all.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, all);
    pair.stop();
}

/// Echoes without admitting, and reports how many frames each turn brought.
struct Counting {
    sender: std::sync::mpsc::Sender<u64>,
    turn_count: u64,
    event_count: u64,
    limit: u64,
}

impl Core for Counting {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Net(NetEvent::Frame { conn, frame, .. })
            | Event::Net(NetEvent::HandedOver { conn, hello: frame }) => {
                self.event_count += 1;
                turn.act(NetAction::Send { conn, frame, bulk: None });
            }
            Event::Stop => turn.act(Action::Stopped),
            _ => {}
        }
    }

    fn settle(&mut self, _turn: &mut Turn<'_>) {
        let count = std::mem::take(&mut self.event_count);
        if count > 0 && self.turn_count < self.limit {
            self.turn_count += 1;
            self.sender.send(count).unwrap();
        }
    }
}

#[test]
fn long_frames_and_bulk_are_protocol_errors_before_the_executing_lane_admits() {
    let (sender, ended) = channel();
    let pair = Pair::start(
        |_| {},
        move |_| {
            Closure(move |turn: &mut Turn<'_>, event| match event {
                Event::Net(NetEvent::HandedOver { conn, hello }) => {
                    turn.act(NetAction::Send { conn, frame: hello, bulk: None });
                }
                Event::Net(NetEvent::Closed { .. }) => sender.send(event).unwrap(),
                Event::Stop => turn.act(Action::Stopped),
                Event::Net(NetEvent::Frame { .. }) => panic!("{event:?}"),
                _ => {}
            })
        },
    );
    let mut stream = pair.connect();
    stream.write_all(&frame(1, b"bulk")).unwrap();
    assert_eq!(
        reason_of(ended.recv().unwrap()),
        CloseReason::ProtocolError(ProtocolError::TooLong)
    );
    ends(&mut stream);
    pair.stop();
}

#[test]
fn an_executing_lane_at_its_connection_limit_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut mailboxes = Mesh::mailboxes(2).unwrap();
    let executor = start(mailboxes.pop().unwrap(), |config| {
        config.limits.conn_count_max = 0;
        relaying_core()
    });
    let proxy = start(mailboxes.pop().unwrap(), |config| {
        config.listener = Some(listener.into());
        relaying_core()
    });
    stream.write_all(&hello(b"hi")).unwrap();
    ends(&mut stream);
    proxy.stop();
    assert_eq!(executor.stop().refused_count, 1);
}

/// A relayed connection is not relayed further.
#[test]
fn a_relayed_connection_is_neither_handed_over_nor_relayed_again() {
    for again in [false, true] {
        let (sender, ended) = channel();
        let pair = Pair::start(
            |_| {},
            move |_| {
                Closure(move |turn: &mut Turn<'_>, event| match event {
                    Event::Net(NetEvent::HandedOver { conn, hello }) => turn.act(if again {
                        Action::Net(NetAction::Proxy { conn, lane: LaneId(0), hello })
                    } else {
                        Action::Net(NetAction::HandOver { conn, lane: LaneId(0), hello })
                    }),
                    Event::Net(NetEvent::Closed { .. }) => sender.send(event).unwrap(),
                    Event::Stop => turn.act(Action::Stopped),
                    _ => {}
                })
            },
        );
        let mut stream = TcpStream::connect(pair.address).unwrap();
        stream.write_all(&hello(b"hi")).unwrap();
        ends(&mut stream);
        assert_eq!(
            reason_of(ended.recv().unwrap()),
            CloseReason::ProtocolError(ProtocolError::Sequence)
        );
        let (proxy, executor) = pair.stop();
        assert_eq!((proxy.protocol_error_count, executor.protocol_error_count), (0, 1));
    }
}

/// Rings of one thread that take turns without sleeping.
struct Rings {
    rings: Vec<Ring>,
    recorders: Vec<Recorder>,
}

impl Rings {
    fn new(lane_count: u16, make: impl Fn(u16) -> Config) -> Self {
        let mailboxes = Mesh::mailboxes(lane_count).unwrap().into_iter();
        let ring = |mailbox: ring::Mailbox| {
            let config = make(mailbox.lane().0);
            Ring::new(Config { mailbox: Some(mailbox), ..config }).unwrap()
        };
        let rings: Vec<Ring> = mailboxes.map(ring).collect();
        let recorders = rings.iter().map(|_| Recorder::default()).collect();
        Self { rings, recorders }
    }

    fn turn(&mut self, lane: usize) {
        let Self { rings, recorders } = self;
        rings[lane].with(|turn| turn.act(Action::WakeAt { at: turn.now.mono }));
        rings[lane].turn(&mut recorders[lane]).unwrap();
    }

    /// All take turns until a lane has so many events.
    fn until(&mut self, lane: usize, event_count: usize) {
        self.until_holds(|rings| rings.recorders[lane].events.len() >= event_count);
    }

    /// All take turns until the condition holds.
    fn until_holds(&mut self, mut holds: impl FnMut(&Self) -> bool) {
        let given_up = Instant::now() + GIVE_UP_AFTER;
        while !holds(self) {
            (0..self.rings.len()).for_each(|lane| self.turn(lane));
            assert!(Instant::now() < given_up, "not in {GIVE_UP_AFTER:?}: {:?}", self.recorders);
        }
    }

    fn act(&mut self, lane: usize, action: Action) {
        self.rings[lane].with(|turn| turn.act(action));
    }

    /// A client whose connection lane 0 relays to this lane, and its id there.
    fn relay(&mut self, address: SocketAddr, executor: u16) -> (TcpStream, ConnId) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&hello(b"hi")).unwrap();
        let (known, there) = (self.recorders[0].events.len(), usize::from(executor));
        self.until(0, known + 1);
        let Event::Net(NetEvent::Frame { conn, .. }) = self.recorders[0].events[known] else {
            panic!("no Hello")
        };
        self.rings[0].with(|turn| {
            let hello = turn.arena.put(&hello(b"hi"));
            turn.act(NetAction::Proxy { conn, lane: LaneId(executor), hello });
        });
        let known = self.recorders[there].events.len();
        self.until(there, known + 1);
        let Event::Net(NetEvent::HandedOver { conn, .. }) = self.recorders[there].events[known]
        else {
            panic!("{:?}", self.recorders[there].events)
        };
        self.rings[there].with(|turn| {
            let frame = turn.arena.put(&hello(b"hi"));
            turn.act(NetAction::admit(conn));
            turn.act(NetAction::Send { conn, frame, bulk: None });
        });
        let sent_bytes = self.rings[0].counters().out_bytes;
        self.until_holds(|rings| rings.rings[0].counters().out_bytes > sent_bytes);
        assert_eq!(read_frame(&mut stream).unwrap(), hello(b"hi"));
        (stream, conn)
    }
}

fn listening(lane: u16, listener: &TcpListener) -> Config {
    let config = ring_config(LaneId(lane));
    let listens = (lane == 0).then(|| listener.try_clone().unwrap().into());
    Config { listener: listens, ..config }
}

/// Both orders of an answer and a message in the queues.
#[test]
fn a_peer_lanes_message_comes_before_a_relayed_request_that_follows_it() {
    for (executor, peer_lane) in [(1, 2), (2, 1)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut rings = Rings::new(3, |lane| listening(lane, &listener));
        let (mut stream, _) = rings.relay(address, executor as u16);
        for unique in 1..=50 {
            let message = MountMessage::Interrupt { unique };
            rings.act(
                peer_lane,
                Action::Peer(PeerAction::Message { to: LaneId(executor as u16), message }),
            );
            rings.turn(peer_lane);
            let known = rings.recorders[executor].events.len();
            stream.write_all(&frame(unique, &[])).unwrap();
            // Until the frame was forwarded, while the executing lane sleeps.
            while rings.rings[0].counters().frame_in_count < unique + 1 {
                rings.turn(0);
            }
            rings.until(executor, known + 2);
            let events = &rings.recorders[executor].events[known..];
            assert_eq!(
                events[0],
                Event::Peer(PeerEvent::Message { from: LaneId(peer_lane as u16), message })
            );
            assert!(matches!(events[1], Event::Net(NetEvent::Frame { .. })), "{events:?}");
        }
    }
}

/// The executing lane's only buffer is in use for a while.
#[test]
fn frames_that_wait_for_a_buffer_are_bounded_and_stay_in_order() {
    const FRAME_COUNT: usize = 40;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut rings = Rings::new(2, |lane| {
        let mut config = listening(lane, &listener);
        config.limits.buffer_bytes_max = if lane == 1 { 0 } else { 256 << 20 };
        config
    });
    let (mut stream, _) = rings.relay(address, 1);
    stream.set_nonblocking(true).unwrap();
    let sent: Vec<u8> =
        (0..FRAME_COUNT as u64).flat_map(|xid| frame(xid, &noise(xid, 1 << 20))).collect();
    let mut rest = &sent[..];
    let (mut idle_count, mut received_bytes) = (0, 0);
    // Until nothing changes any more.
    while idle_count < 200 {
        let taken_bytes = stream.write(rest).unwrap_or(0);
        rest = &rest[taken_bytes..];
        (0..2).for_each(|lane| rings.turn(lane));
        let in_bytes = rings.rings[0].counters().in_bytes;
        let moved = std::mem::replace(&mut received_bytes, in_bytes) != in_bytes;
        idle_count = if moved || taken_bytes > 0 { 0 } else { idle_count + 1 };
    }
    assert!(received_bytes <= 4 << 20, "{received_bytes} bytes for one buffer");
    let connected_count = 1;
    let mut got_count = 0;
    while got_count < FRAME_COUNT {
        if let Ok(count) = stream.write(rest) {
            rest = &rest[count..];
        }
        let events = &rings.recorders[1].events;
        if let Some(Event::Net(NetEvent::Frame { bulk, .. })) =
            events.get(connected_count + got_count).copied()
        {
            let Bulk { buf, crc32c, .. } = bulk.unwrap();
            assert_eq!(crc32c, Some(wire::crc32c(&noise(got_count as u64, 1 << 20))));
            rings.act(1, Action::Release { buf });
            got_count += 1;
        }
        (0..2).for_each(|lane| rings.turn(lane));
    }
    rings.turn(1);
    assert_eq!(rings.rings[1].buffer_bytes(), 0);
}

#[test]
fn broken_relayed_connections_leave_nothing_behind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut rings = Rings::new(2, |lane| listening(lane, &listener));
    for by_owner in [false, true] {
        let (mut stream, conn) = rings.relay(address, 1);
        let known = rings.recorders[1].events.len();
        let sent = frame(1, &noise(1, 300_000));
        stream.write_all(&[&sent[..], &sent[..150_000]].concat()).unwrap();
        rings.until(1, known + 1);
        let Event::Net(NetEvent::Frame { bulk: Some(Bulk { buf, .. }), .. }) =
            rings.recorders[1].events[known]
        else {
            panic!("{:?}", rings.recorders[1].events)
        };
        rings.act(1, Action::Release { buf });
        if by_owner {
            rings.act(1, Action::Net(NetAction::Close { conn }));
            rings.turn(1);
            rings.turn(0);
            ends(&mut stream);
            drop(stream);
        } else {
            drop(stream);
            rings.until(1, known + 2);
            assert_eq!(reason_of(rings.recorders[1].events[known + 1]), CloseReason::Ended);
        }
        rings.until_holds(|rings| {
            rings.rings.iter().all(|ring| ring.conn_count() + ring.buffer_bytes() == 0)
        });
    }
    let other_events = rings.recorders[0]
        .events
        .iter()
        .any(|event| !matches!(event, Event::Net(NetEvent::Frame { .. })));
    assert!(
        !other_events,
        "the proxy lane's core gets only Hellos: {:?}",
        rings.recorders[0].events
    );
}

/// A large read is a range of its file, and crosses lanes as bytes.
#[test]
fn bulk_in_a_file_crosses_lanes_as_bytes() {
    const READ_BYTES: usize = 1 << 20;
    let dir = tempdir_in_memory();
    let object = Object { shard_index: 3, stripe_index: 1, inode: wire::InodeNo(9) };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut rings = Rings::new(2, |lane| {
        let store = (lane == 1).then(|| std::fs::File::open(dir.path()).unwrap().into());
        Config { store, ..listening(lane, &listener) }
    });
    let (mut stream, conn) = rings.relay(address, 1);
    let data = noise(5, READ_BYTES);
    let bulk = rings.rings[1].bulk_of(&data).unwrap();
    let ticket = Ticket(1);
    rings.act(
        1,
        Action::Object(ObjectAction::Write {
            ticket,
            object,
            object_offset: 0,
            bulk,
            block_bytes: 0,
        }),
    );
    rings.act(1, Action::Release { buf: bulk.buf });
    let known = rings.recorders[1].events.len();
    rings.until(1, known + 1);
    let read_bytes = READ_BYTES as u32;
    rings.act(
        1,
        Action::Object(ObjectAction::Read {
            ticket,
            object,
            object_offset: 0,
            read_bytes,
            only_cached: false,
        }),
    );
    rings.until(1, known + 2);
    let Event::Object(ObjectEvent::Read { result: Ok(Some(bulk)), .. }) =
        rings.recorders[1].events[known + 1]
    else {
        panic!("{:?}", rings.recorders[1].events)
    };
    assert_eq!(bulk.crc32c, None, "it was a file range");
    rings.rings[1].with(|turn| {
        let frame = turn.arena.put(&hello(b"read"));
        turn.act(NetAction::Send { conn, frame, bulk: Some(bulk) });
        turn.act(Action::Release { buf: bulk.buf });
    });
    let expected = [hello(b"read"), data].concat();
    let reading = std::thread::spawn(move || {
        let mut found = vec![0; expected.len()];
        stream.read_exact(&mut found).unwrap();
        assert!(found == expected, "the bytes of the file");
        assert!(found.len() > HEADER_BYTES);
    });
    while !reading.is_finished() {
        (0..2).for_each(|lane| rings.turn(lane));
    }
    reading.join().unwrap();
    assert_eq!(rings.rings[1].buffer_bytes(), 0);
    assert_eq!(rings.rings[0].counters().sendfile_count, 0);
}
