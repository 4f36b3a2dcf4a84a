//! The simulator can fail: faults put into its world, and rules of the protocol taken away, are
//! found by their seeds.

use sim::{Planted, run};

/// Runs that a fault may take to be found.
const RUN_COUNT_MAX: u64 = 12_000;

fn is_found(planted: Planted) -> bool {
    (1..=RUN_COUNT_MAX).any(|seed| run(seed, Some(planted)).violation.is_some())
}

#[test]
fn every_fault_put_into_the_world_is_found() {
    for (planted, name) in Planted::OF_WORLD {
        assert!(is_found(planted), "{name}: nothing was found in {RUN_COUNT_MAX} runs");
    }
}

/// Rules whose absence a few thousand runs show. The others of [`sim::Rule`] take longer:
/// `cargo xtask sim --plant NAME --seconds S` searches for them.
#[cfg(feature = "planted")]
#[test]
fn rules_that_are_taken_away_are_missed() {
    const NAMES: [&str; 6] = [
        "own-unacked",
        "tombstones",
        "topology",
        "merge-sisters",
        "off-unacked",
        "two-phase-order",
    ];
    for name in NAMES {
        assert!(
            Planted::named(name).is_some_and(is_found),
            "{name}: nothing was found in {RUN_COUNT_MAX} runs"
        );
    }
}
