//! Directories near the root lie in different metadata shards: moving things between them goes like
//! any other move, and is whole or not at all when the server is killed in the middle.

use crate::fixture::{Fixture, Up, must, program};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Things to move, of each kind.
const COUNT: usize = 120;

/// The metadata shard that an inode's number names.
fn shard(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino() >> 48
}

/// Directories in different shards.
fn spread(up: &Up) -> Vec<PathBuf> {
    let dirs: Vec<PathBuf> = (0..4).map(|number| up.dir.join(format!("dir{number}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let shards: BTreeSet<u64> = dirs.iter().map(|dir| shard(dir)).collect();
    assert_eq!(shards.len(), dirs.len(), "each in a shard of its own");
    dirs
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Every kind of thing under a number, below `dir`.
fn furnish(dir: &Path, number: usize) {
    fs::write(dir.join(format!("file{number}")), format!("contents {number}")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.join(format!("link{number}"))).unwrap();
    let sub = dir.join(format!("sub{number}"));
    fs::create_dir(&sub).unwrap();
    fs::write(sub.join("inside"), format!("inside {number}")).unwrap();
}

fn move_over(from: &Path, to: &Path, number: usize) {
    for kind in ["file", "link", "sub"] {
        let name = format!("{kind}{number}");
        must(program("mv").arg("-T").arg(from.join(&name)).arg(to.join(&name)));
    }
}

/// All is in `to`, nothing in `from`, and it is what it was.
fn assert_moved(from: &Path, to: &Path) {
    assert_eq!(names(from), BTreeSet::new());
    assert_eq!(names(to).len(), 3 * COUNT);
    for number in 0..COUNT {
        let file = to.join(format!("file{number}"));
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("contents {number}"));
        assert_eq!(fs::metadata(&file).unwrap().nlink(), 1);
        let link = fs::read_link(to.join(format!("link{number}"))).unwrap();
        assert_eq!(link, Path::new("nowhere"));
        let inside = to.join(format!("sub{number}/inside"));
        assert_eq!(fs::read_to_string(inside).unwrap(), format!("inside {number}"));
    }
    assert_eq!(fs::metadata(to).unwrap().nlink(), u64::try_from(COUNT).unwrap() + 2);
    assert_eq!(fs::metadata(from).unwrap().nlink(), 2);
}

#[test]
fn moves_between_shards_survive_kills_of_the_server() {
    let Some(fixture) = Fixture::new("shards_kill") else { return };
    let mut up = fixture.up(&[]);
    let dirs = spread(&up);
    let (from, to) = (&dirs[0], &dirs[1]);
    for number in 0..COUNT {
        furnish(from, number);
    }
    for number in 0..COUNT {
        move_over(from, to, number);
        if number % (COUNT / 3) == COUNT / 6 {
            up.kill_server();
        }
    }
    assert_moved(from, to);
    let loose = fs::rename(&dirs[2], dirs[2].join("below"));
    assert!(loose.is_err(), "no directory goes below itself");
    fs::remove_dir(from).unwrap();
    fs::rename(to, dirs[2].join("deeper")).unwrap();
    up.stop();
    let up = fixture.up(&[]);
    let deeper = dirs[2].join("deeper");
    assert_eq!(names(&deeper).len(), 3 * COUNT);
    assert_eq!(names(&up.dir).len(), 2);
    must(program("rm").arg("-r").arg(&deeper));
    assert_eq!(names(&dirs[2]), BTreeSet::new());
    up.stop();
}

#[test]
fn links_opens_and_removals_reach_into_other_shards() {
    let Some(fixture) = Fixture::new("shards_ops") else { return };
    let up = fixture.up(&[]);
    let dirs = spread(&up);
    let (here, there) = (dirs[0].join("name"), dirs[1].join("other"));
    fs::write(&here, "one").unwrap();
    fs::hard_link(&here, &there).unwrap();
    let (one, other) = (fs::metadata(&here).unwrap(), fs::metadata(&there).unwrap());
    assert_eq!((one.ino(), one.nlink()), (other.ino(), 2));
    fs::write(&there, "two, through the other name").unwrap();
    assert_eq!(fs::read_to_string(&here).unwrap(), "two, through the other name");
    let open = fs::File::open(&there).unwrap();
    fs::remove_file(&here).unwrap();
    fs::remove_file(&there).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    assert_eq!(std::io::read_to_string(&open).unwrap(), "two, through the other name");
    fs::write(&here, "new").unwrap();
    fs::write(&there, "victim").unwrap();
    fs::rename(&here, &there).unwrap();
    assert_eq!(fs::read_to_string(&there).unwrap(), "new");
    let listed = must(program("ls").arg("-lR").arg(&up.dir));
    assert!(listed.contains("other"), "{listed}");
    assert_eq!(fixture.run(["ls", "-l", &up.url("/")]).status.code(), Some(0));
    up.stop();
}

/// A file as a mount shows it.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    nlink: u64,
    ctime: (i64, i64),
    /// Of reads that all reach the server.
    atime: Option<(i64, i64)>,
}

impl Shown {
    fn of(file: &fs::File, reads_count: bool) -> Self {
        let meta = file.metadata().unwrap();
        let ctime = (meta.ctime(), meta.ctime_nsec());
        let atime = reads_count.then(|| (meta.atime(), meta.atime_nsec()));
        Self { nlink: meta.nlink(), ctime, atime }
    }
}

/// A file at two mounts, open at both.
struct Seen {
    files: [fs::File; 2],
    before: Shown,
    /// Each read reaches the server, which sets the time of access.
    reads_count: bool,
}

impl Seen {
    /// Both have read it, so that no further read counts.
    fn new(paths: [PathBuf; 2], reads_count: bool) -> Self {
        let files = paths.map(|path| fs::File::open(path).unwrap());
        for file in &files {
            file.read_at(&mut [0; 9], 0).unwrap();
        }
        let before = Shown::of(&files[0], reads_count);
        assert!(before.atime.is_none_or(|atime| atime > before.ctime), "{before:?}");
        Self { files, before, reads_count }
    }

    /// The inode was changed and has so many links: both see it at once, and so they see the next read.
    #[track_caller]
    fn assert_changed(&mut self, nlink: u64, reader: usize) {
        let show = |side: usize| Shown::of(&self.files[side], self.reads_count);
        let shown = show(reader);
        assert_eq!(shown, show(1 - reader));
        assert!(shown.nlink == nlink && shown.ctime > self.before.ctime, "{shown:?}");
        assert_eq!(shown.atime, self.before.atime, "nobody has read it");
        self.files[reader].read_at(&mut [0; 9], 0).unwrap();
        let read = show(1 - reader);
        assert_eq!(read.ctime, shown.ctime);
        assert!(read.atime.is_none_or(|atime| atime > read.ctime), "{read:?} {shown:?}");
        self.before = read;
    }
}

#[test]
fn changes_over_several_shards_are_seen_at_the_other_mount_at_once() {
    changes_over_several_shards("off");
}

#[test]
fn changes_over_several_shards_are_seen_at_the_other_mount_at_once_with_leases() {
    changes_over_several_shards("on");
}

fn changes_over_several_shards(leases: &str) {
    let Some(fixture) = Fixture::new(&format!("shards_seen_{leases}")) else { return };
    let up = fixture.up(&["--lanes", "2", "--leases", leases]);
    let other = fixture.mount(&up.address, "other", &["--export", "up", "--leases", leases]);
    // What is read from a cache sets no time.
    let reads_count = leases == "off";
    let dirs = spread(&up);
    let at = |mount: usize, dir: usize, name: &str| {
        let base = if mount == 0 { &up.dir } else { &other.dir };
        base.join(dirs[dir].file_name().unwrap()).join(name)
    };
    for round in 0..48 {
        let (from, to) = (round % 4, (round + 1 + round / 4 % 3) % 4);
        let (mount, reader) = (round / 2 % 2, round % 2);
        let both = |dir: usize, name: &str| [at(0, dir, name), at(1, dir, name)];
        fs::write(at(0, from, "f"), "contents").unwrap();
        fs::write(at(1, to, "over"), "more").unwrap();
        fs::hard_link(at(1, to, "over"), at(1, to, "kept")).unwrap();
        let mut file = Seen::new(both(from, "f"), reads_count);
        let mut over = Seen::new(both(to, "over"), reads_count);
        fs::hard_link(at(mount, from, "f"), at(mount, to, "g")).unwrap();
        file.assert_changed(2, reader);
        // Changes two files.
        fs::rename(at(mount, from, "f"), at(mount, to, "over")).unwrap();
        file.assert_changed(2, 1 - reader);
        over.assert_changed(1, reader);
        fs::remove_file(at(mount, to, "g")).unwrap();
        file.assert_changed(1, reader);
        let (here, there) = (at(mount, to, "over"), at(mount, from, "back"));
        fs::rename(&here, &there).unwrap();
        file.assert_changed(1, 1 - reader);
        fs::remove_file(&there).unwrap();
        assert_eq!(Shown::of(&file.files[reader], reads_count).nlink, 0);
        fs::remove_file(at(mount, to, "kept")).unwrap();
    }
    other.stop();
    up.stop();
}
