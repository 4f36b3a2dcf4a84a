//! The simulator finds faults: each injected fault and each removed rule of the protocol is found
//! within a bounded number of seeds, and the control runs, with the rule in force, find nothing.
//!
//! Each fault and rule is a test of its own, on one CPU; the test runner runs them in parallel. The
//! controls cost most: a sixth of them runs, which one `LANEFS_TEST_ROLL` chooses; with
//! `LANEFS_TEST_LONG=1` all do.

use sim::{Injection, run};
use std::panic::catch_unwind;

/// Runs within which a fault must be found.
const RUN_COUNT_MAX: u64 = 30_000;

/// Runs `count` seeds from `first` on until one shows a violation.
fn find(injection: Injection, first: u64, count: u64) -> Option<String> {
    (first..first + count).find_map(|seed| {
        let violation = catch_unwind(|| run(seed, Some(injection)).violation)
            .unwrap_or_else(|_| Some("it panics".to_owned()));
        let line =
            |violation| format!("cargo xtask sim --seed {seed} {}: {violation}", injection.flag());
        violation.map(line)
    })
}

fn is_found(injection: Injection, first: u64) {
    match find(injection, first, RUN_COUNT_MAX) {
        Some(line) => println!("{line}"),
        None => {
            panic!("{}: nothing was found in {RUN_COUNT_MAX} runs from {first}", injection.flag())
        }
    }
}

macro_rules! injected_faults {
    ($($test:ident $fault:ident,)*) => {
        mod an_injected_fault_is_found {
            use super::*;

            $(#[test]
            fn $test() {
                is_found(Injection::$fault, 1);
            })*
        }

        #[test]
        fn every_injected_fault_has_its_test() {
            let tested = [$(Injection::$fault,)*];
            assert_eq!(tested, Injection::INJECTED.map(|(injection, _)| injection));
        }
    };
}

injected_faults! {
    lost_batch LostBatch,
    lost_resend LostResend,
    lost_sync LostSync,
}

#[cfg(feature = "removable-rules")]
mod rules {
    use super::*;
    use sim::Rule;
    use std::io::Write as _;

    /// Control runs of a rule, in the long and the short form.
    const CONTROL_COUNT: u64 = 5_000;
    const CONTROL_COUNT_SHORT: u64 = 2_000;
    /// The short form runs one of so many parts of the controls.
    const PART_COUNT: u64 = 6;

    /// The search for rules whose absence few runs show begins near one that does. If a change of the
    /// code has made another run of that seed, it goes on from there.
    const FIRST_SEEDS: [(Rule, u64); 15] = [
        (Rule::AppendReopened, 683),
        (Rule::CutEndFirst, 1_939),
        (Rule::CutPages, 369),
        (Rule::CutsDurable, 235),
        (Rule::LooksWait, 865),
        (Rule::MergePeerLanes, 541),
        (Rule::NewInodeLocked, 1_123),
        (Rule::OldConnectionEnded, 2_010),
        (Rule::PageParts, 1_368),
        (Rule::PeerOnce, 2_677),
        (Rule::SettleAsked, 7_900),
        (Rule::SettleDurable, 1_044_900),
        (Rule::SyncParts, 536),
        (Rule::Topology, 980),
        (Rule::TwoPhaseOrder, 1_635),
    ];

    fn is_found_without(rule: Rule) {
        let near = FIRST_SEEDS.iter().find(|(rare, _)| *rare == rule);
        is_found(Injection::Rule(rule), near.map_or(1, |(_, seed)| *seed));
    }

    fn control_runs_find_nothing(rule: Rule) {
        let index = Rule::ALL.iter().position(|(known, _)| *known == rule).unwrap_or_default();
        let part = u64::try_from(index).unwrap_or_default() % PART_COUNT;
        let is_long = std::env::var("LANEFS_TEST_LONG").is_ok_and(|long| long == "1");
        let roll = std::env::var("LANEFS_TEST_ROLL").ok().map_or(0, |roll| match roll.parse() {
            Ok(roll) => roll,
            Err(error) => panic!("LANEFS_TEST_ROLL is {roll:?}: {error}"),
        });
        let (flag, roll_part) = (Injection::Control(rule).flag(), roll % PART_COUNT);
        // Each run of these takes as long as ten others.
        let is_long_run = matches!(rule, Rule::CutPages | Rule::PageParts | Rule::FenceTold);
        let count = if is_long { CONTROL_COUNT } else { CONTROL_COUNT_SHORT };
        let count = if is_long_run { count / 5 } else { count };
        if !is_long && part != roll_part {
            return skip(
                &format!("{count} runs with {flag}"),
                &format!(
                    "with LANEFS_TEST_LONG=1 or LANEFS_TEST_ROLL={part} (modulo {PART_COUNT}) \
                     they run"
                ),
            );
        }
        assert_eq!(find(Injection::Control(rule), 1, count), None);
    }

    /// Records what was skipped, for `cargo xtask ci`.
    fn skip(what: &str, why: &str) {
        eprintln!("SKIPPED {what}: {why}");
        let Some(path) = std::env::var_os("LANEFS_SKIPPED_FILE") else { return };
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        let line = format!("{what}: {why}\n");
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{written:?}: {line}");
    }

    macro_rules! rules {
        ($($test:ident $rule:ident,)*) => {
            mod a_removed_rule_is_found {
                use super::*;

                $(#[test]
                fn $test() {
                    is_found_without(Rule::$rule);
                })*
            }

            mod control_runs_of_a_rule_find_nothing {
                use super::*;

                $(#[test]
                fn $test() {
                    control_runs_find_nothing(Rule::$rule);
                })*
            }

            #[test]
            fn every_rule_has_its_tests() {
                let tested = [$(Rule::$rule,)*];
                let all = Rule::ALL.iter().map(|(rule, _)| *rule);
                // Without it a call waits longer, and not for ever: crates/lane/src/tests/leases
                // removes it.
                let here = all.filter(|rule| *rule != Rule::LeaseWaiter);
                assert!(here.eq(tested), "{tested:?}");
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
        session_shards SessionShards,
        late_replies LateReplies,
        lists_whole ListsWhole,
        verify_contents VerifyContents,
        verify_evicted VerifyEvicted,
        overwrite_intent OverwriteIntent,
        parties Parties,
        peer_once PeerOnce,
        peer_resend PeerResend,
        lease_recall LeaseRecall,
        lease_late_grant LeaseLateGrant,
        lease_term LeaseTerm,
        lease_reconnect LeaseReconnect,
        lease_restart LeaseRestart,
        known_names KnownNames,
        named_inodes NamedInodes,
        own_changes OwnChanges,
        lease_pages LeasePages,
        cut_pages CutPages,
        page_parts PageParts,
        write_behind WriteBehind,
        write_opened WriteOpened,
        contents_flush ContentsFlush,
        contents_order ContentsOrder,
        prepared_kept PreparedKept,
        decided_kept DecidedKept,
        outcome_asked OutcomeAsked,
        presumed_abort PresumedAbort,
        locks_released LocksReleased,
        undecided_given_up UndecidedGivenUp,
        connection_anew ConnectionAnew,
        new_inode_locked NewInodeLocked,
        append_fenced AppendFenced,
        append_closes AppendCloses,
        append_reopened AppendReopened,
        cut_end_first CutEndFirst,
        cuts_durable CutsDurable,
        looks_wait LooksWait,
        sync_parts SyncParts,
        read_again ReadAgain,
        narrow_refused NarrowRefused,
        old_connection_ended OldConnectionEnded,
        local_registered LocalRegistered,
        local_written LocalWritten,
        map_awaited MapAwaited,
        bits_told BitsTold,
        fence_told FenceTold,
        abandoned_ended AbandonedEnded,
        settle_behind_cuts SettleBehindCuts,
        cut_once CutOnce,
        cut_home_once CutHomeOnce,
        peer_lane_received PeerLaneReceived,
        log_first LogFirst,
    }
}
