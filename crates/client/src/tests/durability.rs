//! Sync, the limit of what is remembered, and leaving.

use super::FILE;
use super::replays::{changed, chmod, entry, write, written};
use super::rig::{Asked, Rig, config};
use crate::{Answer, Call, Client, Config, Sync, Write};
use alloc::vec::Vec;
use wire::{Getattr, InodeNo, LaneId, Op, Reply, Status, Transno, request_flag};

const SYNC: Call<'static> = Call::Sync(Sync { inode: FILE, contents: true, handle: None });

/// A rig whose client remembers no more than this.
fn rig_of(replay_bytes_max: usize) -> Rig {
    let mut rig = Rig::new(1);
    rig.client = Client::new(Config { replay_bytes_max, ..config() });
    rig
}

fn committed(rig: &mut Rig, asked: &Asked, committed: u64) {
    let reply = Reply { committed: Transno(committed), ..rig.reply(asked) };
    rig.send(asked.conn, reply, &[], None);
}

#[test]
fn a_file_is_synced_where_it_is_and_where_its_bytes_are() {
    let mut rig = Rig::new(1);
    rig.call(1, SYNC);
    let asked = [rig.take(), rig.take()];
    let data = rig.shape.map.data_shard(FILE, 0);
    assert_eq!(asked.each_ref().map(|asked| asked.head.shard), [FILE.shard(), data]);
    for asked in &asked {
        assert_eq!((asked.head.op, asked.head.slot), (Op::Sync, 0));
        assert!(rig.answers().is_empty());
        rig.answer(asked, &[]);
    }
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    rig.call(2, Call::Sync(Sync { inode: FILE, contents: false, handle: None }));
    let asked = rig.take();
    assert!(rig.asked.is_empty());
    rig.fail(&asked, Status::Io);
    assert_eq!(rig.outcome(), Err(Status::Io));
    assert_eq!(rig.client.busy_count(), 0);
}

#[test]
fn a_sync_waits_for_a_server_that_is_away_and_can_be_given_up() {
    let mut rig = Rig::new(1);
    rig.call(1, SYNC);
    rig.call(2, SYNC);
    rig.restart();
    assert_eq!(rig.asked.len(), 4);
    assert!(rig.interrupt(1));
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    while !rig.asked.is_empty() {
        let asked = rig.take();
        assert_eq!(asked.head.flags, request_flag::RESENT);
        rig.answer(&asked, &[]);
    }
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    assert_eq!(rig.client.busy_count(), 0);
}

#[test]
fn sync_all_asks_the_shards_that_may_lose_something() {
    let mut rig = Rig::new(1);
    rig.call(1, Call::SyncAll);
    assert_eq!(rig.outcome(), Ok(Answer::Done), "nothing was done");
    changed(&mut rig, 2, 5);
    rig.call(3, Call::SyncAll);
    let asked = rig.take();
    assert_eq!((asked.head.op, asked.head.shard), (Op::Sync, FILE.shard()));
    assert!(rig.asked.is_empty());
    committed(&mut rig, &asked, 5);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    rig.call(4, Call::SyncAll);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    assert!(rig.asked.is_empty());
}

#[test]
fn a_synchronous_write_says_so() {
    let mut rig = Rig::new(1);
    for sync in [true, false] {
        let bulk = Some(super::rig::bulk(9, 10));
        let write = Write {
            inode: FILE,
            file_offset: 0,
            append: false,
            bulk,
            sync,
            clears: wire::ClearPrivileges::Nothing,
        };
        rig.call(1, Call::Write(write));
        rig.hang_up();
        let asked = rig.take();
        assert_eq!(asked.head.flags & request_flag::SYNC != 0, sync);
        rig.durable(&asked, 5, &written(10));
    }
}

#[test]
fn from_half_of_the_limit_on_the_server_is_asked_to_hurry() {
    let mut rig = rig_of(64 << 10);
    let mut id = 0;
    while rig.asked.is_empty() {
        id += 1;
        rig.call(id, write(9, 4096));
        let asked = rig.take();
        rig.token(&asked, id, &written(4096));
        rig.answers();
    }
    assert!((32 << 10..48 << 10).contains(&rig.client.replay_bytes()));
    let sync = rig.take();
    assert_eq!(sync.head.op, Op::Sync);
    rig.call(100, Call::Getattr(Getattr { inode: FILE }));
    assert_eq!(rig.take().head.op, Op::Getattr);
    assert!(rig.asked.is_empty(), "it is asked once at a time");
    committed(&mut rig, &sync, id - 1);
    assert_eq!(rig.kept.len(), 1);
    assert!(rig.asked.is_empty(), "that is little enough");
}

#[test]
fn at_the_limit_changes_wait_and_reads_do_not() {
    let mut rig = rig_of(32 << 10);
    for id in 1..=12 {
        rig.call(id, write(u32::try_from(id).unwrap(), 4096));
    }
    // Slots are fewer than that; a reply makes room for a slot, not for bytes.
    let mut transno = 0;
    let mut syncs = Vec::new();
    while let Some(asked) = rig.asked.pop_front() {
        if asked.head.op == Op::Sync {
            syncs.push(asked);
            continue;
        }
        transno += 1;
        rig.token(&asked, transno, &written(4096));
    }
    assert!(rig.client.replay_bytes() <= 32 << 10);
    assert_eq!(rig.answers().len(), 7);
    rig.call(20, Call::Getattr(Getattr { inode: FILE }));
    let asked = rig.take();
    rig.answer(&asked, &entry());
    assert!(rig.outcome().is_ok());
    assert!(rig.interrupt(12), "who waits can be interrupted");
    rig.wait_ms(1_000);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    let sync = syncs.pop().unwrap();
    assert!(syncs.is_empty());
    committed(&mut rig, &sync, transno);
    assert!(rig.kept.is_empty());
    let mut answered_count = 0;
    while let Some(asked) = rig.asked.pop_front() {
        answered_count += 1;
        rig.durable(&asked, 100, &written(4096));
    }
    assert_eq!(answered_count, 4);
    assert_eq!((rig.client.busy_count(), rig.client.replay_bytes()), (0, 0));
}

#[test]
fn one_change_always_may() {
    let mut rig = rig_of(1);
    rig.call(1, write(9, 4096));
    rig.call(2, chmod(FILE));
    let asked = rig.take();
    assert!(rig.asked.is_empty());
    rig.durable(&asked, 5, &written(4096));
    assert_eq!(rig.take().head.op, Op::Setattr);
}

#[test]
fn what_waits_for_room_survives_restarts() {
    let mut rig = rig_of(1);
    rig.call(1, chmod(FILE));
    rig.call(2, chmod(FILE));
    rig.restart();
    let asked = rig.take();
    rig.durable(&asked, 5, &entry());
    rig.shape.map.lane_count = 2;
    rig.restart();
    let asked = rig.take();
    rig.durable(&asked, 6, &entry());
    assert_eq!(rig.answers().len(), 2);
    assert_eq!(rig.client.busy_count(), 0);
}

#[test]
fn goodbye_goes_to_every_lane_that_may_know_us() {
    let mut rig = Rig::new(4);
    rig.call(1, chmod(FILE));
    let asked = rig.take();
    rig.durable(&asked, 5, &entry());
    rig.answers();
    rig.call(2, Call::Goodbye);
    let mut lanes: Vec<_> = rig.asked.iter().map(|it| rig.lane_of(it.conn).unwrap()).collect();
    lanes.sort_unstable();
    assert_eq!(lanes, [LaneId(0), LaneId(2)]);
    for asked in rig.asked.clone() {
        assert_eq!((asked.head.op, asked.head.slot), (Op::Goodbye, 0));
        assert!(rig.answers().is_empty());
        rig.answer(&asked, &[]);
    }
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    rig.asked.clear();
    let hello_count = rig.hellos.len();
    rig.restart();
    assert_eq!(rig.hellos.len(), hello_count, "nobody knows us, so nobody waits for us");
    rig.call(3, chmod(InodeNo((2 << 48) | 3)));
    assert_eq!(rig.take().head.op, Op::Setattr, "who comes again begins anew");
}
