//! The end of a lane: its core is done, and what it said last shall leave. So shall what peer lanes
//! say last on connections of which they have the requests and we the sockets.

use super::{LaneState, MESSAGE_RETRY_MS, Parts};
use crate::driver::Wait;
use std::io;

impl Parts {
    /// Lets what is queued leave, for a while.
    pub(super) fn send_last(&mut self) -> io::Result<()> {
        let deadline = self.tools.now.mono.after_ms(self.stop_ms_max);
        // Most has left when this returns, and the end of a send at once wakes nobody.
        self.tools.driver.enter(Wait::No)?;
        self.dispatch();
        self.flush();
        while self.conns.is_sending() || self.conns.has_proxied() || self.mailbox.is_waiting() {
            let left_ns = deadline.since_ns(self.clock.read().mono);
            if left_ns == 0 {
                break;
            }
            // Peer lanes do not tell when they have space again, and think that we are awake.
            let looks = self.mailbox.is_waiting() || self.conns.has_proxied();
            let retry_ns = if looks { MESSAGE_RETRY_MS * 1_000_000 } else { left_ns };
            let ready = self.conns.is_ready();
            let wait = if ready { Wait::No } else { Wait::Ns(retry_ns.min(left_ns)) };
            self.tools.driver.enter(wait)?;
            self.dispatch();
            self.flush();
        }
        self.life = LaneState::Over;
        Ok(())
    }
}
