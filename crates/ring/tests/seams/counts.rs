//! What a lane counts: clock readings, system calls, letters, and looking out before it sleeps.

use super::support::{
    Closure, Diary, Lane, NEVER_MS, ask, frame, hello, lonely_post, read_frame, ring_config, start,
    turns,
};
use interface::{
    Action, Event, LaneMessage, NetAction, NetEvent, PeerAction, PeerEvent, Ticket, Turn, Usage,
};
use ring::{Config, Counters, DriverKind, Mesh, Ring};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use wire::LaneId;

/// Readings of the clock before the first turn, by a lane that does not keep the offset between the
/// two clocks: one when its clock is made, one when its ring is.
const START_READ_COUNT: u64 = 2;

/// Echoes frames; after each it tells what was used.
fn teller(tell: Sender<Usage>) -> Closure<impl FnMut(&mut Turn<'_>, Event)> {
    Closure(move |turn: &mut Turn<'_>, event| match event {
        Event::Net(NetEvent::Frame { conn, frame, .. }) => {
            turn.act(NetAction::admit(conn));
            turn.act(NetAction::Send { conn, frame, bulk: None });
            turn.act(Action::Usage { ticket: Ticket(conn.0) });
        }
        Event::Usage { usage, .. } => {
            // Not every test listens.
            tell.send(usage).ok();
        }
        Event::Stop => turn.act(Action::Stopped),
        _ => {}
    })
}

fn telling_server(spin_us: u32) -> (Lane, SocketAddr, Receiver<Usage>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = channel();
    let lane = start(lonely_post(), move |config| {
        config.listener = Some(listener.into());
        config.spin_us = spin_us;
        teller(tell)
    });
    (lane, address, told)
}

fn exchange(stream: &mut TcpStream, xid: u64) {
    let sent = frame(xid, &[]);
    stream.write_all(&sent).unwrap();
    assert_eq!(read_frame(stream).unwrap(), sent);
}

fn greet(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&hello(b"hi")).unwrap();
    assert_eq!(read_frame(&mut stream).unwrap(), hello(b"hi"));
    stream
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
}

/// Takes turns until an alarm of so soon has rung; how many that took, the one with the alarm too.
fn turns_until_alarm(ring: &mut Ring, ms: u64) -> u64 {
    let before = ring.counters().turn_count;
    ring.with(|turn| turn.act(Action::WakeAt { at: turn.now.mono.after_ms(ms) }));
    let has_rung = Cell::new(false);
    let mut core = Closure(|_: &mut Turn<'_>, event| {
        assert_eq!(event, Event::Tick, "nobody asked for anything");
        has_rung.set(true);
    });
    while !has_rung.get() {
        ring.turn(&mut core).unwrap();
    }
    ring.counters().turn_count - before
}

/// 64 connections that say nothing until an alarm rings, which is all that the lane wakes for.
fn idle(spin_us: u32) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = ring_config(LaneId(0));
    config.listener = Some(listener.into());
    config.spin_us = spin_us;
    let (mut ring, mut diary) = (Ring::new(config).unwrap(), Diary::default());
    let mut streams = Vec::new();
    for index in 0..64 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&hello(b"hi")).unwrap();
        streams.push(stream);
        turns(&mut ring, &mut diary, |diary| diary.events.len() > index);
        let Event::Net(NetEvent::Frame { conn, .. }) = diary.events[index] else {
            panic!("{diary:?}")
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
    // Rounds that were measured on a busy machine end early, and the sleep behind them as well.
    let looks_out = u64::from(spin_us > 0);
    assert!(turn_count <= 1 + looks_out, "{turn_count} turns of an idle lane");
    assert!(spin_count <= looks_out, "{spin_count} times an idle lane looked out");
    streams[0].write_all(&frame(1, &[])).unwrap();
    turns(&mut ring, &mut diary, |diary| diary.events.len() > 64);
    assert!(matches!(diary.events[64], Event::Net(NetEvent::Frame { .. })), "{diary:?}");
}

#[test]
fn an_idle_lane_sleeps_however_many_are_connected() {
    idle(0);
}

#[test]
fn an_idle_lane_that_may_look_out_sleeps_as_well() {
    idle(50);
}

#[test]
fn the_clock_is_read_once_a_turn() {
    // The first lane finds the offset between the clocks, which other lanes then use.
    drop(Ring::new(ring_config(LaneId(0))).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || {
        let mut stream = greet(address);
        (0..500).for_each(|xid| exchange(&mut stream, xid));
    });
    let mut config = ring_config(LaneId(1));
    config.listener = Some(listener.into());
    let mut ring = Ring::new(config).unwrap();
    assert_eq!(ring.counters().clock_read_count, START_READ_COUNT);
    let (tell, _told) = channel();
    let (mut teller, mut has_left) = (teller(tell), false);
    // It leaves when it has the last answer.
    while !has_left {
        let mut core = Closure(|turn: &mut Turn<'_>, event| {
            has_left |= matches!(event, Event::Net(NetEvent::Closed { .. }));
            (teller.0)(turn, event);
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
    let (server, address, told) = telling_server(0);
    let mut stream = greet(address);
    let before = told.recv().unwrap();
    (0..100).for_each(|xid| exchange(&mut stream, xid));
    let after = told.iter().nth(99).unwrap();
    let counters = server.stop();
    let turn_count = after.turn_count - before.turn_count;
    // Each question for what was used is one more; everything else is the turn's own.
    let syscall_count = after.syscall_count - before.syscall_count - 100;
    let turn_calls = match super::DRIVER {
        DriverKind::IoUring => 1,
        // It waits, receives and sends.
        DriverKind::Epoll => 3,
    };
    let syscall_count_max = turn_calls * turn_count;
    assert!(syscall_count <= syscall_count_max, "{syscall_count} calls, {turn_count} turns");
    assert!(after.send_count - before.send_count <= 100, "{before:?} {after:?}");
    assert!(after.cpu_ns >= before.cpu_ns, "{before:?} {after:?}");
    // One for each frame's question, and those that connections take.
    assert_eq!(counters.frame_in_count, 101);
    assert!(counters.syscall_count > 101, "{} calls", counters.syscall_count);
}

#[test]
fn what_was_used_is_told_at_once() {
    let mut ring = Ring::new(ring_config(LaneId(0))).unwrap();
    let mut diary = Diary::default();
    let event = ask(&mut ring, &mut diary, Action::Usage { ticket: Ticket(7) });
    let Event::Usage { ticket: Ticket(7), usage } = event else { panic!("{event:?}") };
    assert!(usage.cpu_ns > 0, "{usage:?}");
    assert!(usage.syscall_count > 0, "{usage:?}");
    assert!(usage.clock_read_count > 0, "{usage:?}");
    assert_eq!((usage.message_out_count, usage.spin_count), (0, 0));
    let turn_count = ring.counters().turn_count;
    assert!(turn_count <= 2, "the same turn or the next, not {turn_count}");
}

#[test]
fn a_lane_that_looks_out_answers_the_same() {
    let (server, address, told) = telling_server(1000);
    let mut stream = greet(address);
    (0..200).for_each(|xid| exchange(&mut stream, xid));
    let usage = told.iter().nth(200).unwrap();
    let Usage { spin_count, spin_hit_count, .. } = usage;
    // Whether a client is back in time is the machine's affair.
    println!("{spin_hit_count} of {spin_count} times it found something");
    assert!(spin_hit_count <= spin_count, "{usage:?}");
    let counters = server.stop();
    assert_eq!((counters.frame_out_count, counters.protocol_error_count), (201, 0), "{counters:?}");
}

#[test]
fn a_letter_that_comes_before_the_sleep_is_found_by_looking_out() {
    let mut posts = Mesh::posts(2).unwrap();
    let mut lane = |lane| {
        let config = Config { post: posts.pop(), spin_us: 1000, ..ring_config(LaneId(lane)) };
        Ring::new(config).unwrap()
    };
    let (mut reader, mut writer) = (lane(1), lane(0));
    let mut diary = Diary::default();
    // The first turn does not wait.
    reader.turn(&mut diary).unwrap();
    for unique in 1..=20 {
        let message = LaneMessage::Interrupt { unique };
        writer.with(|turn| {
            turn.act(PeerAction::Message { to: LaneId(1), message });
            turn.act(Action::WakeAt { at: turn.now.mono });
        });
        writer.turn(&mut Diary::default()).unwrap();
        // It looks out only behind something that was done.
        reader.with(|turn| turn.act(Action::WakeAt { at: turn.now.mono.after_ms(NEVER_MS) }));
        reader.turn(&mut diary).unwrap();
        assert_eq!(diary.events, [Event::Peer(PeerEvent::Message { from: LaneId(0), message })]);
        diary.events.clear();
        let counters = reader.counters();
        assert_eq!((counters.spin_count, counters.spin_hit_count), (unique, unique));
    }
    assert_eq!((writer.counters().message_out_count, reader.counters().message_in_count), (20, 20));
}

#[test]
fn letters_between_lanes_that_look_out_arrive_and_are_counted() {
    const LETTER_COUNT: u64 = 500;
    let mut posts = Mesh::posts(2).unwrap();
    let pong = start(posts.pop().unwrap(), move |config| {
        config.spin_us = 1000;
        Closure(move |turn: &mut Turn<'_>, event| {
            if let Event::Peer(PeerEvent::Message { from, message }) = event {
                turn.act(PeerAction::Message { to: from, message });
                if message == LaneMessage::Unmounted {
                    turn.act(Action::Stopped);
                }
            }
        })
    });
    let ping = start(posts.pop().unwrap(), move |config| {
        config.spin_us = 1000;
        let mut unique = 0;
        Closure(move |turn: &mut Turn<'_>, event| match event {
            Event::Peer(PeerEvent::Message { message: LaneMessage::Unmounted, .. }) => {
                turn.act(Action::Stopped)
            }
            Event::Tick | Event::Peer(PeerEvent::Message { .. }) => {
                unique += 1;
                let is_last = unique == LETTER_COUNT;
                let message = if is_last {
                    LaneMessage::Unmounted
                } else {
                    LaneMessage::Interrupt { unique }
                };
                turn.act(PeerAction::Message { to: LaneId(1), message });
            }
            other => panic!("{other:?}"),
        })
    });
    let [ping, pong]: [Counters; 2] = [ping, pong].map(|lane| lane.thread.join().unwrap());
    // Whether the other answers in time is the machine's affair.
    println!("{} of {} times it found something", ping.spin_hit_count, ping.spin_count);
    assert!(ping.spin_hit_count <= ping.spin_count, "{ping:?}");
    assert_eq!((ping.message_out_count, ping.message_in_count), (LETTER_COUNT, LETTER_COUNT));
    assert_eq!((pong.message_in_count, pong.message_out_count), (LETTER_COUNT, LETTER_COUNT));
    assert!(pong.wake_count <= pong.syscall_count, "to wake is a system call: {pong:?}");
}

#[test]
fn a_stop_ends_a_lane_that_looks_out() {
    let (server, address, told) = telling_server(1000);
    let _stream = greet(address);
    told.recv().unwrap();
    server.stop();
}

#[test]
fn who_asks_the_right_lane_pays_for_one_hop_the_handing_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut posts = Mesh::posts(2).unwrap();
    let (tell, told) = channel();
    let owner = start(posts.pop().unwrap(), move |_| {
        Closure(move |turn: &mut Turn<'_>, event| match event {
            Event::Net(NetEvent::HandedOver { conn, hello: frame })
            | Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                turn.act(NetAction::admit(conn));
                turn.act(NetAction::Send { conn, frame, bulk: None });
                turn.act(Action::Usage { ticket: Ticket(0) });
            }
            Event::Usage { usage, .. } => tell.send(usage).unwrap(),
            Event::Stop => turn.act(Action::Stopped),
            _ => {}
        })
    });
    let door = start(posts.pop().unwrap(), move |config| {
        config.listener = Some(listener.into());
        Closure(|turn: &mut Turn<'_>, event| match event {
            Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                turn.act(NetAction::HandOver { conn, lane: LaneId(1), hello: frame });
            }
            Event::Stop => turn.act(Action::Stopped),
            _ => {}
        })
    });
    let mut stream = greet(address);
    (0..100).for_each(|xid| exchange(&mut stream, xid));
    assert!(told.iter().take(101).all(|usage| usage.message_out_count == 0));
    let (owner, door) = (owner.stop(), door.stop());
    assert_eq!((door.message_out_count, door.message_in_count), (1, 0));
    assert_eq!((owner.message_out_count, owner.message_in_count), (0, 1));
}

#[test]
fn who_looks_out_in_vain_sleeps_until_its_time() {
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
    // On a busy machine the time may be over when it would look out.
    assert!(counters.spin_count <= 1, "{counters:?}");
    assert_eq!(counters.spin_hit_count, 0, "{counters:?}");
    assert!(counters.turn_count < 10, "{} turns for two ticks", counters.turn_count);
}

#[test]
fn a_letter_to_oneself_is_no_hop() {
    let mut ring = Ring::new(ring_config(LaneId(0))).unwrap();
    let message = LaneMessage::Interrupt { unique: 1 };
    ask(
        &mut ring,
        &mut Diary::default(),
        Action::Peer(PeerAction::Message { to: LaneId(0), message }),
    );
    assert_eq!((ring.counters().message_out_count, ring.counters().message_in_count), (0, 0));
}
