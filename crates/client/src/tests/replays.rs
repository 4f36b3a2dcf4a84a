//! The replay list: its contents, its limits, and the recovery of a new boot.

use super::harness::{Harness, ReceivedRequest, bulk, token_of};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Write};
use alloc::vec;
use alloc::vec::Vec;
use wire::{
    Bytes, Entry, Getattr, InodeNo, LaneId, Op, Replay, Reply, Resume, SetTime, Setattr, Status,
    Transno, Wire, Written, request_flag,
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
        behind: false,
    })
}

pub(super) fn written(written_bytes: u32) -> Vec<u8> {
    Written { file_offset: 8, written_bytes }.to_bytes()
}

pub(super) fn entry() -> Vec<u8> {
    Entry { attr: attr(FILE, 0) }.to_bytes()
}

/// A chmod that was answered and is not durable.
pub(super) fn changed(harness: &mut Harness, id: u64, transno: u64) -> ReceivedRequest {
    harness.call(id, chmod(FILE));
    let request = harness.take();
    harness.token(&request, transno, &entry());
    assert!(harness.outcome().is_ok());
    request
}

/// A harness whose client has answered changes 5, 6 and 7, in another order.
fn harness_with_three() -> (Harness, Vec<ReceivedRequest>) {
    let mut harness = Harness::new(1);
    harness.answers_recovery = false;
    (1..=3).for_each(|id| harness.call(id, chmod(FILE)));
    let request: Vec<_> = (0..3).map(|_| harness.take()).collect();
    for (request, transno) in request.iter().zip([5, 7, 6]) {
        harness.token(request, transno, &entry());
    }
    assert_eq!(harness.answers().len(), 3);
    (harness, request)
}

fn transnos(harness: &Harness) -> Vec<u64> {
    harness.requests.iter().map(|request| request.head.transno.0).collect()
}

fn ops(harness: &Harness) -> Vec<Op> {
    harness.requests.iter().map(|request| request.head.op).collect()
}

/// The server may have recorded the session at all of them.
#[test]
fn a_client_resumes_at_all_data_shards_of_a_lane_at_which_it_wrote() {
    let mut harness = Harness::new(2);
    harness.answers_recovery = false;
    harness.call(1, write(1, 4));
    let request = harness.take();
    harness.token(&request, 5, &written(4));
    assert!(harness.outcome().is_ok());
    harness.restart();
    let map = &harness.shape.map;
    let lane = map.lane(request.head.shard);
    let shards = map.shard_counts().shards();
    let there: Vec<_> =
        shards.filter(|shard| shard.is_data() && map.lane(*shard) == lane).collect();
    assert!(there.len() > 1, "else it shows nothing");
    let resumed: Vec<_> = harness.requests.iter().map(|request| request.head.shard).collect();
    assert_eq!(resumed, there);
    assert!(ops(&harness).iter().all(|op| *op == Op::Resume));
}

#[test]
fn a_new_boot_gets_the_changes_it_lacks_in_order_and_then_the_rest() {
    let (mut harness, request) = harness_with_three();
    harness.call(4, chmod(FILE));
    harness.restart();
    harness.call(5, Call::Getattr(Getattr { inode: FILE }));
    // First only the Resume.
    assert_eq!(ops(&harness), [Op::Resume]);
    let resume = harness.take();
    let wanted = Resume { known_committed: Transno(0), replay_count: 3 };
    assert_eq!(Resume::decode_all(&resume.body), Ok(wanted));
    assert_eq!((resume.head.shard, resume.head.slot), (FILE.shard(), 0));
    harness.resumed(&resume, 5, true);
    // Then everything at once.
    assert_eq!(ops(&harness), [Op::Setattr, Op::Setattr, Op::ReplayDone, Op::Setattr, Op::Getattr]);
    assert_eq!(transnos(&harness), [6, 7, 0, 0, 0]);
    for (replay, original) in [(harness.take(), &request[2]), (harness.take(), &request[1])] {
        let head = replay.head;
        assert_eq!(head.flags, request_flag::REPLAY);
        assert_eq!((head.xid, head.slot), (original.head.xid, original.head.slot));
        let token = token_of(head.transno.0);
        let body = Replay { reply: Bytes(&entry()), token: Bytes(&token) };
        assert_eq!(Replay::decode_all(&replay.body), Ok(body));
        harness.answer(&replay, &[]);
    }
    let done = harness.take();
    harness.answer(&done, &[]);
    let again = harness.take();
    assert_eq!(again.head.flags, request_flag::RESENT);
    harness.token(&again, 9, &entry());
    let fresh = harness.take();
    harness.answer(&fresh, &entry());
    assert_eq!(harness.answers().len(), 2);
    assert_eq!(harness.client.counters().replay_count, 2);
    assert_eq!(harness.client.counters().stray_reply_count, 0);
    assert!(harness.client.replay_bytes() > 0, "a replay is retained until it is durable");
    harness.notify_commit(&fresh, &[(FILE.shard(), 9)]);
    assert_eq!(harness.client.replay_bytes(), 0);
}

#[test]
fn durable_changes_are_dropped() {
    let (mut harness, _) = harness_with_three();
    harness.call(4, Call::Getattr(Getattr { inode: FILE }));
    let request = harness.take();
    let reply = Reply { committed: Transno(6), ..harness.reply(&request) };
    harness.send(request.conn, reply, &entry(), None);
    assert!(harness.client.replay_bytes() > 0);
    harness.notify_commit(&request, &[(InodeNo((1 << 48) | 1).shard(), 99)]);
    assert!(harness.client.replay_bytes() > 0, "that was another shard");
    harness.notify_commit(&request, &[(InodeNo((1 << 48) | 1).shard(), 99), (FILE.shard(), 7)]);
    assert_eq!(harness.client.replay_bytes(), 0);
    harness.restart();
    let resume = harness.take();
    let wanted = Resume { known_committed: Transno(7), replay_count: 0 };
    assert_eq!(Resume::decode_all(&resume.body), Ok(wanted));
    harness.resumed(&resume, 7, false);
    assert_eq!(harness.requests.len(), 0, "there are no replays, and no shard to resume");
    assert!(harness.client.take_reports().is_empty());
}

#[test]
fn changes_answered_when_durable_are_not_retained() {
    let mut harness = Harness::new(1);
    harness.answers_recovery = false;
    harness.call(1, chmod(FILE));
    let request = harness.take();
    harness.durable(&request, 8, &entry());
    assert_eq!(harness.client.replay_bytes(), 0);
    harness.restart();
    let resume = harness.take();
    let wanted = Resume { known_committed: Transno(8), replay_count: 0 };
    assert_eq!(Resume::decode_all(&resume.body), Ok(wanted));
}

#[test]
fn a_failed_change_does_not_count_as_durable() {
    let mut harness = Harness::new(1);
    harness.answers_recovery = false;
    harness.call(1, chmod(FILE));
    let request = harness.take();
    let reply = Reply { status: Status::Io, transno: Transno(8), ..harness.reply(&request) };
    harness.send(request.conn, reply, &[], None);
    assert_eq!(harness.outcome(), Err(Status::Io));
    harness.restart();
    let resume = harness.take();
    assert_eq!(Resume::decode_all(&resume.body).unwrap().known_committed, Transno(0));
}

#[test]
fn a_lost_connection_to_the_same_boot_replays_nothing() {
    let (mut harness, _) = harness_with_three();
    harness.call(4, chmod(FILE));
    harness.hang_up();
    assert_eq!(ops(&harness), [Op::Setattr]);
    assert_eq!(harness.take().head.flags, request_flag::RESENT);
}

#[test]
fn a_restarted_server_gets_its_replays_without_a_call() {
    let (mut harness, _) = harness_with_three();
    harness.shape.listening = false;
    harness.restart();
    harness.shape.listening = true;
    harness.wait_ms(1_000);
    assert_eq!(ops(&harness), [Op::Resume]);
}

#[test]
fn a_write_is_replayed_with_its_bytes() {
    let mut harness = Harness::new(1);
    harness.answers_recovery = false;
    harness.call(1, write(9, 4096));
    let request = harness.take();
    harness.token(&request, 5, &written(4096));
    assert!(matches!(harness.outcome(), Ok(Answer::Written(_))));
    assert_eq!(harness.retained.values().copied().collect::<Vec<_>>(), [bulk(9, 4096)]);
    for _ in 0..2 {
        harness.restart();
        let resume = harness.take_resume(request.head.shard);
        harness.resumed(&resume, 0, true);
        let replay = harness.take();
        let sent = replay.bulk.unwrap();
        assert!(harness.retained.contains_key(&sent.buf.0), "the client's own copy");
        assert_eq!((sent.start, sent.bulk_bytes, sent.crc32c), (0, 4096, Some(0)));
        harness.answer(&replay, &[]);
        assert_eq!(harness.retained.len(), 1);
        let done = harness.take();
        let reply = Reply { committed: Transno(4), ..harness.reply(&done) };
        harness.send(done.conn, reply, &[], None);
        assert_eq!(harness.retained.len(), 1);
    }
    harness.call(2, write(10, 100));
    let request = harness.take();
    let reply = Reply { committed: Transno(5), transno: Transno(6), ..harness.reply(&request) };
    harness.send(request.conn, reply, &written(100), None);
    assert!(harness.retained.is_empty());
    assert_eq!(harness.client.replay_bytes(), 0);
    assert!(harness.released.is_empty(), "the frontend's buffers stay with the frontend");
}

#[test]
fn an_abandoned_write_that_was_executed_can_be_replayed() {
    let mut harness = Harness::new(1);
    harness.answers_recovery = false;
    for (id, written_bytes) in [(1, 4096), (2, 0)] {
        harness.call(id, write(9, 4096));
        harness.take();
        harness.interrupt(id);
        harness.wait_ms(1_000);
        assert_eq!(harness.outcome(), Err(Status::Interrupted));
        assert_eq!(
            harness.retained.len() as u64,
            id,
            "a copy is retained while the outcome is unknown"
        );
        let request = harness.take();
        assert_eq!(request.bulk, None);
        harness.token(&request, id, &written(written_bytes));
        assert_eq!(harness.retained.len(), 1, "the one that was executed");
    }
    harness.restart();
    let resume = harness.take_resume(harness.shape.map.data_shard(FILE, 0));
    harness.resumed(&resume, 0, true);
    assert_eq!(harness.take().bulk.map(|bulk| bulk.bulk_bytes), Some(4096));
    assert_eq!(harness.take().bulk, None);
}

#[test]
fn a_second_crash_restarts_the_replays() {
    let (mut harness, _) = harness_with_three();
    for (committed, blip) in [(5, false), (5, true), (6, false)] {
        harness.restart();
        let resume = harness.take();
        harness.resumed(&resume, committed, true);
        let replay = harness.take();
        harness.answer(&replay, &[]);
        if blip {
            // A connection that is lost in the middle has the same effect.
            harness.hang_up();
            let resume = harness.take();
            harness.resumed(&resume, 5, true);
            assert_eq!(transnos(&harness), [6, 7, 0]);
        }
    }
    assert_eq!(ops(&harness), [Op::ReplayDone]);
}

#[test]
fn replays_of_an_earlier_boot_do_not_mix_with_changes_of_this_one() {
    let (mut harness, _) = harness_with_three();
    harness.restart();
    let resume = harness.take();
    harness.resumed(&resume, 0, true);
    harness.requests.clear();
    // A new change is answered before the reply to ReplayDone.
    harness.call(4, chmod(FILE));
    let request = harness.take();
    harness.token(&request, 100, &entry());
    assert!(harness.outcome().is_ok());
    harness.hang_up();
    // The recovery is over, and its changes are durable.
    let resume = harness.take();
    assert_eq!(Resume::decode_all(&resume.body).unwrap().replay_count, 3);
    harness.resumed(&resume, 7, false);
    assert!(harness.client.take_reports().is_empty(), "there was no eviction");
    assert!(harness.requests.is_empty());
    harness.restart();
    let resume = harness.take();
    assert_eq!(Resume::decode_all(&resume.body).unwrap().replay_count, 1);
}

#[test]
fn replays_in_flight_never_exceed_the_credits() {
    let (mut harness, _) = harness_with_three();
    harness.shape.credits = 2;
    harness.restart();
    let resume = harness.take();
    harness.resumed(&resume, 0, true);
    assert_eq!(transnos(&harness), [5, 6]);
    let first = harness.take();
    harness.answer(&first, &[]);
    assert_eq!(transnos(&harness), [6, 7]);
    let first = harness.take();
    harness.answer(&first, &[]);
    assert_eq!(ops(&harness), [Op::Setattr, Op::ReplayDone]);
}

#[test]
fn each_shard_recovers_by_itself_also_on_other_lanes() {
    let mut harness = Harness::new(4);
    harness.answers_recovery = false;
    let other = InodeNo((3 << 48) | 1);
    harness.call(1, chmod(FILE));
    harness.call(2, chmod(other));
    for transno in [5, 6] {
        let request = harness.take();
        harness.token(&request, transno, &entry());
    }
    harness.answers();
    harness.shape.set_lane_count(2);
    harness.restart();
    let mut resumes = [harness.take(), harness.take()];
    resumes.sort_by_key(|request| request.head.shard);
    let lanes = resumes.iter().map(|request| harness.lane_of(request.conn).unwrap());
    assert_eq!(lanes.collect::<Vec<_>>(), [LaneId(0), LaneId(1)]);
    harness.resumed(&resumes[1], 0, true);
    assert_eq!(
        (ops(&harness), transnos(&harness)),
        (vec![Op::Setattr, Op::ReplayDone], vec![6, 0])
    );
    assert_eq!(harness.requests[0].head.shard, other.shard());
}

/// A reply of the old boot is still in flight on one connection when another connection reaches the
/// new boot: how the change gets to the new boot, replayed (true) or resent, if at all.
#[cfg(feature = "removable-rules")]
fn comes_as_replay(rules: wire::Rules) -> Option<bool> {
    let mut harness = Harness::new(4);
    harness.client = crate::Client::new(crate::Config { rules, ..super::harness::config() });
    let other = InodeNo((3 << 48) | 1);
    harness.call(1, chmod(FILE));
    harness.call(2, chmod(other));
    let late = harness.requests.remove(0).unwrap();
    assert_eq!(late.head.shard, FILE.shard());
    // The server restarts; the client learns it from one connection first.
    let reply = harness.reply(&late);
    harness.shape.boot_id += 1;
    let lost = harness.take();
    harness.close(lost.conn);
    let reply = Reply { flags: wire::reply_flag::TOKEN, transno: Transno(5), ..reply };
    let (message, mut body) = (entry(), Vec::new());
    let (message, token) = (&message[..], Some(&b"token"[..]));
    let parts = wire::ReplyParts { token, ..wire::ReplyParts::plain(message) };
    parts.put(&mut wire::Writer::new(&mut body));
    harness.send(late.conn, reply, &body, None);
    harness.close(late.conn);
    let ours = |request: &&ReceivedRequest| {
        request.head.shard == FILE.shard() && request.head.op == Op::Setattr
    };
    let seen = harness.requests.iter().find(ours)?;
    Some(seen.head.flags == request_flag::REPLAY)
}

#[cfg(feature = "removable-rules")]
#[test]
fn a_late_reply_of_an_old_boot_is_no_loss() {
    let rules = |drain_peer_lanes, late_replies| {
        let rules = wire::Rules::default();
        let rules =
            if drain_peer_lanes { rules } else { rules.without(wire::Rule::DrainPeerLanes) };
        if late_replies { rules } else { rules.without(wire::Rule::LateReplies) }
    };
    for late_replies in [true, false] {
        assert_eq!(comes_as_replay(rules(true, late_replies)), Some(false), "the reply is dropped");
    }
    assert_eq!(comes_as_replay(rules(false, true)), Some(true), "it is in time for the replays");
    assert_eq!(comes_as_replay(rules(false, false)), None, "the test would not notice");
}

/// The client never learns that the connection to an idle lane was lost; the new boot waits for its
/// replays all the same.
#[cfg(feature = "removable-rules")]
#[test]
fn a_new_boot_is_resumed_at_all_lanes() {
    for drain_peer_lanes in [true, false] {
        let mut harness = Harness::new(4);
        let rules = wire::Rules::default();
        let rules =
            if drain_peer_lanes { rules } else { rules.without(wire::Rule::DrainPeerLanes) };
        harness.client = crate::Client::new(crate::Config { rules, ..super::harness::config() });
        harness.answers_recovery = false;
        let other = InodeNo((3 << 48) | 1);
        harness.call(1, chmod(FILE));
        harness.call(2, chmod(other));
        let (idle, busy) = (harness.take(), harness.take());
        harness.token(&idle, 5, &entry());
        harness.shape.boot_id += 1;
        harness.close(busy.conn);
        let request = harness.requests.iter().filter(|request| request.head.op == Op::Resume);
        assert_eq!(request.count(), if drain_peer_lanes { 2 } else { 1 });
    }
}

#[test]
fn an_invalid_token_closes_the_connection() {
    for (transno, body) in [(5, vec![0; 3]), (5, vec![0xff; 200]), (0, entry())] {
        let mut harness = Harness::new(1);
        harness.call(1, chmod(FILE));
        let request = harness.take();
        let flags = wire::reply_flag::TOKEN;
        let reply = Reply { flags, transno: Transno(transno), ..harness.reply(&request) };
        harness.send(request.conn, reply, &body, None);
        assert_eq!(harness.client.counters().protocol_error_count, 1);
        assert!(harness.answers().is_empty());
    }
}
