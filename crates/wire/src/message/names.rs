//! Operations that create, move and remove names, except [`super::Create`] and [`super::Mkdir`].

use crate::codec::{Bytes, DecodeError, Reader, Wire, Writer};
use crate::{Caller, FileKind, Handle, InodeNo, Name, Status, Timestamp};

message! {
    /// [`crate::Op::Symlink`]. Reply: [`crate::Entry`].
    Symlink<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The directory.
        parent: InodeNo,
        /// The new name.
        name: Name<'a>,
        /// What it points to, 1 ..= 4095 bytes.
        target: Bytes<'a>,
    }
}
message! {
    /// [`crate::Op::Tmpfile`]. Reply: [`crate::Created`].
    Tmpfile<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// A directory that determines its shard and what it inherits.
        parent: InodeNo,
        /// Permission bits.
        mode: u32,
        /// The caller's umask.
        umask: u32,
        /// It may be linked later.
        linkable: bool,
        /// The handle to open on it; the file is destroyed with its last handle.
        handle: Handle,
    }
}
message! {
    /// [`crate::Op::Mknod`]. Reply: [`crate::Entry`].
    Mknod<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The directory.
        parent: InodeNo,
        /// The new name.
        name: Name<'a>,
        /// The kind: fifo, socket or device.
        kind: FileKind,
        /// Permission bits.
        mode: u32,
        /// The caller's umask.
        umask: u32,
        /// A device's number, as in [`crate::Attr::rdev`]; ignored for other kinds.
        rdev: u32,
    }
}
message! {
    /// [`crate::Op::Link`]. Reply: [`crate::Entry`]. Routed by `parent`.
    Link<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The file that gets a further name.
        inode: InodeNo,
        /// The directory of the new name.
        parent: InodeNo,
        /// The new name.
        name: Name<'a>,
    }
}
message! {
    /// [`crate::Op::Unlink`]. No reply body.
    Unlink<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The directory.
        parent: InodeNo,
        /// The name.
        name: Name<'a>,
        /// The time of a removal that its caller has the answer of already (docs/protocol.md 20.7).
        behind: Option<Timestamp>,
    }
}
message! {
    /// [`crate::Op::Rmdir`]. No reply body.
    Rmdir<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The directory that holds it.
        parent: InodeNo,
        /// Its name.
        name: Name<'a>,
    }
}
/// What a rename does to the old name and to an existing target. The encoded number is Linux's
/// flags of `renameat2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RenameHow {
    /// Removes the old name and replaces an existing target.
    Replace = 0,
    /// Removes the old name; an existing target is an error (RENAME_NOREPLACE).
    NoReplace = 1,
    /// Exchanges both names (RENAME_EXCHANGE).
    Exchange = 2,
    /// As `Replace`, and leaves a whiteout under the old name (RENAME_WHITEOUT).
    Whiteout = 4,
    /// As `NoReplace`, and leaves a whiteout under the old name.
    WhiteoutNoReplace = 5,
}

impl RenameHow {
    /// From Linux's flags.
    ///
    /// # Errors
    /// [`Status::Invalid`] for unknown or incompatible flags.
    pub const fn from_flags(flags: u32) -> Result<Self, Status> {
        match flags {
            0 => Ok(Self::Replace),
            1 => Ok(Self::NoReplace),
            2 => Ok(Self::Exchange),
            4 => Ok(Self::Whiteout),
            5 => Ok(Self::WhiteoutNoReplace),
            _ => Err(Status::Invalid),
        }
    }

    /// An existing target is an error.
    #[must_use]
    pub const fn keeps_target(self) -> bool {
        matches!(self, Self::NoReplace | Self::WhiteoutNoReplace)
    }

    /// Leaves a whiteout under the old name.
    #[must_use]
    pub const fn leaves_whiteout(self) -> bool {
        matches!(self, Self::Whiteout | Self::WhiteoutNoReplace)
    }
}

impl Wire<'_> for RenameHow {
    fn encode(&self, to: &mut Writer<'_>) {
        (*self as u8).encode(to);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::from_flags(u8::decode(from)?.into()).map_err(DecodeError::Status)
    }
}

message! {
    /// [`crate::Op::Rename`]. Reply: [`Renamed`]. Routed by `parent`.
    Rename<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The old directory.
        parent: InodeNo,
        /// The old name.
        name: Name<'a>,
        /// The new directory.
        new_parent: InodeNo,
        /// The new name.
        new_name: Name<'a>,
        /// The kind of rename.
        how: RenameHow,
    }
}
message! {
    /// Reply of [`Rename`]: the directories that it moved. A mount's kernel tracks where
    /// directories lie.
    Renamed {
        /// The inode under the new name, if it is a directory.
        moved: Option<InodeNo>,
        /// The inode under the old name after an exchange, if it is a directory.
        exchanged: Option<InodeNo>,
    }
}
