//! Large bulk under TLS: its records are received into its buffer, behind the plaintext, and each
//! is decrypted to the plaintext's place, over the bytes that records have beyond their plaintext.
//!
//! ```text
//! buffer: plaintext so far | gap | records to be decrypted, the last may be incomplete | space
//! ```
//! Invariants: received record bytes are either here or in the [`seal::Seal`], never in both; the
//! receive never waits for bytes that come only after the bulk is complete, however long the peer's
//! records are.

use super::recv::{OWN_BYTES_MIN, PIECE_BYTES_MAX};
use super::{Conn, Conns, Incoming};
use crate::buffer::Pool;
use crate::driver::Op;
use crate::io_context::IoContext;
use crate::number::u32_of;
use seal::{Content, Fault, RECORD_BYTES_MAX, RECORD_OVERHEAD_BYTES, Seal};
use std::ops::Range;

/// Record bytes that were received into a bulk's buffer.
#[derive(Default)]
pub(super) struct Landed {
    /// Their range in the buffer.
    range: Range<usize>,
    /// The driver receives behind it.
    receiving: bool,
}

impl Incoming {
    fn rest_bytes(&self) -> usize {
        self.lengths.bulk_bytes as usize - self.received_bytes
    }

    /// Whether the next records are received into the buffer.
    pub(super) fn lands(&self) -> bool {
        self.rest_bytes() >= OWN_BYTES_MIN
    }

    /// Range of the buffer for the next record bytes: at most as many as the bulk still needs.
    /// Record bytes in the seal are moved before it.
    fn land(&mut self, seal: &mut Seal, pool: &mut Pool) -> Range<usize> {
        let (at, range) = (self.received_bytes, self.landed.range.clone());
        let part_bytes = if range.is_empty() {
            let part = seal.unopened();
            pool.bytes_mut(self.buf, at, part.len()).copy_from_slice(part);
            part.len()
        } else {
            assert!(seal.is_empty(), "a record has one place");
            pool.bytes_mut(self.buf, at, range.end - at).copy_within(range.start - at.., 0);
            range.len()
        };
        seal.clear();
        self.landed.range = at..at + part_bytes;
        let (rest_bytes, end) = (self.rest_bytes(), at + part_bytes);
        let record_count = rest_bytes.div_ceil(RECORD_BYTES_MAX);
        let more_bytes = rest_bytes + record_count * RECORD_OVERHEAD_BYTES - part_bytes;
        let space_bytes = Pool::space_bytes(self.lengths.bulk_bytes as usize) - end;
        end..end + more_bytes.min(space_bytes).min(PIECE_BYTES_MAX)
    }

    /// Moves record bytes from the buffer back into the seal.
    fn lift(&mut self, seal: &mut Seal, pool: &Pool) {
        let range = std::mem::take(&mut self.landed.range);
        if !range.is_empty() {
            seal.push_received(pool.bytes(self.buf, range.start, range.len()));
        }
    }
}

impl Conn {
    /// Range for the lane's own receive calls.
    pub(super) fn land(&mut self, pool: &mut Pool) -> Range<usize> {
        let (Some(seal), Some(incoming)) = (&mut self.seal, &mut self.incoming) else {
            panic!("no bulk comes under TLS")
        };
        incoming.land(seal, pool)
    }

    /// The next receive of a connection under TLS.
    pub(super) fn receive_records(&mut self, discards: bool, pool: &mut Pool) -> Op {
        let socket = self.raw();
        let Some(seal) = &mut self.seal else { panic!("it is not under TLS") };
        let wanted_bytes = match &mut self.incoming {
            Some(incoming) if incoming.lands() && !discards => {
                let space = incoming.land(seal, pool);
                incoming.landed.receiving = true;
                let at = pool.at(incoming.buf, space.start, space.len());
                let space_bytes = u32_of(space.len());
                return Op::Recv { socket, at, space_bytes, whole: true, discard: false };
            }
            Some(incoming) => {
                incoming.lift(seal, pool);
                incoming.rest_bytes()
            }
            None => 0,
        };
        let space = seal.recv_space(wanted_bytes);
        let (at, space_bytes) = (space.as_mut_ptr(), u32_of(space.len()));
        Op::Recv { socket, at, space_bytes, whole: false, discard: false }
    }

    /// So many record bytes were received where [`Self::receive_records`] said.
    pub(super) fn take_records(&mut self, arrived_bytes: usize) {
        match (&mut self.incoming, &mut self.seal) {
            (Some(incoming), _) if incoming.landed.receiving => {
                incoming.landed.receiving = false;
                incoming.landed.range.end += arrived_bytes;
            }
            (_, Some(seal)) => seal.received(arrived_bytes),
            (_, None) => {}
        }
    }

    /// The same where [`Self::land`] said.
    pub(super) fn take_landed(&mut self, arrived_bytes: usize) {
        if let Some(incoming) = &mut self.incoming {
            incoming.landed.range.end += arrived_bytes;
        }
    }
}

impl Conns {
    /// Decrypts the next record in a bulk's buffer; returns its plaintext's length. `None` if there
    /// is no complete record.
    pub(super) fn open_landed(
        &mut self,
        index: u32,
        io: &mut IoContext,
    ) -> Result<Option<usize>, Fault> {
        let conn = self.conn(index);
        let (Some(seal), Some(incoming)) = (&mut conn.seal, &mut conn.incoming) else {
            return Ok(None);
        };
        let (at, range) = (incoming.received_bytes, incoming.landed.range.clone());
        if range.is_empty() {
            return Ok(None);
        }
        let rest_bytes = incoming.rest_bytes();
        let bytes = io.pool.bytes_mut(incoming.buf, at, range.end - at);
        let Some((record_bytes, content)) = seal.open_to(bytes, range.start - at)? else {
            return Ok(None);
        };
        let bulk_bytes = match content {
            Content::Bytes(plain) => {
                let (bulk, behind) = plain.split_at(rest_bytes.min(plain.len()));
                conn.inbox.append(behind);
                bulk.len()
            }
            Content::Nothing => 0,
            // A peer that ends within a bulk broke the connection off.
            Content::End => return Err(Fault::Broken),
        };
        incoming.landed.range.start += record_bytes;
        if bulk_bytes == rest_bytes {
            incoming.lift(seal, &io.pool);
        }
        Ok(Some(bulk_bytes))
    }
}
