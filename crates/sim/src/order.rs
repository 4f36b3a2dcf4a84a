//! The order in which everything durable happened: one sequence for each shard, joined where a
//! change has parts at several.

use crate::model::{Effect, Tree};
use crate::tap::{Decided, Kept};
use crate::work::{Ended, Tag};
use crate::world::{Verdict, World};
use disk::TxnId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{Created, Entry, Op, ShardId, Transno, Wire};

/// A step of a shard.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    /// A call's change, and whether it has parts elsewhere.
    Change(Tag, &'a Kept, Option<Decided>),
    /// A part of a change that another shard decided.
    Part(TxnId),
}

/// What is left to execute, shard by shard.
struct Sequences<'a> {
    steps: BTreeMap<ShardId, VecDeque<(Transno, Step<'a>)>>,
    executed: BTreeSet<TxnId>,
    tree: Tree,
}

impl World {
    /// I15: the sequential execution of what is durable, in the order of transactions.
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
            // Changes that have nothing to do with each other may cross.
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

    /// I1: of a change over several shards all parts are there or none.
    fn judge_parts(&self) -> Verdict {
        let mut counts: BTreeMap<TxnId, u32> = BTreeMap::new();
        for (txn, _) in self.tap.parts.values() {
            *counts.entry(*txn).or_default() += 1;
        }
        for (at, Decided { txn, part_count, .. }) in &self.tap.decided {
            let made_count = counts.remove(txn).unwrap_or(0);
            if made_count != *part_count {
                return Err(format!(
                    "I1: {txn:?}, decided at {at:?}, has {made_count} of {part_count} parts"
                ));
            }
        }
        match counts.first_key_value() {
            Some((txn, _)) => Err(format!("I1: {txn:?} has parts and was never decided")),
            None => Ok(()),
        }
    }

    fn steps(&self) -> BTreeMap<ShardId, VecDeque<(Transno, Step<'_>)>> {
        let mut all = BTreeMap::new();
        for (at, kept) in &self.tap.kept {
            if let Some(tag) = kept.tag.filter(|_| kept.op != Op::Open && kept.effective) {
                let txn = self.tap.decided.get(at).copied();
                let place = (at.0, at.1, None);
                all.insert(place, (at.1, Step::Change(tag, kept, txn)));
            }
        }
        all.extend(self.tap.parts.iter().map(|((shard, transno), (txn, after))| {
            ((*shard, *after, Some(*transno)), (*transno, Step::Part(*txn)))
        }));
        let mut steps: BTreeMap<ShardId, VecDeque<_>> = BTreeMap::new();
        for ((shard, ..), (transno, step)) in all {
            steps.entry(shard).or_default().push_back((transno, step));
        }
        steps
    }

    /// Executes what stands first everywhere; whether there was something.
    fn advance(&self, sequences: &mut Sequences<'_>) -> Result<bool, String> {
        let heads: Vec<(ShardId, Transno, Step<'_>)> = sequences
            .steps
            .iter()
            .filter_map(|(shard, steps)| steps.front().map(|step| (*shard, step.0, step.1)))
            .collect();
        let mut any = false;
        for (shard, transno, step) in heads {
            let ready = match step {
                Step::Part(txn) => sequences.executed.contains(&txn),
                Step::Change(_, _, None) => true,
                Step::Change(_, _, Some(decided)) => sequences.is_first_everywhere(decided.txn),
            };
            if !ready {
                continue;
            }
            if let Step::Change(tag, kept, decided) = step {
                self.execute(&mut sequences.tree, tag, kept)
                    .map_err(|why| format!("I15: {shard} T {transno}, {why}"))?;
                sequences.executed.extend(decided.map(|decided| decided.txn));
            }
            sequences.pop(shard);
            any = true;
        }
        Ok(any)
    }

    /// Executes the change that was decided first of those that wait for each other's parts; whether
    /// there was one.
    fn advance_crossed(&self, sequences: &mut Sequences<'_>) -> bool {
        let mut heads: Vec<(u64, ShardId, Tag, &Kept, TxnId)> = Vec::new();
        for (shard, steps) in &sequences.steps {
            if let Some((_, Step::Change(tag, kept, Some(decided)))) = steps.front() {
                heads.push((decided.order_no, *shard, *tag, *kept, decided.txn));
            }
        }
        heads.sort_by_key(|(order_no, ..)| *order_no);
        for (_, shard, tag, kept, txn) in heads {
            let mut tree = sequences.tree.clone();
            if self.execute(&mut tree, tag, kept).is_ok() {
                sequences.tree = tree;
                sequences.executed.insert(txn);
                sequences.pop(shard);
                return true;
            }
        }
        false
    }

    fn execute(&self, tree: &mut Tree, tag: Tag, kept: &Kept) -> Verdict {
        let Some(asked) = self.asked(tag) else { return Ok(()) };
        let effect = effect_of(kept);
        let wish = &asked.wish;
        tree.apply(tag, wish, effect).map_err(|why| format!("call {tag} {wish:?}: {why}"))?;
        let told = match &asked.ended {
            Ended::Done(brought) => brought.inode,
            Ended::Open | Ended::Failed(_) => None,
        };
        match (told, effect.inode) {
            (Some(told), Some(made)) if told != made => {
                Err(format!("call {tag} {wish:?} made {made} and was told {told}"))
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

    /// All parts of a change, wherever they are, stand first.
    fn is_first_everywhere(&self, txn: TxnId) -> bool {
        let waits = |steps: &VecDeque<(Transno, Step<'_>)>| {
            let ours =
                |(_, step): &(Transno, Step<'_>)| matches!(step, Step::Part(part) if *part == txn);
            steps.iter().position(ours).is_some_and(|at| at > 0)
        };
        !self.steps.values().any(waits)
    }
}

/// What a transaction's reply says of its effect.
fn effect_of(kept: &Kept) -> Effect {
    match kept.op {
        Op::Create | Op::Tmpfile => {
            Created::decode_all(&kept.reply).map_or(Effect::default(), |created| Effect {
                inode: Some(created.attr.inode),
                made: created.made,
            })
        }
        Op::Mkdir | Op::Symlink | Op::Mknod => {
            Entry::decode_all(&kept.reply).map_or(Effect::default(), |entry| Effect {
                inode: Some(entry.attr.inode),
                made: true,
            })
        }
        _ => Effect::default(),
    }
}
