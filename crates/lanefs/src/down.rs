//! `lanefs down DIR|ADDR`: stops `up`, `serve` or `mount`, and waits until it has ended.
//!
//! Invariant: no process is killed; each has its own time limits for its end.

use crate::running::{self, Entry, Found, Kind};
use crate::status::{Wanted, nothing_runs};
use crate::{args, mounts, out};
use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Signal, pidfd_send_signal};
use std::path::Path;

/// How long the end is waited for: `up` itself takes at most so long.
const END: Timespec = Timespec { tv_sec: 240, tv_nsec: 0 };

/// Runs the command.
pub(crate) fn run(args: &args::Down) -> Result<()> {
    let all = running::all()?;
    let ends = to_end(&all, &Wanted::of(&args.target));
    if ends.is_empty() {
        let mounted = mounts::absolute(Path::new(&args.target)).and_then(|dir| mounts::at(&dir));
        if mounted.is_ok_and(|mounted| mounted.is_some_and(|mounted| mounted.is_lanefs())) {
            let target = &args.target;
            bail!(
                "{target} is mounted by another user or machine; `lanefs umount {target}` unmounts it"
            );
        }
        return Err(nothing_runs(&args.target).into());
    }
    for found in ends {
        end(found)?;
    }
    Ok(())
}

/// What has to be asked: the `up` of what is meant, or that itself. A server's address does not mean those who have
/// mounted it.
fn to_end<'a>(all: &'a [Found], wanted: &Wanted) -> Vec<&'a Found> {
    let is_meant = |entry: &Entry| {
        let by_dir = Entry { address: None, ..entry.clone() };
        wanted.means(if entry.kind == Kind::Mount { &by_dir } else { entry })
    };
    let meant = all.iter().filter(|found| is_meant(&found.entry));
    let pids: Vec<u32> = meant.map(|found| found.entry.head_pid()).collect();
    all.iter().filter(|found| pids.contains(&found.entry.pid)).collect()
}

fn end(found: &Found) -> Result<()> {
    let Entry { kind, pid, log, .. } = &found.entry;
    let what = format!("{} process {pid}", kind.text());
    let process = found.open_process()?;
    let asked = pidfd_send_signal(&process, Signal::TERM);
    asked.with_context(|| format!("cannot end {what}"))?;
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    let count = retry_on_intr(|| poll(&mut ended, Some(&END)));
    if count.with_context(|| format!("cannot wait for {what}"))? == 0 {
        let log =
            log.as_ref().map_or_else(String::new, |log| format!("; {log} says what it waits for"));
        bail!("{what} was asked to end and still does{log}");
    }
    out::print_line(&format!("ended {what}"));
    Ok(())
}
