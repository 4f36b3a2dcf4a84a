//! At a start: resolves the cross-shard transactions that a crash interrupted. The logs of this
//! server's coordinators are available, so no message is needed: decided transactions are applied,
//! all others aborted. What was prepared for a coordinator of another server stays prepared and
//! locked until that one has answered.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use disk::{Change, Changes, Fault, Record, TxnChange, TxnId};
use wire::{ShardId, Transno, Wire as _, Writer};

/// The interrupted transactions, from the records.
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

/// A prepared part that stays so over a start.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) shard: ShardId,
    pub(crate) txn: TxnId,
    pub(crate) prepared_by: Transno,
    pub(crate) part: Vec<u8>,
}

impl InDoubt {
    /// Applies a record of a metadata shard. Transaction steps stand first in a record.
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

    /// The prepared parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (ShardId, &[u8])> {
        self.prepared.iter().map(|((shard, _), (_, part))| (*shard, part.as_slice()))
    }

    /// Resolves the transactions in `metas`, which have begun their boot, if their coordinators are
    /// this server's; returns the records to add, the parts that stay prepared, and the decisions
    /// that are not forgotten yet.
    pub(crate) fn resolve(
        self,
        metas: &mut [meta::Shard],
        is_own: impl Fn(ShardId) -> bool,
    ) -> (Vec<Resolved>, Vec<Kept>, BTreeMap<TxnId, BTreeSet<ShardId>>) {
        let (mut resolved, mut kept) = (Vec::new(), Vec::new());
        for ((shard, txn), (prepared_by, part)) in self.prepared {
            let meta = &mut metas[usize::from(shard.index())];
            if !is_own(txn.coordinator) {
                #[expect(clippy::expect_used, reason = "its shard has checked and prepared it")]
                meta.lock_part(txn, &part).expect("a prepared part names what it changes");
                kept.push(Kept { shard, txn, prepared_by, part });
                continue;
            }
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
        (resolved, kept, self.decided)
    }
}
