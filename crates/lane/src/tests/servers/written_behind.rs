//! Files over several servers that their creators write behind: a fence is at all parts.

use super::cluster::{Client, Cluster};
use super::joined;
use super::restated::steps;
use crate::test_server::TestServer;
use crate::tests::leases::{Holder, Key};
use crate::tests::peer::{HelloFields, ROOT, create, name};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::{
    ClearPrivileges, Created, Handle, HandleId, InodeNo, Layout, Lookup, Op, OpenFor, Request,
    Status, Wire, Write, lease_flag, request_flag,
};

/// Two servers, whose files are spread over both, and a file that a client may write behind.
fn written_behind(seed: u64) -> (Cluster, Vec<Holder>, Client, InodeNo, Layout) {
    let mut cluster = Cluster::with(seed, &[1, 1], |server: &mut TestServer| {
        server.layout = Layout { stripe_unit_bytes: 1 << 16, stripe_count: 64, narrow: false };
    });
    let client = joined(&mut cluster, 1);
    cluster.settle();
    let mut holders: Vec<Holder> = (0..2)
        .map(|index| Holder::unknown(&mut cluster.servers[index], HelloFields::new(2)))
        .collect();
    let shard = InodeNo::ROOT.shard();
    let handle = |id| Handle { id: HandleId(id), open_for: OpenFor::Write };
    let flags = request_flag::LEASES | request_flag::BEHIND;
    let mut made = None;
    // The session is recorded with the first create, and the second asks for the free space.
    for (text, id) in [("first", 1), ("second", 2), ("f", 3)] {
        let body = wire::Create { handle: Some(handle(id)), ..create(text) };
        holders[0].send_to(&mut cluster.servers[0], (Op::Create, shard, 1), flags, &body);
        steps(&mut cluster, 100);
        let reply = holders[0].reply(&mut cluster.servers[0]);
        let attr = Created::decode_all(&reply.message).unwrap().attr;
        made = Some((attr, reply.granted() & lease_flag::WRITING != 0));
    }
    let (attr, is_granted) = made.unwrap();
    assert!(is_granted, "a file over servers too");
    let layout = attr.layout.unwrap();
    assert_eq!(layout.stripe_count, 2);
    (cluster, holders, client, attr.inode, layout)
}

/// The holder writes the beginning of a stripe behind. Returns the outcome.
fn write_behind(
    (cluster, holders): (&mut Cluster, &mut [Holder]),
    (inode, layout, stripe_index): (InodeNo, Layout, u32),
) -> Status {
    let shard = cluster.newest_map().stripe_shard(inode, layout, stripe_index);
    let index = usize::from(cluster.newest_map().place(shard).server.0 - 1);
    let (file_offset, clears) = (layout.start(stripe_index), ClearPrivileges::Nothing);
    let write = Write { inode, file_offset, append: false, clears };
    let head = holders[index].peer.head(Op::Write, shard, 1);
    let head = Request { flags: request_flag::BEHIND, layout: Some(layout), ..head };
    let bytes = [1; 1 << 16];
    holders[index].peer.send(&mut cluster.servers[index], &head, &write.to_bytes(), Some(&bytes));
    steps(cluster, 100);
    holders[index].reply(&mut cluster.servers[index]).head.status
}

#[test]
fn a_silent_holder_is_fenced_at_all_parts_of_a_file() {
    let (mut cluster, mut holders, mut client, inode, layout) = written_behind(64);
    for stripe_index in 0..2 {
        let stripe = (inode, layout, stripe_index);
        assert_eq!(write_behind((&mut cluster, &mut holders), stripe), Status::Ok);
        assert_eq!(write_behind((&mut cluster, &mut holders), stripe), Status::Stale, "no end");
    }
    let lookup = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name("f") };
    client.begin(&mut cluster, (Op::Lookup, InodeNo::ROOT.shard(), lookup.to_bytes()));
    steps(&mut cluster, 100);
    assert_eq!(client.receive(&mut cluster), None, "it waits for the holder");
    let recalled = holders[0].recalled(&mut cluster.servers[0]);
    assert_eq!(recalled, BTreeSet::from([Key::Writing(inode)]));
    assert_eq!(
        write_behind((&mut cluster, &mut holders), (inode, layout, 2)),
        Status::Ok,
        "it is not fenced before its term is over"
    );
    let mut answer = None;
    for _ in 0..80 {
        cluster.pass_ms(250);
        steps(&mut cluster, 20);
        answer = answer.or_else(|| client.receive(&mut cluster));
    }
    assert_eq!(answer.map(|(status, _)| status), Some(Status::Ok));
    for stripe_index in [3, 4] {
        let stripe = (inode, layout, stripe_index);
        assert_eq!(write_behind((&mut cluster, &mut holders), stripe), Status::Stale, "too late");
    }
}

#[test]
fn a_part_of_a_file_learns_of_a_fence_when_its_server_is_back() {
    let (mut cluster, mut holders, mut client, inode, layout) = written_behind(65);
    let lookup = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name("f") };
    client.begin(&mut cluster, (Op::Lookup, InodeNo::ROOT.shard(), lookup.to_bytes()));
    cluster.crash(1);
    let mut answer = None;
    for _ in 0..80 {
        cluster.pass_ms(250);
        steps(&mut cluster, 20);
        answer = answer.or_else(|| client.receive(&mut cluster));
    }
    assert_eq!(answer, None, "the other part may still be written");
    cluster.start(1);
    for _ in 0..80 {
        cluster.pass_ms(250);
        steps(&mut cluster, 20);
        answer = answer.or_else(|| client.receive(&mut cluster));
    }
    assert_eq!(answer.map(|(status, _)| status), Some(Status::Ok));
    holders[1] = Holder::unknown(
        &mut cluster.servers[1],
        HelloFields { conn_epoch: 2, ..HelloFields::new(2) },
    );
    for stripe_index in 0..2 {
        let stripe = (inode, layout, stripe_index);
        assert_eq!(write_behind((&mut cluster, &mut holders), stripe), Status::Stale);
    }
}
