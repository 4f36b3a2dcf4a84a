//! Actions: the requests of a state machine to its runtime.

use crate::{BufId, Bulk, ConnId, KernelSlot, Mono, MountMessage, Object, Party, Span, Ticket};
use wire::{Allocation, Inspect, LaneId, ServerAddress, Status};

/// The process that a request of the kernel is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// The process (or thread) id; it may have been reused.
    pub pid: u32,
    /// Its user on file systems.
    pub uid: u32,
    /// Its group on file systems.
    pub gid: u32,
    /// A time at which it existed. A process that started later is another one.
    pub since: Mono,
}

/// Severity of a line for the operator's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// Information.
    Info,
    /// The operator should look.
    Warning,
    /// Data or service is in danger.
    Alarm,
}

/// Points in the protocol at which a test can inject a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProtocolPoint {
    /// Recovery: begun, no client has connected.
    RecoveryBegun,
    /// Recovery: a replay was executed.
    Replayed,
    /// Recovery: a client has replayed everything.
    ReplayDone,
    /// Recovery: everything replayed is durable.
    ReplaysDurable,
    /// Recovery: over.
    RecoveryEnded,
    /// Two-phase: the coordinator has begun.
    TxnBegun,
    /// Two-phase: a participant's prepare is durable.
    TxnPrepared,
    /// Two-phase: all participants are prepared, the decision is about to be recorded.
    TxnDeciding,
    /// Two-phase: the decision is durable.
    TxnDecided,
    /// Two-phase: a participant has applied the decision.
    TxnDone,
    /// Two-phase: all participants have applied it, the coordinator forgets the transaction.
    TxnForgotten,
}

/// An action. Its spans lie in this turn's arena; the runtime copies what it needs for longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// About a connection.
    Net(NetAction),
    /// A message to a lane of this process.
    Peer(PeerAction),
    /// About the log and the rows of the store.
    Store(StoreAction),
    /// About the contents of a stripe object.
    Object(ObjectAction),
    /// About a mount and the processes that use it.
    Kernel(KernelAction),
    /// Copy these bytes into a buffer of the runtime, named `as_buf` from here on and owned by the
    /// state machine until it acts `Release`. The state machine chooses the number, from
    /// [`crate::CORE_BUF_ID_MIN`] on and not in use.
    Retain {
        /// The copy's name.
        as_buf: BufId,
        /// What to copy.
        bulk: Bulk,
    },
    /// Make a buffer of zeros, named `as_buf` as by [`Self::Retain`].
    Zeros {
        /// Its name.
        as_buf: BufId,
        /// Its length.
        bulk_bytes: u32,
    },
    /// Copy these bytes into a buffer that was made by [`Self::Zeros`] in this turn.
    Copy {
        /// That buffer.
        to: BufId,
        /// The place in it.
        at: u32,
        /// What to copy.
        bulk: Bulk,
    },
    /// Server: this lane's recovery is over; every known client is reconnected or evicted.
    Recovered,
    /// A point in the protocol at which a test may end the process or inject a fault. Otherwise it
    /// does nothing.
    Point(ProtocolPoint),
    /// Release a buffer.
    Release {
        /// Which.
        buf: BufId,
    },
    /// Read the resource usage of this process and lane. Answered by `Usage`, in the same turn or
    /// the next.
    Usage {
        /// Returned with the outcome.
        ticket: Ticket,
    },
    /// The answer to an [`crate::Event::Asked`].
    Answer {
        /// Of the question.
        ticket: Ticket,
        /// Its bytes.
        answer: Span,
    },
    /// Client: read the secret file again. Answered by `Secrets`.
    ReadSecrets,
    /// Take a turn at this time at the latest, even without events. Holds until that turn.
    WakeAt {
        /// When.
        at: Mono,
    },
    /// A line for the operator's log.
    Log {
        /// Its severity.
        level: LogLevel,
        /// UTF-8.
        line: Span,
    },
    /// The lane has finished and ends.
    Stopped,
}

/// Actions on connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetAction {
    /// Client: connect to a server. Answered by [`crate::NetEvent::Connected`] or
    /// [`crate::NetEvent::ConnectFailed`].
    Connect {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Where the server listens.
        address: ServerAddress,
    },
    /// The peer is authenticated: accept frames with bulk and long bodies from here on. A client
    /// does it after the Welcome. A second `Admit` replaces the first.
    Admit {
        /// Which connection.
        conn: ConnId,
        /// Bulk is received into buffers. Otherwise it is discarded, and its frame arrives without
        /// it.
        writes: bool,
        /// The party that the connection's buffers are charged to.
        party: Party,
    },
    /// Send a frame, and its bulk right behind it. Frames of one connection leave in order, and
    /// all of a turn's frames together.
    Send {
        /// The connection. Unknown or closed: nothing happens.
        conn: ConnId,
        /// Header and body.
        frame: Span,
        /// The bulk.
        bulk: Option<Bulk>,
    },
    /// Close a connection once its queued frames are sent (bounded by a second). No event of it
    /// follows.
    Close {
        /// Which.
        conn: ConnId,
    },
    /// Server: hand a connection over to a peer lane. Only its Hello was read so far.
    HandOver {
        /// Which.
        conn: ConnId,
        /// The receiver.
        lane: LaneId,
        /// The Hello frame.
        hello: Span,
    },
    /// Server: become the proxy lane of a connection of which only a Hello was read: keep its
    /// socket and pass all its frames, from that Hello on, to the executing lane. That lane sees a
    /// connection handed over; this one sees no more events of it.
    Proxy {
        /// Which.
        conn: ConnId,
        /// The receiver.
        lane: LaneId,
        /// The Hello frame.
        hello: Span,
    },
}

/// Messages to peer lanes of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerAction {
    /// Mount, client: send a message to a peer lane.
    Message {
        /// The receiver.
        to: LaneId,
        /// What.
        message: MountMessage,
    },
    /// Server: send bytes to a peer lane. They may get lost, arrive twice or in another order.
    Send {
        /// The receiver.
        to: LaneId,
        /// The bytes, at most [`crate::PEER_MESSAGE_BYTES_MAX`].
        body: Span,
    },
}

/// A server's actions on the log and the rows of its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreAction {
    /// Read rows from the key-value store. Answered by [`crate::StoreEvent::Rows`].
    ReadRows {
        /// Returned with the outcome.
        ticket: Ticket,
        /// First key, inclusive.
        from: Span,
        /// Last key, exclusive; empty: `from` alone.
        until: Span,
        /// Rows at most.
        row_count_max: u32,
    },
    /// Append to this lane's log and make it durable. One at a time. Answered by
    /// [`crate::StoreEvent::Logged`].
    LogAppend {
        /// Returned with the outcome.
        ticket: Ticket,
        /// The bytes: one batch.
        batch: Span,
    },
    /// The log may get bytes that their object does not have yet: the rows take over nothing that is
    /// appended from now on, until [`StoreAction::ReleaseRows`].
    HoldRows {
        /// Higher than all before.
        number: u64,
    },
    /// The object has the bytes. If that failed, the rows take over nothing more in this boot.
    ReleaseRows {
        /// Of a [`StoreAction::HoldRows`].
        number: u64,
        /// The object does not have them.
        has_failed: bool,
    },
    /// Read the space of the file system under the store. Answered by [`crate::StoreEvent::Space`].
    Space {
        /// Returned with the outcome.
        ticket: Ticket,
    },
    /// Server: an administrator's client requests an inspection of the store. Answered by
    /// `Inspected`, before the next request of this connection.
    Inspect {
        /// The connection that requested it.
        conn: ConnId,
        /// The request.
        ask: Inspect,
    },
    /// Server: end the inspection of this connection, if there is one. No event of it follows.
    InspectEnd {
        /// The connection that requested it.
        conn: ConnId,
    },
}

/// A server's actions on the contents of stripe objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectAction {
    /// Read from an object. Answered by [`crate::ObjectEvent::Read`].
    Read {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// From here.
        object_offset: u64,
        /// This many at most, up to [`wire::BULK_BYTES_MAX`].
        read_bytes: u32,
        /// Fail with `Uncached` if the page cache lacks any of the range, where the runtime can
        /// tell.
        only_cached: bool,
    },
    /// Read several ranges of a file's stripe objects. Answered by [`crate::ObjectEvent::Read`] with
    /// the bytes of all ranges, concatenated; bytes behind an object's end are zeros.
    ReadList {
        /// Returned with the outcome.
        ticket: Ticket,
        /// One of the objects; each range names its stripe.
        object: Object,
        /// Encoded [`crate::ObjectPiece`]s, at least one.
        pieces: Span,
        /// As in [`ObjectAction::Read`].
        only_cached: bool,
    },
    /// Write into an object, which is created if it does not exist. Answered by
    /// [`crate::ObjectEvent::Done`], or by [`crate::ObjectEvent::Written`] if checksums are
    /// requested; not durable yet.
    Write {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// To here.
        object_offset: u64,
        /// The bytes.
        bulk: Bulk,
        /// Block size of the checksums, which cover aligned blocks; 0: no checksums.
        block_bytes: u32,
    },
    /// Compute checksums of ranges of an object as it is now. Answered by
    /// [`crate::ObjectEvent::Sums`].
    Sums {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// Encoded [`crate::SumRange`]s, at least one; adjacent ones are read at once.
        ranges: Span,
    },
    /// Load ranges of an object as it is now. Answered by [`crate::ObjectEvent::Loaded`].
    Load {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// Encoded [`crate::SumRange`]s, at least one; adjacent ones are read at once.
        ranges: Span,
    },
    /// Load bytes that are to be written, from their buffer. Answered by
    /// [`crate::ObjectEvent::Loaded`], at once.
    LoadWrite {
        /// Returned with the outcome.
        ticket: Ticket,
        /// The bytes.
        bulk: Bulk,
    },
    /// Set an object's size; the object is created if it does not exist. Answered by
    /// [`crate::ObjectEvent::Done`]; not durable yet.
    Truncate {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// The new size.
        size_bytes: u64,
    },
    /// Allocate, punch or zero a range of an object, which is created if it does not exist.
    /// Answered by [`crate::ObjectEvent::Done`]; not durable yet.
    Allocate {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// From here.
        object_offset: u64,
        /// Length, at least 1.
        range_bytes: u64,
        /// Which of the three.
        allocation: Allocation,
        /// The object does not become longer.
        keep_size: bool,
    },
    /// Free the space that an allocation of a range has taken in former holes and behind the end:
    /// one of another object of its file failed. Contents stay. Answered by
    /// [`crate::ObjectEvent::Done`]; not durable yet.
    GiveBack {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// From here.
        object_offset: u64,
        /// Length, at least 1.
        range_bytes: u64,
        /// The object's size before the allocation.
        size_bytes: u64,
    },
    /// Find the next data or hole, as lseek(2) does. Answered by [`crate::ObjectEvent::Sought`].
    Seek {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// From here on.
        object_offset: u64,
        /// Find a hole; otherwise data.
        hole: bool,
    },
    /// Make an object's contents, size and existence durable. Answered by
    /// [`crate::ObjectEvent::Done`].
    Sync {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
    },
    /// Ask for an object's size. Answered by [`crate::ObjectEvent::Stat`].
    Stat {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// A write to a new file follows: the object may be made if there is none.
        may_make: bool,
    },
    /// Remove an object, durably; succeeds if there is none. Answered by
    /// [`crate::ObjectEvent::Done`].
    Remove {
        /// Returned with the outcome.
        ticket: Ticket,
        /// Which.
        object: Object,
    },
}

/// A mount's actions on its kernel connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelAction {
    /// Mount: reply to a request of the kernel.
    Reply {
        /// The request's slot.
        slot: KernelSlot,
        /// `Ok`, or the errno.
        status: Status,
        /// The reply's structs and small bytes, behind the header.
        payload: Span,
        /// The bytes of a READ, behind the payload. The state machine releases the buffer as usual.
        bulk: Option<Bulk>,
    },
    /// Mount: look up a process's supplementary groups. Answered by
    /// [`crate::KernelEvent::CallerGroups`].
    CallerGroups {
        /// Returned with the outcome.
        ticket: Ticket,
        /// The process, as its request names it.
        process: Process,
    },
    /// Mount: look up whether a process has a signal pending that ends it. Answered by
    /// [`crate::KernelEvent::CallerSignals`].
    CallerSignals {
        /// Returned with the outcome.
        ticket: Ticket,
        /// The process (or thread) id.
        pid: u32,
    },
    /// Mount: make the kernel drop something from its caches. Replies before it are given to the
    /// kernel first. Answered by [`crate::KernelEvent::Notified`].
    Notify {
        /// Returned with the outcome.
        ticket: Ticket,
        /// What.
        notify: KernelNotify,
    },
}

/// What the kernel drops from its caches. Nodes are the numbers by which it names inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelNotify {
    /// The attributes of a node. Never waits.
    Attributes {
        /// Which.
        node: u64,
    },
    /// Every name becomes unknown, existing and absent ones. Never waits. Fails with `EBUSY` while
    /// something is mounted on a directory of the mount, which this would detach.
    AllNames,
    /// A name, existing or absent. Waits until requests that change or list the directory are
    /// answered. Fails with `EBUSY` if it may be one of a directory and something is mounted on a
    /// directory of the mount, which this might detach.
    Name {
        /// The directory.
        parent: u64,
        /// The name.
        name: Span,
        /// Whether it may be the name of a directory.
        of_directory: bool,
    },
    /// A name is looked up before it is used again, and what is mounted below stays where it is. An
    /// earlier reply that is applied later makes it valid again. Waits as `Name` does.
    ExpiredName {
        /// The directory.
        parent: u64,
        /// The name.
        name: Span,
    },
    /// The attributes and all pages of a node. Waits until READs of it are answered.
    Contents {
        /// Which.
        node: u64,
    },
}

from_parts!(Action: Net(NetAction), Peer(PeerAction), Store(StoreAction), Object(ObjectAction), Kernel(KernelAction));

impl NetAction {
    /// Admits a peer that may write and has no party: a client's server, or a client in a program
    /// without shares.
    #[must_use]
    pub const fn admit(conn: ConnId) -> Self {
        Self::Admit { conn, writes: true, party: Party::NONE }
    }
}
