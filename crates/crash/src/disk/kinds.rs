//! Attributes the bytes lost in a power cut to the files of a store, by their extents on the disk.

use super::image::Lost;
use crate::child::must;
use anyhow::{Context as _, Result};
use std::fmt;
use std::fs;
use std::ops::{AddAssign, Range};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The unit of FIEMAP's output as filefrag prints it.
const BLOCK_BYTES: usize = 512;

/// Lost bytes by the kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LostBytes {
    pub(crate) log: u64,
    pub(crate) objects: u64,
    pub(crate) rows: u64,
    /// Metadata of the file system, and files that were lost with it.
    pub(crate) others: u64,
}

impl LostBytes {
    /// For a store whose file system is mounted again.
    pub(super) fn count(lost: &[Lost], store: &Path) -> Result<Self> {
        let places = |folder: &str| places(&files(&store.join(folder))?);
        let [log, objects, rows] = [places("log")?, places("objects")?, places("rows")?];
        let mut counted = Self::default();
        for lost in lost {
            let mut at = lost.start;
            while at < lost.end {
                let end = (at + BLOCK_BYTES).min(lost.end);
                let bytes = (end - at) as u64;
                let in_one = |places: &[Range<usize>]| places.iter().any(|it| it.contains(&at));
                // The extent of a new file may be lost together with its contents.
                if lost.is_contents || in_one(&objects) {
                    counted.objects += bytes;
                } else if in_one(&log) {
                    counted.log += bytes;
                } else if in_one(&rows) {
                    counted.rows += bytes;
                } else {
                    counted.others += bytes;
                }
                at = end;
            }
        }
        Ok(counted)
    }
}

impl AddAssign for LostBytes {
    fn add_assign(&mut self, more: Self) {
        self.log += more.log;
        self.objects += more.objects;
        self.rows += more.rows;
        self.others += more.others;
    }
}

impl fmt::Display for LostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { log, objects, rows, others } = self;
        write!(f, "lost bytes: log {log}, objects {objects}, rows {rows}, others {others}")
    }
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    // The power was cut before the directory existed.
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// The extents of files on the disk, in bytes.
fn places(files: &[PathBuf]) -> Result<Vec<Range<usize>>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = Command::new("filefrag");
    command.arg("-v").arg(format!("-b{BLOCK_BYTES}")).args(files);
    must(&mut command)?.lines().filter_map(|line| extent(line).transpose()).collect()
}

/// Parses `   0:        0..   10719:  493502464.. 493513183:  10720:            last,eof`; `None`
/// for other lines.
fn extent(line: &str) -> Result<Option<Range<usize>>> {
    let mut columns = line.split(':');
    let no = columns.next().unwrap_or_default().trim();
    let Some(physical) = columns.nth(1).filter(|_| no.parse::<u64>().is_ok()) else {
        return Ok(None);
    };
    if line.contains("unknown_loc") {
        return Ok(None);
    }
    let (first, last) = physical.split_once("..").with_context(|| line.to_owned())?;
    let (first, last): (usize, usize) = (first.trim().parse()?, last.trim().parse()?);
    Ok(Some(first * BLOCK_BYTES..(last + 1) * BLOCK_BYTES))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn extents_are_read_from_their_table() {
        let line = "   1:       16..      31:       4096..      4111:     16:         17: last,eof";
        assert_eq!(extent(line).unwrap(), Some(4096 * 512..4112 * 512));
        let nowhere = "   0:  0..  79:   0..    0:    0:     last,unknown_loc,delalloc,eof";
        for other in
            [nowhere, "File size of /a:0: is 3", " ext:  logical_offset:  physical_offset:"]
        {
            assert_eq!(extent(other).unwrap(), None, "{other}");
        }
    }
}
