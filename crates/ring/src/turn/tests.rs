//! Deadlines of connections, without waiting for them: the lane is told that it is later.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

use super::*;
use crate::{Config, DriverChoice};
use interface::{CloseReason, ConnId, Errno, NetAction, NetEvent};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use wire::{FrameKind, Head, Wire as _};

/// How long anything may take before a test gives up; never how long a test waits.
const PATIENCE: Duration = Duration::from_secs(300);
/// Of every deadline here: longer than any test takes.
const DEADLINE_MS: u64 = 3_600_000;
const TIMED_OUT: CloseReason = CloseReason::Failed(Errno(110));

/// A lane that does what its test says, and what its core got.
struct Lane {
    ring: Ring,
    events: Events,
    /// How much later it was told that it is.
    later_ms: u64,
}

struct Events(Vec<Event>);

impl Core for Events {
    fn apply(&mut self, _turn: &mut Turn<'_>, event: Event) {
        if event != Event::Tick {
            self.0.push(event);
        }
    }
    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

impl Lane {
    fn new(driver: DriverKind, post: Post, listener: Option<&TcpListener>) -> Self {
        let mut config = Config::new(post.lane());
        config.driver = DriverChoice::Only(driver);
        config.listener = listener.map(|listener| listener.try_clone().unwrap().into());
        config.post = Some(post);
        config.limits.handshake_ms_max = DEADLINE_MS;
        config.limits.stall_ms_max = DEADLINE_MS;
        Self { ring: Ring::new(config).unwrap(), events: Events(Vec::new()), later_ms: 0 }
    }

    fn act(&mut self, act: impl FnOnce(&mut Turn<'_>)) {
        self.ring.with(act);
    }

    /// Takes a turn without sleeping.
    fn turn(&mut self) {
        self.act(|turn| turn.act(Action::WakeAt { at: turn.now.mono }));
        self.ring.turn(&mut self.events).unwrap();
    }

    /// Ends what has taken too long, as if the time of a deadline had passed since the last call.
    fn expire_later(&mut self) {
        self.later_ms += DEADLINE_MS + 1;
        let Parts { conns, tools, clock, .. } = &mut *self.ring.parts;
        tools.now = clock.read();
        tools.now.mono = tools.now.mono.after_ms(self.later_ms);
        conns.expire(false, tools);
        self.turn();
    }

    fn closed(&self) -> Vec<(ConnId, CloseReason)> {
        let closed = |event: &Event| match *event {
            Event::Net(NetEvent::Closed { conn, reason }) => Some((conn, reason)),
            _ => None,
        };
        self.events.0.iter().filter_map(closed).collect()
    }
}

/// The lanes take turns until that is so.
#[track_caller]
fn until(lanes: &mut [Lane], mut holds: impl FnMut(&mut [Lane]) -> bool) {
    let given_up = Instant::now() + PATIENCE;
    while !holds(lanes) {
        lanes.iter_mut().for_each(Lane::turn);
        let events: Vec<&Vec<Event>> = lanes.iter().map(|lane| &lane.events.0).collect();
        assert!(Instant::now() < given_up, "not in {PATIENCE:?}: {events:?}");
    }
}

/// Runs a test on each driver that this process may use, with so many lanes, the first of which listens.
fn on_both(test: &str, lane_count: u16, run: impl Fn(&mut [Lane], SocketAddr)) {
    for driver in DriverKind::ALL {
        if DriverChoice::Only(driver).find().is_err() {
            let what = format!("{test} on {}", driver.name());
            crate::driver::skip(&what, "it cannot be used in this run");
            continue;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lane = |post: Post| {
            let listens = post.lane() == LaneId(0);
            Lane::new(driver, post, listens.then_some(&listener))
        };
        let mut lanes: Vec<Lane> = Mesh::posts(lane_count).unwrap().into_iter().map(lane).collect();
        run(&mut lanes, listener.local_addr().unwrap());
    }
}

fn hello() -> Vec<u8> {
    let mut frame = Vec::new();
    Head::Handshake(FrameKind::Hello).encode(&mut frame, None, |to| wire::Bytes(b"hi").encode(to));
    Head::put_sums(&mut frame, None);
    frame
}

/// A connection that has said Hello and takes little before it is read from, and its name.
fn greeted(lanes: &mut [Lane], address: SocketAddr) -> (TcpStream, ConnId) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 32 * 1024).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(&hello()).unwrap();
    let known_count = lanes[0].events.0.len();
    until(lanes, |lanes| lanes[0].events.0.len() > known_count + 1);
    match lanes[0].events.0[known_count..] {
        [
            Event::Net(NetEvent::FromThisHost { conn }),
            Event::Net(NetEvent::Frame { conn: of_frame, .. }),
        ] if conn == of_frame => (stream, conn),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn who_is_not_admitted_in_time_is_closed_and_who_is_costs_no_turn() {
    on_both("who_is_not_admitted", 1, |lanes, address| {
        let (heard, conn) = greeted(lanes, address);
        lanes[0].act(|turn| turn.act(NetAction::admit(conn)));
        lanes[0].turn();
        assert_eq!(lanes[0].ring.parts.conns.deadline(false), None, "it is admitted");
        let mut silent = TcpStream::connect(address).unwrap();
        until(lanes, |lanes| lanes[0].ring.conn_count() == 2);
        let deadline = lanes[0].ring.parts.conns.deadline(false).unwrap();
        assert!(deadline > lanes[0].ring.parts.tools.now.mono, "{deadline:?} is not over");
        lanes[0].expire_later();
        until(lanes, |lanes| lanes[0].ring.conn_count() == 1);
        assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(lanes[0].ring.parts.conns.deadline(false), None, "nobody is waited for");
        assert_eq!(lanes[0].closed(), [], "the core knew nothing of it");
        drop(heard);
        until(lanes, |lanes| !lanes[0].closed().is_empty());
        assert_eq!(lanes[0].closed(), [(conn, CloseReason::Ended)]);
    });
}

/// The front keeps the deadline of the handshake; the owner hears of it.
#[test]
fn who_is_relayed_and_not_admitted_in_time_is_closed_at_both_ends() {
    on_both("who_is_relayed", 2, |lanes, address| {
        let (mut stream, conn) = greeted(lanes, address);
        lanes[0].act(|turn| {
            let hello = turn.arena.put(&hello());
            turn.act(NetAction::Proxy { conn, lane: LaneId(1), hello });
        });
        until(lanes, |lanes| lanes[1].events.0.len() == 2);
        let [
            Event::Net(NetEvent::FromThisHost { conn }),
            Event::Net(NetEvent::HandedOver { conn: of_hello, .. }),
        ] = lanes[1].events.0[..]
        else {
            panic!("{:?}", lanes[1].events.0)
        };
        assert_eq!(conn, of_hello);
        lanes[0].expire_later();
        until(lanes, |lanes| !lanes[1].closed().is_empty());
        assert_eq!(lanes[1].closed(), [(conn, TIMED_OUT)]);
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        until(lanes, |lanes| lanes.iter().all(|lane| lane.ring.conn_count() == 0));
    });
}

/// Whoever reads, however slowly, is waited for.
#[test]
fn who_reads_slowly_is_not_too_slow_and_who_reads_nothing_is() {
    on_both("who_reads_slowly", 1, |lanes, address| {
        let (mut stream, conn) = greeted(lanes, address);
        lanes[0].act(|turn| {
            turn.act(NetAction::admit(conn));
            // More than both sockets hold.
            for _ in 0..32 {
                let frame = turn.arena.put(&vec![7; 1 << 20]);
                turn.act(NetAction::Send { conn, frame, bulk: None });
            }
        });
        stream.set_nonblocking(true).unwrap();
        let (mut room, mut read_bytes) = (vec![0; 8192], 0);
        for look in 0..8 {
            let acked_bytes = lanes[0].ring.parts.conns.acked_bytes();
            until(lanes, |lanes| {
                // There may be nothing at this moment.
                read_bytes += stream.read(&mut room).unwrap_or(0);
                lanes[0].ring.parts.conns.acked_bytes() > acked_bytes
            });
            lanes[0].expire_later();
            assert_eq!(lanes[0].closed(), [], "look {look}, {read_bytes} bytes read");
        }
        // What is under way may still be taken by the peer's system.
        until(lanes, |lanes| {
            lanes[0].expire_later();
            !lanes[0].closed().is_empty()
        });
        assert_eq!(lanes[0].closed(), [(conn, CloseReason::TooSlow)]);
    });
}
