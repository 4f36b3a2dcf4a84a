//! Lists: many pieces of one file, read or written by one request.
//!
//! ```text
//! body: inode | pieces (count 2, then per piece file_offset 8, piece_bytes 4) | the op's own
//! bulk: the bytes of the first piece, of the second, ...
//! ```
//! Each piece has its length, so the bulk needs no table. Invariants of [`Pieces`]: at most
//! [`PIECE_COUNT_MAX`], none empty, none behind [`FILE_BYTES_MAX`], and together at most
//! [`BULK_BYTES_MAX`].

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::{BULK_BYTES_MAX, ClearPrivileges, InodeNo, ProtocolError, Status};
use alloc::vec::Vec;

/// Most pieces of one request.
pub const PIECE_COUNT_MAX: usize = 256;

/// The largest size of a file: 2^63 − 1.
pub const FILE_BYTES_MAX: u64 = i64::MAX.unsigned_abs();

/// A byte range of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Piece {
    /// File offset.
    pub file_offset: u64,
    /// Length, at least 1.
    pub piece_bytes: u32,
}

impl Piece {
    /// Bytes of a piece on the wire.
    const WIRE_BYTES: usize = 12;

    /// The first byte behind it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.file_offset.saturating_add(self.piece_bytes as u64)
    }

    /// Number of its bytes within a file of this size.
    #[must_use]
    pub fn within(&self, size_bytes: u64) -> u32 {
        let left_bytes = size_bytes.saturating_sub(self.file_offset);
        u32::try_from(left_bytes).unwrap_or(u32::MAX).min(self.piece_bytes)
    }
}

impl Wire<'_> for Piece {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.file_offset);
        to.write(&self.piece_bytes);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { file_offset: from.read()?, piece_bytes: from.read()? })
    }
}

/// The pieces of one request, in the order of their bytes in the bulk. May be empty.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Pieces(Vec<Piece>);

impl Pieces {
    /// No pieces: a write of these does nothing.
    pub const NONE: Self = Self(Vec::new());

    /// Encoded bytes of `count` pieces.
    #[must_use]
    pub const fn wire_bytes(count: usize) -> usize {
        2 + count * Piece::WIRE_BYTES
    }

    /// Checks pieces.
    ///
    /// # Errors
    /// [`Status::TooLarge`] for a piece that ends behind [`FILE_BYTES_MAX`]; a [`ProtocolError`]
    /// for an empty piece, too many pieces or too many bytes.
    pub fn new(pieces: Vec<Piece>) -> Result<Self, DecodeError> {
        if pieces.len() > PIECE_COUNT_MAX {
            return Err(DecodeError::ProtocolError(ProtocolError::TooLong));
        }
        let mut total_bytes = 0_u64;
        let mut fits = true;
        for piece in &pieces {
            if piece.piece_bytes == 0 {
                return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
            }
            total_bytes += u64::from(piece.piece_bytes);
            let end = piece.file_offset.checked_add(u64::from(piece.piece_bytes));
            fits &= end.is_some_and(|end| end <= FILE_BYTES_MAX);
        }
        if total_bytes > u64::from(BULK_BYTES_MAX) {
            return Err(DecodeError::ProtocolError(ProtocolError::TooLong));
        }
        if fits { Ok(Self(pieces)) } else { Err(DecodeError::Status(Status::TooLarge)) }
    }

    /// The pieces.
    #[must_use]
    pub fn as_slice(&self) -> &[Piece] {
        &self.0
    }

    /// Iterates over the pieces.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Piece> + '_ {
        self.0.iter().copied()
    }

    /// Number of pieces.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// Bytes of all pieces, at most [`BULK_BYTES_MAX`].
    #[must_use]
    pub fn total_bytes(&self) -> u32 {
        self.0.iter().map(|piece| piece.piece_bytes).sum()
    }

    /// The end of the piece that ends last; 0 without pieces.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.0.iter().map(Piece::end).max().unwrap_or(0)
    }

    /// The offset of the first piece; 0 without pieces.
    #[must_use]
    pub fn first_offset(&self) -> u64 {
        self.0.first().map_or(0, |piece| piece.file_offset)
    }

    /// Whether two pieces overlap: the result of writing them would be undefined.
    #[must_use]
    pub fn overlap(&self) -> bool {
        self.sorted().windows(2).any(|pair| pair[0].end() > pair[1].file_offset)
    }

    /// The pieces ordered by offset.
    #[must_use]
    pub fn sorted(&self) -> Vec<Piece> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted
    }

    /// The parts of the pieces within a file of this size, in the same order; pieces behind its end
    /// are left out.
    #[must_use]
    pub fn within(&self, size_bytes: u64) -> Self {
        let within = self.0.iter().filter_map(|piece| {
            let piece_bytes = piece.within(size_bytes);
            (piece_bytes > 0).then_some(Piece { piece_bytes, ..*piece })
        });
        Self(within.collect())
    }

    /// The same bytes in fewer pieces: adjacent consecutive pieces are joined.
    #[must_use]
    pub fn joined(&self) -> Self {
        let mut joined: Vec<Piece> = Vec::with_capacity(self.0.len());
        for piece in &self.0 {
            match joined.last_mut().filter(|last| last.end() == piece.file_offset) {
                Some(last) => last.piece_bytes += piece.piece_bytes,
                None => joined.push(*piece),
            }
        }
        Self(joined)
    }
}

impl Wire<'_> for Pieces {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&u16::try_from(self.0.len()).unwrap_or(u16::MAX));
        for piece in &self.0 {
            to.write(piece);
        }
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = usize::from(u16::decode(from)?);
        // Checked before memory is allocated.
        if count > PIECE_COUNT_MAX {
            return Err(DecodeError::ProtocolError(ProtocolError::TooLong));
        }
        if from.left() < count * Piece::WIRE_BYTES {
            return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
        }
        let mut pieces = Vec::with_capacity(count);
        for _ in 0..count {
            pieces.push(from.read()?);
        }
        Self::new(pieces)
    }
}

/// [`crate::Op::ReadList`]. Reply: [`ListRead`]; the bulk has the bytes of all pieces one after the
/// other, each cut at the end of the file. Holes read as zeros. Pieces may overlap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadList {
    /// The file.
    pub inode: InodeNo,
    /// The ranges, in the order of the bulk.
    pub pieces: Pieces,
    /// As of [`crate::Read`].
    pub accesses: bool,
}

impl Wire<'_> for ReadList {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.inode);
        to.write(&self.pieces);
        to.write(&self.accesses);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { inode: from.read()?, pieces: from.read()?, accesses: from.read()? })
    }
}

/// Reply of [`ReadList`]. The length of each piece follows from it: [`Piece::within`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListRead {
    /// The file size at the read.
    pub size_bytes: u64,
}

impl Wire<'_> for ListRead {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.size_bytes);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { size_bytes: from.read()? })
    }
}

/// [`crate::Op::WriteList`]. The bulk has the bytes of all pieces one after the other and nothing
/// else. Reply: [`crate::Written`], with the first piece's offset and the number of all bytes.
/// Pieces may be adjacent; overlapping pieces are [`Status::Invalid`] and nothing is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteList {
    /// The file.
    pub inode: InodeNo,
    /// The ranges to write.
    pub pieces: Pieces,
    /// As of [`crate::Write`].
    pub clears: ClearPrivileges,
}

impl Wire<'_> for WriteList {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.inode);
        to.write(&self.pieces);
        to.write(&self.clears);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { inode: from.read()?, pieces: from.read()?, clears: from.read()? })
    }
}

#[cfg(test)]
mod tests;
