//! Files that are at one server until they have a second stripe, as mounts of three servers see them.

#![allow(clippy::cast_possible_truncation)]

use crate::cluster::{Cluster, count_of, stop};
use crate::fixture::{Mount, failure, must, own_address, run, until};
use crate::names_behind::changed;
use crate::wide_files::{UNIT, bytes, layout_of, open, set_layout, there, wide};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A directory on a mount whose files grow.
fn growing(cluster: &Cluster, wide: &Path) -> PathBuf {
    let dir = wide.join("grows");
    fs::create_dir(&dir).unwrap();
    set_layout(cluster, &dir, &["--count", "all", "--unit", "64KiB", "--grows"]);
    dir
}

/// Bytes of the objects of a file in each store.
fn stored(cluster: &Cluster, inode: u64) -> [u64; 3] {
    let is_of = |name: &str| {
        let hex = name.split('.').next().unwrap_or_default();
        u64::from_str_radix(hex, 16).is_ok_and(|number| number == inode)
    };
    ["one", "two", "three"].map(|store| {
        let mut sum = 0;
        let mut folders = Vec::from([cluster.fixture.path(store).join("objects")]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                if entry.metadata().unwrap().is_dir() {
                    folders.push(entry.path());
                } else if is_of(&entry.file_name().to_string_lossy()) {
                    sum += entry.metadata().unwrap().len();
                }
            }
        }
        sum
    })
}

#[test]
fn a_small_file_is_at_one_server_and_a_large_one_at_all() {
    let Some(cluster) = Cluster::new("growing") else { return };
    let (servers, mount, dir) = wide(&cluster);
    let dir = growing(&cluster, &dir);
    assert_eq!(layout_of(&dir), "unit=65536,count=0,grows=1");
    let path = dir.join("file");
    let asked = |op: &str| [0, 1, 2].map(|at| count_of(&cluster, &servers[at], op));
    let ops = ["glimpse", "write", "read", "truncate"];
    let (before, syncs_before) = (ops.map(asked), asked("sync"));
    let mut file = open(&path);
    assert_eq!(layout_of(&path), "unit=65536,count=3,grows=1");
    let mut contents = bytes(1, UNIT as usize - 100);
    file.write_all(&contents).unwrap();
    file.set_len(UNIT - 200).unwrap();
    contents.truncate(UNIT as usize - 200);
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::metadata(&path).unwrap().len(), UNIT - 200);
    assert_eq!(fs::read(&path).unwrap(), contents);
    let after = ops.map(asked);
    let mut others: [u64; 3] = [0; 3];
    for (before, after) in before.iter().zip(&after) {
        (0..3).for_each(|at| others[at] += after[at] - before[at]);
    }
    let count = others.iter().filter(|count| **count > 0).count();
    assert_eq!(count, 1, "only the home server has the contents: {others:?}");
    let syncs = asked("sync");
    let synced = (0..3).filter(|at| syncs[*at] > syncs_before[*at]).count();
    assert!((1..=2).contains(&synced), "of the name and of the contents: {syncs:?}");
    assert_eq!([0, 1, 2].map(|at| count_of(&cluster, &servers[at], "widen")), [0; 3]);
    let inode = fs::metadata(&path).unwrap().ino();
    let small = stored(&cluster, inode);
    assert_eq!(small.iter().filter(|bytes| **bytes > 0).count(), 1, "{small:?}");
    // It grows.
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let more = bytes(2, 5 * UNIT as usize);
    file.write_all(&more).unwrap();
    file.sync_all().unwrap();
    contents.extend_from_slice(&more);
    assert_eq!(fs::read(&path).unwrap(), contents);
    assert_eq!(fs::metadata(&path).unwrap().len(), contents.len() as u64);
    let large = stored(&cluster, inode);
    assert!(large.iter().all(|bytes| *bytes >= UNIT), "{large:?}");
    let widened: u64 = [0, 1, 2].map(|at| count_of(&cluster, &servers[at], "widen")).iter().sum();
    assert_eq!(widened, 1);
    // A check finds a file that has grown, and one that has not, in order.
    fs::write(dir.join("small"), &contents[..100]).unwrap();
    mount.stop();
    servers.into_iter().for_each(stop);
    let mut check = cluster.fixture.lanefs(["check", "--cluster"]);
    let found = must(check.args(["one", "two", "three"].map(|store| cluster.fixture.path(store))));
    assert!(found.contains("0 damages, 0 warnings"), "{found}");
}

#[test]
fn another_mount_that_has_it_cached_sees_a_file_grow() {
    let Some(cluster) = Cluster::new("growing_two") else { return };
    let (servers, mount, dir) = wide(&cluster);
    let dir = growing(&cluster, &dir);
    let other = cluster.mount(&servers[1], "other");
    for number in 0..8 {
        let path = dir.join(format!("file{number}"));
        let seen = there(&path, &mount, &other);
        let mut contents = bytes(number, 30_000);
        fs::write(&path, &contents).unwrap();
        let reader = open(&seen);
        let writer = open(&path);
        let read = |at: u64, count: usize| {
            let mut found = vec![0; count];
            let found_bytes = reader.read_at(&mut found, at).unwrap();
            found.truncate(found_bytes);
            found
        };
        assert_eq!(read(0, 40_000), contents, "it has pages of the file, and its size");
        assert_eq!(fs::metadata(&seen).unwrap().len(), 30_000);
        // What was written, cut, appended to and written again at one mount is so at the other.
        let end = UNIT * (number + 2);
        writer.write_all_at(b"far", end).unwrap();
        contents.resize(end as usize, 0);
        contents.extend_from_slice(b"far");
        assert_eq!(read(end, 10), b"far");
        assert_eq!(fs::metadata(&seen).unwrap().len(), end + 3);
        let mut appender = fs::OpenOptions::new().append(true).open(&seen).unwrap();
        appender.write_all(b"behind").unwrap();
        contents.extend_from_slice(b"behind");
        reader.write_all_at(b"near", 10).unwrap();
        contents[10..14].copy_from_slice(b"near");
        assert_eq!(fs::read(&path).unwrap(), contents);
        assert_eq!(fs::read(&seen).unwrap(), contents);
        writer.set_len(20).unwrap();
        assert_eq!(read(0, 100), contents[..20]);
        writer.write_all_at(b"again", UNIT).unwrap();
        assert_eq!(read(UNIT - 5, 100), b"\0\0\0\0\0again");
    }
    mount.stop();
}

/// A new cluster gives a layout that grows: small files are created and removed as those of one server.
#[test]
fn new_files_grow_and_small_ones_are_changed_behind() {
    let Some(cluster) = Cluster::new("growing_new") else { return };
    let (servers, probe, _) = wide(&cluster);
    let more = ["--export", "up", "--leases", "on", "--lanes", "1"];
    let mount = cluster.fixture.mount(&servers[0].address, "leased", &more);
    let mut round = 0;
    until("names are changed behind", || {
        round += 1;
        let dir = mount.dir.join(format!("d{round}"));
        fs::create_dir(&dir).unwrap();
        let before = ["made", "removed"].map(|change| changed(&cluster.fixture, &mount, change));
        for file in 0..30 {
            fs::write(dir.join(format!("f{file}")), bytes(file, 1 + 97 * file as usize)).unwrap();
        }
        for file in 0..10 {
            fs::remove_file(dir.join(format!("f{file}"))).unwrap();
        }
        for file in 10..30 {
            let path = dir.join(format!("f{file}"));
            assert_eq!(fs::read(&path).unwrap(), bytes(file, 1 + 97 * file as usize));
            assert_eq!(layout_of(&path), "unit=4194304,count=3,grows=1");
        }
        let after = ["made", "removed"].map(|change| changed(&cluster.fixture, &mount, change));
        after[0] > before[0] && after[1] > before[1]
    });
    assert_eq!(changed(&cluster.fixture, &mount, "lost"), 0);
    assert_eq!([0, 1, 2].map(|at| count_of(&cluster, &servers[at], "widen")), [0; 3]);
    // One that is written behind, as a new file is, beyond its first stripe.
    let dir = mount.dir.join(format!("d{round}"));
    let (path, contents) = (dir.join("large"), bytes(7, 20 << 20));
    let mut file = fs::File::create(&path).unwrap();
    for part in contents.chunks(100_000) {
        file.write_all(part).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    assert!(fs::read(&path).unwrap() == contents);
    let stored = stored(&cluster, fs::metadata(&path).unwrap().ino());
    assert!(stored.iter().all(|bytes| *bytes >= 4 << 20), "{stored:?}");
    fs::remove_file(&path).unwrap();
    [probe, mount].into_iter().for_each(Mount::stop);
    servers.into_iter().for_each(stop);
    let mut check = cluster.fixture.lanefs(["check", "--cluster"]);
    let found = must(check.args(["one", "two", "three"].map(|store| cluster.fixture.path(store))));
    assert!(found.contains("0 damages, 0 warnings"), "{found}");
}

#[test]
fn a_cluster_may_keep_its_files_at_one_server_each() {
    let Some(cluster) = Cluster::new("growing_none") else { return };
    let (init, url) = (["cluster", "init", "--layout", "count=3", "--etcd"], cluster.url());
    let mut wrong = cluster.fixture.lanefs(init);
    wrong.args([&url, "--store"]).arg(cluster.fixture.path("one"));
    let (_, said) = failure(&run(&mut wrong));
    assert!(said.contains("count=1, or as unit=4M,count=8,grows=1"), "{said}");
    cluster.init_with(&["--layout", "count=1"]);
    let one = cluster.serve("one", &own_address(), &[]);
    let two = cluster.join("two");
    let mount = cluster.mount(&one, "mnt");
    for number in 0..20 {
        let dir = mount.dir.join(format!("d{number}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), "contents").unwrap();
        assert_eq!(layout_of(&dir.join("f")), format!("unit={},count=1", 1_u64 << 41));
    }
    mount.stop();
    [one, two].into_iter().for_each(stop);
}
