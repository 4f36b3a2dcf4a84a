//! The copies of a backup against its dump, however both have come.
//!
//! ```text
//! lines ─▶ each group of an object's blocks: compared with its copy ─▶ lines with more checksums, and marks
//! ```
//! Invariant: a checksum of the dump stays as it is; a block without one gets that of its copy if that has bytes.

use crate::backup_error::BackupError;
use crate::dump::DUMP_VERSION;
use crate::finding::Kind;
use crate::line::{self, Line};
use crate::lines::{LineReader, LineWriter};
use crate::mend::Place;
use crate::paths::{NAME_COUNT_MAX, Names, path_of};
use crate::sums::{BLOCK, Damages, Found, Group, Tally, blocks_of, lack_of};
use disk::{BLOCK_BYTES, GROUP_BLOCK_COUNT};
use hashbrown::{HashMap, HashSet};
use rustix::io::Errno;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;
use store::{FileObjects, OBJECTS, ObjectContents, ObjectFiles, ObjectName};
use wire::InodeNo;

/// What is compared.
pub(crate) struct Copies<'a> {
    /// All of a dump's lines.
    pub(crate) dump: &'a Path,
    /// The copies of the objects.
    pub(crate) objects: ObjectFiles,
    /// Objects without a copy, because their files could not be read.
    pub(crate) unread: &'a HashSet<ObjectName>,
}

/// Writes the lines of a dump again, with what is found of the copies; how many lines, and which objects are
/// damaged.
pub(crate) fn prove(copies: &Copies<'_>, to: &File) -> Result<(u64, Damages), BackupError> {
    let mut proof = Proof {
        copies,
        to: LineWriter::new(BufWriter::new(to)),
        open: None,
        found: Found::default(),
    };
    let mut lines = copies.lines()?;
    while let Some(line) = lines.next()? {
        if let Line::Dump { version, .. } = line
            && version != DUMP_VERSION
        {
            return Err(BackupError::Stream);
        }
        if let Line::Object { .. } | Line::Sums { .. } = line {
            let group = line.group().ok_or_else(|| lines.wrong("these are no checksums"))?;
            if !proof.put(line, group)? {
                return Err(lines.wrong("these checksums follow no object").into());
            }
        } else {
            proof.end_object()?;
            proof.put_line(&line)?;
        }
    }
    proof.end_object()?;
    let Proof { to, found, .. } = proof;
    let ended = to.end().and_then(|(line_count, mut to)| to.flush().map(|()| line_count));
    let line_count = ended.map_err(unwritten)?;
    Ok((line_count, found.named(|inodes| copies.names_of(inodes))?))
}

impl Copies<'_> {
    fn lines(&self) -> Result<LineReader<BufReader<File>>, BackupError> {
        let file = File::open(self.dump);
        let file = file.map_err(|error| BackupError::Io(self.dump.to_owned(), error))?;
        Ok(LineReader::new(BufReader::new(file)))
    }

    /// The paths of inodes, by the entries of the dump.
    fn names_of(&self, inodes: &HashSet<InodeNo>) -> Result<Names, BackupError> {
        if inodes.is_empty() {
            return Ok(Names::new());
        }
        let mut places: HashMap<InodeNo, Vec<Place>> = HashMap::new();
        let mut dirs: HashMap<InodeNo, Place> = HashMap::new();
        let mut lines = self.lines()?;
        while let Some(line) = lines.next()? {
            let Line::Entry { inode, kind, .. } = line else { continue };
            let place = line.place().ok_or_else(|| lines.wrong("this is no name"))?;
            if kind == line::Kind::Directory {
                dirs.insert(InodeNo(inode), place.clone());
            }
            if inodes.contains(&InodeNo(inode)) {
                let places = places.entry(InodeNo(inode)).or_default();
                if places.len() < NAME_COUNT_MAX {
                    places.push(place);
                }
            }
        }
        let mut names = Names::new();
        for (inode, places) in places {
            let paths = places.iter().map(|place| {
                let Ok(path) = path_of::<Infallible>(place, |dir| Ok(dirs.get(&dir).cloned()));
                path
            });
            names.insert(inode, paths.collect());
        }
        Ok(names)
    }
}

/// The lines that are being written.
struct Proof<'a, W: Write> {
    copies: &'a Copies<'a>,
    to: LineWriter<W>,
    open: Option<Open>,
    found: Found,
}

/// An object whose groups are compared.
struct Open {
    name: ObjectName,
    size_bytes: u64,
    copy: ObjectContents,
    lack: Option<(Kind, String)>,
    /// Groups before this one were compared.
    next_group: u64,
    tally: Tally,
}

impl<W: Write> Proof<'_, W> {
    fn put_line(&mut self, line: &Line) -> Result<(), BackupError> {
        self.to.put(line).map_err(unwritten)
    }

    /// Puts an object or a further group of it, behind those that only the copy has; whether it is the next one.
    fn put(&mut self, line: Line, group: Group) -> Result<bool, BackupError> {
        if let Line::Object { size_bytes, .. } = line {
            self.end_object()?;
            let Some(objects) = line.file_objects() else { return Ok(false) };
            self.open = Some(self.copies.open(objects, size_bytes)?);
        }
        self.put_before(group.group)?;
        let Some(open) = self.open.as_mut().filter(|open| group.group >= open.next_group) else {
            return Ok(false);
        };
        let line = line.with_group(open.compare(group)?);
        self.put_line(&line)?;
        Ok(true)
    }

    /// Puts groups before this one that the dump has no checksums of.
    fn put_before(&mut self, end: u64) -> Result<(), BackupError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        while let Some(group) = open.next_in_copy()?.filter(|group| *group < end) {
            let group = open.compare(Group { group, ..Group::default() })?;
            if !group.sums.0.is_empty() {
                self.to.put(&Line::of_group(group)).map_err(unwritten)?;
            }
        }
        Ok(())
    }

    fn end_object(&mut self) -> Result<(), BackupError> {
        self.put_before(u64::MAX)?;
        let Some(Open { name, lack, tally, .. }) = self.open.take() else { return Ok(()) };
        let changed = || tally.what().map(|what| (Kind::ContentsChanged, what));
        if let Some((kind, what)) = lack.or_else(changed) {
            self.found.add(kind, (name, Path::new(OBJECTS).join(name.path())), what);
        }
        Ok(())
    }
}

impl Copies<'_> {
    fn open(&self, objects: FileObjects, size_bytes: u64) -> Result<Open, BackupError> {
        let name = objects.first;
        let mut lack = lack_of(self.objects.find_all(&objects)?.as_ref(), size_bytes);
        if objects.names().any(|name| self.unread.contains(&name)) {
            let why = io::Error::from(Errno::IO);
            let what = format!("{size_bytes} bytes are recorded, and the file gives: {why}");
            let kind = lack.map_or(Kind::ObjectMissing, |(kind, _)| kind);
            lack = Some((kind, what));
        }
        let copy = self.objects.contents(objects);
        Ok(Open { name, size_bytes, copy, lack, next_group: 0, tally: Tally::default() })
    }
}

impl Open {
    /// The next group that has bytes in the copy.
    fn next_in_copy(&mut self) -> Result<Option<u64>, BackupError> {
        let from = self.next_group * GROUP_BLOCK_COUNT * BLOCK;
        if from >= self.size_bytes {
            return Ok(None);
        }
        let data = self.copy.next_data(from)?.filter(|at| *at < self.size_bytes);
        Ok(data.map(|at| at / BLOCK / GROUP_BLOCK_COUNT))
    }

    /// Compares the blocks that have checksums, and gives one to those that have none and bytes.
    fn compare(&mut self, mut group: Group) -> Result<Group, BackupError> {
        self.next_group = group.group + 1;
        group.damaged_blocks.clear();
        for (index, block) in (0..).zip(blocks_of(group.group)) {
            let expected = group.sums.at(index);
            if !expected.is_none() {
                let found = self.copy.sum(block, expected.covered_bytes)?;
                if self.tally.count(block, found == expected) {
                    group.damaged_blocks.push(block);
                }
                continue;
            }
            let start = block * BLOCK;
            let rest_bytes = self.size_bytes.saturating_sub(start).min(BLOCK);
            let has_data = rest_bytes > 0
                && self.copy.next_data(start)?.is_some_and(|at| at < start + rest_bytes);
            if has_data {
                let covered_bytes = u32::try_from(rest_bytes).unwrap_or(BLOCK_BYTES);
                group.sums.put(index, self.copy.sum(block, covered_bytes)?);
            }
        }
        Ok(group)
    }
}

fn unwritten(error: io::Error) -> BackupError {
    BackupError::Dump(error.into())
}

#[cfg(test)]
mod tests;
