//! The message from one lane to another, of the same server or of another one (docs/protocol.md §12.2): one envelope, one
//! enum of bodies, one encoding.

use super::containment::ContainmentMessage;
use super::tagged::tagged;
use crate::txns::TxnMessage;
use disk::{Change, ExportChange};
use meta::LockOwner;
use wire::{
    ClientUuid, Contents, DecodeError, InodeNo, Layout, List, PeerLane, PrivilegedBits,
    ProtocolError, Reader, Rule, SessionId, ShardId, Term, Wire, Writer,
};

/// Who sends a message to whom, and its place in the channel between their lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    /// The sender.
    pub(crate) from: PeerLane,
    /// The start of its server.
    pub(crate) from_term: Term,
    /// The receiver.
    pub(crate) to: PeerLane,
    /// The number of this message in its sender's term, from 1; 0 for a bare acknowledgement.
    pub(crate) sequence: u64,
    /// The sender has received all messages of the receiver up to here.
    pub(crate) acknowledged: u64,
}

/// A message between two lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerMessage<'a> {
    pub(crate) envelope: Envelope,
    pub(crate) body: PeerBody<'a>,
}

impl Wire<'_> for Envelope {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.from);
        to.write(&self.from_term);
        to.write(&self.to);
        to.write(&self.sequence);
        to.write(&self.acknowledged);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            from: from.read()?,
            from_term: from.read()?,
            to: from.read()?,
            sequence: from.read()?,
            acknowledged: from.read()?,
        })
    }
}

impl<'a> Wire<'a> for PeerMessage<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.envelope);
        to.write(&self.body);
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { envelope: from.read()?, body: from.read()? })
    }
}

tagged! {
    /// What a message says.
    PeerBody<'a> {
        /// A step of a cross-shard transaction.
        1 Txn {
            message: TxnMessage<'a>,
        }
        /// An inode is deleted: destroy its object at the receiver's data shard.
        2 DestroyObject { inode: InodeNo }
        /// The object at a shard of the sender is durably destroyed.
        3 ObjectDestroyed { inode: InodeNo, shard: ShardId }
        /// A file of the receiver's metadata shard was read.
        4 Accessed {
            inode: InodeNo,
            /// When its contents changed last, in nanoseconds since 1970 (0: never).
            write_time_ns: u64,
        }
        /// A file's attributes changed: report the next read.
        5 Changed { inode: InodeNo }
        /// A file's last writer closed it: reply with its size and times when they are durable.
        6 QueryContents {
            inode: InodeNo,
            /// The query's number, repeated in the reply.
            number: u64,
            /// Its layout, if it is spread over several data shards.
            spread: Option<Layout>,
            /// It was made since the lanes are connected.
            is_fresh: bool,
        }
        /// The reply to a `QueryContents`.
        7 DurableContents {
            inode: InodeNo,
            number: u64,
            /// `None` if the data shard cannot make them durable.
            contents: Option<Contents>,
        }
        /// Privileged bits of a file that is open for writing: the data shard refuses writes that
        /// would have to clear them. Empty ones end it.
        8 PrivilegedBits { inode: InodeNo, bits: Bits }
        /// About export containment.
        9 Containment { message: ContainmentMessage }
        /// An export was defined, changed or removed.
        10 Export { change: ExportDefinition<'a> }
        /// A client was evicted.
        11 Evicted { client: ClientUuid }
        /// A search for deadlocks: follow the waits of these owners.
        12 FollowWaits {
            search: Search,
            hops_left: u8,
            owners: List<'a, Owner>,
        }
        /// A search for deadlocks has returned to the wait that it started from.
        13 CycleFound { search: Search }
        /// Nothing but the envelope's acknowledgement.
        14 Acknowledgement {}
        /// Between servers: the receiver has been told everything that it must know of the sender
        /// since their connection began.
        15 Restated {}
        /// Replies wait until the receiver has applied all before it.
        16 Barrier {}
        /// A client's write lease of a file was taken: its writes behind are refused.
        17 WriterFenced { inode: InodeNo, client: ClientUuid }
        /// So many evictions that the receiver has told over the present connection are durable.
        18 EvictionsRecorded { count: u64 }
        /// The home shard of a file asks what the receiver has of it.
        19 LookAtPart {
            inode: InodeNo,
            /// Of the operation, repeated in the answer: they rise, also over starts of the sender.
            number: u64,
            /// Answer when all of it is durable.
            durable: bool,
            /// From now on only appends of this session move its end.
            appends: Option<SessionId>,
        }
        /// The answer, of this shard.
        20 PartContents {
            inode: InodeNo,
            number: u64,
            shard: ShardId,
            /// `None` if they cannot be read, or not be made durable.
            contents: Option<Contents>,
        }
        /// A file is truncated: cut the part that the receiver has of it.
        21 CutPart {
            inode: InodeNo,
            number: u64,
            /// The sender asks again for no truncation before this one.
            oldest: u64,
            size_bytes: u64,
            layout: Layout,
        }
        /// This shard's part is cut durably, or cannot be.
        22 PartCut { inode: InodeNo, number: u64, shard: ShardId, is_cut: bool }
        /// A session has appended to a file.
        23 EndAppend { inode: InodeNo, session: SessionId }
        /// A file will be truncated for this client: recall the pages of the receiver's part from all
        /// others, and grant none until it is cut.
        24 RecallPages { inode: InodeNo, number: u64, client: ClientUuid }
        /// Nobody else has pages of this shard's part.
        25 PagesRecalled { inode: InodeNo, number: u64, shard: ShardId }
        /// An inode is deleted whose contents may be at the receiver's data shard alone, the file's home
        /// shard: destroy its object there, if they are.
        26 DestroyNarrow { inode: InodeNo }
        /// They are at other shards, too; nothing was destroyed.
        27 NotNarrow { inode: InodeNo }
    }
}

/// What waits until the receiver has acknowledged a message: what follows from a reply may reach the
/// receiver by another way, and must find the message applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Barrier {
    /// All replies of the sender.
    Replies,
    /// What names this inode.
    Inode(InodeNo),
}

impl PeerBody<'_> {
    /// What waits for its acknowledgement.
    pub(crate) const fn barrier(&self) -> Option<Barrier> {
        match self {
            Self::PrivilegedBits { inode, .. } | Self::WriterFenced { inode, .. } => {
                Some(Barrier::Inode(*inode))
            }
            Self::Export { .. }
            | Self::Barrier {}
            | Self::Containment {
                message: ContainmentMessage::Changed { .. } | ContainmentMessage::Moved { .. },
            } => Some(Barrier::Replies),
            Self::Txn { .. }
            | Self::Containment {
                message:
                    ContainmentMessage::Ask { .. }
                    | ContainmentMessage::Below { .. }
                    | ContainmentMessage::MayUse { .. }
                    | ContainmentMessage::Found { .. },
            }
            | Self::DestroyObject { .. }
            | Self::DestroyNarrow { .. }
            | Self::NotNarrow { .. }
            | Self::ObjectDestroyed { .. }
            | Self::Accessed { .. }
            | Self::Changed { .. }
            | Self::QueryContents { .. }
            | Self::DurableContents { .. }
            | Self::Evicted { .. }
            | Self::EvictionsRecorded { .. }
            | Self::LookAtPart { .. }
            | Self::PartContents { .. }
            | Self::CutPart { .. }
            | Self::PartCut { .. }
            | Self::EndAppend { .. }
            | Self::RecallPages { .. }
            | Self::PagesRecalled { .. }
            | Self::FollowWaits { .. }
            | Self::CycleFound { .. }
            | Self::Acknowledgement {}
            | Self::Restated {} => None,
        }
    }

    /// The rule by which what names an inode waits.
    pub(crate) const fn telling_rule(&self) -> Rule {
        if matches!(self, Self::WriterFenced { .. }) { Rule::FenceTold } else { Rule::BitsTold }
    }

    /// Whether no request and no other lane waits for it, so that it may gather with others.
    pub(crate) const fn is_patient(&self) -> bool {
        matches!(self, Self::QueryContents { .. } | Self::DurableContents { .. })
    }
}

/// Privileged bits as they are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bits(pub(crate) PrivilegedBits);

impl Wire<'_> for Bits {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.0.set_id);
        to.write(&self.0.capability);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(PrivilegedBits { set_id: from.read()?, capability: from.read()? }))
    }
}

/// A change of an export, encoded as in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExportDefinition<'a>(pub(crate) ExportChange<'a>);

impl<'a> Wire<'a> for ExportDefinition<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&Change::Export(self.0));
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let Change::Export(change) = Change::decode(from)? else {
            return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
        };
        Ok(Self(change))
    }
}

/// A search: the wait that it started from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Search {
    /// The lane of the wait.
    pub(crate) lane: PeerLane,
    pub(crate) inode: InodeNo,
    pub(crate) owner: LockOwner,
    pub(crate) wait_id: u64,
    pub(crate) since_ns: u64,
    /// It is the second search for the same cycle.
    pub(crate) is_certain: bool,
}

impl Wire<'_> for Search {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.lane);
        to.write(&self.inode);
        to.write(&self.owner.client);
        to.write(&self.owner.owner);
        to.write(&self.wait_id);
        to.write(&self.since_ns);
        to.write(&self.is_certain);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            lane: from.read()?,
            inode: from.read()?,
            owner: LockOwner { client: from.read()?, owner: from.read()? },
            wait_id: from.read()?,
            since_ns: from.read()?,
            is_certain: from.read()?,
        })
    }
}

/// A [`LockOwner`] in a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(pub(crate) LockOwner);

impl Wire<'_> for Owner {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.0.client);
        to.write(&self.0.owner);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (client, owner): (ClientUuid, u64) = (from.read()?, from.read()?);
        Ok(Self(LockOwner { client, owner }))
    }
}
