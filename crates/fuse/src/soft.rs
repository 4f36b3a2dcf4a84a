//! Soft mounts: a request that no server has answered for a settable time fails with EIO, as with NFS's
//! `soft`. On any other mount it waits until the server is back, or its process is killed.
//!
//! ```text
//! arrived ─▶ waits ─ soft_ms ─▶ abandoned, as if its process were killed ─▶ EIO
//! ```
//! What the kernel writes back of a mapping waits as long as it takes: the kernel would drop those bytes.
//! So do requests that wait for a lock.

use crate::abi::{Opcode, WRITE_CACHE};
use crate::args::split;
use crate::interrupts::Looks;
use crate::lane::MountLane;
use crate::pending::{Continuation, PendingRequest};
use alloc::format;
use interface::{Action, LogLevel, Mono, Turn};

/// How often requests are looked through, as a part of the time that they may take.
const LOOKS_PER_LIMIT: u64 = 8;
/// The least time from one line of the log to the next.
const SAID_MS: u64 = 60_000;

/// When that is done.
#[derive(Debug, Default)]
pub(crate) struct Soft {
    looks: Looks,
    said_at: Option<Mono>,
}

impl MountLane {
    /// Ends requests that have waited too long.
    pub(crate) fn end_overdue(&mut self, turn: &mut Turn<'_>) {
        let Some(limit_ms) = self.config.soft_ms else { return };
        if self.pendings.count() == 0 {
            return self.soft.looks.end();
        }
        if !self.soft.looks.are_due(turn, (limit_ms / LOOKS_PER_LIMIT).max(1)) {
            return;
        }
        let (now, mut count) = (turn.now.mono, 0);
        for pending_id in self.pendings.all() {
            let pending = self.pendings.get_mut(pending_id);
            let due = pending.filter(|it| it.since.after_ms(limit_ms) <= now && may_end(it));
            if let Some(pending) = due {
                pending.is_overdue = true;
                count += 1;
                self.abandon(turn, pending_id);
            }
        }
        if count > 0 && self.soft.said_at.is_none_or(|said| said.after_ms(SAID_MS) <= now) {
            self.soft.said_at = Some(now);
            let line = format!(
                "{count} requests were not answered within {limit_ms} ms: they fail with EIO, as `soft` says"
            );
            let line = turn.arena.put(line.as_bytes());
            turn.act(Action::Log { level: LogLevel::Warning, line });
        }
    }
}

/// Whether a request may fail because of the time, and has not.
fn may_end(pending: &PendingRequest) -> bool {
    !pending.is_overdue
        && pending.continuation != Continuation::LockWait
        && !is_write_back(&pending.request)
}

/// Whether it is a WRITE of bytes that were stored to through a mapping.
fn is_write_back(request: &[u8]) -> bool {
    let flags = split(request).and_then(|(header, mut args)| {
        args.skip(20)?; // handle, file_offset, write_bytes
        Ok((header.opcode, args.u32()?))
    });
    flags.is_ok_and(|(opcode, flags)| opcode == Opcode::Write as u32 && flags & WRITE_CACHE != 0)
}
