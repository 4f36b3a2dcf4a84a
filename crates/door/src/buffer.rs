//! Names of bytes that stay in the world.

use wire::InodeNo;

/// A buffer of the world's, or a range of a file that stands for one. The brain that was handed it owns one reference until it says
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
