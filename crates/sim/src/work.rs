//! The workload's calls, and the history of each call from its beginning to its reply.

use crate::number::{narrow, narrow_u32};
use crate::servers::Lives;
use client::{Call, CallId, Create, Open, ReadList, Resize, Sync, Write, WriteList};
use interface::Bulk;
use wire::{
    Allocation, Bytes, Caller, ClearPrivileges, FileKind, Groups, HandleId, InodeNo, Name, OpenFor,
    Piece, Pieces, RenameHow, SetTime, Status,
};

/// The number of a call. It travels in the caller's groups and so marks the call's requests.
pub(crate) type Tag = u32;

macro_rules! kinds {
    ($($name:ident)*) => {
        /// Kinds of calls.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub(crate) enum Kind {
            $($name,)*
        }
        impl Kind {
            pub(crate) const ALL: [Self; 21] = [$(Self::$name,)*];
        }
    };
}

kinds! {
    Create Mkdir Symlink Link Unlink Rmdir Rename Setattr Resize Setxattr Removexattr
    Lookup Getattr Readdir Readlink Open Close Read Write Getxattr Sync
}

impl Kind {
    pub(crate) const fn is_of_names(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Mkdir
                | Self::Symlink
                | Self::Link
                | Self::Unlink
                | Self::Rmdir
                | Self::Rename
                | Self::Lookup
                | Self::Readdir
                | Self::Setattr
        )
    }

    pub(crate) const fn is_of_bytes(self) -> bool {
        matches!(self, Self::Open | Self::Close | Self::Read | Self::Write | Self::Resize)
    }
}

/// A name, by number.
pub(crate) type NameNo = usize;

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];

/// The bytes of a name.
pub(crate) fn name_bytes(number: NameNo) -> &'static [u8] {
    NAMES[number % NAMES.len()]
}

/// A name, by number.
pub(crate) fn name_of(number: NameNo) -> Name<'static> {
    name(number)
}

fn name(number: NameNo) -> Name<'static> {
    #[expect(clippy::expect_used, reason = "the table has names only")]
    Name::new(name_bytes(number)).expect("one character is a name")
}

/// Several pieces of a file at equal distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stride {
    pub(crate) file_offset: u64,
    pub(crate) piece_bytes: u32,
    pub(crate) step_bytes: u64,
    pub(crate) count: u64,
    /// The last comes first.
    pub(crate) backwards: bool,
}

impl Stride {
    /// Derived from numbers drawn already, without drawing another.
    pub(crate) fn of(file_offset: u64, all_bytes: u64) -> Self {
        let count = 2 + all_bytes % 4;
        let piece_bytes = narrow_u32(narrow((all_bytes / count).max(1)));
        let gap_bytes = [0, 1, 700, 5000][narrow(file_offset / 3 % 4)];
        let (step_bytes, backwards) =
            (u64::from(piece_bytes) + gap_bytes, all_bytes.is_multiple_of(3));
        Self { file_offset, piece_bytes, step_bytes, count, backwards }
    }

    pub(crate) fn pieces(&self) -> Pieces {
        let piece = |index| Piece {
            file_offset: self.file_offset + index * self.step_bytes,
            piece_bytes: self.piece_bytes,
        };
        let mut pieces: Vec<Piece> = (0..self.count).map(piece).collect();
        if self.backwards {
            pieces.reverse();
        }
        #[expect(clippy::expect_used, reason = "a few small pieces")]
        Pieces::new(pieces).expect("few and small")
    }
}

/// The arguments of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallSpec {
    Create {
        parent: InodeNo,
        name: NameNo,
        mode: u32,
        exclusive: bool,
        open: Option<OpenFor>,
    },
    Mkdir {
        parent: InodeNo,
        name: NameNo,
        mode: u32,
    },
    Symlink {
        parent: InodeNo,
        name: NameNo,
    },
    Link {
        inode: InodeNo,
        parent: InodeNo,
        name: NameNo,
    },
    Unlink {
        parent: InodeNo,
        name: NameNo,
    },
    Rmdir {
        parent: InodeNo,
        name: NameNo,
    },
    Rename {
        from: (InodeNo, NameNo),
        to: (InodeNo, NameNo),
        no_replace: bool,
    },
    Setattr {
        inode: InodeNo,
        mode: u32,
    },
    /// Clears the set-id bits, for a write that must clear them.
    ClearBits {
        inode: InodeNo,
    },
    Resize {
        inode: InodeNo,
        size_bytes: u64,
        open_for_write: bool,
    },
    Setxattr {
        inode: InodeNo,
        name: NameNo,
    },
    Removexattr {
        inode: InodeNo,
        name: NameNo,
    },
    Lookup {
        parent: InodeNo,
        name: NameNo,
    },
    Getattr {
        inode: InodeNo,
    },
    Readdir {
        inode: InodeNo,
        cookie: u64,
    },
    Readlink {
        inode: InodeNo,
    },
    Open {
        inode: InodeNo,
        open_for: OpenFor,
        /// The answer has the file's size.
        sizes: bool,
    },
    Close {
        handle: HandleId,
    },
    Read {
        inode: InodeNo,
        file_offset: u64,
        read_bytes: u32,
    },
    Write {
        inode: InodeNo,
        file_offset: u64,
        append: bool,
        write_bytes: u64,
        value: u8,
        sync: bool,
        clears: ClearPrivileges,
    },
    ReadList {
        inode: InodeNo,
        stride: Stride,
    },
    WriteList {
        inode: InodeNo,
        stride: Stride,
        value: u8,
        sync: bool,
        clears: ClearPrivileges,
    },
    Allocate {
        inode: InodeNo,
        file_offset: u64,
        range_bytes: u64,
        allocation: Allocation,
        keep_size: bool,
        clears: ClearPrivileges,
    },
    Seek {
        inode: InodeNo,
        file_offset: u64,
        hole: bool,
    },
    Sync {
        inode: InodeNo,
        contents: bool,
    },
    Getxattr {
        inode: InodeNo,
        name: NameNo,
    },
    Listxattr {
        inode: InodeNo,
    },
}

/// The value of an extended attribute, or the target of a link, that a call sets.
pub(crate) fn text_of(tag: Tag) -> [u8; 4] {
    tag.to_le_bytes().map(|byte| b'0' + byte % 64)
}

/// The name of an extended attribute.
pub(crate) fn xattr_name(number: NameNo) -> &'static [u8] {
    if number.is_multiple_of(2) { b"user.x" } else { b"user.y" }
}

impl CallSpec {
    /// The file whose contents it is about.
    pub(crate) const fn contents(&self) -> Option<InodeNo> {
        if let Self::Read { inode, .. }
        | Self::ReadList { inode, .. }
        | Self::Write { inode, .. }
        | Self::WriteList { inode, .. }
        | Self::Resize { inode, .. }
        | Self::Allocate { inode, .. }
        | Self::Seek { inode, .. }
        | Self::Sync { inode, contents: true } = self
        {
            return Some(*inode);
        }
        None
    }

    /// Passes the call to `to`.
    pub(crate) fn with(&self, tag: Tag, bulk: Option<Bulk>, to: impl FnOnce(CallId, Call<'_>)) {
        let groups = tag.to_le_bytes();
        let text = text_of(tag);
        let caller = Caller { uid: 0, gid: 0, groups: Groups::Known(&groups) };
        let pieces = self.pieces();
        let call = self
            .of_names(caller, &text)
            .or_else(|| self.of_lists(&pieces, bulk))
            .unwrap_or_else(|| self.of_inodes(caller, &text, bulk));
        to(CallId(u64::from(tag)), call);
    }

    /// The ranges of a list call; none for all other calls.
    pub(crate) fn pieces(&self) -> Pieces {
        match self {
            Self::ReadList { stride, .. } | Self::WriteList { stride, .. } => stride.pieces(),
            _ => Pieces::NONE,
        }
    }

    fn of_lists<'a>(&self, pieces: &'a Pieces, bulk: Option<Bulk>) -> Option<Call<'a>> {
        match *self {
            Self::ReadList { inode, .. } => {
                Some(Call::ReadList(ReadList { inode, pieces, accesses: true }))
            }
            Self::WriteList { inode, sync, clears, .. } => {
                Some(Call::WriteList(WriteList { inode, pieces, bulk, sync, clears }))
            }
            _ => None,
        }
    }

    fn of_names<'a>(&self, caller: Caller<'a>, text: &'a [u8]) -> Option<Call<'a>> {
        let call = match *self {
            Self::Create { parent, name: number, mode, exclusive, open } => {
                let (name, umask) = (name(number), 0);
                Call::Create(Create { caller, parent, name, mode, umask, exclusive, open })
            }
            Self::Mkdir { parent, name: number, mode } => {
                let (name, umask) = (name(number), 0);
                Call::Mkdir(wire::Mkdir { caller, parent, name, mode, umask })
            }
            Self::Symlink { parent, name: number } => {
                let target = Bytes(text);
                Call::Symlink(wire::Symlink { caller, parent, name: name(number), target })
            }
            Self::Link { inode, parent, name: number } => {
                Call::Link(wire::Link { caller, inode, parent, name: name(number) })
            }
            Self::Unlink { parent, name: number } => {
                Call::Unlink(wire::Unlink { caller, parent, name: name(number), behind: None })
            }
            Self::Rmdir { parent, name: number } => {
                Call::Rmdir(wire::Rmdir { caller, parent, name: name(number) })
            }
            Self::Rename { from, to, no_replace } => Call::Rename(wire::Rename {
                caller,
                parent: from.0,
                name: name(from.1),
                new_parent: to.0,
                new_name: name(to.1),
                how: if no_replace { RenameHow::NoReplace } else { RenameHow::Replace },
            }),
            Self::Lookup { parent, name: number } => {
                Call::Lookup(wire::Lookup { caller, parent, name: name(number) })
            }
            Self::Setattr { .. }
            | Self::ClearBits { .. }
            | Self::Resize { .. }
            | Self::Setxattr { .. }
            | Self::Removexattr { .. }
            | Self::Getattr { .. }
            | Self::Readdir { .. }
            | Self::Readlink { .. }
            | Self::Open { .. }
            | Self::Close { .. }
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::ReadList { .. }
            | Self::WriteList { .. }
            | Self::Allocate { .. }
            | Self::Seek { .. }
            | Self::Getxattr { .. }
            | Self::Sync { .. }
            | Self::Listxattr { .. } => return None,
        };
        Some(call)
    }

    fn of_inodes<'a>(&self, caller: Caller<'a>, text: &'a [u8], bulk: Option<Bulk>) -> Call<'a> {
        match *self {
            Self::Setattr { inode, mode } => {
                Call::Setattr(setattr(caller, inode, Some(mode), ClearPrivileges::Nothing))
            }
            Self::ClearBits { inode } => {
                Call::Setattr(setattr(caller, inode, None, ClearPrivileges::All))
            }
            Self::Resize { inode, size_bytes, open_for_write } => {
                Call::Resize(Resize { caller, inode, size_bytes, open_for_write })
            }
            Self::Setxattr { inode, name } => {
                let (name, value) = (Bytes(xattr_name(name)), Bytes(text));
                Call::Setxattr(wire::Setxattr { caller, inode, name, value, flags: 0 })
            }
            Self::Removexattr { inode, name } => {
                let name = Bytes(xattr_name(name));
                Call::Removexattr(wire::Removexattr { caller, inode, name })
            }
            Self::Readdir { inode, cookie } => Call::Readdir(wire::Readdir {
                caller,
                inode,
                cookie,
                listing_bytes_max: 512,
                attrs: false,
                handle: None,
            }),
            Self::Readlink { inode } => Call::Readlink(wire::Readlink { inode }),
            Self::Open { inode, open_for, sizes } => {
                Call::Open(Open { caller, inode, open_for, sizes })
            }
            Self::Close { handle } => Call::Close(handle),
            Self::Read { inode, file_offset, read_bytes } => {
                Call::ReadPages(wire::Read { inode, file_offset, read_bytes, accesses: true })
            }
            Self::Write { inode, file_offset, append, sync, clears, .. } => {
                Call::Write(Write { inode, file_offset, append, bulk, sync, clears, behind: false })
            }
            Self::Getxattr { inode, name } => {
                let name = Bytes(xattr_name(name));
                Call::Getxattr(wire::Getxattr { caller, inode, name })
            }
            Self::Listxattr { inode } => Call::Listxattr(wire::Listxattr { caller, inode }),
            Self::Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears } => {
                let allocate = wire::Allocate {
                    inode,
                    file_offset,
                    range_bytes,
                    allocation,
                    keep_size,
                    clears,
                };
                Call::Allocate(allocate)
            }
            Self::Seek { inode, file_offset, hole } => {
                Call::Seek(wire::Seek { inode, file_offset, hole })
            }
            Self::Sync { inode, contents } => Call::Sync(Sync { inode, contents, handle: None }),
            Self::Getattr { inode }
            | Self::ReadList { inode, .. }
            | Self::WriteList { inode, .. }
            | Self::Create { parent: inode, .. }
            | Self::Mkdir { parent: inode, .. }
            | Self::Symlink { parent: inode, .. }
            | Self::Link { inode, .. }
            | Self::Unlink { parent: inode, .. }
            | Self::Rmdir { parent: inode, .. }
            | Self::Rename { from: (inode, _), .. }
            | Self::Lookup { parent: inode, .. } => Call::Getattr(wire::Getattr { inode }),
        }
    }

    /// Whether it changes names, attributes or links when it succeeds.
    pub(crate) const fn changes_tree(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Mkdir { .. }
                | Self::Symlink { .. }
                | Self::Link { .. }
                | Self::Unlink { .. }
                | Self::Rmdir { .. }
                | Self::Rename { .. }
                | Self::Setattr { .. }
                | Self::ClearBits { .. }
                | Self::Setxattr { .. }
                | Self::Removexattr { .. }
        )
    }
}

fn setattr(
    caller: Caller<'_>,
    inode: InodeNo,
    mode: Option<u32>,
    clears: ClearPrivileges,
) -> wire::Setattr<'_> {
    let (atime, mtime) = (SetTime::Keep, SetTime::Keep);
    wire::Setattr { caller, inode, mode, uid: None, gid: None, atime, mtime, clears }
}

/// The state of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "most calls of a run have succeeded")]
pub(crate) enum CallState {
    /// Not answered.
    Open,
    Failed(Status),
    /// Succeeded.
    Done(CallResult),
}

/// The result of a call that succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct CallResult {
    pub(crate) inode: Option<InodeNo>,
    pub(crate) kind: Option<FileKind>,
    pub(crate) made: bool,
    pub(crate) handle: Option<HandleId>,
    pub(crate) attr: Option<wire::Attr>,
    /// Where appended bytes were written.
    pub(crate) file_offset: Option<u64>,
    /// What a seek has found.
    pub(crate) sought: Option<u64>,
    /// How many bytes were written: less than asked, if one of several data shards failed.
    pub(crate) written_bytes: Option<u32>,
}

/// The history of a call.
#[derive(Clone, Debug)]
pub(crate) struct CallRecord {
    pub(crate) client: usize,
    pub(crate) spec: CallSpec,
    pub(crate) began_ns: u64,
    /// The server processes at the beginning.
    pub(crate) began_lives: Lives,
    pub(crate) ended_ns: Option<u64>,
    /// The server processes that replied, or ones before them.
    pub(crate) ended_lives: Lives,
    pub(crate) ended: CallState,
    pub(crate) interrupted: bool,
}

impl CallRecord {
    /// The result, if the call succeeded.
    pub(crate) fn result(&self) -> Option<&CallResult> {
        match &self.ended {
            CallState::Done(result) => Some(result),
            CallState::Open | CallState::Failed(_) => None,
        }
    }

    /// Whether it may have taken effect, although its caller got no success.
    pub(crate) fn may_have_happened(&self) -> bool {
        match &self.ended {
            CallState::Open | CallState::Done(_) => true,
            CallState::Failed(status) => matches!(
                status,
                Status::Interrupted
                    | Status::Io
                    | Status::NoSpace
                    | Status::Stale
                    | Status::NotFound
            ),
        }
    }
}
