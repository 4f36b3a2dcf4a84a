//! Configuration of a lane's ring: descriptors, limits, channels to other threads, and callbacks.

use crate::driver::{DriverChoice, IoEngine};
use crate::fault::Fault;
use crate::feed::Feed;
use crate::inspect::InspectQueue;
use crate::kernel::KernelChannel;
use crate::limits::Limits;
use crate::mailbox::Mailbox;
use crate::sealing::{ClientSeals, SealOptions, Sealing, ServerSeals};
use interface::LogLevel;
use std::net::SocketAddr;
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

    /// The options of TLS.
    pub(crate) fn seal_options(&self) -> SealOptions<'_> {
        SealOptions {
            sealing: self.sealing,
            accepts: self.listener.is_some(),
            server: self.server.map(|server| server.ip()),
            server_seals: self.server_seals.as_ref(),
            client_seals: self.client_seals.as_ref(),
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
