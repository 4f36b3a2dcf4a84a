//! `Setxattr`: sets an extended attribute.

use crate::acl::{self, Acl};
use crate::credentials::{Credentials, SET_GID};
use crate::needs::Needs;
use crate::txn::{Done, Txn};
use crate::xattr;
use disk::InodeRow;
use wire::{Bytes, FileKind, InodeNo, Layout, Setxattr, Status, XATTR_VALUE_BYTES_MAX};

/// It must not exist yet.
const CREATE: u32 = 1;
/// It must exist.
const REPLACE: u32 = 2;

pub(crate) fn needs(args: &Setxattr<'_>, needs: &mut Needs<'_>) {
    needs.inode(args.inode);
}

pub(crate) fn execute(args: &Setxattr<'_>, txn: &mut Txn<'_>) -> Result<Done, Status> {
    let credentials = txn.credentials(args.caller);
    let inode = txn.inode(args.inode)?;
    let name = args.name.0;
    if args.flags & !(CREATE | REPLACE) != 0 {
        return Err(Status::Invalid);
    }
    if args.value.0.len() > XATTR_VALUE_BYTES_MAX {
        return Err(Status::Range);
    }
    if let Some(list) = List::named(name) {
        let value = args.value.0;
        return set_list(args.inode, list, Acl::verify(value)?, &credentials, txn);
    }
    xattr::permit(inode, name, true, &credentials)?;
    let exists = inode.xattrs.contains_key(name);
    if exists && args.flags & CREATE != 0 {
        return Err(Status::Exists);
    }
    if !exists && args.flags & REPLACE != 0 {
        return Err(Status::NoData);
    }
    let text = match name {
        Layout::XATTR => Some(Layout::from_text(args.value.0).ok_or(Status::Invalid)?.text()),
        _ => None,
    };
    let value = text.as_deref().map_or(args.value, |text| Bytes(text.as_bytes()));
    xattr::check_space(inode, name, value.0.len())?;
    let row = inode.row;
    txn.put_xattr(args.inode, args.name, value);
    txn.put(InodeRow { ctime: txn.now, ..row });
    txn.refresh_privileged_bits(args.inode);
    Ok(Done)
}

/// One of the two access control lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum List {
    Access,
    Default,
}

impl List {
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        match name {
            acl::ACCESS => Some(Self::Access),
            acl::DEFAULT => Some(Self::Default),
            _ => None,
        }
    }

    const fn name(self) -> Bytes<'static> {
        match self {
            Self::Access => Bytes(acl::ACCESS),
            Self::Default => Bytes(acl::DEFAULT),
        }
    }
}

/// Sets or removes an access control list. The flags of an attribute do not apply.
pub(super) fn set_list(
    number: InodeNo,
    list: List,
    acl: Option<Acl<'_>>,
    credentials: &Credentials<'_>,
    txn: &mut Txn<'_>,
) -> Result<Done, Status> {
    let inode = txn.inode(number)?;
    let mut row = inode.row;
    let had = inode.xattrs.contains_key(list.name().0);
    if row.kind == FileKind::Symlink {
        return Err(Status::NotSupported);
    }
    if list == List::Default && row.kind != FileKind::Directory {
        return if acl.is_some() { Err(Status::Access) } else { Ok(Done) };
    }
    if !credentials.owns(&row) {
        return Err(Status::NotPermitted);
    }
    let value = acl.map(Acl::normal);
    if let Some(value) = &value {
        xattr::check_space(inode, list.name().0, value.len())?;
    }
    // A list without a mask or named entries is stored as the mode only.
    let mut keeps = acl.is_some();
    if let (List::Access, Some(acl)) = (list, acl) {
        row.mode = row.mode & !0o777 | acl.permissions();
        keeps = !acl.is_mode();
        if row.mode & SET_GID != 0 && !credentials.is_root() && !credentials.in_group(row.gid)? {
            row.mode &= !SET_GID;
        }
    }
    match value.filter(|_| keeps) {
        Some(value) => txn.put_xattr(number, list.name(), Bytes(&value)),
        None if had => txn.drop_xattr(number, list.name()),
        None if acl.is_none() => return Ok(Done),
        None => {}
    }
    txn.put(InodeRow { ctime: txn.now, ..row });
    Ok(Done)
}
