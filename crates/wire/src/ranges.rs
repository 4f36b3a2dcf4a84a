//! The locked ranges of one owner of one file, at server and client. Invariants: they are in rising
//! order, disjoint, and adjacent ranges of the same type are joined.

use crate::{ByteRange, LockType};
use alloc::vec::Vec;

/// Ranges and their lock types.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Ranges {
    rows: Vec<(ByteRange, LockType)>,
}

impl Ranges {
    /// No ranges.
    #[must_use]
    pub const fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// Whether nothing is locked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of ranges.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// All, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = (ByteRange, LockType)> + '_ {
        self.rows.iter().copied()
    }

    /// The locked parts of `range`, in rising order.
    pub fn within(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, LockType)> + '_ {
        let first = self.rows.partition_point(|(row, _)| row.end() < range.start());
        let rows = self.rows.get(first..).unwrap_or_default().iter();
        rows.map_while(move |(row, lock)| Some((row.intersection(range)?, *lock)))
    }

    /// The first range that conflicts with another owner's `lock` on `range`.
    #[must_use]
    pub fn conflict(&self, range: ByteRange, lock: LockType) -> Option<(ByteRange, LockType)> {
        let first = self.rows.partition_point(|(row, _)| row.end() < range.start());
        let rows = self.rows.get(first..)?.iter().copied();
        rows.take_while(|(row, _)| row.overlaps(range)).find(|(_, held)| held.conflicts(lock))
    }

    /// Whether every byte of `range` is locked at least for `lock`.
    #[must_use]
    pub fn covers(&self, range: ByteRange, lock: LockType) -> bool {
        let mut next = Some(range.start());
        for (row, held) in self.within(range) {
            if next != Some(row.start()) || held < lock {
                return false;
            }
            next = row.end().checked_add(1);
        }
        next.is_none_or(|next| next > range.end())
    }

    /// Locks or unlocks `range`, replacing its previous state.
    pub fn set(&mut self, range: ByteRange, lock: Option<LockType>) {
        let first = self.rows.partition_point(|(row, _)| row.end() < range.start());
        let last = self.rows.partition_point(|(row, _)| row.start() <= range.end());
        let mut rows: [Option<(ByteRange, LockType)>; 3] = [None; 3];
        if let Some((row, held)) = self.rows.get(first).filter(|_| first < last)
            && let Some(before) = range.start().checked_sub(1)
        {
            rows[0] = ByteRange::new(row.start(), before).map(|left| (left, *held));
        }
        rows[1] = lock.map(|lock| (range, lock));
        if let Some((row, held)) = last.checked_sub(1).and_then(|at| self.rows.get(at))
            && first < last
        {
            rows[2] = ByteRange::new(range.end() + 1, row.end()).map(|right| (right, *held));
        }
        let count = rows.iter().flatten().count();
        self.rows.splice(first..last, rows.into_iter().flatten());
        self.join(first.saturating_sub(1), first + count + 1);
    }

    /// Joins adjacent ranges of the same type, among the rows from `first` to before `end`.
    fn join(&mut self, first: usize, end: usize) {
        let mut at = first;
        let mut end = end.min(self.rows.len());
        while at + 1 < end {
            let [(left, left_lock), (right, right_lock)] = [self.rows[at], self.rows[at + 1]];
            let whole = ByteRange::new(left.start(), right.end());
            if left_lock == right_lock
                && left.end() + 1 == right.start()
                && let Some(whole) = whole
            {
                self.rows[at].0 = whole;
                self.rows.remove(at + 1);
                end -= 1;
            } else {
                at += 1;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::LOCK_END_MAX;
    use alloc::vec;

    const LOCKS: [Option<LockType>; 3] = [None, Some(LockType::Read), Some(LockType::Write)];
    /// The model's bytes are the file's first ones; the last one stands for all that follow.
    const BYTE_COUNT: u64 = 24;

    fn range(start: u64, end: u64) -> ByteRange {
        let end = if end == BYTE_COUNT - 1 { LOCK_END_MAX } else { end };
        ByteRange::new(start, end).unwrap()
    }

    #[test]
    fn ranges_equal_an_array_of_bytes() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut bytes = vec![None; 24];
            let mut ranges = Ranges::new();
            for _ in 0..60 {
                let (one, other) = (rng.u64(..) % BYTE_COUNT, rng.u64(..) % BYTE_COUNT);
                let (start, end) = (one.min(other), one.max(other));
                let lock = LOCKS[usize::try_from(rng.u64(..) % 3).unwrap()];
                ranges.set(range(start, end), lock);
                for byte in start..=end {
                    bytes[usize::try_from(byte).unwrap()] = lock;
                }
                check(&ranges, &bytes);
            }
        }
    }

    fn check(ranges: &Ranges, bytes: &[Option<LockType>]) {
        let mut pieces = Vec::new();
        for (byte, lock) in bytes.iter().enumerate() {
            let Some(lock) = *lock else { continue };
            let byte = u64::try_from(byte).unwrap();
            match pieces.last_mut() {
                Some((_, end, held)) if *end + 1 == byte && *held == lock => *end = byte,
                _ => pieces.push((byte, byte, lock)),
            }
        }
        let pieces: Vec<_> =
            pieces.into_iter().map(|(start, end, lock)| (range(start, end), lock)).collect();
        assert_eq!(ranges.iter().collect::<Vec<_>>(), pieces);
        for start in 0..BYTE_COUNT {
            for end in start..BYTE_COUNT {
                let part = &bytes[usize::try_from(start).unwrap()..=usize::try_from(end).unwrap()];
                let range = range(start, end);
                for lock in [LockType::Read, LockType::Write] {
                    let conflicts = part.iter().flatten().any(|held| held.conflicts(lock));
                    assert_eq!(ranges.conflict(range, lock).is_some(), conflicts);
                    let covered = part.iter().all(|held| held.is_some_and(|held| held >= lock));
                    assert_eq!(ranges.covers(range, lock), covered, "{ranges:?} {range:?}");
                }
                let found = ranges.within(range).count();
                assert_eq!(found == 0, part.iter().flatten().next().is_none());
            }
        }
    }

    #[test]
    fn the_last_possible_byte_can_be_locked() {
        let mut ranges = Ranges::new();
        let last = ByteRange::new(LOCK_END_MAX, LOCK_END_MAX).unwrap();
        ranges.set(last, Some(LockType::Write));
        assert!(ranges.covers(last, LockType::Write));
        assert!(!ranges.covers(ByteRange::ALL, LockType::Read));
        ranges.set(ByteRange::ALL, Some(LockType::Read));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(ByteRange::ALL, LockType::Read)]);
        ranges.set(ByteRange::ALL, None);
        assert!(ranges.is_empty());
        assert_eq!(ByteRange::new(0, LOCK_END_MAX + 1), None);
        assert_eq!(ByteRange::new(1, 0), None);
    }
}
