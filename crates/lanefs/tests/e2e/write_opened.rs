//! Mounts that answer writes to files that were there before, which they alone have opened, before the
//! server has executed them: others see every byte.

use crate::fixture::{Fixture, Mount, until};
use crate::leases::{LEASES, pair};
use crate::mount_stats::total_of;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// Files are written behind once the server knows its free space and has recorded the mount.
fn warm(dir: &Path) {
    for count in 0..20 {
        fs::write(dir.join(format!("warm{count}")), b"warm").unwrap();
    }
}

fn append(path: &Path) -> File {
    OpenOptions::new().append(true).open(path).unwrap()
}

/// So many writes were executed behind their answers.
fn executed(fixture: &Fixture, mount: &Mount) -> u64 {
    total_of(fixture, mount)["behind_writes"]["executed"].as_u64().unwrap_or(0)
}

#[test]
fn appends_and_rewrites_are_seen_by_the_next_call_of_another_mount() {
    pair("write_opened_seen", |_, pair| {
        let dirs = [pair.dirs(0), pair.dirs(1)];
        dirs.iter().for_each(|(here, _)| warm(here));
        for count in 0..5 {
            fs::write(dirs[0].0.join(format!("f{count}")), b"begin").unwrap();
        }
        let mut wanted = vec![b"begin".to_vec(); 5];
        for round in 0..300_usize {
            let (here, there) = pair.dirs(round % 3);
            let index = round % 5;
            let name = format!("f{index}");
            let (path, seen) = (here.join(&name), there.join(&name));
            let wanted = &mut wanted[index];
            // Another mount may have it open, before or meanwhile.
            let reader = (round % 7 == 0).then(|| File::open(&seen).unwrap());
            let mut file = match round % 4 {
                0 | 1 => append(&path),
                2 => {
                    wanted.clear();
                    File::create(&path).unwrap()
                }
                _ => {
                    let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                    file.seek(SeekFrom::End(0)).unwrap();
                    file
                }
            };
            for part in 0..1 + round % 4 {
                let bytes = vec![u8::try_from(round % 251).unwrap(); 1 + 331 * part];
                file.write_all(&bytes).unwrap();
                wanted.extend(bytes);
            }
            match round % 6 {
                0 => assert_eq!(fs::metadata(&seen).unwrap().len(), wanted.len() as u64),
                1 => assert!(fs::read(&seen).unwrap() == *wanted, "round {round}"),
                2 => {
                    append(&seen).write_all(b"more").unwrap();
                    wanted.extend(b"more");
                }
                3 => {
                    file.write_all_at(b"!", 0).unwrap();
                    if round % 4 <= 1 {
                        wanted.push(b'!'); // O_APPEND
                    } else {
                        wanted[0] = b'!';
                    }
                }
                4 => {
                    file.set_len(3).unwrap();
                    wanted.truncate(3);
                }
                _ => {}
            }
            if let Some(mut reader) = reader {
                let mut found = Vec::new();
                reader.read_to_end(&mut found).unwrap();
                assert!(found == *wanted, "round {round}, open before");
            }
            if round % 6 != 2 && round % 4 != 3 {
                file.write_all(b"end").unwrap();
                let at_end = round % 4 <= 1 || round % 6 != 4;
                // Behind a cut, a file that is not appended to has a hole.
                if !at_end {
                    let size = file.metadata().unwrap().len();
                    wanted.resize(usize::try_from(size).unwrap() - 3, 0);
                }
                wanted.extend(b"end");
            }
            for path in [&seen, &path] {
                assert!(fs::read(path).unwrap() == *wanted, "round {round}");
                let found = fs::metadata(path).unwrap();
                assert_eq!(found.len(), wanted.len() as u64);
                assert!(found.blocks() > 0 || wanted.is_empty());
            }
        }
        pair.stop();
    });
}

#[test]
fn what_is_appended_to_an_existing_file_is_not_waited_for() {
    let Some(fixture) = Fixture::new("write_opened_counts") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s"]);
    for (name, option) in [("on", None), ("off", Some("--write-behind=off"))] {
        let options: Vec<&str> = LEASES.iter().copied().chain(option).collect();
        let mount = fixture.mount(&server.address, name, &options);
        warm(&mount.dir);
        let path = mount.dir.join(name);
        fs::write(&path, b"begin").unwrap();
        let written = |count: u64| {
            let before = executed(&fixture, &mount);
            let mut file = append(&path);
            (0..count).for_each(|_| file.write_all(&[7; 100]).unwrap());
            file.sync_all().unwrap();
            executed(&fixture, &mount) - before
        };
        if option.is_some() {
            assert_eq!(written(20), 0);
        } else {
            // All but the first, which may show where the file ends; once the server knows that the
            // mount has closed the file before.
            until("appends are answered early", || written(20) >= 19);
        }
        let size = fs::metadata(&path).unwrap().len();
        assert_eq!(size % 100, 5);
        mount.stop();
    }
}

#[test]
fn nothing_is_lost_when_the_server_is_killed_or_the_mount_ends() {
    let Some(fixture) = Fixture::new("write_opened_killed") else { return };
    let mut up = fixture.up(&[]);
    let mount = fixture.mount(&up.address, "second", &LEASES);
    warm(&mount.dir);
    let name = |count: usize| format!("f{count}");
    for count in 0..40 {
        fs::write(mount.dir.join(name(count)), b"begin").unwrap();
    }
    for count in 0..40 {
        let mut file = append(&mount.dir.join(name(count)));
        for part in 0..4 {
            file.write_all(&vec![part; 1000 + count]).unwrap();
            if count == 20 && part == 2 {
                up.kill_server();
            }
        }
    }
    mount.stop();
    for count in 0..40 {
        let parts = (0..4).flat_map(|part| vec![part; 1000 + count]);
        let wanted: Vec<u8> = b"begin".iter().copied().chain(parts).collect();
        assert!(fs::read(up.dir.join(name(count))).unwrap() == wanted, "f{count}");
    }
    up.stop();
}

#[test]
fn a_killed_mount_loses_only_an_end() {
    let Some(fixture) = Fixture::new("write_opened_mount_killed") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "2s"]);
    let [victim, other] = ["a", "b"].map(|name| fixture.mount(&server.address, name, &LEASES));
    warm(&victim.dir);
    fs::write(victim.dir.join("f"), b"").unwrap();
    let mut file = append(&victim.dir.join("f"));
    let mut wanted = Vec::new();
    for count in 0..200_u8 {
        file.write_all(&[count; 500]).unwrap();
        wanted.extend([count; 500]);
        if count == 100 {
            file.sync_all().unwrap();
        }
    }
    victim.process.signal(Signal::KILL);
    let found = fs::read(other.dir.join("f")).unwrap();
    assert!(wanted.starts_with(&found), "{} bytes", found.len());
    assert!(found.len() >= 101 * 500, "what was synced is there: {} bytes", found.len());
    drop(file);
    other.stop();
}

#[test]
fn a_stopped_mount_delays_others_for_a_term_and_is_fenced() {
    let Some(fixture) = Fixture::new("write_opened_stopped") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "2s"]);
    let [holder, other] = ["a", "b"].map(|name| fixture.mount(&server.address, name, &LEASES));
    warm(&holder.dir);
    fs::write(holder.dir.join("f"), b"begin").unwrap();
    let mut file = append(&holder.dir.join("f"));
    file.write_all(b" synced").unwrap();
    file.sync_all().unwrap();
    holder.process.signal(Signal::STOP);
    append(&other.dir.join("f")).write_all(b" other").unwrap();
    assert_eq!(fs::read(other.dir.join("f")).unwrap(), b"begin synced other");
    holder.process.signal(Signal::CONT);
    // It may not know yet that it has lost the lease: then its writer is told.
    let mut wanted = b"begin synced other".to_vec();
    let again = file.write_all(b" again").and_then(|()| file.sync_all());
    match again {
        Ok(()) => wanted.extend(b" again"),
        Err(error) => assert_eq!(error.raw_os_error(), Some(5), "{error}"),
    }
    for mount in [&other, &holder] {
        assert_eq!(fs::read(mount.dir.join("f")).unwrap(), wanted);
    }
    drop(file);
    // A later open of the fenced mount loses nothing.
    for _ in 0..5 {
        let mut file = append(&holder.dir.join("f"));
        file.write_all(b"!").unwrap();
        file.write_all(b"!").unwrap();
        file.sync_all().unwrap();
    }
    wanted.extend([b'!'; 10]);
    assert_eq!(fs::read(other.dir.join("f")).unwrap(), wanted);
    [holder, other].into_iter().for_each(Mount::stop);
}
