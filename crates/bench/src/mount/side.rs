//! A server and a mount of it, each in a process of its own, their lanes on the same CPU.
//!
//! Invariant: after the drop both have ended and nothing is mounted there.

use crate::server::{Home, Server};
use crate::usage::{LaneUsage, Usage};
use anyhow::{Context as _, Result, bail};
use library::Volume;
use ring::{DriverKind, Transport};
use rustix::process::{Pid, Signal, kill_process};
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Child, ChildStdout};
use std::thread;
use std::time::{Duration, Instant};

/// How long the server must be idle, so that no asynchronous request is left: after some tens of
/// milliseconds written data is durable and its size settled.
const QUIET: Duration = Duration::from_millis(300);
const QUIET_WAIT_MAX: Duration = Duration::from_secs(300);
/// How long the mount may take to end by itself.
const END_MAX: Duration = Duration::from_secs(10);

/// Server and mount.
pub(super) struct Real {
    pub(super) dir: PathBuf,
    mount: Child,
    /// Held open for the mount's last output.
    _output: BufReader<ChildStdout>,
    server: Server,
    /// A connection to read the counters.
    volume: Volume,
    /// Requests of that connection.
    counter_request_count: u64,
}

impl Real {
    /// Starts a server with a store of that name, and mounts it.
    pub(super) fn start(home: &Home, name: &str, way: (DriverKind, Transport)) -> Result<Self> {
        let server = home.server_on(name, way.0)?;
        let dir = home.path().join(format!("{name}-dir"));
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let volume = server.volume()?;
        let (mount, _output) = home.start_mount(&server, &dir, way)?;
        Ok(Self { dir, mount, _output, server, volume, counter_request_count: 0 })
    }

    /// The resources that both processes have used.
    pub(super) fn usage(&mut self) -> Result<Usage> {
        let lanes = self.lanes()?;
        let pid = self.server.pid().context("the server runs elsewhere")?;
        let processes = Usage::of_process(pid)?.plus(&Usage::of_process(self.mount.id())?);
        Ok(Usage { lanes: Some(lanes), ..processes })
    }

    fn lanes(&mut self) -> Result<LaneUsage> {
        let stats = self.volume.stats()?;
        self.counter_request_count += u64::try_from(stats.len())?;
        let lanes = stats.iter().map(LaneUsage::of);
        lanes.reduce(|one, other| one.plus(&other)).context("the server has no lanes")
    }

    /// Requests that the server has answered, without those for the counters.
    pub(super) fn request_count(&mut self) -> Result<u64> {
        let counter_request_count = self.counter_request_count;
        Ok(self.lanes()?.request_count - counter_request_count)
    }

    /// The same, once the server is idle.
    pub(super) fn quiet_request_count(&mut self) -> Result<u64> {
        let began = Instant::now();
        let mut count = self.request_count()?;
        let mut since = began;
        while since.elapsed() < QUIET {
            if began.elapsed() > QUIET_WAIT_MAX {
                bail!("the server does not come to rest");
            }
            thread::sleep(QUIET / 10);
            let now = self.request_count()?;
            if now != count {
                (count, since) = (now, Instant::now());
            }
        }
        Ok(count)
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        // It may have ended already; the wait follows either way.
        kill_process(Pid::from_child(&self.mount), Signal::TERM).ok();
        let began = Instant::now();
        while began.elapsed() < END_MAX && !self.mount.try_wait().is_ok_and(|end| end.is_some()) {
            thread::sleep(Duration::from_millis(1));
        }
        self.mount.kill().ok();
        self.mount.wait().ok();
        // A killed mount could not unmount. Otherwise nothing is mounted, which is an error.
        ring::unmount(&self.dir, true).ok();
    }
}
