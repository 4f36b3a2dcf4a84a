//! What a face asks for and what it gets. One [`Call`] may take several requests; the face sees
//! only its [`Answer`].

use interface::{Bulk, Span};
use wire::{
    Attr, ByteRange, Caller, ClearPrivileges, HandleId, InodeNo, LaneId, LockKind, LockRow,
    LockType, Name, OpenFor, Pieces, Space, Stats, Written,
};

/// A call's number, chosen by the face; unique among its unanswered calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// A new regular file, or an existing one unless `exclusive`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Create<'a> {
    /// Who asks.
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

/// A new regular file without a name, open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tmpfile<'a> {
    /// Who asks.
    pub caller: Caller<'a>,
    /// A directory that it could have a name in.
    pub parent: InodeNo,
    /// Permission bits.
    pub mode: u32,
    /// Of these, the ones the caller's process leaves out.
    pub umask: u32,
    /// It may get a name later, by [`Call::Link`].
    pub linkable: bool,
    /// Open it, for this.
    pub open_for: OpenFor,
}

/// Open a file or directory and get a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open<'a> {
    /// Who asks.
    pub caller: Caller<'a>,
    /// What.
    pub inode: InodeNo,
    /// For what.
    pub open_for: OpenFor,
    /// The answer's attributes shall have the file's size and times; without it, these may be
    /// stale and an exchange is saved.
    pub sizes: bool,
}

/// Set a file's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resize<'a> {
    /// Who asks.
    pub caller: Caller<'a>,
    /// The file.
    pub inode: InodeNo,
    /// The new size, 0 ..= 2^63 − 1.
    pub size_bytes: u64,
    /// The caller holds a handle open for writing: permission was checked when it was opened.
    pub open_for_write: bool,
}

/// Bytes into a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// The file.
    pub inode: InodeNo,
    /// To here; ignored when appending.
    pub file_offset: u64,
    /// At the end, wherever that is then.
    pub append: bool,
    /// The bytes, at most [`wire::BULK_BYTES_MAX`]; `None` for none. They stay the face's, who
    /// keeps them valid until the answer.
    pub bulk: Option<Bulk>,
    /// The answer waits until they are durable (O_SYNC).
    pub sync: bool,
    /// See [`wire::Write::takes`].
    pub clears: ClearPrivileges,
}

/// Bytes of several places of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadList<'a> {
    /// The file.
    pub inode: InodeNo,
    /// Which, in which order; they may overlap.
    pub pieces: &'a Pieces,
    /// See [`wire::Read::accesses`].
    pub accesses: bool,
}

/// Bytes into several places of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteList<'a> {
    /// The file.
    pub inode: InodeNo,
    /// Where they go; no two share a byte.
    pub pieces: &'a Pieces,
    /// The bytes of all pieces, one behind the other. They stay the face's, who keeps them valid
    /// until the answer.
    pub bulk: Option<Bulk>,
    /// As of [`Write`].
    pub sync: bool,
    /// See [`wire::Write::takes`].
    pub clears: ClearPrivileges,
}

/// Lock bytes of a file, or give them up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetLock {
    /// The file.
    pub inode: InodeNo,
    /// fcntl's or flock's.
    pub kind: LockKind,
    /// Whose: any number, the same for all lanes of this client.
    pub owner: u64,
    /// What it shall be; `None` gives it up.
    pub lock: Option<LockType>,
    /// Which bytes; all for flock.
    pub range: ByteRange,
    /// The process that asks.
    pub pid: u32,
    /// Wait for whoever has it.
    pub wait: bool,
    /// Through which open file: [`crate::Client::release_locks`] of it gives the lock up.
    pub handle: HandleId,
}

/// Wait until what was done to a file or directory, by anybody, is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sync {
    /// Which.
    pub inode: InodeNo,
    /// It is a file: its contents too.
    pub contents: bool,
    /// Through which handle: its holder is told once of everything that was lost while it was open.
    pub handle: Option<HandleId>,
}

/// What a face may ask for.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// [`Answer::Entry`].
    Lookup(wire::Lookup<'a>),
    /// [`Answer::Entry`].
    Getattr(wire::Getattr),
    /// [`Answer::Entry`]. Mode, owner, times; sizes by [`Call::Resize`].
    Setattr(wire::Setattr<'a>),
    /// [`Answer::Entry`], with the new size.
    Resize(Resize<'a>),
    /// [`Answer::Created`].
    Create(Create<'a>),
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
    /// [`Answer::Done`] when the server knows. See also [`crate::Client::release`].
    Close(HandleId),
    /// [`Answer::Done`]; the status tells.
    Access(wire::Access<'a>),
    /// [`Answer::Value`].
    Getxattr(wire::Getxattr<'a>),
    /// [`Answer::Done`].
    Setxattr(wire::Setxattr<'a>),
    /// [`Answer::Value`]: names, each ended by NUL.
    Listxattr(wire::Listxattr<'a>),
    /// [`Answer::Done`].
    Removexattr(wire::Removexattr<'a>),
    /// [`Answer::Space`], with the inodes of all lanes.
    Statfs,
    /// [`Answer::Bytes`].
    Read(wire::Read),
    /// [`Answer::Written`].
    Write(Write),
    /// [`Answer::List`].
    ReadList(ReadList<'a>),
    /// [`Answer::Written`], with the first piece's place and all bytes. `Invalid` when pieces overlap.
    WriteList(WriteList<'a>),
    /// [`Answer::Done`], durable.
    Allocate(wire::Allocate),
    /// [`Answer::Sought`].
    Seek(wire::Seek),
    /// [`Answer::Done`]. `Again` when another has it and it is not waited for, `Deadlock` when
    /// waiting would never end.
    SetLock(SetLock),
    /// [`Answer::LockFound`].
    GetLock(wire::GetLock),
    /// [`Answer::Done`] when all that this owner had locked with fcntl is given up, or soon after.
    /// Costs no exchange when he had nothing.
    Flush {
        /// The file.
        inode: InodeNo,
        /// The owner.
        owner: u64,
    },
    /// [`Answer::Done`]. `Io`, once, when something that was answered before is lost.
    Sync(Sync),
    /// [`Answer::Done`] when all that this client lane was answered is durable. `Io`, once, when
    /// something that was answered before is lost.
    SyncAll,
    /// [`Answer::Done`] when all that anybody was answered at any shard is durable.
    SyncShards,
    /// [`Answer::Done`] when the server has forgotten this client lane. Nothing may be called
    /// meanwhile; a later call begins anew.
    Goodbye,
    /// [`Answer::Stats`] of this server lane.
    Stats(LaneId),
    /// [`Answer::Done`] when this server lane has answered; lane 0 always exists.
    Ping(LaneId),
    /// [`Answer::Done`] when it is durable, and every lane heard of it.
    SetExport(wire::SetExport<'a>),
    /// [`Answer::Exports`].
    Exports,
    /// [`Answer::Frozen`] of this server lane.
    Freeze(LaneId, wire::Freeze),
    /// [`Answer::Inspected`] of the first server lane.
    Inspect(wire::Inspect),
}

impl Call<'_> {
    /// The same, of `root` where the face said [`InodeNo::ROOT`].
    pub(crate) fn rooted(mut self, root: InodeNo) -> Self {
        let (first, second) = match &mut self {
            Self::Lookup(ask) => (Some(&mut ask.parent), None),
            Self::Getattr(ask) => (Some(&mut ask.inode), None),
            Self::Setattr(ask) => (Some(&mut ask.inode), None),
            Self::Resize(ask) => (Some(&mut ask.inode), None),
            Self::Create(ask) => (Some(&mut ask.parent), None),
            Self::Tmpfile(ask) => (Some(&mut ask.parent), None),
            Self::Mkdir(ask) => (Some(&mut ask.parent), None),
            Self::Symlink(ask) => (Some(&mut ask.parent), None),
            Self::Mknod(ask) => (Some(&mut ask.parent), None),
            Self::Link(ask) => (Some(&mut ask.parent), Some(&mut ask.inode)),
            Self::Unlink(ask) => (Some(&mut ask.parent), None),
            Self::Rmdir(ask) => (Some(&mut ask.parent), None),
            Self::Rename(ask) => (Some(&mut ask.parent), Some(&mut ask.new_parent)),
            Self::Readlink(ask) => (Some(&mut ask.inode), None),
            Self::Readdir(ask) => (Some(&mut ask.inode), None),
            Self::Find(ask) => (Some(&mut ask.inode), None),
            Self::Open(ask) => (Some(&mut ask.inode), None),
            Self::Access(ask) => (Some(&mut ask.inode), None),
            Self::Getxattr(ask) => (Some(&mut ask.inode), None),
            Self::Setxattr(ask) => (Some(&mut ask.inode), None),
            Self::Listxattr(ask) => (Some(&mut ask.inode), None),
            Self::Removexattr(ask) => (Some(&mut ask.inode), None),
            Self::Read(ask) => (Some(&mut ask.inode), None),
            Self::Write(ask) => (Some(&mut ask.inode), None),
            Self::ReadList(ask) => (Some(&mut ask.inode), None),
            Self::WriteList(ask) => (Some(&mut ask.inode), None),
            Self::Allocate(ask) => (Some(&mut ask.inode), None),
            Self::Seek(ask) => (Some(&mut ask.inode), None),
            Self::SetLock(ask) => (Some(&mut ask.inode), None),
            Self::GetLock(ask) => (Some(&mut ask.inode), None),
            Self::Flush { inode, .. } => (Some(inode), None),
            Self::Sync(ask) => (Some(&mut ask.inode), None),
            Self::Close(_)
            | Self::Statfs
            | Self::SyncAll
            | Self::SyncShards
            | Self::Goodbye
            | Self::Stats(_)
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

/// What came of a call. Spans are of the turn in which the answer is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// Attributes, sizes included.
    Entry(Attr),
    /// Of [`Call::Create`].
    Created {
        /// Attributes, sizes included.
        attr: Attr,
        /// The file did not exist before.
        made: bool,
        /// The handle, if one was wanted.
        handle: Option<HandleId>,
    },
    /// Of [`Call::Open`].
    Opened {
        /// Attributes; sizes if they were asked for.
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
    /// The value of an extended attribute, or the names of them.
    Value(Span),
    /// Space and inodes.
    Space(Space),
    /// Bytes of a file, `None` at its end; owned by the face from here on, which releases them.
    Bytes(Option<Bulk>),
    /// Bytes of several places of a file, one behind the other: of each place as many as a file of
    /// this size has. Owned by the face as those of [`Self::Bytes`].
    List {
        /// The bytes.
        bulk: Option<Bulk>,
        /// The file's size.
        size_bytes: u64,
    },
    /// Where the bytes went.
    Written(Written),
    /// Of [`Call::Rename`].
    Renamed(wire::Renamed),
    /// Where in a file it is.
    Sought(u64),
    /// The first lock in the way.
    LockFound(Option<LockRow>),
    /// A lane's counters.
    Stats(Stats),
    /// An encoded [`wire::Exports`], valid: decode it with `Exports::decode_all`.
    Exports(Span),
    /// Whether a lane's changes wait.
    Frozen(wire::Frozen),
    /// An encoded [`wire::Inspected`], valid: decode it with `Inspected::decode_all`.
    Inspected(Span),
}
