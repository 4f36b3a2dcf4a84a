//! CRC-32C (Castagnoli), which protects frames, bulk and the log.
//!
//! Detecting the processor's CRC instructions needs the standard library. With the feature `std`,
//! which `ring` enables, they are used where present; without it, a table. Both give the same sums.

use core::fmt;

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    sum::one(bytes)
}

/// Incremental CRC-32C.
#[derive(Clone)]
pub struct Crc32c(sum::Running);

impl Crc32c {
    /// The sum of no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self(sum::start())
    }

    /// Adds bytes behind those before.
    pub fn update(&mut self, bytes: &[u8]) {
        sum::update(&mut self.0, bytes);
    }

    /// The sum of all so far.
    #[must_use]
    pub fn sum(&self) -> u32 {
        sum::of(&self.0)
    }
}

impl fmt::Debug for Crc32c {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crc32c({:#010x})", self.sum())
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// CRC-32C of `first` with `second` right behind it.
pub(crate) fn crc32c_of_two(first: &[u8], second: &[u8]) -> u32 {
    if second.is_empty() { sum::one(first) } else { sum::two(first, second) }
}

/// CRC-32C of the concatenation of two byte strings with the sums `first` and `second`; the second
/// one has `second_bytes`.
#[must_use]
pub fn crc32c_combined(first: u32, second: u32, second_bytes: u64) -> u32 {
    crc32c_shifted(first, second, crc32c_shift(second_bytes))
}

/// What [`crc32c_shifted`] needs for second strings of so many bytes.
#[must_use]
pub const fn crc32c_shift(second_bytes: u64) -> u32 {
    power_of_x(second_bytes.wrapping_mul(8))
}

/// As [`crc32c_combined`], where `shift` was computed before.
#[must_use]
pub const fn crc32c_shifted(first: u32, second: u32, shift: u32) -> u32 {
    times(first, shift) ^ second
}

/// The polynomial, its highest power in the lowest bit.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// The product of two polynomials modulo [`POLYNOMIAL`].
const fn times(left: u32, mut right: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit > 0 {
        if left & bit != 0 {
            product ^= right;
        }
        right = (right >> 1) ^ if right & 1 == 1 { POLYNOMIAL } else { 0 };
        bit >>= 1;
    }
    product
}

/// x to this power modulo [`POLYNOMIAL`].
const fn power_of_x(mut power: u64) -> u32 {
    let (mut product, mut square) = (ONE, ONE >> 1);
    while power > 0 {
        if power & 1 == 1 {
            product = times(square, product);
        }
        square = times(square, square);
        power >>= 1;
    }
    product
}

#[cfg(feature = "std")]
mod sum {
    use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

    pub(super) fn one(bytes: &[u8]) -> u32 {
        crc32_iscsi(bytes)
    }

    pub(super) fn two(first: &[u8], second: &[u8]) -> u32 {
        let mut running = start();
        update(&mut running, first);
        update(&mut running, second);
        of(&running)
    }

    pub(super) type Running = Digest;

    pub(super) fn start() -> Running {
        Digest::new(CrcAlgorithm::Crc32Iscsi)
    }

    pub(super) fn update(running: &mut Running, bytes: &[u8]) {
        running.update(bytes);
    }

    pub(super) fn of(running: &Running) -> u32 {
        u32::try_from(running.finalize()).expect("a checksum of 32 bits has no more")
    }
}

#[cfg(not(feature = "std"))]
mod sum {
    use crc::{CRC_32_ISCSI, Crc, Table};

    static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

    pub(super) fn one(bytes: &[u8]) -> u32 {
        CRC32C.checksum(bytes)
    }

    pub(super) fn two(first: &[u8], second: &[u8]) -> u32 {
        let mut running = start();
        update(&mut running, first);
        update(&mut running, second);
        of(&running)
    }

    pub(super) type Running = crc::Digest<'static, u32, Table<16>>;

    pub(super) const fn start() -> Running {
        CRC32C.digest()
    }

    pub(super) fn update(running: &mut Running, bytes: &[u8]) {
        running.update(bytes);
    }

    pub(super) fn of(running: &Running) -> u32 {
        running.clone().finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_parts_combine_to_the_sum_of_the_whole() {
        let bytes: alloc::vec::Vec<u8> =
            (0..5000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for cut in [0, 1, 7, 8, 512, 4096, 4999, 5000] {
            let (first, second) = bytes.split_at(cut);
            let second_bytes = u64::try_from(second.len()).unwrap_or(u64::MAX);
            let combined = crc32c_combined(crc32c(first), crc32c(second), second_bytes);
            assert_eq!(combined, crc32c(&bytes), "cut at {cut}");
            let shift = crc32c_shift(second_bytes);
            assert_eq!(crc32c_shifted(crc32c(first), crc32c(second), shift), combined);
        }
    }
}
