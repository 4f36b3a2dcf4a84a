//! Several servers: the map that names them, and partitions between two servers or between a client and
//! one of them, also in one direction only.

use crate::due::{End, Place, ServerLaneId};
use crate::number::narrow_u16;
use crate::servers::{Lives, SERVER_COUNT_MAX};
use crate::simulation::Simulation;
use interface::ConnId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use wire::{Map, ServerAddress, ServerId, ShardCounts, ShardId, Term};

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

pub(crate) fn address_of(server: usize) -> SocketAddr {
    let port = PORT_FIRST + narrow_u16(server);
    SocketAddr::from(([10, 0, 0, 1], port))
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
        #[expect(clippy::expect_used, reason = "the first servers are there from the beginning")]
        self.cluster().map().expect("a map of all servers that have joined")
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

    /// Two machines cannot reach each other for a while: their connections are cut.
    pub(crate) fn part_for(&mut self, (one, other): (Machine, Machine), span_ns: u64) {
        self.log_line(|| format!("{one:?} and {other:?} are parted for {} us", span_ns / 1000));
        let ways = [(one, other), (other, one)];
        let until_ns = self.now_ns + span_ns;
        self.parted.extend(ways.map(|way| (way, until_ns)));
        let is_between = |conn: &&ConnId| {
            let ends = self.conns.get(*conn).map(|known| {
                (machine_of(known.at(End::Dialler).0), machine_of(known.at(End::Listener).0))
            });
            ends.is_some_and(|ends| ways.contains(&ends))
        };
        let conns: Vec<ConnId> = self.conns.keys().filter(is_between).copied().collect();
        conns.into_iter().for_each(|conn| self.cut(conn));
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
