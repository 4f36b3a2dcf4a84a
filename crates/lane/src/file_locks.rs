//! Locks on files (flock, fcntl): asked for like changes, exactly once, and kept in memory only.
//!
//! A lock that is waited for has its answer, "it waits", at once, so that it costs neither slot nor
//! credit; a `Grant` tells of its end. One that is lost with its connection is asked for again by
//! the client, under the same wait. Nothing of a lock is durable but that its client lane exists:
//! the next recovery waits for that lane and what it locks again (PROTOCOL.md §13).

use crate::Lane;
use crate::commit::Held;
use crate::deadlock::Search;
use crate::dispatch::Arrived;
use crate::outbox::{Asked, Said};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use door::{Action, Turn};
use meta::{Effect, LockAsker, LockOwner, Woken};
use wire::{
    Breach, CancelLock, ClientUuid, GetLock, Grant, HEAD_BYTES, Head, LockCancelled, LockFound,
    LockKind, LockSet, Op, Relock, SetLock, ShardId, Status, Wire, Writer,
};

/// Whether an op is about locks on files.
pub(crate) const fn is_lock(op: Op) -> bool {
    matches!(op, Op::SetLock | Op::GetLock | Op::CancelLock | Op::Relock)
}

impl Lane {
    /// Executes SetLock and Relock.
    pub(crate) fn run_lock(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: &Arrived<'_>,
    ) -> Result<(), Breach> {
        let (request, client) = (arrived.request, arrived.open.client);
        let key = (request.shard, request.session);
        let known = self.slots.get(&key).is_some_and(|table| table.recorded_in.is_some());
        if !known && !self.fenced && self.room_for(Op::Reopen).is_err() {
            // It would not be known after a restart who has the lock.
            self.end_refused(turn, arrived, Status::NoSpace);
            return Ok(());
        }
        let body = &turn.arena.get(arrived.frame)[HEAD_BYTES..];
        self.reply.clear();
        self.changes.clear();
        let mut woken = Vec::new();
        let since_ns = self.wait_begins_ns(turn);
        let (status, wait) = if request.op == Op::Relock {
            let relock: Relock = decode(body)?;
            check(relock.inode, request.shard)?;
            let index = self.meta_index(request.shard);
            let recovering = !self.recovery.is_over();
            let has = self.metas[index].file_locks().relock(client, &relock, recovering);
            (if has { Status::Ok } else { Status::Again }, None)
        } else {
            let ask: SetLock = decode(body)?;
            check(ask.inode, request.shard)?;
            self.give_up_forsaken(request.shard, client, &ask, &mut woken);
            let asker = LockAsker { client, session: request.session, now_ns: since_ns };
            let index = self.meta_index(request.shard);
            match self.metas[index].file_locks().set(asker, &ask, &mut woken) {
                Ok(set) => {
                    Writer::new(&mut self.reply).write(&set);
                    (Status::Ok, waits(&set, &ask))
                }
                Err(status) => (status, None),
            }
        };
        self.answer_lock(turn, arrived, status);
        self.tell_woken(turn, request.shard, woken);
        if let Some(ask) = wait {
            let owner = LockOwner { client, owner: ask.owner };
            self.look_for_deadlock(
                turn,
                Search {
                    lane: self.config.lane,
                    inode: ask.inode,
                    owner,
                    wait_id: ask.wait_id,
                    since_ns,
                    is_certain: false,
                },
            );
        }
        Ok(())
    }

    fn answer_lock(&mut self, turn: &mut Turn<'_>, arrived: &Arrived<'_>, status: Status) {
        let request = arrived.request;
        let mut effect = Effect::unchanged(status);
        self.remember_opener(arrived, &mut effect);
        if effect.transno.0 == 0 {
            return self.done(turn, arrived, status, None);
        }
        let held = Held { shard: request.shard, session: request.session, slot: request.slot };
        let gate = self.gate_of_session(&held);
        self.changed(turn, arrived, &effect, gate);
    }

    /// Executes GetLock and CancelLock.
    pub(crate) fn ask_lock(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: &Arrived<'_>,
    ) -> Result<(), Breach> {
        let (request, client) = (arrived.request, arrived.open.client);
        let body = &turn.arena.get(arrived.frame)[HEAD_BYTES..];
        let index = self.meta_index(request.shard);
        let mut reply = core::mem::take(&mut self.reply);
        reply.clear();
        let locks = self.metas[index].file_locks();
        if request.op == Op::GetLock {
            let ask: GetLock = decode(body)?;
            check(ask.inode, request.shard)?;
            let found = locks.get(client, &ask);
            Writer::new(&mut reply).write(&LockFound { found });
        } else {
            let CancelLock { inode, wait_id } = decode(body)?;
            check(inode, request.shard)?;
            let waited = locks.cancel(client, inode, wait_id);
            Writer::new(&mut reply).write(&LockCancelled { waited });
        }
        let said = Said::plain(Status::Ok, &reply);
        self.say_reply(turn, arrived.conn, &Asked::from(request), &said);
        self.reply = reply;
        Ok(())
    }

    /// All locks of a client go.
    pub(crate) fn drop_locks(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        for index in 0..self.metas.len() {
            let shard = self.metas[index].id();
            let mut woken = Vec::new();
            self.metas[index].file_locks().client_gone(client, &mut woken);
            self.tell_woken(turn, shard, woken);
        }
    }

    /// A client's connections ended a while ago: what others wait for is theirs now, the rest it
    /// may find again.
    pub(crate) fn forsake(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        let mut metas = self.metas.iter_mut();
        if metas.any(|meta| meta.file_locks().is_in_the_way(client)) {
            self.drop_locks(turn, client);
        }
    }

    /// Takes away what is in the way of an ask and belongs to somebody who left it.
    fn give_up_forsaken(
        &mut self,
        shard: ShardId,
        client: ClientUuid,
        ask: &SetLock,
        woken: &mut Vec<Woken>,
    ) {
        if ask.lock.is_none() || self.clients.forsaken.is_empty() {
            return;
        }
        let index = self.meta_index(shard);
        let locks = self.metas[index].file_locks();
        let in_the_way: BTreeSet<ClientUuid> = locks.clients_in_the_way(client, ask);
        for gone in in_the_way.intersection(&self.clients.forsaken) {
            locks.client_gone(*gone, woken);
        }
    }

    /// Waits are over: their clients hear of it. Nobody is told that he has a lock before it is
    /// durable that his client lane exists.
    pub(crate) fn tell_woken(&mut self, turn: &mut Turn<'_>, shard: ShardId, woken: Vec<Woken>) {
        for woken in woken {
            let table = self.slots.get(&(shard, woken.session));
            let recorded_in = table.and_then(|table| table.recorded_in);
            match recorded_in.and_then(|batch_no| self.commit.until(batch_no)) {
                Some(until) if !self.fenced => self.commit.wave(until).woken.push(woken),
                Some(_) | None => self.send_grant(turn, woken),
            }
        }
    }

    /// Tells a client of a wait's end; one that is not here asks again when it comes.
    pub(crate) fn send_grant(&mut self, turn: &mut Turn<'_>, woken: Woken) {
        let Woken { session, inode, wait_id, status } = woken;
        let conn = self.sessions.get(&session).and_then(|session| session.conn);
        let Some(conn) = conn else { return };
        let grant = Grant { inode, wait_id, status };
        let frame = turn.arena.write(|out| Head::Grant.encode(out, None, |to| to.write(&grant)));
        turn.act(Action::Send { conn, frame, bulk: None });
    }
}

/// The ask, if it waits in a way that can be a deadlock: flock is not looked at, as on Linux.
fn waits(set: &LockSet, ask: &SetLock) -> Option<SetLock> {
    (!set.granted && ask.kind == LockKind::Posix).then_some(*ask)
}

fn decode<'a, T: Wire<'a>>(body: &'a [u8]) -> Result<T, Breach> {
    T::decode_all(body).map_err(|_| Breach::Malformed)
}

fn check(inode: wire::InodeNo, shard: ShardId) -> Result<(), Breach> {
    if inode.shard() == shard && inode.count() > 0 { Ok(()) } else { Err(Breach::Route) }
}
