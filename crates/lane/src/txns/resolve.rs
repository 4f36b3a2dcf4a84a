//! A start: what became of changes over several shards that a crash caught in the middle. All logs
//! are at hand, so nobody has to be asked: what its coordinator has decided is made, all else is
//! given up.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use disk::{Change, Changes, Fault, Record, TxnChange, TxnId};
use wire::{ShardId, Transno, Wire as _, Writer};

/// Changes in the middle, as records tell.
#[derive(Debug, Default)]
pub(crate) struct InDoubt {
    prepared: BTreeMap<(ShardId, TxnId), (Transno, Vec<u8>)>,
    decided: BTreeMap<TxnId, BTreeSet<ShardId>>,
}

/// A record that a start adds to a shard's log.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) shard: ShardId,
    pub(crate) transno: Transno,
    pub(crate) changes: Vec<u8>,
}

impl InDoubt {
    /// Takes a record of a metadata shard in. What is about this stands first in a record.
    pub(crate) fn feed(&mut self, record: &Record<'_>) -> Result<(), Fault> {
        let Some(change) = Changes::new(record.changes).next() else { return Ok(()) };
        let Change::Txn(change) = change? else { return Ok(()) };
        match change {
            TxnChange::Prepared { txn, part } => {
                let prepared = (record.transno, part.0.to_vec());
                self.prepared.insert((record.shard, txn), prepared);
            }
            TxnChange::Decided { txn, shards } => {
                self.decided.insert(txn, shards.iter().collect());
            }
            TxnChange::Done { txn } | TxnChange::Aborted { txn } => {
                self.prepared.remove(&(record.shard, txn));
            }
            TxnChange::Forgotten { txn } => {
                self.decided.remove(&txn);
            }
        }
        Ok(())
    }

    /// The parts that are to be made or given up.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (ShardId, &[u8])> {
        self.prepared.iter().map(|((shard, _), (_, part))| (*shard, part.as_slice()))
    }

    /// Brings everything to its end in `metas`, which have begun their boot; what has to be
    /// recorded for it, and the decisions that are not forgotten yet.
    pub(crate) fn resolve(
        self,
        metas: &mut [meta::Shard],
    ) -> (Vec<Resolved>, BTreeMap<TxnId, BTreeSet<ShardId>>) {
        let mut resolved = Vec::new();
        for ((shard, txn), (prepared_by, part)) in self.prepared {
            let meta = &mut metas[usize::from(shard.index())];
            let mut changes = Vec::new();
            let transno = if self.decided.contains_key(&txn) {
                let done = Change::Txn(TxnChange::Done { txn });
                #[expect(clippy::expect_used, reason = "its shard has checked and prepared it")]
                let effect = meta
                    .apply_part((prepared_by, &part), &done, &mut changes)
                    .expect("a prepared part is made");
                effect.transno
            } else {
                Change::Txn(TxnChange::Aborted { txn }).encode(&mut Writer::new(&mut changes));
                meta.take_transno()
            };
            resolved.push(Resolved { shard, transno, changes });
        }
        (resolved, self.decided)
    }
}
