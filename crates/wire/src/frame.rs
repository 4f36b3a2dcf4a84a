//! The frame: a fixed header of 96 bytes, a body of small bytes, bulk bytes.
//!
//! ```text
//! offset bytes field            request                      reply
//!      0     4 magic "LNFS"
//!      4     1 version 23
//!      5     1 kind             6                            7
//!      6     2 op
//!      8     4 body_bytes
//!     12     4 bulk_bytes
//!     16     4 head_crc32c      over header (this field as 0) and body; 0 under TLS
//!     20     4 bulk_crc32c      over the bulk; 0 without     the same; 0 if BULK_UNCHECKED
//!                               one and under TLS
//!     24     2 lane_hint        the destination lane         the lane that owns the shard
//!     26     2 shard
//!     28     2 slot             0: changes nothing           as in the request
//!     30     2 flags            request_flag                 reply_flag
//!     32     8 session
//!     40     8 xid
//!     48     8                  ack_xid                      transno (0: nothing changed)
//!     56     8                  sack                         committed (per session)
//!     64     4                  conn_epoch                   status (u16), credits (u16)
//!     68     4                  layout (0: not stated)       retry_after_ms
//!     72     8                  transno (replay only)        boot_id
//!     80     8                  trace_id                     trace_id
//!     88     8                  map_epoch                    op_time_ns since 1970
//! ```
//! Frames of other kinds use the same header with all fields from `op` on zero, except the lengths
//! and checksums. Field meanings: docs/protocol.md §4.
//!
//! Checksums protect frames in plain text: the sender sets them ([`Header::put_sums`]), the
//! receiver verifies them ([`Header::check_sum`]). Under TLS, whose records are authenticated,
//! nobody uses them.

use crate::checksum::{crc32c, crc32c_of_two};
use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::frame_kind::FrameKind;
use crate::{
    BULK_BYTES_MAX, Groups, LaneId, Layout, Map, MapEpoch, NAME_BYTES_MAX, Op, ProtocolError,
    SessionId, ShardId, Status, Transno, XATTR_VALUE_BYTES_MAX, Xid,
};
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 96;
/// Most bytes of a body: all groups of a process, and the longest value or two names.
pub const BODY_BYTES_MAX: u32 = (256 + 64 + 16) * 1024;
const _: () = assert!(
    Groups::COUNT_MAX * 4 + XATTR_VALUE_BYTES_MAX + 2 * NAME_BYTES_MAX + 1024
        <= BODY_BYTES_MAX as usize
);
/// Most bytes of a body before the client has proven the secret.
pub const HANDSHAKE_BODY_BYTES_MAX: u32 = 1024;
/// Most bytes of a Welcome, which a proven server sends: it has the map.
pub const WELCOME_BODY_BYTES_MAX: u32 = 21 * 1024;
const _: () =
    assert!(Map::BYTES_MAX + 64 <= WELCOME_BODY_BYTES_MAX as usize, "a Welcome has any map");
const MAGIC: [u8; 4] = *b"LNFS";
const VERSION: u8 = 23;
const HEADER_CRC_OFFSET: usize = 16;
const BULK_CRC_OFFSET: usize = 20;
const FLAGS_OFFSET: usize = 30;
const KIND_OFFSET: usize = 5;
const OP_TIME_OFFSET: usize = 88;
/// Most frames without their bulk are smaller.
const SMALL_FRAME_BYTES: usize = 256;

/// Bits of [`Request::flags`].
pub mod request_flag {
    /// Resent: the client sent it on an earlier connection and has no reply.
    pub const RESENT: u16 = 1;
    /// A replay: the client has the reply. The body is a [`crate::Replay`]; `transno`, `slot` and
    /// `xid` are those of the original. The bulk of a write is included.
    pub const REPLAY: u16 = 2;
    /// Reply when the change is durable (O_SYNC, a synchronous mount). Bit 2 is never set.
    pub const SYNC: u16 = 8;
    /// The client caches: grant the leases that the op grants ([`crate::LeaseGrant`]).
    pub const LEASES: u16 = 16;
    /// The bytes were stored to through a mapping, and are written back from the page cache. Such a
    /// write may be what the end of a lease of its client waits for.
    pub const WRITE_BACK: u16 = 32;
    /// About writing behind ([`crate::lease_flag::WRITING`]): docs/protocol.md 20.6.
    pub const BEHIND: u16 = 64;
}

/// Bits of [`Reply::flags`].
pub mod reply_flag {
    /// The reply waited for durability.
    pub const GATED: u16 = 1;
    /// Answered from the slot: the request had been executed before.
    pub const FROM_SLOT: u16 = 2;
    /// The bulk has no checksum: it was sent without passing through the server's memory, or under
    /// TLS. Only on a reply with bulk. [`super::Header::encode`] sets and clears it, and
    /// [`super::Header::put_sums`] clears it.
    pub const BULK_UNCHECKED: u16 = 4;
    /// The change is not durable yet: a redo token ends the body. See [`crate::ReplyParts`].
    pub const TOKEN: u16 = 8;
    /// A [`crate::LeaseGrant`] with its further attributes follows the reply message. Never with [`FROM_SLOT`].
    pub const LEASES: u16 = 16;
}

/// The lengths that a receiver needs before it has the whole frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// The kind.
    pub kind: FrameKind,
    /// Bytes of header and body.
    pub frame_bytes: usize,
    /// Bulk bytes that follow.
    pub bulk_bytes: u32,
    /// The bulk's checksum in plain text. `None` only for a reply with
    /// [`reply_flag::BULK_UNCHECKED`]; 0 without bulk.
    pub bulk_crc32c: Option<u32>,
}

impl Lengths {
    /// Reads the lengths from a frame's header and checks them against the limits, before memory is
    /// allocated. The checksum is verified later.
    ///
    /// # Errors
    /// [`ProtocolError`] when this is no frame or a limit is exceeded.
    pub fn peek(head: &[u8; HEADER_BYTES]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(head);
        let lengths = Self::read(&mut reader);
        lengths.map_err(|error| match error {
            DecodeError::ProtocolError(protocol_error) => protocol_error,
            DecodeError::Status(_) => ProtocolError::Malformed,
        })
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.array()? != MAGIC {
            return Err(DecodeError::ProtocolError(ProtocolError::Magic));
        }
        if u8::decode(reader)? != VERSION {
            return Err(DecodeError::ProtocolError(ProtocolError::Version));
        }
        let kind = FrameKind::from_number(u8::decode(reader)?)
            .ok_or(DecodeError::ProtocolError(ProtocolError::Kind))?;
        let _op: u16 = reader.read()?;
        let body_bytes: u32 = reader.read()?;
        let bulk_bytes: u32 = reader.read()?;
        let _head_crc: u32 = reader.read()?;
        let bulk_crc32c: u32 = reader.read()?;
        let _lane_hint: u16 = reader.read()?;
        let _shard: u16 = reader.read()?;
        let _slot: u16 = reader.read()?;
        let flags: u16 = reader.read()?;
        let body_bytes_max = match kind {
            FrameKind::Request
            | FrameKind::Reply
            | FrameKind::CommitNotification
            | FrameKind::Grant
            | FrameKind::Recall
            | FrameKind::RecallAck
            | FrameKind::Received
            | FrameKind::PeerMessage => BODY_BYTES_MAX,
            FrameKind::Welcome | FrameKind::MapNote => WELCOME_BODY_BYTES_MAX,
            FrameKind::Hello
            | FrameKind::Challenge
            | FrameKind::Proof
            | FrameKind::Refusal
            | FrameKind::PeerHello
            | FrameKind::PeerChallenge
            | FrameKind::PeerProof => HANDSHAKE_BODY_BYTES_MAX,
        };
        let bulk = matches!(kind, FrameKind::Request | FrameKind::Reply);
        let bulk_bytes_max = if bulk { BULK_BYTES_MAX } else { 0 };
        if body_bytes > body_bytes_max || bulk_bytes > bulk_bytes_max {
            return Err(DecodeError::ProtocolError(ProtocolError::TooLong));
        }
        let body_bytes = usize::try_from(body_bytes)
            .map_err(|_| DecodeError::ProtocolError(ProtocolError::TooLong))?;
        let unchecked = flags & reply_flag::BULK_UNCHECKED != 0;
        // The flag is valid in a reply with bulk only.
        if unchecked && (kind != FrameKind::Reply || bulk_bytes == 0 || bulk_crc32c != 0) {
            return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
        }
        let bulk_crc32c = (!unchecked).then_some(bulk_crc32c);
        Ok(Self { kind, frame_bytes: HEADER_BYTES + body_bytes, bulk_bytes, bulk_crc32c })
    }
}

/// The header of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// The lane the client believes to own the shard.
    pub lane_hint: LaneId,
    /// The shard it is about (for [`crate::Route::Lane`] ops: ignored).
    pub shard: ShardId,
    /// 1 ..= the granted count for ops that take effect once, else 0.
    pub slot: u16,
    /// See [`request_flag`].
    pub flags: u16,
    /// The session.
    pub session: SessionId,
    /// The request's number.
    pub xid: Xid,
    /// Every reply of this session and shard up to this xid was received.
    pub ack_xid: Xid,
    /// Received replies above `ack_xid`: bit n stands for `ack_xid + 1 + n`.
    pub sack: u64,
    /// Counts this client lane's connections to this server.
    pub conn_epoch: u32,
    /// The layout of the file that a data request is about. One that may make the file longer has
    /// it.
    pub layout: Option<Layout>,
    /// The original transaction number of a replay, else 0.
    pub transno: Transno,
    /// For following one request through logs; 0 when not wanted.
    pub trace_id: u64,
    /// The version of the map by which the client chose server and lane.
    pub map_epoch: MapEpoch,
}

/// The header of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// As in the request.
    pub op: Op,
    /// With [`Status::WrongLane`]: the lane that owns the shard.
    pub lane_hint: LaneId,
    /// As in the request.
    pub shard: ShardId,
    /// As in the request.
    pub slot: u16,
    /// See [`reply_flag`].
    pub flags: u16,
    /// As in the request.
    pub session: SessionId,
    /// As in the request.
    pub xid: Xid,
    /// The transaction's number; 0 when nothing was changed.
    pub transno: Transno,
    /// Highest durable transaction of this session at this shard.
    pub committed: Transno,
    /// The outcome. The body is the op's reply message with [`Status::Ok`], the [`Map`] with
    /// [`Status::StaleMap`], and else empty.
    pub status: Status,
    /// Requests the client may have outstanding.
    pub credits: u16,
    /// With [`Status::RetryLater`]: how long to wait.
    pub retry_after_ms: u32,
    /// The server's boot.
    pub boot_id: u64,
    /// As in the request.
    pub trace_id: u64,
    /// The time that the server gave the op, nanoseconds since 1970.
    pub op_time_ns: u64,
}

/// A decoded header, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// One of the handshake's frames; its message is in the body.
    Handshake(FrameKind),
    /// A request.
    Request(Request),
    /// A reply.
    Reply(Reply),
    /// A commit notification; the [`crate::CommitNotification`] is in the body.
    CommitNotification,
    /// The outcome of a lock wait; the [`crate::Grant`] is in the body.
    Grant,
    /// Leases end; the [`crate::Recall`] is in the body.
    Recall,
    /// Leases are dropped; the [`crate::RecallAck`] is in the body.
    RecallAck,
    /// Other lanes' replies; the [`crate::Received`] is in the body.
    Received,
    /// A message between lanes of two servers, which is in the body.
    PeerMessage,
    /// A newer map; the [`Map`] is in the body.
    MapNote,
}

impl Header {
    /// Decodes a whole frame without its bulk into header and body. The receiving socket has
    /// verified the checksum.
    ///
    /// # Errors
    /// [`ProtocolError`] when the frame is invalid.
    pub fn decode(frame: &[u8]) -> Result<(Self, &[u8]), ProtocolError> {
        let (head, body) =
            frame.split_first_chunk::<HEADER_BYTES>().ok_or(ProtocolError::Malformed)?;
        let lengths = Lengths::peek(head)?;
        if lengths.frame_bytes != frame.len() {
            return Err(ProtocolError::Malformed);
        }
        let decoded = match lengths.kind {
            FrameKind::Request => Self::request(head),
            FrameKind::Reply => Self::reply(head),
            FrameKind::CommitNotification => Ok(Self::CommitNotification),
            FrameKind::Grant => Ok(Self::Grant),
            FrameKind::Recall => Ok(Self::Recall),
            FrameKind::RecallAck => Ok(Self::RecallAck),
            FrameKind::Received => Ok(Self::Received),
            FrameKind::PeerMessage => Ok(Self::PeerMessage),
            FrameKind::MapNote => Ok(Self::MapNote),
            FrameKind::Hello
            | FrameKind::Challenge
            | FrameKind::Proof
            | FrameKind::Welcome
            | FrameKind::Refusal
            | FrameKind::PeerHello
            | FrameKind::PeerChallenge
            | FrameKind::PeerProof => Ok(Self::Handshake(lengths.kind)),
        };
        match decoded {
            Ok(decoded) => Ok((decoded, body)),
            Err(DecodeError::ProtocolError(protocol_error)) => Err(protocol_error),
            Err(DecodeError::Status(_)) => Err(ProtocolError::Malformed),
        }
    }

    fn request(head: &[u8; HEADER_BYTES]) -> Result<Self, DecodeError> {
        let op = op_of(head)?;
        let mut from = Reader::new(&head[24..]);
        Ok(Self::Request(Request {
            op,
            lane_hint: from.read()?,
            shard: from.read()?,
            slot: from.read()?,
            flags: from.read()?,
            session: from.read()?,
            xid: from.read()?,
            ack_xid: from.read()?,
            sack: from.read()?,
            conn_epoch: from.read()?,
            layout: Layout::from_bits(from.read()?).map_err(DecodeError::ProtocolError)?,
            transno: from.read()?,
            trace_id: from.read()?,
            map_epoch: from.read()?,
        }))
    }

    fn reply(head: &[u8; HEADER_BYTES]) -> Result<Self, DecodeError> {
        let op = op_of(head)?;
        let mut from = Reader::new(&head[24..]);
        Ok(Self::Reply(Reply {
            op,
            lane_hint: from.read()?,
            shard: from.read()?,
            slot: from.read()?,
            flags: from.read()?,
            session: from.read()?,
            xid: from.read()?,
            transno: from.read()?,
            committed: from.read()?,
            status: from.read()?,
            credits: from.read()?,
            retry_after_ms: from.read()?,
            boot_id: from.read()?,
            trace_id: from.read()?,
            op_time_ns: from.read()?,
        }))
    }

    /// Appends a whole frame without its bulk to `out`: the header, then what `body` writes. The
    /// caller passes the bulk's length and, if known, its checksum, and sends the bulk right
    /// behind. A reply whose bulk has no checksum gets [`reply_flag::BULK_UNCHECKED`]. See
    /// [`Header::put_sums`].
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        bulk: Option<(u32, Option<u32>)>,
        body: impl FnOnce(&mut Writer<'_>),
    ) {
        let start = out.len();
        out.reserve(SMALL_FRAME_BYTES);
        let (bulk_bytes, bulk_crc32c) = bulk.unwrap_or((0, Some(0)));
        let unchecked = bulk_bytes > 0 && bulk_crc32c.is_none();
        let mut to = Writer::new(out);
        to.put(&MAGIC);
        to.write(&VERSION);
        let (kind, op_number) = match self {
            Self::Handshake(kind) => (*kind, 0),
            Self::Request(request) => (FrameKind::Request, request.op.number()),
            Self::Reply(reply) => (FrameKind::Reply, reply.op.number()),
            Self::CommitNotification => (FrameKind::CommitNotification, 0),
            Self::Grant => (FrameKind::Grant, 0),
            Self::Recall => (FrameKind::Recall, 0),
            Self::RecallAck => (FrameKind::RecallAck, 0),
            Self::Received => (FrameKind::Received, 0),
            Self::PeerMessage => (FrameKind::PeerMessage, 0),
            Self::MapNote => (FrameKind::MapNote, 0),
        };
        to.write(&(kind as u8));
        to.write(&op_number);
        to.write(&0_u32); // body_bytes, known below
        to.write(&bulk_bytes);
        to.write(&0_u32); // head_crc32c
        to.write(&bulk_crc32c.unwrap_or(0));
        match self {
            Self::Handshake(_)
            | Self::CommitNotification
            | Self::Grant
            | Self::Recall
            | Self::RecallAck
            | Self::Received
            | Self::PeerMessage
            | Self::MapNote => to.put(&[0; HEADER_BYTES - 24]),
            Self::Request(request) => request.put(&mut to),
            Self::Reply(reply) => reply.put(&mut to, unchecked),
        }
        body(&mut to);
        let frame = &mut out[start..];
        let body_bytes = u32::try_from(frame.len() - HEADER_BYTES).unwrap_or(u32::MAX);
        assert!(body_bytes <= BODY_BYTES_MAX, "a body of {body_bytes} bytes was built");
        frame[8..12].copy_from_slice(&body_bytes.to_le_bytes());
    }

    /// Sets the checksums of a frame that [`Header::encode`] made and that leaves in plain text:
    /// that of its bulk, if known, and then that of header and body.
    pub fn put_sums(frame: &mut [u8], bulk_crc32c: Option<u32>) {
        if let Some(bulk_crc32c) = bulk_crc32c {
            frame[BULK_CRC_OFFSET..BULK_CRC_OFFSET + 4].copy_from_slice(&bulk_crc32c.to_le_bytes());
            // Never set in a request.
            frame[FLAGS_OFFSET] &= !reply_flag::BULK_UNCHECKED.to_le_bytes()[0];
        }
        frame[HEADER_CRC_OFFSET..HEADER_CRC_OFFSET + 4].fill(0);
        let crc = crc32c(frame);
        frame[HEADER_CRC_OFFSET..HEADER_CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// [`Reply::op_time_ns`] of a frame, if it is a reply, without decoding the rest.
    #[must_use]
    pub fn reply_time_ns(frame: &[u8]) -> Option<u64> {
        let time = frame.get(OP_TIME_OFFSET..HEADER_BYTES)?;
        let is_reply = frame[KIND_OFFSET] == FrameKind::Reply as u8;
        time.try_into().ok().filter(|_| is_reply).map(u64::from_le_bytes)
    }

    /// Verifies the checksum of a frame that came in plain text, without its bulk.
    ///
    /// # Errors
    /// [`ProtocolError::Checksum`] when it does not fit.
    pub fn check_sum(frame: &[u8]) -> Result<(), ProtocolError> {
        let (head, _) =
            frame.split_first_chunk::<HEADER_BYTES>().ok_or(ProtocolError::Malformed)?;
        let found = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
        if found == frame_crc32c(frame) { Ok(()) } else { Err(ProtocolError::Checksum) }
    }
}

/// The checksum of a frame with the checksum field as 0.
fn frame_crc32c(frame: &[u8]) -> u32 {
    const FIELD: Range<usize> = HEADER_CRC_OFFSET..HEADER_CRC_OFFSET + 4;
    // Copied, because each separate piece costs as much as summing 200 bytes at once.
    let mut copy = [0; SMALL_FRAME_BYTES];
    let (first, rest) = frame.split_at(frame.len().min(SMALL_FRAME_BYTES));
    let first_copy = &mut copy[..first.len()];
    first_copy.copy_from_slice(first);
    first_copy[FIELD].fill(0);
    crc32c_of_two(first_copy, rest)
}

fn op_of(head: &[u8; HEADER_BYTES]) -> Result<Op, DecodeError> {
    let number = u16::from_le_bytes([head[6], head[7]]);
    Op::from_number(number).ok_or(DecodeError::ProtocolError(ProtocolError::UnknownOp))
}

impl Request {
    /// A request with every number 0, to be completed.
    #[must_use]
    pub const fn of(op: Op) -> Self {
        Self {
            op,
            lane_hint: LaneId(0),
            shard: ShardId::meta(0),
            slot: 0,
            flags: 0,
            session: SessionId(0),
            xid: Xid(0),
            ack_xid: Xid(0),
            sack: 0,
            conn_epoch: 0,
            layout: None,
            transno: Transno(0),
            trace_id: 0,
            map_epoch: MapEpoch(0),
        }
    }

    fn put(&self, to: &mut Writer<'_>) {
        to.write(&self.lane_hint);
        to.write(&self.shard);
        to.write(&self.slot);
        to.write(&self.flags);
        to.write(&self.session);
        to.write(&self.xid);
        to.write(&self.ack_xid);
        to.write(&self.sack);
        to.write(&self.conn_epoch);
        to.write(&self.layout.map_or(0, Layout::to_bits));
        to.write(&self.transno);
        to.write(&self.trace_id);
        to.write(&self.map_epoch);
    }
}

impl Reply {
    /// A successful reply with every number 0, to be completed.
    #[must_use]
    pub const fn of(op: Op) -> Self {
        Self {
            op,
            lane_hint: LaneId(0),
            shard: ShardId::meta(0),
            slot: 0,
            flags: 0,
            session: SessionId(0),
            xid: Xid(0),
            transno: Transno(0),
            committed: Transno(0),
            status: Status::Ok,
            credits: 0,
            retry_after_ms: 0,
            boot_id: 0,
            trace_id: 0,
            op_time_ns: 0,
        }
    }

    fn put(&self, to: &mut Writer<'_>, unchecked: bool) {
        let unchecked_flag = if unchecked { reply_flag::BULK_UNCHECKED } else { 0 };
        to.write(&self.lane_hint);
        to.write(&self.shard);
        to.write(&self.slot);
        to.write(&(self.flags & !reply_flag::BULK_UNCHECKED | unchecked_flag));
        to.write(&self.session);
        to.write(&self.xid);
        to.write(&self.transno);
        to.write(&self.committed);
        to.write(&self.status);
        to.write(&self.credits);
        to.write(&self.retry_after_ms);
        to.write(&self.boot_id);
        to.write(&self.trace_id);
        to.write(&self.op_time_ns);
    }
}
