//! `Call`: what a decision of a server needs of etcd, and its answer. The state machines of a server
//! ([`Start`](crate::Start), [`Keep`](crate::Keep)) return calls and are given answers, so that
//! threads or a simulator perform them.

use crate::{Cluster, LeaseId, RegistryError, Write};

/// How long a server counts as alive that says nothing, in seconds.
pub const TTL_S: u32 = 5;

/// A call of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// All entries of the file system.
    Read,
    /// A lease of [`TTL_S`].
    Grant,
    /// A transaction.
    Swap(Vec<Write>),
    /// A lease is to last for its whole time from now.
    Keep(LeaseId),
}

/// What etcd has answered to a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The entries.
    Entries(Cluster),
    /// The lease has begun.
    Granted(LeaseId),
    /// Whether the transaction was made.
    Swapped(bool),
    /// Whether the lease has not ended.
    Kept(bool),
}

/// What a state machine does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next<T> {
    /// It needs the answer to this call.
    Call(Call),
    /// It goes on in a moment, without an answer.
    Pause,
    /// It is done.
    Done(T),
}

/// An answer that is none to the call that was made.
pub(crate) fn not_asked<T>() -> Result<T, RegistryError> {
    Err(RegistryError::Malformed("it answers what was not asked".to_owned()))
}
