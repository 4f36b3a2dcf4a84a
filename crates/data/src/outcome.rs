//! What the lane asks of the data shards and what comes back.

use crate::Depends;
use disk::{Change, ContentsChange};
use interface::{BufId, Bulk, Object};
use wire::{ClientUuid, Contents, InodeNo, Op, ShardId, Status, Transno, Wire, Writer, Written};

/// The lane's number on a request, given back with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Given back.
    pub token: Token,
    /// What is asked for: one of the ops routed to data shards.
    pub op: Op,
    /// Where.
    pub shard: ShardId,
    /// The request's body as it came.
    pub body: &'a [u8],
    /// Its bulk, owned by the data shards from here on.
    pub bulk: Option<Bulk>,
    /// Who asks.
    pub client: ClientUuid,
}

/// A write that was lost and is brought back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Given back.
    pub token: Token,
    /// Its old number.
    pub transno: Transno,
    /// What it was, with the time that it got then: [`ContentsChange::Write`] or
    /// [`ContentsChange::WriteList`].
    pub change: ContentsChange,
    /// The bytes, owned by the data shards from here on.
    pub bulk: Bulk,
    /// Whose.
    pub client: ClientUuid,
}

/// A successful answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing more to say.
    Empty,
    /// Bytes read; the lane owns the buffer from here on.
    Bytes(Option<Bulk>),
    /// Bytes of a list, as far as an object of that size has them; the lane owns the buffer from
    /// here on.
    List {
        /// The bytes.
        bulk: Option<Bulk>,
        /// The object's size.
        size_bytes: u64,
    },
    /// Where a write went.
    Written(Written),
    /// What is known of the contents.
    Glimpsed(Contents),
    /// Where what was looked for is.
    Sought(u64),
}

impl Answer {
    /// Appends the reply's body.
    pub fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
        let mut to = Writer::new(out);
        match self {
            Self::Empty | Self::Bytes(_) => {}
            Self::List { size_bytes, .. } => {
                wire::ListRead { size_bytes: *size_bytes }.encode(&mut to);
            }
            Self::Written(written) => written.encode(&mut to),
            Self::Sought(file_offset) => wire::Sought { file_offset: *file_offset }.encode(&mut to),
            Self::Glimpsed(contents) => wire::Glimpsed { contents: *contents }.encode(&mut to),
        }
    }

    /// The bytes in it.
    #[must_use]
    pub const fn bulk(&self) -> Option<Bulk> {
        match self {
            Self::Bytes(bulk) | Self::List { bulk, .. } => *bulk,
            Self::Empty | Self::Written(_) | Self::Glimpsed(_) | Self::Sought(_) => None,
        }
    }

    /// The buffer in it, which somebody has to release.
    #[must_use]
    pub fn buf(&self) -> Option<BufId> {
        self.bulk().map(|bulk| bulk.buf)
    }
}

/// What is wrong with an object's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// The file, or a block of it, is not there.
    Missing,
    /// The file ends before its recorded end.
    Short {
        /// The bytes that it has.
        found_bytes: u64,
    },
    /// A block has other bytes than were recorded.
    Changed {
        /// The CRC-32C that was recorded.
        expected: u32,
        /// The CRC-32C of what is there.
        found: u32,
    },
}

/// Something the lane has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Answer now: nothing was changed, or it failed.
    Answered {
        /// Of the request.
        token: Token,
        /// How it went.
        result: Result<Answer, Status>,
        /// For what was read: the last transaction of another client that it shows and that is not
        /// durable; 0 for none.
        shown: Transno,
    },
    /// A file is read: its metadata shard has to know before the answer.
    Accessed {
        /// The file.
        inode: InodeNo,
        /// When its contents last changed, in nanoseconds since 1970; 0: never.
        write_time_ns: u64,
    },
    /// Answer when everything up to a transaction is durable; somebody sees to it that it will be.
    Sized {
        /// Of the request.
        token: Token,
        /// Where.
        shard: ShardId,
        /// The last transaction that the contents speak of, 0 if all are durable.
        until: Transno,
        /// What is known of the contents.
        contents: Contents,
    },
    /// The change is in the object, but not durable: it may be answered, with a token.
    Written {
        /// Of the request.
        token: Token,
        /// Where.
        shard: ShardId,
        /// Its number.
        transno: Transno,
        /// What will be recorded.
        change: Change<'static>,
        /// The answer.
        answer: Answer,
        /// What it builds on.
        depends: Depends,
    },
    /// A sync failed, or a write that was lost cannot be brought back: that can never be recorded,
    /// nor anything behind it.
    Failed {
        /// Why.
        status: Status,
    },
    /// The bytes of something written are durable: record the change.
    Changed {
        /// Of the request.
        token: Token,
        /// Where.
        shard: ShardId,
        /// Its number; except for replays, they rise per shard in the order of the outcomes.
        transno: Transno,
        /// What to record.
        change: Change<'static>,
        /// The answer.
        answer: Answer,
        /// The checksums of blocks that are recorded with it.
        sums: Option<ContentsChange>,
    },
    /// Contents are not as they were recorded.
    Damaged {
        /// The object.
        object: Object,
        /// Where.
        object_offset: u64,
        /// What is wrong.
        damage: Damage,
        /// It was not reported in the last minute.
        is_new: bool,
    },
    /// Record this; nobody waits for an answer.
    Noted {
        /// Where.
        shard: ShardId,
        /// Its number; 0 of what has no place in the shard's order.
        transno: Transno,
        /// What to record.
        change: Change<'static>,
    },
    /// A removal that was asked for ended; after `Ok` the object is gone, durably, and its inode may
    /// go when the records so far are durable: a lost write would make the object again.
    Removed {
        /// The file.
        inode: InodeNo,
        /// How it went.
        result: Result<(), Status>,
    },
}
