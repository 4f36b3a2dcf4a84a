//! Locks on files (flock, fcntl): requests and replies.
//!
//! A lock belongs to an owner: a number chosen by the client's kernel, unique within that client. A
//! waiting lock occupies neither slot nor credit: the reply says that it waits, and the server
//! sends a [`Grant`] when the wait ends.

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::message::message;
use crate::{InodeNo, ProtocolError, Status};

/// The last byte of any file, 2^63 − 1: where a lock without an end ends.
pub const LOCK_END_MAX: u64 = i64::MAX.cast_unsigned();

/// The kind of a lock. The two kinds do not conflict with each other, as on Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockKind {
    /// fcntl: of byte ranges; locking a held range again changes its type in place.
    Posix,
    /// flock: of the whole file; a held type is released before the other is acquired.
    Flock,
}

impl Wire<'_> for LockKind {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&matches!(self, Self::Flock));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(from)? { Self::Flock } else { Self::Posix })
    }
}

/// Shared or exclusive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockType {
    /// Shared: no other owner has a `Write` lock there.
    Read,
    /// Exclusive: no other owner has any lock there.
    Write,
}

impl LockType {
    /// Whether two owners cannot hold these on the same byte.
    #[must_use]
    pub const fn conflicts(self, other: Self) -> bool {
        matches!(self, Self::Write) || matches!(other, Self::Write)
    }
}

impl Wire<'_> for LockType {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&matches!(self, Self::Write));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(from)? { Self::Write } else { Self::Read })
    }
}

/// Bytes of a file, both ends included: 0 ..= [`LOCK_END_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// Every byte that a file can have.
    pub const ALL: Self = Self { start: 0, end: LOCK_END_MAX };

    /// `None` for one that is empty or ends beyond [`LOCK_END_MAX`].
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if start <= end && end <= LOCK_END_MAX { Some(Self { start, end }) } else { None }
    }

    /// Its first byte.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Its last byte.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Whether they share a byte.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// The bytes they share.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
}

impl Wire<'_> for ByteRange {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.start);
        to.write(&self.end);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (start, end) = (from.read()?, from.read()?);
        Self::new(start, end).ok_or(DecodeError::ProtocolError(ProtocolError::Malformed))
    }
}

message! {
    /// [`crate::Op::SetLock`]. Reply: [`LockSet`]; `Again` when another owner holds a conflicting
    /// lock and the request does not wait, `NoLocks` when there are too many.
    SetLock {
        /// The file.
        inode: InodeNo,
        /// The kind.
        kind: LockKind,
        /// The owner, within the client.
        owner: u64,
        /// The new lock type; `None` unlocks.
        lock: Option<LockType>,
        /// Which bytes; all for flock.
        range: ByteRange,
        /// The calling process, reported by [`GetLock`] within the same client.
        pid: u32,
        /// The client's number for this wait, the same in every resend; 0: does not wait.
        wait_id: u64,
        /// The place in the queue from an earlier reply; 0: none.
        place: u64,
    }
}
message! {
    /// Reply of [`SetLock`].
    LockSet {
        /// The lock is granted; otherwise it waits and a [`Grant`] will follow.
        granted: bool,
        /// The place in the queue while it waits. A request that repeats it keeps the place over a
        /// restart.
        place: u64,
    }
}
message! {
    /// [`crate::Op::GetLock`]. Reply: [`LockFound`].
    GetLock {
        /// The file.
        inode: InodeNo,
        /// The kind.
        kind: LockKind,
        /// The owner, within the client.
        owner: u64,
        /// The lock type wanted.
        lock: LockType,
        /// The range.
        range: ByteRange,
    }
}
message! {
    /// Reply of [`GetLock`].
    LockFound {
        /// The first conflicting lock.
        found: Option<LockRow>,
    }
}
message! {
    /// A held lock.
    LockRow {
        /// The lock type.
        lock: LockType,
        /// The range.
        range: ByteRange,
        /// The process that set it; 0 for another client's, whose process ids mean nothing here.
        pid: u32,
    }
}
message! {
    /// [`crate::Op::CancelLock`]. Reply: [`LockCancelled`].
    CancelLock {
        /// The file.
        inode: InodeNo,
        /// As in [`SetLock`].
        wait_id: u64,
    }
}
message! {
    /// Reply of [`CancelLock`].
    LockCancelled {
        /// The wait was cancelled. Otherwise it was granted or denied before, and its [`Grant`] was
        /// sent before this reply.
        waited: bool,
    }
}
message! {
    /// [`crate::Op::Relock`]: a lock that the client holds. A recovering server sets it again;
    /// otherwise `Again` reports that the server does not have it. No reply body.
    Relock {
        /// The file.
        inode: InodeNo,
        /// The kind.
        kind: LockKind,
        /// The owner, within the client.
        owner: u64,
        /// The lock type.
        lock: LockType,
        /// The range.
        range: ByteRange,
        /// The process that set it.
        pid: u32,
    }
}
message! {
    /// The body of a [`crate::FrameKind::Grant`].
    Grant {
        /// The file.
        inode: InodeNo,
        /// The wait that ended.
        wait_id: u64,
        /// `Ok`: the lock is set. `Deadlock` or another status: it is not set and no longer waits.
        status: Status,
    }
}
