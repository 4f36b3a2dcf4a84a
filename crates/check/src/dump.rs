//! All metadata of a store as lines of JSON.

use crate::finding::Kind;
use crate::json::hex;
use crate::line::Line;
use crate::sums::{Damages, Found, Groups, lack_of};
use disk::InodeRow;
use disk::rows::{Key, ObjectRow, Range, Row};
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use store::{Going, OBJECTS, ObjectFiles, ObjectName, Reader, StoreError, View};
use wire::{InodeNo, ShardId, Wire};

/// The version of what a dump's lines mean.
pub const DUMP_VERSION: u32 = 2;

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
    dump_beside(view, to, None).map(|(line_count, _)| line_count)
}

/// Writes the lines, beside copies of the objects: they are compared with their checksums, and what has none
/// gets one. How many lines, and which objects are damaged.
pub(crate) fn dump_beside(
    view: &View,
    to: &mut impl Write,
    copies: Option<&ObjectFiles>,
) -> Result<(u64, Damages), DumpError> {
    if let Some(fault) = view.fault() {
        return Err(DumpError::Row(fault.to_string()));
    }
    let superblock = view.superblock();
    let mut lines = Lines { to, hash: blake3::Hasher::new(), line_count: 0, text: Vec::new() };
    lines.put(&Line::Dump {
        version: DUMP_VERSION,
        fs: hex(&superblock.fs.0),
        meta_shard_count: superblock.meta_shard_count,
        data_shard_count: superblock.data_shard_count,
        made_at_ns: superblock.made.at_ns,
        made_uid: superblock.made.uid,
        made_gid: superblock.made.gid,
    })?;
    let reader = view.reader();
    let (mut found, mut failed) = (Found::default(), None);
    reader.scan(&Range::all(), |key, value| {
        let put = match Row::decode(key, value) {
            // What is recorded of an object goes after its inode, the object itself before it.
            Ok(Row::Object { inode, .. }) if !is_named(&reader, inode)? => Ok(()),
            Ok(Row::Object { shard, inode, row }) => {
                put_object(&mut lines, (shard, inode, &row), (&reader, copies), &mut found)
            }
            Ok(row) => Line::of_row(&row).map_or(Ok(()), |line| lines.put(&line)),
            Err(_) => Err(DumpError::Row(format!("the row with key {}", hex(key)))),
        };
        failed = put.err();
        Ok(if failed.is_none() { Going::On } else { Going::Stop })
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    let Lines { line_count, hash, .. } = &lines;
    let (line_count, blake3) = (*line_count, hash.finalize().to_hex().to_string());
    lines.put(&Line::End { line_count, blake3 })?;
    Ok((line_count, found.named(&reader)?))
}

/// Writes the lines of an object, and what is found of its copy.
fn put_object(
    lines: &mut Lines<'_, impl Write>,
    (shard, inode, row): (ShardId, InodeNo, &ObjectRow),
    (reader, copies): (&Reader<'_>, Option<&ObjectFiles>),
    found: &mut Found,
) -> Result<(), DumpError> {
    let name = ObjectName { shard_index: shard.index(), inode, stripe_index: 0 };
    let mut groups = Groups::new(reader, (name, row), copies)?;
    let first = groups.next()?.unwrap_or_default();
    lines.put(&Line::of_object((shard, inode), row, first))?;
    while let Some(group) = groups.next()? {
        if !group.sums.0.is_empty() {
            lines.put(&Line::of_group(group))?;
        }
    }
    let Some(copies) = copies else { return Ok(()) };
    let lack = lack_of(copies.find(name)?.as_ref(), row.size_bytes);
    let changed = || groups.tally.what().map(|what| (Kind::ContentsChanged, what));
    if let Some((kind, what)) = lack.or_else(changed) {
        found.add(kind, (name, Path::new(OBJECTS).join(name.path())), what);
    }
    Ok(())
}

/// Whether an inode has links: all others, and what hangs on them, are about to be removed.
fn is_named(reader: &Reader<'_>, inode: InodeNo) -> Result<bool, StoreError> {
    let row = reader.get(&Key::inode(inode))?;
    let row = row.and_then(|value| InodeRow::decode_all(value).ok());
    Ok(row.is_some_and(|row| row.nlink > 0))
}

/// Lines that are being written.
struct Lines<'w, W> {
    to: &'w mut W,
    /// Of all that was written.
    hash: blake3::Hasher,
    line_count: u64,
    text: Vec<u8>,
}

impl<W: Write> Lines<'_, W> {
    fn put(&mut self, line: &Line) -> Result<(), DumpError> {
        self.text.clear();
        serde_json::to_writer(&mut self.text, line).map_err(io::Error::from)?;
        self.text.push(b'\n');
        self.hash.update(&self.text);
        self.line_count += 1;
        Ok(self.to.write_all(&self.text)?)
    }
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
