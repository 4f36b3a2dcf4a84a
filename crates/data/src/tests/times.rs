//! Times of changes: they come from the records, never from the object's file.

use super::*;

const THEN_NS: u64 = WALL_NS - 1_000_000_000;

impl Harness {
    /// The time of a glimpse of an object of this size.
    fn reported_time(&mut self, size_bytes: u64) -> Option<Timestamp> {
        let token = self.glimpse();
        if !self.actions.is_empty() {
            self.stat(Some(size_bytes));
        }
        let outcomes = self.outcomes();
        let [Outcome::Answered { token: of, result: Ok(Answer::Glimpsed(contents)), .. }] =
            outcomes[..]
        else {
            panic!("{outcomes:?}")
        };
        assert_eq!((of, contents.size_bytes), (token, size_bytes));
        contents.write_time
    }

    /// Other objects evict the file from the cache.
    fn forget(&mut self) {
        for inode in [InodeNo(8), InodeNo(9), InodeNo(10)] {
            let body = Glimpse { inode }.to_bytes();
            self.try_ask(Op::Glimpse, SHARDS.data_shard(inode, 0), &body, None).unwrap();
            self.stat(None);
        }
        self.outcomes();
        assert!(!self.shards.objects.contains_key(&FILE));
    }
}

fn then(ns: u64) -> Option<Timestamp> {
    Some(Timestamp::from_ns(ns))
}

#[test]
fn after_a_start_the_time_is_that_of_the_last_record() {
    let truncate = truncated(50, 9);
    for (recorded, size_bytes, time_ns) in [
        (vec![(FILE, written(0, 100, 0, 7))], 100, 7),
        (vec![(FILE, written(0, 100, 0, 7)), (FILE, truncate.clone())], 50, 9),
        (vec![(FILE, truncate), (FILE, written(0, 5, 0, 8))], 50, 9),
    ] {
        let mut harness = Harness::new(&recorded);
        assert_eq!(harness.reported_time(size_bytes), then(time_ns));
        let mut harness = Harness::new(&recorded);
        let token = harness.glimpse();
        harness.stat(Some(size_bytes + 10));
        let cut = harness.one();
        harness.cut_done(&cut);
        harness.stat(Some(size_bytes));
        let contents = Contents { size_bytes, allocated_bytes: 4096, write_time: then(time_ns) };
        assert_eq!(harness.outcomes(), [answered(token, Answer::Glimpsed(contents))], "cut");
    }
}

#[test]
fn an_object_evicted_from_the_cache_keeps_its_time() {
    let mut harness = Harness::sized(&[(FILE, written(0, 10, 0, THEN_NS))], 1);
    assert_eq!(harness.reported_time(10), then(THEN_NS));
    harness.forget();
    assert_eq!(harness.reported_time(10), then(THEN_NS));
    harness.write(0, 10);
    harness.finish();
    harness.shards.on_durable(SHARDS.data_shard(FILE, 0), Transno(u64::MAX));
    harness.forget();
    harness.now.wall_ns += 1000;
    assert_eq!(harness.reported_time(10), then(WALL_NS));
}

/// A replay keeps its original time and is recorded with it; the next start has it too.
#[test]
fn a_lost_write_is_replayed_with_its_time() {
    let mut harness = Harness::new(&[]);
    let bulk = harness.bulk(3);
    let Change::Contents(change) = written(0, 3, 77, THEN_NS) else { panic!("a write") };
    let (token, transno) = (Token(9), Transno(9));
    let lost = LostWrite { token, transno, change, bulk, client: CLIENT };
    harness.with(|shards, turn| shards.replay(turn, lost));
    harness.stat(None);
    let Outcome::Changed { change, .. } = harness.finish() else { panic!("recorded") };
    assert_eq!(change, written(0, 3, 77, THEN_NS));
    assert_eq!(harness.reported_time(3), then(THEN_NS));
    let mut harness = Harness::new(&[(FILE, change)]);
    assert_eq!(harness.reported_time(3), then(THEN_NS));
}

#[test]
fn a_recorded_size_keeps_the_time() {
    let mut harness = Harness::new(&[(FILE, written(0, 100, 0, THEN_NS))]);
    harness.glimpse();
    harness.stat(Some(60));
    let without_access = harness.outcomes();
    let change = truncated(60, THEN_NS);
    assert!(
        without_access
            .iter()
            .any(|it| matches!(it, Outcome::Record { change: found, .. } if *found == change)),
        "{without_access:?}"
    );
}

/// Two changes in one clock tick get different times.
#[test]
fn every_change_has_a_later_time_and_is_recorded_with_it() {
    let mut harness = Harness::with_file(100);
    for number in 0..3 {
        harness.write(0, 1);
        let Outcome::Changed { change, .. } = harness.finish() else { panic!("recorded") };
        assert_eq!(change, written(0, 1, 77, WALL_NS + number));
    }
    harness.truncate(0);
    let Outcome::Changed { change, .. } = harness.finish() else { panic!("recorded") };
    assert_eq!(change, truncated(0, WALL_NS + 3));
    harness.with(|shards, turn| shards.on_logged(turn, FILE));
    harness.truncate(0);
    let Outcome::Changed { change, .. } = harness.finish() else {
        panic!("also nothing to nothing")
    };
    assert_eq!(change, truncated(0, WALL_NS + 4));
}
