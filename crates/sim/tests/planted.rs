//! The simulator can fail: faults put into its world, and rules of the protocol taken away, are
//! found by their seeds; and what the same seeds find while the rules hold is nothing.
//!
//! Each fault and rule is a test of its own, on one core: a failure names it, and whoever runs the
//! tests spreads them. The controls cost most: a third of them runs, the one that `LANEFS_TEST_ROLL`
//! says, and all with `LANEFS_TEST_LONG=1`.

use sim::{Planted, run};
use std::panic::catch_unwind;

/// Runs that a fault may take to be found.
const RUN_COUNT_MAX: u64 = 30_000;

/// The first seeds up to `count`, until one shows a violation.
fn find(planted: Planted, count: u64) -> Option<String> {
    (1..=count).find_map(|seed| {
        let violation = catch_unwind(|| run(seed, Some(planted)).violation)
            .unwrap_or_else(|_| Some("it panics".to_owned()));
        let line =
            |violation| format!("cargo xtask sim --seed {seed} {}: {violation}", planted.flag());
        violation.map(line)
    })
}

fn is_found(planted: Planted) {
    match find(planted, RUN_COUNT_MAX) {
        Some(line) => println!("{line}"),
        None => panic!("{}: nothing was found in {RUN_COUNT_MAX} runs", planted.flag()),
    }
}

macro_rules! faults_of_the_world {
    ($($test:ident $fault:ident,)*) => {
        mod a_fault_put_into_the_world_is_found {
            use super::*;

            $(#[test]
            fn $test() {
                is_found(Planted::$fault);
            })*
        }

        #[test]
        fn every_fault_of_the_world_has_its_test() {
            let tested = [$(Planted::$fault,)*];
            assert_eq!(tested, Planted::INJECTED.map(|(planted, _)| planted));
        }
    };
}

faults_of_the_world! {
    lost_batch LostBatch,
    lost_resend LostResend,
    lost_sync LostSync,
}

#[cfg(feature = "planted")]
mod rules {
    use super::*;
    use sim::Rule;
    use std::io::Write as _;

    /// Runs of each rule's plan, with the rule.
    const CONTROL_COUNT: u64 = 5_000;
    /// A short form makes one of so many parts of the controls.
    const PART_COUNT: u64 = 3;

    fn is_missed(rule: Rule) {
        is_found(Planted::Rule(rule));
    }

    fn is_not_missed_while_it_holds(rule: Rule) {
        let index = Rule::ALL.iter().position(|(known, _)| *known == rule).unwrap_or_default();
        let part = u64::try_from(index).unwrap_or_default() % PART_COUNT;
        let is_long = std::env::var("LANEFS_TEST_LONG").is_ok_and(|long| long == "1");
        let roll = std::env::var("LANEFS_TEST_ROLL").ok().map_or(0, |roll| match roll.parse() {
            Ok(roll) => roll,
            Err(error) => panic!("LANEFS_TEST_ROLL is {roll:?}: {error}"),
        });
        let (flag, roll_part) = (Planted::Control(rule).flag(), roll % PART_COUNT);
        if !is_long && part != roll_part {
            return skip(
                &format!("{CONTROL_COUNT} runs with {flag}"),
                &format!(
                    "with LANEFS_TEST_LONG=1 or LANEFS_TEST_ROLL={part} (modulo {PART_COUNT}) \
                     they are made"
                ),
            );
        }
        assert_eq!(find(Planted::Control(rule), CONTROL_COUNT), None);
    }

    /// Says what was left out, where `cargo xtask ci` reads it.
    fn skip(what: &str, why: &str) {
        eprintln!("SKIPPED {what}: {why}");
        let Some(path) = std::env::var_os("LANEFS_SKIPPED_FILE") else { return };
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        let line = format!("{what}: {why}\n");
        let said = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(said.is_ok(), "{said:?}: {line}");
    }

    macro_rules! rules {
        ($($test:ident $rule:ident,)*) => {
            mod a_rule_that_is_taken_away_is_missed {
                use super::*;

                $(#[test]
                fn $test() {
                    is_missed(Rule::$rule);
                })*
            }

            mod a_rule_that_holds_is_not_missed {
                use super::*;

                $(#[test]
                fn $test() {
                    is_not_missed_while_it_holds(Rule::$rule);
                })*
            }

            #[test]
            fn every_rule_has_its_tests() {
                let tested = [$(Rule::$rule,)*];
                assert!(Rule::ALL.iter().map(|(rule, _)| *rule).eq(tested), "{tested:?}");
            }
        };
    }

    rules! {
        own_unacked OwnUnacked,
        tombstones Tombstones,
        entries_second EntriesSecond,
        entries_cumulative EntriesCumulative,
        exist_marks ExistMarks,
        topology Topology,
        merge_peer_lanes MergePeerLanes,
        s3_flush S3Flush,
        off_unacked OffUnacked,
        size_flag SizeFlag,
        settle_durable SettleDurable,
        settle_asked SettleAsked,
        two_phase_order TwoPhaseOrder,
        drain_peer_lanes DrainPeerLanes,
        late_replies LateReplies,
        lists_whole ListsWhole,
        verify_contents VerifyContents,
        verify_evicted VerifyEvicted,
        overwrite_intent OverwriteIntent,
        parties Parties,
    }
}
