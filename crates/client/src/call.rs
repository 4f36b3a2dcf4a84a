//! The interface of a frontend: it makes [`Call`]s and gets [`Answer`]s. One call may take several
//! requests; the frontend sees only the answer.

use interface::{Bulk, Span};
use wire::{
    Attr, ByteRange, Caller, ClearPrivileges, CreateBehind, Handle, HandleId, InodeNo, LaneId,
    LockKind, LockRow, LockType, Name, OpenFor, Pieces, Space, Written,
};

/// A call's number, chosen by the frontend; unique among its unanswered calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// A new regular file, or an existing one unless `exclusive`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Create<'a> {
    /// The credentials of the caller.
    pub caller: Caller<'a>,
    /// The directory.
    pub parent: InodeNo,
    /// The name.
    pub name: Name<'a>,
    /// Permission bits, before the umask.
    pub mode: u32,
    /// Bits a new file does not get, unless its directory has a default ACL.
    pub umask: u32,
    /// An existing name is an error.
    pub exclusive: bool,
    /// Open it as well; `None` only makes it.
    pub open: Option<OpenFor>,
}

/// A new regular file whose caller has the answer already, in a directory whose names this client may
/// change behind ([`crate::Granted::writing`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MakeBehind<'a> {
    /// The credentials of the caller.
    pub caller: Caller<'a>,
    /// The directory.
    pub parent: InodeNo,
    /// The name, which does not exist.
    pub name: Name<'a>,
    /// Permission bits, before the umask.
    pub mode: u32,
    /// Bits that the file does not get.
    pub umask: u32,
    /// From [`crate::Client::begin_handle`].
    pub handle: Handle,
    /// The file's number, from [`crate::Client::take_new_file`], and its times.
    pub behind: CreateBehind,
}

/// A new regular file without a name, open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tmpfile<'a> {
    /// The credentials of the caller.
    pub caller: Caller<'a>,
    /// A directory on the same shard; [`Call::Link`] may later name the file there.
    pub parent: InodeNo,
    /// Permission bits.
    pub mode: u32,
    /// The bits of `mode` that the caller's umask clears.
    pub umask: u32,
    /// It may get a name later, by [`Call::Link`].
    pub linkable: bool,
    /// What the handle is opened for.
    pub open_for: OpenFor,
}

/// Open a file or directory and get a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open<'a> {
    /// The credentials of the caller.
    pub caller: Caller<'a>,
    /// The file or directory.
    pub inode: InodeNo,
    /// What the handle is opened for.
    pub open_for: OpenFor,
    /// The answer includes the file's current size and times. Without it they may be stale, and one
    /// exchange is saved.
    pub sizes: bool,
}

/// Set a file's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resize<'a> {
    /// The credentials of the caller.
    pub caller: Caller<'a>,
    /// The file.
    pub inode: InodeNo,
    /// The new size, 0 ..= 2^63 − 1.
    pub size_bytes: u64,
    /// The caller holds a handle open for writing: permission was checked when it was opened.
    pub open_for_write: bool,
}

/// Write bytes to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// The file.
    pub inode: InodeNo,
    /// The position; ignored when appending.
    pub file_offset: u64,
    /// Append at the end of the file.
    pub append: bool,
    /// The bytes, at most [`wire::BULK_BYTES_MAX`]; `None` for none. The frontend owns the buffer
    /// and keeps it valid until the answer.
    pub bulk: Option<Bulk>,
    /// The answer waits until the bytes are durable (O_SYNC).
    pub sync: bool,
    /// See [`wire::Write::takes`].
    pub clears: ClearPrivileges,
    /// Its caller has its answer already: an append at `file_offset`, refused with
    /// [`wire::Status::Stale`] unless the file ends there and the client may still write it behind.
    pub behind: bool,
}

/// Read several pieces of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadList<'a> {
    /// The file.
    pub inode: InodeNo,
    /// The pieces, in the order of the answer; they may overlap.
    pub pieces: &'a Pieces,
    /// See [`wire::Read::accesses`].
    pub accesses: bool,
}

/// Write several pieces of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteList<'a> {
    /// The file.
    pub inode: InodeNo,
    /// The pieces; no two overlap.
    pub pieces: &'a Pieces,
    /// The bytes of all pieces, concatenated. The frontend owns the buffer and keeps it valid until
    /// the answer.
    pub bulk: Option<Bulk>,
    /// See [`Write::sync`].
    pub sync: bool,
    /// See [`wire::Write::takes`].
    pub clears: ClearPrivileges,
}

/// Lock or unlock bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetLock {
    /// The file.
    pub inode: InodeNo,
    /// A POSIX (fcntl) or flock lock.
    pub kind: LockKind,
    /// The lock owner: any number, the same for all lanes of this client.
    pub owner: u64,
    /// The type of lock; `None` unlocks.
    pub lock: Option<LockType>,
    /// The bytes; all for flock.
    pub range: ByteRange,
    /// The caller's process.
    pub pid: u32,
    /// Wait until conflicting locks are released.
    pub wait: bool,
    /// The open file; [`crate::Client::release_locks`] of it releases the lock.
    pub handle: HandleId,
}

/// Wait until all answered changes to a file or directory, from any client, are durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sync {
    /// The file or directory.
    pub inode: InodeNo,
    /// It is a file: its contents are synced too.
    pub contents: bool,
    /// The handle that was synced: its holder gets one error for everything lost while it was open.
    pub handle: Option<HandleId>,
}

/// The calls of a frontend.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// [`Answer::Entry`].
    Lookup(wire::Lookup<'a>),
    /// [`Answer::Entry`], of which only number and kind are valid: one request, wherever the inode is.
    Resolve(wire::Lookup<'a>),
    /// [`Answer::Entry`].
    Getattr(wire::Getattr),
    /// [`Answer::Entry`]. Mode, owner, times; sizes by [`Call::Resize`].
    Setattr(wire::Setattr<'a>),
    /// The same for a file that this client writes behind ([`crate::Granted::writing`]): refused with
    /// [`Status::Stale`] if it has no lease for that any more. The answer may lack the size.
    SetattrBehind(wire::Setattr<'a>),
    /// [`Answer::Entry`], with the new size.
    Resize(Resize<'a>),
    /// [`Answer::Created`].
    Create(Create<'a>),
    /// [`Answer::Created`]. Refused with [`Status::Stale`] if this client may not change the names of the
    /// directory behind any more, if the name exists, or if the number was not given to it.
    CreateBehind(MakeBehind<'a>),
    /// [`Answer::Created`].
    Tmpfile(Tmpfile<'a>),
    /// [`Answer::Entry`].
    Mkdir(wire::Mkdir<'a>),
    /// [`Answer::Entry`].
    Symlink(wire::Symlink<'a>),
    /// [`Answer::Entry`]. A fifo, socket or device.
    Mknod(wire::Mknod<'a>),
    /// [`Answer::Entry`].
    Link(wire::Link<'a>),
    /// [`Answer::Done`].
    Unlink(wire::Unlink<'a>),
    /// The same with a time, for a caller that has the answer already: refused with [`Status::Stale`] if
    /// this client may not change the names of the directory behind any more.
    UnlinkBehind(wire::Unlink<'a>),
    /// [`Answer::Done`].
    Rmdir(wire::Rmdir<'a>),
    /// [`Answer::Renamed`].
    Rename(wire::Rename<'a>),
    /// [`Answer::Target`].
    Readlink(wire::Readlink),
    /// [`Answer::Listing`]. Attributes flagged `SIZE_AT_DATA` in it are as they came.
    Readdir(wire::Readdir<'a>),
    /// [`Answer::Found`].
    Find(wire::Find<'a>),
    /// [`Answer::Opened`].
    Open(Open<'a>),
    /// [`Answer::Done`] after the server closed it. See also [`crate::Client::release`].
    Close(HandleId),
    /// [`Answer::Done`] if access is allowed, else an error status.
    Access(wire::Access<'a>),
    /// [`Answer::Value`].
    Getxattr(wire::Getxattr<'a>),
    /// [`Answer::Done`].
    Setxattr(wire::Setxattr<'a>),
    /// [`Answer::Value`]: names, each ended by NUL.
    Listxattr(wire::Listxattr<'a>),
    /// [`Answer::Done`].
    Removexattr(wire::Removexattr<'a>),
    /// [`Answer::Space`]: the sum over all servers, with the inodes of all lanes.
    Statfs,
    /// The same of the server that the client was started with.
    ServerStatfs,
    /// [`Answer::Bytes`].
    Read(wire::Read),
    /// The same for a page cache: [`crate::Granted::contents`] says whether it may keep the bytes.
    ReadPages(wire::Read),
    /// [`Answer::Written`].
    Write(Write),
    /// The same for bytes that were stored to through a mapping: they leave a page cache, perhaps
    /// because it drops them.
    WriteBack(Write),
    /// [`Answer::List`].
    ReadList(ReadList<'a>),
    /// [`Answer::Written`], with the first piece's position and the total. `Invalid` when pieces
    /// overlap.
    WriteList(WriteList<'a>),
    /// [`Answer::Done`], durable.
    Allocate(wire::Allocate),
    /// [`Answer::Sought`].
    Seek(wire::Seek),
    /// [`Answer::Done`]. `Again` when the lock conflicts and `wait` is not set, `Deadlock` when the
    /// wait would close a cycle.
    SetLock(SetLock),
    /// [`Answer::LockFound`].
    GetLock(wire::GetLock),
    /// [`Answer::Done`] when all POSIX locks of this owner are released, or after a short timeout.
    /// Costs no exchange when the owner had none.
    Flush {
        /// The file.
        inode: InodeNo,
        /// The owner.
        owner: u64,
    },
    /// [`Answer::Done`]. `Io`, once, when an answered change was lost.
    Sync(Sync),
    /// The same, of a file whose contents are still being written; [`crate::Client::sync_contents`]
    /// follows, and until then nobody interrupts the call.
    SyncAhead(Sync),
    /// [`Answer::Done`] when all answered changes of this client lane are durable. `Io`, once, when
    /// an answered change was lost.
    SyncAll,
    /// [`Answer::Done`] when all changes that any shard answered, to any client, are durable.
    SyncShards,
    /// [`Answer::Done`] when the metadata shards have recalled what other clients had answered before
    /// the shards did, and it was executed. New files may still be written behind: their names were
    /// made meanwhile.
    Recall,
    /// [`Answer::Done`] when the server has ended this client lane's sessions. No call may be made
    /// meanwhile; a later call opens new sessions.
    Goodbye,
    /// [`Answer::Stats`] of this server lane.
    Stats(LaneId),
    /// [`Answer::Counters`] of this server lane. Administrative.
    Counters(LaneId),
    /// [`Answer::Traces`] of this server lane. Administrative.
    Traces(LaneId),
    /// [`Answer::Done`] when this server lane has replied; lane 0 always exists.
    Ping(LaneId),
    /// [`Answer::Done`] when the definition is durable and every lane has it.
    SetExport(wire::SetExport<'a>),
    /// [`Answer::Exports`].
    Exports,
    /// [`Answer::Frozen`] of this server lane.
    Freeze(LaneId, wire::Freeze),
    /// [`Answer::Inspected`] of the first server lane.
    Inspect(wire::Inspect),
}

impl Call<'_> {
    /// Whether the caller has the answer already.
    pub(crate) const fn is_behind(&self) -> bool {
        matches!(
            self,
            Self::CreateBehind(_)
                | Self::UnlinkBehind(_)
                | Self::SetattrBehind(_)
                | Self::Write(Write { behind: true, .. })
        )
    }

    /// The same call, with `root` in place of [`InodeNo::ROOT`].
    pub(crate) fn rooted(mut self, root: InodeNo) -> Self {
        let (first, second) = match &mut self {
            Self::Lookup(args) | Self::Resolve(args) => (Some(&mut args.parent), None),
            Self::Getattr(args) => (Some(&mut args.inode), None),
            Self::Setattr(args) | Self::SetattrBehind(args) => (Some(&mut args.inode), None),
            Self::Resize(args) => (Some(&mut args.inode), None),
            Self::Create(args) => (Some(&mut args.parent), None),
            Self::CreateBehind(args) => (Some(&mut args.parent), None),
            Self::Tmpfile(args) => (Some(&mut args.parent), None),
            Self::Mkdir(args) => (Some(&mut args.parent), None),
            Self::Symlink(args) => (Some(&mut args.parent), None),
            Self::Mknod(args) => (Some(&mut args.parent), None),
            Self::Link(args) => (Some(&mut args.parent), Some(&mut args.inode)),
            Self::Unlink(args) | Self::UnlinkBehind(args) => (Some(&mut args.parent), None),
            Self::Rmdir(args) => (Some(&mut args.parent), None),
            Self::Rename(args) => (Some(&mut args.parent), Some(&mut args.new_parent)),
            Self::Readlink(args) => (Some(&mut args.inode), None),
            Self::Readdir(args) => (Some(&mut args.inode), None),
            Self::Find(args) => (Some(&mut args.inode), None),
            Self::Open(args) => (Some(&mut args.inode), None),
            Self::Access(args) => (Some(&mut args.inode), None),
            Self::Getxattr(args) => (Some(&mut args.inode), None),
            Self::Setxattr(args) => (Some(&mut args.inode), None),
            Self::Listxattr(args) => (Some(&mut args.inode), None),
            Self::Removexattr(args) => (Some(&mut args.inode), None),
            Self::Read(args) | Self::ReadPages(args) => (Some(&mut args.inode), None),
            Self::Write(args) | Self::WriteBack(args) => (Some(&mut args.inode), None),
            Self::ReadList(args) => (Some(&mut args.inode), None),
            Self::WriteList(args) => (Some(&mut args.inode), None),
            Self::Allocate(args) => (Some(&mut args.inode), None),
            Self::Seek(args) => (Some(&mut args.inode), None),
            Self::SetLock(args) => (Some(&mut args.inode), None),
            Self::GetLock(args) => (Some(&mut args.inode), None),
            Self::Flush { inode, .. } => (Some(inode), None),
            Self::Sync(args) | Self::SyncAhead(args) => (Some(&mut args.inode), None),
            Self::Close(_)
            | Self::Statfs
            | Self::ServerStatfs
            | Self::SyncAll
            | Self::SyncShards
            | Self::Recall
            | Self::Goodbye
            | Self::Stats(_)
            | Self::Counters(_)
            | Self::Traces(_)
            | Self::Ping(_)
            | Self::SetExport(_)
            | Self::Exports
            | Self::Freeze(..)
            | Self::Inspect(_) => (None, None),
        };
        for inode in [first, second].into_iter().flatten() {
            if *inode == InodeNo::ROOT {
                *inode = root;
            }
        }
        self
    }
}

/// The result of a call. Spans are valid in the turn in which the answer is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The call succeeded.
    Done,
    /// Attributes, sizes included.
    Entry(Attr),
    /// Of [`Call::Create`].
    Created {
        /// Attributes, sizes included. Without a link: another client has removed the file, and the
        /// server has destroyed it with a restart; nothing can be done with the handle.
        attr: Attr,
        /// The call created the file.
        made: bool,
        /// The handle, if the call opened one.
        handle: Option<HandleId>,
    },
    /// Of [`Call::Open`].
    Opened {
        /// Attributes; size and times are current if the call asked for them.
        attr: Attr,
        /// The handle.
        handle: HandleId,
    },
    /// A symbolic link's target.
    Target(Span),
    /// An encoded [`wire::Listing`], valid: decode it with `Listing::decode_all`.
    Listing(Span),
    /// An encoded [`wire::Found`], valid: decode it with `Found::decode_all`.
    Found(Span),
    /// The value of an extended attribute, or the list of names.
    Value(Span),
    /// Space and inodes.
    Space(Space),
    /// Bytes of a file, `None` at its end. The frontend now owns the buffer and releases it.
    Bytes(Option<Bulk>),
    /// Bytes of several pieces of a file, concatenated; pieces end at the end of the file. The
    /// frontend owns the buffer, as with [`Self::Bytes`].
    List {
        /// The bytes.
        bulk: Option<Bulk>,
        /// The file's size.
        size_bytes: u64,
    },
    /// Where the bytes were written.
    Written(Written),
    /// Of [`Call::Rename`].
    Renamed(wire::Renamed),
    /// The position that was found.
    Sought(u64),
    /// The first conflicting lock.
    LockFound(Option<LockRow>),
    /// An encoded [`wire::Stats`], valid: decode it with `Stats::decode_all`.
    Stats(Span),
    /// An encoded [`wire::counters::Snapshot`], valid: decode it with `Snapshot::decode`.
    Counters(Span),
    /// Encoded [`wire::traces::Traces`], valid: decode them with `Traces::decode`.
    Traces(Span),
    /// An encoded [`wire::Exports`], valid: decode it with `Exports::decode_all`.
    Exports(Span),
    /// Whether the lane's changes are frozen.
    Frozen(wire::Frozen),
    /// An encoded [`wire::Inspected`], valid: decode it with `Inspected::decode_all`.
    Inspected(Span),
}
