//! A server that went on without us, that refuses replays, or that has forgotten its word.

use super::replays::{changed, chmod, entry, write, written};
use super::rig::{Rig, config};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Client, Open, Refused, Report, Sync};
use alloc::vec;
use alloc::vec::Vec;
use wire::{ClientUuid, Entry, Getattr, Op, RefusalReason, Status, Transno, Wire, request_flag};

const SYNC: Call<'static> = Call::Sync(Sync { inode: FILE, contents: true });

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
    rig.call(4, SYNC);
    assert_eq!(rig.outcome(), Err(Status::Io));
    rig.call(5, Call::SyncAll);
    assert_eq!(rig.outcome(), Err(Status::Io));
    rig.call(6, Call::SyncAll);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    rig.call(7, SYNC);
    rig.wait_ms(1_000);
    assert_eq!(rig.asked.len(), 2, "it is asked for in earnest");
    assert_eq!(rig.asked[0].head.flags, 0);
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

/// A sister lane closes a file of a client that has stopped: there is no one to tell.
#[test]
fn what_is_closed_behind_a_refusal_waits_for_nobody() {
    let mut rig = Rig::new(1);
    let open =
        Open { caller: CALLER, inode: FILE, read: true, write: true, execute: false, sizes: false };
    rig.call(1, Call::Open(open));
    let asked = rig.take();
    rig.answer(&asked, &entry());
    let Ok(Answer::Opened { handle, .. }) = rig.outcome() else { panic!("not opened") };
    rig.shape.refuse = Some(RefusalReason::WrongSecret);
    rig.restart();
    rig.call(2, chmod(FILE));
    rig.wait_ms(1_000);
    assert_eq!(rig.client.refusal(), Some(Refused::WrongSecret));
    let mail = door::Mail::Release { handle };
    rig.event(door::Event::Mail { from: wire::LaneId(1), mail });
    assert_eq!((rig.client.open_count(), rig.client.busy_count()), (0, 0));
}

#[test]
fn open_files_are_open_for_the_new_client() {
    let mut rig = Rig::new(1);
    let open =
        Open { caller: CALLER, inode: FILE, read: true, write: true, execute: false, sizes: false };
    rig.call(1, Call::Open(open));
    let asked = rig.take();
    rig.answer(&asked, &entry());
    assert!(rig.outcome().is_ok());
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
