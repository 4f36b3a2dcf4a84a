//! Messages between lanes, sleep and wakeup, timers, stopping.

use super::support::{
    Closure, Recorder, ask, frame, hello, only_mailbox, ring_config, start, turns,
};
use interface::{
    Action, Core, Event, KernelAction, KernelEvent, LogLevel, Mono, MountMessage, NetAction,
    NetEvent, Now, PeerAction, PeerEvent, Turn,
};
use procfs::process::Process;
use ring::{Config, Mesh, Ring};
use std::cell::RefCell;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use wire::LaneId;

const LANE_COUNT: u16 = 3;
const MESSAGE_COUNT: u64 = 20_000;

/// Sends messages to every peer lane in bursts, whenever one arrives; counts those received.
struct Flooder {
    lane: u16,
    sent_count: u64,
    received: Vec<u64>,
}

impl Flooder {
    fn send(&mut self, turn: &mut Turn<'_>) {
        let burst_count = 1 + self.sent_count % 3000;
        for _ in 0..burst_count.min(MESSAGE_COUNT - self.sent_count) {
            for to in (0..LANE_COUNT).filter(|to| *to != self.lane) {
                let message = MountMessage::Interrupt { unique: self.sent_count };
                turn.act(PeerAction::Message { to: LaneId(to), message });
            }
            self.sent_count += 1;
        }
    }
}

impl Core for Flooder {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Tick => self.send(turn),
            Event::Peer(PeerEvent::Message {
                from,
                message: MountMessage::Interrupt { unique },
            }) => {
                let received = &mut self.received[usize::from(from.0)];
                assert_eq!(unique, *received, "in order, once");
                *received += 1;
                if unique % 500 == 0 {
                    self.send(turn);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        if self.sent_count < MESSAGE_COUNT {
            turn.act(Action::WakeAt { at: turn.now.mono.after_ms(1) });
        }
        let all = self.received.iter().filter(|count| **count == MESSAGE_COUNT).count();
        if all == usize::from(LANE_COUNT) - 1 && self.sent_count == MESSAGE_COUNT {
            turn.act(Action::Stopped);
        }
    }
}

#[test]
fn every_message_arrives_once_and_in_order_at_sleeping_readers() {
    let lanes: Vec<_> = Mesh::mailboxes(LANE_COUNT)
        .unwrap()
        .into_iter()
        .map(|mailbox| {
            let lane = mailbox.lane().0;
            start(mailbox, move |_| Flooder {
                lane,
                sent_count: 0,
                received: vec![0; usize::from(LANE_COUNT)],
            })
        })
        .collect();
    // Each lane ends only when it has all messages of all others.
    let woken_count: u64 =
        lanes.into_iter().map(|lane| lane.thread.join().unwrap().wake_count).sum();
    println!("{woken_count} of them were woken for it");
}

#[test]
fn messages_go_back_and_forth_between_sleeping_lanes() {
    let mut mailboxes = Mesh::mailboxes(2).unwrap();
    let pong = start(mailboxes.pop().unwrap(), |_| {
        Closure(|turn: &mut Turn<'_>, event| match event {
            Event::Peer(PeerEvent::Message { from, message: MountMessage::Unmounted }) => {
                turn.act(PeerAction::Message { to: from, message: MountMessage::Unmounted });
                turn.act(Action::Stopped);
            }
            Event::Peer(PeerEvent::Message { from, message }) => {
                turn.act(PeerAction::Message { to: from, message })
            }
            _ => {}
        })
    });
    let ping = start(mailboxes.pop().unwrap(), |_| {
        let mut next = 0;
        Closure(move |turn: &mut Turn<'_>, event| {
            let to = LaneId(1);
            match event {
                Event::Tick if next == 0 => {
                    turn.act(PeerAction::Message {
                        to,
                        message: MountMessage::Interrupt { unique: 0 },
                    });
                }
                Event::Peer(PeerEvent::Message {
                    message: MountMessage::Interrupt { unique },
                    ..
                }) => {
                    assert_eq!(unique, next);
                    next += 1;
                    let again = MountMessage::Interrupt { unique: next };
                    let message = if next == 2000 { MountMessage::Unmounted } else { again };
                    turn.act(PeerAction::Message { to, message });
                }
                Event::Peer(PeerEvent::Message { message: MountMessage::Unmounted, .. }) => {
                    turn.act(Action::Stopped)
                }
                _ => {}
            }
        })
    });
    assert_eq!(ping.thread.join().unwrap().event_count, 2002);
    assert_eq!(pong.thread.join().unwrap().event_count, 2002);
}

#[test]
fn a_peer_lanes_message_comes_before_a_request_that_follows_it() {
    let mut mailboxes = Mesh::mailboxes(2).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut lane = |lane, listener: Option<TcpListener>| {
        let config = Config { mailbox: mailboxes.pop(), ..ring_config(LaneId(lane)) };
        Ring::new(Config { listener: listener.map(Into::into), ..config }).unwrap()
    };
    let (mut executor, mut peer_lane) = (lane(1, Some(listener)), lane(0, None));
    let mut recorder = Recorder::default();
    client.write_all(&hello(b"it is me")).unwrap();
    turns(&mut executor, &mut recorder, |recorder| !recorder.events.is_empty());
    let Event::Net(NetEvent::Frame { conn, .. }) = recorder.events[0] else {
        panic!("{:?}", recorder.events)
    };
    executor.with(|turn| turn.act(NetAction::admit(conn)));
    for unique in 1..=50 {
        peer_lane.with(|turn| {
            let message = MountMessage::Interrupt { unique };
            turn.act(PeerAction::Message { to: LaneId(1), message });
            turn.act(Action::WakeAt { at: turn.now.mono });
        });
        peer_lane.turn(&mut Recorder::default()).unwrap();
        client.write_all(&frame(unique, &[])).unwrap();
        recorder.events.clear();
        turns(&mut executor, &mut recorder, |recorder| recorder.events.len() >= 2);
        let expected = Event::Peer(PeerEvent::Message {
            from: LaneId(0),
            message: MountMessage::Interrupt { unique },
        });
        assert_eq!(recorder.events[0], expected);
        assert!(
            matches!(recorder.events[1], Event::Net(NetEvent::Frame { .. })),
            "{:?}",
            recorder.events
        );
    }
}

#[test]
fn a_message_to_the_own_lane_arrives() {
    let mut ring = Ring::new(ring_config(LaneId(0))).unwrap();
    let mut recorder = Recorder::default();
    let message = MountMessage::Interrupt { unique: 9 };
    let event =
        ask(&mut ring, &mut recorder, Action::Peer(PeerAction::Message { to: LaneId(0), message }));
    assert_eq!(event, Event::Peer(PeerEvent::Message { from: LaneId(0), message }));
}

#[test]
fn a_stop_from_another_thread_is_reported_once_and_ends_a_sleeping_lane() {
    let lane = start(only_mailbox(), |_| {
        let mut stop_count = 0;
        Closure(move |turn: &mut Turn<'_>, event| match event {
            Event::Stop => {
                stop_count += 1;
                assert_eq!(stop_count, 1);
                turn.act(Action::WakeAt { at: turn.now.mono.after_ms(5) });
            }
            Event::Tick if stop_count == 1 => turn.act(Action::Stopped),
            Event::Tick => {}
            other => panic!("{other:?}"),
        })
    });
    let counters = lane.stop();
    assert!(counters.turn_count >= 2, "{counters:?}");
}

/// Records when turns were taken.
#[derive(Debug)]
struct Timer {
    requested: Vec<Mono>,
    seen: Vec<Now>,
    /// Turns without an event say nothing about a timer.
    ticks: usize,
}

impl Core for Timer {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        assert_eq!(event, Event::Tick);
        self.ticks += 1;
        self.seen.push(turn.now);
        if self.ticks == 1 {
            for ms in [30, 10, 20, 10] {
                let at = turn.now.mono.after_ms(ms);
                self.requested.push(at);
                turn.act(Action::WakeAt { at });
            }
        }
    }
    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

#[test]
fn every_timer_gets_its_turn_and_time_rises() {
    // Not lane 0, which refreshes the wall clock, because the system's clock may be set.
    let mut ring = Ring::new(ring_config(LaneId(1))).unwrap();
    let mut timer = Timer { requested: Vec::new(), seen: Vec::new(), ticks: 0 };
    // On a busy machine one turn may serve two timers.
    turns(&mut ring, &mut timer, |timer| {
        let last = timer.requested.iter().max();
        last.is_some_and(|last| timer.seen.last().is_some_and(|seen| seen.mono >= *last))
    });
    for seen in &timer.seen[1..] {
        let due = timer.requested.iter().any(|at| *at <= seen.mono);
        assert!(due, "a tick before its time: {timer:?}");
    }
    assert!(timer.ticks <= 4, "one for each timer, and the first: {timer:?}");
    assert!(timer.seen.is_sorted_by(|a, b| a.mono < b.mono && a.wall_ns < b.wall_ns), "{timer:?}");
    let turn_count = ring.counters().turn_count;
    assert!(turn_count < 20, "it slept in between, not {turn_count} turns");
}

#[test]
fn log_lines_reach_the_callback() {
    let lines = Rc::new(RefCell::new(Vec::new()));
    let mut config = ring_config(LaneId(0));
    let callback_lines = Rc::clone(&lines);
    config.say =
        Box::new(move |say, line| callback_lines.borrow_mut().push((say, line.to_owned())));
    let mut ring = Ring::new(config).unwrap();
    ring.with(|turn| {
        let line = turn.arena.put("schön".as_bytes());
        turn.act(Action::Log { level: LogLevel::Warning, line });
    });
    assert!(ring.turn(&mut Recorder::default()).unwrap());
    assert_eq!(*lines.borrow(), [(LogLevel::Warning, "schön".to_owned())]);
}

#[test]
fn groups_of_a_process_are_found_and_a_dead_one_has_none() {
    let mut ring = Ring::new(ring_config(LaneId(0))).unwrap();
    let mut found = Vec::new();
    let pid = std::process::id();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for (pid, uid) in [(pid, uid), (0x7fff_fff0, uid), (pid, uid + 1)] {
        ring.with(|turn| {
            let who = interface::Process { pid, uid, gid, since: turn.now.mono };
            turn.act(KernelAction::CallerGroups { ticket: interface::Ticket(3), process: who });
        });
        let mut core = Closure(|turn: &mut Turn<'_>, event| {
            if let Event::Kernel(KernelEvent::CallerGroups { groups, .. }) = event {
                found.push(groups.map(|span| turn.arena.get(span).to_vec()));
            }
        });
        ring.turn(&mut core).unwrap();
    }
    let groups = Process::myself().unwrap().status().unwrap().groups;
    let expected: Vec<u8> = groups.into_iter().flat_map(u32::to_le_bytes).collect();
    assert_eq!(found, [Some(expected), None, Some(vec![])], "other ids yield no groups");
}
