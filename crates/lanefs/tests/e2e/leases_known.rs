//! What mounts that cache answer by themselves: how few requests their operations take, and that
//! another mount sees everything at its next call.

use crate::fixture::{Fixture, must, program, until};
use crate::idle::connect;
use crate::leases::{Counting, LEASES, Pair, pair};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn make_new(path: &Path) -> File {
    OpenOptions::new().write(true).create_new(true).open(path).unwrap()
}

/// Two directories deep, a directory and what is in it are of one shard.
fn deep(dir: &Path) -> PathBuf {
    let deep = dir.join("1/2/3");
    fs::create_dir_all(&deep).unwrap();
    deep
}

#[test]
fn an_operation_on_a_name_is_one_request() {
    count_requests("leases_known_counts", "1");
}

#[test]
fn an_operation_on_a_name_is_one_request_of_either_lane() {
    count_requests("leases_known_two_lanes", "2");
}

/// The directories on the way to the names.
const WALK_COUNT: u64 = 6;

/// Counts what operations on names take. With more lanes, one that the kernel asks for the third time
/// for what another lane has a lease of asks for its own: every third operation may take one more, and a
/// walk to the name, once, one for each directory.
fn count_requests(fixture: &str, lanes: &str) {
    let Some(fixture) = Fixture::new(fixture) else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s"]);
    let more = ["--lanes", lanes, "--write-behind", "off"];
    let mount = fixture.mount(&server.address, "a", &[&LEASES[..], &more].concat());
    let deep = deep(&mount.dir);
    // The server grants once it has recorded the sessions of the lanes.
    for count in 0..20 {
        make_new(&deep.join(format!("warm{count}")));
    }
    let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
    counting.now();
    let mut takes = |what: &str, count: u64, does: &dyn Fn()| {
        let before = counting.now().0;
        does();
        let found = counting.now().0 - before;
        let spare_count = if lanes == "1" { 0 } else { count.div_ceil(3) + WALK_COUNT };
        assert!((count..=count + spare_count).contains(&found), "{found} requests of {what}");
    };
    let dir = deep.join("dir");
    takes("mkdir", 1, &|| fs::create_dir(&dir).unwrap());
    let files: Vec<_> = (0..10).map(|count| dir.join(format!("f{count}"))).collect();
    let open = std::cell::RefCell::new(Vec::new());
    let create = || files.iter().for_each(|path| open.borrow_mut().push(make_new(path)));
    takes("ten creates", 10, &create);
    takes("ten writes", 10, &|| {
        for file in open.borrow().iter() {
            file.write_all_at(&[7; 4096], 0).unwrap();
        }
    });
    // The kernel keeps the way to them: at the latest the third time the lane that it asks gets a
    // lease.
    for _ in 0..3 {
        fs::metadata(&dir).unwrap();
    }
    // Each takes two, at once: the attributes, and the size of what is being written.
    takes("what they have left", 20, &|| {
        files.iter().for_each(|path| assert_eq!(fs::metadata(path).unwrap().len(), 4096));
        fs::metadata(&dir).unwrap();
    });
    takes("an absent name", 0, &|| assert!(!exists(&dir.join("absent"))));
    takes("a rename", 1, &|| fs::rename(&files[0], dir.join("renamed")).unwrap());
    takes("what follows from it", 0, &|| assert!(!exists(&files[0])));
    takes("an unlink", 1, &|| fs::remove_file(&files[1]).unwrap());
    takes("making it again", 1, &|| open.borrow_mut().push(make_new(&files[1])));
    open.borrow_mut().clear();
    mount.stop();
}

#[test]
fn listing_a_tree_that_is_known_costs_no_request() {
    let Some(fixture) = Fixture::new("leases_known_listing") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s"]);
    let mount = fixture.mount(&server.address, "a", &[&LEASES[..], &["--lanes", "1"]].concat());
    // Directories of all shards, beside each other.
    for dir in 0..10 {
        let dir = mount.dir.join(format!("d{dir}"));
        fs::create_dir(&dir).unwrap();
        (0..10).for_each(|file| fs::write(dir.join(format!("f{file}")), "x").unwrap());
    }
    let list = || {
        let listed = must(program("ls").arg("-lR").arg(&mount.dir));
        assert_eq!(listed.matches("-rw").count(), 100);
    };
    let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
    counting.now();
    let mut list_counted = || {
        let (before, _) = counting.now();
        list();
        counting.now().0 - before
    };
    // The kernel asks for a listing again that it was given a moment before.
    until("listings without a request", || (0..3).all(|_| list_counted() == 0));
    // What another mount makes, and what this one makes, is listed.
    let other = fixture.mount(&server.address, "b", &LEASES);
    let names = |dir: &Path| {
        let names = fs::read_dir(dir.join("d3")).unwrap();
        names.map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>()
    };
    for number in 0..50 {
        let (here, there) = (&mount.dir, &other.dir);
        for (changing, name) in [(there, "there"), (here, "here")] {
            fs::write(changing.join(format!("d3/{name}{number}")), "x").unwrap();
            assert_eq!((names(here), names(here)), (names(there), names(there)));
            assert_eq!(names(here).len(), 11);
            fs::remove_file(changing.join(format!("d3/{name}{number}"))).unwrap();
            assert_eq!((names(here).len(), names(there).len()), (10, 10));
        }
        fs::create_dir(here.join("e")).unwrap();
        assert_eq!(names(there).len(), 10);
        fs::read_dir(here.join("e")).unwrap();
        fs::read_dir(there.join("e")).unwrap();
        fs::remove_dir(there.join("e")).unwrap();
        assert!(fs::read_dir(here.join("e")).is_err());
    }
    other.stop();
    drop(counting);
    mount.stop();
}

/// Names in a directory that one mount knows all of, changed at the other one and back.
fn changes(pair: &Pair, round: usize) {
    let (here, there) = pair.dirs(round);
    let name = format!("d{round}");
    let (here, there) = (deep(here).join(&name), there.join("1/2/3").join(&name));
    fs::create_dir(&here).unwrap();
    assert!(!exists(&here.join("a")) && !exists(&there.join("b")));
    fs::write(there.join("a"), "there").unwrap();
    assert_eq!(fs::read_to_string(here.join("a")).unwrap(), "there");
    fs::write(here.join("b"), "here").unwrap();
    assert_eq!(fs::read_to_string(there.join("b")).unwrap(), "here");
    fs::rename(there.join("a"), there.join("c")).unwrap();
    assert!(!exists(&here.join("a")) && exists(&here.join("c")));
    fs::rename(here.join("b"), here.join("c")).unwrap();
    assert!(!exists(&there.join("b")));
    assert_eq!(fs::read_to_string(there.join("c")).unwrap(), "here");
    fs::remove_file(there.join("c")).unwrap();
    assert!(!exists(&here.join("c")));
    // A directory that is removed and made again has another inode.
    fs::remove_dir(&there).unwrap();
    assert!(!exists(&here) && !exists(&here.join("a")));
    fs::create_dir(&there).unwrap();
    fs::write(there.join("x"), "new").unwrap();
    assert_eq!(fs::read_to_string(here.join("x")).unwrap(), "new");
    fs::remove_file(here.join("x")).unwrap();
    assert!(!exists(&there.join("x")));
    fs::remove_dir(&here).unwrap();
    assert!(!exists(&there));
}

#[test]
fn names_of_a_directory_that_is_known_change_at_both_mounts() {
    pair("leases_known_names", |_, pair| {
        for round in 0..20 {
            changes(&pair, round);
        }
        pair.stop();
    });
}

#[test]
fn names_that_both_mounts_make_in_one_directory_exist_once() {
    pair("leases_known_race", |_, pair| {
        let (here, there) = pair.dirs(0);
        let (here, there) = (deep(here), there.join("1/2/3"));
        for round in 0..50 {
            let name = format!("r{round}");
            let (here, there) = (here.join(&name), there.join(&name));
            fs::create_dir(&here).unwrap();
            let made: usize = std::thread::scope(|scope| {
                let made = [&here, &there].map(|dir| {
                    scope.spawn(move || {
                        let made = (0..20).map(|count| {
                            let path = dir.join(format!("{count}"));
                            OpenOptions::new().write(true).create_new(true).open(path).is_ok()
                        });
                        made.filter(|made| *made).count()
                    })
                });
                made.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(made, 20);
            let count = |dir: &Path| fs::read_dir(dir).unwrap().count();
            assert_eq!((count(&here), count(&there)), (20, 20));
        }
        pair.stop();
    });
}
