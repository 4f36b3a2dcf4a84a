//! Checksums of blocks: when they are recorded, removed and verified.

use super::*;
use crate::Damage;

fn sum(crc32c: u32, covered_bytes: u32) -> BlockSum {
    BlockSum { crc32c, covered_bytes }
}

fn sums(first_block: u64, sums: &[BlockSum]) -> ContentsChange {
    ContentsChange::Sums { inode: FILE, first_block, sums: BlockSums(sums.into()) }
}

impl Harness {
    /// A file of two blocks, the second of 100 bytes, with checksums of an earlier boot.
    fn with_sums() -> Self {
        let known = sums(0, &[sum(1, BLOCK_BYTES), sum(2, 100)]);
        let recorded = [(FILE, truncated(BLOCK + 100, 5)), (FILE, Change::Contents(known))];
        let mut harness = Self::new(&recorded);
        harness.holds_intents = true;
        harness
    }

    fn summed(&mut self, found: &[BlockSum]) -> Vec<(u64, u32)> {
        let action = self.one();
        self.sums_are(&action, found, false)
    }

    /// The checksums recorded with a synced change.
    fn bound(&mut self) -> Option<ContentsChange> {
        match self.finish() {
            Outcome::Changed { sums, .. } => sums,
            other => panic!("{other:?}"),
        }
    }

    fn records(&mut self) -> Vec<ContentsChange> {
        let records = self.outcomes().into_iter().map(|outcome| match outcome {
            Outcome::Record { change: Change::Contents(change), .. } => change,
            other => panic!("{other:?}"),
        });
        records.collect()
    }
}

#[test]
fn a_write_from_a_blocks_beginning_and_what_is_appended_is_recorded_with_its_checksum() {
    let mut harness = Harness::new(&[]);
    harness.shards.made(FILE);
    harness.write(0, 10);
    assert_eq!(harness.bound(), Some(sums(0, &[sum(77, 10)])));
    harness.append(5);
    let both = wire::crc32c_combined(77, 77, 5);
    assert_eq!(harness.bound(), Some(sums(0, &[sum(both, 15)])));
}

#[test]
fn a_checksum_is_recorded_with_the_last_write_that_it_covers() {
    let mut harness = Harness::new(&[]);
    harness.shards.made(FILE);
    for _ in 0..2 {
        harness.append(10);
        let write = harness.one();
        harness.done(&write);
    }
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    let recorded = harness.outcomes().into_iter().map(|outcome| match outcome {
        Outcome::Changed { sums, .. } => sums,
        other => panic!("{other:?}"),
    });
    let both = sums(0, &[sum(wire::crc32c_combined(77, 77, 10), 20)]);
    assert_eq!(recorded.collect::<Vec<_>>(), [None, Some(both)]);
}

#[test]
fn overwriting_an_unrecorded_write_leaves_the_block_without_a_checksum() {
    let mut harness = Harness::new(&[]);
    harness.shards.made(FILE);
    harness.write(0, 10);
    let first = harness.one();
    harness.done(&first);
    harness.write(5, 10);
    assert_eq!(harness.bound_after(1), [None, None], "of both nothing is known");
}

impl Harness {
    fn bound_after(&mut self, count: usize) -> Vec<Option<ContentsChange>> {
        let writes = self.take();
        let writes: Vec<Action> = writes
            .into_iter()
            .filter(|action| matches!(action, Action::Object(ObjectAction::Write { .. })))
            .collect();
        assert_eq!(writes.len(), count);
        writes.iter().for_each(|write| self.done(write));
        self.settle();
        let sync = self.one();
        self.done(&sync);
        let outcomes = self.outcomes().into_iter().map(|outcome| match outcome {
            Outcome::Changed { sums, .. } => sums,
            other => panic!("{other:?}"),
        });
        outcomes.collect()
    }
}

#[test]
fn writes_that_run_side_by_side_over_one_byte_give_no_checksum() {
    let mut harness = Harness::new(&[]);
    harness.shards.made(FILE);
    harness.write(0, 10);
    harness.write(5, 10);
    assert_eq!(harness.bound_after(2), [None, None]);
}

#[test]
fn checksums_are_taken_away_durably_before_a_covered_byte_is_overwritten() {
    let mut harness = Harness::with_sums();
    harness.write(0, BLOCK_BYTES);
    let found = BLOCK + 100;
    harness.stat(Some(found));
    assert!(harness.take().is_empty(), "not written");
    let removed = ContentsChange::SumsRemoved { inode: FILE, from_block: 0, until_block: 1024 };
    assert_eq!(harness.records(), [removed]);
    harness.with(|shards, turn| shards.on_logged(turn, FILE));
    assert_eq!(harness.bound(), None, "not while the region is open");
    harness.write(0, BLOCK_BYTES);
    assert!(
        matches!(harness.take()[0], Action::Object(ObjectAction::Write { .. })),
        "once for a region"
    );
}

#[test]
fn an_append_takes_no_checksum_away() {
    let mut harness = Harness::with_sums();
    harness.append(5);
    let found = BLOCK + 100;
    harness.stat(Some(found));
    let longer = sum(wire::crc32c_combined(2, 77, 5), 105);
    assert_eq!(harness.bound(), Some(sums(1, &[longer])));
}

/// The block's prefix was not verified, only extended.
#[test]
fn a_block_that_was_appended_to_is_compared_before_it_is_read() {
    let mut harness = Harness::with_sums();
    harness.append(5);
    harness.stat(Some(BLOCK + 100));
    harness.bound();
    harness.read(BLOCK, 20);
    let longer = sum(wire::crc32c_combined(2, 77, 5), 105);
    assert_eq!(harness.summed(&[longer]), [(BLOCK, 105)]);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Read { .. })));
}

#[test]
fn a_block_of_which_a_part_is_overwritten_is_compared_first() {
    let found = BLOCK + 100;
    for is_same in [true, false] {
        let mut harness = Harness::with_sums();
        let token = harness.write(7, 10);
        harness.stat(Some(found));
        let crc32c = if is_same { 1 } else { 9 };
        assert_eq!(harness.summed(&[sum(crc32c, BLOCK_BYTES)]), [(0, BLOCK_BYTES)]);
        let outcomes = harness.outcomes();
        if is_same {
            assert!(matches!(outcomes[..], [Outcome::Record { .. }]), "{outcomes:?}");
            continue;
        }
        let refused = Outcome::Answered { token, result: Err(Status::Io), shown: Transno(0) };
        assert!(outcomes.contains(&refused), "{outcomes:?}");
        assert!(harness.take().iter().all(|action| matches!(action, Action::Release { .. })));
    }
}

#[test]
fn a_truncation_takes_the_checksums_behind_it_away_first() {
    let mut harness = Harness::with_sums();
    harness.truncate(BLOCK);
    harness.stat(Some(BLOCK + 100));
    assert!(harness.take().is_empty(), "not cut");
    let [ContentsChange::SumsRemoved { from_block: 1, until_block, .. }] = harness.records()[..]
    else {
        panic!("the second block's")
    };
    assert!(until_block > 1 << 40, "to the end: {until_block}");
    harness.with(|shards, turn| shards.on_logged(turn, FILE));
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Truncate { .. })));
}

#[test]
fn touched_blocks_get_checksums_when_the_object_is_quiet() {
    let mut harness = Harness::with_sums();
    harness.write(0, BLOCK_BYTES);
    harness.stat(Some(BLOCK + 100));
    assert_eq!(harness.log_intents(), 1);
    harness.finish();
    harness.settle();
    let shard = SHARDS.data_shard(FILE, 0);
    let last = harness.shards.transno_last(shard);
    harness.shards.on_durable(shard, last);
    assert!(harness.take().is_empty(), "it was written a moment ago");
    harness.now.mono = harness.now.mono.after_ms(7_000);
    harness.settle();
    assert_eq!(harness.summed(&[sum(8, BLOCK_BYTES)]), [(0, BLOCK_BYTES)]);
    let all = sums(0, &[sum(8, BLOCK_BYTES), sum(2, 100)]);
    assert_eq!(harness.records(), [all], "with the earlier checksums of the region");
    harness.now.mono = harness.now.mono.after_ms(7_000);
    harness.settle();
    assert!(harness.take().is_empty() && harness.shards.is_idle());
}

/// Only bytes behind the prefix were written, out of order.
#[test]
fn covered_bytes_are_verified_before_a_block_gets_another_checksum() {
    for is_same in [true, false] {
        let mut harness = Harness::with_sums();
        harness.write(BLOCK + 110, 10);
        harness.stat(Some(BLOCK + 100));
        harness.finish();
        let shard = SHARDS.data_shard(FILE, 0);
        let last = harness.shards.transno_last(shard);
        harness.shards.on_durable(shard, last);
        harness.settle();
        harness.now.mono = harness.now.mono.after_ms(7_000);
        harness.settle();
        let had = sum(if is_same { 2 } else { 3 }, 100);
        let ranges = harness.summed(&[sum(8, 120), had]);
        assert_eq!(ranges, [(BLOCK, 120), (BLOCK, 100)]);
        let outcomes = harness.outcomes();
        let damaged = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Damaged { .. }));
        assert_eq!(damaged, !is_same, "{outcomes:?}");
        let renewed = Change::Contents(sums(1, &[sum(8, 120)]));
        let recorded = outcomes
            .iter()
            .any(|outcome| matches!(outcome, Outcome::Record { change, .. } if *change == renewed));
        assert_eq!(recorded, is_same, "{outcomes:?}");
    }
}

#[test]
fn a_block_written_during_summing_gets_no_checksum_from_it() {
    let mut harness = Harness::with_sums();
    harness.write(0, BLOCK_BYTES);
    harness.stat(Some(BLOCK + 100));
    assert_eq!(harness.log_intents(), 1);
    harness.finish();
    let shard = SHARDS.data_shard(FILE, 0);
    let last = harness.shards.transno_last(shard);
    harness.shards.on_durable(shard, last);
    harness.settle();
    harness.now.mono = harness.now.mono.after_ms(7_000);
    harness.settle();
    let asked = harness.one();
    harness.write(3, 4);
    let write = harness.one();
    harness.actions.push(asked);
    harness.summed(&[sum(8, BLOCK_BYTES)]);
    assert!(harness.outcomes().is_empty(), "nothing is recorded");
    harness.done(&write);
}

#[test]
fn a_block_is_compared_before_it_is_read_for_the_first_time() {
    let mut harness = Harness::with_sums();
    harness.read(BLOCK - 10, 20);
    harness.stat(Some(BLOCK + 100));
    let both = [sum(1, BLOCK_BYTES), sum(2, 100)];
    assert_eq!(harness.summed(&both), [(0, BLOCK_BYTES), (BLOCK, 100)]);
    for _ in 0..2 {
        let action = harness.one();
        assert!(matches!(action, Action::Object(ObjectAction::Read { .. })), "{action:?}");
        let bulk = harness.bulk(20);
        harness.on_read(&action, Some(bulk));
        assert_eq!(harness.outcomes().len(), 1);
        harness.read(BLOCK - 10, 20);
    }
}

#[test]
fn a_block_that_was_changed_gives_eio_and_is_reported_once_a_minute() {
    let mut harness = Harness::with_sums();
    let mut reports = Vec::new();
    for round in 0..3 {
        let token = harness.read(0, 20);
        if round == 0 {
            harness.stat(Some(BLOCK + 100));
        }
        harness.summed(&[sum(3, BLOCK_BYTES)]);
        let outcomes = harness.outcomes();
        let [Outcome::Damaged { file_offset: 0, damage, is_new, .. }, answer] = &outcomes[..]
        else {
            panic!("{outcomes:?}")
        };
        assert_eq!(*damage, Damage::Changed { expected: 1, found: 3 });
        let failed = Outcome::Answered { token, result: Err(Status::Io), shown: Transno(0) };
        assert_eq!(*answer, failed);
        reports.push(*is_new);
        harness.now.mono = harness.now.mono.after_ms(35_000);
    }
    assert_eq!(reports, [true, false, true]);
}

#[test]
fn a_file_that_is_missing_keeps_its_size_and_cannot_be_read() {
    for found in [None, Some(70)] {
        let mut harness = Harness::with_sums();
        harness.glimpse();
        harness.stat(found);
        let outcomes = harness.outcomes();
        let damage = match found {
            None => Damage::Missing,
            Some(_) => Damage::Short { found_bytes: 70 },
        };
        assert!(
            matches!(outcomes[0], Outcome::Damaged { damage: reported, .. } if reported == damage),
            "{outcomes:?}"
        );
        let Outcome::Answered { result: Ok(Answer::Glimpsed(contents)), .. } = outcomes[1] else {
            panic!("{outcomes:?}")
        };
        assert_eq!(contents.size_bytes, BLOCK + 100);
        let token = harness.read(BLOCK, 20);
        harness.summed(&[BlockSum::NONE]);
        let failed = Outcome::Answered { token, result: Err(Status::Io), shown: Transno(0) };
        assert!(harness.outcomes().contains(&failed));
    }
}

#[test]
fn a_file_that_was_cut_before_that_was_recorded_is_only_shorter() {
    let removed = ContentsChange::SumsRemoved { inode: FILE, from_block: 0, until_block: u64::MAX };
    let known = sums(0, &[sum(1, BLOCK_BYTES), sum(2, 100)]);
    let mut harness = Harness::new(&[
        (FILE, truncated(BLOCK + 100, 5)),
        (FILE, Change::Contents(known)),
        (FILE, Change::Contents(removed)),
    ]);
    harness.glimpse();
    harness.stat(Some(70));
    let outcomes = harness.outcomes();
    let no_damage = outcomes.iter().all(|outcome| !matches!(outcome, Outcome::Damaged { .. }));
    assert!(no_damage, "{outcomes:?}");
}
