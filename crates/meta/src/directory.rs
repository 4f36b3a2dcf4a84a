//! A directory's entries: found by name, listed by cookie, a million of them without a pause.
//!
//! ```text
//! names: hash ─▶ slot        order: cookie ─▶ slot        slots: the entries
//! ```

use crate::hash::Seed;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use wire::{FileKind, InodeNo, Transno};

/// What stands under a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// Place in listings: rises along the directory, never used twice.
    pub(crate) cookie: u64,
    pub(crate) inode: InodeNo,
    pub(crate) kind: FileKind,
    /// Transaction of the entry's last change.
    pub(crate) version: Transno,
}

#[derive(Debug)]
struct Slot {
    name: Box<[u8]>,
    hash: u64,
    target: Target,
}

/// The entries of one directory, without `.` and `..`.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    names: HashTable<u32>,
    order: BTreeMap<u64, u32>,
}

impl Directory {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn get(&self, seed: Seed, name: &[u8]) -> Option<Target> {
        let hash = seed.hash_name(name);
        let slot_no = *self.names.find(hash, |slot_no| self.is_named(*slot_no, hash, name))?;
        self.slot(slot_no).map(|slot| slot.target)
    }

    /// Puts an entry in, whatever stood under its name. `false` if another name has its cookie.
    pub(crate) fn put(&mut self, seed: Seed, name: &[u8], target: Target) -> bool {
        let hash = seed.hash_name(name);
        let known = self.names.find(hash, |slot_no| self.is_named(*slot_no, hash, name)).copied();
        let holder = self.order.get(&target.cookie).copied();
        if holder.is_some() && holder != known {
            return false;
        }
        let slot = Slot { name: name.into(), hash, target };
        match known {
            Some(slot_no) => {
                if let Some(old) = self.slot(slot_no) {
                    let cookie = old.target.cookie;
                    self.order.remove(&cookie);
                }
                self.slots[slot_no as usize] = Some(slot);
                self.order.insert(target.cookie, slot_no);
            }
            None => self.insert(slot),
        }
        true
    }

    pub(crate) fn remove(&mut self, seed: Seed, name: &[u8]) {
        let hash = seed.hash_name(name);
        let slots = &self.slots;
        let found = self.names.find_entry(hash, |slot_no| {
            slots[*slot_no as usize].as_ref().is_some_and(|slot| *slot.name == *name)
        });
        if let Ok(found) = found {
            let (slot_no, _) = found.remove();
            if let Some(slot) = self.slots[slot_no as usize].take() {
                self.order.remove(&slot.target.cookie);
            }
            self.free.push(slot_no);
        }
    }

    /// The entries behind `cookie`, in the order of their cookies.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (&[u8], Target)> {
        let behind = (core::ops::Bound::Excluded(cookie), core::ops::Bound::Unbounded);
        self.order
            .range(behind)
            .filter_map(|(_, slot_no)| self.slot(*slot_no))
            .map(|slot| (&*slot.name, slot.target))
    }

    fn insert(&mut self, slot: Slot) {
        let (hash, cookie) = (slot.hash, slot.target.cookie);
        let slot_no = match self.free.pop() {
            Some(slot_no) => {
                self.slots[slot_no as usize] = Some(slot);
                slot_no
            }
            None => {
                #[expect(clippy::expect_used, reason = "memory ends before 2^32 entries do")]
                let slot_no = u32::try_from(self.slots.len()).expect("fewer than 2^32 entries");
                self.slots.push(Some(slot));
                slot_no
            }
        };
        let slots = &self.slots;
        let rehash = |slot_no: &u32| slots[*slot_no as usize].as_ref().map_or(0, |slot| slot.hash);
        match self.names.entry(hash, |_| false, rehash) {
            Place::Vacant(place) => place.insert(slot_no),
            Place::Occupied(_) => unreachable!("nothing is equal here"),
        };
        self.order.insert(cookie, slot_no);
    }

    fn slot(&self, slot_no: u32) -> Option<&Slot> {
        self.slots.get(slot_no as usize).and_then(Option::as_ref)
    }

    fn is_named(&self, slot_no: u32, hash: u64, name: &[u8]) -> bool {
        self.slot(slot_no).is_some_and(|slot| slot.hash == hash && *slot.name == *name)
    }
}
