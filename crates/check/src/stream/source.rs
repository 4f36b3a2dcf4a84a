//! The sending end of a backup that travels: objects in rounds, while they change, then the metadata.
//!
//! Invariant: an object that changed behind its sending is sent again in the next round.

use super::{Frame, ObjectHead, PIECE_BYTES_MAX};
use crate::backup_error::BackupError;
use crate::dump::dump;
use crate::restore::next_data;
use crate::round::{Round, each_object};
use crate::stamp::{Stamp, is_of_medium, is_racy, stamp};
use hashbrown::HashMap;
use rustix::fs::SeekFrom;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read as _, Seek as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use store::{ObjectFiles, ObjectName, View};

/// Takes frames.
type Send<'a> = &'a mut dyn FnMut(&Frame<'_>) -> io::Result<()>;

/// The objects of a store, on their way.
pub struct Source {
    from: PathBuf,
    /// What was sent and is known to be as its file is, unless that has changed.
    sent: HashMap<ObjectName, Stamp>,
}

/// Why an object did not go.
enum Failed {
    /// Its files could not be read.
    Read(io::Error),
    /// Nobody takes it.
    Send(io::Error),
}

impl Source {
    /// For a store's folder of objects.
    #[must_use]
    pub fn new(objects: PathBuf) -> Self {
        Self { from: objects, sent: HashMap::new() }
    }

    /// Sends what has changed. `ends` says, after each object, whether to end early. An object that the disk does
    /// not give (EIO) is named in place of its contents.
    ///
    /// # Errors
    /// [`BackupError`] when something else cannot be read, or not be sent.
    pub fn round(
        &mut self,
        send: Send<'_>,
        mut ends: impl FnMut() -> bool,
    ) -> Result<Round, BackupError> {
        send(&Frame::Round).map_err(to_client)?;
        let files = ObjectFiles::new(self.from.clone());
        each_object(&files, &mut ends, |name| self.object(name, send))
    }

    /// Sends an object unless it was sent as it is; how many bytes, if it was sent.
    fn object(&mut self, name: ObjectName, send: Send<'_>) -> Result<Option<u64>, BackupError> {
        let path = self.from.join(name.path());
        let stat = match fs::symlink_metadata(&path) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if is_of_medium(&error) => return self.leave_out(name, send),
            Err(error) => return Err(BackupError::Io(path, error)),
        };
        let now = stamp(&stat);
        if self.sent.get(&name) == Some(&now) {
            send(&Frame::Same(name)).map_err(to_client)?;
            return Ok(None);
        }
        let began_at = SystemTime::now();
        match send_object(name, (&path, &stat), send) {
            Ok(sent_bytes) => {
                send(&Frame::Whole).map_err(to_client)?;
                self.sent.remove(&name);
                if !is_racy(&stat, began_at) {
                    self.sent.insert(name, now);
                }
                Ok(Some(sent_bytes))
            }
            Err(Failed::Read(_)) if !path.exists() => {
                send(&Frame::Removed).map_err(to_client)?;
                Ok(None)
            }
            Err(Failed::Read(error)) if is_of_medium(&error) => self.leave_out(name, send),
            Err(Failed::Read(error)) => Err(BackupError::Io(path, error)),
            Err(Failed::Send(error)) => Err(to_client(error)),
        }
    }

    /// An object that cannot be read does not go.
    fn leave_out(&mut self, name: ObjectName, send: Send<'_>) -> Result<Option<u64>, BackupError> {
        self.sent.remove(&name);
        send(&Frame::Unread(name)).map_err(to_client)?;
        Ok(None)
    }

    /// Sends the metadata; how many lines. The last round and `view` are of one moment.
    ///
    /// # Errors
    /// [`BackupError`] when something cannot be read or sent.
    pub fn finish(self, view: &View, send: Send<'_>) -> Result<u64, BackupError> {
        let mut pieces = BufWriter::with_capacity(PIECE_BYTES_MAX, Pieces { send });
        let line_count = dump(view, &mut pieces).map_err(BackupError::Dump)?;
        pieces.flush().map_err(to_client)?;
        drop(pieces);
        if !view.is_of_same_boot()? {
            return Err(BackupError::OtherBoot);
        }
        Ok(line_count)
    }
}

/// Whether the disk does not give an object: it is read to its end, or to where that fails.
pub(crate) fn is_unreadable(name: ObjectName, from: (&Path, &Metadata)) -> bool {
    let read = send_object(name, from, &mut |_| Ok(()));
    matches!(read, Err(Failed::Read(error)) if is_of_medium(&error))
}

fn to_client(error: io::Error) -> BackupError {
    BackupError::Io(PathBuf::from("the stream to the client"), error)
}

/// An object without its holes; how many bytes.
fn send_object(
    name: ObjectName,
    (path, stat): (&Path, &Metadata),
    send: Send<'_>,
) -> Result<u64, Failed> {
    let mut source = File::open(path).map_err(Failed::Read)?;
    let file_bytes = source.metadata().map_err(Failed::Read)?.len();
    let (mtime_secs, mtime_nanos) = (stat.mtime(), stat.mtime_nsec().try_into().unwrap_or(0));
    let head = ObjectHead { name, mtime_secs, mtime_nanos, object_bytes: file_bytes };
    send(&Frame::Object(head)).map_err(Failed::Send)?;
    let mut piece = vec![0; PIECE_BYTES_MAX];
    let (mut at, mut sent_bytes) = (0, 0);
    while at < file_bytes
        && let Some(data) = next_data(&source, at).map_err(Failed::Read)?
    {
        let hole = rustix::fs::seek(&source, SeekFrom::Hole(data)).unwrap_or(file_bytes);
        let end = hole.min(file_bytes);
        source.seek(io::SeekFrom::Start(data)).map_err(Failed::Read)?;
        at = data;
        while at < end {
            let want = usize::try_from(end - at).map_or(piece.len(), |left| left.min(piece.len()));
            let read = source.read(&mut piece[..want]).map_err(Failed::Read)?;
            if read == 0 {
                return Ok(sent_bytes); // It became shorter meanwhile.
            }
            let data = Frame::Data { object_offset: at, bytes: &piece[..read] };
            send(&data).map_err(Failed::Send)?;
            let read_bytes = u64::try_from(read).unwrap_or(u64::MAX);
            at += read_bytes;
            sent_bytes += read_bytes;
        }
        // What grew meanwhile is sent in the next round.
        at = at.max(hole);
    }
    Ok(sent_bytes)
}

/// Metadata, as frames.
struct Pieces<'a> {
    send: Send<'a>,
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES_MAX)];
        (self.send)(&Frame::Metadata(piece))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
