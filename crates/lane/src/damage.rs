//! Log lines about damaged contents, with the file's path.
//!
//! ```text
//! damaged ─▶ ReadRows: the inode's row ─▶ ReadRows: its parent's entries, a page at a time ─┐
//!               ▲                          its name is among them ◀──────────────────────────┤
//!               └── the parent, unless it is the root ◀── the name ─┘    else: without a path ┘
//! ```
//! The rows of all shards are in one table, so no other lane is asked. The rows lag about a second
//! behind the log, so a new name may be missing or old. Invariant: each damage is logged once, with
//! or without a path, after [`LOOKUP_MS`] or when the lane ends at the latest; no request waits for
//! it.

use crate::Lane;
use crate::non_resident::decoded;
use crate::ticket::PATH_TICKET;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use data::Damage;
use disk::rows::{Key, Range, Row};
use interface::{Errno, LogLevel, Mono, Object, Span, StoreAction, Ticket, Turn};
use wire::InodeNo;

/// A path that is not found within this time is left out.
const LOOKUP_MS: u64 = 5_000;
/// Concurrent path lookups.
const LOOK_COUNT_MAX: usize = 16;
/// Entries per read, and reads per path: a name in a directory of more than a million entries may
/// be missed.
const PAGE_ENTRY_COUNT: u32 = 1_024;
const PAGE_COUNT_MAX: u32 = 1_024;
const PATH_BYTES_MAX: usize = 4_096;

/// The location of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Path(String),
    /// It has no name: it is open, or about to be removed.
    Nameless,
    Unknown,
}

/// A damage whose file's path is being looked up.
#[derive(Debug)]
struct PathLookup {
    object: Object,
    file_offset: u64,
    damage: Damage,
    until: Mono,
    /// The inode whose name is wanted, and its directory, if known.
    inode: InodeNo,
    dir: Option<InodeNo>,
    /// The names found so far, the last path component first.
    names: Vec<Vec<u8>>,
    page_count: u32,
}

/// The next step of a lookup.
enum Next {
    /// Read the inode's row.
    Inode,
    /// Read the directory's entries behind this name.
    Entries(InodeNo, Option<Vec<u8>>),
    End(Place),
}

/// The path lookups of a lane.
#[derive(Default, Debug)]
pub(crate) struct Paths {
    ticket_count: u64,
    lookups: BTreeMap<u64, PathLookup>,
}

impl Paths {
    /// The earliest deadline.
    pub(crate) fn until(&self) -> Option<Mono> {
        self.lookups.values().map(|lookup| lookup.until).min()
    }
}

impl Lane {
    /// Logs a damage of a file's contents once its path is known.
    pub(crate) fn on_damaged(
        &mut self,
        turn: &mut Turn<'_>,
        object: Object,
        (file_offset, damage): (u64, Damage),
    ) {
        let (inode, until) = (object.inode, turn.now.mono.after_ms(LOOKUP_MS));
        let (dir, names, page_count) = (None, Vec::new(), 0);
        let lookup =
            PathLookup { object, file_offset, damage, until, inode, dir, names, page_count };
        if self.is_stopping() || self.paths.lookups.len() >= LOOK_COUNT_MAX {
            return self.log_damage(turn, &lookup, &Place::Unknown);
        }
        self.ask_inode(turn, lookup);
    }

    fn ask_inode(&mut self, turn: &mut Turn<'_>, lookup: PathLookup) {
        let key = Key::inode(lookup.inode);
        self.ask_path(turn, lookup, key.bytes(), &[]);
    }

    fn ask_entries(
        &mut self,
        turn: &mut Turn<'_>,
        lookup: PathLookup,
        dir: InodeNo,
        behind: Option<&[u8]>,
    ) {
        let Range { from, until } = Range::dirents(dir);
        // The next possible key is the name with a zero byte appended.
        let next = behind.map_or_else(Vec::new, |name| [from.bytes(), name, &[0]].concat());
        let from = if next.is_empty() { from.bytes() } else { &next[..] };
        self.ask_path(turn, lookup, from, until.bytes());
    }

    fn ask_path(&mut self, turn: &mut Turn<'_>, lookup: PathLookup, from: &[u8], until: &[u8]) {
        self.paths.ticket_count += 1;
        let number = self.paths.ticket_count;
        self.paths.lookups.insert(number, lookup);
        let from = turn.arena.put(from);
        let until = turn.arena.put(until);
        let ticket = Ticket(PATH_TICKET | number);
        let row_count_max = PAGE_ENTRY_COUNT;
        turn.act(StoreAction::ReadRows { ticket, from, until, row_count_max });
    }

    /// The rows have been read.
    pub(crate) fn on_path_rows(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<Span, Errno>,
    ) {
        let number = ticket.0 & !crate::ticket::TICKET_TAG;
        let Some(mut lookup) = self.paths.lookups.remove(&number) else { return };
        let rows = result.ok().and_then(|rows| decoded(turn.arena.get(rows)).ok());
        match rows.map_or(Next::End(Place::Unknown), |rows| lookup.next(&rows)) {
            Next::Inode => self.ask_inode(turn, lookup),
            Next::Entries(dir, behind) => self.ask_entries(turn, lookup, dir, behind.as_deref()),
            Next::End(place) => self.log_damage(turn, &lookup, &place),
        }
    }

    /// Logs the damages whose lookup has timed out; all of them when the lane ends.
    pub(crate) fn end_path_lookups(&mut self, turn: &mut Turn<'_>) {
        let (now, stopping) = (turn.now.mono, self.is_stopping());
        let is_over = |lookup: &PathLookup| stopping || lookup.until <= now;
        for (_, lookup) in
            self.paths.lookups.extract_if(.., |_, lookup| is_over(lookup)).collect::<Vec<_>>()
        {
            self.log_damage(turn, &lookup, &Place::Unknown);
        }
    }

    fn log_damage(&mut self, turn: &mut Turn<'_>, lookup: &PathLookup, place: &Place) {
        let PathLookup { object, file_offset: at, damage, .. } = lookup;
        let what = match damage {
            Damage::Missing => format!("bytes from {at} on are missing"),
            Damage::Short { found_bytes } => {
                format!("the file ends at byte {found_bytes}, which is too early")
            }
            Damage::Changed { expected, found } => format!(
                "the block at byte {at} was changed (CRC-32C {expected:08x} expected, {found:08x} \
                 found)"
            ),
        };
        let inode = object.inode.0;
        let (file, hint) = match place {
            Place::Path(path) => (format!("{path}, inode {inode} ({object})"), String::new()),
            Place::Nameless => {
                (format!("inode {inode} ({object}), a file without a name"), String::new())
            }
            Place::Unknown => (
                format!("inode {inode} ({object})"),
                format!(" `find DIR -inum {inode}` on a mount at DIR finds its path."),
            ),
        };
        let line = format!(
            "contents are damaged: {file}: {what}. Reading there gives EIO.{hint} Write the \
             whole block again or restore the file, and look at the disk."
        );
        self.log(turn, LogLevel::Alarm, &line);
    }
}

impl PathLookup {
    fn next(&mut self, rows: &[Row<'_>]) -> Next {
        match self.dir {
            None => self.on_inode(rows),
            Some(dir) => self.on_entries(dir, rows),
        }
    }

    /// The inode's row names its directory.
    fn on_inode(&mut self, rows: &[Row<'_>]) -> Next {
        let Some(Row::Inode(row)) = rows.first() else { return Next::End(Place::Unknown) };
        if row.nlink == 0 {
            return Next::End(Place::Nameless);
        }
        if row.parent == InodeNo(0) {
            return Next::End(Place::Unknown);
        }
        self.dir = Some(row.parent);
        Next::Entries(row.parent, None)
    }

    fn on_entries(&mut self, dir: InodeNo, rows: &[Row<'_>]) -> Next {
        let entries = rows.iter().filter_map(|row| {
            if let Row::Dirent { name, row, .. } = row { Some((name, row.inode)) } else { None }
        });
        let mut found = entries.filter(|(_, inode)| *inode == self.inode).map(|(name, _)| *name);
        let Some(name) = found.next() else { return self.on_absent(dir, rows) };
        self.names.push(name.bytes().to_vec());
        let path_bytes: usize = self.names.iter().map(|name| name.len() + 1).sum();
        if dir == InodeNo::ROOT {
            return Next::End(Place::Path(path_of(&self.names)));
        }
        if path_bytes > PATH_BYTES_MAX {
            return Next::End(Place::Unknown);
        }
        (self.inode, self.dir) = (dir, None);
        Next::Inode
    }

    /// The inode's name is not among these entries.
    fn on_absent(&mut self, dir: InodeNo, rows: &[Row<'_>]) -> Next {
        self.page_count += 1;
        let is_last = rows.len() < usize::try_from(PAGE_ENTRY_COUNT).unwrap_or(usize::MAX);
        if let Some(Row::Dirent { name, .. }) = rows.last()
            && !is_last
            && self.page_count < PAGE_COUNT_MAX
        {
            return Next::Entries(dir, Some(name.bytes().to_vec()));
        }
        Next::End(Place::Unknown)
    }
}

/// A printable path: other characters are escaped.
fn path_of(names: &[Vec<u8>]) -> String {
    let mut path = String::new();
    for name in names.iter().rev() {
        path.push('/');
        for chunk in name.utf8_chunks() {
            path.extend(chunk.valid().chars().flat_map(char::escape_debug));
            path.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
        }
    }
    path
}
