//! What is known now, and the answers that follow from it.

use super::Cache;
use super::entries::{
    AttributesEntry, DIRECTORY_WORDS, DirectoryEntry, Lease, NameEntry, NameHash,
};
use super::stamps::Stamp;
use crate::{Answer, Call, Granted};
use interface::{Mono, Span};
use wire::{Attr, FileKind, InodeNo, LaneId, Layout, Name, Status};

/// So often is answered what the kernel may not keep, before the server is asked: then it may. An
/// exchange costs about as much as so many requests of the kernel, and most names are not asked for so
/// often before they are removed.
const UNKEPT_COUNT_MAX: u64 = 6;
/// The bits of a slot of [`Cache::unkept`] that count.
const UNKEPT_COUNT_MASK: u64 = 7;

/// Something that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found<T> {
    /// What.
    pub value: T,
    pub(super) lease: Option<Lease>,
}

impl Cache {
    /// The answer to a call, and what its caller may cache of it, if it is known.
    #[must_use]
    pub fn answer(
        &self,
        now: Mono,
        lane: LaneId,
        call: &Call<'_>,
    ) -> Option<(Result<Answer, Status>, Granted)> {
        self.terms.note_use(now);
        #[expect(clippy::wildcard_enum_match_arm, reason = "all other calls need the server")]
        match call {
            Call::Lookup(args) => self.answer_lookup((now, lane), args.parent, args.name),
            Call::Getattr(args) => {
                let found = self.attributes(now, args.inode)?;
                let attributes = self.validity(now, lane, found.lease);
                let granted = Granted { attributes, ..Granted::default() };
                Some((Ok(Answer::Entry(found.value)), granted))
            }
            Call::Getxattr(args) => {
                let attr = self.attributes(now, args.inode)?.value;
                let is_absent = attr.has_no_xattrs() && may_have(&attr, args.name.0);
                is_absent.then_some((Err(Status::NoData), Granted::default()))
            }
            Call::Listxattr(args) => {
                let attr = self.attributes(now, args.inode)?.value;
                let empty = Ok(Answer::Value(Span::default()));
                attr.has_no_xattrs().then_some((empty, Granted::default()))
            }
            _ => None,
        }
    }

    fn answer_lookup(
        &self,
        (now, lane): (Mono, LaneId),
        dir: InodeNo,
        name: Name<'_>,
    ) -> Option<(Result<Answer, Status>, Granted)> {
        let found = self.found(now, dir, name)?;
        let validity = self.validity(now, lane, found.lease);
        let granted = Granted { name: validity, ..Granted::default() };
        let Some(inode) = found.value else {
            let may = validity.is_some() || self.says_name(dir, name);
            return may.then_some((Err(Status::NotFound), granted));
        };
        let found = self.attributes(now, inode)?;
        let attributes = self.validity(now, lane, found.lease);
        Some((Ok(Answer::Entry(found.value)), Granted { attributes, ..granted }))
    }

    /// Until when the kernel may keep something that this lane serves: the lane must hear of the
    /// recall.
    fn validity(&self, now: Mono, lane: LaneId, lease: Option<Lease>) -> Option<Mono> {
        let until = self.terms.until(lease.filter(|lease| lease.lane == lane)?);
        (now < until).then_some(until)
    }

    /// Whether a name is answered once more that the kernel may not keep: this lane has no lease of
    /// it. Otherwise the server is to be asked, for one.
    #[must_use]
    pub fn says_name(&self, dir: InodeNo, name: Name<'_>) -> bool {
        let NameHash { place, check } = self.name_hash(dir, name.bytes());
        self.says_again(place, check)
    }

    /// The same of attributes.
    #[must_use]
    pub fn says_attributes(&self, inode: InodeNo) -> bool {
        let hash = self.inode_hash(inode);
        self.says_again(hash, hash)
    }

    fn says_again(&self, place: u64, check: u64) -> bool {
        let tag = check & !UNKEPT_COUNT_MASK;
        let known = self.unkept.get(place);
        let count = if known & !UNKEPT_COUNT_MASK == tag { known & UNKEPT_COUNT_MASK } else { 0 };
        let says = count < UNKEPT_COUNT_MAX;
        self.unkept.set(place, if says { tag | (count + 1) } else { tag });
        says
    }

    /// The attributes of an inode.
    #[must_use]
    pub fn attributes(&self, now: Mono, inode: InodeNo) -> Option<Found<Attr>> {
        let hash = self.inode_hash(inode);
        let words = self.attributes.get(hash, |words| words[0] == inode.0)?;
        let entry = AttributesEntry::of(&words)?;
        // A change that ends outdates first: so the guards come before the slots.
        if self.guards.may_be_any(now) {
            return None;
        }
        let outdated = self.attribute_slots.get(hash).max(self.unknown.get(0));
        let is_usable =
            now < self.terms.until(entry.lease) && !self.is_outdated(entry.stamp, outdated);
        is_usable.then_some(Found { value: entry.attr, lease: Some(entry.lease) })
    }

    /// The layout of a file: it never changes, so attributes of any age show it.
    #[must_use]
    pub fn layout(&self, inode: InodeNo) -> Option<Layout> {
        let words = self.attributes.get(self.inode_hash(inode), |words| words[0] == inode.0)?;
        AttributesEntry::of(&words)?.attr.layout
    }

    /// The attributes of all inodes that are known, for the simulator.
    pub fn all_attributes(&self, now: Mono) -> impl Iterator<Item = Attr> {
        let inodes = self.attributes.all().map(|words| InodeNo(words[0]));
        inodes.filter_map(move |inode| self.attributes(now, inode)).map(|found| found.value)
    }

    /// What a name names, or that it does not exist.
    #[must_use]
    pub fn found(&self, now: Mono, dir: InodeNo, name: Name<'_>) -> Option<Found<Option<InodeNo>>> {
        let hash = self.name_hash(dir, name.bytes());
        let outdated = self.name_slots.get(hash.place);
        let is_wanted = |entry: &NameEntry| entry.dir == dir && entry.hash == hash;
        let words = self.names.get(hash.place, |words| is_wanted(&NameEntry::of(words)));
        let entry = words.map(|words| NameEntry::of(&words));
        let entry = entry.filter(|entry| !self.is_outdated(entry.stamp, outdated));
        let is_leased =
            |entry: &NameEntry| entry.lease.is_some_and(|lease| now < self.terms.until(lease));
        if let Some(entry) = entry.filter(is_leased) {
            return Some(Found { value: entry.inode, lease: entry.lease });
        }
        let held = self.hold(now, dir)?;
        if let Some(entry) = entry.filter(|entry| held.since <= entry.stamp) {
            return Some(Found { value: entry.inode, lease: None });
        }
        let known_at = held.known_at?;
        let is_absent = outdated <= known_at && self.listed.get(hash.place) <= known_at;
        is_absent.then_some(Found { value: None, lease: None })
    }

    /// Whether a directory is held. A kept one that is not is opened at the server, which then grants
    /// its attributes.
    #[must_use]
    pub fn is_held(&self, now: Mono, dir: InodeNo) -> bool {
        self.hold(now, dir).is_some()
    }

    /// Whether a directory was held, as far as that was not forgotten.
    #[must_use]
    pub fn was_held(&self, dir: InodeNo) -> bool {
        self.directories.get(self.inode_hash(dir), |words| words[0] == dir.0).is_some()
    }

    /// Whether the names of a directory were known, and are not any more, because its hold was
    /// interrupted.
    #[must_use]
    pub fn has_lost_names(&self, now: Mono, dir: InodeNo) -> bool {
        let words = self.directories.get(self.inode_hash(dir), |words| words[0] == dir.0);
        words.is_some_and(|words| {
            let entry = DirectoryEntry::of(&words);
            let is_known = entry.known_at.is_some() && self.lasts(now, &entry);
            !is_known && (entry.was_known || entry.known_at.is_some())
        })
    }

    /// A directory is opened to be listed. `None`: it is not held, so the kernel must not cache its
    /// listings; true: what the kernel has cached is of this hold. Otherwise it drops that with the
    /// reply, within `apply_ms`.
    #[must_use]
    pub fn keeps_listings(&self, now: Mono, dir: InodeNo, apply_ms: u64) -> Option<bool> {
        if let Some(since) = self.hold(now, dir)?.kernel_since {
            return Some(since.after_ms(apply_ms) <= now);
        }
        let is_same = |words: &[u64; DIRECTORY_WORDS]| words[0] == dir.0;
        self.directories.update(self.inode_hash(dir), is_same, |words| {
            let held = DirectoryEntry::of(&words?);
            Some(DirectoryEntry { kernel_since: Some(now), ..held }.words())
        });
        Some(false)
    }

    /// The hold of a directory, if it lasts.
    pub(super) fn hold(&self, now: Mono, dir: InodeNo) -> Option<DirectoryEntry> {
        let words = self.directories.get(self.inode_hash(dir), |words| words[0] == dir.0)?;
        let entry = DirectoryEntry::of(&words);
        self.lasts(now, &entry).then_some(entry)
    }

    pub(super) fn lasts(&self, now: Mono, entry: &DirectoryEntry) -> bool {
        let ended = self.hold_slots.get(self.inode_hash(entry.dir));
        now < self.terms.until(entry.lease) && ended.max(self.floor.get()) <= entry.since
    }

    /// Whether an entry with this stamp is outdated, in a slot with that one.
    pub(super) fn is_outdated(&self, stamp: Stamp, outdated: Stamp) -> bool {
        outdated.max(self.floor.get()) > stamp
    }
}

/// Whether an inode may have an attribute of this name, and everybody may ask for it: the server
/// judges all others.
fn may_have(attr: &Attr, name: &[u8]) -> bool {
    const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
    const SECURITY: &[u8] = b"security.";
    let is_acl = ACLS.contains(&name) && attr.kind != FileKind::Symlink;
    is_acl || (name.starts_with(SECURITY) && name.len() > SECURITY.len())
}
