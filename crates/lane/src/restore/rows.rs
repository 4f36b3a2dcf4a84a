//! Restoring from the key-value store: rows instead of the records that they came from.
//!
//! Rows of sessions and clients are fed as records with the same effect.

use super::Restore;
use alloc::vec::Vec;
use disk::rows::{Range, Row};
use disk::{
    BlockSums, Change, ClientChange, ExportChange, Fault, Origin, PreVersions, Record, TxnChange,
};
use meta::Unit;
use wire::{Bytes, InodeNo, Op, SessionId, ShardId, Status, Transno, Wire, Xid};

impl Restore {
    /// Loads the rows, which `read` reads by ranges and in the order of their keys. With a limit on
    /// the memory of names it reads only those that a start needs.
    ///
    /// # Errors
    /// Those of `read`, and [`Fault`] when rows do not fit the store or each other.
    pub fn load<E: From<Fault>>(
        self,
        mut read: impl FnMut(&Range, &mut dyn FnMut(&Row<'_>) -> Result<(), Fault>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let parts = [Range::inodes(), Range::start()];
        let ranges = if self.is_bounded { &parts[..] } else { &[Range::all()] };
        let mut loading = Loading { restore: self, away: Vec::new() };
        for range in ranges {
            read(range, &mut |row| loading.load(row))?;
        }
        for unit in loading.missing() {
            read(&unit.range(), &mut |row| loading.meta(&unit).fetch_row(&unit, row))?;
            loading.meta(&unit).finish_fetch(&unit);
        }
        Ok(loading.finish()?)
    }
}

/// A restore, and what waits for its end.
#[derive(Debug)]
struct Loading {
    restore: Restore,
    away: Vec<(ShardId, SessionId)>,
}

impl Loading {
    fn load(&mut self, row: &Row<'_>) -> Result<(), Fault> {
        match *row {
            Row::Inode(of) => self.names(of.inode, row),
            Row::Target { inode, .. } | Row::Xattr { inode, .. } | Row::Orphan { inode } => {
                self.names(inode, row)
            }
            Row::Dirent { dir, .. } | Row::Listing { dir, .. } => self.names(dir, row),
            Row::Session { shard, session, row, away } => {
                if away {
                    self.away.push((shard, session));
                }
                let (slot, xid, op, status) = (1, Xid(0), Op::Ping, Status::Ok);
                let (reply, opened) = (&[][..], Some(row));
                let origin = Origin::Session { session, slot, xid, op, status, reply, opened };
                self.feed((shard, Transno(0)), origin, &[])
            }
            Row::Slot { shard, session, slot, row } => {
                let disk::rows::SlotRow { xid, op, status, transno, reply } = row;
                let opened = None;
                let origin = Origin::Session { session, slot, xid, op, status, reply, opened };
                self.feed((shard, transno), origin, &[])
            }
            Row::Shard { shard, row: numbers } => {
                self.check(shard)?;
                let index = usize::from(shard.index());
                if shard.is_data() {
                    self.restore.datas[index].load_transno(numbers.transno);
                } else {
                    self.restore.metas[index].load(row)?;
                }
                self.restore.positions.insert(shard, numbers.position());
                Ok(())
            }
            Row::Object { shard, inode, row: object } => {
                self.check(shard)?;
                self.restore.datas[usize::from(shard.index())].load(inode, object);
                Ok(())
            }
            Row::Sums { shard, inode, group, sums } => {
                self.check(shard)?;
                let sums = BlockSums::decode_all(sums)
                    .map_err(|_| Fault::new("a row that does not decode", 0))?;
                self.restore.datas[usize::from(shard.index())].load_sums(inode, group, &sums);
                Ok(())
            }
            Row::Stripe { shard, inode, stripe_index } => {
                self.check(shard)?;
                self.restore.datas[usize::from(shard.index())].load_stripe(inode, stripe_index);
                Ok(())
            }
            Row::Evicted { client, boot_id } => {
                let evicted = ClientChange::Evicted { client, boot_id };
                self.replay_change(ShardId::meta(0), &Change::Client(evicted))
            }
            Row::EvictedLast { boot_id } => {
                self.restore.evicted_last = boot_id;
                Ok(())
            }
            Row::Recovered { shard, transno } => {
                self.restore.recovered.insert(shard, transno);
                Ok(())
            }
            Row::VbrFailed { client } => self.replay_change(
                ShardId::meta(0),
                &Change::Client(ClientChange::VbrFailed { client }),
            ),
            Row::Prepared { shard, txn, transno, part } => {
                let prepared = Change::Txn(TxnChange::Prepared { txn, part: Bytes(part) });
                self.feed((shard, transno), Origin::Internal, &prepared.to_bytes())
            }
            Row::Decided { txn, shards } => self
                .replay_change(txn.coordinator, &Change::Txn(TxnChange::Decided { txn, shards })),
            Row::Export(export) => {
                let put = ExportChange::Put(export);
                self.replay_change(ShardId::meta(0), &Change::Export(put))
            }
            Row::Store(_) | Row::Log { .. } => Ok(()),
        }
    }

    /// The units that must be loaded before the start can end: those of interrupted transactions,
    /// where not everything is loaded.
    fn missing(&mut self) -> Vec<Unit> {
        let Restore { metas, in_doubt, .. } = &mut self.restore;
        let mut missing = Vec::new();
        for (shard, part) in in_doubt.parts() {
            let meta = &mut metas[usize::from(shard.index())];
            meta.has_changed(part);
            missing.extend_from_slice(meta.missing());
        }
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    fn meta(&mut self, unit: &Unit) -> &mut meta::Shard {
        &mut self.restore.metas[usize::from(unit.shard().index())]
    }

    /// All rows were loaded.
    fn finish(mut self) -> Result<Restore, Fault> {
        for (shard, session) in core::mem::take(&mut self.away) {
            self.replay_change(shard, &Change::Client(ClientChange::SessionAway { session }))?;
        }
        Ok(self.restore)
    }

    fn names(&mut self, inode: InodeNo, row: &Row<'_>) -> Result<(), Fault> {
        self.check(inode.shard())?;
        self.restore.metas[usize::from(inode.shard().index())].load(row)
    }

    fn replay_change(&mut self, shard: ShardId, change: &Change<'_>) -> Result<(), Fault> {
        self.feed((shard, Transno(0)), Origin::Internal, &change.to_bytes())
    }

    /// Feeds a record without advancing the shard's log position.
    fn feed(
        &mut self,
        (shard, transno): (ShardId, Transno),
        origin: Origin<'_>,
        changes: &[u8],
    ) -> Result<(), Fault> {
        let known = self.restore.positions.get(&shard).copied().unwrap_or_default();
        let (lsn, term) = (known.lsn + 1, known.term);
        let pre_versions = PreVersions::new();
        self.restore.feed(&Record { shard, lsn, term, transno, pre_versions, origin, changes })?;
        self.restore.positions.insert(shard, known);
        Ok(())
    }

    fn check(&self, shard: ShardId) -> Result<(), Fault> {
        if self.restore.shards.has(shard) {
            return Ok(());
        }
        Err(Fault::new("a row of a shard the store does not have", 0).numbers(0_u64, shard.0))
    }
}
