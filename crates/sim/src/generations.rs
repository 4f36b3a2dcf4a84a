//! Which servers take what is new: one joins when clients work, and others are drained and come back.
//!
//! The registry has a server before its first start, so clients may hear of it while it is down, and it
//! may die before anybody has reached it.

use crate::simulation::Simulation;

impl Simulation {
    /// The last server joins, and then starts.
    pub(crate) fn join_server(&mut self) {
        let server = self.joined_count;
        if server == self.servers.len() || self.is_at_work(server) {
            return;
        }
        self.log_line(|| format!("server {server} joins"));
        self.begin_start(server);
        self.begin_join(server);
    }

    /// Some of the servers take what is new from now on.
    pub(crate) fn drain_some(&mut self) {
        if self.servers.len() > 1 {
            self.begin_drain();
        }
    }
}
