//! Transactions over several servers, when one of them restarts or the connection to it is lost.
//!
//! ```text
//! the coordinator loses a participant:  undecided ones are tried again, decided ones wait
//! a participant loses the coordinator:  what is only locked is released, what is prepared waits
//! they are connected again:             Commit for what is decided, QueryOutcome for what is prepared
//! ```
//! A coordinator sends no Prepare over another connection than its Looks. So what a participant has
//! prepared it had locked all the time since it was looked at.

use super::message::{TxnMessage, TxnMessageKind};
use super::{Step, TimeOut};
use crate::Lane;
use alloc::vec::Vec;
use disk::TxnId;
use interface::Turn;
use wire::{PeerLane, Rule, ShardId};

impl Lane {
    /// At a start: asks for the outcomes of what was prepared for other servers' transactions.
    pub(super) fn await_kept(&mut self, turn: &Turn<'_>) {
        let kept: Vec<(ShardId, TxnId)> = self.txns.parts.keys().copied().collect();
        for key in kept {
            if self.config.rules.hold(Rule::PreparedKept) {
                self.txns.await_outcome(turn.now.mono, key);
            } else {
                self.on_abort(key);
            }
        }
    }

    /// The connection to a lane has ended.
    pub(crate) fn forget_txns_with(&mut self, turn: &mut Turn<'_>, lane: PeerLane) {
        let parts = self.txns.parts.iter();
        let locked: Vec<(ShardId, TxnId)> = parts
            .filter(|((_, txn), part)| {
                let is_there = self.lane_of(txn.coordinator) == lane;
                part.prepared.is_none() && is_there && self.config.rules.hold(Rule::LocksReleased)
            })
            .map(|(key, _)| *key)
            .collect();
        for (shard, txn) in locked {
            self.txns.parts.remove(&(shard, txn));
            self.release_locks(shard, txn);
        }
        let running = self.txns.running.iter();
        let undecided: Vec<TxnId> = running
            .filter(|(_, running)| {
                let is_there = |shard: &ShardId| self.lane_of(*shard) == lane;
                matches!(running.step, Step::Looking | Step::Preparing)
                    && running.touched.iter().any(is_there)
            })
            .map(|(txn, _)| *txn)
            .collect();
        if self.config.rules.hold(Rule::UndecidedGivenUp) {
            undecided.into_iter().for_each(|txn| self.try_again(turn, txn));
        }
        self.work(turn);
    }

    /// A connection to a lane begins.
    pub(crate) fn restate_txns(&mut self, turn: &mut Turn<'_>, lane: PeerLane) {
        let decided = self.txns.decided.iter();
        let decided = decided.flat_map(|(txn, shards)| shards.iter().map(|shard| (*shard, *txn)));
        let decided: Vec<(ShardId, TxnId)> =
            decided.filter(|(shard, _)| self.lane_of(*shard) == lane).collect();
        for (shard, txn) in decided {
            self.write(turn, &TxnMessage { txn, shard, kind: TxnMessageKind::Commit {} });
        }
        let parts = self.txns.parts.keys().copied();
        let prepared: Vec<(ShardId, TxnId)> =
            parts.filter(|(_, txn)| self.lane_of(txn.coordinator) == lane).collect();
        for (shard, txn) in prepared {
            // Another start of the coordinator may know the outcome.
            self.txns.in_doubt.remove(&txn);
            self.txns.end_time_out(TimeOut::Silence(shard, txn));
            self.ask_for_outcome(turn, (shard, txn));
        }
    }
}
