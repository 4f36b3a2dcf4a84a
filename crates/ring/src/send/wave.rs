//! What is sent together: frame bytes, and parts of buffers between them.

use crate::buffer::Pool;
use interface::BufId;

/// Memory for frame bytes that a connection retains.
const SMALL_BYTES_KEPT: usize = 256 * 1024;

#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    /// Part of the wave's frame bytes.
    Small { start: usize, piece_bytes: usize },
    /// Part of a retained buffer.
    Bulk { buf: BufId, start: usize, piece_bytes: usize },
}

impl Piece {
    pub(super) const fn piece_bytes(self) -> usize {
        match self {
            Self::Small { piece_bytes, .. } | Self::Bulk { piece_bytes, .. } => piece_bytes,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Wave {
    pub(super) small: Vec<u8>,
    pub(super) pieces: Vec<Piece>,
}

impl Wave {
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        for piece in self.pieces.drain(..) {
            match piece {
                Piece::Bulk { buf, .. } => pool.release(buf),
                Piece::Small { .. } => {}
            }
        }
        self.small.clear();
        if self.small.capacity() > SMALL_BYTES_KEPT {
            self.small = Vec::new();
        }
    }
}
