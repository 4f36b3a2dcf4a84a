//! Cuts a byte stream into frames.
//!
//! It owns the received bytes that are not yet cut; sockets are its caller's. Invariant: memory for
//! a frame is allocated only after its header was found to be within the limits.

use interface::CloseReason;
use wire::{HEADER_BYTES, Lengths, ProtocolError};

/// Receive space of a connection before its first frame.
/// A frame with a bulk of one page fits, so that it is received at once.
const SPACE_BYTES_MIN: usize = 4096 + 256;
/// Receive space that a busy connection retains.
const SPACE_BYTES_RETAINED: usize = 64 * 1024;

/// The state of the front of an inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// An incomplete frame.
    More,
    /// Header and body are complete; the bulk, if any, follows.
    Frame(Lengths),
}

/// Received bytes that are not yet cut.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Space that the frame at the front needs.
    wanted_bytes: usize,
    /// The last frame's bulk was received directly into its buffer: the next bulk should not be
    /// received here either.
    narrow: bool,
}

impl Inbox {
    /// Where the next bytes are received to. The memory does not move until [`Self::received`].
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > SPACE_BYTES_RETAINED && self.wanted_bytes <= SPACE_BYTES_RETAINED
            {
                self.bytes.truncate(SPACE_BYTES_RETAINED);
                self.bytes.shrink_to_fit();
            }
        }
        let capacity_bytes = self.bytes.len().max(SPACE_BYTES_MIN).max(self.wanted_bytes);
        let crowded = self.end + HEADER_BYTES > self.bytes.len();
        if self.start > 0 && (crowded || self.start + self.wanted_bytes > self.bytes.len()) {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if capacity_bytes > self.bytes.len() {
            self.bytes.resize(capacity_bytes, 0);
        }
        let narrow = self.narrow && self.wanted_bytes == 0;
        let space_bytes_max = if narrow { SPACE_BYTES_MIN } else { usize::MAX };
        let space = &mut self.bytes[self.end..];
        let space_bytes = space.len().min(space_bytes_max);
        &mut space[..space_bytes]
    }

    /// So many bytes were written at the front of [`Self::space`].
    pub(crate) fn received(&mut self, arrived_bytes: usize) {
        assert!(
            arrived_bytes <= self.bytes.len() - self.end,
            "more was received than there was space"
        );
        self.end += arrived_bytes;
        self.narrow = false;
        let full = self.end == self.bytes.len();
        if full && self.bytes.len() < SPACE_BYTES_RETAINED {
            // The peer sends more than fits: more space next time saves calls.
            self.wanted_bytes =
                self.wanted_bytes.max(self.bytes.len() * 4).min(SPACE_BYTES_RETAINED);
        }
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let end = self.end + bytes.len();
        if end > self.bytes.len() {
            self.bytes.resize(end.max(SPACE_BYTES_MIN), 0);
        } else if self.bytes.len() > SPACE_BYTES_RETAINED
            && end.max(self.wanted_bytes) <= SPACE_BYTES_RETAINED
        {
            self.bytes.truncate(SPACE_BYTES_RETAINED);
            self.bytes.shrink_to_fit();
        }
        self.bytes[self.end..end].copy_from_slice(bytes);
        self.end = end;
        self.narrow = false;
    }

    /// Checks the front. Before the peer is admitted it sends no bulk, and at most `body_bytes_max`
    /// in a body.
    pub(crate) fn cut(&mut self, body_bytes_max: Option<u32>) -> Result<Cut, CloseReason> {
        let there = &self.bytes[self.start..self.end];
        let Some((head, _)) = there.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(Cut::More);
        };
        let lengths = Lengths::peek(head).map_err(CloseReason::ProtocolError)?;
        let too_long = body_bytes_max.is_some_and(|bytes_max| {
            lengths.frame_bytes > HEADER_BYTES + bytes_max as usize || lengths.bulk_bytes > 0
        });
        if too_long {
            return Err(CloseReason::ProtocolError(ProtocolError::TooLong));
        }
        if there.len() < lengths.frame_bytes {
            self.wanted_bytes = lengths.frame_bytes;
            return Ok(Cut::More);
        }
        Ok(Cut::Frame(lengths))
    }

    /// The first bytes, which must have been received.
    pub(crate) fn front(&self, front_bytes: usize) -> &[u8] {
        &self.bytes[self.start..self.end][..front_bytes]
    }

    /// Moves bytes behind the first `skip_bytes` into `to`, as many as fit and were received.
    /// Nothing may be received before [`Self::consume`].
    pub(crate) fn take_behind(&mut self, skip_bytes: usize, to: &mut [u8]) -> usize {
        let from = self.start + skip_bytes;
        let taken_bytes = (self.end - from).min(to.len());
        to[..taken_bytes].copy_from_slice(&self.bytes[from..from + taken_bytes]);
        self.drop_behind(skip_bytes, to.len())
    }

    /// Discards at most `drop_bytes_max` received bytes behind the first `skip_bytes`; returns how
    /// many. Nothing may be received before [`Self::consume`].
    pub(crate) fn drop_behind(&mut self, skip_bytes: usize, drop_bytes_max: usize) -> usize {
        let from = self.start + skip_bytes;
        let dropped_bytes = (self.end - from).min(drop_bytes_max);
        self.bytes.copy_within(from + dropped_bytes..self.end, from);
        self.end -= dropped_bytes;
        self.narrow = dropped_bytes < drop_bytes_max;
        dropped_bytes
    }

    /// Discards at most so many of the first bytes; returns how many.
    pub(crate) fn skip(&mut self, skip_bytes_max: usize) -> usize {
        let skipped_bytes = (self.end - self.start).min(skip_bytes_max);
        self.start += skipped_bytes;
        skipped_bytes
    }

    /// Discards everything.
    pub(crate) const fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
        self.wanted_bytes = 0;
    }

    /// Discards the first bytes.
    pub(crate) fn consume(&mut self, front_bytes: usize) {
        assert!(front_bytes <= self.end - self.start, "only what is there is consumed");
        self.start += front_bytes;
        self.wanted_bytes = 0;
    }

    /// Space that the frame at the front needs, as far as it is known.
    pub(crate) const fn wanted_bytes(&self) -> usize {
        self.wanted_bytes
    }

    /// Whether the inbox is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use wire::{Bytes, FrameKind, HANDSHAKE_BODY_BYTES_MAX, Header, Wire};

    fn frame(body: &[u8], kind: FrameKind) -> Vec<u8> {
        let mut out = Vec::new();
        Header::Handshake(kind).encode(&mut out, None, |to| Bytes(body).encode(to));
        out
    }

    fn receive(inbox: &mut Inbox, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let space = inbox.space();
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            inbox.received(count);
            rest = &rest[count..];
        }
    }

    #[test]
    fn a_frame_is_cut_only_when_complete() {
        let sent = frame(b"hello", FrameKind::Hello);
        let mut inbox = Inbox::default();
        for byte in &sent[..sent.len() - 1] {
            receive(&mut inbox, &[*byte]);
            assert_eq!(inbox.cut(Some(HANDSHAKE_BODY_BYTES_MAX)), Ok(Cut::More));
        }
        receive(&mut inbox, &sent[sent.len() - 1..]);
        let Ok(Cut::Frame(lengths)) = inbox.cut(Some(HANDSHAKE_BODY_BYTES_MAX)) else {
            panic!("a whole frame is there")
        };
        assert_eq!(inbox.front(lengths.frame_bytes), sent);
        inbox.consume(lengths.frame_bytes);
        assert!(inbox.is_empty());
    }

    #[test]
    fn frames_received_together_are_cut_one_by_one() {
        let sent: Vec<Vec<u8>> =
            (0..200).map(|count| frame(&vec![7; count * 4], FrameKind::Hello)).collect();
        let mut inbox = Inbox::default();
        let mut cut = Vec::new();
        for chunk in sent.concat().chunks(3333) {
            receive(&mut inbox, chunk);
            while let Cut::Frame(lengths) = inbox.cut(None).unwrap() {
                cut.push(inbox.front(lengths.frame_bytes).to_vec());
                inbox.consume(lengths.frame_bytes);
            }
        }
        assert_eq!(cut, sent);
    }

    #[test]
    fn after_a_direct_bulk_the_inbox_offers_little_space() {
        let sent = frame(b"hello", FrameKind::Hello);
        let mut inbox = Inbox::default();
        receive(&mut inbox, &vec![0; 2 * SPACE_BYTES_MIN]);
        inbox.clear();
        receive(&mut inbox, &[sent.clone(), vec![7; 10]].concat());
        let Ok(Cut::Frame(lengths)) = inbox.cut(None) else { panic!("a whole frame is there") };
        assert!(inbox.space().len() > SPACE_BYTES_MIN);
        let mut bulk = vec![0; 1000];
        assert_eq!(inbox.take_behind(lengths.frame_bytes, &mut bulk), 10);
        inbox.consume(lengths.frame_bytes);
        assert_eq!(inbox.space().len(), SPACE_BYTES_MIN);
        receive(&mut inbox, &sent);
        assert!(inbox.space().len() > SPACE_BYTES_MIN, "small frames have all the space again");
    }

    #[test]
    fn garbage_is_a_protocol_error_and_takes_no_memory() {
        let mut inbox = Inbox::default();
        receive(&mut inbox, &[0xff; 200]);
        assert_eq!(inbox.cut(None), Err(CloseReason::ProtocolError(ProtocolError::Magic)));
        assert_eq!(inbox.bytes.len(), SPACE_BYTES_MIN);
    }

    #[test]
    fn bulk_before_admission_is_a_protocol_error() {
        let mut sent = frame(b"", FrameKind::Reply);
        sent[5] = 7;
        sent[12] = 1;
        let mut inbox = Inbox::default();
        receive(&mut inbox, &sent);
        assert_eq!(
            inbox.cut(Some(HANDSHAKE_BODY_BYTES_MAX)),
            Err(CloseReason::ProtocolError(ProtocolError::TooLong))
        );
        assert!(inbox.cut(None).is_ok());
    }

    #[test]
    fn bulk_behind_a_frame_is_taken_and_later_bytes_stay() {
        let sent = frame(b"x", FrameKind::Hello);
        let mut inbox = Inbox::default();
        receive(&mut inbox, &[&sent[..], b"abcdef"].concat());
        let mut bulk = [0; 4];
        assert_eq!(inbox.take_behind(sent.len(), &mut bulk), 4);
        assert_eq!(&bulk, b"abcd");
        assert_eq!(inbox.front(sent.len()), sent);
        inbox.consume(sent.len());
        assert_eq!(inbox.front(2), b"ef");
        assert_eq!(inbox.take_behind(0, &mut bulk), 2);
        assert!(inbox.is_empty());
    }
}
