//! A small write that makes the object of a new file gets its number before the object has it: the
//! log may have its bytes first (docs/protocol.md, R13.50).
//!
//! ```text
//! begun ─▶ Written (answered) ─ waited for ─▶ ObjectLoadWrite ─▶ Loaded ─▶ Changed with Logged
//!   └────── nothing else begins ──────▶ ended: it is as any write
//!                                       └ failed: acknowledged, and not in the object (lost)
//! ```
//! Invariants: until the write has ended nothing else begins at the object, and it is not synced; the
//! runtime lets no record out of the log that may be of such a write before that has ended.

use crate::in_flight::InFlight;
use crate::object::Effect;
use crate::request::{QueuedOp, bulk_bytes, one_sum, release, write_change};
use crate::{Answer, Outcome, Shards, Token};
use interface::{Bulk, Mono, ObjectAction, SumRange, Turn};
use wire::{ClientUuid, InodeNo, Status, Transno, Written};

impl Shards {
    /// Until then the store is known to have space for writes that are answered before they are in
    /// their objects.
    pub const fn allow_log_first(&mut self, until: Mono) {
        self.log_first_until = until;
    }

    /// Whether a write came that might have been one of them, for all that is known of the space.
    pub fn take_log_first_wanted(&mut self) -> bool {
        core::mem::take(&mut self.log_first_wanted)
    }

    /// Whether an operation that is the first to change its object, of which there is no file, is a
    /// write that may be logged first. Its object has no other operation running.
    pub(crate) fn may_log_first(&mut self, inode: InodeNo, pending: &QueuedOp, now: Mono) -> bool {
        let written_bytes = match pending {
            QueuedOp::Write { object_offset: 0, bulk, .. }
            | QueuedOp::Append { at: None | Some(0), bulk, .. } => bulk_bytes(*bulk),
            QueuedOp::Read { .. }
            | QueuedOp::ReadList(_)
            | QueuedOp::Glimpse(_)
            | QueuedOp::Write { .. }
            | QueuedOp::WriteList(_)
            | QueuedOp::Append { .. }
            | QueuedOp::Truncate(_)
            | QueuedOp::Allocate(_)
            | QueuedOp::Seek(_)
            | QueuedOp::Replay { .. }
            | QueuedOp::Widen { .. }
            | QueuedOp::Remove => 0,
        };
        let bytes_max = self.shape.logged_bytes_max.min(self.block_bytes());
        let is_alone = self.objects.get(&inode).is_some_and(|object| {
            object.running_count == 0 && object.size_bytes() == 0 && object.written.is_empty()
        });
        let layout = self.layout(inode);
        let is_plain = !self.is_striped(inode) && !layout.is_spread();
        let is_small = written_bytes > 0 && u64::from(written_bytes) <= bytes_max;
        if self.fenced || !is_alone || !is_plain || !is_small {
            return false;
        }
        self.log_first_wanted = true;
        now < self.log_first_until
    }

    /// Begins such a write, and answers it.
    pub(crate) fn write_log_first(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        (token, client): (Token, ClientUuid),
        bulk: Bulk,
    ) {
        let end = u64::from(bulk.bulk_bytes);
        self.begin_places(turn, inode, &[(0, end)]);
        let Some(object) = self.objects.get_mut(&inode) else { return release(turn, Some(bulk)) };
        object.exclusive = true;
        object.log_first = Some(bulk);
        let change = write_change(inode, 0, Some(bulk), 0);
        let answer = Answer::Written(Written { file_offset: 0, written_bytes: bulk.bulk_bytes });
        let (transno, place_no, change_no) = (Transno(0), 0, 0);
        let effect = Effect { token, change, answer, client, transno, place_no, change_no };
        let ticket = self.ticket(InFlight::LogFirst { inode });
        let object = self.object_name(inode, 0);
        let (object_offset, block_bytes, log_first) = (0, 0, true);
        let action =
            ObjectAction::Write { ticket, object, object_offset, bulk, block_bytes, log_first };
        turn.act(action);
        let sum = one_sum(&effect.change);
        self.on_written(turn, inode, effect, (Ok(end), Some(&[sum])));
    }

    /// Begins to load the bytes of such a write for the log, which may take `log_bytes` more than it
    /// was promised. Returns whether it does.
    pub(crate) fn load_log_first(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        log_bytes: u64,
    ) -> bool {
        let Some(object) = self.objects.get_mut(&inode) else { return false };
        let Some(bulk) = object.log_first.filter(|_| !object.sync_running) else { return false };
        let held_bytes = self.held_bytes.saturating_add(u64::from(bulk.bulk_bytes));
        if held_bytes > log_bytes {
            return false;
        }
        self.held_bytes = held_bytes;
        object.begin_load();
        let range = SumRange { object_offset: 0, range_bytes: bulk.bulk_bytes };
        let ticket = self.ticket(InFlight::Load { inode, ranges: [range].into() });
        turn.act(ObjectAction::LoadWrite { ticket, bulk });
        true
    }

    /// Such a write is in its object, or failed: then the next start writes it, or its client replays
    /// it.
    pub(crate) fn on_log_first_ended(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        result: Result<(), Status>,
    ) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        release(turn, object.log_first.take());
        if let Err(status) = result {
            object.lost = true;
            // They stay without a record, and all behind them.
            object.written.clear();
            self.outcomes.push_back(Outcome::Failed { status });
            self.fail_waiting(turn, inode, status);
        }
        self.waits_for_sync(inode);
        self.ran_alone(turn, inode);
    }
}
