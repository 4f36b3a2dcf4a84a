//! A server that evicted this client, refuses replays, or lost durable changes.

use super::harness::{Harness, config};
use super::replays::{changed, chmod, entry, write, written};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Client, Create, Open, Refused, Report, Sync};
use alloc::vec;
use alloc::vec::Vec;
use interface::{Event, MountMessage, PeerEvent};
use wire::{
    ClientUuid, Entry, Getattr, HandleId, InodeNo, LaneId, Op, OpenFor, RefusalReason, Status,
    Transno, Wire, request_flag,
};

const SYNC: Call<'static> = Call::Sync(Sync { inode: FILE, contents: true, handle: None });

/// A harness with a change and a write that were answered and are not durable, and a change in
/// flight; the server has restarted.
fn harness_restarted() -> Harness {
    let mut harness = Harness::new(1);
    harness.answers_recovery = false;
    changed(&mut harness, 1, 5);
    harness.call(2, write(9, 4096));
    let request = harness.take();
    harness.token(&request, 6, &written(4096));
    harness.call(3, chmod(FILE));
    harness.answers();
    harness
}

fn assert_evicted(harness: &mut Harness) {
    let lost = Report::Evicted { lost_count: 2, inodes: vec![FILE] };
    assert_eq!(harness.client.take_reports(), [lost]);
    assert_eq!(harness.outcome(), Err(Status::Io), "the request in flight");
    assert!(harness.retained.is_empty());
    assert_eq!(harness.client.replay_bytes(), 0);
    assert_eq!(
        (harness.client.counters().lost_count, harness.client.counters().evicted_count),
        (2, 1)
    );
    assert_eq!(harness.client.busy_count(), 0);
}

#[test]
fn a_recovery_without_this_client_is_an_eviction() {
    let mut harness = harness_restarted();
    harness.restart();
    let resumes = vec![harness.take(), harness.take()];
    for resume in &resumes {
        if harness.lane_of(resume.conn).is_some() {
            harness.resumed(resume, 0, false);
        }
    }
    assert_evicted(&mut harness);
    let before = harness.uuids[0];
    harness.wait_ms(1_000);
    harness.call(4, Call::Getattr(Getattr { inode: FILE }));
    assert_ne!(*harness.uuids.last().unwrap(), before);
    let request = harness.take();
    assert_eq!(request.head.op, Op::Getattr);
    harness.answer(&request, &entry());
    assert!(harness.outcome().is_ok(), "it continues as a new client");
}

#[test]
fn an_evicted_client_reports_lost_changes_and_continues() {
    let mut harness = harness_restarted();
    harness.shape.refuse = Some(RefusalReason::Evicted);
    harness.restart();
    assert_evicted(&mut harness);
    harness.shape.refuse = None;
    // The next sync fails, once.
    harness.wait_ms(1_000);
    assert_eq!(sync(&mut harness, 4, SYNC), Err(Status::Io));
    harness.call(5, Call::SyncAll);
    assert_eq!(harness.outcome(), Err(Status::Io));
    harness.call(6, Call::SyncAll);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    assert_eq!(sync(&mut harness, 7, SYNC), Ok(Answer::Done));
}

/// A sync that succeeds at both shards.
fn sync(harness: &mut Harness, id: u64, call: Call<'_>) -> Result<Answer, Status> {
    harness.call(id, call);
    for _ in 0..2 {
        let request = harness.take();
        assert_eq!(
            (request.head.op, request.head.flags),
            (Op::Sync, 0),
            "the server is really request"
        );
        harness.answer(&request, &[]);
    }
    harness.outcome()
}

fn through(handle: HandleId) -> Call<'static> {
    Call::Sync(Sync { inode: FILE, contents: true, handle: Some(handle) })
}

/// Opens the file and returns its handle.
fn opened(harness: &mut Harness, id: u64) -> HandleId {
    let open = Open { caller: CALLER, inode: FILE, open_for: OpenFor::ReadWrite, sizes: false };
    harness.call(id, Call::Open(open));
    let request = harness.take();
    harness.answer(&request, &entry());
    match harness.outcome() {
        Ok(Answer::Opened { handle, .. }) => handle,
        other => panic!("{other:?}"),
    }
}

/// Whichever lane loses a change: each holder's next fsync fails, once.
#[test]
fn every_holder_is_told_once_of_a_peer_lanes_loss() {
    let mut harness = Harness::new(1);
    let early = [opened(&mut harness, 1), opened(&mut harness, 2)];
    let lost = Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: MountMessage::Lost { inode: FILE },
    });
    harness.event(lost);
    for handle in early {
        assert_eq!(sync(&mut harness, 3, through(handle)), Err(Status::Io));
        assert_eq!(sync(&mut harness, 4, through(handle)), Ok(Answer::Done));
    }
    let late = opened(&mut harness, 5);
    assert_eq!(sync(&mut harness, 6, through(late)), Ok(Answer::Done));
    // A peer lane syncs a handle that was opened here.
    harness.event(lost);
    for expected in [true, false] {
        let message = MountMessage::QueryLoss { handle: late, job: 77 };
        harness.event(Event::Peer(PeerEvent::Message { from: LaneId(2), message }));
        let answer = MountMessage::LossReply { job: 77, lost: expected };
        assert_eq!(harness.peer_messages.pop(), Some((LaneId(2), answer)));
    }
    assert_eq!(
        sync(&mut harness, 7, through(late)),
        Ok(Answer::Done),
        "announced by the peer lane"
    );
}

#[test]
fn the_lane_that_opened_a_file_decides_whether_its_holder_was_told() {
    let mut harness = Harness::new(1);
    let foreign = HandleId(1 << 48 | 5);
    assert_eq!(sync(&mut harness, 1, through(foreign)), Ok(Answer::Done));
    assert_eq!(harness.peer_messages, [], "without a loss no lane is request");
    harness.event(Event::Peer(PeerEvent::Message {
        from: LaneId(2),
        message: MountMessage::Lost { inode: FILE },
    }));
    for (id, lost) in [(2, true), (3, false)] {
        harness.call(id, through(foreign));
        let request = [harness.take(), harness.take()];
        request.iter().for_each(|request| harness.answer(request, &[]));
        assert!(harness.answers().is_empty(), "the other lane knows");
        let Some((LaneId(1), MountMessage::QueryLoss { handle, job })) =
            harness.peer_messages.pop()
        else {
            panic!()
        };
        assert_eq!(handle, foreign);
        let message = MountMessage::LossReply { job, lost };
        harness.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
        assert_eq!(harness.outcome(), if lost { Err(Status::Io) } else { Ok(Answer::Done) });
    }
}

/// Losses are announced to all peer lanes, and nothing is sent under the new uuid before all of
/// them have announced theirs.
#[test]
fn peer_lanes_switch_to_the_new_uuid_together() {
    let mut harness = harness_restarted();
    harness.peer_lanes_follow = false;
    harness.shape.refuse = Some(RefusalReason::Evicted);
    harness.restart();
    assert_evicted(&mut harness);
    harness.shape.refuse = None;
    for lane in (0..3).map(LaneId) {
        let to: Vec<MountMessage> = harness
            .peer_messages
            .iter()
            .filter(|(to, _)| *to == lane)
            .map(|(_, message)| *message)
            .collect();
        let lost = MountMessage::Lost { inode: FILE };
        assert_eq!(to, [lost, lost, MountMessage::Evicted { count: 1 }]);
    }
    harness.call(4, SYNC);
    harness.wait_ms(10_000);
    harness.state.wake_at = None;
    harness.wait_ms(10_000);
    for lane in (0..3).map(LaneId) {
        assert!(harness.requests.is_empty(), "lane {lane} is not known to follow");
        assert_eq!(harness.state.wake_at, None, "only its message causes a wakeup");
        harness.event(Event::Peer(PeerEvent::Message {
            from: lane,
            message: MountMessage::Evicted { count: 1 },
        }));
    }
    harness.wait_ms(10_000);
    assert_eq!(harness.requests.len(), 2);
    assert_eq!(harness.client.counters().evicted_count, 1);
    // A peer lane's announcement evicts this lane.
    let mut peer_lane = Harness::new(1);
    changed(&mut peer_lane, 1, 5);
    peer_lane.event(Event::Peer(PeerEvent::Message {
        from: LaneId(0),
        message: MountMessage::Evicted { count: 1 },
    }));
    assert_eq!(peer_lane.client.counters().lost_count, 1);
    peer_lane.event(Event::Peer(PeerEvent::Message {
        from: LaneId(0),
        message: MountMessage::Evicted { count: 2 },
    }));
    assert_eq!(peer_lane.client.take_reports().len(), 1, "a lane without losses has no report");
    assert!(peer_lane.peer_messages.contains(&(LaneId(1), MountMessage::Lost { inode: FILE })));
}

fn evicted_by_peer_lane(harness: &mut Harness) {
    harness.event(Event::Peer(PeerEvent::Message {
        from: LaneId(0),
        message: MountMessage::Evicted { count: 1 },
    }));
    harness.wait_ms(1_000);
}

/// The object of a removed file reads like one that was never written. Another lane opened the
/// file, and only the server knows that it removed it with the eviction.
#[test]
fn an_empty_file_must_still_exist_after_an_eviction() {
    let read = wire::Read { inode: FILE, file_offset: 0, read_bytes: 10, accesses: true };
    let mut harness = Harness::new(1);
    harness.call(1, Call::Read(read));
    let request = harness.take();
    harness.answer(&request, &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Bytes(None)), "nothing was dropped");
    evicted_by_peer_lane(&mut harness);
    for (status, expected) in
        [(Status::Stale, Err(Status::Stale)), (Status::Ok, Ok(Answer::Bytes(None)))]
    {
        harness.call(2, Call::Read(read));
        let request = harness.take();
        harness.answer(&request, &[]);
        assert!(harness.answers().is_empty(), "it may be gone");
        let request = harness.take();
        assert_eq!(request.head.op, Op::Getattr);
        match status {
            Status::Ok => harness.answer(&request, &entry()),
            _ => harness.fail(&request, status),
        }
        assert_eq!(harness.outcome(), expected);
    }
}

/// Its writes may have been answered, by this lane and by others.
#[test]
fn the_fsync_of_a_removed_file_fails() {
    let mut harness = Harness::new(1);
    let handle = opened(&mut harness, 1);
    harness.shape.flags = wire::welcome_flag::HANDLES_UNKNOWN;
    evicted_by_peer_lane(&mut harness);
    let reopen = harness.take();
    assert_eq!(reopen.head.op, Op::Reopen);
    harness.fail(&reopen, Status::Stale);
    let lost = MountMessage::Lost { inode: FILE };
    assert!(harness.peer_messages.iter().any(|(_, message)| *message == lost));
    assert_eq!(sync(&mut harness, 2, through(handle)), Err(Status::Io));
    assert_eq!(sync(&mut harness, 3, through(handle)), Ok(Answer::Done), "once");
}

/// A created file is lost together with its name.
#[test]
fn the_holder_of_a_lost_new_file_is_told() {
    let mut harness = Harness::new(1);
    let parent = InodeNo::ROOT;
    let name = wire::Name::new(b"new").unwrap();
    let open = Some(OpenFor::ReadWrite);
    let create =
        Create { caller: CALLER, parent, name, mode: 0o600, umask: 0, exclusive: true, open };
    harness.call(1, Call::Create(create));
    let request = harness.take();
    let created = wire::Created { attr: attr(FILE, 0), made: true };
    harness.token(&request, 9, &created.to_bytes());
    let Ok(Answer::Created { handle: Some(handle), .. }) = harness.outcome() else { panic!() };
    harness.shape.flags = wire::welcome_flag::HANDLES_UNKNOWN;
    harness.event(Event::Peer(PeerEvent::Message {
        from: LaneId(0),
        message: MountMessage::Evicted { count: 1 },
    }));
    harness.wait_ms(1_000);
    let reopen = harness.take();
    assert_eq!(reopen.head.op, Op::Reopen);
    harness.fail(&reopen, Status::Stale);
    assert_eq!(sync(&mut harness, 2, through(handle)), Err(Status::Io));
}

/// An answered first request is lost; the call's second request was never sent.
#[test]
fn a_call_whose_first_request_is_lost_fails() {
    let mut harness = Harness::new(1);
    harness.shape.credits = 1;
    let at_data = Entry { attr: attr(FILE, wire::attr_flag::SIZE_AT_DATA) };
    harness.call(1, chmod(FILE));
    let request = harness.take();
    harness.call(2, Call::Getattr(Getattr { inode: FILE }));
    harness.token(&request, 5, &at_data.to_bytes());
    assert!(harness.answers().is_empty(), "a glimpse must follow");
    harness.shape.refuse = Some(RefusalReason::Evicted);
    harness.restart();
    let outcomes = harness.answers();
    assert!(outcomes.iter().all(|answered| answered.result == Err(Status::Io)), "{outcomes:?}");
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn a_client_without_changes_is_evicted_without_a_loss() {
    let mut harness = Harness::new(1);
    harness.shape.refuse = Some(RefusalReason::Evicted);
    harness.call(1, Call::Getattr(Getattr { inode: FILE }));
    harness.shape.refuse = None;
    harness.wait_ms(1_000);
    let request = harness.take();
    assert_eq!(request.head.flags & request_flag::RESENT, 0);
    harness.answer(&request, &entry());
    assert!(harness.outcome().is_ok());
    let quiet = Report::Evicted { lost_count: 0, inodes: Vec::new() };
    assert_eq!(harness.client.take_reports(), [quiet]);
}

#[test]
fn peer_lanes_derive_the_same_new_uuid() {
    let mut uuids = Vec::new();
    for seed in 0..2 {
        let mut harness = Harness::new(1);
        harness.client = Client::new(crate::Config { seed: [seed; 32], ..config() });
        harness.shape.refuse = Some(RefusalReason::Evicted);
        harness.call(1, Call::Getattr(Getattr { inode: FILE }));
        harness.wait_ms(1_000);
        harness.wait_ms(1_000);
        harness.uuids.truncate(3);
        uuids.push(harness.server.uuids);
    }
    assert_eq!(uuids[0], uuids[1]);
    let [first, second, third] = uuids[0][..] else { panic!("{uuids:?}") };
    assert_eq!(first, ClientUuid([1; 16]));
    assert!(first != second && second != third && first != third);
}

/// The client has [`FILE`] open.
pub(super) fn open_file(harness: &mut Harness) -> HandleId {
    let open = Open { caller: CALLER, inode: FILE, open_for: OpenFor::Read, sizes: false };
    harness.call(1, Call::Open(open));
    let request = harness.take();
    harness.answer(&request, &entry());
    let Ok(Answer::Opened { handle, .. }) = harness.outcome() else { panic!("not opened") };
    handle
}

/// A peer lane closes a file of a client that has stopped: there is no server to notify.
#[test]
fn a_close_after_a_refusal_does_not_wait() {
    let mut harness = Harness::new(1);
    let handle = open_file(&mut harness);
    harness.shape.refuse = Some(RefusalReason::WrongSecret);
    harness.restart();
    harness.call(2, chmod(FILE));
    harness.wait_ms(1_000);
    assert_eq!(harness.client.refusal(), Some(Refused::WrongSecret));
    let message = interface::MountMessage::Release { handle };
    harness.event(interface::Event::Peer(interface::PeerEvent::Message {
        from: wire::LaneId(1),
        message,
    }));
    assert_eq!((harness.client.open_count(), harness.client.busy_count()), (0, 0));
}

#[test]
fn open_files_stay_open_for_the_new_client() {
    let mut harness = Harness::new(1);
    open_file(&mut harness);
    harness.shape.refuse = Some(RefusalReason::Evicted);
    harness.restart();
    harness.shape.refuse = None;
    harness.shape.flags = wire::welcome_flag::HANDLES_UNKNOWN;
    harness.wait_ms(1_000);
    assert_eq!(harness.requests.len(), 1);
    let reopen = harness.take();
    assert_eq!(reopen.head.op, Op::Reopen);
    harness.answer(&reopen, &[]);
    assert_eq!((harness.client.open_count(), harness.client.busy_count()), (1, 0));
}

#[test]
fn a_refused_replay_is_reported_and_the_others_continue() {
    let mut harness = harness_restarted();
    harness.restart();
    let changed = [FILE.shard(), harness.shape.map.data_shard(FILE, 0)];
    let resumes: Vec<_> = harness.requests.drain(..).collect();
    for resume in &resumes {
        harness.resumed(resume, 0, changed.contains(&resume.head.shard));
    }
    let refused = harness.take();
    assert_eq!((refused.head.op, refused.head.transno), (Op::Setattr, Transno(5)));
    harness.fail(&refused, Status::Overflow);
    let report = Report::ReplayRefused { op: Op::Setattr, inode: FILE, status: Status::Overflow };
    assert_eq!(harness.client.take_reports(), [report]);
    assert_eq!(harness.client.counters().lost_count, 1);
    let done = harness.take();
    assert_eq!(done.head.op, Op::ReplayDone);
    assert_eq!(harness.take().head.transno, Transno(6));
    assert_eq!(harness.client.take_reports(), []);
}

/// The server has ended the session, durably, and crashed before its reply.
#[test]
fn a_leaving_client_reports_no_loss() {
    let mut harness = Harness::new(1);
    harness.answers_recovery = false;
    let request = changed(&mut harness, 1, 5);
    harness.notify_commit(&request, &[(FILE.shard(), 5)]);
    harness.call(2, Call::Goodbye);
    assert_eq!(harness.take().head.op, Op::Goodbye);
    harness.restart();
    let resume = harness.take();
    assert_eq!(resume.head.op, Op::Resume);
    harness.resumed(&resume, 0, false);
    assert_eq!(harness.client.take_reports(), []);
    let again = harness.take();
    assert_eq!(again.head.op, Op::Goodbye);
    harness.answer(&again, &[]);
    assert_eq!(harness.outcome(), Ok(crate::Answer::Done));
}

/// The server would reject a request after the Goodbye as a protocol error.
#[test]
fn nothing_is_sent_after_the_goodbye() {
    let mut harness = Harness::new(1);
    changed(&mut harness, 1, 5);
    harness.call(2, Call::Goodbye);
    harness.call(3, chmod(FILE));
    let goodbye = harness.take();
    assert_eq!(goodbye.head.op, Op::Goodbye);
    assert!(harness.requests.is_empty());
    harness.answer(&goodbye, &[]);
    assert_eq!(harness.outcome(), Ok(crate::Answer::Done));
    assert!(harness.requests.is_empty());
}

#[test]
fn a_store_that_lost_durable_changes_stops_everything() {
    let mut harness = Harness::new(1);
    harness.answers_recovery = false;
    changed(&mut harness, 1, 5);
    let request = changed(&mut harness, 2, 6);
    harness.notify_commit(&request, &[(FILE.shard(), 5)]);
    harness.call(3, chmod(FILE));
    harness.restart();
    let resume = harness.take();
    harness.resumed(&resume, 4, true);
    let back = Report::RolledBack { shard: FILE.shard(), known: Transno(5), found: Transno(4) };
    assert_eq!(harness.client.take_reports(), [back]);
    assert_eq!(harness.client.refusal(), Some(Refused::RolledBack));
    assert_eq!(harness.outcome(), Err(Status::Io));
    harness.call(4, chmod(FILE));
    assert_eq!(harness.outcome(), Err(Status::Io), "until try_again");
    assert!(harness.requests.is_empty());
    assert_eq!(harness.client.busy_count(), 0);
    // The right disk is back: the replay list is still there.
    harness.client.try_again();
    harness.call(5, chmod(FILE));
    let resume = harness.take();
    harness.resumed(&resume, 5, true);
    assert_eq!(harness.take().head.transno, Transno(6));
}
