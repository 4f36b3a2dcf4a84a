//! The state of a shard and the one function that changes it.
//!
//! `apply` is called by transactions and by redo alike, so both always agree.

use crate::directory::{Directory, Target};
use crate::export::ExportTracking;
use crate::hash::NameKey;
use crate::inode::{Body, Inode};
use crate::inodes::Inodes;
use crate::removed_links::RemovedLinks;
use crate::residency::Residency;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use disk::rows::{Row, ShardRow};
use disk::{Change, Changes, Creation, Fault, InodeRow, TxnChange};
use wire::{InodeNo, Layout, Name, ShardId, Term, Transno};

/// Everything durable of a shard, in memory.
#[derive(Debug)]
pub(crate) struct State {
    shard: ShardId,
    pub(crate) name_key: NameKey,
    /// The layout of new files.
    layout: Layout,
    /// The most data shards that a file of each generation is spread over.
    part_counts: Vec<u16>,
    inodes: Inodes,
    /// Inodes without a name.
    pub(crate) orphans: BTreeSet<InodeNo>,
    pub(crate) removed_links: RemovedLinks,
    next_count: u64,
    /// No inode that is recorded has a count from this one on.
    made_below: u64,
    /// The first epoch of counts and the last count of the generation in use.
    generation_epoch: u64,
    count_max: u64,
    pub(crate) transno_last: Transno,
    /// State for export containment.
    pub(crate) export_tracking: ExportTracking,
    /// The accounting under a memory limit.
    pub(crate) residency: Option<Box<Residency>>,
}

impl State {
    const COUNT_EPOCH_SHIFT: u32 = 20;
    const COUNT_MAX: u64 = (1 << 48) - 1;
    const RESERVED_COUNT_MAX: u64 = 1 << (Self::COUNT_EPOCH_SHIFT - 1);

    /// A shard as created with its store: the first one has the root directory.
    pub(crate) fn new(shard: ShardId, made: Creation) -> Self {
        assert!(!shard.is_data(), "names live in metadata shards");
        let key = made.at_ns ^ u64::from(shard.0);
        let mut state = Self {
            shard,
            name_key: NameKey::new(key),
            layout: made.layout,
            part_counts: Vec::new(),
            inodes: Inodes::new(key),
            orphans: BTreeSet::new(),
            removed_links: RemovedLinks::default(),
            next_count: 1,
            made_below: 1,
            generation_epoch: 0,
            count_max: Self::COUNT_MAX,
            transno_last: Transno(0),
            export_tracking: ExportTracking::default(),
            residency: None,
        };
        if InodeNo::ROOT.shard() == shard {
            state.put_inode(&InodeRow::root(made));
        }
        state
    }

    /// The layout of a new file of a generation; `wanted`: that of its directory.
    pub(crate) fn layout(&self, wanted: Option<Layout>, generation: u8) -> Layout {
        let of_generation = self.part_counts.get(usize::from(generation));
        let part_count_max = of_generation.or(self.part_counts.last()).copied().unwrap_or(1);
        self.layout_over(wanted, part_count_max)
    }

    /// The layout of a new file with a number that was reserved before: its client knows that it is at
    /// one data shard.
    pub(crate) fn layout_behind(&self, inode: InodeNo) -> Layout {
        if self.layout.is_spread() {
            return self.layout_over(None, 1);
        }
        self.layout(None, inode.generation())
    }

    fn layout_over(&self, wanted: Option<Layout>, part_count_max: u16) -> Layout {
        let wanted = wanted.unwrap_or(self.layout);
        let stripe_count = wanted.stripe_count.clamp(1, part_count_max.max(1));
        match stripe_count {
            // One data shard needs no small stripes.
            1 if self.layout.may_spread() => Layout::DEFAULT,
            1 => self.layout,
            _ => Layout { stripe_count, ..wanted },
        }
    }

    pub(crate) fn set_part_counts(&mut self, part_counts: Vec<u16>) {
        self.part_counts = part_counts;
    }

    pub(crate) fn inode(&self, inode: InodeNo) -> Option<&Inode> {
        self.inodes.get(inode)
    }

    /// A directory's row and those of its entries that are in memory.
    pub(crate) fn entries(&self, dir: InodeNo) -> Option<(&InodeRow, &Directory)> {
        let known = self.inode(dir)?;
        match &known.body {
            Body::Directory(entries) => Some((&known.row, entries)),
            Body::File | Body::Symlink(_) | Body::Special => None,
        }
    }

    pub(crate) fn hash_names_by(&mut self, key: u64) {
        let has_names = self.entries(InodeNo::ROOT).is_some_and(|(_, entries)| entries.count() > 0);
        assert!(!has_names, "known names have the hash of another key");
        self.name_key = NameKey::new(key);
    }

    /// An entry in memory.
    pub(crate) fn entry(&self, dir: InodeNo, name: &[u8]) -> Option<Target> {
        self.entries(dir)?.1.get(self.name_key.hashed(name))
    }

    /// Removes an entry from memory.
    pub(crate) fn forget_entry(&mut self, dir: InodeNo, name: &[u8]) {
        let name = self.name_key.hashed(name);
        if let Some(Inode { body: Body::Directory(entries), .. }) = self.inodes.get_mut(dir) {
            entries.remove(name);
        }
    }

    /// Removes an inode from memory.
    pub(crate) fn forget_inode(&mut self, inode: InodeNo) {
        self.inodes.remove(inode);
    }

    /// Inodes in memory.
    pub(crate) const fn resident_count(&self) -> usize {
        self.inodes.count()
    }

    pub(crate) const fn shard(&self) -> ShardId {
        self.shard
    }

    /// The number of the next new inode, while there are any left.
    pub(crate) fn next_inode(&self) -> Option<InodeNo> {
        let left = self.next_count <= self.count_max;
        left.then(|| InodeNo::new(self.shard.index(), self.next_count))
    }

    /// New inodes are of this generation, while the shard has counts of it left. They begin where a term of this generation does, so that a term without a trace used others.
    pub(crate) fn use_generation(&mut self, generation: u8) {
        let counts = InodeNo::counts_of(generation);
        self.generation_epoch = counts.start() >> Self::COUNT_EPOCH_SHIFT;
        let term_epoch = self.generation_epoch + self.transno_last.upper().saturating_mul(2);
        self.next_count = self.next_count.max(term_epoch << Self::COUNT_EPOCH_SHIFT);
        self.made_below = self.next_count;
        self.count_max = *counts.end();
    }

    /// Reserves the next inode's number: it is never assigned again, in this boot or later.
    pub(crate) fn reserve_inode(&mut self) -> Option<InodeNo> {
        let inode = self.next_inode()?;
        self.next_count += 1;
        Some(inode)
    }

    /// Reserves consecutive numbers likewise. The term before may have lost what it had reserved, and
    /// the next one begins an epoch behind what is recorded: so at most half an epoch is reserved.
    pub(crate) fn reserve_inodes(&mut self, count: u32) -> Option<InodeNo> {
        let first = self.next_inode()?;
        let behind_last = self.next_count + u64::from(count);
        let is_free = behind_last <= self.count_max + 1;
        if !is_free || behind_last - self.made_below > Self::RESERVED_COUNT_MAX {
            return None;
        }
        self.next_count = behind_last;
        Some(first)
    }

    /// Whether all these numbers are of this shard and may have been given before this term began.
    pub(crate) fn may_have_given(&self, first: InodeNo, count: u32) -> bool {
        let (first_count, behind_last) = (first.count(), first.count() + u64::from(count));
        first.shard() == self.shard
            && (1..behind_last).contains(&first_count)
            && behind_last <= self.next_count
            && *InodeNo::counts_of(first.generation()).end() >= behind_last - 1
    }

    pub(crate) const fn next_transno(&self) -> Transno {
        Transno(self.transno_last.0 + 1)
    }

    /// Skips every number that an earlier term may have assigned and lost: clients may have seen
    /// them. A transno's upper half is at least the term that assigned it, so the distance to this
    /// term bounds the number of terms without a trace; each of them began two epochs of inode
    /// counts behind the one before. A term with a trace need not have left an inode: so no term
    /// begins below its own two epochs.
    pub(crate) fn start_term(&mut self, term: Term) {
        let epoch_last = self.transno_last.upper();
        self.transno_last = Transno::at_start(self.transno_last, term);
        let epoch = self.transno_last.upper();
        let behind_last =
            (self.next_count >> Self::COUNT_EPOCH_SHIFT) + (epoch - epoch_last).saturating_mul(2);
        let count_epoch = behind_last.max(self.generation_epoch + epoch.saturating_mul(2));
        self.next_count = count_epoch << Self::COUNT_EPOCH_SHIFT;
        self.made_below = self.next_count;
    }

    /// The version that a change replaces, 0 for a missing object; `None` for a change without
    /// version.
    pub(crate) fn version_before(&self, change: &Change<'_>) -> Option<Transno> {
        let row = |inode: InodeNo| self.inode(inode).map(|known| known.row.version);
        let version = match change {
            Change::Inode { row: new } => row(new.inode),
            Change::DirAttrs { inode, .. } | Change::InodeRemoved { inode } => row(*inode),
            Change::Dirent { dir, name, .. } | Change::DirentRemoved { dir, name } => {
                self.entry(*dir, name.bytes()).map(|target| target.version)
            }
            Change::Touch { .. }
            | Change::Accessed { .. }
            | Change::Settled { .. }
            | Change::Symlink { .. }
            | Change::Xattr { .. }
            | Change::XattrRemoved { .. }
            | Change::Contents(_)
            | Change::Client(_)
            | Change::Txn(_)
            | Change::Export(_) => return None,
        };
        Some(version.unwrap_or(Transno(0)))
    }

    /// Applies one change of transaction `transno`.
    pub(crate) fn apply(&mut self, transno: Transno, change: &Change<'_>) -> Result<(), Fault> {
        let before_count = self.resident_count();
        self.make(transno, change)?;
        self.account_for(transno, change, before_count);
        Ok(())
    }

    fn make(&mut self, transno: Transno, change: &Change<'_>) -> Result<(), Fault> {
        match change {
            Change::Inode { row } => {
                self.check_row(row)?;
                self.export_tracking
                    .changes(self.inodes.get(row.inode).map(|known| &known.row), row);
                self.put_inode(row);
            }
            Change::Touch { inode, .. }
            | Change::DirAttrs { inode, .. }
            | Change::Accessed { inode, .. }
            | Change::Settled { inode, .. } => {
                let row = &mut self.known(*inode)?.row;
                let parent = row.parent;
                row.redo(transno, change)?;
                let moved = row.parent != parent;
                self.export_tracking.moved |= moved;
                if matches!(change, Change::DirAttrs { .. }) {
                    self.export_tracking.touch(*inode);
                }
            }
            Change::Dirent { dir, name, cookie, inode, kind, version } => {
                let (cookie, inode, kind, version) = (*cookie, *inode, *kind, *version);
                self.put_entry(*dir, *name, Target { cookie, inode, kind, version })?;
            }
            Change::DirentRemoved { dir, name } => {
                let name = self.name_key.hashed(name.bytes());
                self.directory(*dir)?.1.remove(name);
            }
            Change::Symlink { inode, target } => match &mut self.known(*inode)?.body {
                Body::Symlink(old) => *old = target.0.into(),
                Body::File | Body::Directory(_) | Body::Special => return Err(wrong_kind(*inode)),
            },
            Change::Xattr { inode, name, value } => {
                self.known(*inode)?.xattrs.insert(name.0.into(), value.0.into());
                self.export_tracking.touch(*inode);
            }
            Change::XattrRemoved { inode, name } => {
                self.known(*inode)?.xattrs.remove(name.0);
                self.export_tracking.touch(*inode);
            }
            Change::InodeRemoved { inode } => {
                if let Some(Inode { body: Body::Symlink(target), .. }) = self.inodes.remove(*inode)
                {
                    self.removed_links.add(*inode, target);
                }
                self.orphans.remove(inode);
                self.export_tracking.unname(*inode);
                self.export_tracking.touch(*inode);
            }
            // For the lane.
            Change::Txn(TxnChange::Prepared { part, .. }) => self.keep_places(part.0)?,
            Change::Client(_)
            | Change::Export(_)
            | Change::Txn(
                TxnChange::Decided { .. }
                | TxnChange::Done { .. }
                | TxnChange::Aborted { .. }
                | TxnChange::Forgotten { .. },
            ) => {}
            Change::Contents(change) => {
                return Err(Fault::new("a change of contents in a metadata shard", 0)
                    .numbers(0_u64, change.inode().0));
            }
        }
        Ok(())
    }

    /// Loads a row, if a start needs it in memory.
    pub(crate) fn load(&mut self, row: &Row<'_>) -> Result<(), Fault> {
        if self.keeps(row) {
            let before_count = self.resident_count();
            self.take_row(row)?;
            self.account_for_loaded(row, before_count);
        }
        Ok(())
    }

    /// Loads a row.
    pub(crate) fn take_row(&mut self, row: &Row<'_>) -> Result<(), Fault> {
        match *row {
            Row::Inode(row) => {
                self.check_row(&row)?;
                self.put_inode(&row);
            }
            Row::Target { inode, target } => match &mut self.known(inode)?.body {
                Body::Symlink(old) => *old = target.into(),
                Body::File | Body::Directory(_) | Body::Special => return Err(wrong_kind(inode)),
            },
            Row::Xattr { inode, name, value } => {
                self.known(inode)?.xattrs.insert(name.into(), value.into());
            }
            Row::Listing { dir, name, row } => {
                self.put_entry(dir, name, row)?;
            }
            Row::Orphan { inode } => {
                self.orphans.insert(inode);
            }
            Row::Shard { row, .. } => self.load_numbers(&row),
            // Redundant with a listing's row, or for the lane.
            Row::Dirent { .. }
            | Row::Session { .. }
            | Row::Slot { .. }
            | Row::Object { .. }
            | Row::Sums { .. }
            | Row::Stripe { .. }
            | Row::Evicted { .. }
            | Row::EvictedLast { .. }
            | Row::Recovered { .. }
            | Row::VbrFailed { .. }
            | Row::Store(_)
            | Row::Log { .. }
            | Row::Prepared { .. }
            | Row::Decided { .. }
            | Row::Export(_) => {}
        }
        Ok(())
    }

    fn load_numbers(&mut self, row: &ShardRow) {
        self.transno_last = self.transno_last.max(row.transno);
        self.next_count = self.next_count.max(row.next_count);
    }

    /// Checks that a row from the medium matches the shard and the inode's kind.
    fn check_row(&self, row: &InodeRow) -> Result<(), Fault> {
        if row.inode.shard() != self.shard || row.inode.count() == 0 {
            return Err(Fault::new("redo names an inode of another shard", 0)
                .numbers(u64::from(self.shard.0), row.inode.0));
        }
        let other = self.inodes.get(row.inode).is_some_and(|known| known.row.kind != row.kind);
        if other { Err(wrong_kind(row.inode)) } else { Ok(()) }
    }

    fn put_inode(&mut self, row: &InodeRow) {
        if row.nlink == 0 {
            self.orphans.insert(row.inode);
        } else {
            self.orphans.remove(&row.inode);
        }
        self.made_below = self.made_below.max(row.inode.count() + 1);
        self.next_count = self.next_count.max(self.made_below);
        if let Some(known) = self.inodes.get_mut(row.inode) {
            known.row = *row;
            return;
        }
        let (body, xattrs) = (Body::new(row.kind), BTreeMap::new());
        self.inodes.insert(row.inode, Inode { row: *row, body, xattrs });
    }

    pub(crate) fn put_entry(
        &mut self,
        dir: InodeNo,
        name: Name<'_>,
        target: Target,
    ) -> Result<(), Fault> {
        let name = self.name_key.hashed(name.bytes());
        let (row, directory) = self.directory(dir)?;
        let fault =
            || Fault::new("redo puts two names at one place", 0).numbers(target.cookie, dir.0);
        let behind = target.cookie.checked_add(1).ok_or_else(fault)?;
        if !directory.put(name, target) {
            return Err(fault());
        }
        row.next_cookie = row.next_cookie.max(behind);
        Ok(())
    }

    /// Reserves the cookies of prepared entries, whatever becomes of them.
    fn keep_places(&mut self, part: &[u8]) -> Result<(), Fault> {
        for change in Changes::new(part) {
            if let Change::Dirent { dir, cookie, .. } = change? {
                let (row, _) = self.directory(dir)?;
                row.next_cookie = row.next_cookie.max(cookie.saturating_add(1));
            }
        }
        Ok(())
    }

    fn known(&mut self, inode: InodeNo) -> Result<&mut Inode, Fault> {
        self.inodes.get_mut(inode).ok_or_else(|| {
            Fault::new("redo names an inode that does not exist", 0).numbers(0_u64, inode.0)
        })
    }

    fn directory(&mut self, dir: InodeNo) -> Result<(&mut InodeRow, &mut Directory), Fault> {
        let known = self.known(dir)?;
        match &mut known.body {
            Body::Directory(directory) => Ok((&mut known.row, directory)),
            Body::File | Body::Symlink(_) | Body::Special => Err(wrong_kind(dir)),
        }
    }
}

#[cfg(test)]
impl State {
    /// Everything durable, in a fixed order.
    pub(crate) fn dump(&self) -> alloc::vec::Vec<alloc::string::String> {
        let mut lines: alloc::vec::Vec<_> = self
            .inodes
            .iter()
            .map(|known| {
                let body = match &known.body {
                    Body::File | Body::Special => alloc::string::String::new(),
                    Body::Directory(entries) => {
                        alloc::format!("{:?}", entries.after(0).collect::<alloc::vec::Vec<_>>())
                    }
                    Body::Symlink(target) => alloc::format!("{target:?}"),
                };
                alloc::format!(
                    "{:020} {:?} {body} {:?}",
                    known.row.inode.0,
                    known.row,
                    known.xattrs
                )
            })
            .collect();
        lines.sort();
        lines.push(alloc::format!("{:?}", self.orphans));
        lines
    }

    /// The next numbers.
    pub(crate) const fn numbers(&self) -> (u64, Transno) {
        (self.next_count, self.transno_last)
    }
}

fn wrong_kind(inode: InodeNo) -> Fault {
    Fault::new("redo takes an inode for another kind", 0).numbers(0_u64, inode.0)
}
