//! Identifiers. Each is its own type, so that two of them cannot be confused.

use core::fmt;
use core::ops::RangeInclusive;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// An inode's number: the upper 16 bits name its metadata shard, the lower 48 count from 1.
    /// Never reused.
    InodeNo(u64)
}
number! {
    /// A transaction's number: unique and rising per shard, over restarts too (docs/protocol.md §3).
    /// 0 means "nothing was changed".
    Transno(u64)
}
number! {
    /// One client lane of one mount; the same at every shard. Derived by the server from the
    /// client's uuid and lane, see [`crate::session_id`].
    SessionId(u64)
}
number! {
    /// A request's number, strictly rising over all requests of one session at one shard.
    Xid(u64)
}
number! {
    /// A server or client lane (one thread, one core), from 0.
    LaneId(u16)
}
number! {
    /// An open file, named by its client: unique within the client for the mount's life.
    HandleId(u64)
}
number! {
    /// A version of the map of servers and shards; rises with each change of it.
    MapEpoch(u64)
}
number! {
    /// A server of the file system: one store with one `lanefs serve`, from 1.
    ServerId(u16)
}
number! {
    /// A term of a shard: one server has the shard, from one start of it until the next. Rises with
    /// each, from 1.
    Term(u32)
}

number! {
    /// A grant of leases; rises along the grants of a server lane, from 1.
    LeaseNo(u64)
}
number! {
    /// A recall of leases; rises along the recalls of a server lane, from 1.
    RecallNo(u64)
}

impl ServerId {
    /// The server with which a file system begins.
    pub const FIRST: Self = Self(1);
}

impl Term {
    /// The term of all shards of a store without other servers: the number of its start.
    ///
    /// # Panics
    /// After 2^32 starts.
    #[must_use]
    pub fn of_boot(boot_id: u64) -> Self {
        let term = u32::try_from(boot_id);
        assert!(term.is_ok(), "start {boot_id} of a store is beyond the last term");
        Self(term.unwrap_or(u32::MAX))
    }
}

impl Transno {
    const TERM_SHIFT: u32 = 32;

    /// The number behind which a shard's numbers go on in `term`: above every number that an earlier
    /// term may have assigned and lost. `last` is the highest recorded one (docs/protocol.md,
    /// R3.10).
    #[must_use]
    pub const fn at_start(last: Self, term: Term) -> Self {
        let (behind_last, of_term) = ((last.0 >> Self::TERM_SHIFT) + 1, term.0 as u64);
        let upper = if behind_last > of_term { behind_last } else { of_term };
        Self(upper << Self::TERM_SHIFT)
    }

    /// The upper half: at least the term that assigned the number.
    #[must_use]
    pub const fn upper(self) -> u64 {
        self.0 >> Self::TERM_SHIFT
    }
}

impl InodeNo {
    /// The root directory of every file system; FUSE fixes the same number.
    pub const ROOT: Self = Self(1);
    const SHARD_SHIFT: u32 = 48;
    /// The upper 8 bits of a count are the generation.
    pub const GENERATION_SHIFT: u32 = 40;

    /// The `count`-th inode (1 ..= 2^48 − 1) of metadata shard `index`.
    #[must_use]
    pub fn new(index: u16, count: u64) -> Self {
        assert!(count > 0, "inode counts start at 1");
        assert!(count < 1 << Self::SHARD_SHIFT, "a shard has at most 2^48 - 1 inodes");
        Self((u64::from(index) << Self::SHARD_SHIFT) | count)
    }

    /// The metadata shard that owns this inode.
    #[must_use]
    pub fn shard(self) -> ShardId {
        ShardId::meta(u16::try_from(self.0 >> Self::SHARD_SHIFT).unwrap_or(u16::MAX))
    }

    /// The generation of the file system's shards that it was made in: it says over which data shards
    /// its contents are spread ([`crate::Map::data_shard`]).
    #[must_use]
    pub fn generation(self) -> u8 {
        u8::try_from(self.count() >> Self::GENERATION_SHIFT).unwrap_or(u8::MAX)
    }

    /// The counts of a generation, without 0.
    #[must_use]
    pub fn counts_of(generation: u8) -> RangeInclusive<u64> {
        let first = u64::from(generation) << Self::GENERATION_SHIFT;
        first.max(1)..=first + ((1 << Self::GENERATION_SHIFT) - 1)
    }

    /// The count within its shard.
    #[must_use]
    pub fn count(self) -> u64 {
        self.0 & ((1 << Self::SHARD_SHIFT) - 1)
    }
}

/// A shard of the file system: the unit of ownership, sequencing and logging. Bit 15 distinguishes
/// data shards from metadata shards, the rest is the index from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardId(pub u16);

impl ShardId {
    const DATA: u16 = 0x8000;

    /// Metadata shard `index`. Bit 15 of a number from a peer is dropped; the map's limits are
    /// checked elsewhere.
    #[must_use]
    pub const fn meta(index: u16) -> Self {
        Self(index & !Self::DATA)
    }

    /// Data shard `index`.
    #[must_use]
    pub const fn data(index: u16) -> Self {
        Self(index | Self::DATA)
    }

    /// Whether this is a data shard.
    #[must_use]
    pub const fn is_data(self) -> bool {
        self.0 & Self::DATA != 0
    }

    /// Position among the shards of its kind, from 0.
    #[must_use]
    pub const fn index(self) -> u16 {
        self.0 & !Self::DATA
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_data() { "data" } else { "meta" };
        write!(f, "{kind}{}", self.index())
    }
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// One mount or library instance: random, new at every mount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ClientUuid(pub [u8; 16]);

impl ClientUuid {
    /// No client.
    pub const NONE: Self = Self([0; 16]);
}

impl fmt::Display for ClientUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// One file system, made with its store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct FsUuid(pub [u8; 16]);

impl fmt::Display for FsUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// The peer broke the protocol: count it and close that connection, nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// The first four bytes are not lanefs's.
    Magic,
    /// A frame version this build does not speak.
    Version,
    /// A frame kind that does not exist, or not at this point of the conversation.
    Kind,
    /// A body or bulk longer than its limit.
    TooLong,
    /// The checksum over head and body, or over the bulk, does not fit.
    Checksum,
    /// A body shorter or longer than its message, or a field outside its range.
    Malformed,
    /// An op number that does not exist.
    UnknownOp,
    /// A session, slot or xid used against the rules of docs/protocol.md §5.
    Sequence,
    /// A shard or lane that the server never named.
    Route,
    /// The secret was not proven.
    Proof,
    /// A TLS record or message that does not fit.
    Seal,
}

impl ProtocolError {
    /// The text for a log line.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Magic => "not a lanefs frame",
            Self::Version => "unknown frame version",
            Self::Kind => "frame kind out of place",
            Self::TooLong => "frame longer than allowed",
            Self::Checksum => "checksum mismatch",
            Self::Malformed => "malformed message",
            Self::UnknownOp => "unknown operation",
            Self::Sequence => "session, slot or xid out of order",
            Self::Route => "unknown shard or lane",
            Self::Proof => "the secret was not proven",
            Self::Seal => "broken TLS",
        }
    }
}
