//! CRC-32C (Castagnoli), which guards frames, bulk and log alike.
//!
//! Asking the processor for its instructions takes the standard library. With the feature `std`,
//! which `ring` switches on, they are used where it has them; without, a table. The sums are the
//! same.

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    sum::one(bytes)
}

/// CRC-32C of `first` with `second` right behind it.
pub(crate) fn crc32c_of_two(first: &[u8], second: &[u8]) -> u32 {
    if second.is_empty() { sum::one(first) } else { sum::two(first, second) }
}

#[cfg(feature = "std")]
mod sum {
    use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

    pub(super) fn one(bytes: &[u8]) -> u32 {
        crc32_iscsi(bytes)
    }

    pub(super) fn two(first: &[u8], second: &[u8]) -> u32 {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(first);
        digest.update(second);
        u32::try_from(digest.finalize()).expect("a checksum of 32 bits has no more")
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
        let mut digest = CRC32C.digest();
        digest.update(first);
        digest.update(second);
        digest.finalize()
    }
}
