//! Deadlines of connections, without waiting: the lane's clock is moved forward.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

use super::*;
use crate::{Config, DriverChoice};
use interface::{CloseReason, ConnId, Errno, NetAction, NetEvent};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use wire::{FrameKind, Header, Wire as _};

/// How long an event may take before a test fails; no test waits for it.
const GIVE_UP_AFTER: Duration = Duration::from_secs(300);
/// All deadlines of these tests: longer than any test takes.
const DEADLINE_MS: u64 = 3_600_000;
const TIMED_OUT: CloseReason = CloseReason::Failed(Errno(110));

/// A lane whose core records its events.
struct Lane {
    ring: Ring,
    events: Events,
    /// How far its clock was moved forward.
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
    fn new(driver: DriverKind, mailbox: Mailbox, listener: Option<&TcpListener>) -> Self {
        let mut config = Config::new(mailbox.lane());
        config.driver = DriverChoice::Only(driver);
        config.listener = listener.map(|listener| listener.try_clone().unwrap().into());
        config.mailbox = Some(mailbox);
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

    /// Expires deadlines, as if that time had passed since the last call.
    fn expire_later(&mut self) {
        self.later_ms += DEADLINE_MS + 1;
        let Parts { conns, io, clock, .. } = &mut *self.ring.parts;
        io.now = clock.read();
        io.now.mono = io.now.mono.after_ms(self.later_ms);
        conns.expire(false, io);
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

/// The lanes take turns until the condition holds.
#[track_caller]
fn until(lanes: &mut [Lane], mut holds: impl FnMut(&mut [Lane]) -> bool) {
    let given_up = Instant::now() + GIVE_UP_AFTER;
    while !holds(lanes) {
        lanes.iter_mut().for_each(Lane::turn);
        let events: Vec<&Vec<Event>> = lanes.iter().map(|lane| &lane.events.0).collect();
        assert!(Instant::now() < given_up, "not in {GIVE_UP_AFTER:?}: {events:?}");
    }
}

/// Runs a test on each driver that this process may use, with so many lanes, the first of which
/// listens.
fn on_both(test: &str, lane_count: u16, run: impl Fn(&mut [Lane], SocketAddr)) {
    for driver in DriverKind::ALL {
        if DriverChoice::Only(driver).find().is_err() {
            let what = format!("{test} on {}", driver.name());
            crate::driver::skip(&what, "it cannot be used in this run");
            continue;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lane = |mailbox: Mailbox| {
            let listens = mailbox.lane() == LaneId(0);
            Lane::new(driver, mailbox, listens.then_some(&listener))
        };
        let mut lanes: Vec<Lane> =
            Mesh::mailboxes(lane_count).unwrap().into_iter().map(lane).collect();
        run(&mut lanes, listener.local_addr().unwrap());
    }
}

fn hello() -> Vec<u8> {
    let mut frame = Vec::new();
    Header::Handshake(FrameKind::Hello)
        .encode(&mut frame, None, |to| wire::Bytes(b"hi").encode(to));
    Header::put_sums(&mut frame, None);
    frame
}

/// A connection that has sent Hello, with a small receive buffer, and its id.
fn connected(lanes: &mut [Lane], address: SocketAddr) -> (TcpStream, ConnId) {
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
fn a_connection_not_admitted_in_time_is_closed_and_an_admitted_one_costs_no_turn() {
    on_both("who_is_not_admitted", 1, |lanes, address| {
        let (received, conn) = connected(lanes, address);
        lanes[0].act(|turn| turn.act(NetAction::admit(conn)));
        lanes[0].turn();
        assert_eq!(lanes[0].ring.parts.conns.deadline(false), None, "it is admitted");
        let mut silent = TcpStream::connect(address).unwrap();
        until(lanes, |lanes| lanes[0].ring.conn_count() == 2);
        let deadline = lanes[0].ring.parts.conns.deadline(false).unwrap();
        assert!(deadline > lanes[0].ring.parts.io.now.mono, "{deadline:?} is not over");
        lanes[0].expire_later();
        until(lanes, |lanes| lanes[0].ring.conn_count() == 1);
        assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(lanes[0].ring.parts.conns.deadline(false), None, "there is no deadline");
        assert_eq!(lanes[0].closed(), [], "the core knew nothing of it");
        drop(received);
        until(lanes, |lanes| !lanes[0].closed().is_empty());
        assert_eq!(lanes[0].closed(), [(conn, CloseReason::Ended)]);
    });
}

/// The proxy lane keeps the deadline of the handshake; the executing lane gets the close event.
#[test]
fn a_relayed_connection_not_admitted_in_time_is_closed_at_both_lanes() {
    on_both("who_is_relayed", 2, |lanes, address| {
        let (mut stream, conn) = connected(lanes, address);
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

/// A client that reads slowly is not closed.
#[test]
fn a_slow_reader_stays_connected_and_one_that_reads_nothing_is_closed() {
    on_both("who_reads_slowly", 1, |lanes, address| {
        let (mut stream, conn) = connected(lanes, address);
        lanes[0].act(|turn| {
            turn.act(NetAction::admit(conn));
            // More than both sockets' buffers hold.
            for _ in 0..32 {
                let frame = turn.arena.put(&vec![7; 1 << 20]);
                turn.act(NetAction::Send { conn, frame, bulk: None });
            }
        });
        stream.set_nonblocking(true).unwrap();
        let (mut space, mut read_bytes) = (vec![0; 8192], 0);
        for look in 0..8 {
            let acked_bytes = lanes[0].ring.parts.conns.acked_bytes();
            until(lanes, |lanes| {
                // Nothing may be readable at this moment.
                read_bytes += stream.read(&mut space).unwrap_or(0);
                lanes[0].ring.parts.conns.acked_bytes() > acked_bytes
            });
            lanes[0].expire_later();
            assert_eq!(lanes[0].closed(), [], "look {look}, {read_bytes} bytes read");
        }
        // Bytes in flight may still be taken by the peer's kernel.
        until(lanes, |lanes| {
            lanes[0].expire_later();
            !lanes[0].closed().is_empty()
        });
        assert_eq!(lanes[0].closed(), [(conn, CloseReason::TooSlow)]);
    });
}
