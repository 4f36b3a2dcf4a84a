//! Time-outs of transactions: a participant asks for the outcome of what it has prepared, and a
//! coordinator gives up a Prepare phase that lasts too long.

use super::message::{TxnMessage, TxnMessageKind};
use super::{Step, TimeOut, Txns};
use crate::Lane;
use disk::TxnId;
use interface::{Mono, Turn};
use wire::{Rule, ShardId};

/// The silence after which a participant asks.
const SILENCE_MS_MAX: u64 = 1000;
/// The longest Prepare phase.
const PREPARE_MS_MAX: u64 = 3000;

impl Txns {
    /// Begins a time-out, or begins it anew.
    fn begin_time_out(&mut self, at: Mono, time_out: TimeOut) {
        self.end_time_out(time_out);
        self.time_outs.insert((at, time_out));
        self.time_out_at.insert(time_out, at);
    }

    /// What was waited for has come: a satisfied timer causes no wakeup.
    pub(super) fn end_time_out(&mut self, time_out: TimeOut) {
        if let Some(at) = self.time_out_at.remove(&time_out) {
            self.time_outs.remove(&(at, time_out));
        }
    }

    /// Waits for the outcome of a prepared part.
    pub(super) fn await_outcome(&mut self, now: Mono, (shard, txn): (ShardId, TxnId)) {
        let at = now.after_ms(SILENCE_MS_MAX);
        self.begin_time_out(at, TimeOut::Silence(shard, txn));
    }

    /// Waits for all participants to prepare.
    pub(super) fn await_prepared(&mut self, now: Mono, txn: TxnId) {
        self.begin_time_out(now.after_ms(PREPARE_MS_MAX), TimeOut::Prepare(txn));
    }
}

#[cfg(test)]
impl Txns {
    pub(crate) fn has_prepared(&self) -> bool {
        self.parts.values().any(|part| part.prepared.is_some())
    }

    pub(crate) fn forget_running(&mut self) {
        self.running.clear();
    }
}

impl Lane {
    /// Acts on the time-outs that are over.
    pub(super) fn end_time_outs(&mut self, turn: &mut Turn<'_>) {
        while let Some((at, time_out)) = self.txns.time_outs.first().copied() {
            if at > turn.now.mono {
                break;
            }
            self.txns.end_time_out(time_out);
            match time_out {
                TimeOut::Silence(shard, txn) => self.ask_for_outcome(turn, (shard, txn)),
                TimeOut::Prepare(txn) => self.give_up_preparing(turn, txn),
            }
        }
    }

    pub(super) fn ask_for_outcome(&mut self, turn: &mut Turn<'_>, (shard, txn): (ShardId, TxnId)) {
        let part = self.txns.parts.get(&(shard, txn));
        let is_prepared = part.is_some_and(|part| part.prepared.is_some());
        let is_prepared = is_prepared && self.config.rules.hold(Rule::OutcomeAsked);
        if is_prepared && !self.commit.has_failed() && !self.txns.is_in_doubt(txn) {
            let kind = TxnMessageKind::QueryOutcome {};
            self.write(turn, &TxnMessage { txn, shard, kind });
            self.txns.await_outcome(turn.now.mono, (shard, txn));
        }
    }

    /// A participant asks for the outcome. A pending transaction is answered when it is decided.
    pub(super) fn on_query_outcome(&mut self, turn: &mut Turn<'_>, (shard, txn): (ShardId, TxnId)) {
        let is_later = txn.term() > self.config.map.place(txn.coordinator).term;
        if !self.is_own(txn.coordinator) || is_later {
            return;
        }
        let kind = match self.txns.decided.get(&txn) {
            Some(shards) if shards.contains(&shard) => TxnMessageKind::Commit {},
            None if !self.txns.running.contains_key(&txn) => {
                if !self.config.rules.hold(Rule::PresumedAbort) {
                    return;
                }
                TxnMessageKind::Abort {}
            }
            // Its record may be in the log or not.
            None if self.commit.has_failed() => TxnMessageKind::InDoubt {},
            // It is done there, or undecided.
            Some(_) | None => return,
        };
        self.write(turn, &TxnMessage { txn, shard, kind });
    }

    /// Aborts; the request is tried again.
    fn give_up_preparing(&mut self, turn: &mut Turn<'_>, txn: TxnId) {
        let running = self.txns.running.get(&txn);
        if running.is_some_and(|running| running.step == Step::Preparing) {
            self.try_again(turn, txn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_that_begins_anew_ends_once() {
        let mut txns = Txns::default();
        let of = (ShardId(1), TxnId { coordinator: ShardId(0), number: 9 });
        txns.await_outcome(Mono(0), of);
        txns.await_outcome(Mono(5_000_000), of);
        let time_outs: alloc::vec::Vec<Mono> = txns.time_outs.iter().map(|(at, _)| *at).collect();
        assert_eq!(time_outs, [Mono(5_000_000).after_ms(SILENCE_MS_MAX)]);
        txns.end_time_out(TimeOut::Silence(of.0, of.1));
        assert!(txns.time_outs.is_empty() && txns.time_out_at.is_empty());
    }
}
