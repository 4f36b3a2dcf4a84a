//! The clock of the test server.

use super::TestServer;
use interface::Event;

impl TestServer {
    /// Advances the clock; timers fire in time.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        let until = self.now.mono.after_ms(ms);
        while let Some(at) = self.hosts.iter().filter_map(|host| host.state.wake_at).min()
            && at <= until
        {
            self.sleep(at.since_ns(self.now.mono));
            for index in 0..self.hosts.len() {
                self.run_turns_only(index);
            }
        }
        self.sleep(until.since_ns(self.now.mono));
    }

    /// Advances the clock without any turn.
    pub(crate) fn sleep(&mut self, span_ns: u64) {
        self.now.mono.0 += span_ns;
        self.now.wall_ns += span_ns;
        for host in &mut self.hosts {
            if host.state.wake_at.is_some_and(|at| at <= self.now.mono) {
                host.state.wake_at = None;
                host.state.deliver(Event::Tick);
            }
        }
    }
}
