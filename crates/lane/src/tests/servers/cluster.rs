//! Several test servers, the connections between their lanes, and a client of all of them.

use crate::test_server::TestServer;
use crate::tests::peer::{HelloFields, Peer, stated_layout};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use interface::ConnId;
use wire::{
    InodeNo, LaneId, Layout, Map, MapEpoch, Op, Request, Retry, ServerAddress, ServerId, ServerRow,
    ShardCounts, ShardId, ShardRun, Status, Term, Transno, Wire as _, Xid,
};

/// Shards of each kind and server.
pub(super) const SHARD_COUNT: u16 = 2;

/// A connection between two servers: the two ends.
#[derive(Clone, Copy, Debug)]
struct Pipe {
    ends: [(usize, ConnId); 2],
    /// Something on it was lost.
    is_broken: bool,
}

/// The servers.
pub(super) struct Cluster {
    pub(super) servers: Vec<TestServer>,
    lane_counts: Vec<u16>,
    epoch: u64,
    pipes: Vec<Pipe>,
    /// Pairs of servers that no connection joins.
    pub(super) parted: Vec<(usize, usize)>,
    /// Pairs of servers between which everything gets lost, and neither learns of it.
    pub(super) silent: Vec<(usize, usize)>,
}

impl Cluster {
    /// Servers with new stores, all started, that answer what is durable.
    pub(super) fn new(seed: u64, lane_counts: &[u16]) -> Self {
        Self::with(seed, lane_counts, |server| server.limits.sync = true)
    }

    /// Servers with new stores, each set up and started.
    pub(super) fn with(seed: u64, lane_counts: &[u16], set_up: impl Fn(&mut TestServer)) -> Self {
        let count = lane_counts.len() as u16;
        let shards = ShardCounts { meta: SHARD_COUNT * count, data: SHARD_COUNT * count };
        let servers = (0..count).map(|index| {
            let mut server = TestServer::new(seed * 10 + u64::from(index));
            server.shard_counts = shards;
            server.server = ServerId(index + 1);
            set_up(&mut server);
            server
        });
        let (lane_counts, servers) = (lane_counts.to_vec(), servers.collect());
        let (pipes, parted, silent) = (Vec::new(), Vec::new(), Vec::new());
        let mut cluster = Self { servers, lane_counts, epoch: 0, pipes, parted, silent };
        for index in 0..usize::from(count) {
            cluster.start(index);
        }
        cluster
    }

    fn map(&self) -> Map {
        let address = |index: usize| {
            let port = 7000 + index as u16;
            ServerAddress::At(core::net::SocketAddr::from(([10, 0, 0, 1], port)))
        };
        let lanes = self.lane_counts.iter().enumerate();
        let rows = lanes.map(|(index, lane_count)| {
            let (id, lane_count) = (ServerId(index as u16 + 1), *lane_count);
            ServerRow { id, lane_count, address: address(index) }
        });
        let run = |first: fn(u16) -> ShardId, index: usize| ShardRun {
            first: first(index as u16 * SHARD_COUNT),
            shard_count: SHARD_COUNT,
            server: ServerId(index as u16 + 1),
            term: Term::of_boot(self.servers[index].boot_id.max(1)),
        };
        let indices = || 0..self.servers.len();
        let metas = indices().map(|index| run(ShardId::meta, index));
        let runs = metas.chain(indices().map(|index| run(ShardId::data, index)));
        let shards = self.servers[0].shard_counts;
        let rows: Vec<ServerRow> = rows.collect();
        let runs: Vec<ShardRun> = runs.collect();
        Map::new(MapEpoch(self.epoch), shards, rows.into(), runs.into()).unwrap()
    }

    /// Starts a server; the others learn of it.
    pub(super) fn start(&mut self, index: usize) {
        self.start_untold(index, self.lane_counts[index]);
        self.tell_map();
    }

    /// Starts a server with so many lanes; the others do not learn of it yet.
    pub(super) fn start_untold(&mut self, index: usize, lane_count: u16) {
        self.epoch += 1;
        self.lane_counts[index] = lane_count;
        self.servers[index].dies_at = None;
        self.servers[index].boot_id += 1;
        let map = self.map();
        self.servers[index].boot_id -= 1;
        self.servers[index].start_as(map);
    }

    /// All servers learn of the newest map.
    pub(super) fn tell_map(&mut self) {
        let map = self.newest_map();
        for server in self.servers.iter_mut().filter(|server| server.map.epoch() < map.epoch()) {
            if !server.is_down() {
                server.set_map(&map);
            }
        }
    }

    pub(super) fn crash(&mut self, index: usize) {
        if !self.servers[index].is_down() {
            self.servers[index].crash();
        }
    }

    pub(super) fn newest_map(&self) -> Map {
        let maps = self.servers.iter().map(|server| &server.map);
        maps.max_by_key(|map| map.epoch()).unwrap().clone()
    }

    fn are_parted(&self, one: usize, two: usize) -> bool {
        self.parted.contains(&(one, two)) || self.parted.contains(&(two, one))
    }

    fn are_silent(&self, one: usize, two: usize) -> bool {
        self.silent.contains(&(one, two)) || self.silent.contains(&(two, one))
    }

    /// Moves what is under way between servers.
    fn pump(&mut self) -> bool {
        let mut moved = false;
        for from in 0..self.servers.len() {
            for (lane, ticket, address) in core::mem::take(&mut self.servers[from].dials) {
                let ServerAddress::At(address) = address else { panic!("no address") };
                let to = usize::from(address.port() - 7000);
                moved = true;
                let is_cut = self.are_parted(from, to) || self.are_silent(from, to);
                if self.servers[to].is_down() || is_cut {
                    self.servers[from].not_dialled(lane, ticket);
                    continue;
                }
                let ends = [
                    (from, self.servers[from].dialled(lane, ticket)),
                    (to, self.servers[to].connect()),
                ];
                self.pipes.push(Pipe { ends, is_broken: false });
            }
        }
        let mut at = 0;
        while let Some(pipe) = self.pipes.get(at).copied() {
            let [(one, _), (two, _)] = pipe.ends;
            if self.are_silent(one, two) {
                for (server, conn) in pipe.ends {
                    self.servers[server].take(conn);
                }
                self.pipes[at].is_broken = true;
                at += 1;
                continue;
            }
            let is_parted = self.are_parted(one, two) || pipe.is_broken;
            let closed = pipe.ends.map(|(server, conn)| {
                self.servers[server].is_down() || self.servers[server].is_closed(conn)
            });
            let ends = [(pipe.ends[0], pipe.ends[1]), (pipe.ends[1], pipe.ends[0])];
            for ((from, conn), (to, other)) in ends {
                let received = self.servers[from].take(conn);
                if !self.servers[to].is_down() && !is_parted {
                    moved |= !received.is_empty();
                    received.into_iter().for_each(|received| {
                        self.servers[to].send(other, received.frame, None);
                    });
                }
            }
            if closed[0] || closed[1] || is_parted {
                for (server, conn) in pipe.ends {
                    if !self.servers[server].is_down() {
                        self.servers[server].cut(conn);
                    }
                }
                self.pipes.swap_remove(at);
                moved = true;
            } else {
                at += 1;
            }
        }
        moved
    }

    /// One step of some server; when nothing is left to do, time passes.
    pub(super) fn step(&mut self) {
        if self.steps() {
            return;
        }
        self.pass_ms(1);
    }

    fn steps(&mut self) -> bool {
        let mut moved = self.pump();
        for server in &mut self.servers {
            moved |= !server.is_down() && server.step();
        }
        moved
    }

    pub(super) fn pass_ms(&mut self, ms: u64) {
        for server in self.servers.iter_mut() {
            server.pass_ms(ms);
        }
    }

    /// Runs until all is idle, and longer.
    pub(super) fn settle(&mut self) {
        for _ in 0..40 {
            while self.steps() {}
            self.pass_ms(250);
        }
        while self.steps() {}
    }

    /// Nothing is locked, prepared, decided or waiting.
    pub(super) fn check_idle(&self) {
        for server in &self.servers {
            for index in 0..usize::from(server.lane_count()) {
                let lane = server.lane(index);
                assert!(lane.metas.iter().all(meta::Shard::is_unlocked), "no lock is left");
                assert!(lane.txns.is_at_rest(), "no change is left: {:?}", lane.txns);
            }
        }
    }
}

/// What a client has asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    op: Op,
    shard: ShardId,
    xid: u64,
    body: Vec<u8>,
}

/// A client of all lanes of all servers: one request at a time, resent until it is answered.
pub(super) struct Client {
    number: u8,
    conn_epoch: u32,
    xid: u64,
    peers: BTreeMap<(usize, u16), Peer>,
    boots: BTreeMap<usize, u64>,
    asked: Option<Asked>,
    /// What its requests state.
    pub(super) layout: Layout,
}

impl Client {
    pub(super) fn new(number: u8) -> Self {
        let (peers, boots) = (BTreeMap::new(), BTreeMap::new());
        let layout = Layout::DEFAULT;
        Self { number, conn_epoch: 0, xid: 1_000_000, peers, boots, asked: None, layout }
    }

    /// Connects to each server that has restarted, and says that there is nothing to replay: all
    /// was durable before it was answered.
    pub(super) fn connect(&mut self, cluster: &mut Cluster) {
        for (index, server) in cluster.servers.iter_mut().enumerate() {
            if server.is_down() || self.boots.get(&index) == Some(&server.boot_id) {
                continue;
            }
            if !server.knows_exports() {
                continue;
            }
            self.boots.insert(index, server.boot_id);
            self.conn_epoch += 1;
            for lane in 0..server.lane_count() {
                let fields = HelloFields {
                    server_lane: LaneId(lane),
                    conn_epoch: self.conn_epoch,
                    ..HelloFields::new(self.number)
                };
                let mut peer = Peer::new(server, &fields);
                peer.xid = 1 << 50;
                let (map, me) = (server.map.clone(), server.server);
                let is_there = |shard: &ShardId| {
                    let place = map.place(*shard);
                    (place.server, place.lane) == (me, LaneId(lane))
                };
                for shard in map.shard_counts().shards().filter(is_there) {
                    let head = peer.head(Op::ReplayDone, shard, 0);
                    let body = wire::ReplayDone { reopen_count: 0 }.to_bytes();
                    peer.send(server, &head, &body, None);
                }
                self.peers.insert((index, lane), peer);
            }
            self.resend(index, server);
        }
    }

    fn resend(&self, index: usize, server: &mut TestServer) {
        let Some(asked) = &self.asked else { return };
        let place = server.map.place(asked.shard);
        if usize::from(place.server.0) == index + 1 {
            self.send_to(server, asked, self.peers[&(index, place.lane.0)].clone());
        }
    }

    pub(super) fn begin(
        &mut self,
        cluster: &mut Cluster,
        (op, shard, body): (Op, ShardId, Vec<u8>),
    ) {
        assert!(self.asked.is_none(), "one at a time");
        self.xid += 1;
        self.asked = Some(Asked { op, shard, xid: self.xid, body });
        self.send(cluster);
    }

    /// Sends or resends its request.
    pub(super) fn send(&self, cluster: &mut Cluster) {
        let Some(asked) = &self.asked else { return };
        let place = cluster.newest_map().place(asked.shard);
        let index = usize::from(place.server.0 - 1);
        let Some(peer) = self.peers.get(&(index, place.lane.0)) else { return };
        let server = &mut cluster.servers[index];
        if !server.is_down() && self.boots.get(&index) == Some(&server.boot_id) {
            self.send_to(server, asked, peer.clone());
        }
    }

    fn send_to(&self, server: &mut TestServer, asked: &Asked, peer: Peer) {
        let head = Request {
            slot: u16::from(asked.op.row().retry == Retry::Once),
            session: peer.session,
            shard: asked.shard,
            xid: Xid(asked.xid),
            conn_epoch: peer.conn_epoch,
            layout: stated_layout(asked.op).map(|_| self.layout),
            transno: Transno(0),
            ..Request::of(asked.op)
        };
        peer.send(server, &head, &asked.body, None);
    }

    pub(super) fn receive(&mut self, cluster: &mut Cluster) -> Option<(Status, Vec<u8>)> {
        let xid = Xid(self.asked.as_ref()?.xid);
        for ((index, _), peer) in &self.peers {
            let replies = peer.replies(&mut cluster.servers[*index]);
            if let Some(reply) = replies.into_iter().find(|reply| reply.head.xid == xid) {
                if matches!(reply.head.status, Status::StaleMap | Status::RetryLater) {
                    let peer = peer.clone();
                    let asked = self.asked.clone().unwrap();
                    self.send_to(&mut cluster.servers[*index], &asked, peer);
                    return None;
                }
                self.asked = None;
                return Some((reply.head.status, reply.body));
            }
        }
        None
    }

    /// Asks, and waits for the answer; `on_step` may crash and start servers.
    pub(super) fn ask(
        &mut self,
        cluster: &mut Cluster,
        request: (Op, ShardId, Vec<u8>),
        mut on_step: impl FnMut(&mut Cluster),
    ) -> (Status, Vec<u8>) {
        self.begin(cluster, request);
        for _ in 0..200_000 {
            cluster.step();
            on_step(cluster);
            self.connect(cluster);
            if let Some(reply) = self.receive(cluster) {
                return reply;
            }
        }
        panic!("no reply: {:?}", self.asked);
    }
}

/// The server that has an inode's metadata.
pub(super) fn server_of(inode: InodeNo) -> usize {
    usize::from(inode.shard().index() / SHARD_COUNT)
}
