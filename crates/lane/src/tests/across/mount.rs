//! A client of all lanes: one request at a time, resent until it is answered.

use super::model::Act;
use super::step;
use crate::test_server::TestServer;
use crate::tests::peer::{HelloFields, Peer, ROOT, name, stated_layout};
use alloc::string::String;
use alloc::vec::Vec;
use wire::{
    Attr, Bytes, Create, Created, Entry, FileKind, Getattr, InodeNo, LaneId, Link, Listing, Lookup,
    Mkdir, Mknod, Op, Read, Readdir, Rename, Request, Rmdir, ShardId, Status, Symlink, Transno,
    Unlink, Wire, Xid,
};

/// An outstanding request.
#[derive(Clone, Debug)]
struct RequestHeader {
    act: Option<Act>,
    op: Op,
    shard: ShardId,
    xid: u64,
    body: Vec<u8>,
}

pub(super) struct Mount {
    client: u8,
    conn_epoch: u32,
    xid: u64,
    peers: Vec<Peer>,
    asked: Option<RequestHeader>,
}

impl Mount {
    pub(super) fn new(server: &mut TestServer, client: u8) -> Self {
        let mut mount =
            Self { client, conn_epoch: 0, xid: 1_000_000, peers: Vec::new(), asked: None };
        mount.connect(server);
        mount
    }

    /// Connects to every lane.
    pub(super) fn connect(&mut self, server: &mut TestServer) {
        self.peers.clear();
        self.conn_epoch += 1;
        for lane in 0..server.lane_count() {
            let conn_epoch = self.conn_epoch;
            let fields = HelloFields {
                server_lane: LaneId(lane),
                conn_epoch,
                ..HelloFields::new(self.client)
            };
            let mut peer = Peer::new(server, &fields);
            peer.xid = 1 << 50;
            // Everything was durable before it was answered, so there is nothing to replay.
            let map = server.map.clone();
            let metas = (0..map.shard_counts().meta).map(ShardId::meta);
            let shards = metas.chain((0..map.shard_counts().data).map(ShardId::data));
            for shard in shards.filter(|shard| map.lane(*shard) == LaneId(lane)) {
                let head = peer.head(Op::ReplayDone, shard, 0);
                peer.send(server, &head, &wire::ReplayDone { reopen_count: 0 }.to_bytes(), None);
            }
            self.peers.push(peer);
        }
        if server.boot_id > 1 {
            self.come_back(server);
        }
    }

    /// Nothing is to be replayed: all was durable before it was answered.
    fn come_back(&mut self, server: &mut TestServer) {
        for shard in (0..server.map.shard_counts().meta).map(ShardId::meta) {
            let lane = usize::from(server.map.lane(shard).0);
            let head = self.peers[lane].head(Op::ReplayDone, shard, 0);
            self.peers[lane].send(
                server,
                &head,
                &wire::ReplayDone { reopen_count: 0 }.to_bytes(),
                None,
            );
        }
    }

    pub(super) fn begin(&mut self, act: &Act) {
        let (op, inode, body) = encoded(act);
        self.prepare(op, inode, body);
        if let Some(asked) = &mut self.asked {
            asked.act = Some(*act);
        }
    }

    fn prepare(&mut self, op: Op, inode: InodeNo, body: Vec<u8>) {
        assert!(self.asked.is_none(), "one at a time");
        self.xid += 1;
        let (act, xid, shard) = (None, self.xid, inode.shard());
        self.asked = Some(RequestHeader { act, op, shard, xid, body });
    }

    /// Sends or resends its request.
    pub(super) fn send(&self, server: &mut TestServer) {
        let Some(asked) = &self.asked else { return };
        let lane = server.map.lane(asked.shard);
        let peer = &self.peers[usize::from(lane.0)];
        let slot = u16::from(asked.op.row().retry == wire::Retry::Once);
        let head = Request {
            op: asked.op,
            lane_hint: lane,
            shard: asked.shard,
            slot,
            flags: 0,
            session: peer.session,
            xid: Xid(asked.xid),
            ack_xid: Xid(0),
            sack: 0,
            conn_epoch: peer.conn_epoch,
            layout: stated_layout(asked.op),
            transno: Transno(0),
            trace_id: 5,
            map_epoch: server.map.epoch(),
        };
        peer.send(server, &head, &asked.body, None);
    }

    pub(super) fn receive(&mut self, server: &mut TestServer) -> Option<(Status, Vec<u8>)> {
        let xid = Xid(self.asked.as_ref()?.xid);
        let replies: Vec<_> = self.peers.iter().flat_map(|peer| peer.replies(server)).collect();
        let reply = replies.into_iter().find(|reply| reply.head.xid == xid)?;
        self.asked = None;
        Some((reply.head.status, reply.body))
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.asked.is_none()
    }

    pub(super) fn act(&self) -> Option<Act> {
        self.asked.as_ref().and_then(|asked| asked.act)
    }

    pub(super) fn op(&self) -> Option<Op> {
        self.asked.as_ref().map(|asked| asked.op)
    }

    /// Runs until the server is idle, and longer.
    pub(super) fn settle(&self, server: &mut TestServer) {
        for _ in 0..200 {
            while server.step() {}
            server.pass_ms(500);
        }
        while server.step() {}
    }

    fn ask(
        &mut self,
        server: &mut TestServer,
        op: Op,
        inode: InodeNo,
        body: Vec<u8>,
    ) -> (Status, Vec<u8>) {
        self.prepare(op, inode, body);
        self.send(server);
        self.wait(server)
    }

    fn wait(&mut self, server: &mut TestServer) -> (Status, Vec<u8>) {
        for _ in 0..100_000 {
            step(server);
            if let Some(reply) = self.receive(server) {
                return reply;
            }
        }
        panic!("no reply to {:?}", self.op());
    }

    /// Reads a file.
    pub(super) fn read(&mut self, server: &mut TestServer, inode: InodeNo) {
        let (file_offset, read_bytes, accesses) = (0, 10, true);
        let body = Read { inode, file_offset, read_bytes, accesses }.to_bytes();
        self.prepare(Op::Read, inode, body);
        if let Some(asked) = &mut self.asked {
            asked.shard = server.map.data_shard(inode, 0);
        }
        self.send(server);
        assert_eq!(self.wait(server).0, Status::Ok);
    }

    pub(super) fn attr(&mut self, server: &mut TestServer, inode: InodeNo) -> Option<Attr> {
        let (status, body) = self.ask(server, Op::Getattr, inode, Getattr { inode }.to_bytes());
        (status == Status::Ok).then(|| Entry::decode_all(&body).unwrap().attr)
    }

    /// The names and their inodes.
    pub(super) fn list(
        &mut self,
        server: &mut TestServer,
        inode: InodeNo,
    ) -> Option<Vec<(String, InodeNo)>> {
        let (_, entries) = self.listing(server, inode)?;
        Some(entries)
    }

    /// A directory's parent and entries.
    pub(super) fn listing(
        &mut self,
        server: &mut TestServer,
        inode: InodeNo,
    ) -> Option<(InodeNo, Vec<(String, InodeNo)>)> {
        let (caller, cookie, listing_bytes_max, attrs) = (ROOT, 0, 131_072, true);
        let handle = None;
        let args = Readdir { caller, inode, cookie, listing_bytes_max, attrs, handle };
        let (status, body) = self.ask(server, Op::Readdir, inode, args.to_bytes());
        if status != Status::Ok {
            return None;
        }
        let listing = Listing::decode_all(&body).unwrap();
        assert!(listing.end);
        let bounded = server.has_bounded_names();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let entries = listing.entries.iter().map(|entry| {
            let here = entry.inode.shard() == inode.shard();
            // A non-resident inode has none either.
            assert!(entry.attr.is_some() == here || (here && bounded));
            (text(entry.name.bytes()), entry.inode)
        });
        Some((listing.parent, entries.collect()))
    }
}

pub(in crate::tests) fn encoded(act: &Act) -> (Op, InodeNo, Vec<u8>) {
    let caller = ROOT;
    match *act {
        Act::Lookup(parent, text) => {
            (Op::Lookup, parent, Lookup { caller, parent, name: name(text) }.to_bytes())
        }
        Act::Mkdir(parent, text) => {
            let (name, mode, umask) = (name(text), 0o755, 0);
            (Op::Mkdir, parent, Mkdir { caller, parent, name, mode, umask }.to_bytes())
        }
        Act::Create(parent, text) => {
            let (name, mode, umask) = (name(text), 0o644, 0);
            let (exclusive, handle) = (true, None);
            let args =
                Create { caller, parent, name, mode, umask, exclusive, handle, behind: None };
            (Op::Create, parent, args.to_bytes())
        }
        Act::Symlink(parent, text) => {
            let args = Symlink { caller, parent, name: name(text), target: Bytes(b"t") };
            (Op::Symlink, parent, args.to_bytes())
        }
        Act::Fifo(parent, text) => {
            let (name, kind, mode, umask, rdev) = (name(text), FileKind::Fifo, 0o644, 0, 0);
            let args = Mknod { caller, parent, name, kind, mode, umask, rdev };
            (Op::Mknod, parent, args.to_bytes())
        }
        Act::Link(inode, parent, text) => {
            (Op::Link, parent, Link { caller, inode, parent, name: name(text) }.to_bytes())
        }
        Act::Unlink(parent, text) => (
            Op::Unlink,
            parent,
            Unlink { caller, parent, name: name(text), behind: None }.to_bytes(),
        ),
        Act::Rmdir(parent, text) => {
            (Op::Rmdir, parent, Rmdir { caller, parent, name: name(text) }.to_bytes())
        }
        Act::Rename((parent, from), (new_parent, to), how) => {
            let (name, new_name) = (name(from), name(to));
            let args = Rename { caller, parent, name, new_parent, new_name, how };
            (Op::Rename, parent, args.to_bytes())
        }
    }
}

/// The inode that a reply names.
pub(in crate::tests) fn made(act: &Act, body: &[u8]) -> Option<InodeNo> {
    match act {
        Act::Create(..) => Created::decode_all(body).ok().map(|created| created.attr.inode),
        Act::Lookup(..) | Act::Mkdir(..) | Act::Symlink(..) | Act::Fifo(..) | Act::Link(..) => {
            Entry::decode_all(body).ok().map(|entry| entry.attr.inode)
        }
        Act::Unlink(..) | Act::Rmdir(..) | Act::Rename(..) => None,
    }
}

/// Answers that a user may get.
pub(in crate::tests) fn is_plain(status: Status) -> bool {
    matches!(
        status,
        Status::Ok
            | Status::NotFound
            | Status::Exists
            | Status::NotDirectory
            | Status::IsDirectory
            | Status::Invalid
            | Status::NotEmpty
            | Status::NotPermitted
            | Status::Stale
    )
}
