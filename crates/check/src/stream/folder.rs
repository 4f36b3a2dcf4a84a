//! The receiving end of a backup that travels: the folder that it becomes.
//!
//! Invariants: an object's copy is replaced when it has wholly come; the folder has its mark until
//! [`Folder::finish`]; names of files are made here, of numbers.

use super::{Frame, ObjectHead};
use crate::backup::{Finished, begin_folder, create, end_folder, remove_others, unproven};
use crate::backup_error::BackupError;
use hashbrown::HashSet;
use std::fs::{self, DirBuilder, File, FileTimes};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use store::{OBJECTS, ObjectName};

/// A backup that comes.
pub struct Folder {
    folder: PathBuf,
    metadata: File,
    /// Objects that this round has seen.
    seen: HashSet<ObjectName>,
    /// Objects that could not be read in this round.
    unread: HashSet<ObjectName>,
    coming: Option<Coming>,
}

/// An object that has not wholly come.
struct Coming {
    head: ObjectHead,
    file: File,
}

impl Folder {
    /// Begins a backup. What one that was interrupted left in the folder is replaced.
    ///
    /// # Errors
    /// [`BackupError`] when the folder has something else, or cannot be made.
    pub fn begin(folder: &Path) -> Result<Self, BackupError> {
        begin_folder(folder)?;
        let objects = folder.join(OBJECTS);
        let emptied = fs::remove_dir_all(&objects)
            .and_then(|()| DirBuilder::new().mode(0o700).create(&objects));
        emptied.map_err(|error| BackupError::Io(objects, error))?;
        let place = unproven(folder);
        let metadata = create(&place).map_err(|error| BackupError::Io(place, error))?;
        let (seen, unread) = (HashSet::new(), HashSet::new());
        Ok(Self { folder: folder.to_owned(), metadata, seen, unread, coming: None })
    }

    /// Takes a frame of a backup.
    ///
    /// # Errors
    /// [`BackupError::Stream`] when it does not follow from those before, [`BackupError::Io`] when it cannot be
    /// kept.
    pub fn take(&mut self, frame: &Frame<'_>) -> Result<(), BackupError> {
        match frame {
            Frame::Round => {
                self.seen.clear();
                self.unread.clear();
            }
            Frame::Same(name) => drop(self.seen.insert(*name)),
            Frame::Object(head) => return self.object(*head),
            Frame::Data { object_offset, bytes } => return self.data(*object_offset, bytes),
            Frame::Whole => return self.whole(),
            Frame::Removed => {
                let coming = self.coming.take().ok_or(BackupError::Stream)?;
                self.seen.remove(&coming.head.name);
                self.discard(coming.head.name)?;
            }
            Frame::Unread(name) => {
                let begun = self.coming.take().map_or(*name, |coming| coming.head.name);
                if begun != *name {
                    return Err(BackupError::Stream);
                }
                self.seen.remove(name);
                self.unread.insert(*name);
                self.discard(*name)?;
            }
            Frame::Metadata(bytes) => {
                let written = self.metadata.write_all(bytes);
                return written.map_err(|error| BackupError::Io(unproven(&self.folder), error));
            }
            Frame::Output(_)
            | Frame::Line(_)
            | Frame::Pass(_)
            | Frame::Looked(_)
            | Frame::Freeze
            | Frame::Thaw
            | Frame::End { .. } => return Err(BackupError::Stream),
        }
        Ok(())
    }

    fn place(&self, name: ObjectName) -> PathBuf {
        self.folder.join(OBJECTS).join(name.path())
    }

    fn object(&mut self, head: ObjectHead) -> Result<(), BackupError> {
        if self.coming.is_some() {
            return Err(BackupError::Stream);
        }
        let place = self.place(head.name);
        let folder = place.parent().unwrap_or(&place);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| BackupError::Io(folder.to_owned(), error))?;
        self.discard(head.name)?;
        self.seen.insert(head.name);
        let opened = create(&unfinished(&place));
        let file = opened.and_then(|file| file.set_len(head.object_bytes).map(|()| file));
        let file = file.map_err(|error| BackupError::Io(place, error))?;
        self.coming = Some(Coming { head, file });
        Ok(())
    }

    /// Removes what has come of an object.
    fn discard(&self, name: ObjectName) -> Result<(), BackupError> {
        let place = self.place(name);
        match fs::remove_file(unfinished(&place)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(BackupError::Io(place, error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn data(&mut self, object_offset: u64, bytes: &[u8]) -> Result<(), BackupError> {
        let coming = self.coming.as_ref().ok_or(BackupError::Stream)?;
        let piece_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let end = object_offset.checked_add(piece_bytes);
        if end.is_none_or(|end| end > coming.head.object_bytes) {
            return Err(BackupError::Stream);
        }
        let written = coming.file.write_all_at(bytes, object_offset);
        written.map_err(|error| BackupError::Io(self.place(coming.head.name), error))
    }

    /// An object has come: it takes the place of its earlier copy.
    fn whole(&mut self) -> Result<(), BackupError> {
        let coming = self.coming.take().ok_or(BackupError::Stream)?;
        let place = self.place(coming.head.name);
        let modified = time_of(coming.head).ok_or(BackupError::Stream)?;
        let put = || {
            coming.file.set_times(FileTimes::new().set_modified(modified))?;
            fs::rename(unfinished(&place), &place)
        };
        put().map_err(|error| BackupError::Io(place.clone(), error))
    }

    /// Compares the copies with the metadata and takes the mark away. The stream has ended well.
    ///
    /// # Errors
    /// [`BackupError`] when something cannot be written, or an object or the metadata have not wholly come. Damaged
    /// contents are no error.
    pub fn finish(self) -> Result<Finished, BackupError> {
        if self.coming.is_some() {
            return Err(BackupError::Stream);
        }
        remove_others(&self.folder, &self.seen)?;
        end_folder(&self.folder, &self.unread)
    }
}

fn time_of(head: ObjectHead) -> Option<SystemTime> {
    let secs = Duration::from_secs(head.mtime_secs.unsigned_abs());
    let whole = if head.mtime_secs < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(secs)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(secs)
    };
    whole?.checked_add(Duration::from_nanos(head.mtime_nanos.into()))
}

/// Where an object lies until it is all there.
fn unfinished(place: &Path) -> PathBuf {
    place.with_added_extension("tmp")
}
