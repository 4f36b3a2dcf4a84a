//! Checksums and MACs of bulk. A received bulk gets the checksum that its frame or the log needs,
//! the MAC that identifies its contents in a replay, and the checksums of its blocks, which an
//! aligned write needs; all are computed piece by piece, while the bytes are in the processor's
//! cache. A sent bulk gets a checksum in plain text, and none
//! under TLS.

use super::Conn;
use crate::io_context::IoContext;
use crate::number::u64_of;
use blake3::Hasher;
use disk::BLOCK_BYTES;
use interface::{Bulk, ContentsMac, NO_MAC, Span};
use wire::Crc32c;

/// Bytes per step. The MAC of many pieces is computed at once if they begin at a multiple of their
/// length, otherwise of few.
const STEP_BYTES: usize = 128 * 1024;

/// For blocks behind others.
const BLOCK_SHIFT: u32 = wire::crc32c_shift(u64_of(BLOCK_BYTES as usize));

/// What is computed of a bulk, and how far it is.
pub(super) struct Sums {
    crc32c: Option<Crc32c>,
    /// Of the complete blocks so far, counted from the bulk's start. Computed with the MAC; the
    /// checksum of all is combined from them then.
    block_sums: Vec<u32>,
    mac_key: Option<[u8; 32]>,
    /// For a bulk longer than a step.
    hasher: Option<Box<Hasher>>,
    summed_bytes: usize,
}

/// The results for a complete bulk.
pub(super) struct Summed {
    pub(super) crc32c: Option<u32>,
    pub(super) mac: ContentsMac,
    pub(super) block_sums: Vec<u32>,
}

impl Sums {
    pub(super) fn new(crc32c: bool, mac_key: Option<[u8; 32]>) -> Self {
        let crc32c = crc32c.then(Crc32c::new);
        Self { crc32c, block_sums: Vec::new(), mac_key, hasher: None, summed_bytes: 0 }
    }

    /// Whether anything is computed.
    pub(super) const fn is_wanted(&self) -> bool {
        self.crc32c.is_some() || self.mac_key.is_some()
    }

    /// More was received: `bytes` is all of the bulk so far.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        let new = &bytes[self.summed_bytes..];
        for step in new.chunks_exact(STEP_BYTES) {
            self.summed_bytes += STEP_BYTES;
            if let Some(key) = &self.mac_key {
                let hasher = self.hasher.get_or_insert_with(|| Box::new(Hasher::new_keyed(key)));
                hasher.update(step);
                self.block_sums.extend(sums_of_blocks(step));
            } else if let Some(crc32c) = &mut self.crc32c {
                crc32c.update(step);
            }
        }
    }

    /// The bulk is complete: `bytes`.
    pub(super) fn end(mut self, bytes: &[u8]) -> Summed {
        self.update(bytes);
        let rest = &bytes[self.summed_bytes..];
        let crc32c = if self.mac_key.is_some() {
            self.block_sums.extend(sums_of_blocks(rest));
            self.crc32c.map(|_| sum_of_all(&self.block_sums, bytes))
        } else {
            self.crc32c.map(|mut crc32c| {
                crc32c.update(rest);
                crc32c.sum()
            })
        };
        let hash = match (self.hasher, self.mac_key) {
            (Some(mut hasher), _) => Some(hasher.update(rest).finalize()),
            (None, Some(key)) => Some(blake3::keyed_hash(&key, rest)),
            (None, None) => None,
        };
        let mut mac = NO_MAC;
        if let Some(hash) = hash {
            mac.copy_from_slice(&hash.as_bytes()[..NO_MAC.len()]);
        }
        Summed { crc32c, mac, block_sums: self.block_sums }
    }
}

/// The checksums of complete blocks.
fn sums_of_blocks(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(BLOCK_BYTES as usize).map(wire::crc32c)
}

/// The checksum of all bytes, of which the complete blocks have these.
fn sum_of_all(block_sums: &[u32], bytes: &[u8]) -> u32 {
    let join = |first, second: &u32| wire::crc32c_shifted(first, *second, BLOCK_SHIFT);
    let whole = block_sums.iter().fold(0, join);
    let rest = &bytes[block_sums.len() * BLOCK_BYTES as usize..];
    match rest.len() {
        0 => whole,
        rest_bytes => wire::crc32c_combined(whole, wire::crc32c(rest), u64_of(rest_bytes)),
    }
}

const _: () = assert!(STEP_BYTES.is_multiple_of(BLOCK_BYTES as usize), "a step has whole blocks");

impl Conn {
    /// Queues a frame and its bulk.
    pub(super) fn push(&mut self, frame: Span, bulk: Option<Bulk>, io: &mut IoContext) {
        if self.seal.is_some() {
            return self.outbox.push(io.arena.get(frame), bulk, &mut io.pool);
        }
        let crc32c = bulk.and_then(|bulk| io.sum_of(bulk, !self.accepted));
        let frame = io.arena.get(frame);
        self.outbox.push_summed(frame, (bulk, crc32c), &mut io.pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_and_mac_do_not_depend_on_the_pieces_received() {
        let bytes: Vec<u8> = (0..400_000_u32).map(|index| (index % 253).to_le_bytes()[0]).collect();
        let key = [7; 32];
        for bulk_bytes in [0, 1, STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, bytes.len()] {
            let bulk = &bytes[..bulk_bytes];
            for piece_bytes in [1000, 16_384, 200_000, 1 << 20] {
                let mut sums = Sums::new(true, Some(key));
                let mut there_bytes = 0;
                while there_bytes < bulk_bytes {
                    there_bytes = (there_bytes + piece_bytes).min(bulk_bytes);
                    sums.update(&bulk[..there_bytes]);
                }
                let found = sums.end(bulk);
                assert_eq!(found.crc32c, Some(wire::crc32c(bulk)));
                assert_eq!(found.mac, blake3::keyed_hash(&key, bulk).as_bytes()[..16]);
                let blocks = bulk.chunks_exact(BLOCK_BYTES as usize).map(wire::crc32c);
                assert_eq!(found.block_sums, blocks.collect::<Vec<u32>>());
            }
        }
        let found = Sums::new(false, None).end(&bytes);
        assert_eq!((found.crc32c, found.mac), (None, NO_MAC));
        assert!(found.block_sums.is_empty());
    }
}
