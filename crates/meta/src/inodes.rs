//! The inodes of a shard by number, in pages, so that growing never moves them all.
//!
//! Numbers are assigned in order, so pages are full until inodes are removed. A page without inodes
//! is freed.

use crate::inode::Inode;
use alloc::boxed::Box;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use wire::InodeNo;

/// A page that holds a single survivor costs little more than the inode itself.
const PAGE_SLOTS: usize = 64;
const PAGE_SHIFT: u32 = PAGE_SLOTS.trailing_zeros();

#[derive(Debug)]
struct Page {
    inode_count: usize,
    slots: [Option<Box<Inode>>; PAGE_SLOTS],
}

/// Inodes by number.
#[derive(Debug)]
pub(crate) struct Inodes {
    pages: HashMap<u64, Box<Page>, FixedState>,
    inode_count: usize,
}

impl Inodes {
    pub(crate) const fn new(key: u64) -> Self {
        Self { pages: HashMap::with_hasher(FixedState::with_seed(key)), inode_count: 0 }
    }

    pub(crate) const fn count(&self) -> usize {
        self.inode_count
    }

    pub(crate) fn get(&self, inode: InodeNo) -> Option<&Inode> {
        let (page_no, slot) = place(inode);
        self.pages.get(&page_no)?.slots[slot].as_deref()
    }

    pub(crate) fn get_mut(&mut self, inode: InodeNo) -> Option<&mut Inode> {
        let (page_no, slot) = place(inode);
        self.pages.get_mut(&page_no)?.slots[slot].as_deref_mut()
    }

    /// Adds an inode that is not there yet.
    pub(crate) fn insert(&mut self, inode: InodeNo, known: Inode) {
        let (page_no, slot) = place(inode);
        let page = self.pages.entry(page_no).or_insert_with(|| {
            Box::new(Page { inode_count: 0, slots: [const { None }; PAGE_SLOTS] })
        });
        assert!(page.slots[slot].is_none(), "an inode is added once");
        page.slots[slot] = Some(Box::new(known));
        page.inode_count += 1;
        self.inode_count += 1;
    }

    /// Removes an inode, if it is in memory.
    pub(crate) fn remove(&mut self, inode: InodeNo) -> Option<Inode> {
        let (page_no, slot) = place(inode);
        let page = self.pages.get_mut(&page_no)?;
        let removed = page.slots[slot].take()?;
        page.inode_count -= 1;
        self.inode_count -= 1;
        if page.inode_count == 0 {
            self.pages.remove(&page_no);
        }
        Some(*removed)
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Inode> {
        self.pages.values().flat_map(|page| page.slots.iter().flatten()).map(Box::as_ref)
    }
}

/// Page and slot of an inode.
fn place(inode: InodeNo) -> (u64, usize) {
    let page_no = inode.0 >> PAGE_SHIFT;
    let slot = inode.0 & ((1 << PAGE_SHIFT) - 1);
    (page_no, usize::try_from(slot).unwrap_or(0))
}
