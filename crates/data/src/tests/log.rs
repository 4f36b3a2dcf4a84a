//! Small changes that a request waits for: the log takes their bytes.

use super::*;
use disk::LoggedRange;

const LOG_BYTES: u64 = 1 << 20;

impl Harness {
    /// A write in the object that a request waits for.
    fn waited_write(&mut self, offset: u64, write_bytes: u32) -> Token {
        let token = self.write(offset, write_bytes);
        let write = self.one();
        self.done(&write);
        self.shards.request_sync(None);
        token
    }

    fn settle_for(&mut self, log_bytes: u64) {
        self.with(|shards, turn| shards.settle(turn, SumRecording::Quiet, log_bytes));
    }

    /// The ranges that an action loads.
    fn loaded(&self, action: &Action) -> Vec<(u64, u32)> {
        let Action::Object(ObjectAction::Load { ranges, .. }) = *action else {
            panic!("{action:?}")
        };
        let mut from = wire::Reader::new(self.arena.get(ranges));
        let ranges = core::iter::from_fn(|| from.read::<SumRange>().ok());
        ranges.map(|range| (range.object_offset, range.range_bytes)).collect()
    }

    /// Ends a load: of each range this byte, so many times.
    fn load(&mut self, action: &Action, found: &[(u8, usize)]) {
        let Action::Object(ObjectAction::Load { ticket, .. }) = *action else {
            panic!("{action:?}")
        };
        let mut bytes = Vec::new();
        for (byte, count) in found {
            bytes.extend_from_slice(&(*count as u32).to_le_bytes());
            bytes.resize(bytes.len() + count, *byte);
        }
        let span = self.arena.put(&bytes);
        self.with(|shards, turn| shards.on_loaded(turn, ticket, Ok(span)));
    }
}

/// Offsets in an object, and bytes.
type Ranges = Vec<(u64, Vec<u8>)>;

/// The write and the logged ranges of an outcome.
fn recorded(outcome: &Outcome) -> (u64, Option<Ranges>) {
    let Outcome::Changed { change: Change::Contents(change), logged, .. } = outcome else {
        panic!("{outcome:?}")
    };
    let ContentsChange::Write { object_offset, .. } = change else { panic!("{change:?}") };
    let logged = logged.as_ref().map(|logged| {
        let ContentsChange::Logged { ranges, .. } = logged else { panic!("{logged:?}") };
        let owned =
            |LoggedRange { object_offset, bytes }: &LoggedRange| (*object_offset, bytes.clone());
        ranges.iter().map(owned).collect()
    });
    (*object_offset, logged)
}

#[test]
fn a_small_write_is_recorded_with_its_pages_and_without_a_sync() {
    let mut harness = Harness::with_file(5000);
    harness.waited_write(4500, 600);
    harness.settle_for(LOG_BYTES);
    let load = harness.one();
    assert_eq!(harness.loaded(&load), [(4096, 1004)], "whole pages, up to the end");
    assert!(!harness.shards.is_durable());
    harness.load(&load, &[(7, 1004)]);
    let outcomes = harness.outcomes();
    assert_eq!(outcomes.len(), 1);
    assert_eq!(recorded(&outcomes[0]), (4500, Some(vec![(4096, vec![7; 1004])])));
    harness.settle_for(LOG_BYTES);
    assert!(harness.take().is_empty(), "there is nothing to be synced");
    assert!(harness.shards.is_durable());
    assert_eq!(harness.shards.held_bytes, 0);
}

#[test]
fn the_first_record_has_the_bytes_of_all_writes() {
    let mut harness = Harness::with_file(20_000);
    for offset in [9000, 100, 8192] {
        harness.waited_write(offset, 100);
    }
    harness.settle_for(LOG_BYTES);
    let load = harness.one();
    assert_eq!(harness.loaded(&load), [(0, 4096), (8192, 4096)]);
    harness.load(&load, &[(1, 4096), (2, 4096)]);
    let found: Vec<_> = harness.outcomes().iter().map(recorded).collect();
    let all = vec![(0, vec![1; 4096]), (8192, vec![2; 4096])];
    assert_eq!(found, [(9000, Some(all)), (100, Some(vec![])), (8192, Some(vec![]))]);
}

#[test]
fn no_change_begins_while_bytes_are_loaded_for_the_log() {
    let mut harness = Harness::with_file(0);
    harness.waited_write(0, 10);
    harness.settle_for(LOG_BYTES);
    let load = harness.one();
    harness.write(10, 10);
    harness.truncate(3);
    assert!(harness.take().is_empty());
    harness.load(&load, &[(1, 10)]);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Write { .. })));
}

#[test]
fn a_read_begins_while_bytes_are_loaded_for_the_log() {
    let mut harness = Harness::with_file(0);
    harness.waited_write(0, 10);
    harness.settle_for(LOG_BYTES);
    harness.one();
    harness.read(0, 10);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Read { .. })));
}

#[test]
fn an_object_is_synced_if_some_of_its_bytes_are_not_found() {
    for found in [&[(1, 9)][..], &[]] {
        let mut harness = Harness::with_file(0);
        harness.waited_write(0, 10);
        harness.settle_for(LOG_BYTES);
        let load = harness.one();
        harness.load(&load, found);
        assert_eq!(harness.shards.held_bytes, 0);
        let sync = harness.one();
        assert!(matches!(sync, Action::Object(ObjectAction::Sync { .. })));
        harness.done(&sync);
        let outcomes = harness.outcomes();
        assert_eq!(recorded(&outcomes[0]), (0, None));
    }
}

#[test]
fn an_object_is_synced_unless_its_changes_are_few_and_awaited() {
    let synced = |harness: &mut Harness, log_bytes| {
        harness.settle_for(log_bytes);
        matches!(harness.one(), Action::Object(ObjectAction::Sync { .. }))
    };
    let mut harness = Harness::with_file(0);
    harness.waited_write(0, 10);
    assert!(synced(&mut harness, 9), "the log has no space");
    let mut harness = Harness::with_file(0);
    harness.waited_write(0, 65_537);
    assert!(synced(&mut harness, LOG_BYTES), "too many bytes");
    let mut harness = Harness::with_file(1 << 20);
    for page in 0..9 {
        harness.waited_write(page * 8192, 1);
    }
    assert!(synced(&mut harness, LOG_BYTES), "too many ranges");
    let mut harness = Harness::with_file(0);
    harness.write(0, 10);
    let write = harness.one();
    harness.done(&write);
    assert!(synced(&mut harness, LOG_BYTES), "nothing waits for it");
    let mut harness = Harness::with_file(10);
    harness.truncate(5);
    let truncate = harness.one();
    harness.done(&truncate);
    assert!(synced(&mut harness, LOG_BYTES), "a truncation");
    let mut harness = Harness::with_file(0);
    harness.waited_write(0, 10);
    harness.write(20, 10);
    harness.one();
    assert!(synced(&mut harness, LOG_BYTES), "a write is in progress");
}

#[test]
fn an_object_is_synced_after_a_change_that_failed() {
    let mut harness = Harness::with_file(0);
    harness.write(0, 10);
    let write = harness.one();
    harness.fail(&write, 5);
    harness.outcomes();
    harness.glimpse();
    harness.stat(Some(0));
    harness.waited_write(0, 10);
    harness.settle_for(LOG_BYTES);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Sync { .. })));
}
