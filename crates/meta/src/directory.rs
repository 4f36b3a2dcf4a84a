//! A directory's entries: found by name, listed by cookie, a million of them without a pause.
//!
//! ```text
//! names: hash ─▶ slot_no       order: cookie ─▶ slot_no       slots: the entries
//! ```

use crate::hash::Seed;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hashbrown::HashTable;
use wire::{Attr, FileKind, InodeNo, Transno};

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

impl Target {
    /// All that an entry tells of an inode of another shard.
    pub(crate) const fn elsewhere(&self) -> Attr {
        Attr::elsewhere(self.inode, self.kind)
    }
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
    names: Names,
    order: BTreeMap<u64, u32>,
    /// No cookie in it is higher.
    cookie_last: u64,
    names_bytes: usize,
    /// The entries are in the cold store; none here counts.
    cold: bool,
}

/// What an entry takes beside its name.
const ENTRY_BYTES: usize = size_of::<Option<Slot>>() + 64;

impl Directory {
    /// Without entries; `cold`: they are in the cold store.
    pub(crate) fn of_cold(cold: bool) -> Self {
        Self { cold, ..Self::default() }
    }

    /// Whether the entries are in the cold store instead.
    pub(crate) const fn is_cold(&self) -> bool {
        self.cold
    }

    /// All entries were brought back.
    pub(crate) const fn warm(&mut self) {
        self.cold = false;
    }

    /// About what the entries take.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * ENTRY_BYTES + self.names_bytes
    }

    pub(crate) fn get(&self, seed: Seed, name: &[u8]) -> Option<Target> {
        let slot_no = self.find(seed.hash_name(name), name)?;
        slot(&self.slots, slot_no).map(|slot| slot.target)
    }

    /// Puts an entry in, whatever stood under its name. `false` if another name has its cookie.
    pub(crate) fn put(&mut self, seed: Seed, name: &[u8], target: Target) -> bool {
        let hash = seed.hash_name(name);
        let known = self.find(hash, name);
        // New entries come behind all others.
        let is_last = target.cookie > self.cookie_last;
        let holder = if is_last { None } else { self.order.get(&target.cookie).copied() };
        if holder.is_some() && holder != known {
            return false;
        }
        let new = Slot { name: name.into(), hash, target };
        let slot_no = match known {
            Some(slot_no) => {
                if let Some(old) = slot(&self.slots, slot_no) {
                    self.order.remove(&old.target.cookie);
                    self.names_bytes -= old.name.len();
                }
                self.slots[slot_no as usize] = Some(new);
                slot_no
            }
            None => self.insert(new),
        };
        self.order.insert(target.cookie, slot_no);
        self.cookie_last = self.cookie_last.max(target.cookie);
        self.names_bytes += name.len();
        true
    }

    pub(crate) fn remove(&mut self, seed: Seed, name: &[u8]) {
        let hash = seed.hash_name(name);
        let Some(slot_no) = self.find(hash, name) else {
            return;
        };
        self.names.remove(hash, slot_no);
        if let Some(old) = self.slots[slot_no as usize].take() {
            self.order.remove(&old.target.cookie);
            self.names_bytes -= old.name.len();
        }
        self.free.push(slot_no);
    }

    /// The entries behind `cookie`, in the order of their cookies.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (&[u8], Target)> {
        let behind = (core::ops::Bound::Excluded(cookie), core::ops::Bound::Unbounded);
        self.order
            .range(behind)
            .filter_map(|(_, slot_no)| slot(&self.slots, *slot_no))
            .map(|slot| (&*slot.name, slot.target))
    }

    fn find(&self, hash: u64, name: &[u8]) -> Option<u32> {
        self.names.find(hash, |slot_no| {
            slot(&self.slots, slot_no).is_some_and(|slot| slot.hash == hash && *slot.name == *name)
        })
    }

    /// Takes a slot for a new name.
    fn insert(&mut self, new: Slot) -> u32 {
        let hash = new.hash;
        let slot_no = match self.free.pop() {
            Some(slot_no) => {
                self.slots[slot_no as usize] = Some(new);
                slot_no
            }
            None => {
                #[expect(clippy::expect_used, reason = "memory ends before 2^32 entries do")]
                let slot_no = u32::try_from(self.slots.len()).expect("fewer than 2^32 entries");
                self.slots.push(Some(new));
                slot_no
            }
        };
        let slots = &self.slots;
        let hash_of = |slot_no: u32| slot(slots, slot_no).map_or(0, |slot| slot.hash);
        self.names.insert(hash, slot_no, self.order.len(), hash_of);
        slot_no
    }
}

fn slot(slots: &[Option<Slot>], slot_no: u32) -> Option<&Slot> {
    slots.get(slot_no as usize).and_then(Option::as_ref)
}

/// Slots by the hash of their name: one table, or many, so that no single growth takes long.
#[derive(Debug, Default)]
struct Names {
    tables: Vec<HashTable<u32>>,
}

impl Names {
    const TABLE_COUNT: usize = 256;
    /// From here on a directory has many tables.
    const ONE_TABLE_MAX: usize = 8192;

    /// Which table; of bits that a table itself looks at last.
    fn index(&self, hash: u64) -> usize {
        let [_, _, _, _, byte, ..] = hash.to_le_bytes();
        if self.tables.len() > 1 { usize::from(byte) } else { 0 }
    }

    fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let table = self.tables.get(self.index(hash))?;
        table.find(hash, |slot_no| is_it(*slot_no)).copied()
    }

    fn remove(&mut self, hash: u64, slot_no: u32) {
        let index = self.index(hash);
        match self.tables[index].find_entry(hash, |other| *other == slot_no) {
            Ok(found) => {
                found.remove();
            }
            Err(_) => unreachable!("what is removed was found"),
        }
    }

    /// Adds a slot whose name is not there; `entry_count` others are.
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
