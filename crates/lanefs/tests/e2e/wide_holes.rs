//! Allocations and holes of files whose stripes are at several servers, compared with a local file.

#![allow(clippy::cast_possible_truncation)]

use crate::cluster::Cluster;
use crate::fixture::{kill, must, program};
use crate::wide_files::{UNIT, bytes, open, there, wide};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

const PAGE: u64 = 4096;
/// As many pages as the random files may have.
const PAGES: usize = (16 * UNIT / PAGE) as usize;
const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE;
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;

/// Where data begins and ends in a file.
fn segments(file: &File) -> Vec<(u64, u64)> {
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return all,
            found => {
                let data = found.unwrap();
                at = seek(file, SeekFrom::Hole(data)).unwrap();
                all.push((data, at));
            }
        }
    }
}

#[test]
fn holes_are_those_of_a_local_file_with_the_same_writes() {
    let Some(cluster) = Cluster::new("wide_holes") else { return };
    let (servers, mount, dir) = wide(&cluster);
    let other = cluster.mount(&servers[1], "other");
    let path = dir.join("file");
    let files = [open(&path), open(&there(&path, &mount, &other))];
    let local_path = cluster.fixture.path("local");
    let local = open(&local_path);
    let mut prng = fastrand::Rng::with_seed(11);
    for step in 0..200_u64 {
        let file = &files[(step % 2) as usize];
        let offset = prng.u64(..9 * UNIT / PAGE) * PAGE;
        let count = (1 + prng.u64(..3 * UNIT / PAGE)) * PAGE;
        match prng.u32(..8) {
            0..3 => {
                let data = bytes(step, usize::try_from(count).unwrap());
                file.write_all_at(&data, offset).unwrap();
                local.write_all_at(&data, offset).unwrap();
            }
            3 | 4 => {
                fallocate(file, KEEP | PUNCH, offset, count).unwrap();
                fallocate(&local, KEEP | PUNCH, offset, count).unwrap();
            }
            5 => {
                file.set_len(offset).unwrap();
                local.set_len(offset).unwrap();
            }
            _ => {
                let file = &files[1 - (step % 2) as usize];
                assert_eq!(segments(file), segments(&local), "step {step}");
                for (place, hole) in [(offset + 5, false), (offset + 5, true), (offset, true)] {
                    let of = |file| {
                        let from = if hole { SeekFrom::Hole(place) } else { SeekFrom::Data(place) };
                        seek(file, from)
                    };
                    assert_eq!(of(file), of(&local), "step {step}: {place}, hole {hole}");
                }
            }
        }
    }
    assert!(fs::read(&path).unwrap() == fs::read(&local_path).unwrap());
    // Programs find them.
    let (sparse, copy) = (dir.join("sparse"), cluster.fixture.path("copy"));
    let file = open(&sparse);
    file.write_all_at(b"middle", 40 * UNIT).unwrap();
    file.write_all_at(b"end", 100 * UNIT + 9).unwrap();
    assert_eq!(segments(&file), [(40 * UNIT, 40 * UNIT + 6), (100 * UNIT, 100 * UNIT + 12)]);
    must(program("cp").arg("--sparse=auto").arg(&sparse).arg(&copy));
    assert!(fs::read(&copy).unwrap() == fs::read(&sparse).unwrap());
    let blocks = fs::metadata(&copy).unwrap().blocks();
    assert!(blocks * 512 <= 4 * PAGE, "{blocks} blocks");
    other.stop();
    mount.stop();
}

/// A page of a file: what lseek(2) may say of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Hole,
    /// Allocated, never written.
    Reserved,
    Data,
}

/// A file as it must be.
struct Model {
    bytes: Vec<u8>,
    /// Also behind the end, where a file may have space.
    pages: [Page; PAGES],
}

impl Model {
    fn resize(&mut self, size: u64) {
        let size = usize::try_from(size).unwrap();
        self.bytes.resize(size, 0);
        let written = |page: &&mut Page| **page == Page::Data;
        self.pages[size / 4096..].iter_mut().filter(written).for_each(|page| *page = Page::Hole);
    }

    fn fill(&mut self, (offset, count): (u64, u64), page: Page, keep_size: bool) {
        if !keep_size && offset + count > self.bytes.len() as u64 {
            self.resize(offset + count);
        }
        for known in &mut self.pages[(offset / PAGE) as usize..((offset + count) / PAGE) as usize] {
            let stays = page == Page::Reserved && *known == Page::Data;
            *known = if stays { *known } else { page };
        }
    }

    /// Data is not passed over, and what was never allocated is a hole.
    fn check(&self, file: &File, step: u64) {
        let size = self.bytes.len() as u64;
        let mut at = 0;
        let mut wanted = Page::Data;
        while at < size {
            let is_data = wanted == Page::Data;
            let from = if is_data { SeekFrom::Data(at) } else { SeekFrom::Hole(at) };
            let found = match seek(file, from) {
                Err(Errno::NXIO) if is_data => size,
                found => found.unwrap(),
            };
            let passed = &self.pages[(at / PAGE) as usize..(found / PAGE) as usize];
            let other = if is_data { Page::Hole } else { Page::Data };
            assert!(!passed.contains(&wanted), "step {step}: {wanted:?} in {at}..{found}");
            let there = Some(self.pages[(found / PAGE) as usize]).filter(|_| found < size);
            assert_ne!(there, Some(other), "step {step}: {wanted:?} at {found}");
            (at, wanted) = (found, other);
        }
    }
}

#[test]
fn allocations_equal_a_model_while_servers_die() {
    let Some(cluster) = Cluster::new("wide_allocate") else { return };
    let ([one, mut two, three], mount, dir) = wide(&cluster);
    let other = cluster.mount(&three, "other");
    let path = dir.join("file");
    let files = [open(&path), open(&there(&path, &mount, &other))];
    let mut model = Model { bytes: Vec::new(), pages: [Page::Hole; PAGES] };
    let mut prng = fastrand::Rng::with_seed(12);
    for step in 0..160_u64 {
        let file = &files[(step % 2) as usize];
        let offset = prng.u64(..9 * UNIT / PAGE) * PAGE;
        let count = (1 + prng.u64(..4 * UNIT / PAGE)) * PAGE;
        let range = (offset, count);
        let (from, until) = (offset as usize, (offset + count) as usize);
        let keep_size = prng.bool();
        let flags = if keep_size { KEEP } else { FallocateFlags::empty() };
        if step % 40 == 20 {
            kill(two.process.pid());
            two.process.end();
            let listen = two.address.clone();
            two = cluster.serve("two", &listen, &[]);
        }
        match prng.u32(..10) {
            0..3 => {
                let data = bytes(step, count as usize);
                file.write_all_at(&data, offset).unwrap();
                model.fill(range, Page::Data, false);
                model.bytes[from..until].copy_from_slice(&data);
            }
            3 | 4 => {
                fallocate(file, flags, offset, count).unwrap();
                model.fill(range, Page::Reserved, keep_size);
            }
            5 => {
                fallocate(file, flags | ZERO, offset, count).unwrap();
                model.fill(range, Page::Hole, keep_size);
                model.fill(range, Page::Reserved, keep_size);
                let until = until.min(model.bytes.len());
                model.bytes[from.min(until)..until].fill(0);
            }
            6 => {
                fallocate(file, KEEP | PUNCH, offset, count).unwrap();
                model.fill(range, Page::Hole, true);
                let until = until.min(model.bytes.len());
                model.bytes[from.min(until)..until].fill(0);
            }
            7 => {
                file.set_len(offset).unwrap();
                // What was allocated behind the end may be there still.
                model.resize(offset);
            }
            _ => {
                let file = &files[1 - (step % 2) as usize];
                model.check(file, step);
                assert!(fs::read(&path).unwrap() == model.bytes, "step {step}");
            }
        }
        let size = model.bytes.len() as u64;
        assert_eq!(files[1].metadata().unwrap().len(), size, "step {step}");
    }
    for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&files[0], flags, 0, UNIT), Err(Errno::OPNOTSUPP));
    }
    other.stop();
    mount.stop();
    drop((one, two));
}

#[test]
fn space_is_taken_at_all_servers_and_given_back() {
    let Some(cluster) = Cluster::new("wide_space") else { return };
    let (_servers, mount, dir) = wide(&cluster);
    let path = dir.join("file");
    let file = open(&path);
    let allocated = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    fallocate(&file, FallocateFlags::empty(), 0, 30 * UNIT).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 30 * UNIT);
    assert!(allocated(&path) >= 30 * UNIT, "{}", allocated(&path));
    // Behind the end, which stays.
    fallocate(&file, KEEP, 30 * UNIT, 30 * UNIT).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 30 * UNIT);
    assert!(allocated(&path) >= 60 * UNIT, "{}", allocated(&path));
    file.set_len(30 * UNIT).unwrap();
    assert!(allocated(&path) < 40 * UNIT, "{}", allocated(&path));
    assert!(allocated(&path) >= 30 * UNIT, "{}: what was before it stays", allocated(&path));
    fallocate(&file, KEEP | PUNCH, 0, 30 * UNIT).unwrap();
    assert!(allocated(&path) < UNIT, "{}", allocated(&path));
    // What the disks do not have.
    let size = file.metadata().unwrap().len();
    let refused = fallocate(&file, FallocateFlags::empty(), 0, 1 << 45);
    assert_eq!(refused, Err(Errno::NOSPC));
    assert_eq!(file.metadata().unwrap().len(), size);
    mount.stop();
}
