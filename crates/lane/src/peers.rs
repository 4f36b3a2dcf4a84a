//! Messages between the lanes of a server: one place sends them, one receives them.
//!
//! A message is addressed to a shard; the map says which lane has it. One to a shard of the same
//! lane takes the same way without an encoding. Others go through the channel to that lane, which
//! delivers them once and in order. What does not decode is a bug of the sender: it is counted and
//! logged, and nothing that this lane sends later is applied, so that requests that depend on it
//! stop rather than see half of a change.
//!
//! Replies wait while a message is not acknowledged that they must not overtake
//! ([`PeerBody::is_barrier`]).

pub(crate) mod channel;
pub(crate) mod containment;
pub(crate) mod message;
pub(crate) mod tagged;

use crate::Lane;
use crate::request::Sizing;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use channel::{Channel, Leaving, Receipt};
use interface::{ConnId, LogLevel, Mono, NetAction, PeerAction, Span, Turn};
use message::{Bits, Envelope, ExportDefinition, PeerBody, PeerMessage};
use wire::{LaneId, PeerCounts, Rule, ShardId, Term, Wire as _, Writer};

/// Beyond so many messages that a peer lane has not acknowledged, clients' changes are refused for
/// a while.
const UNACKNOWLEDGED_COUNT_MAX: usize = 8192;
/// A lane that ends waits so long for transactions of other lanes. What they have prepared is
/// resolved by the next start.
const STOP_MS_MAX: u64 = 2000;

/// This lane's side of the messages between lanes.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    channels: BTreeMap<LaneId, Channel>,
    /// Lanes that have sent what does not decode.
    broken: BTreeSet<LaneId>,
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
    pub(crate) const fn counts(&self) -> PeerCounts {
        self.counts
    }

    /// The next resending, or the end of the wait of a lane that ends.
    pub(crate) fn deadline(&self, now: Mono) -> Option<Mono> {
        let resends = self.channels.values().filter_map(Channel::resend_at);
        resends.chain(self.stop_at.filter(|at| *at > now)).min()
    }

    /// Whether a peer lane has not acknowledged all messages.
    pub(crate) fn is_waiting(&self) -> bool {
        self.channels.values().any(|channel| channel.unacknowledged_count() > 0)
    }

    /// Whether a peer lane is so far behind that this lane makes no more changes for clients.
    pub(crate) fn is_full(&self) -> bool {
        let counts = self.channels.values().map(Channel::unacknowledged_count);
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
        self.channels.values().filter_map(Channel::barrier).min()
    }
}

/// The shard that stands for a lane as a whole: the first that the map gives to it, or would if
/// the store had more.
pub(crate) const fn shard_of_lane(lane: LaneId) -> ShardId {
    ShardId::meta(lane.0)
}

/// Puts a message on its way.
fn transmit(
    turn: &mut Turn<'_>,
    (lane, envelope): (LaneId, Envelope),
    Leaving { to, sequence, body }: Leaving<'_>,
    acknowledged: u64,
) {
    let body = turn.arena.write(|out| {
        let mut writer = Writer::new(out);
        writer.write(&Envelope { to, sequence, acknowledged, ..envelope });
        writer.put(body);
    });
    turn.act(PeerAction::Send { to: lane, body });
}

impl Lane {
    /// Sends a message to the lane that has this shard. One to this lane is applied at once, or
    /// queued if it is about a transaction.
    pub(crate) fn send_to_shard(&mut self, turn: &mut Turn<'_>, to: ShardId, body: &PeerBody<'_>) {
        let lane = self.config.map.lane(to);
        if lane != self.config.lane {
            return self.send_to_lane(turn, lane, to, body);
        }
        if let PeerBody::Txn { message } = body {
            self.queue_for_self(message);
        } else {
            self.apply_message(turn, body);
        }
    }

    /// Sends a message to every other lane.
    pub(crate) fn send_to_peer_lanes(&mut self, turn: &mut Turn<'_>, body: &PeerBody<'_>) {
        for lane in (0..self.config.lane_count()).map(LaneId) {
            if lane != self.config.lane {
                self.send_to_lane(turn, lane, shard_of_lane(lane), body);
            }
        }
    }

    fn send_to_lane(
        &mut self,
        turn: &mut Turn<'_>,
        lane: LaneId,
        to: ShardId,
        body: &PeerBody<'_>,
    ) {
        let envelope = self.envelope();
        let peers = &mut self.peers;
        peers.counts.sent_count += 1;
        peers.body.clear();
        body.encode(&mut Writer::new(&mut peers.body));
        peers.barrier_count += u64::from(body.is_barrier());
        let barrier = body.is_barrier().then_some(peers.barrier_count);
        let channel = peers.channels.entry(lane).or_default();
        channel.push(to, &peers.body, barrier);
        let now = turn.now.mono;
        channel.leave(now, &mut |leaving, acknowledged| {
            transmit(turn, (lane, envelope), leaving, acknowledged);
        });
    }

    /// The envelope of a message to no lane yet.
    fn envelope(&self) -> Envelope {
        let from = shard_of_lane(self.config.lane);
        let from_term = Term::of_boot(self.config.boot_id);
        Envelope { from, from_term, to: from, sequence: 0, acknowledged: 0 }
    }

    /// Bytes of a peer lane.
    pub(crate) fn on_received(&mut self, turn: &mut Turn<'_>, from: LaneId, body: Span) {
        if self.peers.broken.contains(&from) {
            self.peers.counts.refused_count += 1;
            return;
        }
        let mut received = core::mem::take(&mut self.peers.received);
        received.clear();
        received.extend_from_slice(turn.arena.get(body));
        self.receive(turn, from, &received);
        while let Some(early) = self.channel(from).next_early() {
            match PeerMessage::decode_all(&early) {
                Ok(message) => self.apply_message(turn, &message.body),
                Err(reason) => self.break_channel(turn, from, &format!("{reason:?}")),
            }
        }
        self.peers.received = received;
    }

    fn channel(&mut self, lane: LaneId) -> &mut Channel {
        self.peers.channels.entry(lane).or_default()
    }

    fn receive(&mut self, turn: &mut Turn<'_>, from: LaneId, received: &[u8]) {
        let PeerMessage { envelope, body } = match PeerMessage::decode_all(received) {
            Ok(message) => message,
            Err(reason) => return self.break_channel(turn, from, &format!("{reason:?}")),
        };
        let map = &self.config.map;
        if map.lane(envelope.from) != from || map.lane(envelope.to) != self.config.lane {
            return self.break_channel(turn, from, "it is of or for another lane");
        }
        self.on_acknowledged(turn, from, envelope.acknowledged);
        if envelope.sequence == 0 {
            return;
        }
        let receipt = self.channel(from).receive(envelope.from_term, envelope.sequence);
        let once = self.config.rules.hold(Rule::PeerOnce);
        match receipt {
            Receipt::Next => self.apply_message(turn, &body),
            Receipt::Early => self.channel(from).keep(envelope.sequence, received),
            Receipt::Repeated | Receipt::Refused => {
                self.peers.counts.repeated_count += 1;
                if !once && receipt == Receipt::Repeated {
                    self.apply_message(turn, &body);
                }
            }
        }
    }

    fn break_channel(&mut self, turn: &mut Turn<'_>, from: LaneId, reason: &str) {
        self.peers.broken.insert(from);
        self.peers.counts.refused_count += 1;
        let lane = from.0;
        let line = format!(
            "bug: a message of lane {lane} does not decode ({reason}); nothing from that lane is \
             applied any more"
        );
        self.log(turn, LogLevel::Alarm, &line);
    }

    /// A peer lane has received all up to here: the messages behind them and the replies that
    /// waited leave.
    fn on_acknowledged(&mut self, turn: &mut Turn<'_>, from: LaneId, sequence: u64) {
        let (now, envelope) = (turn.now.mono, self.envelope());
        let channel = self.channel(from);
        channel.on_acknowledged(now, sequence);
        channel.leave(now, &mut |leaving, acknowledged| {
            transmit(turn, (from, envelope), leaving, acknowledged);
        });
        let until = self.peers.barrier().unwrap_or(u64::MAX);
        while self.peers.deferred.front().is_some_and(|(barrier, ..)| *barrier < until) {
            let Some((_, conn, frame)) = self.peers.deferred.pop_front() else { break };
            let frame = turn.arena.put(&frame);
            turn.act(NetAction::Send { conn, frame, bulk: None });
        }
    }

    /// At the end of a turn: sends what was not acknowledged in time again, and acknowledges what
    /// no message has acknowledged.
    pub(crate) fn settle_peers(&mut self, turn: &mut Turn<'_>) {
        let (now, envelope) = (turn.now.mono, self.envelope());
        let resends = self.config.rules.hold(Rule::PeerResend);
        let Peers { channels, counts, body, .. } = &mut self.peers;
        for (lane, channel) in channels {
            channel.resend(now, &mut |leaving, acknowledged| {
                counts.resent_count += 1;
                if resends {
                    transmit(turn, (*lane, envelope), leaving, acknowledged);
                }
            });
            if core::mem::take(&mut channel.is_due) {
                body.clear();
                PeerBody::Acknowledgement {}.encode(&mut Writer::new(body));
                let bare = Leaving { to: shard_of_lane(*lane), sequence: 0, body };
                transmit(turn, (*lane, envelope), bare, channel.received());
            }
        }
    }

    pub(crate) fn apply_message(&mut self, turn: &mut Turn<'_>, body: &PeerBody<'_>) {
        match *body {
            PeerBody::Txn { message } => self.on_txn_message(turn, &message),
            PeerBody::DestroyObject { inode } => self.on_destroy_message(turn, inode),
            PeerBody::ObjectDestroyed { inode } => self.on_object_destroyed(inode),
            PeerBody::Accessed { inode, write_time_ns } => {
                self.record_access(turn, inode, write_time_ns);
            }
            PeerBody::Changed { inode } => self.data.forget_access(inode),
            PeerBody::QueryContents { inode, number } => {
                self.query_durable_size(turn, Sizing { inode, number });
            }
            PeerBody::DurableContents { inode, number, contents } => {
                self.record_size(Sizing { inode, number }, contents);
            }
            PeerBody::PrivilegedBits { inode, bits: Bits(bits) } => {
                self.data.set_privileged_bits(inode, bits);
            }
            PeerBody::Containment { message } => self.on_containment_message(turn, message),
            PeerBody::Export { change: ExportDefinition(change) } => {
                self.take_export(turn, &change);
            }
            PeerBody::Evicted { client } => self.on_eviction_message(turn, client),
            PeerBody::FollowWaits { search, hops_left, owners } => {
                self.on_follow_waits(turn, &search, hops_left, owners);
            }
            PeerBody::CycleFound { search } => self.break_cycle(turn, search),
            PeerBody::Acknowledgement {} => {}
        }
    }
}
