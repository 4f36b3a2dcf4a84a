//! Log-space admission: which changes are still accepted when the medium gets full.
//!
//! A change whose record does not fit could not be acknowledged, so requests are refused before
//! their execution. Changes that take space are refused first; those that free space may use a
//! reserve.

use crate::Lane;
use alloc::vec::Vec;
use interface::Mono;
use wire::counters::Metric;
use wire::{Op, SpaceUse, Status};

/// Changes that the log had no space for.
#[derive(Default, Debug)]
pub(crate) struct Refusals {
    count: u64,
    /// There has been no space since, but for what frees some.
    since: Option<Mono>,
}

impl Lane {
    /// The same as [`Self::is_retried`], of a request that is refused now.
    pub(crate) fn is_retried_later(&mut self, now: Mono, (op, refusal): (Op, Status)) -> bool {
        if self.space_for(op) == Err(refusal) {
            self.refusals.count += 1;
            self.refusals.since.get_or_insert(now);
        }
        self.is_retried(refusal)
    }

    /// Notes when there is space again.
    pub(crate) fn settle_refusals(&mut self) {
        if self.refusals.since.is_some() && self.space_for(Op::Create).is_ok() {
            self.refusals.since = None;
        }
    }

    /// What was refused, since when, and whether the disk is the cause.
    pub(crate) fn refusal_counts(&self, now: Mono) -> Vec<(Metric, u64)> {
        let Refusals { count, since } = self.refusals;
        let age_us = since.map_or(0, |since| (now.since_ns(since) / 1000).max(1));
        let is_disk = age_us > 0 && !self.is_retried(Status::NoSpace);
        [
            (Metric::LogRefused, count),
            (Metric::LogFullAge, age_us),
            (Metric::DiskFull, is_disk.into()),
        ]
        .into()
    }

    /// The free log space, less what is reserved for running requests.
    pub(crate) fn space_bytes(&self) -> u64 {
        let coming_bytes = self.waiters.answers.record_bytes();
        let promised = coming_bytes.saturating_add(self.txns.promised_bytes());
        self.commit.space_bytes().saturating_sub(promised)
    }

    /// The log space for bytes of files, which have their own place in their objects: what is left
    /// when requests have what they need.
    pub(crate) fn contents_space_bytes(&self) -> u64 {
        const CONTENTS_BYTES_MAX: u64 = 8 << 20;
        let kept_bytes = self.config.limits.log_space_bytes_min.saturating_mul(4);
        self.space_bytes().saturating_sub(kept_bytes).min(CONTENTS_BYTES_MAX)
    }

    /// Whether an op may be executed.
    pub(crate) fn space_for(&self, op: Op) -> Result<(), Status> {
        let limits = &self.config.limits;
        let wanted_bytes = match op.row().space {
            SpaceUse::None => return Ok(()),
            SpaceUse::Frees => limits.log_space_bytes_last,
            SpaceUse::Takes => limits.log_space_bytes_min,
        };
        if self.space_bytes() >= wanted_bytes { Ok(()) } else { Err(Status::NoSpace) }
    }

    /// Whether a request that was refused for lack of log space shall be resent soon: the medium
    /// has space, and a checkpoint will free the log.
    pub(crate) fn is_retried(&self, refusal: Status) -> bool {
        let passes = self.commit.awaits_checkpoint() || self.peers.is_full();
        refusal == Status::NoSpace && passes
    }

    /// Whether the server may record something of its own.
    pub(crate) fn space_for_own(&self) -> bool {
        self.space_bytes() >= self.config.limits.log_space_bytes_last / 2
    }
}
