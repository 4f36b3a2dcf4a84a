//! The entries of the cache as words of its tables.

use super::stamps::Stamp;
use alloc::vec::Vec;
use interface::Mono;
use wire::{Attr, InodeNo, LaneId, Wire as _, Writer};

/// Words of encoded attributes.
const ATTR_WORDS: usize = 16;
pub(super) const ATTRIBUTE_WORDS: usize = 4 + ATTR_WORDS;
pub(super) const ATTRIBUTE_STAMP: usize = 1;
pub(super) const NAME_WORDS: usize = 7;
pub(super) const NAME_STAMP: usize = 3;
pub(super) const DIRECTORY_WORDS: usize = 10;
pub(super) const DIRECTORY_SINCE: usize = 1;

/// A lease: it lasts as long as this term of this lane, which has it, and hears of its recall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    pub(super) term_no: u64,
    pub(super) lane: LaneId,
}

/// Attributes of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AttributesEntry {
    pub(super) attr: Attr,
    pub(super) stamp: Stamp,
    pub(super) lease: Lease,
}

impl AttributesEntry {
    pub(super) fn words(&self) -> [u64; ATTRIBUTE_WORDS] {
        let mut bytes = Vec::with_capacity(ATTR_WORDS * 8);
        self.attr.encode(&mut Writer::new(&mut bytes));
        bytes.resize(ATTR_WORDS * 8, 0);
        let mut words = [0; ATTRIBUTE_WORDS];
        words[0] = self.attr.inode.0;
        words[1] = self.stamp.0;
        words[2] = self.lease.term_no;
        words[3] = self.lease.lane.0.into();
        for (word, chunk) in words[4..].iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        words
    }

    pub(super) fn of(words: &[u64; ATTRIBUTE_WORDS]) -> Option<Self> {
        let bytes: Vec<u8> = words[4..].iter().flat_map(|word| word.to_le_bytes()).collect();
        Some(Self {
            attr: wire::Reader::new(&bytes).read().ok()?,
            stamp: Stamp(words[1]),
            lease: lease_of(words[2], words[3]),
        })
    }
}

/// The keyed hash of a name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NameHash {
    pub(super) place: u64,
    pub(super) check: u64,
}

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NameEntry {
    pub(super) dir: InodeNo,
    /// The hash of the name.
    pub(super) hash: NameHash,
    /// What it names; `None`: it does not exist.
    pub(super) inode: Option<InodeNo>,
    pub(super) stamp: Stamp,
    /// Without one, it is true only in a hold of the directory.
    pub(super) lease: Option<Lease>,
}

impl NameEntry {
    pub(super) fn words(&self) -> [u64; NAME_WORDS] {
        let term_no = self.lease.map_or(0, |lease| lease.term_no);
        let lane = self.lease.map_or(0, |lease| lease.lane.0.into());
        [
            self.dir.0,
            self.hash.place,
            self.hash.check,
            self.stamp.0,
            self.inode.map_or(0, |inode| inode.0),
            term_no,
            lane,
        ]
    }

    pub(super) fn of(words: &[u64; NAME_WORDS]) -> Self {
        let [dir, place, check, stamp, inode, term_no, lane] = *words;
        Self {
            dir: InodeNo(dir),
            hash: NameHash { place, check },
            inode: (inode != 0).then_some(InodeNo(inode)),
            stamp: Stamp(stamp),
            lease: (term_no != 0).then(|| lease_of(term_no, lane)),
        }
    }
}

/// A directory whose attributes are leased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DirectoryEntry {
    pub(super) dir: InodeNo,
    /// The hold began.
    pub(super) since: Stamp,
    /// The hold lasts as long as this.
    pub(super) lease: Lease,
    /// The names are known that existed then.
    pub(super) known_at: Option<Stamp>,
    /// They were known in an earlier hold.
    pub(super) was_known: bool,
    /// A listing from the start on.
    pub(super) listing: Option<ListingSoFar>,
    /// The kernel has dropped what it had cached of the names then, and what it has read since is of
    /// this hold.
    pub(super) kernel_since: Option<Mono>,
}

/// A listing that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ListingSoFar {
    pub(super) began_at: Stamp,
    /// Its next request has this cookie.
    pub(super) cookie: u64,
    pub(super) count: u64,
}

impl DirectoryEntry {
    pub(super) const fn new(dir: InodeNo, since: Stamp, lease: Lease) -> Self {
        let (known_at, listing, kernel_since) = (None, None, None);
        Self { dir, since, lease, known_at, was_known: false, listing, kernel_since }
    }

    pub(super) fn words(&self) -> [u64; DIRECTORY_WORDS] {
        let listing = self.listing;
        [
            self.dir.0,
            self.since.0,
            self.lease.term_no,
            self.lease.lane.0.into(),
            self.known_at.map_or(0, |stamp| stamp.0),
            listing.map_or(0, |listing| listing.began_at.0),
            listing.map_or(0, |listing| listing.cookie),
            listing.map_or(0, |listing| listing.count),
            self.kernel_since.map_or(0, |since| since.0),
            self.was_known.into(),
        ]
    }

    pub(super) fn of(words: &[u64; DIRECTORY_WORDS]) -> Self {
        let [dir, since, term_no, lane, known_at, rest @ ..] = *words;
        let [began_at, cookie, count, kernel_since, was_known] = rest;
        let listing = ListingSoFar { began_at: Stamp(began_at), cookie, count };
        Self {
            dir: InodeNo(dir),
            since: Stamp(since),
            lease: lease_of(term_no, lane),
            known_at: (known_at != 0).then_some(Stamp(known_at)),
            listing: (began_at != 0).then_some(listing),
            kernel_since: (kernel_since != 0).then_some(Mono(kernel_since)),
            was_known: was_known != 0,
        }
    }
}

fn lease_of(term_no: u64, lane: u64) -> Lease {
    Lease { term_no, lane: LaneId(u16::try_from(lane).unwrap_or(u16::MAX)) }
}
