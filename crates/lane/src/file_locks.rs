//! File locks (flock, fcntl): requested like changes, exactly once, and held in memory only.
//!
//! A lock request that must wait is answered at once ("waits"), so that it holds neither slot nor
//! credit; a `Grant` frame ends the wait. If the Grant is lost with its connection, the client
//! requests the lock again under the same wait id. Of a lock only the existence of its client lane
//! is durable: the next recovery waits for that lane to lock again (docs/protocol.md §14).

use crate::Lane;
use crate::acknowledgements::Gate;
use crate::request::ReceivedRequest;
use crate::request_header::SlotId;
use crate::waiters::{Cause, Waiter};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use interface::{NetAction, Turn};
use meta::{Effect, EndedWait, FileLocks};
use wire::{
    ClientUuid, Executor, Grant, Header, InodeNo, Op, ProtocolError, SetLock, ShardId, Status, Wire,
};

/// Whether an op is about locks on files.
pub(crate) const fn is_lock(op: Op) -> bool {
    matches!(op.row().executor, Executor::Locks)
}

impl Lane {
    /// Whether a lock is refused because the log has no space to record its client, which would be
    /// unknown after a restart.
    pub(crate) fn refuses_lock(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let key = (received.request.shard, received.request.session);
        let known = self.sessions.table(key).is_some_and(|table| table.recorded_in.is_some());
        let refused = !known && !self.commit.has_failed() && self.space_for(Op::Reopen).is_err();
        if refused {
            self.end_refused(turn, received, Status::NoSpace);
        }
        refused
    }

    /// The file locks of a shard.
    pub(crate) fn locks_of(&mut self, shard: ShardId) -> &mut FileLocks {
        let index = self.meta_index(shard);
        self.metas[index].file_locks()
    }

    /// Replies with the body in the scratch buffers, when it is durable that the client exists.
    pub(crate) fn answer_lock(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        status: Status,
    ) {
        let request = received.request;
        let mut effect = Effect::unchanged(status);
        self.remember_opener(received, &mut effect);
        if effect.transno.0 == 0 {
            return self.done(turn, received, status, None);
        }
        let slot_id = SlotId { shard: request.shard, session: request.session, slot: request.slot };
        let dependency = self.dependency_of_session(&slot_id);
        self.changed(turn, received, &effect, dependency);
    }

    /// Releases all locks of a client. Those of an evicted one wait for the others (R11.10).
    pub(crate) fn drop_locks(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        if self.evictions.is_holding(client) {
            return;
        }
        for index in 0..self.metas.len() {
            let shard = self.metas[index].id();
            let mut woken = Vec::new();
            self.metas[index].file_locks().drop_client(client, &mut woken);
            self.send_grants(turn, shard, woken);
        }
    }

    /// A client has been without connections for a while: if any of its locks blocks another
    /// client, all of them are released.
    pub(crate) fn expire_locks(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        let mut metas = self.metas.iter_mut();
        if metas.any(|meta| meta.file_locks().blocks_others(client)) {
            self.drop_locks(turn, client);
        }
    }

    /// Releases the locks that block a request and belong to clients whose locks have expired.
    pub(crate) fn drop_expired_locks(
        &mut self,
        shard: ShardId,
        client: ClientUuid,
        ask: &SetLock,
        woken: &mut Vec<EndedWait>,
    ) {
        if ask.lock.is_none() || self.sessions.clients().locks_expired().is_empty() {
            return;
        }
        let index = self.meta_index(shard);
        let locks = self.metas[index].file_locks();
        let in_the_way: BTreeSet<ClientUuid> = locks.blocking_clients(client, ask);
        for expired in in_the_way.intersection(self.sessions.clients().locks_expired()) {
            if !self.evictions.is_holding(*expired) {
                locks.drop_client(*expired, woken);
            }
        }
    }

    /// Sends the Grants of ended waits. A Grant leaves only when it is durable that its client lane
    /// exists.
    pub(crate) fn send_grants(
        &mut self,
        turn: &mut Turn<'_>,
        shard: ShardId,
        woken: Vec<EndedWait>,
    ) {
        for woken in woken {
            self.traces.on_lock_wait_ended(&woken, turn.now.mono);
            let table = self.sessions.table((shard, woken.session));
            let recorded_in = table.and_then(|table| table.recorded_in);
            let recorded_in = recorded_in.map(|batch_no| Gate::of(shard, batch_no));
            match recorded_in.filter(|gate| !self.commit.is_safe(*gate)) {
                Some(until) if !self.commit.has_failed() => {
                    self.waiters.suspend(Cause::Batch(until), Waiter::Grant(woken));
                }
                Some(_) | None => self.send_grant(turn, woken),
            }
        }
    }

    /// Sends a Grant; a client without a connection requests the lock again when it reconnects.
    pub(crate) fn send_grant(&mut self, turn: &mut Turn<'_>, woken: EndedWait) {
        let EndedWait { session, inode, wait_id, status, .. } = woken;
        let conn = self.sessions.conn_of(session);
        let Some(conn) = conn else { return };
        let grant = Grant { inode, wait_id, status };
        let frame = turn.arena.write(|out| Header::Grant.encode(out, None, |to| to.write(&grant)));
        turn.act(NetAction::Send { conn, frame, bulk: None });
    }
}

/// Decodes a lock request; its inode must belong to the shard of the request.
pub(crate) fn decoded<'a, T: Wire<'a>>(
    body: &'a [u8],
    shard: ShardId,
    inode_of: impl FnOnce(&T) -> InodeNo,
) -> Result<T, ProtocolError> {
    let message = T::decode_all(body).map_err(|_| ProtocolError::Malformed)?;
    let inode = inode_of(&message);
    if inode.shard() == shard && inode.count() > 0 {
        Ok(message)
    } else {
        Err(ProtocolError::Route)
    }
}
