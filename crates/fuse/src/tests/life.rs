//! INIT, groups, interrupts, forgets, the end, and bytes that mean nothing.

use super::rig::{Rig, request, u32s, u64s};
use super::std::collections::BTreeMap;
use super::{DIRECTORY, Dice, FILE, attr};
use crate::abi::{Opcode, init_flag};
use alloc::vec::Vec;
use interface::{Event, KernelEvent, LaneMessage, LogLevel, Mono, PeerEvent, Process};
use wire::{
    Attr, Bytes, Contents, Created, Entry, FileKind, Glimpsed, Groups, InodeNo, LaneId, List,
    Listing, Lookup, Op, Space, Status, Target, Value, Wire, Written, attr_flag,
};

fn init(rig: &mut Rig, minor: u32, flags: u64) {
    let mut args = u32s(&[7, minor, 131_072, flags as u32, (flags >> 32) as u32]);
    args.extend([0; 44]);
    rig.ask(Opcode::Init, 1, InodeNo(0), &args);
}

#[test]
fn init_takes_what_is_offered_and_wanted() {
    let mut rig = Rig::new();
    init(&mut rig, 45, u64::MAX);
    let reply = rig.reply();
    assert_eq!(reply.status, Status::Ok);
    let flags = init_flag::ASYNC_READ
        | init_flag::POSIX_LOCKS
        | init_flag::FLOCK_LOCKS
        | init_flag::BIG_WRITES
        | init_flag::DONT_MASK
        | init_flag::AUTO_INVAL_DATA
        | init_flag::DO_READDIRPLUS
        | init_flag::READDIRPLUS_AUTO
        | init_flag::ASYNC_DIO
        | init_flag::PARALLEL_DIROPS
        | init_flag::MAX_PAGES
        | init_flag::HANDLE_KILLPRIV_V2
        | init_flag::INIT_EXT
        | init_flag::DIRECT_IO_ALLOW_MMAP;
    let mut payload = u32s(&[7, 42, 131_072, flags as u32]);
    payload.extend([64_u16, 48].iter().flat_map(|number| number.to_ne_bytes()));
    payload.extend(u32s(&[1 << 20, 1]));
    payload.extend([256_u16, 0].iter().flat_map(|number| number.to_ne_bytes()));
    payload.extend(u32s(&[(flags >> 32) as u32, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(reply.payload, payload);
    assert!(rig.asked.is_empty());
}

#[test]
fn init_asks_for_io_uring_only_when_that_is_served() {
    let flags2 = |rig: &mut Rig| {
        init(rig, 45, u64::MAX);
        u32::from_ne_bytes(rig.reply().payload[32..36].try_into().unwrap())
    };
    let mut rig = Rig::new();
    assert_eq!(flags2(&mut rig), 1 << (36 - 32));
    rig.lane.config.over_io_uring = true;
    assert_eq!(flags2(&mut rig), 1 << (36 - 32) | 1 << (41 - 32));
}

#[test]
fn init_without_its_second_flags_reads_none() {
    let mut rig = Rig::new();
    rig.ask(Opcode::Init, 1, InodeNo(0), &u32s(&[7, 31, 0, !(1 << 30)]));
    let payload = rig.reply().payload;
    assert_eq!(payload.len(), 64);
    assert_eq!(payload[32..36], [0; 4]);
}

#[test]
fn an_old_kernel_is_refused_and_told_why() {
    let mut rig = Rig::new();
    init(&mut rig, 30, 0);
    assert_eq!(rig.status(), Status::Protocol);
    assert_eq!(rig.said.len(), 1);
    assert_eq!(rig.said[0].0, LogLevel::Alarm);
}

#[test]
fn groups_are_looked_up_when_the_server_needs_them() {
    let mut rig = Rig::new();
    rig.ask(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    let asked = rig.take();
    rig.fail(&asked, Status::NeedGroups);
    let (pid, uid, gid) = (4242, 1001, 1002);
    let since = Mono(rig.now_ms * 1_000_000);
    assert_eq!(rig.groups_wanted[0].1, Process { pid, uid, gid, since });
    // Another request gets other groups meanwhile.
    rig.ask(Opcode::Lookup, 8, DIRECTORY, b"b\0");
    let other = rig.take();
    rig.fail(&other, Status::NeedGroups);
    rig.groups(Some(&[5, 6]));
    rig.groups(Some(&[9]));
    for groups in [&[5, 0, 0, 0, 6, 0, 0, 0][..], &[9, 0, 0, 0]] {
        let again = rig.take();
        let ask = Lookup::decode_all(&again.body).unwrap();
        assert_eq!(ask.caller.groups, Groups::Known(groups));
        rig.answer(&again, &Entry { attr: attr(FILE, FileKind::File) }.to_bytes());
    }
    assert_eq!(rig.replied.len(), 2);
}

#[test]
fn a_process_that_is_gone_is_interrupted() {
    let mut rig = Rig::new();
    rig.ask(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    let asked = rig.take();
    rig.fail(&asked, Status::NeedGroups);
    rig.groups(None);
    assert_eq!(rig.status(), Status::Interrupted);
}

#[test]
fn groups_that_do_not_help_are_not_asked_for_again() {
    let mut rig = Rig::new();
    rig.ask(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    let asked = rig.take();
    rig.fail(&asked, Status::NeedGroups);
    rig.groups(Some(&[]));
    let again = rig.take();
    rig.fail(&again, Status::NeedGroups);
    assert_eq!(rig.status(), Status::Access);
}

fn interrupt(rig: &mut Rig, unique: u64) {
    let bytes = request(Opcode::Interrupt as u32, unique | 1, InodeNo(0), &u64s(&[unique]));
    rig.ask_bytes(None, bytes, None);
}

#[test]
fn an_interrupt_ends_a_request_that_waits_for_the_server() {
    let mut rig = Rig::new();
    rig.listening = false;
    rig.ask(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    assert!(rig.replied.is_empty());
    interrupt(&mut rig, 8);
    rig.wait_ms(20);
    assert_eq!(rig.status(), Status::Interrupted);
    assert!(rig.mails.is_empty());
}

#[test]
fn a_signal_that_is_handled_ends_nothing_but_a_later_kill_does() {
    let mut rig = Rig::new();
    rig.caller_ends = false;
    rig.listening = false;
    rig.ask(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    interrupt(&mut rig, 8);
    rig.wait_ms(19);
    assert!(rig.looked_at.is_empty(), "most are answered by now");
    rig.wait_ms(1);
    rig.wait_ms(5_000);
    assert!(rig.looked_at.len() > 1 && rig.looked_at.iter().all(|pid| *pid == 4242));
    assert!(rig.replied.is_empty());
    rig.caller_ends = true;
    rig.wait_ms(250);
    assert_eq!(rig.status(), Status::Interrupted);
    rig.looked_at.clear();
    rig.wait_ms(5_000);
    assert!(rig.looked_at.is_empty());
}

#[test]
fn who_was_answered_is_not_looked_at() {
    let mut rig = Rig::new();
    rig.ask(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    interrupt(&mut rig, 8);
    let asked = rig.take();
    rig.answer(&asked, &[]);
    assert_eq!(rig.status(), Status::Ok);
    rig.wait_ms(5_000);
    assert!(rig.looked_at.is_empty());
}

#[test]
fn over_io_uring_who_waits_long_is_looked_at_without_being_told() {
    for over_io_uring in [false, true] {
        let mut rig = Rig::new();
        rig.lane.config.over_io_uring = over_io_uring;
        rig.listening = false;
        rig.caller_ends = false;
        rig.ask(Opcode::Unlink, 8, DIRECTORY, b"a\0");
        rig.wait_ms(999);
        assert!(rig.looked_at.is_empty(), "most are answered by now");
        rig.wait_ms(1);
        rig.wait_ms(1_000);
        assert_eq!(rig.looked_at.is_empty(), !over_io_uring);
        assert!(rig.replied.is_empty(), "nobody ends");
        rig.caller_ends = true;
        rig.wait_ms(1_000);
        assert_eq!(rig.replied.len(), usize::from(over_io_uring));
    }
}

#[test]
fn an_interrupt_of_a_sisters_request_is_sent_on() {
    let mut rig = Rig::new();
    interrupt(&mut rig, 8);
    let message = LaneMessage::Interrupt { unique: 8 };
    assert_eq!(rig.mails, [(LaneId(1), message), (LaneId(2), message)]);
    rig.mails.clear();
    rig.listening = false;
    rig.ask(Opcode::Unlink, 10, DIRECTORY, b"a\0");
    rig.event(Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: LaneMessage::Interrupt { unique: 10 },
    }));
    rig.wait_ms(20);
    assert_eq!(rig.status(), Status::Interrupted);
    rig.event(Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: LaneMessage::Interrupt { unique: 12 },
    }));
    assert!(rig.mails.is_empty(), "message is not sent round");
}

#[test]
fn an_interrupt_that_comes_first_is_remembered() {
    let mut rig = Rig::new();
    rig.listening = false;
    interrupt(&mut rig, 8);
    rig.ask(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    rig.wait_ms(20);
    assert_eq!(rig.status(), Status::Interrupted);
    rig.ask(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    assert!(rig.replied.is_empty(), "once");
}

#[test]
fn forgets_take_no_answer() {
    let mut rig = Rig::new();
    for opcode in [Opcode::Forget, Opcode::BatchForget] {
        let bytes = request(opcode as u32, 2, FILE, &u64s(&[1, 1, 1]));
        rig.ask_bytes(None, bytes, None);
    }
    assert!(rig.replied.is_empty());
    assert_eq!(rig.lane.pendings.count(), 0);
}

#[test]
fn a_sisters_file_is_released_by_the_sister() {
    let mut rig = Rig::new();
    let handle = wire::HandleId((2 << 48) | 9);
    rig.ask(Opcode::Release, 7, FILE, &u64s(&[handle.0, 0, 0]));
    assert_eq!(rig.reply().status, Status::Ok);
    assert_eq!(rig.mails, [(LaneId(2), LaneMessage::Release { handle })]);
}

#[test]
fn stop_waits_for_what_is_begun() {
    let mut rig = Rig::new();
    rig.ask(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    rig.event(Event::Stop);
    assert_eq!(rig.stopped_count, 0);
    let asked = rig.take();
    rig.answer(&asked, &Entry { attr: attr(FILE, FileKind::File) }.to_bytes());
    assert_eq!(rig.reply().status, Status::Ok);
    assert_eq!(rig.stopped_count, 1);
    rig.event(Event::Tick);
    assert_eq!((rig.stopped_count, rig.goodbye_count), (1, 1), "said once");
}

/// A rig with a name that was removed, which is not durable, and the end asked for.
fn rig_ending() -> Rig {
    let mut rig = Rig::new();
    rig.ask(Opcode::Unlink, 7, DIRECTORY, b"a\0");
    let asked = rig.take();
    rig.token(&asked, 5, &[]);
    assert_eq!(rig.reply().status, Status::Ok);
    rig.event(Event::Kernel(KernelEvent::Unmounted));
    assert_eq!(rig.stopped_count, 0);
    rig
}

#[test]
fn the_end_waits_until_everything_is_durable() {
    let mut rig = rig_ending();
    // A slow disk is no reason to give up.
    rig.wait_ms(100_000);
    assert_eq!(rig.stopped_count, 0);
    let asked = rig.take();
    assert_eq!(asked.head.op, Op::Sync);
    rig.answer(&asked, &[]);
    assert_eq!((rig.stopped_count, rig.goodbye_count), (1, 1));
    assert!(rig.said.is_empty());
}

#[test]
fn a_server_that_stays_away_does_not_keep_the_end_for_ever() {
    let mut rig = rig_ending();
    rig.listening = false;
    rig.hang_up();
    for _ in 0..59 {
        rig.wait_ms(1_000);
        assert_eq!(rig.stopped_count, 0);
    }
    rig.wait_ms(1_000);
    assert_eq!((rig.stopped_count, rig.goodbye_count), (1, 0));
    let (say, line) = rig.said.last().unwrap();
    assert_eq!(*say, LogLevel::Alarm);
    assert!(line.ends_with(b"may be lost"), "{line:?}");
}

#[test]
fn what_is_lost_is_said() {
    let mut rig = rig_ending();
    let asked = rig.take();
    rig.fail(&asked, Status::Io);
    assert_eq!(rig.stopped_count, 1);
    assert!(rig.said.iter().any(|(say, _)| *say == LogLevel::Alarm));
}

#[test]
fn stop_does_not_wait_for_ever() {
    let mut rig = Rig::new();
    rig.ask(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    rig.event(Event::Stop);
    rig.wait_ms(4_999);
    assert_eq!(rig.stopped_count, 0);
    rig.wait_ms(1);
    assert_eq!(rig.status(), Status::NotConnected);
    assert_eq!(rig.stopped_count, 1);
}

/// Users of a detached mount keep asking.
#[test]
fn a_new_request_after_stop_is_refused_and_the_old_ones_are_answered() {
    let mut rig = Rig::new();
    rig.ask(Opcode::Unlink, 7, DIRECTORY, b"a\0");
    rig.event(Event::Stop);
    rig.ask(Opcode::Unlink, 8, DIRECTORY, b"b\0");
    assert_eq!(rig.status(), Status::NotConnected);
    let asked = rig.take();
    rig.token(&asked, 5, &[]);
    assert_eq!(rig.reply().status, Status::Ok);
    let asked = rig.take();
    assert_eq!(asked.head.op, Op::Sync, "the refused request never reached the server");
    rig.ask(Opcode::Unlink, 9, DIRECTORY, b"c\0");
    assert_eq!(rig.status(), Status::NotConnected);
    rig.answer(&asked, &[]);
    assert_eq!((rig.stopped_count, rig.goodbye_count), (1, 1));
    assert!(rig.said.is_empty());
}

#[test]
fn when_the_kernel_goes_all_lanes_end_and_nothing_is_answered() {
    let mut rig = Rig::new();
    rig.listening = false;
    rig.ask(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    rig.event(Event::Kernel(KernelEvent::Unmounted));
    assert_eq!(
        rig.mails,
        [(LaneId(1), LaneMessage::Unmounted), (LaneId(2), LaneMessage::Unmounted)]
    );
    assert_eq!(rig.stopped_count, 1);
    assert!(rig.replied.is_empty());
    let mut peer_lane = Rig::new();
    peer_lane.event(Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: LaneMessage::Unmounted,
    }));
    assert_eq!(peer_lane.stopped_count, 1);
    assert!(peer_lane.mails.is_empty());
}

#[test]
fn an_interrupt_holds_for_the_whole_request() {
    let mut rig = Rig::new();
    // A size and a mode: two calls.
    let mut args = u32s(&[8 | 64 | 1, 0]);
    args.extend(u64s(&[0, 99, 0, 0, 0, 0]));
    args.extend(u32s(&[0, 0, 0, 0o600, 0, 0, 0, 0]));
    rig.ask(Opcode::Setattr, 8, FILE, &args);
    interrupt(&mut rig, 8);
    for op in [Op::Truncate, Op::Getattr] {
        let asked = rig.take();
        assert_eq!(asked.head.op, op);
        let body = Entry { attr: attr(FILE, FileKind::File) }.to_bytes();
        rig.answer(&asked, if op == Op::Getattr { &body } else { &[] });
    }
    assert_eq!(rig.take().head.op, Op::Setattr);
    assert!(rig.replied.is_empty(), "it may still be answered in time");
    rig.wait_ms(20);
    rig.wait_ms(1_000);
    assert_eq!(rig.status(), Status::Interrupted);
}

#[test]
fn people_are_told_when_the_server_goes_and_comes() {
    let mut rig = Rig::new();
    rig.ask(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    rig.listening = false;
    rig.hang_up();
    rig.wait_ms(900);
    assert!(rig.said.is_empty(), "not for a moment's absence");
    rig.wait_ms(100);
    rig.wait_ms(1_000);
    rig.listening = true;
    rig.wait_ms(1_000);
    let said: Vec<_> = rig.said.iter().map(|(say, _)| *say).collect();
    assert_eq!(said, [LogLevel::Warning, LogLevel::Info]);
}

/// A reply that a server could give.
fn plausible(op: Op, dice: &mut Dice) -> Vec<u8> {
    let kind = if dice.roll(2) == 0 { FileKind::File } else { FileKind::Directory };
    let flags = if dice.roll(2) == 0 { attr_flag::SIZE_AT_DATA } else { 0 };
    let attr = Attr { flags, ..attr(FILE, kind) };
    let contents = Contents { size_bytes: 1, allocated_bytes: 2, write_time: None };
    match op {
        Op::Lookup
        | Op::Getattr
        | Op::Setattr
        | Op::Mkdir
        | Op::Symlink
        | Op::Mknod
        | Op::Link
        | Op::Open => Entry { attr }.to_bytes(),
        Op::Create | Op::Tmpfile => Created { attr, made: dice.roll(2) == 0 }.to_bytes(),
        Op::Readlink => Target { target: Bytes(b"x") }.to_bytes(),
        Op::Readdir => {
            let entries = List::new(0, &[]);
            Listing { parent: FILE, end: dice.roll(2) == 0, entries }.to_bytes()
        }
        Op::Getxattr | Op::Listxattr => Value { value: Bytes(b"x") }.to_bytes(),
        Op::Statfs => Space {
            total_bytes: u64::MAX,
            free_bytes: 0,
            available_bytes: 0,
            inode_count: u64::MAX,
            inode_free_count: 1,
            lane_count: 2,
        }
        .to_bytes(),
        Op::Write => Written { file_offset: 0, written_bytes: 0 }.to_bytes(),
        Op::Glimpse => Glimpsed { contents }.to_bytes(),
        Op::Rename => {
            let directory =
                |dice: &mut Dice| (dice.roll(2) == 0).then_some(InodeNo(1 + dice.roll(3)));
            wire::Renamed { moved: directory(dice), exchanged: directory(dice) }.to_bytes()
        }
        Op::Seek => wire::Sought { file_offset: 1 }.to_bytes(),
        // Who waits would wait for ever.
        Op::SetLock => wire::LockSet { granted: true, place: 0 }.to_bytes(),
        Op::GetLock => wire::LockFound { found: None }.to_bytes(),
        Op::CancelLock => wire::LockCancelled { waited: dice.roll(2) == 0 }.to_bytes(),
        _ => Vec::new(),
    }
}

#[test]
fn whatever_the_kernel_says_every_request_is_answered_once() {
    let mut dice = Dice(0x5eed);
    let mut rig = Rig::new();
    // A lock may be lost with a connection.
    rig.peer_lanes_know = true;
    let mut due = BTreeMap::new();
    for unique in 1..20_000_u32 {
        let known = dice.roll(Opcode::ALL.len() as u64) as usize;
        let opcode =
            if dice.roll(20) == 0 { dice.roll(70) as u32 } else { Opcode::ALL[known] as u32 };
        let sides = [2, 4, 256][dice.roll(3) as usize];
        let args: Vec<_> = (0..dice.roll(120)).map(|_| dice.roll(sides) as u8).collect();
        let node = InodeNo((dice.roll(12) << 48) | dice.roll(3));
        let mut bytes = request(opcode, u64::from(unique), node, &args);
        if dice.roll(10) == 0 {
            bytes.truncate(dice.roll(bytes.len() as u64) as usize);
        }
        let silent = bytes.len() >= 40
            && [Opcode::Forget, Opcode::BatchForget, Opcode::Interrupt]
                .iter()
                .any(|silent| *silent as u32 == opcode);
        if !silent {
            due.insert(unique, ());
        }
        rig.ask_bytes((!silent).then_some(unique), bytes, None);
        while dice.roll(3) > 0
            && let Some(asked) = rig.asked.pop_front()
        {
            if dice.roll(4) == 0 {
                let status = Status::ALL[dice.roll(Status::ALL.len() as u64) as usize];
                let body = if status == Status::Ok {
                    plausible(asked.head.op, &mut dice)
                } else {
                    Vec::new()
                };
                rig.send(&asked, status, &body, None);
            } else {
                let body = plausible(asked.head.op, &mut dice);
                rig.answer(&asked, &body);
            }
        }
        if dice.roll(500) == 0 {
            rig.hang_up();
        }
        if dice.roll(50) == 0 {
            rig.wait_ms(100);
        }
        while !rig.groups_wanted.is_empty() {
            let known = dice.roll(2) == 0;
            rig.groups(known.then_some(&[1, 2]));
        }
        settle(&mut rig, &mut due);
    }
    for _ in 0..100 {
        while let Some(asked) = rig.asked.pop_front() {
            let body = plausible(asked.head.op, &mut dice);
            rig.answer(&asked, &body);
        }
        while !rig.groups_wanted.is_empty() {
            rig.groups(None);
        }
        rig.wait_ms(1_000);
        settle(&mut rig, &mut due);
    }
    assert!(due.is_empty(), "{} requests were never answered", due.len());
    assert_eq!(rig.lane.pendings.count(), 0);
}

fn settle(rig: &mut Rig, due: &mut BTreeMap<u32, ()>) {
    for reply in rig.replied.drain(..) {
        assert!(due.remove(&reply.slot.0).is_some(), "slot {:?} is answered once", reply.slot);
        assert!(reply.status.number() < 1_000, "{:?} is no errno", reply.status);
    }
}
