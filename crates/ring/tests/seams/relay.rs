//! Connections whose socket one lane has and whose requests another one answers.

use super::support::{
    Closure, Diary, Dir, Lane, NEVER_MS, PATIENCE, echo, frame, hello, noise, read_frame,
    ring_config, start,
};
use interface::{
    Action, Bulk, CloseReason, ConnId, Core, Errno, Event, LaneMessage, NetAction, NetEvent,
    Object, ObjectAction, ObjectEvent, PeerAction, PeerEvent, Ticket, Turn,
};
use ring::{Config, Counters, Mesh, Ring};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use wire::{HEAD_BYTES, LaneId, ProtocolError};

/// The lane that answers.
const OWNER: LaneId = LaneId(1);

/// Keeps sockets and lets the owner have the rest; hears of each connection once.
fn relays() -> impl Core {
    Closure(|turn: &mut Turn<'_>, event| match event {
        Event::Net(NetEvent::Frame { conn, frame: hello, bulk: None }) => {
            turn.act(NetAction::Proxy { conn, lane: OWNER, hello });
        }
        Event::Stop => turn.act(Action::Stopped),
        Event::Tick => {}
        other => panic!("the front's core hears nothing but Hellos: {other:?}"),
    })
}

/// What the owner answers a Hello with: itself, and the peer is admitted.
fn welcome(turn: &mut Turn<'_>, event: Event) {
    if let Event::Net(NetEvent::HandedOver { conn, hello }) = event {
        turn.act(NetAction::admit(conn));
        turn.act(NetAction::Send { conn, frame: hello, bulk: None });
    }
}

struct Pair {
    front: Lane,
    owner: Lane,
    address: SocketAddr,
}

impl Pair {
    fn start<B: Core>(
        tune: impl Fn(&mut Config) + Copy + Send + 'static,
        owner: impl FnOnce(&mut Config) -> B + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut posts = Mesh::posts(2).unwrap();
        let owner = start(posts.pop().unwrap(), move |config| {
            tune(config);
            owner(config)
        });
        let front = start(posts.pop().unwrap(), move |config| {
            config.listener = Some(listener.into());
            // The end of a front waits for owners, and here most of them say no more.
            config.limits.stop_ms_max = 10;
            tune(config);
            relays()
        });
        Self { front, owner, address }
    }

    /// The owner echoes.
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

    /// What the front counted, and what the owner did.
    fn stop(self) -> (Counters, Counters) {
        (self.front.stop(), self.owner.stop())
    }

    fn greet(&self) -> TcpStream {
        greet(TcpStream::connect(self.address).unwrap())
    }
}

fn greet(mut stream: TcpStream) -> TcpStream {
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
fn frames_and_bulk_of_every_size_pass_both_ways() {
    let (pair, _ended) = Pair::echoes(|_| {});
    let mut stream = pair.greet();
    for bulk_bytes in [0, 1, 4095, 4096, 70_000, 1 << 20] {
        let sent = frame(7, &noise(bulk_bytes as u64, bulk_bytes));
        stream.write_all(&sent).unwrap();
        assert_eq!(read_frame(&mut stream).unwrap(), sent, "{bulk_bytes} bytes of bulk");
    }
    let (front, owner) = pair.stop();
    assert_eq!((front.frame_in_count, front.frame_out_count), (7, 7));
    assert_eq!(front.in_bytes, front.out_bytes);
    assert_eq!((owner.recv_count, owner.send_count), (0, 0), "the owner has no socket");
    assert!(front.message_out_count >= 7, "{front:?}");
    assert_eq!(front.message_out_count, owner.message_in_count);
    assert_eq!(front.protocol_error_count + owner.protocol_error_count, 0);
}

#[test]
fn many_frames_at_once_come_back_in_order() {
    let (pair, _ended) = Pair::echoes(|_| {});
    let mut stream = pair.greet();
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
    let (front, _) = pair.stop();
    assert_eq!(front.frame_out_count, 5001);
}

#[test]
fn many_clients_wait_for_buffers_at_both_ends_and_go_on() {
    let (pair, _ended) = Pair::echoes(|config| config.limits.buffer_bytes_max = 2 << 20);
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let mut stream = pair.greet();
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
fn a_wrong_checksum_is_met_at_the_front_and_told_to_the_owner() {
    let (pair, ended) = Pair::echoes(|_| {});
    let mut stream = pair.greet();
    let mut sent = frame(1, &noise(1, 100_000));
    let last = sent.len() - 1;
    sent[last] ^= 1;
    stream.write_all(&sent).unwrap();
    assert_eq!(
        reason_of(ended.recv().unwrap()),
        CloseReason::ProtocolError(ProtocolError::Checksum)
    );
    ends(&mut stream);
    let (front, owner) = pair.stop();
    assert_eq!((front.protocol_error_count, owner.protocol_error_count), (1, 0));
}

#[test]
fn a_client_that_goes_is_gone_at_the_owner() {
    let (pair, ended) = Pair::echoes(|_| {});
    for part in 0..20 {
        let mut stream = pair.greet();
        let sent = frame(1, &noise(1, 1 << 20));
        // Nothing, or the middle of a head, or of a bulk.
        stream.write_all(&sent[..part * 50_000]).unwrap();
        if part % 2 == 0 {
            drop(stream);
        } else {
            // Unread bytes or not, it is a reset.
            sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
            drop(stream);
        }
        let reason = reason_of(ended.recv().unwrap());
        let gone = matches!(reason, CloseReason::Ended | CloseReason::Failed(Errno(104)));
        assert!(gone, "{reason:?}");
    }
    let (front, owner) = pair.stop();
    assert_eq!(front.frame_in_count, 20, "no part of a frame is a frame");
    assert_eq!(owner.protocol_error_count, 0);
}

#[test]
fn what_the_owner_sent_before_a_close_arrives() {
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
                        // Nothing happens any more.
                        turn.act(NetAction::Send { conn, frame, bulk: None });
                    }
                    Event::Stop => turn.act(Action::Stopped),
                    Event::Net(NetEvent::Closed { .. }) => panic!("who closes hears no more"),
                    _ => {}
                }
            })
        },
    );
    for round in 0..5 {
        let mut stream = pair.greet();
        let sent = frame(round, &[]);
        stream.write_all(&sent).unwrap();
        for _ in 0..2000 {
            assert_eq!(read_frame(&mut stream).unwrap(), sent);
        }
        ends(&mut stream);
    }
    pair.stop();
}

/// Both are asked to end, the front first; the owner says its last words after that.
#[test]
fn an_orderly_stop_lets_what_the_owner_says_last_leave() {
    let pair = Pair::start(
        |config| config.limits.stop_ms_max = NEVER_MS,
        |_| {
            let mut asked = Vec::new();
            Closure(move |turn: &mut Turn<'_>, event| {
                welcome(turn, event);
                match event {
                    Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                        asked.push((conn, turn.arena.get(frame).to_vec()));
                        turn.act(NetAction::Send { conn, frame, bulk: None });
                    }
                    Event::Stop => {
                        for (conn, frame) in asked.drain(..) {
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
    let mut stream = pair.greet();
    let sent = frame(3, &[]);
    stream.write_all(&sent).unwrap();
    assert_eq!(read_frame(&mut stream).unwrap(), sent);
    pair.front.stopper.stop();
    pair.owner.stopper.stop();
    for _ in 0..1000 {
        assert_eq!(read_frame(&mut stream).unwrap(), sent);
    }
    ends(&mut stream);
    pair.front.thread.join().unwrap();
    pair.owner.thread.join().unwrap();
}

/// Nothing more is taken from it than its pause allows, and it is let go; the owner hears why.
#[test]
fn a_client_that_does_not_read_is_too_slow_and_bounded() {
    let (pair, ended) = Pair::echoes(|config| {
        config.limits.conn_out_bytes_pause = 8 << 20;
        config.limits.stall_ms_max = 200;
    });
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 32 * 1024).unwrap();
    rustix::net::connect(&socket, &pair.address).unwrap();
    let mut stream = greet(TcpStream::from(socket));
    let sent = frame(1, &noise(1, 1 << 20));
    while stream.write_all(&sent).is_ok() {}
    assert_eq!(reason_of(ended.recv().unwrap()), CloseReason::TooSlow);
    let (front, owner) = pair.stop();
    assert_eq!(front.protocol_error_count + owner.protocol_error_count, 0);
    // The pause, what was under way to the owner and back, and what is with the kernel and not counted
    // because its send was cut off.
    assert!(front.in_bytes - front.out_bytes <= 20 << 20, "{front:?}");
}

#[test]
fn who_is_not_admitted_is_heard_one_frame_at_a_time() {
    let (sender, heard) = channel();
    let pair =
        Pair::start(|_| {}, move |_| Counting { sender, turn_count: 0, event_count: 0, limit: 10 });
    let mut stream = TcpStream::connect(pair.address).unwrap();
    let all: Vec<u8> = (0..10).flat_map(|number| hello(&[number; 40])).collect();
    stream.write_all(&all).unwrap();
    let counts: Vec<u64> = heard.iter().take(10).collect();
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
fn long_frames_and_bulk_are_protocol_errors_until_the_owner_has_admitted() {
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
    let mut stream = pair.greet();
    stream.write_all(&frame(1, b"bulk")).unwrap();
    assert_eq!(
        reason_of(ended.recv().unwrap()),
        CloseReason::ProtocolError(ProtocolError::TooLong)
    );
    ends(&mut stream);
    pair.stop();
}

#[test]
fn an_owner_without_room_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut posts = Mesh::posts(2).unwrap();
    let owner = start(posts.pop().unwrap(), |config| {
        config.limits.conn_count_max = 0;
        relays()
    });
    let front = start(posts.pop().unwrap(), |config| {
        config.listener = Some(listener.into());
        relays()
    });
    stream.write_all(&hello(b"hi")).unwrap();
    ends(&mut stream);
    front.stop();
    assert_eq!(owner.stop().refused_count, 1);
}

/// What is relayed goes no further.
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
        let (front, owner) = pair.stop();
        assert_eq!((front.protocol_error_count, owner.protocol_error_count), (0, 1));
    }
}

/// Rings of one thread that take turns without sleeping.
struct Rings {
    rings: Vec<Ring>,
    diaries: Vec<Diary>,
}

impl Rings {
    fn new(lane_count: u16, make: impl Fn(u16) -> Config) -> Self {
        let posts = Mesh::posts(lane_count).unwrap().into_iter();
        let ring = |post: ring::Post| {
            let config = make(post.lane().0);
            Ring::new(Config { post: Some(post), ..config }).unwrap()
        };
        let rings: Vec<Ring> = posts.map(ring).collect();
        let diaries = rings.iter().map(|_| Diary::default()).collect();
        Self { rings, diaries }
    }

    fn turn(&mut self, lane: usize) {
        let Self { rings, diaries } = self;
        rings[lane].with(|turn| turn.act(Action::WakeAt { at: turn.now.mono }));
        rings[lane].turn(&mut diaries[lane]).unwrap();
    }

    /// All take turns until a lane has so many events.
    fn until(&mut self, lane: usize, event_count: usize) {
        self.until_holds(|rings| rings.diaries[lane].events.len() >= event_count);
    }

    /// All take turns until that is so.
    fn until_holds(&mut self, mut holds: impl FnMut(&Self) -> bool) {
        let given_up = Instant::now() + PATIENCE;
        while !holds(self) {
            (0..self.rings.len()).for_each(|lane| self.turn(lane));
            assert!(Instant::now() < given_up, "not in {PATIENCE:?}: {:?}", self.diaries);
        }
    }

    fn act(&mut self, lane: usize, action: Action) {
        self.rings[lane].with(|turn| turn.act(action));
    }

    /// A client whose connection lane 0 relays to this one; and what it is called there.
    fn relay(&mut self, address: SocketAddr, owner: u16) -> (TcpStream, ConnId) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&hello(b"hi")).unwrap();
        let (known, there) = (self.diaries[0].events.len(), usize::from(owner));
        self.until(0, known + 1);
        let Event::Net(NetEvent::Frame { conn, .. }) = self.diaries[0].events[known] else {
            panic!("no Hello")
        };
        self.rings[0].with(|turn| {
            let hello = turn.arena.put(&hello(b"hi"));
            turn.act(NetAction::Proxy { conn, lane: LaneId(owner), hello });
        });
        let known = self.diaries[there].events.len();
        self.until(there, known + 1);
        let Event::Net(NetEvent::HandedOver { conn, .. }) = self.diaries[there].events[known]
        else {
            panic!("{:?}", self.diaries[there].events)
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

/// Both ways an answer may lie in the order of the queues.
#[test]
fn what_a_sister_said_comes_before_what_is_asked_through_another() {
    for (asked, peer_lane) in [(1, 2), (2, 1)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut rings = Rings::new(3, |lane| listening(lane, &listener));
        let (mut stream, _) = rings.relay(address, asked as u16);
        for unique in 1..=50 {
            let message = LaneMessage::Interrupt { unique };
            rings.act(
                peer_lane,
                Action::Peer(PeerAction::Message { to: LaneId(asked as u16), message }),
            );
            rings.turn(peer_lane);
            let known = rings.diaries[asked].events.len();
            stream.write_all(&frame(unique, &[])).unwrap();
            // Until the frame has been passed on, while the owner sleeps.
            while rings.rings[0].counters().frame_in_count < unique + 1 {
                rings.turn(0);
            }
            rings.until(asked, known + 2);
            let events = &rings.diaries[asked].events[known..];
            assert_eq!(
                events[0],
                Event::Peer(PeerEvent::Message { from: LaneId(peer_lane as u16), message })
            );
            assert!(matches!(events[1], Event::Net(NetEvent::Frame { .. })), "{events:?}");
        }
    }
}

/// The owner's only buffer is in use for a while.
#[test]
fn what_waits_for_a_buffer_is_bounded_and_keeps_its_order() {
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
    // Until nothing moves any more.
    while idle_count < 200 {
        let taken_bytes = stream.write(rest).unwrap_or(0);
        rest = &rest[taken_bytes..];
        (0..2).for_each(|lane| rings.turn(lane));
        let in_bytes = rings.rings[0].counters().in_bytes;
        let moved = std::mem::replace(&mut received_bytes, in_bytes) != in_bytes;
        idle_count = if moved || taken_bytes > 0 { 0 } else { idle_count + 1 };
    }
    assert!(received_bytes <= 4 << 20, "{received_bytes} bytes for one buffer");
    let greeted_count = 1;
    let mut got_count = 0;
    while got_count < FRAME_COUNT {
        if let Ok(count) = stream.write(rest) {
            rest = &rest[count..];
        }
        let events = &rings.diaries[1].events;
        if let Some(Event::Net(NetEvent::Frame { bulk, .. })) =
            events.get(greeted_count + got_count).copied()
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
fn connections_that_break_anywhere_leave_nothing_behind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut rings = Rings::new(2, |lane| listening(lane, &listener));
    for by_owner in [false, true] {
        let (mut stream, conn) = rings.relay(address, 1);
        let known = rings.diaries[1].events.len();
        let sent = frame(1, &noise(1, 300_000));
        stream.write_all(&[&sent[..], &sent[..150_000]].concat()).unwrap();
        rings.until(1, known + 1);
        let Event::Net(NetEvent::Frame { bulk: Some(Bulk { buf, .. }), .. }) =
            rings.diaries[1].events[known]
        else {
            panic!("{:?}", rings.diaries[1].events)
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
            assert_eq!(reason_of(rings.diaries[1].events[known + 1]), CloseReason::Ended);
        }
        rings.until_holds(|rings| {
            rings.rings.iter().all(|ring| ring.conn_count() + ring.buffer_bytes() == 0)
        });
    }
    let told = rings.diaries[0]
        .events
        .iter()
        .any(|event| !matches!(event, Event::Net(NetEvent::Frame { .. })));
    assert!(!told, "the front's core hears of Hellos only: {:?}", rings.diaries[0].events);
}

/// A large read is lent from its file, and crosses as bytes.
#[test]
fn bulk_that_lies_in_a_file_becomes_bytes() {
    const READ_BYTES: usize = 1 << 20;
    let dir = Dir::in_memory("relayed");
    let object = Object { shard_index: 3, stripe_index: 1, inode: wire::InodeNo(9) };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut rings = Rings::new(2, |lane| {
        let store = (lane == 1).then(|| std::fs::File::open(&dir.0).unwrap().into());
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
    let known = rings.diaries[1].events.len();
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
        rings.diaries[1].events[known + 1]
    else {
        panic!("{:?}", rings.diaries[1].events)
    };
    assert_eq!(bulk.crc32c, None, "it was lent");
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
        assert!(found.len() > HEAD_BYTES);
    });
    while !reading.is_finished() {
        (0..2).for_each(|lane| rings.turn(lane));
    }
    reading.join().unwrap();
    assert_eq!(rings.rings[1].buffer_bytes(), 0);
    assert_eq!(rings.rings[0].counters().sendfile_count, 0);
}
