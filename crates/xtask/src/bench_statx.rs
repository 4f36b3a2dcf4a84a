//! `cargo xtask bench statx`: the cost of a statx that the mount must send to its server, compared
//! with a null file system that makes one loopback exchange in its lane.
//!
//! The exchange is with a lane in a process of its own, like the server: caller, client lane and
//! server lane share one CPU in both. A third column is stricter: the null file system's lane sends
//! to itself, without a server lane. Runs alternate, so that a machine that changes its speed
//! changes it for all; the result is the median of the ratios.

use crate::needs;
use crate::run::{cargo, run, target_dir};
use crate::uring_switch::UringOn;
use anyhow::{Context as _, Result, bail};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const PAIR_COUNT: usize = 10;
const MEASURED: Duration = Duration::from_millis(1000);
const WARMED: Duration = Duration::from_millis(300);

/// Runs it for both transports.
pub(crate) fn run_measurement() -> Result<()> {
    needs::check()?;
    run(&mut cargo(["build", "--release", "--package", "lanefs"]))?;
    let core = pin()?;
    println!("forced statx, µs each; everything on core {core}; {PAIR_COUNT} alternating pairs");
    measure("classic", core)?;
    match UringOn::new()? {
        Ok(switch) => {
            let measured = measure("uring", core);
            drop(switch);
            measured
        }
        Err(reason) => {
            println!("left out: io_uring: {reason}");
            Ok(())
        }
    }
}

/// Pins this thread, and with it every child, to the last usable CPU.
fn pin() -> Result<usize> {
    let usable = sched_getaffinity(None)?;
    let core = (0..CpuSet::MAX_CPU).rev().find(|core| usable.is_set(*core));
    let core = core.context("no usable core")?;
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)?;
    Ok(core)
}

fn measure(transport: &str, core: usize) -> Result<()> {
    let folder = target_dir().join(format!("bench-statx-{transport}-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let outcome = measure_in(&folder, transport, core);
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    outcome
}

fn measure_in(folder: &Path, transport: &str, core: usize) -> Result<()> {
    let lanefs = Mounted::lanefs(folder, transport)?;
    let apart = Mounted::null(folder, transport, "apart", core)?;
    let within = Mounted::null(folder, transport, "within", core)?;
    let paths = [&lanefs, &apart, &within].map(|mounted| mounted.dir.join("file"));
    fs::write(&paths[0], "x")?;
    for path in &paths {
        statx_us(path, WARMED)?;
    }
    let mut rounds = Vec::with_capacity(PAIR_COUNT);
    for round_no in 0..PAIR_COUNT {
        let mut round_us = [0.0; 3];
        // The first path changes with every round.
        for turn_no in 0..paths.len() {
            let index = (round_no + turn_no) % paths.len();
            round_us[index] = statx_us(&paths[index], MEASURED)?;
        }
        rounds.push(round_us);
    }
    let column = |pick: fn(&[f64; 3]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        let middle = f64::midpoint(values[(PAIR_COUNT - 1) / 2], values[PAIR_COUNT / 2]);
        format!("{middle:.2} ({:.2} ..= {:.2})", values[0], values[PAIR_COUNT - 1])
    };
    println!("{transport}");
    println!("  lanefs                          {}", column(|us| us[0]));
    println!("  null, exchange with a lane      {}", column(|us| us[1]));
    println!("  null, exchange with itself      {}", column(|us| us[2]));
    println!("  ratio to the exchange with a lane {}", column(|us| us[0] / us[1]));
    println!("  ratio to the exchange with itself {}", column(|us| us[0] / us[2]));
    Ok(())
}

/// Microseconds of one statx that the kernel must not answer from its cache.
fn statx_us(path: &Path, duration: Duration) -> Result<f64> {
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < duration {
        for _ in 0..64 {
            statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS)?;
        }
        count += 64;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(count))
}

/// A program that has mounted a file system.
struct Mounted {
    child: Child,
    dir: PathBuf,
    /// Held open for the child's last output.
    output: BufReader<ChildStdout>,
}

impl Mounted {
    fn lanefs(folder: &Path, transport: &str) -> Result<Self> {
        let dir = folder.join("lanefs");
        let mut command = Command::new(target_dir().join("release/lanefs"));
        command.arg("up").arg(&dir).args(["--lanes", "1", "--listen", "127.0.0.1:0"]);
        command.args(["--fuse", transport]).env("XDG_CONFIG_HOME", folder.join("config"));
        Self::start(command, dir, "stop ")
    }

    /// The mount that `lanefs bench fuse-null` measures.
    fn null(folder: &Path, transport: &str, exchange: &str, core: usize) -> Result<Self> {
        let dir = folder.join(format!("null-{exchange}"));
        fs::create_dir_all(&dir)?;
        let mut command = Command::new(target_dir().join("release/lanefs"));
        command.arg("bench-null").arg(&dir).args(["--fuse", transport, "--exchange", exchange]);
        command.args([
            "--core",
            &core.to_string(),
            "--parent-pid",
            &std::process::id().to_string(),
        ]);
        Self::start(command, dir, "null: ")
    }

    /// Waits for a line that contains `ready`.
    fn start(mut command: Command, dir: PathBuf, ready: &str) -> Result<Self> {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.with_context(|| format!("cannot start {command:?}"))?;
        let Some(stdout) = child.stdout.take() else { bail!("no output of {command:?}") };
        let mut mounted = Self { child, dir, output: BufReader::new(stdout) };
        let mut line = String::new();
        while mounted.output.read_line(&mut line)? > 0 {
            if line.contains(ready) {
                return Ok(mounted);
            }
            line.clear();
        }
        bail!("{command:?} ended at its start")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        // Either of the two ends it, if it has not ended already.
        if unmount(&self.dir, UnmountFlags::empty()).is_err() {
            eprintln!("{} was not mounted any more", self.dir.display());
        }
        if kill_process(pid, Signal::TERM).is_err() || self.child.wait().is_err() {
            eprintln!("{pid:?} had ended already");
        }
    }
}
