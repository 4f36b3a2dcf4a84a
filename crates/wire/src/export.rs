//! Exports: what a client may mount, and as whom. The definition, and the two requests about
//! definitions, which are for who administers the store.

use crate::codec::{Bytes, Flaw, List, Reader, Wire, Writer};
use crate::message::message;
use crate::{InodeNo, ProtocolError};

/// Longest name of an export.
pub const EXPORT_NAME_BYTES_MAX: usize = 64;
/// Longest path of an export.
pub const EXPORT_PATH_BYTES_MAX: usize = 4095;
/// The export that is meant where none is named.
pub const EXPORT_DEFAULT: &str = "default";

/// Whether an export may be called this: letters, digits, `.`, `_` and `-`, of which the last two do
/// not come first, so that it fits into an address and a list of options.
#[must_use]
pub fn is_export_name(name: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let begins = name.first().is_some_and(|first| first.is_ascii_alphanumeric());
    begins && name.len() <= EXPORT_NAME_BYTES_MAX && name.iter().all(fits)
}

/// Whose ids a server does not take from a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Squashed {
    /// Nobody's: root acts as root.
    Nobody = 0,
    /// Root's.
    Root = 1,
    /// Everybody's.
    All = 2,
}

/// Whose ids a server does not take from a client, and what it takes instead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Squash {
    /// Whose.
    pub who: Squashed,
    /// The owner they act as.
    pub anon_uid: u32,
    /// The group they act as.
    pub anon_gid: u32,
}

impl Squash {
    /// Uid and gid of nobody.
    pub const NOBODY: u32 = 65_534;
    /// Root acts as root.
    pub const NONE: Self = Self { who: Squashed::Nobody, ..Self::ROOT };
    /// Root acts as nobody.
    pub const ROOT: Self =
        Self { who: Squashed::Root, anon_uid: Self::NOBODY, anon_gid: Self::NOBODY };

    /// Whether a client's root acts as root.
    #[must_use]
    pub const fn trusts_root(self) -> bool {
        matches!(self.who, Squashed::Nobody)
    }
}

impl Wire<'_> for Squash {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&(self.who as u8));
        to.write(&self.anon_uid);
        to.write(&self.anon_gid);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        let who = match u8::decode(from)? {
            0 => Squashed::Nobody,
            1 => Squashed::Root,
            2 => Squashed::All,
            _ => return Err(Flaw::ProtocolError(ProtocolError::Malformed)),
        };
        Ok(Self { who, anon_uid: from.read()?, anon_gid: from.read()? })
    }
}

/// What can be mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export<'a> {
    /// Random, new with every definition: the export's secret follows from it.
    pub id: u64,
    /// Its name, as [`is_export_name`] has it.
    pub name: Bytes<'a>,
    /// The directory that is its root.
    pub root: InodeNo,
    /// The path of that when the export was defined; for people.
    pub path: Bytes<'a>,
    /// Nothing is changed through it.
    pub read_only: bool,
    /// As whom its clients act.
    pub squash: Squash,
    /// It was taken away: of the default, which is there unless this says otherwise.
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
    fn decode(from: &mut Reader<'a>) -> Result<Self, Flaw> {
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
        if fits { Ok(export) } else { Err(Flaw::ProtocolError(ProtocolError::Malformed)) }
    }
}

message! {
    /// [`crate::Op::SetExport`]: the export is this from now on, or it is none any more. Answered
    /// when it is durable and every lane was told. No reply body.
    SetExport<'a> {
        /// With [`Export::closed`]: it is to go.
        export: Export<'a>,
        /// One of that name may be there already, and is replaced; its id stays.
        replace: bool,
    }
}
/// Longest time for which one [`Freeze`] lets changes wait, in milliseconds.
pub const FREEZE_MS_MAX: u32 = 30_000;

message! {
    /// [`crate::Op::Freeze`]: changes that come from now on wait for so long, unless it is asked again
    /// before that. Reads are answered.
    Freeze {
        /// In milliseconds, [`FREEZE_MS_MAX`] at most; 0: they wait no longer.
        lease_ms: u32,
    }
}
message! {
    /// Reply of [`crate::Op::Freeze`].
    Frozen {
        /// Changes waited before this was asked already, without a break.
        held_on: bool,
        /// Changes that had begun before and have not ended.
        change_count: u64,
    }
}
message! {
    /// Reply of [`crate::Op::Exports`].
    Exports<'a> {
        /// All that can be mounted, in the order of their names.
        rows: List<'a, ExportRow<'a>>,
    }
}
message! {
    /// One of [`Exports`].
    ExportRow<'a> {
        /// What it is.
        export: Export<'a>,
        /// It stands in the store. Otherwise the server was started with it, or it is the default
        /// that nobody has defined.
        stored: bool,
    }
}
