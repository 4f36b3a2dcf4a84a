//! Sizes for somebody who makes them durable elsewhere.

use super::*;

impl World {
    pub(super) fn durable_glimpse(&mut self) -> Token {
        self.token_count += 1;
        let token = Token(self.token_count);
        self.with(|shards, turn| shards.ask_size(turn, token, FILE));
        token
    }

    /// A write that is in the object; its number.
    fn write_early(&mut self, file_offset: u64, bytes: u32) -> Transno {
        self.write(file_offset, bytes);
        let write = self.one();
        self.done(&write);
        self.shards.transno_last(MAP.data_shard(FILE, 0))
    }

    /// The one answer of a glimpse: until when it waits, and the size.
    fn told(&mut self, of: Token) -> (Transno, u64) {
        let outcomes = self.outcomes();
        let [Outcome::Sized { token, shard, until, contents }] = outcomes[..] else {
            panic!("{outcomes:?}")
        };
        assert_eq!((token, shard), (of, MAP.data_shard(FILE, 0)));
        (until, contents.size_bytes)
    }
}

/// Of a file that was just made nobody has to look for contents.
#[test]
fn what_was_made_is_empty() {
    let mut world = World::new(&[]);
    world.shards.made(FILE);
    let token = world.durable_glimpse();
    assert!(world.take().is_empty(), "nothing is looked for");
    assert_eq!(world.told(token), (Transno(0), 0));
    world.append(7);
    assert!(matches!(world.one(), Action::Object(ObjectAction::Write { object_offset: 0, .. })));
}

/// What was never written has no object, and nobody asks the disk to remove it.
#[test]
fn what_was_made_and_never_written_is_gone_at_once() {
    let mut world = World::new(&[]);
    world.shards.made(FILE);
    world.read(0, 4096);
    assert_eq!(world.outcomes().len(), 1, "read without a look");
    world.with(|shards, turn| shards.remove(turn, FILE));
    assert!(world.take().is_empty(), "nothing is removed from the disk");
    assert_eq!(world.outcomes(), [Outcome::Removed { inode: FILE, result: Ok(()) }]);
}

/// A write may have made the object, be it one that failed.
#[test]
fn what_was_written_is_removed_from_the_disk() {
    for fails in [false, true] {
        let mut world = World::new(&[]);
        world.shards.made(FILE);
        world.append(7);
        let write = world.one();
        if fails {
            world.fail(&write, 5);
        } else {
            world.done(&write);
        }
        world.settle();
        for sync in world.take() {
            world.done(&sync);
        }
        world.outcomes();
        world.with(|shards, turn| shards.remove(turn, FILE));
        assert!(
            matches!(world.one(), Action::Object(ObjectAction::Remove { .. })),
            "fails: {fails}"
        );
    }
}

/// Of an object that was made and written in this boot, and forgotten since, the disk is right.
#[test]
fn an_object_made_in_this_boot_keeps_its_size_when_the_cache_forgets_it() {
    let mut world = World::sized(&[], 1);
    world.shards.made(FILE);
    world.append(7);
    let Outcome::Changed { shard, transno, .. } = world.finish() else { panic!("not recorded") };
    world.shards.on_durable(shard, transno);
    for other in 100..120 {
        world.shards.made(InodeNo(other));
    }
    let token = world.durable_glimpse();
    world.stat(Some(7));
    assert!(world.take().is_empty(), "nothing is cut off");
    assert_eq!(world.told(token), (Transno(0), 7));
}

#[test]
fn a_durable_size_waits_for_the_last_write_in_it() {
    let mut world = World::with_file(100);
    let shard = MAP.data_shard(FILE, 0);
    let token = world.durable_glimpse();
    assert_eq!(world.told(token), (Transno(0), 100), "nothing to wait for");
    let first = world.write_early(100, 50);
    let token = world.durable_glimpse();
    world.stat(Some(150));
    assert_eq!(world.told(token), (first, 150));
    world.settle();
    let sync = world.one();
    world.done(&sync);
    world.outcomes();
    let token = world.durable_glimpse();
    assert_eq!(world.told(token), (first, 150), "synced, but its record is not durable");
    world.shards.on_durable(shard, first);
    let token = world.durable_glimpse();
    assert_eq!(world.told(token), (Transno(0), 150));
}

/// A write that is answered while the world is asked is in the answer, one after that is not.
#[test]
fn later_writes_keep_no_size_waiting() {
    let mut world = World::with_file(100);
    world.write_early(100, 50);
    let token = world.durable_glimpse();
    let asked = ticket(&world.one());
    let second = world.write_early(150, 50);
    world.on_stat(asked, Some(150));
    let third = world.write_early(200, 50);
    assert!(third > second);
    assert_eq!(world.told(token), (second, 200));
}
