//! What mounts ask for after a restart of the server, when they have lost the leases of what they knew.

use crate::fixture::{Fixture, Mount, Server, kill, must, program, until};
use crate::leases::LEASES;
use crate::mount_stats::exchange_count;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const DIRECTORY_COUNT: u64 = 3;
const FILE_COUNT: u64 = 100;
const SERVER: [&str; 4] = ["--lanes", "1", "--lease-term", "60s"];

fn directories(dir: &Path) -> impl Iterator<Item = PathBuf> {
    (0..DIRECTORY_COUNT).map(|no| dir.join(format!("tree/{no}")))
}

fn file(dir: &Path, no: u64) -> PathBuf {
    dir.join(format!("file-{no}"))
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

struct Scene<'a> {
    fixture: &'a Fixture,
    server: Server,
    mount: Mount,
}

impl<'a> Scene<'a> {
    /// A mount that answers all questions about a tree alone.
    fn new(fixture: &'a Fixture) -> Self {
        let server = fixture.serve_with("127.0.0.1:0", &SERVER);
        let mount = fixture.mount(&server.address, "a", &[&LEASES[..], &["--lanes", "1"]].concat());
        fs::create_dir(mount.dir.join("tree")).unwrap();
        for dir in directories(&mount.dir) {
            fs::create_dir(&dir).unwrap();
            (0..FILE_COUNT).for_each(|no| fs::write(file(&dir, no), "x").unwrap());
        }
        let scene = Self { fixture, server, mount };
        until("everything is known", || {
            must(program("ls").arg("-lR").arg(scene.mount.dir.join("tree")));
            scene.exchanges_of_looks() == 0
        });
        scene
    }

    /// Looks at each file by its path, and not at the directories.
    fn exchanges_of_looks(&self) -> u64 {
        let count = || {
            let of = |op| exchange_count(self.fixture, &self.mount, op);
            of("lookup") + of("getattr") + of("readdir")
        };
        let before = count();
        for dir in directories(&self.mount.dir) {
            for no in 0..FILE_COUNT {
                assert_eq!(fs::symlink_metadata(file(&dir, no)).unwrap().len(), 1);
            }
        }
        count() - before
    }

    fn kill_server(&mut self) {
        let address = self.server.address.clone();
        kill(self.server.process.pid());
        self.server.process.end();
        self.server = self.fixture.serve_with(&address, &SERVER);
    }
}

#[test]
fn a_tree_that_was_known_is_known_again_after_a_restart_for_a_few_exchanges_a_directory() {
    let Some(fixture) = Fixture::new("leases_listed") else { return };
    let mut scene = Scene::new(&fixture);
    for _ in 0..3 {
        scene.kill_server();
        let count = scene.exchanges_of_looks();
        assert!(count <= DIRECTORY_COUNT * FILE_COUNT / 5, "{count} exchanges");
        assert_eq!(scene.exchanges_of_looks(), 0);
    }
    scene.mount.stop();
}

#[test]
fn what_another_mount_changes_directly_after_a_restart_is_seen_at_once() {
    let Some(fixture) = Fixture::new("leases_listed_changed") else { return };
    let mut scene = Scene::new(&fixture);
    let other = fixture.mount(&scene.server.address, "b", &LEASES);
    for round in 0..3 {
        scene.kill_server();
        for (here, there) in directories(&scene.mount.dir).zip(directories(&other.dir)) {
            for no in 0..FILE_COUNT {
                // Names behind these are known, from a listing that is done or under way.
                assert_eq!(fs::symlink_metadata(file(&here, no)).unwrap().len(), 1);
                if no % 10 == 2 {
                    let last = FILE_COUNT - 1 - no / 10;
                    fs::set_permissions(file(&there, last), Permissions::from_mode(0o600 + round))
                        .unwrap();
                    assert_eq!(mode(&file(&here, last)), 0o600 + round);
                    fs::rename(file(&there, last), there.join("moved")).unwrap();
                    assert!(!file(&here, last).exists());
                    assert_eq!(mode(&here.join("moved")), 0o600 + round);
                    fs::rename(there.join("moved"), file(&there, last)).unwrap();
                    assert!(!here.join("moved").exists());
                    assert_eq!(mode(&file(&here, last)), 0o600 + round);
                }
            }
        }
    }
    other.stop();
    scene.mount.stop();
}
