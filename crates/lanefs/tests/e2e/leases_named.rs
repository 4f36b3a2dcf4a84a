//! What a mount still knows while it removes or replaces a name, and when it has done so, whether it knew
//! the name or not.

use crate::fixture::{Fixture, Mount, Server, must, until};
use crate::leases::LEASES;
use crate::mount_stats::exchange_count;
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;

const FILE_COUNT: u64 = 20;
const ROUND_COUNT: usize = 10;

/// A mount that has the attributes of files that another one has made, so that it opens them without
/// the server.
struct Scene<'a> {
    fixture: &'a Fixture,
    server: Server,
    other: Mount,
    mount: Mount,
}

impl<'a> Scene<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        let more = ["--lease-term", "60s", "--slow", "1ms"];
        let server = fixture.serve_with("127.0.0.1:0", &more);
        let other = fixture.mount(&server.address, "a", &LEASES);
        let mount = fixture.mount(&server.address, "b", &[&LEASES[..], &["--lanes", "1"]].concat());
        let scene = Self { fixture, server, other, mount };
        for dir in ["files", "turns"] {
            fs::create_dir(scene.other.dir.join(dir)).unwrap();
        }
        for number in 0..FILE_COUNT {
            fs::write(scene.other.dir.join(format!("files/{number}")), "x").unwrap();
        }
        let look = || {
            for path in scene.files() {
                fs::metadata(path).unwrap();
            }
        };
        until("leases of all attributes", || {
            look();
            scene.asks_nothing(look)
        });
        scene
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> {
        (0..FILE_COUNT).map(|number| self.mount.dir.join(format!("files/{number}")))
    }

    fn count(&self, op: &str) -> u64 {
        exchange_count(self.fixture, &self.mount, op)
    }

    /// Whether the mount does this without asking the server for names and attributes.
    fn asks_nothing(&self, does: impl Fn()) -> bool {
        let asked = || ["lookup", "getattr"].map(|op| self.count(op));
        let before = asked();
        does();
        asked() == before
    }

    fn opens_files_alone(&self, what: &str) {
        let asked = || ["open", "lookup", "getattr"].map(|op| self.count(op));
        let before = asked();
        for path in self.files() {
            File::open(path).unwrap();
        }
        assert_eq!(asked(), before, "{what}");
    }

    /// The other mount makes the name, or replaces it.
    fn make(&self) {
        fs::write(self.other.dir.join("turns/new"), "x").unwrap();
        fs::rename(self.other.dir.join("turns/new"), self.other.dir.join("turns/name")).unwrap();
    }

    fn stop(self) {
        self.other.stop();
        self.mount.stop();
        drop(self.server);
    }
}

/// The mount removes or replaces, round by round, a name that the other one has made, and that gets no
/// lease because both change it in turn.
fn after_each(test: &str, change: fn(&Path)) {
    let Some(fixture) = Fixture::new(test) else { return };
    let scene = Scene::new(&fixture);
    let path = scene.mount.dir.join("turns/name");
    let look = || assert!(path.exists());
    let mut round = 0;
    while round < ROUND_COUNT {
        for _ in 0..10 {
            scene.make();
            look();
        }
        if scene.asks_nothing(look) || scene.asks_nothing(look) {
            continue; // It has a lease.
        }
        change(&path);
        scene.opens_files_alone(&format!("round {round}"));
        round += 1;
    }
    scene.stop();
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

#[test]
fn while_the_removal_of_a_known_name_waits_other_attributes_are_known() {
    let Some(fixture) = Fixture::new("leases_named_waits") else { return };
    let scene = Scene::new(&fixture);
    scene.make();
    let path = scene.mount.dir.join("turns/name");
    let look = || assert!(path.exists());
    until("a lease of the name", || {
        look();
        scene.asks_nothing(look)
    });
    assert!(scene.other.dir.join("turns/name").exists());
    scene.other.process.signal(Signal::STOP);
    let removing = thread::spawn(move || fs::remove_file(path));
    until("the removal waits for the other mount's lease", || {
        assert!(!removing.is_finished(), "it has not waited");
        let said = must(&mut fixture.lanefs(["why", "--server", &scene.server.address]));
        said.lines().any(|line| line.contains("waiting ") && line.contains("give up its lease"))
    });
    scene.opens_files_alone("while it waits");
    scene.other.process.signal(Signal::CONT);
    removing.join().unwrap().unwrap();
    scene.opens_files_alone("when it has ended");
    scene.stop();
}
