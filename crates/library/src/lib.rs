//! `library`: files of a lanefs server without a mount, for Rust programs. Calls of a [`Volume`]
//! block; those of a [`nonblocking::Volume`] are futures.
//!
//! ```no_run
//! # fn main() -> Result<(), library::Error> {
//! # let options: library::ConnectOptions = todo!();
//! let mut volume = library::Volume::connect(&options)?;
//! let file = volume.create("/handshake".as_ref(), 0o644, false)?;
//! volume.write_at(&file, 0, b"hello")?;
//! volume.close(file)?;
//! # Ok(()) }
//! ```
//! Many pieces of one file, such as a column of a matrix, are read or written in one exchange:
//!
//! ```no_run
//! # fn main() -> Result<(), library::Error> {
//! # let mut volume: library::Volume = todo!();
//! # let file: library::File = todo!();
//! // 8 bytes of each of 64 rows of 1024 bytes.
//! let column = library::Stride { file_offset: 40, piece_bytes: 8, step_bytes: 1024, count: 64 };
//! let read = volume.read_stride(&file, column)?;
//! for (row, bytes) in read.pieces().enumerate() {
//!     println!("row {row}: {bytes:?}"); // Fewer than 8 where the file ends.
//! }
//! volume.write_stride(&file, column, &[0; 8 * 64])?;
//! # Ok(()) }
//! ```
//! It joins `client` (the protocol) with `ring` (the transport), on the calling thread or on a
//! thread of its own; neither is pinned. Formatting, local files and retries by users belong to
//! its callers. Invariant: one [`Volume`] is one client of the server; a change whose method has
//! returned survives the server's crash while the volume lives, and is durable once
//! [`Volume::sync`] or [`Volume::leave`] returned.
#![forbid(unsafe_code)]

pub mod certificates;
mod error;
mod lane;
pub mod nonblocking;
mod on_disk;
mod operations;
mod options;
mod path;
pub mod secret;
mod session;
mod types;
mod volume;

pub use bytes::Bytes;
pub use certificates::Certificates;
pub use client::{Refused, Report};
pub use error::Error;
pub use lane::{hex_file, host_name, random};
pub use on_disk::FileStamp;
pub use options::{ConnectOptions, Identity};
pub use ring::{DriverChoice, DriverKind, Sealing};
pub use session::{
    Export, Fit, FoundEntry, ListRead, NewExport, Removal, Search, SearchOptions, Stride,
};
pub use types::{Dir, DirEntry, File, OpenFor, SetAttr, Special};
pub use volume::Volume;
pub use wire::counters::{self, Snapshot};
pub use wire::traces::{self, Traces};
pub use wire::{
    Attr, BULK_BYTES_MAX, FREEZE_MS_MAX, FileKind, Frozen, InodeNo, Inspect, Inspection, Kinds,
    PATTERN_BYTES_MAX, PIECE_COUNT_MAX, Pattern, Piece, Predicate, Purpose, Secret, SessionId,
    SetTime, Space, Squash, SquashedIds, Stats, Status, Timestamp, Verdict,
};
