//! Rates of a server's operations per second.

/// What the server did within a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rates {
    /// Lanes of the server.
    pub(crate) lane_count: usize,
    /// Requests answered.
    pub(crate) requests_per_s: f64,
    /// Of them, changes.
    pub(crate) changes_per_s: f64,
    /// Bytes read.
    pub(crate) read_bytes_per_s: f64,
    /// Bytes written.
    pub(crate) written_bytes_per_s: f64,
    /// Inodes.
    pub(crate) inode_count: u64,
    /// Processor time, in percent of one core.
    pub(crate) cpu_percent: f64,
}

impl Rates {
    /// Those of two servers together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            lane_count: self.lane_count + other.lane_count,
            requests_per_s: self.requests_per_s + other.requests_per_s,
            changes_per_s: self.changes_per_s + other.changes_per_s,
            read_bytes_per_s: self.read_bytes_per_s + other.read_bytes_per_s,
            written_bytes_per_s: self.written_bytes_per_s + other.written_bytes_per_s,
            inode_count: self.inode_count.saturating_add(other.inode_count),
            cpu_percent: self.cpu_percent + other.cpu_percent,
        }
    }
}
