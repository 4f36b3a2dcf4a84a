//! A backup of a store that a server has open: objects in rounds, while they change, and all metadata at the end.
//!
//! ```text
//! round, round, … ─▶ little is left ─▶ [ changes wait: round, view ] ─▶ dump ─▶ copies compared ─▶ whole
//! ```
//! Invariants: a file that changed behind a copy of it is copied again in the next round; the folder has
//! its metadata when it is whole, not before, and until then a mark; a copy that is missing or does not have the
//! store's checksums is marked in the metadata.

use crate::dump::{DumpError, dump};
use crate::lines::LineError;
use crate::prove::{Copies, prove};
use crate::restore::{copy_sparse, sync_all};
use crate::stream::is_unreadable;
use crate::sums::Damages;
use hashbrown::{HashMap, HashSet};
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use store::{OBJECTS, ObjectFiles, ObjectName, StoreError, View};

/// The mark of a folder that is not whole.
const UNFINISHED: &str = "unfinished";
/// All metadata.
pub(crate) const METADATA: &str = "metadata.jsonl";
/// Times of files are as exact as this, at worst: what changed so shortly before it was copied may have
/// changed behind the copy without another time.
const RACY: Duration = Duration::from_secs(2);

/// What a file was when its copy began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    size_bytes: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

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

/// What a round came to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Round {
    /// Bytes that were copied, holes left out.
    pub copied_bytes: u64,
    /// Files that were copied.
    pub copied_count: u64,
    /// It was ended before it had seen everything.
    pub ended_early: bool,
}

/// What a whole backup has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    /// Lines of metadata.
    pub line_count: u64,
    /// Objects whose copies are not what the store's checksums say; the dump marks their blocks.
    pub damages: Damages,
}

/// Why there is no backup.
#[derive(Debug)]
pub enum BackupError {
    /// The folder has something else, or a whole backup.
    Exists(PathBuf),
    /// The server was started again meanwhile.
    OtherBoot,
    /// It is no whole backup.
    Unfinished(PathBuf),
    /// The store cannot be read.
    Store(StoreError),
    /// Its metadata cannot be read or written.
    Dump(DumpError),
    /// A line of its metadata is none of a dump.
    Line(LineError),
    /// What a server sent is no backup.
    Stream,
    /// The file system said no.
    Io(PathBuf, io::Error),
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
        let segments = source.with_added_extension("d");
        let is_single = !segments.exists();
        let now = stamp(&stat);
        if is_single && self.copied.get(&name) == Some(&now) {
            return Ok(None);
        }
        let began_at = SystemTime::now();
        let place = self.folder.join(OBJECTS).join(name.path());
        let copied = copy_object((&source, &stat), &place, &segments);
        match copied {
            Ok(copied_bytes) => {
                self.copied.remove(&name);
                if is_single && !is_racy(&stat, began_at) {
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

/// A round: gives each object to `take`, which says how many bytes it copied or sent, if any. `ends`
/// says, after each object, whether to end early.
pub(crate) fn each_object(
    files: &ObjectFiles,
    ends: &mut dyn FnMut() -> bool,
    mut take: impl FnMut(ObjectName) -> Result<Option<u64>, BackupError>,
) -> Result<Round, BackupError> {
    let mut round = Round::default();
    let mut failed = None;
    let feed = |file: store::ObjectFile| {
        if failed.is_some() || round.ended_early {
            return Ok(());
        }
        match take(file.name) {
            Ok(None) => {}
            Ok(Some(copied_bytes)) => {
                round.copied_bytes += copied_bytes;
                round.copied_count += 1;
            }
            Err(error) => failed = Some(error),
        }
        round.ended_early = ends();
        Ok(())
    };
    files.each(feed, |_| {})?;
    failed.map_or(Ok(round), Err)
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
    for removed in [
        fs::remove_dir_all(place.with_added_extension("d")),
        fs::remove_file(place.with_added_extension("tmp")),
        fs::remove_file(place),
    ] {
        match removed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(BackupError::Io(place.to_owned(), error)),
        }
    }
    Ok(())
}

/// Whether a disk did not give what is on it.
pub(crate) fn is_of_medium(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

fn copy_object(
    (source, stat): (&Path, &fs::Metadata),
    place: &Path,
    segments: &Path,
) -> io::Result<u64> {
    let mut folders = DirBuilder::new();
    let folders = folders.recursive(true).mode(0o700);
    folders.create(place.parent().unwrap_or(place))?;
    let unfinished = place.with_added_extension("tmp");
    let mut copied_bytes = copy_sparse(source, &unfinished)?;
    let to = place.with_added_extension("d");
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    if segments.exists() {
        folders.create(&to)?;
        for entry in fs::read_dir(segments)? {
            let entry = entry?;
            copied_bytes += copy_sparse(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    let times = FileTimes::new().set_modified(stat.modified()?);
    File::options().write(true).open(&unfinished)?.set_times(times)?;
    fs::rename(&unfinished, place)?;
    Ok(copied_bytes)
}

pub(crate) fn stamp(stat: &fs::Metadata) -> Stamp {
    Stamp {
        size_bytes: stat.len(),
        mtime: (stat.mtime(), stat.mtime_nsec()),
        ctime: (stat.ctime(), stat.ctime_nsec()),
    }
}

/// Whether a file changed so shortly before that it may change again at the same time, as its times go.
pub(crate) fn is_racy(stat: &fs::Metadata, now: SystemTime) -> bool {
    let changed =
        SystemTime::UNIX_EPOCH + Duration::from_secs(stat.ctime().try_into().unwrap_or(0));
    now.duration_since(changed).is_ok_and(|since| since < RACY) || changed > now
}

pub(crate) fn create(place: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(place)
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(path) => write!(
                f,
                "{} is neither empty nor a backup that was interrupted: name a new folder",
                path.display()
            ),
            Self::Unfinished(path) => write!(
                f,
                "{} is no whole backup: go on with it by `lanefs backup`, or remove it",
                path.display()
            ),
            Self::OtherBoot => f.write_str(
                "the server was started again meanwhile: try again; what was copied is used then",
            ),
            Self::Stream => crate::stream::Malformed.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Dump(error) => error.fmt(f),
            Self::Line(error) => error.fmt(f),
            Self::Io(path, error) => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<LineError> for BackupError {
    fn from(error: LineError) -> Self {
        Self::Line(error)
    }
}

impl From<StoreError> for BackupError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
