//! Counters of a ring.

use interface::SendTimes;

/// Counters of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Turns taken.
    pub turn_count: u64,
    /// Calls that wait for or poll the kernel: io_uring_enter, or epoll_pwait2.
    pub enter_count: u64,
    /// All other system calls of the lane's thread in its turns, without those of the allocator and
    /// of [`crate::Config::say`].
    pub syscall_count: u64,
    /// Clock readings, of both clocks.
    pub clock_read_count: u64,
    /// Times that the lane busy-polled before a sleep.
    pub spin_count: u64,
    /// Of them, those that found work.
    pub spin_hit_count: u64,
    /// The longest turn that delayed another: from its clock reading to the next one, without a
    /// sleep in between.
    pub turn_ns_max: u64,
    /// The sum of such turns.
    pub backlog_ns: u64,
    /// Events passed to the core.
    pub event_count: u64,
    /// Peer lanes woken.
    pub wake_count: u64,
    /// Messages read from peer lanes.
    pub message_in_count: u64,
    /// Messages sent to peer lanes.
    pub message_out_count: u64,
    /// Frames received.
    pub frame_in_count: u64,
    /// Frames queued for sending.
    pub frame_out_count: u64,
    /// Bytes received from sockets.
    pub in_bytes: u64,
    /// Bytes sent to sockets.
    pub out_bytes: u64,
    /// Receives.
    pub recv_count: u64,
    /// Sends and gathered sends.
    pub send_count: u64,
    /// How long sends took; without those of file ranges that the kernel took at once.
    pub send_times: SendTimes,
    /// sendfile calls.
    pub sendfile_count: u64,
    /// Bytes sent by sendfile; included in [`Self::out_bytes`].
    pub sendfile_bytes: u64,
    /// Connections closed for a protocol error.
    pub protocol_error_count: u64,
    /// Connections refused at the connection limit.
    pub refused_count: u64,
    /// Connections closed before admission to admit others.
    pub shed_count: u64,
    /// Requests from the kernel.
    pub kernel_request_count: u64,
    /// Object reads and writes that ran on another thread of this process.
    pub object_handed_count: u64,
    /// Threads started for such work: pool threads, one per operation, or notification threads.
    /// Threads of glibc and the kernel are not counted.
    pub object_thread_count: u64,
    /// Object reads and writes that bypassed the page cache.
    pub object_direct_count: u64,
    /// Maximum of concurrent object reads and writes.
    pub object_under_way_max: u32,
    /// The same of a single object.
    pub object_under_way_one_max: u32,
}
