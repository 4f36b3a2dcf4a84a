//! Looking for names: the server holds a directory's entries against a predicate, and only what fits
//! travels, a piece at a time.
//!
//! What lies below is its caller's to go down into: directories lie on many shards. What a directory's
//! shard cannot judge, because the inode lies at another or its size is with its contents, is judged
//! here by the same code. Invariant: what may not be searched is said to be so, and never judged.

use super::{Session, broken, refused};
use crate::Error;
use client::Call;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use wire::{Attr, FileKind, InodeNo, Predicate, Status, Verdict};

/// Reply bytes asked for at once.
const FOUND_BYTES_MAX: u32 = 64 * 1024;

/// What to look for, and what to tell of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted<'a> {
    /// What fits.
    pub predicate: Predicate<'a>,
    /// With attributes.
    pub attrs: bool,
    /// With all directories, also those that do not fit.
    pub directories: bool,
}

/// Whether an entry fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It does not; told because it is a directory.
    No,
    /// It does.
    Yes,
    /// It may: its attributes are wanted, or would tell, and the directory may not be searched.
    Denied,
}

/// An entry that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundEntry {
    /// The name.
    pub name: OsString,
    /// The inode.
    pub inode: InodeNo,
    /// What it is.
    pub kind: FileKind,
    /// Whether it fits.
    pub fit: Fit,
    /// Its attributes, if they were wanted, it fits and they may be looked at.
    pub attr: Option<Attr>,
}

/// A directory that is looked through.
#[derive(Clone, Debug)]
pub struct Search {
    path: PathBuf,
    inode: InodeNo,
    cookie: u64,
    end: bool,
    /// Its caller may go down into what is in it, as far as was told yet.
    pub may_descend: bool,
}

impl Search {
    /// Of a directory; `path` is for messages.
    #[must_use]
    pub fn new(inode: InodeNo, path: &Path) -> Self {
        Self { path: path.to_path_buf(), inode, cookie: 0, end: false, may_descend: false }
    }
}

impl Session {
    /// What fits among the next entries, often nothing; `None` behind the last.
    pub(crate) async fn search(
        &self,
        search: &mut Search,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Vec<FoundEntry>>, Error> {
        if search.end {
            return Ok(None);
        }
        let call = Call::Find(wire::Find {
            caller: self.options.identity.caller(),
            inode: search.inode,
            cookie: search.cookie,
            listing_bytes_max: FOUND_BYTES_MAX,
            attrs: wanted.attrs,
            directories: wanted.directories,
            predicate: wanted.predicate,
        });
        let reply = self.ask("find", &search.path, &call).await?;
        let found = reply.found().ok_or_else(|| broken("find", &search.path))?;
        if !found.end && found.cookie <= search.cookie {
            return Err(refused("find", &search.path, Status::Protocol));
        }
        (search.cookie, search.end) = (found.cookie, found.end);
        search.may_descend = found.search;
        let mut entries = Vec::new();
        for entry in found.entries.iter() {
            let fit = match entry.verdict {
                Verdict::No => Fit::No,
                Verdict::Yes if wanted.attrs && !found.search => Fit::Denied,
                Verdict::Yes => Fit::Yes,
                Verdict::Undecided => Fit::Denied,
            };
            let name = OsString::from_vec(entry.name.bytes().to_vec());
            let (inode, kind, attr) = (entry.inode, entry.kind, entry.attr);
            entries.push(FoundEntry { name, inode, kind, fit, attr });
        }
        if found.search {
            self.judge(search, wanted, &mut entries).await?;
        }
        Ok(Some(entries))
    }

    /// Asks for the attributes that were not known where the names are.
    async fn judge(
        &self,
        search: &Search,
        wanted: &Wanted<'_>,
        entries: &mut Vec<FoundEntry>,
    ) -> Result<(), Error> {
        let lacks = |entry: &FoundEntry| match entry.fit {
            Fit::Denied => true,
            Fit::Yes => wanted.attrs && entry.attr.is_none(),
            Fit::No => false,
        };
        let lacking: Vec<InodeNo> =
            entries.iter().filter(|entry| lacks(entry)).map(|entry| entry.inode).collect();
        let mut attrs = self.attrs(&lacking, &search.path).await?.into_iter();
        for mut entry in std::mem::take(entries) {
            if lacks(&entry) {
                // Removed meanwhile.
                let Some(attr) = attrs.next().flatten() else { continue };
                if entry.fit == Fit::Denied {
                    let fits = wanted.predicate.fits_attr(&attr);
                    entry.fit = if fits { Fit::Yes } else { Fit::No };
                }
                let shown = wanted.attrs && entry.fit == Fit::Yes;
                entry.attr = shown.then_some(attr);
                let below = wanted.directories && entry.kind == FileKind::Directory;
                if entry.fit == Fit::No && !below {
                    continue;
                }
            }
            entries.push(entry);
        }
        Ok(())
    }
}
