//! The caller's credentials and permission checks: the classes of POSIX, with groups that may be
//! unknown yet.

use disk::InodeRow;
use wire::{Caller, Groups, OpenFor, Squash, SquashedIds, Status};

/// Set user id on execution.
pub(crate) const SET_UID: u32 = 0o4000;
/// Set group id on execution; on a directory: entries inherit its group.
pub(crate) const SET_GID: u32 = 0o2000;
/// On a directory: only owners remove entries.
pub(crate) const STICKY: u32 = 0o1000;

/// Requested permissions, as the bits of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permissions(u32);

impl Permissions {
    pub(crate) const NOTHING: Self = Self(0);
    pub(crate) const READ: Self = Self(4);
    pub(crate) const WRITE: Self = Self(2);
    pub(crate) const EXECUTE: Self = Self(1);
    /// To change a directory's entries.
    pub(crate) const CHANGE_ENTRIES: Self = Self(3);

    /// From an `access` mask.
    pub(crate) const fn from_mask(mask: u32) -> Option<Self> {
        if mask & !7 == 0 { Some(Self(mask)) } else { None }
    }

    /// Whether execution is among them.
    pub(crate) const fn execute(self) -> bool {
        self.0 & Self::EXECUTE.0 != 0
    }

    /// Whether these bits include all of them.
    pub(crate) const fn within(self, bits: u32) -> bool {
        bits & self.0 == self.0
    }

    /// The permissions for an open.
    pub(crate) const fn to_open(open_for: OpenFor) -> Self {
        match open_for {
            OpenFor::Read => Self::READ,
            OpenFor::Write => Self::WRITE,
            OpenFor::ReadWrite => Self(Self::READ.0 | Self::WRITE.0),
            OpenFor::Execute => Self::EXECUTE,
        }
    }
}

/// A caller after squashing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credentials<'a> {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    groups: Groups<'a>,
    squash: Squash,
}

impl<'a> Credentials<'a> {
    pub(crate) const fn new(caller: Caller<'a>, squash: Squash) -> Self {
        let Caller { uid, gid, groups } = caller;
        match squash.ids {
            SquashedIds::None => Self { uid, gid, groups, squash },
            SquashedIds::Root if uid != 0 => {
                let gid = if gid == 0 { squash.anon_gid } else { gid };
                Self { uid, gid, groups, squash }
            }
            SquashedIds::Root | SquashedIds::All => {
                let Squash { anon_uid, anon_gid, .. } = squash;
                Self { uid: anon_uid, gid: anon_gid, groups: Groups::Known(&[]), squash }
            }
        }
    }

    pub(crate) const fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub(crate) const fn owns(&self, row: &InodeRow) -> bool {
        self.is_root() || self.uid == row.uid
    }

    /// Whether the caller is in a group.
    ///
    /// # Errors
    /// `NeedGroups` when that depends on unknown supplementary groups.
    pub(crate) fn in_group(&self, gid: u32) -> Result<bool, Status> {
        if self.gid == gid {
            return Ok(true);
        }
        if gid == 0 && !self.squash.trusts_root() {
            return Ok(false);
        }
        self.groups.contains(gid).ok_or(Status::NeedGroups)
    }
}
