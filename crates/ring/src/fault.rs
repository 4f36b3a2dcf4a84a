//! Fault injection, for tests.

use interface::Errno;
use std::sync::Arc;

/// Points at which a test may inject a failure or end the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultPoint {
    /// Writing a batch to the log and making it durable.
    LogWrite,
    /// Report a batch as durable without writing it.
    LogFreeze,
    /// Neither write nor complete a batch.
    LogStall,
    /// Hold a batch back for 0.3 s.
    LogSlow,
    /// A batch is durable and not yet reported.
    LogWritten,
    /// Reserving space for the log.
    LogReserve,
    /// Opening or making an object.
    ObjectOpen,
    /// Reading an object.
    ObjectRead,
    /// Writing an object.
    ObjectWrite,
    /// Setting an object's size.
    ObjectTruncate,
    /// Changing the allocation of a range of an object.
    ObjectAllocate,
    /// Making an object durable.
    ObjectSync,
    /// Removing an object.
    ObjectRemove,
    /// The reply to a request with at-most-once effect is about to be sent.
    Reply,
    /// Such a reply was sent.
    Replied,
    /// A point that the core names.
    Place(interface::ProtocolPoint),
}

impl FaultPoint {
    /// Every point, with its name on the command line.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("log-write", Self::LogWrite),
        ("log-freeze", Self::LogFreeze),
        ("log-stall", Self::LogStall),
        ("log-slow", Self::LogSlow),
        ("log-written", Self::LogWritten),
        ("log-reserve", Self::LogReserve),
        ("object-open", Self::ObjectOpen),
        ("object-read", Self::ObjectRead),
        ("object-write", Self::ObjectWrite),
        ("object-truncate", Self::ObjectTruncate),
        ("object-allocate", Self::ObjectAllocate),
        ("object-sync", Self::ObjectSync),
        ("object-remove", Self::ObjectRemove),
        ("reply", Self::Reply),
        ("replied", Self::Replied),
        ("recovery-begun", Self::Place(interface::ProtocolPoint::RecoveryBegun)),
        ("replayed", Self::Place(interface::ProtocolPoint::Replayed)),
        ("replay-done", Self::Place(interface::ProtocolPoint::ReplayDone)),
        ("replays-durable", Self::Place(interface::ProtocolPoint::ReplaysDurable)),
        ("recovery-ended", Self::Place(interface::ProtocolPoint::RecoveryEnded)),
        ("txn-begun", Self::Place(interface::ProtocolPoint::TxnBegun)),
        ("txn-prepared", Self::Place(interface::ProtocolPoint::TxnPrepared)),
        ("txn-deciding", Self::Place(interface::ProtocolPoint::TxnDeciding)),
        ("txn-decided", Self::Place(interface::ProtocolPoint::TxnDecided)),
        ("txn-done", Self::Place(interface::ProtocolPoint::TxnDone)),
        ("txn-forgotten", Self::Place(interface::ProtocolPoint::TxnForgotten)),
    ];
}

/// How long a batch is held back at [`FaultPoint::LogSlow`].
pub(crate) const LOG_SLOW_MS: u64 = 300;

/// Called at each such point. A returned errno makes an operation fail with it; at the log points
/// it freezes, stalls or slows the batch.
pub type Fault = Arc<dyn Fn(FaultPoint) -> Option<Errno> + Send + Sync>;
