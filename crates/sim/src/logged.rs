//! Runs in which the log has bytes that objects lack (docs/protocol.md, 13.7).

use crate::control::WRITES;
use crate::plan::{MS, Plan, US};
use crate::work::Kind;
use wire::Rule;

impl Plan {
    /// Those in which a rule about such bytes matters.
    pub(crate) fn log_contents(&mut self, rule: Rule) {
        if rule == Rule::LogFirst {
            return self.log_first();
        }
        self.contend(&WRITES);
        (self.sync, self.speeds.log_ns) = (true, 100 * US);
        self.applies = rule == Rule::ContentsFlush;
        // Some writes are too long for the log.
        (self.logged_bytes_max, self.write_bytes_max) = (64, 300);
    }

    /// Files are made and written, and the rows take over what the log has of them before the objects
    /// have it.
    fn log_first(&mut self) {
        const MIX: [(Kind, u64); 4] =
            [(Kind::Create, 6), (Kind::Write, 8), (Kind::Sync, 2), (Kind::Close, 2)];
        self.contend(&MIX);
        (self.sync, self.applies) = (true, true);
        (self.speeds.log_ns, self.speeds.object_ns) = (100 * US, 5 * MS);
        self.speeds.restart_ns = 100 * US;
        (self.choice_count, self.name_count) = (4, 6);
        (self.call_count, self.faults_ns) = (60, 100 * MS);
        self.faults.server_crash_count = 4;
        self.logged_bytes_max = self.logged_bytes_max.max(64);
    }
}
