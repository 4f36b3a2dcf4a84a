//! Files that a mount opens again without the server: nothing is stale, space is freed, and an open
//! costs no request.

use crate::fixture::{Fixture, kill, until};
use crate::idle::connect;
use crate::leases::{Counting, LEASES, pair};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const ROUND_COUNT: usize = 200;
/// More than any other file of these tests.
const LARGE_BYTES: usize = 300_000;

/// Reads a file until its mount has it cached and open.
fn keep(path: &Path, wanted: &[u8]) {
    for _ in 0..4 {
        assert!(fs::read(path).unwrap() == wanted, "stale");
    }
}

fn contents(round: usize, step: usize) -> Vec<u8> {
    format!("{round} {step} ").repeat(1 + round % 900).into_bytes()
}

/// In each round one mount has a file open and cached, and the other changes it: what it has then.
fn after_each(test: &str, change: impl Fn(&Path, Round) -> Option<Vec<u8>>) {
    pair(test, |_, pair| {
        for round in 0..ROUND_COUNT {
            let (here, there) = pair.dirs(round);
            one_round(here, there, round, &change);
        }
        pair.stop();
    });
}

struct Round {
    before: Vec<u8>,
    after: Vec<u8>,
}

fn one_round(
    here: &Path,
    there: &Path,
    round: usize,
    change: impl Fn(&Path, Round) -> Option<Vec<u8>>,
) {
    let [before, after] = [0, 1].map(|step| contents(round, step));
    fs::write(here.join("f"), &before).unwrap();
    keep(&there.join("f"), &before);
    match change(&here.join("f"), Round { before, after }) {
        Some(wanted) => keep(&there.join("f"), &wanted),
        None => {
            let error = File::open(there.join("f")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }
}

fn overwrite(file: &Path, Round { after, .. }: Round) -> Option<Vec<u8>> {
    fs::write(file, &after).unwrap();
    Some(after)
}

fn write_in_place(file: &Path, Round { mut before, after }: Round) -> Option<Vec<u8>> {
    OpenOptions::new().write(true).open(file).unwrap().write_all_at(&after[..3], 1).unwrap();
    before[1..4].copy_from_slice(&after[..3]);
    Some(before)
}

fn truncate(file: &Path, Round { before, .. }: Round) -> Option<Vec<u8>> {
    OpenOptions::new().write(true).open(file).unwrap().set_len(2).unwrap();
    Some(before[..2].to_vec())
}

fn replace(file: &Path, Round { after, .. }: Round) -> Option<Vec<u8>> {
    let new = file.with_extension("new");
    fs::write(&new, &after).unwrap();
    fs::rename(new, file).unwrap();
    Some(after)
}

fn remove(file: &Path, _: Round) -> Option<Vec<u8>> {
    fs::remove_file(file).unwrap();
    None
}

#[test]
fn a_file_that_another_mount_overwrites_is_not_stale() {
    after_each("kept_overwritten", overwrite);
}

#[test]
fn a_file_that_another_mount_writes_in_place_is_not_stale() {
    after_each("kept_written", write_in_place);
}

#[test]
fn a_file_that_another_mount_truncates_is_not_stale() {
    after_each("kept_truncated", truncate);
}

#[test]
fn a_file_that_another_mount_replaces_is_not_stale() {
    after_each("kept_replaced", replace);
}

#[test]
fn a_file_that_another_mount_removes_cannot_be_opened() {
    after_each("kept_removed", remove);
}

#[test]
fn a_server_that_is_killed_leaves_nothing_stale() {
    pair("kept_killed_server", |fixture, mut pair| {
        let changes = [overwrite, write_in_place, truncate, replace, remove];
        for round in 0..10 {
            let (here, there) = pair.dirs(round);
            let before = contents(round, 2);
            fs::write(here.join("f"), &before).unwrap();
            keep(&there.join("f"), &before);
            let address = pair.server.address.clone();
            kill(pair.server.process.pid());
            pair.server.process.end();
            pair.server = fixture.serve_with(&address, &["--lease-term", "3s"]);
            let (here, there) = pair.dirs(round);
            keep(&there.join("f"), &before);
            one_round(here, there, round, changes[round / 2]);
        }
        pair.stop();
    });
}

#[test]
fn a_stopped_mount_finds_what_was_done_meanwhile() {
    pair("kept_stopped", |_, pair| {
        let changes = [overwrite, replace, remove];
        for (round, change) in changes.into_iter().enumerate() {
            let (here, there) = pair.dirs(0);
            one_round(here, there, round, |file, round| {
                pair.mounts[1].process.signal(Signal::STOP);
                let wanted = change(file, round);
                pair.mounts[1].process.signal(Signal::CONT);
                wanted
            });
        }
        pair.stop();
    });
}

/// Bytes of all files below a directory.
fn stored_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => stored_bytes(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0, // It was removed meanwhile.
    });
    bytes.sum()
}

#[test]
fn space_of_a_file_that_is_removed_is_freed() {
    let large = vec![7; LARGE_BYTES];
    pair("kept_space", |fixture, pair| {
        let objects = fixture.path("store/objects");
        for (round, by_other) in [false, true, false, true].into_iter().enumerate() {
            for renames in [false, true] {
                let (here, there) = pair.dirs(round);
                let (here, there) = (here.join("f"), there.join("f"));
                fs::write(&here, &large).unwrap();
                keep(&here, &large);
                keep(&there, &large);
                until("the bytes are stored", || stored_bytes(&objects) >= LARGE_BYTES as u64);
                let removing = if by_other { &there } else { &here };
                if renames {
                    fs::write(removing.with_extension("new"), "small").unwrap();
                    fs::rename(removing.with_extension("new"), removing).unwrap();
                } else {
                    fs::remove_file(removing).unwrap();
                }
                until("its space is free", || stored_bytes(&objects) < LARGE_BYTES as u64);
            }
        }
        pair.stop();
    });
}

#[test]
fn locks_of_a_file_that_stays_open_end_with_the_process_that_took_them() {
    pair("kept_locks", |_, pair| {
        let (here, there) = pair.dirs(0);
        fs::write(here.join("f"), "contents").unwrap();
        keep(&there.join("f"), b"contents");
        for _ in 0..ROUND_COUNT {
            let first = File::open(there.join("f")).unwrap();
            first.lock().unwrap();
            let second = File::open(there.join("f")).unwrap();
            assert!(second.try_lock().is_err() && second.try_lock_shared().is_err());
            let other = File::open(here.join("f")).unwrap();
            assert!(other.try_lock().is_err());
            drop(second);
            assert!(other.try_lock().is_err(), "the close of another open has released it");
            drop(first);
            other.lock().unwrap();
        }
        pair.stop();
    });
}

#[test]
fn an_open_of_a_cached_file_costs_no_request() {
    let Some(fixture) = Fixture::new("kept_counts") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s"]);
    let mount = fixture.mount(&server.address, "a", &LEASES);
    let paths: Vec<PathBuf> = (0..50).map(|count| mount.dir.join(format!("{count}"))).collect();
    for path in &paths {
        fs::write(path, "contents").unwrap();
    }
    let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
    // Any lane may get a request, and opens its own at the server the first time.
    until("all lanes have all files open", || {
        let before = counting.now().0;
        for path in &paths {
            assert_eq!(fs::read(path).unwrap(), b"contents");
        }
        counting.now().0 == before
    });
    drop(counting);
    mount.stop();
}

/// A term lasts for three Pings.
const PINGS_PER_TERM: u64 = 3;

#[test]
fn what_a_mount_has_cached_is_still_cached_after_several_terms_of_rest() {
    let Some(fixture) = Fixture::new("kept_terms") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "2s"]);
    let options = [&LEASES[..], &["--lanes", "1"]].concat();
    let mount = fixture.mount(&server.address, "a", &options);
    let path = mount.dir.join("f");
    fs::write(&path, "contents").unwrap();
    let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
    // The first looks settle the size. A machine that is too busy for a Ping lets a term end.
    until("nothing is asked for after three terms", || {
        let ping_count = counting.ping_count();
        until("terms pass", || counting.ping_count() >= ping_count + 3 * PINGS_PER_TERM);
        let before = counting.now().0;
        assert_eq!(fs::metadata(&path).unwrap().len(), 8);
        assert!(!mount.dir.join("absent").exists());
        assert_eq!(fs::read(&path).unwrap(), b"contents");
        counting.now().0 == before
    });
    drop(counting);
    mount.stop();
}

#[test]
fn what_a_mount_has_just_written_is_cached_from_its_first_open_on() {
    let Some(fixture) = Fixture::new("kept_written_here") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s"]);
    let options = [&LEASES[..], &["--lanes", "1"]].concat();
    let mount = fixture.mount(&server.address, "a", &options);
    let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
    let mut round = 0;
    // The mount's session is recorded with its first requests, and the files' Closes come any time.
    until("no second read asks the server", || {
        round += 1;
        (0..8).all(|count| {
            let path = mount.dir.join(format!("{round} {count}"));
            fs::write(&path, "contents").unwrap();
            let file = File::open(&path).unwrap();
            let mut read = || {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, 0).unwrap();
                assert_eq!(&bytes, b"contents");
                assert_eq!(file.read_at(&mut bytes, 8).unwrap(), 0, "its end");
                counting.now().0
            };
            let first = read();
            read() == first
        })
    });
    drop(counting);
    mount.stop();
}
