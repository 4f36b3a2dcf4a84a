//! Damage at rest: each file of a store is removed, emptied, truncated, changed in a bit and
//! replaced by an older copy, while no server runs. A start must refuse the store and name the
//! file, or serve everything that was durable. Reading damaged contents of a file is EIO, and the
//! log names the object. Rows that a start refuses are repaired: then the store is served, with
//! everything that the repair does not report lost.
//!
//! The seed chooses the places of truncations and flipped bits.

use super::length::Length;
use crate::child::must;
use crate::run_folder::Setup;
use crate::server::{Server, Started};
use crate::stores;
use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use library::{OpenFor, Piece, Volume};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names that the first server run makes; the second run makes as many.
const NAME_COUNT: usize = 40;
/// Targets of this length have pages of their own in the rows.
const TARGET_BYTES: usize = 3000;
const CUT_COUNT: usize = 4;
const FLIP_COUNT: usize = 20;
/// Places of damage in the short form.
const FEW: usize = 2;
const OBJECTS: &str = "objects";
/// A file of three blocks, the last one partial, that the workload writes once.
const LARGE_BYTES: usize = 150_000;
const ROWS_FILE: &str = "rows/data.mdb";
/// Exit code of a repair without a loss, and of one that lost something.
const REPAIRED_CODE: i32 = 6;
const DAMAGED_CODE: i32 = 8;
const PAGE_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;

/// A damage of a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Missing,
    Empty,
    Cut { file_bytes: u64 },
    Flipped { offset: u64, bit: u8 },
    Older,
}

/// A store with known contents, and older copies of its files.
struct Stores {
    /// Left by a killed server.
    killed: PathBuf,
    /// Left by a server that ended in order.
    stopped: PathBuf,
    older: PathBuf,
}

/// The results of the cases of a file.
#[derive(Default)]
struct Outcomes {
    refused_count: u32,
    /// Of those: rows repaired without a loss, rows repaired with one, and rows that cannot be
    /// read.
    salvaged_count: u32,
    salvaged_partly_count: u32,
    lost_count: u32,
    repaired_count: u32,
    harmless_count: u32,
}

pub(super) fn rows(setup: &Setup, length: Length) -> Result<String> {
    run(setup, length, |_| Ok(vec![ROWS_FILE.into(), "rows/lock.mdb".into()]))
}

pub(super) fn logs(setup: &Setup, length: Length) -> Result<String> {
    run(setup, length, |store| {
        let mut names = Vec::new();
        for entry in fs::read_dir(store.join("log"))? {
            names.push(Path::new("log").join(entry?.file_name()));
        }
        names.sort();
        Ok(names)
    })
}

pub(super) fn others(setup: &Setup, length: Length) -> Result<String> {
    let names = ["superblock", "boot", "fs-key", "lock", "reserve", "address"];
    run(setup, length, move |_| Ok(names.map(PathBuf::from).to_vec()))
}

/// Damaged contents of a file are EIO, with a log line that names the object; everything else can
/// be read.
pub(super) fn objects(setup: &Setup, length: Length) -> Result<String> {
    run(setup, length, |store| {
        let mut names = Vec::new();
        for path in files_below(&store.join("objects"))? {
            // Many objects have a few bytes: one of them, and the large ones.
            let is_large = fs::metadata(&path)?.len() > PAGE_BYTES;
            if is_large || names.is_empty() {
                names.push(path.strip_prefix(store)?.to_owned());
            }
        }
        names.truncate(if length.every_step { names.len() } else { FEW });
        Ok(names)
    })
}

fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn run(
    setup: &Setup,
    length: Length,
    names: impl Fn(&Path) -> Result<Vec<PathBuf>>,
) -> Result<String> {
    let store = setup.folder.join("store");
    let mut server = Server::start(setup, store.clone(), &[])?;
    let stores = make(setup, &mut server)?;
    for store in [&stores.killed, &stores.stopped] {
        stores::check(&setup.lanefs, store).context("before anything was damaged")?;
    }
    let mut rng = Rng::with_seed(setup.seed);
    let mut seen: BTreeMap<String, Outcomes> = BTreeMap::new();
    for good in [&stores.killed, &stores.stopped] {
        for name in names(good)? {
            for damage in damages(&good.join(&name), &mut rng, length)? {
                if !apply(good, &stores.older, &store, &name, damage)? {
                    continue;
                }
                let case =
                    format!("{} of a store that was {}: {damage:?}", name.display(), kind(good));
                let outcomes = seen.entry(shown(&name)).or_default();
                judge(&mut server, &name, outcomes).context(case)?;
            }
        }
    }
    let all: Vec<String> = seen.iter().map(|(name, found)| format!("{name} {found}")).collect();
    Ok(all.join(", "))
}

fn kind(good: &Path) -> String {
    good.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// One label for all logs and one for all objects.
fn shown(name: &Path) -> String {
    for folder in ["log", OBJECTS] {
        if name.starts_with(folder) {
            return format!("{folder}/*");
        }
    }
    name.display().to_string()
}

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { refused_count, repaired_count, harmless_count, .. } = self;
        write!(f, "{refused_count} refused {repaired_count} repaired {harmless_count} harmless")?;
        let Self { salvaged_count, salvaged_partly_count, lost_count, .. } = self;
        if salvaged_count + salvaged_partly_count + lost_count > 0 {
            write!(
                f,
                ", of those refused {salvaged_count} salvaged {salvaged_partly_count} salvaged in part \
                 {lost_count} unreadable"
            )?;
        }
        Ok(())
    }
}

// ---- the store ----

fn make(setup: &Setup, server: &mut Server) -> Result<Stores> {
    let at = |name: &str| setup.folder.join(name);
    let stores = Stores { killed: at("killed"), stopped: at("stopped"), older: at("older") };
    work(server.volume()?, 0)?;
    server.stop()?;
    copy(server.store(), &stores.older)?;
    server.restart()?;
    work(server.volume()?, 1)?;
    // A log without its last batches.
    copy(&server.store().join("log"), &stores.older.join("log"))?;
    work(server.volume()?, 2)?;
    server.kill()?;
    copy(server.store(), &stores.killed)?;
    server.restart()?;
    server.stop()?;
    copy(server.store(), &stores.stopped)?;
    Ok(stores)
}

fn path(index: usize) -> PathBuf {
    PathBuf::from(format!("/d{}/f{index}", index % 3))
}

fn large_path(part: usize) -> PathBuf {
    PathBuf::from(format!("/d0/large{part}"))
}

fn large(part: usize) -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at / 5 + part).to_le_bytes()[0]).collect()
}

fn target(index: usize) -> String {
    format!("{index}/").repeat(TARGET_BYTES / 4)
}

/// Makes the names of one part, durably.
fn work(mut volume: Volume, part: usize) -> Result<()> {
    if part == 0 {
        for dir in 0..3 {
            volume.mkdir(Path::new(&format!("/d{dir}")), 0o755)?;
        }
    }
    for index in part * NAME_COUNT..(part + 1) * NAME_COUNT {
        if index % 20 == 0 {
            volume.symlink(OsStr::new(&target(index)), &path(index))?;
            continue;
        }
        let file = volume.create(&path(index), 0o644, true)?;
        volume.write_at(&file, 0, index.to_string().as_bytes())?;
        volume.close(file)?;
        if index % 7 == 0 {
            volume.sync()?;
        }
    }
    let file = volume.create(&large_path(part), 0o644, true)?;
    volume.write_at(&file, 0, &large(part))?;
    volume.close(file)?;
    volume.sync()?;
    // With a Goodbye, so that no recovery waits for this client.
    Ok(volume.leave()?)
}

/// Checks that everything is as it was made; returns how many files cannot be read.
fn check(volume: &mut Volume) -> Result<u32> {
    let mut unreadable_count = 0;
    for index in 0..3 * NAME_COUNT {
        if index % 20 == 0 {
            if volume.readlink(&path(index))?.to_string_lossy() != target(index) {
                bail!("a symbolic link points elsewhere: {}", path(index).display());
            }
            continue;
        }
        unreadable_count += check_file(volume, &path(index), index.to_string().as_bytes())?;
    }
    for part in 0..3 {
        unreadable_count += check_file(volume, &large_path(part), &large(part))?;
    }
    // The tree accepts additions.
    volume.mkdir(Path::new("/more"), 0o755)?;
    volume.sync()?;
    Ok(unreadable_count)
}

/// 1 if a file gives EIO, 0 if it has these contents.
fn check_file(volume: &mut Volume, path: &Path, wanted: &[u8]) -> Result<u32> {
    let file = volume.open(path, OpenFor::Read)?;
    let found = volume.read_at(&file, Piece { file_offset: 0, piece_bytes: 1 << 20 });
    volume.close(file)?;
    match found {
        Ok(found) if found == wanted => Ok(0),
        Ok(_) => bail!("{} has other contents", path.display()),
        Err(error) if error.status() == Some(library::Status::Io) => Ok(1),
        Err(error) => Err(error).context(path.display().to_string()),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.exists() && to.is_dir() {
        fs::remove_dir_all(to)?;
    }
    must(Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to)).map(drop)
}

// ---- damage ----

/// The damages of a file.
fn damages(path: &Path, rng: &mut Rng, length: Length) -> Result<Vec<Damage>> {
    let count = |count: usize| if length.every_step { count } else { FEW };
    let file_bytes = fs::metadata(path).map_or(0, |found| found.len());
    let mut damages = vec![Damage::Missing, Damage::Empty, Damage::Older];
    if file_bytes < 2 {
        return Ok(damages);
    }
    let bytes = fs::read(path)?;
    // The rest of the file is zeros: preallocated space.
    let used_bytes =
        bytes.iter().rposition(|byte| *byte != 0).map_or(file_bytes, |at| at as u64 + 1);
    let edges = edges(&bytes);
    for index in 0..count(CUT_COUNT) {
        let cut_bytes = match index {
            0 => file_bytes - 1,
            1 if !edges.is_empty() => edges[rng.usize(..edges.len())],
            _ => rng.u64(..used_bytes),
        };
        damages.push(Damage::Cut { file_bytes: cut_bytes });
    }
    for index in 0..count(FLIP_COUNT) {
        let bit = u8::try_from(rng.u64(..8)).unwrap_or(0);
        let offset = match index % 4 {
            // The header of a page, or of the file.
            0 => rng.u64(..used_bytes.div_ceil(PAGE_BYTES)) * PAGE_BYTES + rng.u64(..24),
            1 => rng.u64(..SECTOR_BYTES),
            _ => rng.u64(..used_bytes),
        };
        damages.push(Damage::Flipped { offset: offset % used_bytes, bit });
    }
    Ok(damages)
}

/// The offsets at which the batches of a log end.
fn edges(bytes: &[u8]) -> Vec<u64> {
    let Ok((_, mut reader)) = disk::LogReader::new(bytes) else { return Vec::new() };
    let mut edges = vec![reader.valid_bytes()];
    while let Ok(Some(_)) = reader.next_batch() {
        edges.push(reader.valid_bytes());
    }
    edges
}

/// Copies the good store and damages a file of it; `false` if the damage changes nothing.
fn apply(good: &Path, older: &Path, store: &Path, name: &Path, damage: Damage) -> Result<bool> {
    copy(good, store)?;
    let path = store.join(name);
    if !path.exists() {
        return Ok(false);
    }
    match damage {
        Damage::Missing => fs::remove_file(&path)?,
        Damage::Empty => fs::File::options().write(true).open(&path)?.set_len(0)?,
        Damage::Cut { file_bytes } => {
            fs::File::options().write(true).open(&path)?.set_len(file_bytes)?;
        }
        Damage::Flipped { offset, bit } => {
            let file = fs::File::options().read(true).write(true).open(&path)?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset)?;
            file.write_all_at(&[byte[0] ^ (1 << bit)], offset)?;
        }
        Damage::Older => {
            if !older.join(name).exists() {
                return Ok(false);
            }
            fs::copy(older.join(name), &path)?;
        }
    }
    Ok(true)
}

/// Starts a server on it: the server must refuse it by the file's name, or have everything, or have
/// everything but the contents of the damaged object, which are EIO.
fn judge(server: &mut Server, name: &Path, outcomes: &mut Outcomes) -> Result<()> {
    server.launch(&[])?;
    match server.started()? {
        Started::Ended { status, output } => {
            if status.code().is_none() {
                bail!("a signal ended it ({status}): {output}");
            }
            if !output.contains(&*name.to_string_lossy()) {
                bail!("it does not name the file: {output}");
            }
            outcomes.refused_count += 1;
            if name.ends_with(ROWS_FILE) && output.contains("is damaged") {
                salvage(server, outcomes)?;
            }
        }
        Started::Serves { output } => {
            let mut volume = server.volume()?;
            let unreadable_count = check(&mut volume)?;
            drop(volume);
            let named = name.to_string_lossy();
            if unreadable_count > 0 && name.starts_with(OBJECTS) {
                // The lane writes its log behind the reply.
                server.running()?.line_with(&named)?;
            }
            let output_now = server.running()?.output();
            server.kill()?;
            if unreadable_count > 0 {
                if !name.starts_with(OBJECTS)
                    || unreadable_count > 1
                    || !output_now.contains(&*named)
                {
                    bail!("{unreadable_count} files cannot be read: {output_now}");
                }
                outcomes.refused_count += 1;
            } else if output.contains(&*named) {
                outcomes.repaired_count += 1;
            } else {
                outcomes.harmless_count += 1;
            }
        }
    }
    Ok(())
}

/// Repairs a store whose rows a start has refused. It must serve then, with everything unless the
/// repair reports a loss.
fn salvage(server: &mut Server, outcomes: &mut Outcomes) -> Result<()> {
    let (code, output) = server.repair_store()?;
    match code {
        Some(REPAIRED_CODE) => outcomes.salvaged_count += 1,
        Some(DAMAGED_CODE) if output.contains("rows-lost") || output.contains("rows-older") => {
            outcomes.salvaged_partly_count += 1;
        }
        Some(1) if output.contains("nothing can be read of") => {
            outcomes.lost_count += 1;
            return Ok(());
        }
        Some(_) | None => bail!("a repair ended with {code:?}: {output}"),
    }
    if code == Some(REPAIRED_CODE) {
        server.check_store().context("after a repair")?;
    } else {
        // A repair cannot mend what is left, as a symbolic link whose target is lost.
        let (again, output) = server.repair_store()?;
        if ![Some(0), Some(DAMAGED_CODE)].contains(&again) || output.contains("rows-") {
            bail!("a second repair ended with {again:?}: {output}");
        }
    }
    server.restart().context("after a repair")?;
    if code == Some(REPAIRED_CODE) {
        let unreadable_count = check(&mut server.volume()?).context("after a repair")?;
        if unreadable_count > 0 {
            bail!("{unreadable_count} files cannot be read after a repair: {output}");
        }
    }
    server.kill()
}
