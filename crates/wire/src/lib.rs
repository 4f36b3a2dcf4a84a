//! `wire`: the bytes that travel between a client lane and a server lane.
//!
//! It owns the op table, the frame layout, every message body and the proof of the shared secret.
//! It leaves sockets, sessions and the meaning of operations to others. Invariant: what decodes is
//! valid, malformed bytes are a [`ProtocolError`], and encoding a decoded message gives the same
//! bytes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attr;
mod certificate_identity;
mod checksum;
mod codec;
mod contents;
pub mod counters;
mod credential;
mod export;
mod file_lock;
mod find;
mod frame;
mod frame_kind;
mod generation;
mod handshake;
mod id;
mod inspect;
mod layout;
mod lease;
mod list;
mod map;
mod message;
mod name;
mod op;
mod pattern;
mod peer;
mod proof;
mod question;
mod ranges;
mod received;
mod reply_body;
mod rules;
mod secrets;
mod shard_counts;
mod stats;
mod status;
pub mod traces;

pub use attr::{Attr, FileKind, PrivilegedBits, Times, Timestamp, attr_flag};
pub use certificate_identity::{CertificateIdentity, GRANTS_EXPORT, GRANTS_STORE};
pub use checksum::{Crc32c, crc32c, crc32c_combined, crc32c_shift, crc32c_shifted};
pub use codec::{Bytes, DecodeError, Fixed, List, Reader, Wire, Writer};
pub use contents::*;
pub use credential::{Credential, KeyId};
pub use export::*;
pub use file_lock::{
    ByteRange, CancelLock, GetLock, Grant, LOCK_END_MAX, LockCancelled, LockFound, LockKind,
    LockRow, LockSet, LockType, Relock, SetLock,
};
pub use find::{Find, Found, FoundEntry, Kinds, Predicate, Verdict};
pub use frame::{
    BODY_BYTES_MAX, HANDSHAKE_BODY_BYTES_MAX, HEADER_BYTES, Header, Lengths, Reply, Request,
    WELCOME_BODY_BYTES_MAX, reply_flag, request_flag,
};
pub use frame_kind::FrameKind;
pub use generation::{Generation, ShardRange, ShardSet};
pub use handshake::{
    Challenge, Hello, LABEL_BYTES_MAX, Proof, Purpose, Refusal, RefusalReason, SLOT_COUNT_MIN,
    Welcome, welcome_flag,
};
pub use id::{
    ClientUuid, FsUuid, HandleId, InodeNo, LaneId, LeaseNo, MapEpoch, ProtocolError, RecallNo,
    ServerId, SessionId, ShardId, Term, Transno, Xid,
};
pub use inspect::{INSPECTED_BYTES_MAX, Inspect, Inspected, Inspection};
pub use layout::{Layout, StripePart};
pub use lease::{
    BEHIND_BYTES_MAX, Claim, CreateBehind, LeaseGrant, LeaseKey, NamedInodes, NewFiles, Recall,
    RecallAck, lease_flag,
};
pub use list::{FILE_BYTES_MAX, ListRead, PIECE_COUNT_MAX, Piece, Pieces, ReadList, WriteList};
pub use map::{Map, Place, ServerAddress, ServerRow, ShardRun};
pub use message::*;
pub use name::{
    Caller, Groups, NAME_BYTES_MAX, Name, SYMLINK_BYTES_MAX, XATTR_NAME_BYTES_MAX,
    XATTR_VALUE_BYTES_MAX,
};
pub use op::{
    BULK_BYTES_MAX, Changes, ContentsAccess, DuringRecovery, Executor, Grants, Op, OpRow,
    ReplyBody, Retry, Route, SpaceUse,
};
pub use pattern::{PATTERN_BYTES_MAX, Pattern};
pub use peer::{PeerChallenge, PeerHello, PeerLane, PeerProof};
pub use proof::{Channel, Nonce, PLAIN, Proven, Secret};
pub use question::{BadQuestion, INODE_COUNT_MAX, Question};
pub use ranges::Ranges;
pub use received::{LANES_TOLD_MAX, LaneAcks, Received};
pub use reply_body::ReplyParts;
pub use rules::{Rule, Rules};
pub use secrets::Secrets;
pub use shard_counts::ShardCounts;
pub use stats::{LeaseCounts, ObjectCounts, PeerCounts, RecoveryCounts, ReplyGatingCounts, Stats};
pub use status::Status;
