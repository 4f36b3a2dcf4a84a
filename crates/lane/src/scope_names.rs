//! Which inodes a request names, and whether it changes anything: what an export has to be held
//! against. Every op is here; one that is new does not compile before it is.

use wire::{InodeNo, Op, OpenFor, Wire};

/// What a request asks of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) inode: InodeNo,
    pub(crate) wants: Wants,
}

/// What a client must be allowed. What its caller must be, the metadata shard looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wants {
    /// To know of it.
    Knowledge,
    /// To read what a file contains.
    Contents,
    /// To change what a file contains.
    Change,
    /// To have it open for this.
    Handle(OpenFor),
}

/// The inodes that a request names by their numbers. One that does not decode names none: it is
/// refused before anything is done.
pub(crate) fn named(op: Op, body: &[u8]) -> [Option<Named>; 2] {
    macro_rules! of {
        ($message:ident, $($field:ident),+) => {
            match wire::$message::decode_all(body) {
                Ok(ask) => [$(Some((ask.$field, Wants::Knowledge))),+].into_iter().collect::<Names>(),
                Err(_) => Names::default(),
            }
        };
        ($message:ident wants $wants:expr) => {
            match wire::$message::decode_all(body) {
                Ok(ask) => [Some((ask.inode, $wants))].into_iter().collect::<Names>(),
                Err(_) => Names::default(),
            }
        };
    }
    let names = match op {
        Op::Lookup => of!(Lookup, parent),
        Op::Create => of!(Create, parent),
        Op::Mkdir => of!(Mkdir, parent),
        Op::Symlink => of!(Symlink, parent),
        Op::Mknod => of!(Mknod, parent),
        Op::Tmpfile => of!(Tmpfile, parent),
        Op::Unlink => of!(Unlink, parent),
        Op::Rmdir => of!(Rmdir, parent),
        Op::Link => of!(Link, inode, parent),
        Op::Rename => of!(Rename, parent, new_parent),
        Op::Getattr => of!(Getattr, inode),
        Op::Setattr => of!(Setattr, inode),
        Op::Readlink => of!(Readlink, inode),
        Op::Readdir => of!(Readdir, inode),
        Op::Find => of!(Find, inode),
        Op::Open => of!(Open, inode),
        Op::Access => of!(Access, inode),
        Op::Getxattr => of!(Getxattr, inode),
        Op::Setxattr => of!(Setxattr, inode),
        Op::Listxattr => of!(Listxattr, inode),
        Op::Removexattr => of!(Removexattr, inode),
        Op::SetLock => of!(SetLock, inode),
        Op::GetLock => of!(GetLock, inode),
        Op::CancelLock => of!(CancelLock, inode),
        Op::Relock => of!(Relock, inode),
        // Whoever says that it had a file open is asked whether it could have.
        Op::Reopen => match wire::Reopen::decode_all(body) {
            Ok(ask) => {
                [Some((ask.inode, Wants::Handle(ask.handle.open_for)))].into_iter().collect()
            }
            Err(_) => Names::default(),
        },
        Op::Glimpse => of!(Glimpse wants Wants::Knowledge),
        Op::Read => of!(Read wants Wants::Contents),
        Op::Seek => of!(Seek wants Wants::Contents),
        Op::ReadList => of!(ReadList wants Wants::Contents),
        Op::Write => of!(Write wants Wants::Change),
        Op::WriteList => of!(WriteList wants Wants::Change),
        Op::Truncate => of!(Truncate wants Wants::Change),
        Op::Allocate => of!(Allocate wants Wants::Change),
        // Of what is not held it takes nothing away, and of the file system it tells its size alone.
        Op::Close | Op::Statfs => Names::default(),
        // About the lane, a whole shard or the session itself; exports are for who administers.
        Op::Stats
        | Op::Ping
        | Op::Sync
        | Op::Resume
        | Op::ReplayDone
        | Op::Goodbye
        | Op::SetExport
        | Op::Exports
        | Op::Freeze
        | Op::Inspect => Names::default(),
    };
    names.0
}

/// Whether a request would change what others see of the file system.
pub(crate) fn changes(op: Op, body: &[u8]) -> bool {
    match op {
        Op::Setattr
        | Op::Create
        | Op::Mkdir
        | Op::Symlink
        | Op::Mknod
        | Op::Tmpfile
        | Op::Unlink
        | Op::Rmdir
        | Op::Link
        | Op::Rename
        | Op::Setxattr
        | Op::Removexattr
        | Op::Write
        | Op::WriteList
        | Op::Truncate
        | Op::Allocate => true,
        Op::Open => wire::Open::decode_all(body).is_ok_and(|ask| ask.handle.open_for.writes()),
        Op::Reopen => wire::Reopen::decode_all(body).is_ok_and(|ask| ask.handle.open_for.writes()),
        // W_OK.
        Op::Access => wire::Access::decode_all(body).is_ok_and(|ask| ask.mask & 2 != 0),
        Op::SetExport => false, // Not this way: who is bound may not.
        Op::Lookup
        | Op::Getattr
        | Op::Readlink
        | Op::Readdir
        | Op::Find
        | Op::Close
        | Op::Getxattr
        | Op::Listxattr
        | Op::Statfs
        | Op::SetLock
        | Op::GetLock
        | Op::CancelLock
        | Op::Relock
        | Op::Read
        | Op::ReadList
        | Op::Glimpse
        | Op::Seek
        | Op::Stats
        | Op::Ping
        | Op::Sync
        | Op::Resume
        | Op::ReplayDone
        | Op::Goodbye
        | Op::Exports
        | Op::Freeze
        | Op::Inspect => false,
    }
}

#[derive(Default)]
struct Names([Option<Named>; 2]);

impl FromIterator<Option<(InodeNo, Wants)>> for Names {
    fn from_iter<I: IntoIterator<Item = Option<(InodeNo, Wants)>>>(names: I) -> Self {
        let mut all = Self::default();
        for (place, (inode, wants)) in all.0.iter_mut().zip(names.into_iter().flatten()) {
            *place = Some(Named { inode, wants });
        }
        all
    }
}
