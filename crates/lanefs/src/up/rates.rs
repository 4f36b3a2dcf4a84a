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
