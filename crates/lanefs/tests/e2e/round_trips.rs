//! Round trips to the server of each operation through a mount that does not cache, counted by the
//! server. A test fails if an operation takes one more.

use crate::fixture::{Fixture, until};
use crate::idle::connect;
use library::Volume;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_OMIT, Uid,
};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// What the server has answered, besides questions for that number.
struct Counting {
    volume: Volume,
    asked_count: u64,
    last_count: u64,
}

impl Counting {
    fn count(&mut self) -> u64 {
        let lanes = self.volume.stats().unwrap();
        let count: u64 = lanes.iter().map(|lane| lane.request_count).sum();
        let counted = count - self.asked_count;
        self.asked_count += u64::try_from(lanes.len()).unwrap();
        counted
    }

    /// Since the last time.
    fn risen(&mut self) -> u64 {
        let now = self.count();
        now - std::mem::replace(&mut self.last_count, now)
    }

    /// So many follow, and are waited for.
    #[track_caller]
    fn follow(&mut self, what: &str, count: u64) {
        let last = self.last_count;
        until(what, || {
            let risen = self.count() - last;
            assert!(risen <= count, "{what}: {risen} exchanges");
            risen == count
        });
        self.last_count = last + count;
    }

    /// It takes so many.
    #[track_caller]
    fn takes<T>(&mut self, what: &str, count: u64, does: impl FnOnce() -> T) -> T {
        let done = does();
        assert_eq!(self.risen(), count, "exchanges of {what}");
        done
    }
}

fn statx(path: &Path) {
    let found =
        rustix::fs::statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).unwrap();
    assert!(found.stx_ino > 0);
}

/// A mount with a lane, and a server with one.
fn counted(name: &str, test: impl FnOnce(&Path, &mut Counting)) {
    let Some(fixture) = Fixture::new(name) else { return };
    let up = fixture.up(&["--lanes", "1", "--leases", "off"]);
    let volume = connect(&fixture, &up.address);
    let mut counting = Counting { volume, asked_count: 0, last_count: 0 };
    // What was asked while it was mounted.
    counting.last_count = counting.count();
    test(&up.dir, &mut counting);
    drop(counting);
    up.stop();
}

#[test]
fn exchanges_of_a_file_that_is_made_written_and_closed() {
    counted("exchanges_file", |dir, counting| {
        let path = dir.join("file");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = counting.takes("create", 2, || {
            let made = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600));
            File::from(made.unwrap())
        });
        counting.takes("write", 1, || file.write_all_at(&[7; 4096], 0).unwrap());
        counting.takes("a second write", 1, || file.write_all_at(&[7; 4096], 4096).unwrap());
        counting.takes("fstat of what is being written", 2, || {
            assert_eq!(file.metadata().unwrap().len(), 8192);
        });
        // As tar does it.
        let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let modified = Timespec { tv_sec: 1_700_000_000, tv_nsec: 0 };
        let times = Timestamps { last_access: omitted, last_modification: modified };
        counting.takes("utimens", 1, || rustix::fs::futimens(&file, &times).unwrap());
        counting.takes("chown", 2, || {
            rustix::fs::fchown(&file, Some(Uid::ROOT), Some(Gid::ROOT)).unwrap();
        });
        counting.takes("chmod", 1, || {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644)).unwrap();
        });
        counting.takes("fsync", 2, || file.sync_all().unwrap());
        drop(file);
        counting.follow("close of what was written", 1);
        counting.takes("stat", 2, || statx(&path));
        let file = counting.takes("open", 2, || File::open(&path).unwrap());
        counting.takes("read", 1, || file.read_exact_at(&mut [0; 4096], 0).unwrap());
        counting.takes("fstat", 1, || assert_eq!(file.metadata().unwrap().len(), 8192));
        drop(file);
        counting.follow("close of what was read", 1);
        counting.takes("rename", 3, || std::fs::rename(&path, dir.join("other")).unwrap());
        counting.takes("unlink", 2, || std::fs::remove_file(dir.join("other")).unwrap());
    });
}

#[test]
fn exchanges_of_a_file_that_is_made_and_not_written() {
    counted("exchanges_empty", |dir, counting| {
        let file = counting.takes("create", 2, || File::create_new(dir.join("file")).unwrap());
        drop(file);
        counting.follow("close", 1);
    });
}

#[test]
fn exchanges_of_paths_of_the_library() {
    counted("exchanges_library", |_, counting| {
        let (sub, file) = (Path::new("/a/b"), Path::new("/a/b/file"));
        // Near the root a directory is another shard's than its name, which a walk need not ask.
        counting.volume.mkdir(Path::new("/a"), 0o755).unwrap();
        counting.volume.mkdir(sub, 0o755).unwrap();
        counting.risen();
        let file = counting.volume.create(file, 0o644, true).unwrap();
        assert_eq!(counting.risen(), 3, "two names, and the create");
        counting.volume.close(file).unwrap();
        counting.follow("close", 1);
        counting.volume.set_xattr(sub, "user.a", b"1").unwrap();
        assert_eq!(counting.risen(), 3, "two names, and the value");
        counting.volume.read_dir(Path::new("/")).unwrap();
        assert_eq!(counting.risen(), 0, "the root needs no walk");
    });
}

#[test]
fn exchanges_of_a_directory() {
    counted("exchanges_directory", |dir, counting| {
        let sub = dir.join("sub");
        counting.takes("mkdir", 2, || std::fs::create_dir(&sub).unwrap());
        for name in ["a", "b"] {
            // The directory, which near the root is another shard's than its name: two. The name, and
            // what makes the file.
            let create = || File::create_new(sub.join(name)).unwrap();
            drop(counting.takes("create", 4, create));
            counting.follow("close", 1);
        }
        let open = || std::fs::read_dir(&sub).unwrap();
        let mut list = counting.takes("opening it", 4, open);
        counting.takes("a listing", 1, || assert_eq!(list.by_ref().count(), 2));
        drop(list);
        counting.follow("closing it", 1);
        let remove = || std::fs::remove_file(sub.join("a")).unwrap();
        counting.takes("unlink below it", 4, remove);
    });
}
