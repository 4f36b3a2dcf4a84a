//! Bytes of files: several pieces on their way at once, answered in any order.
//!
//! Invariant: a buffer is given back when its call was answered, and not before.

use crate::volume::broken;
use crate::{Error, File, Volume};
use client::{Answer, Call};
use wire::BULK_BYTES_MAX;

/// Pieces on their way at once.
const PIECE_COUNT_MAX: usize = 16;

/// A piece of a file to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// From here.
    pub file_offset: u64,
    /// This many bytes, at most [`BULK_BYTES_MAX`].
    pub read_bytes: u32,
}

impl Volume {
    /// Reads at most [`BULK_BYTES_MAX`] bytes; fewer at the file's end.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn read_at(&mut self, file: &File, piece: Piece) -> Result<Vec<u8>, Error> {
        let mut pieces = self.read_pieces(file, &[piece])?;
        Ok(pieces.pop().unwrap_or_default())
    }

    /// Reads several pieces at once; their bytes in the same order, shorter at the file's end.
    ///
    /// # Errors
    /// [`Error::Op`] of the first piece that failed.
    pub fn read_pieces(&mut self, file: &File, pieces: &[Piece]) -> Result<Vec<Vec<u8>>, Error> {
        let mut read = Vec::with_capacity(pieces.len());
        for group in pieces.chunks(PIECE_COUNT_MAX) {
            let ids: Vec<_> = group
                .iter()
                .map(|piece| {
                    self.lane.begin(&Call::Read(wire::Read {
                        inode: file.attr.inode,
                        file_offset: piece.file_offset,
                        read_bytes: piece.read_bytes.min(BULK_BYTES_MAX),
                        accesses: true,
                    }))
                })
                .collect();
            // All are waited for, also behind one that failed.
            let replies: Vec<_> =
                ids.into_iter().map(|id| self.lane.wait("read", &file.path, id)).collect();
            for reply in replies {
                let reply = reply?;
                let Answer::Bytes(_) = reply.answer else {
                    return Err(broken("read", &file.path));
                };
                read.push(reply.small);
            }
        }
        Ok(read)
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// [`Error::Op`]; pieces before the one that failed may have been written.
    pub fn write_at(&mut self, file: &File, file_offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut piece_offset = file_offset;
        let pieces = bytes.chunks(BULK_BYTES_MAX as usize).map(|piece| {
            let at = piece_offset;
            piece_offset += piece.len() as u64;
            (at, piece)
        });
        let pieces: Vec<_> = pieces.collect();
        self.write_pieces(file, &pieces)
    }

    /// Writes several pieces at once, each with its offset and at most [`BULK_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`Error::Op`] of the first piece that failed; others may have been written.
    pub fn write_pieces(&mut self, file: &File, pieces: &[(u64, &[u8])]) -> Result<(), Error> {
        for group in pieces.chunks(PIECE_COUNT_MAX) {
            let mut begun = Vec::with_capacity(group.len());
            for (file_offset, bytes) in group {
                let bulk = self.lane.put(bytes)?;
                let id = self.lane.begin(&Call::Write(client::Write {
                    inode: file.attr.inode,
                    file_offset: *file_offset,
                    append: false,
                    bulk: Some(bulk),
                    sync: false,
                    takes: wire::Revoke::Nothing,
                }));
                begun.push((id, bulk));
            }
            let mut outcome = Ok(());
            for (id, bulk) in begun {
                let reply = self.lane.wait("write", &file.path, id);
                // A write without an answer may still be sent again, from this buffer.
                if !matches!(reply, Err(Error::Unreachable { .. } | Error::Ring(_))) {
                    self.lane.release(bulk);
                }
                outcome = outcome.and(reply.map(drop));
            }
            outcome?;
        }
        Ok(())
    }
}
