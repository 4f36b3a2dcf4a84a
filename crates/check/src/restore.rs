//! A store from a dump, with contents from a folder of objects or without.
//!
//! It is a new file system: it has an identity of its own, and nobody has a session in it. Invariant: the store has its
//! name when it is whole, not before.

use crate::dump::DUMP_VERSION;
use crate::line::Line;
use disk::rows::ObjectRow;
use rustix::fs::SeekFrom;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use store::{ColdStore, ObjectName, Shape, Store, StoreError};
use wire::{InodeNo, ShardId};

/// Rows written at a time.
const ROW_COUNT_MAX: usize = 65_536;

/// Where contents come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents<'a> {
    /// A folder laid out as the objects of a store.
    Objects(&'a Path),
    /// Files have their sizes and read as zeros.
    Zeros,
}

/// What was restored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Restored {
    /// Inodes.
    pub inode_count: u64,
    /// Files with contents.
    pub object_count: u64,
    /// Bytes of contents that were copied, holes left out.
    pub copied_bytes: u64,
}

/// Why nothing was restored.
#[derive(Debug)]
pub enum RestoreError {
    /// The store cannot be made or written.
    Store(StoreError),
    /// A line is none of a dump: its number and why.
    Line(u64, String),
    /// The dump was written by another version.
    Version(u32),
    /// The dump has a change over several shards in the middle.
    Pending,
    /// An object has fewer bytes than the dump says.
    Object(PathBuf, u64),
    /// There is something where the store is to be, or is to be made.
    Exists(PathBuf),
    /// The file system said no.
    Io(PathBuf, io::Error),
}

/// Makes a store at `path` of a dump's lines.
///
/// # Errors
/// [`RestoreError`]; there is no store then, at most `PATH.unfinished`.
pub fn restore(
    lines: &mut impl BufRead,
    path: &Path,
    contents: Contents<'_>,
) -> Result<Restored, RestoreError> {
    let unfinished = path.with_added_extension("unfinished");
    for place in [path, &unfinished] {
        let is_empty = fs::read_dir(place).is_ok_and(|mut entries| entries.next().is_none());
        if place.symlink_metadata().is_ok() && !(is_empty && place == path) {
            return Err(RestoreError::Exists(place.to_owned()));
        }
    }
    let mut lines = Lines { lines, line_no: 0, text: String::new() };
    let first = lines.next()?;
    let Line::Dump { version, meta_shard_count, data_shard_count, .. } = first else {
        return Err(lines.wrong("a dump begins with a line of type dump"));
    };
    if version != DUMP_VERSION {
        return Err(RestoreError::Version(version));
    }
    let shape = Shape { meta_shard_count, data_shard_count, ..Shape::default() };
    let in_range = |count: u16| (1..=0x7fff).contains(&count);
    if !in_range(shape.meta_shard_count) || !in_range(shape.data_shard_count) {
        return Err(lines.wrong("a store has 1 to 32767 shards of either kind"));
    }
    let mut store = store::open_or_create(&unfinished, &shape)?;
    let restored = fill(&mut lines, &mut store, contents)?;
    drop(store);
    let io = |error| RestoreError::Io(path.to_owned(), error);
    fs::rename(&unfinished, path).map_err(io)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all()).map_err(io)?;
    Ok(restored)
}

/// Writes rows and contents.
fn fill(
    lines: &mut Lines<'_, impl BufRead>,
    store: &mut Store,
    contents: Contents<'_>,
) -> Result<Restored, RestoreError> {
    let cold = store.open_rows(ColdStore::ROWS_BYTES_MAX)?;
    let (mut restored, mut rows) = (Restored::default(), std::collections::BTreeMap::new());
    loop {
        let line = lines.next()?;
        if let Line::End { line_count } = line {
            if line_count == lines.line_no - 1 {
                break;
            }
            let why = format!("the dump had {line_count} lines before this one");
            return Err(lines.wrong(&why));
        }
        if let Line::Prepared { .. } = line {
            return Err(RestoreError::Pending);
        }
        if let Line::Object { shard, inode, size_bytes, write_time_ns } = line
            && size_bytes > 0
        {
            let row = ObjectRow { size_bytes, write_time_ns, ..ObjectRow::default() };
            let shard_index = ShardId(shard).index();
            let name = ObjectName { shard_index, inode: InodeNo(inode), stripe_index: 0 };
            restored.object_count += 1;
            let to = store.objects_path();
            restored.copied_bytes += put_object((&to, contents), (name, &row))?;
        }
        restored.inode_count += u64::from(matches!(line, Line::Inode(_)));
        if line.put_rows(&mut rows).is_none() {
            return Err(lines.wrong("a value is out of its range"));
        }
        if rows.len() >= ROW_COUNT_MAX {
            cold.put_all(&std::mem::take(&mut rows))?;
        }
    }
    cold.put_all(&rows)?;
    let objects = store.objects_path();
    sync_all(&objects).map_err(|error| RestoreError::Io(objects, error))?;
    Ok(restored)
}

/// Makes an object's files; how many bytes were copied.
fn put_object(
    (to, contents): (&Path, Contents<'_>),
    (name, row): (ObjectName, &ObjectRow),
) -> Result<u64, RestoreError> {
    let place = to.join(name.path());
    let io = |place: &Path| {
        let place = place.to_owned();
        move |error| RestoreError::Io(place, error)
    };
    if let Some(folder) = place.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(io(folder))?;
    }
    let Contents::Objects(from) = contents else {
        let file = create(&place).map_err(io(&place))?;
        let first_bytes = row.size_bytes.min(SEGMENT_BYTES);
        file.set_len(first_bytes).map_err(io(&place))?;
        if row.size_bytes > SEGMENT_BYTES {
            put_last_segment(&place, row.size_bytes).map_err(io(&place))?;
        }
        return Ok(0);
    };
    let source = from.join(name.path());
    let found = store::ObjectFiles::new(from.to_owned()).find(name)?;
    if found.is_none_or(|found| found.size_bytes < row.size_bytes) {
        return Err(RestoreError::Object(source, row.size_bytes));
    }
    let mut copied_bytes = copy_sparse(&source, &place).map_err(io(&place))?;
    let segments = source.with_added_extension("d");
    if segments.is_dir() {
        let folder = place.with_added_extension("d");
        DirBuilder::new().mode(0o700).create(&folder).map_err(io(&folder))?;
        for entry in fs::read_dir(&segments).map_err(io(&segments))? {
            let entry = entry.map_err(io(&segments))?;
            let to = folder.join(entry.file_name());
            copied_bytes += copy_sparse(&entry.path(), &to).map_err(io(&to))?;
        }
    }
    Ok(copied_bytes)
}

/// Length of a segment of an object.
const SEGMENT_BYTES: u64 = 1 << 41;

/// The last segment says where an object ends.
fn put_last_segment(place: &Path, size_bytes: u64) -> io::Result<()> {
    let folder = place.with_added_extension("d");
    DirBuilder::new().mode(0o700).create(&folder)?;
    let segment_no = (size_bytes - 1) / SEGMENT_BYTES;
    let file = create(&folder.join(format!("{segment_no:x}")))?;
    file.set_len(size_bytes - segment_no * SEGMENT_BYTES)
}

/// Makes all of the file system that a folder is on durable.
pub(crate) fn sync_all(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

fn create(place: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(place)
}

/// Copies a file without its holes; how many bytes were copied.
pub(crate) fn copy_sparse(from: &Path, to: &Path) -> io::Result<u64> {
    let (mut source, mut target) = (File::open(from)?, create(to)?);
    let source_bytes = source.metadata()?.len();
    target.set_len(source_bytes)?;
    let (mut at, mut copied_bytes) = (0, 0);
    while let Ok(data) = rustix::fs::seek(&source, SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&source, SeekFrom::Hole(data)).unwrap_or(source_bytes);
        source.seek(io::SeekFrom::Start(data))?;
        target.seek(io::SeekFrom::Start(data))?;
        let mut piece = io::Read::take(&mut source, end - data);
        copied_bytes += io::copy(&mut piece, &mut target)?;
        at = end;
    }
    target.flush()?;
    Ok(copied_bytes)
}

/// Lines that are being read.
struct Lines<'a, R> {
    lines: &'a mut R,
    line_no: u64,
    text: String,
}

impl<R: BufRead> Lines<'_, R> {
    fn next(&mut self) -> Result<Line, RestoreError> {
        self.line_no += 1;
        self.text.clear();
        let read = self.lines.read_line(&mut self.text);
        match read {
            Ok(0) => return Err(self.wrong("the dump ends before its last line")),
            Ok(_) => {}
            Err(error) => return Err(self.wrong(&error.to_string())),
        }
        serde_json::from_str(&self.text).map_err(|error| self.wrong(&error.to_string()))
    }

    fn wrong(&self, why: &str) -> RestoreError {
        RestoreError::Line(self.line_no, why.to_owned())
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Line(line_no, why) => write!(f, "line {line_no} of the dump: {why}"),
            Self::Version(found) => write!(
                f,
                "the dump has version {found}, this lanefs knows version {DUMP_VERSION}: use the lanefs \
                 that wrote it"
            ),
            Self::Pending => write!(
                f,
                "the dump has a change over several shards in the middle: start and stop the server of \
                 the store that it is of, and dump it again"
            ),
            Self::Object(path, size_bytes) => write!(
                f,
                "{} has not the {size_bytes} bytes that the dump says: the contents are of another \
                 time than the dump",
                path.display()
            ),
            Self::Exists(path) => {
                write!(f, "{} exists: name a new place, or remove it", path.display())
            }
            Self::Io(path, error) => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
