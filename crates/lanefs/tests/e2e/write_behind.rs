//! Mounts that answer writes to new files before the server has executed them: others see every byte,
//! and nothing is lost but with the mount's process.

use crate::fixture::{Fixture, Mount, must, program, until};
use crate::hostile::Tmpfs;
use crate::idle::connect;
use crate::leases::{Counting, LEASES, pair};
use crate::mount_stats::total_of;
use rustix::fs::{FallocateFlags, Gid, Uid, fallocate};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

/// Files are written behind once the server knows its free space and has recorded the mount.
fn warm(dir: &Path) {
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
            assert!(own.blocks() > 0, "as du counts");
            if round % 2 == 0 {
                assert_eq!(own.modified().unwrap(), then);
            }
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
        pair.stop();
    });
}

#[test]
fn what_is_written_behind_is_cut_and_punched_by_either_mount() {
    pair("write_behind_cut", |_, pair| {
        let dirs = [pair.dirs(0), pair.dirs(1)];
        dirs.iter().for_each(|(here, _)| warm(here));
        let punches = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        for round in 0..120_u64 {
            let (here, there) = pair.dirs(usize::try_from(round).unwrap());
            let name = format!("c{round}");
            let file = File::create_new(here.join(&name)).unwrap();
            let mut wanted = vec![9; usize::try_from(10_000 + 37 * round).unwrap()];
            file.write_all_at(&wanted, 0).unwrap();
            // With the bytes under way: by another mount, by another handle, by the writer's own.
            let other = |dir: &Path| OpenOptions::new().write(true).open(dir.join(&name)).unwrap();
            let other = match round % 3 {
                0 => other(there),
                1 => other(here),
                _ => file.try_clone().unwrap(),
            };
            if round % 2 == 0 {
                other.set_len(4_000 + round).unwrap();
                wanted.truncate(usize::try_from(4_000 + round).unwrap());
            } else {
                fallocate(&other, punches, 1_000, 5_000).unwrap();
                wanted[1_000..6_000].fill(0);
            }
            let at = wanted.len() as u64;
            file.write_all_at(b"end", at).unwrap();
            wanted.extend(b"end");
            for dir in [there, here] {
                assert_eq!(fs::metadata(dir.join(&name)).unwrap().len(), wanted.len() as u64);
                assert!(fs::read(dir.join(&name)).unwrap() == wanted, "round {round}");
            }
        }
        pair.stop();
    });
}

#[test]
fn attributes_that_are_set_behind_are_seen_by_the_next_call_of_another_mount() {
    pair("write_behind_attributes", |_, pair| {
        let dirs = [pair.dirs(0), pair.dirs(1)];
        dirs.iter().for_each(|(here, _)| warm(here));
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for round in 0..200_u32 {
            let (here, there) = pair.dirs(usize::try_from(round).unwrap());
            let name = format!("a{round}");
            let file = File::create_new(here.join(&name)).unwrap();
            if round % 2 == 0 {
                file.write_all_at(&[7; 4096], 0).unwrap();
            }
            // As tar does it; a set-id bit goes with the owner before.
            let mode = if round % 5 == 0 { 0o4755 } else { 0o600 + round % 8 };
            let (uid, gid) = (1_000 + round, 2_000 + round);
            file.set_modified(then).unwrap();
            fs::set_permissions(here.join(&name), fs::Permissions::from_mode(mode)).unwrap();
            rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
            file.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
            if round % 3 == 0 {
                drop(file);
            }
            for dir in [there, here] {
                let found = fs::metadata(dir.join(&name)).unwrap();
                assert_eq!(found.mode() & 0o7777, mode);
                assert_eq!((found.uid(), found.gid()), (uid, gid));
                assert_eq!(found.modified().unwrap(), then);
            }
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

/// The number of a counter of writing behind, of a mount.
fn writes(fixture: &Fixture, mount: &Mount, outcome: &str) -> u64 {
    total_of(fixture, mount)["behind_writes"][outcome].as_u64().unwrap()
}

#[test]
fn what_a_stopped_mount_had_under_way_is_refused_and_its_writers_are_told() {
    const BYTES: usize = 1_000_000;
    const COUNT: usize = 20;
    let Some(fixture) = Fixture::new("write_behind_under_way") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "2s"]);
    let one_lane = [&LEASES[..], &["--lanes", "1"]].concat();
    let [holder, other] = ["a", "b"].map(|name| fixture.mount(&server.address, name, &one_lane));
    warm(&holder.dir);
    let files: Vec<File> = (0..COUNT)
        .map(|count| File::create_new(holder.dir.join(format!("f{count}"))).unwrap())
        .collect();
    // More than sockets buffer: the server gets some, and the mount keeps some.
    server.process.signal(Signal::STOP);
    let written_count = AtomicUsize::new(0);
    let synced: Vec<io::Result<()>> = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            files.iter().for_each(|mut file| {
                file.write_all(&[1; BYTES]).unwrap();
                written_count.fetch_add(1, Ordering::SeqCst);
            });
        });
        until("writes are answered without the server", || {
            written_count.load(Ordering::SeqCst) >= 14
        });
        holder.process.signal(Signal::STOP);
        server.process.signal(Signal::CONT);
        let append = |count: usize| {
            let path = other.dir.join(format!("f{count}"));
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(b"other").unwrap();
            file.sync_all().unwrap();
        };
        let others: Vec<_> = (0..COUNT).map(|count| scope.spawn(move || append(count))).collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        holder.process.signal(Signal::CONT);
        writer.join().unwrap();
        // It closes the files of its parent, and hears of no error.
        must(&mut program("true"));
        files.iter().map(File::sync_all).collect()
    });
    let mut refused_count = 0;
    for (count, synced) in synced.iter().enumerate() {
        let [found, own] =
            [&other, &holder].map(|mount| fs::read(mount.dir.join(format!("f{count}"))).unwrap());
        let (mine, others) = (vec![1; BYTES], b"other".to_vec());
        let both = [&mine[..], &others].concat();
        let name_of = |bytes: &Vec<u8>| match bytes {
            it if *it == mine => "its own",
            it if *it == others => "the other mount's",
            it if *it == both => "both",
            _ => "a mixture",
        };
        let seen = format!(
            "f{count}: synced {synced:?}, the other mount sees {} bytes, {}, the writer {}, {}",
            found.len(),
            name_of(&found),
            own.len(),
            name_of(&own)
        );
        match synced {
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5), "{seen}");
                assert!(found == others, "{seen}");
                refused_count += 1;
            }
            // Executed before the other mount wrote; or after it, over its bytes, for a writer that
            // had to wait.
            Ok(()) => assert!(found == both || found == mine, "{seen}"),
        }
        assert!(own == found, "{seen}");
    }
    assert!(refused_count > 0, "nothing was under way");
    assert_eq!(writes(&fixture, &holder, "lost"), refused_count);
    assert_eq!(writes(&fixture, &other, "lost"), 0);
    holder.stop();
    other.stop();
}

#[test]
fn a_disk_that_others_fill_loses_no_answered_write_without_a_word() {
    const PIECE: usize = 64 << 10;
    let Some(fixture) = Fixture::new("write_behind_full") else { return };
    let disk = fixture.make_dir("disk");
    let limit = "size=2300m";
    must(program("mount").args(["-t", "tmpfs", "-o", limit, "lanefs-test"]).arg(&disk));
    let mounted = Tmpfs(disk.clone());
    let store = disk.join("store");
    let up = fixture.up(&["--store", store.to_str().unwrap()]);
    let mount = fixture.mount(&up.address, "second", &LEASES);
    warm(&mount.dir);
    let mut file = File::create_new(mount.dir.join("file")).unwrap();
    file.write_all(&vec![0; PIECE]).unwrap();
    file.sync_all().unwrap();
    assert!(writes(&fixture, &mount, "executed") > 0, "nothing is written behind");
    // All but a few pieces, which is not what the server has promised.
    let free = rustix::fs::statvfs(&disk).unwrap();
    let filler = File::create_new(disk.join("filler")).unwrap();
    let fill_bytes = free.f_bavail * free.f_frsize - 6 * PIECE as u64;
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, fill_bytes).unwrap();
    let mut answered = vec![0; PIECE];
    let mut said = None;
    for count in 1..=100 {
        match file.write_all(&vec![count; PIECE]) {
            Ok(()) => answered.extend(vec![count; PIECE]),
            Err(error) => {
                said = Some(error);
                break;
            }
        }
    }
    let said = said.or_else(|| file.sync_all().err()).and_then(|error| error.raw_os_error());
    assert_eq!(said, Some(28), "the writer is told");
    drop(file);
    let found = fs::read(mount.dir.join("file")).unwrap();
    assert!(answered.starts_with(&found), "{} of {} bytes", found.len(), answered.len());
    assert!(found.len() >= PIECE, "what was synced is there");
    drop(filler);
    fs::remove_file(disk.join("filler")).unwrap();
    until("there is space again", || fs::write(mount.dir.join("after"), vec![1; PIECE]).is_ok());
    let after = File::open(mount.dir.join("after")).unwrap();
    after.sync_all().unwrap();
    assert_eq!(fs::read(up.dir.join("after")).unwrap(), vec![1; PIECE]);
    assert_eq!(fs::read(up.dir.join("file")).unwrap(), found);
    mount.stop();
    up.stop();
    drop(mounted);
}
