//! What can be done to a file's contents beside reading and writing.

use crate::fixture::{Fixture, must, program};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

const PAGE: u64 = 4096;
const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn ranges_get_space_and_lose_it() {
    let Some(fixture) = Fixture::new("ranges") else { return };
    let up = fixture.up(&[]);
    let second = fixture.mount(&up.address, "second", &["--export", "up"]);
    let (path, there) = (up.dir.join("file"), second.dir.join("file"));
    let file = open(&path);
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    let found = fs::metadata(&there).unwrap();
    assert_eq!(found.len(), 1 << 20);
    assert!(found.blocks() * 512 >= 1 << 20, "{} blocks", found.blocks());
    fallocate(&file, KEEP, 1 << 20, 1 << 20).unwrap();
    let found = fs::metadata(&there).unwrap();
    assert_eq!(found.len(), 1 << 20);
    assert!(found.blocks() * 512 >= 2 << 20, "{} blocks", found.blocks());

    let bytes = vec![7; 1 << 20];
    file.write_all_at(&bytes, 0).unwrap();
    let before = fs::metadata(&there).unwrap();
    fallocate(&file, KEEP | FallocateFlags::PUNCH_HOLE, 10 * PAGE + 1, 20 * PAGE).unwrap();
    let after = fs::metadata(&there).unwrap();
    assert!(after.blocks() < before.blocks(), "{} {}", after.blocks(), before.blocks());
    assert!(after.modified().unwrap() > before.modified().unwrap(), "a hole is a change");
    let mut expected = bytes;
    expected[10 * 4096 + 1..30 * 4096 + 1].fill(0);
    fallocate(&file, ZERO | KEEP, 5, 10).unwrap();
    expected[5..15].fill(0);
    assert!(fs::read(&there).unwrap() == expected);
    fallocate(&file, ZERO, (1 << 20) - 5, 10).unwrap();
    expected[(1 << 20) - 5..].fill(0);
    expected.resize((1 << 20) + 5, 0);
    assert!(fs::read(&there).unwrap() == expected);

    let refused = [
        (FallocateFlags::COLLAPSE_RANGE, 0, PAGE, Errno::OPNOTSUPP),
        (FallocateFlags::INSERT_RANGE, 0, PAGE, Errno::OPNOTSUPP),
        (FallocateFlags::UNSHARE_RANGE, 0, PAGE, Errno::OPNOTSUPP),
        (FallocateFlags::PUNCH_HOLE, 0, PAGE, Errno::OPNOTSUPP),
        (FallocateFlags::empty(), 0, 0, Errno::INVAL),
        (FallocateFlags::empty(), i64::MAX as u64, PAGE, Errno::FBIG),
    ];
    for (flags, offset, length, errno) in refused {
        assert_eq!(fallocate(&file, flags, offset, length), Err(errno), "{flags:?}");
    }
    assert!(fs::read(&there).unwrap() == expected, "nothing of it was done");
    let reader = File::open(&path).unwrap();
    assert_eq!(fallocate(&reader, KEEP, 0, 10), Err(Errno::BADF));
    second.stop();
    up.stop();
}

#[test]
fn holes_are_found_and_preserved() {
    let Some(fixture) = Fixture::new("holes") else { return };
    let up = fixture.up(&[]);
    let path = up.dir.join("file");
    let file = open(&path);
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
    file.write_all_at(b"a", 0).unwrap();
    file.write_all_at(b"b", 100 * PAGE).unwrap();
    file.set_len(200 * PAGE).unwrap();
    let data = |from| seek(&file, SeekFrom::Data(from));
    let hole = |from| seek(&file, SeekFrom::Hole(from));
    assert_eq!((data(0), hole(0)), (Ok(0), Ok(PAGE)));
    assert_eq!((data(PAGE), hole(PAGE)), (Ok(100 * PAGE), Ok(PAGE)));
    assert_eq!((data(100 * PAGE + 7), hole(100 * PAGE)), (Ok(100 * PAGE + 7), Ok(101 * PAGE)));
    assert_eq!((data(101 * PAGE), hole(199 * PAGE)), (Err(Errno::NXIO), Ok(199 * PAGE)));
    assert_eq!((data(200 * PAGE), hole(200 * PAGE)), (Err(Errno::NXIO), Err(Errno::NXIO)));
    assert_eq!(seek(&file, SeekFrom::End(-1)), Ok(200 * PAGE - 1));

    let copy = up.dir.join("copy");
    must(program("cp").arg("--sparse=auto").arg(&path).arg(&copy));
    assert!(fs::read(&path).unwrap() == fs::read(&copy).unwrap());
    let blocks = fs::metadata(&copy).unwrap().blocks();
    assert!(blocks * 512 <= 4 * PAGE, "{blocks} blocks");
    must(program("fallocate").args(["--length", "1M", "--offset", "1M"]).arg(&copy));
    must(program("fallocate").args(["--dig-holes"]).arg(&copy));
    assert_eq!(fs::metadata(&copy).unwrap().len(), 2 << 20);
    up.stop();
}

/// The largest size there is, over a crash of the server and beyond it.
#[test]
fn files_may_be_as_large_as_numbers_go() {
    let Some(fixture) = Fixture::new("largest") else { return };
    let mut up = fixture.up(&[]);
    let second = fixture.mount(&up.address, "second", &["--export", "up"]);
    let (path, there) = (up.dir.join("file"), second.dir.join("file"));
    let end = i64::MAX.unsigned_abs();
    let file = open(&path);
    file.set_len(end).unwrap();
    assert_eq!(fs::metadata(&there).unwrap().len(), end);
    file.write_all_at(b"z", end - 2).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    let middle = (1 << 41) - 3;
    file.write_all_at(b"middle", middle).unwrap();
    file.write_all_at(b"t", end - 1).unwrap();
    // The kernel's own limit, of every file system.
    assert_eq!(rustix::io::pwrite(&file, b"x", end), Err(Errno::INVAL));
    file.sync_all().unwrap();
    let check = |path: &Path| {
        let file = File::open(path).unwrap();
        let mut bytes = [1; 8];
        file.read_exact_at(&mut bytes, middle - 1).unwrap();
        assert_eq!(&bytes, b"\0middle\0");
        file.read_exact_at(&mut bytes[..2], end - 2).unwrap();
        assert_eq!(&bytes[..2], b"zt");
        assert_eq!(file.read_at(&mut bytes[..1], end - 1).unwrap(), 1);
        assert_eq!(seek(&file, SeekFrom::Data(PAGE)), Ok(middle - middle % PAGE));
        let hole = seek(&file, SeekFrom::Hole(middle)).unwrap();
        assert!(((1 << 41) + 3..=(1 << 41) + PAGE).contains(&hole), "{hole}");
        let metadata = fs::metadata(path).unwrap();
        assert_eq!(metadata.len(), end);
        assert!(metadata.blocks() < 100, "{} blocks", metadata.blocks());
    };
    check(&there);
    up.kill_server();
    check(&there);
    check(&path);
    // A smaller size takes the rest away.
    file.set_len(1 << 42).unwrap();
    file.set_len(end).unwrap();
    let mut byte = [1];
    file.read_exact_at(&mut byte, end - 2).unwrap();
    assert_eq!(byte, [0]);
    fallocate(&file, KEEP | FallocateFlags::PUNCH_HOLE, 0, end).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
    drop(file);
    fs::remove_file(&path).unwrap();
    second.stop();
    up.stop();
}

/// Bytes in three stripes, over a kill of the server: read, punched, cut off, and removed.
#[test]
fn stripes_survive_a_kill_and_go_with_their_file() {
    let Some(fixture) = Fixture::new("stripes") else { return };
    let store = fixture.path("store");
    let mut up = fixture.up(&["--store", store.to_str().unwrap()]);
    let path = up.dir.join("file");
    let unit = 1_u64 << 41;
    let places = [unit - 2, 2 * unit - PAGE, 2 * unit + 5];
    let file = open(&path);
    for at in places {
        file.write_all_at(b"bytes", at).unwrap();
    }
    file.sync_all().unwrap();
    let objects = |count: usize| {
        let script = format!("find {} -type f | wc -l", store.join("objects").display());
        let found = must(program("sh").args(["-c", &script]));
        assert_eq!(found.trim(), count.to_string(), "objects");
    };
    objects(3);
    let read = |at: u64| {
        let mut bytes = [1; 5];
        File::open(&path).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    up.kill_server();
    assert_eq!(places.map(read), [*b"bytes"; 3]);
    assert_eq!(fs::metadata(&path).unwrap().len(), 2 * unit + 10);
    // What lies in two stripes is one range.
    fallocate(&file, KEEP | FallocateFlags::PUNCH_HOLE, unit - 1, PAGE).unwrap();
    assert_eq!(&read(unit - 2), b"b\0\0\0\0");
    fallocate(&file, KEEP, 4 * unit, PAGE).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 2 * unit + 10);
    objects(4);
    file.set_len(2 * unit).unwrap();
    file.set_len(2 * unit + 10).unwrap();
    assert_eq!(read(2 * unit + 5), [0; 5]);
    assert_eq!(read(2 * unit - PAGE), *b"bytes");
    file.set_len(7).unwrap();
    file.sync_all().unwrap();
    objects(1);
    file.write_all_at(b"again", 3 * unit).unwrap();
    file.sync_all().unwrap();
    drop(file);
    up.kill_server();
    assert_eq!((read(3 * unit), read(unit)), (*b"again", [0; 5]));
    fs::remove_file(&path).unwrap();
    // The server ends when the objects are removed.
    up.stop();
    objects(0);
}

fn python(script: &str) -> std::process::Command {
    let mut command = program("python3");
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/contents"));
    command.arg(dir.join(script));
    command
}

/// Random steps, the same on a file of the machine's own and on one file over two mounts in turn.
#[test]
fn a_file_is_what_it_would_be_on_a_local_file_system() {
    let Some(fixture) = Fixture::new("both") else { return };
    let up = fixture.up(&[]);
    let second = fixture.mount(&up.address, "second", &["--export", "up"]);
    for seed in ["1", "2", "3"] {
        let mut comparison = python("random_comparison.py");
        comparison.arg(fixture.path("local")).arg(up.dir.join(seed)).arg(second.dir.join(seed));
        assert_eq!(must(comparison.args([seed, "150"])), "same\n", "seed {seed}");
    }
    second.stop();
    up.stop();
}

#[test]
fn mappings_and_direct_io_are_coherent() {
    let Some(fixture) = Fixture::new("mapped") else { return };
    let up = fixture.up(&[]);
    let second = fixture.mount(&up.address, "second", &["--export", "up"]);
    let mut mapped = python("mapped.py");
    assert_eq!(must(mapped.arg(up.dir.join("f")).arg(second.dir.join("f"))), "same\n");
    second.stop();
    up.stop();
}

#[test]
fn unsupported_calls_report_it() {
    let Some(fixture) = Fixture::new("refused") else { return };
    let up = fixture.up(&[]);
    assert_eq!(must(python("refused.py").arg(up.dir.join("f")).arg(up.dir.join("g"))), "same\n");
    up.stop();
}

/// Four processes on two mounts append to one file: every line is there once and whole.
#[test]
fn no_append_is_lost() {
    const COUNT: usize = 150;
    let Some(fixture) = Fixture::new("appends") else { return };
    let up = fixture.up(&[]);
    let second = fixture.mount(&up.address, "second", &["--export", "up"]);
    let names = ["a", "b", "c", "d"];
    let appenders: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let dir = if index % 2 == 0 { &up.dir } else { &second.dir };
            let mut command = python("append.py");
            command.arg(dir.join("file")).arg(name).arg(COUNT.to_string());
            std::thread::spawn(move || must(&mut command))
        })
        .collect();
    appenders.into_iter().for_each(|appender| drop(appender.join().unwrap()));
    let text = fs::read_to_string(up.dir.join("file")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for name in names {
        let found: Vec<&str> =
            lines.iter().copied().filter(|line| line.starts_with(name)).collect();
        let expected: Vec<String> = (0..COUNT)
            .flat_map(|number| vec![format!("{name} {number:06}"); 1 + number % 3])
            .collect();
        assert_eq!(found, expected, "{name}'s, in its order");
    }
    second.stop();
    up.stop();
}

/// A program on a mount runs, and nobody writes it meanwhile.
#[test]
fn running_programs_are_busy() {
    let Some(fixture) = Fixture::new("exec") else { return };
    let up = fixture.up(&[]);
    let path = up.dir.join("cat");
    must(program("cp").args(["--", "/bin/cat"]).arg(&path));
    let mut command = program(path.to_str().unwrap());
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let write = || File::options().write(true).open(&path).map_err(|error| error.raw_os_error());
    assert_eq!(write().unwrap_err(), Some(Errno::TXTBSY.raw_os_error()));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let writer = write().unwrap();
    let spawned = program(path.to_str().unwrap()).spawn().map_err(|error| error.raw_os_error());
    assert_eq!(spawned.unwrap_err(), Some(Errno::TXTBSY.raw_os_error()));
    drop(writer);
    up.stop();
}
