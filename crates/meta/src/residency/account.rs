//! Accounts for units in memory and the transaction that the rows must include before eviction,
//! with every change and every row that a start loads.

use super::{Unit, UnitState};
use crate::directory::Directory;
use crate::inode::{Body, Inode};
use crate::state::State;
use disk::Change;
use disk::rows::Row;
use wire::{FileKind, InodeNo, Transno};

/// Memory for a unit's state.
const UNIT_STATE_BYTES: usize = size_of::<(Unit, UnitState)>() * 3 / 2;
/// Memory of an inode, with its place in a page.
const INODE_BYTES: usize = size_of::<Inode>() + UNIT_STATE_BYTES + 64;
const DIRECTORY_BYTES: usize = INODE_BYTES + size_of::<Directory>();
/// Allocation overhead of a name or target.
const PIECE_BYTES: usize = 16;
/// Memory of an attribute besides its bytes.
const XATTR_BYTES: usize = 64;

impl State {
    /// Number of inodes, in memory or not.
    pub(crate) fn inode_count(&self) -> u64 {
        let resident = u64::try_from(self.resident_count()).unwrap_or(u64::MAX);
        self.residency.as_ref().map_or(resident, |residency| residency.inode_count)
    }

    /// Accounts for a change of transaction `transno`; `before_count` is the number of inodes
    /// before it.
    pub(crate) fn account_for(
        &mut self,
        transno: Transno,
        change: &Change<'_>,
        before_count: usize,
    ) {
        let after_count = self.resident_count();
        let Some(residency) = &mut self.residency else { return };
        let stamp = transno.max(residency.floor);
        let is_new = after_count > before_count;
        residency.inode_count += u64::from(is_new);
        residency.inode_count -= u64::from(after_count < before_count);
        match change {
            Change::Inode { row } if row.kind == FileKind::Directory => {
                residency.take(&Unit::Inode(row.inode));
                residency.bytes += if is_new { DIRECTORY_BYTES } else { 0 };
            }
            Change::Inode { row } => self.account_inode(row.inode, stamp),
            Change::Symlink { inode, .. }
            | Change::Accessed { inode, .. }
            | Change::Settled { inode, .. }
            | Change::Xattr { inode, .. }
            | Change::XattrRemoved { inode, .. } => self.account_inode(*inode, stamp),
            Change::Dirent { dir, name, .. } | Change::DirentRemoved { dir, name } => {
                self.account_entry(*dir, name.bytes(), (stamp, true));
            }
            Change::InodeRemoved { inode } => {
                let unit = Unit::Inode(*inode);
                let is_file = residency.units.contains_key(&unit);
                if after_count < before_count && !is_file {
                    residency.bytes -= DIRECTORY_BYTES;
                }
                residency.put(unit, UnitState { stamp, bytes: UNIT_STATE_BYTES, used: false });
            }
            Change::Touch { .. }
            | Change::DirAttrs { .. }
            | Change::Contents(_)
            | Change::Client(_)
            | Change::Txn(_)
            | Change::Export(_) => {}
        }
    }

    /// Accounts for an inode or its absence; a directory is no unit.
    pub(super) fn account_inode(&mut self, inode: InodeNo, stamp: Transno) {
        let body_bytes = |known: &Inode| {
            let target_bytes = match &known.body {
                Body::Directory(_) => return None,
                Body::File | Body::Special => 0,
                Body::Symlink(target) => PIECE_BYTES + target.len(),
            };
            let xattrs = known.xattrs.iter();
            let xattr_bytes = xattrs.map(|(name, value)| XATTR_BYTES + name.len() + value.len());
            Some(INODE_BYTES + target_bytes + xattr_bytes.sum::<usize>())
        };
        let Some(bytes) = self.inode(inode).map_or(Some(UNIT_STATE_BYTES), body_bytes) else {
            return;
        };
        if let Some(residency) = &mut self.residency {
            residency.put(Unit::Inode(inode), UnitState { stamp, bytes, used: true });
        }
    }

    /// Accounts for an entry or its absence. An entry that was not requested is evicted first.
    pub(super) fn account_entry(
        &mut self,
        dir: InodeNo,
        name: &[u8],
        (stamp, used): (Transno, bool),
    ) {
        let Some((_, entries)) = self.entries(dir) else { return };
        let is_there = entries.get(self.name_key.hashed(name)).is_some();
        let name_bytes = PIECE_BYTES + name.len();
        let there_bytes = if is_there { Directory::ENTRY_BYTES + name_bytes } else { 0 };
        let bytes = UNIT_STATE_BYTES + name_bytes + there_bytes;
        if let Some(residency) = &mut self.residency {
            residency.put(Unit::entry(dir, name), UnitState { stamp, bytes, used });
        }
    }

    /// Whether a start loads this row into memory. Inodes come before their parts.
    pub(crate) fn keeps(&self, row: &Row<'_>) -> bool {
        if self.residency.is_none() {
            return true;
        }
        match *row {
            Row::Inode(row) => row.kind == FileKind::Directory || row.nlink == 0,
            Row::Target { inode, .. } | Row::Xattr { inode, .. } => self.inode(inode).is_some(),
            Row::Listing { .. } | Row::Dirent { .. } => false,
            Row::Orphan { .. }
            | Row::Session { .. }
            | Row::Slot { .. }
            | Row::Shard { .. }
            | Row::Object { .. }
            | Row::Sums { .. }
            | Row::Stripe { .. }
            | Row::Evicted { .. }
            | Row::EvictedLast { .. }
            | Row::Recovered { .. }
            | Row::VbrFailed { .. }
            | Row::Store(_)
            | Row::Log { .. }
            | Row::Prepared { .. }
            | Row::Decided { .. }
            | Row::Export(_) => true,
        }
    }

    /// Accounts for a row that a start has loaded.
    pub(crate) fn account_for_loaded(&mut self, row: &Row<'_>, before_count: usize) {
        let is_new = self.resident_count() > before_count;
        let Some(residency) = &mut self.residency else { return };
        match *row {
            Row::Inode(row) if row.kind == FileKind::Directory => {
                residency.bytes += if is_new { DIRECTORY_BYTES } else { 0 };
            }
            Row::Inode(row) => self.account_inode(row.inode, Transno(0)),
            Row::Target { inode, .. } | Row::Xattr { inode, .. } => {
                self.account_inode(inode, Transno(0));
            }
            Row::Shard { row, .. } => {
                residency.inode_count = row.inode_count;
                residency.on_disk_below = row.next_count;
            }
            Row::Listing { .. }
            | Row::Dirent { .. }
            | Row::Orphan { .. }
            | Row::Session { .. }
            | Row::Slot { .. }
            | Row::Object { .. }
            | Row::Sums { .. }
            | Row::Stripe { .. }
            | Row::Evicted { .. }
            | Row::EvictedLast { .. }
            | Row::Recovered { .. }
            | Row::VbrFailed { .. }
            | Row::Store(_)
            | Row::Log { .. }
            | Row::Prepared { .. }
            | Row::Decided { .. }
            | Row::Export(_) => {}
        }
    }
}
