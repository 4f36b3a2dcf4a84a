//! Checksums of objects' blocks on their way between rows, objects' files and the lines of a dump.
//!
//! Invariant: a group never has a checksum that is not of the rows, unless the bytes that it was made of were
//! read here and the rows had none.

use crate::finding::{Finding, Kind, Severity};
use crate::json::{from_hex, hex};
use crate::paths::Paths;
use crate::walk::FINDING_COUNT_MAX;
use disk::rows::ObjectRow;
use disk::{BLOCK_BYTES, BlockSum, BlockSums, GROUP_BLOCK_COUNT};
use std::path::PathBuf;
use store::{ObjectContents, ObjectFile, ObjectFiles, ObjectName, Reader, StoreError};
use wire::Wire as _;

const BLOCK: u64 = BLOCK_BYTES as u64;
const SUM_BYTES: usize = 8;

/// A group of an object's blocks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Group {
    pub(crate) group: u64,
    pub(crate) sums: BlockSums,
    /// Blocks that were found not to have their checksums.
    pub(crate) damaged_blocks: Vec<u64>,
}

/// The groups of an object, one after the other.
pub(crate) struct Groups<'a> {
    reader: &'a Reader<'a>,
    name: ObjectName,
    size_bytes: u64,
    in_rows: std::vec::IntoIter<u64>,
    /// What the checksums are compared with.
    contents: Option<ObjectContents>,
    next: u64,
    pub(crate) tally: Tally,
}

/// What came of comparing blocks with their checksums.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) block_count: u64,
    pub(crate) damaged_count: u64,
    pub(crate) first_damaged: Option<u64>,
}

impl<'a> Groups<'a> {
    /// As the rows have them. With `files`, they are compared with the object there, and blocks that have
    /// bytes and no checksum get one.
    pub(crate) fn new(
        reader: &'a Reader<'a>,
        (name, row): (ObjectName, &ObjectRow),
        files: Option<&ObjectFiles>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            reader,
            name,
            size_bytes: row.size_bytes,
            in_rows: reader.sum_groups(name)?.into_iter(),
            contents: files.map(|files| files.contents(name)),
            next: 0,
            tally: Tally::default(),
        })
    }

    /// The next group that has a checksum; the first one always comes.
    pub(crate) fn next(&mut self) -> Result<Option<Group>, StoreError> {
        let recorded = self.in_rows.as_slice().iter().copied().find(|group| *group >= self.next);
        let Some(group) = min(recorded, self.next_in_file()?) else { return Ok(None) };
        while self.in_rows.as_slice().first().is_some_and(|first| *first <= group) {
            self.in_rows.next();
        }
        self.next = group + 1;
        let sums = self.reader.sums_of_group(self.name, group)?;
        let mut found = Group { group, sums, damaged_blocks: Vec::new() };
        self.compare(&mut found)?;
        Ok(Some(found))
    }

    /// The next group that has bytes in the file.
    fn next_in_file(&mut self) -> Result<Option<u64>, StoreError> {
        let (size_bytes, from) = (self.size_bytes, self.next * GROUP_BLOCK_COUNT * BLOCK);
        let Some(contents) = &mut self.contents else { return Ok(None) };
        let data = contents.next_data(from)?.filter(|at| *at < size_bytes);
        Ok(data.map(|at| at / BLOCK / GROUP_BLOCK_COUNT))
    }

    fn compare(&mut self, group: &mut Group) -> Result<(), StoreError> {
        let Some(contents) = &mut self.contents else { return Ok(()) };
        for (index, block) in (0..).zip(blocks_of(group.group)) {
            let expected = group.sums.at(index);
            if !expected.is_none() {
                let found = contents.sum(block, expected.covered_bytes)?;
                if self.tally.count(block, found == expected) {
                    group.damaged_blocks.push(block);
                }
                continue;
            }
            let start = block * BLOCK;
            let rest_bytes = self.size_bytes.saturating_sub(start).min(BLOCK);
            let has_data = rest_bytes > 0
                && contents.next_data(start)?.is_some_and(|at| at < start + rest_bytes);
            if has_data {
                let covered_bytes = u32::try_from(rest_bytes).unwrap_or(BLOCK_BYTES);
                group.sums.put(index, contents.sum(block, covered_bytes)?);
            }
        }
        Ok(())
    }
}

impl Tally {
    /// Counts a block; whether it is damaged.
    fn count(&mut self, block: u64, is_well: bool) -> bool {
        self.block_count += 1;
        if !is_well {
            self.damaged_count += 1;
            self.first_damaged.get_or_insert(block);
        }
        !is_well
    }

    /// What is wrong, in words.
    pub(crate) fn what(&self) -> Option<String> {
        let Self { block_count, damaged_count, first_damaged } = self;
        first_damaged.map(|first| {
            format!(
                "{damaged_count} of {block_count} blocks do not have their checksums, the first at byte {}",
                first * BLOCK
            )
        })
    }
}

/// What an object lacks that is recorded of it: its file, or its end.
pub(crate) fn lack_of(file: Option<&ObjectFile>, size_bytes: u64) -> Option<(Kind, String)> {
    match file {
        None if size_bytes > 0 => {
            let what = format!("{size_bytes} bytes are recorded, and there is no file");
            Some((Kind::ObjectMissing, what))
        }
        Some(file) if file.size_bytes < size_bytes => {
            let what = format!("{size_bytes} bytes are recorded, the file has {}", file.size_bytes);
            Some((Kind::ObjectShort, what))
        }
        Some(_) | None => None,
    }
}

impl Group {
    /// The checksums in hexadecimal, as a row has them, without their number.
    pub(crate) fn text(&self) -> String {
        const COUNT_BYTES: usize = 2;
        self.sums.to_bytes().get(COUNT_BYTES..).map(hex).unwrap_or_default()
    }

    /// Of what [`Self::text`] made; `None` if it is none.
    pub(crate) fn of_text(group: u64, text: &str, damaged_blocks: &[u64]) -> Option<Self> {
        let bytes = from_hex(text)?;
        let (sums, rest) = bytes.as_chunks::<SUM_BYTES>();
        let sums: Vec<BlockSum> =
            sums.iter().map(|sum| BlockSum::decode_all(sum).ok()).collect::<Option<_>>()?;
        let is_well = rest.is_empty()
            && u64::try_from(sums.len()).is_ok_and(|count| count <= GROUP_BLOCK_COUNT)
            && sums.iter().all(|sum| sum.covered_bytes <= BLOCK_BYTES);
        let damaged_blocks = damaged_blocks.to_vec();
        is_well.then_some(Self { group, sums: BlockSums(sums), damaged_blocks })
    }

    /// Compares the checksums with an object; what it has of blocks that are damaged and not marked so is
    /// counted in the second tally.
    pub(crate) fn hold_against(
        &self,
        contents: &mut ObjectContents,
        (all, unmarked): (&mut Tally, &mut Tally),
    ) -> Result<(), StoreError> {
        for (block, expected) in blocks_of(self.group).zip(&self.sums.0) {
            if expected.is_none() {
                continue;
            }
            let is_well = contents.sum(block, expected.covered_bytes)? == *expected;
            all.count(block, is_well);
            unmarked.count(block, is_well || self.damaged_blocks.contains(&block));
        }
        Ok(())
    }
}

/// What was found about objects, before their paths are known.
#[derive(Default)]
pub(crate) struct Found {
    found: Vec<(ObjectName, Finding)>,
    untold_count: u64,
}

/// Damaged objects.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Damages {
    /// One an object; [`FINDING_COUNT_MAX`] at most.
    pub findings: Vec<Finding>,
    /// Findings beyond the most that are told.
    pub untold_count: u64,
}

impl Damages {
    /// How many objects are damaged.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.untold_count + u64::try_from(self.findings.len()).unwrap_or(u64::MAX)
    }
}

impl Found {
    pub(crate) fn add(&mut self, kind: Kind, (name, file): (ObjectName, PathBuf), what: String) {
        if self.found.len() >= FINDING_COUNT_MAX {
            self.untold_count += 1;
            return;
        }
        let (severity, inode) = (Severity::Damage, Some(name.inode));
        let finding = Finding { kind, severity, paths: Vec::new(), inode, file: Some(file), what };
        self.found.push((name, finding));
    }

    /// Looks up the paths.
    pub(crate) fn named(self, reader: &Reader<'_>) -> Result<Damages, StoreError> {
        let inodes = self.found.iter().map(|(name, _)| name.inode).collect();
        let mut paths = Paths::of_rows(reader);
        let names = paths.names_of(&inodes)?;
        let mut damages = Damages { findings: Vec::new(), untold_count: self.untold_count };
        for (name, mut finding) in self.found {
            for place in names.get(&name.inode).into_iter().flatten() {
                finding.paths.push(paths.path(place)?);
            }
            damages.findings.push(finding);
        }
        Ok(damages)
    }
}

fn blocks_of(group: u64) -> std::ops::Range<u64> {
    group * GROUP_BLOCK_COUNT..(group + 1) * GROUP_BLOCK_COUNT
}

fn min(first: Option<u64>, second: Option<u64>) -> Option<u64> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (found, None) | (None, found) => found,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::dump::dump_beside;
    use crate::line::Line;
    use disk::InodeRow;
    use disk::rows::Key;
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt as _;
    use store::{RowStore, Shape};
    use wire::{FileKind, InodeNo, ShardId};

    #[test]
    fn blocks_without_a_checksum_get_one_and_holes_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut store =
            store::open_or_create(&folder.path().join("store"), &Shape::default()).unwrap();
        let cold = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
        let (shard, inode) = (ShardId::data(0), InodeNo(7));
        let name = ObjectName { shard_index: 0, inode, stripe_index: 0 };
        let copies = ObjectFiles::new(folder.path().join("copies"));
        let path = folder.path().join("copies").join(name.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create(path).unwrap();
        // One block that the rows know, one that they do not, and one far behind a hole, cut at the end.
        let size_bytes = 200 * BLOCK + 10;
        file.write_all_at(&vec![1; 2 * 65_536], 0).unwrap();
        file.write_all_at(&[2; 20], 200 * BLOCK).unwrap();
        let sum = |bytes: &[u8]| BlockSum {
            crc32c: wire::crc32c(bytes),
            covered_bytes: u32::try_from(bytes.len()).unwrap(),
        };
        let row = ObjectRow { size_bytes, write_time_ns: 0, first_sum: sum(&[1; 30]) };
        let inode_row = InodeRow {
            nlink: 1,
            ..InodeRow::new(inode, FileKind::File, 0o644, wire::Timestamp::default())
        };
        let rows = [
            (Key::object(shard, inode).bytes().to_vec(), Some(row.to_bytes())),
            (Key::inode(inode).bytes().to_vec(), Some(inode_row.to_bytes())),
        ];
        cold.put_all(&rows.into_iter().collect()).unwrap();
        let view = store.view(&cold).unwrap();
        let dumped = |copies: Option<&ObjectFiles>| {
            let mut lines = Vec::new();
            let (_, damages) = dump_beside(&view, &mut lines, copies).unwrap();
            let lines = String::from_utf8(lines).unwrap();
            let lines = lines.lines().map(|line| serde_json::from_str::<Line>(line).unwrap());
            let groups = lines.filter_map(|line| line.group()).collect::<Vec<_>>();
            (groups, damages.count())
        };
        let group = |group, sums| Group { group, sums, damaged_blocks: Vec::new() };
        let recorded = BlockSums(vec![sum(&[1; 30])]);
        assert_eq!(dumped(None), (vec![group(0, recorded)], 0));
        let first = BlockSums(vec![sum(&[1; 30]), sum(&[1; 65_536])]);
        let mut last = BlockSums::default();
        last.put(8, sum(&[2; 10]));
        assert_eq!(dumped(Some(&copies)), (vec![group(0, first.clone()), group(3, last)], 0));
        file.write_all_at(&[9], 29).unwrap();
        let (groups, damage_count) = dumped(Some(&copies));
        assert_eq!((groups[0].damaged_blocks.as_slice(), damage_count), (&[0][..], 1));
        assert_eq!(groups[0].sums, first, "what was recorded stays");
    }

    #[test]
    fn what_is_no_group_of_checksums_is_refused() {
        let sums = BlockSums(vec![BlockSum { crc32c: 1, covered_bytes: BLOCK_BYTES }; 64]);
        let text = Group { group: 1, sums: sums.clone(), damaged_blocks: Vec::new() }.text();
        assert_eq!(Group::of_text(1, &text, &[]).unwrap().sums, sums);
        let long = format!("{text}{}", &text[..16]);
        let far = text.replacen("00000100", "01000100", 1);
        for wrong in [&text[1..], &text[2..], &long, &far, "zz"] {
            assert_eq!(Group::of_text(1, wrong, &[]), None, "{wrong}");
        }
    }
}
