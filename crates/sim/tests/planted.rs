//! The simulator can fail: faults put into its world are found by their seeds.

use sim::{Planted, run};

/// Runs that a fault may take to be found.
const RUN_COUNT_MAX: u64 = 3000;

#[test]
fn every_fault_put_into_the_world_is_found() {
    for (planted, name) in Planted::ALL {
        let found = (1..=RUN_COUNT_MAX).find(|seed| run(*seed, Some(planted)).violation.is_some());
        assert!(found.is_some(), "{name}: nothing was found in {RUN_COUNT_MAX} runs");
    }
}
