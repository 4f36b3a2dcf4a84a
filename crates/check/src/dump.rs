//! All metadata of a store as lines of JSON.

use crate::json::hex;
use crate::line::Line;
use disk::InodeRow;
use disk::rows::{Key, Range, Row};
use std::fmt;
use std::io::{self, Write};
use store::{Going, Reader, StoreError, View};
use wire::{InodeNo, Wire};

/// The version of what a dump's lines mean.
pub const DUMP_VERSION: u32 = 1;

/// Why there is no dump.
#[derive(Debug)]
pub enum DumpError {
    /// The store cannot be read, or is damaged.
    Store(StoreError),
    /// A row does not decode: its key.
    Row(String),
    /// The lines cannot be written.
    Io(io::Error),
}

/// Writes the lines; how many.
///
/// # Errors
/// [`DumpError`] when the store is damaged or the lines cannot be written.
pub fn dump(view: &View, to: &mut impl Write) -> Result<u64, DumpError> {
    if let Some(fault) = view.fault() {
        return Err(DumpError::Row(fault.to_string()));
    }
    let superblock = view.superblock();
    let mut line_count = 1;
    let mut failed = None;
    put(
        to,
        &Line::Dump {
            version: DUMP_VERSION,
            fs: hex(&superblock.fs.0),
            meta_shard_count: superblock.meta_shard_count,
            data_shard_count: superblock.data_shard_count,
            made_at_ns: superblock.made.at_ns,
            made_uid: superblock.made.uid,
            made_gid: superblock.made.gid,
        },
    )?;
    let reader = view.reader();
    reader.scan(&Range::all(), |key, value| {
        let line = match Row::decode(key, value) {
            // What is recorded of an object goes after its inode, the object itself before it.
            Ok(Row::Object { inode, .. }) if !is_named(&reader, inode)? => None,
            Ok(row) => Line::of_row(&row),
            Err(_) => {
                failed = Some(DumpError::Row(format!("the row with key {}", hex(key))));
                return Ok(Going::Stop);
            }
        };
        let Some(line) = line else { return Ok(Going::On) };
        line_count += 1;
        Ok(match put(to, &line) {
            Ok(()) => Going::On,
            Err(error) => {
                failed = Some(DumpError::Io(error));
                Going::Stop
            }
        })
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    put(to, &Line::End { line_count })?;
    Ok(line_count)
}

/// Whether an inode has links: all others, and what hangs on them, are about to be removed.
fn is_named(reader: &Reader<'_>, inode: InodeNo) -> Result<bool, StoreError> {
    let row = reader.get(&Key::inode(inode))?;
    let row = row.and_then(|value| InodeRow::decode_all(value).ok());
    Ok(row.is_some_and(|row| row.nlink > 0))
}

fn put(to: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Row(what) => {
                write!(f, "the store is damaged: {what}; `lanefs check` says more, and what to do")
            }
            Self::Io(error) => write!(f, "cannot write the dump: {error}"),
        }
    }
}

impl std::error::Error for DumpError {}

impl From<StoreError> for DumpError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for DumpError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
