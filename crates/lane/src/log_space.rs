//! Log-space admission: which changes are still accepted when the medium gets full.
//!
//! A change whose record does not fit could not be acknowledged, so requests are refused before
//! their execution. Changes that take space are refused first; those that free space may use a
//! reserve.

use crate::Lane;
use wire::{Op, SpaceUse, Status};

impl Lane {
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
