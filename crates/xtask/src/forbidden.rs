//! `cargo xtask no-io-uring`: runs a command without io_uring, as in many containers.
//!
//! Invariant: the kernel's seccomp filter applies to all processes that the command starts.
//! `FORBIDDEN` tells tests about it, which verify it.

use crate::run::inside;
use anyhow::{Context as _, Result, bail};
use ring::forbidden::{FORBIDDEN, forbid_io_uring};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes the command.
pub(crate) fn run_command(words: &[OsString]) -> Result<()> {
    let [program, arguments @ ..] = words else { bail!("no command") };
    forbid_io_uring().context("this kernel knows no seccomp filters")?;
    let error = Command::new(program).args(arguments).env(FORBIDDEN, "1").exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// The same command, without io_uring.
pub(crate) fn without_io_uring(command: &Command) -> Result<Command> {
    let me = std::env::current_exe().context("cannot tell where this program lies")?;
    let mut outer = Command::new(me);
    outer.args(["no-io-uring", "--"]);
    Ok(inside(outer, command))
}
