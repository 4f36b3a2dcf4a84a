//! Rows of contents: reads that caches may answer, first reads, and streams.

use super::pattern::{bytes_at, compare, compare_ends};
use super::place::Place;
use super::program::run;
use super::workload::{Sample, Workload};
use anyhow::{Context as _, Result, ensure};
use ring::FileMap;
use rustix::fs::{Mode, OFlags, openat};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const WORKLOADS: [Workload; 7] = [
    Workload::calls("open+read+close", |place, _| open_read_close(place)),
    Workload::calls("read 4 KiB", |place, round_no| {
        read_cached(place, SMALL_BYTES, place.setup.counts.read_count, round_no)
    }),
    Workload::calls("read 1 MiB", |place, round_no| {
        read_cached(place, PIECE_BYTES, place.setup.counts.large_read_count, round_no)
    }),
    Workload::calls("mmap read", |place, _| read_mapped(place)),
    Workload::programs("first read", &["split"], |place, _| first_read(place)),
    Workload::calls("stream write", |place, _| stream_write(place)),
    Workload::calls("stream read", |place, _| stream_read(place)),
];

const SMALL_BYTES: usize = 4096;
const PIECE_BYTES: usize = 1 << 20;
const WORD_BYTES: usize = size_of::<u64>();

fn open_read_close(place: &Place<'_>) -> Result<Sample> {
    let dir =
        place.once("small", |dir| Ok(fs::write(dir.join("file"), bytes_at(0, SMALL_BYTES))?))?;
    let (path, dir) = (dir.join("file"), File::open(dir)?);
    let mut buffer = vec![0; SMALL_BYTES];
    let mut call = |_| {
        open_in(&dir, "file")?.read_exact_at(&mut buffer, 0)?;
        compare_ends(0, &buffer)
    };
    call(0)?;
    let count = place.setup.counts.read_count;
    let elapsed = place.setup.time(count, call)?;
    compare(0, &fs::read(&path)?)?;
    Ok(Sample::new(elapsed, count, "files").bytes(count * SMALL_BYTES as u64))
}

/// Opens a file of an open directory, as a program does in its working directory.
fn open_in(dir: &File, name: &str) -> Result<File> {
    Ok(openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Of an open file at random aligned offsets, after all of it was read and compared once.
fn read_cached(
    place: &Place<'_>,
    piece_bytes: usize,
    count: u64,
    round_no: usize,
) -> Result<Sample> {
    let file = File::open(cached_file(place)?)?;
    let cached_bytes = place.setup.counts.cached_bytes;
    let mut buffer = vec![0; piece_bytes];
    let mut rng = fastrand::Rng::with_seed(round_no as u64);
    let elapsed = place.setup.time(count, |_| {
        let offset = rng.u64(..cached_bytes / piece_bytes as u64) * piece_bytes as u64;
        file.read_exact_at(&mut buffer, offset)?;
        compare_ends(offset, &buffer)
    })?;
    Ok(Sample::new(elapsed, count, "reads").bytes(count * piece_bytes as u64))
}

/// Of a mapping of the file, 1 MiB at a time.
fn read_mapped(place: &Place<'_>) -> Result<Sample> {
    let file = File::open(cached_file(place)?)?;
    let cached_bytes = place.setup.counts.cached_bytes;
    let map = FileMap::new(&file, usize::try_from(cached_bytes)? / WORD_BYTES)?;
    let mut words = vec![0_u64; PIECE_BYTES / WORD_BYTES];
    let piece_count = cached_bytes / PIECE_BYTES as u64;
    let mut call = |index: u64| {
        let offset = index % piece_count * PIECE_BYTES as u64;
        map.read(usize::try_from(offset)? / WORD_BYTES, &mut words);
        let ends = [words[0], words[words.len() - 1]].map(u64::to_le_bytes);
        compare_ends(offset, &ends[0][..])
            .and(compare_ends(offset + (PIECE_BYTES - WORD_BYTES) as u64, &ends[1][..]))
    };
    for index in 0..piece_count {
        call(index)?;
    }
    let count = place.setup.counts.large_read_count;
    let elapsed = place.setup.time(count, call)?;
    Ok(Sample::new(elapsed, count, "reads").bytes(count * PIECE_BYTES as u64))
}

/// The file, with all of its pages read a moment ago.
fn cached_file(place: &Place<'_>) -> Result<PathBuf> {
    let bytes = place.setup.counts.cached_bytes;
    let dir =
        place.once("cached", |dir| write_pieces(place, &dir.join("file"), bytes).map(drop))?;
    let path = dir.join("file");
    read_pieces(place, &path, bytes)?;
    Ok(path)
}

/// Of files that another process has written.
fn first_read(place: &Place<'_>) -> Result<Sample> {
    let count = place.setup.counts.file_count;
    let bytes = count * SMALL_BYTES as u64;
    let whole = place.setup.once("whole", |dir| {
        Ok(fs::write(dir.join("file"), bytes_at(0, usize::try_from(bytes)?))?)
    })?;
    let whole = whole.join("file");
    place.fresh(|dir| {
        let mut split = Command::new("split");
        split.args(["-d", "-a", "6", "-b", &SMALL_BYTES.to_string()]).arg(&whole).arg("part-");
        run(place.setup, split.current_dir(dir))?;
        let cold = place.cool()?;
        let mut found = Vec::with_capacity(usize::try_from(bytes)?);
        let dir = File::open(dir)?;
        let elapsed = place.setup.time(count, |index| {
            open_in(&dir, &format!("part-{index:06}"))?.read_to_end(&mut found)?;
            Ok(())
        })?;
        compare(0, &found)?;
        ensure!(found.len() as u64 == bytes, "{} bytes were read, not {bytes}", found.len());
        Ok(Sample::new(elapsed, count, "files").names(count).bytes(bytes).note(cold))
    })
}

/// With a sync at the end.
fn stream_write(place: &Place<'_>) -> Result<Sample> {
    let bytes = place.setup.counts.stream_bytes;
    place.fresh(|dir| {
        let path = dir.join("stream");
        let elapsed = write_pieces(place, &path, bytes)?;
        read_pieces(place, &path, bytes)?;
        Ok(Sample::new(elapsed, bytes / PIECE_BYTES as u64, "writes")
            .bytes(bytes)
            .note("with fsync"))
    })
}

fn stream_read(place: &Place<'_>) -> Result<Sample> {
    let bytes = place.setup.counts.stream_bytes;
    let dir =
        place.once("stream", |dir| write_pieces(place, &dir.join("file"), bytes).map(drop))?;
    let cold = place.cool()?;
    let elapsed = read_pieces(place, &dir.join("file"), bytes)?;
    Ok(Sample::new(elapsed, bytes / PIECE_BYTES as u64, "reads").bytes(bytes).note(cold))
}

/// Writes 1 MiB at a time and syncs; the time of that.
fn write_pieces(place: &Place<'_>, path: &Path, bytes: u64) -> Result<Duration> {
    let file = File::create(path).context("cannot make the file")?;
    let mut elapsed = Duration::ZERO;
    for offset in (0..bytes).step_by(PIECE_BYTES) {
        place.setup.interrupt.check()?;
        let piece = bytes_at(offset, PIECE_BYTES);
        let began = Instant::now();
        file.write_all_at(&piece, offset)?;
        elapsed += began.elapsed();
    }
    let began = Instant::now();
    file.sync_all().context("cannot sync the file")?;
    drop(file);
    Ok(elapsed + began.elapsed())
}

/// Reads 1 MiB at a time and compares; the time of the reads.
fn read_pieces(place: &Place<'_>, path: &Path, bytes: u64) -> Result<Duration> {
    let began = Instant::now();
    let file = File::open(path)?;
    let mut elapsed = began.elapsed();
    let mut piece = vec![0; PIECE_BYTES];
    for offset in (0..bytes).step_by(PIECE_BYTES) {
        place.setup.interrupt.check()?;
        let began = Instant::now();
        file.read_exact_at(&mut piece, offset)?;
        elapsed += began.elapsed();
        compare(offset, &piece)?;
    }
    Ok(elapsed)
}
