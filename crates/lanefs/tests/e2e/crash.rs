//! The server is killed with -9 in the middle of work and restarted: nothing acknowledged is lost,
//! nothing is done twice.

use crate::fixture::{Fixture, Up, must, program};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A real source tree: cargo's registry, or as much of the toolchain's sources as there is.
fn source_tree() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = home.unwrap().join("registry/src");
    assert!(registry.is_dir(), "{} does not exist", registry.display());
    registry
}

/// Entries that make a tree worth killing a server for; `LANEFS_TREE_COUNT` makes it 20,000 by hand.
const ENTRY_COUNT_MIN: usize = 5_000;

fn entry_count_min() -> usize {
    std::env::var("LANEFS_TREE_COUNT").map_or(ENTRY_COUNT_MIN, |count| count.parse().unwrap())
}

/// Packs packages of the registry into an archive, each as it is now, until there are enough entries.
/// What a small registry has goes in several times, in folders of some packages each. Larger files are left
/// out: what counts is how many there are.
fn pack(fixture: &Fixture, registry: &Path) -> (PathBuf, PathBuf) {
    let archive = fixture.path("tree.tar");
    let original = fixture.make_dir("original");
    let folders = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let packages: Vec<PathBuf> = folders(registry).flat_map(|index| folders(&index)).collect();
    let mut entry_count = 0;
    for (copy_no, packages) in packages.chunks(50).cycle().enumerate() {
        if entry_count >= entry_count_min() {
            break;
        }
        let copy = original.join(format!("copy{copy_no}"));
        fs::create_dir(&copy).unwrap();
        must(program("cp").arg("-a").args(packages).arg(&copy));
        must(program("find").arg(&copy).args(["-type", "f", "-size", "+16", "-delete"]));
        entry_count += count(&copy);
    }
    // Of tar's formats the one that keeps nanoseconds.
    let mut tar = program("tar");
    must(tar.args(["--format=posix", "-cf"]).arg(&archive).arg("-C").arg(&original).arg("."));
    (archive, original)
}

fn count(dir: &Path) -> usize {
    must(program("find").arg(dir)).lines().count()
}

/// Unpacks, and kills the server each time a further part of the tree was named by tar.
fn unpack_with_kills(up: &mut Up, archive: &Path, target: &Path, kills: &[usize]) {
    let mut command = program("tar");
    command.arg("xpvf").arg(archive).arg("-C").arg(target).stdout(Stdio::piped());
    let mut tar = command.spawn().unwrap();
    let names = BufReader::new(tar.stdout.take().unwrap());
    for (name_no, name) in names.split(b'\n').enumerate() {
        assert!(!name.unwrap().is_empty());
        if kills.contains(&name_no) {
            up.kill_server();
        }
    }
    assert!(tar.wait().unwrap().success(), "tar notices nothing");
}

fn assert_same(original: &Path, copy: &Path) {
    let mut rsync = program("rsync");
    // Contents, whatever the times say, and times to the nanosecond.
    rsync.args(["-aHXnc", "--modify-window=-1", "--delete", "--itemize-changes"]);
    rsync.arg(original.join("")).arg(copy.join(""));
    assert_eq!(must(&mut rsync), "", "rsync finds no difference");
}

#[test]
fn a_tree_unpacked_over_two_kills_is_whole_after_a_restart() {
    let Some(fixture) = Fixture::new("tar_kill") else { return };
    let (archive, original) = pack(&fixture, &source_tree());
    let entry_count = count(&original);
    assert!(entry_count >= entry_count_min(), "a tree of {entry_count} entries");
    let mut up = fixture.up(&[]);
    let copy = up.dir.join("copy");
    fs::create_dir(&copy).unwrap();
    fs::set_permissions(&copy, fs::metadata(&original).unwrap().permissions()).unwrap();
    unpack_with_kills(&mut up, &archive, &copy, &[entry_count / 4, entry_count / 2]);
    up.stop();
    let up = fixture.up(&[]);
    assert_eq!(count(&up.dir.join("copy")), entry_count);
    assert_same(&original, &up.dir.join("copy"));
    up.stop();
}

#[test]
fn another_number_of_lanes_finds_the_same_files() {
    let Some(fixture) = Fixture::new("lanes_change") else { return };
    let original = fixture.make_dir("original");
    for folder in 0..20 {
        let folder = original.join(format!("folder{folder}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..20 {
            fs::write(folder.join(format!("file{file}")), format!("{file}\n").repeat(500)).unwrap();
        }
    }
    for (lanes, first) in [("1", true), ("3", false), ("2", false)] {
        let up = fixture.up(&["--lanes", lanes]);
        if first {
            must(program("cp").arg("-a").arg(&original).arg(up.dir.join("copy")));
        }
        assert_same(&original, &up.dir.join("copy"));
        up.stop();
    }
}
