//! `lanefs profile MOUNTPOINT`: who uses a mount, and where: requests of the kernel by process and path prefix,
//! for some seconds.
//!
//! The mount records while it is asked to, again and again (`wire::Question::Record`), so that it ends
//! with this process. Names of processes are read here, from /proc, while they run; names of paths are asked
//! of the mount, which asks nobody.

mod text;
mod uses;

use crate::exit::{Code, Exit};
use crate::paths::Paths;
use crate::processes::Processes;
use crate::running::Entry;
use crate::{args, control, out, signals};
use anyhow::{Context as _, Result};
use library::Snapshot;
use library::counters::{By, Label};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use uses::{Call, Recorded};
use wire::Question;

/// How often what was recorded is fetched: a process that ends sooner has no name.
const FETCH_INTERVAL: Duration = Duration::from_millis(200);
/// The mount stops to record so long after the last question.
const RECORD_MS: u32 = 5_000;

/// Runs the command.
pub(crate) fn run(args: &args::Profile) -> Result<()> {
    let line = || format!("{} is no mount of lanefs: `lanefs status` names all", args.mountpoint);
    let mount = control::mount_at(&args.mountpoint)?;
    let mount = mount.ok_or_else(|| Exit::new(Code::Failed, line()))?;
    let recorded = record(&mount, args.time)?;
    let uses = recorded.uses(args.depth.into());
    let text = if args.json {
        text::json(&uses, recorded.elapsed)?
    } else {
        text::table(&uses, &recorded, args.rows)
    };
    out::print_bytes(text.as_bytes())
}

fn record(mount: &Entry, time: Duration) -> Result<Recorded> {
    let (sender, ending) = channel();
    signals::on_ending(move |_| {
        // Nobody listens any more when the recording has ended.
        let _unheard = sender.send(());
    })?;
    let mut processes = Processes::default();
    let mut all = Snapshot::default();
    ask(mount, RECORD_MS)?;
    let begun_at = Instant::now();
    out::print_error_line(&format!(
        "recording {} for {}; Ctrl-C ends it sooner",
        mount.dir.as_deref().unwrap_or_default(),
        args::time_text(time)
    ));
    loop {
        let left = time.saturating_sub(begun_at.elapsed());
        let is_ended = ending.recv_timeout(left.min(FETCH_INTERVAL)).is_ok();
        let is_last = is_ended || begun_at.elapsed() >= time;
        let lanes = ask(mount, if is_last { 0 } else { RECORD_MS })?;
        let rows = lanes.iter().flat_map(|lane| lane.rows(By::Call));
        rows.filter_map(|row| uses::number(row, Label::Pid)).for_each(|pid| processes.see(pid));
        all = Snapshot::total(lanes.iter().chain([&all]));
        if is_last {
            break;
        }
    }
    let elapsed = begun_at.elapsed();
    let rows = all.rows(By::Call);
    let calls: Vec<Call> = rows.iter().map(Call::of).collect();
    let paths = Paths::of(mount, calls.iter().filter_map(|call| call.inode))?;
    Ok(Recorded { calls, processes, paths, elapsed })
}

/// Records on for so long. Returns what was recorded since the last question, by lane.
fn ask(mount: &Entry, record_ms: u32) -> Result<Vec<Snapshot>> {
    let answers = control::ask(mount, &Question::Record { record_ms }.encode())?;
    let read = |answer: &Vec<u8>| Snapshot::decode(answer).ok();
    let lanes: Option<Vec<Snapshot>> = answers.iter().map(read).collect();
    lanes.with_context(|| format!("the mount process {} has sent something else", mount.pid))
}
