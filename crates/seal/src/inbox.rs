//! Bytes received and not opened yet, and where records begin and end in them.
//!
//! Invariant: memory grows with what a record's head says, which is bounded, or with what a reader
//! expects, never with what a stranger sends.

use crate::Fault;
use crate::record::{HEADER_BYTES, RECORD_MORE_BYTES};

/// Room of a connection that has shown nothing yet.
const SPACE_BYTES_MIN: usize = 4096;
/// Room that a busy connection keeps.
const SPACE_BYTES_RETAINED: usize = 64 * 1024;
/// Received at a time of much that is expected; it stays in a second-level cache.
const SPACE_BYTES_MAX: usize = 256 * 1024;
/// So many receives that need less give back what was for much: memory that is asked for again for each
/// large frame costs as much as half of its cipher.
const SPARE_COUNT_MAX: u32 = 64;
/// Longest payload of a record (RFC 8446, section 5.2).
const PAYLOAD_BYTES_MAX: usize = (1 << 14) + 256;

#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The last receive filled all the room.
    full: bool,
    /// Receives in a row that less room would have done for.
    spare_count: u32,
}

impl Inbox {
    /// Puts bytes behind what is there.
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

    /// Room for what comes next.
    pub(crate) fn room(&mut self, wanted_bytes: usize) -> &mut [u8] {
        self.begin_at_front();
        let records = wanted_bytes.div_ceil(crate::RECORD_BYTES_MAX);
        let wanted_bytes = (wanted_bytes + records * RECORD_MORE_BYTES).min(SPACE_BYTES_MAX);
        let grown_bytes = if self.full { self.bytes.len() * 4 } else { self.bytes.len() };
        let kept_bytes = grown_bytes.clamp(SPACE_BYTES_MIN, SPACE_BYTES_RETAINED);
        let record_bytes = self.record_bytes().unwrap_or(0);
        let space_bytes = kept_bytes.max(wanted_bytes).max(record_bytes);
        let spare = self.bytes.len() > SPACE_BYTES_RETAINED && space_bytes <= SPACE_BYTES_RETAINED;
        self.spare_count = if spare { self.spare_count + 1 } else { 0 };
        if space_bytes > self.bytes.len() {
            self.bytes.resize(space_bytes, 0);
        } else if self.spare_count > SPARE_COUNT_MAX {
            self.bytes.truncate(space_bytes.max(self.end));
            self.bytes.shrink_to_fit();
        }
        &mut self.bytes[self.end..]
    }

    pub(crate) fn arrived(&mut self, arrived_bytes: usize) {
        assert!(arrived_bytes <= self.bytes.len() - self.end, "more arrived than there was room");
        self.end += arrived_bytes;
        self.full = self.end == self.bytes.len();
    }

    pub(crate) fn there(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) const fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Length of the record at the front, as far as room is taken for it.
    fn record_bytes(&self) -> Option<usize> {
        record_bytes(self.there()).ok().flatten()
    }

    /// Takes the next record out, whole.
    pub(crate) fn record(&mut self) -> Result<Option<&mut [u8]>, Fault> {
        let Some(record_bytes) = record_bytes(self.there())? else { return Ok(None) };
        if record_bytes > self.end - self.start {
            return Ok(None);
        }
        let start = self.start;
        self.start += record_bytes;
        Ok(Some(&mut self.bytes[start..start + record_bytes]))
    }

    /// Where the record ends that lies behind the first `shown_bytes`; `None` if it is not whole.
    pub(crate) fn record_end(&self, shown_bytes: usize) -> Result<Option<usize>, Fault> {
        let Some(first) = self.there().get(shown_bytes) else { return Ok(None) };
        // ChangeCipherSpec, Alert, Handshake, ApplicationData.
        if !(20..=23).contains(first) {
            return Err(Fault::Foreign);
        }
        let Some(record_bytes) = record_bytes(&self.there()[shown_bytes..])? else {
            return Ok(None);
        };
        let end = shown_bytes + record_bytes;
        Ok((end <= self.end - self.start).then_some(end))
    }

    /// The first bytes.
    pub(crate) fn shown(&mut self, shown_bytes: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.end][..shown_bytes]
    }

    pub(crate) fn consume(&mut self, front_bytes: usize) {
        assert!(front_bytes <= self.end - self.start, "only what is there is consumed");
        self.start += front_bytes;
    }
}

/// Length of the record that begins here, if that is known yet.
pub(crate) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let payload_bytes = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let broken = payload_bytes > PAYLOAD_BYTES_MAX;
    if broken { Err(Fault::Broken) } else { Ok(Some(HEADER_BYTES + payload_bytes)) }
}
