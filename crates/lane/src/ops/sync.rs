//! `Sync`: answered when everything is durable that has a transaction number of a shard. A write on its
//! way to its object has none yet: with the flag BEHIND, the last write behind is waited for. At a
//! metadata shard the flag asks for what others have answered early (R20.42). One that
//! takes a file for narrow is refused if the file is wide: other shards have contents, too.

use crate::Lane;
use crate::commit_dependency::{CommitDependency, Reason};
use crate::leases::BarrierNo;
use crate::request::ReceivedRequest;
use crate::request_header::RequestHeader;
use crate::response::{DeferredReply, Response};
use crate::waiters::{Cause, Waiter};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use data::Token;
use interface::Turn;
use wire::traces::WaitCause;
use wire::{
    HEADER_BYTES, InodeNo, ProtocolError, SessionId, Status, SyncNarrow, Wire as _, request_flag,
};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    let narrow = narrow_file(lane, turn, received)?;
    let shard = received.request.shard;
    if lane.commit.has_failed() {
        let response = Response::plain(Status::Io, &[]);
        lane.send_reply(turn, received.conn, &received.header(), &response);
    } else if shard.is_data() {
        if !narrow.is_some_and(|inode| lane.refuses_narrow(turn, received, inode)) {
            sync_data(lane, turn, received);
        }
    } else {
        sync_names(lane, turn, received);
    }
    Ok(())
}

fn sync_names(lane: &mut Lane, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
    let awaits_others = received.request.flags & request_flag::BEHIND != 0;
    let barrier = if awaits_others { lane.recall_written(turn, received) } else { None };
    if let Some(cause) = barrier {
        lane.count_outstanding(received);
        lane.waiters.suspend(cause, Waiter::Reply(reply_of(turn, received)));
    } else if let Some(until) = lane.commit.last_unsafe_of(received.request.shard) {
        let dependency = CommitDependency { until, reason: Reason::Itself };
        lane.defer_reply(received, (Status::Ok, Vec::new()), dependency);
    } else {
        lane.answer_committed(turn, received);
    }
}

/// What a Sync is answered with.
fn reply_of(turn: &Turn<'_>, received: &ReceivedRequest<'_>) -> DeferredReply {
    let times = received.times.done(turn.now.mono);
    let (conn, header) = (received.conn, RequestHeader { times, ..received.header() });
    DeferredReply { conn, header, status: Status::Ok, body: Vec::new(), bulk: None }
}

/// The file that a sync takes for one at this shard alone.
fn narrow_file(
    lane: &Lane,
    turn: &Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<Option<InodeNo>, ProtocolError> {
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    if body.is_empty() {
        return Ok(None);
    }
    let SyncNarrow { inode } =
        SyncNarrow::decode_all(body).map_err(|_| ProtocolError::Malformed)?;
    let is_home = lane.config.map.data_shard(inode, 0) == received.request.shard;
    if is_home { Ok(Some(inode)) } else { Err(ProtocolError::Route) }
}

fn sync_data(lane: &mut Lane, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
    let shard = received.request.shard;
    let awaits_writes = received.request.flags & request_flag::BEHIND != 0;
    let write = lane.waiters.answers.last_write_behind(shard).filter(|_| awaits_writes);
    let until = lane.data.transno_last(shard);
    if write.is_none() && until <= lane.commit.shard(shard).durable {
        return lane.answer_committed(turn, received);
    }
    lane.count_outstanding(received);
    let reply = Waiter::Reply(reply_of(turn, received));
    match write {
        Some(token) => lane.waiters.suspend(Cause::Unwritten(shard, token), reply),
        None => lane.wait_for((shard, until), reply, Reason::Itself),
    }
}

impl Lane {
    /// Recalls what other clients change behind at the shard of a Sync: those of its own export, if
    /// it is confined to one. Returns what it waits for, if there is anything.
    fn recall_written(&mut self, turn: &Turn<'_>, received: &ReceivedRequest<'_>) -> Option<Cause> {
        let (own, binding) = (received.open.client, received.open.binding);
        let is_visible = |session: SessionId| {
            let holder = self.sessions.get(session);
            binding.top.is_none()
                || holder.is_none_or(|holder| holder.basis.export_no == binding.export_no)
        };
        let written = self.leases.written_at(received.request.shard);
        let (inodes, whom): (BTreeSet<_>, BTreeSet<_>) = written
            .filter(|(_, client, session)| *client != own && is_visible(*session))
            .map(|(inode, client, _)| (inode, client))
            .unzip();
        if inodes.is_empty() {
            return None;
        }
        let cause = Cause::Barrier(self.leases.begin_barrier(inodes, turn.now.mono));
        self.trace_wait(turn, received, (WaitCause::Lease, whom.into_iter().collect()));
        Some(cause)
    }

    /// What a barrier waited for was executed: it waits until that is durable.
    pub(crate) fn end_barrier(&mut self, turn: &mut Turn<'_>, barrier_no: BarrierNo) {
        let cause = Cause::Barrier(barrier_no);
        if self.commit.has_failed() {
            return self.fail_cause(turn, &cause);
        }
        for waiter in self.waiters.release(&cause) {
            let Waiter::Reply(reply) = &waiter else { continue };
            self.traces.end_wait(reply.header.times.trace, turn.now.mono);
            match self.commit.last_unsafe_of(reply.header.shard) {
                Some(until) => self.waiters.suspend(Cause::Batch(until), waiter),
                None => self.on_safe(turn, waiter),
            }
        }
    }

    /// A write behind has reached its object, or has failed: what waited for that waits until all
    /// that has a number is durable.
    pub(crate) fn end_write_behind(&mut self, turn: &mut Turn<'_>, token: Token) {
        let Some(shard) = self.waiters.answers.end_write_behind(token) else { return };
        let until = self.data.transno_last(shard);
        for waiter in self.waiters.release(&Cause::Unwritten(shard, token)) {
            if until <= self.commit.shard(shard).durable {
                self.on_safe(turn, waiter);
            } else {
                self.wait_for((shard, until), waiter, Reason::Itself);
            }
        }
    }
}
