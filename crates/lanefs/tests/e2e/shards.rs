//! Directories near the root lie in different metadata shards: moving things between them goes like
//! any other move, and is whole or not at all when the server is killed in the middle.

use crate::stage::{Stage, Up, must, program};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
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
    let Some(stage) = Stage::new("shards_kill") else { return };
    let mut up = stage.up(&[]);
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
    let up = stage.up(&[]);
    let deeper = dirs[2].join("deeper");
    assert_eq!(names(&deeper).len(), 3 * COUNT);
    assert_eq!(names(&up.dir).len(), 2);
    must(program("rm").arg("-r").arg(&deeper));
    assert_eq!(names(&dirs[2]), BTreeSet::new());
    up.stop();
}

#[test]
fn links_opens_and_removals_reach_into_other_shards() {
    let Some(stage) = Stage::new("shards_ops") else { return };
    let up = stage.up(&[]);
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
    assert_eq!(stage.run(["ls", "-l", &up.url("/")]).status.code(), Some(0));
    up.stop();
}
