//! INIT, groups, interrupts, forgets, stopping, and invalid requests.

use super::harness::{Harness, request, u32s, u64s};
use super::std::collections::BTreeMap;
use super::{DIRECTORY, FILE, attr};
use crate::abi::{Opcode, WRITE_CACHE, init_flag};
use alloc::vec::Vec;
use interface::{
    BufId, Bulk, Event, KernelEvent, LogLevel, Mono, MountMessage, NO_MAC, PeerEvent, Process,
};
use wire::{
    Attr, Bytes, Contents, Created, Entry, FileKind, Glimpsed, Groups, InodeNo, LaneId, List,
    Listing, Lookup, Op, Space, Status, Target, Value, Wire, Written, attr_flag,
};

fn init(harness: &mut Harness, minor: u32, flags: u64) {
    let mut args = u32s(&[7, minor, 131_072, flags as u32, (flags >> 32) as u32]);
    args.extend([0; 44]);
    harness.kernel_request(Opcode::Init, 1, InodeNo(0), &args);
}

#[test]
fn init_negotiates_the_features_that_are_offered_and_wanted() {
    let mut harness = Harness::new();
    init(&mut harness, 45, u64::MAX);
    let reply = harness.reply();
    assert_eq!(reply.status, Status::Ok);
    let flags = init_flag::ASYNC_READ
        | init_flag::POSIX_LOCKS
        | init_flag::FLOCK_LOCKS
        | init_flag::BIG_WRITES
        | init_flag::DONT_MASK
        | init_flag::AUTO_INVAL_DATA
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
    assert!(harness.requests.is_empty());
}

#[test]
fn init_negotiates_io_uring_only_when_the_runtime_serves_it() {
    let flags2 = |harness: &mut Harness| {
        init(harness, 45, u64::MAX);
        u32::from_ne_bytes(harness.reply().payload[32..36].try_into().unwrap())
    };
    let mut harness = Harness::new();
    assert_eq!(flags2(&mut harness), 1 << (36 - 32));
    harness.lane.config.over_io_uring = true;
    assert_eq!(flags2(&mut harness), 1 << (36 - 32) | 1 << (41 - 32));
}

#[test]
fn init_without_its_second_flags_reads_none() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Init, 1, InodeNo(0), &u32s(&[7, 31, 0, !(1 << 30)]));
    let payload = harness.reply().payload;
    assert_eq!(payload.len(), 64);
    assert_eq!(payload[32..36], [0; 4]);
}

#[test]
fn an_old_kernel_is_refused_with_a_log_line() {
    let mut harness = Harness::new();
    init(&mut harness, 30, 0);
    assert_eq!(harness.status(), Status::Protocol);
    assert_eq!(harness.logged.len(), 1);
    assert_eq!(harness.logged[0].0, LogLevel::Alarm);
}

#[test]
fn groups_are_looked_up_when_the_server_needs_them() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    let received = harness.take();
    harness.fail(&received, Status::NeedGroups);
    let (pid, uid, gid) = (4242, 1001, 1002);
    let since = Mono(harness.now_ms * 1_000_000);
    assert_eq!(harness.group_lookups[0].1, Process { pid, uid, gid, since });
    // Another request gets other groups meanwhile.
    harness.kernel_request(Opcode::Lookup, 8, DIRECTORY, b"b\0");
    let other = harness.take();
    harness.fail(&other, Status::NeedGroups);
    harness.groups(Some(&[5, 6]));
    harness.groups(Some(&[9]));
    for groups in [&[5, 0, 0, 0, 6, 0, 0, 0][..], &[9, 0, 0, 0]] {
        let again = harness.take();
        let request = Lookup::decode_all(&again.body).unwrap();
        assert_eq!(request.caller.groups, Groups::Known(groups));
        harness.answer(&again, &Entry { attr: attr(FILE, FileKind::File) }.to_bytes());
    }
    assert_eq!(harness.replies.len(), 2);
}

#[test]
fn a_process_that_has_exited_is_interrupted() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    let received = harness.take();
    harness.fail(&received, Status::NeedGroups);
    harness.groups(None);
    assert_eq!(harness.status(), Status::Interrupted);
}

#[test]
fn groups_are_looked_up_only_once() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    let received = harness.take();
    harness.fail(&received, Status::NeedGroups);
    harness.groups(Some(&[]));
    let again = harness.take();
    harness.fail(&again, Status::NeedGroups);
    assert_eq!(harness.status(), Status::Access);
}

/// Of the process in a request.
const PID_AT: usize = 32;

fn interrupt(harness: &mut Harness, unique: u64) {
    let bytes = request(Opcode::Interrupt as u32, unique | 1, InodeNo(0), &u64s(&[unique]));
    harness.kernel_bytes(None, bytes, None);
}

#[test]
fn an_interrupt_ends_a_request_that_waits_for_the_server() {
    let mut harness = Harness::new();
    harness.shape.listening = false;
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    assert!(harness.replies.is_empty());
    interrupt(&mut harness, 8);
    harness.wait_ms(20);
    assert_eq!(harness.status(), Status::Interrupted);
    assert!(harness.peer_messages.is_empty());
}

#[test]
fn a_handled_signal_ends_no_request_but_a_later_kill_does() {
    let mut harness = Harness::new();
    harness.caller_ends = false;
    harness.shape.listening = false;
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    interrupt(&mut harness, 8);
    harness.wait_ms(19);
    assert!(harness.signals_requested.is_empty(), "most requests are answered by now");
    harness.wait_ms(1);
    harness.wait_ms(5_000);
    assert!(
        harness.signals_requested.len() > 1
            && harness.signals_requested.iter().all(|pid| *pid == 4242)
    );
    assert!(harness.replies.is_empty());
    harness.caller_ends = true;
    harness.wait_ms(250);
    assert_eq!(harness.status(), Status::Interrupted);
    harness.signals_requested.clear();
    harness.wait_ms(5_000);
    assert!(harness.signals_requested.is_empty());
}

#[test]
fn an_answered_requests_process_is_not_checked() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    interrupt(&mut harness, 8);
    let received = harness.take();
    harness.answer(&received, &[]);
    assert_eq!(harness.status(), Status::Ok);
    harness.wait_ms(5_000);
    assert!(harness.signals_requested.is_empty());
}

#[test]
fn over_io_uring_a_long_wait_is_checked_without_an_interrupt() {
    for over_io_uring in [false, true] {
        let mut harness = Harness::new();
        harness.lane.config.over_io_uring = over_io_uring;
        harness.shape.listening = false;
        harness.caller_ends = false;
        harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"a\0");
        harness.wait_ms(999);
        assert!(harness.signals_requested.is_empty(), "most requests are answered by now");
        harness.wait_ms(1);
        harness.wait_ms(1_000);
        assert_eq!(harness.signals_requested.is_empty(), !over_io_uring);
        assert!(harness.replies.is_empty(), "no process ends");
        harness.caller_ends = true;
        harness.wait_ms(1_000);
        assert_eq!(harness.replies.len(), usize::from(over_io_uring));
    }
}

#[test]
fn what_the_kernel_writes_back_is_never_abandoned() {
    let mut harness = Harness::with_open(&[FILE]);
    harness.lane.config.over_io_uring = true;
    harness.shape.listening = false;
    let args = [u64s(&[1, 0]), u32s(&[9, WRITE_CACHE]), u64s(&[0]), u32s(&[0, 0])].concat();
    let data = Bulk { buf: BufId(4), start: 0, bulk_bytes: 9, crc32c: None, mac: NO_MAC };
    let mut bytes = request(Opcode::Write as u32, 8, FILE, &args);
    bytes[PID_AT..].first_chunk_mut::<4>().unwrap().fill(0);
    harness.kernel_bytes(Some(8), bytes, Some(data));
    for _ in 0..60 {
        harness.wait_ms(1_000);
    }
    assert!(harness.signals_requested.is_empty(), "no process waits for it");
    assert!(harness.replies.is_empty(), "the kernel would drop the page");
    harness.shape.listening = true;
    harness.wait_ms(2_000);
    let received = harness.take();
    assert_eq!(received.head.op, Op::Write);
}

#[test]
fn an_interrupt_of_a_peer_lanes_request_is_forwarded() {
    let mut harness = Harness::new();
    interrupt(&mut harness, 8);
    let message = MountMessage::Interrupt { unique: 8 };
    assert_eq!(harness.peer_messages, [(LaneId(1), message), (LaneId(2), message)]);
    harness.peer_messages.clear();
    harness.shape.listening = false;
    harness.kernel_request(Opcode::Unlink, 10, DIRECTORY, b"a\0");
    harness.event(Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: MountMessage::Interrupt { unique: 10 },
    }));
    harness.wait_ms(20);
    assert_eq!(harness.status(), Status::Interrupted);
    harness.event(Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: MountMessage::Interrupt { unique: 12 },
    }));
    assert!(harness.peer_messages.is_empty(), "a peer message is not forwarded again");
}

#[test]
fn an_interrupt_that_arrives_first_is_remembered() {
    let mut harness = Harness::new();
    harness.shape.listening = false;
    interrupt(&mut harness, 8);
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    harness.wait_ms(20);
    assert_eq!(harness.status(), Status::Interrupted);
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    assert!(harness.replies.is_empty(), "once");
}

#[test]
fn forgets_have_no_reply() {
    let mut harness = Harness::new();
    for opcode in [Opcode::Forget, Opcode::BatchForget] {
        let bytes = request(opcode as u32, 2, FILE, &u64s(&[1, 1, 1]));
        harness.kernel_bytes(None, bytes, None);
    }
    assert!(harness.replies.is_empty());
    assert_eq!(harness.lane.pendings.count(), 0);
}

#[test]
fn a_peer_lanes_handle_is_released_by_the_peer_lane() {
    let mut harness = Harness::new();
    let handle = wire::HandleId((2 << 48) | 9);
    harness.kernel_request(Opcode::Release, 7, FILE, &u64s(&[handle.0, 0, 0]));
    assert_eq!(harness.reply().status, Status::Ok);
    assert_eq!(harness.peer_messages, [(LaneId(2), MountMessage::Release { handle })]);
}

#[test]
fn stop_waits_for_requests_in_flight() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    harness.event(Event::Stop);
    assert_eq!(harness.stopped_count, 0);
    let received = harness.take();
    harness.answer(&received, &Entry { attr: attr(FILE, FileKind::File) }.to_bytes());
    assert_eq!(harness.reply().status, Status::Ok);
    assert_eq!(harness.stopped_count, 1);
    harness.event(Event::Tick);
    assert_eq!((harness.stopped_count, harness.goodbye_count), (1, 1), "only once");
}

/// A harness with a removed name that is not durable, after a stop.
fn harness_stopping() -> Harness {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Unlink, 7, DIRECTORY, b"a\0");
    let received = harness.take();
    harness.token(&received, 5, &[]);
    assert_eq!(harness.reply().status, Status::Ok);
    harness.event(Event::Kernel(KernelEvent::Unmounted));
    assert_eq!(harness.stopped_count, 0);
    harness
}

#[test]
fn stop_waits_until_everything_is_durable() {
    let mut harness = harness_stopping();
    // A slow disk is no reason to give up.
    harness.wait_ms(100_000);
    assert_eq!(harness.stopped_count, 0);
    let received = harness.take();
    assert_eq!(received.head.op, Op::Sync);
    harness.answer(&received, &[]);
    assert_eq!((harness.stopped_count, harness.goodbye_count), (1, 1));
    assert!(harness.logged.is_empty());
}

#[test]
fn stop_waits_for_an_absent_server_only_for_a_limited_time() {
    let mut harness = harness_stopping();
    harness.shape.listening = false;
    harness.hang_up();
    for _ in 0..59 {
        harness.wait_ms(1_000);
        assert_eq!(harness.stopped_count, 0);
    }
    harness.wait_ms(1_000);
    assert_eq!((harness.stopped_count, harness.goodbye_count), (1, 0));
    let (say, line) = harness.logged.last().unwrap();
    assert_eq!(*say, LogLevel::Alarm);
    assert!(line.ends_with(b"may be lost"), "{line:?}");
}

#[test]
fn lost_changes_are_logged() {
    let mut harness = harness_stopping();
    let received = harness.take();
    harness.fail(&received, Status::Io);
    assert_eq!(harness.stopped_count, 1);
    assert!(harness.logged.iter().any(|(say, _)| *say == LogLevel::Alarm));
}

#[test]
fn stop_has_a_time_limit() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    harness.event(Event::Stop);
    harness.wait_ms(4_999);
    assert_eq!(harness.stopped_count, 0);
    harness.wait_ms(1);
    assert_eq!(harness.status(), Status::NotConnected);
    assert_eq!(harness.stopped_count, 1);
}

#[test]
fn a_write_that_a_stop_has_refused_is_not_sent_when_the_server_is_back() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Unlink, 7, DIRECTORY, b"a\0");
    let received = harness.take();
    harness.token(&received, 5, &[]);
    assert_eq!(harness.reply().status, Status::Ok);
    harness.shape.listening = false;
    harness.hang_up();
    let args = [u64s(&[1, 0]), u32s(&[9, 0]), u64s(&[0]), u32s(&[0, 0])].concat();
    let data = Bulk { buf: BufId(4), start: 0, bulk_bytes: 9, crc32c: None, mac: NO_MAC };
    harness.kernel_bytes(Some(8), request(Opcode::Write as u32, 8, FILE, &args), Some(data));
    harness.event(Event::Stop);
    harness.wait_ms(5_000);
    assert_eq!(harness.status(), Status::NotConnected);
    harness.shape.listening = true;
    harness.wait_ms(2_000);
    let ops: Vec<Op> = harness.requests.iter().map(|received| received.head.op).collect();
    assert!(ops.contains(&Op::Sync), "{ops:?}");
    assert!(!ops.contains(&Op::Write), "the data are gone with the reply: {ops:?}");
}

/// A detached mount may get further requests.
#[test]
fn a_new_request_after_stop_is_refused_and_earlier_ones_are_answered() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Unlink, 7, DIRECTORY, b"a\0");
    harness.event(Event::Stop);
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"b\0");
    assert_eq!(harness.status(), Status::NotConnected);
    let received = harness.take();
    harness.token(&received, 5, &[]);
    assert_eq!(harness.reply().status, Status::Ok);
    let received = harness.take();
    assert_eq!(received.head.op, Op::Sync, "the refused request never reached the server");
    harness.kernel_request(Opcode::Unlink, 9, DIRECTORY, b"c\0");
    assert_eq!(harness.status(), Status::NotConnected);
    harness.answer(&received, &[]);
    assert_eq!((harness.stopped_count, harness.goodbye_count), (1, 1));
    assert!(harness.logged.is_empty());
}

#[test]
fn after_an_unmount_all_lanes_stop_without_replies() {
    let mut harness = Harness::new();
    harness.shape.listening = false;
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    harness.event(Event::Kernel(KernelEvent::Unmounted));
    assert_eq!(
        harness.peer_messages,
        [(LaneId(1), MountMessage::Unmounted), (LaneId(2), MountMessage::Unmounted)]
    );
    assert_eq!(harness.stopped_count, 1);
    assert!(harness.replies.is_empty());
    let mut peer_lane = Harness::new();
    peer_lane.event(Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: MountMessage::Unmounted,
    }));
    assert_eq!(peer_lane.stopped_count, 1);
    assert!(peer_lane.peer_messages.is_empty());
}

#[test]
fn an_interrupt_applies_to_the_whole_request() {
    let mut harness = Harness::with_open(&[FILE]);
    // A size and a mode: two calls.
    let mut args = u32s(&[8 | 64 | 1, 0]);
    args.extend(u64s(&[0, 99, 0, 0, 0, 0]));
    args.extend(u32s(&[0, 0, 0, 0o600, 0, 0, 0, 0]));
    harness.kernel_request(Opcode::Setattr, 8, FILE, &args);
    interrupt(&mut harness, 8);
    let body = Entry { attr: attr(FILE, FileKind::File) }.to_bytes();
    let size = super::answers::glimpsed();
    for (op, body) in [(Op::Truncate, alloc::vec![]), (Op::Getattr, body), (Op::Glimpse, size)] {
        let received = harness.take();
        assert_eq!(received.head.op, op);
        harness.answer(&received, &body);
    }
    assert_eq!(harness.take().head.op, Op::Setattr);
    assert!(harness.replies.is_empty(), "it may still be answered in time");
    harness.wait_ms(20);
    harness.wait_ms(1_000);
    assert_eq!(harness.status(), Status::Interrupted);
}

#[test]
fn the_servers_absence_and_return_are_logged() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    harness.shape.listening = false;
    harness.hang_up();
    harness.wait_ms(900);
    assert!(harness.logged.is_empty(), "a short absence is not logged");
    harness.wait_ms(100);
    harness.wait_ms(1_000);
    harness.shape.listening = true;
    harness.wait_ms(1_000);
    let levels: Vec<_> = harness.logged.iter().map(|(say, _)| *say).collect();
    assert_eq!(levels, [LogLevel::Warning, LogLevel::Info]);
}

/// A valid reply of a server.
fn plausible(op: Op, rng: &mut fastrand::Rng) -> Vec<u8> {
    let kind = if rng.u64(..2) == 0 { FileKind::File } else { FileKind::Directory };
    let flags = if rng.u64(..2) == 0 { attr_flag::SIZE_AT_DATA } else { 0 };
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
        Op::Create | Op::Tmpfile => Created { attr, made: rng.u64(..2) == 0 }.to_bytes(),
        Op::Readlink => Target { target: Bytes(b"x") }.to_bytes(),
        Op::Readdir => {
            let entries = List::new(0, &[]);
            Listing { parent: FILE, end: rng.u64(..2) == 0, entries }.to_bytes()
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
                |rng: &mut fastrand::Rng| (rng.u64(..2) == 0).then_some(InodeNo(1 + rng.u64(..3)));
            wire::Renamed { moved: directory(rng), exchanged: directory(rng) }.to_bytes()
        }
        Op::Seek => wire::Sought { file_offset: 1 }.to_bytes(),
        // A queued lock would wait for ever.
        Op::SetLock => wire::LockSet { granted: true, place: 0 }.to_bytes(),
        Op::GetLock => wire::LockFound { found: None }.to_bytes(),
        Op::CancelLock => wire::LockCancelled { waited: rng.u64(..2) == 0 }.to_bytes(),
        _ => Vec::new(),
    }
}

#[test]
fn every_request_is_answered_once_whatever_the_kernel_sends() {
    answers_everything_once(Harness::new());
    answers_everything_once(Harness::with_leases());
}

fn answers_everything_once(mut harness: Harness) {
    let mut rng = fastrand::Rng::with_seed(0x5eed);
    // A lost connection may lose a lock.
    harness.peer_lanes_answer = true;
    let mut due = BTreeMap::new();
    for unique in 1..20_000_u32 {
        let known = rng.u64(..Opcode::ALL.len() as u64) as usize;
        let opcode =
            if rng.u64(..20) == 0 { rng.u64(..70) as u32 } else { Opcode::ALL[known] as u32 };
        let sides = [2, 4, 256][rng.u64(..3) as usize];
        let args: Vec<_> = (0..rng.u64(..120)).map(|_| rng.u64(..sides) as u8).collect();
        let node = InodeNo((rng.u64(..12) << 48) | rng.u64(..3));
        let mut bytes = request(opcode, u64::from(unique), node, &args);
        if rng.u64(..10) == 0 {
            bytes.truncate(rng.u64(..bytes.len() as u64) as usize);
        }
        let silent = bytes.len() >= 40
            && [Opcode::Forget, Opcode::BatchForget, Opcode::Interrupt]
                .iter()
                .any(|silent| *silent as u32 == opcode);
        if !silent {
            due.insert(unique, ());
        }
        harness.kernel_bytes((!silent).then_some(unique), bytes, None);
        while rng.u64(..3) > 0
            && let Some(received) = harness.requests.pop_front()
        {
            if rng.u64(..4) == 0 {
                let status = Status::ALL[rng.u64(..Status::ALL.len() as u64) as usize];
                let body = if status == Status::Ok {
                    plausible(received.head.op, &mut rng)
                } else {
                    Vec::new()
                };
                harness.send(&received, status, &body, None);
            } else {
                let body = plausible(received.head.op, &mut rng);
                harness.answer(&received, &body);
            }
        }
        if rng.u64(..500) == 0 {
            harness.hang_up();
        }
        if rng.u64(..50) == 0 {
            harness.wait_ms(100);
        }
        while !harness.group_lookups.is_empty() {
            let known = rng.u64(..2) == 0;
            harness.groups(known.then_some(&[1, 2]));
        }
        if rng.u64(..10) == 0 {
            harness.all_notified();
        }
        settle(&mut harness, &mut due);
    }
    for _ in 0..100 {
        harness.all_notified();
        while let Some(received) = harness.requests.pop_front() {
            let body = plausible(received.head.op, &mut rng);
            harness.answer(&received, &body);
        }
        while !harness.group_lookups.is_empty() {
            harness.groups(None);
        }
        harness.wait_ms(1_000);
        settle(&mut harness, &mut due);
    }
    assert!(due.is_empty(), "{} requests were never answered", due.len());
    assert_eq!(harness.lane.pendings.count(), 0);
}

fn settle(harness: &mut Harness, due: &mut BTreeMap<u32, ()>) {
    for reply in harness.replies.drain(..) {
        assert!(due.remove(&reply.slot.0).is_some(), "slot {:?} is answered once", reply.slot);
        assert!(reply.status.number() < 1_000, "{:?} is no errno", reply.status);
    }
}
