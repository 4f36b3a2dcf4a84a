//! The files of objects, as seen from outside a lane: their names and sizes.
//!
//! The ring defines the layout (`docs/formats.md`). This module changes no file.

use crate::StoreError;
use ring::SEGMENT_BYTES;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::{self, DirEntry, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use wire::InodeNo;

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

/// An object's file, with its further segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectFile {
    /// The object.
    pub name: ObjectName,
    /// The object's size.
    pub size_bytes: u64,
    /// The allocated space.
    pub allocated_bytes: u64,
}

/// The folder of a store's objects.
#[derive(Clone, Debug)]
pub struct ObjectFiles {
    folder: PathBuf,
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
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The file of one object, if there is one.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn find(&self, name: ObjectName) -> Result<Option<ObjectFile>, StoreError> {
        let path = self.folder.join(name.path());
        match fs::symlink_metadata(&path) {
            Ok(stat) => self.measure(name, &stat).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("look at", &path, error)),
        }
    }

    /// The contents of an object, which need not exist.
    #[must_use]
    pub fn contents(&self, name: ObjectName) -> ObjectContents {
        ObjectContents { path: self.folder.join(name.path()), open: None }
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
                    let first = text.strip_suffix(".d").unwrap_or(&text);
                    let name = ObjectName::of_path(&below.join(first));
                    match name {
                        // A further segment of an object that its first file stands for.
                        Some(_) if first != text => {}
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

    fn measure(&self, name: ObjectName, stat: &Metadata) -> Result<ObjectFile, StoreError> {
        let mut file = ObjectFile {
            name,
            size_bytes: stat.size(),
            allocated_bytes: stat.blocks() * STAT_BLOCK_BYTES,
        };
        if file.size_bytes < SEGMENT_BYTES {
            return Ok(file);
        }
        let folder = self.folder.join(name.path()).with_added_extension("d");
        if !folder.exists() {
            return Ok(file);
        }
        for entry in entries(&folder)? {
            let text = entry.file_name().to_string_lossy().into_owned();
            let Ok(segment_no) = u64::from_str_radix(&text, 16) else { continue };
            let stat = entry.metadata();
            let stat = stat.map_err(|error| StoreError::io("look at", &entry.path(), error))?;
            let end = segment_no.saturating_mul(SEGMENT_BYTES).saturating_add(stat.size());
            file.size_bytes = file.size_bytes.max(end);
            file.allocated_bytes += stat.blocks() * STAT_BLOCK_BYTES;
        }
        Ok(file)
    }
}

/// The bytes of an object, for reading.
#[derive(Debug)]
pub struct ObjectContents {
    /// The path of its first file.
    path: PathBuf,
    /// The segment that was read last; without a file where there is none.
    open: Option<(u64, Option<File>)>,
}

impl ObjectContents {
    /// Reads from an offset on; returns fewer bytes than requested only at the end of the segment's
    /// file.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn read_at(&mut self, offset: u64, to: &mut [u8]) -> Result<usize, StoreError> {
        let path = self.path_of(offset / SEGMENT_BYTES);
        let failed = |error| StoreError::io("read", &path, error);
        let Some(file) = self.file(offset / SEGMENT_BYTES, &path)? else { return Ok(0) };
        let mut read_bytes = 0;
        while let Some(rest) = to.get_mut(read_bytes..).filter(|rest| !rest.is_empty()) {
            let at = offset % SEGMENT_BYTES + u64::try_from(read_bytes).unwrap_or(u64::MAX);
            match file.read_at(rest, at) {
                Ok(0) => break,
                Ok(count) => read_bytes += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(read_bytes)
    }

    /// The next position with data, from an offset on: there are only holes before it. `None`: only
    /// holes up to the end of the object.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn next_data(&mut self, offset: u64) -> Result<Option<u64>, StoreError> {
        let mut segments = self.further_segments()?;
        segments.push(0);
        segments.retain(|segment_no| *segment_no >= offset / SEGMENT_BYTES);
        segments.sort_unstable();
        for segment_no in segments {
            let path = self.path_of(segment_no);
            let start = segment_no.saturating_mul(SEGMENT_BYTES);
            let Some(file) = self.file(segment_no, &path)? else { continue };
            match rustix::fs::seek(file, SeekFrom::Data(offset.saturating_sub(start))) {
                Ok(at) => return Ok(Some(start.saturating_add(at))),
                Err(Errno::NXIO) => {}
                Err(error) => return Err(StoreError::io("read", &path, error)),
            }
        }
        Ok(None)
    }

    /// The numbers of existing segments behind the first one.
    fn further_segments(&self) -> Result<Vec<u64>, StoreError> {
        let folder = self.path.with_added_extension("d");
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let names = entries(&folder)?.into_iter().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| u64::from_str_radix(name.to_str()?, 16).ok()).collect())
    }

    fn path_of(&self, segment_no: u64) -> PathBuf {
        if segment_no == 0 {
            return self.path.clone();
        }
        self.path.with_added_extension("d").join(format!("{segment_no:x}"))
    }

    fn file(&mut self, segment_no: u64, path: &Path) -> Result<Option<&File>, StoreError> {
        if self.open.as_ref().is_none_or(|(open_no, _)| *open_no != segment_no) {
            let file = match File::open(path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(StoreError::io("open", path, error)),
            };
            self.open = Some((segment_no, file));
        }
        Ok(self.open.as_ref().and_then(|(_, file)| file.as_ref()))
    }
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
        let name = ObjectName { shard_index: 0, inode: InodeNo(7), stripe_index: 0 };
        let path = folder.path().join(name.path());
        let segments = path.with_added_extension("d");
        fs::create_dir_all(&segments).unwrap();
        let first = File::create(&path).unwrap();
        first.write_all_at(b"x", 4 << 20).unwrap();
        first.set_len(SEGMENT_BYTES).unwrap();
        File::create(segments.join("3")).unwrap().write_all_at(b"x", 1 << 20).unwrap();
        let mut contents = ObjectFiles::new(folder.path().to_owned()).contents(name);
        let far = 3 * SEGMENT_BYTES + (1 << 20);
        let found = [0, 4 << 20, 5 << 20, far, far + 1].map(|at| contents.next_data(at).unwrap());
        assert_eq!(found, [Some(4 << 20), Some(4 << 20), Some(far), Some(far), None]);
    }
}
