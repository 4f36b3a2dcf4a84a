//! The registry as several processes change it at random: an etcd in memory that loses answers, ends
//! leases, compacts its history and is restored from an older copy, also of before joins and drains,
//! while servers join, start, die, are drained, and are started from copies of their stores.
//!
//! The servers are the product's state machines ([`Start`], [`Keep`], [`Following`]). A change is what it is
//! in the product: everything is read, the writes follow from it ([`Cluster`]), and a transaction makes
//! them if no entry has changed since. Between two calls of a process others act.
#![allow(clippy::unwrap_used, missing_docs)]

mod rng;
mod run;

use run::{Counts, Faults, Run};

const ACT_COUNT: usize = 400;

fn run(seed: u64, faults: Faults) -> Result<Counts, String> {
    let mut run = Run::new(seed, faults);
    (0..ACT_COUNT).try_for_each(|_| run.act())?;
    if faults == Faults::None {
        run.settle()?;
    }
    Ok(run.counts)
}

#[test]
fn servers_that_come_and_go_agree_whatever_etcd_does() {
    let mut all = Counts::default();
    for seed in 100..140 {
        let found = run(seed, Faults::None);
        let counts = found.unwrap_or_else(|line| panic!("seed {seed}: {line}"));
        all.starts += counts.starts;
        all.joins += counts.joins;
        all.conflicts += counts.conflicts;
        all.copies += counts.copies;
        all.refused += counts.refused;
        all.waits += counts.waits;
        all.overtaken += counts.overtaken;
        all.restores += counts.restores;
        all.compacted += counts.compacted;
        all.lost += counts.lost;
    }
    let Counts { starts, joins, conflicts, copies, .. } = all;
    let Counts { refused, waits, overtaken, restores, compacted, lost, .. } = all;
    assert!(starts > 200 && joins > 80 && conflicts > 40, "{all:?}");
    assert!(copies > 10 && refused > 40 && waits > 40 && overtaken > 10, "{all:?}");
    assert!(restores > 10 && compacted > 20 && lost > 10, "{all:?}");
}

/// Servers that know different generations of one number say so, and none of them uses the other's.
#[test]
fn a_drain_before_the_lost_ones_are_back_is_refused_by_servers_that_know_them() {
    let runs = (100..140).map(|seed| run(seed, Faults::Impatient));
    let differs = runs.map(|counts| counts.unwrap_or_else(|line| panic!("{line}")).differs);
    assert!(differs.sum::<usize>() > 10);
}

fn finds(faults: Faults, what: &str) {
    let mut lines = (0..40).filter_map(|seed| run(seed, faults).err());
    assert!(lines.any(|line| line.contains(what)), "{what} is not found");
}

#[test]
fn without_comparing_versions_two_servers_get_one_id() {
    finds(Faults::AddsUncompared, "is given to");
}

#[test]
fn without_comparing_versions_two_copies_of_a_store_start() {
    finds(Faults::StartsUncompared, "two starts");
}

/// Without a higher revision, the epochs of before are given to other maps.
#[test]
fn an_etcd_that_is_restored_with_its_old_revision_is_found() {
    finds(Faults::OldRevision, "two maps");
}

/// Without what stores remember, servers start with a registry that has lost generations.
#[test]
fn stores_that_forget_what_was_used_are_found() {
    finds(Faults::Forgetful, "has lost what is in");
}
