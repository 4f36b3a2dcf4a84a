//! `Record`: one transaction of one shard: its changes, pre-versions and reply record, atomically
//! (docs/protocol.md §5, I1).
//!
//! ```text
//! offset bytes field
//!      0     4 record_bytes, all of it
//!      4     1 redo version 6
//!      5     1 origin: 0 internal, 1 session
//!      6     2 shard
//!      8     8 lsn
//!     16     8 transno
//!     24     4 term, not 0
//!     28     1 pre-version count (0 ..= 5), then 8 bytes each
//!      then, of a session: session 8, slot 2, xid 8, op 2, status 2, reply (4 + n),
//!            opened 1 [client 16, client_lane 2, host_id 16, host_boot_id 16]
//!      then  changes (4 + n)
//! ```

use crate::{Fault, field, to_u32, to_u64};
use alloc::vec::Vec;
use wire::{
    Bytes, ClientUuid, DecodeError, LaneId, Op, Reader, SessionId, ShardId, Status, Term, Transno,
    Wire, Writer, Xid,
};

/// Longest reply body a record keeps.
pub const REPLY_BYTES_MAX: usize = 4096;

const REDO_VERSION: u8 = 6;
const WHAT: &str = "a damaged record";

/// Versions of the touched objects before the transaction, at most five (docs/protocol.md §10).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PreVersions {
    versions: [Transno; Self::COUNT_MAX],
    version_count: u8,
}

impl PreVersions {
    /// Most versions in a record.
    pub const COUNT_MAX: usize = 5;

    /// No versions.
    #[must_use]
    pub const fn new() -> Self {
        Self { versions: [Transno(0); Self::COUNT_MAX], version_count: 0 }
    }

    /// Adds a version; beyond five they are dropped.
    pub const fn push(&mut self, version: Transno) {
        let index = self.version_count as usize;
        if index < Self::COUNT_MAX {
            self.versions[index] = version;
            self.version_count += 1;
        }
    }

    /// In the order they were added.
    #[must_use]
    pub fn as_slice(&self) -> &[Transno] {
        &self.versions[..usize::from(self.version_count)]
    }
}

/// The identity of a session: in the first record of a session at a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionRow {
    /// The mount.
    pub client: ClientUuid,
    /// The lane of the mount.
    pub client_lane: LaneId,
    /// Its host.
    pub host_id: [u8; 16],
    /// A server-side mark of its host's boot, not the host's own id.
    pub host_boot_id: [u8; 16],
}

impl Wire<'_> for SessionRow {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.client);
        to.write(&self.client_lane);
        to.write(&self.host_id);
        to.write(&self.host_boot_id);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            client: from.read()?,
            client_lane: from.read()?,
            host_id: from.read()?,
            host_boot_id: from.read()?,
        })
    }
}

/// The origin of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin<'a> {
    /// The server itself.
    Internal,
    /// A client's request, with the slot's reply record.
    Session {
        /// The session.
        session: SessionId,
        /// Its slot.
        slot: u16,
        /// The xid.
        xid: Xid,
        /// The operation.
        op: Op,
        /// The reply's status.
        status: Status,
        /// The reply's body, at most [`REPLY_BYTES_MAX`].
        reply: &'a [u8],
        /// In the session's first record at this shard.
        opened: Option<SessionRow>,
    },
}

/// One transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The shard.
    pub shard: ShardId,
    /// Its sequence number in the shard's log, from 1.
    pub lsn: u64,
    /// The term in which it was appended there.
    pub term: Term,
    /// Its transaction number, never 0.
    pub transno: Transno,
    /// The versions before it.
    pub pre_versions: PreVersions,
    /// Its origin.
    pub origin: Origin<'a>,
    /// Its changes, see [`crate::Changes`].
    pub changes: &'a [u8],
}

/// The end of a part of a shard's log. Logs that have equal positions are equal up to there: a term
/// is of one server and one start, which gives each LSN once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ShardPosition {
    /// The LSN of the last record, 0 before the first.
    pub lsn: u64,
    /// The term of that record, 0 before the first.
    pub term: Term,
}

impl ShardPosition {
    /// Whether a record of the shard comes next; else it is part of the log up to here.
    ///
    /// # Errors
    /// [`Fault`] when records in between are missing, the term falls, or the record at this
    /// position is another one.
    pub fn is_next(self, record: &Record<'_>) -> Result<bool, Fault> {
        let other_term = |what| Fault::new(what, 0).numbers(self.term.0, record.term.0);
        if record.lsn < self.lsn {
            return Ok(false);
        }
        if record.lsn == self.lsn {
            let same = record.term == self.term;
            return if same { Ok(false) } else { Err(other_term("two records in one place")) };
        }
        if record.lsn != self.lsn + 1 {
            let fault = Fault::new("a record out of its shard's order", 0);
            return Err(fault.numbers(self.lsn + 1, record.lsn));
        }
        if record.term < self.term {
            return Err(other_term("a record of an earlier term behind a later one"));
        }
        Ok(true)
    }
}

impl<'a> Record<'a> {
    /// Where it ends its shard's log.
    #[must_use]
    pub const fn position(&self) -> ShardPosition {
        ShardPosition { lsn: self.lsn, term: self.term }
    }

    /// Fewest bytes a record can have.
    pub(crate) const BYTES_MIN: usize = 33;

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.transno.0 > 0, "a request without changes is not recorded");
        assert!(self.term.0 > 0, "a record is made in a term");
        let start = out.len();
        let mut to = Writer::new(out);
        to.write(&0_u32); // record_bytes, known below
        to.write(&REDO_VERSION);
        to.write(&u8::from(matches!(self.origin, Origin::Session { .. })));
        to.write(&self.shard.0);
        to.write(&self.lsn);
        to.write(&self.transno);
        to.write(&self.term);
        to.write(&self.pre_versions.version_count);
        for version in self.pre_versions.as_slice() {
            to.write(version);
        }
        match &self.origin {
            Origin::Internal => {}
            Origin::Session { session, slot, xid, op, status, reply, opened } => {
                assert!(reply.len() <= REPLY_BYTES_MAX, "a reply record is small");
                to.write(session);
                to.write(slot);
                to.write(xid);
                to.write(&op.number());
                to.write(status);
                to.write(&Bytes(reply));
                to.write(opened);
            }
        }
        to.write(&Bytes(self.changes));
        let record_bytes = to_u32(out.len() - start);
        out[start..start + 4].copy_from_slice(&record_bytes.to_le_bytes());
    }

    /// Decodes the record at the front of `bytes`; returns the rest too. Fault offsets count from
    /// the front of `bytes`.
    ///
    /// # Errors
    /// [`Fault`] when that is no record.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Fault> {
        let length = bytes.first_chunk::<4>().ok_or_else(|| Fault::new("a record cut short", 0))?;
        let record_bytes = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (record, rest) = bytes.split_at_checked(record_bytes).ok_or_else(|| {
            Fault::new("a record cut short", 0).numbers(to_u64(record_bytes), to_u64(bytes.len()))
        })?;
        let body = record.get(4..).ok_or_else(|| Fault::new("a record cut short", 0))?;
        let mut from = Reader::new(body);
        let record = Self::read(&mut from)?;
        if from.left() > 0 {
            let end = to_u64(record_bytes - from.left());
            return Err(Fault::new("a record longer than its fields", end));
        }
        Ok((record, rest))
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let version: u8 = field(from, WHAT, 4)?;
        if version != REDO_VERSION {
            return Err(
                Fault::new("a record of an unknown redo version", 4).numbers(REDO_VERSION, version)
            );
        }
        let origin: bool = field(from, WHAT, 5)?;
        let shard = ShardId(field(from, WHAT, 6)?);
        let lsn = field(from, WHAT, 8)?;
        let transno: Transno = field(from, WHAT, 16)?;
        if transno.0 == 0 {
            return Err(Fault::new("a record without a transaction number", 16));
        }
        let term: Term = field(from, WHAT, 24)?;
        if term.0 == 0 {
            return Err(Fault::new("a record without a term", 24));
        }
        let pre_versions = read_versions(from)?;
        let origin = if origin { read_session(from)? } else { Origin::Internal };
        let changes: Bytes<'a> = field(from, WHAT, 29)?;
        Ok(Self { shard, lsn, term, transno, pre_versions, origin, changes: changes.0 })
    }
}

fn read_versions(from: &mut Reader<'_>) -> Result<PreVersions, Fault> {
    let version_count: u8 = field(from, WHAT, 28)?;
    if usize::from(version_count) > PreVersions::COUNT_MAX {
        return Err(Fault::new("too many pre-versions", 28)
            .numbers(to_u64(PreVersions::COUNT_MAX), version_count));
    }
    let mut pre_versions = PreVersions::new();
    for _ in 0..version_count {
        pre_versions.push(field(from, WHAT, 29)?);
    }
    Ok(pre_versions)
}

fn read_session<'a>(from: &mut Reader<'a>) -> Result<Origin<'a>, Fault> {
    let session = field(from, WHAT, 29)?;
    let slot = field(from, WHAT, 29)?;
    let xid = field(from, WHAT, 29)?;
    let op_number: u16 = field(from, WHAT, 29)?;
    let op = Op::from_number(op_number)
        .ok_or_else(|| Fault::new("a record of an unknown op", 29).numbers(0_u64, op_number))?;
    let status = field(from, WHAT, 29)?;
    let reply: Bytes<'a> = field(from, WHAT, 29)?;
    if reply.0.len() > REPLY_BYTES_MAX {
        return Err(Fault::new("a reply record beyond its limit", 29)
            .numbers(to_u64(REPLY_BYTES_MAX), to_u64(reply.0.len())));
    }
    let opened = field(from, WHAT, 29)?;
    Ok(Origin::Session { session, slot, xid, op, status, reply: reply.0, opened })
}
