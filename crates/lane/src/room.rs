//! Room in the log: what may still be changed when the medium gets full.
//!
//! A record that does not fit would be a broken promise, so requests are refused before they are
//! executed. Changes that take space end first; those that give space back go on into a reserve.

use crate::Lane;
use wire::{Op, Status};

/// What an op does to the space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Appetite {
    /// Changes nothing.
    None,
    /// Gives space back, or is needed for doing so.
    Frees,
    /// Takes space.
    Takes,
}

const fn appetite(op: Op) -> Appetite {
    match op {
        Op::Create
        | Op::Mkdir
        | Op::Symlink
        | Op::Mknod
        | Op::Tmpfile
        | Op::Link
        | Op::Rename
        | Op::Setxattr
        | Op::Write
        | Op::WriteList => Appetite::Takes,
        Op::Setattr
        | Op::Unlink
        | Op::Rmdir
        | Op::Open
        | Op::Close
        | Op::Reopen
        | Op::Removexattr
        | Op::Truncate
        | Op::Allocate => Appetite::Frees,
        Op::Lookup
        | Op::Getattr
        | Op::Readlink
        | Op::Readdir
        | Op::Find
        | Op::Access
        | Op::Getxattr
        | Op::Listxattr
        | Op::Statfs
        | Op::SetLock
        | Op::GetLock
        | Op::CancelLock
        | Op::Relock
        | Op::Read
        | Op::ReadList
        | Op::Glimpse
        | Op::Seek
        | Op::Stats
        | Op::Sync
        | Op::Resume
        | Op::ReplayDone
        | Op::SetExport
        | Op::Exports
        | Op::Freeze
        | Op::Inspect
        | Op::Goodbye
        | Op::Ping => Appetite::None,
    }
}

impl Lane {
    /// What the log takes for sure, less what was promised of it.
    pub(crate) fn room_bytes(&self) -> u64 {
        let coming_bytes = self.pending.record_bytes();
        let promised = coming_bytes.saturating_add(self.txns.promised_bytes());
        self.commit.room_bytes().saturating_sub(promised)
    }

    /// Whether an op may be executed.
    pub(crate) fn room_for(&self, op: Op) -> Result<(), Status> {
        let limits = &self.config.limits;
        let wanted_bytes = match appetite(op) {
            Appetite::None => return Ok(()),
            Appetite::Frees => limits.log_room_bytes_last,
            Appetite::Takes => limits.log_room_bytes_min,
        };
        if self.room_bytes() >= wanted_bytes { Ok(()) } else { Err(Status::NoSpace) }
    }

    /// Whether a request that finds no room shall come again soon: the medium has room, and the log
    /// will have it when its records are applied to the rows.
    pub(crate) fn comes_again(&self, refusal: Status) -> bool {
        refusal == Status::NoSpace && self.commit.is_behind()
    }

    /// Whether the server may record something of its own.
    pub(crate) fn room_for_own(&self) -> bool {
        self.room_bytes() >= self.config.limits.log_room_bytes_last / 2
    }
}
