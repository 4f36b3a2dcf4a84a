//! Rows that are gathered in memory before they are written: a hash table, written in the order of
//! keys.
//!
//! Invariant: a key occurs once, with its last value. Keys and values are in one buffer; a value of
//! the same length as the one before overwrites it.

use disk::rows::Range;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::Bound;

/// The most bytes of gathered rows.
const GATHERED_BYTES_MAX: usize = 16 << 20;
/// The overhead of a row.
const ROW_BYTES: usize = 64;

/// The gathered rows.
#[derive(Default)]
pub(crate) struct Gathered {
    seed: DefaultHashBuilder,
    bytes: Vec<u8>,
    rows: Vec<Row>,
    found: HashTable<u32>,
    /// All keys in order, from the first `delete_range` on.
    ordered: Option<BTreeSet<Box<[u8]>>>,
}

#[derive(Clone, Copy)]
struct Row {
    /// The key's first bytes, which decide most comparisons.
    front: u128,
    key: Piece,
    /// `None`: the row is deleted.
    value: Option<Piece>,
}

impl Row {
    /// A key's first byte names the table of its row.
    const fn table(&self) -> u8 {
        self.front.to_be_bytes()[0]
    }
}

#[derive(Clone, Copy)]
struct Piece {
    start: u32,
    piece_bytes: u32,
}

impl Piece {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.range()]
    }

    const fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.piece_bytes as usize
    }
}

impl Gathered {
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The memory that it takes.
    const fn bytes_count(&self) -> usize {
        self.bytes.len() + self.rows.len() * ROW_BYTES
    }

    /// Whether it should be written before more rows are gathered.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes_count() >= GATHERED_BYTES_MAX
    }

    /// Removes all rows; retains the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.found.clear();
        self.ordered = None;
    }

    /// The value of a key; `Some(None)` if it was deleted.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let row_no = self.find(self.seed.hash_one(key), key)?;
        Some(self.rows[row_no].value.map(|value| value.of(&self.bytes)))
    }

    /// Sets or deletes a key.
    pub(crate) fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        let hash = self.seed.hash_one(key);
        let Some(row_no) = self.find(hash, key) else {
            return self.insert(hash, key, value);
        };
        let known = self.rows[row_no].value;
        self.rows[row_no].value = match (known, value) {
            // Rows of busy directories and slots change often.
            (Some(known), Some(value)) if known.range().len() == value.len() => {
                self.bytes[known.range()].copy_from_slice(value);
                Some(known)
            }
            (_, value) => value.map(|value| self.put(value)),
        };
    }

    /// Deletes all gathered keys of a range.
    pub(crate) fn delete_range(&mut self, range: &Range) {
        let Self { bytes, rows, .. } = self;
        let keys = || rows.iter().map(|row| row.key.of(bytes).into()).collect();
        let ordered = self.ordered.take().unwrap_or_else(keys);
        let (from, until) = (range.from.bytes(), range.until.bytes());
        for key in ordered.range::<[u8], _>((Bound::Included(from), Bound::Excluded(until))) {
            if let Some(row_no) = self.find(self.seed.hash_one(&**key), key) {
                self.rows[row_no].value = None;
            }
        }
        self.ordered = Some(ordered);
    }

    /// Sorts the rows by key. No key can be found afterwards.
    pub(crate) fn sort(&mut self) {
        let Self { bytes, rows, found, .. } = self;
        found.clear();
        // Within a table many are in order already.
        rows.sort_by_key(Row::table);
        for table in rows.chunk_by_mut(|one, other| one.table() == other.table()) {
            table.sort_by(|one, other| {
                let by_front = one.front.cmp(&other.front);
                by_front.then_with(|| one.key.of(bytes).cmp(other.key.of(bytes)))
            });
        }
    }

    /// All rows.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> + Clone {
        let Self { bytes, rows, .. } = self;
        rows.iter().map(|row| (row.key.of(bytes), row.value.map(|value| value.of(bytes))))
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |row_no: &u32| self.rows[*row_no as usize].key.of(&self.bytes) == key;
        self.found.find(hash, is_it).map(|row_no| *row_no as usize)
    }

    fn insert(&mut self, hash: u64, key: &[u8], value: Option<&[u8]>) {
        let row_no = number(self.rows.len());
        if let Some(ordered) = &mut self.ordered {
            ordered.insert(key.into());
        }
        let key_piece = self.put(key);
        let value = value.map(|value| self.put(value));
        self.rows.push(Row { front: front(key), key: key_piece, value });
        let Self { seed, bytes, rows, found, .. } = self;
        let hash_of = |row_no: &u32| seed.hash_one(rows[*row_no as usize].key.of(bytes));
        found.insert_unique(hash, row_no, hash_of);
    }

    fn put(&mut self, piece: &[u8]) -> Piece {
        let (start, piece_bytes) = (number(self.bytes.len()), number(piece.len()));
        self.bytes.extend_from_slice(piece);
        Piece { start, piece_bytes }
    }
}

fn number(count: usize) -> u32 {
    #[expect(clippy::expect_used, reason = "what was gathered is written long before")]
    u32::try_from(count).expect("fewer than 2^32 bytes and rows")
}

/// A key's first sixteen bytes, for comparisons.
fn front(key: &[u8]) -> u128 {
    let mut front = [0; 16];
    let front_bytes = key.len().min(front.len());
    front[..front_bytes].copy_from_slice(&key[..front_bytes]);
    u128::from_be_bytes(front)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use disk::rows::Key;
    use std::collections::BTreeMap;
    use wire::InodeNo;

    /// A key, in a range that all operations below use.
    fn key(number: u64) -> Vec<u8> {
        let inode = InodeNo(number % 7);
        match number % 3 {
            0 => Key::inode(inode).bytes().to_vec(),
            1 => Key::listing(inode, number % 5).bytes().to_vec(),
            _ => Key::xattr(inode, &[b'x'; 40][..(number % 40) as usize]).unwrap().bytes().to_vec(),
        }
    }

    #[test]
    fn it_behaves_as_an_ordered_map() {
        let (mut gathered, mut model) = (Gathered::default(), BTreeMap::new());
        let mut rng = fastrand::Rng::with_seed(7);
        for step in 0..20_000_u64 {
            let number = rng.u64(..1 << 31);
            let key = key(number);
            match number % 11 {
                0 if step % 1000 > 500 => {
                    let range = Range::inode(InodeNo(number % 7));
                    gathered.delete_range(&range);
                    for (key, value) in &mut model {
                        let key: &Vec<u8> = key;
                        if range.contains(key) {
                            *value = None;
                        }
                    }
                }
                1 => {
                    gathered.set(&key, None);
                    model.insert(key, None);
                }
                2 => assert_eq!(
                    gathered.get(&key).map(|value| value.map(<[u8]>::to_vec)),
                    model.get(&key).cloned()
                ),
                _ => {
                    let value = vec![1; (number % 4) as usize];
                    gathered.set(&key, Some(&value));
                    model.insert(key, Some(value));
                }
            }
            if step % 1000 == 999 {
                gathered.sort();
                let all: Vec<_> = gathered
                    .iter()
                    .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                    .collect();
                assert_eq!(all, std::mem::take(&mut model).into_iter().collect::<Vec<_>>());
                gathered.clear();
            }
        }
    }
}
