//! Who may do what: classes, groups that are not known yet, squashing, sticky directories.

use super::{Harness, ROOT, name, root, setattr, user};
use wire::{
    Access, Caller, Groups, InodeNo, Lookup, Op, Rename, RenameHow, Rmdir, Setattr, Status, Unlink,
};

fn access(harness: &mut Harness, caller: Caller<'_>, inode: InodeNo, mask: u32) -> Status {
    harness.status(Op::Access, &Access { caller, inode, mask })
}

#[test]
fn each_class_has_its_own_bits() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    harness.set(file, 0o421, 5, 6);
    for (caller, granted) in [(user(5, 6), 4), (user(7, 6), 2), (user(7, 7), 1)] {
        for mask in 0..8 {
            let expected = if mask & !granted == 0 { Status::Ok } else { Status::Access };
            assert_eq!(access(&mut harness, caller, file, mask), expected, "{caller:?} {mask}");
        }
    }
    assert_eq!(access(&mut harness, root(), file, 8), Status::Invalid);
}

#[test]
fn groups_are_requested_only_when_they_decide() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let unknown = Caller { uid: 7, gid: 7, groups: Groups::Unknown };
    let six = [1_u32.to_le_bytes(), 6_u32.to_le_bytes()].concat();
    let member = Caller { groups: Groups::Known(&six), ..unknown };
    let stranger = Caller { groups: Groups::Known(&six[..4]), ..unknown };
    for (mode, in_doubt, of_member, of_stranger) in [
        (0o644, Status::Ok, Status::Ok, Status::Ok),
        (0o600, Status::Access, Status::Access, Status::Access),
        (0o640, Status::NeedGroups, Status::Ok, Status::Access),
        // The group may have less than the others.
        (0o604, Status::NeedGroups, Status::Access, Status::Ok),
    ] {
        harness.set(file, mode, 5, 6);
        assert_eq!(access(&mut harness, unknown, file, 4), in_doubt, "{mode:o}");
        assert_eq!(access(&mut harness, member, file, 4), of_member, "{mode:o}");
        assert_eq!(access(&mut harness, stranger, file, 4), of_stranger, "{mode:o}");
        let primary = Caller { gid: 6, ..unknown };
        assert_eq!(access(&mut harness, primary, file, 4), of_member, "{mode:o}");
    }
}

#[test]
fn root_executes_only_files_with_an_x_bit() {
    let mut harness = Harness::new();
    let (file, dir) = (harness.file(ROOT, "f", 0o000), harness.mkdir(ROOT, "d", 0o000));
    assert_eq!(access(&mut harness, root(), file, 6), Status::Ok);
    assert_eq!(access(&mut harness, root(), file, 1), Status::Access);
    assert_eq!(access(&mut harness, root(), dir, 7), Status::Ok);
    harness.set(file, 0o001, 0, 0);
    assert_eq!(access(&mut harness, root(), file, 1), Status::Ok);
}

#[test]
fn an_untrusted_root_is_nobody() {
    let mut harness = Harness::new();
    let (file, dir) = (harness.file(ROOT, "f", 0o644), harness.mkdir(ROOT, "d", 0o777));
    harness.set(file, 0o460, 0, 0);
    harness.squash = wire::Squash::ROOT;
    assert_eq!(access(&mut harness, root(), file, 4), Status::Access);
    // Group 0 is root's as well, as primary group and as any other.
    assert_eq!(access(&mut harness, user(5, 0), file, 2), Status::Access);
    let zero = 0_u32.to_le_bytes();
    let hidden = Caller { uid: 5, gid: 5, groups: Groups::Known(&zero) };
    assert_eq!(access(&mut harness, hidden, file, 2), Status::Access);
    assert_eq!(harness.create(root(), ROOT, "g", 0o644), Err(Status::Access));
    harness.squash = wire::Squash::NONE;
    harness.set(dir, 0o777, 0, 0);
    harness.squash = wire::Squash::ROOT;
    let made = harness.create(root(), dir, "g", 0o644).unwrap();
    assert_eq!((made.attr.uid, made.attr.gid), (65_534, 65_534));
    let give = Setattr { uid: Some(1), ..setattr(made.attr.inode) };
    assert_eq!(harness.status(Op::Setattr, &give), Status::NotPermitted);
}

#[test]
fn names_are_found_with_x_and_changed_with_w() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o755);
    harness.file(dir, "f", 0o644);
    let caller = user(5, 5);
    let lookup = Lookup { caller, parent: dir, name: name("f") };
    let unlink = Unlink { caller, parent: dir, name: name("f"), behind: None };
    for (mode, found, removed) in [
        (0o700, Status::Access, Status::Access),
        (0o706, Status::Access, Status::Access),
        (0o701, Status::Ok, Status::Access),
        (0o703, Status::Ok, Status::Ok),
    ] {
        harness.set(dir, mode, 0, 0);
        assert_eq!(harness.status(Op::Lookup, &lookup), found, "{mode:o}");
        assert_eq!(harness.status(Op::Unlink, &unlink), removed, "{mode:o}");
    }
}

#[test]
fn in_a_sticky_directory_only_owners_remove() {
    let mut harness = Harness::new();
    let (dir, other) = (harness.mkdir(ROOT, "t", 0o777), harness.mkdir(ROOT, "o", 0o777));
    harness.set(dir, 0o1777, 1, 1);
    harness.set(other, 0o777, 9, 9);
    let unlink = |caller, text| Unlink { caller, parent: dir, name: name(text), behind: None };
    for text in ["a", "b", "c", "d"] {
        harness.create(user(5, 5), dir, text, 0o666).unwrap();
    }
    let rename = |caller| Rename {
        caller,
        parent: dir,
        name: name("a"),
        new_parent: other,
        new_name: name("a"),
        how: RenameHow::Replace,
    };
    assert_eq!(harness.status(Op::Unlink, &unlink(user(6, 5), "a")), Status::NotPermitted);
    assert_eq!(harness.status(Op::Rename, &rename(user(6, 5))), Status::NotPermitted);
    harness.create(user(6, 6), other, "mine", 0o666).unwrap();
    let over = Rename { parent: other, name: name("mine"), new_parent: dir, ..rename(user(6, 6)) };
    assert_eq!(harness.status(Op::Rename, &over), Status::NotPermitted);
    assert_eq!(harness.status(Op::Unlink, &unlink(user(5, 9), "a")), Status::Ok);
    assert_eq!(harness.status(Op::Unlink, &unlink(user(1, 9), "b")), Status::Ok);
    assert_eq!(harness.status(Op::Unlink, &unlink(root(), "c")), Status::Ok);
    harness.mkdir(dir, "e", 0o777);
    let rmdir = Rmdir { caller: user(5, 5), parent: dir, name: name("e") };
    assert_eq!(harness.status(Op::Rmdir, &rmdir), Status::NotPermitted);
}

#[test]
fn a_directory_that_gets_another_parent_must_be_writable() {
    let mut harness = Harness::new();
    let (a, b) = (harness.mkdir(ROOT, "a", 0o777), harness.mkdir(ROOT, "b", 0o777));
    harness.set(a, 0o777, 5, 5);
    harness.set(b, 0o777, 5, 5);
    harness.mkdir(a, "m", 0o755);
    let rename = Rename {
        caller: user(5, 5),
        parent: a,
        name: name("m"),
        new_parent: b,
        new_name: name("m"),
        how: RenameHow::Replace,
    };
    assert_eq!(harness.status(Op::Rename, &rename), Status::Access);
    let within = Rename { new_parent: a, new_name: name("n"), ..rename };
    assert_eq!(harness.status(Op::Rename, &within), Status::Ok);
}

#[test]
fn the_umask_clears_permissions_and_nothing_else() {
    let mut harness = Harness::new();
    let made = |harness: &mut Harness, text: &'static str, umask: u32| {
        let (name, mode) = (name(text), 0o7777);
        let args = wire::Mkdir { caller: root(), parent: ROOT, name, mode, umask };
        harness.answer::<wire::Entry>(Op::Mkdir, &args).attr.mode
    };
    assert_eq!(made(&mut harness, "a", 0o027), 0o1750);
    assert_eq!(made(&mut harness, "b", 0o7777), 0o1000, "sticky is no permission");
    let (exclusive, handle) = (true, None);
    let (name, mode, umask) = (name("f"), 0o4777, 0o4077);
    let args = wire::Create {
        caller: root(),
        parent: ROOT,
        name,
        mode,
        umask,
        exclusive,
        handle,
        behind: None,
    };
    assert_eq!(harness.answer::<wire::Created>(Op::Create, &args).attr.mode, 0o4700);
    harness.check_redo();
}
