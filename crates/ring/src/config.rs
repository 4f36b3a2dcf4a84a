//! Configuration of a lane's ring: descriptors, limits, channels to other threads, and callbacks.

use crate::driver::{DriverChoice, IoEngine};
use crate::feed::Feed;
use crate::inspect::InspectQueue;
use crate::kernel::KernelChannel;
use crate::mailbox::Mailbox;
use interface::{Errno, LogLevel};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::{LaneId, Secrets};

/// This lane's log file.
#[derive(Debug)]
pub struct LogFile {
    /// Open for writing.
    pub file: OwnedFd,
    /// Offset of the next batch; what lies behind is overwritten.
    pub start_offset: u64,
    /// Space reserved ahead, in bytes.
    pub reserve_bytes: u64,
    /// Supplies further log files and connects to the row store; without it the log stays in this
    /// file and there are no rows.
    pub feed: Option<Feed>,
}

impl LogFile {
    /// Default of [`Self::reserve_bytes`].
    pub const RESERVE_BYTES: u64 = 16 << 20;
}

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

/// Which connections are under TLS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Sealing {
    /// Connections to an address that is not loopback. Both ends see the same address, unless
    /// something in between translates it.
    #[default]
    Auto,
    /// All.
    All,
    /// None.
    Nothing,
}

impl Sealing {
    /// Whether a connection to this server address is under TLS.
    #[must_use]
    pub fn takes(self, server: IpAddr) -> bool {
        match self {
            Self::Auto => !server.to_canonical().is_loopback(),
            Self::All => true,
            Self::Nothing => false,
        }
    }
}

/// Called for the TLS handshake of each accepted connection, so that renewed certificates take
/// effect from then on.
pub type ServerSeals = Arc<dyn Fn() -> seal::Server + Send + Sync>;
/// The same for outgoing connections.
pub type ClientSeals = Arc<dyn Fn() -> seal::Client + Send + Sync>;

/// Points at which a test may inject a failure or end the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultPoint {
    /// Writing a batch to the log and making it durable.
    LogWrite,
    /// Report a batch as durable without writing it.
    LogFreeze,
    /// Neither write nor complete a batch.
    LogStall,
    /// A batch is durable and not yet reported.
    LogWritten,
    /// Reserving space for the log.
    LogReserve,
    /// Opening or making an object.
    ObjectOpen,
    /// Reading an object.
    ObjectRead,
    /// Writing an object.
    ObjectWrite,
    /// Setting an object's size.
    ObjectTruncate,
    /// Changing the allocation of a range of an object.
    ObjectAllocate,
    /// Making an object durable.
    ObjectSync,
    /// Removing an object.
    ObjectRemove,
    /// The reply to a request with at-most-once effect is about to be sent.
    Reply,
    /// Such a reply was sent.
    Replied,
    /// A point that the core names.
    Place(interface::ProtocolPoint),
}

impl FaultPoint {
    /// Every point, with its name on the command line.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("log-write", Self::LogWrite),
        ("log-freeze", Self::LogFreeze),
        ("log-stall", Self::LogStall),
        ("log-written", Self::LogWritten),
        ("log-reserve", Self::LogReserve),
        ("object-open", Self::ObjectOpen),
        ("object-read", Self::ObjectRead),
        ("object-write", Self::ObjectWrite),
        ("object-truncate", Self::ObjectTruncate),
        ("object-allocate", Self::ObjectAllocate),
        ("object-sync", Self::ObjectSync),
        ("object-remove", Self::ObjectRemove),
        ("reply", Self::Reply),
        ("replied", Self::Replied),
        ("recovery-begun", Self::Place(interface::ProtocolPoint::RecoveryBegun)),
        ("replayed", Self::Place(interface::ProtocolPoint::Replayed)),
        ("replay-done", Self::Place(interface::ProtocolPoint::ReplayDone)),
        ("replays-durable", Self::Place(interface::ProtocolPoint::ReplaysDurable)),
        ("recovery-ended", Self::Place(interface::ProtocolPoint::RecoveryEnded)),
        ("txn-begun", Self::Place(interface::ProtocolPoint::TxnBegun)),
        ("txn-prepared", Self::Place(interface::ProtocolPoint::TxnPrepared)),
        ("txn-deciding", Self::Place(interface::ProtocolPoint::TxnDeciding)),
        ("txn-decided", Self::Place(interface::ProtocolPoint::TxnDecided)),
        ("txn-done", Self::Place(interface::ProtocolPoint::TxnDone)),
        ("txn-forgotten", Self::Place(interface::ProtocolPoint::TxnForgotten)),
    ];
}

/// Called at each such point. A returned errno makes an operation fail with it; at the log points
/// it freezes or stalls the batch.
pub type Fault = Arc<dyn Fn(FaultPoint) -> Option<Errno> + Send + Sync>;

/// Takes a log line for the operator.
pub type LogFn = Box<dyn FnMut(LogLevel, &str)>;

/// Reads the secret file; `None` if that fails.
pub type ReadSecrets = Arc<dyn Fn() -> Option<Secrets> + Send + Sync>;

/// Configuration of a ring.
pub struct Config {
    /// The lane's id.
    pub lane: LaneId,
    /// Its mailbox. Default: it is the only lane.
    pub mailbox: Option<Mailbox>,
    /// Bound and listening socket for accepting connections.
    pub listener: Option<OwnedFd>,
    /// The address of [`wire::ServerAddress::Initial`]. Without, the ring connects nowhere.
    pub server: Option<SocketAddr>,
    /// Which connections are under TLS, accepted and outgoing.
    pub sealing: Sealing,
    /// TLS configuration of accepted connections. Default: a key generated now, for clients that
    /// have a secret.
    pub server_seals: Option<ServerSeals>,
    /// TLS configuration of outgoing connections. Default: no certificate, and any server key is
    /// accepted.
    pub client_seals: Option<ClientSeals>,
    /// The log.
    pub log: Option<LogFile>,
    /// The directory that holds the objects.
    pub store: Option<OwnedFd>,
    /// Whether syncing an object also makes all earlier directory changes durable. Default: by the
    /// directory's file system if it is known to do so, otherwise no.
    pub names_follow_files: Option<bool>,
    /// Every bulk read from an object has a checksum, so it is read into memory. Without, large
    /// reads are sent from the page cache without a checksum, unless the ring answers a kernel.
    pub checksum_reads: bool,
    /// Large replies from memory have a checksum. Without, they are sent like those from the page
    /// cache: for a null server that such replies are compared with.
    pub checksum_memory: bool,
    /// The kernel discards received bulk: for a load generator. Frames come without it; their
    /// headers say how much there was.
    pub discards_bulk: bool,
    /// Key of the MAC of request bulk ([`interface::Bulk::mac`]). Default: no MAC.
    pub contents_key: Option<[u8; 32]>,
    /// The driver. Default: io_uring where available.
    pub driver: DriverChoice,
    /// What reads and writes objects. All but `Auto` and `Uring` read into memory, so nothing is
    /// sent from the page cache.
    pub engine: IoEngine,
    /// Object reads and writes whose offset, length and memory are aligned to 4096 bytes bypass the
    /// page cache; then nothing is sent from it either.
    pub direct: bool,
    /// The FUSE channel.
    pub kernel: Option<KernelChannel>,
    /// Cores for the ring's worker threads, the kernel's or the driver's; empty: those of the
    /// calling thread. A pinned lane passes the cores from before it was pinned; Linux (6.18)
    /// restricts its own threads to those that the lane is pinned to all the same.
    pub worker_cores: Vec<u16>,
    /// How long the lane busy-polls before it sleeps, in microseconds, at most 1000; 0: not at all.
    pub spin_us: u32,
    /// Limits.
    pub limits: Limits,
    /// Fault injection, for tests.
    pub fault: Option<Fault>,
    /// Takes log lines. Default: prints them to stderr with a prefix.
    pub say: LogFn,
    /// Called for [`interface::Action::Recovered`]. Default: nothing.
    pub recovered: Box<dyn FnMut()>,
    /// Executes [`interface::StoreAction::Inspect`]. Default: inspections are refused.
    pub inspections: Option<InspectQueue>,
    /// Called on a separate thread for [`interface::Action::ReadSecrets`]. Default: there is no
    /// secret file.
    pub read_secrets: Option<ReadSecrets>,
}

impl Config {
    /// A ring with nothing but a clock.
    #[must_use]
    pub fn new(lane: LaneId) -> Self {
        Self {
            lane,
            mailbox: None,
            listener: None,
            server: None,
            sealing: Sealing::Auto,
            server_seals: None,
            client_seals: None,
            log: None,
            store: None,
            names_follow_files: None,
            checksum_reads: false,
            checksum_memory: true,
            discards_bulk: false,
            contents_key: None,
            driver: DriverChoice::Auto,
            engine: IoEngine::Auto,
            direct: false,
            kernel: None,
            worker_cores: Vec::new(),
            spin_us: 0,
            limits: Limits::default(),
            fault: None,
            say: Box::new(say_to_stderr),
            recovered: Box::new(|| {}),
            inspections: None,
            read_secrets: None,
        }
    }
}

fn say_to_stderr(say: LogLevel, line: &str) {
    match say {
        LogLevel::Info => eprintln!("{line}"),
        LogLevel::Warning => eprintln!("warning: {line}"),
        LogLevel::Alarm => eprintln!("ALARM: {line}"),
    }
}

/// Counters of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Turns taken.
    pub turn_count: u64,
    /// Calls that wait for or poll the kernel: io_uring_enter, or epoll_pwait2.
    pub enter_count: u64,
    /// All other system calls of the lane's thread in its turns, without those of the allocator and
    /// of [`Config::say`].
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Sealing;

    #[test]
    fn connections_to_other_hosts_are_under_tls_by_default() {
        for (address, leaves) in [
            ("127.0.0.1", false),
            ("127.8.9.10", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("10.0.0.1", true),
            ("169.254.1.1", true),
            ("::ffff:10.0.0.1", true),
            ("fe80::1", true),
            ("2001:db8::1", true),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(Sealing::Auto.takes(address), leaves, "{address}");
            assert!(Sealing::All.takes(address) && !Sealing::Nothing.takes(address));
        }
    }
}
