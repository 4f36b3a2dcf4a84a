//! While a server is away that must be told of one file, what names this file waits, and nothing else.

use super::cluster::{Client, Cluster};
use super::restated::{answer, ask, steps};
use super::{Act, directories, done, encoded, joined, server_of};
use crate::tests::peer::{HelloFields, Peer, ROOT, create, name};
use alloc::vec::Vec;
use wire::*;

/// The servers: of the names, and of the contents of the one file.
const NAMES: usize = 0;
const CONTENTS: usize = 1;

const NAME_TEXTS: [&str; 12] = ["i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];

/// A file that is open for writing, with its contents at another server than its name, and one of the
/// same lane that has everything at one server.
struct Scene {
    cluster: Cluster,
    client: Client,
    file: InodeNo,
    text: &'static str,
    other: InodeNo,
    /// Has the file open.
    writer: Peer,
    client_count: u8,
}

const HANDLE: Handle = Handle { id: HandleId(7), open_for: OpenFor::ReadWrite };

fn chmod(inode: InodeNo, mode: u32) -> (Op, Vec<u8>) {
    let args = Setattr {
        caller: ROOT,
        inode,
        mode: Some(mode),
        uid: None,
        gid: None,
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        clears: ClearPrivileges::Nothing,
    };
    (Op::Setattr, args.to_bytes())
}

fn getattr(inode: InodeNo) -> (Op, Vec<u8>) {
    (Op::Getattr, Getattr { inode }.to_bytes())
}

fn lookup(text: &str) -> (Op, Vec<u8>) {
    (Op::Lookup, Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name(text) }.to_bytes())
}

fn open(inode: InodeNo) -> (Op, Vec<u8>) {
    (Op::Open, Open { caller: ROOT, inode, handle: HANDLE }.to_bytes())
}

impl Scene {
    fn new(seed: u64, lane_counts: &[u16]) -> Self {
        let mut cluster = Cluster::new(seed, lane_counts);
        let mut client = joined(&mut cluster, 1);
        let (cluster_mut, client_mut) = (&mut cluster, &mut client);
        let made =
            NAME_TEXTS.map(|text| done(cluster_mut, client_mut, Act::Create(InodeNo::ROOT, text)));
        let map = cluster.newest_map();
        // At the last lane of a server.
        let at = |server: usize| {
            let is_there = |(inode, _): &(InodeNo, &str)| {
                let place = map.place(map.data_shard(*inode, 0));
                usize::from(place.server.0) == server + 1 && place.lane.0 + 1 == lane_counts[server]
            };
            made.into_iter().flatten().zip(NAME_TEXTS).find(is_there).unwrap()
        };
        let ((file, text), (other, _)) = (at(CONTENTS), at(NAMES));
        cluster.settle();
        let writer = Peer::new(&mut cluster.servers[NAMES], &HelloFields::new(2));
        let mut scene = Self { cluster, client, file, text, other, writer, client_count: 2 };
        let (op, body) = open(file);
        let asked = (op, file.shard(), 1);
        let opened = ask(&mut scene.cluster, (NAMES, &mut scene.writer), asked, (&body, None));
        assert_eq!(opened.map(|reply| reply.head.status), Some(Status::Ok));
        scene
    }

    /// A further client sends a request to the server of the names.
    fn begin(&mut self, (op, body): &(Op, Vec<u8>)) -> Peer {
        self.client_count += 1;
        let server = &mut self.cluster.servers[NAMES];
        let mut peer = Peer::new(server, &HelloFields::new(self.client_count));
        let slot = u16::from(op.row().retry == Retry::Once);
        let head = peer.head(*op, InodeNo::ROOT.shard(), slot);
        peer.send(server, &head, body, None);
        peer
    }

    fn status(&mut self, peer: &Peer) -> Option<Status> {
        answer(&mut self.cluster, (NAMES, peer)).map(|reply| reply.head.status)
    }

    fn asked(&mut self, request: &(Op, Vec<u8>)) -> Option<Status> {
        let peer = self.begin(request);
        self.status(&peer)
    }

    /// A write that clears nothing, of a further client, at the server of the contents.
    fn write(&mut self) -> Option<Status> {
        self.client_count += 1;
        let fields = HelloFields::new(self.client_count);
        let mut peer = Peer::new(&mut self.cluster.servers[CONTENTS], &fields);
        let (inode, clears) = (self.file, ClearPrivileges::All);
        let write = Write { inode, file_offset: 0, append: false, clears }.to_bytes();
        let shard = self.cluster.newest_map().data_shard(inode, 0);
        let (at, asked) = ((CONTENTS, &mut peer), (Op::Write, shard, 1));
        let reply = ask(&mut self.cluster, at, asked, (&write, Some(b"bytes")));
        reply.map(|reply| reply.head.status)
    }

    /// Requests that name the file.
    fn of_the_file(&self) -> [(Op, Vec<u8>); 4] {
        [getattr(self.file), lookup(self.text), open(self.file), chmod(self.file, 0o600)]
    }

    /// Whatever else the lane is asked is answered.
    fn serves_others(&mut self, text: &'static str) {
        let rename = encoded(&Act::Rename(
            (InodeNo::ROOT, text),
            (InodeNo::ROOT, "renamed"),
            RenameHow::Replace,
        ));
        let made = (Op::Create, create(text).to_bytes());
        let of_others = [
            getattr(self.other),
            getattr(InodeNo::ROOT),
            open(self.other),
            chmod(self.other, 0o4755),
            made,
            lookup(text),
            (rename.0, rename.2),
        ];
        for request in of_others {
            assert_eq!(self.asked(&request), Some(Status::Ok), "{:?}", request.0);
        }
    }

    fn part(&mut self) {
        self.cluster.parted.push((NAMES, CONTENTS));
        steps(&mut self.cluster, 20);
    }

    fn heal(&mut self) {
        self.cluster.parted.clear();
        self.cluster.silent.clear();
        steps(&mut self.cluster, 3_000);
    }

    /// The server of the contents has restarted, and gives up whom it waits for.
    fn recover(&mut self) {
        for _ in 0..60 {
            self.cluster.pass_ms(250);
            steps(&mut self.cluster, 20);
        }
    }

    /// All of these have been answered, well.
    fn are_answered(&mut self, peers: &[Peer]) {
        for peer in peers {
            let status = self.status(peer);
            assert_eq!(status, Some(Status::Ok), "{:?}", peer.conn);
        }
    }
}

#[test]
fn privileged_bits_that_a_server_does_not_know_hold_up_what_names_their_file_alone() {
    let mut scene = Scene::new(71, &[1, 1]);
    scene.part();
    let set = scene.begin(&chmod(scene.file, 0o4755));
    assert_eq!(scene.status(&set), None, "the server of the contents does not know");
    let mut waiting: Vec<Peer> = Vec::from([set]);
    for request in scene.of_the_file() {
        let peer = scene.begin(&request);
        assert_eq!(scene.status(&peer), None, "{:?} would tell of the bits", request.0);
        waiting.push(peer);
    }
    scene.serves_others("x");
    scene.heal();
    let (set, later) = waiting.split_first().unwrap();
    scene.are_answered(core::slice::from_ref(set));
    scene.are_answered(later);
}

#[test]
fn a_write_that_follows_from_bits_set_while_a_server_hears_nothing_clears_them() {
    let mut scene = Scene::new(72, &[1, 1]);
    scene.cluster.silent.push((NAMES, CONTENTS));
    let set = scene.begin(&chmod(scene.file, 0o4755));
    assert_eq!(scene.write(), Some(Status::Ok), "it does not know that it is cut off");
    assert_eq!(scene.status(&set), None);
    scene.serves_others("x");
    scene.heal();
    scene.are_answered(&[set]);
    assert_eq!(scene.write(), Some(Status::NeedClearPrivileges));
}

#[test]
fn bits_are_told_to_a_server_that_has_restarted_before_their_change_is_answered() {
    let mut scene = Scene::new(73, &[1, 1]);
    scene.cluster.crash(CONTENTS);
    steps(&mut scene.cluster, 20);
    let set = scene.begin(&chmod(scene.file, 0o4755));
    assert_eq!(scene.status(&set), None);
    scene.serves_others("x");
    scene.part();
    scene.cluster.start(CONTENTS);
    steps(&mut scene.cluster, 200);
    assert_eq!(scene.status(&set), None, "it has not heard of them");
    scene.heal();
    scene.are_answered(&[set]);
    scene.recover();
    assert_eq!(scene.write(), Some(Status::NeedClearPrivileges));
}

#[test]
fn bits_that_were_cleared_while_a_server_was_cut_off_are_forgotten_there() {
    let mut scene = Scene::new(74, &[1, 1]);
    assert_eq!(scene.asked(&chmod(scene.file, 0o4755)), Some(Status::Ok));
    assert_eq!(scene.write(), Some(Status::NeedClearPrivileges));
    scene.part();
    let cleared = scene.begin(&chmod(scene.file, 0o755));
    assert_eq!(scene.status(&cleared), None);
    scene.heal();
    scene.are_answered(&[cleared]);
    assert_eq!(scene.write(), Some(Status::Ok));
}

#[test]
fn a_request_that_is_sent_again_is_not_answered_before_the_bits_are_known() {
    let mut scene = Scene::new(75, &[1, 1]);
    scene.part();
    scene.client_count += 1;
    let fields = HelloFields::new(scene.client_count);
    let server = &mut scene.cluster.servers[NAMES];
    let mut first = Peer::new(server, &fields);
    let (op, body) = chmod(scene.file, 0o4755);
    let head = first.head(op, scene.file.shard(), 1);
    first.send(server, &head, &body, None);
    assert_eq!(scene.status(&first), None);
    scene.cluster.servers[NAMES].cut(first.conn);
    let server = &mut scene.cluster.servers[NAMES];
    let again = Peer::new(server, &HelloFields { conn_epoch: 2, ..fields });
    let head = Request { conn_epoch: 2, flags: request_flag::RESENT, ..head };
    again.send(server, &head, &body, None);
    assert_eq!(scene.status(&again), None);
    scene.heal();
    scene.are_answered(&[again]);
}

#[test]
fn another_server_shows_nothing_of_a_file_whose_bits_are_being_told() {
    let mut scene = Scene::new(76, &[1, 1, 1]);
    let dirs = directories(&mut scene.cluster, &mut scene.client);
    let dir = dirs.into_iter().find(|dir| server_of(*dir) == 2).unwrap();
    scene.part();
    let set = scene.begin(&chmod(scene.file, 0o4755));
    assert_eq!(scene.status(&set), None);
    let (op, inode, body) = encoded(&Act::Link(scene.file, dir, "l"));
    assert_eq!(inode.shard(), dir.shard(), "it is coordinated elsewhere");
    scene.client.begin(&mut scene.cluster, (op, inode.shard(), body));
    for _ in 0..20 {
        steps(&mut scene.cluster, 20);
        scene.cluster.pass_ms(50);
        assert_eq!(scene.client.receive(&mut scene.cluster), None, "it would show the bits");
    }
    scene.heal();
    scene.are_answered(&[set]);
    let linked = scene.client.receive(&mut scene.cluster);
    assert_eq!(linked.map(|(status, _)| status), Some(Status::Ok));
}

/// A client comes back to the server of the names, with so many handles to reopen.
fn come_back(scene: &mut Scene, peer: &Peer, client: u8, reopen_count: u32) -> Peer {
    let server = &mut scene.cluster.servers[NAMES];
    let mut back = Peer::new(server, &HelloFields { conn_epoch: 2, ..HelloFields::new(client) });
    back.xid = peer.xid + 1_000;
    let map = server.map.clone();
    let is_there = |shard: &ShardId| usize::from(map.place(*shard).server.0) == NAMES + 1;
    for shard in map.shard_counts().shards().filter(is_there) {
        let reopen_count = if shard == scene.file.shard() { reopen_count } else { 0 };
        let head = back.head(Op::ReplayDone, shard, 0);
        back.send(server, &head, &ReplayDone { reopen_count }.to_bytes(), None);
    }
    back
}

#[test]
fn bits_are_told_anew_when_the_server_of_the_names_restarts_meanwhile() {
    let mut scene = Scene::new(77, &[1, 1]);
    scene.part();
    let (op, body) = chmod(scene.file, 0o4755);
    let set = scene.begin(&(op, body.clone()));
    let setter = scene.client_count;
    assert_eq!(scene.status(&set), None);
    scene.cluster.crash(NAMES);
    scene.cluster.start(NAMES);
    steps(&mut scene.cluster, 20);
    let writer = scene.writer.clone();
    let mut writer = come_back(&mut scene, &writer, 2, 1);
    let again = come_back(&mut scene, &set, setter, 0);
    let reopen = Reopen { inode: scene.file, handle: HANDLE }.to_bytes();
    let server = &mut scene.cluster.servers[NAMES];
    let head = writer.head(Op::Reopen, scene.file.shard(), 1);
    writer.send(server, &head, &reopen, None);
    let sent = Request { xid: Xid(set.xid), slot: 1, ..again.clone().head(op, head.shard, 1) };
    let sent = Request { flags: request_flag::RESENT, ..sent };
    again.send(server, &sent, &body, None);
    // Others are not waited for.
    let (mut reopened, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..80 {
        scene.cluster.pass_ms(250);
        steps(&mut scene.cluster, 20);
        let server = &mut scene.cluster.servers[NAMES];
        reopened.extend(writer.replies(server).into_iter().filter(|it| it.head.op == Op::Reopen));
        answered.extend(again.replies(server).into_iter().filter(|it| it.head.op == op));
    }
    assert_eq!(reopened.first().map(|it| it.head.status), Some(Status::Ok), "recovery is over");
    assert!(answered.is_empty(), "{answered:?}");
    let shown = scene.begin(&getattr(scene.file));
    assert_eq!(scene.status(&shown), None);
    scene.serves_others("x");
    scene.heal();
    scene.are_answered(&[again, shown]);
}

#[test]
fn nothing_waits_for_a_lane_that_a_server_no_longer_has() {
    let mut scene = Scene::new(78, &[1, 2]);
    scene.cluster.crash(CONTENTS);
    steps(&mut scene.cluster, 20);
    let set = scene.begin(&chmod(scene.file, 0o4755));
    assert_eq!(scene.status(&set), None);
    // The contents of all its files are at lane 0 now.
    scene.cluster.start_untold(CONTENTS, 1);
    scene.cluster.tell_map();
    scene.heal();
    scene.are_answered(&[set]);
    scene.recover();
    assert_eq!(scene.write(), Some(Status::NeedClearPrivileges));
}

/// The server of the names has cleared the bits, has not told it, and knows nothing of that once it has
/// started again.
#[test]
fn bits_that_were_cleared_before_a_restart_refuse_no_writes_after_it() {
    let mut scene = Scene::new(79, &[1, 1]);
    assert_eq!(scene.asked(&chmod(scene.file, 0o4755)), Some(Status::Ok));
    assert_eq!(scene.write(), Some(Status::NeedClearPrivileges));
    scene.part();
    let cleared = scene.begin(&chmod(scene.file, 0o755));
    assert_eq!(scene.status(&cleared), None, "the server of the contents does not know");
    scene.cluster.crash(NAMES);
    scene.cluster.start(NAMES);
    scene.recover();
    scene.heal();
    assert_eq!(scene.write(), Some(Status::Ok));
}
