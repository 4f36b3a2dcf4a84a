//! The blocking API: each operation is a [`Session`]'s, waited for on the calling thread.
//!
//! Invariant: a method returns when its operation has ended, at the latest when the server was away
//! for as long as the connect timeout.

use crate::session::Session;
use crate::{
    Attr, ConnectOptions, Dir, DirEntry, Error, Export, File, FoundEntry, Frozen, InodeNo, Inspect,
    ListRead, NewExport, OpenFor, Piece, Removed, Report, Search, SetAttr, Space, Special, Stats,
    Stride, Wanted,
};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use wire::Map;

/// A connection to a file system, for one thread, whose calls block.
///
/// Besides the errors a method names, each gives [`Error::Unreachable`] when the server was away for
/// the connect timeout, [`Error::Refused`] when it refuses this client, and [`Error::Op`] with
/// [`Status::Io`](crate::Status::Io) when its disk failed. A path that is walked gives `NotFound`,
/// `NotDirectory`, `Access` (no permission to search a directory on the way), `NameTooLong` (a name
/// beyond 255 bytes) and `Loop` (more than 40 symbolic links).
pub struct Volume {
    session: Session,
}

impl Volume {
    /// Connects, proves the secret both ways and waits for the welcome.
    ///
    /// # Errors
    /// [`Error::Unreachable`] after the connect timeout, [`Error::Refused`] (wrong secret, unknown
    /// export, an impostor, other versions), [`Error::Ring`] when this machine has no driver
    /// for us, or not the one that is wanted.
    pub fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        let session = Session::new(options, None)?;
        session.block_on(session.connect())?;
        Ok(Self { session })
    }

    /// Whether root acts as root through this export; otherwise it is nobody.
    #[must_use]
    pub fn is_root_trusted(&self) -> bool {
        self.session.is_root_trusted()
    }

    /// Whether nothing is changed through this export.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.session.is_read_only()
    }

    /// The inode that is the root of this export.
    #[must_use]
    pub fn root(&self) -> InodeNo {
        self.session.root()
    }

    /// From now on the last `count` names of every path are refused with `Loop` if they are symbolic
    /// links that would have to be followed. With 0, as it begins, all are followed.
    pub fn refuse_links(&mut self, count: usize) {
        self.session.refused_link_count.set(count);
    }

    /// What a path leads to; a symbolic link at its end is followed.
    ///
    /// # Errors
    /// Those of a path.
    pub fn stat(&mut self, path: &Path) -> Result<Attr, Error> {
        self.wait(self.session.stat(path))
    }

    /// What a path names; a symbolic link at its end is itself the answer, unless the path ends
    /// in a slash.
    ///
    /// # Errors
    /// Those of a path.
    pub fn lstat(&mut self, path: &Path) -> Result<Attr, Error> {
        self.wait(self.session.lstat(path))
    }

    /// Starts listing a directory; [`Self::next_entries`] goes on.
    ///
    /// # Errors
    /// Those of a path; `NotDirectory`.
    pub fn read_dir(&mut self, path: &Path) -> Result<Dir, Error> {
        self.wait(self.session.read_dir(path))
    }

    /// The next entries of a directory, none at its end.
    ///
    /// # Errors
    /// `Access` when it may not be read or what is in it not be looked at, `Stale` when it was
    /// removed.
    pub fn next_entries(&mut self, dir: &mut Dir) -> Result<Vec<DirEntry>, Error> {
        self.wait(self.session.next_entries(dir))
    }

    /// What fits among the next entries, often nothing; `None` behind the last.
    ///
    /// # Errors
    /// As [`Self::next_entries`].
    pub fn search(
        &mut self,
        search: &mut Search,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Vec<FoundEntry>>, Error> {
        self.wait(self.session.search(search, wanted))
    }

    /// Opens an existing file.
    ///
    /// # Errors
    /// Those of a path; `IsDirectory`, `Access`, `ReadOnly`, and `TooManyFiles` when this volume has 4096
    /// files open.
    pub fn open(&mut self, path: &Path, open_for: OpenFor) -> Result<File, Error> {
        self.wait(self.session.open(path, open_for))
    }

    /// Opens a file for writing, making it with `mode` (less the identity's umask) if need be.
    /// Symbolic links are followed unless `exclusive`, which refuses whatever exists.
    ///
    /// # Errors
    /// As [`Self::open`]; `Exists` with `exclusive`, `NoSpace`.
    pub fn create(&mut self, path: &Path, mode: u32, exclusive: bool) -> Result<File, Error> {
        self.wait(self.session.create(path, mode, exclusive))
    }

    /// Reads at most [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) bytes; fewer at the file's end.
    ///
    /// # Errors
    /// `Stale` when the file was closed by the server (this client was evicted).
    pub fn read_at(&mut self, file: &File, piece: Piece) -> Result<Vec<u8>, Error> {
        self.wait(self.session.read_at(file, piece))
    }

    /// Reads several pieces at once; their bytes in the same order, shorter at the file's end.
    ///
    /// # Errors
    /// As [`Self::read_at`], of the first piece that failed.
    pub fn read_pieces(&mut self, file: &File, pieces: &[Piece]) -> Result<Vec<Vec<u8>>, Error> {
        self.wait(self.session.read_pieces(file, pieces))
    }

    /// Writes bytes at an offset, [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) at a time, several such
    /// pieces on their way at once.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge` beyond 2^63 − 1 bytes, [`Error::Ring`] when no buffer is free; pieces
    /// beside the one that failed may have been written.
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

    /// Reads many pieces in one exchange: holes as zeros, and of each piece what the file has of it,
    /// as [`ListRead::piece_bytes`] says. Pieces may overlap and be of any order and length. More
    /// than [`PIECE_COUNT_MAX`](crate::PIECE_COUNT_MAX) pieces or
    /// [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) bytes take further exchanges, several of them on
    /// their way at once.
    ///
    /// # Errors
    /// As [`Self::read_at`]; `TooLarge` for a piece beyond 2^63 − 1.
    pub fn read_list(&mut self, file: &File, pieces: &[Piece]) -> Result<ListRead, Error> {
        self.wait(self.session.read_list(file, pieces))
    }

    /// As [`Self::read_list`], of pieces in equal distances.
    ///
    /// # Errors
    /// As [`Self::read_list`].
    pub fn read_stride(&mut self, file: &File, stride: Stride) -> Result<ListRead, Error> {
        let pieces: Vec<Piece> = stride.pieces().collect();
        self.read_list(file, &pieces)
    }

    /// Writes many pieces in one exchange; `bytes` are those of all pieces, one behind the other. Who
    /// reads sees all of an exchange or nothing; only when server and client die together before it is
    /// answered, a part may remain, as of any write. More than one carries (see [`Self::read_list`])
    /// takes further exchanges, each seen by itself.
    ///
    /// # Errors
    /// As [`Self::write_at`]; `Invalid`, and nothing is written, when pieces overlap or `bytes` are
    /// not as many as they say.
    pub fn write_list(&mut self, file: &File, pieces: &[Piece], bytes: &[u8]) -> Result<(), Error> {
        self.wait(self.session.write_list(file, pieces, bytes))
    }

    /// As [`Self::write_list`], to pieces in equal distances.
    ///
    /// # Errors
    /// As [`Self::write_list`].
    pub fn write_stride(&mut self, file: &File, stride: Stride, bytes: &[u8]) -> Result<(), Error> {
        let pieces: Vec<Piece> = stride.pieces().collect();
        self.write_list(file, &pieces, bytes)
    }

    /// Sets the size of a file that is open for writing; what is new reads as zeros.
    ///
    /// # Errors
    /// `TooLarge` beyond 2^63 − 1 bytes, `ReadOnly`.
    pub fn truncate(&mut self, file: &File, size_bytes: u64) -> Result<(), Error> {
        self.wait(self.session.truncate(file, size_bytes))
    }

    /// Waits until what was done to an open file, by anybody, is durable: names, attributes,
    /// contents.
    ///
    /// # Errors
    /// `Io`, once, when something of it is lost.
    pub fn sync_file(&mut self, file: &File) -> Result<(), Error> {
        self.wait(self.session.sync_file(file))
    }

    /// Closes a file. Its size is settled at the metadata shard behind it, once what was written is
    /// durable; [`Self::sync`] and [`Self::leave`] wait for that.
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

    /// Removes a name of something that is no directory. Who has it open keeps it.
    ///
    /// # Errors
    /// Those of a path; `IsDirectory`, `Access`, `NotPermitted` (another's name in a directory with
    /// the sticky bit), `ReadOnly`.
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

    /// Moves a name, over an existing one if need be.
    ///
    /// # Errors
    /// Those of a path, of both, with the old path's name; `Access`, `NotPermitted`, `ReadOnly`,
    /// `Invalid` (a directory into itself), `IsDirectory`, `NotDirectory` and `NotEmpty` (of what is
    /// there), `NoSpace`, `TooManyLinks`.
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

    /// Makes a fifo, socket or device. Devices are root's to make.
    ///
    /// # Errors
    /// As [`Self::mkdir`]; `Invalid` for another kind, `NotPermitted`.
    pub fn mknod(&mut self, path: &Path, special: &Special) -> Result<Attr, Error> {
        self.wait(self.session.mknod(path, special))
    }

    /// What a symbolic link points to.
    ///
    /// # Errors
    /// Those of a path; `Invalid` for what is no symbolic link.
    pub fn readlink(&mut self, path: &Path) -> Result<OsString, Error> {
        self.wait(self.session.readlink(path))
    }

    /// Changes mode, owner, group or times of an inode; `path` is for messages.
    ///
    /// # Errors
    /// `NotPermitted` and `Access` as chmod(2), chown(2) and utimensat(2) have them, `ReadOnly`,
    /// `Stale` when it was removed.
    pub fn set_attr(&mut self, inode: InodeNo, path: &Path, set: &SetAttr) -> Result<Attr, Error> {
        self.wait(self.session.set_attr(inode, path, set))
    }

    /// PrivilegedBits a file that is no directory a further name.
    ///
    /// # Errors
    /// As [`Self::mkdir`], of the new path; `NotPermitted` for a directory, `Stale` when the file was
    /// removed.
    pub fn link(&mut self, inode: InodeNo, path: &Path) -> Result<Attr, Error> {
        self.wait(self.session.link(inode, path))
    }

    /// Waits until everything that was done through this volume is durable.
    ///
    /// # Errors
    /// `Io`, once, when something of it is lost; those of earlier closes.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.wait(self.session.sync())
    }

    /// Waits until all that anybody was answered, at any shard, is durable.
    ///
    /// # Errors
    /// `Io` when something of it is lost.
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

    /// How many lanes the server has.
    #[must_use]
    pub fn server_lane_count(&self) -> u16 {
        self.session.server_lane_count()
    }

    /// The server's shape: its lanes and shards.
    #[must_use]
    pub fn map(&self) -> Option<Map> {
        self.session.map()
    }

    /// All that can be mounted, in the order of names. For a volume that
    /// [administers](crate::Purpose::Administer), like its peer lanes.
    ///
    /// # Errors
    /// `NotPermitted` when this volume does not administer.
    pub fn exports(&mut self) -> Result<Vec<Export>, Error> {
        self.wait(self.session.exports())
    }

    /// Lets changes of all clients wait for so many milliseconds, unless it is called again before that; 0: they
    /// wait no longer. Reads are answered.
    ///
    /// # Errors
    /// `NotPermitted` when this volume does not administer.
    pub fn freeze(&mut self, lease_ms: u32) -> Result<Frozen, Error> {
        self.wait(self.session.freeze(lease_ms))
    }

    /// Asks about an inspection of the store by the server's host: to begin one, for the next bytes of its output,
    /// or to go on. PrivilegedBits bytes of output, and whether there are no more. An inspection belongs to one connection:
    /// when that is lost, it has ended.
    ///
    /// # Errors
    /// `NotPermitted` when this volume does not administer, `Busy` when the server has as many inspections as
    /// it allows, `NotFound` when this connection has none, `Invalid` for output that is not next.
    pub fn inspect(&mut self, ask: Inspect) -> Result<(Vec<u8>, bool), Error> {
        self.wait(self.session.inspect(ask))
    }

    /// Defines an export; it is durable, and every lane of the server knows it.
    ///
    /// # Errors
    /// Those of a path; `Exists` when the name is taken, `Busy` when the server was started with it,
    /// `NotDirectory`, `NotPermitted`.
    pub fn add_export(&mut self, new: &NewExport<'_>) -> Result<(), Error> {
        self.wait(self.session.add_export(new))
    }

    /// Takes an export away. Who has it mounted is refused from the next request on.
    ///
    /// # Errors
    /// `Busy` when the server was started with it, `NotPermitted`.
    pub fn remove_export(&mut self, name: &str) -> Result<Removed, Error> {
        self.wait(self.session.remove_export(name))
    }

    /// What people must be told since the last time: promises that could not be kept.
    pub fn take_reports(&mut self) -> Vec<Report> {
        self.session.take_reports()
    }

    /// Ends in order: waits until everything that was done through this volume is durable, and has
    /// the server forget it. A volume that is dropped does the same, but cannot say how it went.
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
        // There is nobody left to be told, and a server that is gone is not waited for long; who
        // wants to know, or to wait, says `leave`.
        self.wait(self.session.leave_soon());
    }
}
