//! S1 to S4, S12 to S15, S23 to S25, S30: servers and clients crash under a workload.

use super::length::Length;
use crate::child::until;
use crate::client_group::{ClientGroup, Size, Victim};
use crate::proxy::{Act, Direction, Proxy, Rule};
use crate::run_folder::Setup;
use crate::server::{Mount, Server};
use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const SIZE: Size = Size { library_count: 2, mount_count: 1 };
const CLIENT_COUNT_MAX: u64 = 40;

/// How long clients continue while the log hangs.
const LOSING: Duration = Duration::from_millis(60);
/// The same on a machine too slow for any progress in that time.
const LOSING_MAX: Duration = Duration::from_secs(2);

/// A server and clients at work.
struct Scene {
    server: Server,
    clients: ClientGroup,
    rng: Rng,
}

impl Scene {
    fn new(setup: &Setup) -> Result<Self> {
        let mut server = Server::start(setup, setup.folder.join("store"), &[])?;
        let mut clients = ClientGroup::new(setup, &mut server, CLIENT_COUNT_MAX)?;
        clients.start(SIZE)?;
        clients.progress()?;
        Ok(Self { server, clients, rng: Rng::with_seed(setup.seed) })
    }

    /// Ends the clients, kills the server once more and checks everything.
    fn end(mut self, what: &str) -> Result<String> {
        self.clients.progress()?;
        self.clients.end()?;
        self.server.kill()?;
        self.server.restart()?;
        let findings = self.clients.check(&self.server)?;
        self.server.stop()?;
        if !findings.is_clean() {
            bail!("{what}: {}", findings.details());
        }
        Ok(format!("{what}: {}", findings.summary()))
    }

    /// Kills the server when it has replied to changes that are not durable: its log hangs from a
    /// batch on, and the clients continue for a while.
    fn kill_with_losses(&mut self) -> Result<()> {
        self.server.kill()?;
        let batch_no = 10 + self.rng.u64(..20);
        self.server.restart_with(&["--fault", &format!("stall-log:{batch_no}")])?;
        self.server.running()?.line_with("a planned fault has begun")?;
        let before = self.clients.written();
        let began = Instant::now();
        // All clients may wait for the log before any of them got two replies.
        while !self.clients.has_any_progress(&before) && began.elapsed() < LOSING_MAX {
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(LOSING);
        self.server.kill()
    }

    /// Lets the clients work for some milliseconds.
    fn pause(&mut self, ms_max: u64) {
        thread::sleep(Duration::from_millis(self.rng.u64(..ms_max)));
    }
}

/// The server is killed; all clients live.
pub(super) fn s1(setup: &Setup, length: Length) -> Result<String> {
    let mut scene = Scene::new(setup)?;
    for _ in 0..length.repeat_count {
        scene.kill_with_losses()?;
        scene.server.restart()?;
        scene.clients.progress()?;
    }
    scene.end(&format!("{} kills of a server whose log hangs", length.repeat_count))
}

/// The server is killed, and a client before the restart.
pub(super) fn s2(setup: &Setup, length: Length) -> Result<String> {
    let mut scene = Scene::new(setup)?;
    for _ in 0..length.repeat_count {
        scene.kill_with_losses()?;
        let index = scene.rng.usize(..scene.clients.member_count());
        scene.clients.kill(index, Victim::Client)?;
        scene.server.restart()?;
        scene.clients.progress()?;
        scene.clients.replace(SIZE)?;
    }
    scene.end(&format!("{} kills of the server with a client", length.repeat_count))
}

/// Files below a folder.
fn file_count(dir: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        count += if path.is_dir() { file_count(&path)? } else { 1 };
    }
    Ok(count)
}

/// A client with an open, unlinked file dies, and then the server.
pub(super) fn s3(setup: &Setup, _: Length) -> Result<String> {
    let mut server = Server::start(setup, setup.folder.join("store"), &[])?;
    let objects = server.store().join("objects");
    let beside = Mount::new(setup, server.address()?, "beside")?;
    fs::write(beside.dir.join("kept"), "kept")?;
    fs::File::open(beside.dir.join("kept"))?.sync_all()?;
    let before_count = file_count(&objects)?;
    let mut dying = Mount::new(setup, server.address()?, "dying")?;
    let path = dying.dir.join("nameless");
    let open = fs::File::create(&path)?;
    open.write_all_at(&[1; 100_000], 0)?;
    open.sync_all()?;
    fs::remove_file(&path)?;
    // Makes the unlink durable: otherwise it could be lost with the client that requested it.
    fs::File::open(&dying.dir)?.sync_all()?;
    if file_count(&objects)? != before_count + 1 {
        bail!("an open file has no bytes any more");
    }
    server.kill()?;
    dying.kill()?;
    drop(open);
    server.restart()?;
    let start = Instant::now();
    until("what nobody holds is removed", || Ok(file_count(&objects)? == before_count))?;
    let removed_ms = start.elapsed().as_millis();
    let contents = fs::read_to_string(beside.dir.join("kept"))?;
    if contents != "kept" {
        bail!("another file reads {contents:?}");
    }
    beside.stop()?;
    server.stop()?;
    Ok(format!(
        "the unlinked file was removed after {removed_ms} ms, the other client lost nothing"
    ))
}

/// A client dies; the server lives.
pub(super) fn s4(setup: &Setup, length: Length) -> Result<String> {
    let mut scene = Scene::new(setup)?;
    for _ in 0..length.repeat_count {
        scene.pause(80);
        let index = scene.rng.usize(..scene.clients.member_count());
        scene.clients.kill(index, Victim::Client)?;
        scene.clients.progress()?;
        scene.clients.replace(SIZE)?;
    }
    scene.end(&format!("{} clients killed", length.repeat_count))
}

/// The server is killed again while it starts.
pub(super) fn s12(setup: &Setup, length: Length) -> Result<String> {
    let mut scene = Scene::new(setup)?;
    for _ in 0..length.repeat_count {
        scene.kill_with_losses()?;
        for _ in 0..3 {
            scene.server.launch(&[])?;
            scene.pause(60);
            scene.server.kill()?;
        }
        scene.server.restart()?;
        scene.clients.progress()?;
    }
    let killed = killed_at(&mut scene, &["recovery-begun", "replayed", "replay-done"])?;
    scene.end(&format!("{} kills while it started, {killed}", 3 * length.repeat_count))
}

/// The server is killed at each step of the end of its recovery.
pub(super) fn s13(setup: &Setup, _: Length) -> Result<String> {
    let mut scene = Scene::new(setup)?;
    let killed = killed_at(&mut scene, &["replays-durable", "recovery-ended"])?;
    scene.end(&killed)
}

/// Attempts to leave something to replay.
const ATTEMPT_COUNT_MAX: usize = 40;

/// Makes the server kill itself at points of its recovery. Each must be reached.
fn killed_at(scene: &mut Scene, points: &[&str]) -> Result<String> {
    for point in points {
        kill_at(scene, point)?;
        scene.server.restart()?;
        scene.clients.progress()?;
    }
    Ok(format!("killed at {}", points.join(" ")))
}

/// Kills a server whose log hangs, and makes the next one kill itself at a point of its recovery.
/// Whether there is something to replay is random, so there are several attempts.
fn kill_at(scene: &mut Scene, point: &str) -> Result<()> {
    for _ in 0..ATTEMPT_COUNT_MAX {
        scene.kill_with_losses()?;
        let before = scene.clients.written();
        scene.server.launch(&["--fault", &format!("kill-{point}:1")])?;
        let mut has_ended = false;
        until("the server ends, or everybody goes on", || {
            has_ended = scene.server.running()?.has_ended()?;
            Ok(has_ended || scene.clients.has_progress(&before))
        })?;
        if has_ended {
            return Ok(());
        }
    }
    bail!("{point} was not reached in {ATTEMPT_COUNT_MAX} attempts")
}

/// A client dies while it recovers its session.
pub(super) fn s14(setup: &Setup, length: Length) -> Result<String> {
    let mut scene = Scene::new(setup)?;
    for _ in 0..length.repeat_count {
        kill_at(&mut scene, "replayed")?;
        let index = scene.rng.usize(..scene.clients.member_count());
        scene.clients.kill(index, Victim::Client)?;
        scene.server.restart()?;
        scene.clients.progress()?;
        scene.clients.replace(SIZE)?;
    }
    scene.end(&format!("{} clients killed while they came back", length.repeat_count))
}

/// Clients lose their connections during recovery.
pub(super) fn s15(setup: &Setup, _: Length) -> Result<String> {
    let mut server = Server::start(setup, setup.folder.join("store"), &[])?;
    let proxy = Proxy::new(server.address()?)?;
    let mut clients = ClientGroup::new(setup, &mut server, CLIENT_COUNT_MAX)?;
    clients.set_address(proxy.address());
    clients.start(SIZE)?;
    clients.progress()?;
    let mut scene = Scene { server, clients, rng: Rng::with_seed(setup.seed) };
    for direction in [Direction::Request, Direction::Reply, Direction::Request, Direction::Reply] {
        scene.kill_with_losses()?;
        let act = if direction == Direction::Reply { Act::PassAndCut } else { Act::DropAndCut };
        proxy.rule(Rule { direction, op: None, act, frame_count: 6 });
        scene.server.restart()?;
        proxy.wait_matched(6)?;
        proxy.clear();
        scene.clients.progress()?;
    }
    scene.end("4 kills, each with 6 lost connections")
}

/// A new client connects while the server is down, and another during recovery.
pub(super) fn s23(setup: &Setup, _: Length) -> Result<String> {
    let mut scene = Scene::new(setup)?;
    scene.server.kill()?;
    let options = scene.server.options()?;
    let waiting = thread::spawn(move || library::Volume::connect(&options).map(drop));
    scene.server.restart()?;
    let start = Instant::now();
    let space = scene.server.volume()?.statfs();
    space.context("statfs is answered while clients come back")?;
    let answered_ms = start.elapsed().as_millis();
    match waiting.join() {
        Ok(connected) => connected.context("the client that came first")?,
        Err(_) => bail!("the client that came first has died"),
    }
    scene.end(&format!("statfs answered after {answered_ms} ms"))
}

/// No client returns after the restart.
pub(super) fn s24(setup: &Setup, _: Length) -> Result<String> {
    let mut scene = Scene::new(setup)?;
    scene.server.kill()?;
    scene.clients.kill_all()?;
    let start = Instant::now();
    scene.server.restart()?;
    let mut volume = scene.server.volume()?;
    volume.mkdir(Path::new("/c1/after"), 0o755)?;
    volume.rmdir(Path::new("/c1/after"))?;
    drop(volume);
    let served_ms = start.elapsed().as_millis();
    scene.clients.start(SIZE)?;
    scene.end(&format!("serves after {served_ms} ms"))
}

/// The server is stopped under load.
pub(super) fn s25(setup: &Setup, length: Length) -> Result<String> {
    let mut scene = Scene::new(setup)?;
    let mut away_ms_max = 0;
    for _ in 0..length.repeat_count {
        scene.pause(80);
        let start = Instant::now();
        scene.server.stop()?;
        scene.server.restart()?;
        away_ms_max = away_ms_max.max(start.elapsed().as_millis());
        scene.clients.progress()?;
    }
    scene.end(&format!("{} restarts, away for at most {away_ms_max} ms", length.repeat_count))
}

/// Points between the steps of a change over two shards.
const TXN_POINTS: [&str; 8] = [
    "log-write",
    "log-written",
    "txn-begun",
    "txn-prepared",
    "txn-deciding",
    "txn-decided",
    "txn-done",
    "txn-forgotten",
];

/// Renames between directories of different shards, with a server that kills itself at each step.
pub(super) fn s30(setup: &Setup, length: Length) -> Result<String> {
    let mut server = Server::start(setup, setup.folder.join("store"), &[])?;
    let mount = Mount::new(setup, server.address()?, "mount")?;
    let mut reached = Vec::new();
    let (points, count_max) =
        if length.every_step { (&TXN_POINTS[..], 2) } else { (&TXN_POINTS[3..7], 1) };
    for point in points.iter().copied() {
        for count in 1..=count_max {
            let place = mount.dir.join(format!("{point}{count}"));
            let (from, to) = (place.join("from"), place.join("to"));
            for dir in [&place, &from, &to] {
                fs::create_dir(dir)?;
            }
            fs::write(from.join("file"), point)?;
            fs::create_dir(from.join("dir"))?;
            server.stop()?;
            server.restart_with(&["--fault", &format!("kill-{point}:{count}")])?;
            let moving = thread::spawn(move || {
                fs::rename(from.join("file"), to.join("file"))?;
                fs::rename(from.join("dir"), to.join("dir"))
            });
            while !moving.is_finished() {
                if server.running()?.has_ended()? {
                    reached.push(format!("{point}:{count}"));
                    server.restart()?;
                }
                thread::sleep(Duration::from_millis(2));
            }
            match moving.join() {
                Ok(moved) => moved.with_context(|| format!("renames, {point}:{count}"))?,
                Err(_) => bail!("the renaming thread has died"),
            }
            server.kill()?;
            server.restart()?;
            let names = |dir: &str| -> Result<usize> {
                Ok(fs::read_dir(place.join(dir)).context("a directory is missing")?.count())
            };
            let text = fs::read_to_string(place.join("to/file"))?;
            if names("from")? != 0 || names("to")? != 2 || text != point {
                bail!("{point}:{count}: a half rename");
            }
        }
    }
    mount.stop()?;
    server.stop()?;
    Ok(format!("reached {}", reached.join(" ")))
}
