//! Exports: what a client may mount, and with which identity. The definition of an export, and the
//! administrative requests about definitions.

use crate::codec::{Bytes, DecodeError, List, Reader, Wire, Writer};
use crate::message::message;
use crate::{InodeNo, ProtocolError};

/// Longest name of an export.
pub const EXPORT_NAME_BYTES_MAX: usize = 64;
/// Longest path of an export.
pub const EXPORT_PATH_BYTES_MAX: usize = 4095;
/// The export used when none is named.
pub const EXPORT_DEFAULT: &str = "default";

/// Whether this is a valid export name: a-z, A-Z, 0-9, `.`, `_` and `-`, the first of a-z,
/// A-Z or 0-9, so that it fits into an address and a list of options.
#[must_use]
pub fn is_export_name(name: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let begins = name.first().is_some_and(|first| first.is_ascii_alphanumeric());
    begins && name.len() <= EXPORT_NAME_BYTES_MAX && name.iter().all(fits)
}

/// Which users' ids are squashed: replaced by the anonymous ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SquashedIds {
    /// No user's: a client's root acts as root.
    None = 0,
    /// Root's.
    Root = 1,
    /// Every user's.
    All = 2,
}

/// Which users' ids are squashed, and the ids that replace them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Squash {
    /// Which users.
    pub ids: SquashedIds,
    /// The uid of squashed users.
    pub anon_uid: u32,
    /// The gid of squashed users.
    pub anon_gid: u32,
}

impl Squash {
    /// Uid and gid of nobody.
    pub const NOBODY: u32 = 65_534;
    /// Root acts as root.
    pub const NONE: Self = Self { ids: SquashedIds::None, ..Self::ROOT };
    /// Root acts as nobody.
    pub const ROOT: Self =
        Self { ids: SquashedIds::Root, anon_uid: Self::NOBODY, anon_gid: Self::NOBODY };

    /// Whether a client's root acts as root.
    #[must_use]
    pub const fn trusts_root(self) -> bool {
        matches!(self.ids, SquashedIds::None)
    }
}

impl Wire<'_> for Squash {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&(self.ids as u8));
        to.write(&self.anon_uid);
        to.write(&self.anon_gid);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ids = match u8::decode(from)? {
            0 => SquashedIds::None,
            1 => SquashedIds::Root,
            2 => SquashedIds::All,
            _ => return Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        };
        Ok(Self { ids, anon_uid: from.read()?, anon_gid: from.read()? })
    }
}

/// A directory that clients can mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export<'a> {
    /// Random, new with every definition; the export's secret is derived from it.
    pub id: u64,
    /// Its name; [`is_export_name`] holds.
    pub name: Bytes<'a>,
    /// The directory that is its root.
    pub root: InodeNo,
    /// The path of that directory when the export was defined; for display.
    pub path: Bytes<'a>,
    /// Clients cannot change anything through it.
    pub read_only: bool,
    /// The identities of its clients.
    pub squash: Squash,
    /// The export was removed. Stored for the default export only, which exists unless removed.
    pub closed: bool,
}

impl<'a> Wire<'a> for Export<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.id);
        to.write(&self.name);
        to.write(&self.root);
        to.write(&self.path);
        to.write(&self.read_only);
        to.write(&self.squash);
        to.write(&self.closed);
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let export = Self {
            id: from.read()?,
            name: from.read()?,
            root: from.read()?,
            path: from.read()?,
            read_only: from.read()?,
            squash: from.read()?,
            closed: from.read()?,
        };
        let fits = is_export_name(export.name.0)
            && export.path.0.len() <= EXPORT_PATH_BYTES_MAX
            && export.root.count() > 0;
        if fits { Ok(export) } else { Err(DecodeError::ProtocolError(ProtocolError::Malformed)) }
    }
}

message! {
    /// [`crate::Op::SetExport`]: defines or removes an export. The reply is sent when the
    /// definition is durable and every lane has it. No reply body.
    SetExport<'a> {
        /// The definition; with [`Export::closed`] the export is removed.
        export: Export<'a>,
        /// An existing export of that name is replaced and keeps its id.
        replace: bool,
    }
}
/// Longest time for which one [`Freeze`] suspends changes, in milliseconds.
pub const FREEZE_MS_MAX: u32 = 30_000;

message! {
    /// [`crate::Op::Freeze`]: suspends new changes until the lease ends or is renewed. Reads are
    /// answered.
    Freeze {
        /// In milliseconds, at most [`FREEZE_MS_MAX`]; 0 ends the freeze.
        lease_ms: u32,
    }
}
message! {
    /// Reply of [`crate::Op::Freeze`].
    Frozen {
        /// Changes have been suspended without a break since an earlier request.
        held_on: bool,
        /// Changes that began before the freeze and have not ended.
        change_count: u64,
    }
}
message! {
    /// Reply of [`crate::Op::Exports`].
    Exports<'a> {
        /// All exports, ordered by name.
        rows: List<'a, ExportRow<'a>>,
    }
}
message! {
    /// One of [`Exports`].
    ExportRow<'a> {
        /// The export.
        export: Export<'a>,
        /// It is stored. Otherwise the server was started with it, or it is the default that was
        /// never defined.
        stored: bool,
    }
}
