//! Events: the reports of a runtime to its state machine.

use crate::{Bulk, Mono, MountMessage, Span};
use wire::{
    Channel, DecodeError, LaneId, ProtocolError, Reader, Secrets, ShardId, Status, Transno, Wire,
    Writer,
};

/// A connection of this lane. Ids are not reused while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// A state machine's own number on an action, returned with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// A slot of the kernel's request queues; occupied by a request until its reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KernelSlot(pub u32);

/// A Linux errno, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(pub u16);

impl Errno {
    /// EPROTONOSUPPORT: the client began TLS, and the server accepts plain text only.
    pub const MUST_NOT_SEAL: Self = Self(93);
    /// EPROTO: the peer's TLS is broken.
    pub const SEAL: Self = Self(71);

    /// The status to reply with; EIO for an errno without one.
    #[must_use]
    pub fn status(self) -> Status {
        Status::from_number(self.0).filter(|status| *status != Status::Ok).unwrap_or(Status::Io)
    }
}

/// Why a certificate was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CertificateFlaw {
    /// It has expired; reported by a peer, it may also be not valid yet.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// Another CA issued it.
    OtherIssuer,
    /// It is for other names; reported by a peer, it may also be damaged.
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
    /// Our certificate, refused by the peer; otherwise the peer's, refused by us.
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
    /// The peer does not read.
    TooSlow,
    /// The peer did not finish a frame that it began to send.
    Unfinished,
    /// One end refused the other's certificate.
    Certificate(BadCertificate),
}

/// How much the lane's log can still take: reserved on the medium beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSpace {
    /// Reserved bytes.
    pub space_bytes: u64,
    /// The medium has more, but only a checkpoint of the log so far makes it available.
    pub awaits_checkpoint: bool,
}

/// Size and allocation of an object in the file system under the store.
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
    /// Length, at least 1.
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

/// A range of one of a file's stripe objects, read with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectPiece {
    /// The stripe.
    pub stripe_index: u32,
    /// From here.
    pub object_offset: u64,
    /// Length, at least 1.
    pub piece_bytes: u32,
}

impl Wire<'_> for ObjectPiece {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.stripe_index);
        to.write(&self.object_offset);
        to.write(&self.piece_bytes);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            stripe_index: from.read()?,
            object_offset: from.read()?,
            piece_bytes: from.read()?,
        })
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
    /// Files that users other than root can still create; `None` where the file system has no such
    /// limit.
    pub available_file_count: Option<u64>,
}

/// Resource usage since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Processor time of the whole process, in user space and in the kernel.
    pub cpu_ns: u64,
    /// Times that a thread of the process went to sleep.
    pub voluntary_switch_count: u64,
    /// Times that a thread of the process was preempted.
    pub involuntary_switch_count: u64,
    /// Turns of this lane.
    pub turn_count: u64,
    /// System calls of this lane.
    pub syscall_count: u64,
    /// Clock readings of this lane.
    pub clock_read_count: u64,
    /// Messages from this lane to its peer lanes.
    pub message_out_count: u64,
    /// Sends of this lane, each with all frames of a turn for one connection.
    pub send_count: u64,
    /// Times that this lane polled for more work before it slept.
    pub spin_count: u64,
    /// Of them, those that found some.
    pub spin_hit_count: u64,
    /// The longest turn that made other events wait, nanoseconds.
    pub turn_ns_max: u64,
    /// Object reads and writes that this lane gave to a worker thread.
    pub object_offloaded_count: u64,
    /// Worker threads that were started for them.
    pub object_thread_count: u32,
    /// Memory of the whole process, in kibibytes.
    pub resident_kib: u32,
    /// Most object reads and writes of this lane in flight at a time, on any thread.
    pub object_in_flight_max: u32,
    /// The same, of one object.
    pub object_in_flight_one_max: u32,
}

/// How a lane has spent its time so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LaneTime {
    /// The time of this report.
    pub now: Mono,
    /// Processor time of its own thread.
    pub cpu_ns: u64,
    /// Turns that made other events wait.
    pub backlog_ns: u64,
    /// Since its start.
    pub up_ms: u64,
    /// How long its sends took.
    pub send_times: SendTimes,
}

/// How long sends took, from when their bytes were queued until the kernel had taken them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SendTimes {
    /// By [`SendTimes::LIMITS_US`]: those that took at most that, and more than the limit before.
    pub counts: [u64; Self::LIMITS_US.len()],
    /// The sum of the times.
    pub sum_us: u64,
}

impl SendTimes {
    /// The limits of the counts; each is also that of a bucket of [`wire::counters::Histogram`].
    pub const LIMITS_US: [u64; 8] = [0, 255, 1_023, 4_095, 16_383, 131_071, 1_048_575, u64::MAX];

    /// Adds a send.
    pub fn record(&mut self, took_us: u64) {
        let index = Self::LIMITS_US.iter().position(|limit_us| took_us <= *limit_us);
        self.counts[index.unwrap_or(0)] += 1;
        self.sum_us = self.sum_us.saturating_add(took_us);
    }
}

/// An event.
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
    /// The first part of the outcome of [`crate::Action::Usage`].
    LaneTime(LaneTime),
    /// The outcome of [`crate::Action::Usage`].
    Usage {
        /// Of the action.
        ticket: Ticket,
        /// What was used.
        usage: Usage,
    },
    /// A question of another thread of this process, from a control socket: answered by
    /// [`crate::Action::Answer`], once.
    Asked {
        /// For the answer.
        ticket: Ticket,
        /// The question's bytes.
        question: Span,
    },
    /// Server: a newer map, encoded as [`wire::Map`].
    Map(Span),
    /// The secrets that are valid (server) or held (client) from here on. `None`: the outcome of
    /// [`crate::Action::ReadSecrets`] where there is no secret file.
    Secrets(Option<Secrets>),
    /// The time of an [`crate::Action::WakeAt`] has come: check the deadlines. It may also come
    /// without a cause.
    Tick,
    /// The process shall end: finish operations in progress, then act [`crate::Action::Stopped`].
    Stop,
}

/// Events of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetEvent {
    /// A connection is under TLS: the first event of such a connection, once. A connection without
    /// it has the channel [`wire::PLAIN`].
    Sealed {
        /// Which; at a client, `Connected` follows at once.
        conn: ConnId,
        /// The channel binding that both ends derive, for the proofs.
        channel: Channel,
        /// Server: a [`wire::CertificateIdentity`], if the client has shown a valid certificate.
        holder: Option<Span>,
    },
    /// Server: the client of a connection has a loopback address, so it runs on this host. At most
    /// once, before the connection's first frame.
    FromThisHost {
        /// Which.
        conn: ConnId,
    },
    /// Server: a TLS handshake failed, because one end refused the other's certificate. No other
    /// event of that connection follows.
    CertificateRefused {
        /// Which certificate, and why.
        bad: BadCertificate,
        /// The client's address, as text.
        client: Span,
    },
    /// A frame arrived. The first one of a server's new connection is always a Hello. Checksums,
    /// where a frame has them, are already checked.
    Frame {
        /// Where from.
        conn: ConnId,
        /// Header and body.
        frame: Span,
        /// The bulk, owned by the state machine from here on.
        bulk: Option<Bulk>,
    },
    /// Server: a peer lane handed a connection over, or became its proxy lane, after it had read
    /// the Hello.
    HandedOver {
        /// Its id at this lane.
        conn: ConnId,
        /// The Hello frame.
        hello: Span,
    },
    /// Client: a connection is established.
    Connected {
        /// Of [`crate::NetAction::Connect`].
        ticket: Ticket,
        /// The connection.
        conn: ConnId,
    },
    /// Client: a connection could not be established. [`CloseReason::Certificate`] and
    /// [`Errno::MUST_NOT_SEAL`] are about its TLS handshake.
    ConnectFailed {
        /// Of [`crate::NetAction::Connect`].
        ticket: Ticket,
        /// Why.
        reason: CloseReason,
    },
    /// Server: the kernel has taken bytes of a connection at last: its client reads slowly, or the
    /// network is slow.
    SentLate {
        /// Which.
        conn: ConnId,
        /// Since they were queued.
        took_us: u64,
    },
    /// A connection ended without [`crate::NetAction::Close`]. No event of it follows.
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
    /// Mount, client: a message of a peer lane.
    Message {
        /// The sender.
        from: LaneId,
        /// The message.
        message: MountMessage,
    },
    /// Server: bytes of a peer lane's [`crate::PeerAction::Send`].
    Received {
        /// The sender.
        from: LaneId,
        /// The bytes.
        body: Span,
    },
}

/// Events of the log and the rows of a server's store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreEvent {
    /// The outcome of [`crate::StoreAction::ReadRows`]: rows, each as 4 bytes key length, 4 bytes
    /// value length (little-endian), key, value; in the order of their keys.
    Rows {
        /// Of the action.
        ticket: Ticket,
        /// What was found.
        result: Result<Span, Errno>,
    },
    /// The key-value store has durably applied this shard's log up to here: older changes need not
    /// stay in memory.
    Checkpointed {
        /// Which.
        shard: ShardId,
        /// The last record applied.
        lsn: u64,
        /// The highest transaction of all up to there.
        transno: Transno,
    },
    /// The outcome of [`crate::StoreAction::LogAppend`]: the bytes are durable, or the log is
    /// broken and takes no more.
    Logged {
        /// Of the action.
        ticket: Ticket,
        /// The space left.
        result: Result<LogSpace, Errno>,
    },
    /// The log's reserve grew without an append.
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
        /// The connection that requested it.
        conn: ConnId,
        /// The outcome: `NotFound` if the connection has no inspection, `Busy` if too many are
        /// running.
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
        /// The bytes (`None`: none), owned by the state machine from here on.
        result: Result<Option<Bulk>, Errno>,
    },
    /// The outcome of a read from the page cache alone: it lacks some of the range.
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
    /// where no more data follows.
    Sought {
        /// Of the action.
        ticket: Ticket,
        /// Where.
        result: Result<Option<u64>, Errno>,
    },
    /// The outcome of [`crate::ObjectAction::Sums`]: for each range the CRC-32C of the bytes that
    /// the object has of it and their count, 4 bytes each (little-endian).
    Sums {
        /// Of the action.
        ticket: Ticket,
        /// The sums.
        result: Result<Span, Errno>,
        /// Some of the bytes were not in the page cache, as far as the runtime can tell.
        from_disk: bool,
    },
    /// The outcome of [`crate::ObjectAction::Load`]: for each range the number of bytes that the
    /// object has of it (4 bytes, little-endian), and these bytes.
    Loaded {
        /// Of the action.
        ticket: Ticket,
        /// The bytes.
        result: Result<Span, Errno>,
    },
    /// The outcome of an [`crate::ObjectAction::Write`] with checksums: for each part of a block
    /// the CRC-32C of its bytes and their count, as in [`ObjectEvent::Sums`].
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
        /// The outcome.
        result: Result<(), Errno>,
    },
}

/// Events of a mount's kernel connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelEvent {
    /// Mount: a request of the kernel. `slot` is `None` for one without a reply (FORGET,
    /// INTERRUPT).
    Request {
        /// Where the reply goes.
        slot: Option<KernelSlot>,
        /// `fuse_in_header` and arguments, without the data of a WRITE.
        request: Span,
        /// The data of a WRITE. Valid until the reply; it needs no release.
        bulk: Option<Bulk>,
    },
    /// Mount: the kernel has unmounted.
    Unmounted,
    /// Mount: the outcome of [`crate::KernelAction::CallerGroups`].
    CallerGroups {
        /// Of the action.
        ticket: Ticket,
        /// Group ids, 4 bytes little-endian each; none if the id has been reused;
        /// `None` if there is no such process any more.
        groups: Option<Span>,
    },
    /// Mount: the outcome of [`crate::KernelAction::CallerSignals`].
    CallerSignals {
        /// Of the action.
        ticket: Ticket,
        /// It is being killed, has a signal pending that ends it, or has ended.
        ends: bool,
    },
    /// Mount: the outcome of [`crate::KernelAction::Notify`].
    Notified {
        /// Of the action.
        ticket: Ticket,
        /// `ENOENT`: the kernel has no such thing.
        result: Result<(), Errno>,
    },
}

from_parts!(Event: Net(NetEvent), Peer(PeerEvent), Store(StoreEvent), Object(ObjectEvent), Kernel(KernelEvent));
