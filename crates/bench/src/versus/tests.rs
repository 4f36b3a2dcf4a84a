//! Every row runs, and what goes wrong is reported and costs the others nothing.
#![allow(clippy::unwrap_used)]

use super::*;
use std::fs;
use tempfile::TempDir;

/// A moment of each row, on two directories whose peers are they themselves.
fn versus(dirs: &[&TempDir], rows: &[&str]) -> Versus {
    let named = |(index, dir): (usize, &&TempDir)| (format!("dir{index}"), dir.path().to_owned());
    let dirs: Vec<Named> = dirs.iter().enumerate().map(named).collect();
    Versus {
        peers: dirs.clone(),
        dirs,
        baseline: None,
        rows: rows.iter().map(|row| (*row).to_owned()).collect(),
        round_count: 2,
        counts: Counts::QUICK,
        drop_caches: false,
        interrupt: Interrupt::default(),
    }
}

fn lines(versus: &Versus) -> Vec<Line> {
    let mut lines = Vec::new();
    versus
        .run(|row| {
            lines.extend_from_slice(row);
            Ok(())
        })
        .unwrap();
    lines
}

fn is_empty(dir: &TempDir) -> bool {
    fs::read_dir(dir.path()).unwrap().next().is_none()
}

/// What a row of a local file system says.
fn assert_measured(line: &Line) {
    if line.failure.as_ref().is_some_and(|failure| failure.starts_with("not installed")) {
        println!("{}: {:?}", line.row, line.failure);
        return;
    }
    assert_eq!(line.failure, None, "{line:?}");
    assert!(line.op_count.unwrap() > 0 && line.us_per_op.unwrap() > 0.0, "{line:?}");
    assert!(line.ratio.unwrap().is_finite() && line.spread.unwrap().is_finite(), "{line:?}");
    assert_eq!(line.rounds_us.len(), 2, "{line:?}");
    assert!(line.anomalies.values().all(|count| *count == 0), "{line:?}");
}

const BUILDS: [&str; 3] = ["g++", "cargo build", "pip install"];

#[test]
fn every_row_of_calls_trees_and_peers_runs_on_a_directory_and_on_itself() {
    let dir = TempDir::new().unwrap();
    let rows: Vec<&str> =
        Versus::row_names().into_iter().filter(|name| !BUILDS.contains(name)).collect();
    let found = lines(&versus(&[&dir, &dir], &rows));
    assert_eq!(found.len(), 2 * rows.len());
    found.iter().for_each(assert_measured);
    for line in found.iter().filter(|line| line.directory == "dir0") {
        assert_eq!(line.ratio.unwrap(), 1.0, "a directory to itself: {line:?}");
    }
    let with_peer = found.iter().filter(|line| line.row.starts_with("peer")).count();
    assert_eq!(with_peer, 20);
    assert!(is_empty(&dir));
}

#[test]
fn every_row_of_builds_runs() {
    let dir = TempDir::new().unwrap();
    let found = lines(&versus(&[&dir], &BUILDS));
    assert_eq!(found.len(), BUILDS.len());
    found.iter().for_each(assert_measured);
    assert!(is_empty(&dir));
}

#[test]
fn a_directory_that_fails_is_reported_and_costs_the_others_nothing() {
    let (whole, broken) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let versus = versus(&[&whole, &broken], &["stat", "create", "find"]);
    let mut found = Vec::new();
    versus
        .run(|row| {
            found.extend_from_slice(row);
            for entry in fs::read_dir(broken.path())? {
                fs::remove_dir_all(entry?.path())?;
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(found.len(), 6);
    let (failed, measured): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|line| line.failure.is_some());
    let names = |lines: &[Line]| -> Vec<(String, &str)> {
        lines.iter().map(|line| (line.directory.clone(), line.row)).collect()
    };
    let of = |dir: &str, row| (dir.to_owned(), row);
    assert_eq!(names(&failed), [of("dir1", "create"), of("dir1", "find")]);
    assert!(failed[0].failure.as_ref().unwrap().starts_with("failed: "), "{failed:?}");
    let rest = [of("dir0", "stat"), of("dir1", "stat"), of("dir0", "create"), of("dir0", "find")];
    assert_eq!(names(&measured), rest);
    measured.iter().for_each(assert_measured);
    assert!(is_empty(&whole));
}

#[test]
fn a_baseline_may_be_any_directory_and_may_fail() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut versus = versus(&[&one, &other], &["create", "peer: open"]);
    versus.baseline = Some("dir1".to_owned());
    versus.peers.retain(|peer| peer.0 == "dir0");
    let found = lines(&versus);
    assert_eq!(found[1].ratio, Some(1.0), "{found:?}");
    assert!(found[2].us_per_op.is_some() && found[2].ratio.is_none(), "{found:?}");
    assert_eq!(found[3].failure.as_deref(), Some("no --peer"), "{found:?}");
}

#[test]
fn rows_of_two_mounts_are_left_out_without_a_peer() {
    let dir = TempDir::new().unwrap();
    let mut versus = versus(&[&dir], &[]);
    assert_eq!(versus.chosen().len(), Versus::row_names().len());
    versus.peers.clear();
    assert!(versus.chosen().iter().all(|workload| !workload.with_peer));
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let dir = TempDir::new().unwrap();
    let versus = versus(&[&dir], &["find", "stat"]);
    let mut row_count = 0;
    let ended = versus.run(|_| {
        row_count += 1;
        versus.interrupt.set();
        Ok(())
    });
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("interrupted"), "{error}");
    assert_eq!(row_count, 1);
    assert!(is_empty(&dir));
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_before_anything_runs() {
    let dir = TempDir::new().unwrap();
    let refused = |change: &dyn Fn(&mut Versus)| {
        let mut versus = versus(&[&dir], &["stat"]);
        change(&mut versus);
        let ended = versus.run(|_| panic!("a row has run"));
        assert!(is_empty(&dir));
        format!("{:#}", ended.unwrap_err())
    };
    let named = |name: &str, path: &str| (name.to_owned(), path.into());
    let missing = refused(&|versus| versus.dirs.push(named("none", "/proc/nothing")));
    assert!(missing.contains("cannot use none=/proc/nothing"), "{missing}");
    let other = TempDir::new().unwrap();
    let unrelated = refused(&|versus| versus.peers[0].1 = other.path().to_owned());
    assert!(unrelated.contains("does not show"), "{unrelated}");
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Versus));
    let changes: [Change<'_>; 5] = [
        ("two directories", &|versus| versus.dirs.extend_from_within(..)),
        ("no --dir other", &|versus| versus.peers.push(named("other", "/"))),
        ("two peers", &|versus| versus.peers.extend_from_within(..)),
        ("no --dir other", &|versus| versus.baseline = Some("other".to_owned())),
        ("no row 'none'", &|versus| versus.rows.push("none".to_owned())),
    ];
    for (part, change) in changes {
        let error = refused(change);
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn the_file_system_of_a_directory_is_named() {
    assert_eq!(file_system(Path::new("/proc")), "proc");
    assert_eq!(file_system(Path::new("/nowhere")), "unknown");
}
