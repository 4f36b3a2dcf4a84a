//! Files that a mount opens without the server: no request for them, and what has one open reads it to the
//! end, also when it is removed, replaced or closed to others meanwhile.

use crate::fixture::{Fixture, Mount, Server, kill, until};
use crate::leases::LEASES;
use crate::mount_stats::exchange_count;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::thread;

/// Longer than what the kernel reads ahead at an open.
const FILE_BYTES: usize = 700_000;
const ROUND_COUNT: usize = 20;

fn contents(round: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| u8::try_from((at / 512 + round) % 251).unwrap()).collect()
}

/// Two mounts of a server, and files that one has made and the other has leases of.
struct Files {
    server: Server,
    maker: Mount,
    opener: Mount,
}

impl Files {
    fn new(fixture: &Fixture, options: &[&str], count: usize) -> Self {
        let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "20s"]);
        let maker = fixture.mount(&server.address, "a", &LEASES);
        let opener = fixture.mount(&server.address, "b", &[&LEASES[..], options].concat());
        for round in 0..count {
            fs::write(maker.dir.join(round.to_string()), contents(round)).unwrap();
        }
        let files = Self { server, maker, opener };
        // Their sizes are settled some time after they were closed.
        let asked = || ["lookup", "getattr"].map(|op| exchange_count(fixture, &files.opener, op));
        until("leases of all attributes", || {
            files.look(count);
            let before = asked();
            files.look(count);
            asked() == before
        });
        files
    }

    fn look(&self, count: usize) {
        for round in 0..count {
            let found = fs::metadata(self.opener.dir.join(round.to_string())).unwrap();
            assert_eq!(found.len(), FILE_BYTES as u64);
        }
    }

    fn stop(self) {
        self.maker.stop();
        self.opener.stop();
    }
}

fn read_all(file: &File, round: usize) {
    let mut found = vec![0; FILE_BYTES];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == contents(round), "round {round}");
    assert_eq!(file.metadata().unwrap().len(), FILE_BYTES as u64);
}

#[test]
fn files_are_read_without_an_open_at_the_server() {
    let Some(fixture) = Fixture::new("local_counts") else { return };
    let files = Files::new(&fixture, &["--lanes", "1"], ROUND_COUNT);
    let count = |op| exchange_count(&fixture, &files.opener, op);
    let before = ["open", "reopen", "close"].map(count);
    let path = |round: usize| files.opener.dir.join(round.to_string());
    for round in 0..ROUND_COUNT {
        assert!(fs::read(path(round)).unwrap() == contents(round));
    }
    assert_eq!(count("open"), before[0]);
    // A machine that is too busy to close a file within half a second registers it.
    let registered_count = count("reopen") - before[1];
    assert!(registered_count < ROUND_COUNT as u64, "{registered_count}");
    // A file that stays open is one that the server knows.
    let file = File::open(path(0)).unwrap();
    until("it is registered", || count("reopen") > before[1] + registered_count);
    drop(file);
    until("all that were are closed", || count("close") == before[2] + registered_count + 1);
    files.stop();
}

/// What a mount does to a file that another one has just opened: it is read to the end.
fn after_each(test: &str, change: impl Fn(&Path)) {
    let Some(fixture) = Fixture::new(test) else { return };
    let files = Files::new(&fixture, &["--lanes", "1"], ROUND_COUNT);
    let count = |op| exchange_count(&fixture, &files.opener, op);
    let before = ["open", "reopen"].map(count);
    for round in 0..ROUND_COUNT {
        let file = File::open(files.opener.dir.join(round.to_string())).unwrap();
        change(&files.maker.dir.join(round.to_string()));
        read_all(&file, round);
    }
    let of_each = [before[0], before[1] + ROUND_COUNT as u64];
    assert_eq!(["open", "reopen"].map(count), of_each, "each was recalled");
    files.stop();
}

#[test]
fn a_file_that_another_mount_removes_is_read_to_its_end() {
    after_each("local_removed", |file| {
        fs::remove_file(file).unwrap();
        assert!(File::open(file).is_err());
    });
}

#[test]
fn a_file_that_another_mount_replaces_is_read_to_its_end() {
    after_each("local_replaced", |file| {
        let new = file.with_extension("new");
        fs::write(&new, "new").unwrap();
        fs::rename(&new, file).unwrap();
    });
}

#[test]
fn a_file_that_another_mount_closes_to_others_is_read_to_its_end() {
    after_each("local_closed_to_others", |file| {
        fs::set_permissions(file, Permissions::from_mode(0o000)).unwrap();
    });
}

#[test]
fn a_file_that_its_mount_removes_on_another_core_is_read_to_its_end() {
    let Some(fixture) = Fixture::new("local_own") else { return };
    let files = Files::new(&fixture, &["--lanes", "2"], 3 * ROUND_COUNT);
    let new = files.opener.dir.join("new");
    for round in 0..3 * ROUND_COUNT {
        fs::write(&new, "new").unwrap();
        let path = files.opener.dir.join(round.to_string());
        let file = File::open(&path).unwrap();
        let changing = || match round % 3 {
            0 => fs::remove_file(&path),
            1 => fs::rename(&new, &path),
            _ => fs::set_permissions(&path, Permissions::from_mode(0o000)),
        };
        thread::scope(|scope| scope.spawn(changing).join().unwrap().unwrap());
        read_all(&file, round);
    }
    files.stop();
}

#[test]
fn a_server_that_is_killed_has_the_file_that_was_open() {
    let Some(fixture) = Fixture::new("local_killed_server") else { return };
    for round in 0..3 {
        let mut files = Files::new(&fixture, &["--lanes", "1"], round + 1);
        let removed = files.maker.dir.join(round.to_string());
        File::open(&removed).unwrap().sync_all().unwrap();
        let file = File::open(files.opener.dir.join(round.to_string())).unwrap();
        let address = files.server.address.clone();
        kill(files.server.process.pid());
        files.server.process.end();
        files.server = fixture.serve_with(&address, &["--lease-term", "20s"]);
        fs::remove_file(&removed).unwrap();
        read_all(&file, round);
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        drop(file);
        files.stop();
    }
}
