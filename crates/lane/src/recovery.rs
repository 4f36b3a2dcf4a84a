//! Recovery of this lane after a start (docs/protocol.md §9): the durably known clients replay lost
//! changes in transaction order; then missing clients are evicted; only then new requests are
//! executed.
//!
//! ```text
//! Replaying ─ all done or timeout ─▶ Reopening ─ all done or timeout ─▶ Flushing ─ durable ─▶
//! Evicting ─ durable ─▶ Over
//! ```
//! After a crash it begins anew: all its state follows from the log. All shards of a lane recover
//! together; other requests are deferred, within their connection's credits.

use crate::Lane;
use crate::ahead::Ahead;
use crate::identity::is_other_boot;
use crate::merge::Queues;
use crate::phase::Phase;
use crate::reopens::Reopens;
use crate::request::{Replay, Sizing};
use crate::request_header::RequestHeader;
use crate::response::Response;
use crate::waiters::Cause;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use disk::{Change, ClientChange, SessionRow};
use interface::{Action, ConnId, LogLevel, Mono, ProtocolPoint, Turn};
use wire::{ClientUuid, InodeNo, Layout, MapEpoch, Rule, SessionId, ShardId, Status, Transno};

/// A client that recovery waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AwaitedClient {
    pub(crate) host_id: [u8; 16],
    pub(crate) host_boot_id: [u8; 16],
    /// Sessions at shards that have not sent ReplayDone.
    left_count: usize,
    /// When a client reported that its host has rebooted.
    doubted_at: Option<Mono>,
}

/// The state of the recovery.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) phase: Phase,
    waited: BTreeMap<ClientUuid, AwaitedClient>,
    /// By shard, the last transaction when a recovery last completed.
    recovered: BTreeMap<ShardId, Transno>,
    pub(crate) queues: Queues,
    lease_ms: u64,
    /// The handles that sessions announced to reopen.
    pub(crate) reopens: Reopens,
    /// Size queries of metadata shards, deferred.
    pub(crate) sizings: Vec<(Sizing, Option<Layout>)>,
    /// Inodes of peer lanes whose objects are to be removed, likewise; or of a newer map.
    pub(crate) removals: Vec<(InodeNo, bool)>,
    /// Clients with a replay that did not fit.
    pub(crate) failed: BTreeSet<ClientUuid>,
    /// Those of the clients waited for that have another map.
    ahead: Ahead,
    /// The next replay waits for the outcome of a change over several servers.
    waits_for_outcome: bool,
    began_at: Option<Mono>,
    /// Since when the time for reconnecting passes: the begin, or the arrival of a map or an outcome
    /// that was waited for.
    timed_from: Mono,
    progress_at: Mono,
    /// When the deadlines were checked last.
    looked_at: Mono,
    /// No client is evicted before this time.
    grace_until: Mono,
    reminded: bool,
    /// The end of recovery has been reported to the runtime.
    reported: bool,
}

impl Recovery {
    /// `known`: the sessions that the log knows at this lane's shards. `lease_ms`: what a client
    /// was granted before the start lasts for so long.
    pub(crate) fn new<'a>(
        known: impl Iterator<Item = (ShardId, SessionId, &'a SessionRow)>,
        (failed, recovered): (BTreeSet<ClientUuid>, BTreeMap<ShardId, Transno>),
        mut queues: Queues,
        lease_ms: u64,
    ) -> Self {
        let mut waited: BTreeMap<ClientUuid, AwaitedClient> = BTreeMap::new();
        for (shard, session, row) in known {
            let SessionRow { client, host_id, host_boot_id, .. } = *row;
            let waiting = AwaitedClient { host_id, host_boot_id, left_count: 0, doubted_at: None };
            waited.entry(client).or_insert(waiting).left_count += 1;
            queues.expect((shard, session), client);
        }
        let over = waited.is_empty() && failed.is_empty();
        Self {
            phase: if over { Phase::Over } else { Phase::Replaying },
            waited,
            recovered,
            queues,
            lease_ms,
            reopens: Reopens::new(),
            sizings: Vec::new(),
            removals: Vec::new(),
            failed,
            ahead: Ahead::default(),
            waits_for_outcome: false,
            began_at: None,
            timed_from: Mono(0),
            progress_at: Mono(0),
            looked_at: Mono(0),
            grace_until: Mono(0),
            reminded: false,
            reported: false,
        }
    }

    /// Whether recovery waits for this client.
    pub(crate) fn waits_for(&self, client: ClientUuid) -> bool {
        self.phase == Phase::Replaying && self.waited.contains_key(&client)
    }

    /// Whether a transaction may be replayed: no recovery has completed since it.
    pub(crate) fn takes(&self, shard: ShardId, transno: Transno) -> bool {
        transno > self.recovered.get(&shard).copied().unwrap_or_default()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether evictions are recorded at once: those of the recovery itself have been.
    pub(crate) const fn records_evictions(&self) -> bool {
        matches!(self.phase, Phase::Evicting | Phase::Over)
    }

    /// Whether the replayed changes must become durable next.
    pub(crate) fn is_flushing(&self) -> bool {
        self.phase == Phase::Flushing
    }

    pub(crate) const fn progress(&mut self, now: Mono) {
        self.progress_at = now;
    }

    /// The next deadline.
    pub(crate) fn deadline(&self, limits: &crate::Limits) -> Option<Mono> {
        let waiting = matches!(self.phase, Phase::Replaying | Phase::Reopening);
        let began_at = self.began_at.filter(|_| waiting)?;
        let half = began_at.after_ms(limits.recovery_soft_ms / 2);
        let next = self.due_at(began_at, limits);
        let reminded = self.reminded || self.phase == Phase::Reopening;
        let next = if reminded { next } else { next.min(half) };
        let look = self.looked_at.after_ms(limits.recovery_soft_ms / 8);
        // Otherwise nobody is missing any more when the time is over.
        Some(if self.ahead.is_empty() { next.min(look) } else { look })
    }

    /// When missing clients are evicted. Their leases have expired then.
    fn due_at(&self, began_at: Mono, limits: &crate::Limits) -> Mono {
        let (from, soft_ms) = (self.timed_from, limits.recovery_soft_ms);
        let soft = from.after_ms(soft_ms).max(self.progress_at.after_ms(soft_ms / 4));
        let due_at = soft.min(from.after_ms(limits.recovery_hard_ms)).max(self.grace_until);
        due_at.max(began_at.after_ms(self.lease_ms))
    }

    /// Notes the time of a regular check. If the last one was long ago, this lane or its machine
    /// was stopped: clients that have connected meanwhile get time to be heard.
    fn look(&mut self, now: Mono, limits: &crate::Limits) {
        let soft_ms = limits.recovery_soft_ms;
        if now > self.looked_at.after_ms(soft_ms / 4) {
            self.grace_until = now.after_ms(soft_ms / 4);
        }
        self.looked_at = now;
    }

    /// Whether less than `ms` of the time for reconnecting have passed.
    pub(crate) fn is_before(&self, now: Mono, ms: u64) -> bool {
        self.began_at.is_some() && now < self.timed_from.after_ms(ms)
    }

    /// Whether a client is refused for its map, and goes on asking.
    pub(crate) fn is_ahead(&self, client: ClientUuid, now: Mono, limits: &crate::Limits) -> bool {
        self.ahead.has(client, now, limits.recovery_soft_ms)
    }

    /// This lane has a newer map: who has waited for it has the whole time to be back.
    pub(crate) fn on_map(&mut self, epoch: MapEpoch, now: Mono) {
        if self.ahead.on_map(epoch) {
            self.timed_from = now;
        }
    }

    /// Whether the time for reconnecting is over.
    pub(crate) fn is_late(&self, now: Mono, limits: &crate::Limits) -> bool {
        self.began_at.is_some_and(|began_at| now >= self.due_at(began_at, limits))
    }

    /// Stops waiting for a client; returns its queued replays.
    pub(crate) fn drop_client(&mut self, client: ClientUuid) -> Vec<Replay> {
        self.waited.remove(&client);
        self.ahead.forget(client);
        self.reopens.retain(|_, reopening| reopening.client != client);
        self.queues.drop_client(client)
    }
}

impl Lane {
    /// Advances recovery; once a turn.
    pub(crate) fn recover(&mut self, turn: &mut Turn<'_>) {
        if self.recovery.is_over() {
            if !core::mem::replace(&mut self.recovery.reported, true) {
                turn.act(Action::Recovered); // There was no client to wait for.
            }
            return;
        }
        if self.recovery.began_at.is_none() {
            if !self.knows_exports() {
                return; // No client can come back before.
            }
            self.begin_recovery(turn);
        }
        self.recovery.look(turn.now.mono, &self.config.limits);
        if self.recovery.phase == Phase::Replaying {
            self.remind(turn);
            if self.recovery.waits_for_outcome {
                self.recovery.timed_from = turn.now.mono;
                self.execute_replays(turn);
            }
            self.evict_late(turn);
            if !self.recovery.waited.is_empty() || !self.recovery.queues.is_empty() {
                return;
            }
            self.recovery.phase = Phase::Reopening;
        }
        if self.recovery.phase == Phase::Reopening {
            self.run_received(turn, &Cause::Reopening);
            if !self.recovery.is_reopened(turn.now.mono, &self.config.limits) {
                return;
            }
            self.recovery.phase = Phase::Flushing;
            self.data.request_sync(None);
            let sum_recording = self.sum_recording();
            self.data.settle(turn, sum_recording, self.contents_space_bytes());
        }
        if self.recovery.phase == Phase::Flushing {
            let settled = self.waiters.answers.has_no_replays() && self.data.is_durable();
            let durable = settled && self.commit.is_idle();
            if !durable && self.config.rules.hold(Rule::S3Flush) && !self.commit.has_failed() {
                return;
            }
            turn.act(Action::Point(ProtocolPoint::ReplaysDurable));
            self.record_evictions(turn);
            self.record_recovered();
            self.on_outcomes(turn);
            self.recovery.phase = Phase::Evicting;
        }
        let durable = self.commit.is_idle() || !self.config.rules.hold(Rule::S3Flush);
        // The inodes of handles about to be reopened must be resident.
        if (durable || self.commit.has_failed()) && !self.non_resident.is_reading() {
            self.end_recovery(turn);
        }
    }

    /// Records that recovery is complete: from here on no lost change is accepted as a replay.
    fn record_recovered(&mut self) {
        if !self.commit.has_failed() {
            for shard in self.shards() {
                self.record_of_lane(shard, &Change::Client(ClientChange::Recovered));
            }
        }
    }

    fn begin_recovery(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        (self.recovery.began_at, self.recovery.progress_at) = (Some(now), now);
        self.recovery.timed_from = now;
        self.recovery.looked_at = now;
        turn.act(Action::Point(ProtocolPoint::RecoveryBegun));
        let known_count = u64::try_from(self.recovery.waited.len()).unwrap_or(u64::MAX);
        self.stats.recovery.known_count = known_count;
        let line = format!("recovery: waiting for {known_count} clients");
        self.log(turn, LogLevel::Info, &line);
        // Some of their changes are lost for certain.
        for client in core::mem::take(&mut self.recovery.failed) {
            self.evict(turn, client);
        }
    }

    /// Half of the time is over: logs the missing clients.
    fn remind(&mut self, turn: &mut Turn<'_>) {
        const LINE_COUNT_MAX: usize = 8;
        let Some(began_at) = self.recovery.began_at else { return };
        let half = began_at.after_ms(self.config.limits.recovery_soft_ms / 2);
        if self.recovery.reminded || turn.now.mono < half {
            return;
        }
        self.recovery.reminded = true;
        let missing: Vec<(ClientUuid, AwaitedClient)> =
            self.recovery.waited.iter().map(|(client, waited)| (*client, *waited)).collect();
        for (client, waited) in missing.iter().take(LINE_COUNT_MAX) {
            let host = hex(&waited.host_id);
            let line = format!("recovery waits for client {client} of host {host}");
            self.log(turn, LogLevel::Info, &line);
        }
    }

    /// A request names another map than this lane has: if recovery waits for its client, it goes on
    /// waiting until this lane has a map that both go by (R9.21).
    pub(crate) fn on_other_epoch(
        &mut self,
        turn: &mut Turn<'_>,
        client: ClientUuid,
        epoch: MapEpoch,
    ) {
        let is_awaited = self.recovery.waits_for(client) || self.recovery.will_reopen_for(client);
        if !is_awaited || !self.config.rules.hold(Rule::MapAwaited) {
            return;
        }
        if self.recovery.ahead.on_request(client, epoch, turn.now.mono) {
            let (epoch, known) = (epoch.0, self.config.map.epoch().0);
            let line = if epoch > known {
                format!(
                    "recovery: client {client} knows map {epoch}, and this server only {known}: it \
                     waits until etcd has told this server"
                )
            } else {
                format!(
                    "recovery: client {client} knows map {epoch}, and this server {known}: if it asks \
                     again by {epoch}, it waits until all servers have started since etcd was restored"
                )
            };
            self.log(turn, LogLevel::Info, &line);
        }
    }

    /// Evicts the clients whose time is over.
    fn evict_late(&mut self, turn: &mut Turn<'_>) {
        if self.recovery.began_at.is_none() {
            return;
        }
        let (now, limits) = (turn.now.mono, &self.config.limits);
        let mut late: Vec<ClientUuid> = if !self.recovery.is_late(now, limits) {
            self.doubted(now)
        } else if self.recovery.is_before(now, limits.recovery_hard_ms)
            || self.recovery.ahead.has_any(now, limits.recovery_soft_ms)
        {
            // Others are back, and wait for these.
            self.recovery.queues.idle().into_iter().collect()
        } else {
            self.recovery.waited.keys().copied().collect()
        };
        late.retain(|client| !self.recovery.is_ahead(*client, now, limits));
        if late.is_empty() {
            return;
        }
        for client in late {
            self.evict(turn, client);
        }
        self.recovery.progress(now);
        self.execute_replays(turn);
    }

    /// The clients whose host is reported to have rebooted and that have not reconnected.
    fn doubted(&self, now: Mono) -> Vec<ClientUuid> {
        let until_ms = self.config.limits.recovery_soft_ms / 4;
        let is_absent = |client: ClientUuid, waited: &AwaitedClient| {
            let doubted = waited.doubted_at.is_some_and(|at| at.after_ms(until_ms) <= now);
            doubted && !self.sessions.clients().is_connected(client)
        };
        let waited = self.recovery.waited.iter();
        waited.filter(|(client, waited)| is_absent(**client, waited)).map(|(id, _)| *id).collect()
    }

    /// A client reports another boot of a host than the missing clients of that host had: these are
    /// probably dead, so they get a quarter of the time to reconnect.
    pub(crate) fn host_rebooted(&mut self, now: Mono, host_id: [u8; 16], host_boot_id: [u8; 16]) {
        if host_id == [0; 16] || self.recovery.phase != Phase::Replaying {
            return;
        }
        for waited in self.recovery.waited.values_mut() {
            let other = is_other_boot(waited.host_boot_id, host_boot_id);
            if waited.host_id == host_id && other && waited.doubted_at.is_none() {
                waited.doubted_at = Some(now);
            }
        }
    }

    pub(crate) fn answer_done(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        header: &RequestHeader,
    ) {
        let committed = self.committed(header.shard, header.session);
        let response = Response { committed, ..Response::plain(Status::Ok, &[]) };
        self.send(turn, conn, header, &response);
    }

    /// Executes the replays that are next.
    pub(crate) fn execute_replays(&mut self, turn: &mut Turn<'_>) {
        if self.recovery.phase != Phase::Replaying {
            return;
        }
        let has_waited = core::mem::take(&mut self.recovery.waits_for_outcome);
        while let Some(key) = self.recovery.queues.next() {
            if self.replay_misses(turn, key) {
                break;
            }
            if self.replay_waits(key) {
                self.recovery.waits_for_outcome = true;
                if !has_waited {
                    let line = "recovery: a replay waits until another server has said what became \
                                of a change over both";
                    self.log(turn, LogLevel::Info, line);
                }
                break;
            }
            if let Some(replay) = self.recovery.queues.pop(key) {
                self.execute_replay(turn, replay);
            }
        }
        for queue in self.recovery.queues.take_ended() {
            if let Some((conn, header)) = queue.done {
                self.answer_done(turn, conn, &header);
            }
            if queue.waited {
                self.recovery.progress(turn.now.mono);
                self.session_is_back(turn, queue.client);
            }
        }
    }

    fn session_is_back(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        let Some(waited) = self.recovery.waited.get_mut(&client) else { return };
        waited.left_count -= 1;
        if waited.left_count == 0 {
            self.recovery.waited.remove(&client);
            self.stats.recovery.returned_count += 1;
            turn.act(Action::Point(ProtocolPoint::ReplayDone));
        }
    }

    /// Queues a replay.
    pub(crate) fn queue_replay(
        &mut self,
        turn: &mut Turn<'_>,
        client: ClientUuid,
        replay: Replay,
    ) -> bool {
        let key = (replay.header.shard, replay.header.session);
        let pushed = self.recovery.queues.push(key, client, replay);
        if pushed {
            self.execute_replays(turn);
        }
        pushed
    }

    /// Drops the replays of a connection that has ended.
    pub(crate) fn drop_replays_of(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        let replays = self.recovery.queues.drop_conn(conn);
        for bulk in replays.into_iter().filter_map(|replay| replay.bulk) {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    fn end_recovery(&mut self, turn: &mut Turn<'_>) {
        self.recovery.phase = Phase::Over;
        let since_ns = self.recovery.began_at.map_or(0, |at| turn.now.mono.since_ns(at));
        self.stats.recovery.recovery_ms = since_ns / 1_000_000;
        let wire::RecoveryCounts {
            known_count,
            returned_count,
            evicted_count,
            replayed_count,
            already_durable_count,
            rejected_count,
            recovery_ms,
            ..
        } = self.stats.recovery;
        let line = format!(
            "recovery is over after {recovery_ms} ms: of {known_count} clients {returned_count} are \
             back, {evicted_count} evicted; {replayed_count} changes replayed, {already_durable_count} \
             were durable, {rejected_count} did not fit"
        );
        self.log(turn, LogLevel::Info, &line);
        self.sessions.on_replays_durable(turn.now.mono);
        self.recovery.reported = true;
        self.end_writing(turn);
        // Changes replayed behind a failed log are replayed again, in the order of the present
        // mode.
        if !self.commit.has_failed() {
            turn.act(Action::Recovered);
        }
        turn.act(Action::Point(ProtocolPoint::RecoveryEnded));
        // Handles first: a client with an open file retains it.
        self.run_received(turn, &Cause::Reopening);
        self.end_grace();
        if known_count > 0 {
            self.spread.appends.recovered(turn.now.mono);
        }
        self.run_early_parts(turn);
        self.run_early_removals(turn);
        self.run_received(turn, &Cause::Recovery);
        self.run_early_sizings(turn);
    }

    /// Drops all requests that were not begun, and all replays; the next boot recovers anew.
    pub(crate) fn drop_received(&mut self, turn: &mut Turn<'_>) {
        for conn in self.connections.in_order() {
            self.cancel_received(turn, conn);
            self.drop_replays_of(turn, conn);
        }
    }

    /// The longest remaining time of recovery, in milliseconds.
    pub(crate) fn recovery_left_ms(&self, now: Mono) -> u32 {
        if self.recovery.is_over() {
            return 0;
        }
        let limits = &self.config.limits;
        let began_at = self.recovery.began_at.unwrap_or(now);
        let left_ms = began_at.after_ms(limits.recovery_hard_ms).since_ns(now) / 1_000_000;
        u32::try_from(left_ms).unwrap_or(u32::MAX).max(1)
    }
}

fn hex(bytes: &[u8]) -> alloc::string::String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
