//! The bodies of requests and replies, one struct each, fields in the order they travel.
//!
//! A request's reply message is named beside it; ops without one have an empty reply body.

use crate::codec::{Bytes, Flaw, List, Reader, Wire, Writer};
use crate::{
    Attr, Caller, FileKind, HandleId, InodeNo, Name, ProtocolError, ShardId, Timestamp, Transno,
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
            fn decode(from: &mut Reader<$life>) -> Result<Self, Flaw> {
                Ok(Self { $($field: from.read()?,)* })
            }
        }
    };
    (@codec $name:ident { $($field:ident,)* }) => {
        impl Wire<'_> for $name {
            fn encode(&self, to: &mut Writer<'_>) {
                $(to.write(&self.$field);)*
            }
            fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
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
        /// Who asks.
        caller: Caller<'a>,
        /// The directory.
        parent: InodeNo,
        /// The name in it. `..` is asked with [`Getattr`]'s parent, not here.
        name: Name<'a>,
    }
}
message! {
    /// An inode's attributes: the reply of every op that makes, finds or changes one.
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
    /// The server's clock. Whoever may write may do this.
    Now,
    /// This time. Only the owner may.
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
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        match u8::decode(from)? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::Now),
            2 => from.read().map(Self::At),
            _ => Err(Flaw::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

/// What running a file shall not give any more, because its contents change. Whoever may write it,
/// or has it open, may say this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClearPrivileges {
    /// It stays as it is.
    Nothing,
    /// Its capabilities (`security.capability`).
    Capability,
    /// Its set-user-id bit, and its set-group-id bit where the group may execute it or the caller is
    /// not in the group, as well.
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
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        match u8::decode(from)? {
            0 => Ok(Self::Nothing),
            1 => Ok(Self::Capability),
            2 => Ok(Self::All),
            _ => Err(Flaw::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

message! {
    /// [`crate::Op::Setattr`]. Reply: [`Entry`]. Sizes are set by [`Truncate`].
    Setattr<'a> {
        /// Who asks.
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
        /// What the file loses. A new owner or group takes all of it, too.
        revoke: ClearPrivileges,
    }
}

/// What something is opened for: what its caller must be permitted to do, and all that its handle
/// permits. There is no open for nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OpenFor {
    /// Writing a file: permission w.
    Write,
    /// Both.
    ReadWrite,
    /// Reading a file or listing a directory: permission r.
    Read,
    /// Running a file: permission x. Who runs it reads its contents; of a directory it lists nothing.
    Execute,
}

impl OpenFor {
    /// Writers stand before all others.
    pub const ALL: [Self; 4] = [Self::Write, Self::ReadWrite, Self::Read, Self::Execute];

    /// Permission r is asked for.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Permission w is asked for: from the open on the size is with the data shards.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }

    /// Permission x is asked for.
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
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        match u8::decode(from)? {
            1 => Ok(Self::Execute),
            2 => Ok(Self::Write),
            4 => Ok(Self::Read),
            6 => Ok(Self::ReadWrite),
            _ => Err(Flaw::Status(crate::Status::Invalid)),
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
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Ok(Self { id: from.read()?, open_for: from.read()? })
    }
}

message! {
    /// [`crate::Op::Create`]. Reply: [`Created`].
    Create<'a> {
        /// Who asks.
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
        /// The handle to open on it. Whoever makes a file may open it, whatever its mode says.
        handle: Option<Handle>,
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
        /// Who asks.
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
        /// Who asks.
        caller: Caller<'a>,
        /// The directory.
        inode: InodeNo,
        /// Entries after this cookie; 0 from the start. `.` and `..` are not among them.
        cookie: u64,
        /// Encoded reply bytes wanted at most, 512 ..= 131,072.
        listing_bytes_max: u32,
        /// With attributes.
        attrs: bool,
        /// Through which open handle: what came into the directory since that one was read from
        /// the start (or opened again after a restart) is left out, so that a listing ends.
        handle: Option<HandleId>,
    }
}
message! {
    /// One entry of a [`Listing`].
    Dirent<'a> {
        /// Its place: rises along the directory, stays the entry's for its life.
        cookie: u64,
        /// The inode.
        inode: InodeNo,
        /// What it is.
        kind: FileKind,
        /// Its name.
        name: Name<'a>,
        /// Its attributes, when asked for.
        attr: Option<Attr>,
    }
}
message! {
    /// Reply of [`Readdir`].
    Listing<'a> {
        /// The directory's parent, for `..`.
        parent: InodeNo,
        /// Nothing follows the last entry.
        end: bool,
        /// In the order of their cookies.
        entries: List<'a, Dirent<'a>>,
    }
}
message! {
    /// [`crate::Op::Open`]. Reply: [`Entry`]. Files and directories.
    Open<'a> {
        /// Who asks.
        caller: Caller<'a>,
        /// What to open.
        inode: InodeNo,
        /// The handle, and what for.
        handle: Handle,
    }
}

/// What the data shards know of a file, told by the last writer's close.
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

impl Wire<'_> for Contents {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.size_bytes);
        to.write(&self.allocated_bytes);
        to.write(&self.write_time);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        let contents = Self {
            size_bytes: from.read()?,
            allocated_bytes: from.read()?,
            write_time: from.read()?,
        };
        let fits = i64::try_from(contents.size_bytes).is_ok();
        if fits { Ok(contents) } else { Err(Flaw::ProtocolError(ProtocolError::Malformed)) }
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
    /// [`crate::Op::Access`]. No reply body; the status tells.
    Access<'a> {
        /// Who asks.
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
        /// Who asks.
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
        /// Who asks.
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
        /// Who asks.
        caller: Caller<'a>,
        /// Of which inode.
        inode: InodeNo,
    }
}
message! {
    /// [`crate::Op::Removexattr`]. No reply body.
    Removexattr<'a> {
        /// Who asks.
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
        /// Inodes in use at the lane that answers.
        inode_count: u64,
        /// Inodes that could still be made, at whichever lane.
        inode_free_count: u64,
        /// Lanes that have inodes: all of them are asked for the sum.
        lane_count: u16,
    }
}
message! {
    /// A request with [`crate::request_flag::REPLAY`]: what the client was told, and the token that
    /// came with it. The reply is empty.
    Replay<'a> {
        /// The reply message, without the token.
        reply: Bytes<'a>,
        /// The token, as it came.
        token: Bytes<'a>,
    }
}
message! {
    /// [`crate::Op::Resume`]. Reply: [`Resumed`].
    Resume {
        /// The highest transaction of this session here that the client was told is durable.
        known_committed: Transno,
        /// Replays that will come.
        replay_count: u32,
    }
}
message! {
    /// [`crate::Op::ReplayDone`]: all replays of a session at a shard were sent. The reply is empty.
    ReplayDone {
        /// Handles that will be registered again there; the server waits for them before it takes
        /// a file without a name for one that nobody has open.
        reopen_count: u32,
    }
}
message! {
    /// What the server has of a session after a restart.
    Resumed {
        /// Highest durable transaction of the session at this shard, 0 without any: replays up to
        /// it are not needed.
        committed: Transno,
        /// The shard is recovering: replays are welcome. Otherwise its recovery is over, and what
        /// is above `committed` will not be taken any more.
        recovering: bool,
    }
}
message! {
    /// The body of a [`crate::FrameKind::Note`].
    Note<'a> {
        /// By shard.
        rows: List<'a, NoteRow>,
    }
}
message! {
    /// One shard's line of a [`Note`].
    NoteRow {
        /// The shard.
        shard: ShardId,
        /// Highest durable transaction of this session there.
        committed: Transno,
    }
}
