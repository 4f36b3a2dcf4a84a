//! Seeds that once showed a violation must not show one again.
#![allow(clippy::unwrap_used)]

use sim::{Until, Verdict, run, search, try_seed};

/// The regression list: a seed and the violation it showed.
const SEEDS: &str = include_str!("../seeds.txt");

fn seeds() -> impl Iterator<Item = u64> {
    let lines = SEEDS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn seeds_that_showed_a_violation_show_none() {
    for seed in seeds() {
        let Verdict { violation, .. } = try_seed(seed, None);
        assert_eq!(violation, None, "cargo xtask sim --seed {seed}");
    }
}

#[test]
fn different_seeds_are_different_runs() {
    let one = try_seed(1, None);
    let two = try_seed(2, None);
    assert_eq!((&one.violation, &two.violation), (&None, &None));
    assert_ne!(one.run_hash, two.run_hash);
    assert_eq!(one, try_seed(1, None), "the same seed is the same run");
}

#[test]
fn names_are_changed_early_in_directories_at_another_shard_than_their_parents() {
    let has_any = (1..=400).any(|seed| run(seed, None).elsewhere_count > 0);
    assert!(has_any, "no seed shows what is right there");
}

#[test]
fn so_many_fresh_seeds_are_run_as_are_asked_for() {
    let mut lines = Vec::new();
    let found = search(1, Until::Count(5), None, |counts| lines.push(counts.to_string()));
    assert_eq!(found, None);
    assert!(lines.last().unwrap().contains(" 5 seeds,"), "{lines:?}");
}
