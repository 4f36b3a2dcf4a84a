//! Mounts that create files and remove names before the server has done it: others see every change, and
//! nothing is lost but with the mount's process.

use crate::fixture::{Fixture, Mount, kill, must, until};
use crate::leases::{LEASES, pair};
use crate::mount_stats::{exchange_count, total_of};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory whose subdirectories are at its own shard.
pub(crate) fn deep(dir: &Path) -> PathBuf {
    let deep = dir.join("1/2/3");
    fs::create_dir_all(&deep).unwrap();
    // The server knows its free space, and has recorded the mount.
    for count in 0..20 {
        fs::write(deep.join(format!("warm{count}")), b"warm").unwrap();
    }
    deep
}

/// A directory whose subdirectories are spread over the shards.
fn near_the_root(dir: &Path) -> PathBuf {
    deep(dir);
    dir.to_path_buf()
}

/// The shard of a file or directory.
fn shard_of(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino() >> 48
}

fn names(dir: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

/// A counter of names that a mount has changed behind.
pub(crate) fn changed(fixture: &Fixture, mount: &Mount, change: &str) -> u64 {
    total_of(fixture, mount)["behind_names"][change].as_u64().unwrap()
}

fn bytes_of(count: usize) -> Vec<u8> {
    vec![u8::try_from(count % 251).unwrap(); 1 + 97 * (count % 50)]
}

#[test]
fn each_change_is_seen_by_the_next_call_of_another_mount() {
    each_change_is_seen("names_behind_seen", deep);
}

#[test]
fn each_change_is_seen_in_directories_near_the_root() {
    each_change_is_seen("names_behind_seen_near", near_the_root);
}

fn each_change_is_seen(test: &str, top: fn(&Path) -> PathBuf) {
    pair(test, |_, pair| {
        let tops = [0, 1].map(|index| top(pair.dirs(index).0));
        for round in 0..60 {
            let (here, there) = (&tops[round % 2], &tops[1 - round % 2]);
            let [dir, seen] = [here, there].map(|top| top.join(format!("d{round}")));
            fs::create_dir(&dir).unwrap();
            // Each but the first is made when the other mount has looked, or has not.
            let count = round % 9;
            for file in 0..count {
                fs::write(dir.join(format!("f{file}")), bytes_of(file)).unwrap();
            }
            match round % 4 {
                0 => {
                    let all: BTreeSet<String> = (0..count).map(|it| format!("f{it}")).collect();
                    assert_eq!(names(&seen), all);
                }
                1 => {
                    for file in (0..count).rev() {
                        let found = fs::read(seen.join(format!("f{file}"))).unwrap();
                        assert_eq!(found, bytes_of(file));
                    }
                }
                2 => {
                    for file in 0..count {
                        fs::remove_file(dir.join(format!("f{file}"))).unwrap();
                        let found = fs::metadata(seen.join(format!("f{file}")));
                        assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound);
                    }
                    fs::remove_dir(&seen).unwrap();
                    assert_eq!(fs::read_dir(&dir).unwrap_err().kind(), ErrorKind::NotFound);
                }
                _ => {
                    for file in 0..count {
                        fs::remove_file(dir.join(format!("f{file}"))).unwrap();
                        fs::write(dir.join(format!("f{file}")), b"again").unwrap();
                    }
                    fs::write(seen.join("other"), b"other").unwrap();
                    for file in 0..count {
                        assert_eq!(fs::read(seen.join(format!("f{file}"))).unwrap(), b"again");
                    }
                    assert_eq!(fs::read(dir.join("other")).unwrap(), b"other");
                }
            }
        }
        pair.stop();
    });
}

#[test]
fn a_file_is_never_absent_once_its_create_has_returned() {
    const COUNT: usize = 300;
    pair("names_behind_absent", |_, pair| {
        let (here, there) = (deep(pair.dirs(0).0), deep(pair.dirs(1).0));
        let made = AtomicUsize::new(0);
        let name = |count: usize| format!("{}/f{count}", count / 10);
        std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                for count in 0..COUNT {
                    if count % 10 == 0 {
                        fs::create_dir(here.join(format!("{}", count / 10))).unwrap();
                    }
                    fs::write(here.join(name(count)), bytes_of(count)).unwrap();
                    made.store(count + 1, Ordering::SeqCst);
                }
            });
            let mut seen = 0;
            while seen < COUNT {
                let made = made.load(Ordering::SeqCst);
                // The newest of them, and all at last.
                let first = if made == COUNT { seen } else { made.saturating_sub(1).max(seen) };
                for count in first..made {
                    let found = fs::read(there.join(name(count)));
                    assert_eq!(found.unwrap(), bytes_of(count), "{count} of {made}");
                }
                seen = made;
            }
            maker.join().unwrap();
        });
        for count in 0..COUNT {
            assert_eq!(fs::read(there.join(name(count))).unwrap(), bytes_of(count));
        }
        pair.stop();
    });
}

#[test]
fn a_mount_sees_its_own_changes_and_times_do_not_go_back() {
    pair("names_behind_own", |_, pair| {
        let top = deep(pair.dirs(0).0);
        for round in 0..30 {
            let dir = top.join(format!("d{round}"));
            fs::create_dir(&dir).unwrap();
            let mut changed_at = fs::metadata(&dir).unwrap().modified().unwrap();
            for file in 0..20 {
                let path = dir.join(format!("f{file}"));
                let mut made = File::create_new(&path).unwrap();
                made.write_all(&bytes_of(file)).unwrap();
                let found = made.metadata().unwrap();
                assert_eq!((found.len(), found.nlink()), (bytes_of(file).len() as u64, 1));
                let again = File::create_new(&path).unwrap_err();
                assert_eq!(again.kind(), ErrorKind::AlreadyExists);
                let now = fs::metadata(&dir).unwrap().modified().unwrap();
                assert!(now >= changed_at, "{now:?} is before {changed_at:?}");
                changed_at = now;
                if file % 3 == 0 {
                    fs::remove_file(&path).unwrap();
                    assert_eq!(made.metadata().unwrap().nlink(), 0);
                    assert!(!path.try_exists().unwrap());
                    if file % 2 == 0 {
                        fs::write(&path, b"again").unwrap();
                    }
                }
            }
            assert_eq!(fs::remove_dir(&dir).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
            let kept: Vec<String> = names(&dir).into_iter().collect();
            assert_eq!(kept.len(), 17);
            fs::hard_link(dir.join(&kept[0]), dir.join("linked")).unwrap();
            fs::remove_file(dir.join(&kept[0])).unwrap();
            assert_eq!(fs::metadata(dir.join("linked")).unwrap().nlink(), 1);
            let moved = top.join(format!("m{round}"));
            fs::rename(&dir, &moved).unwrap();
            for name in names(&moved) {
                fs::remove_file(moved.join(name)).unwrap();
            }
            fs::remove_dir(&moved).unwrap();
        }
        pair.stop();
    });
}

#[test]
fn threads_change_one_directory() {
    pair("names_behind_threads", |_, pair| {
        let (here, there) = pair.dirs(0);
        let (top, other) = (deep(here), there.join("1/2/3"));
        for round in 0..10 {
            let dir = top.join(format!("d{round}"));
            fs::create_dir(&dir).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let dir = &dir;
                    scope.spawn(move || {
                        for file in 0..30 {
                            let path = dir.join(format!("f{thread}-{file}"));
                            fs::write(&path, bytes_of(file)).unwrap();
                            if file % 2 == 0 {
                                fs::remove_file(&path).unwrap();
                            }
                        }
                    });
                }
            });
            let seen = other.join(format!("d{round}"));
            assert_eq!(names(&seen).len(), 4 * 15);
            assert_eq!(names(&dir), names(&seen));
            for thread in 0..4 {
                let found = fs::read(seen.join(format!("f{thread}-29"))).unwrap();
                assert_eq!(found, bytes_of(29));
            }
        }
        pair.stop();
    });
}

#[test]
fn nothing_is_lost_when_the_server_is_killed_or_the_mount_ends() {
    nothing_is_lost("names_behind_killed", deep);
}

#[test]
fn nothing_is_lost_in_directories_near_the_root() {
    nothing_is_lost("names_behind_killed_near", near_the_root);
}

fn nothing_is_lost(test: &str, top_of: fn(&Path) -> PathBuf) {
    const COUNT: usize = 400;
    let Some(fixture) = Fixture::new(test) else { return };
    let mut up = fixture.up(&[]);
    let mount = fixture.mount(&up.address, "second", &LEASES);
    let top = top_of(&mount.dir);
    let made = AtomicUsize::new(0);
    let dir_of = |count: usize| format!("d{}", count / 25);
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            for count in 0..COUNT {
                let dir = top.join(dir_of(count));
                if count % 25 == 0 {
                    fs::create_dir(&dir).unwrap();
                }
                fs::write(dir.join(format!("f{count}")), bytes_of(count)).unwrap();
                if count % 5 == 4 {
                    fs::remove_file(dir.join(format!("f{}", count - 2))).unwrap();
                }
                made.store(count + 1, Ordering::SeqCst);
            }
        });
        for killed_at in [60, 150, 290] {
            until("further files are made", || made.load(Ordering::SeqCst) >= killed_at);
            up.kill_server();
        }
        maker.join().unwrap();
    });
    mount.stop();
    let top = top_of(&up.dir);
    for count in 0..COUNT {
        let path = top.join(dir_of(count)).join(format!("f{count}"));
        if count % 5 == 2 {
            assert!(!path.try_exists().unwrap(), "{path:?}");
        } else {
            assert_eq!(fs::read(&path).unwrap(), bytes_of(count), "{path:?}");
        }
    }
    up.stop();
    must(fixture.lanefs(["check"]).arg(fixture.path("mnt.lanefs")));
}

#[test]
fn what_was_synced_survives_its_mount_and_the_store_is_whole() {
    const COUNT: usize = 120;
    let Some(fixture) = Fixture::new("names_behind_mount_killed") else { return };
    let up = fixture.up(&[]);
    let mount = fixture.mount(&up.address, "second", &LEASES);
    let top = deep(&mount.dir);
    let synced = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // It fails when its mount is killed.
        let maker = scope.spawn(|| -> std::io::Result<()> {
            for count in 0..COUNT * 100 {
                let dir = top.join(format!("d{}", count / 10));
                if count % 10 == 0 {
                    fs::create_dir(&dir)?;
                }
                let mut file = File::create_new(dir.join(format!("f{count}")))?;
                file.write_all(&bytes_of(count))?;
                if count % 10 == 9 {
                    file.sync_all()?;
                    synced.store(count + 1, Ordering::SeqCst);
                }
            }
            Ok(())
        });
        until("files are synced", || synced.load(Ordering::SeqCst) >= COUNT);
        kill(mount.process.pid());
        assert!(maker.join().unwrap().is_err());
    });
    for count in (9..synced.load(Ordering::SeqCst)).step_by(10) {
        let path = up.dir.join(format!("1/2/3/d{}/f{count}", count / 10));
        assert_eq!(fs::read(&path).unwrap(), bytes_of(count), "{path:?}");
    }
    up.stop();
    must(fixture.lanefs(["check"]).arg(fixture.path("mnt.lanefs")));
}

#[test]
fn names_are_changed_behind_and_without_leases_they_are_not() {
    let Some(fixture) = Fixture::new("names_behind_counts") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s"]);
    let mounts = ["on", "off"].map(|leases| {
        let more = ["--export", "up", "--leases", leases, "--lanes", "1"];
        fixture.mount(&server.address, leases, &more)
    });
    let [on, off] = &mounts;
    let tops = [deep(&on.dir), off.dir.join("1/2/3")];
    let change = |top: &Path, round: usize| {
        let dir = top.join(format!("d{round}"));
        fs::create_dir(&dir).unwrap();
        for file in 0..30 {
            fs::write(dir.join(format!("f{file}")), bytes_of(file)).unwrap();
        }
        assert_eq!(names(&dir).len(), 30);
        for file in 0..30 {
            fs::remove_file(dir.join(format!("f{file}"))).unwrap();
        }
        fs::remove_dir(&dir).unwrap();
    };
    let mut round = 0;
    until("names are changed behind", || {
        round += 1;
        change(&tops[0], round);
        changed(&fixture, on, "made") > 0 && changed(&fixture, on, "removed") > 0
    });
    assert_eq!(changed(&fixture, on, "lost"), 0);
    change(&tops[1], 1_000);
    let of_off = total_of(&fixture, off);
    assert_eq!(of_off["behind_names"]["made"].as_u64().unwrap_or(0), 0);
    mounts.into_iter().for_each(Mount::stop);
}

#[test]
fn names_are_changed_behind_in_directories_of_another_shard_than_their_parents() {
    let Some(fixture) = Fixture::new("names_behind_near") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s", "--lanes", "2"]);
    let mounts = ["on", "second"].map(|id| {
        let more = ["--export", "up", "--leases", "on", "--lanes", "1"];
        fixture.mount(&server.address, id, &more)
    });
    let [on, second] = &mounts;
    let tops = [near_the_root(&on.dir), near_the_root(&second.dir)];
    let mut round = 0;
    until("names are changed behind", || {
        round += 1;
        let [dir, seen] = tops.each_ref().map(|top| top.join(format!("d{round}")));
        fs::create_dir(&dir).unwrap();
        let is_there = shard_of(&dir) != shard_of(&tops[0]);
        let before = ["made", "removed"].map(|change| changed(&fixture, on, change));
        for file in 0..30 {
            fs::write(dir.join(format!("f{file}")), bytes_of(file)).unwrap();
        }
        for file in 0..10 {
            fs::remove_file(dir.join(format!("f{file}"))).unwrap();
        }
        let after = ["made", "removed"].map(|change| changed(&fixture, on, change));
        let all: BTreeSet<String> = (10..30).map(|file| format!("f{file}")).collect();
        assert_eq!(names(&seen), all);
        assert_eq!(fs::read(seen.join("f29")).unwrap(), bytes_of(29));
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(fs::metadata(&seen).unwrap_err().kind(), ErrorKind::NotFound);
        is_there && after[0] > before[0] && after[1] > before[1]
    });
    assert_eq!(changed(&fixture, on, "lost"), 0);
    mounts.into_iter().for_each(Mount::stop);
}

/// Each mount makes its first directory at a lane of the server: the lane has not recorded it by then.
#[test]
fn the_names_of_the_first_directories_of_a_mount_are_known() {
    const MOUNT_COUNT: usize = 6;
    const DIRECTORY_COUNT: usize = 3;
    const FILE_COUNT: u64 = 60;
    let Some(fixture) = Fixture::new("names_behind_first") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let mut asking_count = 0;
    for mount_no in 0..MOUNT_COUNT {
        let mount = fixture.mount(&server.address, &format!("m{mount_no}"), &LEASES);
        let lookup_count = || exchange_count(&fixture, &mount, "lookup");
        let mut shards = BTreeSet::new();
        let mut asks = false;
        for dir_no in 0..DIRECTORY_COUNT {
            let dir = mount.dir.join(format!("{mount_no}-{dir_no}"));
            fs::create_dir(&dir).unwrap();
            let before = lookup_count();
            for file in 0..FILE_COUNT {
                File::create(dir.join(format!("f{file}"))).unwrap();
            }
            asks |= lookup_count() - before > FILE_COUNT / 2;
            shards.insert(shard_of(&dir) % 2);
        }
        assert_eq!(shards.len(), 2, "both lanes have some");
        asking_count += usize::from(asks);
        mount.stop();
    }
    // A machine that is busy for a term has a mount forget what it knows.
    assert!(asking_count <= 1, "{asking_count} of {MOUNT_COUNT} mounts looked up each new name");
    drop(server);
}
