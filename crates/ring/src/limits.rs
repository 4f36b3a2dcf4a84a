//! Limits of a ring.

/// Limits of everything that grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of connections. For one more the oldest connection that is not admitted is
    /// closed; if there is none, the new one is refused.
    pub conn_count_max: usize,
    /// Maximum of queued bytes that a connection has not read; beyond it the connection is closed
    /// as too slow.
    pub conn_out_bytes_max: usize,
    /// From so many queued bytes on, an accepted connection receives nothing more until it reads.
    pub conn_out_bytes_pause: usize,
    /// How long a connection may read nothing of what is queued for it, in milliseconds.
    pub stall_ms_max: u64,
    /// The same while a connection or a job waits for a buffer.
    pub starving_stall_ms_max: u64,
    /// How long an accepted connection may take until it is admitted, in milliseconds.
    pub handshake_ms_max: u64,
    /// How long a client may take to complete a frame, in milliseconds, plus a second for each 8
    /// KiB of it.
    pub frame_ms_max: u64,
    /// How long a closing connection may take to send what is queued, in milliseconds.
    pub close_ms_max: u64,
    /// How long a stopping lane may take to send what is queued, in milliseconds.
    pub stop_ms_max: u64,
    /// Maximum number of accepted connections that are not admitted; for one more the oldest of
    /// them is closed.
    pub handshake_count_max: usize,
    /// Maximum of buffer bytes in use; beyond it, requests for buffers wait.
    pub buffer_bytes_max: usize,
    /// Maximum number of open objects.
    pub open_object_count_max: usize,
}

impl Limits {
    /// What one connection may receive, or send from files, in a turn before other connections get
    /// theirs.
    pub const TURN_BYTES_MAX: usize = 1 << 20;
    /// Minimum receive rate of an unfinished frame per second: one of eight connections' share of a
    /// line of 64 KiB/s.
    pub const RATE_BYTES_MIN: u64 = 8 * 1024;
    /// Listen backlog, as far as the system allows it. A client that finds the backlog full gets no
    /// answer, and its system retries after a second.
    pub const BACKLOG_COUNT: i32 = 4096;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            conn_count_max: 16_384,
            conn_out_bytes_max: 128 << 20,
            conn_out_bytes_pause: 16 << 20,
            stall_ms_max: 10_000,
            starving_stall_ms_max: 1_000,
            frame_ms_max: 30_000,
            handshake_ms_max: 10_000,
            close_ms_max: 1_000,
            stop_ms_max: 1_000,
            handshake_count_max: 1024,
            buffer_bytes_max: 256 << 20,
            open_object_count_max: 1024,
        }
    }
}
