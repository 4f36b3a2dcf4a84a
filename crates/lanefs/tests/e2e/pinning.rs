//! Where lanes run: each on a core of its own, or where the system puts them.

use crate::fixture::{Fixture, proc_of};
use std::fs;

type Cores = Vec<(u32, u32)>;

/// The cores that each lane of a process may use, as ranges, by the lanes' numbers.
fn cores_of_lanes(pid: u32) -> Vec<Cores> {
    let tasks = proc_of(pid).unwrap().tasks().unwrap().flatten();
    let statuses = tasks.filter_map(|task| task.status().ok());
    let lanes = statuses.filter(|status| status.name.starts_with("lane "));
    let mut lanes: Vec<_> = lanes.map(|it| (it.name, it.cpus_allowed_list.unwrap())).collect();
    lanes.sort();
    lanes.into_iter().map(|(_, cores)| cores).collect()
}

#[test]
fn lanes_stay_on_their_cores_by_default() {
    let Some(fixture) = Fixture::new("pinning") else { return };
    let own = proc_of(std::process::id()).unwrap().status().unwrap().cpus_allowed_list.unwrap();
    let core_count = ring::core_count();
    for (how, pinned) in [(None, true), (Some("on"), true), (Some("off"), false)] {
        let more: Vec<&str> = how.into_iter().flat_map(|how| ["--pin", how]).collect();
        let up = fixture.up(&more);
        for command in ["serve", "mount"] {
            let cores = cores_of_lanes(up.child(command));
            assert_eq!(cores.len(), core_count, "{command} {how:?}");
            if pinned {
                let one = |cores: &Cores| matches!(cores[..], [(first, last)] if first == last);
                assert!(cores.iter().all(one), "{how:?}: {cores:?}");
                let mut distinct = cores.clone();
                distinct.dedup();
                assert_eq!(distinct, cores, "a core each");
            } else {
                assert!(cores.iter().all(|cores| *cores == own), "{how:?}: {cores:?}, not {own:?}");
            }
        }
        fs::write(up.dir.join("works"), "either way").unwrap();
        up.stop();
    }
}
