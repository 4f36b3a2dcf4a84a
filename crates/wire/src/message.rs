//! The bodies of requests and replies: one struct each, fields in encoding order.
//!
//! A request's reply message is named beside it; ops without one have an empty reply body.

use crate::codec::{Bytes, DecodeError, List, Reader, Wire, Writer};
use crate::{
    Attr, Caller, CreateBehind, FileKind, HandleId, InodeNo, Name, ProtocolError, ShardId,
    Timestamp, Transno,
};

macro_rules! message {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        message!(@codec $name $(<$life>)? { $($field,)* });
    };
    (@codec $name:ident <$life:lifetime> { $($field:ident,)* }) => {
        impl<$life> Wire<$life> for $name<$life> {
            fn encode(&self, to: &mut Writer<'_>) {
                $(to.write(&self.$field);)*
            }
            fn decode(from: &mut Reader<$life>) -> Result<Self, DecodeError> {
                Ok(Self { $($field: from.read()?,)* })
            }
        }
    };
    (@codec $name:ident { $($field:ident,)* }) => {
        impl Wire<'_> for $name {
            fn encode(&self, to: &mut Writer<'_>) {
                $(to.write(&self.$field);)*
            }
            fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self { $($field: from.read()?,)* })
            }
        }
    };
}

pub(crate) use message;

mod names;

pub use names::*;

message! {
    /// [`crate::Op::Lookup`]. Reply: [`Entry`].
    Lookup<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The directory.
        parent: InodeNo,
        /// The name in it. For `..` see [`Getattr`].
        name: Name<'a>,
    }
}
message! {
    /// An inode's attributes: the reply of every op that creates, finds or changes one.
    Entry {
        /// The attributes.
        attr: Attr,
    }
}
message! {
    /// [`crate::Op::Getattr`]. Reply: [`Entry`]. Needs no permission.
    Getattr {
        /// Of which inode.
        inode: InodeNo,
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// Leave it.
    Keep,
    /// The server's clock. Needs write permission.
    Now,
    /// This time. Needs ownership.
    At(Timestamp),
}

impl Wire<'_> for SetTime {
    fn encode(&self, to: &mut Writer<'_>) {
        match self {
            Self::Keep => to.write(&0_u8),
            Self::Now => to.write(&1_u8),
            Self::At(time) => {
                to.write(&2_u8);
                to.write(time);
            }
        }
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::Now),
            2 => from.read().map(Self::At),
            _ => Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

/// The privileges to clear because a file's contents change. Needs write permission or an open
/// handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClearPrivileges {
    /// None.
    Nothing,
    /// Its capabilities (`security.capability`).
    Capability,
    /// Its set-user-id bit, and its set-group-id bit where the group may execute it or the caller
    /// is not in the group, as well as its capabilities.
    All,
}

impl Wire<'_> for ClearPrivileges {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&match self {
            Self::Nothing => 0_u8,
            Self::Capability => 1,
            Self::All => 2,
        });
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Nothing),
            1 => Ok(Self::Capability),
            2 => Ok(Self::All),
            _ => Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

message! {
    /// [`crate::Op::Setattr`]. Reply: [`Entry`]. Sizes are set by [`Truncate`].
    Setattr<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// Of which inode.
        inode: InodeNo,
        /// New permission bits, 0 ..= 0o7777.
        mode: Option<u32>,
        /// New owner.
        uid: Option<u32>,
        /// New group.
        gid: Option<u32>,
        /// New access time.
        atime: SetTime,
        /// New modification time.
        mtime: SetTime,
        /// The privileges to clear. A new owner or group clears all of them.
        clears: ClearPrivileges,
    }
}

/// The access mode of an open: what its caller must be permitted to do, and all that its handle
/// permits. An open for no access does not exist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OpenFor {
    /// Writing a file: permission w.
    Write,
    /// Both.
    ReadWrite,
    /// Reading a file or listing a directory: permission r.
    Read,
    /// Executing a file: permission x. Executing includes reading the contents; a directory cannot
    /// be listed with it.
    Execute,
}

impl OpenFor {
    /// Every mode, those that write first.
    pub const ALL: [Self; 4] = [Self::Write, Self::ReadWrite, Self::Read, Self::Execute];

    /// Needs permission r.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Needs permission w: from the open on the size is at the data shards.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }

    /// Needs permission x.
    #[must_use]
    pub const fn executes(self) -> bool {
        matches!(self, Self::Execute)
    }
}

impl Wire<'_> for OpenFor {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&match self {
            Self::Execute => 1_u8,
            Self::Write => 2,
            Self::Read => 4,
            Self::ReadWrite => 6,
        });
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            1 => Ok(Self::Execute),
            2 => Ok(Self::Write),
            4 => Ok(Self::Read),
            6 => Ok(Self::ReadWrite),
            _ => Err(DecodeError::Status(crate::Status::Invalid)),
        }
    }
}

/// A handle to register together with an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    /// Chosen by the client, unique within it.
    pub id: HandleId,
    /// What it permits.
    pub open_for: OpenFor,
}

impl Wire<'_> for Handle {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.id);
        to.write(&self.open_for);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { id: from.read()?, open_for: from.read()? })
    }
}

message! {
    /// [`crate::Op::Create`]. Reply: [`Created`].
    Create<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The directory.
        parent: InodeNo,
        /// The new name.
        name: Name<'a>,
        /// Permission bits, 0 ..= 0o7777, before the umask.
        mode: u32,
        /// Bits a new file does not get, unless its directory has a default ACL.
        umask: u32,
        /// An existing name is an error (O_EXCL).
        exclusive: bool,
        /// The handle to open on it. The creator may open it with any mode, whatever the permission
        /// bits are.
        handle: Option<Handle>,
        /// The caller has the answer already (docs/protocol.md 20.7).
        behind: Option<CreateBehind>,
    }
}
message! {
    /// Reply of [`Create`].
    Created {
        /// The file.
        attr: Attr,
        /// It did not exist before.
        made: bool,
    }
}
message! {
    /// [`crate::Op::Mkdir`]. Reply: [`Entry`].
    Mkdir<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The directory.
        parent: InodeNo,
        /// The new name.
        name: Name<'a>,
        /// Permission bits, 0 ..= 0o7777, before the umask.
        mode: u32,
        /// Bits it does not get, unless its parent has a default ACL.
        umask: u32,
    }
}
message! {
    /// [`crate::Op::Readlink`]. Reply: [`Target`].
    Readlink {
        /// The link.
        inode: InodeNo,
    }
}
message! {
    /// Reply of [`Readlink`].
    Target<'a> {
        /// What it points to.
        target: Bytes<'a>,
    }
}
message! {
    /// [`crate::Op::Readdir`]. Reply: [`Listing`].
    Readdir<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The directory.
        inode: InodeNo,
        /// Entries after this cookie; 0 from the start. `.` and `..` are not among them.
        cookie: u64,
        /// Encoded reply bytes wanted at most, 512 ..= 131,072.
        listing_bytes_max: u32,
        /// With attributes.
        attrs: bool,
        /// The open handle of the listing: entries added since it was last read from the start (or
        /// reopened after a restart) are left out, so that a listing ends.
        handle: Option<HandleId>,
    }
}
message! {
    /// One entry of a [`Listing`].
    Dirent<'a> {
        /// Its cookie: rises along the directory, constant for the entry's life.
        cookie: u64,
        /// The inode.
        inode: InodeNo,
        /// What it is.
        kind: FileKind,
        /// Its name.
        name: Name<'a>,
        /// Its attributes, if requested.
        attr: Option<Attr>,
        /// Name and attributes are granted: see [`crate::LeaseGrant`].
        granted: bool,
    }
}
message! {
    /// Reply of [`Readdir`].
    Listing<'a> {
        /// The directory's parent, for `..`.
        parent: InodeNo,
        /// No more entries.
        end: bool,
        /// Ordered by cookie.
        entries: List<'a, Dirent<'a>>,
    }
}
message! {
    /// [`crate::Op::Open`]. Reply: [`Entry`]. Files and directories.
    Open<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// What to open.
        inode: InodeNo,
        /// The handle and its mode.
        handle: Handle,
    }
}

/// A data shard's knowledge of a file's contents; the last writer's close reports it to the
/// metadata shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contents {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Time of the last write or truncate by the server's clock; `None` if never written since the
    /// server started and the object does not exist.
    pub write_time: Option<Timestamp>,
}

impl Contents {
    /// Those of a file that was never written.
    pub const EMPTY: Self = Self { size_bytes: 0, allocated_bytes: 0, write_time: None };
}

impl Wire<'_> for Contents {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.size_bytes);
        to.write(&self.allocated_bytes);
        to.write(&self.write_time);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let contents = Self {
            size_bytes: from.read()?,
            allocated_bytes: from.read()?,
            write_time: from.read()?,
        };
        let fits = i64::try_from(contents.size_bytes).is_ok();
        if fits { Ok(contents) } else { Err(DecodeError::ProtocolError(ProtocolError::Malformed)) }
    }
}

message! {
    /// [`crate::Op::Close`]. No reply body.
    Close {
        /// The file.
        inode: InodeNo,
        /// The handle.
        handle: HandleId,
    }
}
message! {
    /// [`crate::Op::Reopen`]. No reply body.
    Reopen {
        /// The file.
        inode: InodeNo,
        /// The handle as it was.
        handle: Handle,
    }
}
message! {
    /// [`crate::Op::Access`]. No reply body; the status is the result.
    Access<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// Of which inode.
        inode: InodeNo,
        /// R_OK 4, W_OK 2, X_OK 1.
        mask: u32,
    }
}
message! {
    /// [`crate::Op::Getxattr`]. Reply: [`Value`].
    Getxattr<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// Of which inode.
        inode: InodeNo,
        /// With its prefix (`user.`, `security.`, ...), 1 ..= 255 bytes.
        name: Bytes<'a>,
    }
}
message! {
    /// Reply of [`Getxattr`], and of [`Listxattr`] (names, each ended by NUL).
    Value<'a> {
        /// The bytes.
        value: Bytes<'a>,
    }
}
message! {
    /// [`crate::Op::Setxattr`]. No reply body.
    Setxattr<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// Of which inode.
        inode: InodeNo,
        /// With its prefix.
        name: Bytes<'a>,
        /// At most 65,536 bytes.
        value: Bytes<'a>,
        /// XATTR_CREATE 1, XATTR_REPLACE 2.
        flags: u32,
    }
}
message! {
    /// [`crate::Op::Listxattr`]. Reply: [`Value`].
    Listxattr<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// Of which inode.
        inode: InodeNo,
    }
}
message! {
    /// [`crate::Op::Removexattr`]. No reply body.
    Removexattr<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// Of which inode.
        inode: InodeNo,
        /// With its prefix.
        name: Bytes<'a>,
    }
}
message! {
    /// [`crate::Op::Statfs`]. Reply: [`Space`].
    Statfs {
        /// Any inode of the file system.
        inode: InodeNo,
    }
}
message! {
    /// Reply of [`Statfs`].
    Space {
        /// Bytes of the medium under the store.
        total_bytes: u64,
        /// Bytes free there.
        free_bytes: u64,
        /// Bytes free for other than root there.
        available_bytes: u64,
        /// Inodes in use at the replying lane.
        inode_count: u64,
        /// Inodes that could still be created, at any lane.
        inode_free_count: u64,
        /// Lanes that have inodes: the client sums over them.
        lane_count: u16,
    }
}
message! {
    /// A request with [`crate::request_flag::REPLAY`]: the reply that the client got and its token.
    /// The reply to this is empty.
    Replay<'a> {
        /// The reply message, without the token.
        reply: Bytes<'a>,
        /// The token.
        token: Bytes<'a>,
    }
}
message! {
    /// [`crate::Op::Resume`]. Reply: [`Resumed`].
    Resume {
        /// The highest transaction of this session here that was acknowledged as durable.
        known_committed: Transno,
        /// Number of replays that follow.
        replay_count: u32,
    }
}
message! {
    /// [`crate::Op::ReplayDone`]: all replays of a session at a shard were sent. The reply is
    /// empty.
    ReplayDone {
        /// Number of handles that the client will reopen there; the server waits for them before it
        /// destroys orphans.
        reopen_count: u32,
    }
}
message! {
    /// The server's state of a session after a restart.
    Resumed {
        /// Highest durable transaction of the session at this shard, 0 without any: replays up to
        /// it are not needed.
        committed: Transno,
        /// The shard is recovering and accepts replays. Otherwise its recovery is over, and changes
        /// above `committed` are lost.
        recovering: bool,
    }
}
message! {
    /// The body of a [`crate::FrameKind::CommitNotification`].
    CommitNotification<'a> {
        /// One row a shard.
        rows: List<'a, CommitRow>,
    }
}
message! {
    /// One shard's row of a [`CommitNotification`].
    CommitRow {
        /// The shard.
        shard: ShardId,
        /// Highest durable transaction of this session there.
        committed: Transno,
    }
}
