//! What makes, moves and takes away names, but for [`super::Create`] and [`super::Mkdir`].

use crate::codec::{Bytes, Flaw, Reader, Wire, Writer};
use crate::{Caller, FileKind, Handle, InodeNo, Name, Status};

message! {
    /// [`crate::Op::Symlink`]. Reply: [`crate::Entry`].
    Symlink<'a> {
        /// Who asks.
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
        /// Who asks.
        caller: Caller<'a>,
        /// A directory that it could have a name in: its shard and what it passes on.
        parent: InodeNo,
        /// Permission bits.
        mode: u32,
        /// Of these, the ones the caller's process leaves out.
        umask: u32,
        /// It may get a name later.
        linkable: bool,
        /// The handle to open on it; when the last is closed, it goes.
        handle: Handle,
    }
}
message! {
    /// [`crate::Op::Mknod`]. Reply: [`crate::Entry`].
    Mknod<'a> {
        /// Who asks.
        caller: Caller<'a>,
        /// The directory.
        parent: InodeNo,
        /// The new name.
        name: Name<'a>,
        /// What it is to be: fifo, socket or device.
        kind: FileKind,
        /// Permission bits.
        mode: u32,
        /// Of these, the ones the caller's process leaves out.
        umask: u32,
        /// A device's number, as in [`crate::Attr::rdev`]; not looked at otherwise.
        rdev: u32,
    }
}
message! {
    /// [`crate::Op::Link`]. Reply: [`crate::Entry`]. Routed by `parent`.
    Link<'a> {
        /// Who asks.
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
        /// Who asks.
        caller: Caller<'a>,
        /// The directory.
        parent: InodeNo,
        /// The name.
        name: Name<'a>,
    }
}
message! {
    /// [`crate::Op::Rmdir`]. No reply body.
    Rmdir<'a> {
        /// Who asks.
        caller: Caller<'a>,
        /// The directory that holds it.
        parent: InodeNo,
        /// Its name.
        name: Name<'a>,
    }
}
/// What a rename does with the old name and with what stands under the new one. The number that
/// travels is Linux's flags of `renameat2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RenameHow {
    /// The old name goes; what stood under the new one is replaced.
    Replace = 0,
    /// The old name goes; an existing target is an error (RENAME_NOREPLACE).
    NoReplace = 1,
    /// Each name gets what the other had (RENAME_EXCHANGE).
    Exchange = 2,
    /// As `Replace`, and a whiteout comes under the old name (RENAME_WHITEOUT).
    Whiteout = 4,
    /// As `NoReplace`, and a whiteout comes under the old name.
    WhiteoutNoReplace = 5,
}

impl RenameHow {
    /// From Linux's flags.
    ///
    /// # Errors
    /// [`Status::Invalid`] for flags that do not go together or that there are none of.
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

    /// A whiteout comes under the old name.
    #[must_use]
    pub const fn leaves_whiteout(self) -> bool {
        matches!(self, Self::Whiteout | Self::WhiteoutNoReplace)
    }
}

impl Wire<'_> for RenameHow {
    fn encode(&self, to: &mut Writer<'_>) {
        (*self as u8).encode(to);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Self::from_flags(u8::decode(from)?.into()).map_err(Flaw::Status)
    }
}

message! {
    /// [`crate::Op::Rename`]. Reply: [`Renamed`]. Routed by `parent`.
    Rename<'a> {
        /// Who asks.
        caller: Caller<'a>,
        /// The directory now.
        parent: InodeNo,
        /// The name now.
        name: Name<'a>,
        /// The directory then.
        new_parent: InodeNo,
        /// The name then.
        new_name: Name<'a>,
        /// What becomes of both names.
        how: RenameHow,
    }
}
message! {
    /// Reply of [`Rename`]: which directories it moved. A mount's kernel keeps where directories lie.
    Renamed {
        /// The inode under the new name, if it is a directory.
        moved: Option<InodeNo>,
        /// The inode under the old name after an exchange, if it is a directory.
        exchanged: Option<InodeNo>,
    }
}
