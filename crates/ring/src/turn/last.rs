//! The end of a lane: its core has stopped, and queued bytes are still sent. So are the last
//! replies of peer lanes on connections that this lane proxies.

use super::{LaneState, MESSAGE_RETRY_MS, Parts};
use crate::driver::Wait;
use std::io;

impl Parts {
    /// Sends what is queued, for a bounded time.
    pub(super) fn send_last(&mut self) -> io::Result<()> {
        let deadline = self.io.now.mono.after_ms(self.stop_ms_max);
        // Most bytes have left when this returns; the success of a send at once ends no wait.
        self.io.driver.enter(Wait::No)?;
        self.dispatch();
        self.flush();
        while self.conns.is_sending() || self.conns.has_proxied() || self.mailbox.is_waiting() {
            let left_ns = deadline.since_ns(self.clock.read().mono);
            if left_ns == 0 {
                break;
            }
            // Peer lanes do not report free queue space, and consider this lane awake.
            let must_poll = self.mailbox.is_waiting() || self.conns.has_proxied();
            let retry_ns = if must_poll { MESSAGE_RETRY_MS * 1_000_000 } else { left_ns };
            let ready = self.conns.is_ready() || self.io.driver.has_sends_at_once();
            let wait = if ready { Wait::No } else { Wait::Ns(retry_ns.min(left_ns)) };
            self.io.driver.enter(wait)?;
            self.dispatch();
            self.flush();
        }
        self.life = LaneState::Over;
        Ok(())
    }
}
