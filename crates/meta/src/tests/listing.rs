//! Readdir: complete, without doubles, stable under change, in pieces of any size.

use super::{ALICE, BOB, Harness, ROOT, name, read_handle, root, setattr, user};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use test_runtime::Prng;
use wire::{
    Caller, Close, Groups, HandleId, InodeNo, Listing, Op, Readdir, Rename, RenameHow, Reopen,
    Setattr, Status, Wire,
};

fn args(inode: InodeNo, cookie: u64, listing_bytes_max: u32) -> Readdir<'static> {
    Readdir { caller: root(), inode, cookie, listing_bytes_max, attrs: false, handle: None }
}

/// One piece: its names, the cookie to go on from, and whether it was the last.
fn piece(harness: &mut Harness, args: &Readdir<'_>) -> (Vec<String>, u64, bool) {
    assert_eq!(harness.status(Op::Readdir, args), Status::Ok);
    let reply_bytes_max = usize::try_from(args.listing_bytes_max.max(512)).unwrap();
    assert!(harness.reply.len() <= reply_bytes_max);
    let listing = Listing::decode_all(&harness.reply).unwrap();
    let mut cookie = args.cookie;
    let mut names = Vec::new();
    for entry in listing.entries.iter() {
        assert!(entry.cookie > cookie, "cookies rise");
        cookie = entry.cookie;
        names.push(String::from_utf8(entry.name.bytes().into()).unwrap());
    }
    assert!(listing.end || !names.is_empty(), "every piece but the last goes on");
    (names, cookie, listing.end)
}

fn all(harness: &mut Harness, inode: InodeNo, listing_bytes_max: u32) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let (more, last, end) = piece(harness, &args(inode, cookie, listing_bytes_max));
        names.extend(more);
        cookie = last;
        if end {
            return names;
        }
    }
}

#[test]
fn a_listing_comes_in_pieces_that_fit() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o755);
    assert_eq!(all(&mut harness, dir, 512), Vec::<String>::new());
    let names: Vec<String> = (0..300).map(|no| alloc::format!("{no:0>255}")).collect();
    for text in &names {
        harness.file(dir, text, 0o644);
    }
    for listing_bytes_max in [0, 512, 700, 4096, 131_072, u32::MAX] {
        assert_eq!(all(&mut harness, dir, listing_bytes_max), names);
    }
    assert_eq!(harness.status(Op::Readdir, &args(InodeNo(9999), 0, 512)), Status::Stale);
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(harness.status(Op::Readdir, &args(file, 0, 512)), Status::NotDirectory);
}

#[test]
fn attributes_are_listed_if_requested() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o755);
    let (file, below) = (harness.file(dir, "f", 0o640), harness.mkdir(dir, "e", 0o700));
    let plus = Readdir { attrs: true, ..args(dir, 0, 512) };
    let listing: Listing<'_> = harness.answer(Op::Readdir, &plus);
    assert_eq!((listing.parent, listing.end), (ROOT, true));
    let found: Vec<_> = listing.entries.iter().map(|entry| entry.attr.unwrap()).collect();
    assert_eq!((found[0].inode, found[0].mode, found[1].inode), (file, 0o640, below));
    // Without x on the directory there are names only.
    harness.set(dir, 0o744, 0, 0);
    let stranger = Readdir { caller: user(5, 5), ..plus };
    let listing: Listing<'_> = harness.answer(Op::Readdir, &stranger);
    assert!(listing.entries.iter().all(|entry| entry.attr.is_none()));
    assert_eq!(listing.entries.count(), 2);
    harness.set(dir, 0o754, 0, 6);
    let unknown = Caller { uid: 5, gid: 5, groups: Groups::Unknown };
    let in_doubt = Readdir { caller: unknown, ..plus };
    assert_eq!(harness.status(Op::Readdir, &in_doubt), Status::NeedGroups);
}

#[test]
fn a_client_with_a_handle_continues_listing_without_permission() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o755);
    assert_eq!(harness.open(dir, read_handle(1)), Status::Ok);
    harness.set(dir, 0o700, 0, 0);
    let stranger = Readdir { caller: user(5, 5), ..args(dir, 0, 512) };
    assert_eq!(harness.status(Op::Readdir, &stranger), Status::Ok);
    harness.client = BOB;
    assert_eq!(harness.status(Op::Readdir, &stranger), Status::Access);
    harness.client = ALICE;
    let close = Close { inode: dir, handle: HandleId(1) };
    assert_eq!(harness.status(Op::Close, &close), Status::Ok);
    assert_eq!(harness.status(Op::Readdir, &stranger), Status::Access);
    let open_again = Setattr { mode: Some(0o704), ..setattr(dir) };
    assert_eq!(harness.status(Op::Setattr, &open_again), Status::Ok);
    assert_eq!(harness.status(Op::Readdir, &stranger), Status::Ok);
}

#[test]
fn a_replaced_entry_keeps_its_cookie_and_a_renamed_one_gets_a_new_one() {
    let mut harness = Harness::new();
    for text in ["a", "b", "c"] {
        harness.file(ROOT, text, 0o644);
    }
    let rename = |from, to| Rename {
        caller: root(),
        parent: ROOT,
        name: name(from),
        new_parent: ROOT,
        new_name: name(to),
        how: RenameHow::Replace,
    };
    assert_eq!(harness.status(Op::Rename, &rename("c", "a")), Status::Ok);
    assert_eq!(all(&mut harness, ROOT, 512), ["a", "b"]);
    assert_eq!(harness.status(Op::Rename, &rename("a", "z")), Status::Ok);
    assert_eq!(all(&mut harness, ROOT, 512), ["b", "z"]);
    harness.check_redo();
}

/// Renames every name of a listing away and back, piece by piece, until it ends; returns the names
/// listed.
fn list_renaming(harness: &mut Harness, args: &Readdir<'_>) -> Vec<String> {
    let (mut seen, mut cookie) = (Vec::new(), args.cookie);
    loop {
        let (names, last, end) = piece(harness, &Readdir { cookie, ..*args });
        cookie = last;
        for text in names {
            for (from, to) in [(text.as_str(), "away"), ("away", text.as_str())] {
                let rename = Rename {
                    caller: root(),
                    parent: ROOT,
                    name: name(from),
                    new_parent: ROOT,
                    new_name: name(to),
                    how: RenameHow::Replace,
                };
                assert_eq!(harness.status(Op::Rename, &rename), Status::Ok);
            }
            seen.push(text);
        }
        if end {
            return seen;
        }
    }
}

#[test]
fn a_listing_ends_though_every_name_is_renamed_away_and_back() {
    let mut harness = Harness::new();
    let names: Vec<String> = (0..200).map(|no| alloc::format!("{no:0>60}")).collect();
    for text in &names {
        harness.file(ROOT, text, 0o644);
    }
    let sorted = |mut seen: Vec<String>| {
        seen.sort();
        seen
    };
    assert_eq!(harness.open(ROOT, read_handle(1)), Status::Ok);
    let through = Readdir { handle: Some(HandleId(1)), ..args(ROOT, 0, 512) };
    assert_eq!(sorted(list_renaming(&mut harness, &through)), names);
    // A listing from the start has everything, with the new entries.
    harness.file(ROOT, "new", 0o644);
    let again = sorted(list_renaming(&mut harness, &through));
    assert_eq!((again.len(), again.last().unwrap().as_str()), (201, "new"));
    // The server restarts in the middle; the client reopens its handle, and the rest ends.
    let (shown, cookie, _) = piece(&mut harness, &through);
    harness.restart();
    let reopen = Reopen { inode: ROOT, handle: read_handle(1) };
    assert_eq!(harness.status(Op::Reopen, &reopen), Status::Ok);
    let rest = list_renaming(&mut harness, &Readdir { cookie, ..through });
    assert_eq!(rest.len(), 201 - shown.len());
    // A handle that is closed bounds nothing.
    let close = Close { inode: ROOT, handle: HandleId(1) };
    assert_eq!(harness.status(Op::Close, &close), Status::Ok);
    harness.file(ROOT, "last", 0o644);
    let unbound = piece(&mut harness, &Readdir { listing_bytes_max: 65_536, ..through });
    assert_eq!(unbound.0.last().unwrap(), "last");
}

#[test]
fn two_hundred_thousand_entries_are_listed_while_others_change() {
    const STAYING_COUNT: usize = 200_000;
    let mut harness = Harness::new();
    let mut rng = Prng::new(17);
    for no in 0..STAYING_COUNT {
        harness.file(ROOT, &alloc::format!("stays {no}"), 0o644);
        if no % 40 == 0 {
            harness.file(ROOT, &alloc::format!("goes {no}"), 0o644);
        }
    }
    harness.log.clear();
    let (mut seen, mut cookie, mut come) = (BTreeSet::new(), 0, 0);
    loop {
        let (names, last, end) = piece(&mut harness, &args(ROOT, cookie, 8192));
        cookie = last;
        for text in names {
            assert!(seen.insert(text), "listed twice");
        }
        if end {
            break;
        }
        for _ in 0..3 {
            let no = rng.below(STAYING_COUNT / 40) * 40;
            let status = harness.unlink(ROOT, &alloc::format!("goes {no}")).status;
            assert!(matches!(status, Status::Ok | Status::NotFound));
            if come < 2000 {
                come += 1;
                harness.file(ROOT, &alloc::format!("comes {come}"), 0o644);
            }
        }
    }
    let staying = seen.iter().filter(|text| text.starts_with("stays")).count();
    assert_eq!(staying, STAYING_COUNT);
    assert!(come == 2000 && seen.len() > STAYING_COUNT + 2000);
}
