//! Path lookup and directory listings. The client walks paths name by name, because the server
//! resolves only single names.

use super::{Session, broken, refused};
use crate::path::{Step, split, steps, wants_directory};
use crate::{Dir, DirEntry, Error};
use client::{Answer, Call};
use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use wire::{Attr, Caller, FileKind, InodeNo, Name, Status};

/// The most symbolic links followed in one walk, as on Linux.
const LINK_COUNT_MAX: u32 = 40;
/// The size of one Readdir reply.
const LISTING_BYTES_MAX: u32 = 64 * 1024;

/// The directory and the last name of a path to be created or removed.
pub(super) struct Target {
    pub(super) parent: InodeNo,
    pub(super) name: Vec<u8>,
}

/// What a path leads to.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) inode: InodeNo,
    pub(super) kind: FileKind,
    /// Unless only number and kind were wanted, or it is no name that leads there.
    attr: Option<Attr>,
}

impl Found {
    const ROOT: Self = Self { inode: InodeNo::ROOT, kind: FileKind::Directory, attr: None };
}

/// Whether a walk asks for the attributes of what the path leads to. The names on the way need
/// number and kind only, which is one request each, also where an inode is at another server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Attributes,
    NumberAndKind,
}

/// A walk in progress.
struct Walk<'s>(&'s Cell<usize>);

impl<'s> Walk<'s> {
    fn begin(walk_count: &'s Cell<usize>) -> Self {
        walk_count.set(walk_count.get() + 1);
        Self(walk_count)
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Whether a walk follows a symbolic link at the end of the path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLink {
    Follow,
    Keep,
}

impl Session {
    /// The attributes of a path; a symbolic link at its end is followed.
    pub(crate) async fn stat(&self, path: &Path) -> Result<Attr, Error> {
        self.attr(path, LastLink::Follow).await
    }

    /// The attributes of a path; a symbolic link at its end is not followed, unless the path ends
    /// in a slash.
    pub(crate) async fn lstat(&self, path: &Path) -> Result<Attr, Error> {
        let last = if wants_directory(path) { LastLink::Follow } else { LastLink::Keep };
        self.attr(path, last).await
    }

    async fn attr(&self, path: &Path, last: LastLink) -> Result<Attr, Error> {
        let refused_link_count = self.refused_link_count.get();
        let found = self.walk(path, (last, Wanted::Attributes), refused_link_count).await?;
        match found.attr {
            Some(attr) => Ok(attr),
            None => self.getattr(found.inode, path).await,
        }
    }

    /// Number and kind of what a path leads to; a symbolic link at its end is followed.
    pub(super) async fn find(&self, path: &Path) -> Result<Found, Error> {
        let refused_link_count = self.refused_link_count.get();
        self.walk(path, (LastLink::Follow, Wanted::NumberAndKind), refused_link_count).await
    }

    /// Starts listing a directory.
    pub(crate) async fn read_dir(&self, path: &Path) -> Result<Dir, Error> {
        let Found { inode, kind, .. } = self.find(path).await?;
        if kind != FileKind::Directory {
            return Err(refused("readdir", path, Status::NotDirectory));
        }
        Ok(Dir { path: path.to_path_buf(), inode, parent: None, cookie: 0, end: false })
    }

    /// The next entries of a directory, none at its end.
    pub(crate) async fn next_entries(&self, dir: &mut Dir) -> Result<Vec<DirEntry>, Error> {
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
            let reply = self.call("readdir", &dir.path, &call).await?;
            let listing = reply.listing().ok_or_else(|| broken("readdir", &dir.path))?;
            dir.parent = Some(listing.parent);
            dir.end = listing.end;
            let mut found = Vec::new();
            for entry in listing.entries.iter() {
                dir.cookie = entry.cookie;
                let name = OsString::from_vec(entry.name.bytes().to_vec());
                // For an inode of another shard the listing has only the number, for a file whose
                // size is at the data shard an old size.
                let is_whole = |attr: &Attr| attr.flags & wire::attr_flag::SIZE_AT_DATA == 0;
                found.push((name, entry.inode, entry.attr.filter(is_whole)));
            }
            let lacking = found.iter().filter(|(_, _, attr)| attr.is_none());
            let lacking: Vec<InodeNo> = lacking.map(|(_, inode, _)| *inode).collect();
            let mut looked_up = self.attrs(&lacking, &dir.path).await?.into_iter();
            for (name, _, attr) in found {
                // An entry that was removed meanwhile has none.
                if let Some(attr) = attr.or_else(|| looked_up.next().flatten()) {
                    entries.push(DirEntry { name, attr });
                }
            }
        }
        Ok(entries)
    }

    /// The target of a symbolic link.
    pub(crate) async fn readlink(&self, path: &Path) -> Result<OsString, Error> {
        let attr = self.lstat(path).await?;
        if attr.kind != FileKind::Symlink {
            return Err(refused("readlink", path, Status::Invalid));
        }
        self.link_target(attr.inode, path).await.map(OsString::from_vec)
    }

    /// Walks from the root, name by name; closes wait meanwhile. The last `refused_link_count` names
    /// must not be symbolic links.
    async fn walk(
        &self,
        path: &Path,
        (last, wanted): (LastLink, Wanted),
        refused_link_count: usize,
    ) -> Result<Found, Error> {
        let mut rest = steps(path.as_os_str().as_bytes());
        let _walk = Walk::begin(&self.walk_count);
        let mut trail: Vec<Found> = Vec::new();
        let mut here = Found::ROOT;
        let mut link_count = 0;
        while let Some(step) = rest.pop() {
            if here.kind != FileKind::Directory {
                return Err(refused("lookup", path, Status::NotDirectory));
            }
            let Step::Down(name) = step else {
                here = trail.pop().unwrap_or(Found::ROOT);
                continue;
            };
            let wanted = if rest.is_empty() { wanted } else { Wanted::NumberAndKind };
            let found = self.lookup(here.inode, (&name, wanted), path).await?;
            if found.kind == FileKind::Symlink && (!rest.is_empty() || last == LastLink::Follow) {
                link_count += 1;
                if link_count > LINK_COUNT_MAX || rest.len() < refused_link_count {
                    return Err(refused("lookup", path, Status::Loop));
                }
                let target = self.link_target(found.inode, path).await?;
                if target.starts_with(b"/") {
                    trail.clear();
                    here = Found::ROOT;
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

    async fn lookup(
        &self,
        parent: InodeNo,
        (name, wanted): (&[u8], Wanted),
        path: &Path,
    ) -> Result<Found, Error> {
        let name = checked("lookup", path, name)?;
        let caller: Caller<'_> = self.options.identity.caller();
        let args = wire::Lookup { caller, parent, name };
        let call = match wanted {
            Wanted::Attributes => Call::Lookup(args),
            Wanted::NumberAndKind => Call::Resolve(args),
        };
        let reply = self.call("lookup", path, &call).await?;
        let attr = reply.entry().ok_or_else(|| broken("lookup", path))?;
        let is_whole = wanted == Wanted::Attributes;
        Ok(Found { inode: attr.inode, kind: attr.kind, attr: is_whole.then_some(attr) })
    }

    pub(crate) async fn getattr(&self, inode: InodeNo, path: &Path) -> Result<Attr, Error> {
        let reply = self.call("getattr", path, &Call::Getattr(wire::Getattr { inode })).await?;
        reply.entry().ok_or_else(|| broken("getattr", path))
    }

    /// Attributes of several inodes, fetched concurrently; `None` for those that were removed.
    pub(super) async fn attrs(
        &self,
        inodes: &[InodeNo],
        path: &Path,
    ) -> Result<Vec<Option<Attr>>, Error> {
        let mut begun = Vec::with_capacity(inodes.len());
        for inode in inodes {
            begun.push(self.begin(&Call::Getattr(wire::Getattr { inode: *inode })).await);
        }
        let mut attrs = Vec::with_capacity(inodes.len());
        for answered in begun {
            match self.end("getattr", path, answered).await {
                Ok(reply) => {
                    attrs.push(Some(reply.entry().ok_or_else(|| broken("getattr", path))?))
                }
                Err(Error::Op { status: Status::Stale, .. }) => attrs.push(None),
                Err(error) => return Err(error),
            }
        }
        Ok(attrs)
    }

    pub(super) async fn link_target(&self, inode: InodeNo, path: &Path) -> Result<Vec<u8>, Error> {
        let call = Call::Readlink(wire::Readlink { inode });
        let reply = self.call("readlink", path, &call).await?;
        let Answer::Target(_) = reply.answer else { return Err(broken("readlink", path)) };
        Ok(reply.small)
    }

    pub(super) async fn target(&self, op: &'static str, path: &Path) -> Result<Target, Error> {
        let Some((parent, name)) = split(path) else {
            return Err(refused(op, path, Status::Exists));
        };
        let refused_link_count = self.refused_link_count.get().saturating_sub(1);
        let wanted = (LastLink::Follow, Wanted::NumberAndKind);
        let found = match self.walk(&parent, wanted, refused_link_count).await {
            Ok(found) => found,
            // The error names the whole path, not the part that was walked.
            Err(Error::Op { status, .. }) => return Err(refused(op, path, status)),
            Err(error) => return Err(error),
        };
        if found.kind != FileKind::Directory {
            return Err(refused(op, path, Status::NotDirectory));
        }
        Ok(Target { parent: found.inode, name: name.as_bytes().to_vec() })
    }
}

pub(super) fn checked<'n>(
    op: &'static str,
    path: &Path,
    name: &'n [u8],
) -> Result<Name<'n>, Error> {
    Name::new(name).map_err(|status| refused(op, path, status))
}
