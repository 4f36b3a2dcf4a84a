//! A directory's entries, indexed by name and by cookie. Growing to a million entries and shrinking
//! again cause no pause.
//!
//! ```text
//! names: hash ─▶ slot_no       order: cookie ─▶ slot_no       slots: the entries
//! ```

use crate::hash::HashedName;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// An entry.
pub(crate) use disk::rows::DirentRow as Target;

#[derive(Debug)]
struct Slot {
    name: Box<[u8]>,
    hash: u64,
    target: Target,
}

/// Entries of one directory, without `.` and `..`: all, or those in memory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    slots: Vec<Slot>,
    names: Names,
    order: BTreeMap<u64, u32>,
    /// The highest cookie.
    cookie_last: u64,
}

impl Directory {
    /// Memory of an entry besides its name.
    pub(crate) const ENTRY_BYTES: usize = size_of::<Slot>() + 64;

    /// Number of entries.
    pub(crate) const fn count(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn get(&self, name: HashedName<'_>) -> Option<Target> {
        let slot_no = self.find(name)?;
        slot(&self.slots, slot_no).map(|slot| slot.target)
    }

    /// Sets the entry of a name. `false` if another name has its cookie.
    pub(crate) fn put(&mut self, name: HashedName<'_>, target: Target) -> bool {
        let known = self.find(name);
        // New entries come behind all others.
        let is_last = target.cookie > self.cookie_last;
        let holder = if is_last { None } else { self.order.get(&target.cookie).copied() };
        if holder.is_some() && holder != known {
            return false;
        }
        let slot_no = match known {
            Some(slot_no) => {
                let old = &mut self.slots[slot_no as usize].target;
                self.order.remove(&old.cookie);
                *old = target;
                slot_no
            }
            None => self.insert(Slot { name: name.name.into(), hash: name.hash, target }),
        };
        self.order.insert(target.cookie, slot_no);
        self.cookie_last = self.cookie_last.max(target.cookie);
        true
    }

    /// Removes an entry. The last slot moves into its place, so that no slot is ever empty and
    /// unneeded memory is freed gradually.
    pub(crate) fn remove(&mut self, name: HashedName<'_>) {
        let Some(slot_no) = self.find(name) else {
            return;
        };
        let slots = &self.slots;
        let hash_of = |slot_no: u32| slot(slots, slot_no).map_or(0, |slot| slot.hash);
        self.names.remove(name.hash, slot_no, hash_of);
        let last_no = slot_no_of(self.slots.len() - 1);
        let old = self.slots.swap_remove(slot_no as usize);
        self.order.remove(&old.target.cookie);
        if let Some(moved) = slot(&self.slots, slot_no) {
            self.names.renumber(moved.hash, last_no, slot_no);
            self.order.insert(moved.target.cookie, slot_no);
        }
        if self.slots.len() < self.slots.capacity() / 4 {
            self.slots.shrink_to(self.slots.len() * 2);
        }
    }

    /// The entries behind `cookie`, ordered by cookie.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (&[u8], Target)> {
        let behind = (core::ops::Bound::Excluded(cookie), core::ops::Bound::Unbounded);
        self.order
            .range(behind)
            .filter_map(|(_, slot_no)| slot(&self.slots, *slot_no))
            .map(|slot| (&*slot.name, slot.target))
    }

    fn find(&self, HashedName { hash, name }: HashedName<'_>) -> Option<u32> {
        self.names.find(hash, |slot_no| {
            slot(&self.slots, slot_no).is_some_and(|slot| slot.hash == hash && *slot.name == *name)
        })
    }

    /// Adds a slot for a new name.
    fn insert(&mut self, new: Slot) -> u32 {
        let hash = new.hash;
        let slot_no = slot_no_of(self.slots.len());
        self.slots.push(new);
        let slots = &self.slots;
        let hash_of = |slot_no: u32| slot(slots, slot_no).map_or(0, |slot| slot.hash);
        self.names.insert(hash, slot_no, self.order.len(), hash_of);
        slot_no
    }
}

#[expect(clippy::expect_used, reason = "memory ends before 2^32 entries do")]
fn slot_no_of(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 entries")
}

fn slot(slots: &[Slot], slot_no: u32) -> Option<&Slot> {
    slots.get(slot_no as usize)
}

/// Slots by the hash of their name: one table, or many, so that no single growth takes long.
#[derive(Debug, Default)]
struct Names {
    tables: Vec<HashTable<u32>>,
}

impl Names {
    const TABLE_COUNT: usize = 256;
    /// Entries from which on a directory has many tables.
    const ONE_TABLE_MAX: usize = 8192;

    /// The table of a hash, by bits that the table itself uses last.
    fn index(&self, hash: u64) -> usize {
        let [_, _, _, _, byte, ..] = hash.to_le_bytes();
        if self.tables.len() > 1 { usize::from(byte) } else { 0 }
    }

    fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let table = self.tables.get(self.index(hash))?;
        table.find(hash, |slot_no| is_it(*slot_no)).copied()
    }

    fn remove(&mut self, hash: u64, slot_no: u32, hash_of: impl Fn(u32) -> u64) {
        let index = self.index(hash);
        let table = &mut self.tables[index];
        match table.find_entry(hash, |other| *other == slot_no) {
            Ok(found) => {
                found.remove();
            }
            Err(_) => unreachable!("a removed entry was found"),
        }
        if table.len() < table.capacity() / 4 {
            table.shrink_to(table.len() * 2, |other| hash_of(*other));
        }
    }

    /// Changes a slot's number.
    fn renumber(&mut self, hash: u64, slot_no: u32, new_no: u32) {
        let index = self.index(hash);
        match self.tables[index].find_mut(hash, |other| *other == slot_no) {
            Some(found) => *found = new_no,
            None => unreachable!("every slot has a number"),
        }
    }

    /// Adds a slot for a new name, besides `entry_count` others.
    fn insert(
        &mut self,
        hash: u64,
        slot_no: u32,
        entry_count: usize,
        hash_of: impl Fn(u32) -> u64,
    ) {
        if self.tables.is_empty() {
            self.tables.push(HashTable::new());
        }
        if self.tables.len() == 1 && entry_count >= Self::ONE_TABLE_MAX {
            let all = core::mem::take(&mut self.tables);
            self.tables.resize_with(Self::TABLE_COUNT, HashTable::new);
            for other in all.into_iter().flatten() {
                self.insert_into_table(hash_of(other), other, &hash_of);
            }
        }
        self.insert_into_table(hash, slot_no, &hash_of);
    }

    fn insert_into_table(&mut self, hash: u64, slot_no: u32, hash_of: impl Fn(u32) -> u64) {
        let index = self.index(hash);
        self.tables[index].insert_unique(hash, slot_no, |other| hash_of(*other));
    }
}
