//! Verified blocks that have left the page cache since.

use super::*;

impl Harness {
    fn of_two_examined_blocks() -> Self {
        let mut harness = Self::of_two_blocks();
        harness.glimpse();
        harness.stat(Some(2 * BLOCK));
        harness.outcomes();
        harness
    }

    /// Expects a request for the checksums of these blocks and completes it.
    fn compared(&mut self, blocks: &[(u64, BlockSum)], from_disk: bool) {
        let action = self.one();
        let sums: Vec<BlockSum> = blocks.iter().map(|(_, sum)| *sum).collect();
        let asked = self.sums_are(&action, &sums, from_disk).into_iter();
        let asked = asked.map(|(object_offset, _)| object_offset / BLOCK);
        assert!(asked.eq(blocks.iter().map(|(block, _)| *block)), "{blocks:?}");
    }

    /// Expects a read, from anywhere or from the page cache only.
    fn reads(&mut self, cached_alone: bool) -> Action {
        let action = self.one();
        let Action::Object(ObjectAction::Read { only_cached, .. }) = action else {
            panic!("{action:?}")
        };
        assert_eq!(only_cached, cached_alone);
        action
    }

    fn answers(&mut self, action: &Action) {
        let Action::Object(ObjectAction::Read { read_bytes, .. }) = *action else {
            panic!("{action:?}")
        };
        let bulk = self.bulk(read_bytes);
        self.on_read(action, Some(bulk));
    }

    fn misses(&mut self, action: &Action) {
        let Action::Object(ObjectAction::Read { ticket, .. }) = *action else {
            panic!("{action:?}")
        };
        self.with(|shards, turn| shards.on_uncached(turn, ticket));
    }

    /// Both blocks were verified and read.
    fn with_both_read() -> Self {
        let mut harness = Self::of_two_examined_blocks();
        harness.read(0, 2 * BLOCK_BYTES);
        harness.compared(&[(0, SUMS[0]), (1, SUMS[1])], true);
        let read = harness.reads(false);
        harness.answers(&read);
        assert_eq!(harness.outcomes().len(), 1);
        harness
    }
}

#[test]
fn a_block_that_left_the_page_cache_is_compared_again_before_it_is_read() {
    let mut harness = Harness::with_both_read();
    let token = harness.read(0, 20);
    let read = harness.reads(true);
    harness.misses(&read);
    let changed = BlockSum { crc32c: 9, ..SUMS[0] };
    harness.compared(&[(0, changed)], true);
    let outcomes = harness.outcomes();
    let failed = Outcome::Answered { token, result: Err(Status::Io), shown: Transno(0) };
    assert!(matches!(outcomes[0], Outcome::Damaged { file_offset: 0, .. }), "{outcomes:?}");
    assert_eq!(outcomes[1..], [failed]);
    assert!(harness.take().is_empty() && harness.shards.is_idle());
}

#[test]
fn cached_blocks_are_read_without_another_comparison() {
    let mut harness = Harness::with_both_read();
    for _ in 0..2 {
        harness.read(BLOCK, 20);
        let read = harness.reads(true);
        harness.answers(&read);
        assert_eq!(harness.outcomes().len(), 1);
    }
}

/// The kernel reads ahead.
#[test]
fn when_a_block_has_left_the_page_cache_none_of_the_object_is_taken_for_verified() {
    let mut harness = Harness::with_both_read();
    harness.read(0, 20);
    let read = harness.reads(true);
    harness.misses(&read);
    harness.compared(&[(0, SUMS[0])], true);
    let read = harness.reads(false);
    harness.answers(&read);
    harness.outcomes();
    harness.read(BLOCK, 20);
    harness.compared(&[(1, SUMS[1])], false);
    harness.reads(false);
}

#[test]
fn a_read_that_needs_one_block_compared_has_all_its_blocks_compared() {
    let mut harness = Harness::of_two_examined_blocks();
    harness.read(0, 20);
    harness.compared(&[(0, SUMS[0])], false);
    let read = harness.reads(false);
    harness.answers(&read);
    harness.outcomes();
    harness.read(BLOCK - 10, 20);
    harness.compared(&[(0, SUMS[0]), (1, SUMS[1])], false);
    harness.reads(false);
}

#[test]
fn a_comparison_that_came_from_the_disk_leaves_its_own_blocks_verified_alone() {
    for from_disk in [false, true] {
        let mut harness = Harness::of_two_examined_blocks();
        for block in [0, 1] {
            harness.read(block * BLOCK, 20);
            let index = usize::try_from(block).unwrap();
            harness.compared(&[(block, SUMS[index])], from_disk);
            let read = harness.reads(false);
            harness.answers(&read);
        }
        harness.outcomes();
        harness.read(BLOCK, 20);
        let read = harness.reads(true);
        harness.answers(&read);
        harness.read(0, 20);
        if from_disk {
            harness.compared(&[(0, SUMS[0])], false);
        }
        harness.reads(!from_disk);
    }
}

/// It may have returned bytes that another read has just brought from the disk.
#[test]
fn a_cached_read_begins_again_after_a_concurrent_miss() {
    let mut harness = Harness::with_both_read();
    harness.read(0, 20);
    let first = harness.reads(true);
    harness.read(BLOCK, 20);
    let second = harness.reads(true);
    harness.misses(&second);
    harness.compared(&[(1, SUMS[1])], true);
    let cached = harness.reads(false);
    harness.answers(&cached);
    harness.outcomes();
    harness.answers(&first);
    assert!(matches!(
        harness.take()[..],
        [Action::Release { .. }, Action::Object(ObjectAction::Sums { .. })]
    ));
}

#[test]
fn after_ten_minutes_a_block_is_compared_again_wherever_it_is() {
    let mut harness = Harness::with_both_read();
    harness.now.mono = harness.now.mono.after_ms(599_000);
    harness.read(0, 20);
    let read = harness.reads(true);
    harness.answers(&read);
    harness.now.mono = harness.now.mono.after_ms(1_000);
    harness.read(0, 20);
    harness.compared(&[(0, SUMS[0])], false);
    harness.reads(false);
}

#[test]
fn a_list_whose_bytes_left_the_page_cache_has_its_blocks_compared_again() {
    let mut harness = Harness::with_both_read();
    let token = harness.read_list(&[(0, 10), (BLOCK, 10)]);
    let action = harness.one();
    let Action::Object(ObjectAction::ReadList { ticket, only_cached: true, .. }) = action else {
        panic!("{action:?}")
    };
    harness.with(|shards, turn| shards.on_uncached(turn, ticket));
    harness.compared(&[(0, SUMS[0]), (1, BlockSum { crc32c: 9, ..SUMS[1] })], true);
    let failed = Outcome::Answered { token, result: Err(Status::Io), shown: Transno(0) };
    assert!(harness.outcomes().contains(&failed));
}

#[test]
fn a_block_that_is_appended_to_while_it_is_compared_is_compared_again() {
    let first = BlockSum { crc32c: 1, covered_bytes: 100 };
    let sums = BlockSums(Vec::from([first]));
    let known = ContentsChange::Sums { inode: FILE, first_block: 0, sums };
    let mut harness = Harness::new(&[(FILE, truncated(100, 5)), (FILE, Change::Contents(known))]);
    harness.glimpse();
    harness.stat(Some(100));
    harness.append(5);
    let append = harness.one();
    harness.done(&append);
    harness.settle();
    let sync = harness.one();
    harness.read(0, 20);
    let asked = harness.one();
    harness.done(&sync);
    harness.outcomes();
    harness.actions.push(asked);
    harness.compared(&[(0, BlockSum { crc32c: 9, ..first })], true);
    let crc32c = wire::crc32c_combined(1, 77, 5);
    harness.compared(&[(0, BlockSum { crc32c, covered_bytes: 105 })], false);
    harness.reads(false);
}
