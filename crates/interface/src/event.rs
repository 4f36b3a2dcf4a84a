//! What a world tells a core.

use crate::{Bulk, Mail, Span};
use wire::{
    Channel, DecodeError, LaneId, ProtocolError, Reader, Secrets, ShardId, Status, Transno, Wire,
    Writer,
};

/// A connection of this lane. Not reused while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// A core's own number on an action, given back with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// A place in the kernel's request queues; taken by a request until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KernelSlot(pub u32);

/// A Linux errno, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(pub u16);

impl Errno {
    /// EPROTONOSUPPORT: TLS was begun, and the server speaks in plain text.
    pub const MUST_NOT_SEAL: Self = Self(93);
    /// EPROTO: the peer's TLS is broken.
    pub const SEAL: Self = Self(71);

    /// The status to answer with; EIO for what has none.
    #[must_use]
    pub fn status(self) -> Status {
        Status::from_number(self.0).filter(|status| *status != Status::Ok).unwrap_or(Status::Io)
    }
}

/// What is wrong with a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CertificateFlaw {
    /// Its time is over; said by a peer, it may also not have begun.
    Expired,
    /// Its time has not begun.
    NotYetValid,
    /// It is of another CA.
    OtherIssuer,
    /// It is for other names; said by a peer, it may also be damaged.
    OtherName,
    /// It is for the other end of connections.
    OtherUse,
    /// There is none.
    Missing,
    /// It cannot be read or checked.
    Unfit,
}

/// A certificate that one end of a connection refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BadCertificate {
    /// Ours, as the peer says; otherwise the peer's, as we found.
    pub ours: bool,
    /// Why.
    pub flaw: CertificateFlaw,
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The peer closed it in order.
    Ended,
    /// The socket failed.
    Failed(Errno),
    /// The peer sent something that is no frame.
    ProtocolError(ProtocolError),
    /// It does not read what it is sent.
    TooSlow,
    /// It does not send what it has begun to send.
    Unfinished,
    /// One end refused the other's certificate.
    Certificate(BadCertificate),
}

/// How much the lane's log can still take for sure: reserved on the medium beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSpace {
    /// Bytes.
    pub space_bytes: u64,
    /// The medium has more; what the log says already must be kept elsewhere before it is given.
    pub is_behind: bool,
}

/// What the file system under the store says of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectStat {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes allocated.
    pub allocated_bytes: u64,
}

/// A range of an object whose checksum is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SumRange {
    /// From here.
    pub object_offset: u64,
    /// This many bytes, at least 1.
    pub range_bytes: u32,
}

impl Wire<'_> for SumRange {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.object_offset);
        to.write(&self.range_bytes);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { object_offset: from.read()?, range_bytes: from.read()? })
    }
}

/// Space under the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreSpace {
    /// All bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes free for other than root.
    pub available_bytes: u64,
    /// Files that could still be made there, by other than root; `None` where nobody counts them.
    pub available_file_count: Option<u64>,
}

/// What was used since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Processor time of the whole process, in user space and in the kernel.
    pub cpu_ns: u64,
    /// Times that a thread of the process went to sleep.
    pub voluntary_switch_count: u64,
    /// Times that a thread of the process had to give its core to others.
    pub involuntary_switch_count: u64,
    /// Turns that this lane took.
    pub turn_count: u64,
    /// System calls that this lane made.
    pub syscall_count: u64,
    /// Clock readings of this lane.
    pub clock_read_count: u64,
    /// Letters from this lane to its peer lanes.
    pub message_out_count: u64,
    /// Sends of this lane, each of all that a turn had for a connection.
    pub send_count: u64,
    /// Times that this lane looked out for more work before it would have slept.
    pub spin_count: u64,
    /// Of them, those that found some.
    pub spin_hit_count: u64,
    /// The longest turn behind which something waited, nanoseconds.
    pub turn_ns_max: u64,
    /// Reads and writes of objects that this lane gave to another thread of the process.
    pub object_handed_count: u64,
    /// Threads that were started for it.
    pub object_thread_count: u64,
    /// Most of them that this lane had under way at a time, whoever did them.
    pub object_under_way_max: u32,
    /// The same, of one object.
    pub object_under_way_one_max: u32,
}

/// Something happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// About a connection.
    Net(NetEvent),
    /// A message from a lane of this process.
    Peer(PeerEvent),
    /// About the log and the rows of the store.
    Store(StoreEvent),
    /// About the contents of an object.
    Object(ObjectEvent),
    /// About a mount and the processes that use it.
    Kernel(KernelEvent),
    /// The outcome of [`crate::Action::Usage`].
    Usage {
        /// Of the action.
        ticket: Ticket,
        /// What was used.
        usage: Usage,
    },
    /// The secrets that are valid, or that we hold, are these from here on. `None`: the answer to
    /// [`crate::Action::ReadSecrets`] where there is nothing to be read.
    Secrets(Option<Secrets>),
    /// The time of an [`crate::Action::WakeAt`] has come, or nothing: look at your deadlines.
    Tick,
    /// The process is asked to end: finish what is begun, then say [`crate::Action::Stopped`].
    Stop,
}

/// What happened to connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetEvent {
    /// A connection is under TLS: said once, before all else of it. Of what this is not said of, the
    /// channel is [`wire::PLAIN`].
    Sealed {
        /// Which; where it was asked for, `Connected` comes right behind.
        conn: ConnId,
        /// What both its ends call it, for the proofs.
        channel: Channel,
        /// Server: a [`wire::CertificateIdentity`], if the client has shown a certificate, which is good.
        holder: Option<Span>,
    },
    /// Server: the client of a connection has a loopback address, so it runs on this host. Said once,
    /// before the connection's first frame.
    FromThisHost {
        /// Which.
        conn: ConnId,
    },
    /// Server: a connection did not get under TLS, because one end refused the other's certificate.
    /// Nothing else is said of it.
    CertificateRefused {
        /// Which certificate, and why.
        bad: BadCertificate,
        /// The client's address, as text.
        client: Span,
    },
    /// Server: a connection of a listening lane sent its first frame, always a Hello.
    /// Every other frame too. Where they have checksums, these are already checked.
    Frame {
        /// Where from.
        conn: ConnId,
        /// Header and body.
        frame: Span,
        /// The bulk, owned by the core from here on.
        bulk: Option<Bulk>,
    },
    /// Server: a peer lane handed over a connection, or relays it, with the Hello it had read.
    HandedOver {
        /// Its name at this lane.
        conn: ConnId,
        /// The Hello frame.
        hello: Span,
    },
    /// Client: a connection that was asked for is there.
    Connected {
        /// Of [`crate::NetAction::Connect`].
        ticket: Ticket,
        /// The connection.
        conn: ConnId,
    },
    /// Client: a connection that was asked for could not be had. [`CloseReason::Certificate`] and
    /// [`Errno::MUST_NOT_SEAL`] are about its seal.
    ConnectFailed {
        /// Of [`crate::NetAction::Connect`].
        ticket: Ticket,
        /// Why.
        reason: CloseReason,
    },
    /// A connection ended without the core's asking. Nothing more comes from it.
    Closed {
        /// Which.
        conn: ConnId,
        /// Why.
        reason: CloseReason,
    },
}

/// Messages from peer lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerEvent {
    /// A peer lane wrote.
    Mail {
        /// Who.
        from: LaneId,
        /// What.
        mail: Mail,
    },
    /// A peer lane wrote what does not fit a [[`crate::PeerAction::Mail`]]; in one order with its mail.
    Letter {
        /// Who.
        from: LaneId,
        /// The words.
        body: Span,
    },
}

/// What became of the log and the rows of a server's store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreEvent {
    /// The outcome of [`crate::StoreAction::ReadRows`]: rows, each as 4 bytes key length, 4 bytes value
    /// length (little-endian), key, value; in the order of their keys.
    Rows {
        /// Of the action.
        ticket: Ticket,
        /// What was found.
        result: Result<Span, Errno>,
    },
    /// The cold store has taken over this shard's log up to here, durably: what was changed up to
    /// then can be forgotten.
    Checkpointed {
        /// Which.
        shard: ShardId,
        /// Its last record.
        lsn: u64,
        /// The highest transaction of all up to there.
        transno: Transno,
    },
    /// The outcome of [`crate::StoreAction::LogAppend`]: the bytes are durable, or the log is broken
    /// and takes no more.
    Logged {
        /// Of the action.
        ticket: Ticket,
        /// What is left.
        result: Result<LogSpace, Errno>,
    },
    /// The log's reserve changed without an append (it grew).
    LogSpace(LogSpace),
    /// The outcome of [`crate::StoreAction::Space`].
    Space {
        /// Of the action.
        ticket: Ticket,
        /// What was found.
        result: Result<StoreSpace, Errno>,
    },
    /// The outcome of [`crate::StoreAction::Inspect`].
    Inspected {
        /// Whose inspection.
        conn: ConnId,
        /// How it went: `NotFound` where the connection has no inspection, `Busy` where too many are under
        /// way.
        status: Status,
        /// An encoded [`wire::Inspected`] if it went well.
        reply: Span,
    },
}

/// Outcomes of a server's actions on objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectEvent {
    /// The outcome of [`crate::ObjectAction::Read`]; shorter than asked at the object's end.
    Read {
        /// Of the action.
        ticket: Ticket,
        /// The bytes (`None`: there are none), owned by the core from here on.
        result: Result<Option<Bulk>, Errno>,
    },
    /// The outcome of a read of what is in the page cache alone: not all of it is there.
    Uncached {
        /// Of the action.
        ticket: Ticket,
    },
    /// The outcome of [`crate::ObjectAction::Stat`]; `None` when there is no such object yet.
    Stat {
        /// Of the action.
        ticket: Ticket,
        /// What was found.
        result: Result<Option<ObjectStat>, Errno>,
    },
    /// The outcome of [`crate::ObjectAction::Seek`]; `None` at and behind the object's end, and
    /// where no more bytes come.
    Sought {
        /// Of the action.
        ticket: Ticket,
        /// Where.
        result: Result<Option<u64>, Errno>,
    },
    /// The outcome of [`crate::ObjectAction::Sums`]: for each range the CRC-32C of the bytes that the
    /// object has of it and how many those are, 4 bytes each (little-endian).
    Sums {
        /// Of the action.
        ticket: Ticket,
        /// The sums.
        result: Result<Span, Errno>,
        /// Not all of the bytes were in the page cache, as far as the world can tell.
        from_disk: bool,
    },
    /// The outcome of an [`crate::ObjectAction::Write`] that is summed: for each part of a block the
    /// CRC-32C of its bytes and how many those are, as in [`crate::ObjectAction::Sums`].
    Written {
        /// Of the action.
        ticket: Ticket,
        /// The sums.
        result: Result<Span, Errno>,
    },
    /// The outcome of every other action on an object.
    Done {
        /// Of the action.
        ticket: Ticket,
        /// How it went.
        result: Result<(), Errno>,
    },
}

/// What a mount's kernel asks and tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelEvent {
    /// Mount: the kernel asks. `slot` is `None` for what takes no answer (FORGET, INTERRUPT).
    Request {
        /// Where the answer goes.
        slot: Option<KernelSlot>,
        /// `fuse_in_header` and arguments, without the data of a WRITE.
        request: Span,
        /// The data of a WRITE. Valid until the answer; it needs no release.
        bulk: Option<Bulk>,
    },
    /// Mount: the kernel has unmounted.
    Unmounted,
    /// Mount: the outcome of [`crate::KernelAction::CallerGroups`].
    CallerGroups {
        /// Of the action.
        ticket: Ticket,
        /// Group ids, 4 bytes little-endian each, none if it is another process by now; `None` when there
        /// is no such process any more.
        groups: Option<Span>,
    },
    /// Mount: the outcome of [`crate::KernelAction::CallerSignals`].
    CallerSignals {
        /// Of the action.
        ticket: Ticket,
        /// It is being killed, is asked to end, or is gone.
        ends: bool,
    },
}

impl From<NetEvent> for Event {
    fn from(event: NetEvent) -> Self {
        Self::Net(event)
    }
}

impl From<PeerEvent> for Event {
    fn from(event: PeerEvent) -> Self {
        Self::Peer(event)
    }
}

impl From<StoreEvent> for Event {
    fn from(event: StoreEvent) -> Self {
        Self::Store(event)
    }
}

impl From<ObjectEvent> for Event {
    fn from(event: ObjectEvent) -> Self {
        Self::Object(event)
    }
}

impl From<KernelEvent> for Event {
    fn from(event: KernelEvent) -> Self {
        Self::Kernel(event)
    }
}
