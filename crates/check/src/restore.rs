//! A store from a dump, with contents from a folder of objects or without.
//!
//! It is a new file system with an identity of its own and without sessions. Invariants: the store gets its
//! name when it is complete; copies are compared with the dump's checksums, and the store has these, so that
//! no differing block is ever read.

use crate::dump::DUMP_VERSION;
use crate::finding::Kind;
use crate::line::Line;
use crate::lines::{LineError, LineReader};
use crate::paths::Paths;
use crate::sums::{Damages, Found, Tally, lack_of};
use disk::rows::{Key, ObjectRow};
use disk::{BlockSum, Superblock};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use store::{
    FileObjects, ObjectContents, ObjectFiles, ObjectName, RowStore, Shape, Store, StoreError,
};
use thiserror::Error;
use wire::{InodeNo, Layout, ShardId, Wire as _};

/// Rows to be written.
type Rows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Rows written at a time.
const ROW_COUNT_MAX: usize = 65_536;

/// Where contents come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents<'a> {
    /// Of a folder.
    Objects(Source<'a>),
    /// Files have their sizes and read as zeros.
    Zeros,
}

/// A folder laid out as the objects of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// Restore also when contents are damaged or missing: reading those blocks fails with EIO then.
    pub takes_damage: bool,
}

/// What was restored.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Restored {
    /// Inodes.
    pub inode_count: u64,
    /// Files with contents.
    pub object_count: u64,
    /// Bytes of contents that were copied, holes left out.
    pub copied_bytes: u64,
    /// Contents that are not what the dump says.
    pub damages: Damages,
}

/// Why nothing was restored.
#[derive(Error, Debug)]
pub enum RestoreError {
    /// The store cannot be made or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A line is none of a dump.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The dump was written by another version.
    #[error(
        "the dump has version {0}, this lanefs knows version {DUMP_VERSION}: use the lanefs that \
         wrote it"
    )]
    Version(u32),
    /// The dump has a change over several shards in the middle.
    #[error(
        "the dump has a change over several shards in the middle: start and stop the server of the \
         store that it is of, and dump it again"
    )]
    Pending,
    /// Contents are not what the dump says.
    #[error(
        "{} files are not what the dump says, and no store was made: take another backup, or pass \
         --accept-damage to restore the rest and to have EIO where they are damaged", .0.count()
    )]
    Damaged(Damages),
    /// There is something where the store is to be, or is to be made.
    #[error("{0} exists: name a new place, or remove it")]
    Exists(PathBuf),
    /// The file system said no.
    #[error("cannot write {0}: {1}")]
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
    let mut lines = LineReader::new(lines);
    let Some(Line::Dump {
        version,
        meta_shard_count,
        data_shard_count,
        stripe_unit_bytes,
        stripe_count,
        ..
    }) = lines.next()?
    else {
        return Err(lines.wrong("a dump begins with a line of type dump").into());
    };
    if version != DUMP_VERSION {
        return Err(RestoreError::Version(version));
    }
    let layout = Layout { stripe_unit_bytes, stripe_count, narrow: false };
    if !Superblock::can_have(layout) {
        return Err(lines.wrong("no store has such a layout").into());
    }
    let shape = Shape { meta_shard_count, data_shard_count, layout, ..Shape::default() };
    let in_range = |count: u16| (1..=0x7fff).contains(&count);
    if !in_range(shape.meta_shard_count) || !in_range(shape.data_shard_count) {
        return Err(lines.wrong("a store has 1 to 32767 shards of either kind").into());
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
    lines: &mut LineReader<impl BufRead>,
    store: &mut Store,
    contents: Contents<'_>,
) -> Result<Restored, RestoreError> {
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX)?;
    let mut rows = Rows::new();
    let mut objects = Objects::new(store.objects_path(), contents);
    let mut inode_count = 0;
    while let Some(line) = lines.next()? {
        if !matches!(line, Line::Sums { .. }) {
            objects.end();
        }
        if let Line::Prepared { .. } = line {
            return Err(RestoreError::Pending);
        }
        let is_well = if let Line::Object { .. } | Line::Sums { .. } = line {
            objects.put(&line, &mut rows)?
        } else {
            line.put_rows(&mut rows)
        };
        if is_well.is_none() {
            return Err(lines.wrong("a value is out of its range").into());
        }
        inode_count += u64::from(matches!(line, Line::Inode(_)));
        if rows.len() >= ROW_COUNT_MAX {
            row_store.put_all(&std::mem::take(&mut rows))?;
        }
    }
    objects.end();
    row_store.put_all(&rows)?;
    let Objects { to, restored, found, .. } = objects;
    sync_all(&to).map_err(|error| RestoreError::Io(to, error))?;
    let view = store.view(&row_store)?;
    let damages = found.named(|inodes| Paths::of_rows(&view.reader()).paths_of(inodes))?;
    match contents {
        Contents::Objects(Source { takes_damage: false, .. }) if damages.count() > 0 => {
            Err(RestoreError::Damaged(damages))
        }
        Contents::Objects(_) | Contents::Zeros => Ok(Restored { inode_count, damages, ..restored }),
    }
}

/// Objects that are being restored.
struct Objects<'a> {
    to: PathBuf,
    contents: Contents<'a>,
    /// The object whose checksums may follow.
    open: Option<Open>,
    found: Found,
    restored: Restored,
}

/// An object whose file is made.
struct Open {
    name: ObjectName,
    shard: ShardId,
    /// What its checksums are compared with; nothing where files read as zeros.
    copy: Option<ObjectContents>,
    lack: Option<(Kind, String)>,
    tally: Tally,
    /// Of blocks that the dump does not call damaged.
    unmarked: Tally,
}

impl<'a> Objects<'a> {
    fn new(to: PathBuf, contents: Contents<'a>) -> Self {
        Self { to, contents, open: None, found: Found::default(), restored: Restored::default() }
    }

    /// Makes an object, or compares further blocks of it, and makes the rows; `None` when a value is out of its range.
    fn put(&mut self, line: &Line, rows: &mut Rows) -> Result<Option<()>, RestoreError> {
        let Some(group) = line.group() else { return Ok(None) };
        if let Line::Object { shard, inode, size_bytes, write_time_ns, ref stripes, .. } = *line {
            let Some(objects) = line.file_objects() else { return Ok(None) };
            let (shard, inode) = (ShardId(shard), InodeNo(inode));
            let layout = stripes.as_ref().map(|_| objects.layout);
            for stripe_index in &objects.further {
                let key = Key::stripe(shard, inode, *stripe_index);
                rows.insert(key.bytes().to_vec(), Some(Vec::new()));
            }
            if size_bytes > 0 && !objects.names().any(|name| name == objects.last(size_bytes)) {
                return Ok(None);
            }
            let open = self.put_file(objects, size_bytes)?;
            let first_sum = open.copy.as_ref().map(|_| group.sums.at(0)).unwrap_or_default();
            let row = ObjectRow { size_bytes, write_time_ns, first_sum, layout };
            rows.insert(Key::object(shard, inode).bytes().to_vec(), Some(row.to_bytes()));
            self.open = Some(open);
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        // What reads as zeros has other checksums.
        let Some(copy) = &mut open.copy else { return Ok(Some(())) };
        group.hold_against(copy, (&mut open.tally, &mut open.unmarked))?;
        let mut in_row = group.sums;
        if group.group == 0 {
            in_row.put(0, BlockSum::NONE);
        }
        if !in_row.0.is_empty() {
            let key = Key::sums(open.shard, open.name.inode, group.group);
            rows.insert(key.bytes().to_vec(), Some(in_row.to_bytes()));
        }
        Ok(Some(()))
    }

    /// All checksums of an object were compared.
    fn end(&mut self) {
        let (Some(open), Contents::Objects(source)) = (self.open.take(), self.contents) else {
            return;
        };
        let Open { name, lack, tally, unmarked, .. } = open;
        let changed = || {
            let what = tally.what()?;
            let is_marked = unmarked.damaged_count == 0;
            let mark = if is_marked { "; so it was when the dump was made" } else { "" };
            Some((Kind::ContentsChanged, format!("{what}{mark}")))
        };
        if let Some((kind, what)) = lack.or_else(changed) {
            self.found.add(kind, (name, source.folder.join(name.path())), what);
        }
    }

    /// Makes a file's objects.
    fn put_file(&mut self, objects: FileObjects, size_bytes: u64) -> Result<Open, RestoreError> {
        let (name, shard) = (objects.first, ShardId::data(objects.first.shard_index));
        let (tally, unmarked) = (Tally::default(), Tally::default());
        let mut open = Open { name, shard, copy: None, lack: None, tally, unmarked };
        self.restored.object_count += u64::from(size_bytes > 0);
        // All stripes of a file lie in one folder.
        if size_bytes > 0
            && let Some(folder) = self.to.join(name.path()).parent()
        {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(io(folder))?;
        }
        let Contents::Objects(source) = self.contents else {
            if size_bytes > 0 {
                self.put_zeros(&objects, size_bytes)?;
            }
            return Ok(open);
        };
        let from = ObjectFiles::new(source.folder.to_owned());
        open.lack = lack_of(from.find_all(&objects)?.as_ref(), size_bytes);
        for name in objects.names().filter(|_| size_bytes > 0) {
            if from.find(name)?.is_some() {
                let (source, place) = (source.folder.join(name.path()), self.to.join(name.path()));
                self.restored.copied_bytes += copy_sparse(&source, &place).map_err(io(&place))?;
            }
        }
        if open.lack.is_some() {
            self.put_zeros(&objects, size_bytes)?;
        }
        open.copy = Some(ObjectFiles::new(self.to.clone()).contents(objects));
        Ok(open)
    }

    /// Makes a file as long as it is recorded, by its last object; what there is of it stays, the
    /// rest reads as zeros.
    fn put_zeros(&self, objects: &FileObjects, size_bytes: u64) -> Result<(), RestoreError> {
        let place = self.to.join(objects.last(size_bytes).path());
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&place);
        let (_, last_bytes) = objects.layout.last(size_bytes);
        file.and_then(|file| file.set_len(last_bytes)).map_err(io(&place))
    }
}

fn io(place: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let place = place.to_owned();
    move |error| RestoreError::Io(place, error)
}

/// Makes all of the file system that a folder is on durable.
pub(crate) fn sync_all(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

fn create(place: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(place)
}

/// Where the next bytes of a file are; `None` when there are only holes up to its end.
pub(crate) fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Copies a file without its holes; how many bytes were copied.
pub(crate) fn copy_sparse(from: &Path, to: &Path) -> io::Result<u64> {
    let (mut source, mut target) = (File::open(from)?, create(to)?);
    let source_bytes = source.metadata()?.len();
    target.set_len(source_bytes)?;
    let (mut at, mut copied_bytes) = (0, 0);
    while let Some(data) = next_data(&source, at)? {
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
