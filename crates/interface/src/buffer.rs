//! Names of bytes that stay in the world.

use core::fmt;
use wire::InodeNo;

/// A buffer of the world's, or a range of a file that stands for one. The core that was handed it owns one reference until it says
/// [`crate::Action::Release`]; actions that use the buffer hold references of their own, so it may
/// be released right behind them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BufId(pub u32);

/// A piece of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bulk {
    /// Which buffer.
    pub buf: BufId,
    /// First byte in it.
    pub start: u32,
    /// How many bytes.
    pub bulk_bytes: u32,
    /// Their CRC-32C, if the world computed one when they came in. The bulk of a request always has one,
    /// for the log wants it. Of a frame that is sent, who sends it in plain text computes it then.
    pub crc32c: Option<u32>,
    /// Their MAC by a key that the world was given, if it was given one; else [`NO_MAC`].
    pub mac: ContentsMac,
}

/// The first 16 bytes of keyed BLAKE3 over a bulk. Only who has the key can find other bytes of the same.
pub type ContentsMac = [u8; 16];

/// Of what has no MAC.
pub const NO_MAC: ContentsMac = [0; 16];

/// The MAC of contents, if there are any.
#[must_use]
pub fn mac_of(bulk: Option<Bulk>) -> ContentsMac {
    bulk.map_or(NO_MAC, |bulk| bulk.mac)
}

/// One stripe of a file's contents: a file of its own under the store, made at its first write.
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
    /// The folder of an inode's objects within their shard. Numbers are given in order and spread
    /// over the shards, so 2^14 of them put some hundreds of objects into a folder: few enough to
    /// find, and enough that a new file seldom pays for a new folder and its syncs.
    #[must_use]
    pub const fn folder(self) -> u8 {
        const INODES_SHIFT: u32 = 14;
        let [.., folder] = (self.inode.0 >> INODES_SHIFT).to_be_bytes();
        folder
    }
}

/// Its file in the store.
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
