//! Files that a mount opens to read and write without the server, most of which are only read: no request
//! for them, and what is written to them is seen by other mounts as ever.

use crate::fixture::{Fixture, Mount, Server, kill, must, until};
use crate::leases::LEASES;
use crate::mount_stats::exchange_count;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_BYTES: usize = 4096;
const COUNT: usize = 40;

fn contents(number: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| u8::try_from((at + number) % 251).unwrap()).collect()
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn read_all(file: &File) -> Vec<u8> {
    let mut found = vec![0; FILE_BYTES];
    file.read_exact_at(&mut found, 0).unwrap();
    found
}

/// Two mounts of a server, and files that both have leases of.
struct Scene<'a> {
    fixture: &'a Fixture,
    server: Server,
    mounts: [Mount; 2],
}

impl<'a> Scene<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "20s"]);
        let mounts = ["a", "b"].map(|name| fixture.mount(&server.address, name, &LEASES));
        for number in 0..COUNT {
            fs::write(mounts[0].dir.join(number.to_string()), contents(number)).unwrap();
        }
        let scene = Self { fixture, server, mounts };
        for mount in 0..2 {
            until("leases of all attributes", || {
                scene.look(mount);
                let before = scene.asked(mount);
                scene.look(mount);
                scene.asked(mount) == before
            });
        }
        scene
    }

    fn path(&self, mount: usize, number: usize) -> PathBuf {
        self.mounts[mount].dir.join(number.to_string())
    }

    fn look(&self, mount: usize) {
        for number in 0..COUNT {
            fs::metadata(self.path(mount, number)).unwrap();
        }
    }

    fn asked(&self, mount: usize) -> [u64; 2] {
        ["lookup", "getattr"].map(|op| self.count(mount, op))
    }

    fn count(&self, mount: usize, op: &str) -> u64 {
        exchange_count(self.fixture, &self.mounts[mount], op)
    }

    fn stop(self) {
        self.mounts.into_iter().for_each(Mount::stop);
        drop(self.server);
    }
}

#[test]
fn files_that_are_only_read_cost_no_more_than_their_reads() {
    let Some(fixture) = Fixture::new("local_writes_counts") else { return };
    let scene = Scene::new(&fixture);
    let counts = || ["open", "reopen", "close", "read", "getattr"].map(|op| scene.count(1, op));
    let before = counts();
    for number in 0..COUNT {
        assert_eq!(read_all(&open(&scene.path(1, number))), contents(number));
    }
    let after = counts();
    let made: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    let count = u64::try_from(COUNT).unwrap();
    // Two files may have one place.
    assert!(made[0] < count / 4, "{made:?}");
    assert!(made[3] <= count, "{made:?}");
    // A machine that is too busy to close a file within half a second registers it.
    assert!(made[1] < count / 2 && made[2] <= made[0] + made[1], "{made:?}");
    scene.stop();
}

#[test]
fn what_is_written_in_turns_is_seen_at_once() {
    let Some(fixture) = Fixture::new("local_writes_turns") else { return };
    let scene = Scene::new(&fixture);
    for number in 0..COUNT {
        let files = [0, 1].map(|mount| open(&scene.path(mount, number)));
        assert_eq!(files.each_ref().map(read_all), [contents(number), contents(number)]);
        for turn in 0..4 {
            let writer = (number + turn) % 2;
            let new = contents(number + 100 * (turn + 1));
            files[writer].write_all_at(&new, 0).unwrap();
            for (mount, file) in files.iter().enumerate() {
                assert_eq!(read_all(file), new, "mount {mount}, by the open file");
                assert_eq!(fs::read(scene.path(mount, number)).unwrap(), new, "mount {mount}");
            }
            let size_bytes = FILE_BYTES + turn + 1;
            files[1 - writer].set_len(size_bytes as u64).unwrap();
            for mount in 0..2 {
                let found = fs::metadata(scene.path(mount, number)).unwrap().len();
                assert_eq!(found, size_bytes as u64, "mount {mount}");
            }
            files[writer].set_len(FILE_BYTES as u64).unwrap();
        }
    }
    scene.stop();
}

#[test]
fn what_another_mount_writes_or_removes_meanwhile_is_seen_by_who_has_it_open() {
    let Some(fixture) = Fixture::new("local_writes_others") else { return };
    let scene = Scene::new(&fixture);
    for number in 0..COUNT {
        let file = open(&scene.path(1, number));
        if number % 2 == 0 {
            assert_eq!(read_all(&file), contents(number));
        }
        let new = contents(number + 7);
        open(&scene.path(0, number)).write_all_at(&new, 0).unwrap();
        assert_eq!(read_all(&file), new);
        fs::remove_file(scene.path(0, number)).unwrap();
        assert_eq!(fs::metadata(scene.path(1, number)).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(read_all(&file), new, "it is open");
        let own = contents(number + 9);
        file.write_all_at(&own, 0).unwrap();
        assert_eq!(read_all(&file), own);
    }
    scene.stop();
}

#[test]
fn a_store_through_a_mapping_is_seen_by_others() {
    let Some(fixture) = Fixture::new("local_writes_mapped") else { return };
    let scene = Scene::new(&fixture);
    for number in 0..COUNT {
        let stores = "import mmap, sys\n\
            with open(sys.argv[1], 'r+b') as file: mapped = mmap.mmap(file.fileno(), 0)\n\
            mapped[0] = int(sys.argv[2])\n\
            if int(sys.argv[2]) % 2: mapped.flush()";
        let mut python = Command::new("python3");
        python.args(["-c", stores]).arg(scene.path(1, number)).arg((number + 100).to_string());
        must(&mut python);
        assert_eq!(usize::from(fs::read(scene.path(0, number)).unwrap()[0]), number + 100);
    }
    scene.stop();
}

#[test]
fn after_the_server_was_killed_what_was_open_is_written() {
    let Some(fixture) = Fixture::new("local_writes_killed") else { return };
    let mut scene = Scene::new(&fixture);
    let files: Vec<File> = (0..COUNT).map(|number| open(&scene.path(1, number))).collect();
    // Some are open for writing at the server by then.
    for (number, file) in files.iter().enumerate().filter(|(number, _)| number % 3 == 0) {
        file.write_all_at(&contents(number + 3), 0).unwrap();
    }
    let address = scene.server.address.clone();
    kill(scene.server.process.pid());
    scene.server.process.end();
    scene.server = fixture.serve_with(&address, &["--lease-term", "20s"]);
    for (number, file) in files.iter().enumerate() {
        let new = contents(number + 5);
        file.write_all_at(&new, 0).unwrap();
        assert_eq!(fs::read(scene.path(0, number)).unwrap(), new);
    }
    drop(files);
    scene.stop();
}
