//! Going to the background: the command starts itself again in a new session, shows the child's
//! output until the child is ready or has failed, and exits.
//!
//! ```text
//! foreground ── starts ──▶ background (--in-background LOG), its output in a pipe
//!     ◀── lines, copied to the terminal and to LOG ──
//!     ◀── READY ──          from here on the background writes to LOG itself (READY CODE: with that exit code)
//! ```

use crate::exit::{Code, Exit};
use crate::{notify, out, signals};
use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The line that reports readiness. Text after it is the last output of the command.
const READY: &str = "READY";

/// A program that is this one, even when its file was replaced meanwhile.
pub(crate) fn myself() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("lanefs");
    command
}

/// Starts this command line again in the background and waits until it is ready.
pub(crate) fn launch(log: &Path) -> Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    launch_with(&arguments, log, true)
}

/// Starts a command line in the background and waits until it is ready. Not `talkative`: only
/// what goes wrong is shown.
pub(crate) fn launch_with(arguments: &[OsString], log: &Path, talkative: bool) -> Result<()> {
    let mut log_file = open_log(log)?;
    let (from_child, to_us) = std::io::pipe()?;
    let errors = if talkative { Stdio::from(to_us.try_clone()?) } else { Stdio::inherit() };
    let mut child = spawn(arguments, log, (to_us, errors))?;
    let pid = Pid::from_child(&child);
    let guard = signals::on_ending(move |_| {
        // It may have ended by itself already.
        let _ended = kill_process(pid, Signal::TERM);
    })?;
    let mut ready = None;
    for line in BufReader::new(from_child).split(b'\n') {
        let line = line.context("cannot hear the background process")?;
        let line = String::from_utf8_lossy(&line);
        if let Some(code) = line.strip_prefix(READY) {
            ready = Some(code_of(code.trim().parse().ok()));
            break;
        }
        writeln!(log_file, "{line}").with_context(|| format!("cannot write {}", log.display()))?;
        if talkative {
            out::print_line(&line);
        }
    }
    guard.close();
    if let Some(code) = ready {
        notify::ready_in_background(child.id());
        if talkative {
            out::print_line(&format!("background process {}, log {}", child.id(), log.display()));
        }
        return code.map_or(Ok(()), |code| Err(Exit::said(code).into()));
    }
    let status = child.wait()?;
    let code = code_of(status.code()).unwrap_or(Code::Failed);
    let line = if talkative { "the background process did not start" } else { "" };
    Err(Exit::new(code, line).into())
}

/// The code of ours that a number means; none is that of what worked.
const fn code_of(number: Option<i32>) -> Option<Code> {
    match number {
        None | Some(0) => None,
        Some(3) => Some(Code::Unreachable),
        Some(4) => Some(Code::Secret),
        Some(5) => Some(Code::CannotMount),
        Some(_) => Some(Code::Failed),
    }
}

fn spawn(
    arguments: &[OsString],
    log: &Path,
    (to_us, errors): (std::io::PipeWriter, Stdio),
) -> Result<Child> {
    let (command_name, rest) = arguments.split_first().context("no command")?;
    let mut command = myself();
    command.arg(command_name).arg("--in-background").arg(log).args(rest);
    command.stdin(Stdio::null()).stderr(errors).stdout(to_us);
    command.spawn().context("cannot start the background process")
}

fn open_log(log: &Path) -> Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(log);
    opened.with_context(|| format!("cannot open the log {}", log.display()))
}

/// In the background process: leaves the terminal's session.
pub(crate) fn begin() -> Result<()> {
    rustix::process::setsid().context("cannot leave the session")?;
    Ok(())
}

/// In the background process: everything runs, and the command that began it ends with `code`, if that is not 0;
/// from here on all output goes to `log`.
pub(crate) fn ready(log: &Path, code: Option<Code>) -> Result<()> {
    let file = open_log(log)?;
    crate::log::flush();
    match code {
        None => out::print_line(READY),
        Some(code) => out::print_line(&format!("{READY} {}", code.number())),
    }
    crate::log::to_background();
    rustix::stdio::dup2_stdout(&file)?;
    rustix::stdio::dup2_stderr(&file)?;
    Ok(())
}

/// `path` with something behind its last name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
