//! `LogReader`: reads a log file from front to back and finds its end.
//!
//! ```text
//! next batch valid and next in number ─▶ its records
//! otherwise ─▶ is there a later batch of this boot anywhere behind?  yes ─▶ Fault (damage)
//!               or a trailer showing that all of it was written?  no  ─▶ the end (torn or zeros)
//! ```
//! A batch is written only after the one before it is durable. So an incomplete batch with nothing
//! behind it was never acknowledged and is dropped; one with a later batch behind it had been
//! durable, and one whose trailer counts as many zero pieces as there are was written as a whole.

use crate::batch::BATCH_ALIGN_BYTES;
use crate::trailer::{Trailer, zero_piece_count};
use crate::{BATCH_HEADER_BYTES, BatchHeader, Fault, LOG_HEADER_BYTES, LogHeader, Record, to_u64};

/// Reads one log file.
#[derive(Clone, Debug)]
pub struct LogReader<'a> {
    file: &'a [u8],
    boot_id: u64,
    offset: usize,
    batch_no: u64,
    /// The first batch may have any number: earlier segments have the batches before it.
    follows: bool,
    /// The bytes begin at the front of the file.
    is_whole: bool,
    trailer: Option<Trailer>,
    ended: bool,
}

/// A batch whose checksums fit and whose records all decode.
#[derive(Clone, Copy, Debug)]
pub struct SealedBatch<'a> {
    head: BatchHeader,
    offset: u64,
    payload: &'a [u8],
}

impl<'a> SealedBatch<'a> {
    /// Its head.
    #[must_use]
    pub const fn head(&self) -> &BatchHeader {
        &self.head
    }

    /// Its offset in the file, in bytes.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Its records in order.
    #[must_use]
    pub const fn records(&self) -> Records<'a> {
        Records { rest: self.payload, record_count: self.head.record_count }
    }
}

/// The records of a batch in order.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    record_count: u32,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        self.record_count = self.record_count.checked_sub(1)?;
        // Checked when the batch was verified, so no record is ever left out here.
        let (record, rest) = Record::decode(self.rest).ok()?;
        self.rest = rest;
        Some(record)
    }
}

impl<'a> LogReader<'a> {
    /// Reads the header of a log file.
    ///
    /// # Errors
    /// [`Fault`] when it has no valid header.
    pub fn new(file: &'a [u8]) -> Result<(LogHeader, Self), Fault> {
        let head = LogHeader::decode(file)?;
        let reader = Self {
            file,
            boot_id: head.boot_id,
            offset: LOG_HEADER_BYTES,
            batch_no: 0,
            follows: head.segment_no > 1,
            is_whole: true,
            trailer: None,
            ended: false,
        };
        Ok((head, reader))
    }

    /// A reader over a piece of a log file that begins with the batch after number `batch_no`, 0
    /// for the first one of a file. Offsets count from the front of the piece.
    #[must_use]
    pub const fn piece(piece: &'a [u8], boot_id: u64, batch_no: u64) -> Self {
        let follows = batch_no == 0;
        let (is_whole, trailer, ended) = (false, None, false);
        Self { file: piece, boot_id, offset: 0, batch_no, follows, is_whole, trailer, ended }
    }

    /// The last trailer read; it supersedes those before it.
    #[must_use]
    pub const fn trailer(&self) -> Option<&Trailer> {
        self.trailer.as_ref()
    }

    /// Number of valid bytes read; after the last batch, where the log ends.
    #[must_use]
    pub fn valid_bytes(&self) -> u64 {
        to_u64(self.offset)
    }

    /// Number of the last batch read, 0 before the first.
    #[must_use]
    pub const fn batch_no(&self) -> u64 {
        self.batch_no
    }

    /// Whether, at the end, bytes other than zeros follow the last batch: a batch that was being
    /// written when the server died.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.ended && self.file[self.offset..].iter().any(|byte| *byte != 0)
    }

    /// The next batch, `None` at the end of the log.
    ///
    /// # Errors
    /// [`Fault`] when there is damage in front of a later batch, or a sealed batch holds an invalid
    /// record.
    pub fn next_batch(&mut self) -> Result<Option<SealedBatch<'a>>, Fault> {
        if self.ended {
            return Ok(None);
        }
        self.take_trailer();
        let Some((head, payload)) = self.sealed() else {
            self.ended = true;
            return self.expect_end().map(|()| None);
        };
        let offset = to_u64(self.offset);
        verify(&head, payload).map_err(|fault| {
            self.ended = true;
            fault.behind(offset + to_u64(BATCH_HEADER_BYTES))
        })?;
        self.offset += BATCH_HEADER_BYTES + payload.len();
        self.batch_no = head.batch_no;
        self.follows = false;
        self.take_trailer();
        Ok(Some(SealedBatch { head, offset, payload }))
    }

    /// Reads the trailer of the last batch, if it is here.
    fn take_trailer(&mut self) {
        let found = Trailer::decode(&self.file[self.offset..]);
        let of_it = |trailer: &Trailer| {
            (trailer.boot_id, trailer.batch_no) == (self.boot_id, self.batch_no)
        };
        if let Some(trailer) = found.filter(of_it) {
            self.offset += Trailer::bytes_count(trailer.places.len());
            self.trailer = Some(trailer);
        }
    }

    const fn is_next(&self, head: &BatchHeader) -> bool {
        let in_order = head.batch_no == self.batch_no + 1 || (self.follows && head.batch_no > 0);
        head.boot_id == self.boot_id && in_order
    }

    /// The batch at the present offset if it is whole, intact and the next in number.
    fn sealed(&self) -> Option<(BatchHeader, &'a [u8])> {
        let rest = &self.file[self.offset..];
        let head = BatchHeader::decode(rest)?;
        if !self.is_next(&head) {
            return None;
        }
        let batch_bytes = usize::try_from(head.batch_bytes).ok()?;
        let payload = rest.get(BATCH_HEADER_BYTES..batch_bytes)?;
        let intact = batch_bytes.is_multiple_of(BATCH_ALIGN_BYTES)
            && wire::crc32c(payload) == head.payload_crc32c;
        intact.then_some((head, payload))
    }

    /// `batch` is no valid batch. A trailer of it in `behind` shows whether it was written as a
    /// whole and damaged later.
    fn expect_torn(&self, batch: &[u8], behind: &[u8]) -> Result<(), Fault> {
        let own = |trailer: &Trailer| {
            let next = trailer.batch_no == self.batch_no + 1 || self.follows;
            next && trailer.boot_id == self.boot_id
                && usize::try_from(trailer.batch_bytes) == Ok(batch.len())
        };
        let trailer = Trailer::decode(behind).filter(|trailer| self.is_whole && own(trailer));
        let whole = |trailer: &Trailer| {
            zero_piece_count(to_u64(self.offset), batch) <= trailer.zero_piece_count
        };
        match trailer.filter(whole) {
            Some(trailer) => {
                let fault = Fault::new("a durable batch is damaged", to_u64(self.offset));
                Err(fault.numbers(trailer.batch_no, self.batch_no))
            }
            None => Ok(()),
        }
    }

    /// The bytes at the present offset are no batch: nothing written later may follow them.
    fn expect_end(&self) -> Result<(), Fault> {
        let rest = &self.file[self.offset..];
        // The payload of an intact header is client data and is not searched.
        let own_bytes = BatchHeader::decode(rest)
            .filter(|head| self.is_next(head))
            .and_then(|head| usize::try_from(head.batch_bytes).ok())
            .map_or(0, |batch_bytes| batch_bytes.next_multiple_of(BATCH_ALIGN_BYTES));
        let mut offset = own_bytes;
        while let Some(bytes) = rest.get(offset..) {
            if bytes.len() < BATCH_HEADER_BYTES {
                break;
            }
            let later = BatchHeader::decode(bytes)
                .filter(|head| head.boot_id == self.boot_id && head.batch_no > self.batch_no);
            if let Some(head) = later {
                return Err(Fault::new(
                    "a damaged batch in front of a later one",
                    to_u64(self.offset),
                )
                .numbers(self.batch_no + 1, head.batch_no));
            }
            self.expect_torn(&rest[..offset], bytes)?;
            offset += BATCH_ALIGN_BYTES;
        }
        Ok(())
    }
}

impl<'a> Iterator for LogReader<'a> {
    type Item = Result<SealedBatch<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

/// Checks that a batch's payload is its records and padding, nothing else. Fault offsets are in the
/// payload.
fn verify(head: &BatchHeader, payload: &[u8]) -> Result<(), Fault> {
    let mut rest = payload;
    for _ in 0..head.record_count {
        let offset = to_u64(payload.len() - rest.len());
        (_, rest) = Record::decode(rest).map_err(|fault| fault.behind(offset))?;
    }
    let padding_only = rest.len() < BATCH_ALIGN_BYTES && rest.iter().all(|byte| *byte == 0);
    if padding_only {
        Ok(())
    } else {
        Err(Fault::new("a batch longer than its records", to_u64(payload.len() - rest.len())))
    }
}

const _: () = assert!(Record::BYTES_MIN > BATCH_ALIGN_BYTES, "padding is never a record");
