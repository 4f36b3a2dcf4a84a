//! A connection's send queue.
//!
//! The frames of a turn are gathered into one wave and leave in one call; bulk is sent from its
//! buffer. A wave with file ranges is sent by direct system calls of the lane, up to the last range
//! ([`Outbox::next_own`]); bytes in memory are sent through the driver ([`Outbox::next`]).
//! Invariant: one wave is in flight at a time; its bytes do not move, and its buffers are retained
//! until the kernel has taken all of them.

mod sealed;
mod wave;

use crate::buffer::{FileRange, Pool};
use crate::driver::Op;
use crate::number::{u32_of, u64_of};
use interface::Bulk;
use sealed::Sealed;
use std::os::fd::{AsFd as _, BorrowedFd, RawFd};
use wave::{Piece, Wave};
use wire::Header;

/// Pieces gathered into one call; the kernel accepts 1024.
const IOVEC_COUNT_MAX: usize = 512;
/// The most bytes of a gathered send at once: its buffers are released only in the next turn, which
/// an idle lane takes when its next event comes.
const AT_ONCE_BYTES_MAX: usize = 128 * 1024;

/// The next direct system call of the lane.
pub(crate) enum Own<'a> {
    /// Bytes in memory, with more behind them.
    Message { header: &'a libc::msghdr, message_bytes: usize },
    /// Bytes of a file.
    File { file: BorrowedFd<'a>, offset: u64, file_bytes: usize },
}

impl Own<'_> {
    pub(crate) const fn own_bytes(&self) -> usize {
        match self {
            Self::Message { message_bytes, .. } => *message_bytes,
            Self::File { file_bytes, .. } => *file_bytes,
        }
    }
}

/// Header and iovecs of a gathered send; they must not move.
struct Message {
    header: libc::msghdr,
    iovecs: Vec<libc::iovec>,
}

/// A connection's outgoing bytes.
#[derive(Default)]
pub(crate) struct Outbox {
    queued: Wave,
    flying: Wave,
    /// Sent bytes of the first unsent piece.
    piece_index: usize,
    piece_sent_bytes: usize,
    message: Option<Box<Message>>,
    /// Bytes of all waves that the kernel has not taken.
    unsent_bytes: usize,
    /// Under TLS: plaintext that becomes records.
    sealed: Option<Box<Sealed>>,
}

impl Outbox {
    /// Queues a frame and its bulk.
    pub(crate) fn push(&mut self, frame: &[u8], bulk: Option<Bulk>, pool: &mut Pool) {
        let start = self.queued.small.len();
        self.queued.small.extend_from_slice(frame);
        self.unsent_bytes += frame.len();
        match self.queued.pieces.last_mut() {
            Some(Piece::Small { piece_bytes, .. }) => *piece_bytes += frame.len(),
            Some(Piece::Bulk { .. }) | None => {
                self.queued.pieces.push(Piece::Small { start, piece_bytes: frame.len() });
            }
        }
        if let Some(bulk) = bulk.filter(|bulk| bulk.bulk_bytes > 0) {
            pool.retain(bulk.buf);
            let (start, piece_bytes) = (bulk.start as usize, bulk.bulk_bytes as usize);
            self.unsent_bytes += piece_bytes;
            self.queued.pieces.push(Piece::Bulk { buf: bulk.buf, start, piece_bytes });
        }
    }

    /// Queues a frame in plain text, with checksums, and its bulk.
    pub(crate) fn push_summed(
        &mut self,
        frame: &[u8],
        (bulk, bulk_crc32c): (Option<Bulk>, Option<u32>),
        pool: &mut Pool,
    ) {
        self.push(frame, bulk, pool);
        let start = self.queued.small.len() - frame.len();
        Header::put_sums(&mut self.queued.small[start..], bulk_crc32c);
    }

    /// Bytes that the kernel has not taken.
    pub(crate) const fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Whether the kernel took all bytes of the last send.
    pub(crate) fn is_through(&self) -> bool {
        self.piece_index == self.flying.pieces.len()
    }

    /// The next send through the driver, if any; all of it is in memory, because [`Self::next_own`]
    /// was called before. None may be in flight. `at_once`: what is small is sent within the
    /// submitting call, as far as the socket has space.
    pub(crate) fn next(&mut self, socket: RawFd, at_once: bool, pool: &mut Pool) -> Option<Op> {
        if !self.begin_wave(pool) {
            return None;
        }
        let rest = &self.flying.pieces[self.piece_index..];
        if let [Piece::Small { start, piece_bytes }] = *rest {
            let piece = &self.flying.small[start + self.piece_sent_bytes..start + piece_bytes];
            let send_bytes = u32_of(piece.len());
            // The success of a send at once ends no wait, so no other bytes may wait for it.
            let at_once = at_once && !self.has_more();
            return Some(Op::Send { socket, at: piece.as_ptr(), send_bytes, at_once });
        }
        let piece_count = rest.len();
        let at_once = at_once && piece_count <= IOVEC_COUNT_MAX && !self.has_more();
        let (header, message_bytes) = self.gather(piece_count, usize::MAX, pool);
        let message = &raw const *header;
        let at_once = at_once && message_bytes <= AT_ONCE_BYTES_MAX;
        Some(Op::SendGathered { socket, message, send_bytes: u32_of(message_bytes), at_once })
    }

    /// The next direct system call, for about `bytes_max` bytes; `None` if no file ranges are left.
    /// No send may be in flight.
    pub(crate) fn next_own<'a>(
        &'a mut self,
        bytes_max: usize,
        pool: &'a mut Pool,
    ) -> Option<Own<'a>> {
        if !self.begin_wave(pool) {
            return None;
        }
        let rest = &self.flying.pieces[self.piece_index..];
        let piece_count = rest.iter().position(|piece| range_of(*piece, pool).is_some())?;
        if piece_count > 0 {
            let (header, message_bytes) = self.gather(piece_count, bytes_max, pool);
            return Some(Own::Message { header, message_bytes });
        }
        let piece = rest[0];
        let Piece::Bulk { start, .. } = piece else { panic!("{piece:?} is in no file") };
        let range = range_of(piece, pool)?;
        let skip_bytes = start + self.piece_sent_bytes;
        Some(Own::File {
            file: range.file.as_fd(),
            offset: range.offset + u64_of(skip_bytes),
            file_bytes: (piece.piece_bytes() - self.piece_sent_bytes).min(bytes_max),
        })
    }

    /// Makes the queued wave the current one if the last one was sent. Returns whether there is a
    /// current wave.
    fn begin_wave(&mut self, pool: &mut Pool) -> bool {
        if self.is_through() {
            if self.sealed.is_some() {
                // What is queued flies as records, by `seal`.
                return false;
            }
            self.flying.clear(pool);
            self.piece_index = 0;
            if self.queued.pieces.is_empty() {
                return false;
            }
            std::mem::swap(&mut self.flying, &mut self.queued);
        }
        true
    }

    /// Gathers the next pieces, which are in memory: at most `piece_count`, and none behind the
    /// first `bytes_max` bytes. Returns their bytes.
    fn gather(
        &mut self,
        piece_count: usize,
        bytes_max: usize,
        pool: &Pool,
    ) -> (&libc::msghdr, usize) {
        let message = self.message.get_or_insert_with(|| {
            Box::new(Message { header: empty_header(), iovecs: Vec::new() })
        });
        message.iovecs.clear();
        let mut message_bytes = 0;
        let mut skip_bytes = self.piece_sent_bytes;
        let rest = &self.flying.pieces[self.piece_index..];
        for piece in rest.iter().take(piece_count.min(IOVEC_COUNT_MAX)) {
            if message_bytes >= bytes_max {
                break;
            }
            let at = match *piece {
                Piece::Small { start, piece_bytes } => {
                    self.flying.small[start..start + piece_bytes].as_ptr().cast_mut()
                }
                Piece::Bulk { buf, start, piece_bytes } => pool.at(buf, start, piece_bytes),
            };
            message.iovecs.push(libc::iovec {
                iov_base: at.wrapping_add(skip_bytes).cast(),
                iov_len: piece.piece_bytes() - skip_bytes,
            });
            message_bytes += piece.piece_bytes() - skip_bytes;
            skip_bytes = 0;
        }
        message.header.msg_iov = message.iovecs.as_mut_ptr();
        message.header.msg_iovlen = message.iovecs.len();
        (&message.header, message_bytes)
    }

    /// The kernel has taken so many bytes of the send of [`Self::next`].
    pub(crate) fn sent(&mut self, sent_bytes: usize) {
        assert!(sent_bytes <= self.unsent_bytes, "no more leaves than was queued");
        self.unsent_bytes -= sent_bytes;
        let mut rest_bytes = self.piece_sent_bytes + sent_bytes;
        while let Some(piece) = self.flying.pieces.get(self.piece_index) {
            if rest_bytes < piece.piece_bytes() {
                break;
            }
            rest_bytes -= piece.piece_bytes();
            self.piece_index += 1;
        }
        self.piece_sent_bytes = rest_bytes;
    }

    /// Discards everything. Nothing may be in flight.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.flying.clear(pool);
        self.queued.clear(pool);
        if let Some(sealed) = self.sealed.take() {
            sealed.end(pool);
        }
        self.piece_index = 0;
        self.piece_sent_bytes = 0;
        self.unsent_bytes = 0;
        self.message = None;
    }
}

fn range_of(piece: Piece, pool: &Pool) -> Option<&FileRange> {
    match piece {
        Piece::Small { .. } => None,
        Piece::Bulk { buf, .. } => pool.range(buf),
    }
}

fn empty_header() -> libc::msghdr {
    libc::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: std::ptr::null_mut(),
        msg_iovlen: 0,
        msg_control: std::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]
    use super::*;
    use interface::NO_MAC;

    /// The bytes that the kernel would read.
    fn bytes_of(op: Op) -> Vec<u8> {
        match op {
            Op::Send { at, send_bytes, .. } => {
                // SAFETY: the outbox that made it is alive and untouched.
                unsafe { std::slice::from_raw_parts(at, send_bytes as usize) }.to_vec()
            }
            Op::SendGathered { message, .. } => {
                // SAFETY: as above.
                let header = unsafe { &*message };
                // SAFETY: as above; the header names that many.
                let iovecs =
                    unsafe { std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen) };
                let piece = |iovec: &libc::iovec| {
                    // SAFETY: as above.
                    unsafe {
                        std::slice::from_raw_parts(iovec.iov_base.cast::<u8>(), iovec.iov_len)
                    }
                    .to_vec()
                };
                iovecs.iter().flat_map(piece).collect()
            }
            other => panic!("{other:?} is no send"),
        }
    }

    #[test]
    fn short_sends_neither_lose_nor_repeat_bytes() {
        let mut pool = Pool::new(1 << 20);
        let buf = pool.take(4096).unwrap();
        let data: Vec<u8> = (0..100).collect();
        pool.bytes_mut(buf, 10, 100).copy_from_slice(&data);
        let bulk = Bulk { buf, start: 10, bulk_bytes: 100, crc32c: None, mac: NO_MAC };
        let mut outbox = Outbox::default();
        outbox.push(b"first", None, &mut pool);
        outbox.push(b"second", Some(bulk), &mut pool);
        outbox.push(b"third", None, &mut pool);
        pool.release(buf);
        let expected = [b"firstsecond".as_slice(), &data, b"third"].concat();
        assert_eq!(outbox.unsent_bytes(), expected.len());
        for step_bytes in [1, 7, 50, expected.len()] {
            let mut sent = Vec::new();
            let mut copy = Outbox::default();
            pool.retain(buf);
            copy.push(b"first", None, &mut pool);
            copy.push(b"second", Some(bulk), &mut pool);
            copy.push(b"third", None, &mut pool);
            pool.release(buf);
            while let Some(op) = copy.next(0, false, &mut pool) {
                let bytes = bytes_of(op);
                let count = step_bytes.min(bytes.len());
                sent.extend_from_slice(&bytes[..count]);
                copy.sent(count);
            }
            assert_eq!(sent, expected, "in steps of {step_bytes}");
            assert_eq!(copy.unsent_bytes(), 0);
        }
        assert_eq!(pool.refs_count(buf), 1, "the first outbox still holds it");
        outbox.clear(&mut pool);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_send_with_more_bytes_behind_it_is_not_at_once() {
        let mut pool = Pool::new(0);
        let mut outbox = Outbox::default();
        outbox.push(b"first", None, &mut pool);
        assert!(matches!(outbox.next(0, true, &mut pool), Some(Op::Send { at_once: true, .. })));
        outbox.sent(2);
        outbox.push(b"second", None, &mut pool);
        assert!(matches!(outbox.next(0, true, &mut pool), Some(Op::Send { at_once: false, .. })));
        outbox.sent(3);
        assert!(matches!(outbox.next(0, true, &mut pool), Some(Op::Send { at_once: true, .. })));
    }

    #[test]
    fn small_bulk_is_sent_at_once_and_large_bulk_is_not() {
        for (bulk_bytes, expected) in [(4096, true), (1 << 20, false)] {
            let mut pool = Pool::new(2 << 20);
            let buf = pool.take(1 << 20).unwrap();
            let bulk = Bulk { buf, start: 0, bulk_bytes, crc32c: None, mac: NO_MAC };
            let mut outbox = Outbox::default();
            outbox.push(b"frame", Some(bulk), &mut pool);
            let Some(Op::SendGathered { send_bytes, at_once, .. }) =
                outbox.next(0, true, &mut pool)
            else {
                panic!("a gathered send")
            };
            assert_eq!((send_bytes, at_once), (bulk_bytes + 5, expected));
            outbox.push(b"more", None, &mut pool);
            let Some(Op::SendGathered { at_once, .. }) = outbox.next(0, true, &mut pool) else {
                panic!("a gathered send")
            };
            assert!(!at_once, "more bytes wait behind it");
            outbox.clear(&mut pool);
            pool.release(buf);
        }
    }

    #[test]
    fn small_frames_of_a_turn_are_one_send() {
        let mut pool = Pool::new(0);
        let mut outbox = Outbox::default();
        (0..100).for_each(|_| outbox.push(b"abc", None, &mut pool));
        let Some(Op::Send { send_bytes, .. }) = outbox.next(0, true, &mut pool) else {
            panic!("one plain send")
        };
        assert_eq!(send_bytes, 300);
    }
}
