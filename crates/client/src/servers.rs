//! The servers of the file system: what each has said of itself, the connections to its lanes, and
//! the sessions at its shards.
//!
//! A link is the connection to one lane of one server; its position never changes, so a lane that a
//! later map lacks leaves an idle link behind. Sessions are ordered: metadata shards, data shards,
//! then one for each link, for requests to the lane itself. A server's restart concerns its own
//! links and the sessions at its shards, and nothing else.

use crate::link::{Link, LinkState};
use crate::plan::Target;
use crate::session::Session;
use alloc::vec;
use alloc::vec::Vec;
use interface::{ConnId, Mono, Ticket};
use wire::{
    InodeNo, LaneId, Layout, Map, MapEpoch, Op, ServerAddress, ServerId, SessionId, ShardCounts,
    ShardId, Welcome, welcome_flag,
};

/// The server that the client was started with.
pub(crate) const INITIAL: usize = 0;

/// One server, as its last Welcome described it.
#[derive(Debug)]
pub(crate) struct Server {
    /// Known from the first map on.
    id: Option<ServerId>,
    address: ServerAddress,
    /// 0: it has sent no Welcome yet.
    boot_id: u64,
    session: SessionId,
    slot_count: u16,
    root_trusted: bool,
    read_only: bool,
    ids_replaced: bool,
    /// Handles and locks being registered after a restart; while there are any, no other request is
    /// sent to this server.
    registering_count: usize,
}

impl Server {
    const fn new(id: Option<ServerId>, address: ServerAddress) -> Self {
        Self {
            id,
            address,
            boot_id: 0,
            session: SessionId(0),
            slot_count: 1,
            root_trusted: false,
            read_only: false,
            ids_replaced: false,
            registering_count: 0,
        }
    }

    pub(crate) const fn boot_id(&self) -> u64 {
        self.boot_id
    }

    pub(crate) const fn session(&self) -> SessionId {
        self.session
    }

    pub(crate) const fn slot_count(&self) -> u16 {
        self.slot_count
    }

    pub(crate) const fn is_root_trusted(&self) -> bool {
        self.root_trusted
    }

    pub(crate) const fn are_ids_replaced(&self) -> bool {
        self.ids_replaced
    }

    pub(crate) const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether handles or locks are being registered.
    pub(crate) const fn is_registering(&self) -> bool {
        self.registering_count > 0
    }

    /// Applies a Welcome's fields about the server; true if it has restarted since the last one.
    fn welcomed(&mut self, welcome: &Welcome) -> bool {
        let restarted = self.boot_id != 0 && self.boot_id != welcome.boot_id;
        self.boot_id = welcome.boot_id;
        self.session = welcome.session;
        self.slot_count = welcome.slot_count;
        self.root_trusted = welcome.flags & welcome_flag::ROOT_TRUSTED != 0;
        self.read_only = welcome.flags & welcome_flag::READ_ONLY != 0;
        self.ids_replaced = welcome.flags & welcome_flag::IDS_REPLACED != 0;
        restarted
    }
}

/// What another map means for the links of before.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Links whose lanes have lost a shard, or are no more.
    pub(crate) left: Vec<usize>,
    /// Links to shards that have another term.
    pub(crate) restarted: Vec<usize>,
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
    links: Vec<Link>,
    sessions: Vec<Session>,
    /// By index of a metadata shard, of a data shard, and of a link: which session. A session keeps
    /// its place when a map brings more shards.
    meta_sessions: Vec<usize>,
    data_sessions: Vec<usize>,
    link_sessions: Vec<usize>,
    conn_epoch_last: u32,
    ticket_last: u64,
    /// Since when a wanted connection is missing.
    waiting_since: Option<Mono>,
}

impl Servers {
    /// The server that the client was started with, and a link to its first lane.
    pub(crate) fn new() -> Self {
        Self {
            map: None,
            list: vec![Server::new(None, ServerAddress::Initial)],
            links: vec![Link::new(INITIAL, LaneId(0))],
            sessions: Vec::new(),
            meta_sessions: Vec::new(),
            data_sessions: Vec::new(),
            link_sessions: Vec::new(),
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
        let address = self.list.get(link.server_index())?.address;
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
        *server.id.get_or_insert(id) == id
    }

    /// Replaces the map. Returns the links whose lanes have lost a shard, or a term of one, or are
    /// no more: what was sent to them goes elsewhere now. `random` makes the first xids of new
    /// sessions.
    pub(crate) fn set_map(&mut self, map: Map, random: impl FnMut() -> u64) -> Changed {
        let shards = self.shards().map(|(shard, _)| shard);
        let before: Vec<_> = shards.map(|shard| (shard, self.link_of_shard(shard))).collect();
        let old = self.map.replace(map.clone());
        for row in map.servers() {
            let server_index = self.server_to(row.id, row.address);
            for lane in (0..row.lane_count).map(LaneId) {
                self.link_to(server_index, lane);
            }
        }
        self.add_sessions(random);
        self.links.iter_mut().for_each(|link| link.data_shards_used = false);
        let mut changed = Changed::default();
        for (shard, before) in before {
            let (Some(before), Some(after)) = (before, self.link_of_shard(shard)) else { continue };
            if before != after {
                changed.left.push(before);
            }
            if old.as_ref().is_some_and(|old| old.place(shard).term != map.place(shard).term) {
                changed.restarted.push(before);
            }
            let server_of = |link_index| self.links.get(link_index).map(Link::server_index);
            if server_of(before) != server_of(after)
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

    /// The server with this id, which is added if it is new.
    fn server_to(&mut self, id: ServerId, address: ServerAddress) -> usize {
        let known = self.list.iter().position(|server| server.id == Some(id));
        let Some(server_index) = known else {
            self.list.push(Server::new(Some(id), address));
            return self.list.len() - 1;
        };
        // The address that the client was started with is known to be right.
        if let Some(server) = self.list.get_mut(server_index)
            && server_index != INITIAL
        {
            server.address = address;
        }
        server_index
    }

    /// Makes the sessions that the map and the links need.
    fn add_sessions(&mut self, mut random: impl FnMut() -> u64) {
        let counts = self.map.as_ref().map(Map::shard_counts);
        let (metas, datas) = counts.map_or((0, 0), |counts| (counts.meta, counts.data));
        let wanted = [usize::from(metas), usize::from(datas), self.links.len()];
        let known = [&mut self.meta_sessions, &mut self.data_sessions, &mut self.link_sessions];
        for (indices, count) in known.into_iter().zip(wanted) {
            while indices.len() < count {
                indices.push(self.sessions.len());
                // Random, and far from the largest number.
                self.sessions.push(Session::new((random() >> 2) | (1 << 61)));
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
    pub(crate) fn link_beside(&self, link_index: usize, lane: LaneId) -> Option<usize> {
        let server_index = self.links.get(link_index)?.server_index();
        let found = self.find_link(server_index, lane)?;
        self.has_lane(found).then_some(found)
    }

    /// The link to a lane, which is added if it is new.
    fn link_to(&mut self, server_index: usize, lane: LaneId) -> usize {
        self.find_link(server_index, lane).unwrap_or_else(|| {
            self.links.push(Link::new(server_index, lane));
            self.links.len() - 1
        })
    }

    fn index_of(&self, id: ServerId) -> Option<usize> {
        let is_it = |server: &Server| server.id == Some(id);
        if self.list.first().is_some_and(is_it) {
            return Some(INITIAL);
        }
        self.list.iter().position(is_it)
    }

    fn find_link(&self, server_index: usize, lane: LaneId) -> Option<usize> {
        // Mostly the only server's links, in order.
        let is_it = |link: &Link| link.server_index() == server_index && link.lane() == lane;
        let at = usize::from(lane.0);
        if self.links.get(at).is_some_and(is_it) {
            return Some(at);
        }
        self.links.iter().position(is_it)
    }

    /// The link to a shard's lane.
    pub(crate) fn link_of_shard(&self, shard: ShardId) -> Option<usize> {
        let place = self.map.as_ref()?.place(shard);
        self.find_link(self.index_of(place.server)?, place.lane)
    }

    /// Whether the server of a link has a shard.
    pub(crate) fn is_at_server(&self, shard: ShardId, link_index: usize) -> bool {
        let server_of = |link_index: usize| self.links.get(link_index).map(Link::server_index);
        self.link_of_shard(shard).and_then(server_of) == server_of(link_index)
    }

    /// The link to an inode's metadata shard.
    pub(crate) fn link_of_inode(&self, inode: InodeNo) -> Option<usize> {
        self.link_of_shard(inode.shard())
    }

    /// The server of an inode's metadata shard.
    pub(crate) fn server_of_inode(&self, inode: InodeNo) -> usize {
        let link = self.link_of_inode(inode).and_then(|link_index| self.links.get(link_index));
        link.map_or(INITIAL, Link::server_index)
    }

    /// Where a request goes; `None` for a shard that there is not. The map must be known.
    pub(crate) fn destination(
        &self,
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
                let lane_count = map.lane_count(self.initial().id?)?;
                let link_index = self.find_link(INITIAL, LaneId(lane.0 % lane_count))?;
                return Some(self.to_lane(link_index));
            }
            // A lane that is no more has no leases to keep.
            Target::Link(link_index) => {
                return self.has_lane(link_index).then(|| self.to_lane(link_index));
            }
        };
        let session_index = self.session_index(shard)?;
        Some(Destination { shard, session_index, link_index: self.link_of_shard(shard)? })
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
        let all = self.shards();
        all.filter(|(shard, _)| self.link_of_shard(*shard) == Some(link_index)).collect()
    }

    /// The lanes with metadata shards, each by its first shard; the first lanes of all servers come
    /// first, and their number.
    pub(crate) fn meta_lanes(&self) -> (Vec<ShardId>, usize) {
        let mut lanes: Vec<(usize, ShardId)> = Vec::new();
        for (shard, _) in self.shards().filter(|(shard, _)| !shard.is_data()) {
            let Some(link_index) = self.link_of_shard(shard) else { continue };
            if lanes.iter().all(|(known, _)| *known != link_index) {
                lanes.push((link_index, shard));
            }
        }
        let server_of = |link_index| self.links.get(link_index).map(Link::server_index);
        let mut firsts: Vec<(Option<usize>, ShardId)> = Vec::new();
        let mut others = Vec::new();
        for (link_index, shard) in lanes {
            let server_index = server_of(link_index);
            if firsts.iter().any(|(known, _)| *known == server_index) {
                others.push(shard);
            } else {
                firsts.push((server_index, shard));
            }
        }
        let server_count = firsts.len();
        (firsts.into_iter().map(|(_, shard)| shard).chain(others).collect(), server_count)
    }

    /// Whether the server that the client was started with has this shard.
    pub(crate) fn is_at_initial(&self, shard: ShardId) -> bool {
        let link = self.link_of_shard(shard).and_then(|link_index| self.links.get(link_index));
        link.is_some_and(|link| link.server_index() == INITIAL)
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
