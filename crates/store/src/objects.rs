//! The files of objects, as seen from outside a lane: their names and sizes.
//!
//! The ring defines the layout (`docs/formats.md`). This module changes no file.

use crate::StoreError;
use disk::LoggedContents;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::{InodeNo, Layout, ShardId};

const STAT_BLOCK_BYTES: u64 = 512;

/// The name of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectName {
    /// Index of its data shard.
    pub shard_index: u16,
    /// The inode.
    pub inode: InodeNo,
    /// The index of the stripe.
    pub stripe_index: u32,
}

/// The objects of a file at its data shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileObjects {
    /// The first object.
    pub first: ObjectName,
    /// How the file lies in them.
    pub layout: Layout,
    /// The stripes behind the first that may have an object, in rising order.
    pub further: Vec<u32>,
}

impl FileObjects {
    /// A file of one object.
    #[must_use]
    pub const fn single(shard_index: u16, inode: InodeNo) -> Self {
        let first = ObjectName { shard_index, inode, stripe_index: 0 };
        Self { first, layout: Layout::ONE_OBJECT, further: Vec::new() }
    }

    /// The objects, in the order of their bytes.
    pub fn names(&self) -> impl Iterator<Item = ObjectName> {
        let first = self.first;
        let further = self.further.iter();
        let further = further.map(move |stripe_index| self.stripe(*stripe_index));
        std::iter::once(first).chain(further)
    }

    /// The object of the last byte of a file of this size.
    #[must_use]
    pub fn last(&self, size_bytes: u64) -> ObjectName {
        self.stripe(self.layout.last(size_bytes).0)
    }

    const fn stripe(&self, stripe_index: u32) -> ObjectName {
        ObjectName { stripe_index, ..self.first }
    }
}

/// An object's file, or all of a file's objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectFile {
    /// The object, or the first of them.
    pub name: ObjectName,
    /// The size.
    pub size_bytes: u64,
    /// The allocated space.
    pub allocated_bytes: u64,
}

/// The folder of a store's objects.
#[derive(Clone, Debug)]
pub struct ObjectFiles {
    folder: PathBuf,
    /// Bytes over those of the files.
    logged: Arc<LoggedContents>,
}

impl ObjectName {
    /// Its path in the folder of the objects.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        const INODES_SHIFT: u32 = 14;
        let [.., folder] = (self.inode.0 >> INODES_SHIFT).to_be_bytes();
        let Self { shard_index, inode, stripe_index } = *self;
        format!("{shard_index:02x}/{folder:02x}/{:016x}.{stripe_index:x}", inode.0).into()
    }

    /// The object of a path in the folder of the objects; `None` if it is not an object's.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        let shard = path.components().next()?.as_os_str().to_str()?;
        let (inode, stripe) = path.file_name()?.to_str()?.split_once('.')?;
        let parsed = Self {
            shard_index: u16::from_str_radix(shard, 16).ok()?,
            inode: InodeNo(u64::from_str_radix(inode, 16).ok()?),
            stripe_index: u32::from_str_radix(stripe, 16).ok()?,
        };
        (parsed.path() == path).then_some(parsed)
    }
}

impl ObjectFiles {
    /// For a store's folder of objects.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self::with_logged(folder, Arc::default())
    }

    pub(crate) const fn with_logged(folder: PathBuf, logged: Arc<LoggedContents>) -> Self {
        Self { folder, logged }
    }

    /// The file of one object, if there is one.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn find(&self, name: ObjectName) -> Result<Option<ObjectFile>, StoreError> {
        let path = self.folder.join(name.path());
        let logged_end = ranges_of(&self.logged, name).map(|(at, bytes)| end_of(at, bytes)).max();
        match fs::symlink_metadata(&path) {
            Ok(stat) => Ok(Some(ObjectFile {
                name,
                size_bytes: stat.size().max(logged_end.unwrap_or(0)),
                allocated_bytes: stat.blocks() * STAT_BLOCK_BYTES,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(logged_end.map(|size_bytes| ObjectFile { name, size_bytes, allocated_bytes: 0 }))
            }
            Err(error) => Err(StoreError::io("look at", &path, error)),
        }
    }

    /// Size and space of a file, if it has an object.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn find_all(&self, objects: &FileObjects) -> Result<Option<ObjectFile>, StoreError> {
        let mut all: Option<ObjectFile> = None;
        for name in objects.names() {
            let Some(ObjectFile { size_bytes, allocated_bytes, .. }) = self.find(name)? else {
                continue;
            };
            let start = objects.layout.start(name.stripe_index);
            let end = if size_bytes > 0 { start.saturating_add(size_bytes) } else { 0 };
            let first = ObjectFile { name: objects.first, size_bytes: 0, allocated_bytes: 0 };
            let all = all.get_or_insert(first);
            all.size_bytes = all.size_bytes.max(end);
            all.allocated_bytes += allocated_bytes;
        }
        Ok(all)
    }

    /// The contents of a file, whose objects need not exist.
    #[must_use]
    pub fn contents(&self, objects: FileObjects) -> ObjectContents {
        let logged = Arc::clone(&self.logged);
        ObjectContents { folder: self.folder.clone(), logged, objects, open: None }
    }

    /// Visits every object's file, shard by shard; calls `foreign` for every other name.
    ///
    /// # Errors
    /// [`StoreError`] when a folder cannot be read, and any error of `visit`.
    pub fn each(
        &self,
        mut visit: impl FnMut(ObjectFile) -> Result<(), StoreError>,
        mut foreign: impl FnMut(&Path),
    ) -> Result<(), StoreError> {
        for shard in entries(&self.folder)? {
            let shard_text = shard.file_name().to_string_lossy().into_owned();
            if !is_folder(&shard)? {
                foreign(Path::new(&shard_text));
                continue;
            }
            for folder in entries(&shard.path())? {
                let below = Path::new(&shard_text).join(folder.file_name());
                if !is_folder(&folder)? {
                    foreign(&below);
                    continue;
                }
                for entry in entries(&folder.path())? {
                    let text = entry.file_name().to_string_lossy().into_owned();
                    let path = below.join(&text);
                    match ObjectName::of_path(&path) {
                        Some(name) => {
                            if let Some(file) = self.find(name)? {
                                visit(file)?;
                            }
                        }
                        None => foreign(&path),
                    }
                }
            }
        }
        Ok(())
    }
}

/// The bytes of a file, for reading.
#[derive(Debug)]
pub struct ObjectContents {
    folder: PathBuf,
    logged: Arc<LoggedContents>,
    objects: FileObjects,
    /// The stripe that was read last; without a file where there is none.
    open: Option<(u32, Option<File>)>,
}

impl ObjectContents {
    /// Reads from an offset on, within a stripe; returns fewer bytes than requested only at the end
    /// of its object.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn read_at(&mut self, offset: u64, to: &mut [u8]) -> Result<usize, StoreError> {
        let layout = self.objects.layout;
        let stripe_index = layout.stripe(offset);
        let object_offset = offset - layout.start(stripe_index);
        let read_bytes = self.read_file(stripe_index, object_offset, to)?;
        let ranges = ranges_of(&self.logged, self.objects.stripe(stripe_index));
        Ok(put_over(ranges, (object_offset, read_bytes), to))
    }

    fn read_file(
        &mut self,
        stripe_index: u32,
        object_offset: u64,
        to: &mut [u8],
    ) -> Result<usize, StoreError> {
        let path = self.path_of(stripe_index);
        let failed = |error| StoreError::io("read", &path, error);
        let Some(file) = self.file(stripe_index, &path)? else { return Ok(0) };
        let mut read_bytes = 0;
        while let Some(rest) = to.get_mut(read_bytes..).filter(|rest| !rest.is_empty()) {
            let read = u64::try_from(read_bytes).unwrap_or(u64::MAX);
            match file.read_at(rest, object_offset + read) {
                Ok(0) => break,
                Ok(count) => read_bytes += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(read_bytes)
    }

    /// The next position with data, from an offset on: there are only holes before it. `None`: only
    /// holes up to the end of the file.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn next_data(&mut self, offset: u64) -> Result<Option<u64>, StoreError> {
        let layout = self.objects.layout;
        let from = layout.stripe(offset);
        let all: Vec<u32> = self.objects.names().map(|name| name.stripe_index).collect();
        for stripe_index in all.into_iter().filter(|index| *index >= from) {
            let path = self.path_of(stripe_index);
            let start = layout.start(stripe_index);
            let object_offset = offset.saturating_sub(start);
            let ranges = ranges_of(&self.logged, self.objects.stripe(stripe_index));
            let behind = ranges.filter(|(at, bytes)| end_of(*at, bytes) > object_offset);
            let logged = behind.map(|(at, _)| at.max(object_offset)).min();
            let found = match self.file(stripe_index, &path)? {
                Some(file) => match rustix::fs::seek(file, SeekFrom::Data(object_offset)) {
                    Ok(at) => Some(at),
                    Err(Errno::NXIO) => None,
                    Err(error) => return Err(StoreError::io("read", &path, error)),
                },
                None => None,
            };
            if let Some(at) = found.into_iter().chain(logged).min() {
                return Ok(Some(start.saturating_add(at)));
            }
        }
        Ok(None)
    }

    fn path_of(&self, stripe_index: u32) -> PathBuf {
        self.folder.join(self.objects.stripe(stripe_index).path())
    }

    fn file(&mut self, stripe_index: u32, path: &Path) -> Result<Option<&File>, StoreError> {
        if self.open.as_ref().is_none_or(|(open_index, _)| *open_index != stripe_index) {
            let file = match File::open(path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(StoreError::io("open", path, error)),
            };
            self.open = Some((stripe_index, file));
        }
        Ok(self.open.as_ref().and_then(|(_, file)| file.as_ref()))
    }
}

/// The bytes over those of an object's file.
fn ranges_of(logged: &LoggedContents, name: ObjectName) -> impl Iterator<Item = (u64, &[u8])> {
    let ObjectName { shard_index, inode, stripe_index } = name;
    let is_first = stripe_index == 0;
    logged.ranges(ShardId::data(shard_index), inode).filter(move |_| is_first)
}

fn end_of(object_offset: u64, bytes: &[u8]) -> u64 {
    object_offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
}

/// Puts ranges over bytes that were read from an offset on, so many of them; returns how many there
/// are now: bytes between are zeros.
fn put_over<'a>(
    ranges: impl Iterator<Item = (u64, &'a [u8])>,
    (offset, mut read_bytes): (u64, usize),
    to: &mut [u8],
) -> usize {
    let until = end_of(offset, to);
    for (at, bytes) in ranges.filter(|(at, bytes)| *at < until && end_of(*at, bytes) > offset) {
        let index = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
        let (from, end) =
            (index(at.max(offset) - offset), index(end_of(at, bytes).min(until) - offset));
        let skipped = index(offset.saturating_sub(at));
        if read_bytes < from {
            to[read_bytes..from].fill(0);
        }
        to[from..end].copy_from_slice(&bytes[skipped..skipped + (end - from)]);
        read_bytes = read_bytes.max(end);
    }
    read_bytes
}

/// The entries of a folder, in the order of names.
fn entries(folder: &Path) -> Result<Vec<DirEntry>, StoreError> {
    let listed = || fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>();
    let mut entries = listed().map_err(|error| StoreError::io("list", folder, error))?;
    entries.sort_unstable_by_key(DirEntry::file_name);
    Ok(entries)
}

fn is_folder(entry: &DirEntry) -> Result<bool, StoreError> {
    let kind = entry.file_type();
    kind.map(|kind| kind.is_dir()).map_err(|error| StoreError::io("look at", &entry.path(), error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_are_found_where_the_ring_puts_them() {
        let folder = tempfile::tempdir().unwrap();
        let inode = InodeNo(0x0003_0000_0004_8234);
        let name = ObjectName { shard_index: 5, inode, stripe_index: 0xa };
        assert_eq!(name.path(), Path::new("05/12/0003000000048234.a"));
        let path = folder.path().join(name.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, b"contents").unwrap();
        fs::write(folder.path().join("05/12/notes"), b"").unwrap();
        let files = ObjectFiles::new(folder.path().to_owned());
        let (mut found, mut foreign) = (Vec::new(), Vec::new());
        let visit = |file: ObjectFile| {
            found.push((file.name, file.size_bytes));
            Ok(())
        };
        files.each(visit, |path| foreign.push(path.to_owned())).unwrap();
        assert_eq!((found, foreign), (vec![(name, 8)], vec![PathBuf::from("05/12/notes")]));
        let other = ObjectName { stripe_index: 0, ..name };
        assert_eq!(files.find(other).unwrap(), None);
    }

    #[test]
    fn next_data_skips_holes() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::DEFAULT;
        let objects =
            FileObjects { layout, further: vec![1, 3], ..FileObjects::single(0, InodeNo(7)) };
        let put = |stripe_index: u32, at: u64| {
            let path = folder.path().join(objects.stripe(stripe_index).path());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            File::create(&path).unwrap().write_all_at(b"x", at).unwrap();
        };
        put(0, 4 << 20);
        put(3, 1 << 20);
        let files = ObjectFiles::new(folder.path().to_owned());
        let far = layout.start(3) + (1 << 20);
        assert_eq!(files.find_all(&objects).unwrap().unwrap().size_bytes, far + 1);
        let mut contents = files.contents(objects);
        let found = [0, 4 << 20, 5 << 20, far, far + 1].map(|at| contents.next_data(at).unwrap());
        assert_eq!(found, [Some(4 << 20), Some(4 << 20), Some(far), Some(far), None]);
    }
}
