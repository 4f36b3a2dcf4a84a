//! What clients have done, and what it cost.

use crate::number::number;
use crate::usage::Usage;

/// Operations and bytes, and the time that they took.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Done {
    pub(super) op_count: u64,
    pub(super) moved_bytes: u64,
    pub(super) seconds: f64,
    /// Of all servers; nothing of bare streams.
    pub(super) servers: Usage,
}

impl Done {
    /// Operations a second, or bytes.
    pub(super) fn rate(self, of_operations: bool) -> f64 {
        self.amount(of_operations) / self.seconds
    }

    /// Operations, or bytes.
    fn amount(self, of_operations: bool) -> f64 {
        number(if of_operations { self.op_count } else { self.moved_bytes })
    }

    /// Processor time of the servers for an operation or a byte, nanoseconds.
    pub(super) fn cpu_ns(self, of_operations: bool) -> f64 {
        number(self.servers.cpu_ns) / self.amount(of_operations)
    }

    /// Context switches of the servers for an operation or a byte.
    pub(super) fn switches(self, of_operations: bool) -> f64 {
        number(self.servers.switch_count) / self.amount(of_operations)
    }
}
