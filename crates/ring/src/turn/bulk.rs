//! Bulk that the ring's owner brings or takes.
//!
//! Invariant: what the owner gets is not written while it has it.

use super::{Parts, Ring};
use crate::memory::BulkBytes;
use crate::number::u32_of;
use interface::{Bulk, NO_MAC};
use wire::Crc32c;

/// Bytes copied and summed at a time; they fit a first or second-level cache.
const COPY_BYTES: usize = 32 * 1024;

impl Ring {
    /// The bytes of a bulk in a referenced buffer. They must be in memory; a large bulk that was
    /// read from an object may be a file range.
    #[must_use]
    pub fn bulk_bytes(&self, bulk: Bulk) -> &[u8] {
        self.parts.io.bulk_bytes(self.parts.named_buffers.resolve(bulk))
    }

    /// The bytes of a bulk, without a copy, where nothing else refers to its buffer; the bulk is
    /// released with that. `None`: it is too short, or its buffer is in use, and it is still there.
    #[must_use]
    pub fn detach_bulk(&mut self, bulk: Bulk) -> Option<BulkBytes> {
        let Parts { io, named_buffers, .. } = &mut *self.parts;
        let bytes = io.pool.detach(named_buffers.resolve(bulk))?;
        named_buffers.release(bulk.buf);
        Some(bytes)
    }

    /// A new bulk with these bytes, at most [`wire::BULK_BYTES_MAX`], to be released by a core;
    /// `None` while no buffer is free. It has a checksum if the ring connects in plain text.
    #[must_use]
    pub fn bulk_of(&mut self, bytes: &[u8]) -> Option<Bulk> {
        let Parts { io, conns, .. } = &mut *self.parts;
        let buf = io.pool.take(bytes.len())?;
        let mut crc32c = conns.connects_in_plain_text().then(Crc32c::new);
        let to = io.pool.bytes_mut(buf, 0, bytes.len());
        for (to, piece) in to.chunks_mut(COPY_BYTES).zip(bytes.chunks(COPY_BYTES)) {
            to.copy_from_slice(piece);
            if let Some(crc32c) = &mut crc32c {
                crc32c.update(to);
            }
        }
        let (bulk_bytes, crc32c) = (u32_of(bytes.len()), crc32c.map(|crc32c| crc32c.sum()));
        Some(Bulk { buf, start: 0, bulk_bytes, crc32c, mac: NO_MAC })
    }
}
