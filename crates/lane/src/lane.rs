//! `Lane`: the state of one server lane, and the dispatch of its events.

use crate::commit::Commit;
use crate::config::{Config, Limits};
use crate::connections::{Connections, Progress, Sealed};
use crate::containment::Containment;
use crate::counters::{Accounts, RequestCounts};
use crate::damage::Paths;
use crate::deadlock::Searches;
use crate::destroy::Destroys;
use crate::evictions::Evictions;
use crate::export::Table;
use crate::free_space::FreeSpace;
use crate::freeze::Freezing;
use crate::keys::Keys;
use crate::leases::Leases;
use crate::limits::{Limit, LimitLog};
use crate::log_space::Refusals;
use crate::merge::Queues;
use crate::non_resident::NonResident;
use crate::nonces::NonceSource;
use crate::peers::Peers;
use crate::recovery::Recovery;
use crate::restore::Restored;
use crate::scratch::Scratch;
use crate::sessions::Sessions;
use crate::spread::Spread;
use crate::stats::Counters;
use crate::telling::Telling;
use crate::ticket::{DATA_TICKET, PATH_TICKET, TICKET_TAG};
use crate::token::Seal;
use crate::traces::Traces;
use crate::txns::Txns;
use crate::waiters::Waiters;
use alloc::vec::Vec;
use disk::ShardPosition;
use interface::{
    Action, Bulk, CloseReason, ConnId, Core, Event, LaneTime, Mono, NetEvent, PeerEvent, Seed,
    Span, StoreEvent, Ticket, Turn,
};
use wire::{InodeNo, Map, PeerLane, ProtocolError, SLOT_COUNT_MIN, ShardId, Transno};

/// What a lane does on the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Serving,
    /// It ends what has begun, and begins nothing.
    Stopping,
    Stopped,
}

/// One lane of the server.
#[derive(Debug)]
pub struct Lane {
    pub(crate) config: Config,
    pub(crate) nonces: NonceSource,
    pub(crate) connections: Connections,
    pub(crate) sessions: Sessions,
    pub(crate) recovery: Recovery,
    /// Since when clients name a newer map than this lane has.
    pub(crate) lacks_map_since: Option<Mono>,
    pub(crate) evictions: Evictions,
    /// By shard index divided by the lane count.
    pub(crate) metas: Vec<meta::Shard>,
    pub(crate) data: data::Shards,
    /// Files whose contents are at other lanes, that were made since these are connected.
    pub(crate) made_elsewhere: data::Fresh,
    pub(crate) commit: Commit,
    pub(crate) destroys: Destroys,
    /// Files over several data shards.
    pub(crate) spread: Spread,
    /// Everything that waits, by its cause.
    pub(crate) waiters: Waiters,
    pub(crate) searches: Searches,
    pub(crate) txns: Txns,
    pub(crate) peers: Peers,
    pub(crate) telling: Telling,
    pub(crate) non_resident: NonResident,
    pub(crate) paths: Paths,
    /// Which secrets of the store are valid.
    pub(crate) keys: Keys,
    /// The exports.
    pub(crate) exports: Table,
    pub(crate) containment: Containment,
    pub(crate) freeze: Freezing,
    /// What clients may cache.
    pub(crate) leases: Leases,
    pub(crate) stats: Counters,
    pub(crate) request_counts: RequestCounts,
    pub(crate) accounts: Accounts,
    /// As the runtime has reported it last.
    pub(crate) lane_time: LaneTime,
    /// Where the time of requests went.
    pub(crate) traces: Traces,
    /// The limits that were reached.
    pub(crate) limit_log: LimitLog,
    pub(crate) refusals: Refusals,
    pub(crate) free_space: FreeSpace,
    /// The timer that the runtime was asked for.
    wake_at: Option<Mono>,
    stage: Stage,
    pub(crate) scratch: Scratch,
}

impl Lane {
    /// A lane with its restored state.
    #[must_use]
    pub fn new(config: Config, restored: Restored) -> Self {
        let logs = logs(&restored, &config.map);
        let terms = logs.iter().map(|(_, position, _)| position.term);
        // A lane without shards signs nothing.
        let term = terms.max().unwrap_or_default();
        assert!(restored.lane == config.lane, "each lane gets its own");
        assert!(config.limits.slot_count >= SLOT_COUNT_MIN, "a session has slots");
        let mut number = [0; 8];
        number.copy_from_slice(&config.seed[..8]);
        let key = u64::from_le_bytes(number);
        let seed = Seed(key);
        let shape = data::DataConfig {
            map: config.map.clone(),
            server: config.server,
            lane: config.lane,
            object_count_max: config.limits.object_count_max,
            ticket_tag: DATA_TICKET,
            seed: key,
            sync_ms: config.limits.sync_ms,
            unsynced_bytes_max: config.limits.unsynced_bytes_max,
            logged_bytes_max: config.limits.logged_bytes_max,
            page_bytes: config.limits.page_bytes,
            block_bytes: config.limits.block_bytes,
            quiet_ms: config.limits.quiet_ms,
            rules: config.rules,
        };
        let sessions = Sessions::new(seed, restored.sessions, restored.slots);
        let recovery = {
            let queues =
                Queues::new(config.promised.share, config.rules.hold(wire::Rule::MergePeerLanes));
            let awaits = config.rules.hold(wire::Rule::LeaseRestart);
            let lease_ms = if awaits { config.promised.lease_term_ms } else { 0 };
            let before = (restored.failed, restored.recovered);
            Recovery::new(sessions.recorded(), before, queues, lease_ms)
        };
        let mut lane = Self {
            nonces: NonceSource::new(config.seed),
            connections: Connections::new(seed),
            sessions,
            recovery,
            lacks_map_since: None,
            evictions: Evictions::new(restored.evicted, restored.evicted_last),
            metas: restored.metas,
            data: data::Shards::new(shape, restored.datas),
            made_elsewhere: data::Fresh::new(seed, config.limits.object_count_max),
            commit: {
                let tokens = Seal::new(config.fs_key.clone(), config.fs, term);
                Commit::new(seed, tokens, logs.into_iter())
            },
            destroys: Destroys::default(),
            spread: Spread::default(),
            waiters: Waiters::new(seed),
            searches: Searches::default(),
            txns: Txns::new(restored.decided, restored.parts),
            peers: Peers::new(PeerLane { server: config.server, lane: config.lane }, &config.map),
            telling: Telling::default(),
            non_resident: NonResident::default(),
            paths: Paths::default(),
            keys: Keys::new(&config.secrets),
            exports: Table::new(&config.exports, &restored.exports),
            containment: Containment::new(seed, config.lane),
            freeze: Freezing::default(),
            leases: {
                let Limits { lease_term_ms, lease_count_max, .. } = config.limits;
                Leases::new(seed, lease_term_ms, lease_count_max, config.rules)
            },
            stats: Counters::default(),
            request_counts: RequestCounts::default(),
            accounts: Accounts::default(),
            lane_time: LaneTime::default(),
            traces: Traces::new(config.limits.slow_ms, !config.limits.observes),
            limit_log: LimitLog::default(),
            refusals: Refusals::default(),
            free_space: FreeSpace::default(),
            wake_at: None,
            stage: Stage::Serving,
            scratch: Scratch::default(),
            config,
        };
        let rules = lane.config.rules;
        let handle_count_max = lane.config.limits.handle_count_max;
        for shard in &mut lane.metas {
            shard.set_rules(rules);
            shard.set_handle_limit(handle_count_max);
            shard.set_part_counts(lane.config.map.part_counts());
        }
        lane.non_resident.limits = lane.metas.iter().any(meta::Shard::has_limit);
        lane.record_resolved(restored.resolved);
        lane.forget_evicted(restored.evicted_sessions, restored.over);
        if lane.recovery.is_over() {
            // No client can hold a handle.
            lane.end_grace();
        }
        lane
    }

    fn on_net(&mut self, turn: &mut Turn<'_>, event: NetEvent) {
        match event {
            NetEvent::Frame { conn, frame, bulk } => self.on_frame(turn, conn, frame, bulk),
            NetEvent::Sealed { conn, channel, holder } => {
                let holder = holder.map(|holder| turn.arena.get(holder).to_vec());
                self.connections.add_sealed(conn, Sealed { channel, holder });
            }
            NetEvent::FromThisHost { conn } => {
                self.connections.add_from_this_host(conn);
            }
            NetEvent::CertificateRefused { bad, client } => self.on_uncertified(turn, bad, client),
            NetEvent::HandedOver { conn, hello } => self.on_hello(turn, conn, hello, true),
            NetEvent::SentLate { conn, took_us } => {
                self.on_sent_late(turn.now.mono, (conn, took_us));
            }
            NetEvent::Closed { conn, reason } => self.on_closed(turn, conn, reason),
            NetEvent::Connected { ticket, conn } => self.on_peer_connected(turn, ticket, conn),
            NetEvent::ConnectFailed { ticket, .. } => self.on_peer_connect_failed(turn, ticket),
        }
    }

    fn on_store(&mut self, turn: &mut Turn<'_>, event: StoreEvent) {
        match event {
            StoreEvent::Logged { result, .. } => self.on_logged(turn, result),
            StoreEvent::LogSpace(space) => self.commit.set_space(space),
            StoreEvent::Space { ticket: Ticket(crate::ticket::FREE_SPACE_TICKET), result } => {
                self.on_free_space(turn.now.mono, result.ok());
            }
            StoreEvent::Space { ticket, result } => self.on_space(turn, ticket, result),
            StoreEvent::Rows { ticket, result } if ticket.0 & TICKET_TAG == PATH_TICKET => {
                self.on_path_rows(turn, ticket, result);
            }
            StoreEvent::Rows { ticket, result } => self.on_rows(turn, ticket, result),
            StoreEvent::Inspected { conn, status, reply } => {
                self.on_inspected(turn, conn, (status, reply));
            }
            StoreEvent::Checkpointed { shard, transno, .. } => self.on_checkpointed(shard, transno),
        }
    }

    /// A frame: its allowed kinds depend on the state of its connection.
    fn on_frame(&mut self, turn: &mut Turn<'_>, conn: ConnId, frame: Span, bulk: Option<Bulk>) {
        match self.connections.progress(conn) {
            Progress::Open if !self.is_stopping() => {
                return self.on_request(turn, conn, (frame, bulk), None);
            }
            // The client resends it to the next boot.
            Progress::Open => {}
            Progress::Handshake if bulk.is_some() => {
                self.protocol_error(turn, conn, ProtocolError::Kind)
            }
            Progress::Handshake => self.on_proof(turn, conn, frame),
            Progress::New if self.on_peer_frame(turn, conn, frame) => {}
            Progress::New if bulk.is_some() => self.protocol_error(turn, conn, ProtocolError::Kind),
            Progress::New => self.on_hello(turn, conn, frame, false),
        }
        if let Some(bulk) = bulk {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    /// A connection ended without the lane's action.
    fn on_closed(&mut self, turn: &mut Turn<'_>, conn: ConnId, reason: CloseReason) {
        match reason {
            CloseReason::ProtocolError(protocol_error) => {
                self.protocol_error(turn, conn, protocol_error)
            }
            CloseReason::TooSlow => {
                let line = "a client did not read what it asked for: its connection was closed";
                let party = self.party_at(conn);
                self.report_limit(turn, (Limit::Slow, party), line);
                self.forget(turn, conn);
            }
            CloseReason::Unfinished => {
                let line = "a client did not send what it had begun to: its connection was closed";
                let party = self.party_at(conn);
                self.report_limit(turn, (Limit::Unfinished, party), line);
                self.forget(turn, conn);
            }
            CloseReason::Ended | CloseReason::Failed(_) | CloseReason::Certificate(_) => {
                self.forget(turn, conn);
            }
        }
    }

    /// Whether the lane ends: it begins nothing.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stage != Stage::Serving
    }

    /// The home shard of a file's contents: it has the first stripe, and all if the layout says so.
    pub(crate) fn data_shard(&self, inode: InodeNo) -> ShardId {
        self.config.map.data_shard(inode, 0)
    }

    /// Sets the timer to the earliest deadline, unless it is set to an earlier time: a satisfied
    /// timer, such as that of a finished handshake, causes no wakeup.
    fn set_timer(&mut self, turn: &mut Turn<'_>) {
        let set = self.wake_at.filter(|at| *at > turn.now.mono);
        let Some(at) = self.deadline(turn.now.mono) else { return };
        if set.is_none_or(|set| at < set) {
            self.wake_at = Some(at);
            turn.act(Action::WakeAt { at });
        }
    }

    /// Whether the lane proceeds as time passes, without further events: a recovery, a cross-shard
    /// transaction that was refused a lock, a request that waits for a lock or for leases to end, a
    /// batch that gathers, or an acknowledgement of a peer lane.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        let gathers = self.append_at().is_some() && !self.commit.has_failed();
        let others =
            self.peers.is_waiting() || self.waiters.has_locked() || self.spread.pages.is_waiting();
        !self.recovery.is_over() || self.txns.is_pausing() || gathers || others
    }

    /// Whether a change over several shards, a truncation included, is not over at all of them.
    #[must_use]
    pub fn has_transactions(&self) -> bool {
        !self.txns.is_at_rest() || !self.spread.has_no_cuts()
    }

    /// Ends the lane when everything begun has ended.
    fn stop(&mut self, turn: &mut Turn<'_>) {
        self.drop_waiting_cuts();
        let logged = self.commit.is_idle() || self.commit.has_failed();
        let answered = self.waiters.answers.is_empty() || self.commit.has_failed();
        let idle = answered && self.data.is_idle() && logged;
        let waited = self.peers.ends_waiting(turn.now.mono);
        let idle = idle && (self.txns.is_idle() || self.commit.has_failed() || waited);
        if !idle || self.stage == Stage::Stopped {
            return;
        }
        self.stage = Stage::Stopped;
        self.drop_received(turn);
        for conn in self.connections.in_order() {
            self.close(turn, conn);
        }
        turn.act(Action::Stopped);
    }
}

/// Where each shard's log goes on: its last sequence number with the term of this start, and a
/// transaction number that no earlier boot has exceeded.
fn logs(restored: &Restored, map: &Map) -> Vec<(ShardId, ShardPosition, Transno)> {
    let metas = restored.metas.iter().map(|shard| (shard.id(), shard.transno_last()));
    let datas = restored.datas.iter().map(|shard| (shard.shard(), shard.start_transno()));
    let lsn = |shard| {
        let found = restored.positions.iter().find(|(at, _)| *at == shard);
        found.map_or(0, |(_, position)| position.lsn)
    };
    let begin = |(shard, transno)| {
        let term = map.place(shard).term;
        (shard, ShardPosition { lsn: lsn(shard), term }, transno)
    };
    metas.chain(datas).map(begin).collect()
}

impl Core for Lane {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Net(event) => self.on_net(turn, event),
            Event::Peer(PeerEvent::Received { from, body }) => self.on_received(turn, from, body),
            Event::Store(event) => self.on_store(turn, event),
            Event::Object(event) => {
                self.data.on_object(turn, event);
                self.on_outcomes(turn);
            }
            Event::LaneTime(lane_time) => self.lane_time = lane_time,
            Event::Usage { ticket, usage } => self.on_usage(turn, ticket, &usage),
            Event::Map(map) => self.on_map(turn, map),
            Event::Asked { ticket, question } => self.on_asked(turn, ticket, question),
            Event::Secrets(Some(secrets)) => self.on_secrets(turn, &secrets),
            Event::Tick => {}
            Event::Stop if self.stage == Stage::Serving => self.stage = Stage::Stopping,
            Event::Stop => {}
            // Events of clients and mounts.
            Event::Peer(PeerEvent::Message { .. }) | Event::Secrets(None) | Event::Kernel(_) => {}
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        self.on_time(turn);
        self.traces.end_turn();
        self.sweep_traces(turn.now.mono);
        self.settle_refusals();
        if self.commit.has_safe() {
            self.release_safe(turn);
        }
        self.settle_txns(turn);
        self.settle_evictions(turn);
        self.settle_appends(turn);
        self.settle_containment(turn);
        self.settle_freeze(turn);
        if self.is_stopping() || self.recovery.is_flushing() {
            self.data.request_sync(None);
        }
        let sum_recording = self.sum_recording();
        self.data.settle(turn, sum_recording, self.contents_space_bytes());
        self.on_outcomes(turn);
        if self.data.take_log_first_wanted() {
            self.ask_for_space(turn);
        }
        self.recover(turn);
        self.shrink(turn.now.mono);
        self.destroy(turn);
        self.send_recalls(turn);
        self.append(turn);
        self.settle_peers(turn);
        if self.is_stopping() {
            self.stop(turn);
        }
        self.set_timer(turn);
    }
}
