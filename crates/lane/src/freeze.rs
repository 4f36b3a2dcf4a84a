//! A freeze: changes wait for a while, so that the disk holds the state of one moment. Reads go on.
//!
//! ```text
//! Freeze ─▶ on: new changes wait, running ones end
//! Freeze again ─▶ longer
//! Freeze 0, or the lease ends ─▶ off
//! ```
//! Invariants: the lease ends by itself, whatever happens to the administrator; once a lane has
//! reported that no change is left, it begins none, except for its part in another lane's
//! transaction.

use crate::Lane;
use crate::waiters::Cause;
use interface::{LogLevel, Mono, Turn};

/// The freeze.
#[derive(Default, Debug)]
pub(crate) struct Freezing {
    /// The end of the lease.
    pub(crate) until: Option<Mono>,
    /// When it began.
    since: Mono,
}

impl Freezing {
    /// Whether changes wait.
    pub(crate) const fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Begins it, or lets it last longer.
    pub(crate) fn begin(&mut self, now: Mono, lease_ms: u32) {
        if !self.is_on() {
            self.since = now;
        }
        self.until = Some(now.after_ms(lease_ms.into()));
    }
}

impl Lane {
    /// The number of changes that have begun and not ended.
    pub(crate) fn change_count(&self) -> usize {
        let across = usize::from(!self.txns.is_at_rest() || self.waiters.has_locked());
        let non_resident = usize::from(self.waiters.has_non_resident());
        let unrecorded = usize::from(self.waiters.has_unrecorded());
        let suspended = across + non_resident + unrecorded;
        self.waiters.answers.change_count() + self.destroying_count() + suspended
    }

    /// Ends the freeze when its lease is over.
    pub(crate) fn settle_freeze(&mut self, turn: &mut Turn<'_>) {
        if self.freeze.until.is_some_and(|until| until <= turn.now.mono) {
            self.log(
                turn,
                LogLevel::Warning,
                "a freeze was not ended by its administrator; changes go on",
            );
            self.thaw(turn);
        }
    }

    /// Executes the deferred requests in the order of their arrival.
    pub(crate) fn thaw(&mut self, turn: &mut Turn<'_>) {
        self.freeze.until = None;
        let behind_until = self.leases.behind_until(turn.now.mono);
        self.exports.prolong_behind(self.freeze.since, behind_until);
        self.run_received(turn, &Cause::Freeze);
    }
}
