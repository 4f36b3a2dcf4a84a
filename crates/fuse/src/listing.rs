//! A directory's entries in the kernel's format.
//!
//! Positions: 0 is before `.`, 1 before `..`, 2 before the server's first entry; the position
//! behind a server's entry is derived from its cookie ([`position_behind`]). A cookie is at least 1
//! and constant for an entry's life, so positions never collide, and a listing continues where it
//! stopped whatever was created or removed. Progress the last entry of a directory is
//! [`END_POSITION`]: a read from there returns the end of the directory without asking the server.

use crate::abi::size;
use crate::behind::Behind;
use crate::leases::{Leases, Validity};
use crate::names::Names;
use crate::node::{Moves, Node};
use crate::out::{put_entry, put_u32, put_u64};
use alloc::vec::Vec;
use client::Granted;
use interface::Mono;
use wire::{Attr, FileKind, InodeNo, Listing, Status, attr_flag};

const ALIGN_BYTES: usize = 8;
/// The entries before the server's: `.` and `..`.
const DOT_COUNT: u64 = 2;
/// Progress the last entry. Programs with 32-bit offsets must be able to hold it.
pub(crate) const END_POSITION: u64 = i32::MAX.cast_unsigned() as u64;

/// The position behind the entry with this cookie: never [`END_POSITION`].
pub(crate) const fn position_behind(cookie: u64) -> u64 {
    let position = cookie.saturating_add(DOT_COUNT);
    if position < END_POSITION { position } else { position.saturating_add(1) }
}

/// The cookie of the entry before a position, 0 for none.
pub(crate) const fn cookie_before(position: u64) -> u64 {
    let position = if position < END_POSITION { position } else { position - 1 };
    position.saturating_sub(DOT_COUNT)
}

struct Entry<'a> {
    inode: InodeNo,
    kind: FileKind,
    name: &'a [u8],
    /// The position behind this entry.
    position: u64,
    attr: Option<Attr>,
    granted: bool,
}

/// A buffer of the kernel that is being filled.
pub(crate) struct Buffer<'v> {
    pub(crate) out: &'v mut Vec<u8>,
    /// The end of the buffer in `out`.
    pub(crate) end: usize,
    /// `fuse_direntplus` instead of `fuse_dirent`.
    pub(crate) plus: bool,
    /// The directory, and the nodes of moved directories.
    pub(crate) node: Node,
    pub(crate) moves: &'v Moves,
    pub(crate) leases: &'v mut Leases,
    pub(crate) names: &'v mut Names,
    pub(crate) now: Mono,
    /// Until when names and attributes are granted.
    pub(crate) granted_until: Option<Mono>,
    /// Directories whose names are being changed.
    pub(crate) behind: Option<&'v Behind>,
}

/// Fills `buffer` from `position` on with as many entries as fit.
pub(crate) fn put_listing(
    buffer: &mut Buffer<'_>,
    position: u64,
    listing: &Listing<'_>,
) -> Result<(), Status> {
    let start = buffer.out.len();
    let dots: [(&[u8], InodeNo); 2] = [(b".", buffer.node.inode()), (b"..", listing.parent)];
    let dots = (1..).zip(dots).map(|(position, (name, inode))| Entry {
        inode,
        kind: FileKind::Directory,
        name,
        position,
        attr: None,
        granted: false,
    });
    let found = listing.entries.iter().map(|dirent| Entry {
        inode: dirent.inode,
        kind: dirent.kind,
        name: dirent.name.bytes(),
        position: position_behind(dirent.cookie),
        attr: dirent.attr,
        granted: dirent.granted,
    });
    let first = usize::try_from(position.min(DOT_COUNT)).unwrap_or(0);
    let mut any = false;
    let mut entries = dots.skip(first).chain(found).peekable();
    while let Some(mut entry) = entries.next() {
        any = true;
        if listing.end && entries.peek().is_none() {
            entry.position = END_POSITION;
        }
        if !buffer.put(&entry) {
            break;
        }
    }
    if any && buffer.out.len() == start {
        // Not even one fits; an empty reply would mean the end of the directory.
        return Err(Status::Invalid);
    }
    if !any && !listing.end {
        return Err(Status::Io);
    }
    Ok(())
}

impl Buffer<'_> {
    fn validity(&mut self, node: Node, attr: &Attr, granted: bool) -> Validity {
        let until = self.granted_until.filter(|_| granted);
        let granted = Granted { name: until, attributes: until, ..Granted::default() };
        self.leases.of_entry(self.now, (self.node, node), attr, granted)
    }

    /// Adds an entry; false when it does not fit.
    fn put(&mut self, entry: &Entry<'_>) -> bool {
        let head_bytes = if self.plus { size::ENTRY_OUT } else { 0 } + size::DIRENT;
        let record_bytes = (head_bytes + entry.name.len()).next_multiple_of(ALIGN_BYTES);
        let record_end = self.out.len() + record_bytes;
        if record_end > self.end {
            return false;
        }
        if self.plus {
            match entry.attr {
                Some(attr) if attr.flags & attr_flag::SIZE_AT_DATA == 0 => {
                    let node = self.moves.node(self.node, &attr);
                    let shown = self.behind.and_then(|behind| behind.as_shown(&attr));
                    let is_valid = entry.granted && shown.is_none();
                    let attr = shown.unwrap_or(attr);
                    let validity = self.validity(node, &attr, is_valid);
                    put_entry(self.out, node, &attr, validity);
                    // The kernel may not look it up any more.
                    let seen = (self.node.inode(), entry.name);
                    self.names.see(self.now, (attr.inode, attr.kind), seen);
                }
                // Node 0: the kernel takes the name and asks for the attributes itself. Used for
                // dots and for files whose size is at the data shard.
                Some(_) | None => self.out.resize(self.out.len() + size::ENTRY_OUT, 0),
            }
        }
        put_u64(self.out, entry.inode.0);
        put_u64(self.out, entry.position);
        put_u32(self.out, u32::try_from(entry.name.len()).unwrap_or(u32::MAX));
        put_u32(self.out, u32::from(entry.kind as u8));
        self.out.extend_from_slice(entry.name);
        self.out.resize(record_end, 0);
        true
    }
}
