//! A client that has lost the server of its lock goes on to write where the contents are, while
//! servers die and are cut off, until it is fenced: never after another client has got the lock.

use super::cluster::Cluster;
use super::fences::lock;
use super::file_client::{Asked, FileClient};
use super::random::{Faults, rolled_lanes};
use super::{Act, directories, done, joined};
use crate::tests::peer::{HelloFields, Peer, ROOT, send_handshake};
use alloc::vec::Vec;
use wire::{
    ClearPrivileges, Handle, HandleId, InodeNo, LaneId, Layout, Op, Open, OpenFor, Read,
    RefusalReason, ReplayDone, SessionId, ShardId, Status, Wire as _, Write,
};

/// The client that loses its lock.
struct Writer {
    conn_epoch: u32,
    /// The server and lane of the contents.
    at: (usize, LaneId),
    shard: ShardId,
    inode: InodeNo,
    peer: Option<Peer>,
    boot_id: u64,
    is_asking: bool,
    is_evicted: bool,
    written_count: usize,
}

impl Writer {
    fn fields(&self) -> HelloFields {
        let (server_lane, conn_epoch) = (self.at.1, self.conn_epoch);
        HelloFields { server_lane, conn_epoch, ..HelloFields::new(11) }
    }

    /// Connects where the contents are.
    fn connect(&mut self, cluster: &mut Cluster) {
        let server = &mut cluster.servers[self.at.0];
        self.conn_epoch += 1;
        let (conn, welcome) = send_handshake(server, &self.fields());
        let session: SessionId = match welcome {
            Ok(welcome) => welcome.session,
            Err(refusal) => {
                self.is_evicted = refusal.reason == RefusalReason::Evicted;
                return;
            }
        };
        let xid = u64::from(self.conn_epoch) << 20;
        let mut peer = Peer { conn, session, conn_epoch: self.conn_epoch, xid };
        if self.boot_id != server.boot_id {
            let map = server.map.clone();
            let is_there = |shard: &ShardId| {
                let place = map.place(*shard);
                (usize::from(place.server.0), place.lane) == (self.at.0 + 1, self.at.1)
            };
            for shard in map.shard_counts().shards().filter(is_there) {
                let head = peer.head(Op::ReplayDone, shard, 0);
                peer.send(server, &head, &ReplayDone { reopen_count: 0 }.to_bytes(), None);
            }
        }
        (self.boot_id, self.is_asking) = (server.boot_id, false);
        self.peer = Some(peer);
    }

    /// Writes again as soon as the last write is answered.
    fn advance(&mut self, cluster: &mut Cluster) {
        let server = &mut cluster.servers[self.at.0];
        if self.is_evicted || server.is_down() || !server.knows_exports() {
            return;
        }
        let is_open = |peer: &Peer| !server.is_closed(peer.conn);
        if !self.peer.as_ref().is_some_and(is_open) {
            return self.connect(cluster);
        }
        let Some(peer) = &mut self.peer else { return };
        for reply in peer.replies(server) {
            if reply.head.op == Op::Write {
                self.is_asking = false;
                self.written_count += usize::from(reply.head.status == Status::Ok);
            }
        }
        if !self.is_asking {
            let head = peer.head(Op::Write, self.shard, 1);
            peer.send(server, &head, &write(self.inode), Some(b"old"));
            self.is_asking = true;
        }
    }
}

fn write(inode: InodeNo) -> Vec<u8> {
    Write { inode, file_offset: 0, append: false, clears: ClearPrivileges::Nothing }.to_bytes()
}

/// Returns how often the client that is evicted has written.
fn run(seed: u64) -> usize {
    let mut cluster = Cluster::new(seed, &rolled_lanes(seed));
    let mut maker = joined(&mut cluster, 1);
    let dirs = directories(&mut cluster, &mut maker);
    let map = cluster.newest_map();
    // A file whose names and contents are at different servers.
    let names = ["k", "l", "m", "n", "o", "p", "q", "r"];
    let mut files = dirs
        .iter()
        .zip(names)
        .map(|(dir, text)| done(&mut cluster, &mut maker, Act::Create(*dir, text)).unwrap());
    let places = |inode: InodeNo| (map.place(inode.shard()), map.place(map.data_shard(inode, 0)));
    let inode = files.find(|inode| places(*inode).0.server != places(*inode).1.server).unwrap();
    drop(files);
    let (names_at, contents_at) = places(inode);
    let names_at = (usize::from(names_at.server.0) - 1, names_at.lane);
    let at = (usize::from(contents_at.server.0) - 1, contents_at.lane);
    // The first client opens and locks the file; its server restarts, and it does not come back.
    let server = &mut cluster.servers[names_at.0];
    let fields = HelloFields { server_lane: names_at.1, ..HelloFields::new(11) };
    let mut peer = Peer::new(server, &fields);
    let handle = Handle { id: HandleId(7), open_for: OpenFor::ReadWrite };
    let open = Open { caller: ROOT, inode, handle }.to_bytes();
    for (op, body) in [(Op::Open, open), (Op::SetLock, lock(inode, 0).to_bytes())] {
        let head = peer.head(op, inode.shard(), 1);
        peer.send(server, &head, &body, None);
        server.run();
        assert_eq!(peer.replies(server)[0].head.status, Status::Ok);
    }
    let mut writer = Writer {
        conn_epoch: 0,
        at,
        shard: map.data_shard(inode, 0),
        inode,
        peer: None,
        boot_id: 0,
        is_asking: false,
        is_evicted: false,
        written_count: 0,
    };
    writer.connect(&mut cluster);
    let mut other = FileClient::new(12);
    other.advance(&mut cluster);
    if seed.is_multiple_of(2) {
        // The server of the contents does not hear of it.
        cluster.silent.push((names_at.0, at.0));
    }
    cluster.crash(names_at.0);
    cluster.start(names_at.0);
    let mut faults = Faults::new(seed);
    // A recovery has to end now and then.
    faults.one_in *= 20;
    let mut step_count = 0;
    let mut step = |cluster: &mut Cluster, faults: &mut Faults, writer: &mut Writer| {
        step_count += 1;
        if step_count == 5_000 {
            faults.one_in = 0;
        }
        if u32::is_multiple_of(step_count, 1_000) {
            cluster.silent.clear();
        } else if faults.passes() {
            // Of some pairs that are cut off neither hears of it.
            cluster.silent.extend(cluster.parted.pop());
        }
        faults.strike(cluster);
        writer.advance(cluster);
        if faults.passes() {
            cluster.pass_ms(50);
        }
    };
    let meta = |op, body| Asked { op, shard: inode.shard(), body, bulk: None, layout: None };
    loop {
        let wanted = meta(Op::SetLock, lock(inode, 0).to_bytes());
        let got = other.ask(&mut cluster, wanted, |cluster, _| {
            step(cluster, &mut faults, &mut writer);
        });
        match got.head.status {
            Status::Ok => break,
            status => assert_eq!(status, Status::Again, "seed {seed}"),
        }
    }
    let data = |op, body, bulk| {
        let layout = Some(Layout::DEFAULT);
        Asked { op, shard: map.data_shard(inode, 0), body, bulk, layout }
    };
    let written = data(Op::Write, write(inode), Some(b"new".to_vec()));
    faults.one_in = 0;
    let got = other.ask(&mut cluster, written, |cluster, _| {
        step(cluster, &mut faults, &mut writer);
    });
    assert_eq!(got.head.status, Status::Ok, "seed {seed}");
    for round in 0..6 {
        if round == 3 {
            cluster.silent.clear();
            faults.cease(&mut cluster);
        }
        for _ in 0..200 {
            cluster.step();
            writer.advance(&mut cluster);
            other.advance(&mut cluster);
            assert!(other.receive(&mut cluster).is_none(), "it has asked nothing");
        }
        let read = Read { inode, file_offset: 0, read_bytes: 10, accesses: false }.to_bytes();
        let got = other.ask(&mut cluster, data(Op::Read, read, None), |cluster, _| {
            writer.advance(cluster);
        });
        assert_eq!(got.bulk, b"new", "seed {seed}: written under the lock");
    }
    writer.written_count
}

#[test]
fn no_evicted_client_writes_under_the_lock_of_another() {
    let counts = (21..=40).map(run);
    let written = counts.filter(|count| *count > 0).count();
    assert!(written > 12, "the lost client has written in {written} runs");
}
