//! The units that an operation needs, and those missing in memory.

use super::Unit;
use crate::multi_shard::Requirement;
use crate::needs::Needs;
use crate::shard::Shard;
use crate::state::State;
use disk::{Change, Changes};
use wire::{FileKind, InodeNo, Reader};

impl State {
    /// Begins an operation whose units [`State::need`] adds.
    pub(crate) fn begin_needs(&mut self) {
        if let Some(residency) = &mut self.residency {
            residency.needed.clear();
            residency.missing.clear();
        }
    }

    /// Adds a unit that the operation needs.
    pub(crate) fn need(&mut self, unit: Unit) {
        if self.residency.is_none() || unit.shard() != self.shard() {
            return;
        }
        let resident = self.is_resident(&unit);
        let Some(residency) = &mut self.residency else { return };
        if let Some(unit_state) = residency.units.get_mut(&unit) {
            unit_state.used = true;
        }
        if !resident && !residency.missing.contains(&unit) {
            residency.missing.push(unit.clone());
        }
        residency.needed.push(unit);
    }

    /// Adds an entry and the inode it names.
    fn need_entry(&mut self, dir: InodeNo, name: &[u8]) {
        self.need(Unit::Inode(dir));
        self.need(Unit::entry(dir, name));
        if let Some(target) =
            self.entry(dir, name).filter(|target| target.kind != FileKind::Directory)
        {
            self.need(Unit::Inode(target.inode));
        }
    }

    /// Adds the owner of a cookie that the operation assigns to an entry.
    fn need_place(&mut self, dir: InodeNo, name: &[u8], cookie: u64) {
        if self.entry(dir, name).is_none_or(|target| target.cookie != cookie) {
            self.need(Unit::Listing(dir, cookie.saturating_sub(1)));
        }
    }

    /// Whether all needed units are in memory.
    pub(crate) fn has_all(&self) -> bool {
        self.residency.as_ref().is_none_or(|residency| residency.missing.is_empty())
    }

    pub(crate) fn is_resident(&self, unit: &Unit) -> bool {
        let Some(residency) = &self.residency else { return true };
        match unit {
            Unit::Inode(inode) => {
                self.inode(*inode).is_some()
                    || inode.count() >= residency.on_disk_below
                    || residency.units.contains_key(unit)
            }
            Unit::Entry(dir, name) => self.is_whole(*dir) || self.is_entry_known(*dir, name),
            Unit::Listing(dir, cookie) => {
                let next = cookie.saturating_add(1);
                let is_last = self.entries(*dir).is_some_and(|(row, _)| row.next_cookie <= next);
                is_last || self.is_whole(*dir) || residency.windows.contains_key(&(*dir, *cookie))
            }
        }
    }

    /// Whether all entries of a directory are in memory; true for a missing directory.
    pub(super) fn is_whole(&self, dir: InodeNo) -> bool {
        self.entries(dir).is_none_or(|(row, entries)| {
            u64::try_from(entries.count()).is_ok_and(|count| count == row.entry_count)
        })
    }

    /// Whether an entry is in memory or known to be absent, by its own unit.
    pub(super) fn is_entry_known(&self, dir: InodeNo, name: &[u8]) -> bool {
        let here = self.entry(dir, name);
        let Some(residency) = &self.residency else { return true };
        here.is_some() || residency.units.contains_key(&Unit::entry(dir, name))
    }
}

impl Shard {
    /// The units that the last request answered `Busy` without a [`Shard::blocker`] must wait for.
    #[must_use]
    pub fn missing(&self) -> &[Unit] {
        self.state.residency.as_ref().map_or(&[], |residency| residency.missing.as_slice())
    }

    /// All units that the last request needed, as far as known without the missing ones.
    #[must_use]
    pub fn needed(&self) -> &[Unit] {
        self.state.residency.as_ref().map_or(&[], |residency| residency.needed.as_slice())
    }

    /// Whether a unit is in memory or known to be absent.
    #[must_use]
    pub fn is_resident(&self, unit: &Unit) -> bool {
        self.state.is_resident(unit)
    }

    /// Whether everything needed is in memory; otherwise [`Shard::missing`] has the rest.
    pub(crate) fn has(&mut self, needs: &Needs<'_>) -> bool {
        if self.state.residency.is_none() {
            return true;
        }
        self.state.begin_needs();
        needs.inodes().for_each(|inode| self.state.need(Unit::Inode(inode)));
        needs.listed().for_each(|(dir, cookie)| self.state.need(Unit::Listing(dir, cookie)));
        needs.entries().for_each(|(dir, name)| self.state.need_entry(dir, name.bytes()));
        self.state.has_all()
    }

    /// The same for a coordinator's requirements.
    pub(crate) fn has_required(&mut self, requirements: &[u8]) -> Result<bool, wire::DecodeError> {
        if self.state.residency.is_none() {
            return Ok(true);
        }
        self.state.begin_needs();
        let mut from = Reader::new(requirements);
        while from.left() > 0 {
            match from.read()? {
                Requirement::Inode(inode) => self.state.need(Unit::Inode(inode)),
                Requirement::Entry(dir, name) => {
                    self.state.need(Unit::Inode(dir));
                    self.state.need(Unit::Entry(dir, name));
                }
                Requirement::New(_) | Requirement::Topology | Requirement::Ancestor { .. } => {}
            }
        }
        Ok(self.state.has_all())
    }

    /// The same for the changes of a record to be applied; invalid changes need nothing.
    pub fn has_changed(&mut self, changes: &[u8]) -> bool {
        self.state.begin_needs();
        self.need_changed(changes, |_, _, _, _| {});
        self.state.has_all()
    }

    /// The same for a record to be checked by [`Shard::fits`].
    pub fn has_to_fit(&mut self, changes: &[u8]) -> bool {
        self.state.begin_needs();
        self.need_changed(changes, State::need_place);
        self.state.has_all()
    }

    fn need_changed(
        &mut self,
        changes: &[u8],
        need_place: impl Fn(&mut State, InodeNo, &[u8], u64),
    ) {
        if self.state.residency.is_none() {
            return;
        }
        for change in Changes::new(changes) {
            let Ok(change) = change else { break };
            match change {
                Change::Inode { row } => self.state.need(Unit::Inode(row.inode)),
                Change::Touch { inode, .. }
                | Change::DirAttrs { inode, .. }
                | Change::Accessed { inode, .. }
                | Change::Settled { inode, .. }
                | Change::Symlink { inode, .. }
                | Change::Xattr { inode, .. }
                | Change::XattrRemoved { inode, .. }
                | Change::InodeRemoved { inode } => self.state.need(Unit::Inode(inode)),
                Change::Dirent { dir, name, cookie, inode, .. } => {
                    self.state.need_entry(dir, name.bytes());
                    self.state.need(Unit::Inode(inode));
                    need_place(&mut self.state, dir, name.bytes(), cookie);
                }
                Change::DirentRemoved { dir, name } => self.state.need_entry(dir, name.bytes()),
                Change::Contents(_) | Change::Client(_) | Change::Txn(_) | Change::Export(_) => {}
            }
        }
    }

    /// The same for one inode.
    pub fn has_inode(&mut self, inode: InodeNo) -> bool {
        self.state.begin_needs();
        self.state.need(Unit::Inode(inode));
        self.state.has_all()
    }
}
