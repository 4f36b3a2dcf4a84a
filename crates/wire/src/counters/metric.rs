//! What is counted: one table. Each row says how its value is named, in what unit it is, and how it is
//! taken together with that of another lane.

use crate::Status;

/// What a value does as time passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It rises, from 0 at the server's start.
    Counter,
    /// It is what it is at the moment.
    Gauge,
    /// A [`super::Histogram`] since the server's start.
    Histogram,
}

/// The unit of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
}

/// How the values of several lanes, or of several rows, become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// It is about the process, so each of its lanes says the same.
    Same,
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricRow {
    /// Its name: metrics that differ in a label only have the same.
    pub name: &'static str,
    /// What tells it from others of its name: a label and its value.
    pub label: Option<(&'static str, &'static str)>,
    /// What it does as time passes.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// How it is taken together.
    pub merge: Merge,
    /// What it counts, in a sentence without a full stop.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($metric:ident = $number:literal, $name:literal $({$label:literal = $text:literal})?,
       $kind:ident, $unit:ident, $merge:ident, $help:literal;)*) => {
        /// Something that is counted. The encoded number is never reused.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Metric {
            $(#[doc = $help] $metric = $number,)*
        }

        impl Metric {
            /// Every metric, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$metric,)*];

            /// The encoded number.
            #[must_use]
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// The metric of an encoded number, if this program knows it.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$metric),)*
                    _ => None,
                }
            }

            /// Its row.
            #[must_use]
            pub const fn row(self) -> &'static MetricRow {
                match self {
                    $(Self::$metric => const {
                        &MetricRow {
                            name: $name,
                            label: metrics!(@label $($label = $text)?),
                            kind: Kind::$kind,
                            unit: Unit::$unit,
                            merge: Merge::$merge,
                            help: $help,
                        }
                    },)*
                }
            }
        }
    };
    (@label) => { None };
    (@label $label:literal = $text:literal) => { Some(($label, $text)) };
}

metrics! {
    // Of lanes, operations, clients and exports.
    Requests = 1, "requests", Counter, Count, Sum, "Requests answered";
    ErrorsAbsent = 2, "errors" {"class" = "absent"}, Counter, Count, Sum,
        "Requests answered with an error: what was asked for does not exist";
    ErrorsExists = 3, "errors" {"class" = "exists"}, Counter, Count, Sum,
        "Requests answered with an error: what was to be made exists, or what was to be removed is in use";
    ErrorsDenied = 4, "errors" {"class" = "denied"}, Counter, Count, Sum,
        "Requests answered with an error: permission or a read-only export";
    ErrorsSpace = 5, "errors" {"class" = "space"}, Counter, Count, Sum,
        "Requests answered with an error: space or another limit";
    ErrorsRetry = 6, "errors" {"class" = "retry"}, Counter, Count, Sum,
        "Requests answered with an error after which the client tries again by itself";
    ErrorsFailed = 7, "errors" {"class" = "failed"}, Counter, Count, Sum,
        "Requests answered with an error of the server, its disk or the protocol";
    ErrorsOther = 8, "errors" {"class" = "other"}, Counter, Count, Sum,
        "Requests answered with another error";
    InBytes = 9, "in_bytes", Counter, Bytes, Sum, "Bytes of requests, with headers";
    OutBytes = 10, "out_bytes", Counter, Bytes, Sum, "Bytes of replies, with headers";
    RequestTime = 11, "request_us", Counter, Microseconds, Sum,
        "Time between the turns in which requests arrived and in which they were answered";
    // Of operations.
    QueueTime = 16, "phase_us" {"phase" = "queue"}, Histogram, Microseconds, Sum,
        "From the arrival of requests to their execution";
    ExecutionTime = 17, "phase_us" {"phase" = "execution"}, Histogram, Microseconds, Sum,
        "From the execution of requests to their outcome";
    CommitTime = 18, "phase_us" {"phase" = "commit"}, Histogram, Microseconds, Sum,
        "From the outcome of requests to their replies, which wait for what they depend on";
    // Of lanes.
    SendTime = 19, "send_us", Histogram, Microseconds, Sum,
        "From the queueing of replies until the kernel had taken them, by sends of a connection";
    // Of lanes: changes and the log.
    Changes = 32, "changes", Counter, Count, Sum, "Requests that changed something";
    FromSlot = 33, "from_slot", Counter, Count, Sum, "Requests answered again, from their slots";
    Batches = 34, "batches", Counter, Count, Sum, "Batches of the log made durable";
    DeferredOwn = 35, "deferred" {"reason" = "own"}, Counter, Count, Sum,
        "Replies deferred for an earlier change of the same client";
    DeferredForeign = 36, "deferred" {"reason" = "foreign"}, Counter, Count, Sum,
        "Replies deferred for a change of another client";
    DeferredStrict = 37, "deferred" {"reason" = "strict"}, Counter, Count, Sum,
        "Replies deferred because they show a change that is not durable";
    DeferredItself = 38, "deferred" {"reason" = "itself"}, Counter, Count, Sum,
        "Replies deferred for their own change";
    Tokens = 39, "tokens", Counter, Count, Sum, "Replies sent with a redo token";
    CommitNotifications = 40, "commit_notifications", Counter, Count, Sum,
        "Commit notifications sent";
    LogFreeBytes = 41, "log_free_bytes", Gauge, Bytes, Sum, "Space left in the log";
    LogOpenBytes = 42, "log_open_bytes", Gauge, Bytes, Sum,
        "Records that gather for the next batch of the log";
    FlushTime = 43, "flush_us", Histogram, Microseconds, Sum,
        "From the hand-over of a batch of the log to the turn in which it was durable";
    LogFailed = 44, "log_failed", Gauge, Count, Sum,
        "Lanes whose log has failed: they change nothing any more";
    FlushAge = 45, "flush_age_us", Gauge, Microseconds, Max,
        "How long the batch of the log that is in flight takes so far";
    LogRefused = 46, "log_refused", Counter, Count, Sum,
        "Changes refused because the log had no space for them";
    LogFullAge = 47, "log_full_age_us", Gauge, Microseconds, Max,
        "How long the log has had no space for changes";
    // Of lanes: waits, by cause.
    WaitsBatch = 48, "waits" {"cause" = "batch"}, Counter, Count, Sum,
        "Replies and steps that waited for a batch of the log";
    WaitsWrite = 49, "waits" {"cause" = "write"}, Counter, Count, Sum,
        "Replies that waited for contents to be durable";
    WaitsLock = 50, "waits" {"cause" = "lock"}, Counter, Count, Sum,
        "Requests that waited for a change over several shards";
    WaitsRows = 51, "waits" {"cause" = "rows"}, Counter, Count, Sum,
        "Requests that waited for rows of the store";
    WaitsContainment = 52, "waits" {"cause" = "containment"}, Counter, Count, Sum,
        "Requests that waited for a check of their export";
    WaitsReopening = 53, "waits" {"cause" = "reopening"}, Counter, Count, Sum,
        "Requests that waited for the end of replays";
    WaitsRecovery = 54, "waits" {"cause" = "recovery"}, Counter, Count, Sum,
        "Requests that waited for the end of recovery";
    WaitsFreeze = 55, "waits" {"cause" = "freeze"}, Counter, Count, Sum,
        "Requests that waited for the end of a freeze";
    WaitsLease = 56, "waits" {"cause" = "lease"}, Counter, Count, Sum,
        "Requests that waited for leases of other clients to end";
    WaitingBatch = 64, "waiting" {"cause" = "batch"}, Gauge, Count, Sum,
        "Replies and steps that wait for a batch of the log";
    WaitingWrite = 65, "waiting" {"cause" = "write"}, Gauge, Count, Sum,
        "Replies that wait for contents to be durable";
    WaitingLock = 66, "waiting" {"cause" = "lock"}, Gauge, Count, Sum,
        "Requests that wait for a change over several shards";
    WaitingRows = 67, "waiting" {"cause" = "rows"}, Gauge, Count, Sum,
        "Requests that wait for rows of the store";
    WaitingContainment = 68, "waiting" {"cause" = "containment"}, Gauge, Count, Sum,
        "Requests that wait for a check of their export";
    WaitingReopening = 69, "waiting" {"cause" = "reopening"}, Gauge, Count, Sum,
        "Requests that wait for the end of replays";
    WaitingRecovery = 70, "waiting" {"cause" = "recovery"}, Gauge, Count, Sum,
        "Requests that wait for the end of recovery";
    WaitingFreeze = 71, "waiting" {"cause" = "freeze"}, Gauge, Count, Sum,
        "Requests that wait for the end of a freeze";
    WaitingLease = 72, "waiting" {"cause" = "lease"}, Gauge, Count, Sum,
        "Requests that wait for leases of other clients to end";
    // Of lanes, and of the clients that hold the locks.
    WaitingFileLock = 73, "waiting" {"cause" = "file_lock"}, Gauge, Count, Sum,
        "Requests for locks on files that wait for other owners' locks";
    FileLockAge = 74, "file_lock_age_us", Gauge, Microseconds, Max,
        "How long the oldest of them waits";
    LockAge = 75, "lock_age_us", Gauge, Microseconds, Max,
        "How long the oldest request waits for a change over several shards";
    InDoubt = 76, "in_doubt", Gauge, Count, Sum,
        "Changes over several shards whose outcome is unknown until the next start";
    DiskFull = 77, "disk_full", Gauge, Count, Sum,
        "Lanes whose log has no space because the disk of the store has none";
    // Of lanes: what they have.
    ReadBytes = 80, "read_bytes", Counter, Bytes, Sum, "Bytes read from files";
    WrittenBytes = 81, "written_bytes", Counter, Bytes, Sum, "Bytes written to files";
    Connections = 82, "connections", Gauge, Count, Sum, "Connections open";
    ProtocolErrors = 83, "protocol_errors", Counter, Count, Sum,
        "Connections closed because their peer broke the protocol";
    Inodes = 84, "inodes", Gauge, Count, Sum, "Inodes";
    ResidentBytes = 85, "resident_bytes", Gauge, Bytes, Same, "Memory of the process";
    NamesBytes = 86, "names_bytes", Gauge, Bytes, Sum,
        "Memory of names and attributes, where it is limited";
    Sessions = 87, "sessions", Gauge, Count, Sum,
        "Sessions, also of clients without a connection";
    // Of lanes: leases.
    LeasesHeld = 96, "leases", Gauge, Count, Sum, "Leases held by clients";
    LeasesGranted = 97, "leases_granted", Counter, Count, Sum, "Leases granted";
    LeasesRecalled = 98, "leases_recalled", Counter, Count, Sum, "Leases recalled";
    LeasesExpired = 99, "leases_expired", Counter, Count, Sum,
        "Recalls that ended by the term of the lease";
    LeasesHot = 100, "leases_refused" {"reason" = "hot"}, Counter, Count, Sum,
        "Leases not granted because their key was recalled too often";
    LeasesShare = 101, "leases_refused" {"reason" = "share"}, Counter, Count, Sum,
        "Leases not granted because clients had too many";
    Pings = 102, "pings", Counter, Count, Sum, "Pings, by which idle clients keep their leases";
    // Of lanes, and of the clients that do not answer.
    RecallsUnanswered = 103, "recalls_unanswered", Gauge, Count, Sum,
        "Recalls of leases that clients have not acknowledged";
    RecallAge = 104, "recall_age_us", Gauge, Microseconds, Max,
        "How long the oldest of them waits";
    // Of lanes: the runtime.
    CpuTime = 112, "cpu_ns", Counter, Nanoseconds, Same, "Processor time of the process";
    SwitchesVoluntary = 113, "context_switches" {"kind" = "voluntary"}, Counter, Count, Same,
        "Times that a thread of the process went to sleep";
    SwitchesInvoluntary = 114, "context_switches" {"kind" = "involuntary"}, Counter, Count, Same,
        "Times that a thread of the process had to give its core to others";
    Turns = 115, "turns", Counter, Count, Sum, "Turns taken";
    TurnTimeMax = 116, "turn_ns_max", Gauge, Nanoseconds, Max,
        "The longest turn that delayed waiting work";
    Syscalls = 117, "syscalls", Counter, Count, Sum, "System calls of the lane";
    ClockReads = 118, "clock_reads", Counter, Count, Sum, "Clock readings of the lane";
    Sends = 119, "sends", Counter, Count, Sum, "Sends to sockets";
    Spins = 120, "spins", Counter, Count, Sum, "Times that the lane polled before it slept";
    SpinHits = 121, "spin_hits", Counter, Count, Sum, "Polls that found work";
    LaneCpuTime = 122, "lane_cpu_ns", Counter, Nanoseconds, Sum,
        "Processor time of the lane's own thread";
    BacklogTime = 123, "backlog_ns", Counter, Nanoseconds, Sum,
        "Time in which more work waited for the lane, so that it did not sleep";
    UpTime = 124, "up_ms", Gauge, Milliseconds, Max, "Time since the start of the server";
    // Of lanes: messages between them.
    PeerWakes = 128, "peer_wakes", Counter, Count, Sum, "Messages to lanes of the same process";
    PeerSent = 129, "peer_messages" {"kind" = "sent"}, Counter, Count, Sum,
        "Messages to peer lanes";
    PeerResent = 130, "peer_messages" {"kind" = "resent"}, Counter, Count, Sum,
        "Messages to peer lanes that were sent again";
    PeerRepeated = 131, "peer_messages" {"kind" = "repeated"}, Counter, Count, Sum,
        "Messages from peer lanes that were received again";
    PeerRefused = 132, "peer_messages" {"kind" = "refused"}, Counter, Count, Sum,
        "Messages from peer lanes that did not decode";
    // Of lanes: contents at the disk.
    ObjectsOffloaded = 144, "object_operations_offloaded", Counter, Count, Sum,
        "Reads and writes of contents executed by other threads";
    ObjectThreads = 145, "object_threads", Counter, Count, Sum, "Threads started for them";
    ObjectsInFlightMax = 146, "object_operations_in_flight_max", Gauge, Count, Max,
        "Most reads and writes of contents in flight";
    ObjectsInFlightOneMax = 147, "object_operations_in_flight_one_max", Gauge, Count, Max,
        "Most reads and writes in flight on one file";
    Damages = 148, "damages", Counter, Count, Sum,
        "Times that contents did not match what was recorded";
    // Of lanes: the recovery of this start.
    RecoveryKnown = 160, "recovery_clients" {"state" = "known"}, Counter, Count, Sum,
        "Clients that the recovery waited for";
    RecoveryReturned = 161, "recovery_clients" {"state" = "returned"}, Counter, Count, Sum,
        "Clients that returned and replayed everything";
    RecoveryEvicted = 162, "recovery_clients" {"state" = "evicted"}, Counter, Count, Sum,
        "Clients evicted, in recovery or later";
    RecoveryLost = 163, "recovery_clients" {"state" = "lost"}, Counter, Count, Sum,
        "Clients with changes that were acknowledged as durable and are missing";
    ReplaysExecuted = 164, "replays" {"outcome" = "executed"}, Counter, Count, Sum,
        "Replays executed";
    ReplaysDurable = 165, "replays" {"outcome" = "durable"}, Counter, Count, Sum,
        "Replays of changes that were already durable";
    ReplaysRejected = 166, "replays" {"outcome" = "rejected"}, Counter, Count, Sum,
        "Replays whose versions did not match";
    ReplaysForged = 167, "replays" {"outcome" = "forged"}, Counter, Count, Sum,
        "Replays with a token that this store never signed";
    RecoveryTime = 168, "recovery_ms", Gauge, Milliseconds, Max, "Duration of the recovery";
    Recovering = 169, "recovering", Gauge, Count, Sum, "Lanes whose recovery goes on";
    // Of mounts: requests of the kernel.
    ReplyTime = 192, "reply_us", Histogram, Microseconds, Sum,
        "From taking requests of the kernel to their replies";
    AnsweredAlone = 193, "answered_alone", Counter, Count, Sum,
        "Requests of the kernel that waited for no exchange with the server";
    Unanswered = 194, "unanswered", Gauge, Count, Sum, "Requests of the kernel without a reply yet";
    // Of clients: exchanges with the server.
    ExchangeTime = 200, "exchange_us", Histogram, Microseconds, Sum,
        "From sending requests to the server to their replies";
    Exchanges = 201, "exchanges", Counter, Count, Sum,
        "Requests sent to the server, those sent again included";
    Resends = 202, "resends", Counter, Count, Sum,
        "Requests sent again after a connection was lost";
    Replayed = 203, "replayed", Counter, Count, Sum,
        "Changes replayed after the server had started again";
    Handshakes = 204, "handshakes", Counter, Count, Sum, "Connections made to the server";
    ChangesLost = 205, "changes_lost", Counter, Count, Sum, "Answered changes that were lost";
    Evictions = 206, "evictions", Counter, Count, Sum, "Evictions of this client by the server";
    ReplayBytes = 207, "replay_bytes", Gauge, Bytes, Sum,
        "Answered changes kept for a replay, because the server may still lose them";
    // Of clients: waits before a request is sent, by cause.
    WaitsConnection = 212, "waits" {"cause" = "connection"}, Counter, Count, Sum,
        "Requests that waited for a connection to the server, or were sent again over a new one";
    WaitsReopens = 213, "waits" {"cause" = "reopens"}, Counter, Count, Sum,
        "Requests that waited until open files and replays were restored at the server";
    WaitsRecall = 214, "waits" {"cause" = "recall"}, Counter, Count, Sum,
        "Requests that waited until caches were dropped whose leases were lost";
    WaitsCredits = 215, "waits" {"cause" = "credits"}, Counter, Count, Sum,
        "Requests that waited because as many were in flight as the server allows";
    WaitsSlot = 216, "waits" {"cause" = "slot"}, Counter, Count, Sum,
        "Changes that waited for a slot of their session";
    WaitsReplaySpace = 217, "waits" {"cause" = "replay_space"}, Counter, Count, Sum,
        "Changes that waited for earlier ones to be durable, as too many were kept for a replay";
    WaitsRetry = 218, "waits" {"cause" = "retry"}, Counter, Count, Sum,
        "Requests that the server wanted later";
    WaitsLayout = 219, "waits" {"cause" = "layout"}, Counter, Count, Sum,
        "Requests that waited for the layout of their file";
    WaitsFileLock = 220, "waits" {"cause" = "file_lock"}, Counter, Count, Sum,
        "Requests that waited for a lock of another process";
    WaitsGroups = 221, "waits" {"cause" = "groups"}, Counter, Count, Sum,
        "Requests that waited for the groups of their process";
    WaitingConnection = 228, "waiting" {"cause" = "connection"}, Gauge, Count, Sum,
        "Requests that wait for a connection to the server";
    WaitingReopens = 229, "waiting" {"cause" = "reopens"}, Gauge, Count, Sum,
        "Requests that wait until open files and replays are restored at the server";
    WaitingRecall = 230, "waiting" {"cause" = "recall"}, Gauge, Count, Sum,
        "Requests that wait until caches are dropped whose leases were lost";
    WaitingCredits = 231, "waiting" {"cause" = "credits"}, Gauge, Count, Sum,
        "Requests that wait because as many are in flight as the server allows";
    WaitingSlot = 232, "waiting" {"cause" = "slot"}, Gauge, Count, Sum,
        "Changes that wait for a slot of their session";
    WaitingReplaySpace = 233, "waiting" {"cause" = "replay_space"}, Gauge, Count, Sum,
        "Changes that wait for earlier ones to be durable, as too many are kept for a replay";
    WaitingRetry = 234, "waiting" {"cause" = "retry"}, Gauge, Count, Sum,
        "Requests that the server wants later";
    WaitingLayout = 235, "waiting" {"cause" = "layout"}, Gauge, Count, Sum,
        "Requests that wait for the layout of their file";
    WaitingGroups = 237, "waiting" {"cause" = "groups"}, Gauge, Count, Sum,
        "Requests that wait for the groups of their process";
    WaitingReply = 238, "waiting" {"cause" = "reply"}, Gauge, Count, Sum,
        "Requests that wait for the reply of the server";
    // Of mounts: caches and leases.
    CachedNames = 244, "cached_names", Gauge, Count, Same,
        "Names in the cache of the mount, also those whose leases have ended";
    CachedAttributes = 245, "cached_attributes", Gauge, Count, Same,
        "Inodes with attributes in the cache of the mount, also those whose leases have ended";
    CachedDirectories = 246, "cached_directories", Gauge, Count, Same,
        "Directories in the cache of the mount, also those whose leases have ended";
    OpenFiles = 247, "open_files", Gauge, Count, Sum, "Handles that the server has open";
    KeptFiles = 248, "kept_files", Gauge, Count, Sum,
        "Files that are opened again without an exchange, under leases";
    PagedFiles = 249, "paged_files", Gauge, Count, Sum,
        "Files of which the kernel may have pages, under leases";
    Recalls = 252, "recalls", Counter, Count, Sum, "Recalls received";
    RecalledAttributes = 253, "recalled" {"kind" = "attributes"}, Counter, Count, Sum,
        "Leases of attributes recalled";
    RecalledNames = 254, "recalled" {"kind" = "names"}, Counter, Count, Sum,
        "Leases of names recalled";
    RecalledContents = 255, "recalled" {"kind" = "contents"}, Counter, Count, Sum,
        "Leases of contents and pages recalled";
    RecalledAll = 256, "recalled" {"kind" = "all"}, Counter, Count, Sum,
        "Recalls of all leases at once";
    RecallTime = 257, "recall_time_us", Counter, Microseconds, Sum,
        "Time from recalls to their acknowledgements";
    RecallsOpen = 258, "recalls_open", Gauge, Count, Sum, "Recalls not acknowledged yet";
    TermsEnded = 259, "terms_ended", Counter, Count, Sum,
        "Times that all leases of a lane ended: a connection was lost, or they were not renewed";
    // Of mounts: writing behind.
    BehindFiles = 264, "behind_files", Gauge, Count, Same, "Files that the mount may write behind";
    BehindBytes = 265, "behind_bytes", Gauge, Bytes, Same,
        "Bytes of answered writes that the server has not executed yet";
    BehindExecuted = 266, "behind_writes" {"outcome" = "executed"}, Counter, Count, Same,
        "Writes that the server executed after their answers";
    BehindLost = 267, "behind_writes" {"outcome" = "lost"}, Counter, Count, Same,
        "Writes that failed after their answers";
    BehindExecutedBytes = 268, "behind_written_bytes" {"outcome" = "executed"}, Counter, Bytes,
        Same, "Bytes that the server wrote after their writers were answered";
    BehindLostBytes = 269, "behind_written_bytes" {"outcome" = "lost"}, Counter, Bytes, Same,
        "Bytes of writes that failed after their answers";
    BehindDirectories = 270, "behind_directories", Gauge, Count, Same,
        "Directories in which the mount may make and remove names behind";
    BehindMade = 271, "behind_names" {"change" = "made"}, Counter, Count, Same,
        "Files that were created after their answer";
    BehindRemoved = 272, "behind_names" {"change" = "removed"}, Counter, Count, Same,
        "Names that were removed after their answer";
    BehindLostNames = 273, "behind_names" {"change" = "lost"}, Counter, Count, Same,
        "Of both, those that failed";
}

/// A class of errors: what a person would do about them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum StatusClass {
    /// It does not exist.
    Absent,
    /// It exists, or is in use.
    Exists,
    /// Permission, or a read-only export.
    Denied,
    /// Space or another limit.
    Space,
    /// The client tries again by itself.
    Retry,
    /// The server, its disk, or the protocol.
    Failed,
    /// Another error.
    Other,
}

impl StatusClass {
    /// All, in their order.
    pub const ALL: [Self; 7] = [
        Self::Absent,
        Self::Exists,
        Self::Denied,
        Self::Space,
        Self::Retry,
        Self::Failed,
        Self::Other,
    ];

    /// The class of a status; `None`: it is no error.
    #[must_use]
    pub const fn of(status: Status) -> Option<Self> {
        Some(match status {
            Status::Ok => return None,
            Status::NotFound | Status::NoData | Status::NoDevice => Self::Absent,
            Status::Exists | Status::NotEmpty | Status::Busy => Self::Exists,
            Status::NotPermitted | Status::Access | Status::ReadOnly => Self::Denied,
            Status::NoSpace
            | Status::Quota
            | Status::TooManyFiles
            | Status::TooManyLinks
            | Status::TooLarge
            | Status::NoLocks
            | Status::NoMemory => Self::Space,
            Status::WrongLane
            | Status::RetryLater
            | Status::NeedGroups
            | Status::NeedClearPrivileges
            | Status::StaleMap
            | Status::MustWiden => Self::Retry,
            Status::Io
            | Status::Stale
            | Status::BadHandle
            | Status::Protocol
            | Status::NotConnected
            | Status::NotImplemented => Self::Failed,
            Status::Interrupted
            | Status::Again
            | Status::CrossDevice
            | Status::NotDirectory
            | Status::IsDirectory
            | Status::Invalid
            | Status::Range
            | Status::Deadlock
            | Status::NameTooLong
            | Status::Loop
            | Status::Overflow
            | Status::NotSupported => Self::Other,
        })
    }

    /// The metric that counts it.
    #[must_use]
    pub const fn metric(self) -> Metric {
        match self {
            Self::Absent => Metric::ErrorsAbsent,
            Self::Exists => Metric::ErrorsExists,
            Self::Denied => Metric::ErrorsDenied,
            Self::Space => Metric::ErrorsSpace,
            Self::Retry => Metric::ErrorsRetry,
            Self::Failed => Metric::ErrorsFailed,
            Self::Other => Metric::ErrorsOther,
        }
    }
}
