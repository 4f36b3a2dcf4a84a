//! What can be done to a file's contents beside reading and writing.

use crate::stage::{Stage, must, program};
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
    let Some(stage) = Stage::new("ranges") else { return };
    let up = stage.up(&[]);
    let second = stage.mount(&up.address, "second", &["--export", "up"]);
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
fn holes_are_found_and_kept() {
    let Some(stage) = Stage::new("holes") else { return };
    let up = stage.up(&[]);
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
