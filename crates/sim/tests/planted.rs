//! The simulator can fail: faults put into its world, and rules of the protocol taken away, are
//! found by their seeds; and what the same seeds find while the rules hold is nothing.

use sim::{Planted, run};
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Runs that a fault may take to be found.
const RUN_COUNT_MAX: u64 = 12_000;

/// The first seeds up to `count`, on all cores, until one shows a violation.
fn find(planted: Planted, count: u64) -> Option<String> {
    let next = AtomicU64::new(1);
    let found = Mutex::new(None);
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > count {
                return;
            }
            let violation = catch_unwind(|| run(seed, Some(planted)).violation)
                .unwrap_or_else(|_| Some("it panics".to_owned()));
            if let Some(violation) = violation {
                next.store(count + 1, Ordering::Relaxed);
                let line = format!("cargo xtask sim --seed {seed} {}: {violation}", planted.flag());
                found.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(line);
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(worker))));
    found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[test]
fn every_fault_put_into_the_world_is_found() {
    for (planted, name) in Planted::OF_WORLD {
        let found = find(planted, RUN_COUNT_MAX);
        assert!(found.is_some(), "{name}: nothing was found in {RUN_COUNT_MAX} runs");
    }
}

#[cfg(feature = "planted")]
#[test]
fn every_rule_that_is_taken_away_is_missed() {
    for (rule, name) in sim::Rule::ALL {
        let found = find(Planted::Rule(*rule), RUN_COUNT_MAX);
        assert!(found.is_some(), "{name}: nothing was found in {RUN_COUNT_MAX} runs");
    }
}

#[cfg(feature = "planted")]
#[test]
fn no_rule_that_holds_is_missed() {
    /// Runs of each rule's plan, with the rule.
    const CONTROL_COUNT: u64 = 5_000;
    for (rule, _) in sim::Rule::ALL {
        assert_eq!(find(Planted::Control(*rule), CONTROL_COUNT), None);
    }
}
