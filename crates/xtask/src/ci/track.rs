//! Tracks: lists of steps that run in parallel, each list in its order.
//!
//! Invariant: every step has an outcome, even if it was not run.

use super::step::{Outcome, Step};
use anyhow::{Result, anyhow};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// The steps of all tracks that have ended, in the order of their ends.
#[derive(Default)]
struct Ended {
    outcomes: Mutex<Vec<Outcome>>,
    one_more: Condvar,
}

/// Runs all steps of all tracks; continues after a failed one, so that one run shows all failures.
pub(crate) fn run_all(tracks: Vec<Vec<Step>>) -> Result<Vec<Outcome>> {
    let ended = Ended::default();
    thread::scope(|scope| {
        let threads: Vec<_> =
            tracks.into_iter().map(|steps| scope.spawn(|| ended.run_track(steps))).collect();
        threads.into_iter().try_for_each(|thread| thread.join())
    })
    .map_err(|_| anyhow!("a track of steps panicked"))?;
    Ok(ended.outcomes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Ended {
    fn run_track(&self, steps: Vec<Step>) {
        for step in steps {
            let outcome = match self.wait_for(step.after) {
                Ok(()) => {
                    println!("== {}", step.name);
                    step.run()
                }
                Err(failed) => Outcome::not_run(step.name, failed),
            };
            if let Some(failure) = &outcome.failure {
                eprintln!("{}: {failure}", outcome.name);
            }
            self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
            self.one_more.notify_all();
        }
    }

    /// Waits until all of these have ended; the first that failed is the error.
    fn wait_for(&self, names: &'static [&'static str]) -> Result<(), &'static str> {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            loop {
                match outcomes.iter().find(|outcome| outcome.name == *name) {
                    Some(outcome) if outcome.failure.is_some() => return Err(name),
                    Some(_) => break,
                    None => {}
                }
                outcomes = self.one_more.wait(outcomes).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_step_waits_for_another_track_and_is_not_run_after_a_failed_one() {
        let step = |name, program| Step::new(name, Command::new(program));
        let one = vec![step("track test, a", "true"), step("track test, b", "false")];
        let two = vec![
            step("track test, c", "true").after(&["track test, a"]),
            step("track test, d", "true").after(&["track test, b"]),
            step("track test, e", "true"),
        ];
        let outcomes = run_all(vec![two, one]).unwrap();
        let place = |name| outcomes.iter().position(|outcome| outcome.name == name).unwrap();
        assert!(place("track test, a") < place("track test, c"));
        assert!(place("track test, b") < place("track test, d"));
        let failed: Vec<_> =
            outcomes.iter().filter(|outcome| outcome.failure.is_some()).map(|o| o.name).collect();
        assert_eq!(failed, ["track test, b", "track test, d"]);
        assert_eq!(outcomes.len(), 5);
    }
}
