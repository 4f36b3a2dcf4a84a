//! The operations of a volume: one declaration each, from which the blocking [`crate::Volume`] and
//! [`crate::nonblocking::Volume`] have their methods. What an operation does is a method of
//! [`Session`](crate::session::Session) with the same name.
//!
//! How the two halves take an argument depends on its kind:
//!
//! | kind | blocking | nonblocking |
//! | --- | --- | --- |
//! | `path` | `&Path` | `impl AsRef<Path>` |
//! | `os_str` | `&OsStr` | `impl AsRef<OsStr>` |
//! | `bytes` | `&[u8]` | `impl Into<Vec<u8>>` |
//! | `parts` | `&[(u64, &[u8])]` | `Vec<(u64, Vec<u8>)>` |
//! | `text`, `file`, `pieces`, `wanted`, `export` | `&str`, `&File`, `&[Piece]`, ... | the same |
//! | `(&T)` | `&T` | `&T` |
//! | `T` | `T` | `T` |

/// Passes the operations to a macro that generates one half's methods, in three groups:
/// properties of a volume, operations that continue an earlier one, and all others.
macro_rules! operations {
    ($generate:ident) => {
        $generate! { facts {
            /// Whether root acts as root through this export; otherwise the server maps it to nobody.
            is_root_trusted -> bool;

            /// Whether all users act as another one through this export.
            are_ids_replaced -> bool;

            /// Whether the export is read-only.
            is_read_only -> bool;

            /// The export's root inode.
            root -> InodeNo;

            /// The server's map: its lanes and shards.
            map -> Option<Map>;

            /// The server's clock when it executed the request of its last reply, nanoseconds
            /// since 1970.
            server_time_ns -> Option<u64>;
        } continued {
            /// The next entries of a directory, none at its end.
            ///
            /// # Errors
            /// `Access` without permission to read the directory or to search it, `Stale` when it was
            /// removed.
            next_entries[dir: Dir]() -> Vec<DirEntry>;

            /// The matches among the next entries, often none; `None` at the end.
            ///
            /// # Errors
            /// As [`Self::next_entries`].
            search[search: Search](wanted: wanted) -> Option<Vec<FoundEntry>>;
        } others {
            /// The attributes of a path; a symbolic link at its end is followed.
            ///
            /// # Errors
            /// Those of a path.
            stat(path: path) -> Attr;

            /// The attributes of a path; a symbolic link at its end is not followed, unless the path
            /// ends in a slash.
            ///
            /// # Errors
            /// Those of a path.
            lstat(path: path) -> Attr;

            /// Starts listing a directory; [`Self::next_entries`] continues.
            ///
            /// # Errors
            /// Those of a path; `NotDirectory`.
            read_dir(path: path) -> Dir;

            /// Opens an existing file.
            ///
            /// # Errors
            /// Those of a path; `IsDirectory`, `Access`, `ReadOnly`, and `TooManyFiles` when this
            /// volume has 4096 files open.
            open(path: path, open_for: OpenFor) -> File;

            /// Opens a file for writing, creating it with `mode` (less the identity's umask) if it does
            /// not exist. Symbolic links are followed unless `exclusive`, which refuses any existing
            /// name.
            ///
            /// # Errors
            /// As [`Self::open`]; `Exists` with `exclusive`, `NoSpace`.
            create(path: path, mode: u32, exclusive: bool) -> File;

            /// Reads at most [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) bytes; fewer at the file's end.
            /// Many bytes are not copied: they are in the memory in which they were received, which
            /// is reused when they are dropped.
            ///
            /// # Errors
            /// `Stale` when the server closed the file (this client was evicted).
            read_at(file: file, piece: Piece) -> Bytes;

            /// Reads several pieces at once; returns their bytes in the same order, shorter at the
            /// file's end. See [`Self::read_at`] for where they are.
            ///
            /// # Errors
            /// As [`Self::read_at`], of the first piece that failed.
            read_pieces(file: file, pieces: pieces) -> Vec<Bytes>;

            /// Writes bytes at an offset, [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) at a time, several
            /// such pieces in flight at once.
            ///
            /// # Errors
            /// `NoSpace`, `TooLarge` beyond 2^63 − 1 bytes, [`Error::Ring`] when no buffer is free;

            /// other pieces than the one that failed may have been written.
            write_at(file: file, file_offset: u64, bytes: bytes) -> ();

            /// Writes several pieces at once, each with its offset and at most
            /// [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) bytes.
            ///
            /// # Errors
            /// As [`Self::write_at`].
            write_pieces(file: file, pieces: parts) -> ();

            /// Reads many pieces in one exchange: holes as zeros, and of each piece the part within the
            /// file ([`ListRead::piece_bytes`]). Pieces may overlap and be of any order and length.
            /// More than [`PIECE_COUNT_MAX`](crate::PIECE_COUNT_MAX) pieces or
            /// [`BULK_BYTES_MAX`](crate::BULK_BYTES_MAX) bytes take further exchanges, several of them
            /// in flight at once.
            ///
            /// # Errors
            /// As [`Self::read_at`]; `TooLarge` for a piece beyond 2^63 − 1.
            read_list(file: file, pieces: pieces) -> ListRead;

            /// As [`Self::read_list`], for equidistant pieces.
            ///
            /// # Errors
            /// As [`Self::read_list`].
            read_stride(file: file, stride: Stride) -> ListRead;

            /// Writes many pieces in one exchange; `bytes` are those of all pieces, concatenated.
            /// Readers see all of an exchange or nothing; only when server and client crash together
            /// before the reply, a part may remain, as of any write. A larger list (see
            /// [`Self::read_list`]) takes further exchanges, each atomic by itself.
            ///
            /// # Errors
            /// As [`Self::write_at`]; `Invalid`, and nothing is written, when pieces overlap or `bytes`
            /// has another length.
            write_list(file: file, pieces: pieces, bytes: bytes) -> ();

            /// As [`Self::write_list`], for equidistant pieces.
            ///
            /// # Errors
            /// As [`Self::write_list`].
            write_stride(file: file, stride: Stride, bytes: bytes) -> ();

            /// Sets the size of a file that is open for writing; a longer file is extended with zeros.
            ///
            /// # Errors
            /// `TooLarge` beyond 2^63 − 1 bytes, `ReadOnly`.
            truncate(file: file, size_bytes: u64) -> ();

            /// Waits until all changes to an open file, from any client, are durable: names,
            /// attributes, contents.
            ///
            /// # Errors
            /// `Io`, once, when an answered change of it is lost.
            sync_file(file: file) -> ();

            /// Closes a file. The metadata shard learns its size later, when the contents are durable;

            /// [`Self::sync`] and [`Self::leave`] wait for that.
            ///
            /// # Errors
            /// [`Error::Op`] of an earlier close.
            close(file: File) -> ();

            /// Makes a directory with `mode` less the identity's umask.
            ///
            /// # Errors
            /// Those of a path; `Exists`, `Access`, `ReadOnly`, `NoSpace`, `TooManyLinks`.
            mkdir(path: path, mode: u32) -> Attr;

            /// Removes a name of a non-directory. Open handles remain valid.
            ///
            /// # Errors
            /// Those of a path; `IsDirectory`, `Access`, `NotPermitted` (another user's name in a
            /// directory with the sticky bit), `ReadOnly`.
            unlink(path: path) -> ();

            /// Removes an empty directory.
            ///
            /// # Errors
            /// As [`Self::unlink`], with `NotDirectory` for `IsDirectory`; `NotEmpty`.
            rmdir(path: path) -> ();

            /// Renames a file or directory, replacing an existing one.
            ///
            /// # Errors
            /// Those of both paths, with the old path's name; `Access`, `NotPermitted`, `ReadOnly`,
            /// `Invalid` (a directory into itself), `IsDirectory`, `NotDirectory` and `NotEmpty` (for
            /// the existing target), `NoSpace`, `TooManyLinks`.
            rename(from: path, to: path) -> ();

            /// The value of an extended attribute; a symbolic link at the path's end is followed.
            ///
            /// # Errors
            /// Those of a path; `NoData` without such an attribute, `NotSupported` for a name that no
            /// inode can have.
            xattr(path: path, name: text) -> Vec<u8>;

            /// Sets an extended attribute; a symbolic link at the path's end is followed.
            ///
            /// # Errors
            /// Those of a path; `NotPermitted`, `Access`, `ReadOnly`, `Invalid` for a value that the
            /// server does not understand, `NoSpace`.
            set_xattr(path: path, name: text, value: bytes) -> ();

            /// Makes a symbolic link at `path` that points to `to`, which need not exist.
            ///
            /// # Errors
            /// As [`Self::mkdir`]; `NameTooLong` for a target beyond 4095 bytes.
            symlink(to: os_str, path: path) -> Attr;

            /// Makes a fifo, socket or device. Only root may make devices.
            ///
            /// # Errors
            /// As [`Self::mkdir`]; `Invalid` for another kind, `NotPermitted`.
            mknod(path: path, special: (&Special)) -> Attr;

            /// The target of a symbolic link.
            ///
            /// # Errors
            /// Those of a path; `Invalid` if it is no symbolic link.
            readlink(path: path) -> OsString;

            /// Changes mode, owner, group or times of an inode; `path` is for messages.
            ///
            /// # Errors
            /// `NotPermitted` and `Access` as of chmod(2), chown(2) and utimensat(2), `ReadOnly`,
            /// `Stale` when the inode was removed.
            set_attr(inode: InodeNo, path: path, set: (&SetAttr)) -> Attr;

            /// Makes a further name for a non-directory.
            ///
            /// # Errors
            /// As [`Self::mkdir`], of the new path; `NotPermitted` for a directory, `Stale` when the
            /// file was removed.
            link(inode: InodeNo, path: path) -> Attr;

            /// Waits until all changes through this volume, by operations that have ended, are durable.
            ///
            /// # Errors
            /// `Io`, once, when an answered change is lost; errors of earlier closes.
            sync() -> ();

            /// Waits until all changes are durable whose callers have their results, on any client: also
            /// what mounts write behind. A client that is silent is waited for until its lease ends.
            ///
            /// # Errors
            /// `Io` when an answered change is lost.
            sync_server() -> ();

            /// Waits until all changes that any server has answered are durable; not for what mounts
            /// write behind.
            ///
            /// # Errors
            /// `Io` when an answered change is lost.
            sync_answered() -> ();

            /// The smallest request and its reply, to measure a round trip.
            ///
            /// # Errors
            /// None of its own.
            ping() -> ();

            /// Space and inodes: the sum over all servers.
            ///
            /// # Errors
            /// None of its own.
            statfs() -> Space;

            /// Space and inodes of the server that was connected to, without the others of its cluster.
            ///
            /// # Errors
            /// None of its own.
            server_statfs() -> Space;

            /// Counters, one entry per server lane.
            ///
            /// # Errors
            /// None of its own.
            stats() -> Vec<Stats>;

            /// All counters, by operation, client and export: one snapshot per server lane.
            ///
            /// # Errors
            /// `NotPermitted` when this volume does not [administer](crate::Purpose::Administer).
            counters() -> Vec<Snapshot>;

            /// Where the time of recent requests went, and what now waits: of each server lane.
            ///
            /// # Errors
            /// `NotPermitted` when this volume does not [administer](crate::Purpose::Administer).
            traces() -> Vec<Traces>;

            /// All exports, in the order of names. For a volume that
            /// [administers](crate::Purpose::Administer), like the next methods.
            ///
            /// # Errors
            /// `NotPermitted` when this volume does not administer.
            exports() -> Vec<Export>;

            /// Delays changes of all clients for this many milliseconds, unless it is called again
            /// before that; 0 ends the delay. Reads are answered.
            ///
            /// # Errors
            /// `NotPermitted` when this volume does not administer.
            freeze(lease_ms: u32) -> Frozen;

            /// Controls an inspection of the store by the server's host: begins one, requests the next
            /// bytes of its output, or continues it. Returns bytes of output, and whether they are the
            /// last. An inspection belongs to one connection and ends with it.
            ///
            /// # Errors
            /// `NotPermitted` when this volume does not administer, `Busy` when the server has its
            /// maximum of inspections, `NotFound` when this connection has none, `Invalid` for an
            /// output position that is not next.
            inspect(request: Inspect) -> (Vec<u8>, bool);

            /// Defines an export, durably, at every lane of the server. When it makes one read-only,
            /// mounts of that may still accept changes for a moment, and lose none. A volume that is
            /// connected to the export waits for that by `sync_server`.
            ///
            /// # Errors
            /// Those of a path; `Exists` when the name is taken, `Busy` when an option of the server
            /// defines it, `NotDirectory`, `NotPermitted`.
            add_export(new: export) -> ();

            /// Removes an export. Requests through it are refused from then on.
            ///
            /// # Errors
            /// `Busy` when an option of the server defines it, `NotPermitted`.
            remove_export(name: text) -> Removal;
        } }
    };
}
pub(crate) use operations;
