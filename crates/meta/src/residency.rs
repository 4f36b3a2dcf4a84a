//! Which inodes and entries are in memory when not all of them may be ([`Shard::bound`]). The rest
//! lies in the cold store, and the lane brings it when an operation needs it.
//!
//! A unit is a file's or symbolic link's inode with all that hangs on it, or the entries of one
//! directory, all or none. Directories' inodes and orphans stay in memory always. Invariants: what
//! changes a unit found it in memory, or knew that there is none; a unit leaves memory only when the
//! cold store has its last change, so what is read from there later is what left.
//!
//! ```text
//! needs ─▶ missing ─▶ fetch, fetched ─▶ in memory ─ changed ─▶ waits for `checkpointed`
//!             ▲                             │                        │
//!             └─────────── shrink ◀─────────┴────────────────────────┘
//! ```

use crate::across::Want;
use crate::directory::Directory;
use crate::needs::Needs;
use crate::shard::Shard;
use crate::state::{Body, Inode, State};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use disk::rows::{Range, Row};
use disk::{Change, Changes, Fault};
use wire::{FileKind, InodeNo, Reader, ShardId, Transno};

/// What an inode takes besides itself: its place in a page, its mark here.
const INODE_BYTES: usize = size_of::<Inode>() + 160;
const DIRECTORY_BYTES: usize = INODE_BYTES + size_of::<Directory>();
/// A target or an attribute, beside its bytes.
const PART_BYTES: usize = 64;
/// A number of which it is known that there is no such inode.
const ABSENT_BYTES: usize = 128;

/// What is in memory whole or not at all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unit {
    /// An inode that is no directory.
    Inode(InodeNo),
    /// The entries of a directory.
    Entries(InodeNo),
}

impl Unit {
    /// Its rows in the cold store; of entries, those behind a place.
    #[must_use]
    pub fn range(self, cookie: u64) -> Range {
        match self {
            Self::Inode(inode) => Range::inode(inode),
            Self::Entries(dir) => Range::listing(dir, cookie),
        }
    }

    /// Which shard has it.
    #[must_use]
    pub fn shard(self) -> ShardId {
        self.number().shard()
    }

    const fn number(self) -> InodeNo {
        match self {
            Self::Inode(inode) | Self::Entries(inode) => inode,
        }
    }
}

/// What is known of a unit in memory.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// When the cold store has this transaction, it has all that changed.
    stamp: Transno,
    bytes: usize,
    /// Since it was last looked at for eviction.
    used: bool,
}

/// What a bounded shard keeps account of.
#[derive(Debug)]
pub(crate) struct Residency {
    bytes_max: usize,
    bytes: usize,
    /// All there are, in memory or not.
    inode_count: u64,
    /// No inode from this count on is in the cold store alone.
    cold_below: u64,
    checkpointed: Transno,
    /// Changes of older transactions are stamped with this one: they are recorded before it.
    floor: Transno,
    /// Units in memory; an inode that is not in memory is marked when it does not exist.
    marks: BTreeMap<Unit, Mark>,
    /// Where the search for what can go stands.
    hand: Option<Unit>,
    pins: BTreeMap<Unit, usize>,
    needed: Vec<Unit>,
    missing: Vec<Unit>,
}

impl Residency {
    fn put(&mut self, unit: Unit, stamp: Transno, bytes: usize) {
        let known = self.marks.get(&unit).copied();
        let stamp = known.map_or(stamp, |known| known.stamp.max(stamp));
        self.bytes = self.bytes - known.map_or(0, |known| known.bytes) + bytes;
        self.marks.insert(unit, Mark { stamp, bytes, used: true });
    }

    fn take(&mut self, unit: Unit) {
        if let Some(known) = self.marks.remove(&unit) {
            self.bytes -= known.bytes;
        }
    }

    /// The next unit that may be looked at, all in turn.
    fn next(&mut self) -> Option<(Unit, Mark)> {
        let behind = self.hand.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.marks.range_mut((behind, Bound::Unbounded)).next();
        let Some((unit, mark)) = next else {
            self.hand = None;
            return self.marks.first_key_value().map(|(unit, mark)| (*unit, *mark));
        };
        self.hand = Some(*unit);
        let before = *mark;
        mark.used = false;
        Some((*unit, before))
    }
}

impl State {
    /// Inodes, in memory or not.
    pub(crate) fn inode_count(&self) -> u64 {
        let resident = u64::try_from(self.resident_count()).unwrap_or(u64::MAX);
        self.residency.as_ref().map_or(resident, |residency| residency.inode_count)
    }

    /// Notes what a change of transaction `transno` did to units; by so many inodes there are more.
    pub(crate) fn note(&mut self, transno: Transno, change: &Change<'_>, before_count: usize) {
        let after_count = self.resident_count();
        let Some(residency) = &mut self.residency else { return };
        let stamp = transno.max(residency.floor);
        let came = after_count > before_count;
        residency.inode_count += u64::from(came);
        residency.inode_count -= u64::from(after_count < before_count);
        match change {
            Change::Inode { row } if row.kind == FileKind::Directory => {
                residency.take(Unit::Inode(row.inode));
                residency.bytes += if came { DIRECTORY_BYTES } else { 0 };
            }
            Change::Inode { row } => self.mark(Unit::Inode(row.inode), stamp),
            Change::Symlink { inode, .. }
            | Change::Xattr { inode, .. }
            | Change::XattrGone { inode, .. } => {
                self.mark(Unit::Inode(*inode), stamp);
            }
            Change::Dirent { dir, .. } | Change::DirentGone { dir, .. } => {
                self.mark(Unit::Entries(*dir), stamp);
            }
            Change::InodeGone { inode } => {
                let is_file = residency.marks.contains_key(&Unit::Inode(*inode));
                if after_count < before_count && !is_file {
                    residency.bytes -= DIRECTORY_BYTES;
                }
                residency.take(Unit::Entries(*inode));
                residency.put(Unit::Inode(*inode), stamp, ABSENT_BYTES);
            }
            Change::Touch { .. }
            | Change::DirAttrs { .. }
            | Change::Contents(_)
            | Change::Client(_)
            | Change::Txn(_) => {}
        }
    }

    /// Takes a unit that is in memory into account; a directory's inode is no unit.
    fn mark(&mut self, unit: Unit, stamp: Transno) {
        let bytes = match (unit, self.inode(unit.number())) {
            (Unit::Inode(_), None) => ABSENT_BYTES,
            (Unit::Inode(_), Some(known)) => {
                let target_bytes = match &known.body {
                    Body::Directory(_) => return,
                    Body::File => 0,
                    Body::Symlink(target) => PART_BYTES + target.len(),
                };
                let xattrs = known.xattrs.iter();
                let xattr_bytes = xattrs.map(|(name, value)| PART_BYTES + name.len() + value.len());
                INODE_BYTES + target_bytes + xattr_bytes.sum::<usize>()
            }
            (Unit::Entries(_), known) => match known.map(|known| &known.body) {
                Some(Body::Directory(entries)) => entries.bytes(),
                Some(Body::File | Body::Symlink(_)) | None => return,
            },
        };
        if let Some(residency) = &mut self.residency {
            residency.put(unit, stamp, bytes);
        }
    }

    /// Whether a start takes this row of the cold store into memory. Inodes come before what hangs
    /// on them.
    pub(crate) fn keeps(&self, row: &Row<'_>) -> bool {
        if self.residency.is_none() {
            return true;
        }
        match *row {
            Row::Inode(row) => row.kind == FileKind::Directory || row.nlink == 0,
            Row::Target { inode, .. } | Row::Xattr { inode, .. } => self.inode(inode).is_some(),
            Row::Listing { .. } | Row::Dirent { .. } => false,
            Row::Orphan { .. }
            | Row::Session { .. }
            | Row::Slot { .. }
            | Row::Shard { .. }
            | Row::Object { .. }
            | Row::Evicted { .. }
            | Row::VbrFailed { .. }
            | Row::Store(_)
            | Row::Prepared { .. }
            | Row::Decided { .. } => true,
        }
    }

    /// Takes a row that a start has loaded into account.
    pub(crate) fn note_loaded(&mut self, row: &Row<'_>, before_count: usize) {
        let came = self.resident_count() > before_count;
        let Some(residency) = &mut self.residency else { return };
        match *row {
            Row::Inode(row) if row.kind == FileKind::Directory => {
                residency.bytes += if came { DIRECTORY_BYTES } else { 0 };
                self.chill(row.inode);
            }
            Row::Inode(row) => self.mark(Unit::Inode(row.inode), Transno(0)),
            Row::Target { inode, .. } | Row::Xattr { inode, .. } => {
                self.mark(Unit::Inode(inode), Transno(0));
            }
            Row::Shard { row, .. } => {
                residency.inode_count = row.inode_count;
                residency.cold_below = row.next_count;
            }
            Row::Listing { .. }
            | Row::Dirent { .. }
            | Row::Orphan { .. }
            | Row::Session { .. }
            | Row::Slot { .. }
            | Row::Object { .. }
            | Row::Evicted { .. }
            | Row::VbrFailed { .. }
            | Row::Store(_)
            | Row::Prepared { .. }
            | Row::Decided { .. } => {}
        }
    }

    /// From here on an operation needs what [`State::need`] says.
    pub(crate) fn begin_needs(&mut self) {
        if let Some(residency) = &mut self.residency {
            residency.needed.clear();
            residency.missing.clear();
        }
    }

    /// An operation needs this unit.
    pub(crate) fn need(&mut self, unit: Unit) {
        if self.residency.is_none() || unit.number().shard() != self.shard() {
            return;
        }
        let resident = self.is_resident(unit);
        let Some(residency) = &mut self.residency else { return };
        if let Some(mark) = residency.marks.get_mut(&unit) {
            mark.used = true;
        }
        residency.needed.push(unit);
        if !resident && !residency.missing.contains(&unit) {
            residency.missing.push(unit);
        }
    }

    /// An operation needs an entry and what it names.
    fn need_entry(&mut self, dir: InodeNo, name: &[u8]) {
        self.need(Unit::Inode(dir));
        self.need(Unit::Entries(dir));
        let Some(known) = self.inode(dir) else { return };
        let Body::Directory(entries) = &known.body else { return };
        let target = entries.get(self.seed, name);
        if let Some(target) = target.filter(|target| target.kind != FileKind::Directory) {
            self.need(Unit::Inode(target.inode));
        }
    }

    fn has_all(&self) -> bool {
        self.residency.as_ref().is_none_or(|residency| residency.missing.is_empty())
    }

    fn is_resident(&self, unit: Unit) -> bool {
        let Some(residency) = &self.residency else { return true };
        match (unit, self.inode(unit.number())) {
            (Unit::Inode(_), Some(_)) | (Unit::Entries(_), None) => true,
            (Unit::Inode(inode), None) => {
                inode.count() >= residency.cold_below || residency.marks.contains_key(&unit)
            }
            (Unit::Entries(_), Some(known)) => match &known.body {
                Body::Directory(entries) => !entries.is_cold(),
                Body::File | Body::Symlink(_) => true,
            },
        }
    }

    /// The entries of a directory are not in memory, if it has any.
    fn chill(&mut self, dir: InodeNo) {
        let Some(known) = self.inode_mut(dir) else { return };
        if let Body::Directory(entries) = &mut known.body {
            **entries = Directory::of_cold(known.row.entry_count > 0);
        }
    }

    fn fetch(&mut self, unit: Unit, row: &Row<'_>) -> Result<(), Fault> {
        let fits = match (*row, unit) {
            (Row::Inode(row), Unit::Inode(inode)) => {
                row.inode == inode && row.kind != FileKind::Directory
            }
            (Row::Target { inode: of, .. } | Row::Xattr { inode: of, .. }, Unit::Inode(inode)) => {
                of == inode
            }
            (Row::Listing { dir: of, .. }, Unit::Entries(dir)) => of == dir,
            _ => false,
        };
        if !fits {
            let number = unit.number().0;
            return Err(Fault::new("not the row that was asked for", 0).numbers(0_u64, number));
        }
        self.take_row(row)
    }

    fn fetched(&mut self, unit: Unit) {
        if let Unit::Entries(dir) = unit
            && let Some(known) = self.inode_mut(dir)
            && let Body::Directory(entries) = &mut known.body
        {
            entries.warm();
        }
        self.mark(unit, Transno(0));
    }

    /// Lets a unit go that the cold store has.
    fn evict(&mut self, unit: Unit) {
        match unit {
            Unit::Inode(inode) => {
                let there = self.inode(inode).is_some();
                self.remove_inode(inode);
                if let Some(residency) = self.residency.as_mut().filter(|_| there) {
                    residency.cold_below = residency.cold_below.max(inode.count() + 1);
                }
            }
            Unit::Entries(dir) => self.chill(dir),
        }
        if let Some(residency) = &mut self.residency {
            residency.take(unit);
        }
    }
}

impl Shard {
    /// Keeps about this many bytes of names in memory at most, from before the first row is loaded.
    /// Otherwise all of them.
    pub fn bound(&mut self, bytes_max: u64) {
        let inode_count = self.inode_count();
        self.state.residency = Some(Box::new(Residency {
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            bytes: 0,
            inode_count,
            cold_below: 0,
            checkpointed: Transno(0),
            floor: Transno(0),
            marks: BTreeMap::new(),
            hand: None,
            pins: BTreeMap::new(),
            needed: Vec::new(),
            missing: Vec::new(),
        }));
    }

    /// Gives another limit to a shard that has one.
    #[cfg(test)]
    pub(crate) fn bound_again(&mut self, bytes_max: u64) {
        if let Some(residency) = &mut self.state.residency {
            residency.bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        }
    }

    /// Bytes of names in memory, about; `None` for a shard that is not bounded.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let bytes = self.state.residency.as_ref()?.bytes;
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// What the last request that was answered `Busy` without a [`Shard::blocker`] has to wait for.
    #[must_use]
    pub fn missing(&self) -> &[Unit] {
        self.state.residency.as_ref().map_or(&[], |residency| residency.missing.as_slice())
    }

    /// All that the last request needed, as far as it is known without what is missing.
    #[must_use]
    pub fn needed(&self) -> &[Unit] {
        self.state.residency.as_ref().map_or(&[], |residency| residency.needed.as_slice())
    }

    /// Whether a unit is in memory, or known not to exist.
    #[must_use]
    pub fn is_resident(&self, unit: Unit) -> bool {
        self.state.is_resident(unit)
    }

    /// These units stay in memory, once they are there, until they are unpinned as often.
    pub fn pin(&mut self, units: &[Unit]) {
        let Some(residency) = &mut self.state.residency else { return };
        for unit in units {
            *residency.pins.entry(*unit).or_default() += 1;
        }
    }

    /// See [`Shard::pin`].
    pub fn unpin(&mut self, units: &[Unit]) {
        let Some(residency) = &mut self.state.residency else { return };
        for unit in units {
            if let Some(count) = residency.pins.get_mut(unit) {
                *count -= 1;
                if *count == 0 {
                    residency.pins.remove(unit);
                }
            }
        }
    }

    /// Takes over rows of a unit that was missing: an inode's all at once, entries in pieces. One
    /// that has come to be meanwhile stays as it is.
    ///
    /// # Errors
    /// [`Fault`] when they are not its rows.
    pub fn fetch(&mut self, unit: Unit, rows: &[Row<'_>]) -> Result<(), Fault> {
        if self.state.is_resident(unit) {
            return Ok(());
        }
        rows.iter().try_for_each(|row| self.state.fetch(unit, row))
    }

    /// Takes over one row of a unit that is missing, while nobody else is at work.
    ///
    /// # Errors
    /// [`Fault`] when it is not its row.
    pub fn fetch_row(&mut self, unit: Unit, row: &Row<'_>) -> Result<(), Fault> {
        self.state.fetch(unit, row)
    }

    /// All rows of a unit were taken over; there may have been none.
    pub fn fetched(&mut self, unit: Unit) {
        self.state.fetched(unit);
    }

    /// The cold store has everything up to this transaction.
    pub fn checkpointed(&mut self, transno: Transno) {
        if let Some(residency) = &mut self.state.residency {
            residency.checkpointed = residency.checkpointed.max(transno);
        }
    }

    /// Lets units go that were not used for the longest while there are too many, and looks at so
    /// many at most.
    pub fn shrink(&mut self, count_max: usize) {
        for _ in 0..count_max {
            let Some(residency) = &mut self.state.residency else { return };
            if residency.bytes <= residency.bytes_max {
                return;
            }
            let Some((unit, mark)) = residency.next() else { return };
            let stays = mark.used
                || mark.stamp > residency.checkpointed
                || residency.pins.contains_key(&unit);
            if !stays && !self.is_in_use(unit) {
                self.state.evict(unit);
            }
        }
    }

    fn is_in_use(&self, unit: Unit) -> bool {
        match unit {
            Unit::Inode(inode) => {
                self.locks.inode(inode, None).is_some()
                    || self.state.orphans.contains(&inode)
                    || self.handles.has_any(inode)
            }
            Unit::Entries(dir) => {
                self.locks.inode(dir, None).or_else(|| self.locks.entered(dir, None)).is_some()
            }
        }
    }

    /// Whether everything needed is in memory; otherwise [`Shard::missing`] says what is not.
    pub(crate) fn has(&mut self, needs: &Needs<'_>) -> bool {
        if self.state.residency.is_none() {
            return true;
        }
        self.state.begin_needs();
        needs.inodes().for_each(|inode| self.state.need(Unit::Inode(inode)));
        needs.listed().for_each(|dir| self.state.need(Unit::Entries(dir)));
        needs.entries().for_each(|(dir, name)| self.state.need_entry(dir, name.bytes()));
        self.state.has_all()
    }

    /// The same for what a coordinator wants.
    pub(crate) fn has_wanted(&mut self, wants: &[u8]) -> Result<bool, wire::Flaw> {
        if self.state.residency.is_none() {
            return Ok(true);
        }
        self.state.begin_needs();
        let mut from = Reader::new(wants);
        while from.left() > 0 {
            match from.read()? {
                Want::Inode(inode) => self.state.need(Unit::Inode(inode)),
                Want::Entry(dir, _) => {
                    self.state.need(Unit::Inode(dir));
                    self.state.need(Unit::Entries(dir));
                }
                Want::New(_) | Want::Topology | Want::Above { .. } => {}
            }
        }
        Ok(self.state.has_all())
    }

    /// The same for the changes of a record; what is none needs nothing.
    pub fn has_changed(&mut self, changes: &[u8]) -> bool {
        if self.state.residency.is_none() {
            return true;
        }
        self.state.begin_needs();
        for change in Changes::new(changes) {
            let Ok(change) = change else { break };
            match change {
                Change::Inode { row } => self.state.need(Unit::Inode(row.inode)),
                Change::Touch { inode, .. }
                | Change::DirAttrs { inode, .. }
                | Change::Symlink { inode, .. }
                | Change::Xattr { inode, .. }
                | Change::XattrGone { inode, .. }
                | Change::InodeGone { inode } => self.state.need(Unit::Inode(inode)),
                Change::Dirent { dir, name, inode, .. } => {
                    self.state.need_entry(dir, name.bytes());
                    self.state.need(Unit::Inode(inode));
                }
                Change::DirentGone { dir, name } => self.state.need_entry(dir, name.bytes()),
                Change::Contents(_) | Change::Client(_) | Change::Txn(_) => {}
            }
        }
        self.state.has_all()
    }

    /// The same for one inode.
    pub fn has_inode(&mut self, inode: InodeNo) -> bool {
        self.state.begin_needs();
        self.state.need(Unit::Inode(inode));
        self.state.has_all()
    }

    /// Redone changes may be older than others of this boot, and are recorded before the next.
    pub(crate) fn stamp_from(&mut self, floor: Transno) {
        if let Some(residency) = &mut self.state.residency {
            residency.floor = floor;
        }
    }
}
