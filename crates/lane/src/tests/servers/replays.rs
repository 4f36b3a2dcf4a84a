//! Replays at a participant of a change whose outcome it has yet to learn again (docs/protocol.md
//! R9.22).

use super::cluster::{Cluster, server_of};
use super::file_client::{Asked, FileClient};
use super::of;
use crate::tests::across::{Act, made};
use crate::tests::peer::{ROOT, name};
use wire::{InodeNo, Lookup, Op, Status, Wire as _};

const HARD_MS: u64 = 60_000;

/// Makes a name, without waiting for it to be durable.
fn done(cluster: &mut Cluster, client: &mut FileClient, act: &Act) -> InodeNo {
    let (op, shard, body) = of(act);
    let reply = client.ask(cluster, Asked { op, shard, body, bulk: None, layout: None }, |_, _| {});
    assert_eq!(reply.head.status, Status::Ok);
    made(act, &reply.body).unwrap()
}

/// A directory at this server.
fn directory(
    cluster: &mut Cluster,
    client: &mut FileClient,
    (parent, at): (InodeNo, usize),
) -> InodeNo {
    const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let mut found = NAMES.iter().map(|text| done(cluster, client, &Act::Mkdir(parent, text)));
    found.find(|inode| server_of(*inode) == at).unwrap()
}

/// The first server has made a directory for the second one, and a file in it, and has lost both.
/// Returns the directory if its part was durably prepared.
fn lost(seed: u64) -> Option<(Cluster, FileClient, InodeNo)> {
    let mut cluster = Cluster::with(seed, &[1, 1], |_| {});
    for _ in 0..500 {
        cluster.step();
    }
    let mut client = FileClient::new(1);
    client.advance(&mut cluster);
    let parent = directory(&mut cluster, &mut client, (InodeNo::ROOT, 1));
    cluster.settle();
    let dir = directory(&mut cluster, &mut client, (parent, 0));
    done(&mut cluster, &mut client, &Act::Create(dir, "file"));
    cluster.servers[0].crash_losing_all();
    cluster.parted.push((0, 1));
    cluster.start(0);
    cluster.servers[0].lane(0).txns.has_prepared().then_some((cluster, client, dir))
}

#[test]
fn a_replay_waits_for_the_outcome_of_a_change_that_it_needs() {
    let mut lost_count = 0;
    for (mut cluster, mut client, dir) in (1..=12).filter_map(lost) {
        lost_count += 1;
        // The other server is away for longer than recovery lasts.
        for _ in 0..2 * HARD_MS / 1_000 {
            for _ in 0..20 {
                cluster.step();
                client.advance(&mut cluster);
                client.receive(&mut cluster);
            }
            cluster.pass_ms(1_000);
        }
        assert!(client.replay_count > 0);
        assert_eq!(cluster.servers[0].counters(0).recovery.evicted_count, 0);
        cluster.parted.clear();
        let lookup = Lookup { caller: ROOT, parent: dir, name: name("file") };
        let (shard, body) = (dir.shard(), lookup.to_bytes());
        let asked = Asked { op: Op::Lookup, shard, body, bulk: None, layout: None };
        let reply = client.ask(&mut cluster, asked, |_, _| {});
        assert_eq!(reply.head.status, Status::Ok);
    }
    assert!(lost_count > 0, "a server has lost what it had done");
}
