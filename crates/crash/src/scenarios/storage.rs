//! The disk's own proof, planted faults, and S21, S22, S26, S31: media that fail.

use super::Length;
use crate::child::until;
use crate::crew::{Crew, Size};
use crate::disk::{Rig, Tear};
use crate::server::{Mount, Server};
use crate::stage::Setup;
use crate::work::Findings;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;

/// The disk alone: what was synced stays, what was not goes, and every flush arrives.
pub(super) fn disk(setup: &Setup, _: Length) -> Result<String> {
    let mut rig = Rig::new(&setup.folder)?;
    let at = |rig: &Rig, name: &str| rig.dir.join(name);
    fs::write(at(&rig, "synced"), "one")?;
    fs::write(at(&rig, "stale"), "old")?;
    for name in ["synced", "stale"] {
        fs::File::open(at(&rig, name))?.sync_all()?;
    }
    fs::File::open(&rig.dir)?.sync_all()?;
    let before = rig.counts()?;
    let file = fs::OpenOptions::new().append(true).open(at(&rig, "synced"))?;
    (&file).write_all(b" two")?;
    file.sync_data()?;
    let flushed = rig.counts()?;
    if flushed.flush_count == before.flush_count || flushed.write_count == before.write_count {
        bail!("an fdatasync did not reach the disk: {before:?} {flushed:?}");
    }
    fs::write(at(&rig, "stale"), "new")?;
    fs::write(at(&rig, "unsynced"), "gone")?;
    // Out of the kernel's memory, into the disk's cache: it is there to be lost.
    let stale = fs::OpenOptions::new().write(true).open(at(&rig, "stale"))?;
    rustix::fs::syncfs(&stale).ok();
    let counts = lose_unsynced(&mut rig, setup.seed)?;
    let read = |name: &str| fs::read_to_string(at(&rig, name)).unwrap_or_default();
    if read("synced") != "one two" {
        bail!("what was synced is {:?}", read("synced"));
    }
    drop(rig);
    Ok(counts)
}

/// Writes without a sync, of which the disk holds some, and cuts the power.
fn lose_unsynced(rig: &mut Rig, seed: u64) -> Result<String> {
    let path = rig.dir.join("lost");
    let file = fs::OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    file.write_all_at(&[7; 1 << 20], 0)?;
    // Hands the pages to the disk and asks for no flush.
    let range = rustix::fs::fstat(&file).map_or(0, |stat| stat.st_size);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).ok();
    let counts = rig.cut(Tear::DropAll, seed)?;
    drop(file);
    rig.reboot()?;
    let found = fs::metadata(&path).map_or(0, |found| found.len());
    if found == u64::try_from(range)? {
        let bytes = fs::read(&path)?;
        if bytes.iter().all(|byte| *byte == 7) {
            bail!("a file survived that nobody synced");
        }
    }
    Ok(format!("unsynced file: {found} bytes of 1 MiB; {counts:?}"))
}

const SIZE: Size = Size { library_count: 2, mount_count: 1 };

/// Clients have worked and ended in order; the server is killed.
fn worked(setup: &Setup) -> Result<(Server, Crew)> {
    let mut server = Server::start(setup, setup.folder.join("store"), &[])?;
    let mut crew = Crew::new(setup, &mut server, 8)?;
    crew.start(SIZE)?;
    crew.progress()?;
    crew.end()?;
    let findings = crew.check(&server)?;
    if !findings.is_clean() {
        bail!("before anything was planted: {}", findings.details());
    }
    server.kill()?;
    Ok((server, crew))
}

/// The logs of a store, each with the end of what is written in it.
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

/// Writes zeros over the last bytes of what is written in the longest log.
fn cut_tail(store: &Path, cut_bytes: usize) -> Result<()> {
    let logs = logs(store)?;
    let (path, end) = logs.iter().max_by_key(|(_, end)| *end).context("no log")?;
    let file = fs::OpenOptions::new().write(true).open(path)?;
    let cut_bytes = cut_bytes.min(end / 2);
    Ok(file.write_all_at(&vec![0; cut_bytes], (end - cut_bytes) as u64)?)
}

/// What is planted is found: else "nothing was found" would say nothing.
pub(super) fn planted(setup: &Setup, _: Length) -> Result<String> {
    let found = |server: &mut Server, crew: &Crew| -> Result<Findings> {
        server.restart()?;
        crew.check(server)
    };
    let part = setup.part("lost")?;
    let (mut server, crew) = worked(&part)?;
    cut_tail(server.store(), 16 * 1024)?;
    let lost = found(&mut server, &crew)?;
    if lost.lost.is_empty() {
        bail!("a log whose tail was cut lost nothing: {}", lost.summary());
    }
    server.kill()?;
    let part = setup.part("doubled")?;
    let (mut server, crew) = worked(&part)?;
    server.restart()?;
    let mount = Mount::new(&part, server.address()?, "planter")?;
    let log = mount.dir.join(crate::work::SHARED_LOG);
    let text = fs::read_to_string(&log)?;
    let record = text.lines().next().context("nobody appended")?.to_owned();
    writeln!(fs::OpenOptions::new().append(true).open(&log)?, "{record}")?;
    fs::create_dir(mount.dir.join("s0/nobody-made-this"))?;
    mount.stop()?;
    server.kill()?;
    let doubled = found(&mut server, &crew)?;
    if doubled.doubled.len() < 2 {
        bail!("a doubled record and a stray name: {}", doubled.details());
    }
    server.kill()?;
    Ok(format!("{} lost and {} double effects found", lost.lost.len(), doubled.doubled.len()))
}

/// The log is called durable and is not.
pub(super) fn s21(setup: &Setup, _: Length) -> Result<String> {
    let mut server = Server::start(setup, setup.folder.join("store"), &[])?;
    let mut crew = Crew::new(setup, &mut server, 8)?;
    server.stop()?;
    server.restart_with(&["--fault", "freeze-log:1"])?;
    crew.start(SIZE)?;
    crew.progress()?;
    crew.kill_all()?;
    server.kill()?;
    server.restart()?;
    crew.forgive_nothing();
    let findings = crew.check(&server)?;
    server.kill()?;
    if findings.lost.is_empty() {
        bail!("nothing was missed: {}", findings.summary());
    }
    Ok(format!("noticed: {}", findings.summary()))
}

/// Damage in the log: at its end it is cut off, before its end it is refused.
pub(super) fn s22(setup: &Setup, _: Length) -> Result<String> {
    let part = setup.part("tail")?;
    let (mut server, crew) = worked(&part)?;
    for (path, end) in logs(server.store())? {
        // Half a batch that was never acknowledged.
        let file = fs::OpenOptions::new().write(true).open(path)?;
        file.write_all_at(b"LANEFSBT half a batch", end as u64)?;
    }
    server.restart()?;
    let said = server.running()?.said();
    if !said.contains("cut off") {
        bail!("it says nothing of a torn tail: {said}");
    }
    let findings = crew.check(&server)?;
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
    let said = server.ended()?;
    if !said.contains("damage") || !said.contains("offset") {
        bail!("it did not refuse a damaged log with its offset: {said}");
    }
    if fs::read(path)? != before {
        bail!("it changed what it refused");
    }
    let line = said.lines().find(|line| line.contains("damage")).unwrap_or_default();
    Ok(format!("tail cut, middle refused: {line}"))
}

/// What a client may hold of a file that is not durable, and some more.
const CLIENT_BYTES_MAX: u64 = 400 << 20;
const PIECE_BYTES: usize = 1 << 20;
const PIECE_COUNT: usize = 200;

/// Flushes hang while a client writes more than it may keep.
pub(super) fn s26(setup: &Setup, _: Length) -> Result<String> {
    let mut rig = Rig::new(&setup.folder)?;
    let mut server = Server::start(setup, rig.dir.join("store"), &[])?;
    let mount = Mount::new(setup, server.address()?, "mount")?;
    let path = mount.dir.join("large");
    fs::write(&path, "")?;
    rig.hold(true)?;
    let writing = thread::spawn(move || -> Result<()> {
        let file = fs::OpenOptions::new().write(true).open(path)?;
        for index in 0..PIECE_COUNT {
            file.write_all_at(&[mark(index); PIECE_BYTES], (index * PIECE_BYTES) as u64)?;
        }
        Ok(file.sync_all()?)
    });
    until("a flush hangs", || Ok(rig.counts()?.unflushed_count == 0))?;
    // As long as flushes hang, the writer must hang too, sooner or later.
    thread::sleep(std::time::Duration::from_secs(2));
    if writing.is_finished() {
        bail!("200 MiB were synced without a single flush");
    }
    let resident_bytes = mount.resident_bytes()?.max(server.resident_bytes()?);
    if resident_bytes > CLIENT_BYTES_MAX {
        bail!("{} MiB in memory", resident_bytes >> 20);
    }
    rig.hold(false)?;
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
    Ok(format!("at most {} MiB in memory, then 200 MiB whole", resident_bytes >> 20))
}

fn mark(index: usize) -> u8 {
    u8::try_from(index % 250).unwrap_or(0) + 1
}

/// The disk is full when the server dies.
pub(super) fn s31(setup: &Setup, _: Length) -> Result<String> {
    let rig = Rig::new(&setup.folder)?;
    let mut server = Server::start(setup, rig.dir.join("store"), &[])?;
    let mut crew = Crew::new(setup, &mut server, 8)?;
    crew.start(SIZE)?;
    crew.progress()?;
    crew.end()?;
    let filler = fs::File::create(rig.dir.join("filler"))?;
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
    let findings = crew.check(&server)?;
    if !findings.is_clean() {
        bail!("{}", findings.details());
    }
    server.stop()?;
    drop(filler);
    drop(rig);
    Ok(format!("2 restarts on a full disk: {}", findings.summary()))
}
