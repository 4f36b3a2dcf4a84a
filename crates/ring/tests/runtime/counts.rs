//! A lane's counters: clock readings, system calls, messages, and busy polling.

use super::support::{
    Closure, Lane, NEVER_MS, Recorder, ask, echo_server, frame, hello, only_mailbox, read_frame,
    ring_config, start, turns,
};
use interface::{
    Action, Event, MountMessage, NetAction, NetEvent, PeerAction, PeerEvent, Ticket, Turn, Usage,
};
use ring::{Config, Counters, DriverKind, Mesh, Ring};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use wire::LaneId;

/// Clock readings before the first turn of a lane that does not refresh the wall clock's offset:
/// one when its clock is made, one when its ring is.
const START_READ_COUNT: u64 = 2;

/// Echoes frames; after each it reports the usage.
fn usage_reporter(usage_sender: Sender<Usage>) -> Closure<impl FnMut(&mut Turn<'_>, Event)> {
    Closure(move |turn: &mut Turn<'_>, event| match event {
        Event::Net(NetEvent::Frame { conn, frame, .. }) => {
            turn.act(NetAction::admit(conn));
            turn.act(NetAction::Send { conn, frame, bulk: None });
            turn.act(Action::Usage { ticket: Ticket(conn.0) });
        }
        Event::Usage { usage, .. } => {
            // Not every test receives it.
            usage_sender.send(usage).ok();
        }
        Event::Stop => turn.act(Action::Stopped),
        _ => {}
    })
}

fn usage_server(spin_us: u32) -> (Lane, SocketAddr, Receiver<Usage>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (usage_sender, usages) = channel();
    let lane = start(only_mailbox(), move |config| {
        config.listener = Some(listener.into());
        config.spin_us = spin_us;
        usage_reporter(usage_sender)
    });
    (lane, address, usages)
}

fn exchange(stream: &mut TcpStream, xid: u64) {
    let sent = frame(xid, &[]);
    stream.write_all(&sent).unwrap();
    assert_eq!(read_frame(stream).unwrap(), sent);
}

fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&hello(b"hi")).unwrap();
    assert_eq!(read_frame(&mut stream).unwrap(), hello(b"hi"));
    stream
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
}

/// Takes turns until a timer of so many milliseconds expires; returns the number of turns,
/// including the timer's.
fn turns_until_alarm(ring: &mut Ring, ms: u64) -> u64 {
    let before = ring.counters().turn_count;
    ring.with(|turn| turn.act(Action::WakeAt { at: turn.now.mono.after_ms(ms) }));
    let has_rung = Cell::new(false);
    let mut core = Closure(|_: &mut Turn<'_>, event| {
        assert_eq!(event, Event::Tick, "there is no other event");
        has_rung.set(true);
    });
    while !has_rung.get() {
        ring.turn(&mut core).unwrap();
    }
    ring.counters().turn_count - before
}

/// 64 idle connections until a timer expires, which is the lane's only event.
fn idle(spin_us: u32) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = ring_config(LaneId(0));
    config.listener = Some(listener.into());
    config.spin_us = spin_us;
    let (mut ring, mut recorder) = (Ring::new(config).unwrap(), Recorder::default());
    let mut streams = Vec::new();
    for index in 0..64 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&hello(b"hi")).unwrap();
        streams.push(stream);
        turns(&mut ring, &mut recorder, |recorder| recorder.events.len() > index);
        let Event::Net(NetEvent::Frame { conn, .. }) = recorder.events[index] else {
            panic!("{recorder:?}")
        };
        ring.with(|turn| {
            let frame = turn.arena.put(&hello(b"hi"));
            turn.act(NetAction::admit(conn));
            turn.act(NetAction::Send { conn, frame, bulk: None });
        });
    }
    turns_until_alarm(&mut ring, 0);
    for stream in &mut streams {
        assert_eq!(read_frame(stream).unwrap(), hello(b"hi"));
    }
    let (before, before_cpu_ns) = (ring.counters(), thread_cpu_ns());
    let turn_count = turns_until_alarm(&mut ring, 50);
    println!("{} ns of processor time in 50 ms", thread_cpu_ns() - before_cpu_ns);
    let spin_count = ring.counters().spin_count - before.spin_count;
    // On a busy machine, measured rounds may end early, and the following sleep too.
    let polls = u64::from(spin_us > 0);
    assert!(turn_count <= 1 + polls, "{turn_count} turns of an idle lane");
    assert!(spin_count <= polls, "{spin_count} times an idle lane looked out");
    streams[0].write_all(&frame(1, &[])).unwrap();
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() > 64);
    assert!(matches!(recorder.events[64], Event::Net(NetEvent::Frame { .. })), "{recorder:?}");
}

#[test]
fn an_idle_lane_sleeps_with_many_connections() {
    idle(0);
}

#[test]
fn an_idle_lane_with_busy_polling_sleeps_too() {
    idle(50);
}

#[test]
fn the_clock_is_read_once_a_turn() {
    // The first lane measures the offset between the clocks, which other lanes then use.
    drop(Ring::new(ring_config(LaneId(0))).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || {
        let mut stream = connect(address);
        (0..500).for_each(|xid| exchange(&mut stream, xid));
    });
    let mut config = ring_config(LaneId(1));
    config.listener = Some(listener.into());
    let mut ring = Ring::new(config).unwrap();
    assert_eq!(ring.counters().clock_read_count, START_READ_COUNT);
    let (usage_sender, _usages) = channel();
    let (mut usage_reporter, mut has_left) = (usage_reporter(usage_sender), false);
    // The client leaves after the last reply.
    while !has_left {
        let mut core = Closure(|turn: &mut Turn<'_>, event| {
            has_left |= matches!(event, Event::Net(NetEvent::Closed { .. }));
            (usage_reporter.0)(turn, event);
        });
        ring.turn(&mut core).unwrap();
    }
    client.join().unwrap();
    let counters = ring.counters();
    assert!(counters.turn_count >= 500, "{counters:?}");
    assert_eq!(counters.clock_read_count, counters.turn_count + START_READ_COUNT);
}

#[test]
fn a_turn_costs_one_system_call_with_io_uring_and_three_without() {
    let (server, address, usages) = usage_server(0);
    let mut stream = connect(address);
    let before = usages.recv().unwrap();
    (0..100).for_each(|xid| exchange(&mut stream, xid));
    let after = usages.iter().nth(99).unwrap();
    let counters = server.stop();
    let turn_count = after.turn_count - before.turn_count;
    // Each usage query costs five more calls; all others are the turn's own.
    let syscall_count = after.syscall_count - before.syscall_count - 500;
    let turn_calls = match super::DRIVER {
        DriverKind::IoUring => 1,
        // It waits, receives and sends.
        DriverKind::Epoll => 3,
    };
    let syscall_count_max = turn_calls * turn_count;
    assert!(syscall_count <= syscall_count_max, "{syscall_count} calls, {turn_count} turns");
    assert!(after.send_count - before.send_count <= 100, "{before:?} {after:?}");
    assert!(after.cpu_ns >= before.cpu_ns, "{before:?} {after:?}");
    // One for each frame's query, and those of connections.
    assert_eq!(counters.frame_in_count, 101);
    assert!(counters.syscall_count > 505, "{} calls", counters.syscall_count);
}

#[test]
fn a_frame_with_a_page_of_bulk_costs_one_turn() {
    let (server, address, _ended) = echo_server(|_| {});
    let mut stream = connect(address);
    for xid in 0..200 {
        let sent = frame(xid, &[7; 4096]);
        stream.write_all(&sent).unwrap();
        assert!(read_frame(&mut stream).unwrap() == sent, "frame {xid} came back");
    }
    let counters = server.stop();
    // It is received in one piece, and the success of its send causes no turn.
    assert!(counters.turn_count < 230, "{} turns for 200 frames", counters.turn_count);
}

#[test]
fn usage_is_reported_within_a_turn() {
    let mut ring = Ring::new(ring_config(LaneId(0))).unwrap();
    let mut recorder = Recorder::default();
    let event = ask(&mut ring, &mut recorder, Action::Usage { ticket: Ticket(7) });
    let Event::LaneTime(lane_time) = event else { panic!("{event:?}") };
    assert!(lane_time.cpu_ns > 0, "{lane_time:?}");
    let event = *recorder.events.last().unwrap();
    let Event::Usage { ticket: Ticket(7), usage } = event else { panic!("{event:?}") };
    assert!(usage.cpu_ns > 0, "{usage:?}");
    assert!(usage.syscall_count > 0, "{usage:?}");
    assert!(usage.clock_read_count > 0, "{usage:?}");
    assert_eq!((usage.message_out_count, usage.spin_count), (0, 0));
    let turn_count = ring.counters().turn_count;
    assert!(turn_count <= 2, "the same turn or the next, not {turn_count}");
}

#[test]
fn a_busy_polling_lane_gives_the_same_replies() {
    let (server, address, usages) = usage_server(1000);
    let mut stream = connect(address);
    (0..200).for_each(|xid| exchange(&mut stream, xid));
    let usage = usages.iter().nth(200).unwrap();
    let Usage { spin_count, spin_hit_count, .. } = usage;
    // Whether a client replies in time depends on the machine.
    println!("{spin_hit_count} of {spin_count} times it found something");
    assert!(spin_hit_count <= spin_count, "{usage:?}");
    let counters = server.stop();
    assert_eq!((counters.frame_out_count, counters.protocol_error_count), (201, 0), "{counters:?}");
}

#[test]
fn busy_polling_finds_a_message_before_the_sleep() {
    let mut mailboxes = Mesh::mailboxes(2).unwrap();
    let mut lane = |lane| {
        let config =
            Config { mailbox: mailboxes.pop(), spin_us: 1000, ..ring_config(LaneId(lane)) };
        Ring::new(config).unwrap()
    };
    let (mut reader, mut writer) = (lane(1), lane(0));
    let mut recorder = Recorder::default();
    // The first turn does not wait.
    reader.turn(&mut recorder).unwrap();
    for unique in 1..=20 {
        let message = MountMessage::Interrupt { unique };
        writer.with(|turn| {
            turn.act(PeerAction::Message { to: LaneId(1), message });
            turn.act(Action::WakeAt { at: turn.now.mono });
        });
        writer.turn(&mut Recorder::default()).unwrap();
        // A lane polls only after it did some work.
        reader.with(|turn| turn.act(Action::WakeAt { at: turn.now.mono.after_ms(NEVER_MS) }));
        reader.turn(&mut recorder).unwrap();
        assert_eq!(recorder.events, [Event::Peer(PeerEvent::Message { from: LaneId(0), message })]);
        recorder.events.clear();
        let counters = reader.counters();
        assert_eq!((counters.spin_count, counters.spin_hit_count), (unique, unique));
    }
    assert_eq!((writer.counters().message_out_count, reader.counters().message_in_count), (20, 20));
}

#[test]
fn messages_between_busy_polling_lanes_arrive_and_are_counted() {
    const MESSAGE_COUNT: u64 = 500;
    let mut mailboxes = Mesh::mailboxes(2).unwrap();
    let pong = start(mailboxes.pop().unwrap(), move |config| {
        config.spin_us = 1000;
        Closure(move |turn: &mut Turn<'_>, event| {
            if let Event::Peer(PeerEvent::Message { from, message }) = event {
                turn.act(PeerAction::Message { to: from, message });
                if message == MountMessage::Unmounted {
                    turn.act(Action::Stopped);
                }
            }
        })
    });
    let ping = start(mailboxes.pop().unwrap(), move |config| {
        config.spin_us = 1000;
        let mut unique = 0;
        Closure(move |turn: &mut Turn<'_>, event| match event {
            Event::Peer(PeerEvent::Message { message: MountMessage::Unmounted, .. }) => {
                turn.act(Action::Stopped)
            }
            Event::Tick | Event::Peer(PeerEvent::Message { .. }) => {
                unique += 1;
                let is_last = unique == MESSAGE_COUNT;
                let message = if is_last {
                    MountMessage::Unmounted
                } else {
                    MountMessage::Interrupt { unique }
                };
                turn.act(PeerAction::Message { to: LaneId(1), message });
            }
            other => panic!("{other:?}"),
        })
    });
    let [ping, pong]: [Counters; 2] = [ping, pong].map(|lane| lane.thread.join().unwrap());
    // Whether the other lane replies in time depends on the machine.
    println!("{} of {} times it found something", ping.spin_hit_count, ping.spin_count);
    assert!(ping.spin_hit_count <= ping.spin_count, "{ping:?}");
    assert_eq!((ping.message_out_count, ping.message_in_count), (MESSAGE_COUNT, MESSAGE_COUNT));
    assert_eq!((pong.message_in_count, pong.message_out_count), (MESSAGE_COUNT, MESSAGE_COUNT));
    assert!(pong.wake_count <= pong.syscall_count, "to wake is a system call: {pong:?}");
}

#[test]
fn a_stop_ends_a_busy_polling_lane() {
    let (server, address, usages) = usage_server(1000);
    let _stream = connect(address);
    usages.recv().unwrap();
    server.stop();
}

#[test]
fn a_request_to_the_right_lane_costs_one_message_for_the_handover() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut mailboxes = Mesh::mailboxes(2).unwrap();
    let (usage_sender, usages) = channel();
    let executor = start(mailboxes.pop().unwrap(), move |_| {
        Closure(move |turn: &mut Turn<'_>, event| match event {
            Event::Net(NetEvent::HandedOver { conn, hello: frame })
            | Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                turn.act(NetAction::admit(conn));
                turn.act(NetAction::Send { conn, frame, bulk: None });
                turn.act(Action::Usage { ticket: Ticket(0) });
            }
            Event::Usage { usage, .. } => usage_sender.send(usage).unwrap(),
            Event::Stop => turn.act(Action::Stopped),
            _ => {}
        })
    });
    let acceptor = start(mailboxes.pop().unwrap(), move |config| {
        config.listener = Some(listener.into());
        Closure(|turn: &mut Turn<'_>, event| match event {
            Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                turn.act(NetAction::HandOver { conn, lane: LaneId(1), hello: frame });
            }
            Event::Stop => turn.act(Action::Stopped),
            _ => {}
        })
    });
    let mut stream = connect(address);
    (0..100).for_each(|xid| exchange(&mut stream, xid));
    assert!(usages.iter().take(101).all(|usage| usage.message_out_count == 0));
    let (executor, acceptor) = (executor.stop(), acceptor.stop());
    assert_eq!((acceptor.message_out_count, acceptor.message_in_count), (1, 0));
    assert_eq!((executor.message_out_count, executor.message_in_count), (0, 1));
}

#[test]
fn a_lane_that_polled_in_vain_sleeps_until_its_timer() {
    let mut config = ring_config(LaneId(0));
    config.spin_us = 1000;
    let mut ring = Ring::new(config).unwrap();
    let mut ticks = Vec::new();
    let mut core = Closure(|turn: &mut Turn<'_>, event| {
        assert_eq!(event, Event::Tick);
        ticks.push(turn.now.mono);
    });
    ring.turn(&mut core).unwrap();
    let at = ring.with(|turn| {
        let at = turn.now.mono.after_ms(20);
        turn.act(Action::WakeAt { at });
        at
    });
    while ring.counters().event_count < 2 {
        ring.turn(&mut core).unwrap();
    }
    let counters = ring.counters();
    assert_eq!(ticks.len(), 2, "{ticks:?}");
    assert!(ticks[1] >= at, "{ticks:?}: not before {at:?}");
    // On a busy machine the timer may expire before polling begins.
    assert!(counters.spin_count <= 1, "{counters:?}");
    assert_eq!(counters.spin_hit_count, 0, "{counters:?}");
    assert!(counters.turn_count < 10, "{} turns for two ticks", counters.turn_count);
}

#[test]
fn a_message_to_the_own_lane_is_not_counted() {
    let mut ring = Ring::new(ring_config(LaneId(0))).unwrap();
    let message = MountMessage::Interrupt { unique: 1 };
    ask(
        &mut ring,
        &mut Recorder::default(),
        Action::Peer(PeerAction::Message { to: LaneId(0), message }),
    );
    assert_eq!((ring.counters().message_out_count, ring.counters().message_in_count), (0, 0));
}
