//! Find: only matching entries are listed, for any caller and any size.

use super::{Harness, ROOT, root, setattr, user};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use test_runtime::Prng;
use wire::{
    Caller, FileKind, Find, Found, Groups, InodeNo, Kinds, Name, Op, Pattern, Predicate, SetTime,
    Setattr, Status, Symlink, Timestamp, Verdict, Wire,
};

fn args(inode: InodeNo, predicate: Predicate<'_>) -> Find<'_> {
    Find {
        caller: root(),
        inode,
        cookie: 0,
        listing_bytes_max: 512,
        attrs: false,
        directories: false,
        predicate,
    }
}

fn named(pattern: &str) -> Predicate<'_> {
    Predicate { name: Some(Pattern::new(pattern.as_bytes()).unwrap()), ..Predicate::ANY }
}

/// All pieces: names with their verdicts, and the number of pieces.
fn all(harness: &mut Harness, args: &Find<'_>) -> (Vec<(String, Verdict)>, usize) {
    let (mut all, mut args, mut piece_count) = (Vec::new(), *args, 0);
    loop {
        assert_eq!(harness.status(Op::Find, &args), Status::Ok);
        assert!(harness.reply.len() <= usize::try_from(args.listing_bytes_max).unwrap());
        let found = Found::decode_all(&harness.reply).unwrap();
        for entry in found.entries.iter() {
            assert_eq!(entry.attr.is_some(), args.attrs && entry.verdict == Verdict::Yes);
            all.push((String::from_utf8(entry.name.bytes().into()).unwrap(), entry.verdict));
        }
        piece_count += 1;
        if found.end {
            return (all, piece_count);
        }
        assert!(found.cookie > args.cookie, "every piece goes on");
        args.cookie = found.cookie;
    }
}

fn names(harness: &mut Harness, args: &Find<'_>) -> Vec<String> {
    let (found, _) = all(harness, args);
    assert!(found.iter().all(|(_, verdict)| *verdict == Verdict::Yes));
    found.into_iter().map(|(name, _)| name).collect()
}

/// A directory with one of each kind.
fn one_of_each_kind() -> (Harness, InodeNo) {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o755);
    harness.file(dir, "a.c", 0o644);
    harness.file(dir, "b.h", 0o644);
    harness.mkdir(dir, "e.c", 0o755);
    let name = Name::new(b"l.c").unwrap();
    let link = Symlink { caller: root(), parent: dir, name, target: wire::Bytes(b"12345") };
    assert_eq!(harness.status(Op::Symlink, &link), Status::Ok);
    (harness, dir)
}

#[test]
fn only_matching_entries_are_listed() {
    let (mut harness, dir) = one_of_each_kind();
    assert_eq!(names(&mut harness, &args(dir, Predicate::ANY)), ["a.c", "b.h", "e.c", "l.c"]);
    assert_eq!(names(&mut harness, &args(dir, named("*.c"))), ["a.c", "e.c", "l.c"]);
    let files = Some(Kinds::default().with(FileKind::File));
    let both = Predicate { kinds: files, ..named("*.c") };
    assert_eq!(names(&mut harness, &args(dir, both)), ["a.c"]);
    assert_eq!(names(&mut harness, &Find { attrs: true, ..args(dir, both) }), ["a.c"]);
    let not_empty = Predicate { size_bytes_min: Some(5), ..named("?.c") };
    assert_eq!(names(&mut harness, &args(dir, not_empty)), ["l.c"]);
    let empty = Predicate { size_bytes_max: Some(0), ..Predicate::ANY };
    assert_eq!(
        names(&mut harness, &args(dir, Predicate { kinds: files, ..empty })),
        ["a.c", "b.h"]
    );
    let (none, _) = all(&mut harness, &args(dir, named("x")));
    assert!(none.is_empty());
}

#[test]
fn mtimes_are_compared_to_the_nanosecond() {
    let (mut harness, dir) = one_of_each_kind();
    let inode = harness.lookup(dir, "a.c").unwrap();
    let at = |nanos| Timestamp { secs: 77, nanos };
    let set = Setattr { mtime: SetTime::At(at(5)), ..setattr(inode) };
    assert_eq!(harness.status(Op::Setattr, &set), Status::Ok);
    for (after, before, fits) in [
        (Some(at(4)), None, true),
        (Some(at(5)), None, false),
        (None, Some(at(6)), true),
        (None, Some(at(5)), false),
        (Some(at(4)), Some(at(6)), true),
    ] {
        let predicate = Predicate { mtime_after: after, mtime_before: before, ..named("a.c") };
        let found = names(&mut harness, &args(dir, predicate));
        assert_eq!(found.len() == 1, fits, "{after:?} {before:?}");
    }
}

#[test]
fn directories_are_included_for_descending() {
    let (mut harness, dir) = one_of_each_kind();
    let down = Find { directories: true, ..args(dir, named("b*")) };
    let (found, _) = all(&mut harness, &down);
    assert_eq!(found, [("b.h".into(), Verdict::Yes), ("e.c".into(), Verdict::No)]);
}

#[test]
fn permissions_are_those_of_a_listing() {
    let (mut harness, dir) = one_of_each_kind();
    let stranger = Find { caller: user(5, 5), ..args(dir, named("a*")) };
    harness.set(dir, 0o711, 0, 0);
    assert_eq!(harness.status(Op::Find, &stranger), Status::Access);
    // Without x there are names, and entries that need attributes are undecided.
    harness.set(dir, 0o744, 0, 0);
    let found: Found<'_> = harness.answer(Op::Find, &stranger);
    assert_eq!((found.search, found.entries.count()), (false, 1));
    let sized = Predicate { size_bytes_max: Some(0), ..named("a*") };
    let (found, _) = all(&mut harness, &Find { predicate: sized, ..stranger });
    assert_eq!(found, [("a.c".into(), Verdict::Undecided)]);
    let unknown = Caller { uid: 5, gid: 5, groups: Groups::Unknown };
    harness.set(dir, 0o754, 0, 6);
    let in_doubt = Find { caller: unknown, ..stranger };
    assert_eq!(harness.status(Op::Find, &in_doubt), Status::NeedGroups);
    assert_eq!(harness.status(Op::Find, &args(InodeNo(9999), Predicate::ANY)), Status::Stale);
    let file = harness.lookup(dir, "a.c").unwrap();
    assert_eq!(harness.status(Op::Find, &args(file, Predicate::ANY)), Status::NotDirectory);
}

#[test]
fn a_size_at_the_data_shard_is_undecided() {
    let (mut harness, dir) = one_of_each_kind();
    let file = harness.lookup(dir, "a.c").unwrap();
    assert_eq!(harness.open(file, super::write_handle(1)), Status::Ok);
    let sized = Predicate { size_bytes_min: Some(1), ..Predicate::ANY };
    let files = Predicate { kinds: Some(Kinds::default().with(FileKind::File)), ..sized };
    let (found, _) = all(&mut harness, &args(dir, files));
    assert_eq!(found, [("a.c".into(), Verdict::Undecided)]);
}

#[test]
fn one_request_takes_bounded_steps() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o755);
    for no in 0..10_000 {
        harness.file(dir, &alloc::format!("file {no}"), 0o644);
    }
    let (found, piece_count) = all(&mut harness, &args(dir, named("file 9999")));
    assert_eq!(found.len(), 1);
    assert!((3..30).contains(&piece_count), "{piece_count}");
    // The worst case of names and pattern.
    let long = harness.mkdir(ROOT, "l", 0o755);
    for no in 0..20 {
        harness.file(long, &alloc::format!("{no:0>3}{}", "a".repeat(252)), 0o644);
    }
    let slow = alloc::format!("*{}b", "a".repeat(126));
    let (found, piece_count) = all(&mut harness, &args(long, named(&slow)));
    assert!(found.is_empty());
    assert!(piece_count >= 5, "each of them takes long: {piece_count}");
}

#[test]
fn a_find_fetches_only_inodes_that_it_evaluates() {
    const FILE_COUNT: usize = 1000;
    let mut harness = Harness::with_row_store(7, 1, u64::MAX);
    let dir = harness.mkdir(ROOT, "d", 0o755);
    for no in 0..FILE_COUNT {
        harness.file(dir, &alloc::format!("file {no}"), 0o644);
    }
    super::bounded::leave(&mut harness);
    let args = |dir, predicate| Find { listing_bytes_max: 131_072, ..args(dir, predicate) };
    let row_count = |harness: &Harness| harness.row_store.as_ref().unwrap().row_count;
    let before = row_count(&harness);
    assert_eq!(all(&mut harness, &args(dir, named("file 5*"))).0.len(), 111);
    let by_name = row_count(&harness) - before;
    assert!(by_name <= FILE_COUNT, "no inode for a name: {by_name}");
    super::bounded::leave(&mut harness);
    let before = row_count(&harness);
    let sized = Predicate { size_bytes_max: Some(0), ..named("file 5*") };
    let (found, _) = all(&mut harness, &args(dir, sized));
    assert_eq!(found.len(), 111);
    assert!(found.iter().all(|(_, verdict)| *verdict == Verdict::Yes));
    let by_size = row_count(&harness) - before;
    assert!(by_size <= FILE_COUNT + 111, "an inode for each name that fits: {by_size}");
}

#[test]
fn a_permanent_entry_is_found_once_while_others_change() {
    let mut rng = Prng::new(23);
    let mut harness = Harness::new();
    for no in 0..5000 {
        harness.file(ROOT, &alloc::format!("stays {no}"), 0o644);
        harness.file(ROOT, &alloc::format!("goes {no}"), 0o644);
    }
    let (mut seen, mut request) = (BTreeSet::new(), args(ROOT, named("stays *")));
    loop {
        let found: Found<'_> = harness.answer(Op::Find, &request);
        let (cookie, end) = (found.cookie, found.end);
        for entry in found.entries.iter() {
            assert!(seen.insert(entry.name.bytes().to_vec()), "found twice");
        }
        if end {
            break;
        }
        request.cookie = cookie;
        let no = rng.below(5000);
        let status = harness.unlink(ROOT, &alloc::format!("goes {no}")).status;
        assert!(matches!(status, Status::Ok | Status::NotFound));
    }
    assert_eq!(seen.len(), 5000);
}
