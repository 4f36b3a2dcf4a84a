//! When a connection's patience ends: that of a closing one, and that of one not admitted yet.
//!
//! Invariant: who was closed or admitted in time costs no turn.

use super::Conns;
use crate::tools::Tools;
use door::{CloseReason, ConnId, Errno, Mono};

const TIMED_OUT: Errno = Errno(110);

impl Conns {
    /// From here on it has to be admitted in time.
    pub(super) fn greet_until(&mut self, index: u32, now: Mono) {
        let id = self.conn(index).id;
        self.greeting.push_back((now.after_ms(self.limits.greeting_ms_max), id));
    }

    /// The next time at which something here is due.
    pub(crate) fn deadline(&mut self) -> Option<Mono> {
        // Those that were closed or admitted in time need no turn.
        while self.closing.front().is_some_and(|(_, id)| self.index_of(*id).is_none()) {
            self.closing.pop_front();
        }
        while self.greeting.front().is_some_and(|(_, id)| !self.is_greeting(*id)) {
            self.greeting.pop_front();
        }
        let closing = self.closing.front().map(|(at, _)| *at);
        let greeting = self.greeting.front().map(|(at, _)| *at);
        [closing, greeting].into_iter().flatten().min()
    }

    /// Ends what has taken too long.
    pub(crate) fn expire(&mut self, tools: &mut Tools) {
        let now = tools.now.mono;
        while let Some((_, id)) = self.closing.pop_front_if(|(at, _)| *at <= now) {
            if let Some(index) = self.index_of(id) {
                self.kill(index, tools);
            }
        }
        while let Some((_, id)) = self.greeting.pop_front_if(|(at, _)| *at <= now) {
            if let Some(index) = self.open_index(id).filter(|_| self.is_greeting(id)) {
                self.fail(index, CloseReason::Failed(TIMED_OUT), tools);
            }
        }
    }

    /// Whether a connection is there and not admitted yet.
    fn is_greeting(&self, id: ConnId) -> bool {
        let conn = self.open_index(id).and_then(|index| self.slots[index as usize].as_ref());
        conn.is_some_and(|conn| !conn.admitted)
    }
}
