//! What clients have done.

use crate::number::number;

/// Operations and bytes, and the time that they took.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Done {
    pub(super) op_count: u64,
    pub(super) moved_bytes: u64,
    pub(super) seconds: f64,
}

impl Done {
    /// Operations a second, or bytes.
    pub(super) fn rate(self, of_operations: bool) -> f64 {
        number(if of_operations { self.op_count } else { self.moved_bytes }) / self.seconds
    }
}
