//! What a server must know of others before it serves: exports, and which files have privileged
//! bits.

use super::cluster::Cluster;
use super::{Act, done, joined, server_of};
use crate::tests::peer::{HelloFields, Peer, ROOT, ReceivedReply, send_handshake};
use wire::*;

pub(super) fn steps(cluster: &mut Cluster, count: usize) {
    for _ in 0..count {
        cluster.step();
    }
}

/// A request, and its answer if it comes.
pub(super) fn ask(
    cluster: &mut Cluster,
    (index, peer): (usize, &mut Peer),
    (op, shard, slot): (Op, ShardId, u16),
    (body, bulk): (&[u8], Option<&[u8]>),
) -> Option<ReceivedReply> {
    let head = peer.head(op, shard, slot);
    peer.send(&mut cluster.servers[index], &head, body, bulk);
    answer(cluster, (index, peer))
}

pub(super) fn answer(
    cluster: &mut Cluster,
    (index, peer): (usize, &Peer),
) -> Option<ReceivedReply> {
    for _ in 0..600 {
        cluster.step();
        if let Some(reply) = peer.replies(&mut cluster.servers[index]).pop() {
            return Some(reply);
        }
    }
    None
}

fn getattr(
    cluster: &mut Cluster,
    (index, peer): (usize, &mut Peer),
    inode: InodeNo,
) -> Option<Status> {
    let body = Getattr { inode }.to_bytes();
    let asked = (Op::Getattr, inode.shard(), 0);
    ask(cluster, (index, peer), asked, (&body, None)).map(|reply| reply.head.status)
}

/// An export of a directory of the first server, and two directories of the second one: the first
/// lies below the export's, in another one of the first server.
fn exported(cluster: &mut Cluster) -> (Peer, InodeNo, InodeNo) {
    let mut client = joined(cluster, 1);
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut dirs = alloc::vec::Vec::new();
    for text in names {
        dirs.extend(done(cluster, &mut client, Act::Mkdir(InodeNo::ROOT, text)));
    }
    let top = *dirs.iter().find(|dir| server_of(**dir) == 0).unwrap();
    let outside = *dirs.iter().find(|dir| server_of(**dir) == 1).unwrap();
    let made = names.map(|text| (done(cluster, &mut client, Act::Mkdir(top, text)), text));
    let at = |server| {
        let (dir, text) = made.iter().find(|(dir, _)| server_of(dir.unwrap()) == server).unwrap();
        (dir.unwrap(), *text)
    };
    // Only the first server knows that its parent lies below the export's directory.
    let ((parent, _), (below, text)) = (at(0), at(1));
    let act = Act::Rename((top, text), (parent, "x"), RenameHow::Replace);
    done(cluster, &mut client, act);
    cluster.settle();
    let purpose = Purpose::Administer;
    let fields = HelloFields { purpose, ..HelloFields::new(9) };
    let mut administrator = Peer::new(&mut cluster.servers[0], &fields);
    cluster.parted.push((0, 1));
    steps(cluster, 20);
    let export = Export {
        id: 77,
        name: Bytes(b"project"),
        root: top,
        path: Bytes(b"/top"),
        read_only: false,
        squash: Squash::NONE,
        closed: false,
    };
    let body = SetExport { export, replace: false }.to_bytes();
    let asked = (Op::SetExport, ShardId::meta(0), 0);
    let early = ask(cluster, (0, &mut administrator), asked, (&body, None));
    assert!(early.is_none(), "it waits until all servers have it");
    cluster.parted.clear();
    let reply = answer(cluster, (0, &administrator));
    assert_eq!(reply.map(|reply| reply.head.status), Some(Status::Ok));
    let fields = HelloFields { export: "project", ..HelloFields::new(2) };
    (Peer::new(&mut cluster.servers[1], &fields), below, outside)
}

#[test]
fn an_export_holds_at_every_server_and_its_directory_may_be_at_another() {
    let mut cluster = Cluster::new(1, &[1, 1]);
    let (mut bound, below, outside) = exported(&mut cluster);
    assert_eq!(getattr(&mut cluster, (1, &mut bound), below), Some(Status::Ok));
    assert_eq!(getattr(&mut cluster, (1, &mut bound), outside), Some(Status::Stale));
    // Without the server of the directory nobody knows; with it the answer comes.
    cluster.parted.push((0, 1));
    steps(&mut cluster, 20);
    assert_eq!(getattr(&mut cluster, (1, &mut bound), below), None);
    cluster.parted.clear();
    let reply = answer(&mut cluster, (1, &bound));
    assert_eq!(reply.map(|reply| reply.head.status), Some(Status::Ok));
}

#[test]
fn a_server_that_has_not_been_told_the_exports_admits_nobody() {
    let mut cluster = Cluster::new(2, &[1, 1]);
    let (_, below, _) = exported(&mut cluster);
    cluster.crash(1);
    cluster.parted.push((0, 1));
    cluster.start(1);
    steps(&mut cluster, 200);
    let fields = HelloFields { export: "project", conn_epoch: 2, ..HelloFields::new(3) };
    let (_, refused) = send_handshake(&mut cluster.servers[1], &fields);
    assert_eq!(refused.unwrap_err().reason, RefusalReason::Busy);
    cluster.parted.clear();
    steps(&mut cluster, 2_000);
    let mut bound = Peer::new(&mut cluster.servers[1], &fields);
    // Recovery waits for the clients of before, and then goes on without them.
    cluster.pass_ms(15_000);
    assert_eq!(getattr(&mut cluster, (1, &mut bound), below), Some(Status::Ok));
}

#[test]
fn a_lane_that_has_not_been_told_the_exports_passes_clients_on_to_one_that_has() {
    let mut cluster = Cluster::new(4, &[1, 1]);
    steps(&mut cluster, 500);
    cluster.crash(1);
    // The first server does not know yet that there is a second lane.
    cluster.start_untold(1, 2);
    steps(&mut cluster, 500);
    for conn_epoch in 1..=8 {
        let to = |lane| HelloFields {
            server_lane: LaneId(lane),
            client_lane: LaneId(lane),
            conn_epoch,
            ..HelloFields::new(1)
        };
        let (_, welcomed) = send_handshake(&mut cluster.servers[1], &to(0));
        assert!(welcomed.is_ok(), "whichever lane has the socket");
        let (_, refused) = send_handshake(&mut cluster.servers[1], &to(1));
        assert_eq!(refused.unwrap_err().reason, RefusalReason::Busy);
    }
}

#[test]
fn a_write_waits_until_it_is_known_which_files_have_privileged_bits() {
    let mut cluster = Cluster::new(3, &[1, 1]);
    let mut client = joined(&mut cluster, 1);
    // A file of the first server's names and the second one's contents.
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let made = names.map(|text| done(&mut cluster, &mut client, Act::Create(InodeNo::ROOT, text)));
    let map = cluster.newest_map();
    let away = |inode: &InodeNo| map.place(map.data_shard(*inode, 0)).server == ServerId(2);
    let inode = made.into_iter().flatten().find(away).unwrap();
    let shard = map.data_shard(inode, 0);
    let mut peer = Peer::new(&mut cluster.servers[0], &HelloFields::new(2));
    let handle = Handle { id: HandleId(7), open_for: OpenFor::ReadWrite };
    let open = Open { caller: ROOT, inode, handle }.to_bytes();
    let opened = ask(&mut cluster, (0, &mut peer), (Op::Open, inode.shard(), 1), (&open, None));
    assert_eq!(opened.map(|reply| reply.head.status), Some(Status::Ok));
    let set = Setattr {
        caller: ROOT,
        inode,
        mode: Some(0o4755),
        uid: None,
        gid: None,
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        clears: ClearPrivileges::Nothing,
    };
    let asked = (Op::Setattr, inode.shard(), 1);
    let reply = ask(&mut cluster, (0, &mut peer), asked, (&set.to_bytes(), None));
    assert_eq!(reply.map(|reply| reply.head.status), Some(Status::Ok));
    // The server of the contents forgets it.
    cluster.crash(1);
    cluster.start(1);
    steps(&mut cluster, 1_000);
    cluster.parted.push((0, 1));
    steps(&mut cluster, 50);
    let mut writer = Peer::new(&mut cluster.servers[1], &HelloFields::new(4));
    cluster.servers[1].pass_ms(15_000);
    let write = Write { inode, file_offset: 0, append: false, clears: ClearPrivileges::All };
    let asked = (Op::Write, shard, 1);
    let bytes = (&*write.to_bytes(), Some(&b"bytes"[..]));
    assert!(ask(&mut cluster, (1, &mut writer), asked, bytes).is_none(), "it waits");
    cluster.parted.clear();
    let reply = answer(&mut cluster, (1, &writer));
    assert_eq!(reply.map(|reply| reply.head.status), Some(Status::NeedClearPrivileges));
}
