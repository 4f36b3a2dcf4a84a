//! What a lane's ring is made with: its descriptors, its limits, its ears and its voice.

use crate::driver::{DriverChoice, IoEngine};
use crate::feed::Feed;
use crate::inspect::InspectDesk;
use crate::kernel::KernelChannel;
use crate::mailbox::Post;
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
    /// Where the next batch goes; what lies behind is overwritten.
    pub start_offset: u64,
    /// How far ahead space is reserved, in bytes.
    pub reserve_bytes: u64,
    /// Where the log goes on when it is long, and who keeps the cold store; without, it stays in
    /// its file and there are no rows.
    pub feed: Option<Feed>,
}

impl LogFile {
    /// Default of [`Self::reserve_bytes`].
    pub const RESERVE_BYTES: u64 = 16 << 20;
}

/// Everything that grows has a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at a time; for one more the oldest goes that is not admitted, and without such a one
    /// it is refused by closing it.
    pub conn_count_max: usize,
    /// Bytes queued for one connection that it has not read; more, and it is too slow.
    pub conn_out_bytes_max: usize,
    /// From so many on nothing more is received from an accepted connection until it has read.
    pub conn_out_bytes_pause: usize,
    /// How long one may read nothing of what is queued for it, in milliseconds.
    pub stall_ms_max: u64,
    /// The same while somebody waits for a buffer.
    pub starving_stall_ms_max: u64,
    /// How long an accepted connection may take until it is admitted, in milliseconds.
    pub handshake_ms_max: u64,
    /// How long a client may take for what it has begun to send, in milliseconds, and a second more for
    /// each 8 KiB of it.
    pub frame_ms_max: u64,
    /// How long a closed connection may take to send what is queued, in milliseconds.
    pub close_ms_max: u64,
    /// How long the end of the lane may take to send what is queued, in milliseconds.
    pub stop_ms_max: u64,
    /// Accepted connections that are not admitted yet; for one more the oldest of them is let go.
    pub handshake_count_max: usize,
    /// Bytes of buffers in use; beyond it, what needs a buffer waits.
    pub buffer_bytes_max: usize,
    /// Objects kept open.
    pub open_object_count_max: usize,
    /// Length of the files that a large object consists of, whole pages; the same as long as the
    /// store lives.
    pub segment_bytes: u64,
}

impl Limits {
    /// What one connection may bring, or take from files, in a turn before the others have theirs.
    pub const TURN_BYTES_MAX: usize = 1 << 20;
    /// What must come in a second at the least of what was begun: of a line of 64 KiB/s, what one of eight
    /// connections has.
    pub const RATE_BYTES_MIN: u64 = 8 * 1024;
    /// Connections that the kernel holds for a listener until they are accepted, as far as the system
    /// allows so many. Whoever finds no room is not told, and tries again after a second.
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
            segment_bytes: crate::segments::SEGMENT_BYTES,
        }
    }
}

/// Which connections are under TLS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Sealing {
    /// Those to an address that is not loopback. Both ends of a connection see the same one, but where
    /// something in between changes it.
    #[default]
    Auto,
    /// All.
    All,
    /// None.
    Nothing,
}

impl Sealing {
    /// Whether a connection to this address of a server is.
    #[must_use]
    pub fn takes(self, server: IpAddr) -> bool {
        match self {
            Self::Auto => !server.to_canonical().is_loopback(),
            Self::All => true,
            Self::Nothing => false,
        }
    }
}

/// Asked at each handshake with a connection that was accepted what it is put under TLS with, so that
/// renewed certificates are shown from then on.
pub type ServerSeals = Arc<dyn Fn() -> seal::Server + Send + Sync>;
/// The same for a connection that is asked for.
pub type ClientSeals = Arc<dyn Fn() -> seal::Client + Send + Sync>;

/// Where a test may let the medium fail, or end the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultPoint {
    /// Writing a batch to the log and making it durable.
    LogWrite,
    /// A batch that would then be called durable without having been written.
    LogFreeze,
    /// A batch that would then be neither written nor answered.
    LogStall,
    /// A batch is durable, and nobody has been told.
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
    /// Allocating a range of an object another way.
    ObjectAllocate,
    /// Making an object durable.
    ObjectSync,
    /// Removing an object.
    ObjectRemove,
    /// The reply to a request that takes effect once is about to leave.
    Reply,
    /// Such a reply has left.
    Replied,
    /// A place that the core names.
    Place(interface::ProtocolPoint),
}

impl FaultPoint {
    /// Every point, with its name for a command line.
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

/// Asked at each such point; an errno is what an operation fails with, and what makes a batch freeze
/// or stall.
pub type Fault = Arc<dyn Fn(FaultPoint) -> Option<Errno> + Send + Sync>;

/// Takes a line for people.
pub type SayFn = Box<dyn FnMut(LogLevel, &str)>;

/// Reads the secrets that are kept; `None` where that cannot be done.
pub type ReadSecrets = Arc<dyn Fn() -> Option<Secrets> + Send + Sync>;

/// What a ring is made with.
pub struct Config {
    /// Which lane.
    pub lane: LaneId,
    /// Its mailbox; alone without.
    pub post: Option<Post>,
    /// Accepts connections: bound, listening.
    pub listener: Option<OwnedFd>,
    /// Where [`interface::NetAction::Connect`] connects to.
    pub server: Option<SocketAddr>,
    /// Which connections are under TLS, accepted ones and others.
    pub sealing: Sealing,
    /// Certificates for accepted connections. Default: a key that is made now, for clients that have a
    /// secret.
    pub server_seals: Option<ServerSeals>,
    /// Certificates for other connections. Default: none, and any key of the server's.
    pub client_seals: Option<ClientSeals>,
    /// The log.
    pub log: Option<LogFile>,
    /// The directory that holds the objects.
    pub store: Option<OwnedFd>,
    /// Whether syncing an object makes durable all that was done to names before. Default: as it is
    /// known of the directory's file system; of others it is not taken for granted.
    pub names_follow_files: Option<bool>,
    /// Every bulk read from an object has a checksum, so it is read into memory. Without, large
    /// ones are sent from the page cache as they lie there and have none, unless the ring answers a
    /// kernel.
    pub checksum_reads: bool,
    /// Large replies whose bulk is in memory have a checksum. Without, they leave as those that are sent
    /// from the page cache: for a null server that stands beside one.
    pub checksum_kept: bool,
    /// Bulk that is received is thrown away by the kernel, neither kept nor checked: for a load that
    /// measures its server. Frames come without it; their heads tell how much there was.
    pub discards_bulk: bool,
    /// Bulk that comes with requests gets a MAC by this key ([`interface::Bulk::mac`]). Default: none.
    pub contents_key: Option<[u8; 32]>,
    /// What the lane reaches the kernel through. Default: io_uring, where it is to be had.
    pub driver: DriverChoice,
    /// Who reads and writes objects. All but `Auto` and `Uring` read them into memory, so nothing
    /// is sent from the page cache as it lies there.
    pub engine: IoEngine,
    /// Reads and writes of objects whose place, length and memory are aligned to 4096 bytes go past
    /// the page cache; then nothing is sent from it either.
    pub direct: bool,
    /// The kernel's file system requests.
    pub kernel: Option<KernelChannel>,
    /// Where the threads for this ring may run, the kernel's own or the driver's, which do what would block; empty:
    /// where the calling thread may. A pinned lane names here what it had before it was pinned; of these
    /// Linux (6.18) leaves its own threads none but those the lane was pinned to.
    pub worker_cores: Vec<u16>,
    /// How long the lane looks out for more work before it sleeps, in microseconds, at most 1000;
    /// 0: not at all.
    pub spin_us: u32,
    /// Limits.
    pub limits: Limits,
    /// For tests.
    pub fault: Option<Fault>,
    /// Prints a line for people. Default: to stderr, with a prefix.
    pub say: SayFn,
    /// Called for [`interface::Action::Recovered`]. Default: nothing.
    pub recovered: Box<dyn FnMut()>,
    /// Who answers [`interface::StoreAction::Inspect`]. Default: there are no inspections.
    pub inspections: Option<InspectDesk>,
    /// Called on a separate thread for [`interface::Action::ReadSecrets`]. Default: there is no secret file.
    pub read_secrets: Option<ReadSecrets>,
}

impl Config {
    /// A ring with nothing but a clock.
    #[must_use]
    pub fn new(lane: LaneId) -> Self {
        Self {
            lane,
            post: None,
            listener: None,
            server: None,
            sealing: Sealing::Auto,
            server_seals: None,
            client_seals: None,
            log: None,
            store: None,
            names_follow_files: None,
            checksum_reads: false,
            checksum_kept: true,
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

/// What a ring has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Turns taken.
    pub turn_count: u64,
    /// Calls that wait for the kernel or look what it has: io_uring_enter, or epoll_pwait2.
    pub enter_count: u64,
    /// All other system calls that the lane's thread made itself in its turns; not those of the
    /// allocator and of [`Config::say`].
    pub syscall_count: u64,
    /// Clock readings, of either clock.
    pub clock_read_count: u64,
    /// Times that the lane looked out for more work before it would have slept.
    pub spin_count: u64,
    /// Of them, those that found some.
    pub spin_hit_count: u64,
    /// The longest turn behind which something waited: from its reading of the clock to the next
    /// one, without a sleep in between.
    pub turn_ns_max: u64,
    /// Events handed to the core.
    pub event_count: u64,
    /// Peer lanes woken.
    pub wake_count: u64,
    /// Letters read from peer lanes.
    pub message_in_count: u64,
    /// Letters written to peer lanes.
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
    /// Bytes that left by sendfile; also in [`Self::out_bytes`].
    pub sendfile_bytes: u64,
    /// Connections closed for a protocol error.
    pub protocol_error_count: u64,
    /// Connections refused because there were too many.
    pub refused_count: u64,
    /// Connections let go before they were admitted, for others.
    pub shed_count: u64,
    /// Requests from the kernel.
    pub kernel_request_count: u64,
    /// Reads and writes of objects that were given to another thread of this process.
    pub object_handed_count: u64,
    /// Threads that were started for such work: of the pool, of each operation, or to tell of it.
    /// glibc's own, and the kernel's, are not known.
    pub object_thread_count: u64,
    /// Reads and writes of objects that went past the page cache.
    pub object_direct_count: u64,
    /// Most reads and writes of objects that were under way at a time.
    pub object_under_way_max: u32,
    /// The same, of one object.
    pub object_under_way_one_max: u32,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Sealing;

    #[test]
    fn what_leaves_the_host_is_under_tls_unless_told_otherwise() {
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
