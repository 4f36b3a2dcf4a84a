//! A backup of a store that a server has open: objects in rounds, while they change, and all metadata at the end.
//!
//! ```text
//! round, round, … ─▶ little is left ─▶ [ changes wait: round, view ] ─▶ dump ─▶ copies compared ─▶ whole
//! ```
//! Invariants: a file that changed behind a copy of it is copied again in the next round; the folder has
//! its metadata when it is whole, not before, and until then a mark; a copy that is missing or does not have the
//! store's checksums is marked in the metadata.

use crate::backup_error::BackupError;
use crate::dump::dump;
use crate::prove::{Copies, prove};
use crate::restore::{copy_sparse, sync_all};
use crate::round::{Round, each_object};
use crate::stamp::{Stamp, is_of_medium, is_racy, stamp};
use crate::stream::is_unreadable;
use crate::sums::Damages;
use hashbrown::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use store::{OBJECTS, ObjectFiles, ObjectName, View};

/// The mark of a folder that is not whole.
const UNFINISHED: &str = "unfinished";
/// All metadata.
pub(crate) const METADATA: &str = "metadata.jsonl";
/// A backup under way.
pub struct Backup {
    from: PathBuf,
    folder: PathBuf,
    /// Copies that are known to be as their files are, unless these have changed.
    copied: HashMap<ObjectName, Stamp>,
    /// Objects that the last round has seen.
    seen: HashSet<ObjectName>,
    /// Objects whose files the last round could not read.
    unread: HashSet<ObjectName>,
}

/// What a whole backup has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    /// Lines of metadata.
    pub line_count: u64,
    /// Objects whose copies are not what the store's checksums say; the dump marks their blocks.
    pub damages: Damages,
}

impl Backup {
    /// Begins a backup of the objects in a folder, or goes on with one that was interrupted.
    ///
    /// # Errors
    /// [`BackupError`] when the folder has something else, or cannot be made.
    pub fn begin(objects: &Path, folder: &Path) -> Result<Self, BackupError> {
        begin_folder(folder)?;
        let mut backup = Self {
            from: objects.to_owned(),
            folder: folder.to_owned(),
            copied: HashMap::new(),
            seen: HashSet::new(),
            unread: HashSet::new(),
        };
        backup.find_copied()?;
        Ok(backup)
    }

    /// Copies of an earlier run have the times of their files.
    fn find_copied(&mut self) -> Result<(), BackupError> {
        let Self { from, folder, copied, .. } = self;
        let copies = folder.join(OBJECTS);
        let feed = |file: store::ObjectFile| {
            let path = file.name.path();
            let stat = |at: &Path| fs::symlink_metadata(at.join(&path)).ok();
            if let (Some(copy), Some(source)) = (stat(&copies), stat(from)) {
                let same = copy.len() == source.len()
                    && (copy.mtime(), copy.mtime_nsec()) == (source.mtime(), source.mtime_nsec());
                if same && !is_racy(&source, SystemTime::now()) {
                    copied.insert(file.name, stamp(&source));
                }
            }
            Ok(())
        };
        ObjectFiles::new(copies.clone()).each(feed, |_| {})?;
        Ok(())
    }

    /// Copies what has changed. `ends` says, after each file, whether to end early. An object that the disk does
    /// not give (EIO) is left out, until a later round can read it.
    ///
    /// # Errors
    /// [`BackupError`] when something else cannot be read, or a copy not be written.
    pub fn round(&mut self, mut ends: impl FnMut() -> bool) -> Result<Round, BackupError> {
        self.seen.clear();
        self.unread.clear();
        each_object(&ObjectFiles::new(self.from.clone()), &mut ends, |name| {
            self.seen.insert(name);
            self.copy(name)
        })
    }

    /// Copies an object unless its copy is as it is; how many bytes, if it was copied.
    fn copy(&mut self, name: ObjectName) -> Result<Option<u64>, BackupError> {
        let source = self.from.join(name.path());
        let stat = match fs::symlink_metadata(&source) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if is_of_medium(&error) => return self.leave_out(name),
            Err(error) => return Err(BackupError::Io(source, error)),
        };
        let now = stamp(&stat);
        if self.copied.get(&name) == Some(&now) {
            return Ok(None);
        }
        let began_at = SystemTime::now();
        let place = self.folder.join(OBJECTS).join(name.path());
        let copied = copy_object((&source, &stat), &place);
        match copied {
            Ok(copied_bytes) => {
                self.copied.remove(&name);
                if !is_racy(&stat, began_at) {
                    self.copied.insert(name, now);
                }
                Ok(Some(copied_bytes))
            }
            // It was removed meanwhile.
            Err(_) if !source.exists() => Ok(None),
            // Not the disk that the copy is on.
            Err(error) if is_of_medium(&error) && is_unreadable(name, (&source, &stat)) => {
                self.leave_out(name)
            }
            Err(error) => Err(BackupError::Io(place, error)),
        }
    }

    /// An object that cannot be read has no copy.
    fn leave_out(&mut self, name: ObjectName) -> Result<Option<u64>, BackupError> {
        self.copied.remove(&name);
        self.unread.insert(name);
        remove_copy(&self.folder.join(OBJECTS).join(name.path()))?;
        Ok(None)
    }

    /// Writes the metadata, compares all copies with them and takes the mark away. The last round
    /// and `view` are of one moment; it is closed before copies are compared.
    ///
    /// # Errors
    /// [`BackupError`] when something cannot be read or written. Damaged contents are no error.
    pub fn finish(self, view: View) -> Result<Finished, BackupError> {
        remove_others(&self.folder, &self.seen)?;
        view.put_logged(&self.folder.join(OBJECTS), |name| !self.unread.contains(&name))?;
        let place = unproven(&self.folder);
        let io = |error| BackupError::Io(place.clone(), error);
        let mut file = BufWriter::new(create(&place).map_err(io)?);
        dump(&view, &mut file).map_err(BackupError::Dump)?;
        file.flush().map_err(io)?;
        if !view.is_of_same_boot()? {
            return Err(BackupError::OtherBoot);
        }
        // What is removed from the store meanwhile need not stay for it.
        drop(view);
        end_folder(&self.folder, &self.unread)
    }

    /// The metadata and the objects of a whole backup.
    ///
    /// # Errors
    /// [`BackupError::Unfinished`] if it is none.
    pub fn parts(folder: &Path) -> Result<(PathBuf, PathBuf), BackupError> {
        let (metadata, objects) = (folder.join(METADATA), folder.join(OBJECTS));
        if folder.join(UNFINISHED).exists() || !metadata.exists() || !objects.is_dir() {
            return Err(BackupError::Unfinished(folder.to_owned()));
        }
        Ok((metadata, objects))
    }
}

/// Makes the folder of a backup, with its mark; one that was interrupted is taken.
pub(crate) fn begin_folder(folder: &Path) -> Result<(), BackupError> {
    let io = |error| BackupError::Io(folder.to_owned(), error);
    let is_empty = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(io(error)),
    };
    let mark = folder.join(UNFINISHED);
    if !is_empty && !mark.exists() {
        return Err(BackupError::Exists(folder.to_owned()));
    }
    let mut made = DirBuilder::new();
    let made = made.recursive(true).mode(0o700);
    made.create(folder).map_err(io)?;
    create(&mark).map_err(io)?;
    made.create(folder.join(OBJECTS)).map_err(io)
}

/// Where the metadata lie until copies were compared with them.
pub(crate) fn unproven(folder: &Path) -> PathBuf {
    folder.join(METADATA).with_added_extension("unproven")
}

/// Compares the copies with the metadata, makes all durable, puts the metadata in their place and takes the mark
/// away.
pub(crate) fn end_folder(
    folder: &Path,
    unread: &HashSet<ObjectName>,
) -> Result<Finished, BackupError> {
    let (place, dump) = (folder.join(METADATA), unproven(folder));
    let proven = place.with_added_extension("tmp");
    let io = |error| BackupError::Io(place.clone(), error);
    let metadata = create(&proven).map_err(io)?;
    let objects = ObjectFiles::new(folder.join(OBJECTS));
    let (line_count, damages) = prove(&Copies { dump: &dump, objects, unread }, &metadata)?;
    fs::remove_file(&dump).map_err(io)?;
    metadata.sync_all().map_err(io)?;
    sync_all(folder).map_err(io)?;
    fs::rename(&proven, &place).map_err(io)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    fs::remove_file(folder.join(UNFINISHED)).map_err(io)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    Ok(Finished { line_count, damages })
}

/// Removes copies of objects that no longer exist.
pub(crate) fn remove_others(folder: &Path, seen: &HashSet<ObjectName>) -> Result<(), BackupError> {
    let copies = folder.join(OBJECTS);
    let mut stale = Vec::new();
    let feed = |file: store::ObjectFile| {
        if !seen.contains(&file.name) {
            stale.push(copies.join(file.name.path()));
        }
        Ok(())
    };
    ObjectFiles::new(copies.clone()).each(feed, |_| {})?;
    stale.iter().try_for_each(|path| remove_copy(path))
}

/// Removes the copy of an object, and what there is of one.
fn remove_copy(place: &Path) -> Result<(), BackupError> {
    for removed in [fs::remove_file(place.with_added_extension("tmp")), fs::remove_file(place)] {
        match removed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(BackupError::Io(place.to_owned(), error)),
        }
    }
    Ok(())
}

fn copy_object((source, stat): (&Path, &fs::Metadata), place: &Path) -> io::Result<u64> {
    let mut folders = DirBuilder::new();
    let folders = folders.recursive(true).mode(0o700);
    folders.create(place.parent().unwrap_or(place))?;
    let unfinished = place.with_added_extension("tmp");
    let copied_bytes = copy_sparse(source, &unfinished)?;
    let times = FileTimes::new().set_modified(stat.modified()?);
    File::options().write(true).open(&unfinished)?.set_times(times)?;
    fs::rename(&unfinished, place)?;
    Ok(copied_bytes)
}

pub(crate) fn create(place: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(place)
}
