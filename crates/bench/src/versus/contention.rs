//! Rows of two mounts of one file system that work on the same files at the same time.

use super::place::Place;
use super::workload::{Sample, Workload};
use anyhow::{Context as _, Result, bail, ensure};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const WORKLOADS: [Workload; 3] = [
    Workload::shared("peer: writers", |place, _| writers(place)),
    Workload::shared("peer: rewriters", |place, _| rewriters(place)),
    Workload::shared("peer: ls -l", |place, _| listings(place)),
];

const BLOCK_BYTES: usize = 4096;
/// Blocks of a shared file that are written each time that it is opened.
const OPENED_BLOCKS: usize = 8;

/// What a thread does in a directory.
type Work<'w> = &'w (dyn Fn(&Path) -> Result<()> + Sync);

/// What two threads do, the first at the directory and the second at its peer.
fn both(dirs: [&Path; 2], works: [Work<'_>; 2]) -> Result<Duration> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let [first, second] = [0, 1].map(|side| scope.spawn(move || works[side](dirs[side])));
        for thread in [first, second] {
            match thread.join() {
                Ok(done) => done?,
                Err(_) => bail!("a thread panicked"),
            }
        }
        Ok(began.elapsed())
    })
}

/// Both write blocks of one file in turn, which both have open.
fn writers(place: &Place<'_>) -> Result<Sample> {
    shared_file(place, usize::MAX)
}

/// The same with a few blocks to each open.
fn rewriters(place: &Place<'_>) -> Result<Sample> {
    shared_file(place, OPENED_BLOCKS)
}

fn shared_file(place: &Place<'_>, opened_blocks: usize) -> Result<Sample> {
    let count = usize::try_from(place.setup.counts.file_count)?;
    place.fresh_shared(|dirs| {
        File::create_new(dirs[0].join("file"))?;
        let write = |dir: &Path, side: usize| {
            let mut file = None;
            for index in 0..count {
                place.setup.interrupt.check()?;
                if index % opened_blocks == 0 {
                    let options = OpenOptions::new().write(true).open(dir.join("file"));
                    file = Some(options.context("cannot open the shared file")?);
                }
                let block_no = 2 * index + side;
                let file = file.as_ref().context("no file is open")?;
                file.write_all_at(&block(block_no), (block_no * BLOCK_BYTES) as u64)?;
            }
            Ok(())
        };
        let elapsed = both(dirs, [&|dir| write(dir, 0), &|dir| write(dir, 1)])?;
        for dir in dirs {
            let bytes = fs::read(dir.join("file"))?;
            ensure!(bytes.len() == 2 * count * BLOCK_BYTES, "{} bytes", bytes.len());
            let is_whole = |(block_no, bytes): (usize, &[u8])| bytes == block(block_no);
            ensure!(bytes.chunks(BLOCK_BYTES).enumerate().all(is_whole), "a block is lost");
        }
        let op_count = 2 * count as u64;
        Ok(Sample::new(elapsed, op_count, "blocks").bytes(op_count * BLOCK_BYTES as u64))
    })
}

fn block(block_no: usize) -> Vec<u8> {
    block_no.to_ne_bytes().repeat(BLOCK_BYTES / size_of::<usize>())
}

/// One makes files, and the other lists them with their sizes all the time.
fn listings(place: &Place<'_>) -> Result<Sample> {
    let count = place.setup.counts.file_count;
    let over = AtomicBool::new(false);
    place.fresh_shared(|dirs| {
        let make_all = |dir: &Path| {
            for index in 0..count {
                place.setup.interrupt.check()?;
                fs::write(dir.join(format!("file-{index}")), b"contents")?;
            }
            Ok(())
        };
        let make = |dir: &Path| {
            let made = make_all(dir);
            over.store(true, Ordering::SeqCst);
            made
        };
        let list = |dir: &Path| loop {
            place.setup.interrupt.check()?;
            let is_last = over.load(Ordering::SeqCst);
            let mut listed_count = 0;
            for entry in fs::read_dir(dir)? {
                let size_bytes = entry?.metadata()?.len();
                ensure!(size_bytes == 0 || size_bytes == 8, "a file has {size_bytes} bytes");
                listed_count += 1;
            }
            if is_last {
                ensure!(listed_count == count, "{listed_count} files are listed");
                return Ok(());
            }
        };
        let elapsed = both(dirs, [&make, &list])?;
        Ok(Sample::new(elapsed, count, "files").names(count))
    })
}
