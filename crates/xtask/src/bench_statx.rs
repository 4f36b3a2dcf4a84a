//! `cargo xtask bench statx`: what a statx costs that must ask the server, through the real mount,
//! against a null file system that does one loopback exchange in its lane.
//!
//! Caller, client lane and server lane sit on one core in both. Pairs alternate, so that a machine
//! that changes its pace changes it for both; the median of the pairs' ratios is the answer.

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
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAIR_COUNT: usize = 10;
const MEASURED: Duration = Duration::from_millis(1000);
const WARMED: Duration = Duration::from_millis(300);

/// Runs it for both transports.
pub(crate) fn run_measurement() -> Result<()> {
    needs::check()?;
    run(&mut cargo(["build", "--release", "--package", "lanefs"]))?;
    let null = ["build", "--release", "--package", "lanefs-ring", "--example", "null_mount"];
    run(&mut cargo(null))?;
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

/// Pins this thread, and with it every child, to the last usable core.
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
    let null = Mounted::null(folder, transport, core)?;
    let ours = lanefs.dir.join("file");
    fs::write(&ours, "x")?;
    let theirs = null.dir.join("file");
    for path in [&ours, &theirs] {
        statx_us(path, WARMED)?;
    }
    let mut pairs = Vec::with_capacity(PAIR_COUNT);
    for pair_no in 0..PAIR_COUNT {
        // Who comes first changes with every pair.
        let (our_us, their_us) = if pair_no % 2 == 0 {
            let our_us = statx_us(&ours, MEASURED)?;
            (our_us, statx_us(&theirs, MEASURED)?)
        } else {
            let their_us = statx_us(&theirs, MEASURED)?;
            (statx_us(&ours, MEASURED)?, their_us)
        };
        pairs.push((our_us, their_us, our_us / their_us));
    }
    let column = |pick: fn(&(f64, f64, f64)) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        let middle = f64::midpoint(values[(PAIR_COUNT - 1) / 2], values[PAIR_COUNT / 2]);
        format!("{middle:.2} ({:.2} ..= {:.2})", values[0], values[PAIR_COUNT - 1])
    };
    println!("{transport}");
    println!("  lanefs                 {}", column(|pair| pair.0));
    println!("  null with one exchange {}", column(|pair| pair.1));
    println!("  ratio of the pairs     {}", column(|pair| pair.2));
    Ok(())
}

/// Microseconds of one statx that the kernel must not answer itself.
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

/// A program that has mounted something.
struct Mounted {
    child: Child,
    dir: PathBuf,
}

impl Mounted {
    fn lanefs(folder: &Path, transport: &str) -> Result<Self> {
        let dir = folder.join("lanefs");
        let mut command = Command::new(target_dir().join("release/lanefs"));
        command.arg("up").arg(&dir).args(["--lanes", "1", "--listen", "127.0.0.1:0"]);
        command.args(["--fuse", transport]).env("XDG_CONFIG_HOME", folder.join("config"));
        Self::start(command, dir, "stop ")
    }

    fn null(folder: &Path, transport: &str, core: usize) -> Result<Self> {
        let dir = folder.join("null");
        fs::create_dir_all(&dir)?;
        let mut command = Command::new(target_dir().join("release/examples/null_mount"));
        command.arg(&dir).args(["--echo", "--cores", &core.to_string()]);
        if transport == "classic" {
            command.arg("--classic");
        }
        Self::start(command, dir, "null: ")
    }

    /// Waits for a line that contains `ready`.
    fn start(mut command: Command, dir: PathBuf, ready: &str) -> Result<Self> {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.with_context(|| format!("cannot start {command:?}"))?;
        let stdout = child.stdout.take();
        let mounted = Self { child, dir };
        let Some(stdout) = stdout else { bail!("no output of {command:?}") };
        for line in BufReader::new(stdout).lines() {
            if line?.contains(ready) {
                return Ok(mounted);
            }
        }
        bail!("{command:?} ended at its start")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        // Each of the two ends it, or it has ended already.
        if unmount(&self.dir, UnmountFlags::empty()).is_err() {
            eprintln!("{} was not mounted any more", self.dir.display());
        }
        if kill_process(pid, Signal::TERM).is_err() || self.child.wait().is_err() {
            eprintln!("{pid:?} had ended already");
        }
    }
}
