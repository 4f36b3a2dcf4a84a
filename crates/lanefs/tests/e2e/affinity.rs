//! `--affinity object`, `client` and `random`: clients see the same, also when the server is killed.
//! All end-to-end tests run with another affinity if LANEFS_AFFINITY is set.

use crate::engines::connect;
use crate::fixture::{Fixture, Mount, failure, kill, must, run};
use library::{OpenFor, Piece, Volume};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const MODES: [&str; 3] = ["object", "client", "random"];
/// Directories, which are spread over the shards and so over both lanes.
const DIR_COUNT: usize = 8;
/// More than one request takes.
const LARGE_BYTES: usize = (1 << 20) + 12_345;

fn noise(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 31 + (index >> 9) + seed).to_le_bytes()[0]).collect()
}

/// Files of all sizes, synced, and moved to the next directory.
fn work(dir: &Path, round: usize) {
    for number in 0..DIR_COUNT {
        fs::create_dir_all(dir.join(format!("dir{number}"))).unwrap();
    }
    for number in 0..DIR_COUNT {
        let before = dir.join(format!("dir{number}/before{round}"));
        let mut file = File::create(&before).unwrap();
        for bytes in [0, 1, 5000, LARGE_BYTES] {
            file.write_all(&noise(round + number, bytes)).unwrap();
        }
        file.sync_all().unwrap();
        let behind = (number + 1) % DIR_COUNT;
        fs::rename(&before, dir.join(format!("dir{behind}/file{number}.{round}"))).unwrap();
    }
}

/// What [`work`] has left.
fn expected(round: usize, number: usize) -> (PathBuf, Vec<u8>) {
    let bytes = [0, 1, 5000, LARGE_BYTES].map(|bytes| noise(round + number, bytes)).concat();
    let behind = (number + 1) % DIR_COUNT;
    (PathBuf::from(format!("dir{behind}/file{number}.{round}")), bytes)
}

fn assert_in_mount(dir: &Path, round: usize) {
    for number in 0..DIR_COUNT {
        let (path, bytes) = expected(round, number);
        assert!(fs::read(dir.join(&path)).unwrap() == bytes, "{} is as written", path.display());
    }
}

fn assert_in_library(volume: &mut Volume, round: usize) {
    for number in 0..DIR_COUNT {
        let (path, bytes) = expected(round, number);
        let file = volume.open(&Path::new("/").join(&path), OpenFor::Read).unwrap();
        let pieces: Vec<Piece> = (0..4)
            .map(|index| Piece { file_offset: index * (1 << 20), piece_bytes: 1 << 20 })
            .collect();
        let found = volume.read_pieces(&file, &pieces).unwrap().concat();
        assert!(found == bytes, "{} is as written", path.display());
        volume.close(file).unwrap();
    }
}

/// Messages between the server's lanes during `looks` lookups of the directories.
fn messages_during_lookups(volume: &mut Volume, looks: usize) -> u64 {
    let messages = |volume: &mut Volume| -> u64 {
        volume.stats().unwrap().iter().map(|lane| lane.message_out_count).sum()
    };
    let before = messages(volume);
    for look in 0..looks {
        volume.lstat(Path::new(&format!("/dir{}", look % DIR_COUNT))).unwrap();
    }
    messages(volume) - before
}

#[test]
fn with_any_affinity_two_clients_work_and_a_killed_server_loses_nothing() {
    for mode in MODES {
        let Some(fixture) = Fixture::new("affinity") else { return };
        let more = ["--lanes", "2", "--affinity", mode];
        let mut server = fixture.serve_with("127.0.0.1:0", &more);
        let address = server.address.clone();
        let mounts: Vec<Mount> = ["one", "two"]
            .iter()
            .map(|name| fixture.mount(&address, name, &["--export", "up"]))
            .collect();
        let mut library = connect(&fixture, &address);
        for round in 0..2 {
            work(&mounts[round].dir, round);
            assert_in_mount(&mounts[1 - round].dir, round);
            assert_in_library(&mut library, round);
        }
        let messages = messages_during_lookups(&mut library, 400);
        match mode {
            // Only the lanes' own messages.
            "object" => assert!(messages < 200, "{messages} messages for 400 looks"),
            // Requests for one of the two lanes are forwarded: two messages each.
            "client" => assert!(messages > 200, "{messages} messages for 400 looks"),
            _ => {}
        }
        // Who takes no turns by himself would keep recovery waiting.
        library.leave().unwrap();
        // Written, not synced; the server dies, and the mount has what it needs for bringing it back.
        let open: Vec<File> = mounts
            .iter()
            .enumerate()
            .map(|(number, mount)| File::create(mount.dir.join(format!("open{number}"))).unwrap())
            .collect();
        for (number, file) in open.iter().enumerate() {
            file.write_all_at(&noise(number, LARGE_BYTES), 0).unwrap();
        }
        kill(server.process.pid());
        server.process.end();
        server = fixture.serve_with(&address, &more);
        for (number, file) in open.iter().enumerate() {
            file.write_all_at(b"behind", LARGE_BYTES as u64).unwrap();
            file.sync_all().unwrap();
            let bytes = [noise(number, LARGE_BYTES), b"behind".to_vec()].concat();
            let name = format!("open{number}");
            assert!(fs::read(mounts[1 - number].dir.join(&name)).unwrap() == bytes, "{mode}");
        }
        let mut library = connect(&fixture, &address);
        for (round, mount) in mounts.iter().enumerate() {
            assert_in_mount(&mount.dir, round);
            assert_in_library(&mut library, round);
        }
        work(&mounts[0].dir, 7);
        assert_in_mount(&mounts[1].dir, 7);
        drop(open);
        drop(library);
        mounts.into_iter().for_each(Mount::stop);
        server.process.signal(Signal::TERM);
        let status = server.process.end();
        assert_eq!(status.code(), Some(0), "{mode}: {}", server.process.said());
    }
}

#[test]
fn a_restart_with_another_affinity_is_not_seen_by_clients() {
    let Some(fixture) = Fixture::new("affinity_changes") else { return };
    let mut server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let address = server.address.clone();
    let mount = fixture.mount(&address, "mnt", &["--export", "up"]);
    for (round, mode) in MODES.iter().rev().enumerate() {
        work(&mount.dir, round);
        kill(server.process.pid());
        server.process.end();
        server = fixture.serve_with(&address, &["--lanes", "3", "--affinity", mode]);
        (0..=round).for_each(|round| assert_in_mount(&mount.dir, round));
    }
    mount.stop();
}

#[test]
fn up_accepts_an_affinity_and_refuses_an_unknown_one() {
    let Some(fixture) = Fixture::new("affinity_up") else { return };
    let up = fixture.up(&["--lanes", "2", "--affinity", "client"]);
    work(&up.dir, 0);
    assert_in_mount(&up.dir, 0);
    let listed = must(&mut fixture.lanefs(["ls", &up.url("/")]));
    assert_eq!(listed.lines().count(), DIR_COUNT, "{listed}");
    up.stop();
    let store = fixture.path("store");
    let store = store.to_str().unwrap();
    let serve = ["serve", "--store", store, "--affinity", "numa"];
    let said = |(code, said): (i32, String)| {
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("--affinity") && said.contains("object, client, random"), "{said}");
    };
    said(failure(&fixture.run(serve)));
    let mut by_environment = fixture.lanefs(["serve", "--store", store]);
    said(failure(&run(by_environment.env("LANEFS_AFFINITY", "numa"))));
    assert!(!fixture.path("store").exists(), "nothing was made");
}
