//! New directories whose parents are at another shard. The transaction that makes one grants nothing:
//! its reply leaves another lane. So the lane of the directory remembers whose it is, until that client
//! asks for it (docs/protocol.md R20.35, `directories`).
//!
//! ```text
//! transaction applied ─▶ remembered ─ Getattr of its client ─▶ write lease
//!                           └─ another client names it, 10 s, eviction, removed ─▶ forgotten
//! ```
//! Invariant: what is remembered was named by no other client since it was made.

use alloc::collections::{BTreeMap, VecDeque};
use interface::Mono;
use meta::Requirement;
use wire::{ClientUuid, InodeNo, Reader};

/// The most directories that are remembered.
const COUNT_MAX: usize = 4096;
/// A client asks as soon as it has the reply. Until then each request is looked at.
const REMEMBERED_MS: u64 = 10_000;

/// The directories that a lane remembers.
#[derive(Default, Debug)]
pub(super) struct Made {
    directories: BTreeMap<InodeNo, ClientUuid>,
    /// In the order in which they were made, and when each is forgotten.
    order: VecDeque<(Mono, InodeNo)>,
}

impl Made {
    pub(super) fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }

    pub(super) fn add(&mut self, inode: InodeNo, client: ClientUuid, now: Mono) {
        if self.order.len() >= COUNT_MAX
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.directories.remove(&oldest);
        }
        self.directories.insert(inode, client);
        self.order.push_back((now.after_ms(REMEMBERED_MS), inode));
    }

    /// The client for which a directory was made.
    pub(super) fn maker(&self, inode: InodeNo) -> Option<ClientUuid> {
        self.directories.get(&inode).copied()
    }

    /// A client has named this inode.
    pub(super) fn named_by(&mut self, inode: InodeNo, client: ClientUuid) {
        if self.directories.get(&inode).is_some_and(|maker| *maker != client) {
            self.directories.remove(&inode);
        }
    }

    pub(super) fn forget(&mut self, inode: InodeNo) {
        self.directories.remove(&inode);
    }

    pub(super) fn forget_client(&mut self, client: ClientUuid) {
        self.directories.retain(|_, maker| *maker != client);
    }

    /// Forgets those that were not asked for in time.
    pub(super) fn expire(&mut self, now: Mono) {
        while let Some((at, inode)) = self.order.front().copied()
            && (at <= now || !self.directories.contains_key(&inode))
        {
            self.order.pop_front();
            self.directories.remove(&inode);
        }
    }
}

/// Whether a coordinator's requirements are for a new inode.
pub(crate) fn makes_inode(requirements: &[u8]) -> bool {
    let mut from = Reader::new(requirements);
    let mut all = core::iter::from_fn(|| (from.left() > 0).then(|| from.read()));
    all.by_ref().map_while(Result::ok).any(|it| matches!(it, Requirement::New(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const CLIENT: ClientUuid = ClientUuid([1; 16]);

    fn known(made: &Made) -> Vec<u64> {
        made.directories.keys().map(|inode| inode.0).collect()
    }

    #[test]
    fn a_directory_is_forgotten_in_time_and_the_oldest_beyond_a_limit() {
        let mut made = Made::default();
        made.add(InodeNo(7), CLIENT, Mono(0));
        made.add(InodeNo(8), CLIENT, Mono(0).after_ms(1));
        made.expire(Mono(0).after_ms(REMEMBERED_MS - 1));
        assert_eq!(known(&made), [7, 8]);
        made.expire(Mono(0).after_ms(REMEMBERED_MS));
        assert_eq!(known(&made), [8]);
        (100..).take(COUNT_MAX).for_each(|number| made.add(InodeNo(number), CLIENT, Mono(2)));
        assert_eq!(made.directories.len(), COUNT_MAX);
        assert!(!made.directories.contains_key(&InodeNo(8)));
    }

    #[test]
    fn another_client_that_names_it_and_an_eviction_end_it() {
        let mut made = Made::default();
        for inode in [7, 8] {
            made.add(InodeNo(inode), CLIENT, Mono(0));
        }
        made.named_by(InodeNo(7), CLIENT);
        assert_eq!(known(&made), [7, 8]);
        made.named_by(InodeNo(7), ClientUuid([2; 16]));
        assert_eq!(known(&made), [8]);
        made.forget_client(CLIENT);
        assert!(made.is_empty());
        made.expire(Mono(0));
        assert!(made.order.is_empty(), "nothing is kept of what is forgotten");
    }
}
