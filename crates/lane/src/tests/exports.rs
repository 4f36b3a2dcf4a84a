//! Clients that are bound to an export request inodes outside of it, in every possible way.

use super::peer::{HelloFields, Peer, ROOT, ReceivedReply, name, send_handshake};
use crate::test_server::{Delivery, TestServer};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::*;

const LOSSY: u64 = Delivery::LOSSY_SEED_MIN;
const FIVE: Caller<'static> = Caller { uid: 5, gid: 5, groups: Groups::Known(&[]) };

/// A client with a connection to every lane.
struct Client {
    peers: Vec<Peer>,
}

impl Client {
    fn new(server: &mut TestServer, fields: &HelloFields) -> Self {
        let lanes = (0..server.lane_count()).map(LaneId);
        let peers = lanes
            .map(|server_lane| Peer::new(server, &HelloFields { server_lane, ..fields.clone() }));
        Self { peers: peers.collect() }
    }

    /// Sends a request to a shard's lane and waits for the reply.
    fn ask_at(
        &mut self,
        server: &mut TestServer,
        (op, shard): (Op, ShardId),
        body: &[u8],
        bulk: Option<&[u8]>,
    ) -> ReceivedReply {
        let peer = &mut self.peers[usize::from(server.map.lane(shard).0)];
        let slot = u16::from(op.row().retry == Retry::Once);
        let head = peer.head(op, shard, slot);
        peer.send(server, &head, body, bulk);
        server.run();
        let mut replies = peer.replies(server);
        assert_eq!(replies.len(), 1, "one reply to {op:?}");
        replies.remove(0)
    }

    fn ask<'a>(
        &mut self,
        server: &mut TestServer,
        op: Op,
        inode: InodeNo,
        body: &impl Wire<'a>,
    ) -> ReceivedReply {
        let shard = match op.row().route {
            Route::Data => server.map.data_shard(inode, 0),
            Route::Meta | Route::Shard | Route::Lane => inode.shard(),
        };
        let bulk = (op == Op::Write).then_some(&b"bytes"[..]);
        self.ask_at(server, (op, shard), &body.to_bytes(), bulk)
    }

    fn status<'a>(
        &mut self,
        server: &mut TestServer,
        op: Op,
        inode: InodeNo,
        body: &impl Wire<'a>,
    ) -> Status {
        self.ask(server, op, inode, body).head.status
    }

    /// Sends Goodbye to every lane: no recovery waits for it.
    fn leave(&mut self, server: &mut TestServer) {
        for peer in &mut self.peers {
            let head = peer.head(Op::Goodbye, ShardId::meta(0), 0);
            peer.send(server, &head, &[], None);
            server.run();
            assert_eq!(peer.replies(server)[0].head.status, Status::Ok);
        }
    }

    fn mkdir(&mut self, server: &mut TestServer, parent: InodeNo, text: &str) -> InodeNo {
        let mkdir = Mkdir { caller: ROOT, parent, name: name(text), mode: 0o777, umask: 0 };
        let got = self.ask(server, Op::Mkdir, parent, &mkdir);
        assert_eq!(got.head.status, Status::Ok);
        Entry::decode_all(&got.body).unwrap().attr.inode
    }

    fn file(&mut self, server: &mut TestServer, parent: InodeNo, text: &str, mode: u32) -> InodeNo {
        let handle = None;
        let (caller, name, umask) = (ROOT, name(text), 0);
        let create =
            Create { caller, parent, name, mode, umask, exclusive: true, handle, behind: None };
        let got = self.ask(server, Op::Create, parent, &create);
        assert_eq!(got.head.status, Status::Ok);
        let inode = Created::decode_all(&got.body).unwrap().attr.inode;
        let write =
            Write { inode, file_offset: 0, append: false, clears: ClearPrivileges::Nothing };
        assert_eq!(self.status(server, Op::Write, inode, &write), Status::Ok);
        inode
    }

    fn rename(&mut self, server: &mut TestServer, from: (InodeNo, &str), to: (InodeNo, &str)) {
        let rename = rename(from, to);
        assert_eq!(self.status(server, Op::Rename, from.0, &rename), Status::Ok);
    }

    fn set_export(&mut self, server: &mut TestServer, export: Export<'_>, replace: bool) -> Status {
        let body = SetExport { export, replace };
        self.status(server, Op::SetExport, InodeNo::ROOT, &body)
    }

    /// The visible state of some inodes; the first read is an access, which the second shows.
    fn look(
        &mut self,
        server: &mut TestServer,
        inodes: &[InodeNo],
    ) -> BTreeMap<InodeNo, (Attr, Vec<u8>)> {
        self.look_once(server, inodes);
        self.look_once(server, inodes)
    }

    fn look_once(
        &mut self,
        server: &mut TestServer,
        inodes: &[InodeNo],
    ) -> BTreeMap<InodeNo, (Attr, Vec<u8>)> {
        let mut seen = BTreeMap::new();
        for inode in inodes.iter().copied() {
            let got = self.ask(server, Op::Getattr, inode, &Getattr { inode });
            let attr = Entry::decode_all(&got.body).unwrap().attr;
            let contents = match attr.kind {
                FileKind::File => {
                    let read = Read { inode, file_offset: 0, read_bytes: 99, accesses: false };
                    self.ask(server, Op::Read, inode, &read).bulk
                }
                _ => self.ask(server, Op::Readdir, inode, &readdir(inode)).body,
            };
            seen.insert(inode, (attr, contents));
        }
        seen
    }
}

fn rename<'a>(from: (InodeNo, &'a str), to: (InodeNo, &'a str)) -> Rename<'a> {
    let how = RenameHow::Replace;
    let (parent, new_parent) = (from.0, to.0);
    Rename { caller: FIVE, parent, name: name(from.1), new_parent, new_name: name(to.1), how }
}

fn readdir(inode: InodeNo) -> Readdir<'static> {
    Readdir { caller: ROOT, inode, cookie: 0, listing_bytes_max: 4096, attrs: true, handle: None }
}

pub(super) fn export(name: &'static str, root: InodeNo) -> Export<'static> {
    Export {
        id: 77,
        name: Bytes(name.as_bytes()),
        root,
        path: Bytes(b"/in"),
        read_only: false,
        squash: Squash::NONE,
        closed: false,
    }
}

/// A file system with two directories, of which one is exported.
struct Scene {
    server: TestServer,
    owner: Client,
    admin: Client,
    inside: InodeNo,
    outside: InodeNo,
    /// A file in each.
    in_file: InodeNo,
    out_file: InodeNo,
}

impl Scene {
    fn new(seed: u64, lane_count: u16) -> Self {
        let mut server = TestServer::started(seed, lane_count);
        let mut owner = Client::new(&mut server, &HelloFields::new(1));
        let purpose = Purpose::Administer;
        let mut admin = Client::new(&mut server, &HelloFields { purpose, ..HelloFields::new(2) });
        let inside = owner.mkdir(&mut server, InodeNo::ROOT, "in");
        let outside = owner.mkdir(&mut server, InodeNo::ROOT, "out");
        let in_file = owner.file(&mut server, inside, "f", 0o666);
        let out_file = owner.file(&mut server, outside, "f", 0o666);
        let defined = admin.set_export(&mut server, export("in", inside), false);
        assert_eq!(defined, Status::Ok);
        Self { server, owner, admin, inside, outside, in_file, out_file }
    }

    fn bound(&mut self, client: u8) -> Client {
        Client::new(&mut self.server, &HelloFields { export: "in", ..HelloFields::new(client) })
    }
}

/// As many bytes as [`no_request_reads_or_changes_an_inode_outside_the_export`] brings.
fn one_piece() -> Pieces {
    Pieces::new(alloc::vec![Piece { file_offset: 0, piece_bytes: 5 }]).unwrap()
}

/// The body of a request that names `dir` and `file`, where the op names inodes.
fn forged(op: Op, dir: InodeNo, file: InodeNo, own: InodeNo) -> Option<(InodeNo, Vec<u8>)> {
    let (caller, parent, inode) = (FIVE, dir, file);
    let (read_name, new_name) = (name("f"), name("new"));
    let handle = Handle { id: HandleId(9), open_for: OpenFor::ReadWrite };
    let (mode, umask) = (0o666, 0);
    let clears = ClearPrivileges::Nothing;
    let range = ByteRange::new(0, 1).unwrap();
    let at_dir = |body| Some((dir, body));
    let at_file = |body| Some((file, body));
    match op {
        Op::Lookup => at_dir(Lookup { caller, parent, name: read_name }.to_bytes()),
        Op::Create => {
            let (exclusive, handle) = (false, Some(handle));
            let name = read_name;
            at_dir(
                Create { caller, parent, name, mode, umask, exclusive, handle, behind: None }
                    .to_bytes(),
            )
        }
        Op::Mkdir => at_dir(Mkdir { caller, parent, name: new_name, mode, umask }.to_bytes()),
        Op::Symlink => {
            at_dir(Symlink { caller, parent, name: new_name, target: Bytes(b"x") }.to_bytes())
        }
        Op::Mknod => {
            let (kind, rdev) = (FileKind::Fifo, 0);
            at_dir(Mknod { caller, parent, name: new_name, kind, mode, umask, rdev }.to_bytes())
        }
        Op::Tmpfile => {
            at_dir(Tmpfile { caller, parent, mode, umask, linkable: true, handle }.to_bytes())
        }
        Op::Link => {
            // From inside the export into it.
            Some((own, Link { caller, inode, parent: own, name: new_name }.to_bytes()))
        }
        Op::Unlink => at_dir(Unlink { caller, parent, name: read_name, behind: None }.to_bytes()),
        Op::Rmdir => at_dir(Rmdir { caller, parent, name: read_name }.to_bytes()),
        Op::Rename => Some((own, rename((own, "f"), (dir, "f")).to_bytes())),
        Op::Getattr => at_file(Getattr { inode }.to_bytes()),
        Op::Setattr => {
            let (atime, mtime, clears) = (SetTime::Now, SetTime::Now, ClearPrivileges::All);
            let (mode, uid, gid) = (Some(0o777), None, None);
            at_file(Setattr { caller, inode, mode, uid, gid, atime, mtime, clears }.to_bytes())
        }
        Op::Readlink => at_file(Readlink { inode }.to_bytes()),
        Op::Readdir => at_dir(readdir(dir).to_bytes()),
        Op::Find => {
            let (cookie, listing_bytes_max) = (0, 4096);
            let (inode, attrs, directories, predicate) = (dir, true, true, Predicate::ANY);
            let find =
                Find { caller, inode, cookie, listing_bytes_max, attrs, directories, predicate };
            at_dir(find.to_bytes())
        }
        Op::Open => at_file(Open { caller, inode, handle }.to_bytes()),
        Op::Reopen => at_file(Reopen { inode, handle }.to_bytes()),
        Op::Access => at_file(Access { caller, inode, mask: 4 }.to_bytes()),
        Op::Getxattr => at_file(Getxattr { caller, inode, name: Bytes(b"user.a") }.to_bytes()),
        Op::Setxattr => {
            let (name, value, flags) = (Bytes(b"user.a"), Bytes(b"x"), 0);
            at_file(Setxattr { caller, inode, name, value, flags }.to_bytes())
        }
        Op::Listxattr => at_file(Listxattr { caller, inode }.to_bytes()),
        Op::Removexattr => {
            at_file(Removexattr { caller, inode, name: Bytes(b"user.a") }.to_bytes())
        }
        Op::SetLock => {
            let lock = Some(LockType::Write);
            let (kind, owner, pid, wait_id) = (LockKind::Posix, 1, 1, 0);
            let ask = SetLock { inode, kind, owner, lock, range, pid, wait_id, place: 0 };
            at_file(ask.to_bytes())
        }
        Op::GetLock => {
            let (kind, owner, lock) = (LockKind::Posix, 1, LockType::Write);
            at_file(GetLock { inode, kind, owner, lock, range }.to_bytes())
        }
        Op::CancelLock => at_file(CancelLock { inode, wait_id: 1 }.to_bytes()),
        Op::Claim => at_file(wire::Claim { inode, first: inode, count: 0 }.to_bytes()),
        Op::Relock => {
            let (kind, owner, lock, pid) = (LockKind::Posix, 1, LockType::Write, 1);
            at_file(Relock { inode, kind, owner, lock, range, pid }.to_bytes())
        }
        Op::Read => {
            at_file(Read { inode, file_offset: 0, read_bytes: 9, accesses: true }.to_bytes())
        }
        Op::Write => at_file(Write { inode, file_offset: 0, append: false, clears }.to_bytes()),
        Op::Truncate => at_file(Truncate { inode, size_bytes: 0 }.to_bytes()),
        Op::Glimpse => at_file(Glimpse { inode }.to_bytes()),
        Op::Reserve => at_file(wire::Reserve { inode, begins: true, again: false }.to_bytes()),
        Op::Widen => at_file(wire::Widen { inode }.to_bytes()),
        Op::Allocate => {
            let (file_offset, range_bytes, keep_size) = (0, 1, true);
            let allocation = Allocation::Punch;
            let ask = Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears };
            at_file(ask.to_bytes())
        }
        Op::ReadList => {
            let pieces = one_piece();
            at_file(ReadList { inode, pieces, accesses: true }.to_bytes())
        }
        Op::WriteList => at_file(WriteList { inode, pieces: one_piece(), clears }.to_bytes()),
        Op::Seek => at_file(Seek { inode, file_offset: 0, hole: true }.to_bytes()),
        // They name no inode that the request uses.
        Op::Close
        | Op::Statfs
        | Op::Stats
        | Op::Counters
        | Op::Traces
        | Op::Ping
        | Op::Sync
        | Op::Resume
        | Op::ReplayDone
        | Op::Goodbye
        | Op::SetExport
        | Op::Exports
        | Op::Freeze
        | Op::Inspect => None,
    }
}

#[test]
fn no_request_reads_or_changes_an_inode_outside_the_export() {
    for (seed, lane_count) in [(1, 1), (2, 2), (3, 3)] {
        let mut scene = Scene::new(seed, lane_count);
        let (inside, outside) = (scene.inside, scene.outside);
        let (in_file, out_file) = (scene.in_file, scene.out_file);
        let mut bound = scene.bound(3);
        let server = &mut scene.server;
        let all = [InodeNo::ROOT, outside, out_file, inside, in_file];
        let before = scene.owner.look(server, &all);
        let mut named_count = 0;
        for op in Op::ALL.iter().copied() {
            for dir in [outside, InodeNo::ROOT] {
                let Some((at, body)) = forged(op, dir, out_file, inside) else { continue };
                named_count += 1;
                let shard = match op.row().route {
                    Route::Data => server.map.data_shard(at, 0),
                    Route::Meta | Route::Shard | Route::Lane => at.shard(),
                };
                let bulk = matches!(op, Op::Write | Op::WriteList).then_some(&b"taken"[..]);
                let got = bound.ask_at(server, (op, shard), &body, bulk);
                assert_eq!(got.head.status, Status::Stale, "{op:?} with {lane_count} lanes");
                assert!(got.body.is_empty() && got.bulk.is_empty(), "{op:?} reveals nothing");
            }
        }
        assert!(named_count >= 60, "{named_count}");
        let unknown = InodeNo::new(1, 1 << 40);
        let getattr = Getattr { inode: unknown };
        assert_eq!(bound.status(server, Op::Getattr, unknown, &getattr), Status::Stale);
        assert_eq!(scene.owner.look(server, &all), before);
        // The same requests for inodes inside succeed.
        let seen = bound.look(server, &[inside, in_file]);
        assert_eq!(seen[&in_file], before[&in_file]);
        assert_eq!(seen[&inside].0, before[&inside].0);
        let listing = Listing::decode_all(&seen[&inside].1).unwrap();
        assert_eq!(listing.parent, inside, "the parent outside is not revealed");
    }
}

#[test]
fn a_read_only_export_refuses_all_changes() {
    let mut scene = Scene::new(4, 2);
    let (inside, in_file) = (scene.inside, scene.in_file);
    let read_only = Export { read_only: true, ..export("in", inside) };
    let replaced = scene.admin.set_export(&mut scene.server, read_only, true);
    assert_eq!(replaced, Status::Ok);
    // What was answered early is executed until then.
    scene.server.pass_ms(20_000);
    let mut bound = scene.bound(3);
    let server = &mut scene.server;
    let all = [inside, in_file];
    let before = scene.owner.look(server, &all);
    let mut refused_count = 0;
    for op in Op::ALL.iter().copied() {
        let Some((at, body)) = forged(op, inside, in_file, inside) else { continue };
        let shard = match op.row().route {
            Route::Data => server.map.data_shard(at, 0),
            Route::Meta | Route::Shard | Route::Lane => at.shard(),
        };
        let bulk = matches!(op, Op::Write | Op::WriteList).then_some(&b"taken"[..]);
        let got = bound.ask_at(server, (op, shard), &body, bulk);
        refused_count += usize::from(got.head.status == Status::ReadOnly);
        // A lock records its client.
        let recorded = got.head.transno.0 > 0 && !crate::file_locks::is_lock(op);
        assert!(!recorded, "{op:?} was recorded");
    }
    assert_eq!(refused_count, 20);
    assert_eq!(scene.owner.look(server, &all), before);
}

#[test]
fn a_moved_out_inode_is_refused_from_the_next_request_on() {
    for (seed, lane_count) in [(5, 1), (6, 2), (7, 3), (LOSSY + 6, 2), (LOSSY + 7, 3)] {
        let mut scene = Scene::new(seed, lane_count);
        let (inside, outside) = (scene.inside, scene.outside);
        let mut bound = scene.bound(3);
        let server = &mut scene.server;
        let dir = scene.owner.mkdir(server, inside, "dir");
        let below = scene.owner.mkdir(server, dir, "below");
        let file = scene.owner.file(server, below, "f", 0o666);
        let read = Read { inode: file, file_offset: 0, read_bytes: 9, accesses: false };
        let asks = |bound: &mut Client, server: &mut TestServer| {
            [
                bound.status(server, Op::Read, file, &read),
                bound.status(server, Op::Getattr, file, &Getattr { inode: file }),
                bound.status(server, Op::Readdir, below, &readdir(below)),
            ]
        };
        assert_eq!(asks(&mut bound, server), [Status::Ok; 3], "{lane_count} lanes");
        scene.owner.rename(server, (inside, "dir"), (outside, "dir"));
        assert_eq!(asks(&mut bound, server), [Status::Stale; 3], "{lane_count} lanes");
        scene.owner.rename(server, (outside, "dir"), (inside, "back"));
        assert_eq!(asks(&mut bound, server), [Status::Ok; 3], "{lane_count} lanes");
        // A closed file first, then an open one.
        scene.owner.rename(server, (below, "f"), (outside, "g"));
        assert_eq!(bound.status(server, Op::Read, file, &read), Status::Stale);
        scene.owner.rename(server, (outside, "g"), (below, "f"));
        let handle = Handle { id: HandleId(1), open_for: OpenFor::Read };
        let open = Open { caller: FIVE, inode: file, handle };
        assert_eq!(bound.status(server, Op::Open, file, &open), Status::Ok);
        scene.owner.rename(server, (below, "f"), (outside, "g"));
        assert_eq!(bound.status(server, Op::Read, file, &read), Status::Ok, "it is open");
        let close = Close { inode: file, handle: handle.id };
        assert_eq!(bound.status(server, Op::Close, file, &close), Status::Ok);
        assert_eq!(bound.status(server, Op::Read, file, &read), Status::Stale);
    }
}

/// A peer lane that does not know the change could still grant what it takes away.
#[test]
fn a_change_of_an_export_and_a_move_are_answered_when_every_lane_has_acknowledged() {
    for lane_count in 2..=4 {
        let mut scene = Scene::new(7, lane_count);
        let (inside, outside) = (scene.inside, scene.outside);
        scene.owner.mkdir(&mut scene.server, inside, "dir");
        let closed = Export { closed: true, ..export("in", inside) };
        let removal = SetExport { export: closed, replace: false }.to_bytes();
        let moved = rename((inside, "dir"), (outside, "dir")).to_bytes();
        let asks = [
            (&mut scene.owner, Op::Rename, inside.shard(), moved),
            (&mut scene.admin, Op::SetExport, ShardId::meta(0), removal),
        ];
        let server = &mut scene.server;
        for (client, op, shard, body) in asks {
            let peer = &mut client.peers[usize::from(server.map.lane(shard).0)];
            let head = peer.head(op, shard, u16::from(op.row().retry == Retry::Once));
            server.delivery = Delivery { loses_one_in: 1, ..Delivery::default() };
            peer.send(server, &head, &body, None);
            while server.step() {}
            assert!(peer.replies(server).is_empty(), "{op:?} with {lane_count} lanes");
            server.delivery = Delivery::default();
            server.pass_ms(4_000);
            server.run();
            let replies = peer.replies(server);
            assert_eq!(replies.len(), 1, "{op:?} with {lane_count} lanes");
            assert_eq!(replies[0].head.status, Status::Ok);
        }
    }
}

#[test]
fn contents_need_the_rights_that_the_server_checks() {
    for (seed, lane_count) in [(8, 1), (9, 3)] {
        let mut scene = Scene::new(seed, lane_count);
        let inside = scene.inside;
        let squashed = Export { squash: Squash::ROOT, ..export("in", inside) };
        assert_eq!(scene.admin.set_export(&mut scene.server, squashed, true), Status::Ok);
        let mut bound = scene.bound(3);
        let server = &mut scene.server;
        let private = scene.owner.file(server, inside, "private", 0o600);
        let readable = scene.owner.file(server, inside, "readable", 0o644);
        let read = |inode| Read { inode, file_offset: 0, read_bytes: 9, accesses: false };
        let write =
            |inode| Write { inode, file_offset: 0, append: true, clears: ClearPrivileges::Nothing };
        let statuses = |bound: &mut Client, server: &mut TestServer| {
            [
                bound.status(server, Op::Read, private, &read(private)),
                bound.status(server, Op::Write, private, &write(private)),
                bound.status(server, Op::Read, readable, &read(readable)),
                bound.status(server, Op::Write, readable, &write(readable)),
            ]
        };
        let expected = [Status::Access, Status::Access, Status::Ok, Status::Access];
        assert_eq!(statuses(&mut bound, server), expected);
        // A client's claim that it had the file open proves nothing.
        let handle = Handle { id: HandleId(8), open_for: OpenFor::Write };
        let reopen = Reopen { inode: private, handle };
        assert_eq!(bound.status(server, Op::Reopen, private, &reopen), Status::Stale);
        // A changed mode applies from then on.
        let (atime, mtime, clears) = (SetTime::Keep, SetTime::Keep, ClearPrivileges::Nothing);
        let (mode, uid, gid) = (Some(0o666), None, None);
        let (caller, inode) = (ROOT, private);
        let chmod = Setattr { caller, inode, mode, uid, gid, atime, mtime, clears };
        assert_eq!(scene.owner.status(server, Op::Setattr, private, &chmod), Status::Ok);
        let expected = [Status::Ok, Status::Ok, Status::Ok, Status::Access];
        assert_eq!(statuses(&mut bound, server), expected);
    }
}

#[test]
fn a_connection_bound_to_an_export_does_not_administer() {
    let mut scene = Scene::new(10, 2);
    let inside = scene.inside;
    let mut bound = scene.bound(3);
    let server = &mut scene.server;
    for client in [&mut bound, &mut scene.owner] {
        let status = client.set_export(server, export("other", InodeNo::ROOT), false);
        assert_eq!(status, Status::NotPermitted);
        let got = client.ask_at(server, (Op::Exports, ShardId::meta(0)), &[], None);
        assert_eq!((got.head.status, got.body.len()), (Status::NotPermitted, 0));
    }
    // Nor does a client with an export's own secret, which opens this export and no other.
    let store = server.secret;
    server.secret = store.of_export(b"in", 77);
    let credential = Credential::Export;
    let fields = |export| HelloFields { export, credential, ..HelloFields::new(4) };
    let (_, welcome) = send_handshake(server, &fields("in"));
    assert_eq!(welcome.unwrap().root, inside);
    let administers = HelloFields { purpose: Purpose::Administer, ..fields("in") };
    assert_eq!(
        send_handshake(server, &administers).1.unwrap_err().reason,
        RefusalReason::WrongSecret
    );
    server.secret = store;
}

#[test]
fn an_export_survives_crashes_and_its_removal_is_durable() {
    let mut scene = Scene::new(11, 2);
    scene.owner.leave(&mut scene.server);
    scene.server.crash();
    scene.server.start(3);
    let (_, welcome) =
        send_handshake(&mut scene.server, &HelloFields { export: "in", ..HelloFields::new(5) });
    assert_eq!(welcome.unwrap().root, scene.inside);
    let purpose = Purpose::Administer;
    let mut admin = Client::new(&mut scene.server, &HelloFields { purpose, ..HelloFields::new(6) });
    let mut bound = scene.bound(7);
    let server = &mut scene.server;
    let listed = admin.ask_at(server, (Op::Exports, ShardId::meta(0)), &[], None);
    let exports = Exports::decode_all(&listed.body).unwrap();
    let names: Vec<&[u8]> = exports.rows.iter().map(|row| row.export.name.0).collect();
    assert_eq!(names, [&b"default"[..], b"guests", b"in", b"own"]);
    let again = admin.set_export(server, export("in", scene.inside), false);
    assert_eq!(again, Status::Ok, "the same definition, sent again");
    let other = Export { id: 78, ..export("in", scene.outside) };
    assert_eq!(admin.set_export(server, other, false), Status::Exists);
    let removed = Export { closed: true, ..export("in", InodeNo::ROOT) };
    assert_eq!(admin.set_export(server, removed, false), Status::Ok);
    assert!(bound.peers.iter().all(|peer| server.is_closed(peer.conn)), "every lane closes them");
    assert_eq!(admin.set_export(server, removed, false), Status::NotFound);
    server.crash();
    server.start(2);
    let (_, refusal) = send_handshake(server, &HelloFields { export: "in", ..HelloFields::new(8) });
    assert_eq!(refusal.unwrap_err().reason, RefusalReason::NoSuchExport);
    bound.peers.clear();
}

/// No client can resume them, so their locks are released at once.
#[test]
fn the_sessions_of_a_removed_or_moved_export_end_at_once() {
    for moved in [false, true] {
        let mut scene = Scene::new(12, 2);
        let (mut bound, mut away) = (scene.bound(3), scene.bound(4));
        let inode = scene.in_file;
        let (kind, owner, lock, pid) = (LockKind::Posix, 1, Some(LockType::Write), 5);
        let ask = |range| SetLock { inode, kind, owner, lock, range, pid, wait_id: 0, place: 0 };
        let lock = |server: &mut TestServer, client: &mut Client, range| {
            client.status(server, Op::SetLock, inode, &ask(range)) == Status::Ok
        };
        let Scene { server, owner, admin, outside, .. } = &mut scene;
        assert!(lock(server, &mut bound, ByteRange::new(0, 1).unwrap()));
        assert!(lock(server, &mut away, ByteRange::new(5, 6).unwrap()));
        assert!(!lock(server, owner, ByteRange::ALL));
        away.peers.iter().for_each(|peer| server.cut(peer.conn));
        server.run();
        let removed = Export { closed: true, ..export("in", InodeNo::ROOT) };
        let changed = if moved { export("in", *outside) } else { removed };
        assert_eq!(admin.set_export(server, changed, moved), Status::Ok);
        assert!(bound.peers.iter().all(|peer| server.is_closed(peer.conn)));
        assert!(lock(server, owner, ByteRange::ALL), "what they held is free");
        assert!(server.lines.iter().any(|line| line.contains("export was taken away")));
        let (_, answer) = send_handshake(
            server,
            &HelloFields { export: "in", conn_epoch: 2, ..HelloFields::new(3) },
        );
        match answer {
            Ok(welcome) => assert_eq!((moved, welcome.root), (true, *outside)),
            Err(refusal) => {
                assert_eq!((moved, refusal.reason), (false, RefusalReason::NoSuchExport))
            }
        }
    }
}
