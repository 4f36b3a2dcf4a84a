//! Setattr and getattr: mode, owner, group, times.

use super::{Harness, ROOT, name, root, setattr, user};
use crate::Access;
use wire::{
    Caller, ClearPrivileges, Getattr, Groups, InodeNo, Op, Rename, RenameHow, SetTime, Setattr,
    Status, Timestamp, Transno,
};

const AT: Timestamp = Timestamp { secs: 12, nanos: 34 };

#[test]
fn an_unknown_inode_is_stale() {
    let mut harness = Harness::new();
    for inode in [InodeNo(0), InodeNo(9), InodeNo::new(3, 1), InodeNo(u64::MAX)] {
        assert_eq!(harness.status(Op::Getattr, &Getattr { inode }), Status::Stale);
        assert_eq!(harness.status(Op::Setattr, &setattr(inode)), Status::Stale);
    }
}

#[test]
fn a_setattr_without_attributes_changes_nothing() {
    let mut harness = Harness::new();
    let effect = harness.execute(Op::Setattr, &setattr(ROOT));
    assert_eq!((effect.status, effect.transno), (Status::Ok, Transno(0)));
}

#[test]
fn the_owner_changes_the_mode_and_others_do_not() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    harness.set(file, 0o644, 5, 6);
    let chmod = |caller, mode| Setattr { caller, mode: Some(mode), ..setattr(file) };
    assert_eq!(harness.status(Op::Setattr, &chmod(user(7, 6), 0o600)), Status::NotPermitted);
    let before = harness.attr(file).version;
    let effect = harness.execute(Op::Setattr, &chmod(user(5, 9), 0o17_600));
    assert_eq!((effect.status, effect.pre_versions.as_slice()), (Status::Ok, &[before][..]));
    let attr = harness.attr(file);
    assert_eq!(
        (attr.mode, attr.version),
        (0o5600, effect.transno),
        "set-gid is cleared: not in the group"
    );
    assert_eq!(attr.ctime.secs, harness.now.secs - 1);
    harness.check_redo();
}

#[test]
fn only_members_set_the_set_group_id_bit() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    harness.set(file, 0o644, 5, 6);
    let unknown = Caller { uid: 5, gid: 9, groups: Groups::Unknown };
    let chmod = |caller, mode| Setattr { caller, mode: Some(mode), ..setattr(file) };
    assert_eq!(harness.status(Op::Setattr, &chmod(unknown, 0o2755)), Status::NeedGroups);
    assert_eq!(harness.status(Op::Setattr, &chmod(unknown, 0o755)), Status::Ok);
    let six = 6_u32.to_le_bytes();
    let member = Caller { groups: Groups::Known(&six), ..unknown };
    assert_eq!(harness.status(Op::Setattr, &chmod(member, 0o2755)), Status::Ok);
    assert_eq!(harness.attr(file).mode, 0o2755);
}

#[test]
fn only_root_gives_files_away() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    harness.set(file, 0o6755, 5, 6);
    let give = |caller, uid, gid| Setattr { caller, uid, gid, ..setattr(file) };
    let seven = 7_u32.to_le_bytes();
    let owner = Caller { uid: 5, gid: 6, groups: Groups::Known(&seven) };
    let lazy = Caller { groups: Groups::Unknown, ..owner };
    for (caller, uid, gid, status) in [
        (owner, Some(8), None, Status::NotPermitted),
        (owner, None, Some(8), Status::NotPermitted),
        (user(9, 7), None, Some(7), Status::NotPermitted),
        (lazy, None, Some(7), Status::NeedGroups),
        (lazy, None, Some(6), Status::Ok),
        (owner, Some(5), Some(7), Status::Ok),
        (owner, Some(u32::MAX), None, Status::Invalid),
    ] {
        assert_eq!(harness.status(Op::Setattr, &give(caller, uid, gid)), status, "{uid:?} {gid:?}");
    }
    let attr = harness.attr(file);
    assert_eq!((attr.uid, attr.gid, attr.mode), (5, 7, 0o755), "set-id bits are cleared");
    harness.check_redo();
}

#[test]
fn set_group_without_execution_stays_and_directories_keep_their_bits() {
    let mut harness = Harness::new();
    let (file, dir) = (harness.file(ROOT, "f", 0o644), harness.mkdir(ROOT, "d", 0o755));
    for inode in [file, dir] {
        harness.set(inode, 0o6745, 5, 6);
        let give = Setattr { uid: Some(7), ..setattr(inode) };
        assert_eq!(harness.status(Op::Setattr, &give), Status::Ok);
    }
    assert_eq!((harness.attr(file).mode, harness.attr(dir).mode), (0o2745, 0o6745));
}

#[test]
fn the_owner_sets_any_time_and_writers_the_present() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    harness.set(file, 0o646, 5, 6);
    let times = |caller, atime, mtime| Setattr { caller, atime, mtime, ..setattr(file) };
    let (keep, now, at) = (SetTime::Keep, SetTime::Now, SetTime::At(AT));
    assert_eq!(harness.status(Op::Setattr, &times(user(9, 9), now, now)), Status::Ok);
    assert_eq!(harness.attr(file).mtime.secs, harness.now.secs - 1);
    assert_eq!(harness.status(Op::Setattr, &times(user(9, 9), keep, at)), Status::NotPermitted);
    assert_eq!(harness.status(Op::Setattr, &times(user(9, 6), now, now)), Status::Access);
    let alone = times(user(9, 9), keep, now);
    assert_eq!(harness.status(Op::Setattr, &alone), Status::NotPermitted, "one time alone");
    assert_eq!(harness.status(Op::Setattr, &times(user(5, 5), at, keep)), Status::Ok);
    let attr = harness.attr(file);
    assert_eq!((attr.atime, attr.ctime.secs), (AT, harness.now.secs - 1));
    assert_eq!(harness.status(Op::Setattr, &times(user(5, 5), keep, at)), Status::Ok);
    assert_eq!(harness.attr(file).mtime, AT);
    harness.check_redo();
}

#[test]
fn a_symbolic_link_has_no_mode_to_change() {
    let mut harness = Harness::new();
    let symlink = harness.symlink(ROOT, "l", b"x");
    let chmod = Setattr { mode: Some(0o600), ..setattr(symlink) };
    assert_eq!(harness.status(Op::Setattr, &chmod), Status::NotSupported);
    let give = Setattr { uid: Some(7), ..setattr(symlink) };
    assert_eq!(harness.status(Op::Setattr, &give), Status::Ok);
    assert_eq!((harness.attr(symlink).uid, harness.attr(symlink).mode), (7, 0o777));
}

#[test]
fn a_change_of_contents_clears_privileges() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let capability = |harness: &mut Harness| {
        let (name, value) = (wire::Bytes(b"security.capability"), wire::Bytes(b"cap"));
        let args = wire::Setxattr { caller: root(), inode: file, name, value, flags: 0 };
        assert_eq!(harness.status(Op::Setxattr, &args), Status::Ok);
    };
    let clears = |harness: &mut Harness, caller, clears| {
        let args = Setattr { caller, clears, ..setattr(file) };
        let effect = harness.execute(Op::Setattr, &args);
        (effect.status, effect.transno.0 > 0)
    };
    let found = |harness: &mut Harness| {
        let attr = harness.attr(file);
        (attr.mode, attr.flags & wire::attr_flag::CAPABILITY != 0)
    };
    harness.set(file, 0o6777, 5, 5);
    capability(&mut harness);
    assert_eq!(found(&mut harness), (0o6777, true));
    assert_eq!(clears(&mut harness, user(7, 7), ClearPrivileges::Nothing), (Status::Ok, false));
    assert_eq!(clears(&mut harness, user(7, 7), ClearPrivileges::Capability), (Status::Ok, true));
    assert_eq!(found(&mut harness), (0o6777, false));
    assert_eq!(clears(&mut harness, user(7, 7), ClearPrivileges::Capability), (Status::Ok, false));
    assert_eq!(clears(&mut harness, user(7, 7), ClearPrivileges::All), (Status::Ok, true));
    assert_eq!(found(&mut harness), (0o777, false));
    harness.set(file, 0o6764, 5, 5);
    assert_eq!(clears(&mut harness, user(7, 7), ClearPrivileges::All).0, Status::Access);
    assert_eq!(clears(&mut harness, root(), ClearPrivileges::All), (Status::Ok, true));
    assert_eq!(found(&mut harness), (0o2764, false), "no x for the group: not about running");
    capability(&mut harness);
    harness.set(file, 0o644, 6, 6);
    assert_eq!(found(&mut harness), (0o644, false), "a new owner takes it as well");
    harness.check_redo();
}

#[test]
fn a_writer_may_remove_capabilities_and_set_none() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    harness.set(file, 0o664, 5, 6);
    let name = wire::Bytes(b"security.capability");
    let set = |caller| {
        let value = wire::Bytes(b"cap");
        wire::Setxattr { caller, inode: file, name, value, flags: 0 }
    };
    let remove = |caller| wire::Removexattr { caller, inode: file, name };
    assert_eq!(harness.status(Op::Setxattr, &set(user(5, 5))), Status::NotPermitted);
    let unknown = Caller { groups: Groups::Unknown, ..user(9, 9) };
    let six = 6_u32.to_le_bytes();
    for (caller, status) in [
        (user(9, 9), Status::NotPermitted),
        (unknown, Status::NeedGroups),
        (Caller { groups: Groups::Known(&six), ..unknown }, Status::Ok),
        (user(9, 6), Status::Ok),
        (user(5, 5), Status::Ok),
        (root(), Status::Ok),
    ] {
        assert_eq!(harness.status(Op::Setxattr, &set(root())), Status::Ok);
        assert_eq!(harness.status(Op::Removexattr, &remove(caller)), status);
    }
    harness.check_redo();
}

#[test]
fn the_first_read_after_a_change_counts_and_one_a_day() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let read = |harness: &mut Harness, write_time: Option<Timestamp>, now: Timestamp| {
        let mut changes = alloc::vec::Vec::new();
        let effect = harness.shard.accessed(file, write_time, now, &mut changes);
        if effect.transno.0 > 0 {
            harness.log.push((effect.transno, changes));
        }
        effect.transno.0 > 0
    };
    let version = harness.attr(file).version;
    let now = harness.attr(file).ctime;
    assert!(read(&mut harness, None, now), "it was just made");
    assert_eq!(harness.attr(file).atime, now.next(), "seen to come later");
    assert!(!read(&mut harness, None, now));
    let later = |secs: i64| Timestamp { secs: now.secs + secs, nanos: 0 };
    assert!(!read(&mut harness, Some(now), later(5)));
    assert!(read(&mut harness, Some(later(4)), later(5)), "written at the data shard");
    assert!(!read(&mut harness, Some(later(4)), later(6)));
    assert!(!read(&mut harness, None, later(5 + 24 * 3600 - 1)));
    assert!(read(&mut harness, None, later(5 + 24 * 3600)), "a day has passed");
    assert_eq!(harness.attr(file).version, version, "no replay stumbles over it");
    harness.check_redo();
}

#[test]
fn a_change_of_two_read_files_makes_both_report_the_next_read() {
    let mut harness = Harness::new();
    let read = |harness: &mut Harness, text: &str| {
        let file = harness.file(ROOT, text, 0o644);
        let later = Timestamp { secs: harness.now.secs + 1, ..harness.now };
        let effect = harness.shard.accessed(file, None, later, &mut alloc::vec::Vec::new());
        assert!(effect.transno > Transno(0));
        file
    };
    let (one, two, unread) =
        (read(&mut harness, "a"), read(&mut harness, "b"), harness.file(ROOT, "c", 0o644));
    harness.now.secs += 5;
    let exchange = |from, to| Rename {
        caller: root(),
        parent: ROOT,
        name: name(from),
        new_parent: ROOT,
        new_name: name(to),
        how: RenameHow::Exchange,
    };
    let Access::Ends(first, second) = harness.execute(Op::Rename, &exchange("a", "b")).access
    else {
        panic!("both were read")
    };
    assert_eq!([Some(first.min(second.unwrap())), second.max(Some(first))], [Some(one), Some(two)]);
    assert_eq!(harness.execute(Op::Rename, &exchange("a", "b")).access, Access::None, "known");
    assert_eq!(harness.execute(Op::Rename, &exchange("a", "c")).access, Access::None);
    assert!(harness.attr(unread).ctime > harness.attr(unread).birth);
}
