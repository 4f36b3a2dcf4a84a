//! Where lanes run: each on a core of its own, or where the system puts them.

use crate::fixture::Fixture;
use std::fs;

/// The cores that each lane of a process may use, by the lanes' numbers.
fn cores_of_lanes(pid: u32) -> Vec<String> {
    let mut lanes = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        if let Some(lane) = field("Name:").filter(|name| name.starts_with("lane ")) {
            lanes.push((lane, field("Cpus_allowed_list:").unwrap()));
        }
    }
    lanes.sort();
    lanes.into_iter().map(|(_, cores)| cores).collect()
}

#[test]
fn lanes_stay_on_their_cores_unless_told_otherwise() {
    let Some(fixture) = Fixture::new("pinning") else { return };
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let core_count = ring::core_count();
    for (how, pinned) in [(None, true), (Some("on"), true), (Some("off"), false)] {
        let more: Vec<&str> = how.into_iter().flat_map(|how| ["--pin", how]).collect();
        let up = fixture.up(&more);
        for command in ["serve", "mount"] {
            let cores = cores_of_lanes(up.child(command));
            assert_eq!(cores.len(), core_count, "{command} {how:?}");
            if pinned {
                assert!(cores.iter().all(|core| core.parse::<u16>().is_ok()), "{how:?}: {cores:?}");
                let mut distinct = cores.clone();
                distinct.dedup();
                assert_eq!(distinct, cores, "a core each");
            } else {
                assert!(cores.iter().all(|cores| cores == own), "{how:?}: {cores:?}, not {own}");
            }
        }
        fs::write(up.dir.join("works"), "either way").unwrap();
        up.stop();
    }
}
