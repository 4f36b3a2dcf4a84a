//! Room in the log: what may still be changed when the medium gets full.
//!
//! A record that does not fit would be a broken promise, so requests are refused before they are
//! executed. Changes that take space end first; those that give space back go on into a reserve.

use crate::Lane;
use wire::{Op, SpaceUse, Status};

impl Lane {
    /// What the log takes for sure, less what was promised of it.
    pub(crate) fn space_bytes(&self) -> u64 {
        let coming_bytes = self.pending.record_bytes();
        let promised = coming_bytes.saturating_add(self.txns.promised_bytes());
        self.commit.space_bytes().saturating_sub(promised)
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

    /// Whether a request that finds no room shall come again soon: the medium has room, and the log
    /// will have it when its records are applied to the rows.
    pub(crate) fn comes_again(&self, refusal: Status) -> bool {
        refusal == Status::NoSpace && self.commit.awaits_checkpoint()
    }

    /// Whether the server may record something of its own.
    pub(crate) fn space_for_own(&self) -> bool {
        self.space_bytes() >= self.config.limits.log_space_bytes_last / 2
    }
}
