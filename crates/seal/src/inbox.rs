//! Received bytes that are not yet decrypted, and the record boundaries in them.
//!
//! Invariant: memory grows with the length in a record's header, which is bounded, or with what the
//! reader expects, never with what a stranger sends.

use crate::Fault;
use crate::record::{HEADER_BYTES, RECORD_OVERHEAD_BYTES};

/// Receive space of a connection before its first record.
const SPACE_BYTES_MIN: usize = 4096;
/// Receive space that a busy connection retains.
const SPACE_BYTES_RETAINED: usize = 64 * 1024;
/// Receive space when much is expected; it fits a second-level cache.
const SPACE_BYTES_MAX: usize = 256 * 1024;
/// After so many receives in a row that needed less, a large buffer is released: allocating it for
/// each large frame costs as much as half of its decryption.
const SHRINK_COUNT: u32 = 64;
/// Longest payload of a record (RFC 8446, section 5.2).
const PAYLOAD_BYTES_MAX: usize = (1 << 14) + 256;

#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The last receive filled all the space.
    full: bool,
    /// Receives in a row that needed less space.
    small_count: u32,
}

impl Inbox {
    /// Appends bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.begin_at_front();
        let end = self.end + bytes.len();
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        self.bytes[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }

    fn begin_at_front(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// Where the next bytes are received to.
    pub(crate) fn recv_space(&mut self, wanted_bytes: usize) -> &mut [u8] {
        self.begin_at_front();
        let records = wanted_bytes.div_ceil(crate::RECORD_BYTES_MAX);
        let wanted_bytes = (wanted_bytes + records * RECORD_OVERHEAD_BYTES).min(SPACE_BYTES_MAX);
        let grown_bytes = if self.full { self.bytes.len() * 4 } else { self.bytes.len() };
        let retained_bytes = grown_bytes.clamp(SPACE_BYTES_MIN, SPACE_BYTES_RETAINED);
        let record_bytes = self.record_bytes().unwrap_or(0);
        let space_bytes = retained_bytes.max(wanted_bytes).max(record_bytes);
        let spare = self.bytes.len() > SPACE_BYTES_RETAINED && space_bytes <= SPACE_BYTES_RETAINED;
        self.small_count = if spare { self.small_count + 1 } else { 0 };
        if space_bytes > self.bytes.len() {
            self.bytes.resize(space_bytes, 0);
        } else if self.small_count > SHRINK_COUNT {
            self.bytes.truncate(space_bytes.max(self.end));
            self.bytes.shrink_to_fit();
        }
        &mut self.bytes[self.end..]
    }

    pub(crate) fn received(&mut self, received_bytes: usize) {
        assert!(
            received_bytes <= self.bytes.len() - self.end,
            "more arrived than there was recv_space"
        );
        self.end += received_bytes;
        self.full = self.end == self.bytes.len();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) const fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Length of the record at the front, capped by the space there is for it.
    fn record_bytes(&self) -> Option<usize> {
        record_bytes(self.bytes()).ok().flatten()
    }

    /// Takes out the next record if it is complete.
    pub(crate) fn record(&mut self) -> Result<Option<&mut [u8]>, Fault> {
        let Some(record_bytes) = record_bytes(self.bytes())? else { return Ok(None) };
        if record_bytes > self.end - self.start {
            return Ok(None);
        }
        let start = self.start;
        self.start += record_bytes;
        Ok(Some(&mut self.bytes[start..start + record_bytes]))
    }

    /// End of the record behind the first `passed_bytes`; `None` if it is incomplete.
    pub(crate) fn record_end(&self, passed_bytes: usize) -> Result<Option<usize>, Fault> {
        let Some(first) = self.bytes().get(passed_bytes) else { return Ok(None) };
        // ChangeCipherSpec, Alert, Handshake, ApplicationData.
        if !(20..=23).contains(first) {
            return Err(Fault::Foreign);
        }
        let Some(record_bytes) = record_bytes(&self.bytes()[passed_bytes..])? else {
            return Ok(None);
        };
        let end = passed_bytes + record_bytes;
        Ok((end <= self.end - self.start).then_some(end))
    }

    /// The first bytes.
    pub(crate) fn passed(&mut self, passed_bytes: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.end][..passed_bytes]
    }

    pub(crate) fn consume(&mut self, front_bytes: usize) {
        assert!(front_bytes <= self.end - self.start, "only what is there is consumed");
        self.start += front_bytes;
    }
}

/// Length of the record that begins here, once its header is complete.
pub(crate) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let payload_bytes = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let broken = payload_bytes > PAYLOAD_BYTES_MAX;
    if broken { Err(Fault::Broken) } else { Ok(Some(HEADER_BYTES + payload_bytes)) }
}
