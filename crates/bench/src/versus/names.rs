//! Rows of names and attributes.
//!
//! Names are relative to an open directory, as those of a program are to its working directory.

use super::pattern::bytes_at;
use super::place::Place;
use super::program::run;
use super::workload::{Sample, Workload};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const WORKLOADS: [Workload; 7] = [
    Workload::calls("stat", |place, _| stat(place, 0)),
    Workload::calls("stat 8 deep", |place, _| stat(place, 8)),
    Workload::calls("stat absent", |place, _| stat_absent(place)),
    Workload::programs("first stat", &["sh", "seq", "xargs", "touch"], |place, _| {
        first_stat(place)
    }),
    Workload::calls("create", |place, _| create(place)),
    Workload::calls("unlink", |place, _| unlink(place)),
    Workload::calls("write+fsync", |place, _| write_synced(place)),
];

const FILE_BYTES: usize = 4096;
/// Different absent names.
const ABSENT_COUNT: u64 = 100;

/// Of one file so many directories deep.
fn stat(place: &Place<'_>, depth: usize) -> Result<Sample> {
    let name = name_below(depth);
    let dir = place.once(&format!("stat-{depth}"), |dir| {
        let file = dir.join(&name);
        fs::create_dir_all(file.parent().unwrap_or(dir))?;
        Ok(fs::write(file, bytes_at(0, FILE_BYTES))?)
    })?;
    let dir = File::open(dir)?;
    let check = |_| ensure_size(&dir, &name, FILE_BYTES);
    check(0)?;
    let count = place.setup.counts.warm_count;
    Ok(Sample::new(place.setup.time(count, check)?, count, "stats"))
}

fn name_below(depth: usize) -> PathBuf {
    let dirs = (0..depth).map(|level| format!("level-{level}"));
    dirs.chain(["file".to_owned()]).collect()
}

fn ensure_size(dir: &File, name: &Path, byte_count: usize) -> Result<()> {
    let found = statat(dir, name, AtFlags::empty())?.st_size;
    ensure!(usize::try_from(found) == Ok(byte_count), "the file has {found} bytes");
    Ok(())
}

fn stat_absent(place: &Place<'_>) -> Result<Sample> {
    let dir = File::open(place.once("absent", |_| Ok(()))?)?;
    let names: Vec<String> = (0..ABSENT_COUNT).map(|index| format!("absent-{index}")).collect();
    let mut at = names.iter().cycle();
    let mut check = |_| match statat(&dir, at.next().context("no names")?, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("a name exists that was never made"),
    };
    for index in 0..ABSENT_COUNT {
        check(index)?;
    }
    let count = place.setup.counts.warm_count;
    Ok(Sample::new(place.setup.time(count, check)?, count, "stats").names(ABSENT_COUNT))
}

/// Of files that another process has made.
fn first_stat(place: &Place<'_>) -> Result<Sample> {
    let count = place.setup.counts.file_count;
    place.fresh(|dir| {
        let script = "seq -f 'new-%.0f' 0 \"$1\" | xargs touch";
        let last = (count - 1).to_string();
        run(place.setup, Command::new("sh").args(["-c", script, "sh", &last]).current_dir(dir))?;
        let cold = place.cool()?;
        let dir = File::open(dir)?;
        let check = |index| ensure_size(&dir, Path::new(&new_name(index)), 0);
        Ok(Sample::new(place.setup.time(count, check)?, count, "stats").names(count).note(cold))
    })
}

fn create(place: &Place<'_>) -> Result<Sample> {
    let count = place.setup.counts.file_count;
    place.fresh(|path| {
        let dir = File::open(path)?;
        let elapsed = place.setup.time(count, |index| make(&dir, index).map(drop))?;
        ensure_names(path, count)?;
        Ok(Sample::new(elapsed, count, "creates").names(count))
    })
}

fn make(dir: &File, index: u64) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(openat(dir, new_name(index), flags, Mode::from_raw_mode(0o644))?.into())
}

fn unlink(place: &Place<'_>) -> Result<Sample> {
    let count = place.setup.counts.file_count;
    place.fresh(|path| {
        let dir = File::open(path)?;
        place.setup.time(count, |index| make(&dir, index).map(drop))?;
        ensure_names(path, count)?;
        let remove = |index| Ok(unlinkat(&dir, new_name(index), AtFlags::empty())?);
        let elapsed = place.setup.time(count, remove)?;
        ensure_names(path, 0)?;
        Ok(Sample::new(elapsed, count, "unlinks").names(count))
    })
}

/// Each a new file of 4 KiB that is synced before it is closed.
fn write_synced(place: &Place<'_>) -> Result<Sample> {
    let count = place.setup.counts.sync_count;
    let bytes = bytes_at(0, FILE_BYTES);
    place.fresh(|path| {
        let dir = File::open(path)?;
        let elapsed = place.setup.time(count, |index| {
            let mut file = make(&dir, index)?;
            file.write_all(&bytes)?;
            Ok(file.sync_all()?)
        })?;
        for index in 0..count {
            let found = fs::read(path.join(new_name(index)))?;
            ensure!(found == bytes, "a synced file does not have what was written");
        }
        ensure_names(path, count)?;
        Ok(Sample::new(elapsed, count, "files").names(count).bytes(count * FILE_BYTES as u64))
    })
}

fn new_name(index: u64) -> String {
    format!("new-{index}")
}

fn ensure_names(dir: &Path, count: u64) -> Result<()> {
    let found = fs::read_dir(dir)?.count() as u64;
    ensure!(found == count, "{found} names are listed, not {count}");
    Ok(())
}
