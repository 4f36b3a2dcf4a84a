//! A server that went on without us, that refuses replays, or that has forgotten its word.

use super::replays::{changed, chmod, entry, write, written};
use super::rig::{Rig, config};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Client, Create, Open, Refused, Report, Sync};
use alloc::vec;
use alloc::vec::Vec;
use interface::{Event, LaneMessage, PeerEvent};
use wire::{
    ClientUuid, Entry, Getattr, HandleId, InodeNo, LaneId, Op, OpenFor, RefusalReason, Status,
    Transno, Wire, request_flag,
};

const SYNC: Call<'static> = Call::Sync(Sync { inode: FILE, contents: true, handle: None });

/// A rig with a change and a write that were answered and are not durable, and a change that is
/// still due; the server has restarted.
fn rig_restarted() -> Rig {
    let mut rig = Rig::new(1);
    rig.answers_recovery = false;
    changed(&mut rig, 1, 5);
    rig.call(2, write(9, 4096));
    let asked = rig.take();
    rig.token(&asked, 6, &written(4096));
    rig.call(3, chmod(FILE));
    rig.answers();
    rig
}

fn assert_gone(rig: &mut Rig) {
    let lost = Report::Evicted { lost_count: 2, inodes: vec![FILE] };
    assert_eq!(rig.client.take_reports(), [lost]);
    assert_eq!(rig.outcome(), Err(Status::Io), "what was on its way");
    assert!(rig.kept.is_empty());
    assert_eq!(rig.client.replay_bytes(), 0);
    assert_eq!((rig.client.counters().lost_count, rig.client.counters().evicted_count), (2, 1));
    assert_eq!(rig.client.busy_count(), 0);
}

#[test]
fn a_recovery_that_we_were_no_part_of_is_an_eviction() {
    let mut rig = rig_restarted();
    rig.restart();
    let resumes = vec![rig.take(), rig.take()];
    for resume in &resumes {
        if rig.lane_of(resume.conn).is_some() {
            rig.resumed(resume, 0, false);
        }
    }
    assert_gone(&mut rig);
    let before = rig.uuids[0];
    rig.wait_ms(1_000);
    rig.call(4, Call::Getattr(Getattr { inode: FILE }));
    assert_ne!(*rig.uuids.last().unwrap(), before);
    let asked = rig.take();
    assert_eq!(asked.head.op, Op::Getattr);
    rig.answer(&asked, &entry());
    assert!(rig.outcome().is_ok(), "it goes on as somebody new");
}

#[test]
fn an_evicted_client_says_what_is_lost_and_goes_on() {
    let mut rig = rig_restarted();
    rig.shape.refuse = Some(RefusalReason::Evicted);
    rig.restart();
    assert_gone(&mut rig);
    rig.shape.refuse = None;
    // Who asks whether it is safe is told that it is not, once.
    rig.wait_ms(1_000);
    assert_eq!(sync(&mut rig, 4, SYNC), Err(Status::Io));
    rig.call(5, Call::SyncAll);
    assert_eq!(rig.outcome(), Err(Status::Io));
    rig.call(6, Call::SyncAll);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    assert_eq!(sync(&mut rig, 7, SYNC), Ok(Answer::Done));
}

/// An fsync whose two shards have nothing against it.
fn sync(rig: &mut Rig, id: u64, call: Call<'_>) -> Result<Answer, Status> {
    rig.call(id, call);
    for _ in 0..2 {
        let asked = rig.take();
        assert_eq!((asked.head.op, asked.head.flags), (Op::Sync, 0), "it is asked in earnest");
        rig.answer(&asked, &[]);
    }
    rig.outcome()
}

fn through(handle: HandleId) -> Call<'static> {
    Call::Sync(Sync { inode: FILE, contents: true, handle: Some(handle) })
}

/// Opens the file; its handle.
fn opened(rig: &mut Rig, id: u64) -> HandleId {
    let open = Open { caller: CALLER, inode: FILE, open_for: OpenFor::ReadWrite, sizes: false };
    rig.call(id, Call::Open(open));
    let asked = rig.take();
    rig.answer(&asked, &entry());
    match rig.outcome() {
        Ok(Answer::Opened { handle, .. }) => handle,
        other => panic!("{other:?}"),
    }
}

/// Whichever lane loses something: each holder is told by his own next fsync, once.
#[test]
fn every_holder_is_told_once_of_what_a_sister_lost() {
    let mut rig = Rig::new(1);
    let early = [opened(&mut rig, 1), opened(&mut rig, 2)];
    let lost = Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: LaneMessage::Lost { inode: FILE },
    });
    rig.event(lost);
    for handle in early {
        assert_eq!(sync(&mut rig, 3, through(handle)), Err(Status::Io));
        assert_eq!(sync(&mut rig, 4, through(handle)), Ok(Answer::Done));
    }
    let late = opened(&mut rig, 5);
    assert_eq!(sync(&mut rig, 6, through(late)), Ok(Answer::Done));
    // A peer lane has the fsync of a handle that was opened here.
    rig.event(lost);
    for expected in [true, false] {
        let message = LaneMessage::QueryLoss { handle: late, job: 77 };
        rig.event(Event::Peer(PeerEvent::Message { from: LaneId(2), message }));
        let answer = LaneMessage::LossReply { job: 77, lost: expected };
        assert_eq!(rig.mails.pop(), Some((LaneId(2), answer)));
    }
    assert_eq!(sync(&mut rig, 7, through(late)), Ok(Answer::Done), "told through the peer lane");
}

#[test]
fn the_lane_that_opened_a_file_says_whether_its_holder_was_told() {
    let mut rig = Rig::new(1);
    let foreign = HandleId(1 << 48 | 5);
    assert_eq!(sync(&mut rig, 1, through(foreign)), Ok(Answer::Done));
    assert_eq!(rig.mails, [], "nobody is asked while nothing is lost");
    rig.event(Event::Peer(PeerEvent::Message {
        from: LaneId(2),
        message: LaneMessage::Lost { inode: FILE },
    }));
    for (id, lost) in [(2, true), (3, false)] {
        rig.call(id, through(foreign));
        let asked = [rig.take(), rig.take()];
        asked.iter().for_each(|asked| rig.answer(asked, &[]));
        assert!(rig.answers().is_empty(), "the other lane knows");
        let Some((LaneId(1), LaneMessage::QueryLoss { handle, job })) = rig.mails.pop() else {
            panic!()
        };
        assert_eq!(handle, foreign);
        let message = LaneMessage::LossReply { job, lost };
        rig.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
        assert_eq!(rig.outcome(), if lost { Err(Status::Io) } else { Ok(Answer::Done) });
    }
}

/// What was lost is told to all peer lanes, and nothing is asked under the new uuid before all of them
/// have told theirs.
#[test]
fn sisters_come_to_the_new_uuid_together() {
    let mut rig = rig_restarted();
    rig.peer_lanes_follow = false;
    rig.shape.refuse = Some(RefusalReason::Evicted);
    rig.restart();
    assert_gone(&mut rig);
    rig.shape.refuse = None;
    for lane in (0..3).map(LaneId) {
        let to: Vec<LaneMessage> =
            rig.mails.iter().filter(|(to, _)| *to == lane).map(|(_, message)| *message).collect();
        let lost = LaneMessage::Lost { inode: FILE };
        assert_eq!(to, [lost, lost, LaneMessage::Evicted { count: 1 }]);
    }
    rig.call(4, SYNC);
    rig.wait_ms(10_000);
    rig.wake_at = None;
    rig.wait_ms(10_000);
    for lane in (0..3).map(LaneId) {
        assert!(rig.asked.is_empty(), "{lane} is not known to follow");
        assert_eq!(rig.wake_at, None, "only its message wakes");
        rig.event(Event::Peer(PeerEvent::Message {
            from: lane,
            message: LaneMessage::Evicted { count: 1 },
        }));
    }
    rig.wait_ms(10_000);
    assert_eq!(rig.asked.len(), 2);
    assert_eq!(rig.client.counters().evicted_count, 1);
    // A peer lane that hears of it first is evicted by that.
    let mut peer_lane = Rig::new(1);
    changed(&mut peer_lane, 1, 5);
    peer_lane.event(Event::Peer(PeerEvent::Message {
        from: LaneId(0),
        message: LaneMessage::Evicted { count: 1 },
    }));
    assert_eq!(peer_lane.client.counters().lost_count, 1);
    peer_lane.event(Event::Peer(PeerEvent::Message {
        from: LaneId(0),
        message: LaneMessage::Evicted { count: 2 },
    }));
    assert_eq!(
        peer_lane.client.take_reports().len(),
        1,
        "one that loses nothing has nothing to say"
    );
    assert!(peer_lane.mails.contains(&(LaneId(1), LaneMessage::Lost { inode: FILE })));
}

/// A file that was made, and lost with its name.
#[test]
fn who_made_a_file_is_told_that_it_is_lost() {
    let mut rig = Rig::new(1);
    let parent = InodeNo::ROOT;
    let name = wire::Name::new(b"new").unwrap();
    let open = Some(OpenFor::ReadWrite);
    let create =
        Create { caller: CALLER, parent, name, mode: 0o600, umask: 0, exclusive: true, open };
    rig.call(1, Call::Create(create));
    let asked = rig.take();
    let created = wire::Created { attr: attr(FILE, 0), made: true };
    rig.token(&asked, 9, &created.to_bytes());
    let Ok(Answer::Created { handle: Some(handle), .. }) = rig.outcome() else { panic!() };
    rig.shape.flags = wire::welcome_flag::HANDLES_UNKNOWN;
    rig.event(Event::Peer(PeerEvent::Message {
        from: LaneId(0),
        message: LaneMessage::Evicted { count: 1 },
    }));
    rig.wait_ms(1_000);
    let reopen = rig.take();
    assert_eq!(reopen.head.op, Op::Reopen);
    rig.fail(&reopen, Status::Stale);
    assert_eq!(sync(&mut rig, 2, through(handle)), Err(Status::Io));
}

/// A change was answered and is lost; its call waits for more that was never sent.
#[test]
fn a_call_that_lost_its_first_half_fails() {
    let mut rig = Rig::new(1);
    rig.shape.credits = 1;
    let at_data = Entry { attr: attr(FILE, wire::attr_flag::SIZE_AT_DATA) };
    rig.call(1, chmod(FILE));
    let asked = rig.take();
    rig.call(2, Call::Getattr(Getattr { inode: FILE }));
    rig.token(&asked, 5, &at_data.to_bytes());
    assert!(rig.answers().is_empty(), "its size is to be asked for");
    rig.shape.refuse = Some(RefusalReason::Evicted);
    rig.restart();
    let outcomes = rig.answers();
    assert!(outcomes.iter().all(|answered| answered.result == Err(Status::Io)), "{outcomes:?}");
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn a_client_without_a_past_is_evicted_quietly() {
    let mut rig = Rig::new(1);
    rig.shape.refuse = Some(RefusalReason::Evicted);
    rig.call(1, Call::Getattr(Getattr { inode: FILE }));
    rig.shape.refuse = None;
    rig.wait_ms(1_000);
    let asked = rig.take();
    assert_eq!(asked.head.flags & request_flag::RESENT, 0);
    rig.answer(&asked, &entry());
    assert!(rig.outcome().is_ok());
    let quiet = Report::Evicted { lost_count: 0, inodes: Vec::new() };
    assert_eq!(rig.client.take_reports(), [quiet]);
}

#[test]
fn sister_lanes_become_the_same_new_client() {
    let mut uuids = Vec::new();
    for seed in 0..2 {
        let mut rig = Rig::new(1);
        rig.client = Client::new(crate::Config { seed: [seed; 32], ..config() });
        rig.shape.refuse = Some(RefusalReason::Evicted);
        rig.call(1, Call::Getattr(Getattr { inode: FILE }));
        rig.wait_ms(1_000);
        rig.wait_ms(1_000);
        rig.uuids.truncate(3);
        uuids.push(rig.uuids);
    }
    assert_eq!(uuids[0], uuids[1]);
    let [first, second, third] = uuids[0][..] else { panic!("{uuids:?}") };
    assert_eq!(first, ClientUuid([1; 16]));
    assert!(first != second && second != third && first != third);
}

/// The client has [`FILE`] open.
pub(super) fn open_file(rig: &mut Rig) -> HandleId {
    let open = Open { caller: CALLER, inode: FILE, open_for: OpenFor::ReadWrite, sizes: false };
    rig.call(1, Call::Open(open));
    let asked = rig.take();
    rig.answer(&asked, &entry());
    let Ok(Answer::Opened { handle, .. }) = rig.outcome() else { panic!("not opened") };
    handle
}

/// A peer lane closes a file of a client that has stopped: there is no one to tell.
#[test]
fn what_is_closed_behind_a_refusal_waits_for_nobody() {
    let mut rig = Rig::new(1);
    let handle = open_file(&mut rig);
    rig.shape.refuse = Some(RefusalReason::WrongSecret);
    rig.restart();
    rig.call(2, chmod(FILE));
    rig.wait_ms(1_000);
    assert_eq!(rig.client.refusal(), Some(Refused::WrongSecret));
    let message = interface::LaneMessage::Release { handle };
    rig.event(interface::Event::Peer(interface::PeerEvent::Message {
        from: wire::LaneId(1),
        message,
    }));
    assert_eq!((rig.client.open_count(), rig.client.busy_count()), (0, 0));
}

#[test]
fn open_files_are_open_for_the_new_client() {
    let mut rig = Rig::new(1);
    open_file(&mut rig);
    rig.shape.refuse = Some(RefusalReason::Evicted);
    rig.restart();
    rig.shape.refuse = None;
    rig.shape.flags = wire::welcome_flag::HANDLES_UNKNOWN;
    rig.wait_ms(1_000);
    assert_eq!(rig.asked.len(), 1);
    let reopen = rig.take();
    assert_eq!(reopen.head.op, Op::Reopen);
    rig.answer(&reopen, &[]);
    assert_eq!((rig.client.open_count(), rig.client.busy_count()), (1, 0));
}

#[test]
fn a_refused_replay_is_reported_and_the_others_go_on() {
    let mut rig = rig_restarted();
    rig.restart();
    let resumes = [rig.take(), rig.take()];
    resumes.iter().for_each(|resume| rig.resumed(resume, 0, true));
    let refused = rig.take();
    assert_eq!((refused.head.op, refused.head.transno), (Op::Setattr, Transno(5)));
    rig.fail(&refused, Status::Overflow);
    let report = Report::ReplayRefused { op: Op::Setattr, inode: FILE, status: Status::Overflow };
    assert_eq!(rig.client.take_reports(), [report]);
    assert_eq!(rig.client.counters().lost_count, 1);
    let done = rig.take();
    assert_eq!(done.head.op, Op::ReplayDone);
    assert_eq!(rig.take().head.transno, Transno(6));
    assert_eq!(rig.client.take_reports(), []);
}

/// The server has forgotten it, durably, and died before it said so.
#[test]
fn who_was_leaving_misses_nothing() {
    let mut rig = Rig::new(1);
    rig.answers_recovery = false;
    let asked = changed(&mut rig, 1, 5);
    rig.note(&asked, &[(FILE.shard(), 5)]);
    rig.call(2, Call::Goodbye);
    assert_eq!(rig.take().head.op, Op::Goodbye);
    rig.restart();
    let resume = rig.take();
    assert_eq!(resume.head.op, Op::Resume);
    rig.resumed(&resume, 0, false);
    assert_eq!(rig.client.take_reports(), []);
    let again = rig.take();
    assert_eq!(again.head.op, Op::Goodbye);
    rig.answer(&again, &[]);
    assert_eq!(rig.outcome(), Ok(crate::Answer::Done));
}

/// A server takes a request behind the goodbye for a protocol error.
#[test]
fn nothing_is_sent_behind_the_goodbye() {
    let mut rig = Rig::new(1);
    changed(&mut rig, 1, 5);
    rig.call(2, Call::Goodbye);
    rig.call(3, chmod(FILE));
    let goodbye = rig.take();
    assert_eq!(goodbye.head.op, Op::Goodbye);
    assert!(rig.asked.is_empty());
    rig.answer(&goodbye, &[]);
    assert_eq!(rig.outcome(), Ok(crate::Answer::Done));
    assert!(rig.asked.is_empty());
}

#[test]
fn a_store_that_went_back_stops_everything() {
    let mut rig = Rig::new(1);
    rig.answers_recovery = false;
    changed(&mut rig, 1, 5);
    let asked = changed(&mut rig, 2, 6);
    rig.note(&asked, &[(FILE.shard(), 5)]);
    rig.call(3, chmod(FILE));
    rig.restart();
    let resume = rig.take();
    rig.resumed(&resume, 4, true);
    let back = Report::WentBack { shard: FILE.shard(), known: Transno(5), found: Transno(4) };
    assert_eq!(rig.client.take_reports(), [back]);
    assert_eq!(rig.client.refusal(), Some(Refused::WentBack));
    assert_eq!(rig.outcome(), Err(Status::Io));
    rig.call(4, chmod(FILE));
    assert_eq!(rig.outcome(), Err(Status::Io), "until told otherwise");
    assert!(rig.asked.is_empty());
    assert_eq!(rig.client.busy_count(), 0);
    // Its disk was found: what was answered is still here.
    rig.client.try_again();
    rig.call(5, chmod(FILE));
    let resume = rig.take();
    rig.resumed(&resume, 5, true);
    assert_eq!(rig.take().head.transno, Transno(6));
}
