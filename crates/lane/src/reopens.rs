//! Handles that are registered again after a restart, before recovery ends: a file without a name is
//! destroyed then, unless somebody is known to have it open (PROTOCOL.md §11, I14).
//!
//! A session says with its ReplayDone how many will come. They are executed when all replays were;
//! who does not come in time has lost them.

use crate::Lane;
use crate::config::Limits;
use crate::outbox::RequestHeader;
use crate::recovery::{DeferredRequest, Phase, Recovery};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use interface::{Mono, Turn};
use wire::{ClientUuid, Request, SessionId, ShardId, Xid};

/// What a session has still to open at a shard.
#[derive(Debug)]
pub(crate) struct Reopening {
    pub(crate) client: ClientUuid,
    count: usize,
    /// Recovery waited for it: the log knew the session.
    known: bool,
    /// Requests that came; a resend is the same one.
    came: BTreeSet<Xid>,
}

pub(crate) type Reopens = BTreeMap<(ShardId, SessionId), Reopening>;

impl Recovery {
    /// A session has said how many handles it will register again.
    pub(crate) fn will_reopen(
        &mut self,
        header: &RequestHeader,
        client: ClientUuid,
        reopen_count: u32,
    ) {
        let count = usize::try_from(reopen_count).unwrap_or(usize::MAX);
        let waits = matches!(self.phase, Phase::Replaying | Phase::Reopening);
        if count > 0 && waits {
            let key = (header.shard, header.session);
            let known = self.queues.get(key).is_some_and(|queue| queue.waited);
            let reopening = Reopening { client, count, known, came: BTreeSet::new() };
            self.reopens.insert(key, reopening);
        }
    }

    /// A handle is registered again, or will be with the others that wait. That is progress if the log
    /// knew the session: anybody else may say that he has something open. And as it can be
    /// said of handles one by one, it extends the time to twice what it is at most.
    pub(crate) fn reopen_came(&mut self, request: &Request, now: Mono, limits: &Limits) {
        let key = (request.shard, request.session);
        let Some(reopening) = self.reopens.get_mut(&key) else { return };
        let is_new = reopening.came.insert(request.xid);
        let counts = reopening.known && is_new;
        if reopening.came.len() >= reopening.count {
            self.reopens.remove(&key);
        }
        if counts && self.is_before(now, 2 * limits.recovery_soft_ms) {
            self.progress(now);
        }
    }

    /// Whether nobody is waited for any more.
    pub(crate) fn is_reopened(&self, now: Mono, limits: &Limits) -> bool {
        self.reopens.is_empty() || self.is_late(now, limits)
    }
}

impl Lane {
    /// Executes what waits of them.
    pub(crate) fn run_reopens(&mut self, turn: &mut Turn<'_>) {
        let deferred = core::mem::take(&mut self.recovery.deferred);
        let (reopens, rest): (Vec<DeferredRequest>, Vec<DeferredRequest>) =
            deferred.into_iter().partition(|early| early.reopens);
        self.recovery.deferred.extend(rest);
        reopens.into_iter().for_each(|early| self.run_deferred(turn, early));
    }
}
