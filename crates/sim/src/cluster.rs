//! Several servers: the map that names them, which each learns of at its own time, and partitions
//! between two servers or between a client and one of them, also in one direction only.

use crate::due::{Due, End, Place, ServerLaneId};
use crate::number::{narrow_u16, wide};
use crate::plan::MS;
use crate::servers::{Lives, SERVER_COUNT_MAX};
use crate::simulation::Simulation;
use interface::{ConnId, Event, Span};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use test_runtime::Incoming;
use wire::{
    Map, MapEpoch, ServerAddress, ServerId, ServerRow, ShardCounts, ShardId, ShardRun, Term, Wire,
};

/// A server learns of a map sooner than recoveries end. Until then it refuses clients that know the
/// map from another server, and would evict them.
const MAP_NS_MAX: u64 = 4_000_000_000;

/// The port of the first server.
const PORT_FIRST: u16 = 7001;

/// A machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Machine {
    Server(usize),
    Client(usize),
}

/// Until when what a machine sends does not reach another one.
pub(crate) type Parted = BTreeMap<(Machine, Machine), u64>;

/// The id of a server in maps.
pub(crate) fn id_of(server: usize) -> ServerId {
    ServerId(narrow_u16(server + 1))
}

fn address_of(server: usize) -> ServerAddress {
    let port = PORT_FIRST + narrow_u16(server);
    ServerAddress::At(SocketAddr::from(([10, 0, 0, 1], port)))
}

/// The server with this address; `None` for the address that a client was started with.
pub(crate) fn server_at(address: ServerAddress) -> Option<usize> {
    let ServerAddress::At(address) = address else { return None };
    Some(usize::from(address.port() - PORT_FIRST))
}

fn machine_of(place: Place) -> Machine {
    match place {
        Place::Server(server, _) => Machine::Server(server),
        Place::Client(client, _) => Machine::Client(client),
    }
}

impl Simulation {
    /// The newest map: it changes whenever a server starts.
    pub(crate) fn map(&self) -> Map {
        let shards =
            ShardCounts { meta: self.plan.meta_shard_count, data: self.plan.data_shard_count };
        if let [server] = &self.servers[..] {
            let term = Term::of_boot(server.boot_id);
            return Map::single_server(server.lane_count, shards, term);
        }
        let servers = || self.servers[..self.joined_count].iter().enumerate();
        let rows = servers().map(|(index, server)| ServerRow {
            id: id_of(index),
            lane_count: server.lane_count,
            address: address_of(index),
        });
        let rows: Vec<ServerRow> = rows.collect();
        let count = narrow_u16(self.servers.len());
        let runs = |first: fn(u16) -> ShardId, shard_count: u16| {
            servers().map(move |(index, server)| ShardRun {
                first: first(narrow_u16(index) * (shard_count / count)),
                shard_count: shard_count / count,
                server: id_of(index),
                term: Term::of_boot(server.boot_id),
            })
        };
        let runs: Vec<ShardRun> =
            runs(ShardId::meta, shards.meta).chain(runs(ShardId::data, shards.data)).collect();
        let boots: u64 = servers().map(|(_, server)| server.boot_id).sum();
        let epoch = MapEpoch(boots + wide(self.generations.len()));
        let joined = |shard_count: u16| shard_count / count * narrow_u16(self.joined_count);
        let joined = ShardCounts { meta: joined(shards.meta), data: joined(shards.data) };
        let map = Map::new(epoch, joined, rows.into(), runs.into());
        let map = map.and_then(|map| map.with_generations(self.generations_of(shards)));
        #[expect(clippy::expect_used, reason = "each server has as many shards as the others")]
        map.expect("a map of all servers that have joined")
    }

    /// A server has started: each of the others learns of the map that says so, sooner or later.
    pub(crate) fn publish_map(&mut self, started: usize) {
        for other in (0..self.joined_count).filter(|other| *other != started) {
            let mean_ns = self.prng.pick(&[MS, 50 * MS, 1_000 * MS]).unwrap_or(MS);
            let delay_ns = self.prng.span_ns(mean_ns).min(MAP_NS_MAX);
            self.schedule_at(self.now_ns + delay_ns, Due::Map(other));
        }
    }

    /// A server learns of the newest map. One that is down reads it when it starts.
    pub(crate) fn learn_map(&mut self, server: usize) {
        let map = self.map();
        self.log_line(|| format!("server {server}: map {:?}", map.epoch()));
        for lane in 0..self.servers[server].lanes.len() {
            let event = Incoming::new(Event::Map(Span::default()), map.to_bytes());
            self.deliver(Place::Server(server, lane), event);
        }
    }

    /// The numbers of the present processes of the servers.
    pub(crate) fn lives(&self) -> Lives {
        let mut lives = [0; SERVER_COUNT_MAX];
        for (life, server) in lives.iter_mut().zip(&self.servers) {
            *life = server.life;
        }
        lives
    }

    /// Which of the servers has a shard.
    pub(crate) fn server_of(&self, shard: ShardId) -> usize {
        let shard_count =
            if shard.is_data() { self.plan.data_shard_count } else { self.plan.meta_shard_count };
        let each_count = shard_count / narrow_u16(self.servers.len());
        usize::from(shard.index() / each_count.max(1)).min(self.servers.len() - 1)
    }

    /// All lanes of all servers.
    pub(crate) fn server_lanes(&self) -> Vec<ServerLaneId> {
        let servers = self.servers.iter().enumerate();
        servers
            .flat_map(|(index, server)| (0..server.lanes.len()).map(move |at| (index, at)))
            .collect()
    }

    /// Which end of a connection a lane of a server has.
    pub(crate) fn end_of(&self, conn: ConnId, place: Place) -> End {
        let dialler = self.conns.get(&conn).map(|known| machine_of(known.dialler));
        if dialler == Some(machine_of(place)) { End::Dialler } else { End::Listener }
    }

    // ---- partitions ----

    /// Whether no connection to a server can be made from here.
    pub(crate) fn is_parted(&self, by: Place, server: usize) -> bool {
        let (one, two) = (machine_of(by), Machine::Server(server));
        let until = |way| self.parted.get(&way).is_some_and(|until_ns| *until_ns > self.now_ns);
        let from_all = match one {
            Machine::Client(client) => self.mounts[client].partitioned_until_ns > self.now_ns,
            Machine::Server(_) => false,
        };
        from_all || until((one, two)) || until((two, one))
    }

    /// Two servers, or a client and a server, cannot reach each other for a while, or only in one
    /// direction. Either their connections are cut, or nothing of them arrives meanwhile.
    pub(crate) fn part(&mut self) {
        const LONG_NS: u64 = 30_000_000_000;
        let one = self.choose(self.servers.len());
        let other = (one + 1 + self.choose(self.servers.len() - 1)) % self.servers.len();
        let other = if self.prng.one_in(3) {
            Machine::Client(self.choose(self.mounts.len()))
        } else {
            Machine::Server(other)
        };
        let span_ns = match self.prng.number() % 3 {
            0 => self.prng.number() % LONG_NS,
            _ => self.prng.number() % (self.plan.faults_ns + 1),
        };
        let client = if let Machine::Client(client) = other { Some(client) } else { None };
        self.record_absence(client, span_ns);
        let until_ns = self.now_ns + span_ns;
        let ways = [(Machine::Server(one), other), (other, Machine::Server(one))];
        let ways = match self.prng.number() % 3 {
            0 => &ways[..1],
            1 => &ways[1..],
            _ => &ways[..],
        };
        self.log_line(|| format!("partition {ways:?} of {} us", span_ns / 1000));
        for way in ways {
            let until = self.parted.entry(*way).or_default();
            *until = until_ns.max(*until);
        }
        let cuts = ways.len() == 2 && self.prng.one_in(2);
        let conns: Vec<ConnId> = self.conns.keys().copied().collect();
        for conn in conns {
            for end in [End::Dialler, End::Listener] {
                let Some(known) = self.conns.get_mut(&conn) else { continue };
                let (from, to) = (known.at(end.other()).0, known.at(end).0);
                if !ways.contains(&(machine_of(from), machine_of(to))) {
                    continue;
                }
                if cuts {
                    self.cut(conn);
                } else {
                    let direction = known.direction_to(end);
                    direction.held_until_ns = direction.held_until_ns.max(until_ns);
                    direction.parted_until_ns = direction.parted_until_ns.max(until_ns);
                }
            }
        }
    }
}
