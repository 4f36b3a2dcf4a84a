//! Cross-shard operations: on any number of lanes, with the server crashing anywhere.

mod checked;
mod model;
mod mount;
mod outcome;
mod reads;
mod strict;

use crate::test_server::{Delivery, Kind, TestServer};
use alloc::string::String;
use alloc::vec::Vec;
use fastrand::Rng;
use interface::{Errno, ProtocolPoint};
pub(super) use model::{Act, Model};
use mount::Mount;
pub(super) use mount::{encoded, is_plain, made};
use wire::{FileKind, InodeNo, RenameHow, ShardCounts, Status};

/// A store that spreads directories and replies only when changes are durable.
fn store(seed: u64, meta_shard_count: u16) -> TestServer {
    let mut server = TestServer::new(seed);
    server.shard_counts = ShardCounts { meta: meta_shard_count, data: 3 };
    server.limits.sync = true;
    server
}

fn start(server: &mut TestServer) {
    let lane_count = 1 + server.rng.usize(..4) as u16;
    server.dies_at = None;
    server.start(lane_count);
}

/// Crashes and restarts the server at random; returns whether it did.
fn chance(server: &mut TestServer, mounts: &mut [Mount], one_in: usize) -> bool {
    let dies = server.is_down() || (one_in > 0 && server.rng.usize(..one_in) == 0);
    if !dies {
        return false;
    }
    if !server.is_down() {
        server.crash();
    }
    start(server);
    mounts.iter_mut().for_each(|mount| mount.connect(server));
    mounts.iter().for_each(|mount| mount.send(server));
    true
}

/// One step of the server; when nothing is left to do, time passes.
fn step(server: &mut TestServer) {
    if !server.step() {
        server.pass_ms(1);
    }
}

/// Sends a request and returns its reply, through any crashes of the server.
fn ask(server: &mut TestServer, mount: &mut Mount, one_in: usize) -> (Status, Vec<u8>) {
    mount.send(server);
    for _ in 0..100_000 {
        step(server);
        if chance(server, core::slice::from_mut(mount), one_in) {
            continue;
        }
        if let Some(reply) = mount.receive(server) {
            return reply;
        }
    }
    panic!("no reply: {:?}", mount.op());
}

#[test]
fn each_operation_takes_effect_once_or_fails_whenever_the_server_crashes() {
    (1..=100).for_each(|seed| one_by_one(seed, store(seed, 1 + (seed % 5) as u16)));
}

#[test]
fn each_operation_takes_effect_once_with_almost_no_memory_for_names() {
    for seed in 1..=40 {
        let mut server = store(seed, 1 + (seed % 5) as u16);
        server.bound_names(3000);
        one_by_one(seed, server);
    }
}

fn one_by_one(seed: u64, mut server: TestServer) {
    let mut rng = Rng::with_seed(seed ^ 0x5eed);
    start(&mut server);
    let mut mount = Mount::new(&mut server, 1);
    let mut model = Model::new();
    let one_in = [0, 20, 60, 200][rng.usize(..4)];
    for _ in 0..60 {
        let act = model.roll(&mut rng);
        mount.begin(&act);
        let expected = model.expected(&act);
        let (status, body) = ask(&mut server, &mut mount, one_in);
        // An inode without a name exists until it is destroyed.
        let going = expected == Status::Stale && status != Status::Ok;
        assert!(status == expected || going, "seed {seed}: {act:?}: {status:?}, {expected:?}");
        if status == Status::Ok {
            model.apply(&act, mount::made(&act, &body));
            if let Some(left) = model.whiteout(&act) {
                mount.begin(&left);
                let (_, body) = ask(&mut server, &mut mount, 0);
                model.add_whiteout(&left, mount::made(&left, &body));
            }
        }
    }
    checked::check(&mut server, &mut mount);
    model.compare(&mut server, &mut mount);
}

/// Messages between lanes get lost, repeated and reordered.
#[test]
fn concurrent_transactions_are_atomic_over_lossy_channels() {
    let mut lost_count = 0;
    for seed in Delivery::LOSSY_SEED_MIN..Delivery::LOSSY_SEED_MIN + 20 {
        let server = several_at_once(seed, store(seed, 2 + (seed % 4) as u16));
        lost_count += server.delivery.lost_count;
    }
    assert!(lost_count > 500, "{lost_count} messages were lost");
}

#[test]
fn concurrent_transactions_are_atomic() {
    (1..=80).for_each(|seed| drop(several_at_once(seed, store(seed, 1 + (seed % 7) as u16))));
}

#[test]
fn concurrent_transactions_are_atomic_with_almost_no_memory_for_names() {
    for seed in 1..=30 {
        let mut server = store(seed, 1 + (seed % 7) as u16);
        server.bound_names(3000);
        several_at_once(seed, server);
    }
}

fn several_at_once(seed: u64, mut server: TestServer) -> TestServer {
    let mut rng = Rng::with_seed(seed ^ 0xface);
    start(&mut server);
    let count = 2 + rng.usize(..5);
    let mut mounts: Vec<Mount> =
        (0..count).map(|number| Mount::new(&mut server, 1 + number as u8)).collect();
    let mut model = Model::new();
    let one_in = [0, 100, 500][rng.usize(..3)];
    let (mut left, mut done) = (150, 0);
    for _ in 0..400_000 {
        for mount in &mut mounts {
            if mount.is_idle() && left > 0 {
                left -= 1;
                // It knows only the inode numbers of what others made.
                mount.begin(&model.roll(&mut rng));
                mount.send(&mut server);
            }
        }
        step(&mut server);
        if chance(&mut server, &mut mounts, one_in) {
            continue;
        }
        for mount in &mut mounts {
            let act = mount.act();
            if let Some((status, body)) = mount.receive(&mut server) {
                assert!(mount::is_plain(status), "seed {seed}: {status:?} to {act:?}");
                done += 1;
                if let (Some(act), Status::Ok) = (act, status) {
                    model.learn(&act, mount::made(&act, &body));
                }
            }
        }
        if done == 150 {
            break;
        }
    }
    assert_eq!(done, 150, "seed {seed}: all are answered");
    checked::check(&mut server, &mut mounts[0]);
    server
}

/// A directory in another shard than the root, with a file and a directory in it.
fn furnished(server: &mut TestServer, mount: &mut Mount) -> (InodeNo, InodeNo) {
    let mut make = |act: Act| {
        mount.begin(&act);
        let (status, body) = ask(server, mount, 0);
        assert_eq!(status, Status::Ok, "{act:?}");
        mount::made(&act, &body).unwrap()
    };
    let mut dirs = Vec::new();
    for text in ["a", "b", "c", "d", "e"] {
        dirs.push(make(Act::Mkdir(InodeNo::ROOT, text)));
    }
    let elsewhere: Vec<InodeNo> =
        dirs.iter().copied().filter(|dir| dir.shard() != InodeNo::ROOT.shard()).collect();
    let (from, to) = (elsewhere[0], *elsewhere.iter().find(|dir| **dir != elsewhere[0]).unwrap());
    assert_ne!(from.shard(), to.shard(), "directories are spread");
    make(Act::Create(from, "f"));
    make(Act::Create(to, "g"));
    (from, to)
}

#[test]
fn a_rename_is_atomic_wherever_the_server_crashes() {
    let points = [
        ProtocolPoint::TxnBegun,
        ProtocolPoint::TxnPrepared,
        ProtocolPoint::TxnDeciding,
        ProtocolPoint::TxnDecided,
        ProtocolPoint::TxnDone,
        ProtocolPoint::TxnForgotten,
    ];
    for lane_count in 1..=4 {
        for point in points {
            for count in 1..=2 {
                for seed in 0..4 {
                    rename_and_die(seed, lane_count, (point, count), RenameHow::Replace);
                }
                rename_and_die(5, lane_count, (point, count), RenameHow::Exchange);
                rename_and_die(6, lane_count, (point, count), RenameHow::Whiteout);
            }
        }
    }
}

/// Renames `from/f` to `to/g` while the server crashes; in an exchange `f` is a directory.
fn rename_and_die(seed: u64, lane_count: u16, dies_at: (ProtocolPoint, usize), how: RenameHow) {
    let mut server = store(seed, 4);
    server.start(lane_count);
    let mut mount = Mount::new(&mut server, 1);
    let (from, to) = furnished(&mut server, &mut mount);
    if how == RenameHow::Exchange {
        for act in [Act::Unlink(from, "f"), Act::Mkdir(from, "f")] {
            mount.begin(&act);
            assert_eq!(ask(&mut server, &mut mount, 0).0, Status::Ok);
        }
    }
    mount.settle(&mut server);
    let only = |listed: Option<Vec<(String, InodeNo)>>| match listed.as_deref() {
        Some([(_, inode)]) => *inode,
        _ => panic!("one entry: {listed:?}"),
    };
    let (moved, target) = (only(mount.list(&mut server, from)), only(mount.list(&mut server, to)));
    server.dies_at = Some(dies_at);
    mount.begin(&Act::Rename((from, "f"), (to, "g"), how));
    assert_eq!(ask(&mut server, &mut mount, 0).0, Status::Ok, "{dies_at:?}");
    mount.settle(&mut server);
    if server.is_down() {
        chance(&mut server, core::slice::from_mut(&mut mount), 0);
    }
    assert!(server.points[&dies_at.0] > 0);
    assert_eq!(only(mount.list(&mut server, to)), moved);
    match how {
        RenameHow::Exchange => assert_eq!(only(mount.list(&mut server, from)), target),
        RenameHow::Whiteout => {
            let left = only(mount.list(&mut server, from));
            let attr = mount.attr(&mut server, left).unwrap();
            assert_eq!((attr.kind, attr.mode, attr.rdev), (FileKind::CharDevice, 0, 0));
        }
        _ => assert_eq!(mount.list(&mut server, from), Some(Vec::new())),
    }
    checked::check(&mut server, &mut mount);
}

#[test]
fn a_directory_never_goes_below_itself() {
    let mut server = store(3, 4);
    server.start(3);
    let mut mount = Mount::new(&mut server, 1);
    let (from, to) = furnished(&mut server, &mut mount);
    let mut run = |act: Act| {
        mount.begin(&act);
        ask(&mut server, &mut mount, 0)
    };
    let sub = Act::Mkdir(to, "sub");
    let sub = mount::made(&sub, &run(sub).1).unwrap();
    let names = ["a", "b", "c", "d", "e"];
    let name_of = |run: &mut dyn FnMut(Act) -> (Status, Vec<u8>), dir: InodeNo| {
        *names
            .iter()
            .find(|text| {
                let act = Act::Lookup(InodeNo::ROOT, text);
                let (_, body) = run(act);
                mount::made(&act, &body) == Some(dir)
            })
            .unwrap()
    };
    let (from_name, to_name) = (name_of(&mut run, from), name_of(&mut run, to));
    let into = |run: &mut dyn FnMut(Act) -> (Status, Vec<u8>), text, dir| {
        run(Act::Rename((InodeNo::ROOT, text), (dir, "x"), RenameHow::Replace)).0
    };
    assert_eq!(into(&mut run, to_name, sub), Status::Invalid);
    assert_eq!(into(&mut run, to_name, to), Status::Invalid);
    assert_eq!(into(&mut run, from_name, sub), Status::Ok);
    assert_eq!(into(&mut run, to_name, from), Status::Invalid);
    checked::check(&mut server, &mut mount);
}

#[test]
fn directories_near_the_root_are_spread_and_deeper_ones_stay() {
    let mut server = store(5, 4);
    server.start(2);
    let mut mount = Mount::new(&mut server, 1);
    let mut mkdir = |parent, text| {
        let act = Act::Mkdir(parent, text);
        mount.begin(&act);
        mount::made(&act, &ask(&mut server, &mut mount, 0).1).unwrap()
    };
    let first: Vec<InodeNo> =
        ["a", "b", "c", "d"].iter().map(|text| mkdir(InodeNo::ROOT, text)).collect();
    let mut shards: Vec<_> = first.iter().map(|dir| dir.shard()).collect();
    shards.sort_unstable();
    shards.dedup();
    assert_eq!(shards.len(), 4, "one in each shard");
    let second: Vec<InodeNo> =
        ["a", "b", "c", "d"].iter().map(|text| mkdir(first[0], text)).collect();
    assert!(second.iter().any(|dir| dir.shard() != first[0].shard()));
    for dir in second {
        for text in ["x", "y", "z"] {
            assert_eq!(mkdir(dir, text).shard(), dir.shard());
        }
    }
    checked::check(&mut server, &mut mount);
}

#[test]
fn readers_wait_for_a_prepared_transaction_and_get_a_reply() {
    let mut server = store(9, 4);
    server.start(2);
    let mut mount = Mount::new(&mut server, 1);
    let (from, to) = furnished(&mut server, &mut mount);
    let mut reader = Mount::new(&mut server, 2);
    mount.settle(&mut server);
    mount.begin(&Act::Rename((from, "f"), (to, "h"), RenameHow::Replace));
    mount.send(&mut server);
    let before = server.points[&ProtocolPoint::TxnPrepared];
    while server.points[&ProtocolPoint::TxnPrepared] == before {
        server.step();
    }
    reader.begin(&Act::Lookup(from, "f"));
    let (status, _) = ask(&mut server, &mut reader, 0);
    assert!(matches!(status, Status::Ok | Status::NotFound));
    mount.settle(&mut server);
    assert_eq!(mount.receive(&mut server).map(|reply| reply.0), Some(Status::Ok));
    reader.begin(&Act::Lookup(from, "f"));
    assert_eq!(ask(&mut server, &mut reader, 0).0, Status::NotFound);
    reader.begin(&Act::Lookup(to, "h"));
    assert_eq!(ask(&mut server, &mut reader, 0).0, Status::Ok);
    checked::check(&mut server, &mut mount);
}

/// A start applies a decided part. While that is not recorded, the decision is retained.
#[test]
fn a_part_that_cannot_be_recorded_is_not_acknowledged() {
    for seed in 0..8 {
        let mut server = store(seed, 4);
        server.start(4);
        let mut mount = Mount::new(&mut server, 1);
        let (from, to) = furnished(&mut server, &mut mount);
        mount.settle(&mut server);
        server.dies_at = Some((ProtocolPoint::TxnDecided, 1));
        mount.begin(&Act::Rename((from, "f"), (to, "h"), RenameHow::Replace));
        mount.send(&mut server);
        while !server.is_down() {
            step(&mut server);
        }
        server.dies_at = None;
        server.failing.push((Kind::Log, Errno(5)));
        server.start(4);
        (0..500).for_each(|_| step(&mut server));
        assert!(server.failing.is_empty(), "the participant's log is broken");
        server.crash();
        server.start(4);
        mount.connect(&mut server);
        mount.send(&mut server);
        mount.settle(&mut server);
        assert_eq!(mount.receive(&mut server).map(|reply| reply.0), Some(Status::Ok));
        assert_eq!(mount.list(&mut server, from), Some(Vec::new()), "seed {seed}");
        assert_eq!(mount.list(&mut server, to).unwrap().len(), 2, "seed {seed}");
        checked::check(&mut server, &mut mount);
    }
}

/// Whether a rename over a file is half done after a crash at its decision.
#[cfg(feature = "removable-rules")]
fn is_half_done(seed: u64, rules: wire::Rules) -> bool {
    let mut server = store(seed, 4);
    server.rules = rules;
    server.start(4);
    let mut mount = Mount::new(&mut server, 1);
    let (from, to) = furnished(&mut server, &mut mount);
    mount.settle(&mut server);
    let moved = mount.list(&mut server, from).unwrap()[0].1;
    server.dies_at = Some((ProtocolPoint::TxnDecided, 1));
    mount.begin(&Act::Rename((from, "f"), (to, "g"), RenameHow::Replace));
    mount.send(&mut server);
    while !server.is_down() {
        step(&mut server);
    }
    chance(&mut server, core::slice::from_mut(&mut mount), 0);
    mount.settle(&mut server);
    mount.receive(&mut server);
    let there = mount.list(&mut server, to).unwrap().iter().any(|(_, inode)| *inode == moved);
    let here = !mount.list(&mut server, from).unwrap().is_empty();
    here == there
}

#[cfg(feature = "removable-rules")]
#[test]
fn a_decision_before_all_prepares_is_detected() {
    let early = wire::Rules::default().without(wire::Rule::TwoPhaseOrder);
    let count = |rules| (1..=40).filter(|seed| is_half_done(*seed, rules)).count();
    assert_eq!(count(wire::Rules::default()), 0);
    assert!(count(early) > 0, "no crash showed that the order matters");
}
