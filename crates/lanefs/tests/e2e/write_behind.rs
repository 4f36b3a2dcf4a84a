//! Mounts that answer writes to new files before the server has executed them: others see every byte,
//! and nothing is lost but with the mount's process.

use crate::fixture::{Fixture, until};
use crate::idle::connect;
use crate::leases::{Counting, LEASES, pair};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::{Duration, SystemTime};

/// Files are written behind once the server knows its free space and has recorded the mount.
fn warm(dir: &std::path::Path) {
    for count in 0..20 {
        fs::write(dir.join(format!("warm{count}")), b"warm").unwrap();
    }
}

#[test]
fn a_write_is_seen_by_the_next_call_of_another_mount() {
    pair("write_behind_seen", |_, pair| {
        let dirs = [pair.dirs(0), pair.dirs(1)];
        dirs.iter().for_each(|(here, _)| warm(here));
        for round in 0..200_u32 {
            let (here, there) = pair.dirs(usize::try_from(round).unwrap());
            let (path, seen) = (here.join(format!("f{round}")), there.join(format!("f{round}")));
            let mut file = File::create_new(&path).unwrap();
            let bytes =
                vec![u8::try_from(round % 251).unwrap(); 1 + 97 * usize::try_from(round).unwrap()];
            file.write_all(&bytes).unwrap();
            match round % 4 {
                0 => assert_eq!(fs::metadata(&seen).unwrap().len(), bytes.len() as u64),
                1 => assert_eq!(fs::read(&seen).unwrap(), bytes),
                2 => {
                    let mut other = OpenOptions::new().append(true).open(&seen).unwrap();
                    other.write_all(b"more").unwrap();
                    drop(file);
                    assert_eq!(fs::read(&path).unwrap(), [&bytes[..], b"more"].concat());
                    continue;
                }
                _ => {
                    let moved = here.join(format!("moved{round}"));
                    fs::rename(&path, &moved).unwrap();
                    let seen = there.join(format!("moved{round}"));
                    assert_eq!(fs::read(&seen).unwrap(), bytes);
                    continue;
                }
            }
            file.write_all(b"end").unwrap();
            let mut whole = Vec::new();
            File::open(&seen).unwrap().read_to_end(&mut whole).unwrap();
            assert_eq!(whole, [&bytes[..], b"end"].concat());
        }
        pair.stop();
    });
}

#[test]
fn a_mount_sees_its_own_writes_and_times() {
    pair("write_behind_own", |_, pair| {
        let (here, there) = pair.dirs(0);
        warm(here);
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for round in 0..100_u64 {
            let path = here.join(format!("f{round}"));
            let file = File::create_new(&path).unwrap();
            let bytes = vec![7; 4096 * usize::try_from(1 + round % 9).unwrap()];
            for (index, part) in bytes.chunks(4096).enumerate() {
                file.write_all_at(part, 4096 * index as u64).unwrap();
            }
            if round % 2 == 0 {
                file.set_modified(then).unwrap();
            }
            if round % 3 == 0 {
                assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64);
            }
            drop(file);
            let (own, other) = (
                fs::metadata(&path).unwrap(),
                fs::metadata(there.join(format!("f{round}"))).unwrap(),
            );
            assert_eq!((own.len(), other.len()), (bytes.len() as u64, bytes.len() as u64));
            assert_eq!(own.mtime(), other.mtime());
            if round % 2 == 0 {
                assert_eq!(own.modified().unwrap(), then);
            }
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
        pair.stop();
    });
}

#[test]
fn nothing_is_lost_when_the_server_is_killed_or_the_mount_ends() {
    let Some(fixture) = Fixture::new("write_behind_killed") else { return };
    let mut up = fixture.up(&[]);
    let mount = fixture.mount(&up.address, "second", &LEASES);
    warm(&mount.dir);
    let name = |count: usize| format!("f{count}");
    for count in 0..60 {
        fs::write(mount.dir.join(name(count)), vec![1; 1000 + count]).unwrap();
        if count == 30 {
            up.kill_server();
        }
    }
    mount.stop();
    for count in 0..60 {
        assert_eq!(fs::read(up.dir.join(name(count))).unwrap(), vec![1; 1000 + count]);
    }
    up.stop();
}

#[test]
fn a_stopped_mount_delays_others_for_a_term() {
    let Some(fixture) = Fixture::new("write_behind_stopped") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "2s"]);
    let mounts = ["a", "b"].map(|name| fixture.mount(&server.address, name, &LEASES));
    let (here, there) = (&mounts[0].dir, &mounts[1].dir);
    warm(here);
    let mut file = File::create_new(here.join("synced")).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    mounts[0].process.signal(Signal::STOP);
    assert_eq!(fs::read(there.join("synced")).unwrap(), b"synced");
    mounts[0].process.signal(Signal::CONT);
    mounts.into_iter().for_each(crate::fixture::Mount::stop);
}

#[test]
fn a_small_file_is_one_awaited_exchange() {
    let Some(fixture) = Fixture::new("write_behind_counts") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s"]);
    let mount = fixture.mount(&server.address, "a", &[&LEASES[..], &["--lanes", "1"]].concat());
    let deep = mount.dir.join("1/2/3");
    fs::create_dir_all(&deep).unwrap();
    warm(&deep);
    let dir = deep.join("dir");
    fs::create_dir(&dir).unwrap();
    let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
    counting.now();
    let mut before = 0;
    until("earlier files are closed", || {
        let earlier = std::mem::replace(&mut before, counting.now().0);
        earlier == before
    });
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for count in 0..10 {
        let file = File::create_new(dir.join(format!("f{count}"))).unwrap();
        file.write_all_at(&[7; 4096], 0).unwrap();
        file.set_modified(then).unwrap();
    }
    // Create, Write, Setattr, Close.
    until("all are executed", || counting.now().0 - before >= 40);
    // The kernel may ask for the directory.
    let found = counting.now().0 - before;
    assert!((40..=42).contains(&found), "{found} requests");
}
