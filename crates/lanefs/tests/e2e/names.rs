//! Names and what has none: renames with flags, files without a name, limits, large directories.

use crate::fixture::{Fixture, must, program, until};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// `LANEFS_NAMES_COUNT` makes it a million by hand.
const MANY_COUNT: usize = 6_000;

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags)
}

#[test]
fn two_names_are_exchanged_wherever_they_lie() {
    let Some(fixture) = Fixture::new("exchange") else { return };
    let mut up = fixture.up(&[]);
    let dirs: Vec<PathBuf> = (0..6).map(|number| up.dir.join(format!("d{number}"))).collect();
    for (number, dir) in dirs.iter().enumerate() {
        fs::create_dir_all(dir.join("sub/below")).unwrap();
        fs::write(dir.join("file"), number.to_string()).unwrap();
    }
    // Directories of the root lie in different shards.
    for pair in dirs.windows(2) {
        rename(&pair[0].join("file"), &pair[1].join("file"), RenameFlags::EXCHANGE).unwrap();
    }
    let text = |dir: &PathBuf| fs::read_to_string(dir.join("file")).unwrap();
    assert_eq!(dirs.iter().map(text).collect::<String>(), "123450");
    rename(&dirs[0].join("sub"), &dirs[1].join("file"), RenameFlags::EXCHANGE).unwrap();
    let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(dirs[1].join("file/..")), inode(dirs[1].clone()), "its `..` went with it");
    let links = |dir: &PathBuf| fs::metadata(dir).unwrap().nlink();
    assert_eq!((links(&dirs[0]), links(&dirs[1])), (2, 4));
    let loops = [(dirs[2].clone(), dirs[2].join("sub/below"))];
    for (above, below) in &loops {
        assert_eq!(rename(above, below, RenameFlags::EXCHANGE), Err(Errno::INVAL));
        assert_eq!(rename(below, above, RenameFlags::EXCHANGE), Err(Errno::INVAL));
    }
    let (one, none) = (dirs[3].join("file"), dirs[3].join("none"));
    assert_eq!(rename(&one, &none, RenameFlags::EXCHANGE), Err(Errno::NOENT));
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    assert_eq!(rename(&one, &dirs[4].join("file"), both), Err(Errno::INVAL));
    up.kill_server();
    assert!(fs::metadata(dirs[1].join("file/below")).unwrap().is_dir(), "after a crash");
    assert_eq!(fs::read_to_string(dirs[0].join("sub")).unwrap(), "2");
    up.stop();
}

#[test]
fn a_whiteout_stays_where_a_name_was() {
    let Some(fixture) = Fixture::new("whiteout") else { return };
    let up = fixture.up(&[]);
    for (from, to) in [("a", "b"), ("one/a", "two/b")] {
        let (from, to) = (up.dir.join(from), up.dir.join(to));
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(&from, "moved").unwrap();
        fs::write(&to, "replaced").unwrap();
        let flags = RenameFlags::WHITEOUT | RenameFlags::NOREPLACE;
        assert_eq!(rename(&from, &to, flags), Err(Errno::EXIST));
        rename(&from, &to, RenameFlags::WHITEOUT).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "moved");
        let left = fs::symlink_metadata(&from).unwrap();
        assert!(left.file_type().is_char_device());
        assert_eq!((left.rdev(), left.mode() & 0o7777, left.nlink()), (0, 0, 1));
    }
    up.stop();
}

fn nameless(dir: &Path, more: OFlags) -> fs::File {
    let flags = OFlags::TMPFILE | OFlags::RDWR | more;
    rustix::fs::open(dir, flags, Mode::from_raw_mode(0o640)).unwrap().into()
}

fn link(file: &fs::File, to: &Path) -> Result<(), Errno> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)
}

#[test]
fn a_file_without_a_name_gets_one_or_is_removed() {
    let Some(fixture) = Fixture::new("tmpfile") else { return };
    let mut up = fixture.up(&[]);
    let dir = up.dir.join("dir");
    fs::create_dir(&dir).unwrap();
    let before = inode_count(&up.dir);
    let mut file = nameless(&dir, OFlags::empty());
    let hidden = nameless(&dir, OFlags::EXCL);
    file.write_all(b"kept").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    assert_eq!(link(&hidden, &dir.join("hidden")), Err(Errno::NOENT), "O_EXCL: never");
    up.kill_server();
    file.write_all(b" over a crash").unwrap();
    link(&file, &dir.join("name")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    drop(file);
    assert_eq!(fs::read_to_string(dir.join("name")).unwrap(), "kept over a crash");
    let file = fs::File::open(dir.join("name")).unwrap();
    fs::remove_file(dir.join("name")).unwrap();
    assert_eq!(link(&file, &dir.join("again")), Err(Errno::NOENT), "it had a name");
    drop(file);
    drop(hidden);
    until("the closed file is removed", || inode_count(&up.dir) == before);
    let other = up.dir.join("other");
    fs::create_dir(&other).unwrap();
    let file = nameless(&dir, OFlags::empty());
    link(&file, &other.join("elsewhere")).unwrap();
    drop(file);
    up.kill_server();
    assert_eq!(fs::metadata(other.join("elsewhere")).unwrap().len(), 0);
    up.stop();
}

/// Inodes in use, as `df -i` has them.
fn inode_count(path: &Path) -> u64 {
    let found = rustix::fs::statvfs(path).unwrap();
    found.f_files - found.f_ffree
}

#[test]
fn names_paths_and_targets_are_as_long_as_on_linux() {
    let Some(fixture) = Fixture::new("limits") else { return };
    let up = fixture.up(&[]);
    let longest = "\u{e9}".repeat(127) + "x";
    fs::create_dir(up.dir.join(&longest)).unwrap();
    assert!(fs::metadata(up.dir.join(&longest)).unwrap().is_dir());
    let code = |result: std::io::Result<()>| result.unwrap_err().raw_os_error().unwrap();
    let too_long = up.dir.join("x".repeat(256));
    assert_eq!(code(fs::write(&too_long, "")), Errno::NAMETOOLONG.raw_os_error());
    assert_eq!(code(fs::metadata(&too_long).map(drop)), Errno::NAMETOOLONG.raw_os_error());
    assert_eq!(
        code(fs::rename(up.dir.join(&longest), &too_long)),
        Errno::NAMETOOLONG.raw_os_error()
    );
    // A path of 4095 bytes below the mount, one directory after the other.
    let mut dir = rustix::fs::open(&up.dir, OFlags::PATH, Mode::empty()).unwrap();
    let (mut path, part) = (String::new(), "p".repeat(200));
    while path.len() + part.len() < 4095 - 2 {
        rustix::fs::mkdirat(&dir, &part, Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, &part, OFlags::PATH, Mode::empty()).unwrap();
        path.push_str(&part);
        path.push('/');
    }
    path.push_str(&"l".repeat(4095 - path.len()));
    let root = rustix::fs::open(&up.dir, OFlags::PATH, Mode::empty()).unwrap();
    rustix::fs::symlinkat("t".repeat(4095), &root, &path).unwrap();
    let target = rustix::fs::readlinkat(&root, &path, Vec::new()).unwrap();
    assert_eq!((path.len(), target.as_bytes().len()), (4095, 4095));
    let refused = rustix::fs::symlinkat("t".repeat(4096), &root, "long");
    assert_eq!(refused, Err(Errno::NAMETOOLONG));
    must(program("rm").arg("-r").arg(up.dir.join(&part)).arg(up.dir.join(&longest)));
    let statvfs = rustix::fs::statvfs(&up.dir).unwrap();
    assert_eq!(statvfs.f_namemax, 255);
    let owned = up.dir.join("owned");
    fs::write(&owned, "").unwrap();
    let largest = u32::MAX - 1;
    std::os::unix::fs::chown(&owned, Some(largest), Some(largest - 1)).unwrap();
    let metadata = fs::metadata(&owned).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (largest, largest - 1));
    up.stop();
}

/// The names that a directory's listing has from where it stands.
#[test]
fn a_removed_directory_is_what_it_was_while_it_is_open() {
    let Some(fixture) = Fixture::new("removed") else { return };
    let mut up = fixture.up(&[]);
    let other = fixture.mount(&up.address, "other", &["--export", "up"]);
    let count_at_first = inode_count(&up.dir);
    let open = |path: &Path| rustix::fs::open(path, OFlags::DIRECTORY, Mode::empty()).unwrap();
    let removals: [fn(&Path); 2] = [
        |dir| fs::remove_dir(dir).unwrap(),
        |dir| {
            let empty = dir.with_file_name("empty");
            fs::create_dir(&empty).unwrap();
            rename(&empty, dir, RenameFlags::empty()).unwrap();
        },
    ];
    for at in [&up.dir, &other.dir] {
        for remove in removals {
            for name in ["near", "one/two/three"] {
                let dir = up.dir.join(name);
                fs::create_dir_all(&dir).unwrap();
                let held = open(&dir);
                remove(&at.join(name));
                let stat = rustix::fs::fstat(&held).unwrap();
                assert_eq!((stat.st_nlink, stat.st_mode), (0, 0o40_755));
                rustix::fs::fchmod(&held, Mode::RWXU).unwrap();
                assert_eq!(rustix::fs::fstat(&held).unwrap().st_mode, 0o40_700);
                let made = rustix::fs::mkdirat(&held, "in", Mode::RWXU);
                assert_eq!(made, Err(Errno::NOENT));
                assert!(
                    Dir::read_from(&held)
                        .unwrap()
                        .all(|entry| { [c".", c".."].contains(&entry.unwrap().file_name()) })
                );
                // What was renamed to there.
                if dir.exists() {
                    fs::remove_dir(&dir).unwrap();
                }
            }
        }
    }
    fs::create_dir(up.dir.join("held")).unwrap();
    // Those that were held before go when the server hears that they were closed.
    let count = count_at_first + 3;
    until("one, two and the held one are left", || inode_count(&up.dir) == count);
    let held = open(&up.dir.join("held"));
    fs::remove_dir(up.dir.join("held")).unwrap();
    assert_eq!(inode_count(&up.dir), count, "it is there");
    up.kill_server();
    assert_eq!(rustix::fs::fstat(&held).unwrap().st_nlink, 0, "after a crash");
    drop(held);
    until("the directory is removed", || inode_count(&up.dir) == count - 1);
    other.stop();
    up.stop();
}

fn names(dir: &mut Dir) -> Vec<String> {
    let mut names = Vec::new();
    for entry in dir.by_ref() {
        names.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
    }
    names
}

#[test]
fn a_large_directory_is_listed_whole_while_names_come_and_go() {
    let Some(fixture) = Fixture::new("large_directory") else { return };
    let many_count =
        std::env::var("LANEFS_NAMES_COUNT").map_or(MANY_COUNT, |count| count.parse().unwrap());
    let up = fixture.up(&[]);
    let large = up.dir.join("large");
    fs::create_dir(&large).unwrap();
    let make = |range: std::ops::Range<usize>| {
        for number in range {
            fs::write(large.join(format!("file{number}")), "").unwrap();
        }
    };
    std::thread::scope(|scope| {
        for half in [0..many_count / 2, many_count / 2..many_count] {
            scope.spawn(move || make(half));
        }
    });
    let mut dir = Dir::new(fs::File::open(&large).unwrap()).unwrap();
    let mut first = Vec::new();
    for entry in dir.by_ref().take(many_count / 2) {
        first.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
    }
    // What comes and goes behind the listing's back may be in it or not; all else is, once.
    for number in (0..many_count).step_by(10) {
        fs::remove_file(large.join(format!("file{number}"))).unwrap();
        fs::write(large.join(format!("new{number}")), "").unwrap();
    }
    first.extend(names(&mut dir));
    let all: BTreeSet<&String> = first.iter().collect();
    assert_eq!(all.len(), first.len(), "nothing is listed twice");
    let stays = (0..many_count).filter(|number| number % 10 != 0);
    for name in stays.map(|number| format!("file{number}")) {
        assert!(all.contains(&name), "{name} was there all the time");
    }
    dir.rewind();
    let again = names(&mut dir);
    assert_eq!(again.len(), many_count + 2, "and both dots");
    places(&large);
    let url = up.url("/large");
    let listed = must(&mut fixture.lanefs(["ls", "--export", "up", &url]));
    let expected: BTreeSet<&str> = again.iter().map(String::as_str).collect();
    let found: BTreeSet<&str> = listed.lines().chain([".", ".."]).collect();
    assert_eq!(found, expected);
    must(program("rm").arg("-r").arg(&large));
    assert!(!large.exists());
    up.stop();
}

/// A place in a listing is where it was, whatever was read since.
fn places(large: &Path) {
    let mut dir = Dir::new(fs::File::open(large).unwrap()).unwrap();
    let mut seen = Vec::new();
    for entry in dir.by_ref().take(500) {
        let entry = entry.unwrap();
        seen.push((entry.offset(), entry.file_name().to_owned()));
    }
    for (index, (place, _)) in seen.iter().enumerate().take(499).step_by(37) {
        dir.seek(*place).unwrap();
        let next = dir.next().unwrap().unwrap();
        assert_eq!(next.file_name(), seen[index + 1].1.as_c_str(), "behind place {place}");
    }
}

#[test]
fn df_counts_what_there_is_and_what_can_be_made() {
    let Some(fixture) = Fixture::new("statfs") else { return };
    let disk = fixture.make_dir("disk");
    // A file system under the store of which the files run out before the bytes do.
    must(program("mount").args(["-t", "tmpfs", "-o", "size=64m,nr_inodes=100", "none"]).arg(&disk));
    let disk = Mounted(disk);
    let store = disk.0.join("store");
    let up = fixture.up(&["--lanes", "3", "--store", store.to_str().unwrap()]);
    // The server may still be writing its first records.
    let (local, found) = loop {
        let local = rustix::fs::statvfs(&disk.0).unwrap();
        let found = rustix::fs::statvfs(&up.dir).unwrap();
        let after = rustix::fs::statvfs(&disk.0).unwrap();
        if (after.f_bfree, after.f_ffree) == (local.f_bfree, local.f_ffree) {
            break (local, found);
        }
    };
    assert_eq!((found.f_bsize, found.f_frsize, found.f_namemax), (4096, 4096, 255));
    assert_eq!(found.f_blocks, local.f_blocks);
    assert_eq!((found.f_bfree, found.f_bavail), (local.f_bfree, local.f_bavail));
    assert_eq!(found.f_ffree, local.f_favail);
    for number in 0..7 {
        fs::create_dir(up.dir.join(format!("d{number}"))).unwrap();
        fs::write(up.dir.join(format!("d{number}/file")), "").unwrap();
    }
    assert_eq!(inode_count(&up.dir), 1 + 14, "of all lanes together");
    let df = must(program("df").arg("--output=iused,iavail").arg(&up.dir));
    assert_eq!(df.split_whitespace().nth(2), Some("15"), "{df}");
    up.stop();
}

/// A file system that is taken away at the end.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).ok();
    }
}
