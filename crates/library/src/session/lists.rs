//! Lists: many pieces of one file in one exchange.
//!
//! A list that is too large for one exchange (more than [`PIECE_COUNT_MAX`] pieces, or more than
//! [`BULK_BYTES_MAX`] bytes) is split into several, some of which are in flight at once.
//! Invariants: the parts of all exchanges, concatenated, are the requested pieces; a buffer is
//! released when its call was answered, and not before.

use super::{Session, broken, refused};
use crate::{Error, File};
use client::{Answer, Call};
use wire::{BULK_BYTES_MAX, DecodeError, FILE_BYTES_MAX, PIECE_COUNT_MAX, Piece, Pieces, Status};

/// The most exchanges of one list in flight.
const EXCHANGE_COUNT_MAX: usize = 16;

/// Equidistant pieces of one length: a column of a matrix, every fourth record.
///
/// ```
/// use library::{Piece, Stride};
/// let column = Stride { file_offset: 16, piece_bytes: 8, step_bytes: 1024, count: 3 };
/// let offsets: Vec<u64> = column.pieces().map(|piece| piece.file_offset).collect();
/// assert_eq!(offsets, [16, 1040, 2064]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stride {
    /// The start of the first piece.
    pub file_offset: u64,
    /// The length of each, in bytes.
    pub piece_bytes: u32,
    /// From the start of one piece to the start of the next, in bytes. If it is less than
    /// `piece_bytes`, the pieces overlap, which is valid only for reads.
    pub step_bytes: u64,
    /// The number of pieces.
    pub count: usize,
}

impl Stride {
    /// The pieces, first to last.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = Piece> + use<> {
        let Self { file_offset, piece_bytes, step_bytes, count } = *self;
        (0..count).map(move |index| {
            let distance = u64::try_from(index).unwrap_or(u64::MAX).saturating_mul(step_bytes);
            Piece { file_offset: file_offset.saturating_add(distance), piece_bytes }
        })
    }
}

/// The result of [`read_list`](crate::Volume::read_list).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ListRead {
    /// The bytes of all pieces, concatenated.
    pub bytes: Vec<u8>,
    /// The number of bytes of each piece: fewer than requested at the file's end, none beyond it.
    pub piece_bytes: Vec<u32>,
}

impl ListRead {
    /// The bytes of each piece.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        let mut rest = &self.bytes[..];
        self.piece_bytes.iter().map(move |piece_bytes| {
            let (piece, after) = rest.split_at(*piece_bytes as usize);
            rest = after;
            piece
        })
    }
}

/// The pieces of one exchange.
struct Exchange {
    pieces: Pieces,
    /// The requested piece that each of these belongs to.
    owners: Vec<usize>,
}

/// Splits pieces into exchanges within the limits.
fn exchanges_of(pieces: &[Piece]) -> Result<Vec<Exchange>, DecodeError> {
    let mut exchanges = Vec::new();
    let (mut parts, mut owners, mut space_bytes) = (Vec::new(), Vec::new(), BULK_BYTES_MAX);
    for (owner, piece) in pieces.iter().enumerate() {
        let mut rest = *piece;
        while rest.piece_bytes > 0 {
            if space_bytes == 0 || parts.len() == PIECE_COUNT_MAX {
                let pieces = Pieces::new(std::mem::take(&mut parts))?;
                exchanges.push(Exchange { pieces, owners: std::mem::take(&mut owners) });
                space_bytes = BULK_BYTES_MAX;
            }
            let piece_bytes = rest.piece_bytes.min(space_bytes);
            parts.push(Piece { piece_bytes, ..rest });
            owners.push(owner);
            space_bytes -= piece_bytes;
            rest.file_offset = rest.file_offset.saturating_add(u64::from(piece_bytes));
            rest.piece_bytes -= piece_bytes;
        }
    }
    if !parts.is_empty() {
        exchanges.push(Exchange { pieces: Pieces::new(parts)?, owners });
    }
    Ok(exchanges)
}

/// Why a list cannot be written, if it cannot.
fn check_write(pieces: &[Piece], bytes: &[u8]) -> Result<(), Status> {
    let total_bytes: u64 = pieces.iter().map(|piece| u64::from(piece.piece_bytes)).sum();
    if u64::try_from(bytes.len()) != Ok(total_bytes) {
        return Err(Status::Invalid);
    }
    if pieces.iter().any(|piece| piece.piece_bytes > 0 && piece.end() > FILE_BYTES_MAX) {
        return Err(Status::TooLarge);
    }
    let mut sorted: Vec<Piece> =
        pieces.iter().copied().filter(|piece| piece.piece_bytes > 0).collect();
    sorted.sort_unstable();
    let overlap = sorted.windows(2).any(|pair| pair[0].end() > pair[1].file_offset);
    if overlap { Err(Status::Invalid) } else { Ok(()) }
}

const fn status_of(error: DecodeError) -> Status {
    match error {
        DecodeError::Status(status) => status,
        DecodeError::ProtocolError(_) => Status::Invalid,
    }
}

impl Session {
    /// Reads the pieces of a list.
    pub(crate) async fn read_list(&self, file: &File, pieces: &[Piece]) -> Result<ListRead, Error> {
        let failed = |error| refused("read", &file.path, status_of(error));
        let exchanges = exchanges_of(pieces).map_err(failed)?;
        let mut read = ListRead { bytes: Vec::new(), piece_bytes: vec![0; pieces.len()] };
        // A piece that ended early has ended, even if the file has grown since.
        let mut ended = None;
        for group in exchanges.chunks(EXCHANGE_COUNT_MAX) {
            let mut begun = Vec::with_capacity(group.len());
            for exchange in group {
                let call = Call::ReadList(client::ReadList {
                    inode: file.attr.inode,
                    pieces: &exchange.pieces,
                    accesses: true,
                });
                begun.push((self.begin(&call).await, exchange));
            }
            for (answered, exchange) in begun {
                let reply = self.end("read", &file.path, answered).await?;
                let Answer::List { size_bytes, .. } = reply.answer else {
                    return Err(broken("read", &file.path));
                };
                let mut rest = &reply.bulk[..];
                for (piece, owner) in exchange.pieces.iter().zip(&exchange.owners) {
                    let part_bytes = piece.within(size_bytes);
                    let Some((part, after)) = rest.split_at_checked(part_bytes as usize) else {
                        return Err(broken("read", &file.path));
                    };
                    rest = after;
                    if ended != Some(*owner) {
                        read.bytes.extend_from_slice(part);
                        read.piece_bytes[*owner] += part_bytes;
                    }
                    if part_bytes < piece.piece_bytes {
                        ended = Some(*owner);
                    }
                }
            }
        }
        Ok(read)
    }

    pub(crate) async fn read_stride(&self, file: &File, stride: Stride) -> Result<ListRead, Error> {
        self.read_list(file, &stride.pieces().collect::<Vec<_>>()).await
    }

    pub(crate) async fn write_stride(
        &self,
        file: &File,
        stride: Stride,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.write_list(file, &stride.pieces().collect::<Vec<_>>(), bytes).await
    }

    /// Writes the pieces of a list.
    pub(crate) async fn write_list(
        &self,
        file: &File,
        pieces: &[Piece],
        bytes: &[u8],
    ) -> Result<(), Error> {
        let failed = |status| refused("write", &file.path, status);
        check_write(pieces, bytes).map_err(failed)?;
        let exchanges = exchanges_of(pieces).map_err(|error| failed(status_of(error)))?;
        let mut rest = bytes;
        for group in exchanges.chunks(EXCHANGE_COUNT_MAX) {
            let mut begun = Vec::with_capacity(group.len());
            let mut outcome = Ok(());
            for exchange in group {
                let (part, after) = rest.split_at(exchange.pieces.total_bytes() as usize);
                rest = after;
                let bulk = match self.put(part) {
                    Ok(bulk) => bulk,
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                };
                let call = Call::WriteList(client::WriteList {
                    inode: file.attr.inode,
                    pieces: &exchange.pieces,
                    bulk: Some(bulk),
                    sync: false,
                    clears: wire::ClearPrivileges::Nothing,
                });
                begun.push((self.begin(&call).await, bulk));
            }
            outcome = outcome.and(self.end_writes(file, begun).await);
            outcome?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn exchanges_carry_all_pieces_in_order() {
        let many = Stride { file_offset: 5, piece_bytes: 10, step_bytes: 100, count: 1000 };
        let large = Piece { file_offset: 1 << 30, piece_bytes: 3 * BULK_BYTES_MAX + 7 };
        let empty = Piece { file_offset: 9, piece_bytes: 0 };
        let pieces: Vec<Piece> = many.pieces().chain([empty, large, empty]).collect();
        let exchanges = exchanges_of(&pieces).unwrap();
        let mut parts_of = vec![Vec::new(); pieces.len()];
        for exchange in &exchanges {
            assert!(exchange.pieces.count() > 0 && exchange.pieces.total_bytes() > 0);
            for (part, owner) in exchange.pieces.iter().zip(&exchange.owners) {
                parts_of[*owner].push(part);
            }
        }
        for (piece, parts) in pieces.iter().zip(&parts_of) {
            let mut next = piece.file_offset;
            for part in parts {
                assert_eq!(part.file_offset, next);
                next = part.end();
            }
            assert_eq!(next, piece.end());
        }
        assert_eq!(exchanges.len(), 4 + 3, "1000 pieces by 256, and space in the last");
        assert!(exchanges_of(&[]).unwrap().is_empty());
    }

    #[test]
    fn invalid_writes_are_refused_beforehand() {
        let piece = |file_offset, piece_bytes| Piece { file_offset, piece_bytes };
        assert_eq!(check_write(&[piece(10, 2), piece(0, 10)], &[0; 12]), Ok(()));
        assert_eq!(check_write(&[piece(0, 2)], &[0; 3]), Err(Status::Invalid));
        assert_eq!(check_write(&[piece(0, 2), piece(1, 2)], &[0; 4]), Err(Status::Invalid));
        assert_eq!(check_write(&[piece(FILE_BYTES_MAX, 1)], &[0]), Err(Status::TooLarge));
        assert_eq!(check_write(&[piece(u64::MAX, 0)], &[]), Ok(()));
    }

    #[test]
    fn each_piece_has_its_bytes() {
        let read = ListRead { bytes: b"abcd".to_vec(), piece_bytes: vec![2, 0, 2] };
        assert_eq!(read.pieces().collect::<Vec<_>>(), [&b"ab"[..], b"", b"cd"]);
    }
}
