//! Names that are changed behind, with numbers and times of their clients.

use super::{Harness, MADE, ROOT, name, root, write_handle};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use test_runtime::Prng;
use wire::{
    Create, CreateBehind, Created, InodeNo, Layout, Op, Readdir, Status, Timestamp, Unlink,
};

const SPREAD: Layout = Layout { stripe_unit_bytes: 1 << 20, stripe_count: 4, narrow: false };

fn create(harness: &mut Harness, text: &str, behind: CreateBehind) -> Status {
    let args = Create {
        caller: root(),
        parent: ROOT,
        name: name(text),
        mode: 0o640,
        umask: 0,
        exclusive: true,
        handle: None,
        behind: Some(behind),
    };
    harness.status(Op::Create, &args)
}

fn unlink(harness: &mut Harness, text: &str, at: Timestamp) -> Status {
    let args = Unlink { caller: root(), parent: ROOT, name: name(text), behind: Some(at) };
    harness.status(Op::Unlink, &args)
}

/// Creates and removes names with numbers in any order, beside names that the server numbers.
fn run(seed: u64, mut harness: Harness) {
    let mut rng = Prng::new(seed);
    let mut model: BTreeMap<String, (InodeNo, Timestamp)> = BTreeMap::new();
    let (mut unused, mut used): (Vec<InodeNo>, Vec<InodeNo>) = (Vec::new(), Vec::new());
    let mut mtime = harness.attr(ROOT).mtime;
    for _ in 0..400 {
        if unused.is_empty() {
            let first = harness.shard.reserve_inodes(32).unwrap();
            unused = (0..32).map(|index| InodeNo(first.0 + index)).collect();
            (0..32).for_each(|index| unused.swap(index, rng.below(32)));
        }
        let text = format!("n{}", rng.below(24));
        let back_secs = i64::try_from(rng.below(5)).unwrap();
        let at = Timestamp {
            secs: harness.now.secs + 1 - back_secs,
            nanos: u32::try_from(rng.below(1000)).unwrap(),
        };
        let at = at.min(Timestamp { secs: harness.now.secs + 1, nanos: 0 });
        match rng.below(5) {
            0 => {
                let made = harness.create(root(), ROOT, &text, 0o600);
                assert_eq!(made.is_ok(), !model.contains_key(&text));
                if let Ok(Created { attr, .. }) = made {
                    assert!(!unused.contains(&attr.inode) && !used.contains(&attr.inode));
                    model.insert(text, (attr.inode, harness.now));
                    mtime = harness.now;
                }
            }
            1 | 2 => {
                let inode = unused.pop().unwrap();
                let status = create(&mut harness, &text, CreateBehind { inode, at });
                let is_free = !model.contains_key(&text);
                assert_eq!(status, if is_free { Status::Ok } else { Status::Stale });
                if is_free {
                    model.insert(text, (inode, at));
                    mtime = mtime.max(at);
                }
                used.push(inode);
            }
            3 => {
                let status = unlink(&mut harness, &text, at);
                let is_known = model.remove(&text).is_some();
                assert_eq!(status, if is_known { Status::Ok } else { Status::NotFound });
                mtime = if is_known { mtime.max(at) } else { mtime };
            }
            _ => {
                let known = model.get(&text).copied();
                assert_eq!(harness.lookup(ROOT, &text), known.map(|(inode, _)| inode));
                if let Some((inode, at)) = known {
                    let attr = harness.attr(inode);
                    assert_eq!((attr.atime, attr.mtime, attr.ctime), (at, at, at));
                    let behind = CreateBehind { inode, at };
                    assert_eq!(create(&mut harness, "again", behind), Status::Stale, "it exists");
                }
            }
        }
        assert_eq!(harness.attr(ROOT).mtime, mtime);
        if rng.one_in(50) && harness.row_store.is_none() {
            harness.check_redo();
        }
    }
    let listed: Readdir<'_> = Readdir {
        caller: root(),
        inode: ROOT,
        cookie: 0,
        listing_bytes_max: 65_536,
        attrs: false,
        handle: None,
    };
    assert_eq!(harness.status(Op::Readdir, &listed), Status::Ok);
}

#[test]
fn names_with_numbers_in_any_order_equal_a_model() {
    for seed in 0..40 {
        let mut harness = Harness::new();
        harness.restart(); // What is reserved is in no log.
        run(seed, harness);
    }
}

#[test]
fn names_with_numbers_in_any_order_equal_a_model_where_few_are_in_memory() {
    for seed in 0..20 {
        run(seed, Harness::with_row_store(seed, 1, 2000));
    }
}

#[test]
fn reserved_numbers_are_lost_with_a_term_and_never_assigned() {
    let mut harness = Harness::new();
    harness.file(ROOT, "f", 0o644);
    let mut behind_last = InodeNo(0);
    for generation in [0, 0, 0, 2, 2] {
        harness.restart();
        if generation > 0 {
            harness.shard.use_generation(generation);
        }
        // As many as there are, of which nothing is recorded.
        let mut count = 0;
        while let Some(first) = harness.shard.reserve_inodes(1024) {
            assert!(first >= behind_last, "{first}");
            assert_eq!(first.generation(), generation);
            behind_last = InodeNo(first.0 + 1024);
            count += 1;
        }
        assert_eq!(count, 512);
        // What is recorded lets more be reserved: the last one of them is chosen.
        let at = harness.now;
        let inode = InodeNo(behind_last.0 - 1);
        assert_eq!(create(&mut harness, "g", CreateBehind { inode, at }), Status::Ok);
        let first = harness.shard.reserve_inodes(1024).unwrap();
        assert_eq!(first, behind_last);
        behind_last = InodeNo(first.0 + 1024);
        harness.unlink(ROOT, "g");
        harness.log.truncate(1);
    }
}

#[test]
fn a_generation_that_begins_within_a_term_gives_its_own_numbers() {
    let mut harness = Harness::new();
    harness.restart();
    let before = harness.shard.reserve_inodes(8).unwrap();
    harness.shard.use_generation(3);
    let after = harness.shard.reserve_inodes(8).unwrap();
    assert_eq!((before.generation(), after.generation()), (0, 3));
    let at = harness.now;
    assert_eq!(create(&mut harness, "a", CreateBehind { inode: before, at }), Status::Ok);
    assert_eq!(create(&mut harness, "b", CreateBehind { inode: after, at }), Status::Ok);
    assert!(harness.file(ROOT, "c", 0o600) >= InodeNo(after.0 + 8));
    harness.check_redo();
}

#[test]
fn files_with_numbers_of_before_are_not_spread() {
    let mut harness = Harness::new();
    harness.shard = crate::Shard::new(ROOT.shard(), disk::Creation { layout: SPREAD, ..MADE });
    let inode = harness.shard.reserve_inodes(8).unwrap();
    let known = harness.shard.layout_behind(inode);
    assert!(!known.is_spread());
    // Servers have joined.
    harness.shard.use_generation(1);
    harness.shard.set_part_counts(Vec::from([1, 4]));
    let at = harness.now;
    assert_eq!(create(&mut harness, "a", CreateBehind { inode, at }), Status::Ok);
    assert_eq!(harness.attr(inode).layout, Some(known));
    let other = harness.file(ROOT, "b", 0o600);
    assert_eq!(harness.attr(other).layout, Some(SPREAD));
}

/// Those of before its servers, those of after them may spread to all.
#[test]
fn files_with_numbers_of_before_grow_over_the_servers_of_their_generation() {
    const GROWS: Layout = Layout { narrow: true, ..SPREAD };
    let mut harness = Harness::new();
    harness.shard = crate::Shard::new(ROOT.shard(), disk::Creation { layout: GROWS, ..MADE });
    harness.shard.set_part_counts(Vec::from([1]));
    let alone = harness.shard.reserve_inodes(8).unwrap();
    harness.shard.use_generation(1);
    harness.shard.set_part_counts(Vec::from([1, 2]));
    let of_two = harness.shard.reserve_inodes(8).unwrap();
    harness.shard.use_generation(2);
    harness.shard.set_part_counts(Vec::from([1, 2, 4]));
    assert!(!harness.shard.spreads_new_files());
    let wanted = [Layout::DEFAULT, Layout { stripe_count: 2, ..GROWS }];
    for (inode, wanted) in [alone, of_two].into_iter().zip(wanted) {
        let at = harness.now;
        assert_eq!(harness.shard.layout_behind(inode), wanted);
        let text = format!("n{}", inode.generation());
        assert_eq!(create(&mut harness, &text, CreateBehind { inode, at }), Status::Ok);
        assert_eq!(harness.attr(inode).layout, Some(wanted));
    }
    let new = harness.file(ROOT, "new", 0o600);
    assert_eq!(harness.attr(new).layout, Some(GROWS), "of the servers of now");
}

#[test]
fn numbers_are_claimed_below_those_of_the_term_for_directories_that_exist() {
    let mut harness = Harness::new();
    let (dir, file) = (harness.mkdir(ROOT, "d", 0o755), harness.file(ROOT, "f", 0o644));
    let first = harness.shard.reserve_inodes(8).unwrap();
    harness.restart();
    let next = harness.shard.reserve_inodes(1).unwrap();
    let behind_last = InodeNo(next.0 + 1);
    let shard = &harness.shard;
    assert!(shard.may_claim(dir, first, 8));
    assert!(shard.may_claim(dir, InodeNo(0), 0));
    assert!(shard.may_claim(ROOT, next, 1));
    assert!(!shard.may_claim(ROOT, next, 2));
    assert!(!shard.may_claim(ROOT, behind_last, 1));
    assert!(!shard.may_claim(file, first, 8));
    assert!(shard.may_claim(InodeNo(77), first, 8), "it may not be in memory");
    assert!(!shard.may_claim(dir, InodeNo::new(1, 9), 1));
    assert!(!shard.may_claim(dir, InodeNo(0), 1));
    assert!(!shard.may_claim(dir, InodeNo(u64::MAX), u32::MAX));
}

#[test]
fn the_time_of_an_open_file_that_loses_its_name_behind_is_not_lowered() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let before = harness.now;
    assert_eq!(harness.open(file, write_handle(1)), Status::Ok);
    let (changed, at) = (harness.attr(file).ctime, Timestamp { secs: 1, nanos: 0 });
    assert_eq!(unlink(&mut harness, "f", at), Status::Ok);
    let attr = harness.attr(file);
    assert_eq!((attr.nlink, attr.ctime), (0, changed));
    assert_eq!(harness.attr(ROOT).mtime, before);
    harness.check_redo();
}
