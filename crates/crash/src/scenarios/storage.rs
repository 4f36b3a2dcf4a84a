//! The test of the disk, injected faults, and S21, S22, S26, S31: failing media.

use super::length::Length;
use crate::child::{must, until};
use crate::client_group::{ClientGroup, Size};
use crate::disk::{LossyFs, Tear};
use crate::run_folder::Setup;
use crate::server::{Mount, Server};
use crate::work::Findings;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The disk alone: synced data stays, unsynced data is lost, and every flush arrives.
pub(super) fn disk(setup: &Setup, _: Length) -> Result<String> {
    let mut lossy_fs = LossyFs::new(&setup.folder)?;
    let at = |lossy_fs: &LossyFs, name: &str| lossy_fs.dir.join(name);
    fs::write(at(&lossy_fs, "synced"), "one")?;
    fs::write(at(&lossy_fs, "stale"), vec![OLD; STALE_PIECE_COUNT * PIECE_OF_STALE_BYTES])?;
    for name in ["synced", "stale"] {
        fs::File::open(at(&lossy_fs, name))?.sync_all()?;
    }
    fs::File::open(&lossy_fs.dir)?.sync_all()?;
    let before = lossy_fs.counts()?;
    let file = fs::OpenOptions::new().append(true).open(at(&lossy_fs, "synced"))?;
    (&file).write_all(b" two")?;
    file.sync_data()?;
    drop(file);
    let flushed = lossy_fs.counts()?;
    if flushed.flush_count == before.flush_count || flushed.write_count == before.write_count {
        bail!("an fdatasync did not reach the disk: {before:?} {flushed:?}");
    }
    let counts = lose_unsynced(&mut lossy_fs, setup.seed)?;
    let found = fs::read_to_string(at(&lossy_fs, "synced")).unwrap_or_default();
    if found != "one two" {
        bail!("what was synced: {found:?}");
    }
    drop(lossy_fs);
    Ok(counts)
}

/// The least unsynced bytes when the power is cut.
const UNSYNCED_BYTES: usize = 256 << 10;
/// Bytes of a write.
const PIECE_OF_STALE_BYTES: usize = 128 << 10;
/// Writes within which the power cut must happen.
const STALE_PIECE_COUNT: usize = 256;
const OLD: u8 = b'o';
const NEW: u8 = b'n';

/// Overwrites durable data without a sync until the power is cut. The cut is armed beforehand and
/// happens at a write, because sync(2) by any process of the machine flushes this disk too.
fn lose_unsynced(lossy_fs: &mut LossyFs, seed: u64) -> Result<String> {
    let path = lossy_fs.dir.join("stale");
    let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let file = fs::OpenOptions::new().write(true).custom_flags(flags).open(&path)?;
    let buffer = vec![NEW; 2 * PIECE_OF_STALE_BYTES];
    // Direct I/O: it must be page-aligned, reaches the disk at once, and causes no flush.
    let start = buffer.as_ptr().align_offset(4096);
    let piece = &buffer[start..start + PIECE_OF_STALE_BYTES];
    lossy_fs.cut_when_filled(Tear::DropAll, seed, UNSYNCED_BYTES)?;
    let mut piece_no = 0;
    let counts = loop {
        let written = file.write_all_at(piece, (piece_no * PIECE_OF_STALE_BYTES) as u64);
        let counts = lossy_fs.counts()?;
        if !counts.is_on {
            break counts;
        }
        written.context("a write to a disk whose power is on")?;
        piece_no += 1;
        if piece_no == STALE_PIECE_COUNT {
            bail!("the power stays on: {counts:?}");
        }
    };
    drop(file);
    lossy_fs.reboot()?;
    if counts.unflushed_count == 0 || counts.lost_bytes == 0 {
        bail!("the disk lost nothing: {counts:?}");
    }
    let bytes = fs::read(&path)?;
    let last = piece_no * PIECE_OF_STALE_BYTES..(piece_no + 1) * PIECE_OF_STALE_BYTES;
    if bytes.get(last).is_none_or(|last| last.iter().any(|byte| *byte != OLD)) {
        bail!("bytes survived without a sync, or durable ones are lost: {counts:?}");
    }
    Ok(format!("{} unsynced writes lost, {} bytes", counts.unflushed_count, counts.lost_bytes))
}

const SIZE: Size = Size { library_count: 2, mount_count: 1 };

/// Clients work and end; then the server is killed.
fn worked(setup: &Setup) -> Result<(Server, ClientGroup)> {
    let mut server = Server::start(setup, setup.folder.join("store"), &[])?;
    let mut clients = ClientGroup::new(setup, &mut server, 8)?;
    work(&mut server, &mut clients)?;
    Ok((server, clients))
}

fn work(server: &mut Server, clients: &mut ClientGroup) -> Result<()> {
    clients.start(SIZE)?;
    let log = clients.shared_log()?;
    until("a client appends", || Ok(log.exists() && fs::metadata(&log)?.len() > 0))?;
    clients.progress()?;
    clients.end()?;
    let findings = clients.check(server)?;
    if !findings.is_clean() {
        bail!("before the injection: {}", findings.details());
    }
    server.kill()
}

/// The logs of a store, each with the end of its batches.
fn logs(store: &Path) -> Result<Vec<(PathBuf, usize)>> {
    let mut found = Vec::new();
    for entry in walk(store)? {
        let bytes = fs::read(&entry)?;
        let Ok((_, mut reader)) = disk::LogReader::new(&bytes) else { continue };
        while reader.next_batch().context("a log")?.is_some() {}
        found.push((entry, usize::try_from(reader.valid_bytes())?));
    }
    Ok(found)
}

fn walk(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_dir = path.is_dir();
        if is_dir && !path.ends_with("objects") {
            files.extend(walk(&path)?);
        } else if !is_dir {
            files.push(path);
        }
    }
    Ok(files)
}

/// Injected faults must be found; otherwise the absence of findings shows nothing.
pub(super) fn injected(setup: &Setup, _: Length) -> Result<String> {
    let found = |server: &mut Server, clients: &ClientGroup| -> Result<Findings> {
        server.restart()?;
        clients.check(server)
    };
    let part = setup.part("lost")?;
    let mut server = Server::start(&part, part.folder.join("store"), &[])?;
    let mut clients = ClientGroup::new(&part, &mut server, 8)?;
    server.stop()?;
    let copy = part.folder.join("copy");
    must(Command::new("cp").arg("-a").arg(server.store()).arg(&copy))?;
    server.restart()?;
    work(&mut server, &mut clients)?;
    fs::remove_dir_all(server.store())?;
    fs::rename(&copy, server.store())?;
    let lost = found(&mut server, &clients)?;
    if lost.lost.is_empty() {
        bail!("an old copy of the store lacks nothing: {}", lost.summary());
    }
    server.kill()?;
    let part = setup.part("doubled")?;
    let (mut server, clients) = worked(&part)?;
    server.restart()?;
    let mount = Mount::new(&part, server.address()?, "injector")?;
    let log = mount.dir.join(crate::work::SHARED_LOG);
    let text = fs::read_to_string(&log)?;
    let record = text.lines().next().context("nobody appended")?.to_owned();
    writeln!(fs::OpenOptions::new().append(true).open(&log)?, "{record}")?;
    fs::create_dir(mount.dir.join("s0/nobody-made-this"))?;
    mount.stop()?;
    server.kill()?;
    let doubled = found(&mut server, &clients)?;
    if doubled.doubled.len() < 2 {
        bail!("a doubled record and a stray name: {}", doubled.details());
    }
    server.kill()?;
    Ok(format!("{} lost and {} double effects found", lost.lost.len(), doubled.doubled.len()))
}

/// The disk loses a log batch that it reported durable: the check finds it, and a client that had
/// the acknowledgement gets an error.
pub(super) fn s21(setup: &Setup, _: Length) -> Result<String> {
    let mut server = Server::start(setup, setup.folder.join("store"), &["--sync"])?;
    let mut clients = ClientGroup::new(setup, &mut server, 8)?;
    let mut witness = server.volume()?;
    witness.mkdir(Path::new("/c1/before"), 0o755)?;
    witness.sync()?;
    witness.rmdir(Path::new("/c1/before"))?;
    server.stop()?;
    server.restart_with(&["--fault", "freeze-log:1"])?;
    witness.mkdir(Path::new("/c1/frozen"), 0o755)?;
    witness.sync().context("a sync that the disk lies about")?;
    clients.start(SIZE)?;
    clients.progress()?;
    clients.kill_all()?;
    server.kill()?;
    server.restart()?;
    clients.require_all_acknowledged();
    let result = witness.mkdir(Path::new("/c1/after"), 0o755);
    let findings = clients.check(&server)?;
    drop(witness);
    server.kill()?;
    if findings.lost.is_empty() {
        bail!("nothing was missed: {}", findings.summary());
    }
    match result {
        Ok(_) => bail!("a client goes on as if nothing had been lost"),
        Err(error) => Ok(format!("the client gets: {error}; {}", findings.summary())),
    }
}

/// Damage in the log: at its end the log is truncated, before its end the start is refused.
pub(super) fn s22(setup: &Setup, _: Length) -> Result<String> {
    let part = setup.part("tail")?;
    let (mut server, clients) = worked(&part)?;
    for (path, end) in logs(server.store())? {
        // Half a batch that was never acknowledged.
        let file = fs::OpenOptions::new().write(true).open(path)?;
        file.write_all_at(b"LANEFSBT half a batch", end as u64)?;
    }
    server.restart()?;
    let output = server.running()?.output();
    if !output.contains("left out") {
        bail!("it says nothing of a torn tail: {output}");
    }
    let findings = clients.check(&server)?;
    if !findings.is_clean() {
        bail!("a torn tail: {}", findings.details());
    }
    server.stop()?;
    let part = setup.part("middle")?;
    let (mut server, _crew) = worked(&part)?;
    let logs = logs(server.store())?;
    let (path, end) = logs.iter().max_by_key(|(_, end)| *end).context("no log")?;
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let middle = (end / 2) as u64;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle)?;
    file.write_all_at(&[byte[0] ^ 4], middle)?;
    let before = fs::read(path)?;
    server.launch(&[])?;
    let output = server.ended()?;
    if !output.contains("is damaged") || !output.contains("at byte") {
        bail!("it did not refuse a damaged log with its offset: {output}");
    }
    if fs::read(path)? != before {
        bail!("it changed what it refused");
    }
    let line = output.lines().find(|line| line.contains("is damaged")).unwrap_or_default();
    Ok(format!("tail cut, middle refused: {line}"))
}

/// Unsynced bytes of a file that a client may retain, and some more.
const CLIENT_BYTES_MAX: u64 = 400 << 20;
const PIECE_BYTES: usize = 1 << 20;
const PIECE_COUNT: usize = 200;

/// For how long flushes hang.
const HANGING: Duration = Duration::from_secs(2);

/// Flushes hang while a client writes more than it may retain.
pub(super) fn s26(setup: &Setup, _: Length) -> Result<String> {
    let mut lossy_fs = LossyFs::new(&setup.folder)?;
    let mut server = Server::start(setup, lossy_fs.dir.join("store"), &[])?;
    let mount = Mount::new(setup, server.address()?, "mount")?;
    let path = mount.dir.join("large");
    // The server replies to a new session only once the session is durable.
    fs::write(&path, "known")?;
    fs::File::open(&path)?.sync_all()?;
    lossy_fs.hold(true)?;
    let writing = thread::spawn(move || -> Result<()> {
        let file = fs::OpenOptions::new().write(true).open(path)?;
        for index in 0..PIECE_COUNT {
            file.write_all_at(&[mark(index); PIECE_BYTES], (index * PIECE_BYTES) as u64)?;
        }
        Ok(file.sync_all()?)
    });
    until("a flush hangs", || Ok(lossy_fs.counts()?.held_count > 0))?;
    // While flushes hang, the writer must hang too, sooner or later.
    thread::sleep(HANGING);
    if writing.is_finished() {
        bail!("200 MiB were synced without a single flush");
    }
    let resident_bytes = mount.resident_bytes()?.max(server.resident_bytes()?);
    if resident_bytes > CLIENT_BYTES_MAX {
        bail!("{} MiB in memory", resident_bytes >> 20);
    }
    lossy_fs.hold(false)?;
    match writing.join() {
        Ok(written) => written?,
        Err(_) => bail!("the writer has died"),
    }
    let bytes = fs::read(mount.dir.join("large"))?;
    let whole = bytes.chunks(PIECE_BYTES).enumerate();
    if bytes.len() != PIECE_COUNT * PIECE_BYTES
        || whole.into_iter().any(|(index, piece)| piece[0] != mark(index))
    {
        bail!("not what was written");
    }
    mount.stop()?;
    server.stop()?;
    server.check_store()?;
    Ok(format!("at most {} MiB in memory, then 200 MiB whole", resident_bytes >> 20))
}

fn mark(index: usize) -> u8 {
    u8::try_from(index % 250).unwrap_or(0) + 1
}

/// The disk is full when the server dies.
pub(super) fn s31(setup: &Setup, _: Length) -> Result<String> {
    let lossy_fs = LossyFs::new(&setup.folder)?;
    let mut server = Server::start(setup, lossy_fs.dir.join("store"), &[])?;
    let mut clients = ClientGroup::new(setup, &mut server, 8)?;
    clients.start(SIZE)?;
    clients.progress()?;
    clients.end()?;
    let filler = fs::File::create(lossy_fs.dir.join("filler"))?;
    let mut filler_bytes = 0;
    while filler.write_all_at(&[1; 64 << 10], filler_bytes).is_ok() {
        filler_bytes += 64 << 10;
    }
    let mut volume = server.volume()?;
    let file = volume.create(Path::new("/c1/full"), 0o644, true);
    let created = file.and_then(|file| {
        let written = volume.write_at(&file, 0, &vec![1; 8 << 20]);
        volume.close(file).and(written)
    });
    let Some(error) = created.err() else { bail!("a full disk took 8 MiB") };
    if error.status() != Some(library::Status::NoSpace) {
        bail!("a full disk: {error}");
    }
    volume.unlink(Path::new("/c1/full")).ok();
    drop(volume);
    for _ in 0..2 {
        server.kill()?;
        server.restart().context("the restart on a full disk")?;
    }
    let findings = clients.check(&server)?;
    if !findings.is_clean() {
        bail!("{}", findings.details());
    }
    server.stop()?;
    server.check_store()?;
    drop(filler);
    drop(lossy_fs);
    Ok(format!("2 restarts on a full disk: {}", findings.summary()))
}
