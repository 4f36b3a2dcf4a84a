//! Blocks that were compared and have left the page cache since.

use super::*;
use disk::{BLOCK_BYTES, BlockSum, BlockSums};
use wire::Wire as _;

const BLOCK: u64 = BLOCK_BYTES as u64;
const SUMS: [BlockSum; 2] = [
    BlockSum { crc32c: 1, covered_bytes: BLOCK_BYTES },
    BlockSum { crc32c: 2, covered_bytes: BLOCK_BYTES },
];

impl World {
    /// A file of two blocks whose checksums are those of an earlier boot, and that was looked at.
    fn of_two_blocks() -> Self {
        let sums = BlockSums(SUMS.into());
        let known = ContentsChange::Sums { inode: FILE, first_block: 0, sums };
        let mut world =
            Self::new(&[(FILE, truncated(2 * BLOCK, 5)), (FILE, Change::Contents(known))]);
        world.glimpse();
        world.stat(Some(2 * BLOCK));
        world.outcomes();
        world
    }

    /// The checksums of these blocks were asked for, and they are these.
    fn compared(&mut self, blocks: &[(u64, BlockSum)], from_disk: bool) {
        let Action::Object(ObjectAction::Sums { ticket, ranges, .. }) = self.one() else {
            panic!("no checksums")
        };
        let mut from = wire::Reader::new(self.arena.get(ranges));
        let asked: Vec<interface::SumRange> = core::iter::from_fn(|| from.read().ok()).collect();
        let asked: Vec<u64> = asked.iter().map(|range| range.object_offset / BLOCK).collect();
        assert_eq!(asked, blocks.iter().map(|(block, _)| *block).collect::<Vec<_>>());
        let bytes: Vec<u8> = blocks.iter().flat_map(|(_, sum)| sum.to_bytes()).collect();
        let span = self.arena.put(&bytes);
        self.with(|shards, turn| shards.on_sums(turn, ticket, (Ok(span), from_disk)));
    }

    /// The object is read, wherever its bytes are or from the page cache alone.
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

    /// Both blocks are compared and read.
    fn with_both_read() -> Self {
        let mut world = Self::of_two_blocks();
        world.read(0, 2 * BLOCK_BYTES);
        world.compared(&[(0, SUMS[0]), (1, SUMS[1])], true);
        let read = world.reads(false);
        world.answers(&read);
        assert_eq!(world.outcomes().len(), 1);
        world
    }
}

#[test]
fn a_block_that_left_the_page_cache_is_compared_again_before_it_is_read() {
    let mut world = World::with_both_read();
    let token = world.read(0, 20);
    let read = world.reads(true);
    world.misses(&read);
    let changed = BlockSum { crc32c: 9, ..SUMS[0] };
    world.compared(&[(0, changed)], true);
    let outcomes = world.outcomes();
    let failed = Outcome::Answered { token, result: Err(Status::Io), shown: Transno(0) };
    assert!(matches!(outcomes[0], Outcome::Damaged { object_offset: 0, .. }), "{outcomes:?}");
    assert_eq!(outcomes[1..], [failed]);
    assert!(world.take().is_empty() && world.shards.is_idle());
}

#[test]
fn what_is_in_the_page_cache_is_read_without_being_compared_again() {
    let mut world = World::with_both_read();
    for _ in 0..2 {
        world.read(BLOCK, 20);
        let read = world.reads(true);
        world.answers(&read);
        assert_eq!(world.outcomes().len(), 1);
    }
}

/// The kernel reads around what it is asked for.
#[test]
fn when_a_block_has_left_the_page_cache_none_of_the_object_is_taken_for_verified() {
    let mut world = World::with_both_read();
    world.read(0, 20);
    let read = world.reads(true);
    world.misses(&read);
    world.compared(&[(0, SUMS[0])], true);
    let read = world.reads(false);
    world.answers(&read);
    world.outcomes();
    world.read(BLOCK, 20);
    world.compared(&[(1, SUMS[1])], false);
    world.reads(false);
}

#[test]
fn a_read_that_needs_one_block_compared_has_all_its_blocks_compared() {
    let mut world = World::of_two_blocks();
    world.read(0, 20);
    world.compared(&[(0, SUMS[0])], false);
    let read = world.reads(false);
    world.answers(&read);
    world.outcomes();
    world.read(BLOCK - 10, 20);
    world.compared(&[(0, SUMS[0]), (1, SUMS[1])], false);
    world.reads(false);
}

#[test]
fn a_comparison_that_came_from_the_disk_leaves_its_own_blocks_verified_alone() {
    for from_disk in [false, true] {
        let mut world = World::of_two_blocks();
        for block in [0, 1] {
            world.read(block * BLOCK, 20);
            let index = usize::try_from(block).unwrap();
            world.compared(&[(block, SUMS[index])], from_disk);
            let read = world.reads(false);
            world.answers(&read);
        }
        world.outcomes();
        world.read(BLOCK, 20);
        let read = world.reads(true);
        world.answers(&read);
        world.read(0, 20);
        if from_disk {
            world.compared(&[(0, SUMS[0])], false);
        }
        world.reads(!from_disk);
    }
}

/// It may have found what another read has just brought from the disk.
#[test]
fn a_read_from_the_page_cache_that_another_one_missed_meanwhile_begins_again() {
    let mut world = World::with_both_read();
    world.read(0, 20);
    let first = world.reads(true);
    world.read(BLOCK, 20);
    let second = world.reads(true);
    world.misses(&second);
    world.compared(&[(1, SUMS[1])], true);
    let again = world.reads(false);
    world.answers(&again);
    world.outcomes();
    world.answers(&first);
    assert!(matches!(
        world.take()[..],
        [Action::Release { .. }, Action::Object(ObjectAction::Sums { .. })]
    ));
}

#[test]
fn after_ten_minutes_a_block_is_compared_again_wherever_it_is() {
    let mut world = World::with_both_read();
    world.now.mono = world.now.mono.after_ms(599_000);
    world.read(0, 20);
    let read = world.reads(true);
    world.answers(&read);
    world.now.mono = world.now.mono.after_ms(1_000);
    world.read(0, 20);
    world.compared(&[(0, SUMS[0])], false);
    world.reads(false);
}

#[test]
fn a_list_whose_bytes_left_the_page_cache_has_its_blocks_compared_again() {
    let mut world = World::with_both_read();
    let token = world.read_list(&[(0, 10), (BLOCK, 10)]);
    let action = world.one();
    let Action::Object(ObjectAction::ReadList { ticket, only_cached: true, .. }) = action else {
        panic!("{action:?}")
    };
    world.with(|shards, turn| shards.on_uncached(turn, ticket));
    world.compared(&[(0, SUMS[0]), (1, BlockSum { crc32c: 9, ..SUMS[1] })], true);
    let failed = Outcome::Answered { token, result: Err(Status::Io), shown: Transno(0) };
    assert!(world.outcomes().contains(&failed));
}

#[test]
fn a_block_that_is_appended_to_while_it_is_compared_is_compared_again() {
    let first = BlockSum { crc32c: 1, covered_bytes: 100 };
    let sums = BlockSums(Vec::from([first]));
    let known = ContentsChange::Sums { inode: FILE, first_block: 0, sums };
    let mut world = World::new(&[(FILE, truncated(100, 5)), (FILE, Change::Contents(known))]);
    world.glimpse();
    world.stat(Some(100));
    world.append(5);
    let append = world.one();
    world.done(&append);
    world.settle();
    let sync = world.one();
    world.read(0, 20);
    let asked = world.one();
    world.done(&sync);
    world.outcomes();
    world.actions.push(asked);
    world.compared(&[(0, BlockSum { crc32c: 9, ..first })], true);
    let crc32c = wire::crc32c_combined(1, 77, 5);
    world.compared(&[(0, BlockSum { crc32c, covered_bytes: 105 })], false);
    world.reads(false);
}
