//! Names and attributes: operations that create, move, remove and change inodes.

use super::walk::checked;
use super::{Session, broken};
use crate::{Error, SetAttr, Special};
use client::Call;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use wire::{Attr, Bytes, InodeNo};

impl Session {
    /// Makes a directory with `mode` less the identity's umask.
    pub(crate) async fn mkdir(&self, path: &Path, mode: u32) -> Result<Attr, Error> {
        let target = self.target("mkdir", path).await?;
        let name = checked("mkdir", path, &target.name)?;
        let caller = self.options.identity.caller();
        let (parent, umask) = (target.parent, self.options.identity.umask);
        let call = Call::Mkdir(wire::Mkdir { caller, parent, name, mode, umask });
        self.call("mkdir", path, &call).await?.entry().ok_or_else(|| broken("mkdir", path))
    }

    /// Removes a name of a non-directory.
    pub(crate) async fn unlink(&self, path: &Path) -> Result<(), Error> {
        let target = self.target("unlink", path).await?;
        let name = checked("unlink", path, &target.name)?;
        let caller = self.options.identity.caller();
        let call = Call::Unlink(wire::Unlink { caller, parent: target.parent, name, behind: None });
        self.call("unlink", path, &call).await.map(drop)
    }

    /// Removes an empty directory.
    pub(crate) async fn rmdir(&self, path: &Path) -> Result<(), Error> {
        let target = self.target("rmdir", path).await?;
        let name = checked("rmdir", path, &target.name)?;
        let caller = self.options.identity.caller();
        let call = Call::Rmdir(wire::Rmdir { caller, parent: target.parent, name });
        self.call("rmdir", path, &call).await.map(drop)
    }

    /// Renames a file or directory, replacing an existing one.
    pub(crate) async fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let old = self.target("rename", from).await?;
        let new = self.target("rename", to).await?;
        let call = Call::Rename(wire::Rename {
            caller: self.options.identity.caller(),
            parent: old.parent,
            name: checked("rename", from, &old.name)?,
            new_parent: new.parent,
            new_name: checked("rename", to, &new.name)?,
            how: wire::RenameHow::Replace,
        });
        self.call("rename", from, &call).await.map(drop)
    }

    /// Makes a symbolic link at `path` that points to `to`.
    pub(crate) async fn symlink(&self, to: &OsStr, path: &Path) -> Result<Attr, Error> {
        let target = self.target("symlink", path).await?;
        let call = Call::Symlink(wire::Symlink {
            caller: self.options.identity.caller(),
            parent: target.parent,
            name: checked("symlink", path, &target.name)?,
            target: Bytes(to.as_bytes()),
        });
        self.call("symlink", path, &call).await?.entry().ok_or_else(|| broken("symlink", path))
    }

    /// Makes a fifo, socket or device. Only root may make devices.
    pub(crate) async fn mknod(&self, path: &Path, special: &Special) -> Result<Attr, Error> {
        let target = self.target("mknod", path).await?;
        let Special { kind, mode, rdev } = *special;
        let call = Call::Mknod(wire::Mknod {
            caller: self.options.identity.caller(),
            parent: target.parent,
            name: checked("mknod", path, &target.name)?,
            kind,
            mode,
            umask: self.options.identity.umask,
            rdev,
        });
        self.call("mknod", path, &call).await?.entry().ok_or_else(|| broken("mknod", path))
    }

    /// Changes mode, owner, group or times of an inode; `path` is for messages.
    pub(crate) async fn set_attr(
        &self,
        inode: InodeNo,
        path: &Path,
        set: &SetAttr,
    ) -> Result<Attr, Error> {
        let call = Call::Setattr(wire::Setattr {
            caller: self.options.identity.caller(),
            inode,
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            atime: set.atime,
            mtime: set.mtime,
            clears: wire::ClearPrivileges::Nothing,
        });
        self.call("setattr", path, &call).await?.entry().ok_or_else(|| broken("setattr", path))
    }

    /// The value of an extended attribute.
    pub(crate) async fn xattr(&self, path: &Path, name: &str) -> Result<Vec<u8>, Error> {
        let (inode, caller) = (self.find(path).await?.inode, self.options.identity.caller());
        let name = Bytes(name.as_bytes());
        let call = Call::Getxattr(wire::Getxattr { caller, inode, name });
        Ok(self.call("getxattr", path, &call).await?.small)
    }

    /// Sets an extended attribute.
    pub(crate) async fn set_xattr(
        &self,
        path: &Path,
        name: &str,
        value: &[u8],
    ) -> Result<(), Error> {
        let (inode, caller) = (self.find(path).await?.inode, self.options.identity.caller());
        let (name, value) = (Bytes(name.as_bytes()), Bytes(value));
        let call = Call::Setxattr(wire::Setxattr { caller, inode, name, value, flags: 0 });
        self.call("setxattr", path, &call).await.map(drop)
    }

    /// Makes a further name for a non-directory.
    pub(crate) async fn link(&self, inode: InodeNo, path: &Path) -> Result<Attr, Error> {
        let target = self.target("link", path).await?;
        let call = Call::Link(wire::Link {
            caller: self.options.identity.caller(),
            inode,
            parent: target.parent,
            name: checked("link", path, &target.name)?,
        });
        self.call("link", path, &call).await?.entry().ok_or_else(|| broken("link", path))
    }
}
