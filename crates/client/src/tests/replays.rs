//! What is remembered for replays, for how long, and what a new boot is told.

use super::rig::{Asked, Rig, bulk, token_of};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Write};
use alloc::vec;
use alloc::vec::Vec;
use wire::{
    Bytes, Entry, Getattr, InodeNo, LaneId, Map, Op, Replay, Reply, Resume, SetTime, Setattr,
    Status, Transno, Wire, Written, request_flag,
};

pub(super) fn chmod(inode: InodeNo) -> Call<'static> {
    Call::Setattr(Setattr {
        caller: CALLER,
        inode,
        mode: Some(0o600),
        uid: None,
        gid: None,
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        clears: wire::ClearPrivileges::Nothing,
    })
}

pub(super) fn write(buf: u32, bulk_bytes: u32) -> Call<'static> {
    let bulk = Some(bulk(buf, bulk_bytes));
    Call::Write(Write {
        inode: FILE,
        file_offset: 8,
        append: false,
        bulk,
        sync: false,
        clears: wire::ClearPrivileges::Nothing,
    })
}

pub(super) fn written(written_bytes: u32) -> Vec<u8> {
    Written { file_offset: 8, written_bytes }.to_bytes()
}

pub(super) fn entry() -> Vec<u8> {
    Entry { attr: attr(FILE, 0) }.to_bytes()
}

/// A chmod that was answered and is not durable.
pub(super) fn changed(rig: &mut Rig, id: u64, transno: u64) -> Asked {
    rig.call(id, chmod(FILE));
    let asked = rig.take();
    rig.token(&asked, transno, &entry());
    assert!(rig.outcome().is_ok());
    asked
}

/// A rig whose client has answered changes 5, 6 and 7, in another order.
fn rig_with_three() -> (Rig, Vec<Asked>) {
    let mut rig = Rig::new(1);
    rig.answers_recovery = false;
    (1..=3).for_each(|id| rig.call(id, chmod(FILE)));
    let asked: Vec<_> = (0..3).map(|_| rig.take()).collect();
    for (asked, transno) in asked.iter().zip([5, 7, 6]) {
        rig.token(asked, transno, &entry());
    }
    assert_eq!(rig.answers().len(), 3);
    (rig, asked)
}

fn transnos(rig: &Rig) -> Vec<u64> {
    rig.asked.iter().map(|asked| asked.head.transno.0).collect()
}

fn ops(rig: &Rig) -> Vec<Op> {
    rig.asked.iter().map(|asked| asked.head.op).collect()
}

#[test]
fn a_new_boot_gets_what_it_lacks_in_order_and_then_the_rest() {
    let (mut rig, asked) = rig_with_three();
    rig.call(4, chmod(FILE));
    rig.restart();
    rig.call(5, Call::Getattr(Getattr { inode: FILE }));
    // First only the question what it has.
    assert_eq!(ops(&rig), [Op::Resume]);
    let resume = rig.take();
    let wanted = Resume { known_committed: Transno(0), replay_count: 3 };
    assert_eq!(Resume::decode_all(&resume.body), Ok(wanted));
    assert_eq!((resume.head.shard, resume.head.slot), (FILE.shard(), 0));
    rig.resumed(&resume, 5, true);
    // Then everything at once.
    assert_eq!(ops(&rig), [Op::Setattr, Op::Setattr, Op::ReplayDone, Op::Setattr, Op::Getattr]);
    assert_eq!(transnos(&rig), [6, 7, 0, 0, 0]);
    for (replay, original) in [(rig.take(), &asked[2]), (rig.take(), &asked[1])] {
        let head = replay.head;
        assert_eq!(head.flags, request_flag::REPLAY);
        assert_eq!((head.xid, head.slot), (original.head.xid, original.head.slot));
        let token = token_of(head.transno.0);
        let body = Replay { reply: Bytes(&entry()), token: Bytes(&token) };
        assert_eq!(Replay::decode_all(&replay.body), Ok(body));
        rig.answer(&replay, &[]);
    }
    let done = rig.take();
    rig.answer(&done, &[]);
    let again = rig.take();
    assert_eq!(again.head.flags, request_flag::RESENT);
    rig.token(&again, 9, &entry());
    let fresh = rig.take();
    rig.answer(&fresh, &entry());
    assert_eq!(rig.answers().len(), 2);
    assert_eq!(rig.client.counters().replay_count, 2);
    assert_eq!(rig.client.counters().stray_reply_count, 0);
    assert!(rig.client.replay_bytes() > 0, "a replay is remembered until it is durable");
    rig.note(&fresh, &[(FILE.shard(), 9)]);
    assert_eq!(rig.client.replay_bytes(), 0);
}

#[test]
fn what_is_durable_is_forgotten() {
    let (mut rig, _) = rig_with_three();
    rig.call(4, Call::Getattr(Getattr { inode: FILE }));
    let asked = rig.take();
    let reply = Reply { committed: Transno(6), ..rig.reply(&asked) };
    rig.send(asked.conn, reply, &entry(), None);
    assert!(rig.client.replay_bytes() > 0);
    rig.note(&asked, &[(InodeNo((1 << 48) | 1).shard(), 99)]);
    assert!(rig.client.replay_bytes() > 0, "that was another shard");
    rig.note(&asked, &[(InodeNo((1 << 48) | 1).shard(), 99), (FILE.shard(), 7)]);
    assert_eq!(rig.client.replay_bytes(), 0);
    rig.restart();
    let resume = rig.take();
    let wanted = Resume { known_committed: Transno(7), replay_count: 0 };
    assert_eq!(Resume::decode_all(&resume.body), Ok(wanted));
    rig.resumed(&resume, 7, false);
    assert_eq!(rig.asked.len(), 0, "there is nothing to be replayed, and nobody to be told so");
    assert!(rig.client.take_reports().is_empty());
}

#[test]
fn what_was_durable_when_it_was_answered_is_not_remembered() {
    let mut rig = Rig::new(1);
    rig.answers_recovery = false;
    rig.call(1, chmod(FILE));
    let asked = rig.take();
    rig.durable(&asked, 8, &entry());
    assert_eq!(rig.client.replay_bytes(), 0);
    rig.restart();
    let resume = rig.take();
    let wanted = Resume { known_committed: Transno(8), replay_count: 0 };
    assert_eq!(Resume::decode_all(&resume.body), Ok(wanted));
}

#[test]
fn what_failed_was_not_said_to_be_durable() {
    let mut rig = Rig::new(1);
    rig.answers_recovery = false;
    rig.call(1, chmod(FILE));
    let asked = rig.take();
    let reply = Reply { status: Status::Io, transno: Transno(8), ..rig.reply(&asked) };
    rig.send(asked.conn, reply, &[], None);
    assert_eq!(rig.outcome(), Err(Status::Io));
    rig.restart();
    let resume = rig.take();
    assert_eq!(Resume::decode_all(&resume.body).unwrap().known_committed, Transno(0));
}

#[test]
fn a_lost_connection_to_the_same_boot_replays_nothing() {
    let (mut rig, _) = rig_with_three();
    rig.call(4, chmod(FILE));
    rig.hang_up();
    assert_eq!(ops(&rig), [Op::Setattr]);
    assert_eq!(rig.take().head.flags, request_flag::RESENT);
}

#[test]
fn a_server_that_comes_back_is_told_unasked() {
    let (mut rig, _) = rig_with_three();
    rig.shape.listening = false;
    rig.restart();
    rig.shape.listening = true;
    rig.wait_ms(1_000);
    assert_eq!(ops(&rig), [Op::Resume]);
}

#[test]
fn a_write_is_replayed_with_its_bytes() {
    let mut rig = Rig::new(1);
    rig.answers_recovery = false;
    rig.call(1, write(9, 4096));
    let asked = rig.take();
    rig.token(&asked, 5, &written(4096));
    assert!(matches!(rig.outcome(), Ok(Answer::Written(_))));
    assert_eq!(rig.kept.values().copied().collect::<Vec<_>>(), [bulk(9, 4096)]);
    for _ in 0..2 {
        rig.restart();
        let resume = rig.take();
        rig.resumed(&resume, 0, true);
        let replay = rig.take();
        let sent = replay.bulk.unwrap();
        assert!(rig.kept.contains_key(&sent.buf.0), "the client's own copy");
        assert_eq!((sent.start, sent.bulk_bytes, sent.crc32c), (0, 4096, Some(0)));
        rig.answer(&replay, &[]);
        assert_eq!(rig.kept.len(), 1);
        let done = rig.take();
        let reply = Reply { committed: Transno(4), ..rig.reply(&done) };
        rig.send(done.conn, reply, &[], None);
        assert_eq!(rig.kept.len(), 1);
    }
    rig.call(2, write(10, 100));
    let asked = rig.take();
    let reply = Reply { committed: Transno(5), transno: Transno(6), ..rig.reply(&asked) };
    rig.send(asked.conn, reply, &written(100), None);
    assert!(rig.kept.is_empty());
    assert_eq!(rig.client.replay_bytes(), 0);
    assert!(rig.released.is_empty(), "the face's buffers are the face's");
}

#[test]
fn a_write_that_was_done_for_nobody_can_be_replayed() {
    let mut rig = Rig::new(1);
    rig.answers_recovery = false;
    for (id, written_bytes) in [(1, 4096), (2, 0)] {
        rig.call(id, write(9, 4096));
        rig.take();
        rig.interrupt(id);
        rig.wait_ms(1_000);
        assert_eq!(rig.outcome(), Err(Status::Interrupted));
        assert_eq!(rig.kept.len() as u64, id, "a copy is kept while nobody knows");
        let asked = rig.take();
        assert_eq!(asked.bulk, None);
        rig.token(&asked, id, &written(written_bytes));
        assert_eq!(rig.kept.len(), 1, "the one that was done");
    }
    rig.restart();
    let resume = rig.take();
    rig.resumed(&resume, 0, true);
    assert_eq!(rig.take().bulk.map(|bulk| bulk.bulk_bytes), Some(4096));
    assert_eq!(rig.take().bulk, None);
}

#[test]
fn a_second_crash_begins_the_list_again() {
    let (mut rig, _) = rig_with_three();
    for (committed, blip) in [(5, false), (5, true), (6, false)] {
        rig.restart();
        let resume = rig.take();
        rig.resumed(&resume, committed, true);
        let replay = rig.take();
        rig.answer(&replay, &[]);
        if blip {
            // A connection that is lost in the middle is the same.
            rig.hang_up();
            let resume = rig.take();
            rig.resumed(&resume, 5, true);
            assert_eq!(transnos(&rig), [6, 7, 0]);
        }
    }
    assert_eq!(ops(&rig), [Op::ReplayDone]);
}

#[test]
fn replays_of_an_earlier_boot_do_not_mix_with_changes_of_this_one() {
    let (mut rig, _) = rig_with_three();
    rig.restart();
    let resume = rig.take();
    rig.resumed(&resume, 0, true);
    rig.asked.clear();
    // The answer to ReplayDone is still due when something new is answered.
    rig.call(4, chmod(FILE));
    let asked = rig.take();
    rig.token(&asked, 100, &entry());
    assert!(rig.outcome().is_ok());
    rig.hang_up();
    // The recovery is over, and durable.
    let resume = rig.take();
    assert_eq!(Resume::decode_all(&resume.body).unwrap().replay_count, 3);
    rig.resumed(&resume, 7, false);
    assert!(rig.client.take_reports().is_empty(), "nobody was evicted");
    assert!(rig.asked.is_empty());
    rig.restart();
    let resume = rig.take();
    assert_eq!(Resume::decode_all(&resume.body).unwrap().replay_count, 1);
}

#[test]
fn no_more_replays_are_out_than_credits() {
    let (mut rig, _) = rig_with_three();
    rig.shape.credits = 2;
    rig.restart();
    let resume = rig.take();
    rig.resumed(&resume, 0, true);
    assert_eq!(transnos(&rig), [5, 6]);
    let first = rig.take();
    rig.answer(&first, &[]);
    assert_eq!(transnos(&rig), [6, 7]);
    let first = rig.take();
    rig.answer(&first, &[]);
    assert_eq!(ops(&rig), [Op::Setattr, Op::ReplayDone]);
}

#[test]
fn shards_recover_each_for_itself_also_on_other_lanes() {
    let mut rig = Rig::new(4);
    rig.answers_recovery = false;
    let other = InodeNo((3 << 48) | 1);
    rig.call(1, chmod(FILE));
    rig.call(2, chmod(other));
    for transno in [5, 6] {
        let asked = rig.take();
        rig.token(&asked, transno, &entry());
    }
    rig.answers();
    rig.shape.map = Map { lane_count: 2, ..rig.shape.map };
    rig.restart();
    let mut resumes = [rig.take(), rig.take()];
    resumes.sort_by_key(|asked| asked.head.shard);
    let lanes = resumes.iter().map(|asked| rig.lane_of(asked.conn).unwrap());
    assert_eq!(lanes.collect::<Vec<_>>(), [LaneId(0), LaneId(1)]);
    rig.resumed(&resumes[1], 0, true);
    assert_eq!((ops(&rig), transnos(&rig)), (vec![Op::Setattr, Op::ReplayDone], vec![6, 0]));
    assert_eq!(rig.asked[0].head.shard, other.shard());
}

/// A reply of the old boot that is still on its way on one connection when another connection leads
/// to the new boot: how the change comes to the new boot, replayed (true) or sent again, if at all.
#[cfg(feature = "planted")]
fn comes_as_replay(rules: wire::Rules) -> Option<bool> {
    let mut rig = Rig::new(4);
    rig.client = crate::Client::new(crate::Config { rules, ..super::rig::config() });
    let other = InodeNo((3 << 48) | 1);
    rig.call(1, chmod(FILE));
    rig.call(2, chmod(other));
    let late = rig.asked.remove(0).unwrap();
    assert_eq!(late.head.shard, FILE.shard());
    // The server restarts; only one of its ends is heard of at first.
    let reply = rig.reply(&late);
    rig.shape.boot_id += 1;
    let gone = rig.take();
    rig.close(gone.conn);
    let reply = Reply { flags: wire::reply_flag::TOKEN, transno: Transno(5), ..reply };
    let mut body = entry();
    wire::Header::put_token(&mut wire::Writer::new(&mut body), b"token");
    rig.send(late.conn, reply, &body, None);
    rig.close(late.conn);
    let ours = |asked: &&Asked| asked.head.shard == FILE.shard() && asked.head.op == Op::Setattr;
    let seen = rig.asked.iter().find(ours)?;
    Some(seen.head.flags == request_flag::REPLAY)
}

#[cfg(feature = "planted")]
#[test]
fn a_late_reply_of_an_old_boot_is_no_loss() {
    let rules = |drain_peer_lanes, late_replies| {
        let rules = wire::Rules::default();
        let rules =
            if drain_peer_lanes { rules } else { rules.without(wire::Rule::DrainPeerLanes) };
        if late_replies { rules } else { rules.without(wire::Rule::LateReplies) }
    };
    for late_replies in [true, false] {
        assert_eq!(comes_as_replay(rules(true, late_replies)), Some(false), "nobody listens");
    }
    assert_eq!(comes_as_replay(rules(false, true)), Some(true), "it is in time for the replays");
    assert_eq!(comes_as_replay(rules(false, false)), None, "the test would not notice");
}

/// The loss of a connection to an idle lane is never heard of; the new boot waits there all the same.
#[cfg(feature = "planted")]
#[test]
fn a_new_boot_is_looked_for_at_all_lanes() {
    for drain_peer_lanes in [true, false] {
        let mut rig = Rig::new(4);
        let rules = wire::Rules::default();
        let rules =
            if drain_peer_lanes { rules } else { rules.without(wire::Rule::DrainPeerLanes) };
        rig.client = crate::Client::new(crate::Config { rules, ..super::rig::config() });
        rig.answers_recovery = false;
        let other = InodeNo((3 << 48) | 1);
        rig.call(1, chmod(FILE));
        rig.call(2, chmod(other));
        let (idle, busy) = (rig.take(), rig.take());
        rig.token(&idle, 5, &entry());
        rig.shape.boot_id += 1;
        rig.close(busy.conn);
        let asked = rig.asked.iter().filter(|asked| asked.head.op == Op::Resume);
        assert_eq!(asked.count(), if drain_peer_lanes { 2 } else { 1 });
    }
}

#[test]
fn a_token_that_is_none_closes_the_connection() {
    for (transno, body) in [(5, vec![0; 3]), (5, vec![0xff; 200]), (0, entry())] {
        let mut rig = Rig::new(1);
        rig.call(1, chmod(FILE));
        let asked = rig.take();
        let flags = wire::reply_flag::TOKEN;
        let reply = Reply { flags, transno: Transno(transno), ..rig.reply(&asked) };
        rig.send(asked.conn, reply, &body, None);
        assert_eq!(rig.client.counters().protocol_error_count, 1);
        assert!(rig.answers().is_empty());
    }
}
