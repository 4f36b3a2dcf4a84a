//! A child process that has mounted the null file system.
//!
//! Invariant: after the drop the child has ended and nothing is mounted there. The child
//! unmounts by itself when this process ends in another way.

use crate::null::Cost;
use crate::usage::Usage;
use anyhow::{Context as _, Result, bail};
use ring::{DriverKind, Transport};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The hidden command of our binary that mounts it.
pub const NULL_COMMAND: &str = "bench-null";
/// What that command prints before the numbers of its processes.
pub const NULL_READY: &str = "null: processes ";
/// How long the child may take to end by itself.
const END_MAX: Duration = Duration::from_secs(5);

/// What a request costs that a mount would send to its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exchange {
    /// An immediate answer.
    None,
    /// A frame goes to a lane in another process on the same CPU and back.
    Apart,
    /// The same, and writes go to a file, as in a local file system.
    Keeping,
    /// No exchange; reads and writes go to a file: a passthrough file system.
    Local,
}

impl Exchange {
    /// The argument of the child.
    const fn text(self) -> &'static str {
        match self {
            Self::None | Self::Local => "none",
            Self::Apart | Self::Keeping => "apart",
        }
    }
}

/// The child and its mount.
pub(crate) struct Mounted {
    pub(crate) dir: PathBuf,
    transport: Transport,
    exchange: Exchange,
    child: Child,
    /// Held open for the child's last output.
    output: BufReader<ChildStdout>,
    /// Of the lane and of the echoing lane.
    pids: Vec<u32>,
}

impl Mounted {
    /// Mounts on `dir`, which is made, with a lane on `core`. A request that is not among the
    /// `costs` takes one exchange, if a mount would send it to its server.
    pub(crate) fn start(
        program: &Path,
        dir: PathBuf,
        (driver, transport, core): (DriverKind, Transport, u16),
        (exchange, costs): (Exchange, &[Cost]),
    ) -> Result<Self> {
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let contents = dir.with_extension("contents");
        let mut command = Command::new(program);
        command.arg(NULL_COMMAND).arg(&dir).args(["--core", &core.to_string()]);
        command.args(["--fuse", transport_text(transport), "--driver", driver.text()]);
        command.args(["--exchange", exchange.text()]);
        command.args(["--parent-pid", &std::process::id().to_string()]);
        if matches!(exchange, Exchange::Keeping | Exchange::Local) {
            let made = fs::create_dir(&contents);
            made.with_context(|| format!("cannot make {}", contents.display()))?;
            command.arg("--contents").arg(&contents);
        }
        for Cost { opcode, before, behind } in costs {
            let ([first, second], [third, fourth]) = (before, behind);
            command.args(["--cost", &format!("{opcode}:{first}:{second}:{third}:{fourth}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let Some(stdout) = child.stdout.take() else { bail!("{command:?} has no output") };
        let output = BufReader::new(stdout);
        let mut mounted = Self { dir, transport, exchange, child, output, pids: Vec::new() };
        let mut line = String::new();
        while mounted.output.read_line(&mut line)? > 0 {
            if let Some(pids) = line.strip_prefix(NULL_READY) {
                let pids = pids.split_whitespace().map(str::parse).collect::<Result<_, _>>();
                mounted.pids = pids.with_context(|| format!("no processes: {line}"))?;
                return Ok(mounted);
            }
            line.clear();
        }
        bail!("{command:?} ended at its start; its complaint is above")
    }

    /// The transport, as a word of a row.
    pub(crate) const fn how(&self) -> &'static str {
        transport_text(self.transport)
    }

    /// Whether there are exchanges, as a word of a row.
    pub(crate) const fn echo(&self) -> &'static str {
        match self.exchange {
            Exchange::None | Exchange::Local => "",
            Exchange::Apart | Exchange::Keeping => " echo",
        }
    }

    /// The resources its processes have used.
    pub(crate) fn usage(&self) -> Result<Usage> {
        self.pids
            .iter()
            .try_fold(Usage::default(), |sum, pid| Ok(sum.plus(&Usage::of_process(*pid)?)))
    }

    /// Waits for the child's end; whether it came.
    fn wait(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < END_MAX {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return true;
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It may have ended already; the wait follows either way.
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        if !self.wait() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
        // A killed child could not unmount. Otherwise nothing is mounted, which is an error.
        ring::unmount(&self.dir, true).ok();
    }
}

const fn transport_text(transport: Transport) -> &'static str {
    match transport {
        Transport::Uring => "uring",
        Transport::Classic => "classic",
    }
}
