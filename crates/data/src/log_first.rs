//! A small write that makes the object of a new file gets its number before the object has it: the
//! log may have its bytes first (docs/protocol.md, R13.50).
//!
//! ```text
//! Written (answered) ─ waited for ─▶ ObjectLoadWrite ─▶ Loaded ─▶ Changed with Logged ─▶ durable ─┐
//!   └ 1 ms later, or something else waits for the object ─▶ ObjectWrite ◀─────────────────────────┘
//!                                   ended: it is as any write ◀─┴─▶ failed: acknowledged, and not in
//!                                                                   the object (lost)
//! ```
//! Invariants: until the write has ended nothing else begins at the object, and it is not synced; the
//! rows take over nothing meanwhile that the log gets.

use crate::in_flight::InFlight;
use crate::object::{Effect, LogFirst};
use crate::request::{QueuedOp, bulk_bytes, one_sum, release, write_change};
use crate::{Answer, Outcome, Shards, Token};
use interface::{Bulk, Mono, ObjectAction, StoreAction, SumRange, Turn};
use wire::{ClientUuid, InodeNo, Status, Transno, Written};

/// An object is written so long after its write was answered, in milliseconds, if the log does not get
/// its bytes meanwhile: an fsync of a program that has just written comes sooner.
const WRITE_MS_MAX: u64 = 1;

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

    /// Answers such a write. The object is written later.
    pub(crate) fn answer_log_first(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        (token, client): (Token, ClientUuid),
        bulk: Bulk,
    ) {
        let end = u64::from(bulk.bulk_bytes);
        self.begin_places(turn, inode, &[(0, end)]);
        let transno = Transno(self.transno_last(self.shard(inode)).0 + 1);
        let Some(object) = self.objects.get_mut(&inode) else { return release(turn, Some(bulk)) };
        self.log_first_count += 1;
        let number = self.log_first_count;
        turn.act(StoreAction::HoldRows { number });
        let until = turn.now.mono.after_ms(WRITE_MS_MAX);
        object.exclusive = true;
        object.log_first = Some(LogFirst { bulk, number, until, transno });
        self.log_first.push_back(inode);
        let change = write_change(inode, 0, Some(bulk), 0);
        let answer = Answer::Written(Written { file_offset: 0, written_bytes: bulk.bulk_bytes });
        let (transno, place_no, change_no) = (Transno(0), 0, 0);
        let effect = Effect { token, change, answer, client, transno, place_no, change_no };
        let sum = one_sum(&effect.change);
        self.on_written(turn, inode, effect, (Ok(end), Some(&[sum])));
    }

    /// Writes the objects that have waited long enough.
    pub(crate) fn write_log_first(&mut self, turn: &mut Turn<'_>) {
        let mut waiting = core::mem::take(&mut self.log_first);
        self.log_first_at = None;
        waiting.retain(|inode| {
            let waits = self.is_log_first_delayed(*inode, turn.now.mono);
            if !waits {
                self.write_one_log_first(turn, *inode);
            }
            waits
        });
        self.log_first = waiting;
    }

    /// Whether an object waits to be written: for its log record, or to see whether there will be one.
    /// An object that something else waits for does not.
    fn is_log_first_delayed(&mut self, inode: InodeNo, now: Mono) -> bool {
        let durable = self.durable(self.shard(inode));
        let Some(object) = self.objects.get(&inode) else { return false };
        let Some(LogFirst { until, transno, .. }) = object.log_first else { return false };
        if self.fenced || !object.queue.is_empty() {
            return false;
        }
        if object.written.is_empty() {
            // The log has its bytes, or is about to.
            return object.sync_running || durable < transno;
        }
        let waits = !object.urgent && now < until;
        if waits {
            self.log_first_at = Some(self.log_first_at.map_or(until, |at| at.min(until)));
        }
        waits
    }

    fn write_one_log_first(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let Some(object) = self.objects.get(&inode) else { return };
        let Some(LogFirst { bulk, .. }) = object.log_first else { return };
        let ticket = self.ticket(InFlight::LogFirst { inode });
        let object = self.object_name(inode, 0);
        let (object_offset, block_bytes) = (0, 0);
        turn.act(ObjectAction::Write { ticket, object, object_offset, bulk, block_bytes });
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
        let Some(LogFirst { bulk, .. }) = object.log_first.filter(|_| !object.sync_running) else {
            return false;
        };
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
        let Some(LogFirst { bulk, number, .. }) = object.log_first.take() else { return };
        release(turn, Some(bulk));
        turn.act(StoreAction::ReleaseRows { number, has_failed: result.is_err() });
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
