//! No body makes a shard panic, or leaves a change that redo does not know.

use super::{ALICE, BOB, Harness, ROOT, name, read_handle, root, user, write_handle};
use crate::{Requirement, View};
use alloc::vec::Vec;
use disk::TxnId;
use test_runtime::Prng;
use wire::{
    Access, Bytes, Caller, Close, Create, FileKind, Find, Getattr, Getxattr, Groups, HandleId,
    InodeNo, Link, Listxattr, Lookup, Mkdir, Mknod, Op, Open, Pattern, Predicate, Readdir,
    Readlink, Removexattr, Rename, RenameHow, Reopen, Rmdir, SetTime, Setattr, Setxattr, ShardId,
    Status, Symlink, Timestamp, Tmpfile, Unlink, Wire,
};

fn bodies() -> Vec<(Op, Vec<u8>)> {
    let (caller, parent, inode, name) = (root(), ROOT, InodeNo(2), name("f"));
    let groups = Groups::Known(&[1, 0, 0, 0, 2, 0, 0, 0]);
    let grouped = Caller { groups, ..user(5, 6) };
    let (handle, at) = (write_handle(1), SetTime::At(Timestamp { secs: 5, nanos: 6 }));
    let value = Bytes(b"value");
    let key = Bytes(b"user.k");
    let create = Create {
        caller,
        parent,
        name,
        mode: 0o666,
        umask: 0o22,
        exclusive: false,
        handle: Some(handle),
        behind: None,
    };
    let setattr = Setattr {
        caller: grouped,
        inode,
        mode: Some(0o755),
        uid: Some(1),
        gid: Some(2),
        atime: SetTime::Now,
        mtime: at,
        clears: wire::ClearPrivileges::Nothing,
    };
    let rename =
        Rename { caller, parent, name, new_parent: ROOT, new_name: name, how: RenameHow::Replace };
    let readdir = Readdir {
        caller,
        inode: ROOT,
        cookie: 0,
        listing_bytes_max: 4096,
        attrs: true,
        handle: Some(HandleId(1)),
    };
    let predicate = Predicate {
        name: Pattern::new(b"*").ok(),
        size_bytes_min: Some(0),
        mtime_before: Some(Timestamp { secs: 1 << 40, nanos: 0 }),
        ..Predicate::ANY
    };
    let find = Find {
        caller,
        inode: ROOT,
        cookie: 0,
        listing_bytes_max: 4096,
        attrs: true,
        directories: true,
        predicate,
    };
    alloc::vec![
        (Op::Lookup, Lookup { caller: grouped, parent, name }.to_bytes()),
        (Op::Getattr, Getattr { inode }.to_bytes()),
        (Op::Setattr, setattr.to_bytes()),
        (Op::Create, create.to_bytes()),
        (Op::Mkdir, Mkdir { caller, parent, name, mode: 0o777, umask: 0o22 }.to_bytes()),
        (Op::Symlink, Symlink { caller, parent, name, target: value }.to_bytes()),
        (
            Op::Tmpfile,
            Tmpfile { caller, parent, mode: 0o666, umask: 0, linkable: true, handle }.to_bytes(),
        ),
        (
            Op::Mknod,
            Mknod { caller, parent, name, kind: FileKind::Fifo, mode: 0o644, umask: 0, rdev: 5 }
                .to_bytes(),
        ),
        (Op::Link, Link { caller, inode, parent, name }.to_bytes()),
        (Op::Unlink, Unlink { caller, parent, name, behind: None }.to_bytes()),
        (Op::Rmdir, Rmdir { caller, parent, name }.to_bytes()),
        (Op::Rename, rename.to_bytes()),
        (Op::Readlink, Readlink { inode }.to_bytes()),
        (Op::Readdir, readdir.to_bytes()),
        (Op::Find, find.to_bytes()),
        (Op::Open, Open { caller, inode, handle }.to_bytes()),
        (Op::Close, Close { inode, handle: HandleId(1) }.to_bytes()),
        (Op::Reopen, Reopen { inode, handle: read_handle(1) }.to_bytes()),
        (Op::Access, Access { caller: grouped, inode, mask: 7 }.to_bytes()),
        (Op::Getxattr, Getxattr { caller, inode, name: key }.to_bytes()),
        (Op::Setxattr, Setxattr { caller, inode, name: key, value, flags: 0 }.to_bytes()),
        (Op::Listxattr, Listxattr { caller, inode }.to_bytes()),
        (Op::Removexattr, Removexattr { caller, inode, name: key }.to_bytes()),
    ]
}

fn mutate(rng: &mut Prng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.below(4) {
        let index = rng.below(bytes.len());
        match rng.below(8) {
            0 => bytes.truncate(index.max(1)),
            1 => {
                let inserted = rng.below(9);
                let inserted: Vec<u8> = (0..inserted).map(|_| rng.bytes::<1>()[0]).collect();
                bytes.splice(index..index, inserted);
            }
            2 | 3 => bytes[index] ^= 1 << rng.below(8),
            // Small numbers: other inodes, other names, other cases.
            4 | 5 => bytes[index] = rng.bytes::<1>()[0] % 8,
            _ => bytes[index] = rng.bytes::<1>()[0],
        }
    }
}

#[test]
fn mutated_bodies() {
    let originals = bodies();
    for seed in 1..6 {
        let (mut harness, mut rng) = (Harness::new(), Prng::new(seed));
        let (mut ok_count, mut protocol_error_count) = (0, 0);
        for _ in 0..8000 {
            harness.client = rng.pick(&[ALICE, BOB]).unwrap();
            harness.squash =
                if rng.per_mille(800) { wire::Squash::NONE } else { wire::Squash::ROOT };
            let (op, mut body) = originals[rng.below(originals.len())].clone();
            mutate(&mut rng, &mut body);
            match harness.execute_bytes(op, &body) {
                Ok(effect) => ok_count += usize::from(effect.status == Status::Ok),
                Err(_) => protocol_error_count += 1,
            }
        }
        assert!(ok_count > 500 && protocol_error_count > 1000, "{ok_count} {protocol_error_count}");
        harness.check_redo();
    }
}

#[test]
fn random_bodies() {
    let (mut harness, mut rng) = (Harness::new(), Prng::new(1));
    let mut protocol_error_count = 0;
    for _ in 0..20_000 {
        let op = rng.pick(Op::ALL).unwrap();
        let count = rng.below(80);
        let body: Vec<u8> = (0..count).map(|_| rng.bytes::<1>()[0]).collect();
        protocol_error_count += usize::from(harness.execute_bytes(op, &body).is_err());
    }
    assert!(protocol_error_count > 8_000, "{protocol_error_count}");
    harness.check_redo();
}

#[test]
fn ops_of_other_executors_are_refused() {
    let mut harness = Harness::new();
    for op in [Op::Statfs, Op::Read, Op::Write, Op::Truncate, Op::Glimpse, Op::Stats, Op::Ping] {
        assert_eq!(harness.execute_bytes(op, &[]).unwrap().status, Status::NotImplemented);
    }
}

#[test]
fn an_invalid_name_gets_an_errno() {
    let mut harness = Harness::new();
    let mut body = Vec::new();
    root().encode(&mut wire::Writer::new(&mut body));
    ROOT.encode(&mut wire::Writer::new(&mut body));
    let long = [b'x'; 256];
    for (text, status) in [(&long[..], Status::NameTooLong), (b"a/b", Status::Invalid)] {
        let mut body = body.clone();
        body.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
        body.extend_from_slice(text);
        assert_eq!(harness.execute_bytes(Op::Lookup, &body).unwrap().status, status);
        assert_eq!(harness.execute_bytes(Op::Unlink, &body).unwrap().status, status);
    }
}

/// What lanes tell each other about a change over several shards.
#[test]
fn changed_requirements_and_observations_decode_or_are_refused() {
    let (mut harness, mut rng) = (Harness::new(), Prng::new(7));
    let file = harness.file(ROOT, "f", 0o644);
    let requirements = [
        Requirement::Inode(file),
        Requirement::Entry(ROOT, (*b"f").into()),
        Requirement::Entry(ROOT, (*b"absent").into()),
        Requirement::New(ShardId::meta(0)),
        Requirement::Topology,
        Requirement::Ancestor { dir: ROOT, inode: file },
    ];
    let (mut decoded_count, mut refused_count, mut same_count) = (0, 0, 0);
    for number in 0..6_000 {
        let requirement = &requirements[number % requirements.len()];
        let txn = TxnId { coordinator: ShardId::meta(0), number: 1 };
        let mut bytes = requirement.to_bytes();
        let mut seen = Vec::new();
        assert_eq!(harness.shard.lock_and_read(txn, &bytes, &mut seen), Ok(Ok(())));
        View::default().add(&seen).unwrap();
        mutate(&mut rng, &mut bytes);
        if let Ok(decoded) = Requirement::decode_all(&bytes) {
            assert_eq!(decoded.to_bytes(), bytes);
            same_count += 1;
        }
        // Another shard's requirement is not sent here.
        let is_here = Requirement::decode_all(&bytes)
            .is_ok_and(|requirement| requirement.shard() == ShardId::meta(0));
        if is_here {
            harness.shard.lock_and_read(txn, &bytes, &mut Vec::new()).unwrap().ok();
        }
        mutate(&mut rng, &mut seen);
        match View::default().add(&seen) {
            Ok(()) => decoded_count += 1,
            Err(_) => refused_count += 1,
        }
        harness.shard.release(txn);
    }
    assert!(same_count > 1_000, "{same_count}");
    assert!(decoded_count > 1_000 && refused_count > 500, "{decoded_count} {refused_count}");
}
