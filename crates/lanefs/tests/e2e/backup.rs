//! `lanefs backup`: what clients write meanwhile is in the copy as of one moment, and a copy comes back as a store.

use crate::damage::{bytes_of, object_of};
use crate::fixture::{Fixture, Mount, Process, Server, failure, must, program, run, texts, until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BLOCK: usize = 64 * 1024;

/// Serves what a backup comes back as, and mounts it.
fn restored(fixture: &Fixture, backup: &Path, name: &str) -> (Server, Mount) {
    let place = fixture.path(name);
    must(fixture.lanefs(["restore"]).arg(backup).arg(&place));
    must(fixture.lanefs(["check"]).arg(&place));
    served(fixture, &place, name)
}

/// Serves a store, and mounts it.
fn served(fixture: &Fixture, place: &Path, name: &str) -> (Server, Mount) {
    let mut command =
        fixture.lanefs(["serve", "--export", "up=no-root-squash", "--listen", "127.0.0.1:0"]);
    let mut process = Process::start(command.arg("--store").arg(place));
    let line = process.line_with("listening on ");
    let address = line.trim_start_matches("listening on ").split(',').next().unwrap().to_owned();
    let server = Server { address, process };
    let mount = fixture.mount(&server.address, &format!("{name}.mnt"), &["--export", "up"]);
    (server, mount)
}

fn backup(fixture: &Fixture, from: &str, dir: &Path) -> String {
    let output = run(fixture.lanefs(["backup", from]).arg(dir));
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout + &stderr
}

fn number(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    bytes.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
}

#[test]
fn a_backup_beside_writers_is_of_one_moment() {
    let Some(fixture) = Fixture::new("backup_moment") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    const PAIR_COUNT: usize = 3;
    for pair in 0..PAIR_COUNT {
        fs::create_dir(mount.dir.join(format!("{pair}"))).unwrap();
    }
    let over = Arc::new(AtomicBool::new(false));
    let written: Arc<[AtomicU64; PAIR_COUNT]> = Arc::default();
    let writers: Vec<_> = (0..PAIR_COUNT)
        .map(|pair| {
            let (dir, over) = (mount.dir.join(format!("{pair}")), Arc::clone(&over));
            let written = Arc::clone(&written);
            std::thread::spawn(move || {
                let first = File::create(dir.join("first")).unwrap();
                let second = File::create(dir.join("second")).unwrap();
                for number in 1_u64.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    first.write_all_at(&number.to_le_bytes(), 0).unwrap();
                    first.sync_all().unwrap();
                    second.write_all_at(&number.to_le_bytes(), 0).unwrap();
                    second.sync_all().unwrap();
                    // The same with names: the earlier one goes behind the later one's coming.
                    fs::write(dir.join(format!("name{number}")), b"x").unwrap();
                    drop(fs::remove_file(dir.join(format!("name{}", number - 1))));
                    written[pair].store(number, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let all_at_least =
        |count: u64| written.iter().all(|written| written.load(Ordering::SeqCst) >= count);
    let store = fixture.path("store");
    // By its directory, and by its server's address.
    for (no, from) in [store.to_str().unwrap(), &server.address].into_iter().enumerate() {
        let before = written.iter().map(|written| written.load(Ordering::SeqCst)).max().unwrap();
        until("all writers go on", || all_at_least(before + 2));
        let least: Vec<u64> =
            written.iter().map(|written| written.load(Ordering::SeqCst)).collect();
        let dir = fixture.path(&format!("backup{no}"));
        backup(&fixture, from, &dir);
        let (mut again, copy) = restored(&fixture, &dir, &format!("again{no}"));
        for (pair, least) in least.iter().enumerate() {
            let place = copy.dir.join(format!("{pair}"));
            let (first, second) = (number(&place.join("first")), number(&place.join("second")));
            assert!(first == second || first == second + 1, "{first} {second}");
            assert!(second >= *least, "what was written before is there");
            let names = fs::read_dir(&place).unwrap().count();
            assert!(names == 3 || names == 4, "{names}");
        }
        copy.stop();
        again.process.signal(Signal::TERM);
        again.process.end();
    }
    let before = written.iter().map(|written| written.load(Ordering::SeqCst)).max().unwrap();
    until("all writers go on", || all_at_least(before + 2));
    over.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    mount.stop();
}

#[test]
fn a_backup_of_what_rests_is_the_same_tree() {
    let Some(fixture) = Fixture::new("backup_same") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    must(program("cp").arg("-a").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).arg(&mount.dir));
    fs::hard_link(mount.dir.join("src/main.rs"), mount.dir.join("again.rs")).unwrap();
    std::os::unix::fs::symlink("again.rs", mount.dir.join("link")).unwrap();
    let dir = fixture.path("backup");
    let store = fixture.path("store");
    backup(&fixture, store.to_str().unwrap(), &dir);
    let (code, said) =
        failure(&run(fixture.lanefs(["backup"]).arg(fixture.path("store")).arg(&dir)));
    assert_eq!(code, 1);
    assert!(said.contains("name a new folder"), "{said}");
    let (_again, copy) = restored(&fixture, &dir, "again");
    must(program("diff").arg("-r").arg(&mount.dir).arg(&copy.dir));
    copy.stop();
    mount.stop();
}

#[test]
fn an_interrupted_backup_is_recognised_and_continued() {
    let Some(fixture) = Fixture::new("backup_interrupted") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    fs::write(mount.dir.join("file"), vec![5; 300_000]).unwrap();
    let dir = fixture.path("backup");
    // As one that was killed after its first copies leaves it.
    fs::create_dir_all(dir.join("objects")).unwrap();
    fs::write(dir.join("unfinished"), b"").unwrap();
    let store = fixture.path("store");
    must(program("cp").arg("-r").arg(store.join("objects")).arg(&dir));
    let (code, said) =
        failure(&run(fixture.lanefs(["restore"]).arg(&dir).arg(fixture.path("new"))));
    assert_eq!(code, 1);
    assert!(said.contains("no whole backup"), "{said}");
    fs::write(mount.dir.join("file"), vec![6; 300_000]).unwrap();
    backup(&fixture, store.to_str().unwrap(), &dir);
    let (_again, copy) = restored(&fixture, &dir, "again");
    assert_eq!(fs::read(copy.dir.join("file")).unwrap(), vec![6; 300_000]);
    copy.stop();
    mount.stop();
}

#[test]
fn a_store_is_checked_and_dumped_while_it_is_used() {
    let Some(fixture) = Fixture::new("check_online") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    let over = Arc::new(AtomicBool::new(false));
    let round_count = Arc::new(AtomicU64::new(0));
    let writer = {
        let (dir, over) = (mount.dir.clone(), Arc::clone(&over));
        let round_count = Arc::clone(&round_count);
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                // Over several shards, and objects come and go.
                for no in 0..8 {
                    fs::create_dir(dir.join(format!("d{no}"))).unwrap();
                    fs::write(dir.join(format!("d{no}/file")), vec![1; 5000]).unwrap();
                }
                for no in 0..8 {
                    let (from, to) = (format!("d{no}/file"), format!("d{}/moved", (no + 3) % 8));
                    fs::rename(dir.join(from), dir.join(to)).unwrap();
                }
                for no in 0..8 {
                    fs::remove_dir_all(dir.join(format!("d{no}"))).unwrap();
                }
                round_count.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let store = fixture.path("store");
    let places = [store.to_str().unwrap(), &server.address];
    for no in 0..6 {
        let before = round_count.load(Ordering::SeqCst);
        until("the writer goes on", || round_count.load(Ordering::SeqCst) > before);
        let output = run(&mut fixture.lanefs(["check", places[no % 2]]));
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    }
    for place in places {
        let lines = must(&mut fixture.lanefs(["dump", place]));
        assert!(lines.lines().last().unwrap().starts_with("{\"type\":\"end\""));
    }
    over.store(true, Ordering::SeqCst);
    writer.join().unwrap();
    // It needs the store's secret, not to read the files, but to let changes wait.
    let other = fixture.path("other-secret");
    must(fixture.lanefs(["secret", "show"]).args([] as [&str; 0]));
    fs::write(&other, format!("{}\n", "ab".repeat(32))).unwrap();
    must(program("chmod").arg("600").arg(&other));
    let output = run(fixture.lanefs(["check"]).arg(&store).arg("--secret-file").arg(&other));
    assert_eq!(failure(&output).0, 4);
    mount.stop();
}

/// A store without a server, with files of distinct lengths.
fn store_of(fixture: &Fixture, files: &[(&str, usize)]) {
    let mut server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    fs::create_dir(mount.dir.join("dir")).unwrap();
    for (name, size_bytes) in files {
        fs::write(mount.dir.join(name), bytes_of(*size_bytes)).unwrap();
    }
    mount.stop();
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.end().code(), Some(0));
}

/// Changes a byte of a file where it is.
fn flip(path: &Path, at: usize) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at as u64).unwrap();
}

/// Serves the restored store and reads blocks of 64 KiB of a file; `None` where that gives EIO.
fn blocks(dir: &Path, name: &str, size_bytes: usize) -> Vec<Option<Vec<u8>>> {
    let file = File::open(dir.join(name)).unwrap();
    assert_eq!(file.metadata().unwrap().len(), size_bytes as u64, "{name}");
    let block = |at: usize| {
        let mut bytes = vec![0; (size_bytes - at).min(BLOCK)];
        match file.read_exact_at(&mut bytes, at as u64) {
            Ok(()) => Some(bytes),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5), "{name} at {at}: {error}");
                None
            }
        }
    };
    (0..size_bytes).step_by(BLOCK).map(block).collect()
}

/// What a file of [`store_of`] has, but for damaged blocks.
fn blocks_but(size_bytes: usize, damaged: &[usize]) -> Vec<Option<Vec<u8>>> {
    let bytes = bytes_of(size_bytes);
    let blocks = bytes.chunks(BLOCK).enumerate();
    blocks.map(|(no, block)| (!damaged.contains(&no)).then(|| block.to_vec())).collect()
}

fn restore(fixture: &Fixture, backup: &Path, options: &[&str]) -> (i32, String) {
    let output =
        run(fixture.lanefs(["restore"]).args(options).arg(backup).arg(fixture.path("new")));
    let (stdout, stderr) = texts(&output);
    (output.status.code().unwrap(), stdout + &stderr)
}

#[test]
fn a_block_that_is_damaged_in_the_store_is_named_and_never_restored_in_silence() {
    let Some(fixture) = Fixture::new("backup_damaged") else { return };
    store_of(&fixture, &[("dir/flipped", 300_002), ("whole", 300_001)]);
    flip(&object_of(&fixture.path("store/objects"), 300_002), 70_000);
    let dir = fixture.path("backup");
    let output = run(fixture.lanefs(["backup"]).arg(fixture.path("store")).arg(&dir));
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(8), "{stdout}{stderr}");
    let line = "damage: contents-changed: /dir/flipped, objects/";
    assert!(stdout.starts_with(line) && stdout.lines().count() == 2, "{stdout}");
    assert!(stdout.contains("1 of 5 blocks do not have their checksums, the first at byte 65536"));
    assert!(stdout.contains("the backup is whole"), "it goes on: {stdout}");
    let lines = fs::read_to_string(dir.join("metadata.jsonl")).unwrap();
    assert_eq!(lines.matches("\"damaged_blocks\":[1]").count(), 1, "{lines}");

    let (code, said) = restore(&fixture, &dir, &[]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("/dir/flipped") && said.contains("so it was when the dump was made"));
    assert!(said.contains("--accept-damage") && !fixture.path("new").exists(), "{said}");
    fs::remove_dir_all(fixture.path("new.unfinished")).unwrap();
    let (code, said) = restore(&fixture, &dir, &["--accept-damage"]);
    assert_eq!(code, 8, "{said}");
    assert!(said.contains("contents-changed: /dir/flipped"), "{said}");
    let (_server, mount) = served(&fixture, &fixture.path("new"), "again");
    assert!(blocks(&mount.dir, "dir/flipped", 300_002) == blocks_but(300_002, &[1]));
    assert!(blocks(&mount.dir, "whole", 300_001) == blocks_but(300_001, &[]));
    mount.stop();
}

#[test]
fn objects_of_a_backup_that_are_changed_cut_or_removed_are_named_and_not_restored() {
    let Some(fixture) = Fixture::new("backup_rotten") else { return };
    let sizes = [("whole", 300_001), ("flipped", 300_002), ("cut", 300_003), ("removed", 300_004)];
    store_of(&fixture, &sizes);
    let dir = fixture.path("backup");
    backup(&fixture, fixture.path("store").to_str().unwrap(), &dir);
    let [_, flipped, cut, removed] = sizes.map(|(_, size)| object_of(&dir.join("objects"), size));
    flip(&flipped, 70_000);
    File::options().write(true).open(&cut).unwrap().set_len(100_000).unwrap();
    fs::remove_file(&removed).unwrap();
    let (code, said) = restore(&fixture, &dir, &[]);
    assert_eq!(code, 1, "{said}");
    for (kind, name, object) in [
        ("contents-changed", "flipped", &flipped),
        ("object-short", "cut", &cut),
        ("object-missing", "removed", &removed),
    ] {
        let line = format!("damage: {kind}: /{name}, {}: ", object.display());
        assert!(said.contains(&line), "{line}: {said}");
    }
    assert!(said.contains("3 files are not what the dump says") && !said.contains("/whole"));
    assert!(!fixture.path("new").exists(), "there is no store");
    fs::remove_dir_all(fixture.path("new.unfinished")).unwrap();
    let (code, said) = restore(&fixture, &dir, &["--accept-damage"]);
    assert_eq!(code, 8, "{said}");
    let (_server, mount) = served(&fixture, &fixture.path("new"), "again");
    let damaged: [&[usize]; 4] = [&[], &[1], &[1, 2, 3, 4], &[0, 1, 2, 3, 4]];
    for ((name, size_bytes), damaged) in sizes.into_iter().zip(damaged) {
        let read = blocks(&mount.dir, name, size_bytes);
        assert!(read == blocks_but(size_bytes, damaged), "{name}");
    }
    mount.stop();
}

/// A backup by the store's directory and one by the address of its server, which are the same; what both said.
fn both_backups(fixture: &Fixture, address: &str) -> String {
    let store = fixture.path("store");
    let from = [store.to_str().unwrap(), address];
    let dirs = ["here", "there"].map(|name| fixture.path(name));
    let [(here, here_said), (there, there_said)] = [0, 1].map(|no| {
        let output = run(fixture.lanefs(["backup", from[no]]).arg(&dirs[no]));
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(8), "{stdout}{stderr}");
        assert!(!dirs[no].join("unfinished").exists());
        (stdout, stderr)
    });
    assert_eq!(here, there, "{here_said}{there_said}");
    let [here_dir, there_dir] = &dirs;
    must(program("diff").arg("-r").arg(here_dir).arg(there_dir));
    here
}

#[test]
fn damage_in_a_store_is_named_and_marked_by_address_as_by_directory() {
    let Some(fixture) = Fixture::new("backup_both") else { return };
    let sizes =
        [("whole", 300_001), ("dir/flipped", 300_002), ("dir/cut", 300_003), ("removed", 300_004)];
    store_of(&fixture, &sizes);
    let objects = fixture.path("store/objects");
    let [_, flipped, cut, removed] = sizes.map(|(_, size)| object_of(&objects, size));
    flip(&flipped, 70_000);
    File::options().write(true).open(&cut).unwrap().set_len(100_000).unwrap();
    fs::remove_file(&removed).unwrap();
    let server = fixture.serve("127.0.0.1:0");
    let said = both_backups(&fixture, &server.address);
    for line in [
        "damage: contents-changed: /dir/flipped, objects/",
        "damage: object-short: /dir/cut, objects/",
        "damage: object-missing: /removed, objects/",
        "3 files are damaged and marked",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("/whole"), "{said}");
    let lines = fs::read_to_string(fixture.path("there/metadata.jsonl")).unwrap();
    for blocks in ["[1]", "[1,2,3,4]", "[0,1,2,3,4]"] {
        let mark = format!("\"damaged_blocks\":{blocks}");
        assert_eq!(lines.matches(&mark).count(), 1, "{mark}: {lines}");
    }
    let (code, said) = restore(&fixture, &fixture.path("there"), &["--accept-damage"]);
    assert_eq!(code, 8, "{said}");
    let (_server, mount) = served(&fixture, &fixture.path("new"), "again");
    assert!(blocks(&mount.dir, "dir/flipped", 300_002) == blocks_but(300_002, &[1]));
    assert!(blocks(&mount.dir, "whole", 300_001) == blocks_but(300_001, &[]));
    mount.stop();
}

/// A file that lies over another one.
struct Overlaid(PathBuf);

impl Overlaid {
    fn new(from: &Path, to: PathBuf) -> Self {
        must(program("mount").arg("--bind").arg(from).arg(&to));
        Self(to)
    }
}

impl Drop for Overlaid {
    fn drop(&mut self) {
        let ended = run(program("umount").arg("-l").arg(&self.0));
        assert!(ended.status.success() || std::thread::panicking(), "{}", self.0.display());
    }
}

#[test]
fn an_object_that_its_disk_does_not_give_is_left_out_and_all_else_is_copied() {
    let Some(fixture) = Fixture::new("backup_eio") else { return };
    let sizes = [("dir/bad", 300_002), ("whole", 300_001)];
    store_of(&fixture, &sizes);
    let object = object_of(&fixture.path("store/objects"), 300_002);
    // A file that gives EIO in its second block: that of a mount of another store, which is damaged there.
    let dir = fixture.path("backup");
    backup(&fixture, fixture.path("store").to_str().unwrap(), &dir);
    flip(&object_of(&dir.join("objects"), 300_002), 70_000);
    assert_eq!(restore(&fixture, &dir, &["--accept-damage"]).0, 8);
    let (_damaged, mount) = served(&fixture, &fixture.path("new"), "damaged");
    assert!(blocks(&mount.dir, "dir/bad", 300_002) == blocks_but(300_002, &[1]));
    let overlaid = Overlaid::new(&mount.dir.join("dir/bad"), object);

    let server = fixture.serve("127.0.0.1:0");
    let said = both_backups(&fixture, &server.address);
    assert!(said.starts_with("damage: object-missing: /dir/bad, objects/"), "{said}");
    let why = "300002 bytes are recorded, and the file gives: Input/output error";
    assert!(said.contains(why) && said.contains("1 files are damaged and marked"), "{said}");
    for name in ["here", "there"] {
        let lines = fs::read_to_string(fixture.path(name).join("metadata.jsonl")).unwrap();
        assert_eq!(lines.matches("\"damaged_blocks\":[0,1,2,3,4]").count(), 1, "{lines}");
    }
    drop(overlaid);
    mount.stop();
    let there = fixture.path("there");
    let again = fixture.path("again");
    let output = run(fixture.lanefs(["restore", "--accept-damage"]).arg(&there).arg(&again));
    assert_eq!(output.status.code(), Some(8));
    let (_server, mount) = served(&fixture, &again, "again");
    assert!(blocks(&mount.dir, "dir/bad", 300_002) == blocks_but(300_002, &[0, 1, 2, 3, 4]));
    assert!(blocks(&mount.dir, "whole", 300_001) == blocks_but(300_001, &[]));
    mount.stop();
}
