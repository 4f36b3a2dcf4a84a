//! Evictions: a client that recovery did not wait for never returns under its uuid, at any lane and
//! after any restart (docs/protocol.md §11). Also clients that leave in order or stay away.
//!
//! The evicted clients are remembered up to a limit, the latest ones. Of older ones only the last
//! boot that evicted any is remembered: an unknown client that claims state from that boot or
//! before may be one of them and is refused.
//!
//! An eviction is in force when every connected lane has recorded it: only then does another client
//! get what the evicted one had locked (R11.10).

use crate::Lane;
use crate::peers::message::PeerBody;
use alloc::format;
use alloc::vec::Vec;
use disk::{Change, ClientChange};
use interface::{LogLevel, Turn};
use wire::{ClientUuid, InodeNo, Op, PeerLane, SessionId, SetLock, ShardId, Wire as _};

impl Lane {
    /// Evicts a client: its connections, sessions and handles end. Durable at once, or with the end
    /// of a running recovery. Its locks and write leases end when the eviction is in force.
    pub(crate) fn evict(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        if !self.evictions.add(client) {
            return;
        }
        self.stats.recovery.evicted_count += 1;
        for replay in self.recovery.drop_client(client) {
            self.release_bulk(turn, &replay);
        }
        let sessions: Vec<SessionId> = self.sessions.of_client(client).to_vec();
        for session in &sessions {
            if let Some(conn) = self.sessions.conn_of(*session) {
                self.close(turn, conn);
            }
            self.sessions.remove(client, *session);
        }
        self.sessions.remove_tables(&sessions);
        self.drop_open_files(client);
        self.evictions.hold(client);
        self.log(turn, LogLevel::Warning, &format!("client {client} was evicted"));
        if self.recovery.records_evictions() {
            self.record_evictions(turn);
        }
    }

    /// Makes the evictions durable, here and at the peer lanes.
    pub(crate) fn record_evictions(&mut self, turn: &mut Turn<'_>) {
        for client in core::mem::take(&mut self.recovery.failed) {
            self.evict(turn, client);
        }
        if self.commit.has_failed() {
            return;
        }
        for client in self.evictions.take_unrecorded() {
            if let Some(shard) = self.shards().first().copied() {
                let boot_id = self.config.boot_id;
                let evicted = ClientChange::Evicted { client, boot_id };
                self.record_of_lane(shard, &Change::Client(evicted));
                self.evictions.set_recorded_in(self.commit.open_no());
            }
        }
        for client in self.evictions.take_unannounced() {
            for lane in self.reachable_lanes() {
                self.evictions.on_told(lane);
                self.send_to_lane(turn, lane, &PeerBody::Evicted { client });
            }
        }
    }

    /// An eviction announced by a peer lane. This one announces it as well: each lane waits for all
    /// others, whoever evicted the client.
    pub(crate) fn on_eviction_message(
        &mut self,
        turn: &mut Turn<'_>,
        from: PeerLane,
        client: ClientUuid,
    ) {
        self.evictions.on_received(from);
        self.evict(turn, client);
        self.execute_replays(turn);
    }

    /// A peer lane has recorded so many of the evictions that this one has told it.
    pub(crate) fn on_evictions_recorded(&mut self, from: PeerLane, count: u64) {
        self.evictions.on_recorded(from, count);
    }

    /// Once a turn: confirms the evictions that are durable, and releases what their clients held
    /// when they are in force.
    pub(crate) fn settle_evictions(&mut self, turn: &mut Turn<'_>) {
        if !self.evictions.is_unsettled() {
            return;
        }
        // Lanes of this server restart together: the record of the one that waits is enough.
        let (is_recorded, me) = (self.are_evictions_recorded(), self.config.server);
        for (lane, count) in self.evictions.take_confirmed(|lane| is_recorded || lane.server == me)
        {
            self.send_to_lane(turn, lane, &PeerBody::EvictionsRecorded { count });
        }
        if self.recovery.is_over() && self.are_evictions_known() {
            self.containment.due |= self.evictions.take_awaited();
            self.release_held(turn);
            self.evictions.settle();
        }
    }

    /// Releases the locks and write leases of evicted clients.
    fn release_held(&mut self, turn: &mut Turn<'_>) {
        for client in self.evictions.holding() {
            if self.is_released(client) {
                self.evictions.release(client);
                self.drop_locks(turn, client);
                self.end_writing_of_client(turn, client);
            }
        }
    }

    /// Whether the evictions are in force for all files that a client has locked or writes behind.
    fn is_released(&self, client: ClientUuid) -> bool {
        let locked = self.metas.iter().flat_map(|meta| meta.locked_by(client));
        let mut inodes = locked.chain(self.leases.written_by(client));
        inodes.all(|inode| self.is_fenced(inode))
    }

    /// Whether all evictions are durable here. Behind a failed log nothing is executed any more.
    fn are_evictions_recorded(&self) -> bool {
        // A data shard's records are in the order of its changes.
        let pushed = !self.metas.is_empty() || (self.data.is_durable() && self.commit.is_idle());
        let is_safe = self.commit.is_safe(self.evictions.gate());
        // Other shards execute the truncations of files whose home is here.
        let pushed = pushed && self.spread.has_no_cuts();
        self.commit.has_failed() || (!self.evictions.is_recording() && pushed && is_safe)
    }

    /// Whether all evictions are durable here and at every lane that this one is connected to.
    fn are_evictions_known(&self) -> bool {
        let told = !self.evictions.is_announcing() || self.commit.has_failed();
        told && self.are_evictions_recorded() && self.evictions.are_recorded_elsewhere()
    }

    /// Whether no evicted client can change the contents of a file any more: every lane that this
    /// one is connected to has recorded the evictions, and the one that has the contents is among
    /// them.
    pub(crate) fn is_fenced(&self, inode: InodeNo) -> bool {
        let are_reachable = || {
            let mut shards = self.contents_shards(inode).into_iter();
            shards.all(|shard| self.is_reachable(shard))
        };
        self.evictions.is_empty() || (self.are_evictions_known() && are_reachable())
    }

    /// Whether a request must wait: it asks for a lock that an evicted client may have had.
    pub(crate) fn awaits_fence(&mut self, op: Op, body: &[u8]) -> bool {
        if op != Op::SetLock || self.evictions.is_empty() {
            return false;
        }
        let Ok(SetLock { inode, lock: Some(_), .. }) = SetLock::decode_all(body) else {
            return false;
        };
        // A lane that comes back is waited for as what it has to say.
        if !self.are_evictions_known() {
            self.evictions.set_awaited();
        }
        !self.is_fenced(inode)
    }

    /// At a start: records that the sessions of evicted clients are removed, and which evictions
    /// are forgotten.
    pub(crate) fn forget_evicted(
        &mut self,
        sessions: Vec<(ShardId, SessionId)>,
        over: Vec<(ClientUuid, u64)>,
    ) {
        for (shard, session) in sessions {
            self.record_of_lane(shard, &Change::Client(ClientChange::SessionRemoved { session }));
        }
        for (client, boot_id) in over {
            if let Some(shard) = self.shards().first().copied() {
                let over = ClientChange::EvictionOver { client, boot_id };
                self.record_of_lane(shard, &Change::Client(over));
            }
        }
        self.record_own_outcomes();
    }

    /// Whether a client with state from a boot was evicted.
    pub(crate) fn was_evicted(&self, client: ClientUuid, boot_id_last: u64) -> bool {
        let is_known = !self.sessions.of_client(client).is_empty();
        self.evictions.includes(client, boot_id_last, is_known)
    }

    /// This lane's shards, the lowest first.
    pub(crate) fn shards(&self) -> Vec<ShardId> {
        let metas = self.metas.iter().map(meta::Shard::id);
        metas.chain(self.data.shards()).collect()
    }

    /// Records a change of the lane's own in the log of one of its shards, in the order of that
    /// shard's transactions.
    pub(crate) fn record_of_lane(&mut self, shard: ShardId, change: &Change<'static>) {
        if shard.is_data() {
            return self.data.record_for_lane(shard, change.clone());
        }
        let index = self.meta_index(shard);
        let transno = self.metas[index].take_transno();
        self.record_own_change(shard, transno, change);
    }

    /// A client without a connection has expired: it loses its handles, and the next recovery does
    /// not wait for it.
    pub(crate) fn on_client_expired(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        self.drop_handles(turn, client);
        if self.commit.has_failed() || !self.recovery.is_over() {
            return;
        }
        let sessions: Vec<SessionId> = self.sessions.of_client(client).to_vec();
        for shard in self.shards() {
            for session in sessions.iter().copied() {
                let durable = self.commit.shard(shard).durable;
                let space = self.space_for_own();
                let Some(table) = self.sessions.table_mut((shard, session)) else { continue };
                if space && table.recorded_in.is_some() && table.transno_last() <= durable {
                    table.recorded_in = None;
                    self.record_of_lane(
                        shard,
                        &Change::Client(ClientChange::SessionAway { session }),
                    );
                }
            }
        }
    }

    /// A client's process has ended, and another one has taken its place (R11.5). One that is known here
    /// is evicted, so that every lane hears of it before the next lane asks for what it has left behind.
    pub(crate) fn replace_client(
        &mut self,
        turn: &mut Turn<'_>,
        (client, ended): (ClientUuid, ClientUuid),
    ) {
        let is_known = !self.sessions.of_client(ended).is_empty();
        if is_known || self.recovery.waits_for(ended) {
            let line = format!("client {client} takes the place of {ended}, which has ended");
            self.log(turn, LogLevel::Info, &line);
            self.evict(turn, ended);
            self.execute_replays(turn);
        }
    }

    /// Ends a client whose export was removed. Its locks and handles are released, no recovery waits for
    /// it, and its changes stay.
    pub(crate) fn end_client(&mut self, turn: &mut Turn<'_>, ended: ClientUuid) {
        if self.recovery.waits_for(ended) {
            self.evict(turn, ended);
            return self.execute_replays(turn);
        }
        let sessions = self.sessions.of_client(ended).to_vec();
        if sessions.is_empty() {
            return;
        }
        let conns: Vec<_> = sessions.iter().filter_map(|id| self.sessions.conn_of(*id)).collect();
        for conn in conns {
            self.close(turn, conn);
        }
        self.sessions.clients_mut().expire_locks_now(ended);
        self.on_client_expired(turn, ended);
    }

    pub(crate) fn drop_handles(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        self.drop_locks(turn, client);
        self.drop_open_files(client);
    }

    fn drop_open_files(&mut self, client: ClientUuid) {
        for index in 0..self.metas.len() {
            for inode in self.metas[index].drop_client(client) {
                self.destroy_when_durable(inode);
            }
        }
    }
}
