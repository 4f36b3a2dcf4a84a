//! The op table: every request has one row, and nobody else keeps a second list.

/// What a client may do with a request whose reply it has not got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Changes nothing: send again at will. Uses slot 0.
    Repeat,
    /// Takes effect once: sent again under its own slot and xid, answered from the slot if done.
    Once,
}

/// Which number of a request decides where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The metadata shard named by the inode (for names: the directory).
    Meta,
    /// The data shard that holds the inode's stripe.
    Data,
    /// The shard that the head names, of either kind.
    Shard,
    /// Any lane; it speaks of itself.
    Lane,
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpRow {
    /// Lower-case name, for people.
    pub name: &'static str,
    /// How it may be repeated.
    pub retry: Retry,
    /// Most bulk bytes a request may carry.
    pub request_bulk_bytes_max: u32,
    /// Most bulk bytes its reply may carry.
    pub reply_bulk_bytes_max: u32,
    /// What it is routed by.
    pub route: Route,
}

macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident = $number:literal, $name:literal, $retry:ident, $bulk_in:expr,
       $bulk_out:expr, $route:ident;)*) => {
        /// What a request asks for. The number travels and is never given to another op.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Op {
            $($(#[$doc])* $op = $number,)*
        }

        impl Op {
            /// Every op, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$op,)*];

            /// The number that travels.
            #[must_use]
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// The op of a number from a peer, if there is one.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$op),)*
                    _ => None,
                }
            }

            /// Its row.
            #[must_use]
            pub const fn row(self) -> OpRow {
                match self {
                    $(Self::$op => OpRow {
                        name: $name,
                        retry: Retry::$retry,
                        request_bulk_bytes_max: $bulk_in,
                        reply_bulk_bytes_max: $bulk_out,
                        route: Route::$route,
                    },)*
                }
            }
        }
    };
}

use crate::BULK_BYTES_MAX as BULK;

ops! {
    /// A name in a directory to its inode.
    Lookup = 1, "lookup", Repeat, 0, 0, Meta;
    /// Attributes of an inode.
    Getattr = 2, "getattr", Repeat, 0, 0, Meta;
    /// Change mode, owner, group or times.
    Setattr = 3, "setattr", Once, 0, 0, Meta;
    /// A new regular file, open if a handle is named.
    Create = 4, "create", Once, 0, 0, Meta;
    /// A new directory.
    Mkdir = 5, "mkdir", Once, 0, 0, Meta;
    /// A new symbolic link.
    Symlink = 6, "symlink", Once, 0, 0, Meta;
    /// A further name for a file.
    Link = 7, "link", Once, 0, 0, Meta;
    /// Remove a name of something that is no directory.
    Unlink = 8, "unlink", Once, 0, 0, Meta;
    /// Remove an empty directory.
    Rmdir = 9, "rmdir", Once, 0, 0, Meta;
    /// Move a name, over an existing one if need be.
    Rename = 10, "rename", Once, 0, 0, Meta;
    /// The target of a symbolic link.
    Readlink = 11, "readlink", Repeat, 0, 0, Meta;
    /// Entries of a directory from a cookie on.
    Readdir = 12, "readdir", Repeat, 0, 0, Meta;
    /// Open a file: check permission, register the handle.
    Open = 13, "open", Once, 0, 0, Meta;
    /// Close a handle and, if it was the last writer's, settle the size.
    Close = 14, "close", Once, 0, 0, Meta;
    /// Register a handle again at a server that has forgotten it.
    Reopen = 15, "reopen", Once, 0, 0, Meta;
    /// Whether the caller may read, write or execute.
    Access = 16, "access", Repeat, 0, 0, Meta;
    /// The value of an extended attribute.
    Getxattr = 17, "getxattr", Repeat, 0, 0, Meta;
    /// Set an extended attribute.
    Setxattr = 18, "setxattr", Once, 0, 0, Meta;
    /// The names of the extended attributes.
    Listxattr = 19, "listxattr", Repeat, 0, 0, Meta;
    /// Remove an extended attribute.
    Removexattr = 20, "removexattr", Once, 0, 0, Meta;
    /// Space and inodes of the file system.
    Statfs = 21, "statfs", Repeat, 0, 0, Meta;
    /// A new regular file without a name, open.
    Tmpfile = 22, "tmpfile", Once, 0, 0, Meta;
    /// A new fifo, socket or device.
    Mknod = 23, "mknod", Once, 0, 0, Meta;
    /// Lock or unlock bytes of a file, or wait for it.
    SetLock = 24, "set_lock", Once, 0, 0, Meta;
    /// Who is in the way of a lock.
    GetLock = 25, "get_lock", Repeat, 0, 0, Meta;
    /// Wait for a lock no longer.
    CancelLock = 26, "cancel_lock", Repeat, 0, 0, Meta;
    /// A lock that a client has: set again at a server that has forgotten it, or looked at.
    Relock = 27, "relock", Once, 0, 0, Meta;
    /// Entries of a directory from a cookie on, of which only those travel that fit a predicate.
    Find = 28, "find", Repeat, 0, 0, Meta;
    /// Bytes of a file.
    Read = 32, "read", Repeat, 0, BULK, Data;
    /// Bytes into a file, at an offset or at its end.
    Write = 33, "write", Once, BULK, 0, Data;
    /// Set a file's size.
    Truncate = 34, "truncate", Once, 0, 0, Data;
    /// Size, space and time of the last write, from where the bytes are.
    Glimpse = 35, "glimpse", Repeat, 0, 0, Data;
    /// Give a range of a file space, or take it away, or make it zeros.
    Allocate = 36, "allocate", Once, 0, 0, Data;
    /// Where in a file bytes are, or where none are.
    Seek = 37, "seek", Repeat, 0, 0, Data;
    /// Several pieces of a file.
    ReadList = 38, "read_list", Repeat, 0, BULK, Data;
    /// Bytes into several places of a file, as one change.
    WriteList = 39, "write_list", Once, BULK, 0, Data;
    /// Counters of the lane that answers.
    Stats = 48, "stats", Repeat, 0, 0, Lane;
    /// Nothing; shows that the other end lives.
    Ping = 49, "ping", Repeat, 0, 0, Lane;
    /// Answered when everything this shard has executed or been given is durable.
    Sync = 50, "sync", Repeat, 0, 0, Shard;
    /// After a restart: what the client knows of its session at this shard, before it replays.
    Resume = 51, "resume", Repeat, 0, 0, Shard;
    /// After a restart: this client lane has replayed everything it holds for this shard.
    ReplayDone = 52, "replay_done", Repeat, 0, 0, Shard;
    /// The client lane leaves: its sessions at this lane are dropped, durably.
    Goodbye = 53, "goodbye", Repeat, 0, 0, Lane;
    /// Define an export, or take one away. For who administers.
    SetExport = 54, "set_export", Repeat, 0, 0, Shard;
    /// What can be mounted. For who administers.
    Exports = 55, "exports", Repeat, 0, 0, Lane;
    /// Let changes wait for a while, at the lane that is asked. For who administers.
    Freeze = 56, "freeze", Repeat, 0, 0, Lane;
    /// Have the server's host check, dump or copy the store, and send what comes of it. For who
    /// administers.
    Inspect = 57, "inspect", Repeat, 0, 0, Lane;
}
