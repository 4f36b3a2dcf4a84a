//! Child processes of a run, with their output in a file.
//!
//! Invariant: every child dies with this process (`setpriv --pdeathsig`), so none is left even when
//! the run itself is killed.

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Limit for anything that a run waits for. No wait lasts that long unless something is wrong.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > deadline {
            bail!("not within {PATIENCE:?}: {what}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Runs `act`, which may wait for these processes in calls without a time limit, such as calls on
/// their mounts. After `limit` the processes are killed, so that it ends, and that is an error.
pub(crate) fn kill_after<T>(
    limit: Duration,
    pids: Vec<Pid>,
    act: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (end, ended) = mpsc::channel::<()>();
    let watching = std::thread::spawn(move || {
        let is_late = ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        for pid in pids.into_iter().filter(|_| is_late) {
            // It may have ended by itself.
            kill_process(pid, Signal::KILL).ok();
        }
        is_late
    });
    let outcome = act();
    drop(end);
    let is_late = watching.join().map_err(|_| anyhow!("the watching thread died"))?;
    match outcome {
        Ok(_) if is_late => bail!("not within {limit:?}"),
        Err(error) if is_late => Err(error.context(format!("not within {limit:?}"))),
        outcome => outcome,
    }
}

/// Runs a command that must succeed; returns its stdout.
pub(crate) fn must(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{command:?}: {}\n{stderr}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command that dies with this process.
pub(crate) fn child_command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    heard_bytes: usize,
}

impl Process {
    /// Starts a command with stdout and stderr in `log`.
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let mut options = fs::OpenOptions::new();
        let file = options.create(true).append(true).open(&log)?;
        let heard_bytes = usize::try_from(file.metadata()?.len())?;
        command.stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, log, heard_bytes })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its standard input, if that is a pipe.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Its output since its start.
    pub(crate) fn output(&self) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = fs::File::open(&self.log) {
            file.read_to_end(&mut bytes).ok();
        }
        let fresh = bytes.get(self.heard_bytes..).unwrap_or_default();
        String::from_utf8_lossy(fresh).into_owned()
    }

    /// Waits for a line that contains `part`.
    pub(crate) fn line_with(&mut self, part: &str) -> Result<String> {
        let mut found = None;
        until(&format!("a line with {part:?} in {}", self.log.display()), || {
            let output = self.output();
            let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
            found = whole.lines().find(|line| line.contains(part)).map(ToOwned::to_owned);
            if found.is_none() && self.has_ended()? {
                bail!("it ended without a line with {part:?}:\n{}", self.output());
            }
            Ok(found.is_some())
        })?;
        found.context("no line")
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        // The process may have ended by itself.
        kill_process(self.pid(), signal).ok();
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> Result<ExitStatus> {
        let mut status = None;
        let what = format!("the process of {} ends", self.log.display());
        until(&what, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        status.context("no status")
    }

    /// Kills it with -9 and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL);
        self.end().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended().unwrap_or(true) {
            self.signal(Signal::KILL);
            self.child.wait().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_waits_too_long_ends_with_its_processes() {
        let mut folder = std::env::temp_dir();
        folder.push(format!("lanefs-crash-child-{}", std::process::id()));
        let mut sleeping =
            Process::start(Command::new("sleep").arg("1000"), folder.clone()).unwrap();
        let pid = sleeping.pid();
        assert_eq!(kill_after(PATIENCE, vec![pid], || Ok(5)).unwrap(), 5);
        assert!(!sleeping.has_ended().unwrap());
        let late = kill_after(Duration::from_millis(10), vec![pid], || sleeping.end());
        assert!(late.unwrap_err().to_string().contains("not within 10ms"));
        assert!(sleeping.has_ended().unwrap());
        fs::remove_file(folder).unwrap();
    }
}
