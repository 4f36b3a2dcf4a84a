//! Reading a log while its lane writes it: from the last position up to its durable end.

use crate::log_name::LogName;
use disk::{BATCH_HEADER_BYTES, BatchHeader, Fault, LOG_HEADER_BYTES, LogReader, Record};
use ring::feed::LogPosition;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use wire::LaneId;

/// Bytes read at a time; a longer batch is read as a whole.
const PIECE_BYTES: usize = 1 << 20;

/// Why a log cannot be read or its records not applied.
#[derive(Debug)]
pub(crate) enum TailError {
    /// An error of the medium.
    Io(io::Error),
    /// A durable record is damaged.
    Damage(Fault),
    /// Objects with bytes in the log cannot be made durable.
    Objects(io::Error),
}

/// The position up to which a lane's log was read.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    boot_id: u64,
    lane: LaneId,
    place: LogPosition,
    file: Option<Arc<File>>,
    /// The last batch.
    batch_no: u64,
    /// Bytes of all batches so far.
    read_bytes: u64,
}

impl Tail {
    pub(crate) const fn new(path: PathBuf, boot_id: u64, lane: LaneId, place: LogPosition) -> Self {
        Self { path, boot_id, lane, place, file: None, batch_no: 0, read_bytes: 0 }
    }

    /// The current position.
    pub(crate) const fn place(&self) -> LogPosition {
        self.place
    }

    /// The last batch that was read.
    pub(crate) const fn batch_no(&self) -> u64 {
        self.batch_no
    }

    /// Bytes of all batches that were read.
    pub(crate) const fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    fn name(&self) -> PathBuf {
        let Self { boot_id, lane, place, .. } = *self;
        LogName { boot_id, lane, segment_no: place.segment_no }.path(&self.path)
    }

    /// Reads some batches before `durable`, or proceeds to the next file. `piece` is the buffer.
    pub(crate) fn read(
        &mut self,
        durable: LogPosition,
        piece: &mut Vec<u8>,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), Fault>,
    ) -> Result<(), TailError> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::new(File::open(self.name())?),
        };
        self.file = Some(Arc::clone(&file));
        let is_last = self.place.segment_no == durable.segment_no;
        let end_offset = if is_last { durable.offset } else { file.metadata()?.len() };
        self.read_piece(&file, end_offset, piece)?;
        let mut reader = LogReader::piece(piece, self.boot_id, self.batch_no);
        let start_offset = self.place.offset;
        let damage = |fault: Fault| {
            TailError::Damage(fault.in_file(&self.name().display().to_string(), start_offset))
        };
        let mut batch_no = self.batch_no;
        while let Some(batch) = reader.next_batch().map_err(damage)? {
            // The reader accepts any number in the first batch of a file.
            let head = batch.head();
            if head.batch_no != batch_no + 1 {
                let fault = Fault::new("a batch is missing", batch.offset());
                return Err(damage(fault.numbers(batch_no + 1, head.batch_no)));
            }
            for record in batch.records() {
                let name = || self.name().display().to_string();
                let at = start_offset + batch.offset();
                visit(&record).map_err(|fault| TailError::Damage(fault.in_file(&name(), at)))?;
            }
            batch_no = head.batch_no;
        }
        let valid_bytes = reader.valid_bytes();
        if valid_bytes > 0 {
            self.batch_no = batch_no;
            self.place.offset += valid_bytes;
            self.read_bytes += valid_bytes;
            return Ok(());
        }
        if is_last {
            return Err(damage(Fault::new("a durable batch is damaged", 0)));
        }
        let offset = u64::try_from(LOG_HEADER_BYTES).unwrap_or(u64::MAX);
        self.place = LogPosition { segment_no: self.place.segment_no + 1, offset };
        self.file = None;
        Ok(())
    }

    /// Reads the next bytes, at least one whole batch if there is one.
    fn read_piece(&self, file: &File, end_offset: u64, piece: &mut Vec<u8>) -> io::Result<()> {
        let left = end_offset.saturating_sub(self.place.offset);
        let left_bytes = usize::try_from(left).unwrap_or(usize::MAX);
        piece.resize(left_bytes.min(PIECE_BYTES), 0);
        file.read_exact_at(piece, self.place.offset)?;
        if piece.len() < BATCH_HEADER_BYTES {
            return Ok(());
        }
        let batch_bytes = BatchHeader::decode(piece)
            .and_then(|head| usize::try_from(head.batch_bytes).ok())
            .unwrap_or(0);
        if batch_bytes > piece.len() && batch_bytes <= left_bytes {
            piece.resize(batch_bytes, 0);
            file.read_exact_at(piece, self.place.offset)?;
        }
        Ok(())
    }
}
