//! What a mount still knows when it has removed or replaced a name that it did not know.

use crate::fixture::{Fixture, Mount, until};
use crate::leases::LEASES;
use crate::mount_stats::exchange_count;
use std::fs::{self, File};
use std::path::Path;

const FILE_COUNT: u64 = 20;
const ROUND_COUNT: usize = 10;

/// One mount removes or replaces, round by round, a name that the other one has made, and that gets no
/// lease because both change it in turn. Its other files are opened without the server all the while,
/// as it has their attributes.
fn after_each(test: &str, change: fn(&Path)) {
    let Some(fixture) = Fixture::new(test) else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s"]);
    let other = fixture.mount(&server.address, "a", &LEASES);
    let mount = fixture.mount(&server.address, "b", &[&LEASES[..], &["--lanes", "1"]].concat());
    let count = |op| exchange_count(&fixture, &mount, op);
    for dir in ["files", "turns"] {
        fs::create_dir(other.dir.join(dir)).unwrap();
    }
    for number in 0..FILE_COUNT {
        fs::write(other.dir.join(format!("files/{number}")), "x").unwrap();
    }
    let look = |mount: &Mount| {
        for number in 0..FILE_COUNT {
            fs::metadata(mount.dir.join(format!("files/{number}"))).unwrap();
        }
    };
    let looked_count = || count("lookup") + count("getattr");
    until("leases of all attributes", || {
        look(&mount);
        let before = looked_count();
        look(&mount);
        looked_count() == before
    });
    let make = || {
        fs::write(other.dir.join("turns/new"), "x").unwrap();
        fs::rename(other.dir.join("turns/new"), other.dir.join("turns/name")).unwrap();
    };
    let path = mount.dir.join("turns/name");
    let mut round = 0;
    while round < ROUND_COUNT {
        for _ in 0..10 {
            make();
            fs::metadata(&path).unwrap();
        }
        let asked_count = || {
            let before = count("lookup");
            fs::metadata(&path).unwrap();
            count("lookup") - before
        };
        if [asked_count(), asked_count()] != [1, 1] {
            continue; // It has a lease.
        }
        change(&path);
        let before = ["open", "lookup", "getattr"].map(count);
        for number in 0..FILE_COUNT {
            File::open(mount.dir.join(format!("files/{number}"))).unwrap();
        }
        assert_eq!(["open", "lookup", "getattr"].map(count), before, "round {round}");
        round += 1;
    }
    other.stop();
    mount.stop();
}

#[test]
fn the_removal_of_a_name_that_is_not_known_leaves_other_attributes_known() {
    after_each("leases_named_removed", |path| fs::remove_file(path).unwrap());
}

#[test]
fn a_rename_over_a_name_that_is_not_known_leaves_other_attributes_known() {
    after_each("leases_named_replaced", |path| {
        let new = path.with_file_name("mine");
        fs::write(&new, "y").unwrap();
        fs::rename(&new, path).unwrap();
    });
}
