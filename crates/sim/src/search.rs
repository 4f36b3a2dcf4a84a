//! Runs many seeds on all CPUs until the time is over or a seed shows a violation.

use crate::plan::Injection;
use crate::run::run;
use std::cell::RefCell;
use std::fmt;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The result of two runs of one seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// A hash over every event of the run.
    pub run_hash: u64,
    /// The first violated invariant.
    pub violation: Option<String>,
}

/// Progress so far.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    seed_count: u64,
    call_count: u64,
    crash_count: u64,
    elapsed: Duration,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed_count, call_count, crash_count, elapsed } = self;
        let seconds = elapsed.as_secs_f64();
        write!(
            f,
            "{seconds:.0} s: {seed_count} seeds, each run twice; {call_count} calls, {crash_count} \
             server crashes"
        )
    }
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Stores the message of a panic for the verdict instead of printing it.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANIC.with_borrow_mut(|last| *last = Some(panic.to_string()));
    }));
}

/// Runs a seed twice.
#[must_use]
pub fn try_seed(seed: u64, injection: Option<Injection>) -> Verdict {
    try_counted(seed, injection, &Tally::default())
}

#[derive(Default)]
struct Tally {
    seed_count: AtomicU64,
    call_count: AtomicU64,
    crash_count: AtomicU64,
}

fn try_counted(seed: u64, injection: Option<Injection>, tally: &Tally) -> Verdict {
    let caught = catch_unwind(|| (run(seed, injection), run(seed, injection)));
    let (first, second) = match caught {
        Ok(both) => both,
        Err(_) => {
            let line = PANIC.with_borrow_mut(Option::take).unwrap_or_default();
            return Verdict { run_hash: 0, violation: Some(format!("panic: {line}")) };
        }
    };
    tally.seed_count.fetch_add(1, Ordering::Relaxed);
    tally.call_count.fetch_add(first.call_count, Ordering::Relaxed);
    tally.crash_count.fetch_add(first.crash_count, Ordering::Relaxed);
    let run_hash = first.run_hash;
    if first != second {
        let line = format!("two runs differ: {first:?} and {second:?}");
        return Verdict { run_hash, violation: Some(line) };
    }
    Verdict { run_hash, violation: first.violation }
}

/// Runs seeds from `first` on, on all CPUs; returns the first violation with its seed.
pub fn search(
    first: u64,
    time: Duration,
    injection: Option<Injection>,
    mut report: impl FnMut(&Counts),
) -> Option<(u64, String)> {
    const REPORT_EVERY: Duration = Duration::from_secs(10);
    const POLL_EVERY: Duration = Duration::from_millis(20);
    let begun = Instant::now();
    let next = AtomicU64::new(first);
    let over = AtomicBool::new(false);
    let found = Mutex::new(None::<(u64, String)>);
    let tally = Tally::default();
    let counts = |tally: &Tally| Counts {
        seed_count: tally.seed_count.load(Ordering::Relaxed),
        call_count: tally.call_count.load(Ordering::Relaxed),
        crash_count: tally.crash_count.load(Ordering::Relaxed),
        elapsed: begun.elapsed(),
    };
    thread::scope(|scope| {
        let worker = || {
            while !over.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if let Some(line) = try_counted(seed, injection, &tally).violation {
                    over.store(true, Ordering::Relaxed);
                    if let Ok(mut found) = found.lock() {
                        found.get_or_insert((seed, line));
                    }
                }
            }
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        (0..cores).for_each(|_| drop(scope.spawn(worker)));
        let mut reported = begun;
        while !over.load(Ordering::Relaxed) && begun.elapsed() < time {
            thread::sleep(POLL_EVERY);
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                report(&counts(&tally));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    report(&counts(&tally));
    found.into_inner().ok().flatten()
}
