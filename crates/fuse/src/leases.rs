//! What the kernel may cache, and until when: the rest of the leases that came with answers.
//!
//! A lane remembers what it has allowed the kernel to cache for as long as that lasts, to be able to
//! have all of it dropped, and the nodes by which the kernel knows a directory (`node`). Memory that
//! is full means no validity. For contents it remembers the version under which the kernel's pages
//! were read: a file that is opened again unchanged keeps its pages.
//!
//! Invariant: validity is given only for what a recall can find again here, or for what can no
//! longer change.

use crate::handle::{FileHandle, read_through};
use crate::node::Node;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use client::Granted;
use interface::{FileVersion, Mono};
use wire::{Attr, FileKind, InodeNo, Timestamp};

/// The most entries of [`Leases::given`].
const GIVEN_COUNT_MAX: usize = 1 << 18;
/// The most nodes of directories.
const DIRECTORY_COUNT_MAX: usize = 1 << 16;
/// How long the kernel caches no names after something was seen mounted on a directory of the
/// mount: names could not be forgotten all at once.
const MOUNTS_BELOW_MS: u64 = 10_000;
/// A reply may be applied so much later than it was given to the kernel.
pub(crate) const APPLY_MS_MAX: u64 = 20;
/// The validity of attributes for a moment, of a directory whose names are changed behind. The kernel
/// counts in ticks.
pub(crate) const MOMENT_NS: u64 = 1_000;
/// Longer than the rest of an `open`.
const DESTROYED_NS: u64 = 10_000_000_000;
/// The most files of which the version of the kernel's pages is known.
const PAGES_COUNT_MAX: usize = 1 << 16;
/// The most files with pages under leases.
const HELD_COUNT_MAX: usize = 1 << 17;

/// How long the kernel may cache what a reply says, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Validity {
    pub(crate) name_ns: u64,
    pub(crate) attributes_ns: u64,
}

/// Attributes or contents that the kernel may have cached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) node: Node,
    pub(crate) at: Mono,
    pub(crate) until: Mono,
    pub(crate) contents: bool,
}

pub(crate) const fn version_of(attr: &Attr) -> FileVersion {
    FileVersion { ctime: attr.ctime, mtime: attr.mtime, size_bytes: attr.size_bytes }
}

/// The pages that the kernel has of a file: those that it has read since it dropped earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pages {
    /// `None`: the file was changing.
    pub(crate) version: Option<FileVersion>,
    /// The open file whose reply made the kernel drop the earlier ones; `None`: other replies did.
    pub(crate) opened: Option<FileHandle>,
    /// When the first such reply was given; `None`: the kernel has shown that it has applied it.
    since: Option<Mono>,
}

impl Pages {
    /// Whether the kernel has dropped the earlier ones.
    fn are_earlier_dropped(self, now: Mono) -> bool {
        self.since.is_none_or(|since| since.after_ms(APPLY_MS_MAX) <= now)
    }
}

/// What a lane has allowed the kernel to cache.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The mount caches.
    pub(crate) on: bool,
    /// The kernel can forget all names at once: without that it caches none.
    pub(crate) forgets_names: bool,
    /// Something is mounted below, as was seen; until when that is assumed.
    mounts_below_until: Mono,
    /// In the order in which it was given.
    given: VecDeque<Given>,
    /// When the last validity ends that was given.
    until: Mono,
    /// Until when the kernel may have cached names below a node of a directory, or its attributes.
    directories: BTreeMap<(InodeNo, Node), Mono>,
    /// When expired directories are looked for again.
    clean_at: Mono,
    /// The pages that the kernel has.
    pages: BTreeMap<InodeNo, Pages>,
    /// The files of which the kernel may have pages under leases of this lane. A mapping shows them
    /// until they are dropped. One that the kernel has forgotten stays here: it may know it again
    /// already.
    held: BTreeSet<InodeNo>,
    /// The term of these leases.
    held_in: u64,
    /// Makes times of change differ from each other.
    nanos_last: u32,
}

impl Leases {
    pub(crate) const fn new(on: bool) -> Self {
        Self {
            on,
            forgets_names: false,
            mounts_below_until: Mono(0),
            given: VecDeque::new(),
            until: Mono(0),
            directories: BTreeMap::new(),
            clean_at: Mono(0),
            pages: BTreeMap::new(),
            held: BTreeSet::new(),
            held_in: 0,
            nanos_last: 0,
        }
    }

    pub(crate) fn set_mounts_below(&mut self, now: Mono) {
        self.mounts_below_until = now.after_ms(MOUNTS_BELOW_MS);
    }

    pub(crate) fn has_mounts_below(&self, now: Mono) -> bool {
        now < self.mounts_below_until
    }

    /// When everything has expired that was given so far.
    pub(crate) const fn until(&self) -> Mono {
        self.until
    }

    /// The validity of an entry below `parent`.
    pub(crate) fn of_entry(
        &mut self,
        now: Mono,
        (parent, node): (Node, Node),
        attr: &Attr,
        granted: Granted,
    ) -> Validity {
        Validity {
            name_ns: self.of_name(now, parent, granted.name),
            attributes_ns: self.of_attributes(now, node, attr, granted.attributes),
        }
    }

    /// The validity of a file that was destroyed before its CREATE is answered: no client can change
    /// it. Without validity the kernel would ask for the attributes of what it has created, before
    /// `open` returns, and create it again because the server no longer knows it (ESTALE).
    pub(crate) fn of_destroyed(&self) -> Validity {
        Validity { name_ns: 0, attributes_ns: if self.on { DESTROYED_NS } else { 0 } }
    }

    /// Whether the kernel may keep names.
    pub(crate) fn keeps_names(&self, now: Mono) -> bool {
        self.on && self.forgets_names && !self.has_mounts_below(now)
    }

    /// The validity of a name below `parent`.
    pub(crate) fn of_name(&mut self, now: Mono, parent: Node, until: Option<Mono>) -> u64 {
        let until = until.filter(|_| self.keeps_names(now));
        let Some(until) = until.filter(|until| self.remember_directory(now, parent, *until)) else {
            return 0;
        };
        self.until = self.until.max(until);
        until.since_ns(now)
    }

    /// The kernel may cache names below `parent` until then, whichever lane has said so, and this lane
    /// hears of their recall. False: there is no memory for that.
    pub(crate) fn take_over_names(&mut self, now: Mono, parent: Node, until: Mono) -> bool {
        self.until = self.until.max(until);
        self.remember_directory(now, parent, until)
    }

    /// The validity of attributes.
    pub(crate) fn of_attributes(
        &mut self,
        now: Mono,
        node: Node,
        attr: &Attr,
        until: Option<Mono>,
    ) -> u64 {
        let Some(until) = until.filter(|_| self.on) else { return 0 };
        if until == Mono(now.0 + MOMENT_NS) {
            return MOMENT_NS; // No recall finds it here: the end of the directory's lease waits.
        }
        if attr.kind == FileKind::Directory && !self.remember_directory(now, node, until) {
            return 0;
        }
        if self.remember(Given { node, at: now, until, contents: false }) {
            until.since_ns(now)
        } else {
            0
        }
    }

    /// Whether a file that was just opened may be read through the kernel's page cache.
    pub(crate) fn allows_pages(&mut self, now: Mono, inode: InodeNo, until: Option<Mono>) -> bool {
        let Some(until) = until.filter(|_| self.on) else { return false };
        self.remember(Given { node: Node::plain(inode), at: now, until, contents: true })
    }

    fn remember(&mut self, given: Given) -> bool {
        while self.given.front().is_some_and(|first| first.until <= given.at) {
            self.given.pop_front();
        }
        let fits = self.given.len() < GIVEN_COUNT_MAX;
        if fits {
            self.until = self.until.max(given.until);
            self.given.push_back(given);
        }
        fits
    }

    fn remember_directory(&mut self, now: Mono, node: Node, until: Mono) -> bool {
        let key = (node.inode(), node);
        if let Some(known) = self.directories.get_mut(&key) {
            *known = until.max(*known);
            return true;
        }
        if self.directories.len() >= DIRECTORY_COUNT_MAX && self.clean_at <= now {
            self.directories.retain(|_, until| *until > now);
            self.clean_at = now.after_ms(1_000);
        }
        let fits = self.directories.len() < DIRECTORY_COUNT_MAX;
        if fits {
            self.directories.insert(key, until);
        }
        fits
    }

    /// The nodes by which the kernel may have cached something of a directory, or names below it.
    pub(crate) fn nodes(&self, now: Mono, directory: InodeNo) -> Vec<Node> {
        let range = (directory, Node(0))..=(directory, Node(u64::MAX));
        let known = self.directories.range(range).filter(|(_, until)| **until > now);
        known.map(|((_, node), _)| *node).collect()
    }

    /// Whether attributes of a node were given since `at`.
    pub(crate) fn is_given_since(&self, at: Mono, node: Node) -> bool {
        let newest = self.given.iter().rev().take_while(|given| given.at >= at);
        newest.into_iter().any(|given| given.node == node && !given.contents)
    }

    /// Takes everything: it is about to be dropped.
    pub(crate) fn take_given(&mut self, now: Mono) -> Vec<Given> {
        let given = core::mem::take(&mut self.given);
        given.into_iter().filter(|given| given.until > now).collect()
    }

    /// The kernel gets pages of a file under a lease. Returns a file whose pages it has to drop for
    /// that, if there are too many.
    pub(crate) fn hold_pages(&mut self, inode: InodeNo) -> Option<InodeNo> {
        self.held.insert(inode);
        if self.held.len() > HELD_COUNT_MAX { self.held.pop_first() } else { None }
    }

    /// The kernel drops the pages of a file.
    pub(crate) fn release_pages(&mut self, inode: InodeNo) {
        self.held.remove(&inode);
    }

    /// The number of files with pages under leases.
    pub(crate) fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Takes the files with pages under leases: the kernel is about to drop them.
    pub(crate) fn take_held(&mut self) -> BTreeSet<InodeNo> {
        core::mem::take(&mut self.held)
    }

    /// The same, if the term of their leases is another one than this.
    pub(crate) fn take_held_before(&mut self, term_no: u64) -> Option<BTreeSet<InodeNo>> {
        let is_over = core::mem::replace(&mut self.held_in, term_no) != term_no;
        is_over.then(|| self.take_held())
    }

    /// Whether the kernel's pages of a file, if it has any, are of this version. A request through
    /// the open file whose reply drops earlier ones shows that this has happened.
    pub(crate) fn has_pages_of(&self, now: Mono, attr: &Attr, through: Option<FileHandle>) -> bool {
        let known = self.pages.get(&attr.inode);
        known.is_some_and(|pages| {
            let is_applied =
                pages.are_earlier_dropped(now) || (through.is_some() && through == pages.opened);
            pages.version == Some(version_of(attr)) && is_applied
        })
    }

    /// The kernel asks for something. If it reads through an open file, it has applied the reply to
    /// its open.
    pub(crate) fn see_read(&mut self, request: &[u8]) {
        if let Some((inode, through)) = read_through(request)
            && let Some(pages) = self.pages.get_mut(&inode)
            && pages.opened == Some(through)
        {
            pages.since = None;
        }
    }

    /// Whether the kernel has dropped what pages it had of a file before those of this version.
    pub(crate) fn has_dropped_earlier(&self, now: Mono, inode: InodeNo) -> bool {
        self.pages.get(&inode).is_some_and(|pages| pages.are_earlier_dropped(now))
    }

    /// The kernel no longer knows a file. Returns whether it may have had pages of it.
    pub(crate) fn forget_pages(&mut self, inode: InodeNo) -> bool {
        self.pages.remove(&inode).is_some()
    }

    /// Attributes with which the kernel drops its pages of a file: it does so when the time of
    /// change is another one. They are for a read alone, and not valid for anything else.
    pub(crate) const fn without_pages(&mut self, attr: Attr) -> Attr {
        self.nanos_last = (self.nanos_last + 1) % 1_000_000_000;
        let mtime = Timestamp { nanos: self.nanos_last, ..attr.mtime };
        Attr { mtime, ..attr }
    }

    /// The kernel is about to drop its pages of a file, and those that it reads from then on are of
    /// this version; `None`: the file is changing. Returns whether that is news.
    pub(crate) fn set_pages(
        &mut self,
        now: Mono,
        inode: InodeNo,
        (version, opened): (Option<FileVersion>, Option<FileHandle>),
    ) -> bool {
        let known = self.pages.get(&inode).copied().filter(|pages| pages.version == version);
        if known.is_some() && opened.is_none() {
            return false; // Fewer pages of the same version.
        }
        if self.pages.len() >= PAGES_COUNT_MAX && !self.pages.contains_key(&inode) {
            self.pages.pop_first();
        }
        let since = known.map_or(Some(now), |pages| pages.since);
        self.pages.insert(inode, Pages { version, opened, since });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases() -> Leases {
        let mut leases = Leases::new(true);
        leases.forgets_names = true;
        leases
    }

    #[test]
    fn validity_is_the_rest_of_the_lease() {
        let mut leases = leases();
        let (now, parent) = (Mono(1_000), Node(5));
        assert_eq!(leases.of_name(now, parent, Some(Mono(1_700))), 700);
        assert_eq!(leases.of_name(now, parent, None), 0);
        assert_eq!(leases.nodes(now, InodeNo(5)), [parent]);
        assert!(leases.nodes(Mono(1_700), InodeNo(5)).is_empty(), "it has expired");
        leases.forgets_names = false;
        assert_eq!(leases.of_name(now, parent, Some(Mono(1_700))), 0, "it could not be recalled");
    }

    #[test]
    fn memory_is_limited_and_full_memory_gives_no_validity() {
        let mut leases = leases();
        for count in 1..=DIRECTORY_COUNT_MAX as u64 {
            assert_eq!(leases.of_name(Mono(1), Node(count), Some(Mono(3))), 2);
        }
        assert_eq!(leases.of_name(Mono(1), Node(u64::MAX >> 20), Some(Mono(3))), 0);
        assert_eq!(leases.of_name(Mono(1), Node(9), Some(Mono(4))), 3, "known ones go on");
        let later = Mono(2_000_000_000);
        assert_eq!(leases.of_name(later, Node(u64::MAX >> 20), Some(Mono(later.0 + 5))), 5);
        assert_eq!(leases.directories.len(), 1);
        for count in 0..GIVEN_COUNT_MAX as u64 {
            assert!(leases.allows_pages(Mono(1), InodeNo(count), Some(Mono(9))));
        }
        assert!(!leases.allows_pages(Mono(1), InodeNo(7), Some(Mono(9))));
        assert!(leases.allows_pages(Mono(9), InodeNo(7), Some(Mono(10))), "they have expired");
    }
}
