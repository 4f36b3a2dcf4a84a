//! All other rows: orphans, sessions, shards, changes over several shards, exports.

use crate::finding::Kind;
use crate::mend::Mend;
use crate::names::number;
use crate::walk::Walk;
use disk::InodeRow;
use disk::rows::{Key, Range, Row, ShardRow};
use std::path::Path;
use store::StoreError;
use wire::{FileKind, InodeNo, MapEpoch, SessionId, ShardId, Transno, Wire};

impl Walk<'_> {
    /// Looks at them.
    pub(crate) fn check_rest(&mut self) -> Result<(), StoreError> {
        self.pass("other rows");
        self.each_row(&Range::start(), |walk, row, key| {
            match *row {
                Row::Orphan { inode } => walk.check_orphan(inode, key)?,
                Row::Session { shard, .. } | Row::Recovered { shard, .. } => {
                    walk.has_shard(shard, key);
                }
                Row::Slot { shard, session, .. } => walk.check_slot((shard, session), key)?,
                Row::Shard { shard, row } => {
                    if walk.has_shard(shard, key) {
                        walk.outcome.terms.push((shard, row.term));
                        if !shard.is_data() {
                            walk.check_shard(shard, &row);
                        }
                    }
                }
                Row::Object { shard, .. } | Row::Sums { shard, .. } | Row::Stripe { shard, .. } => {
                    walk.has_shard(shard, key);
                }
                Row::Prepared { shard, txn, .. } => {
                    if walk.has_shard(shard, key) {
                        walk.check_prepared((shard, txn))?;
                    }
                }
                Row::Decided { txn, .. } => {
                    walk.has_shard(txn.coordinator, key);
                }
                Row::Export(export) => {
                    let root = walk.tallies.get(&export.root);
                    let is_here = walk.here.has_inode(export.root);
                    if is_here
                        && !export.closed
                        && root.is_none_or(|root| root.kind != FileKind::Directory)
                    {
                        let name = String::from_utf8_lossy(export.name.0);
                        let what = format!("export {name} is of {}", number(export.root));
                        walk.find(Kind::ExportWithoutDirectory, export.root, (what, Mend::Leave));
                    }
                }
                Row::Evicted { .. }
                | Row::EvictedLast { .. }
                | Row::VbrFailed { .. }
                | Row::Store(_)
                | Row::Log { .. }
                | Row::Inode(_)
                | Row::Target { .. }
                | Row::Xattr { .. }
                | Row::Dirent { .. }
                | Row::Listing { .. } => {}
            }
            Ok(())
        })?;
        self.outcome.terms.sort_unstable_by_key(|(shard, _)| *shard);
        if self.here.placing.is_some() {
            let boot_id = self.view.last_boot_id()?.filter(|boot_id| *boot_id > 0);
            self.outcome.map_epoch = boot_id.map(MapEpoch);
        }
        self.check_missing_shards();
        Ok(())
    }

    fn has_shard(&mut self, shard: ShardId, key: &[u8]) -> bool {
        if self.here.has(shard) {
            return true;
        }
        let what = format!("shard {shard:?}, key {}", hex::encode(key));
        let mend = Mend::DropRow(key.to_vec());
        self.suspect(Kind::UnknownShard, (None, None), Some(Path::new("rows")), (what, mend));
        false
    }

    fn check_orphan(&mut self, inode: InodeNo, key: &[u8]) -> Result<(), StoreError> {
        let what = format!("inode {}", number(inode));
        match self.inode(inode)? {
            None => {
                let mend = Mend::DropRow(key.to_vec());
                self.find(Kind::OrphanWithoutInode, inode, (what, mend));
            }
            Some(InodeRow { nlink: 0, .. }) => {}
            Some(_) => self.find(Kind::OrphanNamed, inode, (what, Mend::UnmarkOrphan(inode))),
        }
        Ok(())
    }

    fn check_slot(
        &mut self,
        (shard, session): (ShardId, SessionId),
        key: &[u8],
    ) -> Result<(), StoreError> {
        if self.has_shard(shard, key) && self.reader.get(&Key::session(shard, session))?.is_none() {
            let what = format!("session {session:?} at shard {shard:?}");
            let mend = Mend::DropRow(key.to_vec());
            self.suspect(Kind::SlotWithoutSession, (None, None), None, (what, mend));
        }
        Ok(())
    }

    fn check_prepared(&mut self, (shard, txn): (ShardId, disk::TxnId)) -> Result<(), StoreError> {
        let is_decided = self.reader.get(&Key::decided(txn))?.is_some();
        let outcome = match is_decided {
            true => "it was decided",
            false if self.here.has(txn.coordinator) => "it was not decided",
            false => "whether it was decided is known to another server",
        };
        let what = format!("{txn:?} at shard {shard:?}; {outcome}");
        self.suspect(Kind::TxnPending, (None, None), None, (what, Mend::Leave));
        Ok(())
    }

    fn check_shard(&mut self, shard: ShardId, row: &ShardRow) {
        let tally = self.shards.entry(shard).or_default();
        tally.next_count = Some(row.next_count);
        let tally = *tally;
        let is_root = shard == InodeNo::ROOT.shard() && !self.tallies.contains_key(&InodeNo::ROOT);
        let is_free = tally.count_max == 0 || row.next_count > tally.count_max;
        let fits = is_free && row.inode_count == tally.inode_count;
        if fits || is_root {
            return;
        }
        let what = format!(
            "shard {shard:?}: {} inodes up to number {}, it counts {} and would give number {}",
            tally.inode_count, tally.count_max, row.inode_count, row.next_count
        );
        let mend = Mend::SetShard {
            shard,
            next_count: row.next_count.max(tally.count_max + 1),
            inode_count: tally.inode_count,
            transno: row.transno,
        };
        self.suspect(Kind::ShardCounts, (None, None), Some(Path::new("rows")), (what, mend));
    }

    /// Shards with inodes and without a row.
    fn check_missing_shards(&mut self) {
        let missing: Vec<_> = self
            .shards
            .iter()
            .filter(|(shard, tally)| tally.next_count.is_none() && self.here.has(**shard))
            .map(|(shard, tally)| (*shard, *tally))
            .collect();
        for (shard, tally) in missing {
            let what = format!("shard {shard:?} has {} inodes and no row", tally.inode_count);
            let mend = Mend::SetShard {
                shard,
                next_count: tally.count_max + 1,
                inode_count: tally.inode_count,
                transno: Transno(tally.version_max),
            };
            self.suspect(Kind::ShardCounts, (None, None), Some(Path::new("rows")), (what, mend));
        }
    }

    /// Up to which number a shard gave inodes.
    pub(crate) fn next_count(&self, shard: ShardId) -> Result<u64, StoreError> {
        let row = self.reader.get(&Key::shard(shard))?;
        let row = row.and_then(|value| ShardRow::decode_all(value).ok()).unwrap_or_default();
        Ok(row.next_count)
    }
}
