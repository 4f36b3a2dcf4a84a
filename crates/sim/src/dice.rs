//! The dice that decide everything, and the trace of what they decided: both come from the seed
//! alone, so that a run can be made again.

use crate::number::{narrow, wide};

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// 0 .. `count`; 0 for a count of 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        narrow(self.throw() % wide(count.max(1)))
    }

    pub(crate) const fn one_in(&mut self, count: u64) -> bool {
        self.throw().is_multiple_of(count)
    }

    pub(crate) const fn per_mille(&mut self, chance: u64) -> bool {
        self.throw() % 1000 < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let index = self.below(from.len());
        from.get(index).copied()
    }

    /// A duration around `mean_ns`: mostly less than twice as long, now and then much longer.
    pub(crate) const fn span_ns(&mut self, mean_ns: u64) -> u64 {
        let stretch = match self.throw() % 16 {
            0 => 8,
            1 | 2 => 3,
            _ => 1,
        };
        1 + self.throw() % (2 * mean_ns * stretch + 1)
    }

    /// Random bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.throw().to_le_bytes()[..piece.len()]);
        }
        bytes
    }
}

const fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A running hash over everything that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Trace(u64);

impl Trace {
    pub(crate) const fn new() -> Self {
        Self(0x6C61_6E65_6673_2173)
    }

    pub(crate) const fn note(&mut self, number: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ number);
    }

    pub(crate) fn note_bytes(&mut self, bytes: &[u8]) {
        let mut sum = wide(bytes.len());
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            sum =
                (sum.rotate_left(7) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        self.note(sum);
    }

    pub(crate) const fn sum(self) -> u64 {
        self.0
    }
}
