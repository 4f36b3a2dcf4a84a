//! The order of all durable transactions: one sequence for each shard, joined where a transaction
//! has parts at several shards.

use crate::due::Verdict;
use crate::model::{Effect, Tree};
use crate::simulation::Simulation;
use crate::tap::{Decided, DurableTxn};
use crate::work::{CallState, Tag};
use disk::TxnId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{Created, Entry, Op, ShardId, Transno, Wire};

/// A step of a shard.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    /// The change of a call, and whether it has parts at other shards.
    Change(Tag, &'a DurableTxn, Option<Decided>),
    /// A part of a transaction that another shard decided.
    Part(TxnId),
}

/// The steps that are not executed yet, by shard.
struct Sequences<'a> {
    steps: BTreeMap<ShardId, VecDeque<(Transno, Step<'a>)>>,
    executed: BTreeSet<TxnId>,
    tree: Tree,
}

impl Simulation {
    /// I15: executes the durable transactions one after another in their order.
    pub(crate) fn executed(&self) -> Result<Tree, String> {
        self.judge_parts()?;
        let steps = self.steps();
        let executed = BTreeSet::new();
        let mut sequences = Sequences { steps, executed, tree: Tree::new() };
        loop {
            while self.advance(&mut sequences)? {}
            if sequences.steps.values().all(VecDeque::is_empty) {
                return Ok(sequences.tree);
            }
            // Transactions that are independent of each other may wait for each other's parts.
            if !self.advance_crossed(&mut sequences) {
                let heads: Vec<_> = sequences
                    .steps
                    .iter()
                    .filter_map(|(shard, steps)| Some((shard, steps.front()?)))
                    .collect();
                return Err(format!("I15: no order explains {heads:?}"));
            }
        }
    }

    /// I1: a transaction over several shards has all its parts or none.
    fn judge_parts(&self) -> Verdict {
        let mut counts: BTreeMap<TxnId, u32> = BTreeMap::new();
        for (txn_id, _) in self.tap.parts.values() {
            *counts.entry(*txn_id).or_default() += 1;
        }
        for (at, Decided { txn_id, part_count, .. }) in &self.tap.decided {
            let made_count = counts.remove(txn_id).unwrap_or(0);
            if made_count != *part_count {
                return Err(format!(
                    "I1: {txn_id:?}, decided at {at:?}, has {made_count} of {part_count} parts"
                ));
            }
        }
        match counts.first_key_value() {
            Some((txn_id, _)) => Err(format!("I1: {txn_id:?} has parts and was never decided")),
            None => Ok(()),
        }
    }

    fn steps(&self) -> BTreeMap<ShardId, VecDeque<(Transno, Step<'_>)>> {
        let mut all = BTreeMap::new();
        for (at, txn) in &self.tap.durable {
            if let Some(tag) = txn.tag.filter(|_| txn.op != Op::Open && txn.effective) {
                let txn_id = self.tap.decided.get(at).copied();
                let place = (at.0, at.1, None);
                all.insert(place, (at.1, Step::Change(tag, txn, txn_id)));
            }
        }
        all.extend(self.tap.parts.iter().map(|((shard, transno), (txn_id, after))| {
            ((*shard, *after, Some(*transno)), (*transno, Step::Part(*txn_id)))
        }));
        let mut steps: BTreeMap<ShardId, VecDeque<_>> = BTreeMap::new();
        for ((shard, ..), (transno, step)) in all {
            steps.entry(shard).or_default().push_back((transno, step));
        }
        steps
    }

    /// Executes the first steps that are ready; whether there was one.
    fn advance(&self, sequences: &mut Sequences<'_>) -> Result<bool, String> {
        let heads: Vec<(ShardId, Transno, Step<'_>)> = sequences
            .steps
            .iter()
            .filter_map(|(shard, steps)| steps.front().map(|step| (*shard, step.0, step.1)))
            .collect();
        let mut any = false;
        for (shard, transno, step) in heads {
            let ready = match step {
                Step::Part(txn_id) => sequences.executed.contains(&txn_id),
                Step::Change(_, _, None) => true,
                Step::Change(_, _, Some(decided)) => sequences.is_first_everywhere(decided.txn_id),
            };
            if !ready {
                continue;
            }
            if let Step::Change(tag, txn, decided) = step {
                self.execute(&mut sequences.tree, tag, txn)
                    .map_err(|why| format!("I15: {shard} T {transno}, {why}"))?;
                sequences.executed.extend(decided.map(|decided| decided.txn_id));
            }
            sequences.pop(shard);
            any = true;
        }
        Ok(any)
    }

    /// Executes the transaction that was decided first among those that wait for each other's
    /// parts; whether there was one.
    fn advance_crossed(&self, sequences: &mut Sequences<'_>) -> bool {
        let mut heads: Vec<(u64, ShardId, Tag, &DurableTxn, TxnId)> = Vec::new();
        for (shard, steps) in &sequences.steps {
            if let Some((_, Step::Change(tag, txn, Some(decided)))) = steps.front() {
                heads.push((decided.order_no, *shard, *tag, *txn, decided.txn_id));
            }
        }
        heads.sort_by_key(|(order_no, ..)| *order_no);
        for (_, shard, tag, txn, txn_id) in heads {
            let mut tree = sequences.tree.clone();
            if self.execute(&mut tree, tag, txn).is_ok() {
                sequences.tree = tree;
                sequences.executed.insert(txn_id);
                sequences.pop(shard);
                return true;
            }
        }
        false
    }

    fn execute(&self, tree: &mut Tree, tag: Tag, txn: &DurableTxn) -> Verdict {
        let Some(call) = self.call_of(tag) else { return Ok(()) };
        let effect = effect_of(txn);
        let spec = &call.spec;
        tree.apply(tag, spec, effect).map_err(|why| format!("call {tag} {spec:?}: {why}"))?;
        let replied = match &call.ended {
            CallState::Done(result) => result.inode,
            CallState::Open | CallState::Failed(_) => None,
        };
        match (replied, effect.inode) {
            (Some(replied), Some(made)) if replied != made => {
                Err(format!("call {tag} {spec:?} made {made} and the reply says {replied}"))
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

impl Sequences<'_> {
    fn pop(&mut self, shard: ShardId) {
        if let Some(steps) = self.steps.get_mut(&shard) {
            steps.pop_front();
        }
    }

    /// Every part of a transaction is the first step of its shard.
    fn is_first_everywhere(&self, txn_id: TxnId) -> bool {
        let waits = |steps: &VecDeque<(Transno, Step<'_>)>| {
            let is_ours = |step: &Step<'_>| matches!(step, Step::Part(part) if *part == txn_id);
            steps.iter().position(|(_, step)| is_ours(step)).is_some_and(|at| at > 0)
        };
        !self.steps.values().any(waits)
    }
}

/// The effect that a transaction's reply reports.
fn effect_of(txn: &DurableTxn) -> Effect {
    match txn.op {
        Op::Create | Op::Tmpfile => {
            Created::decode_all(&txn.reply).map_or(Effect::default(), |created| Effect {
                inode: Some(created.attr.inode),
                made: created.made,
            })
        }
        Op::Mkdir | Op::Symlink | Op::Mknod => {
            Entry::decode_all(&txn.reply).map_or(Effect::default(), |entry| Effect {
                inode: Some(entry.attr.inode),
                made: true,
            })
        }
        _ => Effect::default(),
    }
}
