//! Sending under TLS: the queued wave becomes records, a part at a time.
//!
//! Plaintext is written directly into its record, so it is copied once; for a file range the read
//! is that copy. Invariant: records are sent in the order in which they were encrypted, completely,
//! before more are encrypted; a wave's buffers are retained until all of it is in records.

use super::Outbox;
use super::wave::{Piece, Wave};
use crate::buffer::Pool;
use interface::Errno;
use seal::{KEY_UPDATE_BYTES_MAX, RECORD_BYTES_MAX, RECORD_OVERHEAD_BYTES, Seal};

/// Plaintext per part: with its records less than a quarter of 1 MiB, which stays in a second-level
/// cache until the kernel has copied it.
const PART_BYTES_MAX: usize = 15 * RECORD_BYTES_MAX;
/// Records up to this size use the connection's own memory.
const SMALL_BYTES_MAX: usize = 16 * 1024;
/// The file ended before the promised bulk.
const IO: Errno = Errno(5);

/// Plaintext to be encrypted.
#[derive(Default)]
pub(super) struct Sealed {
    /// Handshake messages, which are records already.
    handshake: Vec<u8>,
    wave: Wave,
    piece_index: usize,
    /// Encrypted bytes of the current piece.
    piece_sealed_bytes: usize,
    left_bytes: usize,
    /// Handshake bytes are in flight.
    is_handshake_in_flight: bool,
}

impl Sealed {
    pub(super) fn end(mut self, pool: &mut Pool) {
        self.wave.clear(pool);
    }

    /// Writes the next plaintext.
    fn take(&mut self, mut to: &mut [u8], pool: &Pool) -> Result<(), Errno> {
        self.left_bytes -= to.len();
        while !to.is_empty() {
            let piece = self.wave.pieces[self.piece_index];
            let rest_bytes = piece.piece_bytes() - self.piece_sealed_bytes;
            let (now, later) = to.split_at_mut(rest_bytes.min(to.len()));
            let skip_bytes = self.piece_sealed_bytes;
            let whole = match piece {
                Piece::Small { start, .. } => {
                    let from = start + skip_bytes;
                    now.copy_from_slice(&self.wave.small[from..from + now.len()]);
                    true
                }
                Piece::Bulk { buf, start, .. } => pool.copy(buf, start + skip_bytes, now),
            };
            if !whole {
                return Err(IO);
            }
            self.piece_sealed_bytes += now.len();
            if now.len() == rest_bytes {
                self.piece_index += 1;
                self.piece_sealed_bytes = 0;
            }
            to = later;
        }
        Ok(())
    }

    /// Encrypts so many bytes; returns the length of the records.
    fn seal(
        &mut self,
        seal: &mut Seal,
        mut plain_bytes: usize,
        (out, pool): (&mut [u8], &Pool),
    ) -> Result<usize, Errno> {
        let mut used_bytes = self.handshake.len();
        out[..used_bytes].copy_from_slice(&self.handshake);
        self.handshake = Vec::new();
        if plain_bytes > 0 {
            used_bytes += seal.update_key(&mut out[used_bytes..]).map_err(|_| Errno::SEAL)?;
        }
        while plain_bytes > 0 {
            let now_bytes = plain_bytes.min(RECORD_BYTES_MAX);
            let out = &mut out[used_bytes..];
            used_bytes += seal.seal(out, now_bytes, |to| self.take(to, pool))?;
            plain_bytes -= now_bytes;
        }
        Ok(used_bytes)
    }
}

impl Outbox {
    /// From here on, queued bytes are sent under TLS.
    pub(crate) fn begin_sealed(&mut self) {
        self.sealed = Some(Box::default());
    }

    /// From here on, bytes are sent in plain text. Unencrypted bytes are discarded, records in
    /// flight are not.
    pub(crate) fn end_sealed(&mut self, pool: &mut Pool) {
        if let Some(sealed) = self.sealed.take() {
            self.unsent_bytes -= sealed.handshake.len() + sealed.left_bytes;
            sealed.end(pool);
        }
    }

    /// Queues handshake messages.
    pub(crate) fn push_handshake(&mut self, handshake: &[u8]) {
        if let Some(sealed) = &mut self.sealed {
            sealed.handshake.extend_from_slice(handshake);
            self.unsent_bytes += handshake.len();
        }
    }

    /// Whether bytes wait behind those in flight, or will: the last message of a handshake has no
    /// answer, and bytes behind it may be queued before it was sent.
    pub(crate) fn has_more(&self) -> bool {
        let sealed = self.sealed.as_ref();
        let more =
            sealed.is_some_and(|sealed| sealed.left_bytes > 0 || sealed.is_handshake_in_flight);
        more || !self.queued.pieces.is_empty()
    }

    /// Makes records of the next bytes, when earlier ones were sent. No send may be in flight.
    ///
    /// # Errors
    /// When a file lacks bytes of the promised bulk; the connection must end.
    pub(crate) fn seal(&mut self, seal: &mut Seal, pool: &mut Pool) -> Result<(), Errno> {
        if !self.is_through() {
            return Ok(());
        }
        let Some(sealed) = &mut self.sealed else { return Ok(()) };
        for piece in self.flying.pieces.drain(..) {
            if let Piece::Bulk { buf, .. } = piece {
                pool.release(buf);
            }
        }
        self.piece_index = 0;
        if sealed.left_bytes == 0 && seal.is_open() {
            sealed.wave.clear(pool);
            std::mem::swap(&mut sealed.wave, &mut self.queued);
            (sealed.piece_index, sealed.piece_sealed_bytes) = (0, 0);
            sealed.left_bytes = sealed.wave.pieces.iter().map(|piece| piece.piece_bytes()).sum();
        }
        let plain_bytes = sealed.left_bytes.min(PART_BYTES_MAX);
        let handshake_bytes = sealed.handshake.len();
        sealed.is_handshake_in_flight = handshake_bytes > 0;
        if plain_bytes + handshake_bytes == 0 {
            return Ok(());
        }
        let record_count = plain_bytes.div_ceil(RECORD_BYTES_MAX);
        let space_bytes = handshake_bytes
            + KEY_UPDATE_BYTES_MAX
            + plain_bytes
            + record_count * RECORD_OVERHEAD_BYTES;
        let piece_bytes = if space_bytes <= SMALL_BYTES_MAX {
            let small = &mut self.flying.small;
            if small.len() < space_bytes {
                small.resize(space_bytes, 0);
            }
            let piece_bytes = sealed.seal(seal, plain_bytes, (small, pool))?;
            self.flying.pieces.push(Piece::Small { start: 0, piece_bytes });
            piece_bytes
        } else {
            let make = |out: &mut [u8], pool: &Pool| sealed.seal(seal, plain_bytes, (out, pool));
            let (buf, made) = pool.filled(space_bytes, make);
            let piece_bytes = made.inspect_err(|_| pool.release(buf))?;
            self.flying.pieces.push(Piece::Bulk { buf, start: 0, piece_bytes });
            piece_bytes
        };
        if sealed.left_bytes == 0 {
            sealed.wave.clear(pool);
            sealed.piece_index = 0;
        }
        self.unsent_bytes += piece_bytes - plain_bytes - handshake_bytes;
        Ok(())
    }
}

const _: () =
    assert!(PART_BYTES_MAX + 16 * RECORD_OVERHEAD_BYTES <= 1 << 18, "a part fits its buffer");

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]
    use super::*;
    use crate::driver::Op;
    use interface::{Bulk, NO_MAC};
    use seal::{Client, Content, HandshakeProgress, Server};

    /// A client's end with its last handshake flight, and the server's end, which lacks that
    /// flight.
    fn handshake_done() -> (Seal, Vec<u8>, Seal) {
        let (mut handshake, mut answer) = (Vec::new(), Vec::new());
        let mut client = Seal::client(&Client::with_any_key().unwrap(), &mut handshake).unwrap();
        let mut server = Seal::server(&Server::with_new_key().unwrap());
        server.push_received(&handshake);
        assert_eq!(server.advance_handshake(&mut answer), Ok(HandshakeProgress::NeedsMore));
        client.push_received(&answer);
        handshake.clear();
        assert!(matches!(client.advance_handshake(&mut handshake), Ok(HandshakeProgress::Open(_))));
        (client, handshake, server)
    }

    /// At most `bytes_max` of the bytes that the kernel would read.
    fn bytes_of(op: Op, bytes_max: usize) -> Vec<u8> {
        let (at, count) = match op {
            Op::Send { at, send_bytes, .. } => (at, send_bytes as usize),
            Op::SendGathered { message, .. } => {
                // SAFETY: the outbox that made it is alive and untouched.
                let header = unsafe { &*message };
                assert_eq!(header.msg_iovlen, 1, "records lie in one piece");
                // SAFETY: as above.
                let iovec = unsafe { &*header.msg_iov };
                (iovec.iov_base.cast::<u8>().cast_const(), iovec.iov_len)
            }
            other => panic!("{other:?} is no send"),
        };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(at, count.min(bytes_max)) }.to_vec()
    }

    #[test]
    fn queued_bytes_arrive_complete_and_in_order_with_any_short_sends() {
        let data: Vec<u8> = (0..700_000_u32).map(|index| (index % 251).to_le_bytes()[0]).collect();
        for step_bytes in [7_001, 100_000, usize::MAX] {
            let (mut client, handshake, mut server) = handshake_done();
            let mut pool = Pool::new(1 << 20);
            let mut outbox = Outbox::default();
            outbox.begin_sealed();
            outbox.push_handshake(&handshake);
            let mut expected = Vec::new();
            let mut found = Vec::new();
            let mut sent_count = 0;
            let mut shaken = false;
            for round in 0..6_usize {
                let buf = pool.take(data.len()).unwrap();
                pool.bytes_mut(buf, 0, data.len()).copy_from_slice(&data);
                let bulk_bytes = u32::try_from(round * round * 27_001).unwrap();
                let bulk = Bulk { buf, start: 3, bulk_bytes, crc32c: None, mac: NO_MAC };
                outbox.push(b"frame", Some(bulk), &mut pool);
                pool.release(buf);
                expected.extend_from_slice(b"frame");
                expected.extend_from_slice(&data[3..][..bulk_bytes as usize]);
                loop {
                    outbox.seal(&mut client, &mut pool).unwrap();
                    let Some(op) = outbox.next(0, true, &mut pool) else { break };
                    let bytes = bytes_of(op, step_bytes);
                    outbox.sent(bytes.len());
                    sent_count += bytes.len();
                    for bytes in bytes.chunks(10_000) {
                        server.push_received(bytes);
                        if !shaken {
                            shaken = matches!(
                                server.advance_handshake(&mut Vec::new()),
                                Ok(HandshakeProgress::Open(_))
                            );
                        }
                        while shaken && let Some(Content::Bytes(bytes)) = server.open().unwrap() {
                            found.extend_from_slice(bytes);
                        }
                    }
                }
                assert_eq!(outbox.unsent_bytes(), 0, "round {round}");
                assert!(found == expected, "in steps of {step_bytes}, round {round}");
            }
            assert!(sent_count > expected.len());
            outbox.clear(&mut pool);
            assert_eq!(pool.used_bytes(), 0);
        }
    }

    #[test]
    fn only_handshake_bytes_are_sent_before_the_handshake_is_complete() {
        let mut handshake = Vec::new();
        let mut client = Seal::client(&Client::with_any_key().unwrap(), &mut handshake).unwrap();
        let mut pool = Pool::new(0);
        let mut outbox = Outbox::default();
        outbox.begin_sealed();
        outbox.push_handshake(&handshake);
        outbox.push(b"frame", None, &mut pool);
        outbox.seal(&mut client, &mut pool).unwrap();
        let op = outbox.next(0, true, &mut pool).unwrap();
        assert!(matches!(op, Op::Send { at_once: false, .. }), "there is more");
        assert_eq!(bytes_of(op, usize::MAX), handshake);
        outbox.sent(handshake.len());
        outbox.seal(&mut client, &mut pool).unwrap();
        assert!(outbox.next(0, true, &mut pool).is_none());
    }
}
