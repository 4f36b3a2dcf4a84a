//! An evicted client changes nothing at any server when another client gets what it had locked.

use super::cluster::Cluster;
use super::restated::{answer, ask, steps};
use super::{Act, directories, done, joined, server_of};
use crate::tests::peer::{HelloFields, Peer, ROOT, create, name, send_handshake};
use alloc::vec::Vec;
use wire::{
    ByteRange, ClearPrivileges, Create, Created, Getattr, Handle, HandleId, Header, InodeNo,
    LockKind, LockType, Lookup, Op, OpenFor, Refusal, RefusalReason, ReplayDone, Request, SetLock,
    SetTime, Setattr, ShardId, Status, Wire as _, Write, request_flag,
};

/// The servers of a scene: one records the exports, the next has the file's metadata and locks,
/// the last its contents.
const EXPORTER: usize = 0;
const NAMES: usize = 1;
const CONTENTS: usize = 2;

/// The client that is evicted.
const EVICTED: u8 = 11;

/// Three servers of one lane each, and files of `NAMES` with contents at each of two servers.
struct Scene {
    cluster: Cluster,
    dir: InodeNo,
    /// Its contents are at `CONTENTS`.
    file: InodeNo,
    /// Its contents are at `NAMES`, as its name.
    own: InodeNo,
    /// The evicted client's connections to the servers.
    evicted: Vec<Peer>,
}

pub(super) fn lock(inode: InodeNo, wait_id: u64) -> SetLock {
    let (kind, owner, lock) = (LockKind::Posix, 5, Some(LockType::Write));
    SetLock { inode, kind, owner, lock, range: ByteRange::ALL, pid: 5, wait_id, place: 0 }
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut cluster = Cluster::new(seed, &[1, 1, 1]);
        let mut client = joined(&mut cluster, 1);
        let dirs = directories(&mut cluster, &mut client);
        let dir = dirs.into_iter().find(|dir| server_of(*dir) == NAMES).unwrap();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let made = names.map(|text| done(&mut cluster, &mut client, Act::Create(dir, text)));
        let map = cluster.newest_map();
        let at = |server: usize| {
            let is_there = |inode: &InodeNo| {
                usize::from(map.place(map.data_shard(*inode, 0)).server.0) == server + 1
            };
            made.into_iter().flatten().find(is_there).unwrap()
        };
        let (file, own) = (at(CONTENTS), at(NAMES));
        cluster.settle();
        let connect = |server| Peer::new(server, &HelloFields::new(EVICTED));
        let evicted = cluster.servers.iter_mut().map(connect).collect();
        let mut scene = Self { cluster, dir, file, own, evicted };
        // Each server knows it durably.
        let (peer, body) = ((EXPORTER, &mut scene.evicted[EXPORTER]), create("x").to_bytes());
        let asked = (Op::Create, InodeNo::ROOT.shard(), 1);
        let made = ask(&mut scene.cluster, peer, asked, (&body, None));
        assert_eq!(made.map(|reply| reply.head.status), Some(Status::Ok));
        for inode in [file, own] {
            assert_eq!(scene.lock_as_evicted(inode), Some(Status::Ok));
        }
        assert_eq!(scene.write(), Some(Status::Ok));
        scene
    }

    fn lock_as_evicted(&mut self, inode: InodeNo) -> Option<Status> {
        let body = lock(inode, 0).to_bytes();
        let peer = (NAMES, &mut self.evicted[NAMES]);
        let asked = (Op::SetLock, inode.shard(), 1);
        ask(&mut self.cluster, peer, asked, (&body, None)).map(|reply| reply.head.status)
    }

    /// The client that is evicted writes to the file whose contents are at another server.
    fn write(&mut self) -> Option<Status> {
        let (inode, clears) = (self.file, ClearPrivileges::Nothing);
        let body = Write { inode, file_offset: 0, append: false, clears }.to_bytes();
        let shard = self.cluster.newest_map().data_shard(inode, 0);
        let (peer, asked) = ((CONTENTS, &mut self.evicted[CONTENTS]), (Op::Write, shard, 1));
        let reply = ask(&mut self.cluster, peer, asked, (&body, Some(b"bytes")));
        reply.map(|reply| reply.head.status)
    }

    /// The client makes a file that it may write behind.
    fn create_behind(&mut self, dir: InodeNo, text: &str) -> InodeNo {
        let handle = Some(Handle { id: HandleId(900), open_for: OpenFor::Write });
        let body = Create { parent: dir, handle, ..create(text) }.to_bytes();
        let (server, peer) = (&mut self.cluster.servers[NAMES], &mut self.evicted[NAMES]);
        let flags = request_flag::LEASES | request_flag::BEHIND;
        let head = Request { flags, ..peer.head(Op::Create, dir.shard(), 1) };
        peer.send(server, &head, &body, None);
        let reply = answer(&mut self.cluster, (NAMES, &self.evicted[NAMES])).unwrap();
        Created::decode_all(&reply.body).unwrap().attr.inode
    }

    fn write_behind(&mut self, inode: InodeNo, file_offset: u64) -> Option<Status> {
        let (append, clears) = (true, ClearPrivileges::Nothing);
        let body = Write { inode, file_offset, append, clears }.to_bytes();
        let shard = self.cluster.newest_map().data_shard(inode, 0);
        let (server, peer) = (&mut self.cluster.servers[CONTENTS], &mut self.evicted[CONTENTS]);
        let head = Request { flags: request_flag::BEHIND, ..peer.head(Op::Write, shard, 1) };
        peer.send(server, &head, &body, Some(b"bytes"));
        let reply = answer(&mut self.cluster, (CONTENTS, &self.evicted[CONTENTS]));
        reply.map(|reply| reply.head.status)
    }

    /// The client makes files until one has its contents at `CONTENTS`, and it may write that behind.
    fn written_behind(&mut self) -> (&'static str, InodeNo) {
        let (dir, map) = (self.dir, self.cluster.newest_map());
        let is_there = |inode: &InodeNo| {
            usize::from(map.place(map.data_shard(*inode, 0)).server.0) == CONTENTS + 1
        };
        // The first create asks for the free space.
        let texts = ["m", "n", "o", "p", "q", "r", "s", "t"];
        let made: Vec<InodeNo> = texts.iter().map(|text| self.create_behind(dir, text)).collect();
        let mut files = texts.into_iter().zip(made).skip(1);
        files.find(|(_, inode)| is_there(inode)).unwrap()
    }

    /// A client asks the server of the names.
    fn begin(&mut self, number: u8, (op, slot): (Op, u16), body: &[u8]) -> Peer {
        let server = &mut self.cluster.servers[NAMES];
        let mut peer = Peer::new(server, &HelloFields::new(number));
        let head = peer.head(op, self.dir.shard(), slot);
        peer.send(server, &head, body, None);
        peer
    }

    fn look_up(&mut self, number: u8, text: &str) -> Peer {
        let lookup = Lookup { caller: ROOT, parent: self.dir, name: name(text) };
        self.begin(number, (Op::Lookup, 0), &lookup.to_bytes())
    }

    /// The holder sets a mode that it has answered before. Returns the outcome.
    fn chmod_behind(&mut self, inode: InodeNo) -> Option<Status> {
        let args = Setattr {
            caller: ROOT,
            inode,
            mode: Some(0o600),
            uid: None,
            gid: None,
            atime: SetTime::Keep,
            mtime: SetTime::Keep,
            clears: ClearPrivileges::Nothing,
        };
        let (server, peer) = (&mut self.cluster.servers[NAMES], &mut self.evicted[NAMES]);
        let head = peer.head(Op::Setattr, inode.shard(), 1);
        let head = Request { flags: request_flag::BEHIND, ..head };
        peer.send(server, &head, &args.to_bytes(), None);
        answer(&mut self.cluster, (NAMES, &self.evicted[NAMES])).map(|reply| reply.head.status)
    }

    /// A server restarts; the client does not come back to it by itself.
    fn restart(&mut self, server: usize) {
        self.cluster.crash(server);
        self.cluster.start(server);
        steps(&mut self.cluster, 20);
    }

    /// The client comes back to a server that has restarted, with nothing to replay.
    fn come_back(&mut self, server: usize) {
        let host = &mut self.cluster.servers[server];
        let fields = HelloFields { conn_epoch: 2, ..HelloFields::new(EVICTED) };
        let mut peer = Peer::new(host, &fields);
        peer.xid = 1 << 40;
        let map = host.map.clone();
        let is_there = |shard: &ShardId| usize::from(map.place(*shard).server.0) == server + 1;
        for shard in map.shard_counts().shards().filter(is_there) {
            let head = peer.head(Op::ReplayDone, shard, 0);
            peer.send(host, &head, &ReplayDone { reopen_count: 0 }.to_bytes(), None);
        }
        steps(&mut self.cluster, 200);
        peer.replies(&mut self.cluster.servers[server]);
        self.evicted[server] = peer;
    }

    /// All servers can reach each other again.
    fn heal(&mut self) {
        self.cluster.parted.clear();
        self.cluster.silent.clear();
        steps(&mut self.cluster, 3_000);
    }

    /// Whether a client has been granted the lock that it waits for.
    fn is_granted(&mut self, peer: &Peer) -> bool {
        let received = self.cluster.servers[NAMES].take(peer.conn);
        received.iter().any(|received| Header::decode(&received.frame).unwrap().0 == Header::Grant)
    }

    /// Another client asks for a lock.
    fn want(&mut self, number: u8, (inode, wait_id): (InodeNo, u64)) -> Peer {
        let server = &mut self.cluster.servers[NAMES];
        let mut peer = Peer::new(server, &HelloFields::new(number));
        let head = peer.head(Op::SetLock, inode.shard(), 1);
        peer.send(server, &head, &lock(inode, wait_id).to_bytes(), None);
        peer
    }

    fn answer(&mut self, peer: &Peer) -> Option<Status> {
        answer(&mut self.cluster, (NAMES, peer)).map(|reply| reply.head.status)
    }

    /// The client has no connection any more, and gets none.
    fn is_refused_at(&mut self, server: usize) {
        let conn = self.evicted[server].conn;
        let server = &mut self.cluster.servers[server];
        assert!(server.is_closed(conn), "its connection is closed");
        let fields = HelloFields { conn_epoch: 999, ..HelloFields::new(EVICTED) };
        let refused = send_handshake(server, &fields).1;
        assert_eq!(refused, Err(Refusal { reason: RefusalReason::Evicted }));
    }

    fn part(&mut self, one: usize, two: usize) {
        self.cluster.parted.push((one, two));
        steps(&mut self.cluster, 20);
    }

    fn pass_s(&mut self, seconds: u64) {
        for _ in 0..4 * seconds {
            self.cluster.pass_ms(250);
            steps(&mut self.cluster, 30);
        }
    }
}

#[test]
fn a_lock_is_given_away_when_the_server_of_the_contents_has_recorded_the_eviction() {
    let mut scene = Scene::new(31);
    // The server of the contents can hear of it from nobody.
    scene.part(NAMES, CONTENTS);
    scene.part(EXPORTER, CONTENTS);
    scene.restart(NAMES);
    scene.pass_s(20);
    let other = scene.want(12, (scene.file, 0));
    assert_eq!(scene.answer(&other), None, "the evicted one may write");
    assert!(!scene.cluster.servers[CONTENTS].is_closed(scene.evicted[CONTENTS].conn));
    assert_eq!(scene.write(), None, "it waits for the server of the file's names");
    let third = scene.want(13, (scene.own, 0));
    assert_eq!(scene.answer(&third), Some(Status::Ok), "its contents are where its names are");
    let before = scene.cluster.servers[CONTENTS].lane(0).evictions.extent().0;
    scene.heal();
    assert_eq!(scene.answer(&other), Some(Status::Ok));
    scene.is_refused_at(CONTENTS);
    // What it has confirmed is durable.
    let server = &mut scene.cluster.servers[CONTENTS];
    server.crash_losing_all();
    scene.cluster.start(CONTENTS);
    assert!(scene.cluster.servers[CONTENTS].lane(0).evictions.extent().0 > before);
}

#[test]
fn a_server_that_does_not_know_that_it_is_cut_off_holds_a_lock_up() {
    let mut scene = Scene::new(32);
    scene.cluster.silent = [(NAMES, CONTENTS), (EXPORTER, CONTENTS)].into();
    scene.restart(NAMES);
    assert_eq!(scene.write(), Some(Status::Ok), "it has not heard of the restart");
    scene.pass_s(20);
    let other = scene.want(12, (scene.file, 0));
    assert_eq!(scene.answer(&other), None, "the evicted one may write");
    scene.heal();
    assert_eq!(scene.answer(&other), Some(Status::Ok));
    scene.is_refused_at(CONTENTS);
}

#[test]
fn a_server_that_was_away_during_an_eviction_hears_of_it_before_it_writes() {
    let mut scene = Scene::new(33);
    scene.cluster.crash(CONTENTS);
    scene.restart(NAMES);
    steps(&mut scene.cluster, 200);
    // Nobody else hears of the eviction.
    scene.part(NAMES, EXPORTER);
    scene.part(NAMES, CONTENTS);
    scene.pass_s(20);
    let other = scene.want(12, (scene.file, 0));
    assert_eq!(scene.answer(&other), None, "the contents are away");
    scene.cluster.start(CONTENTS);
    steps(&mut scene.cluster, 2_000);
    scene.come_back(CONTENTS);
    scene.pass_s(20);
    assert_eq!(scene.write(), None, "it waits for the server of the file's names");
    assert_eq!(scene.answer(&other), None);
    scene.heal();
    assert_eq!(scene.answer(&other), Some(Status::StaleMap), "a server has started meanwhile");
    let again = scene.want(13, (scene.file, 0));
    assert_eq!(scene.answer(&again), Some(Status::Ok));
    scene.is_refused_at(CONTENTS);
    scene.is_refused_at(EXPORTER);
}

#[test]
fn a_wait_for_a_lock_lasts_until_the_eviction_is_known() {
    let mut scene = Scene::new(34);
    let [other, third] =
        [(12, scene.file), (13, scene.own)].map(|(number, inode)| scene.want(number, (inode, 1)));
    assert_eq!((scene.answer(&other), scene.answer(&third)), (Some(Status::Ok), Some(Status::Ok)));
    scene.part(NAMES, CONTENTS);
    scene.restart(EXPORTER);
    scene.pass_s(20);
    scene.is_refused_at(NAMES);
    // All locks of a client wait for the contents of all its files.
    assert!(!scene.is_granted(&other) && !scene.is_granted(&third));
    scene.heal();
    assert!(scene.is_granted(&other) && scene.is_granted(&third));
    scene.is_refused_at(CONTENTS);
}

/// Another process takes the client's place, and says so to one server only.
#[test]
fn a_client_that_was_replaced_is_evicted_at_every_server() {
    let mut scene = Scene::new(36);
    let other = scene.want(12, (scene.file, 1));
    assert_eq!(scene.answer(&other), Some(Status::Ok), "it waits for the lock");
    let predecessor = HelloFields::new(EVICTED).client;
    let successor = HelloFields { predecessor, ..HelloFields::new(14) };
    Peer::new(&mut scene.cluster.servers[NAMES], &successor);
    steps(&mut scene.cluster, 200);
    assert!(scene.is_granted(&other));
    for server in [EXPORTER, NAMES, CONTENTS] {
        scene.is_refused_at(server);
    }
}

#[test]
fn a_write_lease_that_was_taken_is_known_to_a_server_that_was_away() {
    let mut scene = Scene::new(35);
    let (text, file) = scene.written_behind();
    assert_eq!(scene.write_behind(file, 0), Some(Status::Ok));
    scene.part(NAMES, CONTENTS);
    let other = scene.look_up(12, text);
    assert_eq!(scene.answer(&other), None, "the holder is asked");
    scene.pass_s(15);
    assert_eq!(scene.answer(&other), None, "the server of the contents does not know");
    scene.restart(CONTENTS);
    scene.heal();
    assert_eq!(scene.answer(&other), Some(Status::Ok));
    scene.come_back(CONTENTS);
    scene.pass_s(15);
    assert_eq!(scene.write_behind(file, 5), Some(Status::Stale), "it is too late");
}

#[test]
fn a_write_lease_that_is_being_taken_holds_up_what_names_its_file_alone() {
    let mut scene = Scene::new(36);
    let (text, file) = scene.written_behind();
    assert_eq!(scene.write_behind(file, 0), Some(Status::Ok));
    assert_eq!(scene.chmod_behind(file), Some(Status::Ok));
    scene.cluster.silent.push((NAMES, CONTENTS));
    let other = scene.look_up(12, text);
    scene.pass_s(15);
    assert_eq!(scene.answer(&other), None);
    let recalled = scene.cluster.servers[NAMES].take(scene.evicted[NAMES].conn);
    assert!(!recalled.is_empty(), "the holder does not answer the recall");
    assert_eq!(scene.write_behind(file, 5), Some(Status::Ok), "the contents are not fenced yet");
    assert_eq!(scene.chmod_behind(file), Some(Status::Stale), "its own server knows");
    let third = scene.begin(13, (Op::Getattr, 0), &Getattr { inode: file }.to_bytes());
    assert_eq!(scene.answer(&third), None);
    // Other files of the lane, of others and of the holder.
    let own = scene.begin(14, (Op::Getattr, 0), &Getattr { inode: scene.own }.to_bytes());
    assert_eq!(scene.answer(&own), Some(Status::Ok));
    let made = Create { parent: scene.dir, ..create("x") }.to_bytes();
    let made = scene.begin(15, (Op::Create, 1), &made);
    assert_eq!(scene.answer(&made), Some(Status::Ok));
    let by_holder = Create { parent: scene.dir, ..create("y") }.to_bytes();
    let (peer, asked) = ((NAMES, &mut scene.evicted[NAMES]), (Op::Create, scene.dir.shard(), 2));
    let by_holder = ask(&mut scene.cluster, peer, asked, (&by_holder, None));
    assert_eq!(by_holder.map(|reply| reply.head.status), Some(Status::Ok));
    scene.heal();
    assert_eq!(scene.answer(&other), Some(Status::Ok));
    assert_eq!(scene.answer(&third), Some(Status::Ok));
    assert_eq!(scene.write_behind(file, 10), Some(Status::Stale), "it is too late");
}
