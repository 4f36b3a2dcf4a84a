//! S5 to S11: requests and replies are lost, and the client resends.

use super::cases::{CASES, Case};
use super::length::Length;
use crate::child::{PATIENCE, kill_after};
use crate::proxy::{Act, Direction, Proxy, Rule};
use crate::run_folder::Setup;
use crate::server::{Mount, Server};
use anyhow::{Context as _, Result, anyhow, bail};
use library::{OpenFor, Piece, Volume};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wire::Op;

/// A client behind the proxy, and one without it.
struct Scene {
    server: Server,
    proxy: Proxy,
    behind: Mount,
    beside: Mount,
}

impl Scene {
    fn new(setup: &Setup, arguments: &[&str]) -> Result<Self> {
        let server = Server::start(setup, setup.folder.join("store"), arguments)?;
        let proxy = Proxy::new(server.address()?)?;
        let behind = Mount::new(setup, proxy.address(), "behind")?;
        let beside = Mount::new(setup, server.address()?, "beside")?;
        Ok(Self { server, proxy, behind, beside })
    }

    /// Prepares a folder for a case; returns its path behind the proxy and beside it.
    fn prepare(&self, case: &Case, name: &str) -> Result<(PathBuf, PathBuf)> {
        let (behind, beside) = (self.behind.dir.join(name), self.beside.dir.join(name));
        fs::create_dir(&behind)?;
        (case.prepare)(&behind)?;
        // So that the kernel has cached the names of the case.
        fs::read_dir(&behind)?.count();
        Ok((behind, beside))
    }

    /// Runs a part of the scenario. Calls on a mount wait as long as there is no server: after the
    /// time limit the mounts are killed, and the calls fail.
    fn limited<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let pids = vec![self.behind.pid(), self.beside.pid()];
        kill_after(PATIENCE, pids, || part(self))
    }

    fn lose_reply(&self, op: Op, act: Act) {
        self.proxy.rule(Rule { direction: Direction::Reply, op: Some(op), act, frame_count: 1 });
    }

    fn end(self) -> Result<()> {
        let Self { mut server, proxy, behind, beside } = self;
        proxy.clear();
        behind.stop()?;
        beside.stop()?;
        server.stop()
    }
}

/// Begins a case's operation.
fn begin(case: Case, dir: &Path) -> JoinHandle<std::io::Result<()>> {
    let dir = dir.to_path_buf();
    thread::spawn(move || (case.act)(&dir))
}

/// Waits for an operation, which must have succeeded.
fn succeeded(acting: JoinHandle<std::io::Result<()>>) -> Result<()> {
    let acted = acting.join().map_err(|_| anyhow!("the operation's thread died"))?;
    acted.context("the operation itself")
}

fn each_case(setup: &Setup, check: impl FnMut(&mut Scene, Case) -> Result<()>) -> Result<String> {
    each_case_with(setup, &[], check)
}

/// The same with further arguments for the server.
fn each_case_with(
    setup: &Setup,
    arguments: &[&str],
    mut check: impl FnMut(&mut Scene, Case) -> Result<()>,
) -> Result<String> {
    let mut scene = Scene::new(setup, arguments)?;
    let mut failures = Vec::new();
    for case in CASES {
        if let Err(error) = scene.limited(|scene| check(scene, case)) {
            failures.push(format!("{}: {error:#}", case.name));
            // It may have left no server, and an operation that waits for one: that ends with its
            // mount.
            drop(scene);
            scene = Scene::new(&setup.part(&format!("after-{}", case.name))?, arguments)?;
        }
        scene.proxy.clear();
    }
    scene.end()?;
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
    Ok(format!("once each: {}", names.join(" ")))
}

/// The reply is lost with its connection.
pub(super) fn s5(setup: &Setup, _: Length) -> Result<String> {
    each_case(setup, |scene, case| {
        let (behind, beside) = scene.prepare(&case, case.name)?;
        scene.lose_reply(case.op, Act::DropAndCut);
        (case.act)(&behind).context("the operation itself")?;
        scene.proxy.wait_matched(1)?;
        Ok((case.once)(&beside)?)
    })
}

/// The server crashes before the operation is in its log.
pub(super) fn s6(setup: &Setup, _: Length) -> Result<String> {
    // Writes to the log are counted from when all lanes have recovered. With several, the lane of
    // the operation may write it before another has.
    each_case_with(setup, &["--lanes", "1"], |scene, case| {
        let (behind, beside) = scene.prepare(&case, case.name)?;
        scene.server.stop()?;
        scene.server.restart_with(&["--fault", "kill-log-write:1"])?;
        let acting = begin(case, &behind);
        scene.server.ended().context("the server meets its fault")?;
        scene.server.restart()?;
        succeeded(acting)?;
        Ok((case.once)(&beside)?)
    })
}

/// The reply is lost, another client undoes the operation, the server crashes, and the client
/// resends.
pub(super) fn s7(setup: &Setup, _: Length) -> Result<String> {
    each_case(setup, |scene, case| {
        resent_after(scene, case, |scene| {
            scene.server.kill()?;
            scene.server.restart()
        })
    })
}

/// As S7, without the crash.
pub(super) fn s8(setup: &Setup, _: Length) -> Result<String> {
    each_case(setup, |scene, case| {
        resent_after(scene, case, |scene| {
            scene.proxy.cut();
            Ok(())
        })
    })
}

/// The reply to the case's operation is lost, another client undoes the operation, then `part` cuts
/// the connection and the client resends.
fn resent_after(
    scene: &mut Scene,
    case: Case,
    part: impl FnOnce(&mut Scene) -> Result<()>,
) -> Result<()> {
    let (behind, beside) = scene.prepare(&case, case.name)?;
    scene.lose_reply(case.op, Act::Drop);
    let acting = begin(case, &behind);
    scene.proxy.wait_matched(1)?;
    (case.undo)(&beside).context("the other client")?;
    part(scene)?;
    succeeded(acting)?;
    Ok((case.undone)(&beside)?)
}

/// A delayed request arrives after the request that replaced it.
pub(super) fn s9(setup: &Setup, _: Length) -> Result<String> {
    let mut server = Server::start(setup, setup.folder.join("store"), &[])?;
    let proxy = Proxy::new(server.address()?)?;
    let mut late = server.volume_through(proxy.address())?;
    let mut other = server.volume()?;
    let path = Path::new("/file");
    let file = late.create(path, 0o644, true)?;
    let (direction, op, act) = (Direction::Request, Some(Op::Write), Act::HoldAndCut);
    proxy.rule(Rule { direction, op, act, frame_count: 1 });
    late.write_at(&file, 0, b"first").context("the write that is delayed")?;
    proxy.wait_matched(1)?;
    late.write_at(&file, 0, b"newer")?;
    let late_count = proxy.release();
    if late_count != 1 {
        bail!("{late_count} requests were held");
    }
    // A new request comes after the late one.
    for _ in 0..20 {
        let found = contents(&mut other, path)?;
        if found != b"newer" {
            bail!("the late write took effect: {}", String::from_utf8_lossy(&found));
        }
    }
    late.close(file)?;
    // Unmounting sends a Goodbye, which needs a server.
    drop((late, other));
    server.stop()?;
    Ok("the late request was dropped".to_owned())
}

fn contents(volume: &mut Volume, path: &Path) -> Result<Vec<u8>> {
    let file = volume.open(path, OpenFor::Read)?;
    let bytes = volume.read_at(&file, Piece { file_offset: 0, piece_bytes: 4096 })?;
    volume.close(file)?;
    Ok(bytes.into())
}

/// Operations under way at a time: the slots of a session.
const FLIGHT_COUNT: u64 = 16;

/// The frames that are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FlightLoss {
    Requests,
    Replies,
    RepliesAndServer,
    RepliesAndServerLater,
}

/// All requests or all replies of a full session are lost.
pub(super) fn s10(setup: &Setup, _: Length) -> Result<String> {
    let mut scene = Scene::new(setup, &[])?;
    let losses = [
        FlightLoss::Requests,
        FlightLoss::Replies,
        FlightLoss::RepliesAndServer,
        FlightLoss::RepliesAndServerLater,
    ];
    for loss in losses {
        scene.limited(|scene| fly(scene, loss)).with_context(|| format!("{loss:?}"))?;
    }
    scene.end()?;
    Ok(format!("4 flights of {FLIGHT_COUNT}, each op once"))
}

fn fly(scene: &mut Scene, loss: FlightLoss) -> Result<()> {
    let folder = format!("{loss:?}");
    let place = scene.behind.dir.join(&folder);
    fs::create_dir(&place)?;
    for index in 0..FLIGHT_COUNT {
        // A directory each: the kernel makes names in one directory one after another.
        fs::create_dir(place.join(index.to_string()))?;
    }
    let direction =
        if loss == FlightLoss::Requests { Direction::Request } else { Direction::Reply };
    let op = Some(Op::Mkdir);
    scene.proxy.rule(Rule { direction, op, act: Act::Drop, frame_count: FLIGHT_COUNT });
    let flying: Vec<_> = (0..FLIGHT_COUNT)
        .map(|index| place.join(index.to_string()).join("made"))
        .map(|path| thread::spawn(move || fs::create_dir(path)))
        .collect();
    scene.proxy.wait_matched(FLIGHT_COUNT)?;
    scene.proxy.clear();
    match loss {
        FlightLoss::Requests | FlightLoss::Replies => scene.proxy.cut(),
        FlightLoss::RepliesAndServer => {
            scene.server.kill()?;
            scene.server.restart()?;
        }
        FlightLoss::RepliesAndServerLater => {
            // The reply to this create comes after all of these operations are in every log it
            // depends on.
            fs::File::create(scene.beside.dir.join("behind-the-flight"))?.sync_all()?;
            scene.server.kill()?;
            scene.server.restart()?;
        }
    }
    for flight in flying {
        succeeded(flight)?;
    }
    for index in 0..FLIGHT_COUNT {
        let dir = scene.beside.dir.join(&folder).join(index.to_string());
        let count = fs::read_dir(&dir)?.count();
        if count != 1 {
            bail!("{count} names in {}", dir.display());
        }
    }
    Ok(())
}

/// The duration of the partition.
const PARTITION: Duration = Duration::from_millis(700);

/// A partition between all clients and the server.
pub(super) fn s11(setup: &Setup, _: Length) -> Result<String> {
    each_case(setup, |scene, case| {
        let (behind, beside) = scene.prepare(&case, case.name)?;
        scene.proxy.part(true);
        let acting = begin(case, &behind);
        thread::sleep(PARTITION / 9);
        scene.proxy.part(false);
        succeeded(acting)?;
        Ok((case.once)(&beside)?)
    })
}
