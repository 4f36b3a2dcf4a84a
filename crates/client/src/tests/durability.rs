//! Sync, the limit of replay space, and Goodbye.

use super::FILE;
use super::harness::{Harness, ReceivedRequest, config};
use super::replays::{changed, chmod, entry, write, written};
use crate::{Answer, Call, Client, Config, Sync, Write};
use alloc::vec::Vec;
use wire::{Getattr, InodeNo, LaneId, Op, Reply, Status, Transno, request_flag};

const SYNC: Call<'static> = Call::Sync(Sync { inode: FILE, contents: true, handle: None });

/// A harness whose client has this much replay space.
fn harness_of(replay_bytes_max: usize) -> Harness {
    let mut harness = Harness::new(1);
    harness.client = Client::new(Config { replay_bytes_max, ..config() });
    harness.client.layouts.learn(FILE, wire::Layout::DEFAULT);
    harness
}

fn committed(harness: &mut Harness, request: &ReceivedRequest, committed: u64) {
    let reply = Reply { committed: Transno(committed), ..harness.reply(request) };
    harness.send(request.conn, reply, &[], None);
}

#[test]
fn a_file_is_synced_at_its_metadata_and_data_shards() {
    let mut harness = Harness::new(1);
    harness.call(1, SYNC);
    let request = [harness.take(), harness.take()];
    let data = harness.shape.map.data_shard(FILE, 0);
    assert_eq!(request.each_ref().map(|request| request.head.shard), [FILE.shard(), data]);
    for request in &request {
        assert_eq!((request.head.op, request.head.slot), (Op::Sync, 0));
        assert!(harness.answers().is_empty());
        harness.answer(request, &[]);
    }
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    harness.call(2, Call::Sync(Sync { inode: FILE, contents: false, handle: None }));
    let request = harness.take();
    assert!(harness.requests.is_empty());
    harness.fail(&request, Status::Io);
    assert_eq!(harness.outcome(), Err(Status::Io));
    assert_eq!(harness.client.busy_count(), 0);
}

#[test]
fn a_sync_waits_for_a_server_that_is_away_and_can_be_interrupted() {
    let mut harness = Harness::new(1);
    harness.call(1, SYNC);
    harness.call(2, SYNC);
    harness.restart();
    assert_eq!(harness.requests.len(), 4);
    assert!(harness.interrupt(1));
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    while !harness.requests.is_empty() {
        let request = harness.take();
        assert_eq!(request.head.flags, request_flag::RESENT);
        harness.answer(&request, &[]);
    }
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    assert_eq!(harness.client.busy_count(), 0);
}

#[test]
fn sync_all_asks_the_shards_that_may_lose_changes() {
    let mut harness = Harness::new(1);
    harness.call(1, Call::SyncAll);
    assert_eq!(harness.outcome(), Ok(Answer::Done), "there were no changes");
    changed(&mut harness, 2, 5);
    harness.call(3, Call::SyncAll);
    let request = harness.take();
    assert_eq!((request.head.op, request.head.shard), (Op::Sync, FILE.shard()));
    assert!(harness.requests.is_empty());
    committed(&mut harness, &request, 5);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    harness.call(4, Call::SyncAll);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    assert!(harness.requests.is_empty());
}

#[test]
fn a_recall_asks_metadata_shards_alone_and_the_sync_of_all_shards_those_of_contents() {
    let mut harness = Harness::new(1);
    changed(&mut harness, 9, 5);
    harness.answers();
    let mut asked_by = |call| {
        harness.call(1, call);
        let mut asked = Vec::new();
        while !harness.requests.is_empty() {
            let request = harness.take();
            let is_behind = request.head.flags & request_flag::BEHIND != 0;
            assert_eq!(request.head.op, Op::Sync);
            asked.push((request.head.shard, is_behind));
            harness.answer(&request, &[]);
        }
        assert_eq!(harness.outcome(), Ok(Answer::Done));
        asked
    };
    let recalled = asked_by(Call::Recall);
    let synced = asked_by(Call::SyncShards);
    assert!(recalled.iter().all(|(shard, is_behind)| !shard.is_data() && *is_behind));
    assert!(synced.iter().all(|(shard, is_behind)| *is_behind == shard.is_data()));
    let names = synced.iter().filter(|(shard, _)| !shard.is_data()).count();
    assert_eq!(recalled.len(), names);
    assert!(names > 0 && synced.len() > names);
}

#[test]
fn a_synchronous_write_sets_the_flag() {
    let mut harness = Harness::new(1);
    for sync in [true, false] {
        let bulk = Some(super::harness::bulk(9, 10));
        let write = Write {
            inode: FILE,
            file_offset: 0,
            append: false,
            bulk,
            sync,
            clears: wire::ClearPrivileges::Nothing,
            behind: false,
        };
        harness.call(1, Call::Write(write));
        harness.hang_up();
        let request = harness.take();
        assert_eq!(request.head.flags & request_flag::SYNC != 0, sync);
        harness.durable(&request, 5, &written(10));
    }
}

#[test]
fn from_half_of_the_limit_on_the_server_is_asked_to_sync() {
    let mut harness = harness_of(64 << 10);
    let mut id = 0;
    while harness.requests.is_empty() {
        id += 1;
        harness.call(id, write(9, 4096));
        let request = harness.take();
        harness.token(&request, id, &written(4096));
        harness.answers();
    }
    assert!((32 << 10..48 << 10).contains(&harness.client.replay_bytes()));
    let sync = harness.take();
    assert_eq!(sync.head.op, Op::Sync);
    harness.call(100, Call::Getattr(Getattr { inode: FILE }));
    assert_eq!(harness.take().head.op, Op::Getattr);
    assert!(harness.requests.is_empty(), "one sync at a time");
    committed(&mut harness, &sync, id - 1);
    assert_eq!(harness.retained.len(), 1);
    assert!(harness.requests.is_empty(), "below half of the limit");
}

#[test]
fn at_the_limit_changes_wait_and_reads_do_not() {
    let mut harness = harness_of(32 << 10);
    for id in 1..=12 {
        harness.call(id, write(u32::try_from(id).unwrap(), 4096));
    }
    // There are fewer slots than that; a reply frees a slot, but no replay space.
    let mut transno = 0;
    let mut syncs = Vec::new();
    while let Some(request) = harness.requests.pop_front() {
        if request.head.op == Op::Sync {
            syncs.push(request);
            continue;
        }
        transno += 1;
        harness.token(&request, transno, &written(4096));
    }
    assert!(harness.client.replay_bytes() <= 32 << 10);
    assert_eq!(harness.answers().len(), 7);
    harness.call(20, Call::Getattr(Getattr { inode: FILE }));
    let request = harness.take();
    harness.answer(&request, &entry());
    assert!(harness.outcome().is_ok());
    assert!(harness.interrupt(12), "a waiting call can be interrupted");
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    let sync = syncs.pop().unwrap();
    assert!(syncs.is_empty());
    committed(&mut harness, &sync, transno);
    assert!(harness.retained.is_empty());
    let mut answered_count = 0;
    while let Some(request) = harness.requests.pop_front() {
        answered_count += 1;
        harness.durable(&request, 100, &written(4096));
    }
    assert_eq!(answered_count, 4);
    assert_eq!((harness.client.busy_count(), harness.client.replay_bytes()), (0, 0));
}

#[test]
fn one_change_is_always_allowed() {
    let mut harness = harness_of(1);
    harness.call(1, write(9, 4096));
    harness.call(2, chmod(FILE));
    let request = harness.take();
    assert!(harness.requests.is_empty());
    harness.durable(&request, 5, &written(4096));
    assert_eq!(harness.take().head.op, Op::Setattr);
}

#[test]
fn requests_that_wait_for_replay_space_survive_restarts() {
    let mut harness = harness_of(1);
    harness.call(1, chmod(FILE));
    harness.call(2, chmod(FILE));
    harness.restart();
    let request = harness.take();
    harness.durable(&request, 5, &entry());
    harness.shape.set_lane_count(2);
    harness.restart();
    let request = harness.take();
    harness.durable(&request, 6, &entry());
    assert_eq!(harness.answers().len(), 2);
    assert_eq!(harness.client.busy_count(), 0);
}

#[test]
fn goodbye_goes_to_every_lane_that_may_have_a_session() {
    let mut harness = Harness::new(4);
    harness.call(1, chmod(FILE));
    let request = harness.take();
    harness.durable(&request, 5, &entry());
    harness.answers();
    harness.call(2, Call::Goodbye);
    let mut lanes: Vec<_> =
        harness.requests.iter().map(|it| harness.lane_of(it.conn).unwrap()).collect();
    lanes.sort_unstable();
    assert_eq!(lanes, [LaneId(0), LaneId(2)]);
    for request in harness.requests.clone() {
        assert_eq!((request.head.op, request.head.slot), (Op::Goodbye, 0));
        assert!(harness.answers().is_empty());
        harness.answer(&request, &[]);
    }
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    harness.requests.clear();
    let hello_count = harness.hellos.len();
    harness.restart();
    assert_eq!(harness.hellos.len(), hello_count, "no lane has a session, so no lane waits");
    harness.call(3, chmod(InodeNo((2 << 48) | 3)));
    assert_eq!(harness.take().head.op, Op::Setattr, "a later call opens a new session");
}

/// Begins the sync of a file that is still being written; returns the request of its name. The data
/// shard is asked as well, and has nothing to sync.
fn ahead(harness: &mut Harness, id: u64) -> ReceivedRequest {
    harness.call(id, Call::SyncAhead(Sync { inode: FILE, contents: true, handle: None }));
    let mut both = [harness.take(), harness.take()];
    both.sort_by_key(|received| received.head.shard.is_data());
    let [names, contents] = both;
    assert_eq!((names.head.op, names.head.shard, names.head.flags), (Op::Sync, FILE.shard(), 0));
    let (data, behind) = (harness.shape.map.data_shard(FILE, 0), request_flag::BEHIND);
    let found = (contents.head.op, contents.head.shard, contents.head.flags);
    assert_eq!(found, (Op::Sync, data, behind));
    assert!(harness.requests.is_empty());
    harness.answer(&contents, &[]);
    assert!(harness.answers().is_empty(), "its contents are still to come");
    names
}

#[test]
fn the_contents_of_a_file_that_is_still_written_are_synced_behind_its_name() {
    // The reply of the metadata shard comes before the contents are asked for, behind that, or last.
    for names_at in 0..3 {
        let mut harness = Harness::new(2);
        let names = ahead(&mut harness, 1);
        if names_at == 0 {
            harness.answer(&names, &[]);
        }
        assert!(harness.answers().is_empty());
        harness.sync_contents(1, Ok(()));
        let contents = harness.take();
        let data = harness.shape.map.data_shard(FILE, 0);
        assert_eq!((contents.head.op, contents.head.shard), (Op::Sync, data));
        if names_at == 1 {
            harness.answer(&names, &[]);
        }
        assert!(harness.answers().is_empty());
        harness.answer(&contents, &[]);
        if names_at == 2 {
            assert!(harness.answers().is_empty());
            harness.answer(&names, &[]);
        }
        assert_eq!(harness.outcome(), Ok(Answer::Done));
        assert_eq!(harness.client.busy_count(), 0);
    }
}

#[test]
fn a_name_that_cannot_be_synced_fails_the_sync_behind_its_contents() {
    let mut harness = Harness::new(2);
    let names = ahead(&mut harness, 1);
    harness.fail(&names, Status::Io);
    assert!(harness.answers().is_empty(), "its caller is still waited for");
    harness.sync_contents(1, Ok(()));
    let contents = harness.take();
    harness.answer(&contents, &[]);
    assert_eq!(harness.outcome(), Err(Status::Io));
}

#[test]
fn a_failed_write_fails_the_sync_that_has_begun() {
    for names_first in [true, false] {
        let mut harness = Harness::new(2);
        let names = ahead(&mut harness, 1);
        if names_first {
            harness.answer(&names, &[]);
        }
        harness.sync_contents(1, Err(Status::NoSpace));
        if !names_first {
            assert!(harness.answers().is_empty());
            harness.answer(&names, &[]);
        }
        assert_eq!(harness.outcome(), Err(Status::NoSpace));
        assert!(harness.requests.is_empty(), "there is nothing to sync");
        assert_eq!(harness.client.busy_count(), 0);
    }
}

#[test]
fn a_sync_is_given_up_before_its_contents_come() {
    for names_first in [true, false] {
        let mut harness = Harness::new(2);
        let names = ahead(&mut harness, 1);
        if names_first {
            harness.answer(&names, &[]);
        }
        assert!(harness.interrupt(1));
        assert_eq!(harness.outcome(), Err(Status::Interrupted));
        harness.sync_contents(1, Ok(()));
        if !names_first {
            harness.answer(&names, &[]);
        }
        assert!(harness.requests.is_empty() && harness.answers().is_empty());
        assert_eq!(harness.client.busy_count(), 0);
    }
}
