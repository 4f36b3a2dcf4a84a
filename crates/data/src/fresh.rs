//! Files that were created and not used since: it is known of them that they have no object.
//!
//! Only the inode number is stored, so that a create costs little memory and time here.

use alloc::collections::VecDeque;
use hashbrown::HashSet;
use interface::Seed;
use wire::InodeNo;

/// Inodes without an object. Bounded: the oldest are dropped, and
/// their objects are queried like any other.
#[derive(Debug)]
pub struct Fresh {
    inodes: HashSet<InodeNo, Seed>,
    /// In the order of their creation; may name removed ones.
    order: VecDeque<InodeNo>,
    count_max: usize,
}

impl Fresh {
    /// None; so many at most.
    #[must_use]
    pub const fn new(seed: Seed, count_max: usize) -> Self {
        Self { inodes: HashSet::with_hasher(seed), order: VecDeque::new(), count_max }
    }

    /// A file was created.
    pub fn insert(&mut self, inode: InodeNo) {
        if self.order.len() >= self.count_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.inodes.remove(&oldest);
        }
        self.inodes.insert(inode);
        self.order.push_back(inode);
    }

    /// Whether a file was not used since it was created.
    pub(crate) fn contains(&self, inode: InodeNo) -> bool {
        self.inodes.contains(&inode)
    }

    /// Nothing is known of any file.
    pub fn clear(&mut self) {
        self.inodes.clear();
        self.order.clear();
    }

    /// A file is used: removes it. Returns whether it was here.
    pub fn remove(&mut self, inode: InodeNo) -> bool {
        self.inodes.remove(&inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_dropped_at_the_limit() {
        let mut fresh = Fresh::new(Seed(1), 3);
        let [a, b, c, d] = [1, 2, 3, 4].map(|count| InodeNo::new(0, count));
        for inode in [a, b, c] {
            fresh.insert(inode);
        }
        assert!(fresh.contains(b));
        assert!(fresh.remove(b));
        assert!(!fresh.contains(b));
        assert!(!fresh.remove(b), "it was used");
        fresh.insert(d);
        assert!(!fresh.remove(a), "the oldest");
        assert!(fresh.remove(c));
        assert!(fresh.remove(d));
    }
}
