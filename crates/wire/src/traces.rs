//! Traces of requests: the reply of [`crate::Op::Traces`], and where the time of each one went.
//!
//! ```text
//! traces   version 2 | lane 2 | trace*
//! trace    bytes 4 | field*           wait, party: the same, within a field
//! field    tag 1 | bytes 2 | content  a number has 8 bytes; one that is 0 or empty is absent
//! ```
//! A reader skips fields that it does not know, and traces and waits of kinds that it does not know.
//! Invariant: what was decoded takes memory in proportion to the bytes that it came from.

mod calls;
mod codec;

#[cfg(test)]
mod tests;

pub use calls::{CallTrace, CallTraces, Exchange, Step, StepCause};

use crate::{ClientUuid, InodeNo, Op, SessionId, Status, Xid};
use alloc::string::String;
use alloc::vec::Vec;

/// Most bytes of a name in a trace.
pub const NAME_BYTES_SHOWN: usize = 96;
/// A trace id that is a multiple of this is a sample, at each process that a request passes.
pub const SAMPLE_INTERVAL: u64 = 64;

/// Whether requests of a trace id are kept even if they are fast.
#[must_use]
pub const fn is_sample(trace_id: u64) -> bool {
    trace_id != 0 && trace_id.is_multiple_of(SAMPLE_INTERVAL)
}

/// What a lane remembers of requests, and those that wait in it now.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Traces {
    /// The lane.
    pub lane: u16,
    /// The requests, in no order.
    pub requests: Vec<RequestTrace>,
}

/// Why a trace is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
#[repr(u8)]
pub enum Kept {
    /// The request has no reply yet.
    #[default]
    Waiting = 1,
    /// It took longer than the server's threshold.
    Slow = 2,
    /// It is one of many.
    Sample = 3,
}

/// Where the time of a request went. Times are in microseconds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RequestTrace {
    /// Why it is there.
    pub kept: Kept,
    /// The operation.
    pub op: Option<Op>,
    /// Who asked.
    pub client: Party,
    /// The export; empty for administration.
    pub export: String,
    /// The inode that it names first: for a name, the directory.
    pub inode: Option<InodeNo>,
    /// The name that it has, or as much as is kept of it.
    pub name: Vec<u8>,
    /// The session.
    pub session: SessionId,
    /// Its number in the session.
    pub xid: Xid,
    /// What joins it with what its client knows; 0: nothing.
    pub trace_id: u64,
    /// Since its arrival.
    pub age_us: u64,
    /// From its arrival to its execution, which begins anew after a wait.
    pub queue_us: u64,
    /// From there to its outcome.
    pub execution_us: u64,
    /// From there to its reply.
    pub commit_us: u64,
    /// From there until the kernel had taken the reply, where that took long.
    pub reply_us: u64,
    /// Of the time to the reply, what the last flush of the log took.
    pub flush_us: u64,
    /// The requests that the lane executed before it in the same turn.
    pub ahead_count: u64,
    /// The status of its reply.
    pub status: Option<Status>,
    /// What it has waited for, in order.
    pub waits: Vec<Wait>,
}

/// A wait of a request.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Wait {
    /// What for.
    pub cause: WaitCause,
    /// From the arrival of the request to its beginning.
    pub begun_us: u64,
    /// How long it took, or takes so far.
    pub took_us: u64,
    /// Whether it has not ended.
    pub is_now: bool,
    /// For whom, at its beginning; not all of many.
    pub whom: Vec<Party>,
}

/// A client, or a process of it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Party {
    /// The client's uuid.
    pub client: ClientUuid,
    /// The name of its host, if that is known.
    pub host: String,
    /// What it says that it is used for.
    pub job: String,
    /// A process at that host; 0: not known.
    pub pid: u32,
}

/// What a request waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
#[repr(u8)]
pub enum WaitCause {
    /// A batch of the log to be durable.
    #[default]
    Batch = 1,
    /// Written contents to be durable.
    Write = 2,
    /// A change over several shards to end.
    Lock = 3,
    /// Rows of the store to be read.
    Rows = 4,
    /// A check of its export.
    Containment = 5,
    /// Replays of clients after a restart.
    Reopening = 6,
    /// The end of recovery.
    Recovery = 7,
    /// The end of a freeze.
    Freeze = 8,
    /// Leases of other clients to end.
    Lease = 9,
    /// A lock on a file that others hold.
    FileLock = 10,
    /// The data shards and their disk.
    Contents = 11,
    /// Other shards, which take part in its change.
    Participants = 12,
    /// Its client, or the network, to take the reply.
    Reply = 13,
}

impl Kept {
    /// All.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Slow, Self::Sample];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Slow => "slow",
            Self::Sample => "sample",
        }
    }
}

impl WaitCause {
    /// All.
    pub const ALL: [Self; 13] = [
        Self::Batch,
        Self::Write,
        Self::Lock,
        Self::Rows,
        Self::Containment,
        Self::Reopening,
        Self::Recovery,
        Self::Freeze,
        Self::Lease,
        Self::FileLock,
        Self::Contents,
        Self::Participants,
        Self::Reply,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Write => "write",
            Self::Lock => "lock",
            Self::Rows => "rows",
            Self::Containment => "containment",
            Self::Reopening => "reopening",
            Self::Recovery => "recovery",
            Self::Freeze => "freeze",
            Self::Lease => "lease",
            Self::FileLock => "file_lock",
            Self::Contents => "contents",
            Self::Participants => "participants",
            Self::Reply => "reply",
        }
    }
}

impl RequestTrace {
    /// From its arrival until its reply was sent, or until now.
    #[must_use]
    pub const fn total_us(&self) -> u64 {
        let executed_us = self.queue_us.saturating_add(self.execution_us);
        executed_us.saturating_add(self.commit_us).saturating_add(self.reply_us)
    }
}
