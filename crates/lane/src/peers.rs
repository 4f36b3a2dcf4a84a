//! Messages between lanes, of one server or of several: one place sends them, one receives them.
//!
//! A message is for a shard; the map says which lane has it. One to a shard of the same lane takes
//! the same way without an encoding. Others go through the channel to that lane, which delivers
//! them once and in order: to lanes of the same server over mailboxes, to others over a connection
//! ([`link`]). Without a connection nothing is sent: when there is one again, both sides say what
//! the other must know ([`restate`]). What does not decode is a bug of the sender: it is counted and
//! logged, and nothing that this lane sends later is applied, so that requests that depend on it
//! stop rather than see half of a change.
//!
//! While a message is not acknowledged that replies must not overtake, all of them wait, or those that
//! concern one file ([`PeerBody::barrier`], [`crate::telling`]).

pub(crate) mod channel;
mod channels;
pub(crate) mod containment;
mod link;
pub(crate) mod message;
mod restate;
pub(crate) mod tagged;

use crate::Lane;
use crate::config::Limits;
use crate::request::{Asked, Sizing};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use channel::{Channel, Leaving, Receipt};
use channels::Channels;
use interface::{ConnId, LogLevel, Mono, NetAction, PeerAction, Span, Turn};
use link::{Links, Way};
use message::{Barrier, Bits, Envelope, ExportDefinition, PeerBody, PeerMessage};
use wire::{
    Header, InodeNo, LaneId, Map, PeerCounts, PeerLane, Rule, ShardId, Term, Wire as _, Writer,
};

/// Beyond so many messages that a peer lane has not acknowledged, clients' changes are refused for
/// a while.
const UNACKNOWLEDGED_COUNT_MAX: usize = 8192;
/// A lane that ends waits so long for transactions of other lanes. What they have prepared is
/// resolved by the next start.
const STOP_MS_MAX: u64 = 2000;

/// This lane's side of the messages between lanes.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    channels: Channels,
    /// The lanes of other servers.
    links: Links,
    /// Lanes of this server that have sent what does not decode.
    broken: BTreeSet<PeerLane>,
    /// The files of which lanes of other servers have told over their present connections that they
    /// have privileged bits.
    bits: BTreeMap<PeerLane, BTreeSet<InodeNo>>,
    counts: PeerCounts,
    /// The number of messages so far that replies wait for.
    barrier_count: u64,
    /// Replies that wait, each with the last barrier before it.
    deferred: VecDeque<(u64, ConnId, Vec<u8>)>,
    /// When the lane ends without waiting any longer.
    stop_at: Option<Mono>,
    /// Scratch: a received message, and a body to be sent.
    received: Vec<u8>,
    body: Vec<u8>,
}

impl Peers {
    /// Those of a lane.
    pub(crate) fn new(me: PeerLane, map: &Map) -> Self {
        Self { links: Links::new(me, map), ..Self::default() }
    }

    pub(crate) const fn counts(&self) -> PeerCounts {
        self.counts
    }

    /// The next sending, or the end of the wait of a lane that ends.
    pub(crate) fn deadline(&self, now: Mono) -> Option<Mono> {
        let channels = self.channels.busy().filter_map(|(_, channel)| channel.due_at());
        let stop_at = self.stop_at.filter(|at| *at > now);
        channels.chain(stop_at).chain(self.links.deadline()).min()
    }

    /// Whether a peer lane has not acknowledged all messages.
    pub(crate) fn is_waiting(&self) -> bool {
        self.channels.busy().any(|(_, channel)| channel.unacknowledged_count() > 0)
    }

    /// Whether a peer lane is so far behind that this lane makes no more changes for clients.
    pub(crate) fn is_full(&self) -> bool {
        let counts = self.channels.busy().map(|(_, channel)| channel.unacknowledged_count());
        counts.max().is_some_and(|count| count > UNACKNOWLEDGED_COUNT_MAX)
    }

    /// Whether a lane that ends has waited long enough for others.
    pub(crate) fn ends_waiting(&mut self, now: Mono) -> bool {
        *self.stop_at.get_or_insert(now.after_ms(STOP_MS_MAX)) <= now
    }

    /// Whether replies have to wait.
    pub(crate) fn defers_replies(&self) -> bool {
        !self.deferred.is_empty() || self.barrier().is_some()
    }

    /// Defers a reply until all barriers so far are acknowledged.
    pub(crate) fn defer(&mut self, conn: ConnId, frame: Vec<u8>) {
        self.deferred.push_back((self.barrier_count, conn, frame));
    }

    /// The first barrier that a peer lane has not acknowledged.
    fn barrier(&self) -> Option<u64> {
        self.channels.busy().filter_map(|(_, channel)| channel.barrier()).min()
    }
}

/// Puts a message on its way.
fn transmit(
    turn: &mut Turn<'_>,
    (way, envelope): (Way, Envelope),
    Leaving { sequence, body }: Leaving<'_>,
    acknowledged: u64,
) {
    let put = |writer: &mut Writer<'_>| {
        writer.write(&Envelope { sequence, acknowledged, ..envelope });
        writer.put(body);
    };
    match way {
        Way::Mailbox(to) => {
            let body = turn.arena.write(|out| put(&mut Writer::new(out)));
            turn.act(PeerAction::Send { to, body });
        }
        Way::Conn(conn) => {
            let frame = turn.arena.write(|out| Header::PeerMessage.encode(out, None, put));
            turn.act(NetAction::Send { conn, frame, bulk: None });
        }
    }
}

impl Lane {
    /// This lane.
    pub(crate) const fn me(&self) -> PeerLane {
        PeerLane { server: self.config.server, lane: self.config.lane }
    }

    /// The lane that has a shard.
    pub(crate) fn lane_of(&self, shard: ShardId) -> PeerLane {
        let place = self.config.map.place(shard);
        PeerLane { server: place.server, lane: place.lane }
    }

    /// Whether messages to the lane that has a shard arrive: it is of this server, or there is a
    /// connection to it.
    pub(crate) fn is_reachable(&self, shard: ShardId) -> bool {
        self.way_to(self.lane_of(shard)).is_some()
    }

    /// Whether there are other lanes.
    pub(crate) fn has_peers(&self) -> bool {
        self.config.lane_count() > 1 || !self.peers.links.is_alone()
    }

    fn way_to(&self, lane: PeerLane) -> Option<Way> {
        if lane.server == self.config.server {
            return Some(Way::Mailbox(lane.lane));
        }
        self.peers.links.conn_to(lane).map(Way::Conn)
    }

    /// Sends a message to the lane that has this shard. One to this lane is applied at once, or
    /// queued if it is about a transaction.
    pub(crate) fn send_to_shard(&mut self, turn: &mut Turn<'_>, to: ShardId, body: &PeerBody<'_>) {
        let lane = self.lane_of(to);
        if lane != self.me() {
            return self.send_to_lane(turn, lane, body);
        }
        if let PeerBody::Txn { message } = body {
            self.queue_for_self(message);
        } else {
            self.apply_message(turn, lane, body);
        }
    }

    /// Sends a message to every other lane of this server.
    pub(crate) fn send_to_own_lanes(&mut self, turn: &mut Turn<'_>, body: &PeerBody<'_>) {
        for lane in (0..self.config.lane_count()).map(LaneId) {
            if lane != self.config.lane {
                let server = self.config.server;
                self.send_to_lane(turn, PeerLane { server, lane }, body);
            }
        }
    }

    /// The other lanes that messages arrive at.
    pub(crate) fn reachable_lanes(&self) -> Vec<PeerLane> {
        let (server, me) = (self.config.server, self.config.lane);
        let own = (0..self.config.lane_count()).map(LaneId).filter(|lane| *lane != me);
        let own = own.map(|lane| PeerLane { server, lane });
        let links = &self.peers.links;
        let others = links.all().into_iter().filter(|lane| links.conn_to(*lane).is_some());
        own.chain(others).collect()
    }

    /// Sends a message to every other lane of all servers.
    pub(crate) fn send_to_peer_lanes(&mut self, turn: &mut Turn<'_>, body: &PeerBody<'_>) {
        self.send_to_own_lanes(turn, body);
        self.send_to_remote_lanes(turn, body);
    }

    /// Sends a message to every lane of the other servers.
    pub(crate) fn send_to_remote_lanes(&mut self, turn: &mut Turn<'_>, body: &PeerBody<'_>) {
        for lane in self.peers.links.all() {
            self.send_to_lane(turn, lane, body);
        }
    }

    pub(crate) fn send_to_lane(
        &mut self,
        turn: &mut Turn<'_>,
        lane: PeerLane,
        body: &PeerBody<'_>,
    ) {
        let is_away = self.way_to(lane).is_none();
        match body.barrier() {
            Some(Barrier::Replies) => {
                self.peers.barrier_count += 1;
                let number = self.peers.barrier_count;
                self.channel(lane).await_barrier(number, is_away);
            }
            Some(Barrier::Inode(inode)) => {
                if self.config.rules.hold(body.telling_rule()) {
                    self.telling.begin(inode);
                }
                self.channel(lane).await_told(inode, is_away);
            }
            None => {}
        }
        self.push_to_lane(turn, lane, body);
    }

    fn push_to_lane(&mut self, turn: &mut Turn<'_>, lane: PeerLane, body: &PeerBody<'_>) {
        let now = turn.now.mono;
        let (way, envelope) = (self.way_to(lane), self.envelope_to(lane));
        let gathers_until = body.is_patient().then(|| self.patience_ends(now));
        let peers = &mut self.peers;
        let channel = peers.channels.to(lane);
        // Without a connection: the next one begins with what it must know.
        let Some(way) = way else { return };
        peers.counts.sent_count += 1;
        peers.body.clear();
        body.encode(&mut Writer::new(&mut peers.body));
        channel.push(&peers.body, gathers_until);
        channel.leave(now, &mut |leaving, acknowledged| {
            transmit(turn, (way, envelope), leaving, acknowledged);
        });
    }

    /// When a message leaves at the latest that nothing waits for, of what has happened now. At
    /// certain times of the clock: those for all lanes leave in the same turn, and those of the
    /// servers of a host at the same time.
    fn patience_ends(&self, now: Mono) -> Mono {
        let Limits { message_ms, .. } = self.config.limits;
        if message_ms == 0 || self.is_stopping() {
            return now;
        }
        let span_ns = Mono(0).after_ms(message_ms).0;
        Mono((now.0 / span_ns).saturating_add(1).saturating_mul(span_ns))
    }

    /// When a message is acknowledged at the latest that is received now.
    fn acknowledge_at(&self, now: Mono, body: &PeerBody<'_>) -> Mono {
        if body.barrier().is_some() { now } else { self.patience_ends(now) }
    }

    /// The envelope of a message to a lane, without its numbers.
    fn envelope_to(&self, to: PeerLane) -> Envelope {
        let (from, from_term) = (self.me(), Term::of_boot(self.config.boot_id));
        Envelope { from, from_term, to, sequence: 0, acknowledged: 0 }
    }

    /// Bytes of a lane of this server.
    pub(crate) fn on_received(&mut self, turn: &mut Turn<'_>, from: LaneId, body: Span) {
        let from = PeerLane { server: self.config.server, lane: from };
        if self.peers.broken.contains(&from) {
            self.peers.counts.refused_count += 1;
            return;
        }
        let mut received = core::mem::take(&mut self.peers.received);
        received.clear();
        received.extend_from_slice(turn.arena.get(body));
        if let Err(reason) = self.receive(turn, from, &received) {
            self.break_channel(turn, from, &reason);
        }
        self.peers.received = received;
    }

    fn channel(&mut self, lane: PeerLane) -> &mut Channel {
        self.peers.channels.to(lane)
    }

    /// Applies a message, and those that waited for it. An error: it is none of that lane's.
    fn receive(
        &mut self,
        turn: &mut Turn<'_>,
        from: PeerLane,
        received: &[u8],
    ) -> Result<(), alloc::string::String> {
        let PeerMessage { envelope, body } =
            PeerMessage::decode_all(received).map_err(|reason| format!("{reason:?}"))?;
        if envelope.from != from || envelope.to != self.me() {
            return Err("it is of or for another lane".into());
        }
        self.on_acknowledged(turn, from, envelope.acknowledged);
        if envelope.sequence == 0 {
            return Ok(());
        }
        let now = turn.now.mono;
        let at = self.acknowledge_at(now, &body);
        let receipt = self.channel(from).receive(envelope.from_term, envelope.sequence, at);
        let once = self.config.rules.hold(Rule::PeerOnce);
        match receipt {
            Receipt::Next => self.apply_message(turn, from, &body),
            Receipt::Early => self.channel(from).keep(envelope.sequence, received),
            Receipt::Repeated | Receipt::Refused => {
                self.peers.counts.repeated_count += 1;
                if !once && receipt == Receipt::Repeated {
                    self.apply_message(turn, from, &body);
                }
            }
        }
        while let Some(early) = self.channel(from).next_early() {
            let message =
                PeerMessage::decode_all(&early).map_err(|reason| format!("{reason:?}"))?;
            let at = self.acknowledge_at(now, &message.body);
            self.channel(from).acknowledge_by(at);
            self.apply_message(turn, from, &message.body);
        }
        Ok(())
    }

    fn break_channel(&mut self, turn: &mut Turn<'_>, from: PeerLane, reason: &str) {
        self.peers.broken.insert(from);
        self.peers.counts.refused_count += 1;
        let lane = from.lane;
        let line = format!(
            "bug: a message of lane {lane} does not decode ({reason}); nothing from that lane is \
             applied any more"
        );
        self.log(turn, LogLevel::Alarm, &line);
    }

    /// A peer lane has received all up to here: the messages behind them and the replies that
    /// waited leave.
    fn on_acknowledged(&mut self, turn: &mut Turn<'_>, from: PeerLane, sequence: u64) {
        let (now, way, envelope) = (turn.now.mono, self.way_to(from), self.envelope_to(from));
        let Some(way) = way else { return };
        let channel = self.channel(from);
        let told = channel.on_acknowledged(now, sequence);
        channel.leave(now, &mut |leaving, acknowledged| {
            transmit(turn, (way, envelope), leaving, acknowledged);
        });
        self.send_deferred(turn);
        self.on_told(turn, told);
    }

    /// Sends the replies that no barrier holds any more.
    fn send_deferred(&mut self, turn: &mut Turn<'_>) {
        let until = self.peers.barrier().unwrap_or(u64::MAX);
        while self.peers.deferred.front().is_some_and(|(barrier, ..)| *barrier < until) {
            let Some((_, conn, frame)) = self.peers.deferred.pop_front() else { break };
            let frame = turn.arena.put(&frame);
            turn.act(NetAction::Send { conn, frame, bulk: None });
        }
    }

    /// At the end of a turn: sends what has gathered, and again what was not acknowledged in time, and
    /// acknowledges what no message has acknowledged.
    pub(crate) fn settle_peers(&mut self, turn: &mut Turn<'_>) {
        if !self.peers.links.is_alone() {
            self.settle_links(turn);
        }
        let (now, me, boot_id) = (turn.now.mono, self.me(), self.config.boot_id);
        let resends = self.config.rules.hold(Rule::PeerResend);
        let hurries = self.is_stopping();
        let Peers { channels, counts, body, links, .. } = &mut self.peers;
        channels.settle(|lane, channel| {
            let is_own = lane.server == me.server;
            let way = if is_own { Some(Way::Mailbox(lane.lane)) } else { links.way_to(lane) };
            let Some(way) = way else { return };
            let envelope = Envelope {
                from: me,
                from_term: Term::of_boot(boot_id),
                to: lane,
                sequence: 0,
                acknowledged: 0,
            };
            if hurries {
                channel.hurry();
            }
            channel.leave(now, &mut |leaving, acknowledged| {
                transmit(turn, (way, envelope), leaving, acknowledged);
            });
            // A connection loses nothing, but what is lost with it.
            channel.resend(now, &mut |leaving, acknowledged| {
                if is_own {
                    counts.resent_count += 1;
                    if resends {
                        transmit(turn, (way, envelope), leaving, acknowledged);
                    }
                }
            });
            if channel.owes_acknowledgement(now) {
                channel.acknowledged_received();
                body.clear();
                PeerBody::Acknowledgement {}.encode(&mut Writer::new(body));
                let bare = Leaving { sequence: 0, body };
                transmit(turn, (way, envelope), bare, channel.received());
            }
        });
    }

    pub(crate) fn apply_message(
        &mut self,
        turn: &mut Turn<'_>,
        from: PeerLane,
        body: &PeerBody<'_>,
    ) {
        match *body {
            PeerBody::Txn { message } => self.on_txn_message(turn, &message),
            PeerBody::DestroyObject { inode } => self.on_destroy_message(turn, inode, false),
            PeerBody::DestroyNarrow { inode } => self.on_destroy_message(turn, inode, true),
            PeerBody::NotNarrow { inode } => self.on_not_narrow(turn, inode),
            PeerBody::ObjectDestroyed { inode, shard } => {
                self.on_object_destroyed(turn, inode, shard);
            }
            PeerBody::Accessed { inode, write_time_ns } => {
                self.record_access(turn, inode, write_time_ns);
            }
            PeerBody::Changed { inode } => self.data.forget_access(inode),
            PeerBody::QueryContents { inode, number, spread, is_fresh } => {
                if is_fresh {
                    self.data.made_elsewhere(inode);
                }
                self.query_durable_size(turn, Sizing { inode, number }, spread);
            }
            PeerBody::DurableContents { inode, number, contents } => {
                self.record_size(turn.now.mono, Sizing { inode, number }, contents);
            }
            PeerBody::PrivilegedBits { inode, bits: Bits(bits) } => {
                self.on_privileged_bits(from, (inode, bits));
            }
            PeerBody::Containment { message } => self.on_containment_message(turn, from, message),
            PeerBody::Export { change: ExportDefinition(change) } => {
                self.on_export_message(turn, from, &change);
            }
            PeerBody::Evicted { client } => self.on_eviction_message(turn, from, client),
            PeerBody::EvictionsRecorded { count } => self.on_evictions_recorded(from, count),
            PeerBody::FollowWaits { search, hops_left, owners } => {
                self.on_follow_waits(turn, &search, hops_left, owners);
            }
            PeerBody::CycleFound { search } => self.break_cycle(turn, search),
            PeerBody::Acknowledgement {} | PeerBody::Barrier {} => {}
            PeerBody::Restated {} => self.on_restated(turn, from),
            PeerBody::WriterFenced { inode, client } => self.on_writer_fenced(inode, client),
            PeerBody::LookAtPart { inode, number, durable, appends } => {
                let asked = Asked::Look { inode, number, durable, appends };
                self.on_part_asked(turn, from, asked);
            }
            PeerBody::PartContents { inode, number, shard, contents } => {
                self.on_part_contents(turn, (inode, number, shard), contents);
            }
            PeerBody::CutPart { inode, number, oldest, size_bytes, layout } => {
                let asked = Asked::Cut { inode, number, oldest, size_bytes, layout };
                self.on_part_asked(turn, from, asked);
            }
            PeerBody::PartCut { inode, number, shard, is_cut } => {
                self.on_part_cut(turn, (inode, number, shard), is_cut);
            }
            PeerBody::EndAppend { inode, session } => self.on_end_append(inode, session),
            PeerBody::RecallPages { inode, number, client } => {
                self.on_part_asked(turn, from, Asked::Recall { inode, number, client });
            }
            PeerBody::PagesRecalled { inode, number, shard } => {
                self.on_pages_recalled(turn, (inode, number, shard));
            }
        }
    }
}
