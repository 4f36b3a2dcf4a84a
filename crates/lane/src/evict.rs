//! Evictions: a client that recovery did not wait for never returns under its uuid, at any lane and
//! after any restart (docs/protocol.md §11). Also clients that leave in order or stay away.
//!
//! The evicted clients are remembered up to a limit, the latest ones. Of older ones only the last
//! boot that evicted any is remembered: an unknown client that claims state from that boot or
//! before may be one of them and is refused.

use crate::Lane;
use crate::peers::message::PeerBody;
use alloc::format;
use alloc::vec::Vec;
use disk::{Change, ClientChange};
use interface::{LogLevel, Turn};
use wire::{ClientUuid, SessionId, ShardId};

impl Lane {
    /// Evicts a client: its connections, sessions and handles end. Durable at once, or with the end
    /// of a running recovery.
    pub(crate) fn evict(&mut self, turn: &mut Turn<'_>, client: ClientUuid, tells: bool) {
        if !self.evictions.add(client, tells) {
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
        self.drop_handles(turn, client);
        self.end_writing_of_client(turn, client);
        self.log(turn, LogLevel::Warning, &format!("client {client} was evicted"));
        if self.recovery.is_over() {
            self.record_evictions(turn);
        }
    }

    /// Makes the evictions durable, here and at the peer lanes.
    pub(crate) fn record_evictions(&mut self, turn: &mut Turn<'_>) {
        for client in core::mem::take(&mut self.recovery.failed) {
            self.evict(turn, client, true);
        }
        if self.commit.has_failed() {
            return;
        }
        for client in self.evictions.take_unrecorded() {
            if let Some(shard) = self.shards().first().copied() {
                let boot_id = self.config.boot_id;
                let evicted = ClientChange::Evicted { client, boot_id };
                self.record_of_lane(shard, &Change::Client(evicted));
            }
        }
        for client in self.evictions.take_unannounced() {
            self.send_to_peer_lanes(turn, &PeerBody::Evicted { client });
        }
    }

    /// An eviction announced by a peer lane.
    pub(crate) fn on_eviction_message(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        self.evict(turn, client, false);
        self.execute_replays(turn);
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

    /// Ends a client: its process was replaced, or its export was removed. Its locks and handles
    /// are released, no recovery waits for it, and its changes stay.
    pub(crate) fn end_client(&mut self, turn: &mut Turn<'_>, ended: ClientUuid) {
        if self.recovery.waits_for(ended) {
            self.evict(turn, ended, true);
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
        for index in 0..self.metas.len() {
            for inode in self.metas[index].drop_client(client) {
                self.destroy_when_durable(inode);
            }
        }
    }
}
