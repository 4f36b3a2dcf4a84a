//! The log of this lane: records gather in the open batch, one batch at a time is made durable, and
//! what waited for it goes on.
//!
//! ```text
//! open batch ─ settle, nothing in flight ─▶ LogAppend ─ Logged ─▶ replies, orphans, fences
//!     ▲ whoever arrives meanwhile                         └ Err ─▶ Halt: nothing may be promised
//! ```

use crate::Lane;
use crate::session::Done;
use crate::txns::Awaited;
use alloc::format;
use alloc::vec::Vec;
use data::Seed;
use disk::{Batch, Change, Origin, PreVersions, Record};
use door::{Action, Errno, LogRoom, Ticket, Turn};
use hashbrown::HashMap;
use wire::{InodeNo, Op, SessionId, ShardId, Transno, Wire, Writer, Xid};

/// A reply that waits: its slot has all the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) shard: ShardId,
    pub(crate) session: SessionId,
    pub(crate) slot: u16,
}

/// What waits for one batch.
#[derive(Debug, Default)]
pub(crate) struct Wave {
    pub(crate) held: Vec<Held>,
    /// Inodes to destroy.
    pub(crate) orphans: Vec<InodeNo>,
    /// Objects that accept no change until their size is recorded.
    pub(crate) fences: Vec<InodeNo>,
    /// Steps of changes over several shards.
    pub(crate) awaited: Vec<Awaited>,
}

/// The log.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) batch: Batch,
    batch_no: u64,
    /// Bytes of the batch in flight, 0 when there is none.
    flying_bytes: u64,
    pub(crate) open: Wave,
    pub(crate) flying: Wave,
    room: LogRoom,
    /// Last number in each shard's log.
    lsns: HashMap<ShardId, u64, Seed>,
}

impl Commit {
    pub(crate) fn new(seed: Seed, lsns: impl Iterator<Item = (ShardId, u64)>) -> Self {
        let mut by_shard = HashMap::with_hasher(seed);
        by_shard.extend(lsns);
        Self {
            batch: Batch::new(),
            batch_no: 0,
            flying_bytes: 0,
            open: Wave::default(),
            flying: Wave::default(),
            // Until the world says otherwise, an append that fails is what tells.
            room: LogRoom { room_bytes: u64::MAX },
            lsns: by_shard,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.flying_bytes == 0 && self.batch.is_empty()
    }

    pub(crate) const fn is_flying(&self) -> bool {
        self.flying_bytes > 0
    }

    pub(crate) const fn set_room(&mut self, room: LogRoom) {
        self.room = room;
    }

    /// What the log takes beyond what is in flight and open.
    pub(crate) fn room_bytes(&self) -> u64 {
        let open_bytes = u64::try_from(self.batch.bytes_count()).unwrap_or(u64::MAX);
        self.room.room_bytes.saturating_sub(self.flying_bytes).saturating_sub(open_bytes)
    }

    /// Puts a transaction into the open batch.
    pub(crate) fn push(
        &mut self,
        (shard, transno): (ShardId, Transno),
        pre_versions: PreVersions,
        origin: Origin<'_>,
        changes: &[u8],
    ) {
        let lsn = self.lsns.entry(shard).or_default();
        *lsn += 1;
        self.batch.push(&Record { shard, lsn: *lsn, transno, pre_versions, origin, changes });
    }
}

impl Lane {
    /// Records what a request changed, with the reply that waits for it; a session's first record
    /// at a shard says who it is. The slot is the caller's to set.
    pub(crate) fn record_asked(
        &mut self,
        held: Held,
        (xid, op): (Xid, Op),
        done: &Done,
        pre_versions: PreVersions,
        changes: &[u8],
    ) {
        let Held { shard, session, slot } = held;
        let table = self.slots.entry((shard, session)).or_default();
        let row = self.sessions.get(&session).map(|session| session.row);
        let opened = row.filter(|_| !table.recorded);
        table.recorded = true;
        let (status, reply) = (done.status, done.body.as_slice());
        let origin = Origin::Session { session, slot, xid, op, status, reply, opened };
        self.commit.push((shard, done.transno), pre_versions, origin, changes);
        self.commit.open.held.push(held);
    }

    /// Records something nobody asked for.
    pub(crate) fn record_own(&mut self, shard: ShardId, transno: Transno, changes: &[u8]) {
        self.commit.push((shard, transno), PreVersions::new(), Origin::Internal, changes);
    }

    /// Records a data shard's change nobody asked for.
    pub(crate) fn record_note(&mut self, shard: ShardId, transno: Transno, change: &Change<'_>) {
        let mut changes = core::mem::take(&mut self.changes);
        changes.clear();
        change.encode(&mut Writer::new(&mut changes));
        self.record_own(shard, transno, &changes);
        self.changes = changes;
        self.fence(change);
    }

    /// An object whose size changed waits for the record.
    pub(crate) fn fence(&mut self, change: &Change<'_>) {
        if let Change::Truncate { inode, .. } = change {
            self.commit.open.fences.push(*inode);
        }
    }

    /// Sends the open batch off, unless one is in flight.
    pub(crate) fn append(&mut self, turn: &mut Turn<'_>) {
        let commit = &mut self.commit;
        if commit.is_flying() || commit.batch.is_empty() {
            return;
        }
        commit.batch_no += 1;
        commit.flying_bytes = u64::try_from(commit.batch.bytes_count()).unwrap_or(u64::MAX);
        core::mem::swap(&mut commit.open, &mut commit.flying);
        let (boot_id, batch_no) = (self.config.boot_id, commit.batch_no);
        let sealed = turn.arena.write(|out| commit.batch.seal(boot_id, batch_no, out));
        let ticket = Ticket(crate::lane::LOG_TICKET | batch_no);
        turn.act(Action::LogAppend { ticket, batch: sealed });
    }

    /// A batch is durable, or the log is broken.
    pub(crate) fn on_logged(&mut self, turn: &mut Turn<'_>, result: Result<LogRoom, Errno>) {
        assert!(self.commit.is_flying(), "what is durable was on its way");
        match result {
            Ok(room) => {
                self.commit.set_room(room);
                self.commit.flying_bytes = 0;
            }
            Err(errno) => {
                let line = format!(
                    "lane {}: the log cannot be written ({}, errno {}). Nothing more can be \
                     acknowledged, so the server ends here; what it acknowledged is safe. Mend \
                     the disk under the store and start again.",
                    self.config.lane,
                    errno.status().text(),
                    errno.0
                );
                let line = turn.arena.put(line.as_bytes());
                self.halted = true;
                return turn.act(Action::Halt { line });
            }
        }
        self.stats.batch_count += 1;
        let mut wave = core::mem::take(&mut self.commit.flying);
        self.release(turn, &wave.held);
        wave.held.clear();
        self.destroys.queue.extend(wave.orphans.drain(..));
        for inode in wave.fences.drain(..) {
            self.data.on_logged(turn, inode);
        }
        let mut awaited = core::mem::take(&mut wave.awaited);
        self.commit.flying = wave; // Keeps its memory.
        for step in awaited.drain(..) {
            self.on_awaited(turn, step);
        }
        self.work(turn);
        self.on_outcomes(turn);
    }
}
