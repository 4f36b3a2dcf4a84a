//! Allocations and seeks.

use super::*;
use wire::{Allocate, Allocation, Seek};

impl Harness {
    fn allocate(&mut self, range: (u64, u64), allocation: Allocation, keep_size: bool) -> Token {
        let (file_offset, range_bytes) = range;
        let request = Allocate {
            inode: FILE,
            file_offset,
            range_bytes,
            allocation,
            keep_size,
            clears: wire::ClearPrivileges::Nothing,
        };
        self.request(Op::Allocate, &request, None)
    }

    fn seek(&mut self, file_offset: u64, hole: bool) -> Token {
        self.request(Op::Seek, &Seek { inode: FILE, file_offset, hole }, None)
    }
}

fn allocated(
    (object_offset, range_bytes): (u64, u64),
    allocation: Allocation,
    size_bytes: u64,
) -> Change<'static> {
    Change::Contents(ContentsChange::Allocate {
        inode: FILE,
        object_offset,
        range_bytes,
        allocation,
        size_bytes,
        write_time_ns: WALL_NS,
    })
}

#[test]
fn allocations_are_recorded_with_the_size_behind_them() {
    for (range, allocation, keep_size, size_bytes) in [
        ((90, 20), Allocation::Reserve, false, 110),
        ((90, 20), Allocation::Reserve, true, 100),
        ((10, 20), Allocation::Reserve, false, 100),
        ((90, 20), Allocation::Punch, true, 100),
        ((90, 20), Allocation::Zero, false, 110),
        ((90, 20), Allocation::Zero, true, 100),
    ] {
        let mut harness = Harness::with_file(100);
        let asked = harness.allocate(range, allocation, keep_size);
        let action = harness.take();
        let [
            Action::Object(ObjectAction::Allocate {
                object_offset,
                range_bytes,
                allocation: of,
                keep_size: kept,
                ..
            }),
        ] = action[..]
        else {
            panic!("{action:?}")
        };
        assert_eq!(((object_offset, range_bytes), of, kept), (range, allocation, keep_size));
        harness.done(&action[0]);
        harness.settle();
        let sync = harness.one();
        harness.done(&sync);
        let outcomes = harness.outcomes();
        let [Outcome::Changed { token, change, answer: Answer::Empty, .. }] = &outcomes[..] else {
            panic!("{outcomes:?}")
        };
        let wanted = allocated(range, allocation, size_bytes);
        assert_eq!((*token, change), (asked, &wanted));
        let body = change.to_bytes();
        let mut recorded = Recorded::new(SHARDS.data_shard(FILE, 0));
        recorded.replay(Transno(1), &body).unwrap();
        let row = recorded.objects().next().unwrap().row;
        assert_eq!((row.size_bytes, row.write_time_ns), (size_bytes, WALL_NS));
    }
}

/// A later write is not in the object before the record of the hole is durable: otherwise it might
/// be replayed after a crash before the client resends the hole.
#[test]
fn changes_after_a_punched_hole_wait_for_its_record() {
    let mut harness = Harness::with_file(100);
    harness.write(0, 10);
    let write = harness.one();
    harness.allocate((0, 50), Allocation::Punch, true);
    assert!(harness.take().is_empty(), "running operations are not overtaken");
    harness.done(&write);
    let punch = harness.one();
    let read = harness.read(0, 10);
    harness.write(5, 10);
    assert!(harness.take().is_empty(), "alone");
    harness.done(&punch);
    assert!(
        matches!(harness.one(), Action::Object(ObjectAction::Read { .. })),
        "readers need not wait for records"
    );
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    let changes: Vec<Change<'_>> = harness
        .outcomes()
        .iter()
        .map(|outcome| match outcome {
            Outcome::Changed { change, .. } => change.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    let Change::Contents(ContentsChange::Allocate { write_time_ns, .. }) = changes[1] else {
        panic!("{changes:?}")
    };
    assert_eq!(changes[0], written(0, 10, 77, WALL_NS));
    assert!(write_time_ns > WALL_NS, "later than the write before it");
    assert!(harness.take().is_empty(), "its record is not durable");
    harness.with(|shards, turn| shards.on_logged(turn, FILE));
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Write { object_offset: 5, .. })));
    let _ = read;
}

#[test]
fn an_allocation_that_failed_half_way_leaves_no_size() {
    let mut harness = Harness::with_file(100);
    let token = harness.allocate((50, 1000), Allocation::Reserve, false);
    let allocate = harness.one();
    harness.fail(&allocate, 28);
    assert_eq!(harness.outcomes(), [refused(token, Status::NoSpace)]);
    harness.read(0, 1000);
    harness.stat(Some(700));
    let cut = harness.one();
    assert!(
        matches!(cut, Action::Object(ObjectAction::Truncate { size_bytes: 100, .. })),
        "{cut:?}"
    );
    harness.cut_done(&cut);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Read { read_bytes: 100, .. })));
}

#[test]
fn invalid_allocations_are_refused() {
    let max = i64::MAX.unsigned_abs();
    for (range, allocation, keep_size, status) in [
        ((max - 9, 10), Allocation::Reserve, true, Status::TooLarge),
        ((max, u64::MAX), Allocation::Punch, true, Status::TooLarge),
        ((0, 0), Allocation::Zero, false, Status::Invalid),
        ((0, 10), Allocation::Punch, false, Status::Invalid),
    ] {
        let range = if status == Status::TooLarge { (range.0 + 1, range.1) } else { range };
        let mut harness = Harness::with_file(100);
        let token = harness.allocate(range, allocation, keep_size);
        assert_eq!(harness.outcomes(), [refused(token, status)]);
        assert!(harness.take().is_empty());
    }
}

#[test]
fn seeks_look_in_the_object_and_never_behind_its_end() {
    let mut harness = Harness::with_file(100);
    for offset in [100, 101, u64::MAX] {
        let token = harness.seek(offset, true);
        assert_eq!(harness.outcomes(), [refused(token, Status::NoDevice)]);
    }
    for (hole, found) in [(true, Some(100)), (false, Some(64)), (false, None)] {
        let token = harness.seek(60, hole);
        let seek = harness.one();
        let Action::Object(ObjectAction::Seek { ticket, object_offset: 60, hole: of, .. }) = seek
        else {
            panic!("{seek:?}")
        };
        assert_eq!(of, hole);
        harness.with(|shards, turn| shards.on_sought(turn, ticket, Ok(found)));
        let expected = match found {
            Some(place) => answered(token, Answer::Sought(place)),
            None => refused(token, Status::NoDevice),
        };
        assert_eq!(harness.outcomes(), [expected]);
    }
    assert!(harness.shards.is_idle());
}

/// Another client's unstable write is reported, as in a read.
#[test]
fn a_seek_reports_the_unstable_change_it_shows() {
    let mut harness = Harness::with_file(100);
    harness.write(50, 10);
    let write = harness.one();
    harness.done(&write);
    let Some(Outcome::Written { transno, .. }) = harness.shards.outcome() else {
        panic!("a write")
    };
    let request = Seek { inode: FILE, file_offset: 0, hole: false }.to_bytes();
    let (token, shard) = (Token(99), SHARDS.data_shard(FILE, 0));
    let client = ClientUuid([2; 16]);
    let request = DataRequest {
        token,
        op: Op::Seek,
        shard,
        layout: None,
        body: &request,
        bulk: None,
        client,
        kept: false,
        behind: false,
        is_cut: false,
    };
    harness.with(|shards, turn| shards.submit(turn, &request)).unwrap();
    let seek = ticket(&harness.one());
    harness.with(|shards, turn| shards.on_sought(turn, seek, Ok(Some(0))));
    let result = Ok(Answer::Sought(0));
    assert_eq!(harness.outcomes(), [Outcome::Answered { token, result, shown: transno }]);
}
