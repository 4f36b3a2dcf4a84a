//! Runs many seeds on all CPUs until their time or number is over or a seed shows a violation.

use crate::plan::Injection;
use crate::run::run;
use std::cell::RefCell;
use std::fmt;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
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
    elsewhere_count: u64,
    opened_count: u64,
    elapsed: Duration,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed_count, call_count, crash_count, .. } = self;
        let Self { elsewhere_count, opened_count, elapsed, .. } = self;
        let seconds = elapsed.as_secs_f64();
        write!(
            f,
            "{seconds:.0} s: {seed_count} seeds, each run twice; {call_count} calls, {crash_count} \
             server crashes, {elsewhere_count} early changes at another shard than the parent's, \
             {opened_count} opened files that may be written early"
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
    elsewhere_count: AtomicU64,
    opened_count: AtomicU64,
}

impl Tally {
    fn counts(&self, begun: Instant) -> Counts {
        Counts {
            seed_count: self.seed_count.load(Ordering::Relaxed),
            call_count: self.call_count.load(Ordering::Relaxed),
            crash_count: self.crash_count.load(Ordering::Relaxed),
            elsewhere_count: self.elsewhere_count.load(Ordering::Relaxed),
            opened_count: self.opened_count.load(Ordering::Relaxed),
            elapsed: begun.elapsed(),
        }
    }
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
    tally.elsewhere_count.fetch_add(first.elsewhere_count, Ordering::Relaxed);
    tally.opened_count.fetch_add(first.opened_count, Ordering::Relaxed);
    let run_hash = first.run_hash;
    if first != second {
        let line = format!("two runs differ: {first:?} and {second:?}");
        return Verdict { run_hash, violation: Some(line) };
    }
    Verdict { run_hash, violation: first.violation }
}

/// A seed takes a few milliseconds, and on a machine that is busy with other work up to some seconds.
/// One that takes this long repeats something for ever inside one turn of a lane, where no count of
/// events ends it.
const ENDLESS_AFTER: Duration = Duration::from_secs(120);

/// What a worker does: the seed that it runs, and since when.
type Work = Arc<Mutex<(u64, Instant)>>;

/// How many seeds are run.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// As many as begin in this time.
    Time(Duration),
    /// So many, however long they take.
    Count(u64),
}

impl Until {
    /// Whether the seed after `count` others is run.
    fn has(self, count: u64, begun: Instant) -> bool {
        match self {
            Self::Time(time) => begun.elapsed() < time,
            Self::Count(all) => count < all,
        }
    }
}

/// Runs seeds from `first` on, on all CPUs; returns the first violation with its seed. A seed that
/// does not end is a violation too; its thread ends with the process.
pub fn search(
    first: u64,
    until: Until,
    injection: Option<Injection>,
    mut report: impl FnMut(&Counts),
) -> Option<(u64, String)> {
    const REPORT_EVERY: Duration = Duration::from_secs(10);
    const POLL_EVERY: Duration = Duration::from_millis(20);
    let begun = Instant::now();
    let next = Arc::new(AtomicU64::new(first));
    let tally = Arc::new(Tally::default());
    let (found, violations) = mpsc::channel();
    let run_seeds = |work: Work| {
        let (next, tally, found) = (Arc::clone(&next), Arc::clone(&tally), found.clone());
        move || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if !until.has(seed - first, begun) {
                    return;
                }
                *lock(&work) = (seed, Instant::now());
                if let Some(line) = try_counted(seed, injection, &tally).violation {
                    // Nobody receives it once another violation is known.
                    found.send((seed, line)).unwrap_or_default();
                    return;
                }
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let workers: Vec<_> = (0..cores)
        .map(|_| {
            let work: Work = Arc::new(Mutex::new((first, begun)));
            (thread::spawn(run_seeds(Arc::clone(&work))), work)
        })
        .collect();
    let mut reported = begun;
    let violation = loop {
        if let Ok(violation) = violations.recv_timeout(POLL_EVERY) {
            break Some(violation);
        }
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            report(&tally.counts(begun));
        }
        if workers.iter().all(|(thread, _)| thread.is_finished()) {
            break violations.try_recv().ok();
        }
        let running = workers.iter().filter(|(thread, _)| !thread.is_finished());
        let mut seeds = running.map(|(_, work)| *lock(work));
        if let Some((seed, _)) = seeds.find(|(_, at)| at.elapsed() > ENDLESS_AFTER) {
            break Some((seed, "a turn of a lane does not end".to_owned()));
        }
    };
    report(&tally.counts(begun));
    violation
}

fn lock(work: &Work) -> MutexGuard<'_, (u64, Instant)> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}
