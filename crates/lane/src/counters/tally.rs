//! Requests that are counted together.

use wire::counters::StatusClass;

/// Requests of some kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) request_count: u64,
    /// By [`StatusClass`].
    pub(crate) error_counts: [u64; StatusClass::ALL.len()],
    pub(crate) in_bytes: u64,
    pub(crate) out_bytes: u64,
    /// From their arrivals to their replies.
    pub(crate) time_us: u64,
}

impl Tally {
    /// A reply leaves.
    pub(super) fn count(&mut self, class: Option<StatusClass>, out_bytes: u64, time_us: u64) {
        self.request_count += 1;
        if let Some(class) = class {
            self.error_counts[class as usize] += 1;
        }
        self.out_bytes += out_bytes;
        self.time_us += time_us;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.request_count += other.request_count;
        for (mine, other) in self.error_counts.iter_mut().zip(other.error_counts) {
            *mine += other;
        }
        self.in_bytes += other.in_bytes;
        self.out_bytes += other.out_bytes;
        self.time_us += other.time_us;
    }
}
