//! Changes over several shards: two phases, presumed abort (PROTOCOL.md §14).
//!
//! The coordinator is the shard that was asked; it has the slot. Letters go between lanes, also
//! to the own one, so that it makes no difference which shards share a lane. Invariants: nobody waits
//! while he has something locked; what was prepared is durable before the decision is recorded, and
//! the decision before anybody hears of it; what was decided is forgotten when every part is durable.
//!
//! ```text
//! request ─ CrossDevice ─▶ Looking ⇄ letters ─▶ Preparing ─▶ Deciding ─ durable ─▶ reply, Commit
//!                             │ locked by another: everything is given back,
//!                             └──────────▶ Pausing ─▶ from the start
//! ```

mod coordinator;
mod message;
mod participant;
mod placement;
mod resolve;
mod suspended;

pub(crate) use resolve::{InDoubt, Resolved};
pub(crate) use suspended::SuspendedRequest;

use crate::Lane;
use crate::commit::SlotId;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use disk::TxnId;
use interface::{Mono, PeerAction, Span, Turn};
use message::{TxnMessage, TxnMessageKind};
use wire::{ClientUuid, InodeNo, Op, ShardId, Transno, Wire, Xid};

/// All that this lane has to do with changes over several shards.
#[derive(Debug, Default)]
pub(crate) struct Txns {
    /// Numbers given to changes in this boot.
    count: u64,
    /// As coordinator: not decided yet.
    running: BTreeMap<TxnId, Running>,
    /// As coordinator: decided durably, and who has not made his part durably yet.
    decided: BTreeMap<TxnId, BTreeSet<ShardId>>,
    /// As participant: what was locked or prepared.
    parts: BTreeMap<(ShardId, TxnId), Part>,
    /// Of these, those whose coordinator cannot tell any more how they end.
    in_doubt: BTreeSet<TxnId>,
    /// Who tries again when.
    pauses: BTreeSet<(Mono, TxnId)>,
    /// Requests that wait for something locked, by who has it.
    suspended: BTreeMap<(ShardId, TxnId), Vec<SuspendedRequest>>,
    /// Requests whose wait is over.
    pub(crate) due: VecDeque<SuspendedRequest>,
    /// Reads of what is locked: they count behind the change that has it.
    accessed: Vec<(InodeNo, u64)>,
    /// The same, when its lock is gone.
    accessed_due: Vec<(InodeNo, u64)>,
    /// Letters to this lane itself.
    post: VecDeque<Vec<u8>>,
    /// Somebody is at work on `post` and `due`.
    at_work: bool,
    /// A start left decisions whose participants have to be told.
    told: bool,
    /// New directories placed so far.
    placed_count: u64,
    /// Inodes of other lanes' shards, as they last told.
    inode_counts: BTreeMap<ShardId, u64>,
    /// Scratch.
    plan: meta::Plan,
}

/// A change that this lane coordinates.
#[derive(Debug)]
struct Running {
    slot_id: SlotId,
    xid: Xid,
    op: Op,
    body: Vec<u8>,
    client: ClientUuid,
    squash: wire::Squash,
    spread: Option<meta::Spread>,
    view: meta::View,
    step: Step,
    /// Participants that were written to.
    touched: BTreeSet<ShardId>,
    /// Of them, those that have not answered.
    awaited: BTreeSet<ShardId>,
    /// A participant found something locked.
    refused: Option<wire::Status>,
    try_count: u32,
    /// Shards with a part of it.
    parted: BTreeSet<ShardId>,
    /// The files it changes.
    files: Vec<InodeNo>,
    /// The coordinator's own part.
    own: Vec<u8>,
    /// The reply's body.
    reply: Vec<u8>,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Looking,
    Preparing,
    /// The decision is recorded, not durable yet.
    Deciding,
    Pausing,
}

/// What a participant keeps.
#[derive(Debug, Default)]
struct Part {
    /// The part as it was prepared, and by which transaction.
    prepared: Option<(Transno, Vec<u8>)>,
    /// What was found, while it waits until nothing of it can be lost.
    told: Option<Vec<u8>>,
}

/// What waits for a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// What a participant tells of.
    Looked(ShardId, TxnId),
    /// The participant's word to be ready.
    Prepared(ShardId, TxnId),
    /// The decision.
    Decided(TxnId),
    /// A part that was made.
    Done(ShardId, TxnId),
}

impl Txns {
    /// With what a start found decided and not forgotten.
    pub(crate) fn new(decided: BTreeMap<TxnId, BTreeSet<ShardId>>) -> Self {
        Self { decided, ..Self::default() }
    }

    /// Nothing is left that must end in this boot.
    pub(crate) fn is_idle(&self) -> bool {
        let decided = self.running.values().any(|running| running.step != Step::Pausing);
        self.parts.is_empty() && self.post.is_empty() && !decided
    }

    /// Whether some of its own will be tried again after a pause.
    pub(crate) fn is_pausing(&self) -> bool {
        self.running.values().any(|running| running.step == Step::Pausing)
    }

    /// Nothing is left at all.
    pub(crate) fn is_at_rest(&self) -> bool {
        let waits = self.suspended.is_empty() && self.due.is_empty() && self.pauses.is_empty();
        self.is_idle() && self.running.is_empty() && self.decided.is_empty() && waits
    }

    /// Whoever finds something locked by it waits until the next start.
    pub(crate) fn is_in_doubt(&self, txn: TxnId) -> bool {
        self.in_doubt.contains(&txn)
    }

    /// Bytes of log that were promised to those who prepared or are about to.
    pub(crate) fn promised_bytes(&self) -> u64 {
        const PART_BYTES: u64 = 4096;
        let count = self.parts.len() + self.running.len();
        u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(PART_BYTES)
    }

    /// The next time somebody tries again.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.pauses.first().map(|(at, _)| *at)
    }
}

impl Txns {
    /// A read of something locked waits. Of too many the times are lost, as by a crash.
    pub(crate) fn defer_access(&mut self, inode: InodeNo, write_time_ns: u64) {
        const DEFERRED_COUNT_MAX: usize = 4096;
        if self.accessed.len() < DEFERRED_COUNT_MAX {
            self.accessed.push((inode, write_time_ns));
        }
    }
}

impl Running {
    /// The other shards with a part of it.
    fn prepared_by(&self, txn: TxnId) -> impl Iterator<Item = ShardId> {
        self.parted.iter().copied().filter(move |shard| *shard != txn.coordinator)
    }
}

impl Lane {
    pub(crate) fn is_own(&self, shard: ShardId) -> bool {
        self.config.map.has(shard) && self.config.map.lane(shard) == self.config.lane
    }

    /// Writes to whom a letter is for: to the participant, or back to the coordinator.
    fn write(&mut self, turn: &mut Turn<'_>, message: &TxnMessage<'_>) {
        let to = match message.words {
            TxnMessageKind::Look { .. }
            | TxnMessageKind::Prepare { .. }
            | TxnMessageKind::Commit
            | TxnMessageKind::Abort
            | TxnMessageKind::InDoubt => message.shard,
            TxnMessageKind::Seen { .. }
            | TxnMessageKind::Prepared { .. }
            | TxnMessageKind::Done { .. } => message.txn.coordinator,
        };
        let to = self.config.map.lane(to);
        if to == self.config.lane {
            self.txns.post.push_back(message.to_bytes());
            return;
        }
        let body = turn.arena.write(|out| message.encode(&mut wire::Writer::new(out)));
        turn.act(PeerAction::Encoded { to, body });
    }

    /// A peer lane wrote.
    pub(crate) fn on_encoded_message(&mut self, turn: &mut Turn<'_>, body: Span) {
        let body = turn.arena.get(body).to_vec();
        let is_ours = |ours: fn(u8) -> bool| body.first().is_some_and(|first| ours(*first));
        if is_ours(crate::deadlock::is_ours) {
            return self.on_deadlock_message(turn, &body);
        }
        if !is_ours(message::is_ours) {
            if body.first() == Some(&crate::export_ops::EXPORT_TAG) {
                return self.on_export_message(turn, &body[1..]);
            }
            return self.on_eviction_message(turn, &body);
        }
        self.read(turn, &body);
        self.work(turn);
    }

    fn read(&mut self, turn: &mut Turn<'_>, body: &[u8]) {
        // Lanes of one process speak one language.
        let Ok(TxnMessage { txn, shard, words }) = TxnMessage::decode_all(body) else { return };
        match words {
            TxnMessageKind::Look { frees, wants } => {
                self.on_look(turn, (shard, txn), frees, wants.0)
            }
            TxnMessageKind::Seen { status, told, inode_count } => {
                self.txns.inode_counts.insert(shard, inode_count);
                self.on_seen(turn, (shard, txn), status, told.0);
            }
            TxnMessageKind::Prepare { part } => self.on_prepare(turn, (shard, txn), part.0),
            TxnMessageKind::Prepared { status } => self.on_prepared(turn, (shard, txn), status),
            TxnMessageKind::Commit => self.on_commit(turn, (shard, txn)),
            TxnMessageKind::Done { inode_count } => {
                self.txns.inode_counts.insert(shard, inode_count);
                self.on_done(turn, (shard, txn));
            }
            TxnMessageKind::Abort => self.on_abort((shard, txn)),
            TxnMessageKind::InDoubt => self.on_in_doubt(turn, (shard, txn)),
        }
    }

    /// Reads the letters to oneself and takes up requests whose wait is over, until there are none.
    pub(crate) fn work(&mut self, turn: &mut Turn<'_>) {
        if core::mem::replace(&mut self.txns.at_work, true) {
            return;
        }
        loop {
            if let Some(body) = self.txns.post.pop_front() {
                self.read(turn, &body);
            } else if let Some((inode, write_time_ns)) = self.txns.accessed_due.pop() {
                self.note_access(turn, inode, write_time_ns);
            } else if let Some(suspended) = self.txns.due.pop_front() {
                self.take_up(turn, suspended);
            } else {
                break;
            }
        }
        self.txns.at_work = false;
    }

    /// What waited for a batch that is durable now.
    pub(crate) fn on_awaited(&mut self, turn: &mut Turn<'_>, awaited: Awaited) {
        match awaited {
            Awaited::Looked(shard, txn) => self.on_looked(turn, (shard, txn)),
            Awaited::Prepared(shard, txn) => self.on_prepared_durable(turn, (shard, txn)),
            Awaited::Decided(txn) => self.on_decided(turn, txn),
            Awaited::Done(shard, txn) => self.on_done_durable(turn, (shard, txn)),
        }
    }

    /// Waits until everything recorded so far is durable.
    fn await_durable(&mut self, turn: &mut Turn<'_>, awaited: Awaited) {
        if self.fenced {
            // What a start has resolved may be recorded nowhere yet.
            return self.fail_awaited(turn, awaited);
        }
        match self.commit.until_all() {
            Some(until) => self.commit.dependents(until).awaited.push(awaited),
            None => self.on_awaited(turn, awaited),
        }
    }

    /// Records what a start made of changes that were in the middle.
    pub(crate) fn record_resolved(&mut self, resolved: Vec<Resolved>) {
        for Resolved { shard, transno, changes } in resolved {
            self.record_own(shard, transno, &changes);
        }
    }

    /// Looks at the time, and tells at a start what was decided before it.
    pub(crate) fn settle_txns(&mut self, turn: &mut Turn<'_>) {
        if !self.txns.told {
            self.txns.told = true;
            let decided = self.txns.decided.iter();
            let all: Vec<_> = decided
                .flat_map(|(txn, shards)| shards.iter().map(|shard| (*shard, *txn)))
                .collect();
            for (shard, txn) in all {
                self.write(turn, &TxnMessage { txn, shard, words: TxnMessageKind::Commit });
            }
        }
        while let Some((at, txn)) = self.txns.pauses.first().copied() {
            if at > turn.now.mono {
                break;
            }
            self.txns.pauses.pop_first();
            self.advance(turn, txn);
        }
        if self.stopping {
            self.drop_undecided(turn);
        }
        self.work(turn);
    }
}
