//! Merges fetched rows under the state in memory.

use super::Residency;
use super::unit::{LISTED_COUNT_MAX, Unit};
use crate::directory::Target;
use crate::shard::Shard;
use crate::state::State;
use alloc::boxed::Box;
use alloc::vec::Vec;
use disk::Fault;
use disk::rows::Row;
use wire::{InodeNo, Name, Transno};

/// The next entries of a directory behind a cookie, as the rows had them: entries that changed
/// since are in memory.
#[derive(Debug)]
pub(super) struct ListingWindow {
    /// The transaction that the rows had for certain by then.
    floor: Transno,
    rows: Vec<(Box<[u8]>, Target)>,
    /// The last cookie that it covers.
    until: u64,
    bytes: usize,
}

impl ListingWindow {
    fn new(floor: Transno, rows: &[Row<'_>]) -> Self {
        let mut window = Self { floor, rows: Vec::new(), until: u64::MAX, bytes: 0 };
        for row in rows {
            let Row::Listing { name, row, .. } = row else { continue };
            window.rows.push((name.bytes().into(), *row));
            window.bytes += size_of::<(Box<[u8]>, Target)>() + name.bytes().len();
        }
        if rows.len() >= usize::from(LISTED_COUNT_MAX) {
            window.until = window.rows.last().map_or(u64::MAX, |(_, last)| last.cookie);
        }
        window
    }
}

impl Residency {
    /// A unit that the rows had by this transaction is in the results of all reads in flight.
    pub(super) fn settled(&self) -> Transno {
        let windows = self.windows.values().map(|window| window.floor);
        let floors = self.in_flight.values().copied().chain(windows);
        floors.fold(self.checkpointed, Transno::min)
    }

    fn open_window(&mut self, unit: &Unit, window: ListingWindow) {
        if let Unit::Listing(dir, cookie) = unit
            && self.pins.contains_key(unit)
        {
            self.bytes += window.bytes;
            let before = self.windows.insert((*dir, *cookie), window);
            self.bytes -= before.map_or(0, |before| before.bytes);
        }
    }

    pub(super) fn close_window(&mut self, unit: &Unit) {
        if let Unit::Listing(dir, cookie) = unit
            && let Some(window) = self.windows.remove(&(*dir, *cookie))
        {
            self.bytes -= window.bytes;
        }
    }
}

impl State {
    /// The entries of a directory behind a cookie, ordered by cookie, and the last cookie up to
    /// which they are complete.
    pub(crate) fn listed(
        &self,
        dir: InodeNo,
        cookie: u64,
    ) -> (impl Iterator<Item = (&[u8], Target)>, u64) {
        let window = self.residency.as_ref().filter(|_| !self.is_whole(dir));
        let window = window.and_then(|residency| residency.windows.get(&(dir, cookie)));
        let (rows, until) = match window {
            Some(window) => (window.rows.as_slice(), window.until),
            None if self.is_resident(&Unit::Listing(dir, cookie)) => (&[][..], u64::MAX),
            None => (&[][..], cookie),
        };
        let here = self.entries(dir).map(|(_, entries)| entries.after(cookie));
        let here = here.into_iter().flatten().take_while(move |(_, at)| at.cookie <= until);
        let unknown = move |row: &&(Box<[u8]>, Target)| !self.is_entry_known(dir, &row.0);
        let (mut rows, mut here) = (rows.iter().filter(unknown).peekable(), here.peekable());
        let merged = core::iter::from_fn(move || {
            let from_rows = match (rows.peek(), here.peek()) {
                (Some((_, row)), Some((_, target))) => row.cookie < target.cookie,
                (row, _) => row.is_some(),
            };
            if from_rows { rows.next().map(|(name, row)| (&**name, *row)) } else { here.next() }
        });
        (merged, until)
    }

    fn fetch(&mut self, unit: &Unit, row: &Row<'_>) -> Result<(), Fault> {
        match (*row, unit) {
            (Row::Inode(row), Unit::Inode(inode)) if row.inode == *inode => {}
            (Row::Target { inode: of, .. } | Row::Xattr { inode: of, .. }, Unit::Inode(inode))
                if of == *inode => {}
            (Row::Dirent { dir, name, row }, Unit::Entry(of, wanted))
                if dir == *of && *name.bytes() == **wanted =>
            {
                return self.lay(dir, name, (row, true));
            }
            (Row::Listing { dir, name, row }, Unit::Listing(of, _)) if dir == *of => {
                return self.lay(dir, name, (row, false));
            }
            _ => {
                let fault = Fault::new("not the row that was asked for", 0);
                return Err(fault.numbers(0_u64, unit.number().0));
            }
        }
        self.take_row(row)
    }

    /// Adds a fetched entry unless its name is known in memory.
    fn lay(
        &mut self,
        dir: InodeNo,
        name: Name<'_>,
        (target, used): (Target, bool),
    ) -> Result<(), Fault> {
        if self.is_entry_known(dir, name.bytes()) {
            return Ok(());
        }
        self.put_entry(dir, name, target)?;
        self.account_entry(dir, name.bytes(), (Transno(0), used));
        Ok(())
    }

    fn fetched(&mut self, unit: &Unit) {
        match unit {
            Unit::Inode(inode) => self.account_inode(*inode, Transno(0)),
            Unit::Entry(dir, name) => self.account_entry(*dir, name, (Transno(0), true)),
            Unit::Listing(..) => {}
        }
    }
}

impl Shard {
    /// Begins the only read of this unit in flight.
    pub fn begin_fetch(&mut self, unit: &Unit) {
        let Some(residency) = &mut self.state.residency else { return };
        let before = residency.in_flight.insert(unit.clone(), residency.checkpointed);
        assert!(before.is_none(), "a unit is read once at a time");
    }

    /// Ends a failed read.
    pub fn fetch_failed(&mut self, unit: &Unit) {
        if let Some(residency) = &mut self.state.residency {
            residency.in_flight.remove(unit);
        }
    }

    /// Ends a read with these rows, in the order of their keys; units that are in memory meanwhile
    /// take precedence.
    ///
    /// # Errors
    /// [`Fault`] when they are not its rows.
    pub fn fetch(&mut self, unit: &Unit, rows: &[Row<'_>]) -> Result<(), Fault> {
        let Some(residency) = &mut self.state.residency else { return Ok(()) };
        let Some(floor) = residency.in_flight.remove(unit) else { return Ok(()) };
        if !self.state.is_resident(unit) {
            rows.iter().try_for_each(|row| self.state.fetch(unit, row))?;
            self.state.fetched(unit);
            if let Some(residency) = &mut self.state.residency {
                residency.open_window(unit, ListingWindow::new(floor, rows));
            }
        }
        Ok(())
    }

    /// Loads one row of a missing unit, at a start without other work.
    ///
    /// # Errors
    /// [`Fault`] when it is not its row.
    pub fn fetch_row(&mut self, unit: &Unit, row: &Row<'_>) -> Result<(), Fault> {
        self.state.fetch(unit, row)
    }

    /// All rows of a unit, possibly none, were loaded.
    pub fn finish_fetch(&mut self, unit: &Unit) {
        self.state.fetched(unit);
    }
}
