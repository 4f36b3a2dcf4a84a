//! Parts of the tables that all lanes of a mount read and write without locks.

use core::array;
use core::sync::atomic::{AtomicU64, Ordering};
use wire::{Attr, InodeNo, LaneId, Wire as _};

const COUNT: usize = Attr::WIRE_BYTES.div_ceil(8);

/// Attributes. Who reads them while they are written gets a mixture: the table says whether they were.
#[derive(Debug)]
pub(crate) struct AttrWords([AtomicU64; COUNT]);

impl Default for AttrWords {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl AttrWords {
    pub(crate) fn get(&self) -> Option<Attr> {
        let mut bytes = [0; COUNT * 8];
        for (part, word) in bytes.chunks_mut(8).zip(&self.0) {
            part.copy_from_slice(&word.load(Ordering::SeqCst).to_le_bytes());
        }
        Attr::decode_all(&bytes[..Attr::WIRE_BYTES]).ok()
    }

    pub(crate) fn set(&self, attr: &Attr) {
        for (word, part) in self.0.iter().zip(attr.to_bytes().chunks(8)) {
            let mut whole = [0; 8];
            whole[..part.len()].copy_from_slice(part);
            word.store(u64::from_le_bytes(whole), Ordering::SeqCst);
        }
    }
}

/// FNV-1a: equal hashes of two names cost a wait.
pub(crate) fn hash_of(parent: InodeNo, name: &[u8]) -> u64 {
    let bytes = parent.0.to_le_bytes().into_iter().chain(name.iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The place of an inode number or a hash in a table of so many. Each shard gives numbers in order, and
/// has its own in the highest bits: so files of several shards have the same lowest ones.
pub(crate) fn place_of(number: u64, place_count: usize) -> usize {
    let mixed = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    usize::try_from(mixed).unwrap_or(0) % place_count
}

/// The bit of a lane among those that wait.
pub(crate) const fn lane_bit(lane: LaneId) -> u64 {
    1 << (lane.0 % 64)
}
