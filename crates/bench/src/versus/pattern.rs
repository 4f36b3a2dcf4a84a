//! Contents that tell where they belong: each word of 8 bytes is made of its offset.

use anyhow::{Result, ensure};

const WORD_BYTES: usize = size_of::<u64>();

/// The word at an offset that is a multiple of 8.
pub(super) const fn word_at(offset: u64) -> u64 {
    (offset / WORD_BYTES as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The bytes at `offset`, both multiples of 8.
pub(super) fn bytes_at(offset: u64, byte_count: usize) -> Vec<u8> {
    let offsets = (offset..).step_by(WORD_BYTES).take(byte_count / WORD_BYTES);
    offsets.flat_map(|offset| word_at(offset).to_le_bytes()).collect()
}

/// Compares all bytes.
pub(super) fn compare(offset: u64, bytes: &[u8]) -> Result<()> {
    let fits = bytes == bytes_at(offset, bytes.len());
    ensure!(fits, "{} bytes at {offset} are not what was written", bytes.len());
    Ok(())
}

/// Compares the first and the last word, which is cheap beside a read.
pub(super) fn compare_ends(offset: u64, bytes: &[u8]) -> Result<()> {
    let last = bytes.len() - WORD_BYTES;
    let ends = [(offset, &bytes[..WORD_BYTES]), (offset + last as u64, &bytes[last..])];
    for (offset, word) in ends {
        ensure!(word == word_at(offset).to_le_bytes(), "the word at {offset} is wrong");
    }
    Ok(())
}
