//! A volume: paths to inodes, and one method per operation.
//!
//! The walk is done here, name by name, because the server resolves only single names. It leaves
//! the conversation to [`crate::lane`] and bulk bytes to [`crate::transfer`].

use crate::lane::{ClientLane, Reply};
use crate::path::{Step, split, steps, wants_directory};
use crate::{ConnectOptions, Error};
use client::{Answer, Call};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use wire::{Attr, Bytes, Caller, FileKind, HandleId, InodeNo, Name, SetTime, Status};

/// Symbolic links followed in one walk, as on Linux.
const LINK_COUNT_MAX: u32 = 40;
/// Reply bytes asked for in one Readdir.
const LISTING_BYTES_MAX: u32 = 64 * 1024;

/// A connection to a file system.
pub struct Volume {
    pub(crate) lane: ClientLane,
    pub(crate) options: ConnectOptions,
}

/// An open file.
#[derive(Debug)]
pub struct File {
    /// Where it was found.
    pub path: PathBuf,
    /// Its attributes when it was opened.
    pub attr: Attr,
    pub(crate) handle: HandleId,
}

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenFor {
    /// For reading.
    Read,
    /// For writing.
    Write,
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name.
    pub name: OsString,
    /// The attributes; sizes of files that are being written may be stale.
    pub attr: Attr,
}

/// A directory being listed.
#[derive(Debug)]
pub struct Dir {
    path: PathBuf,
    inode: InodeNo,
    parent: Option<InodeNo>,
    cookie: u64,
    end: bool,
}

/// What [`Volume::mknod`] makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Special {
    /// Fifo, socket or device.
    pub kind: FileKind,
    /// Permission bits, of which the identity's umask is left out.
    pub mode: u32,
    /// A device's number, as in [`Attr::rdev`]; not looked at otherwise.
    pub rdev: u32,
}

/// Attributes to set; `None` and [`SetTime::Keep`] leave what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

impl Default for SetAttr {
    fn default() -> Self {
        Self { mode: None, uid: None, gid: None, atime: SetTime::Keep, mtime: SetTime::Keep }
    }
}

/// The directory and the last name of a path that is to be made or removed.
struct Target {
    parent: InodeNo,
    name: Vec<u8>,
}

/// Whether a walk follows a symbolic link in last place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastLink {
    Follow,
    Keep,
}

impl Volume {
    /// Connects, proves the secret both ways and waits for the welcome.
    ///
    /// # Errors
    /// [`Error::Unreachable`] after the connect timeout, [`Error::Refused`], [`Error::Impostor`],
    /// [`Error::Ring`] when this machine has no driver for us, or not the one that is wanted.
    pub fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        let lane = ClientLane::connect(options)?;
        Ok(Self { lane, options: options.clone() })
    }

    /// Whether root acts as root through this export; otherwise it is nobody.
    #[must_use]
    pub const fn is_root_trusted(&self) -> bool {
        self.lane.is_root_trusted()
    }

    /// What a path leads to; a symbolic link at its end is followed.
    ///
    /// # Errors
    /// [`Error::Op`] when there is nothing or it may not be looked at.
    pub fn stat(&mut self, path: &Path) -> Result<Attr, Error> {
        self.walk(path, LastLink::Follow)
    }

    /// What a path names; a symbolic link at its end is itself the answer, unless the path ends
    /// in a slash.
    ///
    /// # Errors
    /// As [`Self::stat`].
    pub fn lstat(&mut self, path: &Path) -> Result<Attr, Error> {
        let last = if wants_directory(path) { LastLink::Follow } else { LastLink::Keep };
        self.walk(path, last)
    }

    /// Starts listing a directory.
    ///
    /// # Errors
    /// [`Error::Op`] when it is none.
    pub fn read_dir(&mut self, path: &Path) -> Result<Dir, Error> {
        let attr = self.stat(path)?;
        if attr.kind != FileKind::Directory {
            return Err(refused("readdir", path, Status::NotDirectory));
        }
        let inode = attr.inode;
        Ok(Dir { path: path.to_path_buf(), inode, parent: None, cookie: 0, end: false })
    }

    /// The next entries of a directory, none at its end.
    ///
    /// # Errors
    /// [`Error::Op`], as when it may not be read.
    pub fn next_entries(&mut self, dir: &mut Dir) -> Result<Vec<DirEntry>, Error> {
        let mut entries = Vec::new();
        while entries.is_empty() && !dir.end {
            let caller = self.options.identity.caller();
            let call = Call::Readdir(wire::Readdir {
                caller,
                inode: dir.inode,
                cookie: dir.cookie,
                listing_bytes_max: LISTING_BYTES_MAX,
                attrs: true,
                handle: None,
            });
            let reply = self.lane.ask("readdir", &dir.path, &call)?;
            let listing = reply.listing().ok_or_else(|| broken("readdir", &dir.path))?;
            dir.parent = Some(listing.parent);
            dir.end = listing.end;
            let mut found = Vec::new();
            for entry in listing.entries.iter() {
                dir.cookie = entry.cookie;
                let name = OsString::from_vec(entry.name.bytes().to_vec());
                found.push((name, entry.inode, entry.attr));
            }
            for (name, inode, attr) in found {
                // Of an inode of another shard the listing has the number alone, of a file whose
                // size is with its data an old one.
                let whole = attr.filter(|attr| attr.flags & wire::attr_flag::SIZE_AT_DATA == 0);
                let attr = match whole {
                    Some(attr) => attr,
                    None => match self.getattr(inode, &dir.path) {
                        Ok(attr) => attr,
                        Err(Error::Op { status: Status::Stale, .. }) => continue,
                        Err(error) => return Err(error),
                    },
                };
                entries.push(DirEntry { name, attr });
            }
        }
        Ok(entries)
    }

    /// Opens an existing file.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn open(&mut self, path: &Path, open_for: OpenFor) -> Result<File, Error> {
        let attr = self.stat(path)?;
        if attr.kind == FileKind::Directory {
            return Err(refused("open", path, Status::IsDirectory));
        }
        let call = Call::Open(client::Open {
            caller: self.options.identity.caller(),
            inode: attr.inode,
            read: open_for == OpenFor::Read,
            write: open_for == OpenFor::Write,
            execute: false,
            sizes: true,
        });
        let reply = self.lane.ask("open", path, &call)?;
        let Answer::Opened { attr, handle } = reply.answer else {
            return Err(broken("open", path));
        };
        Ok(File { path: path.to_path_buf(), attr, handle })
    }

    /// Opens a file for writing, making it with `mode` (less
    /// the identity's umask) if need be. Symbolic
    /// links are followed unless `exclusive`, which refuses whatever exists.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn create(&mut self, path: &Path, mode: u32, exclusive: bool) -> Result<File, Error> {
        if !exclusive {
            match self.open(path, OpenFor::Write) {
                Err(error) if error.is_not_found() => {}
                opened => return opened,
            }
        }
        let target = self.target("create", path)?;
        let call = Call::Create(client::Create {
            caller: self.options.identity.caller(),
            parent: target.parent,
            name: checked("create", path, &target.name)?,
            mode,
            umask: self.options.identity.umask,
            exclusive,
            open: Some(client::OpenFor { read: false, write: true }),
        });
        let reply = self.lane.ask("create", path, &call)?;
        let Answer::Created { attr, made: _, handle: Some(handle) } = reply.answer else {
            return Err(broken("create", path));
        };
        Ok(File { path: path.to_path_buf(), attr, handle })
    }

    /// Closes a file. Its size is settled at the metadata shard behind it, once what was written is
    /// durable; [`Self::sync`] and [`Self::leave`] wait for that.
    ///
    /// # Errors
    /// [`Error::Op`] of an earlier close.
    pub fn close(&mut self, file: File) -> Result<(), Error> {
        self.lane.close(file.handle, file.path)
    }

    /// Waits until what was done to an open file, by anybody, is durable: names, attributes,
    /// contents.
    ///
    /// # Errors
    /// [`Error::Op`] with `Io`, once, when something of it is lost.
    pub fn sync_file(&mut self, file: &File) -> Result<(), Error> {
        let sync =
            client::Sync { inode: file.attr.inode, contents: true, handle: Some(file.handle) };
        self.lane.ask("fsync", &file.path, &Call::Sync(sync)).map(drop)
    }

    /// Waits until everything that was done through this volume is durable.
    ///
    /// # Errors
    /// [`Error::Op`] with `Io`, once, when something of it is lost.
    pub fn sync(&mut self) -> Result<(), Error> {
        let closed = self.lane.reap_closes(0);
        let synced = self.lane.ask("sync", Path::new("/"), &Call::SyncAll).map(drop);
        closed.and(synced)
    }

    /// Ends in order: waits until everything that was done through this volume is durable, and has
    /// the server forget it. A volume that is dropped does the same, but cannot say how it went.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn leave(mut self) -> Result<(), Error> {
        self.lane.leave()
    }

    /// What people must be told since the last time: promises that could not be kept.
    pub fn take_reports(&mut self) -> Vec<client::Report> {
        self.lane.take_reports()
    }

    /// Makes a directory with `mode` less the identity's umask.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn mkdir(&mut self, path: &Path, mode: u32) -> Result<Attr, Error> {
        let target = self.target("mkdir", path)?;
        let name = checked("mkdir", path, &target.name)?;
        let caller = self.options.identity.caller();
        let (parent, umask) = (target.parent, self.options.identity.umask);
        let call = Call::Mkdir(wire::Mkdir { caller, parent, name, mode, umask });
        self.lane.ask("mkdir", path, &call)?.entry().ok_or_else(|| broken("mkdir", path))
    }

    /// Removes a name of something that is no directory.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn unlink(&mut self, path: &Path) -> Result<(), Error> {
        let target = self.target("unlink", path)?;
        let name = checked("unlink", path, &target.name)?;
        let caller = self.options.identity.caller();
        let call = Call::Unlink(wire::Unlink { caller, parent: target.parent, name });
        self.lane.ask("unlink", path, &call).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn rmdir(&mut self, path: &Path) -> Result<(), Error> {
        let target = self.target("rmdir", path)?;
        let name = checked("rmdir", path, &target.name)?;
        let caller = self.options.identity.caller();
        let call = Call::Rmdir(wire::Rmdir { caller, parent: target.parent, name });
        self.lane.ask("rmdir", path, &call).map(drop)
    }

    /// Moves a name, over an existing one if need be.
    ///
    /// # Errors
    /// [`Error::Op`], which names the old path.
    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Error> {
        let old = self.target("rename", from)?;
        let new = self.target("rename", to)?;
        let call = Call::Rename(wire::Rename {
            caller: self.options.identity.caller(),
            parent: old.parent,
            name: checked("rename", from, &old.name)?,
            new_parent: new.parent,
            new_name: checked("rename", to, &new.name)?,
            how: wire::RenameHow::Replace,
        });
        self.lane.ask("rename", from, &call).map(drop)
    }

    /// Makes a symbolic link at `path` that points to `to`.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn symlink(&mut self, to: &OsStr, path: &Path) -> Result<Attr, Error> {
        let target = self.target("symlink", path)?;
        let call = Call::Symlink(wire::Symlink {
            caller: self.options.identity.caller(),
            parent: target.parent,
            name: checked("symlink", path, &target.name)?,
            target: Bytes(to.as_bytes()),
        });
        self.lane.ask("symlink", path, &call)?.entry().ok_or_else(|| broken("symlink", path))
    }

    /// Makes a fifo, socket or device. Devices are root's to make.
    ///
    /// # Errors
    /// [`Error::Op`]; [`Status::Invalid`] for another kind.
    pub fn mknod(&mut self, path: &Path, special: &Special) -> Result<Attr, Error> {
        let target = self.target("mknod", path)?;
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
        self.lane.ask("mknod", path, &call)?.entry().ok_or_else(|| broken("mknod", path))
    }

    /// What a symbolic link points to.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn readlink(&mut self, path: &Path) -> Result<OsString, Error> {
        let attr = self.lstat(path)?;
        if attr.kind != FileKind::Symlink {
            return Err(refused("readlink", path, Status::Invalid));
        }
        self.link_target(attr.inode, path).map(OsString::from_vec)
    }

    /// Changes mode, owner, group or times of an inode; `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn set_attr(&mut self, inode: InodeNo, path: &Path, set: &SetAttr) -> Result<Attr, Error> {
        let call = Call::Setattr(wire::Setattr {
            caller: self.options.identity.caller(),
            inode,
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            atime: set.atime,
            mtime: set.mtime,
            revoke: wire::Revoke::Nothing,
        });
        self.lane.ask("setattr", path, &call)?.entry().ok_or_else(|| broken("setattr", path))
    }

    /// Sets the size of a file that is open for writing.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn truncate(&mut self, file: &File, size_bytes: u64) -> Result<(), Error> {
        let call = Call::Resize(client::Resize {
            caller: self.options.identity.caller(),
            inode: file.attr.inode,
            size_bytes,
            open_for_write: true,
        });
        self.lane.ask("truncate", &file.path, &call).map(drop)
    }

    /// Gives a file that is no directory a further name.
    ///
    /// # Errors
    /// [`Error::Op`], which names the new path.
    pub fn link(&mut self, inode: InodeNo, path: &Path) -> Result<Attr, Error> {
        let target = self.target("link", path)?;
        let call = Call::Link(wire::Link {
            caller: self.options.identity.caller(),
            inode,
            parent: target.parent,
            name: checked("link", path, &target.name)?,
        });
        self.lane.ask("link", path, &call)?.entry().ok_or_else(|| broken("link", path))
    }

    /// Walks from the root, name by name.
    fn walk(&mut self, path: &Path, last: LastLink) -> Result<Attr, Error> {
        let mut rest = steps(path.as_os_str().as_bytes());
        let mut trail: Vec<Attr> = Vec::new();
        let root = self.getattr(InodeNo::ROOT, path)?;
        let mut here = root;
        let mut link_count = 0;
        while let Some(step) = rest.pop() {
            if here.kind != FileKind::Directory {
                return Err(refused("lookup", path, Status::NotDirectory));
            }
            let Step::Down(name) = step else {
                here = trail.pop().unwrap_or(root);
                continue;
            };
            let found = self.lookup(here.inode, &name, path)?;
            if found.kind == FileKind::Symlink && (!rest.is_empty() || last == LastLink::Follow) {
                link_count += 1;
                if link_count > LINK_COUNT_MAX {
                    return Err(refused("lookup", path, Status::Loop));
                }
                let target = self.link_target(found.inode, path)?;
                if target.starts_with(b"/") {
                    trail.clear();
                    here = root;
                }
                rest.extend(steps(&target));
                continue;
            }
            trail.push(here);
            here = found;
        }
        if wants_directory(path) && here.kind != FileKind::Directory {
            return Err(refused("lookup", path, Status::NotDirectory));
        }
        Ok(here)
    }

    fn lookup(&mut self, parent: InodeNo, name: &[u8], path: &Path) -> Result<Attr, Error> {
        let name = checked("lookup", path, name)?;
        let caller: Caller<'_> = self.options.identity.caller();
        let call = Call::Lookup(wire::Lookup { caller, parent, name });
        self.lane.ask("lookup", path, &call)?.entry().ok_or_else(|| broken("lookup", path))
    }

    pub(crate) fn getattr(&mut self, inode: InodeNo, path: &Path) -> Result<Attr, Error> {
        let reply = self.lane.ask("getattr", path, &Call::Getattr(wire::Getattr { inode }))?;
        reply.entry().ok_or_else(|| broken("getattr", path))
    }

    fn link_target(&mut self, inode: InodeNo, path: &Path) -> Result<Vec<u8>, Error> {
        let call = Call::Readlink(wire::Readlink { inode });
        let reply: Reply = self.lane.ask("readlink", path, &call)?;
        let Answer::Target(_) = reply.answer else { return Err(broken("readlink", path)) };
        Ok(reply.small)
    }

    fn target(&mut self, op: &'static str, path: &Path) -> Result<Target, Error> {
        let Some((parent, name)) = split(path) else {
            return Err(refused(op, path, Status::Exists));
        };
        let attr = match self.walk(&parent, LastLink::Follow) {
            Ok(attr) => attr,
            // Say which path was asked for, not which part of it was looked at.
            Err(Error::Op { status, .. }) => return Err(refused(op, path, status)),
            Err(error) => return Err(error),
        };
        if attr.kind != FileKind::Directory {
            return Err(refused(op, path, Status::NotDirectory));
        }
        Ok(Target { parent: attr.inode, name: name.as_bytes().to_vec() })
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // There is nobody left to be told, and a server that is gone is not waited for long; who
        // wants to know, or to wait, says `leave`.
        drop(self.lane.leave_soon());
    }
}

impl Dir {
    /// The parent directory, known once entries were read.
    #[must_use]
    pub const fn parent(&self) -> Option<InodeNo> {
        self.parent
    }
}

fn checked<'n>(op: &'static str, path: &Path, name: &'n [u8]) -> Result<Name<'n>, Error> {
    Name::new(name).map_err(|status| refused(op, path, status))
}

pub(crate) fn refused(op: &'static str, path: &Path, status: Status) -> Error {
    Error::Op { op, path: path.to_path_buf(), status }
}

/// The client answered with something else than the call has.
pub(crate) fn broken(op: &'static str, path: &Path) -> Error {
    refused(op, path, Status::Protocol)
}
