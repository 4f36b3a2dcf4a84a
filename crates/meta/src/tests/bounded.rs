//! In a directory much larger than the memory limit, an operation fetches only what it needs, and
//! eviction works piece by piece. Work is counted, not timed.

use super::{Harness, ROOT, root};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use wire::{InodeNo, Listing, Op, Readdir, Rmdir, Status, Wire};

const FILE_COUNT: usize = 3000;

/// A directory with many files, none of them in memory.
fn large_directory() -> (Harness, InodeNo) {
    let mut harness = Harness::with_row_store(7, 1, u64::MAX);
    let dir = harness.mkdir(ROOT, "d", 0o755);
    for no in 0..FILE_COUNT {
        harness.file(dir, &alloc::format!("file {no}"), 0o644);
    }
    leave(&mut harness);
    (harness, dir)
}

/// Evicts everything possible; returns the number of scans.
pub(super) fn leave(harness: &mut Harness) -> usize {
    const LOOK_COUNT_MAX: usize = 64;
    harness.all_applied();
    harness.shard.bound_again(0);
    let mut step_count = 0;
    while harness.shard.resident_count() > 0 {
        let before_count = harness.shard.resident_count();
        harness.shard.shrink(LOOK_COUNT_MAX);
        assert!(before_count - harness.shard.resident_count() <= LOOK_COUNT_MAX);
        step_count += 1;
    }
    harness.shard.bound_again(u64::MAX);
    step_count
}

/// The number of fetches during `act`, and of the rows read.
fn cost(harness: &mut Harness, act: impl FnOnce(&mut Harness)) -> (usize, usize) {
    let count = |harness: &Harness| {
        let row_store = harness.row_store.as_ref().unwrap();
        (row_store.answer_count, row_store.row_count)
    };
    let before = count(harness);
    act(harness);
    let after = count(harness);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn an_eviction_scan_evicts_no_more_than_it_scans() {
    let (mut harness, _) = large_directory();
    harness.fetch_all();
    let unit_count = harness.shard.resident_count();
    assert!(unit_count > 2 * FILE_COUNT);
    // Each unit is scanned twice: at the first scan it counts as used.
    assert!(leave(&mut harness) <= 2 * unit_count / 64 + 2);
}

#[test]
fn an_operation_fetches_only_what_it_needs() {
    let (mut harness, dir) = large_directory();
    let found = |harness: &mut Harness| assert!(harness.lookup(dir, "file 77").is_some());
    assert_eq!(cost(&mut harness, found), (2, 2), "an entry and an inode");
    assert_eq!(cost(&mut harness, found), (0, 0), "they are there");
    let lacking = |harness: &mut Harness| assert_eq!(harness.lookup(dir, "none"), None);
    assert_eq!(cost(&mut harness, lacking), (1, 0));
    assert_eq!(cost(&mut harness, lacking), (0, 0), "it is known that there is none");
    let made =
        |harness: &mut Harness, text| assert!(harness.create(root(), dir, text, 0o644).is_ok());
    assert_eq!(cost(&mut harness, |harness| made(harness, "none")), (0, 0));
    assert_eq!(cost(&mut harness, |harness| made(harness, "new")), (1, 0));
    let removed =
        |harness: &mut Harness| assert_eq!(harness.unlink(dir, "file 9").status, Status::Ok);
    assert_eq!(cost(&mut harness, removed), (2, 2));
    assert_eq!(harness.lookup(dir, "file 9"), None);
    let rmdir = Rmdir { caller: root(), parent: ROOT, name: super::name("d") };
    let full =
        |harness: &mut Harness| assert_eq!(harness.status(Op::Rmdir, &rmdir), Status::NotEmpty);
    assert_eq!(cost(&mut harness, full), (1, 1), "its own entry");
}

/// The names behind a cookie, and the last cookie.
fn piece(
    harness: &mut Harness,
    dir: InodeNo,
    cookie: u64,
    attrs: bool,
) -> (Vec<String>, u64, bool) {
    let (caller, inode, handle) = (root(), dir, None);
    let args = Readdir { caller, inode, cookie, listing_bytes_max: 131_072, attrs, handle };
    assert_eq!(harness.status(Op::Readdir, &args), Status::Ok);
    let listing = Listing::decode_all(&harness.reply).unwrap();
    let mut last = cookie;
    let mut names = Vec::new();
    for entry in listing.entries.iter() {
        assert_eq!(entry.attr.is_some(), attrs);
        last = entry.cookie;
        names.push(String::from_utf8(entry.name.bytes().into()).unwrap());
    }
    (names, last, listing.end)
}

#[test]
fn a_listing_fetches_one_piece_at_a_time() {
    for (attrs, question_count_max, row_count_max) in [(false, 1, 128), (true, 129, 256)] {
        let (mut harness, dir) = large_directory();
        let (mut seen, mut cookie, mut end) = (BTreeSet::new(), 0, false);
        while !end {
            let (questions, rows) = cost(&mut harness, |harness| {
                let (names, last, is_last) = piece(harness, dir, cookie, attrs);
                (cookie, end) = (last, is_last);
                names.into_iter().for_each(|name| assert!(seen.insert(name)));
            });
            assert!(questions <= question_count_max && rows <= row_count_max);
            leave(&mut harness);
        }
        assert_eq!(seen.len(), FILE_COUNT);
    }
}

#[test]
fn a_completely_fetched_directory_is_whole_again() {
    let (mut harness, dir) = large_directory();
    let (mut cookie, mut end) = (0, false);
    while !end {
        (_, cookie, end) = piece(&mut harness, dir, cookie, false);
    }
    let lacking = |harness: &mut Harness| assert_eq!(harness.lookup(dir, "none"), None);
    assert_eq!(cost(&mut harness, lacking), (0, 0));
    let listed =
        |harness: &mut Harness| assert_eq!(piece(harness, dir, 0, false).0.len(), FILE_COUNT);
    assert_eq!(cost(&mut harness, listed), (0, 0));
}

#[test]
fn a_listing_continues_when_all_fetched_entries_were_removed() {
    let (mut harness, dir) = large_directory();
    for no in 0..FILE_COUNT - 1 {
        assert_eq!(harness.unlink(dir, &alloc::format!("file {no}")).status, Status::Ok);
    }
    // The row store still has all of them.
    let (names, _, end) = piece(&mut harness, dir, 0, true);
    assert_eq!((names.len(), end), (1, true));
}
