//! Directories that one mount moves below other parents are found there by the other, whatever else
//! happens in both; and who stands in a directory that the own mount moves stays in it.

use crate::fixture::{Fixture, must, program};
use crate::two_mounts::over_each;
use rustix::fs::{AtFlags, CWD, RenameFlags};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// `moves` of docs/posix.md: `LANEFS_MOVE_COUNT` says how many.
fn move_count() -> usize {
    std::env::var("LANEFS_MOVE_COUNT").map_or(100, |text| text.parse().expect("LANEFS_MOVE_COUNT"))
}

/// Creates and renames in both directories and from one to the other, which locks both in the kernel.
fn load(dirs: &[PathBuf; 2], number: usize, done: &AtomicBool) -> std::io::Result<usize> {
    let mut round_count = 0;
    while !done.load(Ordering::Relaxed) {
        for (here, there) in [(&dirs[0], &dirs[1]), (&dirs[1], &dirs[0])] {
            let [made, renamed, moved] =
                ["made", "renamed", "moved"].map(|it| format!("{it}{number}"));
            File::create(here.join(&made))?;
            fs::rename(here.join(&made), here.join(&renamed))?;
            fs::rename(here.join(&renamed), there.join(&moved))?;
            fs::remove_file(there.join(&moved))?;
        }
        round_count += 1;
    }
    Ok(round_count)
}

/// The kernel gave programs of the other mount ESTALE in most of these.
#[test]
fn a_directory_moved_elsewhere_is_found_under_load() {
    over_each("moves", |pair| {
        let (here, there) = pair.dirs(0);
        let dirs = |at: &Path| ["a", "b"].map(|name| at.join(name));
        for dir in dirs(here) {
            fs::create_dir(dir).unwrap();
        }
        fs::create_dir_all(here.join("a/d/sub")).unwrap();
        fs::write(here.join("a/d/file"), "x").unwrap();
        let number = fs::metadata(here.join("a/d")).unwrap().ino();
        let (done, ready_count) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let loads = [0, 1, 2, 3].map(|number| {
                let (dirs, done, ready_count) = (dirs(there), &done, &ready_count);
                scope.spawn(move || {
                    ready_count.fetch_add(1, Ordering::Relaxed);
                    load(&dirs, number, done)
                })
            });
            let outcome = (0..move_count()).try_for_each(|round| {
                let (from, to) = if round.is_multiple_of(2) { ("a", "b") } else { ("b", "a") };
                let seen = |dir: &str| -> std::io::Result<()> {
                    assert_eq!(fs::metadata(there.join(dir).join("d"))?.ino(), number);
                    fs::metadata(there.join(dir).join("d/sub"))?;
                    assert_eq!(fs::read(there.join(dir).join("d/file"))?, b"x");
                    Ok(())
                };
                seen(from)?;
                // Its dentry stays for as long as it is open.
                let open = (round % 4 < 2).then(|| File::open(there.join(from).join("d")));
                let open = open.transpose()?;
                fs::rename(here.join(from).join("d"), here.join(to).join("d"))?;
                seen(to)?;
                let moved = fs::metadata(there.join(from).join("d")).map_err(|error| error.kind());
                assert_eq!(moved.err(), Some(ErrorKind::NotFound));
                if let Some(open) = open {
                    assert_eq!(open.metadata()?.ino(), number);
                    let file = rustix::fs::statat(&open, "file", AtFlags::empty())?;
                    assert_eq!(file.st_size, 1);
                }
                Ok(())
            });
            done.store(true, Ordering::Relaxed);
            for load in loads {
                load.join().unwrap().unwrap();
            }
            outcome.unwrap_or_else(|error: std::io::Error| panic!("{error}"));
        });
        println!("{} moves", move_count());
    });
}

/// A directory that lay above another lies below it, and the other way round.
#[test]
fn directories_that_change_places_elsewhere_are_found() {
    over_each("places", |pair| {
        for round in 0..10 {
            let (here, there) = pair.dirs(round);
            fs::create_dir_all(here.join("one/other")).unwrap();
            let stood =
                [there.join("one"), there.join("one/other")].map(|dir| File::open(dir).unwrap());
            fs::rename(here.join("one/other"), here.join("other")).unwrap();
            fs::rename(here.join("one"), here.join("other/one")).unwrap();
            let found =
                ["other/one", "other"].map(|dir| fs::metadata(there.join(dir)).unwrap().ino());
            assert_eq!(found, stood.map(|dir| dir.metadata().unwrap().ino()));
            // Once more, by the other mount.
            fs::rename(there.join("other/one"), there.join("one")).unwrap();
            fs::rename(there.join("other"), there.join("one/other")).unwrap();
            assert_eq!(fs::metadata(here.join("one/other")).unwrap().ino(), found[1]);
            fs::remove_dir(here.join("one/other")).unwrap();
            fs::remove_dir(here.join("one")).unwrap();
        }
    });
}

/// What getcwd says follows the moves of the own mount, also of what another mount had moved before.
#[test]
fn a_working_directory_goes_where_its_own_mount_moves_it() {
    const SCRIPT: &str = "import ctypes,os,sys
here, there = sys.argv[1:]
for name in 'abc': os.mkdir(here + '/' + name)
os.makedirs(here + '/a/d/sub')
def stand(where):
    assert os.getcwd() == where, (os.getcwd(), where)
    assert os.stat('..').st_ino == os.stat(os.path.dirname(where)).st_ino
    os.stat(where)
    assert os.getcwd() == where, (os.getcwd(), where)
for n in range(10):
    os.chdir(here + '/a/d')
    os.rename(here + '/a/d', here + '/b/e')
    stand(here + '/b/e')
    os.chdir('sub')
    os.rename(here + '/b/e', here + '/c/d')
    stand(here + '/c/d/sub')
    os.chdir('..')
    # Somewhere else and back again, each time to be found by its name.
    os.rename(there + '/c/d', there + '/a/d')
    os.chdir(here + '/a/d')
    stand(here + '/a/d')
    os.rename(here + '/a/d', here + '/b/d')
    stand(here + '/b/d')
    os.rename(there + '/b/d', there + '/a/d')
    os.chdir(here + '/a/d/sub')
    stand(here + '/a/d/sub')
os.chdir('/')
";
    over_each("moves_cwd", |pair| {
        let (here, there) = pair.dirs(0);
        must(program("python3").args(["-c", SCRIPT]).arg(here).arg(there));
    });
}

/// Both directories of an exchange keep who stands in them.
#[test]
fn processes_stay_in_directories_that_are_exchanged() {
    let Some(fixture) = Fixture::new("moves_exchange") else { return };
    let up = fixture.up(&[]);
    let at = |path: &str| up.dir.join(path);
    for name in ["one/a/inner", "other/b/inner"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    for _ in 0..4 {
        let open = ["one/a", "other/b"].map(|name| File::open(at(name)).unwrap());
        let (one, other) = (at("one/a"), at("other/b"));
        rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        let places = open.map(|dir| {
            use std::os::fd::AsRawFd as _;
            let ino = dir.metadata().unwrap().ino();
            let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
            let before = fs::read_link(&link).unwrap();
            assert_eq!(fs::metadata(&before).unwrap().ino(), ino);
            assert_eq!(fs::read_link(&link).unwrap(), before, "looked up, it stays there");
            before
        });
        assert_eq!(places, [other, one]);
    }
    up.stop();
}
