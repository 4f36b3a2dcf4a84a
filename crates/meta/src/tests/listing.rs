//! Readdir: complete, without doubles, stable under change, in pieces of any size.

use super::{ALICE, BOB, Dice, ROOT, World, name, read_handle, root, setattr, user};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use wire::{
    Caller, Close, Groups, HandleId, InodeNo, Listing, Op, Readdir, Rename, RenameHow, Setattr,
    Status, Wire,
};

fn args(inode: InodeNo, cookie: u64, listing_bytes_max: u32) -> Readdir<'static> {
    Readdir { caller: root(), inode, cookie, listing_bytes_max, attrs: false }
}

/// One piece: its names, the cookie to go on from, and whether it was the last.
fn piece(world: &mut World, args: &Readdir<'_>) -> (Vec<String>, u64, bool) {
    assert_eq!(world.status(Op::Readdir, args), Status::Ok);
    let reply_bytes_max = usize::try_from(args.listing_bytes_max.max(512)).unwrap();
    assert!(world.reply.len() <= reply_bytes_max);
    let listing = Listing::decode_all(&world.reply).unwrap();
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

fn all(world: &mut World, inode: InodeNo, listing_bytes_max: u32) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let (more, last, end) = piece(world, &args(inode, cookie, listing_bytes_max));
        names.extend(more);
        cookie = last;
        if end {
            return names;
        }
    }
}

#[test]
fn a_listing_comes_in_pieces_that_fit() {
    let mut world = World::new();
    let dir = world.mkdir(ROOT, "d", 0o755);
    assert_eq!(all(&mut world, dir, 512), Vec::<String>::new());
    let names: Vec<String> = (0..300).map(|no| alloc::format!("{no:0>255}")).collect();
    for text in &names {
        world.file(dir, text, 0o644);
    }
    for listing_bytes_max in [0, 512, 700, 4096, 131_072, u32::MAX] {
        assert_eq!(all(&mut world, dir, listing_bytes_max), names);
    }
    assert_eq!(world.status(Op::Readdir, &args(InodeNo(9999), 0, 512)), Status::Stale);
    let file = world.file(ROOT, "f", 0o644);
    assert_eq!(world.status(Op::Readdir, &args(file, 0, 512)), Status::NotDirectory);
}

#[test]
fn attributes_come_along_when_asked_for() {
    let mut world = World::new();
    let dir = world.mkdir(ROOT, "d", 0o755);
    let (file, below) = (world.file(dir, "f", 0o640), world.mkdir(dir, "e", 0o700));
    let plus = Readdir { attrs: true, ..args(dir, 0, 512) };
    let listing: Listing<'_> = world.answer(Op::Readdir, &plus);
    assert_eq!((listing.parent, listing.end), (ROOT, true));
    let found: Vec<_> = listing.entries.iter().map(|entry| entry.attr.unwrap()).collect();
    assert_eq!((found[0].inode, found[0].mode, found[1].inode), (file, 0o640, below));
    // Without x on the directory there are names only.
    world.set(dir, 0o744, 0, 0);
    let stranger = Readdir { caller: user(5, 5), ..plus };
    let listing: Listing<'_> = world.answer(Op::Readdir, &stranger);
    assert!(listing.entries.iter().all(|entry| entry.attr.is_none()));
    assert_eq!(listing.entries.count(), 2);
    world.set(dir, 0o754, 0, 6);
    let unknown = Caller { uid: 5, gid: 5, groups: Groups::Unknown };
    let in_doubt = Readdir { caller: unknown, ..plus };
    assert_eq!(world.status(Op::Readdir, &in_doubt), Status::NeedGroups);
}

#[test]
fn whoever_has_it_open_goes_on_reading() {
    let mut world = World::new();
    let dir = world.mkdir(ROOT, "d", 0o755);
    assert_eq!(world.open(dir, read_handle(1)), Status::Ok);
    world.set(dir, 0o700, 0, 0);
    let stranger = Readdir { caller: user(5, 5), ..args(dir, 0, 512) };
    assert_eq!(world.status(Op::Readdir, &stranger), Status::Ok);
    world.client = BOB;
    assert_eq!(world.status(Op::Readdir, &stranger), Status::Access);
    world.client = ALICE;
    let close = Close { inode: dir, handle: HandleId(1) };
    assert_eq!(world.status(Op::Close, &close), Status::Ok);
    assert_eq!(world.status(Op::Readdir, &stranger), Status::Access);
    let open_again = Setattr { mode: Some(0o704), ..setattr(dir) };
    assert_eq!(world.status(Op::Setattr, &open_again), Status::Ok);
    assert_eq!(world.status(Op::Readdir, &stranger), Status::Ok);
}

#[test]
fn a_replaced_entry_keeps_its_place_and_a_renamed_one_gets_a_new_one() {
    let mut world = World::new();
    for text in ["a", "b", "c"] {
        world.file(ROOT, text, 0o644);
    }
    let rename = |from, to| Rename {
        caller: root(),
        parent: ROOT,
        name: name(from),
        new_parent: ROOT,
        new_name: name(to),
        how: RenameHow::Replace,
    };
    assert_eq!(world.status(Op::Rename, &rename("c", "a")), Status::Ok);
    assert_eq!(all(&mut world, ROOT, 512), ["a", "b"]);
    assert_eq!(world.status(Op::Rename, &rename("a", "z")), Status::Ok);
    assert_eq!(all(&mut world, ROOT, 512), ["b", "z"]);
    world.check_redo();
}

#[test]
fn two_hundred_thousand_entries_are_listed_while_others_come_and_go() {
    const STAYING_COUNT: usize = 200_000;
    let mut world = World::new();
    let mut dice = Dice::new(17);
    for no in 0..STAYING_COUNT {
        world.file(ROOT, &alloc::format!("stays {no}"), 0o644);
        if no % 40 == 0 {
            world.file(ROOT, &alloc::format!("goes {no}"), 0o644);
        }
    }
    world.log.clear();
    let (mut seen, mut cookie, mut come) = (BTreeSet::new(), 0, 0);
    loop {
        let (names, last, end) = piece(&mut world, &args(ROOT, cookie, 8192));
        cookie = last;
        for text in names {
            assert!(seen.insert(text), "listed twice");
        }
        if end {
            break;
        }
        for _ in 0..3 {
            let no = dice.below(STAYING_COUNT / 40) * 40;
            let status = world.unlink(ROOT, &alloc::format!("goes {no}")).status;
            assert!(matches!(status, Status::Ok | Status::NotFound));
            if come < 2000 {
                come += 1;
                world.file(ROOT, &alloc::format!("comes {come}"), 0o644);
            }
        }
    }
    let staying = seen.iter().filter(|text| text.starts_with("stays")).count();
    assert_eq!(staying, STAYING_COUNT);
    assert!(come == 2000 && seen.len() > STAYING_COUNT + 2000);
}
