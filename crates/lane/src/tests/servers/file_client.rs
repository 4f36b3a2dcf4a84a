//! A client of all lanes of all servers that replays what a server lost: one request at a time,
//! resent until it is answered.

use super::cluster::Cluster;
use crate::test_server::TestServer;
use crate::tests::peer::{HelloFields, Peer, ReceivedReply};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{
    Handle, InodeNo, LaneId, Layout, Op, Reopen, Request, Retry, Route, ShardId, Status, Transno,
    Wire as _, Xid, request_flag,
};

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) op: Op,
    pub(super) shard: ShardId,
    pub(super) body: Vec<u8>,
    pub(super) bulk: Option<Vec<u8>>,
    pub(super) layout: Option<Layout>,
}

/// An answered change that its server may still lose.
#[derive(Clone, Debug)]
struct Retained {
    head: Request,
    replay: Vec<u8>,
    bulk: Option<Vec<u8>>,
}

/// What a client knows of a shard.
#[derive(Default, Debug)]
struct Part {
    retained: BTreeMap<Transno, Retained>,
}

/// A connection to a lane, in a start of its server.
#[derive(Clone, Debug)]
struct Link {
    boot_id: u64,
    peer: Peer,
}

pub(super) struct FileClient {
    number: u8,
    conn_epoch: u32,
    xid: u64,
    links: BTreeMap<(usize, u16), Link>,
    parts: BTreeMap<ShardId, Part>,
    /// The request under way, its number, and whether it was sent before.
    asked: Option<(Asked, u64, bool)>,
    /// The files that are open for writing.
    pub(super) open: BTreeMap<InodeNo, Handle>,
    pub(super) replay_count: usize,
}

impl FileClient {
    pub(super) const fn new(number: u8) -> Self {
        Self {
            number,
            conn_epoch: 0,
            xid: 1 << 40,
            links: BTreeMap::new(),
            parts: BTreeMap::new(),
            asked: None,
            open: BTreeMap::new(),
            replay_count: 0,
        }
    }

    pub(super) fn begin(&mut self, asked: Asked) {
        assert!(self.asked.is_none(), "one at a time");
        self.xid += 1;
        self.asked = Some((asked, self.xid, false));
    }

    /// Waits for no answer to what is under way.
    pub(super) fn give_up(&mut self) {
        self.asked = None;
    }

    /// Connects where it is not connected, replays, and sends what is under way.
    pub(super) fn advance(&mut self, cluster: &mut Cluster) {
        for index in 0..cluster.servers.len() {
            let server = &mut cluster.servers[index];
            if server.is_down() || !server.knows_exports() {
                continue;
            }
            for lane in 0..server.lane_count() {
                let link = self.links.get(&(index, lane)).cloned();
                let boot_id = link.as_ref().map(|link| link.boot_id);
                if link.is_some_and(|link| {
                    link.boot_id == server.boot_id && !server.is_closed(link.peer.conn)
                }) {
                    continue;
                }
                self.connect(server, (index, lane), boot_id);
            }
        }
    }

    fn connect(&mut self, server: &mut TestServer, at: (usize, u16), boot_id: Option<u64>) {
        self.conn_epoch += 1;
        let fields = HelloFields {
            server_lane: LaneId(at.1),
            conn_epoch: self.conn_epoch,
            boot_id_last: boot_id.unwrap_or(0),
            ..HelloFields::new(self.number)
        };
        let mut peer = Peer::new(server, &fields);
        peer.xid = (1 << 50) + (u64::from(self.conn_epoch) << 20);
        if boot_id != Some(server.boot_id) {
            self.recover(server, at.1, &mut peer);
        }
        self.links.insert(at, Link { boot_id: server.boot_id, peer });
        self.send(server, at);
    }

    /// Replays what the server may have lost, and opens its files again.
    fn recover(&mut self, server: &mut TestServer, lane: u16, peer: &mut Peer) {
        let (map, me) = (server.map.clone(), server.server);
        let is_there = |shard: &ShardId| {
            let place = map.place(*shard);
            (place.server, place.lane) == (me, LaneId(lane))
        };
        for shard in map.shard_counts().shards().filter(is_there) {
            let part = self.parts.entry(shard).or_default();
            self.replay_count += part.retained.len();
            for (transno, retained) in &part.retained {
                let head = Request {
                    conn_epoch: peer.conn_epoch,
                    flags: request_flag::REPLAY,
                    transno: *transno,
                    ..retained.head
                };
                peer.send(server, &head, &retained.replay, retained.bulk.as_deref());
            }
            let open = self.open.iter().filter(|(inode, _)| inode.shard() == shard);
            let open: Vec<(InodeNo, Handle)> = open.map(|(inode, it)| (*inode, *it)).collect();
            let body = wire::ReplayDone { reopen_count: open.len() as u32 }.to_bytes();
            let head = peer.head(Op::ReplayDone, shard, 0);
            peer.send(server, &head, &body, None);
            for (inode, handle) in open {
                let head = peer.head(Op::Reopen, shard, 2);
                peer.send(server, &head, &Reopen { inode, handle }.to_bytes(), None);
            }
        }
    }

    /// Sends what is under way, if it is for this lane.
    fn send(&mut self, server: &mut TestServer, at: (usize, u16)) {
        let Some((asked, xid, was_sent)) = &mut self.asked else { return };
        let place = server.map.place(asked.shard);
        if (usize::from(place.server.0), place.lane) != (at.0 + 1, LaneId(at.1)) {
            return;
        }
        let Some(link) = self.links.get(&at) else { return };
        let is_once = asked.op.row().retry == Retry::Once;
        let head = Request {
            slot: u16::from(is_once),
            session: link.peer.session,
            shard: asked.shard,
            xid: Xid(*xid),
            ack_xid: Xid(*xid - 1),
            conn_epoch: link.peer.conn_epoch,
            layout: asked.layout.filter(|layout| {
                asked.op.row().route == Route::Data || asked.op == Op::Sync && layout.narrow
            }),
            flags: if *was_sent { request_flag::RESENT } else { 0 },
            ..Request::of(asked.op)
        };
        *was_sent = true;
        link.peer.send(server, &head, &asked.body, asked.bulk.as_deref());
    }

    /// Sends what has just been begun.
    pub(super) fn send_new(&mut self, cluster: &mut Cluster) {
        let Some((asked, _, false)) = &self.asked else { return };
        let place = cluster.newest_map().place(asked.shard);
        let at = (usize::from(place.server.0 - 1), place.lane.0);
        let server = &mut cluster.servers[at.0];
        let is_there = self.links.get(&at).is_some_and(|link| link.boot_id == server.boot_id);
        if is_there && !server.is_down() {
            self.send(server, at);
        }
    }

    /// The answer to what is under way, also that it is to be asked for later.
    pub(super) fn receive_any(&mut self, cluster: &mut Cluster) -> Option<ReceivedReply> {
        self.receive_or(cluster, |_| false)
    }

    /// The answer to what is under way, if it has come.
    pub(super) fn receive(&mut self, cluster: &mut Cluster) -> Option<ReceivedReply> {
        self.receive_or(cluster, |status| matches!(status, Status::StaleMap | Status::RetryLater))
    }

    fn receive_or(
        &mut self,
        cluster: &mut Cluster,
        again: impl Fn(Status) -> bool,
    ) -> Option<ReceivedReply> {
        let (mut answer, mut pause_ms) = (None, 0);
        for (at, link) in self.links.clone() {
            let server = &mut cluster.servers[at.0];
            for reply in link.peer.replies(server) {
                let under_way = self.asked.as_ref().map(|(_, xid, _)| Xid(*xid));
                let status = reply.head.status;
                if under_way == Some(reply.head.xid) && again(status) {
                    pause_ms = reply.head.retry_after_ms;
                    self.send(server, at);
                    continue;
                }
                let part = self.parts.entry(reply.head.shard).or_default();
                part.retained.retain(|transno, _| *transno > reply.head.committed);
                if under_way == Some(reply.head.xid) {
                    self.retain(&reply, &link.peer);
                    self.asked = None;
                    answer = Some(reply);
                } else {
                    let is_known = matches!(reply.head.op, Op::Reopen | Op::ReplayDone)
                        || status == Status::Ok;
                    assert!(is_known, "{:?}: {status:?}", reply.head.op);
                }
            }
        }
        cluster.pass_ms(u64::from(pause_ms));
        answer
    }

    /// Keeps an answered change that is not durable.
    fn retain(&mut self, reply: &ReceivedReply, peer: &Peer) {
        let Some((asked, xid, _)) = &self.asked else { return };
        if reply.token.is_empty() {
            return;
        }
        let (body, token) = (wire::Bytes(&reply.body), wire::Bytes(&reply.token));
        let replay = wire::Replay { reply: body, token }.to_bytes();
        let head = Request {
            slot: 1,
            session: peer.session,
            shard: asked.shard,
            xid: Xid(*xid),
            layout: asked.layout.filter(|layout| {
                asked.op.row().route == Route::Data || asked.op == Op::Sync && layout.narrow
            }),
            ..Request::of(asked.op)
        };
        let retained = Retained { head, replay, bulk: asked.bulk.clone() };
        let part = self.parts.entry(asked.shard).or_default();
        part.retained.insert(reply.head.transno, retained);
    }

    /// Asks, and waits for the answer; `on_step` may crash and start servers.
    pub(super) fn ask(
        &mut self,
        cluster: &mut Cluster,
        asked: Asked,
        mut on_step: impl FnMut(&mut Cluster, &mut Self),
    ) -> ReceivedReply {
        self.begin(asked);
        self.send_new(cluster);
        for _ in 0..100_000 {
            cluster.step();
            on_step(cluster, self);
            self.advance(cluster);
            if let Some(reply) = self.receive(cluster) {
                return reply;
            }
        }
        panic!("no reply: {:?}", self.asked);
    }
}
