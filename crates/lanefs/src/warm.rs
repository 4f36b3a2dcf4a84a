//! `lanefs warm`: reads names, attributes and contents on a mount ahead, so that its caches have them.
//!
//! It goes through a tree twice. The first time it learns names, attributes and how much there is; the
//! second time, which costs little, it reads the contents. Invariant: a thread that waits for a server does not
//! keep the process from ending.

mod pool;
mod walk;

use crate::exit::{Code, Exit};
use crate::{args, mounts, out, signals};
use anyhow::{Context as _, Result, bail};
use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use pool::Pool;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use walk::{Counts, Pass, Walk};

/// How often the progress is drawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);
/// So long is waited for counts after a signal: threads may wait for a server.
const END_WAIT: Duration = Duration::from_secs(1);

/// What the command waits for.
enum Event {
    /// All paths are done; whether anything failed.
    Done(bool),
    Signal(i32),
}

/// Runs the command.
pub(crate) fn run(args: &args::Warm) -> Result<()> {
    let (sender, events) = channel();
    let on_signal = sender.clone();
    signals::on_ending(move |signal| {
        // Nobody listens any more when the process is about to end.
        let _unheard = on_signal.send(Event::Signal(signal));
    })?;
    let stopped = Arc::new(AtomicBool::new(false));
    let (paths, stops) = (args.clone(), stopped.clone());
    let thread = std::thread::Builder::new().name("warm".to_owned());
    let started = thread.spawn(move || {
        // Nobody listens any more when the process is about to end.
        let _unheard = sender.send(Event::Done(warm_all(&paths, &stops)));
    });
    started.context("cannot start a thread")?;
    match events.recv()? {
        Event::Done(false) => Ok(()),
        Event::Done(true) => Err(Exit::said(Code::Failed).into()),
        Event::Signal(signal) => {
            stopped.store(true, Ordering::Relaxed);
            // Then its counts are printed; if there are none in time, the process ends without.
            let _in_time = events.recv_timeout(END_WAIT);
            out::print_error_line("lanefs warm: interrupted");
            signal_hook::low_level::emulate_default_handler(signal)?;
            Err(Exit::said(Code::Failed).into())
        }
    }
}

/// Warms all paths; whether anything failed.
fn warm_all(args: &args::Warm, stopped: &Arc<AtomicBool>) -> bool {
    let mut failed = false;
    for path in &args.paths {
        if stopped.load(Ordering::Relaxed) {
            break;
        }
        match warm(path, args, stopped) {
            Ok(counts) => failed |= counts.failure_count > 0,
            Err(error) => {
                out::print_error_line(&format!("lanefs warm: {error:#}"));
                failed = true;
            }
        }
    }
    failed
}

/// Warms one path, and prints its counts.
fn warm(path: &Path, args: &args::Warm, stopped: &Arc<AtomicBool>) -> Result<Counts> {
    let device = device_of(path)?;
    let begin = Instant::now();
    let bar = ProgressBar::new_spinner();
    set_style(&bar, "{spinner} {wide_msg}");
    let go = |kind| pass((path, &bar), Walk::new(device, kind), args.jobs, stopped);
    let mut counts = go(Pass::Names)?;
    if !args.names_only {
        set_style(&bar, "{bytes}/{total_bytes} {bytes_per_sec} {eta} {wide_msg}");
        bar.set_length(counts.size_bytes);
        counts = go(Pass::Contents)?;
    }
    bar.finish_and_clear();
    tell(path, &counts, begin.elapsed())?;
    Ok(counts)
}

/// The device number of a path that lies on a mount of lanefs.
fn device_of(path: &Path) -> Result<u64> {
    let shown = path.display();
    let found = path.symlink_metadata().with_context(|| shown.to_string())?;
    let number = format!("{}:{}", rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let Some(mounted) = mounts::of_device(&number)? else {
        bail!("{shown} does not lie on a mount of lanefs");
    };
    if !mounted.options.split(',').any(|option| option == "default_permissions") {
        bail!("{shown} lies on a mount with --leases off, which keeps nothing that is read ahead");
    }
    Ok(found.dev())
}

/// Goes through the tree once, with threads of its own.
fn pass(
    (path, bar): (&Path, &ProgressBar),
    walk: Walk,
    job_count: u16,
    stopped: &Arc<AtomicBool>,
) -> Result<Counts> {
    let pool = Pool::start(walk, path.to_owned(), job_count, stopped.clone())?;
    while !pool.wait(DRAW_INTERVAL) {
        draw(bar, &pool.walk().counts());
    }
    Ok(pool.walk().counts())
}

fn set_style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

fn draw(bar: &ProgressBar, counts: &Counts) {
    bar.set_position(counts.read_bytes);
    bar.set_message(format!("{} directories, {} files", counts.dir_count, counts.file_count));
    bar.tick();
}

/// The counts of a path, and its failures.
fn tell(path: &Path, counts: &Counts, took: Duration) -> Result<()> {
    let shown = path.display();
    for failure in &counts.failures {
        out::print_error_line(&format!("lanefs warm: {failure}"));
    }
    let unnamed_count = counts.failure_count.saturating_sub(counts.failures.len() as u64);
    if unnamed_count > 0 {
        out::print_error_line(&format!("lanefs warm: {shown}: {unnamed_count} more failures"));
    }
    let Counts {
        dir_count, file_count, other_count, left_count, read_bytes, failure_count, ..
    } = counts;
    let left = match left_count {
        0 => String::new(),
        count => format!(", {count} on other file systems left alone"),
    };
    let line = format!(
        "{shown}: {dir_count} directories, {file_count} files, {other_count} others, {} read in {:.1} s\
         {left}, {failure_count} failures\n",
        BinaryBytes(*read_bytes),
        took.as_secs_f64()
    );
    out::print_bytes(line.as_bytes())
}
