//! Open, close, reopen: who has the size, orphans, and what a restart forgets.

use super::{ALICE, BOB, ROOT, World, read_handle, root, setattr, user, write_handle};
use crate::{Effect, Shard};
use alloc::vec::Vec;
use wire::{
    Bytes, Close, Contents, Handle, HandleId, InodeNo, Op, Open, OpenFor, PrivilegedBits, Reopen,
    Rmdir, SetTime, Setattr, ShardId, Status, Timestamp, Transno, attr_flag,
};

fn contents(size_bytes: u64, write_secs: i64) -> Contents {
    let write_time = Some(Timestamp { secs: write_secs, nanos: 0 });
    Contents { size_bytes, allocated_bytes: 4096, write_time }
}

fn close(world: &mut World, inode: InodeNo, id: u64) -> Effect {
    world.execute(Op::Close, &Close { inode, handle: HandleId(id) })
}

/// What the data shard says when it was asked; the transaction's number.
fn settle(world: &mut World, closed: Effect, contents: Contents) -> Transno {
    let (inode, number) = closed.settling.expect("a question");
    let mut changes = Vec::new();
    let effect = world.shard.settle(inode, number, Some(contents), &mut changes);
    if effect.transno > Transno(0) {
        world.log.push((effect.transno, changes));
    }
    effect.transno
}

fn at_data(world: &mut World, inode: InodeNo) -> bool {
    world.attr(inode).flags & attr_flag::SIZE_AT_DATA != 0
}

fn orphans(world: &World) -> Vec<InodeNo> {
    world.shard.orphans().collect()
}

#[test]
fn opening_for_writing_puts_the_size_with_the_data_and_the_last_close_brings_it_back() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    let reading = Open { caller: root(), inode: file, handle: read_handle(1) };
    assert_eq!(world.execute(Op::Open, &reading).transno, Transno(0));
    assert!(!at_data(&mut world, file));
    assert_eq!(world.open(file, write_handle(2)), Status::Ok);
    let records = world.log.len();
    world.client = BOB;
    assert_eq!(world.open(file, write_handle(2)), Status::Ok);
    assert_eq!(world.log.len(), records, "the mark stands already");
    assert!(at_data(&mut world, file));
    assert_eq!(close(&mut world, file, 2).settling, None, "another writes");
    world.client = ALICE;
    let version = world.attr(file).version;
    let closed = close(&mut world, file, 2);
    assert!(at_data(&mut world, file), "until the data shard has answered");
    assert!(settle(&mut world, closed, contents(20, 600)) > Transno(0));
    let attr = world.attr(file);
    assert_eq!((attr.size_bytes, attr.allocated_bytes, attr.flags), (20, 4096, 0));
    assert_eq!((attr.mtime.secs, attr.ctime.secs, attr.version), (600, 600, version));
    assert_eq!(settle(&mut world, closed, contents(30, 700)), Transno(0), "it was answered");
    world.check_redo();
}

#[test]
fn a_utimes_after_the_last_write_stands() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    assert_eq!(world.open(file, write_handle(1)), Status::Ok);
    let at = Timestamp { secs: 7, nanos: 0 };
    let utimes = Setattr { mtime: SetTime::At(at), ..setattr(file) };
    let written_secs = world.now.secs;
    assert_eq!(world.status(Op::Setattr, &utimes), Status::Ok);
    let ctime = world.now;
    let closed = close(&mut world, file, 1);
    settle(&mut world, closed, contents(10, written_secs));
    let attr = world.attr(file);
    assert_eq!((attr.size_bytes, attr.mtime, attr.ctime), (10, at, ctime));
}

#[test]
fn only_a_registered_writers_close_asks_for_the_size() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    assert_eq!(world.open(file, write_handle(1)), Status::Ok);
    assert_eq!(world.open(file, read_handle(2)), Status::Ok);
    for id in [2, 3] {
        assert_eq!(close(&mut world, file, id).settling, None);
    }
    let closed = close(&mut world, file, 1);
    assert!(closed.settling.is_some());
    assert_eq!(close(&mut world, file, 1).settling, None, "a repetition");
    assert_eq!(close(&mut world, InodeNo(99), 1).status, Status::Ok);
    let (inode, number) = closed.settling.unwrap();
    let effect = world.shard.settle(inode, number, None, &mut Vec::new());
    assert_eq!(effect.transno, Transno(0), "it could not be had");
    assert_eq!(settle(&mut world, closed, contents(9, 900)), Transno(0), "and was answered");
    assert!(at_data(&mut world, file), "the data shards know");
}

#[test]
fn what_may_be_opened() {
    let mut world = World::new();
    let (file, dir) = (world.file(ROOT, "f", 0o644), world.mkdir(ROOT, "d", 0o755));
    let symlink = world.symlink(ROOT, "l", b"f");
    world.set(file, 0o711, 5, 5);
    assert_eq!(world.open(symlink, read_handle(1)), Status::Loop);
    assert_eq!(world.open(dir, write_handle(1)), Status::IsDirectory);
    assert_eq!(world.open(dir, read_handle(1)), Status::Ok);
    assert_eq!(world.open(InodeNo(99), read_handle(1)), Status::Stale);
    for open_for in OpenFor::ALL {
        let handle = Handle { id: HandleId(5), open_for };
        let expected = if open_for.executes() { Status::Ok } else { Status::Access };
        let open = Open { caller: user(6, 6), inode: file, handle };
        assert_eq!(world.status(Op::Open, &open), expected, "{open_for:?}");
    }
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    assert_eq!(world.open(file, write_handle(1)), Status::Ok);
    assert_eq!(world.unlink(ROOT, "f").orphan, None);
    assert_eq!((world.attr(file).nlink, orphans(&world)), (0, Vec::new()));
    assert_eq!(world.open(file, read_handle(2)), Status::Ok, "by /proc/self/fd");
    assert_eq!(close(&mut world, file, 1).orphan, None);
    let effect = close(&mut world, file, 2);
    assert_eq!((effect.transno, effect.orphan), (Transno(0), Some(file)));
    assert_eq!(world.open(file, read_handle(3)), Status::Stale);
    let mut changes = Vec::new();
    let effect = world.shard.destroyed(file, &mut changes);
    world.log.push((effect.transno, changes));
    assert_eq!(world.status(Op::Getattr, &wire::Getattr { inode: file }), Status::Stale);
    world.check_redo();
    let mut changes = Vec::new();
    let effect = world.shard.destroyed(file, &mut changes);
    assert_eq!((effect, changes.len()), (Effect::unchanged(Status::Stale), 0));
}

#[test]
fn what_is_not_an_orphan_is_not_destroyed() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    let mut changes = Vec::new();
    assert_eq!(world.shard.destroyed(file, &mut changes).transno, Transno(0));
    assert_eq!(world.lookup(ROOT, "f"), Some(file));
}

#[test]
fn an_open_directory_goes_with_its_last_close() {
    let mut world = World::new();
    let dir = world.mkdir(ROOT, "d", 0o755);
    assert_eq!(world.open(dir, read_handle(1)), Status::Ok);
    let args = Rmdir { caller: root(), parent: ROOT, name: super::name("d") };
    assert_eq!(world.status(Op::Rmdir, &args), Status::Ok);
    assert_eq!(close(&mut world, dir, 1).orphan, Some(dir));
    world.check_redo();
}

#[test]
fn a_client_that_is_gone_holds_nothing() {
    let mut world = World::new();
    let (a, b) = (world.file(ROOT, "a", 0o644), world.file(ROOT, "b", 0o644));
    for (inode, client) in [(a, ALICE), (b, ALICE), (b, BOB)] {
        world.client = client;
        assert_eq!(world.open(inode, write_handle(1)), Status::Ok);
        assert_eq!(world.open(inode, read_handle(2)), Status::Ok);
    }
    world.unlink(ROOT, "a");
    world.unlink(ROOT, "b");
    assert!(world.shard.knows_handles_of(ALICE));
    assert_eq!(world.shard.client_gone(ALICE), [a]);
    assert!(!world.shard.knows_handles_of(ALICE));
    assert!(world.shard.knows_handles_of(BOB));
    assert_eq!(world.shard.client_gone(BOB), [b]);
    assert_eq!(world.shard.client_gone(BOB), []);
}

#[test]
fn after_a_restart_nobody_is_taken_for_closed_until_the_grace_time_ends() {
    let mut world = World::new();
    let (held, left) = (world.file(ROOT, "held", 0o644), world.file(ROOT, "left", 0o644));
    for inode in [held, left] {
        assert_eq!(world.open(inode, write_handle(inode.0)), Status::Ok);
    }
    world.unlink(ROOT, "held");
    world.restart();
    assert!(at_data(&mut world, held) && at_data(&mut world, left));
    assert_eq!((orphans(&world), world.unlink(ROOT, "left").orphan), (Vec::new(), None));
    let reopen = |inode: InodeNo| Reopen { inode, handle: write_handle(inode.0) };
    assert_eq!(world.status(Op::Reopen, &reopen(held)), Status::Ok);
    assert_eq!(world.status(Op::Reopen, &reopen(held)), Status::Ok);
    assert_eq!(world.status(Op::Reopen, &reopen(InodeNo(99))), Status::Stale);
    world.shard.end_grace();
    assert_eq!(orphans(&world), [left]);
    assert_eq!(world.status(Op::Reopen, &reopen(left)), Status::Stale, "too late");
    assert_eq!(close(&mut world, held, held.0).orphan, Some(held));
    world.check_redo();
}

#[test]
fn who_opens_for_writing_takes_the_question_back() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    assert_eq!(world.open(file, write_handle(1)), Status::Ok);
    let first = close(&mut world, file, 1);
    assert_eq!(world.open(file, write_handle(2)), Status::Ok);
    assert_eq!(settle(&mut world, first, contents(10, 600)), Transno(0), "being written");
    let second = close(&mut world, file, 2);
    assert_eq!(settle(&mut world, first, contents(10, 600)), Transno(0), "old news");
    assert!(at_data(&mut world, file));
    assert!(settle(&mut world, second, contents(20, 600)) > Transno(0));
    assert_eq!((world.attr(file).size_bytes, at_data(&mut world, file)), (20, false));
    // A writer who left without a word may have something on its way.
    assert_eq!(world.open(file, write_handle(1)), Status::Ok);
    world.client = BOB;
    assert_eq!(world.open(file, write_handle(1)), Status::Ok);
    world.shard.client_gone(BOB);
    world.client = ALICE;
    assert_eq!(close(&mut world, file, 1).settling, None);
    assert_eq!(world.open(file, write_handle(1)), Status::Ok);
    let closed = close(&mut world, file, 1);
    assert!(settle(&mut world, closed, contents(20, 600)) > Transno(0), "all is told again");
    world.check_redo();
}

#[test]
fn what_has_no_name_any_more_is_not_settled() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    assert_eq!(world.open(file, write_handle(1)), Status::Ok);
    let closed = close(&mut world, file, 1);
    assert_eq!(world.open(file, read_handle(2)), Status::Ok);
    world.unlink(ROOT, "f");
    assert_eq!(settle(&mut world, closed, contents(10, 600)), Transno(0));
}

#[test]
fn no_size_is_settled_during_the_grace_time() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    assert_eq!(world.open(file, write_handle(1)), Status::Ok);
    world.restart();
    let reopen = Reopen { inode: file, handle: write_handle(1) };
    assert_eq!(world.status(Op::Reopen, &reopen), Status::Ok);
    assert_eq!(close(&mut world, file, 1).settling, None);
    assert!(at_data(&mut world, file));
    world.shard.end_grace();
    assert_eq!(world.open(file, write_handle(2)), Status::Ok);
    let closed = close(&mut world, file, 2);
    assert!(settle(&mut world, closed, contents(5, 900)) > Transno(0));
    assert!(!at_data(&mut world, file));
}

#[test]
fn reopening_a_settled_file_for_writing_takes_its_size_away_again() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    let reopen = Reopen { inode: file, handle: write_handle(1) };
    assert!(world.execute(Op::Reopen, &reopen).transno > Transno(0));
    assert!(at_data(&mut world, file));
    let symlink = world.symlink(ROOT, "l", b"f");
    for (inode, handle, status) in [
        (symlink, read_handle(1), Status::Invalid),
        (ROOT, write_handle(1), Status::Invalid),
        (ROOT, read_handle(1), Status::Ok),
    ] {
        assert_eq!(world.status(Op::Reopen, &Reopen { inode, handle }), status);
    }
}

#[test]
fn numbers_that_may_have_been_seen_and_lost_are_never_given_again() {
    let mut world = World::new();
    world.file(ROOT, "f", 0o644);
    let mut seen: Vec<(Transno, InodeNo)> = Vec::new();
    for boot_id in 1..20 {
        // Nothing of the boots before became durable but the first file.
        let mut shard = world.redone();
        shard.start_boot(boot_id);
        for _ in 0..3 {
            let mut lost = World::new();
            core::mem::swap(&mut lost.shard, &mut shard);
            let inode = lost.file(ROOT, &alloc::format!("g{}", seen.len()), 0o644);
            let transno = lost.shard.transno_last();
            assert!(!seen.iter().any(|(old, other)| *old == transno || *other == inode));
            seen.push((transno, inode));
            core::mem::swap(&mut lost.shard, &mut shard);
        }
    }
    let mut fresh = Shard::new(ShardId::meta(0), super::MADE);
    fresh.start_boot(5);
    assert_eq!(fresh.transno_last(), Transno(5 << 32));
}

#[test]
fn a_boot_that_left_no_inode_has_given_out_numbers_all_the_same() {
    let mut world = World::new();
    let mut seen = Vec::new();
    for mode in 1..20 {
        world.restart();
        let chmod = Setattr { mode: Some(mode), ..setattr(ROOT) };
        assert_eq!(world.status(Op::Setattr, &chmod), Status::Ok);
        let durable_count = world.log.len();
        let inode = world.file(ROOT, "lost", 0o644);
        assert!(!seen.contains(&inode), "{inode} was given out before");
        seen.push(inode);
        world.log.truncate(durable_count);
    }
}

#[test]
fn what_a_file_gives_is_told_while_somebody_writes_it() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o755);
    let nothing = PrivilegedBits::default();
    let set_id = PrivilegedBits { set_id: true, ..nothing };
    let chmod = |world: &mut World, mode| {
        world.execute(Op::Setattr, &Setattr { mode: Some(mode), ..setattr(file) }).gives
    };
    assert_eq!(chmod(&mut world, 0o4755), None, "nobody writes it: who opens it sees it");
    assert_eq!(world.open(file, read_handle(1)), Status::Ok);
    assert_eq!(chmod(&mut world, 0o2755), None, "nor now");
    assert_eq!(world.open(file, write_handle(2)), Status::Ok);
    assert_eq!(chmod(&mut world, 0o6755), Some((file, set_id)));
    assert_eq!(chmod(&mut world, 0o4711), None, "it is known");
    let (name, value) = (Bytes(b"security.capability"), Bytes(b"all"));
    let give = wire::Setxattr { caller: super::root(), inode: file, name, value, flags: 0 };
    let both = PrivilegedBits { capability: true, ..set_id };
    assert_eq!(world.execute(Op::Setxattr, &give).gives, Some((file, both)));
    let take = Setattr { revoke: wire::ClearPrivileges::All, ..setattr(file) };
    let writer = Setattr { caller: super::user(7, 7), ..take };
    assert_eq!(world.execute(Op::Setattr, &writer).gives, Some((file, nothing)));
    assert_eq!(world.attr(file).mode, 0o711);
    let capability = PrivilegedBits { capability: true, ..nothing };
    assert_eq!(world.execute(Op::Setxattr, &give).gives, Some((file, capability)));
    let take = wire::Removexattr { caller: super::root(), inode: file, name };
    assert_eq!(world.execute(Op::Removexattr, &take).gives, Some((file, nothing)));
    // After a restart the data shard knows nothing.
    assert_eq!(chmod(&mut world, 0o4755), Some((file, set_id)));
    world.restart();
    let reopen = Reopen { inode: file, handle: write_handle(2) };
    assert_eq!(world.execute(Op::Reopen, &reopen).gives, Some((file, set_id)));
    assert_eq!(close(&mut world, file, 2).gives, Some((file, nothing)), "nobody writes it");
    world.check_redo();
}
