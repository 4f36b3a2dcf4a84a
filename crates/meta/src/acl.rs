//! Access control lists as on Linux (POSIX 1003.1e, draft 17), in the encoding of the extended
//! attribute that holds them.
//!
//! ```text
//! u32 version (2), then for each entry, little-endian:
//! u16 tag   1 owner  2 user  4 group of the file  8 group  16 mask  32 others
//! u16 permissions 0 ..= 7      u32 id of the user or group, u32::MAX for the other tags
//! ```
//! Entries are ordered by tag. A list with named users or groups has a mask, which limits all but
//! the owner and the others; the mode shows it as the group's bits.

use crate::credentials::{Credentials, Permissions};
use crate::inode::Inode;
use alloc::vec::Vec;
use disk::InodeRow;
use wire::{FileKind, Status};

/// The attribute of the access list.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory's default list, which new entries inherit.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: [u8; 4] = 2_u32.to_le_bytes();
const ENTRY_BYTES: usize = 8;
/// The longest value: Linux reads at most a page from a file system.
pub const BYTES_MAX: usize = 4096;
/// Most entries of a list of that length.
pub const ENTRY_COUNT_MAX: usize = (BYTES_MAX - VERSION.len()) / ENTRY_BYTES;
const PERMISSIONS: u32 = 0o777;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tag {
    Owner = 1,
    User = 2,
    FileGroup = 4,
    Group = 8,
    Mask = 16,
    Others = 32,
}

impl Tag {
    const ALL: [Self; 6] =
        [Self::Owner, Self::User, Self::FileGroup, Self::Group, Self::Mask, Self::Others];

    const fn is_named(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: Tag,
    bits: u32,
    id: u32,
}

impl Entry {
    fn decode(bytes: [u8; ENTRY_BYTES]) -> Option<Self> {
        let [tag, tag_high, bits, bits_high, id @ ..] = bytes;
        let tag = Tag::ALL.into_iter().find(|known| *known as u8 == tag && tag_high == 0)?;
        let fits = bits <= 7 && bits_high == 0;
        fits.then_some(Self { tag, bits: bits.into(), id: u32::from_le_bytes(id) })
    }

    fn encode(self, out: &mut Vec<u8>) {
        let bits = self.bits.to_le_bytes();
        out.extend_from_slice(&[self.tag as u8, 0, bits[0], bits[1]]);
        out.extend_from_slice(&self.id.to_le_bytes());
    }
}

/// A verified list: complete and in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Acl<'a>(&'a [u8]);

impl<'a> Acl<'a> {
    /// Verifies a value; `None` for a list without entries, which means no list.
    ///
    /// # Errors
    /// As on Linux: `NotSupported` for another version, `Invalid` for an invalid list, `NoSpace`
    /// for one that is too long.
    pub(crate) fn verify(value: &'a [u8]) -> Result<Option<Self>, Status> {
        if value.is_empty() {
            return Ok(None);
        }
        let (version, entries) = value.split_first_chunk().ok_or(Status::Invalid)?;
        if *version != VERSION {
            return Err(Status::NotSupported);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        if entries.len() % ENTRY_BYTES != 0 {
            return Err(Status::Invalid);
        }
        let acl = Self(value);
        if acl.entries().count() != entries.len() / ENTRY_BYTES || !acl.is_complete() {
            return Err(Status::Invalid);
        }
        if value.len() > BYTES_MAX { Err(Status::NoSpace) } else { Ok(Some(acl)) }
    }

    /// The access list of an inode, if it has more than its mode.
    pub(crate) fn access(inode: &'a Inode) -> Option<Self> {
        inode.xattrs.get(ACCESS).map(|value| Self(value))
    }

    /// The default list of a directory.
    pub(crate) fn default(inode: &'a Inode) -> Option<Self> {
        inode.xattrs.get(DEFAULT).map(|value| Self(value))
    }

    /// From the bytes of [`Self::bytes`]; `None` for no bytes.
    pub(crate) const fn from_checked(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() { None } else { Some(Self(bytes)) }
    }

    /// The attribute's value.
    pub(crate) const fn bytes(self) -> &'a [u8] {
        self.0
    }

    fn entries(self) -> impl Iterator<Item = Entry> + Clone {
        let entries = self.0.get(VERSION.len()..).unwrap_or_default();
        let (chunks, _) = entries.as_chunks();
        chunks.iter().map_while(|bytes| Entry::decode(*bytes))
    }

    /// The list has owner, users, the file's group, groups, mask and others; the mask may be
    /// missing if there are no named entries.
    fn is_complete(self) -> bool {
        let count = |tag| self.entries().filter(|entry| entry.tag == tag).count();
        let named = self.entries().any(|entry| entry.tag.is_named());
        let known = self.entries().all(|entry| !entry.tag.is_named() || entry.id != u32::MAX);
        let one_each = [Tag::Owner, Tag::FileGroup, Tag::Others].into_iter().all(|t| count(t) == 1);
        let mask_count = count(Tag::Mask);
        let ordered = self.entries().map(|entry| entry.tag).is_sorted();
        known && one_each && ordered && mask_count <= 1 && (mask_count == 1 || !named)
    }

    fn bits(self, tag: Tag) -> Option<u32> {
        self.entries().find(|entry| entry.tag == tag).map(|entry| entry.bits)
    }

    /// The mode's permission bits for this list.
    pub(crate) fn permissions(self) -> u32 {
        let bits = |tag| self.bits(tag).unwrap_or(0);
        let group = self.bits(Tag::Mask).unwrap_or_else(|| bits(Tag::FileGroup));
        bits(Tag::Owner) << 6 | group << 3 | bits(Tag::Others)
    }

    /// Whether the list is equivalent to a mode.
    pub(crate) fn is_mode(self) -> bool {
        self.entries().all(|entry| entry.tag != Tag::Mask && !entry.tag.is_named())
    }

    /// Whether the list grants all of these permissions to a caller that is not the owner.
    ///
    /// # Errors
    /// `NeedGroups` when the caller's groups are not known and may decide.
    pub(crate) fn grants(
        self,
        row: &InodeRow,
        credentials: &Credentials<'_>,
        permissions: Permissions,
    ) -> Result<bool, Status> {
        let masked = |bits: u32| permissions.within(bits & self.bits(Tag::Mask).unwrap_or(7));
        let user = |entry: &Entry| entry.tag == Tag::User && entry.id == credentials.uid;
        if let Some(entry) = self.entries().find(user) {
            return Ok(masked(entry.bits));
        }
        let mut member = false;
        for entry in self.entries() {
            let gid = match entry.tag {
                Tag::FileGroup => row.gid,
                Tag::Group => entry.id,
                Tag::Owner | Tag::User | Tag::Mask | Tag::Others => continue,
            };
            if credentials.in_group(gid)? {
                member = true;
                if permissions.within(entry.bits) {
                    return Ok(masked(entry.bits));
                }
            }
        }
        // A member of a named group is not one of the others.
        Ok(!member && permissions.within(self.bits(Tag::Others).unwrap_or(0)))
    }

    /// The union of the permissions that the list grants to anyone but the owner, over the users
    /// and groups that a caller can claim.
    pub(crate) fn bits_of_anybody(
        self,
        file_gid: u32,
        is_user: impl Fn(u32) -> bool,
        is_group: impl Fn(u32) -> bool,
    ) -> u32 {
        let mask = self.bits(Tag::Mask).unwrap_or(7);
        let granted = self.entries().map(|entry| match entry.tag {
            Tag::User if is_user(entry.id) => entry.bits & mask,
            Tag::FileGroup if is_group(file_gid) => entry.bits & mask,
            Tag::Group if is_group(entry.id) => entry.bits & mask,
            Tag::Others => entry.bits,
            Tag::Owner | Tag::User | Tag::FileGroup | Tag::Group | Tag::Mask => 0,
        });
        granted.fold(0, |all, bits| all | bits)
    }

    /// The list after a chmod.
    pub(crate) fn with_mode(self, mode: u32) -> Vec<u8> {
        let has_mask = self.bits(Tag::Mask).is_some();
        self.rewritten(|entry| match entry.tag {
            Tag::Owner => mode >> 6 & 7,
            Tag::FileGroup if has_mask => entry.bits,
            Tag::FileGroup | Tag::Mask => mode >> 3 & 7,
            Tag::Others => mode & 7,
            Tag::User | Tag::Group => entry.bits,
        })
    }

    /// The access list and mode of an inode created in a directory with this default list. Applying
    /// that mode again gives the same.
    pub(crate) fn inherited(self, mode: u32) -> (Vec<u8>, u32) {
        let mode = mode & !PERMISSIONS | mode & self.permissions();
        (self.with_mode(mode), mode)
    }

    /// The list with ids in named entries only.
    pub(crate) fn normal(self) -> Vec<u8> {
        self.rewritten(|entry| entry.bits)
    }

    fn rewritten(self, bits_of: impl Fn(&Entry) -> u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len());
        out.extend_from_slice(&VERSION);
        for entry in self.entries() {
            let id = if entry.tag.is_named() { entry.id } else { u32::MAX };
            Entry { bits: bits_of(&entry), id, ..entry }.encode(&mut out);
        }
        out
    }
}

impl Credentials<'_> {
    /// Checks the permission bits, and the access control list if there is one.
    ///
    /// # Errors
    /// `Access` when not granted; `NeedGroups` when the result differs between the group's bits and
    /// the others' and the caller's class is unknown. (The group may have less.)
    pub(crate) fn permit(
        &self,
        row: &InodeRow,
        acl: Option<Acl<'_>>,
        permissions: Permissions,
    ) -> Result<(), Status> {
        let granted = |shift: u32| permissions.within(row.mode >> shift);
        // Linux, unlike POSIX 1003.1e, ignores a list whose mask grants nothing.
        let acl = acl.filter(|_| row.mode & 0o070 != 0);
        let permitted = if self.is_root() {
            let executes = permissions.execute();
            !executes || row.kind == FileKind::Directory || row.mode & 0o111 != 0
        } else if self.uid == row.uid {
            granted(6)
        } else if let Some(acl) = acl {
            acl.grants(row, self, permissions)?
        } else if granted(3) == granted(0) {
            granted(0)
        } else if self.in_group(row.gid)? {
            granted(3)
        } else {
            granted(0)
        };
        if permitted { Ok(()) } else { Err(Status::Access) }
    }
}
