//! Reopened handles: clients register their handles again after a restart, before recovery ends. A
//! file without a name and without a known handle is destroyed then (docs/protocol.md §9, I14).
//!
//! A session announces with its ReplayDone how many handles it will reopen. They are executed after
//! all replays; a client that is too late has lost its handles.

use crate::config::Limits;
use crate::phase::Phase;
use crate::recovery::Recovery;
use crate::request_header::RequestHeader;
use alloc::collections::{BTreeMap, BTreeSet};
use interface::Mono;
use wire::{ClientUuid, Request, SessionId, ShardId, Xid};

/// The handles that a session still has to reopen at a shard.
#[derive(Debug)]
pub(crate) struct Reopening {
    pub(crate) client: ClientUuid,
    count: usize,
    /// The log knew the session, so recovery waited for it.
    known: bool,
    /// The requests that wait for their execution, or were executed; a resend counts once.
    came: BTreeSet<Xid>,
}

pub(crate) type Reopens = BTreeMap<(ShardId, SessionId), Reopening>;

impl Recovery {
    /// A session announces how many handles it will reopen.
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

    /// A reopen has arrived. It counts as progress only if the log knew the session: other clients
    /// can claim anything. It extends the time to at most twice its length.
    pub(crate) fn on_reopen(&mut self, request: &Request, now: Mono, limits: &Limits) {
        let key = (request.shard, request.session);
        let Some(reopening) = self.reopens.get_mut(&key) else { return };
        let is_missing = reopening.came.len() < reopening.count;
        let is_new = is_missing && reopening.came.insert(request.xid);
        let counts = reopening.known && is_new;
        if counts && self.is_before(now, 2 * limits.recovery_soft_ms) {
            self.progress(now);
        }
    }

    /// Whether a client has announced handles that it has not reopened yet.
    pub(crate) fn will_reopen_for(&self, client: ClientUuid) -> bool {
        self.missing_reopens().any(|reopening| reopening.client == client)
    }

    /// A reopen that has arrived ends with its connection: it comes again.
    pub(crate) fn on_reopen_dropped(&mut self, request: &Request) {
        if let Some(reopening) = self.reopens.get_mut(&(request.shard, request.session)) {
            reopening.came.remove(&request.xid);
        }
    }

    /// Whether all announced handles were reopened, or the time is over.
    pub(crate) fn is_reopened(&self, now: Mono, limits: &Limits) -> bool {
        let mut missing = self.missing_reopens();
        let is_ahead = |reopening: &Reopening| self.is_ahead(reopening.client, now, limits);
        missing.all(|reopening| self.is_late(now, limits) && !is_ahead(reopening))
    }

    fn missing_reopens(&self) -> impl Iterator<Item = &Reopening> {
        self.reopens.values().filter(|reopening| reopening.came.len() < reopening.count)
    }
}
