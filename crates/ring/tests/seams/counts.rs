//! What a lane counts: clock readings, system calls, letters, and looking out before it sleeps.

use super::support::{
    Closure, Diary, Lane, ask, frame, hello, lonely_post, read_frame, ring_config, start,
};
use door::{Action, Event, Mail, Ticket, Turn, Usage};
use ring::{Counters, DriverKind, Mesh, Ring};
use rustix::time::{ClockId, clock_gettime};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use wire::LaneId;

/// Readings of the clock before the first turn, by a lane that does not keep the offset between the
/// two clocks: one when its clock is made, one when its ring is.
const START_READ_COUNT: u64 = 2;

/// What a lane says of itself, and its thread's processor time.
type Told = (Usage, u64);

/// Echoes frames; after each it tells what was used.
fn teller(tell: Sender<Told>) -> Closure<impl FnMut(&mut Turn<'_>, Event)> {
    Closure(move |turn: &mut Turn<'_>, event| match event {
        Event::Frame { conn, frame, .. } => {
            turn.act(Action::Admit { conn });
            turn.act(Action::Send { conn, frame, bulk: None });
            turn.act(Action::Usage { ticket: Ticket(conn.0) });
        }
        Event::Usage { usage, .. } => {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            let cpu_ns = u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap();
            // Not every test listens.
            tell.send((usage, cpu_ns)).ok();
        }
        Event::Stop => turn.act(Action::Stopped),
        _ => {}
    })
}

fn telling_server(spin_us: u32, greeting_ms_max: u64) -> (Lane, SocketAddr, Receiver<Told>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = channel();
    let lane = start(lonely_post(), move |config| {
        config.listener = Some(listener.into());
        config.spin_us = spin_us;
        config.limits.greeting_ms_max = greeting_ms_max;
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

/// 64 connections that say nothing for a second, and what the lane used in that time.
fn idle(spin_us: u32) {
    // All greetings are over in that second, and none of them is worth a turn.
    let (server, address, told) = telling_server(spin_us, 500);
    let mut streams: Vec<TcpStream> = (0..64).map(|_| greet(address)).collect();
    let first = &mut streams[0];
    exchange(first, 1);
    let (before, before_cpu_ns) = told.iter().nth(64).unwrap();
    let began = Instant::now();
    first.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    assert_eq!(first.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let elapsed = began.elapsed();
    exchange(first, 2);
    let (after, after_cpu_ns) = told.recv().unwrap();
    let turn_count = after.turn_count - before.turn_count;
    assert!(turn_count < 20, "{turn_count} turns of an idle lane");
    let cpu_ns = after_cpu_ns - before_cpu_ns;
    assert!(u128::from(cpu_ns) * 1000 < elapsed.as_nanos(), "{cpu_ns} ns of an idle lane");
    server.stop();
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
        let mut brain = Closure(|turn: &mut Turn<'_>, event| {
            has_left |= matches!(event, Event::Closed { .. });
            (teller.0)(turn, event);
        });
        ring.turn(&mut brain).unwrap();
    }
    client.join().unwrap();
    let counters = ring.counters();
    assert!(counters.turn_count >= 500);
    assert_eq!(counters.clock_read_count, counters.turn_count + START_READ_COUNT);
}

#[test]
fn a_turn_costs_one_system_call_with_io_uring_and_three_without() {
    let (server, address, told) = telling_server(0, 10_000);
    let mut stream = greet(address);
    let (before, _) = told.recv().unwrap();
    (0..100).for_each(|xid| exchange(&mut stream, xid));
    let (after, _) = told.iter().nth(99).unwrap();
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
    assert!(after.send_count - before.send_count <= 100);
    assert!(after.cpu_ns >= before.cpu_ns);
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
    assert!(usage.cpu_ns > 0);
    assert!(usage.syscall_count > 0);
    assert!(usage.clock_read_count > 0);
    assert_eq!((usage.letter_out_count, usage.spin_count), (0, 0));
    assert!(ring.counters().turn_count <= 2, "the same turn or the next");
}

#[test]
fn a_lane_that_looks_out_answers_the_same_and_finds_what_comes_soon() {
    let (server, address, told) = telling_server(1000, 10_000);
    let mut stream = greet(address);
    let mut usage = told.recv().unwrap().0;
    let mut xid = 0;
    // On a busy machine a client may be late any number of times, but not for ever.
    while usage.spin_hit_count < 10 {
        exchange(&mut stream, xid);
        usage = told.recv().unwrap().0;
        xid += 1;
    }
    assert!(usage.spin_hit_count <= usage.spin_count);
    let counters = server.stop();
    assert_eq!(counters.frame_out_count, xid + 1);
    assert_eq!(counters.breach_count, 0);
}

#[test]
fn letters_are_found_while_looking_out() {
    let mut posts = Mesh::posts(2).unwrap();
    let pong = start(posts.pop().unwrap(), move |config| {
        config.spin_us = 1000;
        Closure(move |turn: &mut Turn<'_>, event| {
            if let Event::Mail { from, mail } = event {
                turn.act(Action::Mail { to: from, mail });
                if mail == Mail::Unmounted {
                    turn.act(Action::Stopped);
                }
            }
        })
    });
    let ping = start(posts.pop().unwrap(), move |config| {
        config.spin_us = 1000;
        Closure(move |turn: &mut Turn<'_>, event| match event {
            Event::Mail { mail: Mail::Unmounted, .. } => turn.act(Action::Stopped),
            Event::Tick | Event::Mail { .. } => turn.act(Action::Usage { ticket: Ticket(0) }),
            Event::Usage { usage, .. } => {
                // On a busy machine the other may be late any number of times, but not for ever.
                let found = usage.spin_hit_count > 0;
                let mail = if found { Mail::Unmounted } else { Mail::Interrupt { unique: 0 } };
                turn.act(Action::Mail { to: LaneId(1), mail });
            }
            other => panic!("{other:?}"),
        })
    });
    let [ping, pong]: [Counters; 2] = [ping, pong].map(|lane| lane.thread.join().unwrap());
    assert!(ping.spin_hit_count > 0);
    assert!(ping.spin_hit_count <= ping.spin_count);
    assert_eq!(ping.letter_out_count, pong.letter_in_count);
    assert_eq!(ping.letter_in_count, pong.letter_out_count);
    assert!(pong.wake_count <= pong.syscall_count, "to wake is a system call");
}

#[test]
fn a_stop_ends_a_lane_that_looks_out() {
    let (server, address, told) = telling_server(1000, 10_000);
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
            Event::Adopted { conn, hello: frame } | Event::Frame { conn, frame, .. } => {
                turn.act(Action::Admit { conn });
                turn.act(Action::Send { conn, frame, bulk: None });
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
            Event::Frame { conn, frame, .. } => {
                turn.act(Action::HandOver { conn, lane: LaneId(1), hello: frame });
            }
            Event::Stop => turn.act(Action::Stopped),
            _ => {}
        })
    });
    let mut stream = greet(address);
    (0..100).for_each(|xid| exchange(&mut stream, xid));
    assert!(told.iter().take(101).all(|usage| usage.letter_out_count == 0));
    let (owner, door) = (owner.stop(), door.stop());
    assert_eq!((door.letter_out_count, door.letter_in_count), (1, 0));
    assert_eq!((owner.letter_out_count, owner.letter_in_count), (0, 1));
}

#[test]
fn who_looks_out_in_vain_sleeps_until_its_time() {
    let mut config = ring_config(LaneId(0));
    config.spin_us = 1000;
    let mut ring = Ring::new(config).unwrap();
    let mut ticks = Vec::new();
    let mut brain = Closure(|turn: &mut Turn<'_>, event| {
        assert_eq!(event, Event::Tick);
        ticks.push(turn.now.mono);
    });
    ring.turn(&mut brain).unwrap();
    let at = ring.with(|turn| {
        let at = turn.now.mono.after_ms(20);
        turn.act(Action::WakeAt { at });
        at
    });
    while ring.counters().event_count < 2 {
        ring.turn(&mut brain).unwrap();
    }
    let counters = ring.counters();
    assert_eq!(ticks.len(), 2);
    assert!(ticks[1] >= at, "not before its time");
    assert_eq!((counters.spin_count, counters.spin_hit_count), (1, 0));
    assert!(counters.turn_count < 10, "{} turns for two ticks", counters.turn_count);
}

#[test]
fn a_letter_to_oneself_is_no_hop() {
    let mut ring = Ring::new(ring_config(LaneId(0))).unwrap();
    let mail = Mail::Interrupt { unique: 1 };
    ask(&mut ring, &mut Diary::default(), Action::Mail { to: LaneId(0), mail });
    assert_eq!((ring.counters().letter_out_count, ring.counters().letter_in_count), (0, 0));
}
