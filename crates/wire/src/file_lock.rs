//! Locks on files: what flock and fcntl ask for, and what the server says to that.
//!
//! A lock belongs to an owner: a number that the client's kernel chose, within that client. A lock
//! that is waited for costs neither slot nor credit: the reply says that it waits, and a [`Grant`]
//! comes unasked when it does not any more.

use crate::codec::{Flaw, Reader, Wire, Writer};
use crate::message::message;
use crate::{InodeNo, ProtocolError, Status};

/// The last byte of any file, 2^63 − 1: where a lock without an end ends.
pub const LOCK_END_MAX: u64 = i64::MAX.cast_unsigned();

/// Who made the lock: the two kinds know nothing of each other, as on Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockKind {
    /// fcntl: of ranges; asking again for bytes one has changes them in place.
    Posix,
    /// flock: of the whole file; one type is given up before the other is asked for.
    Flock,
}

impl Wire<'_> for LockKind {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&matches!(self, Self::Flock));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Ok(if bool::decode(from)? { Self::Flock } else { Self::Posix })
    }
}

/// What a lock keeps others from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockType {
    /// Shared: nobody else has a `Write` there.
    Read,
    /// Exclusive: nobody else has any there.
    Write,
}

impl LockType {
    /// Whether two owners cannot have these on the same byte.
    #[must_use]
    pub const fn conflicts(self, other: Self) -> bool {
        matches!(self, Self::Write) || matches!(other, Self::Write)
    }
}

impl Wire<'_> for LockType {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&matches!(self, Self::Write));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
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
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        let (start, end) = (from.read()?, from.read()?);
        Self::new(start, end).ok_or(Flaw::ProtocolError(ProtocolError::Malformed))
    }
}

message! {
    /// [`crate::Op::SetLock`]. Reply: [`LockSet`]; `Again` when another has it and it is not to be
    /// waited for, `NoLocks` when there are too many.
    SetLock {
        /// The file.
        inode: InodeNo,
        /// Of which kind.
        kind: LockKind,
        /// Whose, within the client.
        owner: u64,
        /// What it shall be; `None` gives it up.
        lock: Option<LockType>,
        /// Which bytes; all for flock.
        range: ByteRange,
        /// The process that asks, for [`GetLock`] within the same client.
        pid: u32,
        /// The client's number of this wait, the same however often it is asked; 0: does not wait.
        wait_id: u64,
        /// The place in the queue that it had before; 0: none.
        place: u64,
    }
}
message! {
    /// Reply of [`SetLock`].
    LockSet {
        /// It is done; else it waits and a [`Grant`] will come.
        granted: bool,
        /// The place in the queue while it waits. Survives a restart when it is asked with again.
        place: u64,
    }
}
message! {
    /// [`crate::Op::GetLock`]. Reply: [`LockFound`].
    GetLock {
        /// The file.
        inode: InodeNo,
        /// Of which kind.
        kind: LockKind,
        /// Who asks, within the client.
        owner: u64,
        /// What he would like to have.
        lock: LockType,
        /// Where.
        range: ByteRange,
    }
}
message! {
    /// Reply of [`GetLock`].
    LockFound {
        /// The first that is in the way.
        found: Option<LockRow>,
    }
}
message! {
    /// A lock that somebody has.
    LockRow {
        /// What it is.
        lock: LockType,
        /// Where.
        range: ByteRange,
        /// The process that made it; 0 when it is another client's: its numbers mean nothing here.
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
        /// It waited and does not any more. Else it was granted or refused before, and the [`Grant`]
        /// left before this.
        waited: bool,
    }
}
message! {
    /// [`crate::Op::Relock`]: a lock that this client has. While the server recovers it is set again;
    /// otherwise `Again` says that it is not there any more. No reply body.
    Relock {
        /// The file.
        inode: InodeNo,
        /// Of which kind.
        kind: LockKind,
        /// Whose, within the client.
        owner: u64,
        /// What it is.
        lock: LockType,
        /// Where.
        range: ByteRange,
        /// The process that made it.
        pid: u32,
    }
}
message! {
    /// The body of a [`crate::FrameKind::Grant`].
    Grant {
        /// The file.
        inode: InodeNo,
        /// The wait that is over.
        wait_id: u64,
        /// `Ok`: the lock is set. `Deadlock`, or another: it is not, and does not wait.
        status: Status,
    }
}
