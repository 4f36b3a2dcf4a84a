//! Searching: the server compares a directory's entries with a predicate and sends only the
//! matches, in several replies.
//!
//! The caller descends into subdirectories, because directories are in many shards. Entries that
//! the directory's shard cannot judge, because the inode is in another shard or the data shard has
//! its size, are judged here by the same code. Invariant: entries that may not be searched are
//! reported so, and never judged.

use super::{Session, broken, refused};
use crate::Error;
use client::Call;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use wire::{Attr, FileKind, InodeNo, Pattern, Predicate, Status, Verdict};

/// The size of one reply.
const FOUND_BYTES_MAX: u32 = 64 * 1024;

/// What to search for, and what to return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SearchOptions<'a> {
    /// The condition.
    pub predicate: Predicate<'a>,
    /// Return attributes.
    pub attrs: bool,
    /// Return all directories, including those that do not match.
    pub directories: bool,
}

/// Search options on their way to a volume's thread.
pub(crate) struct OwnedSearchOptions {
    pattern: Option<Vec<u8>>,
    rest: SearchOptions<'static>,
}

impl SearchOptions<'_> {
    pub(crate) fn owned(&self) -> OwnedSearchOptions {
        let Self { predicate, attrs, directories } = *self;
        let pattern = predicate.name.map(|pattern| pattern.bytes().to_vec());
        let predicate = Predicate { name: None, ..predicate };
        OwnedSearchOptions { pattern, rest: SearchOptions { predicate, attrs, directories } }
    }
}

impl OwnedSearchOptions {
    pub(crate) fn lent(&self) -> SearchOptions<'_> {
        // The pattern was valid before.
        let name = self.pattern.as_deref().and_then(|pattern| Pattern::new(pattern).ok());
        let SearchOptions { predicate, attrs, directories } = self.rest;
        SearchOptions { predicate: Predicate { name, ..predicate }, attrs, directories }
    }
}

/// Whether an entry matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It does not match; it is returned because it is a directory.
    No,
    /// It matches.
    Yes,
    /// It may match: its attributes are needed, and the caller may not search the directory.
    Denied,
}

/// An entry that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundEntry {
    /// The name.
    pub name: OsString,
    /// The inode.
    pub inode: InodeNo,
    /// The kind of inode.
    pub kind: FileKind,
    /// Whether it matches.
    pub fit: Fit,
    /// Its attributes, if they were requested, it matches and they are accessible.
    pub attr: Option<Attr>,
}

/// A directory being searched.
#[derive(Clone, Debug)]
pub struct Search {
    path: PathBuf,
    inode: InodeNo,
    cookie: u64,
    end: bool,
    /// The caller may descend into its subdirectories, as far as is known yet.
    pub may_descend: bool,
}

impl Search {
    /// A search of a directory; `path` is for messages.
    #[must_use]
    pub fn new(inode: InodeNo, path: &Path) -> Self {
        Self { path: path.to_path_buf(), inode, cookie: 0, end: false, may_descend: false }
    }
}

impl Session {
    /// The matches among the next entries, often none; `None` at the end.
    pub(crate) async fn search(
        &self,
        search: &mut Search,
        wanted: &SearchOptions<'_>,
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
        let reply = self.call("find", &search.path, &call).await?;
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

    /// Fetches the attributes that the directory's shard does not have.
    async fn judge(
        &self,
        search: &Search,
        wanted: &SearchOptions<'_>,
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
