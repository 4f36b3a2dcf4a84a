//! Paths of the inodes of findings.

use crate::mend::Place;
use crate::tally::Tally;
use disk::InodeRow;
use disk::rows::{Key, Range, Row};
use hashbrown::{HashMap, HashSet};
use store::{Reader, ScanControl, StoreError};
use wire::{InodeNo, Wire as _};

/// Most names of one inode that are reported.
pub(crate) const NAME_COUNT_MAX: usize = 16;
/// A path has no more names than this: directories that lie in themselves have no end.
const DEPTH_MAX: usize = 4096;

/// Paths of inodes.
pub(crate) type Names = HashMap<InodeNo, Vec<Vec<u8>>>;

/// Looks up.
pub(crate) struct Paths<'a> {
    reader: &'a Reader<'a>,
    /// What a check has seen of inodes; without them rows are believed.
    tallies: Option<&'a HashMap<InodeNo, Tally>>,
    /// Names of directories that were looked up.
    known: HashMap<InodeNo, Vec<u8>>,
}

impl<'a> Paths<'a> {
    pub(crate) fn new(reader: &'a Reader<'a>, tallies: &'a HashMap<InodeNo, Tally>) -> Self {
        Self { reader, tallies: Some(tallies), known: HashMap::new() }
    }

    /// By the parents that the rows of inodes have.
    pub(crate) fn of_rows(reader: &'a Reader<'a>) -> Self {
        Self { reader, tallies: None, known: HashMap::new() }
    }

    /// The names of some inodes, by one look at all entries.
    pub(crate) fn names_of(
        &self,
        inodes: &HashSet<InodeNo>,
    ) -> Result<HashMap<InodeNo, Vec<Place>>, StoreError> {
        let mut names: HashMap<InodeNo, Vec<Place>> = HashMap::new();
        if inodes.is_empty() {
            return Ok(names);
        }
        self.reader.scan(&Range::all_dirents(), |key, value| {
            if let Ok(Row::Dirent { dir, name, row }) = Row::decode(key, value)
                && inodes.contains(&row.inode)
            {
                let places = names.entry(row.inode).or_default();
                if places.len() < NAME_COUNT_MAX {
                    places.push(Place { dir, name: name.bytes().to_vec() });
                }
            }
            Ok(ScanControl::Continue)
        })?;
        Ok(names)
    }

    /// The paths of some inodes.
    pub(crate) fn paths_of(&mut self, inodes: &HashSet<InodeNo>) -> Result<Names, StoreError> {
        let mut names = Names::new();
        for (inode, places) in self.names_of(inodes)? {
            let paths = places.iter().map(|place| self.path(place)).collect::<Result<_, _>>()?;
            names.insert(inode, paths);
        }
        Ok(names)
    }

    /// The path of a name, as [`path_of`] has it.
    pub(crate) fn path(&mut self, place: &Place) -> Result<Vec<u8>, StoreError> {
        path_of(place, |dir| {
            let Some(within) = self.within(dir)? else { return Ok(None) };
            Ok(Some(Place { dir: within, name: self.name_in(within, dir)? }))
        })
    }

    /// The directory that another one is in.
    fn within(&self, dir: InodeNo) -> Result<Option<InodeNo>, StoreError> {
        if let Some(tallies) = self.tallies {
            return Ok(tallies.get(&dir).and_then(|tally| tally.within));
        }
        let row = self.reader.get(&Key::inode(dir))?;
        Ok(row.and_then(|value| InodeRow::decode_all(value).ok()).map(|row| row.parent))
    }

    /// What a directory calls another one.
    fn name_in(&mut self, dir: InodeNo, inode: InodeNo) -> Result<Vec<u8>, StoreError> {
        if let Some(name) = self.known.get(&inode) {
            return Ok(name.clone());
        }
        let mut found = b"?".to_vec();
        self.reader.scan(&Range::dirents(dir), |key, value| {
            if let Ok(Row::Dirent { name, row, .. }) = Row::decode(key, value)
                && row.inode == inode
            {
                found = name.bytes().to_vec();
                return Ok(ScanControl::Stop);
            }
            Ok(ScanControl::Continue)
        })?;
        self.known.insert(inode, found.clone());
        Ok(found)
    }
}

/// The path of a name, by the names of directories. What does not lie below the root begins with its topmost
/// inode: `#NUMBER`.
pub(crate) fn path_of<E>(
    place: &Place,
    mut name_of: impl FnMut(InodeNo) -> Result<Option<Place>, E>,
) -> Result<Vec<u8>, E> {
    let mut names = vec![place.name.clone()];
    let mut at = place.dir;
    let top = loop {
        if at == InodeNo::ROOT {
            break None;
        }
        let within = if names.len() < DEPTH_MAX { name_of(at)? } else { None };
        let Some(Place { dir, name }) = within else { break Some(at) };
        names.push(name);
        at = dir;
    };
    let mut path = top.map_or_else(Vec::new, |top| format!("#{:016x}", top.0).into_bytes());
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Ok(path)
}
