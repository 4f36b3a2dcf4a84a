//! The replay list of a session: answered changes that the server may still lose, in the order of
//! transactions.
//!
//! An entry holds all that a replay needs: the reply, its token, and for a write the bytes, in a
//! buffer of the client. `recovery` sends them. Invariants: transactions are unique and ascending;
//! an entry leaves the list exactly once, and its buffer is then released; `bytes` is the sum over
//! the entries.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::Bulk;
use wire::{InodeNo, Op, Transno, Xid};

/// The overhead of an entry, and the estimate for a reply in flight.
const ENTRY_BYTES: usize = 256;
const PAGE_BYTES: usize = 4096;

/// One answered request whose change is not known to be durable.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) transno: Transno,
    pub(crate) xid: Xid,
    pub(crate) slot: u16,
    pub(crate) op: Op,
    /// The inode, for reports.
    pub(crate) inode: InodeNo,
    /// The inode that it created or also named.
    pub(crate) made: Option<InodeNo>,
    /// The boot in which it was first answered.
    pub(crate) boot_id: u64,
    /// An encoded [`wire::Replay`].
    pub(crate) body: Vec<u8>,
    /// A write's bytes, in the client's buffer.
    pub(crate) retained: Option<Bulk>,
}

impl Entry {
    pub(crate) fn bytes(&self) -> usize {
        cost_bytes(self.body.len(), self.retained)
    }
}

/// The replay space for a request with such a reply and bulk.
pub(crate) fn cost_bytes(body_bytes: usize, bulk: Option<Bulk>) -> usize {
    let bulk_bytes = bulk.map_or(0, |bulk| usize::try_from(bulk.bulk_bytes).unwrap_or(usize::MAX));
    ENTRY_BYTES + body_bytes + bulk_bytes.next_multiple_of(PAGE_BYTES)
}

/// The replay list of one session.
#[derive(Debug, Default)]
pub(crate) struct List {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl List {
    /// Adds an entry; returns the one with the same transaction, if any.
    pub(crate) fn insert(&mut self, entry: Entry) -> Option<Entry> {
        self.bytes += entry.bytes();
        // Replies mostly come in the order of transactions.
        if self.entries.back().is_none_or(|last| last.transno < entry.transno) {
            self.entries.push_back(entry);
            return None;
        }
        match self.entries.binary_search_by_key(&entry.transno, |known| known.transno) {
            Ok(at) => {
                let known = self.entries.get_mut(at)?;
                let old = core::mem::replace(known, entry);
                self.bytes -= old.bytes();
                Some(old)
            }
            Err(at) => {
                self.entries.insert(at, entry);
                None
            }
        }
    }

    /// Takes the first entry if it is not above `committed`.
    pub(crate) fn take_committed(&mut self, committed: Transno) -> Option<Entry> {
        if self.entries.front()?.transno > committed {
            return None;
        }
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes();
        Some(entry)
    }

    /// Takes one entry.
    pub(crate) fn take(&mut self, transno: Transno) -> Option<Entry> {
        let at = self.entries.binary_search_by_key(&transno, |entry| entry.transno).ok()?;
        let entry = self.entries.remove(at)?;
        self.bytes -= entry.bytes();
        Some(entry)
    }

    /// Takes all entries.
    pub(crate) fn take_all(&mut self) -> VecDeque<Entry> {
        self.bytes = 0;
        core::mem::take(&mut self.entries)
    }

    /// The first entry above `transno` that was answered before `boot_id`.
    pub(crate) fn next_after(&self, transno: Transno, boot_id: u64) -> Option<&Entry> {
        let at = self.entries.partition_point(|entry| entry.transno <= transno);
        self.entries.range(at..).find(|entry| entry.boot_id != boot_id)
    }

    /// Entries that were answered before `boot_id`.
    pub(crate) fn old_count(&self, boot_id: u64) -> usize {
        self.entries.iter().filter(|entry| entry.boot_id != boot_id).count()
    }

    /// No entry was answered in a boot that the present server knows.
    pub(crate) fn forget_boots(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.boot_id = 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(crate) fn transnos(&self) -> Vec<Transno> {
        self.entries.iter().map(|entry| entry.transno).collect()
    }
}
