//! Leases: what a reply grants, how it is recalled, and how the recall is acknowledged
//! (docs/protocol.md §20).

use crate::codec::{DecodeError, List, Reader, Wire, Writer};
use crate::message::message;
use crate::{InodeNo, Layout, LeaseNo, Name, ProtocolError, RecallNo, Timestamp};

/// Bits of [`LeaseGrant::granted`].
pub mod lease_flag {
    /// The attributes of the reply's inode.
    pub const ATTRIBUTES: u8 = 1;
    /// The request's name: what it names, or that it does not exist, also because the request has
    /// removed it. Of a rename the old name.
    pub const NAME: u8 = 2;
    /// The contents of the opened file, to read them; of a read the pages of the file.
    pub const CONTENTS: u8 = 4;
    /// The new name of a rename.
    pub const NEW_NAME: u8 = 8;
    /// The new file may be written behind, the names of the new directory changed behind: other
    /// clients see it only when that is done.
    pub const WRITING: u8 = 16;
    /// [`super::NewFiles`] precede the grant.
    pub const NEW_FILES: u8 = 32;
    /// [`super::NamedInodes`] precede the grant; that grants nothing.
    pub const NAMED_INODES: u8 = 64;
    /// Every bit that is defined.
    pub const ALL: u8 =
        ATTRIBUTES | NAME | CONTENTS | NEW_NAME | WRITING | NEW_FILES | NAMED_INODES;
}

/// What a reply grants: the end of the suffix of a reply with [`crate::reply_flag::LEASES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseGrant {
    /// The number of the grant; 0: nothing is granted.
    pub lease_no: LeaseNo,
    /// The term, in milliseconds, from when the request was sent.
    pub term_ms: u32,
    /// What is granted, see [`lease_flag`]. The entries of a [`crate::Listing`] say for themselves.
    pub granted: u8,
    /// The attributes of so many further inodes are granted, and precede this.
    pub further_count: u8,
}

impl LeaseGrant {
    /// Encoded bytes.
    pub const WIRE_BYTES: usize = 8 + 4 + 1 + 1;
    /// Most further inodes: two directories, and two inodes with a changed number of names.
    pub const FURTHER_COUNT_MAX: u8 = 4;
}

impl Wire<'_> for LeaseGrant {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.lease_no);
        to.write(&self.term_ms);
        to.write(&self.granted);
        to.write(&self.further_count);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (lease_no, term_ms) = (from.read()?, from.read()?);
        let (granted, further_count) = (from.read()?, from.read()?);
        if granted & !lease_flag::ALL != 0 || further_count > Self::FURTHER_COUNT_MAX {
            return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
        }
        Ok(Self { lease_no, term_ms, granted, further_count })
    }
}

/// The inodes that a removal or a rename has changed besides the directories of its names
/// ([`lease_flag::NAMED_INODES`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NamedInodes(pub [Option<InodeNo>; 2]);

impl NamedInodes {
    /// Encoded bytes.
    pub const WIRE_BYTES: usize = 8 + 8;
}

impl Wire<'_> for NamedInodes {
    fn encode(&self, to: &mut Writer<'_>) {
        self.0.iter().for_each(|inode| to.write(&inode.unwrap_or(InodeNo(0))));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let inodes: [InodeNo; 2] = [from.read()?, from.read()?];
        Ok(Self(inodes.map(|inode| (inode != InodeNo(0)).then_some(inode))))
    }
}

/// What a lease is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeaseKey<'a> {
    /// The attributes of an inode.
    Attributes(InodeNo),
    /// A name in a directory: what it names, or that it does not exist.
    Name(InodeNo, Name<'a>),
    /// The contents of a file.
    Contents(InodeNo),
    /// Everything that the server lane has granted to the session.
    All,
    /// The bytes of a file in page caches, at its data shard.
    Pages(InodeNo),
    /// A new file, which its client writes behind, or a new directory, whose names it changes
    /// behind.
    Writing(InodeNo),
}

impl<'a> Wire<'a> for LeaseKey<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        match self {
            Self::Attributes(inode) => {
                to.write(&1_u8);
                to.write(inode);
            }
            Self::Name(dir, name) => {
                to.write(&2_u8);
                to.write(dir);
                to.write(name);
            }
            Self::Contents(inode) => {
                to.write(&3_u8);
                to.write(inode);
            }
            Self::All => to.write(&4_u8),
            Self::Pages(inode) => {
                to.write(&5_u8);
                to.write(inode);
            }
            Self::Writing(inode) => {
                to.write(&6_u8);
                to.write(inode);
            }
        }
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(from)? {
            1 => Self::Attributes(from.read()?),
            2 => Self::Name(from.read()?, from.read()?),
            3 => Self::Contents(from.read()?),
            4 => Self::All,
            5 => Self::Pages(from.read()?),
            6 => Self::Writing(from.read()?),
            _ => return Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        })
    }
}

/// The most bytes of its answered writes that a client has under way: so many are promised to each
/// client with write leases.
pub const BEHIND_BYTES_MAX: u64 = 32 << 20;

message! {
    /// Inode numbers for files that a client creates behind, given with
    /// [`lease_flag::NEW_FILES`].
    NewFiles {
        /// The first number.
        first: InodeNo,
        /// How many consecutive numbers, at least 1.
        count: u32,
        /// The layout that new files have.
        layout: Layout,
    }
}

impl NewFiles {
    /// Encoded bytes.
    pub const WIRE_BYTES: usize = 8 + 4 + 8 + 2;
}

message! {
    /// A create that its caller has the answer of ([`crate::Create`]).
    CreateBehind {
        /// The number of the file: one of those that the server has given this client.
        inode: InodeNo,
        /// The file's times.
        at: Timestamp,
    }
}
message! {
    /// [`crate::Op::Claim`]. No reply body.
    Claim {
        /// The directory.
        inode: InodeNo,
        /// The lowest number of the client's creates under way in it.
        first: InodeNo,
        /// How many consecutive numbers, up to the highest of them; 0 if no create is under way.
        count: u32,
    }
}
message! {
    /// The body of a [`crate::FrameKind::Recall`]: these leases end. The client invalidates the
    /// keys, cached or not, and then acknowledges.
    Recall<'a> {
        /// Rises along the recalls of a server lane.
        recall_no: RecallNo,
        /// The last grant that ends: a grant up to it that is still on its way is ignored.
        lease_no_max: LeaseNo,
        /// The keys.
        keys: List<'a, LeaseKey<'a>>,
    }
}
message! {
    /// The body of a [`crate::FrameKind::RecallAck`], which is not answered.
    RecallAck<'a> {
        /// The recalls whose keys are invalidated.
        recall_nos: List<'a, RecallNo>,
        /// The client has dropped every lease of this server lane up to this one; 0: none.
        dropped_until: LeaseNo,
        /// Files and directories that the client does not change behind any more: nothing of them is
        /// under way.
        written: List<'a, InodeNo>,
    }
}
