//! Cross-shard transactions: two-phase commit with presumed abort (docs/protocol.md §12).
//!
//! The coordinator is the shard of the request; it has the slot. Messages go between lanes, also to
//! the own one, so that it makes no difference which shards share a lane. Invariants: no
//! participant waits while it holds locks; a prepared part is durable before the decision is
//! recorded, and the decision before any message or reply reveals it; a decision is forgotten when
//! every part is durable.
//!
//! ```text
//! request ─ CrossDevice ─▶ Looking ⇄ messages ─▶ Preparing ─▶ Deciding ─ durable ─▶ reply, Commit
//!                             │ locked by another: releases all locks,
//!                             └──────────▶ Pausing ─▶ retries from the start
//! ```

mod coordinator;
mod message;
mod outcome;
mod participant;
mod placement;
mod resolve;
mod servers;

pub(crate) use resolve::{InDoubt, Kept, Resolved};

use crate::Lane;
use crate::peers::message::PeerBody;
use crate::request_header::SlotId;
use crate::waiters::{Awaited, Cause, Waiter};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use disk::TxnId;
use interface::{Mono, Turn};
pub(crate) use message::{TxnMessage, TxnMessageKind};
use wire::{ClientUuid, InodeNo, Op, Rule, ShardId, Transno, Wire, Xid};

/// This lane's cross-shard transactions.
#[derive(Debug, Default)]
pub(crate) struct Txns {
    /// The number of transactions of this boot.
    count: u64,
    /// As coordinator: the undecided transactions.
    running: BTreeMap<TxnId, Running>,
    /// As coordinator: the durably decided ones, with the participants whose parts are not durable
    /// yet.
    decided: BTreeMap<TxnId, BTreeSet<ShardId>>,
    /// As participant: the locked or prepared parts.
    parts: BTreeMap<(ShardId, TxnId), Part>,
    /// Transactions whose coordinator does not know their outcome any more.
    in_doubt: BTreeSet<TxnId>,
    /// Time-outs of prepared parts and of Prepare phases, by time, and the time of each.
    time_outs: BTreeSet<(Mono, TimeOut)>,
    time_out_at: BTreeMap<TimeOut, Mono>,
    /// When paused transactions retry.
    pauses: BTreeSet<(Mono, TxnId)>,
    /// Access times of locked inodes: recorded behind the transaction that holds the lock.
    accessed: Vec<(InodeNo, u64)>,
    /// The same, after the lock's release.
    accessed_due: Vec<(InodeNo, u64)>,
    /// Messages to this lane itself.
    own_messages: VecDeque<Vec<u8>>,
    /// [`Lane::work`] is running.
    at_work: bool,
    /// The decisions restored at the start have been sent to their participants.
    decisions_sent: bool,
    /// New directories placed so far.
    placed_count: u64,
    /// Inode counts of other lanes' shards, as last reported.
    inode_counts: BTreeMap<ShardId, u64>,
    /// Scratch.
    plan: meta::Plan,
}

/// A transaction that this lane coordinates.
#[derive(Debug)]
struct Running {
    slot_id: SlotId,
    xid: Xid,
    op: Op,
    body: Vec<u8>,
    client: ClientUuid,
    squash: wire::Squash,
    spread: Option<meta::DirectoryPlacement>,
    view: meta::View,
    step: Step,
    /// Participants that were sent a message.
    touched: BTreeSet<ShardId>,
    /// Participants that have not replied.
    awaited: BTreeSet<ShardId>,
    /// A participant found something locked.
    refused: Option<wire::Status>,
    try_count: u32,
    /// Shards with a part of the transaction.
    parted: BTreeSet<ShardId>,
    /// The files it changes.
    files: Vec<InodeNo>,
    /// The coordinator's own part.
    own: Vec<u8>,
    /// The reply's body.
    reply: Vec<u8>,
}

/// The state of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Looking,
    Preparing,
    /// The decision is recorded, not durable yet.
    Deciding,
    Pausing,
}

/// What is due at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TimeOut {
    /// A participant has heard nothing about what it has prepared.
    Silence(ShardId, TxnId),
    /// Participants have not prepared.
    Prepare(TxnId),
}

/// A participant's part.
#[derive(Debug, Default)]
struct Part {
    /// The part as it was prepared, and by which transaction.
    prepared: Option<(Transno, Vec<u8>)>,
    /// The state found, until the changes that it shows are durable.
    found: Option<Vec<u8>>,
    /// The client for which it makes an inode.
    maker: Option<ClientUuid>,
}

impl Txns {
    /// The client of a transaction that this lane coordinates.
    pub(crate) fn client_of(&self, txn: TxnId) -> Option<ClientUuid> {
        self.running.get(&txn).map(|running| running.client)
    }

    /// The slots of the requests whose transactions this lane coordinates.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &SlotId> {
        self.running.values().map(|running| &running.slot_id)
    }

    /// With the decisions that a start found not forgotten, and the prepared parts whose
    /// coordinators are at other servers.
    pub(crate) fn new(decided: BTreeMap<TxnId, BTreeSet<ShardId>>, prepared: Vec<Kept>) -> Self {
        let parts = prepared.into_iter().map(|Kept { shard, txn, prepared_by, part }| {
            ((shard, txn), Part { prepared: Some((prepared_by, part)), ..Part::default() })
        });
        Self { decided, parts: parts.collect(), ..Self::default() }
    }

    /// Whether no transaction is left that must end in this boot.
    pub(crate) fn is_idle(&self) -> bool {
        let decided = self.running.values().any(|running| running.step != Step::Pausing);
        self.parts.is_empty() && self.own_messages.is_empty() && !decided
    }

    /// Whether a transaction will retry after a pause.
    pub(crate) fn is_pausing(&self) -> bool {
        self.running.values().any(|running| running.step == Step::Pausing)
    }

    /// Whether no transaction is left.
    pub(crate) fn is_at_rest(&self) -> bool {
        let pauses = self.pauses.is_empty();
        self.is_idle() && self.running.is_empty() && self.decided.is_empty() && pauses
    }

    /// The transactions whose outcome is unknown until the next start.
    pub(crate) fn in_doubt_count(&self) -> u64 {
        u64::try_from(self.in_doubt.len()).unwrap_or(u64::MAX)
    }

    /// Whether a part at this shard is prepared, and its outcome may still come.
    pub(crate) fn awaits_outcome(&self, shard: ShardId) -> bool {
        self.parts.iter().any(|((at, txn), part)| {
            *at == shard && part.prepared.is_some() && !self.in_doubt.contains(txn)
        })
    }

    /// Whether a transaction's locks remain until the next start.
    pub(crate) fn is_in_doubt(&self, txn: TxnId) -> bool {
        self.in_doubt.contains(&txn)
    }

    /// Log bytes reserved for the records of transactions.
    pub(crate) fn promised_bytes(&self) -> u64 {
        const PART_BYTES: u64 = 4096;
        let count = self.parts.len() + self.running.len();
        u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(PART_BYTES)
    }

    /// The next retry or time-out.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        let pause = self.pauses.first().map(|(at, _)| *at);
        let time_out = self.time_outs.first().map(|(at, _)| *at);
        pause.into_iter().chain(time_out).min()
    }
}

impl Txns {
    /// Defers the access time of a locked inode. Beyond a limit they are lost, as by a crash.
    pub(crate) fn defer_access(&mut self, inode: InodeNo, write_time_ns: u64) {
        const DEFERRED_COUNT_MAX: usize = 4096;
        if self.accessed.len() < DEFERRED_COUNT_MAX {
            self.accessed.push((inode, write_time_ns));
        }
    }
}

impl Running {
    /// The other shards with a part of the transaction.
    fn prepared_by(&self, txn: TxnId) -> impl Iterator<Item = ShardId> {
        self.parted.iter().copied().filter(move |shard| *shard != txn.coordinator)
    }
}

impl Lane {
    pub(crate) fn is_own(&self, shard: ShardId) -> bool {
        self.config.map.has(shard) && self.lane_of(shard) == self.me()
    }

    /// Sends a message to its receiver: the participant, or the coordinator.
    fn write(&mut self, turn: &mut Turn<'_>, message: &TxnMessage<'_>) {
        let to = match message.kind {
            TxnMessageKind::Look { .. }
            | TxnMessageKind::Prepare { .. }
            | TxnMessageKind::Commit {}
            | TxnMessageKind::Abort {}
            | TxnMessageKind::InDoubt {} => message.shard,
            TxnMessageKind::Seen { .. }
            | TxnMessageKind::Prepared { .. }
            | TxnMessageKind::Done { .. }
            | TxnMessageKind::QueryOutcome {} => message.txn.coordinator,
        };
        self.send_to_shard(turn, to, &PeerBody::Txn { message: *message });
    }

    /// A message from this lane to itself: applied by [`Lane::work`].
    pub(crate) fn queue_for_self(&mut self, message: &TxnMessage<'_>) {
        self.txns.own_messages.push_back(message.to_bytes());
    }

    /// A message of a peer lane.
    pub(crate) fn on_txn_message(&mut self, turn: &mut Turn<'_>, message: &TxnMessage<'_>) {
        self.take_step(turn, message);
        self.work(turn);
    }

    fn take_step(&mut self, turn: &mut Turn<'_>, message: &TxnMessage<'_>) {
        let TxnMessage { txn, shard, kind } = *message;
        match kind {
            TxnMessageKind::Look { client, frees, wants } => {
                self.on_look(turn, (shard, txn), (client, frees), wants.0)
            }
            TxnMessageKind::Seen { status, found, inode_count } => {
                self.txns.inode_counts.insert(shard, inode_count);
                self.on_look_reply(turn, (shard, txn), status, found.0);
            }
            TxnMessageKind::Prepare { part } => self.on_prepare(turn, (shard, txn), part.0),
            TxnMessageKind::Prepared { status } => self.on_prepared(turn, (shard, txn), status),
            TxnMessageKind::Commit {} => self.on_commit(turn, (shard, txn)),
            TxnMessageKind::Done { inode_count } => {
                self.txns.inode_counts.insert(shard, inode_count);
                self.on_done(turn, (shard, txn));
            }
            TxnMessageKind::Abort {} => self.on_abort((shard, txn)),
            TxnMessageKind::InDoubt {} => self.on_in_doubt(turn, (shard, txn)),
            TxnMessageKind::QueryOutcome {} => self.on_query_outcome(turn, (shard, txn)),
        }
    }

    /// Applies the lane's messages to itself and resumes suspended requests, until there are none.
    pub(crate) fn work(&mut self, turn: &mut Turn<'_>) {
        if core::mem::replace(&mut self.txns.at_work, true) {
            return;
        }
        loop {
            if let Some(body) = self.txns.own_messages.pop_front() {
                #[expect(clippy::expect_used, reason = "this lane has encoded it")]
                let message = TxnMessage::decode_all(&body).expect("it decodes");
                self.take_step(turn, &message);
            } else if let Some((inode, write_time_ns)) = self.txns.accessed_due.pop() {
                self.record_access(turn, inode, write_time_ns);
            } else if let Some(suspended) = self.waiters.next_due() {
                self.resume(turn, suspended);
            } else {
                break;
            }
        }
        self.txns.at_work = false;
    }

    /// A step's batch is durable.
    pub(crate) fn on_awaited(&mut self, turn: &mut Turn<'_>, awaited: Awaited) {
        match awaited {
            Awaited::Looked(shard, txn) => self.on_looked(turn, (shard, txn)),
            Awaited::Prepared(shard, txn) => self.on_prepared_durable(turn, (shard, txn)),
            Awaited::Decided(txn) => self.on_decided(turn, txn),
            Awaited::Done(shard, txn) => self.on_done_durable(turn, (shard, txn)),
        }
    }

    /// Runs a step when everything recorded so far is durable.
    fn await_durable(&mut self, turn: &mut Turn<'_>, awaited: Awaited) {
        if self.commit.has_failed() {
            // The outcomes that a start resolved may not be recorded yet.
            return self.fail_awaited(turn, awaited);
        }
        match self.commit.last_unsafe() {
            Some(until) => self.waiters.suspend(Cause::Batch(until), Waiter::Step(awaited)),
            None => self.on_awaited(turn, awaited),
        }
    }

    /// Records the outcomes that a start resolved.
    pub(crate) fn record_resolved(&mut self, resolved: Vec<Resolved>) {
        for Resolved { shard, transno, changes } in resolved {
            self.record_own(shard, transno, &changes);
        }
    }

    /// Once a turn: resends restored decisions after a start, and retries paused transactions.
    pub(crate) fn settle_txns(&mut self, turn: &mut Turn<'_>) {
        if !self.txns.decisions_sent {
            self.txns.decisions_sent = true;
            self.await_kept(turn);
            if !self.config.rules.hold(Rule::DecidedKept) {
                self.txns.decided.clear();
            }
            let decided = self.txns.decided.iter();
            let all: Vec<_> = decided
                .flat_map(|(txn, shards)| shards.iter().map(|shard| (*shard, *txn)))
                .collect();
            for (shard, txn) in all {
                self.write(turn, &TxnMessage { txn, shard, kind: TxnMessageKind::Commit {} });
            }
        }
        while let Some((at, txn)) = self.txns.pauses.first().copied() {
            if at > turn.now.mono {
                break;
            }
            self.txns.pauses.pop_first();
            self.advance(turn, txn);
        }
        self.end_time_outs(turn);
        if self.is_stopping() {
            self.drop_undecided(turn);
        }
        self.work(turn);
    }
}
