//! Programs that a row starts: found, waited for, and ended when the user interrupts.
//!
//! Invariant: no program, nor what it started, outlives the call that started it.

use super::setup::Setup;
use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group,
};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the user may wait for an end after an interrupt.
const CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What a program did.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) elapsed: Duration,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs a program to its end.
///
/// # Errors
/// When it does not start or fails, or the user interrupts.
pub(super) fn run(setup: &Setup, command: &mut Command) -> Result<Ran> {
    let name = command.get_program().to_string_lossy().into_owned();
    let [out, err] = ["stdout", "stderr"].map(|name| setup.scratch().join(name));
    command.env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
    command.stdout(File::create(&out)?).stderr(File::create(&err)?);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    wait(setup, &mut child)?;
    let elapsed = began.elapsed();
    let status = child.wait()?;
    let text = |path| anyhow::Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned());
    let (stdout, stderr) = (text(&out)?, text(&err)?);
    if !status.success() {
        bail!("{name}: {status}: {}", reason(&stderr));
    }
    Ok(Ran { elapsed, stdout, stderr })
}

/// Waits until the child has ended.
fn wait(setup: &Setup, child: &mut Child) -> Result<()> {
    let pid = Pid::from_child(child);
    let ended = pidfd_open(pid, PidfdFlags::empty()).context("cannot wait for a program")?;
    loop {
        if let Err(interrupted) = setup.interrupt.check() {
            end(pid, child)?;
            return Err(interrupted);
        }
        match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&CHECK)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error).context("cannot wait for a program"),
        }
    }
}

/// Kills the child with all that it started, and waits until they have ended.
fn end(pid: Pid, child: &mut Child) -> Result<()> {
    const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    const PAUSE_COUNT: usize = 2_000;
    // It may have ended at this moment.
    let _ended = kill_process_group(pid, Signal::KILL);
    child.wait()?;
    // Who is not our child cannot be waited for otherwise.
    for _ in 0..PAUSE_COUNT {
        if test_kill_process_group(pid).is_err() {
            break;
        }
        // A signal that ends the pause early does no harm.
        let _paused = poll(&mut [], Some(&PAUSE));
    }
    Ok(())
}

/// The first line that speaks of an error, or the last line.
fn reason(stderr: &str) -> &str {
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().next_back().unwrap_or("it says nothing");
    lines.find(|line| line.contains("error") || line.contains("ERROR")).unwrap_or(last)
}

/// Those of the programs that are not in `PATH`.
pub(super) fn missing(programs: &[&'static str]) -> Vec<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_here = |name: &str| {
        std::env::split_paths(&path).any(|dir| {
            let found = fs::metadata(dir.join(name));
            found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
    };
    programs.iter().copied().filter(|name| !is_here(name)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::Interrupt;
    use crate::versus::counts::Counts;

    fn setup() -> (Setup, Interrupt) {
        let interrupt = Interrupt::default();
        (Setup::new(Counts::QUICK, 1, false, interrupt.clone()).unwrap(), interrupt)
    }

    #[test]
    fn a_missing_program_is_named() {
        assert_eq!(missing(&["sh", "lanefs-has-no-such-program"]), ["lanefs-has-no-such-program"]);
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let (setup, _) = setup();
        for (script, part) in [
            ("echo first >&2; echo last >&2; exit 3", "exit status: 3: last"),
            ("echo 1: error >&2; echo last >&2; exit 1", "exit status: 1: 1: error"),
            ("exit 1", "it says nothing"),
        ] {
            let ended = run(&setup, Command::new("sh").args(["-c", script]));
            let error = ended.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn an_interrupt_ends_a_program_and_what_it_started() {
        let (setup, interrupt) = setup();
        let pid_file = setup.scratch().join("pid");
        let script = "sleep 1000 & echo $! > \"$1\"; wait";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&pid_file);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                while fs::read_to_string(&pid_file).unwrap_or_default().trim().is_empty() {
                    std::thread::yield_now();
                }
                interrupt.set();
            });
            run(&setup, &mut command).unwrap_err().to_string()
        });
        assert!(error.contains("interrupted"), "{error}");
        let pid = fs::read_to_string(&pid_file).unwrap();
        // What is killed may still wait to be reaped.
        let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z"), "{state}");
    }
}
