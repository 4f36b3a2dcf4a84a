//! What a core asks of its world.

use crate::{BufId, Bulk, ConnId, KernelSlot, Mail, Mono, Object, Party, Span, Ticket};
use wire::{Allocation, Inspect, LaneId, Status};

/// The process that a request of the kernel is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// The process (or thread) id, which another may have by now.
    pub pid: u32,
    /// Its user on file systems.
    pub uid: u32,
    /// Its group on file systems.
    pub gid: u32,
    /// It has lived since then at least.
    pub since: Mono,
}

/// How loud a line for people is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Say {
    /// Worth knowing.
    Info,
    /// Somebody should look.
    Warning,
    /// Data or service is in danger.
    Alarm,
}

/// Places in the protocol that a test can name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Point {
    /// Recovery: the lane has begun, nobody has come.
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
    /// Two-phase: all are prepared, the decision is about to be recorded.
    TxnDeciding,
    /// Two-phase: the decision is durable.
    TxnDecided,
    /// Two-phase: a participant has done what was decided.
    TxnDone,
    /// Two-phase: everybody has, and the coordinator forgets.
    TxnForgotten,
}

/// Something to do. Spans are of this turn's arena; the world copies what it needs for longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// About a connection.
    Net(NetAction),
    /// A message to a lane of this process.
    Peer(PeerAction),
    /// About the log and the rows of the store.
    Store(StoreAction),
    /// About the contents of an object.
    Object(ObjectAction),
    /// About a mount and the processes that use it.
    Kernel(KernelAction),
    /// Copy these bytes into a buffer of the world's that is called `as_buf` from here on, owned by
    /// the core until it says `Release`. The number is the core's own, from [`crate::CORE_BUFS`]
    /// on and not in use.
    Keep {
        /// The copy's name.
        as_buf: BufId,
        /// What to copy.
        bulk: Bulk,
    },
    /// Server: this lane's recovery is over; every client that it knew is back or evicted.
    Recovered,
    /// A place in the protocol where tests may end the process or make something fail. Does nothing
    /// otherwise.
    Point(Point),
    /// Give a buffer back.
    Release {
        /// Which.
        buf: BufId,
    },
    /// Ask for what this process and this lane have used. Answered by `Usage`, in the same turn or
    /// the next.
    Usage {
        /// Given back.
        ticket: Ticket,
    },
    /// Client: read again the secrets that we hold, where they are kept. Answered by `Secrets`.
    ReadSecrets,
    /// Take a turn at this time at the latest, even if nothing happens. Holds until that turn.
    WakeAt {
        /// When.
        at: Mono,
    },
    /// A line for people.
    Log {
        /// How loud.
        say: Say,
        /// UTF-8.
        line: Span,
    },
    /// Nothing is left to do: this lane ends.
    Stopped,
}

/// What a core asks about connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetAction {
    /// Client: connect to the server. Answered by [`crate::NetEvent::Connected`] or [`crate::NetEvent::ConnectFailed`].
    Connect {
        /// Given back.
        ticket: Ticket,
    },
    /// Server: the peer has proven itself; frames with bulk and long bodies are welcome from here
    /// on. (Client: said when the Welcome came.) Said again, it replaces what was said before.
    Admit {
        /// Which connection.
        conn: ConnId,
        /// Bulk that comes is kept for the core. Otherwise it is thrown away, and its frame comes
        /// without it.
        writes: bool,
        /// Whose the connection is: what is held for it counts as held by all of that party.
        party: Party,
    },
    /// Send a frame, and its bulk right behind it. Frames of one connection leave in order, and
    /// all of a turn's frames together.
    Send {
        /// Where to. Unknown or closed: nothing happens.
        conn: ConnId,
        /// Header and body.
        frame: Span,
        /// The bulk.
        bulk: Option<Bulk>,
    },
    /// Close a connection once what was queued for it has left (bounded by a second). Nothing more
    /// is heard of it.
    Close {
        /// Which.
        conn: ConnId,
    },
    /// Server: give a connection, of which only a Hello was read, to a peer lane.
    HandOver {
        /// Which.
        conn: ConnId,
        /// To whom.
        lane: LaneId,
        /// The Hello frame.
        hello: Span,
    },
    /// Server: keep the socket of a connection of which only a Hello was read, and let a peer lane
    /// have all that it says, from that Hello on. The peer lane is told as if it were handed over; here
    /// nothing more is heard of it.
    Relay {
        /// Which.
        conn: ConnId,
        /// To whom.
        lane: LaneId,
        /// The Hello frame.
        hello: Span,
    },
}

/// Messages to peer lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerAction {
    /// Write to a peer lane.
    Mail {
        /// To whom.
        to: LaneId,
        /// What.
        mail: Mail,
    },
    /// Write to a peer lane (or to oneself) what does not fit a [[`crate::PeerEvent::Mail`]].
    Letter {
        /// To whom.
        to: LaneId,
        /// The words, at most [`crate::LANE_MESSAGE_BYTES_MAX`].
        body: Span,
    },
}

/// What a server asks of the log and the rows of its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreAction {
    /// Ask the cold store for rows. Answered by [`crate::StoreEvent::Rows`].
    ReadRows {
        /// Given back.
        ticket: Ticket,
        /// First key, inclusive.
        from: Span,
        /// Last key, exclusive; empty: `from` alone.
        until: Span,
        /// Rows at most.
        row_count_max: u32,
    },
    /// Append to this lane's log and make it durable. One at a time. Answered by [`crate::StoreEvent::Logged`].
    LogAppend {
        /// Given back.
        ticket: Ticket,
        /// The bytes: one batch.
        batch: Span,
    },
    /// Ask for the space under the store. Answered by [`crate::StoreEvent::Space`].
    Space {
        /// Given back.
        ticket: Ticket,
    },
    /// Server: a client that administers asks for an inspection of the store. Answered by
    /// `Inspected`, before the next one of this connection.
    Inspect {
        /// Whose inspection.
        conn: ConnId,
        /// What is asked.
        ask: Inspect,
    },
    /// Server: the inspection of this connection is to end, if there is one. Nothing more is heard of it.
    InspectEnd {
        /// Whose inspection.
        conn: ConnId,
    },
}

/// What a server asks about the contents of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectAction {
    /// Read from an object. Answered by [`crate::ObjectEvent::Read`].
    Read {
        /// Given back.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// From here.
        object_offset: u64,
        /// This many at most, up to [`wire::BULK_BYTES_MAX`].
        read_bytes: u32,
        /// Not if the page cache lacks any of it: answered by `ObjectUncached` then, if the world can
        /// tell.
        only_cached: bool,
    },
    /// Read several pieces of an object. Answered by [`crate::ObjectEvent::Read`], with the bytes of all of them, one
    /// behind the other; what the object has not of them are zeros.
    ReadList {
        /// Given back.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// An encoded [`wire::Pieces`], at least one.
        pieces: Span,
        /// As in `ObjectRead`.
        only_cached: bool,
    },
    /// Write into an object, making it if need be. Answered by [`crate::ObjectEvent::Done`], or by [`crate::ObjectEvent::Written`] if
    /// it is summed; not durable yet.
    Write {
        /// Given back.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// To here.
        object_offset: u64,
        /// The bytes.
        bulk: Bulk,
        /// The bytes are summed by aligned blocks of this size; 0: they are not summed.
        block_bytes: u32,
    },
    /// Sum ranges of an object as it is now. Answered by [`crate::ObjectEvent::Sums`].
    Sums {
        /// Given back.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// Encoded [`crate::SumRange`]s, at least one; those that follow each other are read at once.
        ranges: Span,
    },
    /// Set an object's size, making it if need be. Answered by [`crate::ObjectEvent::Done`]; not durable yet.
    Truncate {
        /// Given back.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// The new size.
        size_bytes: u64,
    },
    /// Give a range of an object space, or take it away, or make it zeros; makes the object if need
    /// be. Answered by [`crate::ObjectEvent::Done`]; not durable yet.
    Allocate {
        /// Given back.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// From here.
        object_offset: u64,
        /// This many, at least 1.
        range_bytes: u64,
        /// What becomes of it.
        allocation: Allocation,
        /// The object does not become longer.
        keep_size: bool,
    },
    /// Look for bytes, or for a hole. Answered by [`crate::ObjectEvent::Sought`].
    Seek {
        /// Given back.
        ticket: Ticket,
        /// Which.
        object: Object,
        /// From here on.
        object_offset: u64,
        /// A hole; otherwise bytes.
        hole: bool,
    },
    /// Make an object's contents, size and existence durable. Answered by [`crate::ObjectEvent::Done`].
    Sync {
        /// Given back.
        ticket: Ticket,
        /// Which.
        object: Object,
    },
    /// Ask for an object's size. Answered by [`crate::ObjectEvent::Stat`].
    Stat {
        /// Given back.
        ticket: Ticket,
        /// Which.
        object: Object,
    },
    /// Remove an object, durably; one that does not exist is removed already. Answered by
    /// [`crate::ObjectEvent::Done`].
    Remove {
        /// Given back.
        ticket: Ticket,
        /// Which.
        object: Object,
    },
}

/// What a mount asks of its kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelAction {
    /// Mount: answer the kernel.
    Reply {
        /// Of the request.
        slot: KernelSlot,
        /// `Ok`, or the errno.
        status: Status,
        /// What follows the header: the answer's structs and small bytes.
        payload: Span,
        /// What follows that: the bytes of a READ. Released by the core as usual.
        bulk: Option<Bulk>,
    },
    /// Mount: look up a process's supplementary groups. Answered by [`crate::KernelEvent::CallerGroups`].
    CallerGroups {
        /// Given back.
        ticket: Ticket,
        /// The process, as its request says.
        who: Process,
    },
    /// Mount: look up whether a process is asked to end. Answered by [`crate::KernelEvent::CallerSignals`].
    CallerSignals {
        /// Given back.
        ticket: Ticket,
        /// The process (or thread) id.
        pid: u32,
    },
}

impl From<NetAction> for Action {
    fn from(action: NetAction) -> Self {
        Self::Net(action)
    }
}

impl From<PeerAction> for Action {
    fn from(action: PeerAction) -> Self {
        Self::Peer(action)
    }
}

impl From<StoreAction> for Action {
    fn from(action: StoreAction) -> Self {
        Self::Store(action)
    }
}

impl From<ObjectAction> for Action {
    fn from(action: ObjectAction) -> Self {
        Self::Object(action)
    }
}

impl From<KernelAction> for Action {
    fn from(action: KernelAction) -> Self {
        Self::Kernel(action)
    }
}

impl NetAction {
    /// Admits a peer that may write and is of no party: a client's server, or a client of a core that
    /// gives nobody a share.
    #[must_use]
    pub const fn admit(conn: ConnId) -> Self {
        Self::Admit { conn, writes: true, party: Party::NONE }
    }
}
