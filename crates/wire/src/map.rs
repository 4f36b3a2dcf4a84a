//! Placement: shards to servers and lanes, inodes to shards. Server and client compute the same.
//!
//! A [`Map`] is complete: each shard is in exactly one run, and each run's server has a row.
//! [`Map::new`] checks that, and so does decoding. With one server a look-up is one division.
//!
//! ```text
//! 8 epoch | 2 meta_shard_count | 2 data_shard_count; its bit 15: generations follow the runs
//! 2 server_count | server_count times: 2 id | 2 lane_count | address
//! 2 run_count | run_count times: 2 first | 2 shard_count | 2 server | 4 term
//! address: 1 kind (0 initial, 4 IPv4, 6 IPv6) | 4 or 16 address | 2 port
//! generations: see `generation.rs`
//! ```

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::generation::{Generation, Generations};
use crate::shard_counts::{ShardCounts, stripe_hash};
use crate::{InodeNo, LaneId, Layout, MapEpoch, Op, ProtocolError, Route, ServerId, ShardId, Term};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// Where a server listens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerAddress {
    /// The address that the client was started with. A file system of one server has no other.
    Initial,
    /// This one. It has a port, and an IPv6 address has no flow and no scope: these have a meaning
    /// on one host only.
    At(SocketAddr),
}

impl ServerAddress {
    const INITIAL: u8 = 0;
    const IPV4: u8 = 4;
    const IPV6: u8 = 6;

    const fn is_valid(self) -> bool {
        match self {
            Self::Initial => true,
            Self::At(SocketAddr::V4(address)) => address.port() != 0,
            Self::At(SocketAddr::V6(address)) => {
                address.port() != 0 && address.flowinfo() == 0 && address.scope_id() == 0
            }
        }
    }
}

impl Wire<'_> for ServerAddress {
    fn encode(&self, to: &mut Writer<'_>) {
        let Self::At(address) = self else { return to.write(&Self::INITIAL) };
        match address.ip() {
            IpAddr::V4(ip) => {
                to.write(&Self::IPV4);
                to.put(&ip.octets());
            }
            IpAddr::V6(ip) => {
                to.write(&Self::IPV6);
                to.put(&ip.octets());
            }
        }
        to.write(&address.port());
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ip = match u8::decode(from)? {
            Self::INITIAL => return Ok(Self::Initial),
            Self::IPV4 => IpAddr::from(from.array::<4>()?),
            Self::IPV6 => IpAddr::from(from.array::<16>()?),
            _ => return Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        };
        Ok(Self::At(SocketAddr::new(ip, from.read()?)))
    }
}

/// A server of the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerRow {
    /// Its id.
    pub id: ServerId,
    /// Its lanes, 1 or more: those of its present start.
    pub lane_count: u16,
    /// Where it listens.
    pub address: ServerAddress,
}

impl ServerRow {
    /// Bytes of the shortest encoding.
    const BYTES_MIN: usize = 5;
}

impl Wire<'_> for ServerRow {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.id);
        to.write(&self.lane_count);
        to.write(&self.address);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { id: from.read()?, lane_count: from.read()?, address: from.read()? })
    }
}

/// Consecutive shards of one kind with the same server and term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardRun {
    /// The first shard.
    pub first: ShardId,
    /// How many, 1 or more.
    pub shard_count: u16,
    /// The server that has them.
    pub server: ServerId,
    /// The term in which it has them, from 1.
    pub term: Term,
}

impl ShardRun {
    /// Bytes of an encoding.
    const BYTES: usize = 10;

    /// One of its shards, by a number that may be any.
    fn at(&self, number: u64) -> ShardId {
        let position = number % u64::from(self.shard_count);
        ShardId(self.first.0 + u16::try_from(position).unwrap_or(0))
    }
}

impl Wire<'_> for ShardRun {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.first);
        to.write(&self.shard_count);
        to.write(&self.server);
        to.write(&self.term);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            first: from.read()?,
            shard_count: from.read()?,
            server: from.read()?,
            term: from.read()?,
        })
    }
}

/// Where a shard is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The server.
    pub server: ServerId,
    /// The lane of that server.
    pub lane: LaneId,
    /// The term in which the server has it.
    pub term: Term,
}

/// Servers, shards, and which server has which shard: one version of it. A clone shares the rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    epoch: MapEpoch,
    shards: ShardCounts,
    /// By id.
    servers: Arc<[ServerRow]>,
    /// By their first shard; metadata shards are before data shards.
    runs: Arc<[ShardRun]>,
    /// `None`: all shards take new directories and files, and always did.
    generations: Option<Generations>,
    /// Of each server its first run of data shards.
    part_runs: Arc<[ShardRun]>,
    /// If a single server has all shards in one term: what answers each look-up.
    single: Option<Single>,
}

/// The only server of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Single {
    server: ServerId,
    lane_count: u16,
    term: Term,
}

impl Map {
    /// Most servers.
    pub const SERVER_COUNT_MAX: u16 = 256;
    /// Most runs.
    pub const RUN_COUNT_MAX: u16 = 1024;
    /// Most bytes of an encoding.
    pub const BYTES_MAX: usize = 8
        + 4
        + 4
        + (ServerRow::BYTES_MIN + 18) * Self::SERVER_COUNT_MAX as usize
        + ShardRun::BYTES * Self::RUN_COUNT_MAX as usize
        + Generations::BYTES_MAX;
    /// In the encoded number of data shards.
    const HAS_GENERATIONS: u16 = 1 << 15;

    /// A map; `None` unless it is complete: servers by rising id, runs that have each shard once,
    /// in order, of servers with a row.
    #[must_use]
    pub fn new(
        epoch: MapEpoch,
        shards: ShardCounts,
        servers: Arc<[ServerRow]>,
        runs: Arc<[ShardRun]>,
    ) -> Option<Self> {
        let counts_fit = servers.len() <= usize::from(Self::SERVER_COUNT_MAX)
            && runs.len() <= usize::from(Self::RUN_COUNT_MAX);
        let valid = epoch != MapEpoch(0)
            && shards.is_valid()
            && counts_fit
            && servers_are_valid(&servers)
            && runs_are_complete(shards, &servers, &runs);
        if !valid {
            return None;
        }
        let single = single(&servers, &runs);
        let mut part_runs: Vec<ShardRun> = Vec::new();
        for run in runs.iter().filter(|run| run.first.is_data()) {
            if part_runs.iter().all(|known| known.server != run.server) {
                part_runs.push(*run);
            }
        }
        let part_runs = part_runs.into();
        Some(Self { epoch, shards, servers, runs, generations: None, part_runs, single })
    }

    /// This map, whose shards take new directories and files as `generations` say, the last of them
    /// now. `None` for generations of shards that the map does not have.
    #[must_use]
    pub fn with_generations(self, generations: Arc<[Generation]>) -> Option<Self> {
        let generations = Generations::new(generations, self.shards)?;
        Some(Self { generations: generations.unless_trivial(self.shards), ..self })
    }

    /// The map of a file system with one server, whose start began `term`. It is as new as that.
    #[must_use]
    pub fn single_server(lane_count: u16, shards: ShardCounts, term: Term) -> Self {
        let (server, address) = (ServerId::FIRST, ServerAddress::Initial);
        let run = |first, shard_count| ShardRun { first, shard_count, server, term };
        let map = Self::new(
            MapEpoch(u64::from(term.0)),
            shards,
            Arc::new([ServerRow { id: server, lane_count, address }]),
            Arc::new([run(ShardId::meta(0), shards.meta), run(ShardId::data(0), shards.data)]),
        );
        let Some(map) = map else { panic!("{shards:?}, {lane_count} lanes and {term:?} are none") };
        map
    }

    /// The version: rises with each change of the map.
    #[must_use]
    pub const fn epoch(&self) -> MapEpoch {
        self.epoch
    }

    /// The numbers of shards.
    #[must_use]
    pub const fn shard_counts(&self) -> ShardCounts {
        self.shards
    }

    /// The servers, by id; at least one.
    #[must_use]
    pub fn servers(&self) -> &[ServerRow] {
        &self.servers
    }

    /// The server with the lowest id.
    #[must_use]
    pub fn first_server(&self) -> &ServerRow {
        &self.servers[0]
    }

    /// Which server has which shards, metadata first, by index.
    #[must_use]
    pub fn runs(&self) -> &[ShardRun] {
        &self.runs
    }

    /// A server.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&ServerRow> {
        let index = self.servers.binary_search_by_key(&id, |server| server.id).ok()?;
        self.servers.get(index)
    }

    /// Lanes of a server; `None` if it has no row.
    #[must_use]
    pub fn lane_count(&self, id: ServerId) -> Option<u16> {
        match self.single {
            Some(single) if single.server == id => Some(single.lane_count),
            Some(_) | None => self.server(id).map(|server| server.lane_count),
        }
    }

    /// Where `shard` is. It must be a shard of the map.
    #[inline]
    #[must_use]
    pub fn place(&self, shard: ShardId) -> Place {
        let Single { server, lane_count, term } = self.holder(shard);
        Place { server, lane: LaneId(shard.index() % lane_count), term }
    }

    /// The lane of its server that owns `shard`: metadata shards from lane 0 upwards, data shards
    /// likewise.
    #[inline]
    #[must_use]
    pub fn lane(&self, shard: ShardId) -> LaneId {
        self.place(shard).lane
    }

    /// A position for `shard` in a table of its lane's shards of that kind: no two have the same.
    #[inline]
    #[must_use]
    pub fn index_at_lane(&self, shard: ShardId) -> usize {
        usize::from(shard.index() / self.holder(shard).lane_count)
    }

    /// The shards of a lane of a server, metadata shards first.
    pub fn lane_shards(&self, server: ServerId, lane: LaneId) -> impl Iterator<Item = ShardId> {
        let lane_count = self.lane_count(server).unwrap_or(1);
        let runs = self.runs.iter().filter(move |run| run.server == server);
        let shards = runs.flat_map(|run| (0..run.shard_count).map(|at| ShardId(run.first.0 + at)));
        shards.filter(move |shard| shard.index() % lane_count == lane.0)
    }

    #[inline]
    fn holder(&self, shard: ShardId) -> Single {
        match self.single {
            Some(single) => single,
            None => self.holder_of_several(shard),
        }
    }

    fn holder_of_several(&self, shard: ShardId) -> Single {
        let behind = self.runs.partition_point(|run| run.first <= shard);
        // The first run begins with the first shard, so there is one.
        let run = self.runs[behind.saturating_sub(1)];
        let lane_count = self.server(run.server).map_or(1, |server| server.lane_count);
        Single { server: run.server, lane_count, term: run.term }
    }

    /// Whether there is such a shard.
    #[must_use]
    pub const fn has(&self, shard: ShardId) -> bool {
        self.shards.has(shard)
    }

    /// The generation of new inodes.
    #[must_use]
    pub fn generation(&self) -> u8 {
        self.generations.as_ref().map_or(0, Generations::last_no)
    }

    /// How many metadata shards take new directories, 1 or more.
    #[must_use]
    pub fn directory_shard_count(&self) -> u16 {
        self.generations.as_ref().map_or(self.shards.meta, Generations::directory_shard_count)
    }

    /// One of the metadata shards that take new directories: that of `number`, which may be any.
    #[must_use]
    pub fn directory_shard(&self, number: u64) -> ShardId {
        let index = number % u64::from(self.directory_shard_count());
        let index = u16::try_from(index).unwrap_or(0);
        match &self.generations {
            None => ShardId::meta(index),
            Some(generations) => generations.directory_shard(index),
        }
    }

    /// The data shard of part `part_index` of an inode's contents: its home shard for part 0, and
    /// for each further one a shard of the next server. A map that does not have the inode's
    /// generation is stale: it gives a shard of its last one, where a request is refused by its
    /// epoch.
    #[must_use]
    pub fn data_shard(&self, inode: InodeNo, part_index: u32) -> ShardId {
        let home = match &self.generations {
            None => self.shards.data_shard(inode, 0),
            Some(generations) => generations.data_shard(inode),
        };
        if part_index == 0 || self.single.is_some() {
            return home;
        }
        let (at_home, count) = self.home_among_parts(inode, home);
        let part = usize::try_from(part_index).unwrap_or(0) % count;
        let run = self.part_runs(Some(inode)).nth((at_home + part) % count);
        run.filter(|_| part > 0).map_or(home, |run| run.at(stripe_hash(inode, part_index)))
    }

    /// The most data shards that the stripes of an inode may be spread over (`None`: of a new one):
    /// one of each server that takes part in its generation. So no lane has two of them.
    #[must_use]
    pub fn part_count_max(&self, inode: Option<InodeNo>) -> u16 {
        let count = if self.single.is_some() { 1 } else { self.part_runs(inode).count() };
        u16::try_from(count).unwrap_or(u16::MAX).clamp(1, Layout::STRIPE_COUNT_MAX)
    }

    /// The same for the inodes of each generation.
    #[must_use]
    pub fn part_counts(&self) -> Vec<u16> {
        let first = |generation| InodeNo::new(0, *InodeNo::counts_of(generation).start());
        (0..=self.generation()).map(|it| self.part_count_max(Some(first(it)))).collect()
    }

    /// The part of an inode's contents that a server may have; 0 if it has none.
    #[must_use]
    pub fn part_of(&self, inode: InodeNo, server: ServerId) -> u32 {
        if self.single.is_some() {
            return 0;
        }
        let (at_home, count) = self.home_among_parts(inode, self.data_shard(inode, 0));
        let found = self.part_runs(Some(inode)).position(|run| run.server == server);
        let part = found.map_or(0, |found| (found + count - at_home) % count);
        u32::try_from(part).unwrap_or(0)
    }

    /// The position of an inode's home server among those of its contents, and their number.
    fn home_among_parts(&self, inode: InodeNo, home: ShardId) -> (usize, usize) {
        let server = self.holder(home).server;
        let position = self.part_runs(Some(inode)).position(|run| run.server == server);
        (position.unwrap_or(0), self.part_runs(Some(inode)).count().max(1))
    }

    /// The data shards of a file with this layout.
    pub fn data_shards(&self, inode: InodeNo, layout: Layout) -> impl Iterator<Item = ShardId> {
        (0..u32::from(layout.part_count())).map(move |part| self.data_shard(inode, part))
    }

    /// A run of data shards of each server that has contents of an inode (`None`: of a new one).
    fn part_runs(&self, inode: Option<InodeNo>) -> impl Iterator<Item = &ShardRun> {
        let takes = move |run: &&ShardRun| match &self.generations {
            None => true,
            Some(generations) => generations.has_data(inode, run.first),
        };
        self.part_runs.iter().filter(takes)
    }

    /// The data shard of a stripe of a file with this layout.
    #[must_use]
    pub fn stripe_shard(&self, inode: InodeNo, layout: Layout, stripe_index: u32) -> ShardId {
        self.data_shard(inode, layout.part(stripe_index))
    }

    /// The shard that executes an op on bytes of `inode` from an offset on; `None` for ops without
    /// an inode. What reads or writes bytes goes to the shard that has them, what concerns all of a
    /// file to the shard of the first stripe, as does everything if the layout is not known.
    #[must_use]
    pub fn shard(
        &self,
        op: Op,
        inode: InodeNo,
        (layout, file_offset): (Option<Layout>, u64),
    ) -> Option<ShardId> {
        match op.row().route {
            Route::Lane | Route::Shard => None,
            Route::Meta => Some(inode.shard()),
            Route::Data => {
                let is_of_bytes = matches!(
                    op,
                    Op::Read | Op::ReadList | Op::Write | Op::WriteList | Op::Allocate | Op::Seek
                );
                Some(match layout.filter(|layout| is_of_bytes && layout.is_spread()) {
                    Some(layout) => self.stripe_shard(inode, layout, layout.stripe(file_offset)),
                    None => self.data_shard(inode, 0),
                })
            }
        }
    }

    /// Whether every inode and shard is on the same lane of the same server as in `other`. Terms and the
    /// epoch may differ.
    #[must_use]
    pub fn places_all_as(&self, other: &Self) -> bool {
        let same = |one: &ShardRun, two: &ShardRun| ShardRun { term: two.term, ..*one } == *two;
        self.servers == other.servers
            && self.generations == other.generations
            && self.runs.len() == other.runs.len()
            && self.runs.iter().zip(other.runs.iter()).all(|(one, two)| same(one, two))
    }

    /// Whether this is a map of the same file system as the earlier one: it has all its shards, and
    /// what lies at them lies there still.
    #[must_use]
    pub fn extends(&self, earlier: &Self) -> bool {
        let (counts, before) = (self.shards, earlier.shards);
        let has_all = counts.meta >= before.meta && counts.data >= before.data;
        let generations = |map: &Self| {
            map.generations.clone().unwrap_or_else(|| Generations::trivial(map.shards))
        };
        has_all && generations(self).continue_those(&generations(earlier))
    }

    /// Whether this map replaces `other`.
    #[must_use]
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.epoch > other.epoch
    }
}

fn servers_are_valid(servers: &[ServerRow]) -> bool {
    let each = servers.iter().all(|server| {
        (1..=ShardCounts::MAX).contains(&server.lane_count) && server.address.is_valid()
    });
    !servers.is_empty() && each && servers.is_sorted_by(|one, next| one.id < next.id)
}

fn runs_are_complete(shards: ShardCounts, servers: &[ServerRow], runs: &[ShardRun]) -> bool {
    let is_known = |id: ServerId| servers.binary_search_by_key(&id, |server| server.id).is_ok();
    // The shard with which the next run begins; `None` behind the last one.
    let mut next = Some(ShardId::meta(0));
    for run in runs {
        let (first, count) =
            (run.first, if run.first.is_data() { shards.data } else { shards.meta });
        let end = u32::from(first.index()) + u32::from(run.shard_count);
        let fits = next == Some(first) && run.shard_count > 0 && end <= u32::from(count);
        if !fits || !is_known(run.server) || run.term == Term(0) {
            return false;
        }
        next = if end < u32::from(count) {
            Some(ShardId(first.0 + run.shard_count))
        } else if first.is_data() {
            None
        } else {
            Some(ShardId::data(0))
        };
    }
    next.is_none()
}

fn single(servers: &[ServerRow], runs: &[ShardRun]) -> Option<Single> {
    let [server] = servers else { return None };
    let term = runs.first()?.term;
    let same = runs.iter().all(|run| run.term == term);
    same.then_some(Single { server: server.id, lane_count: server.lane_count, term })
}

/// Rows after their 16-bit count, at most `count_max`, each at least `bytes_min` long.
fn decode_rows<'a, T: Wire<'a>>(
    from: &mut Reader<'a>,
    count_max: u16,
    bytes_min: usize,
) -> Result<Arc<[T]>, DecodeError> {
    let count = u16::decode(from)?;
    if count > count_max || from.left() < usize::from(count) * bytes_min {
        return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
    }
    let rows: Result<Vec<T>, DecodeError> = (0..count).map(|_| from.read()).collect();
    Ok(rows?.into())
}

fn encode_rows<'a, T: Wire<'a>>(to: &mut Writer<'_>, rows: &[T]) {
    to.write(&u16::try_from(rows.len()).unwrap_or(u16::MAX));
    rows.iter().for_each(|row| to.write(row));
}

impl Wire<'_> for Map {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.epoch);
        to.write(&self.shards.meta);
        let has_generations = self.generations.as_ref().map_or(0, |_| Self::HAS_GENERATIONS);
        to.write(&(self.shards.data | has_generations));
        encode_rows(to, &self.servers);
        encode_rows(to, &self.runs);
        self.generations.iter().for_each(|generations| generations.encode(to));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let malformed = DecodeError::ProtocolError(ProtocolError::Malformed);
        let epoch = from.read()?;
        let (meta, data_and_flag): (u16, u16) = (from.read()?, from.read()?);
        let shards = ShardCounts { meta, data: data_and_flag & !Self::HAS_GENERATIONS };
        let servers = decode_rows(from, Self::SERVER_COUNT_MAX, ServerRow::BYTES_MIN)?;
        let runs = decode_rows(from, Self::RUN_COUNT_MAX, ShardRun::BYTES)?;
        let map = Self::new(epoch, shards, servers, runs).ok_or(malformed)?;
        if data_and_flag & Self::HAS_GENERATIONS == 0 {
            return Ok(map);
        }
        let generations = Generations::decode(from, shards)?.unless_trivial(shards);
        let generations = Some(generations.ok_or(malformed)?);
        Ok(Self { generations, ..map })
    }
}
