//! What happens when batches are safe, beside the release of waiters, by what has to be safe.

use crate::acknowledgements::{BatchNo, Gate, Scope};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use wire::{InodeNo, SessionId, ShardId, Transno};

/// The dependents of one batch, as far as they depend on the records of one scope.
#[derive(Default, Debug)]
pub(crate) struct BatchDependents {
    /// Inodes to destroy.
    pub(crate) orphans: Vec<InodeNo>,
    /// Inodes whose objects are removed.
    pub(crate) removed: Vec<InodeNo>,
    /// Objects that accept no change until their new size is durably recorded.
    pub(crate) fences: Vec<InodeNo>,
    /// Replays recorded in it.
    pub(crate) replays: Vec<(SessionId, Transno)>,
    /// The shard's last transaction up to here, once the batch is sealed.
    pub(crate) transno_last: Transno,
}

/// The dependents of all batches whose dependents have not been released.
#[derive(Default, Debug)]
pub(crate) struct Dependents {
    /// In the order of the batches.
    by_scope: BTreeMap<Scope, VecDeque<(BatchNo, BatchDependents)>>,
}

impl Dependents {
    /// Those of a gate.
    pub(crate) fn of(&mut self, Gate { scope, batch_no }: Gate) -> &mut BatchDependents {
        let queue = self.by_scope.entry(scope).or_default();
        let index = match queue.binary_search_by_key(&batch_no, |(batch_no, _)| *batch_no) {
            Ok(index) => index,
            Err(index) => {
                queue.insert(index, (batch_no, BatchDependents::default()));
                index
            }
        };
        &mut queue[index].1
    }

    /// Those of a batch that is the last one, each with its scope.
    pub(crate) fn of_last(
        &mut self,
        last_no: BatchNo,
    ) -> impl Iterator<Item = (Scope, &mut BatchDependents)> {
        self.by_scope.iter_mut().filter_map(move |(scope, queue)| {
            let (batch_no, dependents) = queue.back_mut()?;
            (*batch_no == last_no).then_some((*scope, dependents))
        })
    }

    /// The last transaction of each shard in batches that are safe.
    pub(crate) fn durable(&self, safe: impl Fn(Scope) -> BatchNo) -> Vec<(ShardId, Transno)> {
        let last = |(scope, queue): (&Scope, &VecDeque<(BatchNo, BatchDependents)>)| {
            let Scope::Shard(shard) = *scope else { return None };
            let safe_no = safe(*scope);
            let (_, last) = queue.iter().take_while(|(batch_no, _)| *batch_no <= safe_no).last()?;
            Some((shard, last.transno_last))
        };
        self.by_scope.iter().filter_map(last).collect()
    }

    /// Takes those of safe batches.
    pub(crate) fn take_safe(
        &mut self,
        safe: impl Fn(Scope) -> BatchNo,
    ) -> Vec<(Gate, BatchDependents)> {
        let mut taken = Vec::new();
        for (scope, queue) in &mut self.by_scope {
            let safe_no = safe(*scope);
            while let Some((batch_no, dependents)) =
                queue.pop_front_if(|(batch_no, _)| *batch_no <= safe_no)
            {
                taken.push((Gate { scope: *scope, batch_no }, dependents));
            }
        }
        taken
    }

    /// The log has failed: nothing more is safe.
    pub(crate) fn clear(&mut self) {
        self.by_scope.clear();
    }
}
