//! The check: several passes over the rows, each in the order of keys, and one over the objects.
//!
//! It keeps about 64 bytes of every inode in memory, nothing of entries and objects, and at most
//! [`FINDING_COUNT_MAX`] findings. Paths are looked up at the end, for findings only.
//!
//! ```text
//! prepared parts ─▶ pending changes          inodes ─▶ tallies    entries ─▶ names of each, listings
//! inodes again: counts against tallies       directories: up to the root    all other rows, objects
//! ```

use crate::finding::{Finding, Kind, Severity};
use crate::here::Here;
use crate::mend::{Mend, Place};
use crate::paths::Paths;
use crate::tally::Tally;
use disk::rows::{DirentRow, Key, Range, Row};
use disk::{Change, Changes};
use hashbrown::{HashMap, HashSet};
use std::path::Path;
use store::{Reader, ScanControl, StoreError, View};
use wire::{InodeNo, MapEpoch, ShardId, Term, Wire as _};

/// Most findings that are reported one by one; all are counted.
pub const FINDING_COUNT_MAX: usize = 100_000;

/// Takes what a check says while it runs.
pub trait Watch {
    /// A pass begins.
    fn pass(&mut self, name: &'static str);
    /// So many rows or objects more were looked at.
    fn looked(&mut self, count: u64);
}

/// What a check came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// Findings beyond that limit.
    pub unlisted_count: u64,
    /// Inodes that were looked at.
    pub inode_count: u64,
    /// Names.
    pub name_count: u64,
    /// Objects' files.
    pub object_count: u64,
    /// Names whose inodes are on servers whose stores were not named.
    pub elsewhere_count: u64,
    /// The epoch of the map of the last start; `None` if there was none, or it is not known.
    pub map_epoch: Option<MapEpoch>,
    /// The shards in order, each with the term of its last record; 0 without one.
    pub terms: Vec<(ShardId, Term)>,
    pub(crate) mends: Vec<Mend>,
}

impl Outcome {
    /// Puts findings that a program cannot mend before the others.
    pub(crate) fn put_first(&mut self, findings: Vec<Finding>) {
        let mends = findings.iter().map(|_| Mend::Leave);
        self.mends.splice(0..0, mends);
        self.findings.splice(0..0, findings);
    }
}

/// What is seen of a shard.
#[derive(Clone, Copy, Default)]
pub(crate) struct ShardTally {
    pub(crate) inode_count: u64,
    pub(crate) count_max: u64,
    pub(crate) version_max: u64,
    pub(crate) next_count: Option<u64>,
}

/// A finding before its paths are known.
pub(crate) struct Suspect {
    pub(crate) finding: Finding,
    pub(crate) at: Option<Place>,
    pub(crate) mend: Mend,
}

/// A check under way.
pub(crate) struct Walk<'a> {
    pub(crate) view: &'a View,
    pub(crate) reader: Reader<'a>,
    pub(crate) here: Here,
    pub(crate) tallies: HashMap<InodeNo, Tally>,
    pub(crate) shards: HashMap<ShardId, ShardTally>,
    /// What a change over several shards is in the middle of changing.
    pub(crate) in_flux: HashSet<InodeNo>,
    /// A client has a session, so it may bring back what it has changed.
    pub(crate) has_sessions: bool,
    /// Directories with a second name.
    pub(crate) named_twice: Vec<InodeNo>,
    pub(crate) suspects: Vec<Suspect>,
    pub(crate) outcome: Outcome,
    watch: &'a mut dyn Watch,
}

/// How far a check goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// Rows, and which objects there are and how long.
    Metadata,
    /// All contents besides, against their checksums: everything is read.
    Contents,
}

/// Checks a store.
///
/// # Errors
/// [`StoreError`] when the medium fails. What is wrong with the store is no error.
pub fn check(view: &View, depth: Depth, watch: &mut dyn Watch) -> Result<Outcome, StoreError> {
    check_part(view, depth, false, watch)
}

/// Checks stores of a cluster, of which the view [has all that are here](View::with_others); `is_whole`: there are
/// no others. What lies on others is not judged.
///
/// # Errors
/// As of [`check`].
pub fn check_part(
    view: &View,
    depth: Depth,
    is_whole: bool,
    watch: &mut dyn Watch,
) -> Result<Outcome, StoreError> {
    let mut walk = Walk {
        view,
        reader: view.reader(),
        here: Here::of(view, is_whole)?,
        tallies: HashMap::new(),
        shards: HashMap::new(),
        in_flux: HashSet::new(),
        has_sessions: false,
        named_twice: Vec::new(),
        suspects: Vec::new(),
        outcome: Outcome::default(),
        watch,
    };
    for fault in view.parts().filter_map(View::fault) {
        let path = fault.path().strip_prefix(view.path()).unwrap_or(fault.path());
        walk.find_file(Kind::LogDamage, path, fault.to_string());
    }
    walk.find_in_flux()?;
    walk.tally_inodes()?;
    walk.check_entries()?;
    walk.check_listings()?;
    walk.check_inodes()?;
    walk.check_directories()?;
    walk.check_rest()?;
    walk.check_objects(depth)?;
    walk.finish()
}

impl Walk<'_> {
    /// Begins a pass.
    pub(crate) fn pass(&mut self, name: &'static str) {
        self.watch.pass(name);
    }

    /// Counts what was looked at.
    pub(crate) fn looked(&mut self) {
        self.watch.looked(1);
    }

    /// Something is wrong with an inode.
    pub(crate) fn find(&mut self, kind: Kind, inode: InodeNo, (what, mend): (String, Mend)) {
        self.suspect(kind, (Some(inode), None), None, (what, mend));
    }

    /// Something is wrong with an entry.
    pub(crate) fn find_at(
        &mut self,
        kind: Kind,
        (place, inode): (Place, InodeNo),
        (what, mend): (String, Mend),
    ) {
        self.suspect(kind, (Some(inode), Some(place)), None, (what, mend));
    }

    /// Something is wrong with a file of the store.
    pub(crate) fn find_file(&mut self, kind: Kind, file: &Path, what: String) {
        self.suspect(kind, (None, None), Some(file), (what, Mend::Leave));
    }

    /// Something is wrong.
    pub(crate) fn suspect(
        &mut self,
        kind: Kind,
        (inode, at): (Option<InodeNo>, Option<Place>),
        file: Option<&Path>,
        (what, mend): (String, Mend),
    ) {
        let dir = at.as_ref().map(|place| place.dir);
        let is_in_flux = inode.into_iter().chain(dir).any(|inode| self.in_flux.contains(&inode));
        let severity = if is_in_flux { Severity::Info } else { kind.row().1 };
        if self.suspects.len() >= FINDING_COUNT_MAX {
            self.outcome.unlisted_count += 1;
            return;
        }
        let mend = if is_in_flux { Mend::Leave } else { mend };
        let file = file.map(Path::to_owned);
        let finding = Finding { kind, severity, paths: Vec::new(), inode, file, what };
        self.suspects.push(Suspect { finding, at, mend });
    }

    /// A row that does not decode.
    pub(crate) fn find_row(&mut self, key: &[u8], value: &[u8]) {
        let what = format!("key {}, {} bytes", hex::encode(key), value.len());
        self.suspect(
            Kind::RowDamage,
            (None, None),
            Some(Path::new("rows")),
            (what, Mend::DropRow(key.to_vec())),
        );
    }

    /// Looks at every row of a range; those that do not decode are findings.
    pub(crate) fn each_row(
        &mut self,
        range: &Range,
        mut feed: impl FnMut(&mut Self, &Row<'_>, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let view = self.view;
        let reader = view.reader();
        reader.scan(range, |key, value| {
            self.looked();
            match Row::decode(key, value) {
                Ok(row) => feed(self, &row, key)?,
                Err(_) => self.find_row(key, value),
            }
            Ok(ScanControl::Continue)
        })
    }

    /// What changes over several shards are in the middle of changing, and whether clients have sessions.
    fn find_in_flux(&mut self) -> Result<(), StoreError> {
        self.pass("transactions");
        let view = self.view;
        let reader = view.reader();
        let mut in_flux = HashSet::new();
        let mut has_sessions = false;
        reader.scan(&Range::start(), |key, value| {
            let row = Row::decode(key, value);
            has_sessions |= matches!(row, Ok(Row::Session { .. }));
            if let Ok(Row::Prepared { part, .. }) = row {
                for change in Changes::new(part).flatten() {
                    add_inodes(&change, &mut in_flux);
                    if let Change::DirentRemoved { dir, name, .. } = &change {
                        let row = reader.get(&Key::dirent(*dir, *name))?;
                        let row = row.and_then(|value| DirentRow::decode_all(value).ok());
                        in_flux.extend(row.map(|row| row.inode));
                    }
                }
            }
            Ok(ScanControl::Continue)
        })?;
        self.in_flux = in_flux;
        self.has_sessions = has_sessions;
        Ok(())
    }

    /// Finds the paths of what was found.
    fn finish(mut self) -> Result<Outcome, StoreError> {
        let suspects = std::mem::take(&mut self.suspects);
        let inodes = suspects.iter().filter(|suspect| suspect.at.is_none());
        let inodes: HashSet<InodeNo> = inodes.filter_map(|suspect| suspect.finding.inode).collect();
        let mut paths = Paths::new(&self.reader, &self.tallies);
        let names = paths.names_of(&inodes)?;
        let mut outcome = self.outcome;
        for Suspect { mut finding, at, mend } in suspects {
            let places = match (&at, finding.inode) {
                (Some(place), _) => std::slice::from_ref(place),
                (None, Some(InodeNo::ROOT)) => {
                    finding.paths.push(b"/".to_vec());
                    &[]
                }
                (None, Some(inode)) => names.get(&inode).map_or(&[][..], Vec::as_slice),
                (None, None) => &[],
            };
            for place in places {
                finding.paths.push(paths.path(place)?);
            }
            outcome.findings.push(finding);
            outcome.mends.push(mend);
        }
        Ok(outcome)
    }
}

/// The inodes that a change names.
fn add_inodes(change: &Change<'_>, to: &mut HashSet<InodeNo>) {
    match change {
        Change::Inode { row } => {
            to.insert(row.inode);
        }
        Change::Dirent { dir, inode, .. } => {
            to.extend([*dir, *inode]);
        }
        Change::DirentRemoved { dir, .. } => {
            to.insert(*dir);
        }
        Change::Touch { inode, .. }
        | Change::Symlink { inode, .. }
        | Change::Xattr { inode, .. }
        | Change::XattrRemoved { inode, .. }
        | Change::InodeRemoved { inode }
        | Change::DirAttrs { inode, .. }
        | Change::Accessed { inode, .. }
        | Change::Settled { inode, .. } => {
            to.insert(*inode);
        }
        Change::Contents(_) | Change::Client(_) | Change::Txn(_) | Change::Export(_) => {}
    }
}
