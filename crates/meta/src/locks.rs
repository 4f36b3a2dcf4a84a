//! Locks of transactions over several shards, held until each of them is done or aborted.
//!
//! Locks are in memory only: a start resolves every prepared transaction before clients are
//! admitted. There is no hold and wait: a transaction that finds a lock aborts and retries, and a
//! waiting request holds no lock.
//!
//! ```text
//! whole    an inode, a name, the topology: no other transaction may read it
//! entered  a directory: it must stay, its other entries may come and go
//! ```

use crate::inode::Body;
use crate::needs::Needs;
use crate::state::State;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use disk::TxnId;
use wire::{InodeNo, ShardId};

/// The locks of a shard.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    inodes: BTreeMap<InodeNo, TxnId>,
    names: BTreeMap<InodeNo, BTreeMap<Box<[u8]>, TxnId>>,
    /// One entry for each name that a transaction has locked in the directory.
    entered: BTreeMap<InodeNo, Vec<TxnId>>,
    topology: Option<TxnId>,
}

impl Locks {
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.entered.is_empty() && self.topology.is_none()
    }

    /// Another transaction that has locked an inode.
    pub(crate) fn inode(&self, inode: InodeNo, me: Option<TxnId>) -> Option<TxnId> {
        self.inodes.get(&inode).copied().filter(|txn| Some(*txn) != me)
    }

    /// Another transaction that has locked a name.
    pub(crate) fn name(&self, dir: InodeNo, name: &[u8], me: Option<TxnId>) -> Option<TxnId> {
        let txn = self.names.get(&dir)?.get(name).copied();
        txn.filter(|txn| Some(*txn) != me)
    }

    /// Another transaction that needs a directory to stay.
    pub(crate) fn entered(&self, dir: InodeNo, me: Option<TxnId>) -> Option<TxnId> {
        self.entered.get(&dir)?.iter().copied().find(|txn| Some(*txn) != me)
    }

    /// Another transaction that has locked the topology.
    pub(crate) fn topology(&self, me: Option<TxnId>) -> Option<TxnId> {
        self.topology.filter(|txn| Some(*txn) != me)
    }

    pub(crate) fn take_inode(&mut self, inode: InodeNo, txn: TxnId) {
        self.inodes.insert(inode, txn);
    }

    /// Locks a name, and its directory against removal.
    pub(crate) fn take_name(&mut self, dir: InodeNo, name: &[u8], txn: TxnId) {
        self.names.entry(dir).or_default().insert(name.into(), txn);
        self.entered.entry(dir).or_default().push(txn);
    }

    pub(crate) const fn take_topology(&mut self, txn: TxnId) {
        self.topology = Some(txn);
    }

    /// Releases all locks of a transaction.
    pub(crate) fn release(&mut self, txn: TxnId) {
        self.inodes.retain(|_, holder| *holder != txn);
        self.names.retain(|_, names| {
            names.retain(|_, holder| *holder != txn);
            !names.is_empty()
        });
        self.entered.retain(|_, holders| {
            holders.retain(|holder| *holder != txn);
            !holders.is_empty()
        });
        if self.topology == Some(txn) {
            self.topology = None;
        }
    }

    /// The transaction that a request must wait for: it may be about to change something that the
    /// request reads.
    pub(crate) fn blocker(
        &self,
        needs: &Needs<'_>,
        state: &State,
        me: Option<TxnId>,
    ) -> Option<TxnId> {
        if self.is_empty() {
            return None;
        }
        let here = state.shard();
        let in_inodes = needs.inodes().find_map(|inode| {
            let shown = needs.shows_inodes.then(|| self.entered_from_afar(inode, here, me));
            self.inode(inode, me).or_else(|| shown.flatten())
        });
        in_inodes.or_else(|| {
            needs.entries().find_map(|(dir, name)| {
                let found = self.name(dir, name.bytes(), me).or_else(|| self.inode(dir, me));
                if found.is_some() {
                    return found;
                }
                let Body::Directory(entries) = &state.inode(dir)?.body else { return None };
                let target = entries.get(state.name_key.hashed(name.bytes()))?.inode;
                let entered = if needs.removes_entries {
                    self.entered(target, me)
                } else {
                    self.entered_from_afar(target, here, me)
                };
                self.inode(target, me).or(entered)
            })
        })
    }

    /// Another shard's transaction that is about to change a directory's entries and may be
    /// acknowledged already: the coordinator replies when it has decided, and other shards apply
    /// their parts later.
    pub(crate) fn entered_from_afar(
        &self,
        dir: InodeNo,
        here: ShardId,
        me: Option<TxnId>,
    ) -> Option<TxnId> {
        let holders = self.entered.get(&dir)?;
        let mut afar = holders.iter().copied().filter(|txn| txn.coordinator != here);
        afar.find(|txn| Some(*txn) != me)
    }
}
