//! The blocking API: each operation is a [`Session`]'s, run on the calling thread.
//!
//! Invariant: a method returns when its operation has ended, or when the server was away for the
//! connect timeout.

use crate::session::Session;
use crate::{
    Attr, ConnectOptions, Dir, DirEntry, Error, Export, File, FoundEntry, Frozen, InodeNo, Inspect,
    ListRead, NewExport, OpenFor, Piece, Removal, Report, Search, SearchOptions, SetAttr, Space,
    Special, Stats, Stride,
};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use wire::Map;

/// A connection to a file system, for one thread, whose calls block.
///
/// Besides the errors named at a method, each may return [`Error::Unreachable`] when the server was
/// away for the connect timeout, [`Error::Refused`] when it refuses this client, and [`Error::Op`]
/// with [`Status::Io`](crate::Status::Io) when its disk failed. The errors of a path are
/// `NotFound`, `NotDirectory`, `Access` (no permission to search a directory on the way),
/// `NameTooLong` (a name beyond 255 bytes) and `Loop` (more than 40 symbolic links).
pub struct Volume {
    session: Session,
}

impl Volume {
    /// Connects, with mutual proof of the secret, and waits for the Welcome.
    ///
    /// # Errors
    /// [`Error::Unreachable`] after the connect timeout, [`Error::Refused`] (wrong secret, unknown
    /// export, an impostor, another version), [`Error::Ring`] when this machine has no driver, or
    /// not the chosen one.
    pub fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        let session = Session::new(options, None)?;
        session.block_on(session.connect())?;
        Ok(Self { session })
    }

    /// Whether root acts as root through this export; otherwise the server maps it to nobody.
    #[must_use]
    pub fn is_root_trusted(&self) -> bool {
        self.session.is_root_trusted()
    }

    /// Whether the export is read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.session.is_read_only()
    }

    /// The export's root inode.
    #[must_use]
    pub fn root(&self) -> InodeNo {
        self.session.root()
    }

    /// From now on the last `count` names of every path are refused with `Loop` if they are
    /// symbolic links that would have to be followed. With 0, the default, all are followed.
    pub fn refuse_links(&mut self, count: usize) {
        self.session.refused_link_count.set(count);
    }

    /// The attributes of a path; a symbolic link at its end is followed.
    ///
    /// # Errors
    /// Those of a path.
    pub fn stat(&mut self, path: &Path) -> Result<Attr, Error> {
        self.wait(self.session.stat(path))
    }

    /// The attributes of a path; a symbolic link at its end is not followed, unless the path ends
    /// in a slash.
    ///
    /// # Errors
    /// Those of a path.
    pub fn lstat(&mut self, path: &Path) -> Result<Attr, Error> {
        self.wait(self.session.lstat(path))
    }

    /// Starts listing a directory; [`Self::next_entries`] continues.
    ///
    /// # Errors
    /// Those of a path; `NotDirectory`.
    pub fn read_dir(&mut self, path: &Path) -> Result<Dir, Error> {
        self.wait(self.session.read_dir(path))
    }

    /// The next entries of a directory, none at its end.
    ///
    /// # Errors
    /// `Access` without permission to read the directory or to search it, `Stale` when it was
    /// removed.
    pub fn next_entries(&mut self, dir: &mut Dir) -> Result<Vec<DirEntry>, Error> {
        self.wait(self.session.next_entries(dir))
    }

    /// The matches among the next entries, often none; `None` at the end.
    ///
    /// # Errors
    /// As [`Self::next_entries`].
    pub fn search(
        &mut self,
        search: &mut Search,
        wanted: &SearchOptions<'_>,
    ) -> Result<Option<Vec<FoundEntry>>, Error> {
        self.wait(self.session.search(search, wanted))
    }

    /// Opens an existing file.
    ///
    /// # Errors
    /// Those of a path; `IsDirectory`, `Access`, `ReadOnly`, and `TooManyFiles` when this volume
    /// has 4096 files open.
    pub fn open(&mut self, path: &Path, open_for: OpenFor) -> Result<File, Error> {
        self.wait(self.session.open(path, open_for))
    }

    /// Opens a file for writing, creating it with `mode` (less the identity's umask) if it does not
    /// exist. Symbolic links are followed unless `exclusive`, which refuses any existing name.
    ///
    /// # Errors
    /// As [`Self::open`]; `Exists` with `exclusive`, `NoSpace`.
    pub fn create(&mut self, path: &Path, mode: u32, exclusive: bool) -> Result<File, Error> {
        self.wait(self.session.create(path, mode, exclusive))
    }

    /// Reads at most [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) bytes; fewer at the file's end.
    ///
    /// # Errors
    /// `Stale` when the server closed the file (this client was evicted).
    pub fn read_at(&mut self, file: &File, piece: Piece) -> Result<Vec<u8>, Error> {
        self.wait(self.session.read_at(file, piece))
    }

    /// Reads several pieces at once; returns their bytes in the same order, shorter at the file's
    /// end.
    ///
    /// # Errors
    /// As [`Self::read_at`], of the first piece that failed.
    pub fn read_pieces(&mut self, file: &File, pieces: &[Piece]) -> Result<Vec<Vec<u8>>, Error> {
        self.wait(self.session.read_pieces(file, pieces))
    }

    /// Writes bytes at an offset, [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) at a time, several such
    /// pieces in flight at once.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge` beyond 2^63 − 1 bytes, [`Error::Ring`] when no buffer is free; other
    /// pieces than the one that failed may have been written.
    pub fn write_at(&mut self, file: &File, file_offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.wait(self.session.write_at(file, file_offset, bytes))
    }

    /// Writes several pieces at once, each with its offset and at most
    /// [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) bytes.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_pieces(&mut self, file: &File, pieces: &[(u64, &[u8])]) -> Result<(), Error> {
        self.wait(self.session.write_pieces(file, pieces))
    }

    /// Reads many pieces in one exchange: holes as zeros, and of each piece the part within the
    /// file ([`ListRead::piece_bytes`]). Pieces may overlap and be of any order and length. More
    /// than [`PIECE_COUNT_MAX`](crate::PIECE_COUNT_MAX) pieces or
    /// [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) bytes take further exchanges, several of them in
    /// flight at once.
    ///
    /// # Errors
    /// As [`Self::read_at`]; `TooLarge` for a piece beyond 2^63 − 1.
    pub fn read_list(&mut self, file: &File, pieces: &[Piece]) -> Result<ListRead, Error> {
        self.wait(self.session.read_list(file, pieces))
    }

    /// As [`Self::read_list`], for equidistant pieces.
    ///
    /// # Errors
    /// As [`Self::read_list`].
    pub fn read_stride(&mut self, file: &File, stride: Stride) -> Result<ListRead, Error> {
        let pieces: Vec<Piece> = stride.pieces().collect();
        self.read_list(file, &pieces)
    }

    /// Writes many pieces in one exchange; `bytes` are those of all pieces, concatenated. Readers
    /// see all of an exchange or nothing; only when server and client crash together before the
    /// reply, a part may remain, as of any write. A larger list (see [`Self::read_list`]) takes
    /// further exchanges, each atomic by itself.
    ///
    /// # Errors
    /// As [`Self::write_at`]; `Invalid`, and nothing is written, when pieces overlap or `bytes` has
    /// another length.
    pub fn write_list(&mut self, file: &File, pieces: &[Piece], bytes: &[u8]) -> Result<(), Error> {
        self.wait(self.session.write_list(file, pieces, bytes))
    }

    /// As [`Self::write_list`], for equidistant pieces.
    ///
    /// # Errors
    /// As [`Self::write_list`].
    pub fn write_stride(&mut self, file: &File, stride: Stride, bytes: &[u8]) -> Result<(), Error> {
        let pieces: Vec<Piece> = stride.pieces().collect();
        self.write_list(file, &pieces, bytes)
    }

    /// Sets the size of a file that is open for writing; a longer file is extended with zeros.
    ///
    /// # Errors
    /// `TooLarge` beyond 2^63 − 1 bytes, `ReadOnly`.
    pub fn truncate(&mut self, file: &File, size_bytes: u64) -> Result<(), Error> {
        self.wait(self.session.truncate(file, size_bytes))
    }

    /// Waits until all changes to an open file, from any client, are durable: names, attributes,
    /// contents.
    ///
    /// # Errors
    /// `Io`, once, when an answered change of it is lost.
    pub fn sync_file(&mut self, file: &File) -> Result<(), Error> {
        self.wait(self.session.sync_file(file))
    }

    /// Closes a file. The metadata shard learns its size later, when the contents are durable;
    /// [`Self::sync`] and [`Self::leave`] wait for that.
    ///
    /// # Errors
    /// [`Error::Op`] of an earlier close.
    pub fn close(&mut self, file: File) -> Result<(), Error> {
        self.wait(self.session.close(file))
    }

    /// Makes a directory with `mode` less the identity's umask.
    ///
    /// # Errors
    /// Those of a path; `Exists`, `Access`, `ReadOnly`, `NoSpace`, `TooManyLinks`.
    pub fn mkdir(&mut self, path: &Path, mode: u32) -> Result<Attr, Error> {
        self.wait(self.session.mkdir(path, mode))
    }

    /// Removes a name of a non-directory. Open handles remain valid.
    ///
    /// # Errors
    /// Those of a path; `IsDirectory`, `Access`, `NotPermitted` (another user's name in a directory
    /// with the sticky bit), `ReadOnly`.
    pub fn unlink(&mut self, path: &Path) -> Result<(), Error> {
        self.wait(self.session.unlink(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Self::unlink`], with `NotDirectory` for `IsDirectory`; `NotEmpty`.
    pub fn rmdir(&mut self, path: &Path) -> Result<(), Error> {
        self.wait(self.session.rmdir(path))
    }

    /// Renames a file or directory, replacing an existing one.
    ///
    /// # Errors
    /// Those of both paths, with the old path's name; `Access`, `NotPermitted`, `ReadOnly`,
    /// `Invalid` (a directory into itself), `IsDirectory`, `NotDirectory` and `NotEmpty` (for the
    /// existing target), `NoSpace`, `TooManyLinks`.
    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Error> {
        self.wait(self.session.rename(from, to))
    }

    /// Makes a symbolic link at `path` that points to `to`, which need not exist.
    ///
    /// # Errors
    /// As [`Self::mkdir`]; `NameTooLong` for a target beyond 4095 bytes.
    pub fn symlink(&mut self, to: &OsStr, path: &Path) -> Result<Attr, Error> {
        self.wait(self.session.symlink(to, path))
    }

    /// Makes a fifo, socket or device. Only root may make devices.
    ///
    /// # Errors
    /// As [`Self::mkdir`]; `Invalid` for another kind, `NotPermitted`.
    pub fn mknod(&mut self, path: &Path, special: &Special) -> Result<Attr, Error> {
        self.wait(self.session.mknod(path, special))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Those of a path; `Invalid` if it is no symbolic link.
    pub fn readlink(&mut self, path: &Path) -> Result<OsString, Error> {
        self.wait(self.session.readlink(path))
    }

    /// Changes mode, owner, group or times of an inode; `path` is for messages.
    ///
    /// # Errors
    /// `NotPermitted` and `Access` as of chmod(2), chown(2) and utimensat(2), `ReadOnly`, `Stale`
    /// when the inode was removed.
    pub fn set_attr(&mut self, inode: InodeNo, path: &Path, set: &SetAttr) -> Result<Attr, Error> {
        self.wait(self.session.set_attr(inode, path, set))
    }

    /// Makes a further name for a non-directory.
    ///
    /// # Errors
    /// As [`Self::mkdir`], of the new path; `NotPermitted` for a directory, `Stale` when the file
    /// was removed.
    pub fn link(&mut self, inode: InodeNo, path: &Path) -> Result<Attr, Error> {
        self.wait(self.session.link(inode, path))
    }

    /// Waits until all changes through this volume are durable.
    ///
    /// # Errors
    /// `Io`, once, when an answered change is lost; errors of earlier closes.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.wait(self.session.sync())
    }

    /// Waits until all changes that any shard has answered are durable.
    ///
    /// # Errors
    /// `Io` when an answered change is lost.
    pub fn sync_server(&mut self) -> Result<(), Error> {
        self.wait(self.session.sync_server())
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// None of its own.
    pub fn statfs(&mut self) -> Result<Space, Error> {
        self.wait(self.session.statfs())
    }

    /// Counters, one entry per server lane.
    ///
    /// # Errors
    /// None of its own.
    pub fn stats(&mut self) -> Result<Vec<Stats>, Error> {
        self.wait(self.session.stats())
    }

    /// The number of the server's lanes.
    #[must_use]
    pub fn server_lane_count(&self) -> u16 {
        self.session.server_lane_count()
    }

    /// The server's map: its lanes and shards.
    #[must_use]
    pub fn map(&self) -> Option<Map> {
        self.session.map()
    }

    /// All exports, in the order of names. For a volume that
    /// [administers](crate::Purpose::Administer), like the next methods.
    ///
    /// # Errors
    /// `NotPermitted` when this volume does not administer.
    pub fn exports(&mut self) -> Result<Vec<Export>, Error> {
        self.wait(self.session.exports())
    }

    /// Delays changes of all clients for this many milliseconds, unless it is called again before
    /// that; 0 ends the delay. Reads are answered.
    ///
    /// # Errors
    /// `NotPermitted` when this volume does not administer.
    pub fn freeze(&mut self, lease_ms: u32) -> Result<Frozen, Error> {
        self.wait(self.session.freeze(lease_ms))
    }

    /// Controls an inspection of the store by the server's host: begins one, requests the next
    /// bytes of its output, or continues it. Returns bytes of output, and whether they are the
    /// last. An inspection belongs to one connection and ends with it.
    ///
    /// # Errors
    /// `NotPermitted` when this volume does not administer, `Busy` when the server has its maximum
    /// of inspections, `NotFound` when this connection has none, `Invalid` for an output position
    /// that is not next.
    pub fn inspect(&mut self, request: Inspect) -> Result<(Vec<u8>, bool), Error> {
        self.wait(self.session.inspect(request))
    }

    /// Defines an export, durably, at every lane of the server.
    ///
    /// # Errors
    /// Those of a path; `Exists` when the name is taken, `Busy` when an option of the server
    /// defines it, `NotDirectory`, `NotPermitted`.
    pub fn add_export(&mut self, new: &NewExport<'_>) -> Result<(), Error> {
        self.wait(self.session.add_export(new))
    }

    /// Removes an export. Requests through it are refused from then on.
    ///
    /// # Errors
    /// `Busy` when an option of the server defines it, `NotPermitted`.
    pub fn remove_export(&mut self, name: &str) -> Result<Removal, Error> {
        self.wait(self.session.remove_export(name))
    }

    /// The reports of broken promises since the last call.
    pub fn take_reports(&mut self) -> Vec<Report> {
        self.session.take_reports()
    }

    /// Ends in order: waits until all changes through this volume are durable, and ends the session
    /// at the server. Dropping a volume does the same, but the result is lost.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn leave(self) -> Result<(), Error> {
        self.wait(self.session.leave())
    }

    fn wait<T>(&self, operation: impl Future<Output = T>) -> T {
        self.session.block_on(operation)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // No caller is left, and an absent server is given up soon; a caller that needs the result,
        // or a longer wait, uses `leave`.
        self.wait(self.session.leave_soon());
    }
}
