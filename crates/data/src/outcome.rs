//! Requests of the lane to the data shards, and their outcomes.

use crate::Dependencies;
use disk::{Change, ContentsChange};
use interface::{BufId, Bulk, Object};
use wire::{
    ClientUuid, Contents, InodeNo, Layout, Op, ShardId, Status, Transno, Wire, Writer, Written,
};

/// The lane's number of a request, returned with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct DataRequest<'a> {
    /// Returned with the outcome.
    pub token: Token,
    /// The operation: one of the ops routed to data shards.
    pub op: Op,
    /// The place.
    pub shard: ShardId,
    /// The file's layout, as the metadata shard recorded it.
    pub layout: Option<Layout>,
    /// The request's encoded body.
    pub body: &'a [u8],
    /// Its bulk, owned by the data shards from here on.
    pub bulk: Option<Bulk>,
    /// The client.
    pub client: ClientUuid,
    /// A cache will keep the bytes of a read: writes in progress end before it begins.
    pub kept: bool,
    /// A write is an append that is executed only while the file is as long as its offset says.
    pub behind: bool,
    /// A truncation has cut this part already: it is only recorded.
    pub is_cut: bool,
}

/// A lost write that is replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostWrite {
    /// Returned with the outcome.
    pub token: Token,
    /// Its old number.
    pub transno: Transno,
    /// The change with its old time: [`ContentsChange::Write`] or [`ContentsChange::WriteList`].
    pub change: ContentsChange,
    /// The bytes, owned by the data shards from here on.
    pub bulk: Bulk,
    /// The client.
    pub client: ClientUuid,
}

/// A successful result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// No data.
    Empty,
    /// Bytes read; the lane owns the buffer from here on.
    Bytes(Option<Bulk>),
    /// Bytes of a list read, cut at the object's size; the lane owns the buffer from here on.
    List {
        /// The bytes.
        bulk: Option<Bulk>,
        /// The object's size.
        size_bytes: u64,
    },
    /// The range of a write.
    Written(Written),
    /// The contents' size, space and time.
    Glimpsed(Contents),
    /// The offset found by a seek.
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

    /// Its bulk.
    #[must_use]
    pub const fn bulk(&self) -> Option<Bulk> {
        match self {
            Self::Bytes(bulk) | Self::List { bulk, .. } => *bulk,
            Self::Empty | Self::Written(_) | Self::Glimpsed(_) | Self::Sought(_) => None,
        }
    }

    /// Its buffer, which the lane must release.
    #[must_use]
    pub fn buf(&self) -> Option<BufId> {
        self.bulk().map(|bulk| bulk.buf)
    }
}

/// What is wrong with an object's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// The file, or a block of it, is missing.
    Missing,
    /// The file ends before its recorded end.
    Short {
        /// Its size.
        found_bytes: u64,
    },
    /// A block's bytes do not match the recorded checksum.
    Changed {
        /// The recorded CRC-32C.
        expected: u32,
        /// The CRC-32C of the bytes found.
        found: u32,
    },
}

/// A task for the lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Reply now: nothing was changed, or the request failed.
    Answered {
        /// The request's token.
        token: Token,
        /// The result.
        result: Result<Answer, Status>,
        /// For a read: the last transaction of another client that the data shows and that is not
        /// durable; 0 for none.
        shown: Transno,
    },
    /// A file is read: notify its metadata shard before the reply.
    Accessed {
        /// The file.
        inode: InodeNo,
        /// When its contents last changed, in nanoseconds since 1970; 0: never.
        write_time_ns: u64,
    },
    /// Reply when everything up to a transaction is durable; the data shards ensure that it will
    /// be.
    Sized {
        /// The request's token.
        token: Token,
        /// The place.
        shard: ShardId,
        /// The last transaction that the contents include, 0 if all are durable.
        until: Transno,
        /// The contents' size, space and time.
        contents: Contents,
    },
    /// The change is in the object, but not durable: the reply may be sent with a redo token.
    Written {
        /// The request's token.
        token: Token,
        /// The place.
        shard: ShardId,
        /// The transaction number.
        transno: Transno,
        /// The change that will be recorded.
        change: Change<'static>,
        /// The result.
        answer: Answer,
        /// Its dependencies.
        depends: Dependencies,
    },
    /// A sync failed, or a lost write cannot be replayed: neither it nor anything behind it can be
    /// recorded.
    Failed {
        /// Why.
        status: Status,
    },
    /// The bytes of a write are durable, or will be with this record: record the change.
    Changed {
        /// The request's token.
        token: Token,
        /// The place.
        shard: ShardId,
        /// The transaction number; except for replays, numbers rise per shard in the order of the
        /// outcomes.
        transno: Transno,
        /// The change to record.
        change: Change<'static>,
        /// The result.
        answer: Answer,
        /// The checksums of blocks to record with it.
        sums: Option<ContentsChange>,
        /// The bytes to record with it, in front of the change: the object's file may lack them.
        logged: Option<ContentsChange>,
    },
    /// Contents do not match what was recorded.
    Damaged {
        /// The object.
        object: Object,
        /// The place in the file.
        file_offset: u64,
        /// What is wrong.
        damage: Damage,
        /// It was not reported in the last minute.
        is_new: bool,
    },
    /// Record this; there is no reply.
    Record {
        /// The place.
        shard: ShardId,
        /// The transaction number; 0 for a change outside the shard's order.
        transno: Transno,
        /// The change to record.
        change: Change<'static>,
    },
    /// A removal ended; after `Ok` the object is removed durably, and its inode may
    /// go when the records so far are durable: a lost write would make the object again.
    Removed {
        /// The file.
        inode: InodeNo,
        /// The result.
        result: Result<(), Status>,
    },
}
