//! A table of entries of a few words that all lanes of a client read and write without locks.
//!
//! Each entry has a sequence number, odd while it is written. A reader that meets a write finds
//! nothing, and a writer that meets another one does not write: the table may forget. An entry lies
//! in one of a few places, which its hash names; a new one replaces the oldest there.

use alloc::boxed::Box;
use core::array;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// The places of a hash.
const WAY_COUNT: usize = 4;

#[derive(Debug)]
struct Place<const N: usize> {
    sequence_no: AtomicU64,
    words: [AtomicU64; N],
}

/// A table of entries of `N` words. An entry's first word is not 0.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    places: Box<[Place<N>]>,
    /// Places with an entry.
    used_count: AtomicUsize,
    /// The word that says how old an entry is.
    age_index: usize,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(count_max: usize, age_index: usize) -> Self {
        let place = || Place {
            sequence_no: AtomicU64::new(0),
            words: array::from_fn(|_| AtomicU64::new(0)),
        };
        let set_count = (count_max / WAY_COUNT).max(1);
        let places = (0..set_count * WAY_COUNT).map(|_| place()).collect();
        Self { places, used_count: AtomicUsize::new(0), age_index }
    }

    fn set(&self, hash: u64) -> &[Place<N>] {
        let set_count = self.places.len() / WAY_COUNT;
        let first = usize::try_from(hash).unwrap_or(0) % set_count * WAY_COUNT;
        &self.places[first..first + WAY_COUNT]
    }

    /// The newest entry among the places of a hash that is wanted.
    pub(super) fn get(&self, hash: u64, wanted: impl Fn(&[u64; N]) -> bool) -> Option<[u64; N]> {
        let found = self.set(hash).iter().filter_map(Place::read);
        found
            .filter(|words| words[0] != 0 && wanted(words))
            .max_by_key(|words| words[self.age_index])
    }

    /// Writes an entry over the one that is wanted, or over the oldest.
    pub(super) fn put(&self, hash: u64, wanted: impl Fn(&[u64; N]) -> bool, words: [u64; N]) {
        self.update(hash, wanted, |_| Some(words));
    }

    /// Replaces the entry that is wanted, or the oldest if there is none such.
    pub(super) fn update(
        &self,
        hash: u64,
        wanted: impl Fn(&[u64; N]) -> bool,
        change: impl FnOnce(Option<[u64; N]>) -> Option<[u64; N]>,
    ) {
        let age = |place: &&Place<N>| {
            let words = place.read();
            let is_wanted = words.is_some_and(|words| words[0] != 0 && wanted(&words));
            (!is_wanted, words.map_or(u64::MAX, |words| words[self.age_index]))
        };
        let Some(place) = self.set(hash).iter().min_by_key(age) else { return };
        place.write(|words| {
            let known = (words[0] != 0 && wanted(&words)).then_some(words);
            let changed = change(known);
            if words[0] == 0 && changed.is_some() {
                self.used_count.fetch_add(1, Ordering::Relaxed);
            }
            changed
        });
    }

    /// The number of entries.
    pub(super) fn count(&self) -> usize {
        self.used_count.load(Ordering::Relaxed)
    }

    /// All entries.
    pub(super) fn all(&self) -> impl Iterator<Item = [u64; N]> {
        self.places.iter().filter_map(Place::read).filter(|words| words[0] != 0)
    }
}

impl<const N: usize> Place<N> {
    fn load(&self) -> [u64; N] {
        array::from_fn(|index| self.words[index].load(Ordering::Relaxed))
    }

    fn read(&self) -> Option<[u64; N]> {
        let before = self.sequence_no.load(Ordering::Acquire);
        if before % 2 == 1 {
            return None;
        }
        let words = self.load();
        fence(Ordering::Acquire);
        (self.sequence_no.load(Ordering::Relaxed) == before).then_some(words)
    }

    fn write(&self, change: impl FnOnce([u64; N]) -> Option<[u64; N]>) {
        let before = self.sequence_no.load(Ordering::Relaxed);
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        if before % 2 == 1
            || self.sequence_no.compare_exchange(before, before + 1, acquire, relaxed).is_err()
        {
            return;
        }
        if let Some(words) = change(self.load()) {
            fence(Ordering::Release);
            for (word, value) in self.words.iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
        }
        self.sequence_no.store(before + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(wanted: u64) -> impl Fn(&[u64; 3]) -> bool {
        move |words| words[0] == wanted
    }

    #[test]
    fn a_new_entry_replaces_its_own_or_the_oldest_of_its_places() {
        let table = Table::<3>::new(4, 1);
        for number in 1..=4 {
            table.put(7, key(number), [number, number, 0]);
        }
        table.put(7, key(2), [2, 9, 1]);
        assert_eq!(table.get(7, key(2)), Some([2, 9, 1]));
        table.put(7, key(5), [5, 5, 0]);
        assert_eq!(table.get(7, key(1)), None);
        assert_eq!((table.all().count(), table.count()), (4, 4));
    }

    #[test]
    fn what_is_being_written_is_not_found() {
        let table = Table::<3>::new(4, 1);
        table.put(7, key(1), [1, 1, 0]);
        table.update(7, key(1), |known| {
            assert_eq!(known, Some([1, 1, 0]));
            assert_eq!(table.get(7, key(1)), None);
            None
        });
        assert_eq!(table.get(7, key(1)), Some([1, 1, 0]));
    }
}
