//! What the server has answered and may still lose: per shard, in the order of transactions.
//!
//! An entry holds all that a replay needs: the reply, its token, and for a write the bytes, in a
//! buffer that the client keeps. It leaves the sending to `recovery`. Invariants: transactions are
//! unique and ascending; an entry leaves the list exactly once, to somebody who gives its buffer
//! back; `bytes` is the sum over the entries.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::Bulk;
use wire::{InodeNo, Op, Transno, Xid};

/// What an entry costs besides what it holds, and what a reply that is due is taken for.
const ENTRY_BYTES: usize = 256;
const PAGE_BYTES: usize = 4096;

/// One answered request whose change is not known to be durable.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) transno: Transno,
    pub(crate) xid: Xid,
    pub(crate) slot: u16,
    pub(crate) op: Op,
    /// What it was about, for people.
    pub(crate) inode: InodeNo,
    /// What it made, or named beside that.
    pub(crate) made: Option<InodeNo>,
    /// The boot in which it was answered first.
    pub(crate) boot_id: u64,
    /// An encoded [`wire::Replay`].
    pub(crate) body: Vec<u8>,
    /// A write's bytes, our own.
    pub(crate) kept: Option<Bulk>,
}

impl Entry {
    pub(crate) fn bytes(&self) -> usize {
        cost_bytes(self.body.len(), self.kept)
    }
}

/// What it costs to remember a request with such a reply and bulk.
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
    /// Adds an entry; the one that had its number, if any, comes back.
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

    /// Takes out the first entry if it is not above `committed`.
    pub(crate) fn take_committed(&mut self, committed: Transno) -> Option<Entry> {
        if self.entries.front()?.transno > committed {
            return None;
        }
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes();
        Some(entry)
    }

    /// Takes out one entry.
    pub(crate) fn take(&mut self, transno: Transno) -> Option<Entry> {
        let at = self.entries.binary_search_by_key(&transno, |entry| entry.transno).ok()?;
        let entry = self.entries.remove(at)?;
        self.bytes -= entry.bytes();
        Some(entry)
    }

    /// Takes out everything.
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
