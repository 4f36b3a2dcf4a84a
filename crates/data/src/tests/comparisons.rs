//! Reads whose blocks are being verified, and the changes that remove the checksums of those
//! blocks: damaged bytes must never be returned as good because their checksum was removed.

use super::*;

const DAMAGED: BlockSum = BlockSum { crc32c: 9, covered_bytes: BLOCK_BYTES };

impl Harness {
    /// An examined file of two unverified blocks whose first region has no checksums in its rows,
    /// so that a write begins without a record.
    fn with_an_open_region() -> Self {
        let mut harness = Self::of_two_blocks();
        harness.write(BLOCK, BLOCK_BYTES);
        harness.stat(Some(2 * BLOCK));
        assert_eq!(harness.log_intents(), 1);
        let write = harness.one();
        harness.done(&write);
        harness.holds_intents = true;
        harness
    }

    /// The first block is compared and read: it counts as verified.
    fn verify(&mut self) -> Token {
        let (token, comparison) = (self.read(0, 20), self.one());
        self.sums_are(&comparison, &[SUMS[0]], true);
        let (read, bulk) = (self.one(), self.bulk(20));
        self.on_read(&read, Some(bulk));
        token
    }

    fn is_refused(&mut self, token: Token) -> bool {
        self.outcomes().contains(&refused(token, Status::Io))
    }
}

fn is_read(action: &Action) -> bool {
    matches!(action, Action::Object(ObjectAction::Read { .. }))
}

fn is_write(action: &Action) -> bool {
    matches!(action, Action::Object(ObjectAction::Write { .. }))
}

#[test]
fn a_write_waits_for_a_read_that_compares_the_checksum_it_removes() {
    for is_damaged in [true, false] {
        let mut harness = Harness::with_an_open_region();
        let token = harness.read(0, 20);
        let comparison = harness.one();
        harness.write(0, BLOCK_BYTES);
        assert!(harness.take().is_empty(), "the write waits");
        let found = if is_damaged { DAMAGED } else { SUMS[0] };
        harness.sums_are(&comparison, &[found], true);
        assert_eq!(harness.is_refused(token), is_damaged);
        let began = harness.take();
        assert_eq!(began.iter().any(is_read), !is_damaged, "{began:?}");
        assert!(began.iter().any(is_write), "{began:?}");
    }
}

#[test]
fn a_write_beside_the_compared_blocks_does_not_wait() {
    let mut harness = Harness::with_an_open_region();
    harness.read(0, 20);
    harness.one();
    harness.write(BLOCK, BLOCK_BYTES);
    assert!(is_write(&harness.one()));
}

#[test]
fn a_read_waits_for_a_write_that_removed_the_checksum_of_its_bytes() {
    let mut harness = Harness::with_an_open_region();
    harness.write(0, BLOCK_BYTES);
    let write = harness.one();
    harness.read(10, 20);
    assert!(harness.take().is_empty(), "the read waits");
    harness.done(&write);
    assert!(is_read(&harness.one()));
}

/// Its blocks were verified when it began, and are not any more.
#[test]
fn a_cached_read_that_begins_again_waits_for_a_write_of_its_bytes() {
    let mut harness = Harness::with_an_open_region();
    harness.verify();
    harness.read(0, 20);
    let cached = harness.one();
    harness.write(0, BLOCK_BYTES);
    let write = harness.one();
    let missed = ticket(&cached);
    harness.with(|shards, turn| shards.on_uncached(turn, missed));
    assert!(harness.take().is_empty(), "the read waits");
    harness.done(&write);
    assert!(is_read(&harness.one()));
}

#[test]
fn a_truncation_keeps_the_checksums_that_a_read_before_it_compares() {
    for is_damaged in [true, false] {
        let mut harness = Harness::with_an_open_region();
        let token = harness.read(0, 20);
        let comparison = harness.one();
        harness.truncate(0);
        assert!(harness.take().is_empty() && harness.outcomes().is_empty(), "it waits");
        let found = if is_damaged { DAMAGED } else { SUMS[0] };
        harness.sums_are(&comparison, &[found], true);
        if is_damaged {
            assert!(harness.is_refused(token));
        } else {
            let read = harness.one();
            let bulk = harness.bulk(20);
            harness.on_read(&read, Some(bulk));
            harness.outcomes();
        }
    }
}

#[test]
fn a_truncation_keeps_the_checksums_of_a_read_that_misses_the_page_cache() {
    let mut harness = Harness::with_an_open_region();
    harness.verify();
    harness.outcomes();
    let token = harness.read(0, 20);
    let cached = ticket(&harness.one());
    harness.truncate(0);
    harness.with(|shards, turn| shards.on_uncached(turn, cached));
    let comparison = harness.one();
    harness.sums_are(&comparison, &[DAMAGED], true);
    assert!(harness.is_refused(token));
}

/// The read stands before the write in the queue meanwhile.
#[test]
fn a_damaged_block_fails_the_write_that_changes_a_part_of_it_and_not_a_read_that_waits() {
    let mut harness = Harness::with_an_open_region();
    let read_token = harness.verify();
    assert!(!harness.is_refused(read_token));
    let read_token = harness.read(0, 20);
    let cached = ticket(&harness.one());
    harness.read(BLOCK, 20);
    harness.now.mono = harness.now.mono.after_ms(600_000);
    let write_token = harness.write(0, 10);
    let actions = harness.take();
    let is_comparison =
        |action: &&Action| matches!(action, Action::Object(ObjectAction::Sums { .. }));
    let comparison = *actions.iter().find(is_comparison).unwrap();
    harness.with(|shards, turn| shards.on_uncached(turn, cached));
    harness.sums_are(&comparison, &[DAMAGED], true);
    let outcomes = harness.outcomes();
    assert!(outcomes.contains(&refused(write_token, Status::Io)), "{outcomes:?}");
    assert!(!outcomes.contains(&refused(read_token, Status::Io)), "{outcomes:?}");
    let comparison = harness.one();
    harness.sums_are(&comparison, &[DAMAGED], true);
    assert!(harness.is_refused(read_token));
}
