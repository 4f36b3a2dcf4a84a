//! The servers of the file system: what each has said of itself, the connections to its lanes, and
//! the sessions at its shards.
//!
//! A link is the connection to one lane of one server. It is made when something is first sent to that
//! lane, so a client pays for the lanes that it uses, however many there are. Its position never
//! changes, so a lane that a later map lacks leaves an idle link behind. There is a session for each
//! shard, and one for each link, for requests to the lane itself. A server's restart concerns its own
//! links and the sessions at its shards, and nothing else.

use crate::link::{Link, LinkState};
use crate::plan::Target;
use crate::server::Server;
use crate::session::Session;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::hash::BuildHasher as _;
use interface::{ConnId, Mono, Seed, Ticket};
use wire::{
    InodeNo, LaneId, Layout, Map, MapEpoch, Op, ServerAddress, ServerId, ShardCounts, ShardId,
    Welcome,
};

/// The server that the client was started with.
pub(crate) const INITIAL: usize = 0;

/// What another map means for the links of before.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Links whose lanes have lost a shard, or are no more.
    pub(crate) left: Vec<usize>,
    /// Links to shards that have another term.
    pub(crate) restarted: Vec<usize>,
    /// The servers that had these shards.
    pub(crate) restarted_servers: BTreeSet<usize>,
    /// Links to servers that have another address.
    pub(crate) moved: Vec<usize>,
}

/// The lane that has a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct At {
    server_index: usize,
    lane: LaneId,
}

/// Where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Destination {
    pub(crate) shard: ShardId,
    pub(crate) session_index: usize,
    pub(crate) link_index: usize,
}

#[derive(Debug)]
pub(crate) struct Servers {
    map: Option<Map>,
    list: Vec<Server>,
    /// The positions of those whose ids are known.
    by_id: BTreeMap<ServerId, usize>,
    links: Vec<Link>,
    sessions: Vec<Session>,
    /// By index of a metadata shard, of a data shard, and of a link: which session. A session keeps
    /// its place when a map brings more shards.
    meta_sessions: Vec<usize>,
    data_sessions: Vec<usize>,
    link_sessions: Vec<usize>,
    /// Makes the first xids of new sessions.
    xid_seed: Seed,
    conn_epoch_last: u32,
    ticket_last: u64,
    /// Since when a wanted connection is missing.
    waiting_since: Option<Mono>,
}

impl Servers {
    /// The server that the client was started with, and a link to its first lane.
    pub(crate) fn new() -> Self {
        let mut initial = Server::new(None, ServerAddress::Initial);
        initial.set_link(LaneId(0), 0);
        Self {
            map: None,
            list: vec![initial],
            by_id: BTreeMap::new(),
            links: vec![Link::new(INITIAL, LaneId(0))],
            sessions: Vec::new(),
            meta_sessions: Vec::new(),
            data_sessions: Vec::new(),
            link_sessions: Vec::new(),
            xid_seed: Seed(0),
            conn_epoch_last: 0,
            ticket_last: 0,
            waiting_since: None,
        }
    }

    pub(crate) const fn map(&self) -> Option<&Map> {
        self.map.as_ref()
    }

    /// The server that the client was started with.
    pub(crate) fn initial(&self) -> &Server {
        &self.list[INITIAL]
    }

    /// A server by its position among all.
    pub(crate) fn server(&self, server_index: usize) -> Option<&Server> {
        self.list.get(server_index)
    }

    /// The server of a link.
    pub(crate) fn server_of(&self, link_index: usize) -> Option<&Server> {
        self.list.get(self.links.get(link_index)?.server_index())
    }

    pub(crate) fn link(&self, link_index: usize) -> Option<&Link> {
        self.links.get(link_index)
    }

    pub(crate) fn link_mut(&mut self, link_index: usize) -> Option<&mut Link> {
        self.links.get_mut(link_index)
    }

    pub(crate) fn links(&self) -> &[Link] {
        &self.links
    }

    pub(crate) fn links_mut(&mut self) -> &mut [Link] {
        &mut self.links
    }

    pub(crate) fn session(&self, session_index: usize) -> Option<&Session> {
        self.sessions.get(session_index)
    }

    pub(crate) fn session_mut(&mut self, session_index: usize) -> Option<&mut Session> {
        self.sessions.get_mut(session_index)
    }

    pub(crate) fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    pub(crate) fn sessions_mut(&mut self) -> &mut [Session] {
        &mut self.sessions
    }

    /// A link with its server and one of its sessions.
    pub(crate) fn parts_mut(
        &mut self,
        link_index: usize,
        session_index: usize,
    ) -> Option<(&Server, &mut Link, &mut Session)> {
        let link = self.links.get_mut(link_index)?;
        let server = self.list.get(link.server_index())?;
        Some((server, link, self.sessions.get_mut(session_index)?))
    }

    /// The link of a connection.
    pub(crate) fn link_of(&self, conn: ConnId) -> Option<usize> {
        self.links.iter().position(|link| link.conn() == Some(conn))
    }

    /// The link that this attempt to connect is for.
    pub(crate) fn link_connecting(&self, ticket: Ticket) -> Option<usize> {
        self.links.iter().position(|link| match link.state {
            LinkState::Connecting { ticket: ours } => ours == ticket,
            LinkState::Idle
            | LinkState::Pausing { .. }
            | LinkState::AwaitChallenge { .. }
            | LinkState::AwaitWelcome { .. }
            | LinkState::Up { .. } => false,
        })
    }

    /// A link starts to connect: the number of the attempt, and where to.
    pub(crate) fn begin_connect(&mut self, link_index: usize) -> Option<(Ticket, ServerAddress)> {
        let link = self.links.get_mut(link_index)?;
        let address = self.list.get(link.server_index())?.address_for(link.failure_count);
        self.conn_epoch_last += 1;
        self.ticket_last += 1;
        let ticket = Ticket(self.ticket_last);
        link.conn_epoch = self.conn_epoch_last;
        link.state = LinkState::Connecting { ticket };
        Some((ticket, address))
    }

    /// Applies what a Welcome says of its server; true if the server has restarted since the last
    /// one.
    pub(crate) fn welcomed(&mut self, link_index: usize, welcome: &Welcome) -> bool {
        let server_index = self.links.get(link_index).map_or(INITIAL, Link::server_index);
        self.list.get_mut(server_index).is_some_and(|server| server.welcomed(welcome))
    }

    /// Whether a map is to replace the present one: never one of a lower epoch, one that does not
    /// have all that there was, or one in which a shard has a lower term.
    pub(crate) fn wants(&self, map: &Map) -> bool {
        let Some(known) = &self.map else { return true };
        let no_term_falls =
            || self.shards().all(|(shard, _)| map.place(shard).term >= known.place(shard).term);
        map.is_newer_than(known) && map.extends(known) && no_term_falls()
    }

    /// Whether a map may be of this file system: it came before the known one, or comes after it.
    pub(crate) fn may_be_of_this(&self, map: &Map) -> bool {
        self.map.as_ref().is_none_or(|known| map.extends(known) || known.extends(map))
    }

    /// The map's epoch for a request.
    pub(crate) fn map_epoch(&self) -> MapEpoch {
        self.map.as_ref().map_or(MapEpoch(0), Map::epoch)
    }

    /// Records the server of a link, from the link's first Welcome.
    pub(crate) fn identify(&mut self, link_index: usize, id: ServerId) -> bool {
        let server_index = self.links.get(link_index).map_or(INITIAL, Link::server_index);
        let Some(server) = self.list.get_mut(server_index) else { return false };
        if server.id.is_none() {
            server.id = Some(id);
            self.by_id.insert(id, server_index);
        }
        server.id == Some(id)
    }

    /// Replaces the map. Returns the links whose lanes have lost a shard, or a term of one, or are
    /// no more: what was sent to them goes elsewhere now. `random` is any number, which nobody can
    /// guess.
    pub(crate) fn set_map(&mut self, map: Map, random: u64) -> Changed {
        self.xid_seed.0 ^= random;
        let shards = self.shards().map(|(shard, _)| shard);
        let before: Vec<_> =
            shards.filter_map(|shard| Some((shard, self.lane_of_shard(shard)?))).collect();
        let old = self.map.replace(map.clone());
        let mut changed = Changed::default();
        let rows = old.iter().flat_map(|old| old.servers());
        let addresses: BTreeMap<_, _> = rows.map(|row| (row.id, row.address)).collect();
        for row in map.servers() {
            let has_moved = addresses.get(&row.id).is_some_and(|before| *before != row.address);
            let server_index = self.server_to(row.id, (row.address, has_moved));
            let links = self.links.iter().enumerate();
            let links = links.filter(|(_, link)| has_moved && link.server_index() == server_index);
            changed.moved.extend(links.map(|(link_index, _)| link_index));
        }
        self.add_sessions();
        self.links.iter_mut().for_each(|link| link.data_shards_used = false);
        for (shard, before) in before {
            let Some(after) = self.lane_of_shard(shard) else { continue };
            let link = self.link_at(before);
            if before != after {
                changed.left.extend(link);
            }
            if old.as_ref().is_some_and(|old| old.place(shard).term != map.place(shard).term) {
                changed.restarted.extend(link);
                changed.restarted_servers.insert(before.server_index);
            }
            if before.server_index != after.server_index
                && let Some(index) = self.session_index(shard)
                && let Some(session) = self.sessions.get_mut(index)
            {
                session.set_moved();
            }
        }
        let without_lane = (0..self.links.len()).filter(|link_index| !self.has_lane(*link_index));
        changed.left.extend(without_lane);
        changed.left.sort_unstable();
        changed.left.dedup();
        changed.restarted.sort_unstable();
        changed.restarted.dedup();
        changed
    }

    /// Adds the server with this id if it is new, and notes its address, and whether it had another one
    /// before.
    fn server_to(&mut self, id: ServerId, (address, has_moved): (ServerAddress, bool)) -> usize {
        let server_index = self.by_id.get(&id).copied().unwrap_or(self.list.len());
        match server_index {
            // The address that the client was started with was right, and may lead there still.
            INITIAL if has_moved => self.list[INITIAL].moved_to = Some(address),
            INITIAL => {}
            _ if server_index == self.list.len() => {
                self.by_id.insert(id, server_index);
                self.list.push(Server::new(Some(id), address));
            }
            _ => self.list[server_index].address = address,
        }
        server_index
    }

    /// The link to a server that may know where the one of another link is; `None` if one of the others
    /// is connected, since it would tell. `random` is any number.
    pub(crate) fn link_to_another(&mut self, link_index: usize, random: u64) -> Option<usize> {
        let missing = self.links.get(link_index)?.server_index();
        if self.links.iter().any(|link| link.server_index() != missing && link.is_up()) {
            return None;
        }
        let rows = self.map.as_ref()?.servers().iter();
        let others = rows.filter_map(|row| self.index_of(row.id)).filter(|index| *index != missing);
        let others: Vec<usize> = others.collect();
        let count = u64::try_from(others.len()).ok().filter(|count| *count > 0)?;
        let chosen = usize::try_from(random % count).ok()?;
        Some(self.link_to(At { server_index: *others.get(chosen)?, lane: LaneId(0) }))
    }

    /// Makes the sessions that the map and the links need.
    fn add_sessions(&mut self) {
        let counts = self.map.as_ref().map(Map::shard_counts);
        let (metas, datas) = counts.map_or((0, 0), |counts| (counts.meta, counts.data));
        let wanted = [usize::from(metas), usize::from(datas), self.links.len()];
        let known = [&mut self.meta_sessions, &mut self.data_sessions, &mut self.link_sessions];
        for (indices, count) in known.into_iter().zip(wanted) {
            while indices.len() < count {
                let session_index = self.sessions.len();
                indices.push(session_index);
                // Random, and far from the largest number.
                let random = self.xid_seed.hash_one(session_index);
                self.sessions.push(Session::new((random >> 2) | (1 << 61)));
            }
        }
    }

    /// Whether the map has the lane of a link.
    pub(crate) fn has_lane(&self, link_index: usize) -> bool {
        let Some(link) = self.links.get(link_index) else { return false };
        let id = self.list.get(link.server_index()).and_then(|server| server.id);
        let lane_count = id.zip(self.map.as_ref()).and_then(|(id, map)| map.lane_count(id));
        lane_count.is_some_and(|lane_count| link.lane().0 < lane_count)
    }

    /// The link to a lane of the same server as that of another link.
    pub(crate) fn link_beside(&mut self, link_index: usize, lane: LaneId) -> Option<usize> {
        let server_index = self.links.get(link_index)?.server_index();
        let id = self.list.get(server_index)?.id?;
        let lane_count = self.map.as_ref()?.lane_count(id)?;
        (lane.0 < lane_count).then(|| self.link_to(At { server_index, lane }))
    }

    /// The link to a lane, which is added if it is new.
    fn link_to(&mut self, at: At) -> usize {
        if let Some(known) = self.link_at(at) {
            return known;
        }
        let link_index = self.links.len();
        self.links.push(Link::new(at.server_index, at.lane));
        self.list[at.server_index].set_link(at.lane, link_index);
        self.add_sessions();
        link_index
    }

    fn link_at(&self, at: At) -> Option<usize> {
        self.list.get(at.server_index)?.link(at.lane)
    }

    /// The lane that has a shard.
    fn lane_of_shard(&self, shard: ShardId) -> Option<At> {
        let place = self.map.as_ref()?.place(shard);
        Some(At { server_index: self.index_of(place.server)?, lane: place.lane })
    }

    fn index_of(&self, id: ServerId) -> Option<usize> {
        // Mostly the only server.
        if self.list[INITIAL].id == Some(id) {
            return Some(INITIAL);
        }
        self.by_id.get(&id).copied()
    }

    /// The link to a shard's lane, if anything was ever sent there.
    pub(crate) fn link_of_shard(&self, shard: ShardId) -> Option<usize> {
        self.link_at(self.lane_of_shard(shard)?)
    }

    /// Whether the first part of an inode's contents is at the lane of this shard.
    pub(crate) fn has_contents_at(&self, inode: InodeNo, shard: ShardId) -> bool {
        let data_shard = self.map.as_ref().map(|map| map.data_shard(inode, 0));
        data_shard.is_some_and(|data| self.lane_of_shard(data) == self.lane_of_shard(shard))
    }

    /// The links to the first lanes of all servers.
    pub(crate) fn first_lanes(&mut self) -> Vec<usize> {
        let rows = self.map.iter().flat_map(|map| map.servers());
        let indices: Vec<_> = rows.filter_map(|row| self.index_of(row.id)).collect();
        let first = |server_index| At { server_index, lane: LaneId(0) };
        indices.into_iter().map(|server_index| self.link_to(first(server_index))).collect()
    }

    /// The links to all lanes that may have a session of this client lane; of this server, if one is
    /// named.
    pub(crate) fn known_lanes(&mut self, server_index: Option<usize>) -> Vec<usize> {
        let used = self
            .shards()
            .filter(|(_, index)| self.sessions.get(*index).is_some_and(|session| session.used));
        let lanes = used.filter_map(|(shard, _)| self.lane_of_shard(shard));
        let lanes: BTreeSet<At> =
            lanes.filter(|at| server_index.is_none_or(|of| of == at.server_index)).collect();
        lanes.into_iter().map(|at| self.link_to(at)).collect()
    }

    /// Whether the server of a link has a shard.
    pub(crate) fn is_at_server(&self, shard: ShardId, link_index: usize) -> bool {
        let server = self.links.get(link_index).map(Link::server_index);
        self.lane_of_shard(shard).map(|at| at.server_index) == server
    }

    /// The link to an inode's metadata shard, if anything was ever sent to its lane.
    pub(crate) fn link_of_inode(&self, inode: InodeNo) -> Option<usize> {
        self.link_of_shard(inode.shard())
    }

    /// The server of an inode's metadata shard.
    pub(crate) fn server_of_inode(&self, inode: InodeNo) -> usize {
        self.server_of_shard(inode.shard())
    }

    /// The server of a shard.
    pub(crate) fn server_of_shard(&self, shard: ShardId) -> usize {
        self.lane_of_shard(shard).map_or(INITIAL, |at| at.server_index)
    }

    /// Where a request goes; `None` for a shard that there is not. The map must be known. Its link is
    /// added if it is new.
    pub(crate) fn destination(
        &mut self,
        op: Op,
        target: Target,
        layout: Option<Layout>,
    ) -> Option<Destination> {
        let map = self.map.as_ref()?;
        let shard = match target {
            Target::Inode(inode) => owner(map, op, inode, (layout, 0))?,
            Target::Contents(inode, first_byte) => owner(map, op, inode, (layout, first_byte))?,
            Target::MetaShard(inode) => owner(map, Op::Getattr, inode, (layout, 0))?,
            Target::DataShard(inode) => owner(map, Op::Glimpse, inode, (layout, 0))?,
            Target::Shard(shard) => Some(shard).filter(|shard| map.has(*shard))?,
            Target::Lane(lane) => {
                let lane = LaneId(lane.0 % map.lane_count(self.initial().id?)?);
                let link_index = self.link_to(At { server_index: INITIAL, lane });
                return Some(self.to_lane(link_index));
            }
            // A lane that is no more has no leases to keep.
            Target::Link(link_index) => {
                return self.has_lane(link_index).then(|| self.to_lane(link_index));
            }
        };
        let session_index = self.session_index(shard)?;
        let at = self.lane_of_shard(shard)?;
        Some(Destination { shard, session_index, link_index: self.link_to(at) })
    }

    fn to_lane(&self, link_index: usize) -> Destination {
        let session_index = self.lane_session_index(link_index);
        Destination { shard: ShardId(0), session_index, link_index }
    }

    /// The session of a shard of the map.
    pub(crate) fn session_index(&self, shard: ShardId) -> Option<usize> {
        let indices = if shard.is_data() { &self.data_sessions } else { &self.meta_sessions };
        indices.get(usize::from(shard.index())).copied()
    }

    /// The session for requests to a link's lane itself.
    pub(crate) fn lane_session_index(&self, link_index: usize) -> usize {
        self.link_sessions.get(link_index).copied().unwrap_or(usize::MAX)
    }

    /// All shards with the indices of their sessions.
    pub(crate) fn shards(&self) -> impl Iterator<Item = (ShardId, usize)> + use<> {
        let counts = self.map.as_ref().map(Map::shard_counts);
        let shards = counts.into_iter().flat_map(ShardCounts::shards);
        let all: Vec<_> =
            shards.filter_map(|shard| Some((shard, self.session_index(shard)?))).collect();
        all.into_iter()
    }

    /// The shards of a link's lane with the indices of their sessions.
    pub(crate) fn sessions_of(&self, link_index: usize) -> Vec<(ShardId, usize)> {
        let Some(link) = self.links.get(link_index) else { return Vec::new() };
        let id = self.list.get(link.server_index()).and_then(|server| server.id);
        let Some((id, map)) = id.zip(self.map.as_ref()) else { return Vec::new() };
        let shards = map.lane_shards(id, link.lane());
        shards.filter_map(|shard| Some((shard, self.session_index(shard)?))).collect()
    }

    /// The lanes with metadata shards, each by its first shard; the first lanes of all servers come
    /// first, and their number.
    pub(crate) fn meta_lanes(&self) -> (Vec<ShardId>, usize) {
        let mut lanes: BTreeMap<At, ShardId> = BTreeMap::new();
        for (shard, _) in self.shards().filter(|(shard, _)| !shard.is_data()) {
            if let Some(at) = self.lane_of_shard(shard) {
                lanes.entry(at).or_insert(shard);
            }
        }
        let mut servers = BTreeSet::new();
        let (firsts, others): (Vec<_>, Vec<_>) =
            lanes.into_iter().partition(|(at, _)| servers.insert(at.server_index));
        let server_count = firsts.len();
        (firsts.into_iter().chain(others).map(|(_, shard)| shard).collect(), server_count)
    }

    /// Whether the server that the client was started with has this shard.
    pub(crate) fn is_at_initial(&self, shard: ShardId) -> bool {
        self.lane_of_shard(shard).is_some_and(|at| at.server_index == INITIAL)
    }

    /// A change of contents leaves over a link: the server may record the session at each data shard
    /// of its lane.
    pub(crate) fn use_data_shards(&mut self, link_index: usize) {
        let Some(link) = self.links.get_mut(link_index) else { return };
        let boot_id = link.boot_id;
        if core::mem::replace(&mut link.data_shards_used, true) {
            return;
        }
        for (_, index) in
            self.sessions_of(link_index).into_iter().filter(|(shard, _)| shard.is_data())
        {
            if let Some(session) = self.sessions.get_mut(index) {
                session.set_used(boot_id);
            }
        }
    }

    /// Whether one of a lane's shards may have a session of this client lane.
    pub(crate) fn is_known_at(&self, link_index: usize) -> bool {
        let mut sessions = self.sessions_of(link_index).into_iter();
        sessions.any(|(_, index)| self.sessions.get(index).is_some_and(|session| session.used))
    }

    /// Since when a wanted connection is missing.
    pub(crate) const fn waiting_since(&self) -> Option<Mono> {
        self.waiting_since
    }

    /// A wanted connection is missing from `now` on.
    pub(crate) fn wait_since(&mut self, now: Mono) {
        self.waiting_since = self.waiting_since.or(Some(now));
    }

    /// No connection is missing.
    pub(crate) const fn end_waiting(&mut self) {
        self.waiting_since = None;
    }

    /// A handle or lock is being registered at a server.
    pub(crate) fn begin_registering(&mut self, server_index: usize) {
        if let Some(server) = self.list.get_mut(server_index) {
            server.registering_count += 1;
        }
    }

    /// The registration has ended.
    pub(crate) fn end_registering(&mut self, server_index: usize) {
        if let Some(server) = self.list.get_mut(server_index) {
            server.registering_count -= 1;
        }
    }
}

/// The shard for a request about `inode`; `None` for inode numbers that no shard assigns.
fn owner(map: &Map, op: Op, inode: InodeNo, first_byte: (Option<Layout>, u64)) -> Option<ShardId> {
    let exists = inode.count() > 0 && map.has(inode.shard());
    map.shard(op, inode, first_byte).filter(|_| exists)
}
