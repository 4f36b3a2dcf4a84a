//! Torn writes: server and client crash together in the middle of a write.
//!
//! Writers overwrite files, each time with another number in every word, and append records to
//! another file. Server and mount are killed, or the power is cut. Invariant: in each aligned unit,
//! all words that a call covers have one number; every appended record is whole. After a kill the
//! unit is a page. After a cut it is a sector of the disk, or a block of the file system if that is
//! smaller; for that each file is overwritten once, because Linux may write a page back while it is
//! overwritten again.

use super::length::Length;
use crate::child::until;
use crate::disk::{LossyFs, Tear};
use crate::run_folder::Setup;
use crate::server::{Mount, Server};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use fastrand::Rng;
use library::{OpenFor, Piece, Volume};
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The kernel splits no write of this size.
const WRITE_BYTES: usize = (1 << 20) - 4096;
/// No page or sector begins at this offset, so the first and last units are covered in part.
const WRITE_OFFSET: usize = 2504;
const RANGE: Range<usize> = WRITE_OFFSET..WRITE_OFFSET + WRITE_BYTES;
const FILE_BYTES: usize = (1 << 20) + 4096;
/// No whole number of pages or sectors.
const RECORD_BYTES: usize = 300_000;
const WORD_BYTES: usize = 8;
const PAGE_BYTES: usize = 4096;
/// Files that are overwritten at a time.
const FILE_COUNT: usize = 8;
/// Every writer has begun so many calls before its server is killed.
const BEGUN_COUNT_MIN: u64 = 3;
const MOMENT_MS_MAX: u64 = 100;
/// A cut waits for a flush with so many bytes to make durable.
const CUT_BYTES_MIN: usize = 64 << 10;

/// A file, and how many calls its writer has begun.
struct Writer {
    path: PathBuf,
    begun: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

/// The findings.
#[derive(Default)]
struct Found {
    file_count: usize,
    /// Overwrites of which a part was there and a part was not.
    half_count: usize,
    record_count: usize,
}

/// Kills, power cuts with sectors of two sizes, and injected tears as the control run.
pub(super) fn torn(setup: &Setup, length: Length) -> Result<String> {
    let mut killed = Found::default();
    let part = setup.part("kill")?;
    let mut server = Server::start(&part, part.folder.join("store"), &[])?;
    let mut rng = Rng::with_seed(setup.seed);
    for round_no in 0..length.repeat_count {
        let mut mount = Mount::new(&part, server.address()?, &format!("mount{round_no}"))?;
        let writers = start_writers(&mount.dir, round_no, u64::MAX)?;
        thread::sleep(Duration::from_millis(rng.u64(..MOMENT_MS_MAX)));
        if rng.u64(..100) < 50 {
            server.kill()?;
            mount.kill()?;
        } else {
            mount.kill()?;
            server.kill()?;
        }
        server.restart()?;
        check_files(&part, &server, writers, (PAGE_BYTES, &mut killed))
            .with_context(|| format!("kill {round_no}"))?;
    }
    inject_tears(&part, &server)?;
    server.stop()?;
    let mut cut = Found::default();
    for sector_bytes in [512, 4096] {
        let part = setup.part(&format!("sectors-of-{sector_bytes}"))?;
        cut_power(&part, sector_bytes, &mut cut).context(format!("sectors of {sector_bytes}"))?;
    }
    Ok(format!("{}; power cuts: {}; injected tears are found", killed.text(), cut.text()))
}

impl Found {
    fn text(&self) -> String {
        let Self { file_count, half_count, record_count } = self;
        format!(
            "{half_count} of {file_count} overwrites half done, none within a unit, \
             {record_count} records whole"
        )
    }
}

fn cut_power(part: &Setup, sector_bytes: usize, found: &mut Found) -> Result<()> {
    let mut lossy_fs = LossyFs::new(&part.folder)?;
    let mut server = Server::start(part, lossy_fs.dir.join("store"), &[])?;
    let mut mount = Mount::new(part, server.address()?, "mount")?;
    let writers = start_writers(&mount.dir, 0, 1)?;
    let victim = server.running()?.pid();
    let counts =
        lossy_fs.cut_busy(Tear::Sectors(sector_bytes), part.seed, (CUT_BYTES_MIN, victim))?;
    server.kill()?;
    mount.kill()?;
    lossy_fs.reboot()?;
    server.restart()?;
    let block_bytes = usize::try_from(rustix::fs::statvfs(&lossy_fs.dir)?.f_bsize)?;
    check_files(part, &server, writers, (sector_bytes.min(block_bytes), found))
        .with_context(|| format!("{counts:?}"))?;
    server.stop()?;
    server.check_store()
}

/// Makes files with durable contents, and starts a writer for each that overwrites it at most so
/// often; returns when every writer has begun.
fn start_writers(dir: &Path, round_no: u64, overwrite_max: u64) -> Result<Vec<Writer>> {
    let mut paths: Vec<_> =
        (0..FILE_COUNT).map(|file_no| dir.join(format!("file{round_no}-{file_no}"))).collect();
    for path in &paths {
        fs::write(path, vec![0; FILE_BYTES])?;
    }
    paths.push(dir.join(format!("log{round_no}")));
    fs::write(&paths[FILE_COUNT], "")?;
    for path in &paths {
        fs::File::open(path)?.sync_all()?;
    }
    let start = |(index, path): (usize, PathBuf)| -> Result<Writer> {
        let appends = index == FILE_COUNT;
        let file = fs::File::options().write(true).append(appends).open(&path)?;
        let begun = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&begun);
        let count_max = if appends { u64::MAX } else { overwrite_max };
        // The thread ends when its mount does.
        let thread = thread::spawn(move || {
            while counter.load(Ordering::Relaxed) < count_max
                && write_next(&file, appends, &counter).is_ok()
            {}
        });
        Ok(Writer { path, begun, thread })
    };
    let writers: Vec<_> = paths.into_iter().enumerate().map(start).collect::<Result<_>>()?;
    until("all writers have written", || {
        let count_min = BEGUN_COUNT_MIN.min(overwrite_max);
        Ok(writers.iter().all(|it| it.begun.load(Ordering::Relaxed) >= count_min))
    })?;
    Ok(writers)
}

fn write_next(mut file: &fs::File, appends: bool, begun: &AtomicU64) -> std::io::Result<()> {
    let number = begun.fetch_add(1, Ordering::Relaxed) + 1;
    if appends {
        let record = number.to_le_bytes().repeat(RECORD_BYTES / WORD_BYTES);
        assert_eq!(file.write(&record)?, RECORD_BYTES, "an append is one piece");
        Ok(())
    } else {
        let bytes = number.to_le_bytes().repeat(WRITE_BYTES / WORD_BYTES);
        file.write_all_at(&bytes, WRITE_OFFSET as u64)
    }
}

/// Checks the files that the dead writers left, through another client.
fn check_files(
    part: &Setup,
    server: &Server,
    writers: Vec<Writer>,
    (unit_bytes, found): (usize, &mut Found),
) -> Result<()> {
    let mut volume = server.volume()?;
    for Writer { path, begun, thread } in writers {
        thread.join().map_err(|_| anyhow!("a writer died"))?;
        let name = path.file_name().context("a file has a name")?;
        let bytes = read(&mut volume, &Path::new("/").join(name))?;
        let begun_count = begun.load(Ordering::Relaxed);
        let outcome = if name.to_string_lossy().starts_with("log") {
            check_records(&bytes, begun_count).map(|count| found.record_count += count)
        } else {
            found.file_count += 1;
            check_units(&bytes, unit_bytes, begun_count)
                .map(|half| found.half_count += usize::from(half))
        };
        outcome.with_context(|| format!("{} in {}", path.display(), part.folder.display()))?;
    }
    Ok(())
}

fn read(volume: &mut Volume, path: &Path) -> Result<Vec<u8>> {
    let file = volume.open(path, OpenFor::Read)?;
    let mut bytes = Vec::new();
    loop {
        let piece = volume
            .read_at(&file, Piece { file_offset: bytes.len() as u64, piece_bytes: 1 << 20 })?;
        if piece.is_empty() {
            break;
        }
        bytes.extend_from_slice(&piece);
    }
    volume.close(file)?;
    Ok(bytes)
}

/// Whether words of more than one call are found; an error if within a unit.
fn check_units(bytes: &[u8], unit_bytes: usize, begun_count: u64) -> Result<bool> {
    ensure!(bytes.len() == FILE_BYTES, "{} bytes", bytes.len());
    let words = numbers(bytes);
    let (mut least, mut most) = (u64::MAX, 0);
    for (unit_no, unit) in words.chunks(unit_bytes / WORD_BYTES).enumerate() {
        let mut seen = None;
        for (word_no, word) in unit.iter().copied().enumerate() {
            let at = unit_no * unit_bytes + word_no * WORD_BYTES;
            if !RANGE.contains(&at) {
                ensure!(word == 0, "{word} at {at}, where nobody wrote");
            } else if *seen.get_or_insert(word) != word {
                bail!("{word} and {seen:?} in the {unit_bytes} bytes around {at}");
            }
        }
        if let Some(number) = seen {
            ensure!(number <= begun_count, "{number} of {begun_count} writes");
            (least, most) = (least.min(number), most.max(number));
        }
    }
    Ok(least < most)
}

/// Counts the whole records; anything else is an error.
fn check_records(bytes: &[u8], begun_count: u64) -> Result<usize> {
    let whole = bytes.len().is_multiple_of(RECORD_BYTES);
    ensure!(whole, "{} bytes are no whole number of records", bytes.len());
    let mut count = 0;
    for record in bytes.chunks(RECORD_BYTES) {
        count += 1;
        let is_whole = numbers(record).iter().all(|word| *word == count);
        ensure!(is_whole && count <= begun_count, "record {count} of {begun_count} is not whole");
    }
    Ok(bytes.len() / RECORD_BYTES)
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let word =
        |chunk: &[u8]| chunk.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    bytes.chunks(WORD_BYTES).map(word).collect()
}

/// The control run: a page and a record that are half old are found.
fn inject_tears(part: &Setup, server: &Server) -> Result<()> {
    let mount = Mount::new(part, server.address()?, "injected")?;
    let [file, log] = ["file0-0", "log0"].map(|name| mount.dir.join(name));
    let begun_count = u64::MAX;
    let mut bytes = fs::read(&file)?;
    bytes[RANGE].fill(0);
    fs::write(&file, &bytes)?;
    check_units(&fs::read(&file)?, PAGE_BYTES, begun_count).context("a whole file")?;
    let half = 8 * PAGE_BYTES + PAGE_BYTES / 2;
    let open = |path: &Path| fs::File::options().write(true).open(path);
    open(&file)?.write_all_at(&[1; PAGE_BYTES], half as u64)?;
    ensure!(check_units(&fs::read(&file)?, PAGE_BYTES, begun_count).is_err(), "a torn page");
    let record_count = check_records(&fs::read(&log)?, begun_count).context("whole records")?;
    let end = record_count * RECORD_BYTES;
    open(&log)?.write_all_at(&[1; RECORD_BYTES / 2], end as u64)?;
    ensure!(check_records(&fs::read(&log)?, begun_count).is_err(), "half a record");
    open(&log)?.set_len(end as u64)?;
    if record_count > 0 {
        open(&log)?.write_all_at(&[7; WORD_BYTES], (end / 2) as u64)?;
        ensure!(
            check_records(&fs::read(&log)?, begun_count).is_err(),
            "a record with others' bytes"
        );
    }
    mount.stop()
}
