//! A repair: rounds of a check and of repairs of its findings, until nothing repairable is left.
//!
//! First a damaged file of rows is replaced by a new one from its readable rows, and the logs are applied to
//! the rows, as in a server's start. Each round then writes a report, moves objects aside and changes the
//! rows in one transaction. Invariants: the report has each change, with the bytes before it, durably before
//! the change; a killed repair leaves a store that the next repair, or a server, opens.

use crate::edits::{Edits, Rows};
use crate::finding::Finding;
use crate::mend::Mend;
use crate::salvaged::{rows_findings, rows_lost};
use crate::walk::{Depth, Outcome, Watch, check};
use serde::Serialize;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use store::{OBJECTS, ObjectName, QUARANTINE, RowStore, SalvageStep, Store, StoreError};

/// Rounds until a repair gives up: each one mends what the one before left or brought to light.
const ROUND_COUNT_MAX: usize = 16;

/// What a repair came to.
#[derive(Debug)]
pub struct Repaired {
    /// What was mended.
    pub mended: Vec<Finding>,
    /// What is still wrong.
    pub left: Outcome,
    /// What was changed, with what was there before; `None` if nothing was.
    pub report: Option<PathBuf>,
}

/// A step of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// New rows are made anew, before anything else.
    Salvaged(SalvageStep),
    /// The report has what this round changes.
    Reported,
    /// An object was moved.
    Moved,
    /// The rows were changed.
    Written,
}

/// Mends what can be mended. `observe` is called after every step; what it fails with ends the repair there.
///
/// # Errors
/// [`StoreError`] when the store cannot be opened, its logs are damaged or the medium fails.
pub fn repair(
    path: &Path,
    watch: &mut dyn Watch,
    mut observe: impl FnMut(Step) -> io::Result<()>,
) -> Result<Repaired, StoreError> {
    let mut store = store::open(path)?;
    let mut mended = Vec::new();
    let salvaged = store.salvage_rows(&mut |step| observe(Step::Salvaged(step)))?;
    let lost = salvaged.as_ref().map(rows_lost).unwrap_or_default();
    mended.extend(salvaged.iter().flat_map(|damaged| rows_findings(damaged).into_iter().take(1)));
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX)?;
    store.redo(&row_store)?;
    store.remove_earlier_logs()?;
    let mut report = Report::new(&store);
    for _ in 0..ROUND_COUNT_MAX {
        let view = store.view(&row_store)?;
        let outcome = check(&view, Depth::Metadata, watch)?;
        let chosen = choose(&outcome);
        if chosen.is_empty() {
            break;
        }
        let mut edits = Edits::new(&view)?;
        let mut moves = Vec::new();
        for &index in &chosen {
            let mend = &outcome.mends[index];
            edits.apply(mend)?;
            if let Mend::Quarantine(object) = mend {
                moves.push(*object);
            }
        }
        let io = |error| StoreError::io("repair", path, error);
        report.write(&outcome, &chosen, (&edits, &moves))?;
        observe(Step::Reported).map_err(io)?;
        for object in moves {
            set_aside(&store, object).map_err(io)?;
            observe(Step::Moved).map_err(io)?;
        }
        let rows: Rows = std::mem::take(&mut edits.rows);
        drop(edits);
        if !rows.is_empty() {
            row_store.put_all(&rows)?;
        }
        observe(Step::Written).map_err(io)?;
        mended.extend(chosen.iter().map(|index| outcome.findings[*index].clone()));
    }
    // Nothing that it mends depends on contents, so they are looked at once.
    let mut left = check(&store.view(&row_store)?, Depth::Contents, watch)?;
    left.put_first(lost);
    Ok(Repaired { mended, left, report: report.path() })
}

/// What this round mends: what changes names and rows as long as there is any of that, then the rest.
fn choose(outcome: &Outcome) -> Vec<usize> {
    let all = outcome.findings.iter().zip(&outcome.mends).enumerate();
    let mendable =
        all.filter(|(_, (finding, mend))| finding.is_mendable() && **mend != Mend::Leave);
    let mendable: Vec<(usize, &Mend)> = mendable.map(|(index, (_, mend))| (index, mend)).collect();
    let structural: Vec<usize> =
        mendable.iter().filter(|(_, mend)| mend.is_structural()).map(|(index, _)| *index).collect();
    if structural.is_empty() {
        mendable.iter().map(|(index, _)| *index).collect()
    } else {
        structural
    }
}

/// Moves an object's file to the quarantine. One that a killed repair moved stays where it is.
fn set_aside(store: &Store, object: ObjectName) -> io::Result<()> {
    let from = store.objects_path().join(object.path());
    let to = store.path().join(QUARANTINE).join(object.path());
    let folder = to.parent().unwrap_or(store.path());
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    match fs::rename(&from, &to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed?,
    }
    for folder in [folder, from.parent().unwrap_or(store.path())] {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// The lines that say what was changed.
struct Report {
    place: PathBuf,
    file: Option<File>,
}

/// One line.
#[derive(Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
enum Line<'a> {
    /// Why.
    Mend { kind: &'a str, what: &'a str, remedy: &'a str, paths: Vec<String> },
    /// A row.
    Row { key_hex: String, before_hex: Option<String>, after_hex: Option<String> },
    /// An object's file, relative to the store.
    Move { from: PathBuf, to: PathBuf },
}

impl Report {
    /// Beside the store, with the number of this opening of it.
    fn new(store: &Store) -> Self {
        let boot_id = store.boot_id();
        let place = store.path().with_added_extension(format!("repair-{boot_id}.jsonl"));
        Self { place, file: None }
    }

    fn path(&self) -> Option<PathBuf> {
        self.file.as_ref().map(|_| self.place.clone())
    }

    fn write(
        &mut self,
        outcome: &Outcome,
        chosen: &[usize],
        (edits, moves): (&Edits<'_>, &[ObjectName]),
    ) -> Result<(), StoreError> {
        let mut lines = Vec::new();
        for &index in chosen {
            let finding = &outcome.findings[index];
            let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
            let paths = finding.paths.iter().map(text).collect();
            let (kind, remedy) = (finding.kind.id(), finding.remedy().text());
            put(&mut lines, &Line::Mend { kind, what: &finding.what, remedy, paths });
        }
        for object in moves {
            let from = Path::new(OBJECTS).join(object.path());
            let to = Path::new(QUARANTINE).join(object.path());
            put(&mut lines, &Line::Move { from, to });
        }
        for (key, after) in &edits.rows {
            let before_hex = edits.before(key)?.as_deref().map(hex::encode);
            let after_hex = after.as_deref().map(hex::encode);
            put(&mut lines, &Line::Row { key_hex: hex::encode(key), before_hex, after_hex });
        }
        self.append(&lines).map_err(|error| StoreError::io("write", &self.place, error))
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let made =
                    OpenOptions::new().append(true).create(true).mode(0o600).open(&self.place)?;
                let folder = self.place.parent().filter(|folder| !folder.as_os_str().is_empty());
                File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
                self.file.insert(made)
            }
        };
        file.write_all(lines)?;
        file.sync_all()
    }
}

fn put(lines: &mut Vec<u8>, line: &Line<'_>) {
    #[expect(clippy::expect_used, reason = "it has text and numbers alone")]
    serde_json::to_writer(&mut *lines, line).expect("a line");
    lines.push(b'\n');
}
