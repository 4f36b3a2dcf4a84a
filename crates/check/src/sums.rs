//! Checksums of objects' blocks between rows, objects' files and the lines of a dump.
//!
//! Invariant: a group has at most a group's number of blocks, and no checksum covers more bytes than a block
//! has.

use crate::finding::{Finding, Kind, Severity};
use crate::paths::Names;
use crate::walk::FINDING_COUNT_MAX;
use disk::{BLOCK_BYTES, BlockSum, BlockSums, GROUP_BLOCK_COUNT};
use hashbrown::HashSet;
use std::path::PathBuf;
use store::{ObjectContents, ObjectFile, ObjectName, StoreError};
use wire::{InodeNo, Wire as _};

/// [`BLOCK_BYTES`], as places have it.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
const SUM_BYTES: usize = 8;

/// A group of an object's blocks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Group {
    pub(crate) group: u64,
    pub(crate) sums: BlockSums,
    /// Blocks that were found not to have their checksums.
    pub(crate) damaged_blocks: Vec<u64>,
}

/// What came of comparing blocks with their checksums.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) block_count: u64,
    pub(crate) damaged_count: u64,
    pub(crate) first_damaged: Option<u64>,
}

impl Tally {
    /// Counts a block; whether it is damaged.
    pub(crate) fn count(&mut self, block: u64, is_well: bool) -> bool {
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
        self.sums.to_bytes().get(COUNT_BYTES..).map(hex::encode).unwrap_or_default()
    }

    /// Of what [`Self::text`] made; `None` if it is none.
    pub(crate) fn of_text(group: u64, text: &str, damaged_blocks: &[u64]) -> Option<Self> {
        let bytes = hex::decode(text).ok()?;
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
    unlisted_count: u64,
}

/// Damaged objects.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Damages {
    /// One an object; [`FINDING_COUNT_MAX`] at most.
    pub findings: Vec<Finding>,
    /// Findings beyond that limit.
    pub unlisted_count: u64,
}

impl Damages {
    /// How many objects are damaged.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.unlisted_count + u64::try_from(self.findings.len()).unwrap_or(u64::MAX)
    }
}

impl Found {
    pub(crate) fn add(&mut self, kind: Kind, (name, file): (ObjectName, PathBuf), what: String) {
        if self.found.len() >= FINDING_COUNT_MAX {
            self.unlisted_count += 1;
            return;
        }
        let (severity, inode) = (Severity::Damage, Some(name.inode));
        let finding = Finding { kind, severity, paths: Vec::new(), inode, file: Some(file), what };
        self.found.push((name, finding));
    }

    /// With the paths that are looked up.
    pub(crate) fn named<E>(
        self,
        paths_of: impl FnOnce(&HashSet<InodeNo>) -> Result<Names, E>,
    ) -> Result<Damages, E> {
        let names = paths_of(&self.found.iter().map(|(name, _)| name.inode).collect())?;
        let named = |(name, finding): (ObjectName, Finding)| {
            let paths = names.get(&name.inode).cloned().unwrap_or_default();
            Finding { paths, ..finding }
        };
        let findings = self.found.into_iter().map(named).collect();
        Ok(Damages { findings, unlisted_count: self.unlisted_count })
    }
}

/// The blocks of a group.
pub(crate) fn blocks_of(group: u64) -> std::ops::Range<u64> {
    group * GROUP_BLOCK_COUNT..(group + 1) * GROUP_BLOCK_COUNT
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_no_group_of_checksums_is_refused() {
        let sums = BlockSums(vec![BlockSum { crc32c: 1, covered_bytes: BLOCK_BYTES }; 64]);
        let text = Group { group: 1, sums: sums.clone(), damaged_blocks: Vec::new() }.text();
        assert_eq!(Group::of_text(1, &text, &[]).unwrap().sums, sums);
        let long = format!("{text}{}", &text[..16]);
        let uncovered = text.replacen("00000100", "01000100", 1);
        for wrong in [&text[1..], &text[2..], &long, &uncovered, "zz"] {
            assert_eq!(Group::of_text(1, wrong, &[]), None, "{wrong}");
        }
    }
}
