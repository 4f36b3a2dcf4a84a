//! The API for programs that wait for many things at once: each operation is a future. It needs no
//! particular runtime: any executor can poll it.
//!
//! ```no_run
//! # async fn greet(options: library::ConnectOptions) -> Result<(), library::Error> {
//! let volume = library::nonblocking::Volume::connect(&options).await?;
//! let file = volume.create("/handshake", 0o644, false).await?;
//! volume.write_at(&file, 0, "hello").await?;
//! volume.close(file).await?;
//! volume.leave().await
//! # }
//! ```
//! A volume is a thread with its own ring, on which all operations of all its clones run
//! concurrently; the futures only wait for them. So dropping a future does not cancel an operation
//! that has begun. Operations begin when their futures are first polled, and those that are begun
//! together may be executed in any order.

mod runner;

use crate::{
    Attr, ConnectOptions, Dir, DirEntry, Error, Export, File, FoundEntry, Frozen, InodeNo, Inspect,
    ListRead, NewExport, OpenFor, Piece, Removal, Report, Search, SearchOptions, SetAttr, Space,
    Special, Stats, Stride,
};
use runner::Runner;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use wire::{Map, Pattern, Predicate};

/// A connection to a file system, whose calls are futures. Clones share the connection; several
/// threads may use it.
///
/// Errors are those of the method of the same name of [`crate::Volume`]; [`Error::Left`] besides,
/// once a clone has [left](Self::leave).
#[derive(Clone)]
pub struct Volume {
    runner: Arc<Runner>,
}

impl Volume {
    /// Connects, with mutual proof of the secret, and waits for the Welcome.
    ///
    /// # Errors
    /// As [`crate::Volume::connect`]; [`Error::Ring`] when no thread can be started.
    pub async fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        let runner = Runner::start(options)?;
        runner.run(|session| async move { session.connect().await }).await?;
        Ok(Self { runner: Arc::new(runner) })
    }

    /// Whether root acts as root through this export; otherwise the server maps it to nobody.
    ///
    /// # Errors
    /// [`Error::Left`].
    pub async fn is_root_trusted(&self) -> Result<bool, Error> {
        self.runner.run(|session| async move { Ok(session.is_root_trusted()) }).await
    }

    /// The attributes of a path; a symbolic link at its end is followed.
    ///
    /// # Errors
    /// As [`crate::Volume::stat`].
    pub async fn stat(&self, path: impl AsRef<Path>) -> Result<Attr, Error> {
        let path = path.as_ref().to_path_buf();
        self.runner.run(|session| async move { session.stat(&path).await }).await
    }

    /// The attributes of a path; a symbolic link at its end is not followed, unless the path ends
    /// in a slash.
    ///
    /// # Errors
    /// As [`crate::Volume::lstat`].
    pub async fn lstat(&self, path: impl AsRef<Path>) -> Result<Attr, Error> {
        let path = path.as_ref().to_path_buf();
        self.runner.run(|session| async move { session.lstat(&path).await }).await
    }

    /// Starts listing a directory; [`Self::next_entries`] continues.
    ///
    /// # Errors
    /// As [`crate::Volume::read_dir`].
    pub async fn read_dir(&self, path: impl AsRef<Path>) -> Result<Dir, Error> {
        let path = path.as_ref().to_path_buf();
        self.runner.run(|session| async move { session.read_dir(&path).await }).await
    }

    /// The next entries of a directory, none at its end. If the future is dropped, `dir` does not
    /// change.
    ///
    /// # Errors
    /// As [`crate::Volume::next_entries`].
    pub async fn next_entries(&self, dir: &mut Dir) -> Result<Vec<DirEntry>, Error> {
        let mut at = dir.clone();
        let listed = self.runner.run(|session| async move {
            let entries = session.next_entries(&mut at).await?;
            Ok((at, entries))
        });
        let (at, entries) = listed.await?;
        *dir = at;
        Ok(entries)
    }

    /// The matches among the next entries, often none; `None` at the end. If the future is dropped,
    /// `search` does not change.
    ///
    /// # Errors
    /// As [`crate::Volume::search`].
    pub async fn search(
        &self,
        search: &mut Search,
        wanted: &SearchOptions<'_>,
    ) -> Result<Option<Vec<FoundEntry>>, Error> {
        let mut at = search.clone();
        let SearchOptions { predicate, attrs, directories } = *wanted;
        let name = predicate.name.map(|pattern| pattern.bytes().to_vec());
        let rest = Predicate { name: None, ..predicate };
        let found = self.runner.run(move |session| async move {
            // The pattern was valid before.
            let name = name.as_deref().and_then(|name| Pattern::new(name).ok());
            let wanted =
                SearchOptions { predicate: Predicate { name, ..rest }, attrs, directories };
            let found = session.search(&mut at, &wanted).await?;
            Ok((at, found))
        });
        let (at, found) = found.await?;
        *search = at;
        Ok(found)
    }

    /// Opens an existing file.
    ///
    /// # Errors
    /// As [`crate::Volume::open`].
    pub async fn open(&self, path: impl AsRef<Path>, open_for: OpenFor) -> Result<File, Error> {
        let path = path.as_ref().to_path_buf();
        self.runner.run(move |session| async move { session.open(&path, open_for).await }).await
    }

    /// Opens a file for writing, creating it with `mode` (less the identity's umask) if it does not
    /// exist. Symbolic links are followed unless `exclusive`, which refuses any existing name.
    ///
    /// # Errors
    /// As [`crate::Volume::create`].
    pub async fn create(
        &self,
        path: impl AsRef<Path>,
        mode: u32,
        exclusive: bool,
    ) -> Result<File, Error> {
        let path = path.as_ref().to_path_buf();
        let create = move |session: runner::LocalSession| async move {
            session.create(&path, mode, exclusive).await
        };
        self.runner.run(create).await
    }

    /// Reads at most [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) bytes; fewer at the file's end.
    ///
    /// # Errors
    /// As [`crate::Volume::read_at`].
    pub async fn read_at(&self, file: &File, piece: Piece) -> Result<Vec<u8>, Error> {
        let file = file.same();
        self.runner.run(move |session| async move { session.read_at(&file, piece).await }).await
    }

    /// Reads several pieces at once; returns their bytes in the same order, shorter at the file's
    /// end.
    ///
    /// # Errors
    /// As [`crate::Volume::read_pieces`].
    pub async fn read_pieces(&self, file: &File, pieces: &[Piece]) -> Result<Vec<Vec<u8>>, Error> {
        let (file, pieces) = (file.same(), pieces.to_vec());
        self.runner.run(|session| async move { session.read_pieces(&file, &pieces).await }).await
    }

    /// Writes bytes at an offset, [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) at a time.
    ///
    /// # Errors
    /// As [`crate::Volume::write_at`].
    pub async fn write_at(
        &self,
        file: &File,
        file_offset: u64,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), Error> {
        let (file, bytes) = (file.same(), bytes.into());
        let write = move |session: runner::LocalSession| async move {
            session.write_at(&file, file_offset, &bytes).await
        };
        self.runner.run(write).await
    }

    /// Writes several pieces at once, each with its offset and at most
    /// [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) bytes.
    ///
    /// # Errors
    /// As [`crate::Volume::write_pieces`].
    pub async fn write_pieces(
        &self,
        file: &File,
        pieces: Vec<(u64, Vec<u8>)>,
    ) -> Result<(), Error> {
        let file = file.same();
        let write = move |session: runner::LocalSession| async move {
            let pieces: Vec<(u64, &[u8])> =
                pieces.iter().map(|(file_offset, bytes)| (*file_offset, &bytes[..])).collect();
            session.write_pieces(&file, &pieces).await
        };
        self.runner.run(write).await
    }

    /// Reads many pieces in one exchange.
    ///
    /// # Errors
    /// As [`crate::Volume::read_list`].
    pub async fn read_list(&self, file: &File, pieces: &[Piece]) -> Result<ListRead, Error> {
        let (file, pieces) = (file.same(), pieces.to_vec());
        self.runner.run(|session| async move { session.read_list(&file, &pieces).await }).await
    }

    /// As [`Self::read_list`], for equidistant pieces.
    ///
    /// # Errors
    /// As [`crate::Volume::read_list`].
    pub async fn read_stride(&self, file: &File, stride: Stride) -> Result<ListRead, Error> {
        let pieces: Vec<Piece> = stride.pieces().collect();
        self.read_list(file, &pieces).await
    }

    /// Writes many pieces in one exchange; `bytes` are those of all pieces, concatenated.
    ///
    /// # Errors
    /// As [`crate::Volume::write_list`].
    pub async fn write_list(
        &self,
        file: &File,
        pieces: &[Piece],
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), Error> {
        let (file, pieces, bytes) = (file.same(), pieces.to_vec(), bytes.into());
        let write = move |session: runner::LocalSession| async move {
            session.write_list(&file, &pieces, &bytes).await
        };
        self.runner.run(write).await
    }

    /// As [`Self::write_list`], for equidistant pieces.
    ///
    /// # Errors
    /// As [`crate::Volume::write_list`].
    pub async fn write_stride(
        &self,
        file: &File,
        stride: Stride,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), Error> {
        let pieces: Vec<Piece> = stride.pieces().collect();
        self.write_list(file, &pieces, bytes).await
    }

    /// Sets the size of a file that is open for writing; a longer file is extended with zeros.
    ///
    /// # Errors
    /// As [`crate::Volume::truncate`].
    pub async fn truncate(&self, file: &File, size_bytes: u64) -> Result<(), Error> {
        let file = file.same();
        let cut = move |session: runner::LocalSession| async move {
            session.truncate(&file, size_bytes).await
        };
        self.runner.run(cut).await
    }

    /// Waits until all changes to an open file, from any client, are durable: names, attributes,
    /// contents.
    ///
    /// # Errors
    /// As [`crate::Volume::sync_file`].
    pub async fn sync_file(&self, file: &File) -> Result<(), Error> {
        let file = file.same();
        self.runner.run(|session| async move { session.sync_file(&file).await }).await
    }

    /// Closes a file. The metadata shard learns its size later, when the contents are durable;
    /// [`Self::sync`] and [`Self::leave`] wait for that.
    ///
    /// # Errors
    /// As [`crate::Volume::close`].
    pub async fn close(&self, file: File) -> Result<(), Error> {
        self.runner.run(|session| async move { session.close(file).await }).await
    }

    /// Makes a directory with `mode` less the identity's umask.
    ///
    /// # Errors
    /// As [`crate::Volume::mkdir`].
    pub async fn mkdir(&self, path: impl AsRef<Path>, mode: u32) -> Result<Attr, Error> {
        let path = path.as_ref().to_path_buf();
        self.runner.run(move |session| async move { session.mkdir(&path, mode).await }).await
    }

    /// Removes a name of a non-directory. Open handles remain valid.
    ///
    /// # Errors
    /// As [`crate::Volume::unlink`].
    pub async fn unlink(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref().to_path_buf();
        self.runner.run(|session| async move { session.unlink(&path).await }).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`crate::Volume::rmdir`].
    pub async fn rmdir(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref().to_path_buf();
        self.runner.run(|session| async move { session.rmdir(&path).await }).await
    }

    /// Renames a file or directory, replacing an existing one.
    ///
    /// # Errors
    /// As [`crate::Volume::rename`].
    pub async fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Error> {
        let (from, to) = (from.as_ref().to_path_buf(), to.as_ref().to_path_buf());
        self.runner.run(|session| async move { session.rename(&from, &to).await }).await
    }

    /// Makes a symbolic link at `path` that points to `to`, which need not exist.
    ///
    /// # Errors
    /// As [`crate::Volume::symlink`].
    pub async fn symlink(
        &self,
        to: impl AsRef<OsStr>,
        path: impl AsRef<Path>,
    ) -> Result<Attr, Error> {
        let (to, path) = (to.as_ref().to_os_string(), path.as_ref().to_path_buf());
        self.runner.run(|session| async move { session.symlink(&to, &path).await }).await
    }

    /// Makes a fifo, socket or device. Only root may make devices.
    ///
    /// # Errors
    /// As [`crate::Volume::mknod`].
    pub async fn mknod(&self, path: impl AsRef<Path>, special: &Special) -> Result<Attr, Error> {
        let (path, special) = (path.as_ref().to_path_buf(), *special);
        self.runner.run(move |session| async move { session.mknod(&path, &special).await }).await
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As [`crate::Volume::readlink`].
    pub async fn readlink(&self, path: impl AsRef<Path>) -> Result<OsString, Error> {
        let path = path.as_ref().to_path_buf();
        self.runner.run(|session| async move { session.readlink(&path).await }).await
    }

    /// Changes mode, owner, group or times of an inode; `path` is for messages.
    ///
    /// # Errors
    /// As [`crate::Volume::set_attr`].
    pub async fn set_attr(
        &self,
        inode: InodeNo,
        path: impl AsRef<Path>,
        set: &SetAttr,
    ) -> Result<Attr, Error> {
        let (path, set) = (path.as_ref().to_path_buf(), *set);
        let change = move |session: runner::LocalSession| async move {
            session.set_attr(inode, &path, &set).await
        };
        self.runner.run(change).await
    }

    /// Makes a further name for a non-directory.
    ///
    /// # Errors
    /// As [`crate::Volume::link`].
    pub async fn link(&self, inode: InodeNo, path: impl AsRef<Path>) -> Result<Attr, Error> {
        let path = path.as_ref().to_path_buf();
        self.runner.run(move |session| async move { session.link(inode, &path).await }).await
    }

    /// Waits until all changes through this volume, by operations that have ended, are durable.
    ///
    /// # Errors
    /// As [`crate::Volume::sync`].
    pub async fn sync(&self) -> Result<(), Error> {
        self.runner.run(|session| async move { session.sync().await }).await
    }

    /// Waits until all changes that any shard has answered are durable.
    ///
    /// # Errors
    /// As [`crate::Volume::sync_server`].
    pub async fn sync_server(&self) -> Result<(), Error> {
        self.runner.run(|session| async move { session.sync_server().await }).await
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// As [`crate::Volume::statfs`].
    pub async fn statfs(&self) -> Result<Space, Error> {
        self.runner.run(|session| async move { session.statfs().await }).await
    }

    /// Counters, one entry per server lane.
    ///
    /// # Errors
    /// As [`crate::Volume::stats`].
    pub async fn stats(&self) -> Result<Vec<Stats>, Error> {
        self.runner.run(|session| async move { session.stats().await }).await
    }

    /// The server's map: its lanes and shards.
    ///
    /// # Errors
    /// [`Error::Left`].
    pub async fn map(&self) -> Result<Option<Map>, Error> {
        self.runner.run(|session| async move { Ok(session.map()) }).await
    }

    /// All exports, in the order of names.
    ///
    /// # Errors
    /// As [`crate::Volume::exports`].
    pub async fn exports(&self) -> Result<Vec<Export>, Error> {
        self.runner.run(|session| async move { session.exports().await }).await
    }

    /// Controls an inspection of the store, as [`crate::Volume::inspect`].
    ///
    /// # Errors
    /// As [`crate::Volume::inspect`].
    pub async fn inspect(&self, request: Inspect) -> Result<(Vec<u8>, bool), Error> {
        self.runner.run(move |session| async move { session.inspect(request).await }).await
    }

    /// Delays changes of all clients, as [`crate::Volume::freeze`].
    ///
    /// # Errors
    /// As [`crate::Volume::freeze`].
    pub async fn freeze(&self, lease_ms: u32) -> Result<Frozen, Error> {
        self.runner.run(move |session| async move { session.freeze(lease_ms).await }).await
    }

    /// Defines an export, durably, at every lane of the server.
    ///
    /// # Errors
    /// As [`crate::Volume::add_export`].
    pub async fn add_export(&self, new: &NewExport<'_>) -> Result<(), Error> {
        let (name, path) = (new.name.to_owned(), new.path.to_path_buf());
        let NewExport { read_only, squash, replace, .. } = *new;
        let add = move |session: runner::LocalSession| async move {
            let new = NewExport { name: &name, path: &path, read_only, squash, replace };
            session.add_export(&new).await
        };
        self.runner.run(add).await
    }

    /// Removes an export. Requests through it are refused from then on.
    ///
    /// # Errors
    /// As [`crate::Volume::remove_export`].
    pub async fn remove_export(&self, name: &str) -> Result<Removal, Error> {
        let name = name.to_owned();
        self.runner.run(|session| async move { session.remove_export(&name).await }).await
    }

    /// Whether the export is read-only.
    ///
    /// # Errors
    /// [`Error::Left`].
    pub async fn is_read_only(&self) -> Result<bool, Error> {
        self.runner.run(|session| async move { Ok(session.is_read_only()) }).await
    }

    /// The export's root inode.
    ///
    /// # Errors
    /// [`Error::Left`].
    pub async fn root(&self) -> Result<InodeNo, Error> {
        self.runner.run(|session| async move { Ok(session.root()) }).await
    }

    /// The reports of broken promises since the last call.
    ///
    /// # Errors
    /// [`Error::Left`].
    pub async fn take_reports(&self) -> Result<Vec<Report>, Error> {
        self.runner.run(|session| async move { Ok(session.take_reports()) }).await
    }

    /// Ends in order, for all clones: waits until all changes are durable, and ends the sessions at
    /// the server. Operations in flight end first; later ones fail. Dropping the last clone does
    /// the same, but the result is lost.
    ///
    /// # Errors
    /// As [`crate::Volume::leave`].
    pub async fn leave(self) -> Result<(), Error> {
        self.runner.leave().await
    }
}
