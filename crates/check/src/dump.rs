//! All metadata of a store as lines of JSON.

use crate::line::Line;
use crate::lines::LineWriter;
use crate::sums::Group;
use disk::InodeRow;
use disk::rows::{Key, ObjectRow, Range, Row};
use std::io::{self, Write};
use store::{Reader, ScanControl, StoreError, View};
use thiserror::Error;
use wire::{InodeNo, ShardId, Wire};

/// The version of what a dump's lines mean.
pub const DUMP_VERSION: u32 = 4;

/// Why there is no dump.
#[derive(Error, Debug)]
pub enum DumpError {
    /// The store cannot be read, or is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A row does not decode: its key.
    #[error("the store is damaged: {0}; `lanefs check` says more, and what to do")]
    Row(String),
    /// The lines cannot be written.
    #[error("cannot write the dump: {0}")]
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
    let mut lines = LineWriter::new(to);
    lines.put(&Line::Dump {
        version: DUMP_VERSION,
        fs: hex::encode(superblock.fs.0),
        meta_shard_count: superblock.meta_shard_count,
        data_shard_count: superblock.data_shard_count,
        stripe_unit_bytes: superblock.creation.layout.stripe_unit_bytes,
        stripe_count: superblock.creation.layout.stripe_count,
        made_at_ns: superblock.creation.at_ns,
        made_uid: superblock.creation.uid,
        made_gid: superblock.creation.gid,
    })?;
    let reader = view.reader();
    let mut failed = None;
    reader.scan(&Range::all(), |key, value| {
        let put = match Row::decode(key, value) {
            // What is recorded of an object goes after its inode, the object itself before it.
            Ok(Row::Object { inode, .. }) if !is_named(&reader, inode)? => Ok(()),
            Ok(Row::Object { shard, inode, row }) => {
                put_object(&mut lines, (shard, inode, &row), &reader)
            }
            Ok(row) => Line::of_row(&row).map_or(Ok(()), |line| Ok(lines.put(&line)?)),
            Err(_) => Err(DumpError::Row(format!("the row with key {}", hex::encode(key)))),
        };
        failed = put.err();
        Ok(if failed.is_none() { ScanControl::Continue } else { ScanControl::Stop })
    })?;
    failed.map_or(Ok(()), Err)?;
    let (line_count, _) = lines.end()?;
    Ok(line_count)
}

/// Writes the lines of an object.
fn put_object(
    lines: &mut LineWriter<impl Write>,
    (shard, inode, row): (ShardId, InodeNo, &ObjectRow),
    reader: &Reader<'_>,
) -> Result<(), DumpError> {
    let objects = reader.file_objects(shard, inode)?;
    for group in reader.sum_groups(objects.first)? {
        let sums = reader.sums_of_group(objects.first, group)?;
        let found = Group { group, sums, damaged_blocks: Vec::new() };
        if group == 0 {
            lines.put(&Line::of_object(&objects, row, found))?;
        } else if !found.sums.0.is_empty() {
            lines.put(&Line::of_group(found))?;
        }
    }
    Ok(())
}

/// Whether an inode has links: all others, and what hangs on them, are about to be removed.
fn is_named(reader: &Reader<'_>, inode: InodeNo) -> Result<bool, StoreError> {
    let row = reader.get(&Key::inode(inode))?;
    let row = row.and_then(|value| InodeRow::decode_all(value).ok());
    Ok(row.is_some_and(|row| row.nlink > 0))
}

impl From<io::Error> for DumpError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
