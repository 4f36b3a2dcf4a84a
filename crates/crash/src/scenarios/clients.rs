//! S17, S19, S20, S32, S35: clients whose changes depend on each other, and open files.

use super::length::Length;
use crate::child::PATIENCE;
use crate::disk::{LossyFs, Tear};
use crate::proxy::Proxy;
use crate::run_folder::Setup;
use crate::server::{Mount, Server};
use anyhow::{Context as _, Result, anyhow, bail};
use library::{ConnectOptions, Volume};
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// A server and two mounts of it.
struct Pair {
    server: Server,
    here: Mount,
    there: Mount,
}

impl Pair {
    fn new(setup: &Setup) -> Result<Self> {
        let server = Server::start(setup, setup.folder.join("store"), &[])?;
        let here = Mount::new(setup, server.address()?, "here")?;
        let there = Mount::new(setup, server.address()?, "there")?;
        Ok(Self { server, here, there })
    }

    fn bounce(&mut self) -> Result<()> {
        self.server.kill()?;
        self.server.restart()
    }

    fn end(self) -> Result<()> {
        let Self { mut server, here, there } = self;
        here.stop()?;
        there.stop()?;
        server.stop()
    }
}

/// A client creates a file, another renames it, the first renames it again; the second client and
/// the server die at once, and unflushed data is lost. With sharing off, the first client must lose
/// its rename, which depends on the lost one; otherwise the scenario shows nothing.
pub(super) fn s17(setup: &Setup, _: Length) -> Result<String> {
    let part = setup.part("write")?;
    chain(&part, "write").context("--share write")?;
    let part = setup.part("off")?;
    let Err(error) = chain(&part, "off") else {
        bail!("the control with --share off lost nothing");
    };
    if !format!("{error:#}").contains(LOST) {
        return Err(error.context("the control with --share off failed at something else"));
    }
    Ok(format!("whole with --share write; control with --share off: {error:#}"))
}

/// The finding of the control run.
const LOST: &str = "which of a b c are there";

/// How long the scenario waits for a reply that must not come.
const SILENCE: Duration = Duration::from_millis(400);

fn chain(setup: &Setup, share: &str) -> Result<()> {
    let mut lossy_fs = LossyFs::new(&setup.folder)?;
    let mut server = Server::start(setup, lossy_fs.dir.join("store"), &["--share", share])?;
    let mut first = server.volume()?;
    first.mkdir(Path::new("/chain"), 0o755)?;
    open_session(&mut first, "/chain/first")?;
    let (done, done_receiver) = channel();
    let (go, going) = channel();
    // The second client never returns, not even for a Goodbye.
    let proxy = Proxy::new(server.address()?)?;
    let options = ConnectOptions { address: proxy.address(), ..server.options()? };
    thread::spawn(move || -> Result<()> {
        let mut second = Volume::connect(&options)?;
        open_session(&mut second, "/chain/second")?;
        done.send(())?;
        going.recv()?;
        let renamed = second.rename(Path::new("/chain/a"), Path::new("/chain/b"));
        // The next request acknowledges the reply.
        let seen = renamed.and_then(|()| second.lstat(Path::new("/chain/b")));
        std::mem::forget(second);
        seen?;
        Ok(done.send(())?)
    });
    done_receiver.recv().context("the second client")?;
    lossy_fs.hold(true)?;
    let file = first.create(Path::new("/chain/a"), 0o644, true)?;
    // As below: it acknowledges the reply.
    first.lstat(Path::new("/chain/a"))?;
    go.send(())?;
    // A reply that must come may take longer.
    let wait = if share == "off" { PATIENCE } else { SILENCE };
    let answered = done_receiver.recv_timeout(wait).is_ok();
    let gates: Vec<_> = first.stats()?.iter().map(|stats| stats.reply_gating).collect();
    let gates = format!("{gates:?}");
    if answered {
        first.rename(Path::new("/chain/b"), Path::new("/chain/c"))?;
    }
    proxy.part(true);
    lossy_fs.cut(Tear::DropAll, setup.seed)?;
    server.kill()?;
    lossy_fs.reboot()?;
    server.restart()?;
    // The client replays its acknowledged changes. If a replay fails, it is evicted and gets an
    // error.
    let found = first.lstat(Path::new("/chain/first"));
    let mut visitor = server.volume()?;
    visitor.lstat(Path::new("/chain/first")).context("what had been synced")?;
    let mut there = |path: &str| visitor.lstat(Path::new(path)).is_ok();
    let names = ["/chain/a", "/chain/b", "/chain/c"].map(&mut there);
    let closed = first.close(file);
    drop((first, visitor));
    server.stop()?;
    if answered != (share == "off") {
        bail!("the second client's rename: answered {answered}; {gates}");
    }
    let whole = if answered { [false, false, true] } else { [true, false, false] };
    if names != whole {
        let result = found.err().map_or("nothing".to_owned(), |error| error.to_string());
        bail!("{LOST}: {names:?} instead of {whole:?}; the first client result: {result}");
    }
    found.context("the first client")?;
    closed.context("closing the file")?;
    server.check_store()
}

/// Makes a file durably: the server replies to a new session only once the session is durable.
fn open_session(volume: &mut Volume, path: &str) -> Result<()> {
    let file = volume.create(Path::new(path), 0o644, true)?;
    volume.close(file)?;
    Ok(volume.sync()?)
}

/// Exclusive creates race; one client removes names and the other reuses them.
pub(super) fn s19(setup: &Setup, _: Length) -> Result<String> {
    let mut server = Server::start(setup, setup.folder.join("store"), &[])?;
    let mut first = server.volume()?;
    first.mkdir(Path::new("/race"), 0o755)?;
    let options = server.options()?;
    let contender =
        thread::spawn(move || race(Volume::connect(&options)?, "/race").map(|won| won.len()));
    let won = race(first, "/race")?;
    server.kill()?;
    server.restart()?;
    let other_count = contender.join().map_err(|_| anyhow!("a contender died"))??;
    if won.len() + other_count != RACE_COUNT {
        bail!("{} and {other_count} creates won of {RACE_COUNT}", won.len());
    }
    let mut volume = server.volume()?;
    for index in 0..RACE_COUNT {
        volume.lstat(Path::new(&format!("/race/{index}")))?;
        volume.unlink(Path::new(&format!("/race/{index}")))?;
    }
    let mut other = server.volume()?;
    other.create(Path::new("/race/0"), 0o600, true)?;
    other.unlink(Path::new("/race/0"))?;
    volume.rmdir(Path::new("/race"))?;
    other.mkdir(Path::new("/race"), 0o700)?;
    server.kill()?;
    server.restart()?;
    let attr = volume.lstat(Path::new("/race"))?;
    if attr.mode != 0o700 {
        bail!("the directory is the removed one");
    }
    drop((volume, other));
    server.stop()?;
    Ok(format!("{RACE_COUNT} names, each won once: {} and {other_count}", won.len()))
}

const RACE_COUNT: usize = 200;

/// Creates all names; returns those that this client created.
fn race(mut volume: Volume, dir: &str) -> Result<Vec<usize>> {
    let mut won = Vec::new();
    for index in 0..RACE_COUNT {
        let path = format!("{dir}/{index}");
        match volume.create(Path::new(&path), 0o644, true) {
            Ok(file) => {
                volume.close(file)?;
                won.push(index);
            }
            Err(error) if error.status() == Some(library::Status::Exists) => {}
            Err(error) => return Err(error).context(path),
        }
    }
    Ok(won)
}

/// One client creates in a directory whose mode another changes, in both orders.
pub(super) fn s20(setup: &Setup, _: Length) -> Result<String> {
    let mut pair = Pair::new(setup)?;
    for round in 0..6 {
        let name = format!("parent{round}");
        fs::create_dir(pair.here.dir.join(&name))?;
        let create = || fs::write(pair.here.dir.join(&name).join("child"), "x");
        let mode = fs::Permissions::from_mode(0o750);
        let chmod = || fs::set_permissions(pair.there.dir.join(&name), mode);
        if round % 2 == 0 {
            create()?;
            chmod()?;
        } else {
            chmod()?;
            create()?;
        }
        pair.bounce()?;
        for dir in [&pair.here.dir, &pair.there.dir] {
            let text = fs::read_to_string(dir.join(&name).join("child"))?;
            let mode = fs::metadata(dir.join(&name))?.permissions().mode() & 0o7777;
            if text != "x" || mode != 0o750 {
                bail!("round {round}: {text:?}, mode {mode:o}");
            }
        }
    }
    pair.end()?;
    Ok("6 rounds in both orders".to_owned())
}

/// The order relative to the server's crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    Before,
    After,
}

/// Open files lose their name, before and after the server's crash, in every order, with one and
/// two openers, on the same mount and on two.
pub(super) fn s32(setup: &Setup, _: Length) -> Result<String> {
    let mut pair = Pair::new(setup)?;
    let mut case_count = 0;
    let whens = [When::Before, When::After];
    for open in whens {
        for unlink in whens {
            for second in [None, Some(When::Before)] {
                for foreign in [false, true] {
                    let case = OpenCase { open, unlink, second, foreign };
                    open_unlinked(&mut pair, case).with_context(|| format!("{case:?}"))?;
                    case_count += 1;
                }
            }
        }
    }
    pair.end()?;
    Ok(format!("{case_count} cases: readable until the close, then removed"))
}

#[derive(Clone, Copy, Debug)]
struct OpenCase {
    open: When,
    unlink: When,
    second: Option<When>,
    /// The other mount removes the name.
    foreign: bool,
}

fn open_unlinked(pair: &mut Pair, case: OpenCase) -> Result<()> {
    let name = "open-file";
    let path = pair.here.dir.join(name);
    fs::write(&path, "contents")?;
    let open = || fs::File::options().read(true).write(true).open(&path);
    let remover = if case.foreign { &pair.there.dir } else { &pair.here.dir }.join(name);
    let (mut file, mut second) = (None, None);
    if case.open == When::Before {
        file = Some(open()?);
    }
    if case.second.is_some() && case.open == When::Before {
        second = Some(open()?);
    }
    // Without a name and unopened, there would be nothing to open afterwards.
    let unlink_first = case.unlink == When::Before && file.is_some();
    if unlink_first {
        fs::remove_file(&remover)?;
    }
    pair.bounce()?;
    if file.is_none() {
        file = Some(open()?);
    }
    if !unlink_first {
        fs::remove_file(&remover)?;
    }
    let mut file = file.context("not open")?;
    reads_and_writes(&mut file)?;
    if let Some(second) = &mut second {
        second.write_all_at(b"C", 0)?;
        drop(file);
        reads_and_writes(second)?;
    } else {
        drop(file);
    }
    drop(second);
    if fs::symlink_metadata(pair.there.dir.join(name)).is_ok() {
        bail!("the name is back");
    }
    Ok(())
}

fn reads_and_writes(file: &mut fs::File) -> Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if !text.eq_ignore_ascii_case("contents") {
        bail!("it reads {text:?}");
    }
    file.write_all_at(b"c", 0)?;
    Ok(())
}

const RECORD_COUNT: usize = 150;

/// Two clients append to one file, and one writes another file without the kernel's cache.
pub(super) fn s35(setup: &Setup, _: Length) -> Result<String> {
    let mut pair = Pair::new(setup)?;
    fs::write(pair.here.dir.join("log"), "")?;
    let mut writers = Vec::new();
    for (who, dir) in [("here", &pair.here.dir), ("there", &pair.there.dir)] {
        let path = dir.join("log");
        writers.push(thread::spawn(move || append_all(&path, who)));
    }
    let direct = pair.here.dir.join("direct");
    writers.push(thread::spawn(move || write_directly(&direct)));
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(60));
        pair.bounce()?;
    }
    for writer in writers {
        writer.join().map_err(|_| anyhow!("a writer died"))??;
    }
    pair.bounce()?;
    let text = fs::read_to_string(pair.there.dir.join("log"))?;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    if lines.len() != 2 * RECORD_COUNT || text.lines().count() != 2 * RECORD_COUNT {
        bail!("{} lines, {} different", text.lines().count(), lines.len());
    }
    let bytes = fs::read(pair.there.dir.join("direct"))?;
    let whole = (0..RECORD_COUNT).all(|index| block_of(&bytes, index) == Some(mark(index)));
    if !whole {
        bail!("a directly written block is not there");
    }
    pair.end()?;
    Ok(format!("{} records and {RECORD_COUNT} blocks, each once", 2 * RECORD_COUNT))
}

fn append_all(path: &Path, who: &str) -> Result<()> {
    for index in 0..RECORD_COUNT {
        let mut file = fs::OpenOptions::new().append(true).open(path)?;
        let record = format!("{who} {index} {}\n", ".".repeat(index));
        if file.write(record.as_bytes())? != record.len() {
            bail!("a short append");
        }
    }
    Ok(())
}

const BLOCK_BYTES: usize = 4096;

fn mark(index: usize) -> u8 {
    u8::try_from(index % 250).unwrap_or(0) + 1
}

fn block_of(bytes: &[u8], index: usize) -> Option<u8> {
    let block = bytes.get(index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES)?;
    block.iter().all(|byte| *byte == block[0]).then_some(block[0])
}

fn write_directly(path: &Path) -> Result<()> {
    let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).custom_flags(flags).open(path)?;
    for index in 0..RECORD_COUNT {
        file.write_all_at(&[mark(index); BLOCK_BYTES], (index * BLOCK_BYTES) as u64)?;
    }
    Ok(())
}
