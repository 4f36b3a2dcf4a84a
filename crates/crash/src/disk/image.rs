//! The bytes of a disk with a volatile cache: the durable contents, the contents that a reader
//! sees, and the sectors written since the last flush.
//!
//! After a power cut each sector independently has any of the contents that it had since the last
//! flush: a disk promises no more. Invariant: a write before a completed flush is durable whole.

use crate::work::CONTENTS_MARK;
use fastrand::Rng;
use std::collections::BTreeMap;

/// The unit that survives a power cut whole or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tear {
    /// Nothing since the last flush survives.
    DropAll,
    /// Each sector of so many bytes has one of its contents since the last flush.
    Sectors(usize),
    /// A prefix of the writes in their order survives.
    Prefix,
}

/// A disk.
pub(crate) struct Image {
    durable: Vec<u8>,
    seen: Vec<u8>,
    /// Since the last flush, in order.
    writes: Vec<(usize, Vec<u8>)>,
    /// Bytes of them.
    unflushed_bytes: usize,
    /// The sectors that the last power cut took.
    lost: Vec<Lost>,
    lying: bool,
    counts: Counts,
}

/// Counters of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    /// Writes received.
    pub(crate) write_count: u64,
    /// Flushes received.
    pub(crate) flush_count: u64,
    /// Flushes that wait now.
    pub(crate) held_count: u64,
    /// Writes not flushed when the power was last cut.
    pub(crate) unflushed_count: u64,
    /// Bytes of sectors that reverted to their contents at the last flush.
    pub(crate) lost_bytes: u64,
    /// Bytes of sectors that survived without a flush.
    pub(crate) kept_bytes: u64,
    /// The power is on.
    pub(crate) is_on: bool,
}

/// A range of sectors that a power cut took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lost {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// They were to hold lines of the workload's files.
    pub(crate) is_contents: bool,
}

/// The unit in which versions of a sector are compared.
const SECTOR_BYTES_MIN: usize = 512;

impl Image {
    /// A disk of zeros.
    pub(crate) fn new(image_bytes: usize) -> Self {
        let zeros = || vec![0; image_bytes];
        Self {
            durable: zeros(),
            seen: zeros(),
            writes: Vec::new(),
            unflushed_bytes: 0,
            lost: Vec::new(),
            lying: false,
            counts: Counts::default(),
        }
    }

    /// How large it is.
    pub(crate) fn image_bytes(&self) -> usize {
        self.seen.len()
    }

    /// The counters so far.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes written since the last flush.
    pub(crate) const fn unflushed_bytes(&self) -> usize {
        self.unflushed_bytes
    }

    /// The sectors that the last power cut took, in no order.
    pub(crate) fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// The bytes that a reader sees; shorter at the disk's end.
    pub(crate) fn read(&self, offset: usize, read_bytes: usize) -> &[u8] {
        let end = offset.saturating_add(read_bytes).min(self.seen.len());
        self.seen.get(offset..end).unwrap_or_default()
    }

    /// Writes into the volatile cache; false behind the disk's end.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let Some(place) = self.seen.get_mut(offset..offset.saturating_add(bytes.len())) else {
            return false;
        };
        place.copy_from_slice(bytes);
        self.writes.push((offset, bytes.to_vec()));
        self.unflushed_bytes += bytes.len();
        self.counts.write_count += 1;
        true
    }

    /// Makes everything durable.
    pub(crate) fn flush(&mut self) {
        self.counts.flush_count += 1;
        if self.lying {
            return;
        }
        self.unflushed_bytes = 0;
        for (offset, bytes) in self.writes.drain(..) {
            self.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Flushes succeed without effect until the power is cut.
    pub(crate) fn ignore_flushes(&mut self) {
        self.lying = true;
    }

    /// Cuts the power. `rng` decides what survives.
    pub(crate) fn cut(&mut self, tear: Tear, rng: &mut Rng) {
        self.lying = false;
        self.unflushed_bytes = 0;
        self.lost.clear();
        let writes = std::mem::take(&mut self.writes);
        self.counts.unflushed_count = writes.len() as u64;
        let surviving = match tear {
            Tear::DropAll => Vec::new(),
            Tear::Prefix => {
                let retained_count = rng.usize(..writes.len() + 1);
                writes[..retained_count].to_vec()
            }
            Tear::Sectors(sector_bytes) => torn(&writes, sector_bytes, rng),
        };
        let written: Vec<_> = writes.iter().map(|(at, bytes)| *at..*at + bytes.len()).collect();
        for (offset, bytes) in surviving {
            self.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        for range in written {
            let unlike = |at: usize, end: usize| self.seen[at..end] != self.durable[at..end];
            for at in range.clone().step_by(SECTOR_BYTES_MIN) {
                let end = (at + SECTOR_BYTES_MIN).min(range.end);
                let lost = unlike(at, end);
                let bytes = (end - at) as u64;
                self.counts.lost_bytes += if lost { bytes } else { 0 };
                self.counts.kept_bytes += if lost { 0 } else { bytes };
                if lost {
                    let is_contents = is_contents(&self.seen[at..end]);
                    add_lost(&mut self.lost, Lost { start: at, end, is_contents });
                }
            }
            self.seen[range.clone()].copy_from_slice(&self.durable[range]);
        }
    }
}

fn is_contents(bytes: &[u8]) -> bool {
    let mark = CONTENTS_MARK.as_bytes();
    bytes.windows(mark.len()).any(|window| window == mark)
}

fn add_lost(lost: &mut Vec<Lost>, more: Lost) {
    match lost.last_mut() {
        Some(last) if last.end == more.start && last.is_contents == more.is_contents => {
            last.end = more.end;
        }
        Some(_) | None => lost.push(more),
    }
}

/// For each sector, one of its contents since the last flush, or its contents at that flush.
fn torn(writes: &[(usize, Vec<u8>)], sector_bytes: usize, rng: &mut Rng) -> Vec<(usize, Vec<u8>)> {
    let mut versions: BTreeMap<usize, Vec<(usize, &[u8])>> = BTreeMap::new();
    for (offset, bytes) in writes {
        let mut at = *offset;
        while at < offset + bytes.len() {
            let end = (at / sector_bytes + 1) * sector_bytes;
            let end = end.min(offset + bytes.len());
            let piece = &bytes[at - offset..end - offset];
            versions.entry(at / sector_bytes).or_default().push((at, piece));
            at = end;
        }
    }
    let mut surviving = Vec::new();
    for pieces in versions.values() {
        // A later version of a sector includes earlier writes to other parts of it.
        let retained_count = rng.usize(..pieces.len() + 1);
        surviving.extend(pieces[..retained_count].iter().map(|(at, piece)| (*at, piece.to_vec())));
    }
    surviving
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushed_sectors_survive_and_unflushed_ones_are_lost() {
        let mut image = Image::new(8192);
        assert!(image.write(0, b"durable"));
        image.flush();
        assert!(image.write(0, b"changed"));
        assert!(image.write(4096, b"new"));
        assert_eq!(image.read(0, 7), b"changed");
        image.cut(Tear::DropAll, &mut Rng::with_seed(1));
        assert_eq!(image.read(0, 7), b"durable");
        assert_eq!(image.read(4096, 3), [0; 3]);
    }

    #[test]
    fn lost_reports_the_lost_sectors() {
        let mut image = Image::new(8192);
        image.write(512, &[7; 1024]);
        image.write(1536, CONTENTS_MARK.repeat(512).as_bytes().split_at(512).0);
        assert_eq!(image.unflushed_bytes(), 1536);
        image.cut(Tear::DropAll, &mut Rng::with_seed(1));
        assert_eq!(image.unflushed_bytes(), 0);
        let others = Lost { start: 512, end: 1536, is_contents: false };
        let lines = Lost { start: 1536, end: 2048, is_contents: true };
        assert_eq!(image.lost(), [others, lines]);
        image.cut(Tear::DropAll, &mut Rng::with_seed(1));
        assert_eq!(image.lost(), []);
    }

    #[test]
    fn a_torn_sector_is_one_of_its_versions() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut image = Image::new(2048);
            image.write(0, &[1; 1024]);
            image.write(0, &[2; 512]);
            image.cut(Tear::Sectors(512), &mut Rng::with_seed(seed));
            let sectors: Vec<&[u8]> = image.read(0, 1024).chunks(512).collect();
            for sector in &sectors {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "no sector is torn");
            }
            seen.insert((sectors[0][0], sectors[1][0]));
        }
        let all = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn a_prefix_survives_in_order() {
        for seed in 0..50 {
            let mut image = Image::new(1024);
            image.write(0, &[1; 512]);
            image.write(512, &[2; 512]);
            image.cut(Tear::Prefix, &mut Rng::with_seed(seed));
            let found = (image.read(0, 1)[0], image.read(512, 1)[0]);
            assert!([(0, 0), (1, 0), (1, 2)].contains(&found), "{found:?}");
        }
    }

    #[test]
    fn a_write_behind_the_end_is_refused() {
        let mut image = Image::new(512);
        assert!(!image.write(510, b"four"));
        assert_eq!(image.read(510, 100).len(), 2);
    }
}
