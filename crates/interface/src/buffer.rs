//! Names of file contents. The bytes stay in the runtime.

use core::fmt;
use wire::InodeNo;

/// A buffer of the runtime, or a range of a file that stands for one. The state machine that
/// received it owns one reference until it acts [`crate::Action::Release`]. Actions that use the
/// buffer hold references of their own, so the release may follow them at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BufId(pub u32);

/// A range of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bulk {
    /// Which buffer.
    pub buf: BufId,
    /// First byte in it.
    pub start: u32,
    /// How many bytes.
    pub bulk_bytes: u32,
    /// Their CRC-32C, if the runtime computed one when they arrived. The bulk of a request always
    /// has one: the log needs it. For a frame in plain text without one, the sender computes it.
    pub crc32c: Option<u32>,
    /// Their MAC under the runtime's key, if it has one; else [`NO_MAC`].
    pub mac: ContentsMac,
}

/// The first 16 bytes of keyed BLAKE3 over a bulk. Without the key no other bytes with the same MAC
/// can be found.
pub type ContentsMac = [u8; 16];

/// Stands for a missing MAC.
pub const NO_MAC: ContentsMac = [0; 16];

/// The MAC of contents, if there are any.
#[must_use]
pub fn mac_of(bulk: Option<Bulk>) -> ContentsMac {
    bulk.map_or(NO_MAC, |bulk| bulk.mac)
}

/// One stripe of a file's contents: a file of its own under the store, created at its first write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Object {
    /// Index of its data shard.
    pub shard_index: u16,
    /// Index of the stripe object within the file, from 0.
    pub stripe_index: u32,
    /// The file.
    pub inode: InodeNo,
}

impl Object {
    /// The directory of an inode's objects within their shard. Inode numbers are assigned in order
    /// and spread over the shards, so 2^14 of them put some hundreds of objects into a directory:
    /// few enough for a fast lookup, and enough that a new file seldom pays for a new directory and
    /// its syncs.
    #[must_use]
    pub const fn folder(self) -> u8 {
        const INODES_SHIFT: u32 = 14;
        let [.., folder] = (self.inode.0 >> INODES_SHIFT).to_be_bytes();
        folder
    }
}

/// The path of its file in the store.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard_index, stripe_index, inode } = *self;
        write!(
            f,
            "objects/{shard_index:02x}/{:02x}/{:016x}.{stripe_index:x}",
            self.folder(),
            inode.0
        )
    }
}
