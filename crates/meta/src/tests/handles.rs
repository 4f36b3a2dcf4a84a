//! Open, close, reopen: the place of the size, orphans, and the state that a restart loses.

use super::{ALICE, BOB, Harness, ROOT, read_handle, root, setattr, user, write_handle};
use crate::{Effect, Shard};
use alloc::vec::Vec;
use disk::{Change, InodeRow, TxnChange, TxnId};
use wire::{
    Bytes, Close, Contents, Handle, HandleId, InodeNo, Op, Open, OpenFor, PrivilegedBits, Reopen,
    Rmdir, SetTime, Setattr, ShardId, Status, Term, Timestamp, Transno, Wire as _, attr_flag,
};

fn contents(size_bytes: u64, write_secs: i64) -> Contents {
    let write_time = Some(Timestamp { secs: write_secs, nanos: 0 });
    Contents { size_bytes, allocated_bytes: 4096, write_time }
}

fn close(harness: &mut Harness, inode: InodeNo, id: u64) -> Effect {
    harness.execute(Op::Close, &Close { inode, handle: HandleId(id) })
}

/// The data shard's reply to the size query; the transaction's number.
fn settle(harness: &mut Harness, closed: Effect, contents: Contents) -> Transno {
    let (inode, number) = closed.settling.expect("a question");
    let mut changes = Vec::new();
    let effect = harness.shard.settle(inode, number, Some(contents), &mut changes);
    if effect.transno > Transno(0) {
        harness.log.push((effect.transno, changes));
    }
    effect.transno
}

fn at_data(harness: &mut Harness, inode: InodeNo) -> bool {
    harness.attr(inode).flags & attr_flag::SIZE_AT_DATA != 0
}

fn orphans(harness: &Harness) -> Vec<InodeNo> {
    harness.shard.orphans().collect()
}

#[test]
fn opening_for_writing_moves_the_size_to_the_data_shard_and_the_last_close_returns_it() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let reading = Open { caller: root(), inode: file, handle: read_handle(1) };
    assert_eq!(harness.execute(Op::Open, &reading).transno, Transno(0));
    assert!(!at_data(&mut harness, file));
    assert_eq!(harness.open(file, write_handle(2)), Status::Ok);
    let records = harness.log.len();
    harness.client = BOB;
    assert_eq!(harness.open(file, write_handle(2)), Status::Ok);
    assert_eq!(harness.log.len(), records, "the mark stands already");
    assert!(at_data(&mut harness, file));
    assert_eq!(close(&mut harness, file, 2).settling, None, "another writes");
    harness.client = ALICE;
    let version = harness.attr(file).version;
    let closed = close(&mut harness, file, 2);
    assert!(at_data(&mut harness, file), "until the data shard has answered");
    assert!(settle(&mut harness, closed, contents(20, 600)) > Transno(0));
    let attr = harness.attr(file);
    assert_eq!((attr.size_bytes, attr.allocated_bytes, attr.flags), (20, 4096, 0));
    assert_eq!((attr.mtime.secs, attr.ctime.secs, attr.version), (600, 600, version));
    assert_eq!(settle(&mut harness, closed, contents(30, 700)), Transno(0), "it was answered");
    harness.check_redo();
}

#[test]
fn a_utimes_after_the_last_write_is_preserved() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(harness.open(file, write_handle(1)), Status::Ok);
    let at = Timestamp { secs: 7, nanos: 0 };
    let utimes = Setattr { mtime: SetTime::At(at), ..setattr(file) };
    let written_secs = harness.now.secs;
    assert_eq!(harness.status(Op::Setattr, &utimes), Status::Ok);
    let ctime = harness.now;
    let closed = close(&mut harness, file, 1);
    settle(&mut harness, closed, contents(10, written_secs));
    let attr = harness.attr(file);
    assert_eq!((attr.size_bytes, attr.mtime, attr.ctime), (10, at, ctime));
}

#[test]
fn only_a_registered_writers_close_asks_for_the_size() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(harness.open(file, write_handle(1)), Status::Ok);
    assert_eq!(harness.open(file, read_handle(2)), Status::Ok);
    for id in [2, 3] {
        assert_eq!(close(&mut harness, file, id).settling, None);
    }
    let closed = close(&mut harness, file, 1);
    assert!(closed.settling.is_some());
    assert_eq!(close(&mut harness, file, 1).settling, None, "a repetition");
    assert_eq!(close(&mut harness, InodeNo(99), 1).status, Status::Ok);
    let (inode, number) = closed.settling.unwrap();
    let effect = harness.shard.settle(inode, number, None, &mut Vec::new());
    assert_eq!(effect.transno, Transno(0), "it could not be had");
    assert_eq!(settle(&mut harness, closed, contents(9, 900)), Transno(0), "and was answered");
    assert!(at_data(&mut harness, file), "the data shards know");
}

#[test]
fn files_and_directories_can_be_opened() {
    let mut harness = Harness::new();
    let (file, dir) = (harness.file(ROOT, "f", 0o644), harness.mkdir(ROOT, "d", 0o755));
    let symlink = harness.symlink(ROOT, "l", b"f");
    harness.set(file, 0o711, 5, 5);
    assert_eq!(harness.open(symlink, read_handle(1)), Status::Loop);
    assert_eq!(harness.open(dir, write_handle(1)), Status::IsDirectory);
    assert_eq!(harness.open(dir, read_handle(1)), Status::Ok);
    assert_eq!(harness.open(InodeNo(99), read_handle(1)), Status::Stale);
    for open_for in OpenFor::ALL {
        let handle = Handle { id: HandleId(5), open_for };
        let expected = if open_for.executes() { Status::Ok } else { Status::Access };
        let open = Open { caller: user(6, 6), inode: file, handle };
        assert_eq!(harness.status(Op::Open, &open), expected, "{open_for:?}");
    }
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(harness.open(file, write_handle(1)), Status::Ok);
    assert_eq!(harness.unlink(ROOT, "f").orphan, None);
    assert_eq!((harness.attr(file).nlink, orphans(&harness)), (0, Vec::new()));
    assert_eq!(harness.open(file, read_handle(2)), Status::Ok, "by /proc/self/fd");
    assert_eq!(close(&mut harness, file, 1).orphan, None);
    let effect = close(&mut harness, file, 2);
    assert_eq!((effect.transno, effect.orphan), (Transno(0), Some(file)));
    assert_eq!(harness.open(file, read_handle(3)), Status::Stale);
    let mut changes = Vec::new();
    let effect = harness.shard.destroyed(file, &mut changes);
    harness.log.push((effect.transno, changes));
    assert_eq!(harness.status(Op::Getattr, &wire::Getattr { inode: file }), Status::Stale);
    harness.check_redo();
    let mut changes = Vec::new();
    let effect = harness.shard.destroyed(file, &mut changes);
    assert_eq!((effect, changes.len()), (Effect::unchanged(Status::Stale), 0));
}

#[test]
fn only_orphans_are_destroyed() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let mut changes = Vec::new();
    assert_eq!(harness.shard.destroyed(file, &mut changes).transno, Transno(0));
    assert_eq!(harness.lookup(ROOT, "f"), Some(file));
}

#[test]
fn an_open_removed_directory_is_destroyed_with_its_last_close() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o755);
    assert_eq!(harness.open(dir, read_handle(1)), Status::Ok);
    let args = Rmdir { caller: root(), parent: ROOT, name: super::name("d") };
    assert_eq!(harness.status(Op::Rmdir, &args), Status::Ok);
    assert_eq!(close(&mut harness, dir, 1).orphan, Some(dir));
    harness.check_redo();
}

#[test]
fn a_dropped_client_has_no_handles() {
    let mut harness = Harness::new();
    let (a, b) = (harness.file(ROOT, "a", 0o644), harness.file(ROOT, "b", 0o644));
    for (inode, client) in [(a, ALICE), (b, ALICE), (b, BOB)] {
        harness.client = client;
        assert_eq!(harness.open(inode, write_handle(1)), Status::Ok);
        assert_eq!(harness.open(inode, read_handle(2)), Status::Ok);
    }
    harness.unlink(ROOT, "a");
    harness.unlink(ROOT, "b");
    assert!(harness.shard.has_all_handles_of(ALICE));
    assert_eq!(harness.shard.drop_client(ALICE), [a]);
    assert!(!harness.shard.has_all_handles_of(ALICE));
    assert!(harness.shard.has_all_handles_of(BOB));
    assert_eq!(harness.shard.drop_client(BOB), [b]);
    assert_eq!(harness.shard.drop_client(BOB), []);
}

#[test]
fn after_a_restart_no_file_counts_as_closed_until_the_grace_period_ends() {
    let mut harness = Harness::new();
    let (held, left) = (harness.file(ROOT, "held", 0o644), harness.file(ROOT, "left", 0o644));
    for inode in [held, left] {
        assert_eq!(harness.open(inode, write_handle(inode.0)), Status::Ok);
    }
    harness.unlink(ROOT, "held");
    harness.restart();
    assert!(at_data(&mut harness, held) && at_data(&mut harness, left));
    assert_eq!((orphans(&harness), harness.unlink(ROOT, "left").orphan), (Vec::new(), None));
    let reopen = |inode: InodeNo| Reopen { inode, handle: write_handle(inode.0) };
    assert_eq!(harness.status(Op::Reopen, &reopen(held)), Status::Ok);
    assert_eq!(harness.status(Op::Reopen, &reopen(held)), Status::Ok);
    assert_eq!(harness.status(Op::Reopen, &reopen(InodeNo(99))), Status::Stale);
    harness.shard.end_grace();
    assert_eq!(orphans(&harness), [left]);
    assert_eq!(harness.status(Op::Reopen, &reopen(left)), Status::Stale, "too late");
    assert_eq!(close(&mut harness, held, held.0).orphan, Some(held));
    harness.check_redo();
}

#[test]
fn an_open_for_writing_cancels_the_size_query() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(harness.open(file, write_handle(1)), Status::Ok);
    let first = close(&mut harness, file, 1);
    assert_eq!(harness.open(file, write_handle(2)), Status::Ok);
    assert_eq!(settle(&mut harness, first, contents(10, 600)), Transno(0), "being written");
    let second = close(&mut harness, file, 2);
    assert_eq!(settle(&mut harness, first, contents(10, 600)), Transno(0), "old news");
    assert!(at_data(&mut harness, file));
    assert!(settle(&mut harness, second, contents(20, 600)) > Transno(0));
    assert_eq!((harness.attr(file).size_bytes, at_data(&mut harness, file)), (20, false));
    // A writer of a disconnected client may have writes in flight.
    assert_eq!(harness.open(file, write_handle(1)), Status::Ok);
    harness.client = BOB;
    assert_eq!(harness.open(file, write_handle(1)), Status::Ok);
    harness.shard.drop_client(BOB);
    harness.client = ALICE;
    assert_eq!(close(&mut harness, file, 1).settling, None);
    assert_eq!(harness.open(file, write_handle(1)), Status::Ok);
    let closed = close(&mut harness, file, 1);
    assert!(settle(&mut harness, closed, contents(20, 600)) > Transno(0), "settled again");
    harness.check_redo();
}

#[test]
fn an_orphan_is_not_settled() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(harness.open(file, write_handle(1)), Status::Ok);
    let closed = close(&mut harness, file, 1);
    assert_eq!(harness.open(file, read_handle(2)), Status::Ok);
    harness.unlink(ROOT, "f");
    assert_eq!(settle(&mut harness, closed, contents(10, 600)), Transno(0));
}

#[test]
fn no_size_is_settled_during_the_grace_period() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(harness.open(file, write_handle(1)), Status::Ok);
    harness.restart();
    let reopen = Reopen { inode: file, handle: write_handle(1) };
    assert_eq!(harness.status(Op::Reopen, &reopen), Status::Ok);
    assert_eq!(close(&mut harness, file, 1).settling, None);
    assert!(at_data(&mut harness, file));
    harness.shard.end_grace();
    assert_eq!(harness.open(file, write_handle(2)), Status::Ok);
    let closed = close(&mut harness, file, 2);
    assert!(settle(&mut harness, closed, contents(5, 900)) > Transno(0));
    assert!(!at_data(&mut harness, file));
}

#[test]
fn reopening_a_settled_file_for_writing_moves_its_size_to_the_data_shard() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let reopen = Reopen { inode: file, handle: write_handle(1) };
    assert!(harness.execute(Op::Reopen, &reopen).transno > Transno(0));
    assert!(at_data(&mut harness, file));
    let symlink = harness.symlink(ROOT, "l", b"f");
    for (inode, handle, status) in [
        (symlink, read_handle(1), Status::Invalid),
        (ROOT, write_handle(1), Status::Invalid),
        (ROOT, read_handle(1), Status::Ok),
    ] {
        assert_eq!(harness.status(Op::Reopen, &Reopen { inode, handle }), status);
    }
}

#[test]
fn lost_numbers_are_never_reused() {
    let mut harness = Harness::new();
    harness.file(ROOT, "f", 0o644);
    let mut seen: Vec<(Transno, InodeNo)> = Vec::new();
    for boot_id in 1..20 {
        // Nothing of the earlier boots became durable but the first file.
        let mut shard = harness.redone();
        shard.start_term(Term(boot_id));
        for _ in 0..3 {
            let mut lost = Harness::new();
            core::mem::swap(&mut lost.shard, &mut shard);
            let inode = lost.file(ROOT, &alloc::format!("g{}", seen.len()), 0o644);
            let transno = lost.shard.transno_last();
            assert!(!seen.iter().any(|(old, other)| *old == transno || *other == inode));
            seen.push((transno, inode));
            core::mem::swap(&mut lost.shard, &mut shard);
        }
    }
    let mut fresh = Shard::new(ShardId::meta(0), super::MADE);
    fresh.start_term(Term(5));
    assert_eq!(fresh.transno_last(), Transno(5 << 32));
    // The number of a term whose own start left no trace, then a later term.
    fresh.start_term(Term(3));
    assert_eq!(fresh.transno_last(), Transno(6 << 32), "numbers go on above the earlier ones");
    fresh.start_term(Term(9));
    assert_eq!(fresh.transno_last(), Transno(9 << 32));
}

#[test]
fn a_boot_without_inodes_reserves_its_numbers() {
    let mut harness = Harness::new();
    let mut seen = Vec::new();
    for mode in 1..20 {
        harness.restart();
        let chmod = Setattr { mode: Some(mode), ..setattr(ROOT) };
        assert_eq!(harness.status(Op::Setattr, &chmod), Status::Ok);
        let durable_count = harness.log.len();
        let inode = harness.file(ROOT, "lost", 0o644);
        assert!(!seen.contains(&inode), "{inode} was assigned before");
        seen.push(inode);
        harness.log.truncate(durable_count);
    }
}

#[test]
fn privileged_bits_are_reported_while_a_file_is_open_for_writing() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o755);
    let nothing = PrivilegedBits::default();
    let set_id = PrivilegedBits { set_id: true, ..nothing };
    let chmod = |harness: &mut Harness, mode| {
        harness.execute(Op::Setattr, &Setattr { mode: Some(mode), ..setattr(file) }).privileged_bits
    };
    assert_eq!(chmod(&mut harness, 0o4755), None, "no writer: a later open sees the bits");
    assert_eq!(harness.open(file, read_handle(1)), Status::Ok);
    assert_eq!(chmod(&mut harness, 0o2755), None, "nor now");
    assert_eq!(harness.open(file, write_handle(2)), Status::Ok);
    assert_eq!(chmod(&mut harness, 0o6755), Some((file, set_id)));
    assert_eq!(chmod(&mut harness, 0o4711), None, "it is known");
    let (name, value) = (Bytes(b"security.capability"), Bytes(b"all"));
    let give = wire::Setxattr { caller: super::root(), inode: file, name, value, flags: 0 };
    let both = PrivilegedBits { capability: true, ..set_id };
    assert_eq!(harness.execute(Op::Setxattr, &give).privileged_bits, Some((file, both)));
    let take = Setattr { clears: wire::ClearPrivileges::All, ..setattr(file) };
    let writer = Setattr { caller: super::user(7, 7), ..take };
    assert_eq!(harness.execute(Op::Setattr, &writer).privileged_bits, Some((file, nothing)));
    assert_eq!(harness.attr(file).mode, 0o711);
    let capability = PrivilegedBits { capability: true, ..nothing };
    assert_eq!(harness.execute(Op::Setxattr, &give).privileged_bits, Some((file, capability)));
    let take = wire::Removexattr { caller: super::root(), inode: file, name };
    assert_eq!(harness.execute(Op::Removexattr, &take).privileged_bits, Some((file, nothing)));
    // After a restart the data shard has no privileged bits.
    assert_eq!(chmod(&mut harness, 0o4755), Some((file, set_id)));
    harness.restart();
    let reopen = Reopen { inode: file, handle: write_handle(2) };
    assert_eq!(harness.execute(Op::Reopen, &reopen).privileged_bits, Some((file, set_id)));
    assert_eq!(close(&mut harness, file, 2).privileged_bits, Some((file, nothing)), "no writer");
    harness.check_redo();
}

#[test]
fn inodes_of_a_generation_are_never_assigned_twice_and_stay_in_it() {
    let mut harness = Harness::new();
    let before = harness.file(ROOT, "before", 0o644);
    assert_eq!(before.generation(), 0);
    let mut seen = alloc::vec![before];
    for boot_id in 1..6 {
        // Nothing of the earlier boots became durable but the first file.
        let mut shard = harness.redone();
        shard.use_generation(2);
        shard.start_term(Term(boot_id));
        for name in ["a", "b"] {
            let mut lost = Harness::new();
            core::mem::swap(&mut lost.shard, &mut shard);
            let inode = lost.file(ROOT, name, 0o644);
            assert_eq!(inode.generation(), 2);
            assert!(!seen.contains(&inode), "{inode:?}");
            seen.push(inode);
            core::mem::swap(&mut lost.shard, &mut shard);
        }
        // A generation that begins within the term.
        shard.use_generation(3);
        let mut lost = Harness::new();
        core::mem::swap(&mut lost.shard, &mut shard);
        let inode = lost.file(ROOT, "c", 0o644);
        assert_eq!(inode.generation(), 3);
        assert!(!seen.contains(&inode), "{inode:?}");
        seen.push(inode);
    }
}

#[test]
fn a_shard_with_too_many_terms_for_a_generation_makes_no_inode() {
    let mut harness = Harness::new();
    let mut shard = harness.redone();
    shard.use_generation(1);
    shard.start_term(Term((1 << 19) - 1));
    core::mem::swap(&mut harness.shard, &mut shard);
    assert_eq!(harness.file(ROOT, "last", 0o644).generation(), 1);
    harness.shard.start_term(Term(1 << 19));
    let refused = harness.create(super::root(), ROOT, "none", 0o644);
    assert_eq!(refused.unwrap_err(), Status::NoSpace);
}

#[test]
fn a_size_that_is_settled_while_a_transaction_has_the_file_locked_stays_settled() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(harness.open(file, write_handle(2)), Status::Ok);
    let closed = close(&mut harness, file, 2);
    let read = harness.shard.state.inode(file).unwrap().row;
    let ctime = Timestamp { secs: 500, nanos: 0 };
    let part = Change::Inode { row: InodeRow { nlink: 2, ctime, ..read } }.to_bytes();
    let txn = TxnId { coordinator: ShardId::meta(1), number: 9 };
    let (mut prepared, mut changes) = (Vec::new(), Vec::new());
    let by = harness.shard.prepare(txn, &part, &mut prepared, &mut changes).unwrap().transno;
    harness.log.push((by, changes));
    settle(&mut harness, closed, contents(20, 600));
    let (done, mut changes) = (Change::Txn(TxnChange::Done { txn }), Vec::new());
    let applied = harness.shard.apply_part((by, &prepared), &done, &mut changes).unwrap();
    harness.log.push((applied.transno, changes));
    harness.shard.release(txn);
    let attr = harness.attr(file);
    assert_eq!((attr.nlink, attr.size_bytes, attr.flags & attr_flag::SIZE_AT_DATA), (2, 20, 0));
    assert_eq!((attr.mtime.secs, attr.ctime.secs), (600, 600));
}
