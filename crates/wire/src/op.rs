//! The table of operations. Each operation is declared once, in a row. Decoding, dispatch, export
//! containment, admission, recovery and statistics are derived from the row, here or in the crate
//! that needs them. There is no other list of operations.
//!
//! To add an operation: add a row here, its messages in `message.rs`, its two functions in
//! `meta/src/ops`, and a call in `client/src/call.rs`.

use crate::{InodeNo, Wire};

/// How a client may resend a request without a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Changes nothing: may be repeated at will. Uses slot 0.
    Repeat,
    /// Takes effect once: resent under its slot and xid, and answered from the slot if already
    /// executed.
    Once,
}

/// What a request is routed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The metadata shard named by the inode (for names: the directory).
    Meta,
    /// The data shard that holds the inode's stripe.
    Data,
    /// The shard that the header names, of either kind.
    Shard,
    /// Any lane; the reply is about that lane.
    Lane,
}

/// Which part of a server executes an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Executor {
    /// The metadata shard (`meta/src/ops`).
    Metadata,
    /// The data shards of a lane.
    Data,
    /// The locks of a metadata shard.
    Locks,
    /// The lane itself.
    Lane,
}

/// The access to the contents of its inode that an operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContentsAccess {
    /// Nothing.
    None,
    /// To read them.
    Read,
    /// To change them.
    Write,
    /// The mode of its handle, which the request states.
    AsOpened,
}

/// Whether an operation changes what other clients see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changes {
    /// Never.
    Never,
    /// Always.
    Always,
    /// If it opens a file for writing.
    IfOpenedForWriting,
    /// If it checks for write permission.
    IfWriteAsked,
    /// Changes the table of exports; needs an administrative connection.
    Exports,
}

/// The effect of an operation on log space and object space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceUse {
    /// Changes nothing durable.
    None,
    /// Frees space, or is needed to free it.
    Frees,
    /// Takes space.
    Takes,
}

/// How an operation is treated while its server recovers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DuringRecovery {
    /// It waits until recovery is over.
    Waits,
    /// It is executed.
    Runs,
    /// It is part of recovery: it restores the client's state at the server.
    Registers,
}

/// What a reply's body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyBody {
    /// Nothing.
    Empty,
    /// [`crate::Entry`].
    Entry,
    /// [`crate::Created`].
    Created,
    /// [`crate::Renamed`].
    Renamed,
    /// [`crate::Target`].
    Target,
    /// [`crate::Listing`].
    Listing,
    /// [`crate::Found`].
    Found,
    /// [`crate::Value`].
    Value,
    /// [`crate::Space`].
    Space,
    /// [`crate::LockSet`].
    LockSet,
    /// [`crate::LockFound`].
    LockFound,
    /// [`crate::LockCancelled`].
    LockCancelled,
    /// Nothing; the bytes are the bulk.
    Bulk,
    /// [`crate::ListRead`]; the bytes are the bulk.
    ListRead,
    /// [`crate::Written`].
    Written,
    /// [`crate::Glimpsed`].
    Glimpsed,
    /// [`crate::Sought`].
    Sought,
    /// [`crate::Stats`].
    Stats,
    /// [`crate::Resumed`].
    Resumed,
    /// [`crate::Exports`].
    Exports,
    /// [`crate::Frozen`].
    Frozen,
    /// [`crate::Inspected`].
    Inspected,
    /// [`crate::counters::Snapshot`].
    Counters,
    /// [`crate::traces::Traces`].
    Traces,
}

/// The leases that a reply may grant to a client that asks for them. What changes names grants the
/// attributes of their directories as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grants {
    /// None.
    Nothing,
    /// The attributes of the inode.
    Attributes,
    /// The name, also that it does not exist, and the attributes of what it names.
    Name,
    /// The name, which does not exist any more, and the attributes of the inode that it named.
    RemovedName,
    /// Both names, and the attributes of the inodes that they named.
    BothNames,
    /// The attributes of the inode, which the reply's message does not show.
    Inode,
    /// The attributes and, of a file opened only for reading, the contents.
    Contents,
    /// The attributes of the directory; names and attributes of entries that are listed with
    /// attributes.
    Entries,
    /// The pages of the file, if a cache keeps what is read.
    Pages,
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpRow {
    /// Lower-case name, for display.
    pub name: &'static str,
    /// The part that executes it.
    pub executor: Executor,
    /// What it is routed by.
    pub route: Route,
    /// How it may be repeated.
    pub retry: Retry,
    /// Most bulk bytes a request may carry.
    pub request_bulk_bytes_max: u32,
    /// Most bulk bytes its reply may carry.
    pub reply_bulk_bytes_max: u32,
    /// The body of its reply.
    pub reply: ReplyBody,
    /// The request's first field is its [`crate::Caller`].
    pub has_caller: bool,
    /// The access to its inode's contents that it needs.
    pub contents: ContentsAccess,
    /// Whether it changes what other clients see.
    pub changes: Changes,
    /// Its effect on space.
    pub space: SpaceUse,
    /// It registers an open handle.
    pub opens: bool,
    /// Its treatment during recovery.
    pub recovery: DuringRecovery,
    /// Changes nothing, but its reply may come later than the turn that executes it.
    pub waits: bool,
    /// The leases that it may grant.
    pub grants: Grants,
}

impl OpRow {
    const DEFAULT: Self = Self {
        name: "",
        executor: Executor::Lane,
        route: Route::Lane,
        retry: Retry::Repeat,
        request_bulk_bytes_max: 0,
        reply_bulk_bytes_max: 0,
        reply: ReplyBody::Empty,
        has_caller: false,
        contents: ContentsAccess::None,
        changes: Changes::Never,
        space: SpaceUse::None,
        opens: false,
        recovery: DuringRecovery::Waits,
        waits: false,
        grants: Grants::Nothing,
    };

    /// Reads an inode or a name.
    const LOOK: Self = Self {
        executor: Executor::Metadata,
        route: Route::Meta,
        reply: ReplyBody::Entry,
        has_caller: true,
        ..Self::DEFAULT
    };

    /// Changes an inode or a name.
    const CHANGE: Self =
        Self { retry: Retry::Once, changes: Changes::Always, space: SpaceUse::Frees, ..Self::LOOK };

    /// Creates a name, an inode or an attribute.
    const MAKE: Self = Self { space: SpaceUse::Takes, ..Self::CHANGE };

    /// Changes a handle: closed with its client, and invisible to other clients.
    const HANDLE: Self = Self {
        changes: Changes::Never,
        reply: ReplyBody::Empty,
        has_caller: false,
        ..Self::CHANGE
    };

    /// Locks on a file, which are in memory only.
    const LOCK: Self = Self { executor: Executor::Locks, route: Route::Meta, ..Self::DEFAULT };

    /// Reads contents.
    const READ: Self = Self {
        executor: Executor::Data,
        route: Route::Data,
        contents: ContentsAccess::Read,
        ..Self::DEFAULT
    };

    /// Changes contents.
    const WRITE: Self = Self {
        retry: Retry::Once,
        contents: ContentsAccess::Write,
        changes: Changes::Always,
        space: SpaceUse::Frees,
        ..Self::READ
    };

    /// Concerns a shard as a whole.
    const SHARD: Self = Self { route: Route::Shard, ..Self::DEFAULT };

    /// Whether a request is answered as it is executed: it is never outstanding.
    #[must_use]
    pub const fn is_answered_at_once(&self) -> bool {
        matches!(self.retry, Retry::Repeat) && !matches!(self.route, Route::Data) && !self.waits
    }

    /// Whether a request changes what is stored.
    #[must_use]
    pub const fn changes_store(&self) -> bool {
        matches!(self.retry, Retry::Once) || matches!(self.changes, Changes::Exports)
    }
}

/// Declares the operations, grouped by the part of a server that executes them. A row has: the
/// operation, whose name is also that of its request message; its number; the module that executes
/// it, whose name is also the op's display name, with `(several)` if the op may involve several
/// metadata shards; the message fields that name inodes; a base row and the columns of [`OpRow`]
/// that differ from it.
///
/// For each part this generates a macro that calls another one with the part's operations and
/// modules, so that the compiler verifies a dispatch to be complete. (`$d` is a dollar sign, for
/// these macros.)
macro_rules! operations {
    ($d:tt $($list:ident: $executor:ident {
        $($(#[$doc:meta])* $op:ident = $number:literal, $module:ident $(($several:ident))?,
          [$($inode:ident),*], $base:ident { $($column:ident: $value:expr),* };)*
    })*) => {
        /// The operation of a request. The encoded number is never reused.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Op {
            $($($(#[$doc])* $op = $number,)*)*
        }

        impl Op {
            /// Every op, in the order of the table.
            pub const ALL: &'static [Self] = &[$($(Self::$op,)*)*];

            /// The number that travels.
            #[must_use]
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// The op of a number from a peer, if there is one.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($($number => Some(Self::$op),)*)*
                    _ => None,
                }
            }

            /// Its row.
            #[must_use]
            pub const fn row(self) -> &'static OpRow {
                match self {
                    $($(Self::$op => const {
                        &OpRow {
                            name: stringify!($module),
                            executor: Executor::$executor,
                            $($column: $value,)*
                            ..OpRow::$base
                        }
                    },)*)*
                }
            }

            /// The inodes that a request names by number. A body that does not decode names none:
            /// such a request is refused before execution.
            #[must_use]
            pub fn inodes(self, body: &[u8]) -> [Option<InodeNo>; 2] {
                match self {
                    $($(Self::$op => inodes!($op body [$($inode),*]),)*)*
                }
            }
        }

        $(
            /// Calls a macro with the operations of one part of a server: `Op module;` each.
            #[macro_export]
            macro_rules! $list {
                ($d callback:ident) => {
                    $d callback! { $($op $module $(($several))?;)* }
                };
            }
        )*
    };
}

/// The inodes of a decoded message.
macro_rules! inodes {
    ($op:ident $body:ident []) => { [None; 2] };
    ($op:ident $body:ident [$($inode:ident),+]) => {
        match crate::$op::decode_all($body) {
            Ok(message) => {
                let mut inodes = [$(Some(message.$inode)),+].into_iter();
                core::array::from_fn(|_| inodes.next().flatten())
            }
            Err(_) => [None; 2],
        }
    };
}

/// Most bulk bytes of a frame: one FUSE write or read.
pub const BULK_BYTES_MAX: u32 = 1 << 20;
const BULK: u32 = BULK_BYTES_MAX;

operations! { $
metadata_operations: Metadata {
    /// A name in a directory to its inode.
    Lookup = 1, lookup, [parent], LOOK { grants: Grants::Name };
    /// Attributes of an inode.
    Getattr = 2, getattr, [inode], LOOK { has_caller: false, grants: Grants::Attributes };
    /// Change mode, owner, group or times.
    Setattr = 3, setattr, [inode], CHANGE { grants: Grants::Attributes };
    /// A new regular file, open if a handle is named.
    Create = 4, create, [parent], MAKE {
        reply: ReplyBody::Created,
        opens: true,
        grants: Grants::Name
    };
    /// A new directory.
    Mkdir = 5, mkdir (several), [parent], MAKE { grants: Grants::Name };
    /// A new symbolic link.
    Symlink = 6, symlink, [parent], MAKE { grants: Grants::Name };
    /// An additional name for a file.
    Link = 7, link (several), [inode, parent], MAKE { grants: Grants::Name };
    /// Remove a name of an inode other than a directory.
    Unlink = 8, unlink (several), [parent], CHANGE {
        reply: ReplyBody::Empty,
        grants: Grants::RemovedName
    };
    /// Remove an empty directory.
    Rmdir = 9, rmdir (several), [parent], CHANGE {
        reply: ReplyBody::Empty,
        grants: Grants::RemovedName
    };
    /// Move a name, over an existing one if need be.
    Rename = 10, rename (several), [parent, new_parent], MAKE {
        reply: ReplyBody::Renamed,
        grants: Grants::BothNames
    };
    /// The target of a symbolic link.
    Readlink = 11, readlink, [inode], LOOK { reply: ReplyBody::Target, has_caller: false };
    /// Entries of a directory from a cookie on.
    Readdir = 12, readdir, [inode], LOOK {
        reply: ReplyBody::Listing,
        grants: Grants::Entries
    };
    /// Open a file: check permission, register the handle.
    Open = 13, open, [inode], CHANGE {
        changes: Changes::IfOpenedForWriting,
        opens: true,
        grants: Grants::Contents
    };
    /// Close a handle and, if it was the last writer's, settle the size.
    Close = 14, close, [], HANDLE {};
    /// Reopen a handle at a server that has lost it.
    Reopen = 15, reopen, [inode], HANDLE {
        contents: ContentsAccess::AsOpened,
        changes: Changes::IfOpenedForWriting,
        opens: true,
        recovery: DuringRecovery::Registers
    };
    /// Whether the caller may read, write or execute.
    Access = 16, access, [inode], LOOK { changes: Changes::IfWriteAsked, reply: ReplyBody::Empty };
    /// The value of an extended attribute.
    Getxattr = 17, getxattr, [inode], LOOK { reply: ReplyBody::Value };
    /// Set an extended attribute.
    Setxattr = 18, setxattr, [inode], MAKE { reply: ReplyBody::Empty, grants: Grants::Inode };
    /// The names of the extended attributes.
    Listxattr = 19, listxattr, [inode], LOOK { reply: ReplyBody::Value };
    /// Remove an extended attribute.
    Removexattr = 20, removexattr, [inode], CHANGE {
        reply: ReplyBody::Empty,
        grants: Grants::Inode
    };
    /// A new regular file without a name, open.
    Tmpfile = 22, tmpfile, [parent], MAKE { reply: ReplyBody::Created, opens: true };
    /// A new fifo, socket or device.
    Mknod = 23, mknod, [parent], MAKE { grants: Grants::Name };
    /// Entries of a directory from a cookie on, filtered by a predicate.
    Find = 28, find, [inode], LOOK { reply: ReplyBody::Found };
}
lock_operations: Locks {
    /// Lock or unlock bytes of a file, or wait for it.
    SetLock = 24, set_lock, [inode], LOCK { retry: Retry::Once, reply: ReplyBody::LockSet };
    /// The first conflicting lock.
    GetLock = 25, get_lock, [inode], LOCK { reply: ReplyBody::LockFound };
    /// Cancel a wait for a lock.
    CancelLock = 26, cancel_lock, [inode], LOCK { reply: ReplyBody::LockCancelled };
    /// A lock that a client holds: restore it at a recovering server, or verify it.
    Relock = 27, relock, [inode], LOCK {
        retry: Retry::Once,
        recovery: DuringRecovery::Registers
    };
}
data_operations: Data {
    /// Bytes of a file.
    Read = 32, read, [inode], READ {
        reply_bulk_bytes_max: BULK,
        reply: ReplyBody::Bulk,
        grants: Grants::Pages
    };
    /// Bytes into a file, at an offset or at its end.
    Write = 33, write, [inode], WRITE {
        request_bulk_bytes_max: BULK,
        reply: ReplyBody::Written,
        space: SpaceUse::Takes
    };
    /// Set a file's size.
    Truncate = 34, truncate, [inode], WRITE {};
    /// Size, space and time of the last write, from the data shard.
    Glimpse = 35, glimpse, [inode], READ {
        reply: ReplyBody::Glimpsed,
        contents: ContentsAccess::None
    };
    /// Allocate, deallocate or zero a range of a file.
    Allocate = 36, allocate, [inode], WRITE {};
    /// Find data or a hole in a file.
    Seek = 37, seek, [inode], READ { reply: ReplyBody::Sought };
    /// Several pieces of a file.
    ReadList = 38, read_list, [inode], READ {
        reply_bulk_bytes_max: BULK,
        reply: ReplyBody::ListRead
    };
    /// Bytes into several places of a file, as one change.
    WriteList = 39, write_list, [inode], WRITE {
        request_bulk_bytes_max: BULK,
        reply: ReplyBody::Written,
        space: SpaceUse::Takes
    };
    /// Gives the end of a file over several data shards to one session, which appends to it, or
    /// ends that.
    Reserve = 40, reserve, [inode], READ {
        reply: ReplyBody::Glimpsed,
        contents: ContentsAccess::Write,
        changes: Changes::Always
    };
    /// Spreads a file over several data shards that was at one so far.
    Widen = 41, widen, [inode], WRITE { space: SpaceUse::Takes };
}
lane_operations: Lane {
    /// Space and inodes of the file system.
    Statfs = 21, statfs, [], DEFAULT {
        route: Route::Meta,
        reply: ReplyBody::Space,
        recovery: DuringRecovery::Runs,
        waits: true
    };
    /// Counters of the replying lane.
    Stats = 48, stats, [], DEFAULT {
        reply: ReplyBody::Stats,
        recovery: DuringRecovery::Runs,
        waits: true
    };
    /// Does nothing; the reply shows that the server is alive.
    Ping = 49, ping, [], DEFAULT { recovery: DuringRecovery::Runs };
    /// Answered when everything that this shard has executed or received is durable.
    Sync = 50, sync, [], SHARD {};
    /// After a restart: the client's state of its session at this shard, before it replays.
    Resume = 51, resume, [], SHARD { reply: ReplyBody::Resumed, recovery: DuringRecovery::Runs };
    /// After a restart: this client lane has replayed all it retained for this shard.
    ReplayDone = 52, replay_done, [], SHARD { recovery: DuringRecovery::Runs, waits: true };
    /// A directory whose names a client changes behind: grant that again at a recovering server.
    Claim = 60, claim, [inode], DEFAULT {
        route: Route::Meta,
        recovery: DuringRecovery::Registers
    };
    /// The client lane disconnects: its sessions at this lane are removed durably.
    Goodbye = 53, goodbye, [], DEFAULT {};
    /// Define or remove an export. Administrative.
    SetExport = 54, set_export, [], SHARD { changes: Changes::Exports };
    /// List the exports. Administrative.
    Exports = 55, exports, [], DEFAULT { reply: ReplyBody::Exports };
    /// Suspend changes at this lane for a while. Administrative.
    Freeze = 56, freeze, [], DEFAULT { reply: ReplyBody::Frozen };
    /// Have the server's host check, dump or copy the store and stream the output. Administrative.
    Inspect = 57, inspect, [], DEFAULT { reply: ReplyBody::Inspected, waits: true };
    /// All counters of the replying lane, by operation, client and export. Administrative.
    Counters = 58, counters, [], DEFAULT {
        reply: ReplyBody::Counters,
        recovery: DuringRecovery::Runs,
        waits: true
    };
    /// Where the time of recent requests to the replying lane went. Administrative.
    Traces = 59, traces, [], DEFAULT {
        reply: ReplyBody::Traces,
        recovery: DuringRecovery::Runs
    };
}
}
