//! Contents of files: several pieces in flight at once, answered in any order.
//!
//! Invariant: a buffer is released when its call was answered, and not before.

use super::{Session, broken};
use crate::lane::PendingAnswer;
use crate::{Error, File};
use bytes::Bytes;
use client::{Answer, Call};
use interface::Bulk;
use wire::{BULK_BYTES_MAX, Piece};

/// The most pieces in flight.
const PIECE_COUNT_MAX: usize = 16;

impl Session {
    /// Reads one piece.
    pub(crate) async fn read_at(&self, file: &File, piece: Piece) -> Result<Bytes, Error> {
        let mut pieces = self.read_pieces(file, &[piece]).await?;
        Ok(pieces.pop().unwrap_or_default())
    }

    /// Reads several pieces at once; returns their bytes in the same order, shorter at the file's
    /// end.
    pub(crate) async fn read_pieces(
        &self,
        file: &File,
        pieces: &[Piece],
    ) -> Result<Vec<Bytes>, Error> {
        let mut read = Vec::with_capacity(pieces.len());
        for group in pieces.chunks(PIECE_COUNT_MAX) {
            let mut begun = Vec::with_capacity(group.len());
            for piece in group {
                let call = Call::Read(wire::Read {
                    inode: file.attr.inode,
                    file_offset: piece.file_offset,
                    read_bytes: piece.piece_bytes.min(BULK_BYTES_MAX),
                    accesses: true,
                });
                begun.push(self.begin(&call).await);
            }
            for answered in begun {
                let reply = self.end("read", &file.path, answered).await?;
                let Answer::Bytes(_) = reply.answer else {
                    return Err(broken("read", &file.path));
                };
                read.push(reply.bulk);
            }
        }
        Ok(read)
    }

    /// Writes bytes of any length at an offset.
    pub(crate) async fn write_at(
        &self,
        file: &File,
        file_offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut piece_offset = file_offset;
        let pieces = bytes.chunks(BULK_BYTES_MAX as usize).map(|piece| {
            let at = piece_offset;
            piece_offset += piece.len() as u64;
            (at, piece)
        });
        let pieces: Vec<_> = pieces.collect();
        self.write_pieces(file, &pieces).await
    }

    /// Writes several pieces at once, each with its offset.
    pub(crate) async fn write_pieces(
        &self,
        file: &File,
        pieces: &[(u64, &[u8])],
    ) -> Result<(), Error> {
        for group in pieces.chunks(PIECE_COUNT_MAX) {
            let mut begun = Vec::with_capacity(group.len());
            let mut outcome = Ok(());
            for (file_offset, bytes) in group {
                let bulk = match self.put(bytes) {
                    Ok(bulk) => bulk,
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                };
                let call = Call::Write(client::Write {
                    inode: file.attr.inode,
                    file_offset: *file_offset,
                    append: false,
                    bulk: Some(bulk),
                    sync: false,
                    clears: wire::ClearPrivileges::Nothing,
                    behind: false,
                });
                begun.push((self.begin(&call).await, bulk));
            }
            outcome = outcome.and(self.end_writes(file, begun).await);
            outcome?;
        }
        Ok(())
    }

    /// Waits for writes and releases their buffers; returns the first error.
    pub(super) async fn end_writes(
        &self,
        file: &File,
        begun: Vec<(PendingAnswer, Bulk)>,
    ) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (answered, bulk) in begun {
            let reply = self.end("write", &file.path, answered).await;
            // A write without an answer may still be sent again from this buffer.
            if !matches!(reply, Err(Error::Unreachable { .. } | Error::Ring(_))) {
                self.release(bulk);
            }
            outcome = outcome.and(reply.map(drop));
        }
        outcome
    }
}
