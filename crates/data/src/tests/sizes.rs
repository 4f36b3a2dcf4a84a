//! Sizes for a caller that makes them durable elsewhere.

use super::*;

impl Harness {
    pub(super) fn durable_glimpse(&mut self) -> Token {
        self.token_count += 1;
        let token = Token(self.token_count);
        self.with(|shards, turn| shards.query_durable_size(turn, token, FILE));
        token
    }

    /// A write that was applied; its number.
    fn write_early(&mut self, file_offset: u64, bytes: u32) -> Transno {
        self.write(file_offset, bytes);
        let write = self.one();
        self.done(&write);
        self.shards.transno_last(SHARDS.data_shard(FILE, 0))
    }

    /// The only outcome of a glimpse: the transaction it waits for, and the size.
    fn size_reply(&mut self, of: Token) -> (Transno, u64) {
        let outcomes = self.outcomes();
        let [Outcome::Sized { token, shard, until, contents }] = outcomes[..] else {
            panic!("{outcomes:?}")
        };
        assert_eq!((token, shard), (of, SHARDS.data_shard(FILE, 0)));
        (until, contents.size_bytes)
    }
}

/// The contents of a new file are known without a query.
#[test]
fn a_new_file_is_empty() {
    let mut harness = Harness::new(&[]);
    harness.shards.made(FILE);
    let token = harness.durable_glimpse();
    assert!(harness.take().is_empty(), "no query");
    assert_eq!(harness.size_reply(token), (Transno(0), 0));
    harness.append(7);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Write { object_offset: 0, .. })));
}

/// A file never written has no object to remove from the disk.
#[test]
fn a_file_never_written_is_removed_at_once() {
    let mut harness = Harness::new(&[]);
    harness.shards.made(FILE);
    harness.read(0, 4096);
    assert_eq!(harness.outcomes().len(), 1, "read without a look");
    harness.with(|shards, turn| shards.remove(turn, FILE));
    assert!(harness.take().is_empty(), "nothing is removed from the disk");
    assert_eq!(harness.outcomes(), [Outcome::Removed { inode: FILE, result: Ok(()) }]);
}

/// A write may have created the object, even a failed one.
#[test]
fn a_written_object_is_removed_from_the_disk() {
    for fails in [false, true] {
        let mut harness = Harness::new(&[]);
        harness.shards.made(FILE);
        harness.append(7);
        let write = harness.one();
        if fails {
            harness.fail(&write, 5);
        } else {
            harness.done(&write);
        }
        harness.settle();
        for sync in harness.take() {
            harness.done(&sync);
        }
        harness.outcomes();
        harness.with(|shards, turn| shards.remove(turn, FILE));
        assert!(
            matches!(harness.one(), Action::Object(ObjectAction::Remove { .. })),
            "fails: {fails}"
        );
    }
}

/// Of an object that was made and written in this boot, and forgotten since, the disk is right.
#[test]
fn an_object_made_in_this_boot_keeps_its_size_when_the_cache_forgets_it() {
    let mut harness = Harness::sized(&[], 1);
    harness.shards.made(FILE);
    harness.append(7);
    let Outcome::Changed { shard, transno, .. } = harness.finish() else { panic!("not recorded") };
    harness.shards.on_durable(shard, transno);
    for other in 100..120 {
        harness.shards.made(InodeNo(other));
    }
    let token = harness.durable_glimpse();
    harness.stat(Some(7));
    assert!(harness.take().is_empty(), "nothing is cut off");
    assert_eq!(harness.size_reply(token), (Transno(0), 7));
}

#[test]
fn a_durable_size_waits_for_the_last_write_in_it() {
    let mut harness = Harness::with_file(100);
    let shard = SHARDS.data_shard(FILE, 0);
    let token = harness.durable_glimpse();
    assert_eq!(harness.size_reply(token), (Transno(0), 100), "nothing to wait for");
    let first = harness.write_early(100, 50);
    let token = harness.durable_glimpse();
    harness.stat(Some(150));
    assert_eq!(harness.size_reply(token), (first, 150));
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    harness.outcomes();
    let token = harness.durable_glimpse();
    assert_eq!(harness.size_reply(token), (first, 150), "synced, but its record is not durable");
    harness.shards.on_durable(shard, first);
    let token = harness.durable_glimpse();
    assert_eq!(harness.size_reply(token), (Transno(0), 150));
}

/// The part of a file has the size that it is cut to, by a write that may be lost.
#[test]
fn a_cut_that_changes_nothing_waits_for_what_made_the_part_so() {
    let layout =
        Layout { stripe_unit_bytes: Layout::SPREAD_UNIT_BYTES_MIN, stripe_count: 2, narrow: false };
    let mut harness = Harness::with_file(100);
    let cut = |harness: &mut Harness| {
        harness.token_count += 1;
        let token = Token(harness.token_count);
        harness.with(|shards, turn| shards.cut_part(turn, token, FILE, (150, layout)));
        token
    };
    let first = harness.write_early(100, 50);
    let token = cut(&mut harness);
    assert_eq!(harness.size_reply(token), (first, 150));
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    harness.outcomes();
    harness.shards.on_durable(SHARDS.data_shard(FILE, 0), first);
    let token = cut(&mut harness);
    assert_eq!(harness.size_reply(token), (Transno(0), 150));
}

/// A write acknowledged during the query is in the reply, a later one is not.
#[test]
fn later_writes_do_not_delay_a_size() {
    let mut harness = Harness::with_file(100);
    harness.write_early(100, 50);
    let token = harness.durable_glimpse();
    let asked = ticket(&harness.one());
    let second = harness.write_early(150, 50);
    harness.on_stat(asked, Some(150));
    let third = harness.write_early(200, 50);
    assert!(third > second);
    assert_eq!(harness.size_reply(token), (second, 200));
}

/// The next query of the object's size, and whether it may make the object.
fn query(harness: &mut Harness) -> (Ticket, bool) {
    let Action::Object(ObjectAction::Stat { ticket, may_make, .. }) = harness.one() else {
        panic!("nothing is known of the object");
    };
    (ticket, may_make)
}

#[test]
fn the_query_before_the_first_write_of_a_new_file_may_make_its_object() {
    let write = |harness: &mut Harness, file_offset, behind| {
        let (inode, clears) = (FILE, wire::ClearPrivileges::Nothing);
        let bulk = Some(harness.bulk(10));
        let body = Write { inode, file_offset, append: behind, clears }.to_bytes();
        harness.behind = behind;
        harness.try_ask(Op::Write, SHARDS.data_shard(FILE, 0), &body, bulk).unwrap()
    };
    // Only a file's creator writes behind, and an empty file has this size.
    for (file_offset, behind, may_make) in [(0, true, true), (1, true, false), (0, false, false)] {
        let mut harness = Harness::new(&[]);
        let token = write(&mut harness, file_offset, behind);
        let (ticket, made) = query(&mut harness);
        assert_eq!(made, may_make);
        harness.on_stat(ticket, Some(0));
        if (file_offset, behind) == (1, true) {
            assert_eq!(harness.outcomes(), [refused(token, Status::Stale)]);
            continue;
        }
        let writing = harness.one();
        assert!(matches!(writing, Action::Object(ObjectAction::Write { object_offset: 0, .. })));
    }
    // The first operation decides: a glimpse makes nothing.
    let mut harness = Harness::new(&[]);
    harness.glimpse();
    write(&mut harness, 0, true);
    assert!(!query(&mut harness).1);
}
