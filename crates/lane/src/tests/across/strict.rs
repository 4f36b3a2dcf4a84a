//! Under strict sharing, a cross-shard failure reveals no change that may be lost.

use super::model::Act;
use super::mount::{self, Mount};
use super::{ask, furnished, step};
use crate::Share;
use crate::test_server::TestServer;
use wire::{InodeNo, RenameHow, ShardCounts, Status};

/// Two mounts with durable sessions at both shards, and names in directories of different shards.
/// Log appends are slow.
fn slow(share: Share, lane_count: u16) -> (TestServer, [Mount; 2], (InodeNo, InodeNo)) {
    let mut server = TestServer::new(7);
    server.shard_counts = ShardCounts { meta: 4, data: 3 };
    server.limits.share = share;
    server.start(lane_count);
    let mut mounts = [Mount::new(&mut server, 1), Mount::new(&mut server, 2)];
    let (from, to) = furnished(&mut server, &mut mounts[0]);
    mounts[0].settle(&mut server);
    server.log_slowness = 1_000_000;
    (server, mounts, (from, to))
}

/// The replies that arrive while no append ends.
fn early(server: &mut TestServer, mount: &mut Mount, act: &Act) -> Option<Status> {
    mount.begin(act);
    mount.send(server);
    for _ in 0..5000 {
        step(server);
        if let Some((status, _)) = mount.receive(server) {
            return Some(status);
        }
    }
    None
}

/// One mount makes a name, another's request fails because of it, and all crash: the name exists.
#[test]
fn a_cross_shard_failure_reveals_durable_changes_only() {
    let name_of = |server: &mut TestServer, mount: &mut Mount, dir: InodeNo| {
        let names = ["a", "b", "c", "d", "e"];
        let named = |text: &&&'static str| {
            let act = Act::Lookup(InodeNo::ROOT, text);
            mount.begin(&act);
            mount::made(&act, &ask(server, mount, 0).1) == Some(dir)
        };
        *names.iter().find(named).unwrap()
    };
    for share in [Share::Write, Share::Strict] {
        for lane_count in 1..=3 {
            for removes in [false, true] {
                let (mut server, [mut one, mut other], (from, to)) = slow(share, lane_count);
                let text = name_of(&mut server, &mut one, to);
                let make = Act::Create(to, "new");
                assert_eq!(early(&mut server, &mut one, &make), Some(Status::Ok));
                let (act, expected) = if removes {
                    (Act::Rmdir(InodeNo::ROOT, text), Status::NotEmpty)
                } else {
                    (Act::Rename((from, "f"), (to, "new"), RenameHow::NoReplace), Status::Exists)
                };
                let status = early(&mut server, &mut other, &act);
                if share == Share::Write {
                    assert_eq!(status, Some(expected), "{lane_count} lanes: {act:?}");
                    continue;
                }
                assert_eq!(status, None, "{lane_count} lanes: {act:?}");
                server.log_slowness = 0;
                assert_eq!(ask(&mut server, &mut other, 0).0, expected);
                server.crash_losing_all();
                server.start(lane_count);
                server.run();
                server.pass_ms(20_000);
                server.run();
                let mut third = Mount::new(&mut server, 3);
                let listed = third.list(&mut server, to).unwrap();
                assert!(listed.iter().any(|(text, _)| text == "new"), "{listed:?}");
            }
        }
    }
}
