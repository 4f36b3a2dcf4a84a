//! `lanefs bench fuse-null`: its rows, and that it leaves nothing behind however it ends.

use crate::fixture::{Fixture, Process, child_of, must, no_fuse_over_io_uring, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// What is mounted below the fixture.
fn mounts_of(fixture: &Fixture) -> Vec<PathBuf> {
    let points = ring::mount_table(None).unwrap().into_iter().map(|mounted| mounted.point);
    points.filter(|point| point.starts_with(fixture.path(""))).collect()
}

/// A run that would take minutes, with all its mounts mounted.
fn long_run(fixture: &Fixture) -> Process {
    let mut command = fixture.lanefs(["bench", "fuse-null", "--time", "60s", "--dir"]);
    let process = Process::start(command.arg(fixture.path("")));
    until("it mounts plainly and with exchanges", || mounts_of(fixture).len() >= 2);
    // Before, who has mounted asks his own mount whether it answers, and a kill would leave him waiting
    // for himself.
    let files = format!("/proc/{}/fd", process.pid());
    until("it measures", || {
        let mounts = mounts_of(fixture);
        let open = fs::read_dir(&files).unwrap();
        let mut open = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        open.any(|path| mounts.iter().any(|mount| path.starts_with(mount)))
    });
    process
}

fn left_behind(fixture: &Fixture) -> Vec<String> {
    let entries = fs::read_dir(fixture.path("")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn bench_of_a_null_mount_has_sane_rows_and_leaves_nothing() {
    let Some(fixture) = Fixture::new("bench_of_a_null_mount") else { return };
    let mut command =
        fixture.lanefs(["bench", "fuse-null", "--json", "--time", "20ms", "--rounds", "1"]);
    let lines = must(command.arg("--dir").arg(fixture.path("")));
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let uring = no_fuse_over_io_uring(fixture.drivers.server).is_none();
    let places = if ring::core_count() > 1 { 2 } else { 1 };
    assert_eq!(rows.len(), (if uring { 2 } else { 1 }) * 2 * places * 4, "{lines}");
    let rows_with_note = rows
        .iter()
        .filter(|row| row["note"].as_str().is_some_and(|note| note.contains("io_uring")));
    assert_eq!(rows_with_note.count(), usize::from(!uring), "{lines}");
    for row in &rows {
        for key in ["ops_per_s", "mean_us", "p50_us", "p99_us", "p999_us"] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{key}: {row}");
        }
        assert!(row["cpu_us_per_op"].as_f64().unwrap() >= 0.0, "{row}");
    }
    let switches = |name: &str| {
        let row = rows.iter().find(|row| row["row"] == name).unwrap();
        row["switches_per_op"].as_f64().unwrap()
    };
    // Two requests of the kernel, each an exchange with a process that sleeps between them.
    for name in ["classic statx same-core echo", "classic statx same-core"] {
        println!("{name}: {} switches an operation", switches(name));
    }
    assert_eq!((mounts_of(&fixture), left_behind(&fixture)), (vec![], vec![]));
}

/// Both sides have all rows. How many exchanges each operation takes, `exchanges` asserts; here a close that
/// a busy machine has not come to yet is counted with the next operation's.
#[test]
fn bench_of_a_mount_counts_exchanges_and_leaves_nothing() {
    let Some(fixture) = Fixture::new("bench_of_a_mount") else { return };
    let mut command = fixture.lanefs(["bench", "mount", "--json", "--time", "20ms"]);
    let lines = must(command.args(["--rounds", "1", "--dir"]).arg(fixture.path("")));
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str, clients: u64| {
        let found = rows.iter().find(|row| row["row"] == name && row["clients"] == clients);
        found.unwrap_or_else(|| panic!("no row {name} with {clients}: {lines}"))
    };
    let counted = [("stat", 2.0), ("open+close", 2.0), ("create", 2.0), ("unlink", 2.0)];
    for (name, in_way_min) in counted.into_iter().chain([("create+write", 3.0)]) {
        let row = of(name, 1);
        let [in_way, behind] = ["exchanges_in_way", "exchanges_behind"]
            .map(|key| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}")));
        println!("{name}: {in_way} exchanges in the way, {behind} behind");
        assert!(in_way >= in_way_min && behind >= 0.0, "{row}");
        assert!(row["ratio_to_limit"].as_f64().unwrap() > 0.0, "{row}");
        assert!(of(&format!("null {name}"), 1)["ops_per_s"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(of("write+fsync", 8)["limit"], "one caller");
    assert_eq!((mounts_of(&fixture), left_behind(&fixture)), (vec![], vec![]));
}

#[test]
fn bench_of_a_null_mount_that_is_interrupted_leaves_nothing() {
    let Some(fixture) = Fixture::new("bench_of_a_null_mount_interrupted") else { return };
    let mut process = long_run(&fixture);
    process.signal(Signal::INT);
    let status = process.end();
    assert_eq!(status.code(), Some(1), "{}", process.said());
    assert!(process.said().contains("interrupted"), "{}", process.said());
    assert_eq!((mounts_of(&fixture), left_behind(&fixture)), (vec![], vec![]));
}

#[test]
fn bench_of_a_null_mount_that_is_killed_leaves_no_mount() {
    let Some(fixture) = Fixture::new("bench_of_a_null_mount_killed") else { return };
    let mut process = long_run(&fixture);
    process.signal(Signal::KILL);
    process.end();
    until("the mounts go by themselves", || mounts_of(&fixture).is_empty());
}

#[test]
fn bench_of_a_null_mount_whose_lane_is_killed_fails_and_leaves_nothing() {
    let Some(fixture) = Fixture::new("bench_of_a_null_mount_lane_killed") else { return };
    let mut process = long_run(&fixture);
    while let Some(child) = child_of(process.pid(), "bench-null") {
        // It may just have been ended by the benchmark, which misses the others.
        let child = Pid::from_raw(i32::try_from(child).unwrap()).unwrap();
        kill_process(child, Signal::KILL).ok();
    }
    let status = process.end();
    assert_eq!(status.code(), Some(1), "{}", process.said());
    assert_eq!((mounts_of(&fixture), left_behind(&fixture)), (vec![], vec![]));
}
