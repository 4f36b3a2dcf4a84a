//! `Keep`: how a running server stays alive in its cluster: it keeps its lease, and begins another one if
//! that ended while etcd was away.
//!
//! ```text
//! Keeping ─ the lease has ended ─▶ Granting ─▶ Reviving ─ transaction made ─▶ kept
//!    └──── kept                                 ▲ │ another change came between
//!                                               └─┘
//! ```
//! A round that fails leaves the lease as it was: the next one begins anew. Invariant: only the
//! registry's word that the server was started again ends it ([`RegistryError::State`]).

use crate::call::not_asked;
use crate::{Answer, Call, LeaseId, Next, Own, RegistryError};

/// How often a running server says that it is alive.
pub const KEEP_MS: u64 = 1_000;

/// A running server's lease.
#[derive(Clone, Debug)]
pub struct Keep {
    own: Own,
    lease: LeaseId,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Keeping,
    Granting,
    Reviving(LeaseId),
}

impl Keep {
    /// The lease under which a start has begun.
    #[must_use]
    pub const fn new(own: Own, lease: LeaseId) -> Self {
        Self { own, lease, state: State::Keeping }
    }

    /// The present lease.
    #[must_use]
    pub const fn lease(&self) -> LeaseId {
        self.lease
    }

    /// What is next. `answer`: to the last call; none where a round begins. It is done when a round is.
    ///
    /// # Errors
    /// [`RegistryError::State`] if the server may not go on, as of [`crate::Cluster::revive`].
    pub fn next(&mut self, answer: Option<Answer>) -> Result<Next<()>, RegistryError> {
        match (self.state, answer) {
            (_, None) => {
                self.state = State::Keeping;
                Ok(Next::Call(Call::Keep(self.lease)))
            }
            (State::Keeping, Some(Answer::Kept(true))) => Ok(Next::Done(())),
            (State::Keeping, Some(Answer::Kept(false))) => {
                self.state = State::Granting;
                Ok(Next::Call(Call::Grant))
            }
            (State::Granting, Some(Answer::Granted(lease))) => {
                self.state = State::Reviving(lease);
                Ok(Next::Call(Call::Read))
            }
            (State::Reviving(lease), Some(Answer::Entries(cluster))) => {
                let Own { server, alive } = &self.own;
                Ok(Next::Call(Call::Swap(cluster.revive(*server, alive, lease)?)))
            }
            (State::Reviving(_), Some(Answer::Swapped(false))) => Ok(Next::Call(Call::Read)),
            (State::Reviving(lease), Some(Answer::Swapped(true))) => {
                self.lease = lease;
                Ok(Next::Done(()))
            }
            (State::Keeping | State::Granting | State::Reviving(_), Some(_)) => not_asked(),
        }
    }
}
