//! Files whose stripes are at several servers: bytes, sizes and layouts as several mounts see them, and
//! servers that die.

#![allow(clippy::cast_possible_truncation)]

use crate::cluster::Cluster;
use crate::fixture::{Mount, Server, failure, kill, must, own_address, program, run, until};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const UNIT: u64 = 1 << 16;
const LAYOUT: &str = "lanefs.layout";

/// Three servers, a mount, and a directory on it whose files are on all of them.
pub(crate) fn wide(cluster: &Cluster) -> ([Server; 3], Mount, PathBuf) {
    cluster.init();
    let one = cluster.serve("one", &own_address(), &[]);
    let (two, three) = (cluster.join("two"), cluster.join("three"));
    let mount = cluster.mount(&one, "mnt");
    let dir = mount.dir.join("wide");
    until("new files are on all servers", || {
        fs::create_dir(&dir).unwrap();
        set_layout(cluster, &dir, &["--count", "all", "--unit", "64KiB"]);
        let probe = dir.join("probe");
        File::create(&probe).unwrap();
        let is_wide = layout_of(&probe) == "unit=65536,count=3";
        fs::remove_file(&probe).unwrap();
        if !is_wide {
            fs::remove_dir(&dir).unwrap();
        }
        is_wide
    });
    ([one, two, three], mount, dir)
}

pub(crate) fn set_layout(cluster: &Cluster, dir: &Path, options: &[&str]) {
    must(cluster.fixture.lanefs(["layout", "set"]).arg(dir).args(options));
}

pub(crate) fn layout_of(path: &Path) -> String {
    let mut text = [0; 64];
    let text_bytes = rustix::fs::getxattr(path, LAYOUT, &mut text).unwrap();
    String::from_utf8(text[..text_bytes].to_vec()).unwrap()
}

/// Bytes that differ from place to place.
pub(crate) fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// The same file on another mount.
pub(crate) fn there(path: &Path, mount: &Mount, other: &Mount) -> PathBuf {
    other.dir.join(path.strip_prefix(&mount.dir).unwrap())
}

pub(crate) fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn the_stripes_of_a_file_are_on_all_servers() {
    let Some(cluster) = Cluster::new("wide_layout") else { return };
    let (servers, mount, dir) = wide(&cluster);
    let path = dir.join("file");
    let contents = bytes(1, 10 * UNIT as usize + 77);
    fs::write(&path, &contents).unwrap();
    assert_eq!(layout_of(&dir), "unit=65536,count=0");
    let said = must(cluster.fixture.lanefs(["layout", "get"]).args([&dir, &path]));
    let (dir_line, file_line) = said.split_once('\n').unwrap();
    assert!(dir_line.ends_with("wide: all servers, stripes of 64K"), "{said}");
    assert!(file_line.trim_end().ends_with("wide/file: 3 servers, stripes of 64K"), "{said}");
    // The same by the server's address.
    let url = format!("lanefs://{}/wide/file", servers[1].address);
    let login = ["--export", "up"];
    let by_url = |arguments: &[&str]| must(cluster.fixture.lanefs(arguments).arg(&url).args(login));
    assert!(by_url(&["layout", "get"]).ends_with("3 servers, stripes of 64K\n"));
    let checked = by_url(&["layout", "check", "--json"]);
    let mut command = cluster.fixture.lanefs(["layout", "check", "--json", "--export", "up"]);
    let of_mount = must(command.arg(&path));
    let rows = |said: &str| -> Vec<(u64, u64, u64, u64, String)> {
        let row = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |key: &str| row[key].as_u64().unwrap();
            let address = row["address"].as_str().unwrap().to_owned();
            let counts = (number("stripe_count"), number("size_bytes"));
            (number("first_stripe"), number("server"), counts.0, counts.1, address)
        };
        said.lines().map(row).collect()
    };
    assert_eq!(rows(&checked).len(), 3, "{checked}");
    for said in [&checked, &of_mount] {
        let rows = rows(said);
        let firsts: Vec<u64> = rows.iter().map(|row| row.0).collect();
        assert_eq!(firsts, [0, 1, 2]);
        let mut ids: Vec<u64> = rows.iter().map(|row| row.1).collect();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3], "one part at each server");
        let stripes: Vec<u64> = rows.iter().map(|row| row.2).collect();
        assert_eq!(stripes, [4, 4, 3]);
        assert_eq!(rows.iter().map(|row| row.3).sum::<u64>(), contents.len() as u64);
    }
    let shown = must(cluster.fixture.lanefs(["layout", "check", "--export", "up"]).arg(&path));
    assert!(shown.contains("STRIPES FROM  SERVER"), "{shown}");
    // Each server has its own part, and no more.
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    for store in ["one", "two", "three"] {
        let stored = objects_bytes(&cluster.fixture.path(store));
        assert!(stored > 2 * UNIT && stored < 6 * UNIT, "{store} has {stored} bytes");
    }
    mount.stop();
}

/// Bytes allocated to objects of contents in a store.
fn objects_bytes(store: &Path) -> u64 {
    let mut sum = 0;
    let mut folders = Vec::from([store.join("objects")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                folders.push(entry.path());
            } else {
                sum += meta.blocks() * 512;
            }
        }
    }
    sum
}

#[test]
fn directories_give_their_layout_and_files_keep_theirs() {
    let Some(cluster) = Cluster::new("wide_inherit") else { return };
    let (_servers, mount, dir) = wide(&cluster);
    let below = dir.join("below");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("file"), "x").unwrap();
    assert_eq!(layout_of(&below.join("file")), "unit=65536,count=3");
    set_layout(&cluster, &below, &["--count", "2"]);
    fs::write(below.join("two"), "x").unwrap();
    assert_eq!(layout_of(&below.join("two")), "unit=1048576,count=2");
    assert_eq!(layout_of(&below.join("file")), "unit=65536,count=3", "as it was made");
    let mut command = cluster.fixture.lanefs(["layout", "set", "--count", "2"]);
    let (code, said) = failure(&run(command.arg(below.join("file"))));
    assert_eq!(code, 1);
    assert!(said.contains("keeps the layout that it was made with"), "{said}");
    for value in ["count=65", "unit=3M", "nonsense"] {
        let refused = rustix::fs::setxattr(&below, LAYOUT, value.as_bytes(), XattrFlags::empty());
        assert_eq!(refused, Err(Errno::INVAL), "{value}");
    }
    let outside = mount.dir.join("plain");
    fs::write(&outside, "x").unwrap();
    let said = must(cluster.fixture.lanefs(["layout", "get"]).args([&outside, &mount.dir]));
    assert!(said.contains("plain: one server"), "{said}");
    assert!(said.contains("no layout of its own"), "{said}");
    // What cp -a copies has the directories' layouts.
    let copy = mount.dir.join("copy");
    let copied = program("cp").arg("-a").args([&dir, &copy]).status().unwrap();
    assert!(copied.success());
    assert_eq!(layout_of(&copy), "unit=65536,count=0");
    assert_eq!(layout_of(&copy.join("below")), "unit=1048576,count=2");
    assert_eq!(fs::read(copy.join("below/two")).unwrap(), b"x");
    let local = cluster.fixture.make_dir("local");
    let copied = program("cp").arg("-a").args([&dir, &local.join("wide")]).status().unwrap();
    assert!(copied.success(), "a file system without layouts takes the files");
    // Away from a mount there are none.
    let (code, said) = failure(&run(cluster.fixture.lanefs(["layout", "get"]).arg(&local)));
    assert_eq!(code, 1);
    assert!(said.contains("on a mount of lanefs"), "{said}");
    rustix::fs::removexattr(&copy, LAYOUT).unwrap();
    fs::write(copy.join("plain"), "x").unwrap();
    assert_eq!(rustix::fs::getxattr(&copy, LAYOUT, &mut [0_u8; 64]), Err(Errno::NODATA));
    mount.stop();
}

#[test]
fn random_reads_and_writes_of_two_mounts_equal_an_array_of_bytes() {
    let Some(cluster) = Cluster::new("wide_random") else { return };
    let (servers, mount, dir) = wide(&cluster);
    let other = cluster.mount(&servers[1], "other");
    let path = dir.join("file");
    let files = [open(&path), open(&there(&path, &mount, &other))];
    let mut model: Vec<u8> = Vec::new();
    let mut prng = fastrand::Rng::with_seed(7);
    for step in 0..300_u64 {
        let mut next = |below: u64| prng.u64(..below);
        let (file, kind) = (&files[(step % 2) as usize], next(10));
        let offset = next(9 * UNIT) as usize;
        let count = 1 + next(4 * UNIT) as usize;
        match kind {
            0..4 => {
                let data = bytes(step, count);
                file.write_all_at(&data, offset as u64).unwrap();
                let end = offset + count;
                model.resize(model.len().max(end), 0);
                model[offset..end].copy_from_slice(&data);
            }
            4 => {
                file.set_len(offset as u64).unwrap();
                model.resize(offset, 0);
            }
            5 => file.sync_all().unwrap(),
            _ => {
                let mut found = vec![0; count];
                let found_bytes = read_at(file, &mut found, offset as u64);
                let (from, until) = (offset.min(model.len()), (offset + count).min(model.len()));
                assert!(found[..found_bytes] == model[from..until], "step {step}");
            }
        }
        assert_eq!(files[1].metadata().unwrap().len(), model.len() as u64, "step {step}");
    }
    for file in [&path, &there(&path, &mount, &other)] {
        assert!(fs::read(file).unwrap() == model);
    }
    other.stop();
    mount.stop();
}

#[test]
fn what_is_written_to_new_files_is_seen_by_another_mount_and_outlives_a_server() {
    let Some(cluster) = Cluster::new("wide_new") else { return };
    let ([one, mut two, three], mount, dir) = wide(&cluster);
    let other = cluster.mount(&three, "other");
    let mut prng = fastrand::Rng::with_seed(9);
    let write = |file: &mut File, model: &mut Vec<u8>, seed: u64, count: u64| {
        let data = bytes(seed, count as usize);
        file.write_all(&data).unwrap();
        model.extend(data);
    };
    for number in 0..30_u64 {
        let path = dir.join(format!("new{number}"));
        let (mut file, mut model) = (File::create_new(&path).unwrap(), Vec::new());
        for step in 0..prng.u64(..8) {
            let unit = if prng.bool() { UNIT } else { 1 };
            write(&mut file, &mut model, number << 8 | step, unit * prng.u64(1..6));
        }
        if number % 2 == 0 {
            assert!(fs::read(there(&path, &mount, &other)).unwrap() == model, "while it is open");
            write(&mut file, &mut model, number << 8 | 99, 3 * UNIT);
        }
        drop(file);
        assert!(fs::read(there(&path, &mount, &other)).unwrap() == model, "file {number}");
    }
    // A server dies between the answers and the sync.
    let path = dir.join("killed");
    let (mut file, mut model) = (File::create_new(&path).unwrap(), Vec::new());
    for step in 0..20 {
        write(&mut file, &mut model, step, 5 * UNIT + 100);
        if step == 10 {
            kill(two.process.pid());
            two.process.end();
            let listen = two.address.clone();
            two = cluster.serve("two", &listen, &[]);
        }
    }
    file.sync_all().unwrap();
    assert!(fs::read(there(&path, &mount, &other)).unwrap() == model);
    other.stop();
    mount.stop();
    drop((one, two));
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &File, into: &mut [u8], offset: u64) -> usize {
    let mut done = 0;
    loop {
        match file.read_at(&mut into[done..], offset + done as u64).unwrap() {
            0 => return done,
            more => done += more,
        }
    }
}

#[test]
fn programs_copy_files_and_leave_holes() {
    let Some(cluster) = Cluster::new("wide_programs") else { return };
    let (servers, mount, dir) = wide(&cluster);
    let other = cluster.mount(&servers[2], "other");
    let source = cluster.fixture.path("source");
    fs::write(&source, bytes(3, 9 << 20)).unwrap();
    let (copied, dd) = (dir.join("copied"), dir.join("dd"));
    assert!(program("cp").args([&source, &copied]).status().unwrap().success());
    let (from, to) = (format!("if={}", source.display()), format!("of={}", dd.display()));
    let options = [&from, &to, "bs=300k", "conv=fsync", "status=none"];
    assert!(program("dd").args(options).status().unwrap().success());
    for file in [&copied, &dd] {
        assert!(
            program("cmp")
                .args([&source, &there(file, &mount, &other)])
                .status()
                .unwrap()
                .success()
        );
    }
    // Sparse: bytes at a few places, zeros elsewhere.
    let sparse = dir.join("sparse");
    let file = open(&sparse);
    file.write_all_at(b"end", 100 * UNIT + 9).unwrap();
    file.write_all_at(b"middle", 40 * UNIT).unwrap();
    let seen = fs::read(there(&sparse, &mount, &other)).unwrap();
    assert_eq!(seen.len() as u64, 100 * UNIT + 12);
    assert_eq!(seen.iter().filter(|byte| **byte != 0).count(), 9);
    assert_eq!(&seen[40 * UNIT as usize..][..6], b"middle");
    file.set_len(40 * UNIT + 3).unwrap();
    assert_eq!(fs::read(there(&sparse, &mount, &other)).unwrap()[40 * UNIT as usize..], *b"mid");
    file.set_len(50 * UNIT).unwrap();
    let seen = fs::read(&sparse).unwrap();
    assert!(
        seen.len() as u64 == 50 * UNIT
            && seen[40 * UNIT as usize + 3..].iter().all(|byte| *byte == 0)
    );
    for name in ["copied", "dd", "sparse"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    other.stop();
    mount.stop();
}

#[test]
fn a_server_that_dies_loses_nothing_of_its_stripes() {
    let Some(cluster) = Cluster::new("wide_killed") else { return };
    let ([one, mut two, three], mount, dir) = wide(&cluster);
    let path = dir.join("file");
    let (file, stop) = (open(&path), AtomicBool::new(false));
    let block_bytes = 3 * UNIT as usize + 1000;
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) || count % 8 != 0 {
                let block = bytes(count, block_bytes);
                file.write_all_at(&block, count % 8 * block_bytes as u64).unwrap();
                if count % 5 == 0 {
                    file.sync_all().unwrap();
                }
                count += 1;
            }
            count
        });
        for _ in 0..3 {
            until("it is being written", || file.metadata().unwrap().len() > 0);
            kill(two.process.pid());
            two.process.end();
            let listen = two.address.clone();
            two = cluster.serve("two", &listen, &[]);
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    file.sync_all().unwrap();
    let other = cluster.mount(&three, "other");
    let found = fs::read(there(&path, &mount, &other)).unwrap();
    assert_eq!(found.len(), 8.min(written as usize) * block_bytes);
    for (at, block) in found.chunks(block_bytes).enumerate() {
        let last = written - 8 + at as u64;
        assert!(block == bytes(last, block_bytes), "block {at}");
    }
    other.stop();
    mount.stop();
    drop((one, two));
}

/// Appends records, each with one write: a mark, the number, and as many of the same mark.
const APPENDS: &str = r#"
pad=$(head -c "$3" /dev/zero | tr '\0' "$2"); i=0
while [ $i -lt "$4" ]; do printf '%s%05d%s\n' "$2" $i "$pad" >> "$1" || exit 1; i=$((i+1)); done
"#;

#[test]
fn records_that_many_append_are_there_once_while_servers_die() {
    const COUNT: usize = 40;
    let Some(cluster) = Cluster::new("wide_append") else { return };
    let ([one, two, three], mount, dir) = wide(&cluster);
    let other = cluster.mount(&three, "other");
    let path = dir.join("log");
    File::create(&path).unwrap();
    // Some records end in the next stripe.
    let writers =
        [("a", 3_000, &mount), ("b", 70, &other), ("c", 2_500, &other), ("d", 3_900, &mount)];
    let mut processes: Vec<_> = writers
        .iter()
        .map(|(mark, pad, of)| {
            let path = there(&path, &mount, of);
            let numbers = [pad.to_string(), COUNT.to_string()];
            let mut command = program("sh");
            command.args(["-c", APPENDS, "sh"]).arg(path).arg(mark).args(numbers);
            command.spawn().unwrap()
        })
        .collect();
    let mut servers = [("two", two), ("three", three), ("one", one)];
    for (name, server) in &mut servers {
        let before = fs::metadata(&path).unwrap().len();
        until("records are appended", || {
            fs::metadata(&path).unwrap().len() > before || {
                processes.iter_mut().all(|process| process.try_wait().unwrap().is_some())
            }
        });
        kill(server.process.pid());
        server.process.end();
        let listen = server.address.clone();
        *server = cluster.serve(name, &listen, &[]);
    }
    for process in &mut processes {
        assert!(process.wait().unwrap().success());
    }
    for at in [&path, &there(&path, &mount, &other)] {
        let text = fs::read_to_string(at).unwrap();
        for (mark, pad, _) in &writers {
            let own: Vec<&str> = text.lines().filter(|line| line.starts_with(mark)).collect();
            let pad = mark.repeat(*pad);
            let wanted: Vec<String> = (0..COUNT).map(|no| format!("{mark}{no:05}{pad}")).collect();
            assert!(own == wanted, "{mark}: {} records of {COUNT}", own.len());
        }
        assert_eq!(text.lines().count(), writers.len() * COUNT);
    }
    other.stop();
    mount.stop();
}
