//! Mounts that cache, one that changes and all that look at the same time: a call shows nothing that
//! was over before it began, and nothing that any call has shown to be over. The mount that changes
//! shows its own change when the call returns, and may show it later than others until then.
//!
//! Numbers are written in order, a few to each object: an object that changes all the time is hot,
//! and no mount caches it. `LANEFS_TEST_LONG=1` writes 3,000 numbers in each way.

use crate::fixture::{Fixture, Mount};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, utimensat};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Numbers to each object.
const OBJECT_NUMBERS: u64 = 3;
const MOUNTS: [(&str, &[&str]); 3] = [
    ("a", &["--export", "up", "--leases", "on", "--lanes", "1"]),
    ("b", &["--export", "up", "--leases", "on", "--lanes", "3"]),
    ("c", &["--export", "up", "--leases", "off"]),
];

/// How a number is written into an object and read from it.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    write: fn(&Path, u64),
    /// `None` if there is no object.
    read: fn(&Path) -> Option<u64>,
}

/// What readers must find.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    /// Written, or seen by any reader.
    done: AtomicU64,
    /// Written, or seen by a reader at the mount that writes.
    done_there: AtomicU64,
    /// Nothing more is written, also after a failure.
    over: AtomicBool,
}

/// What writes the numbers.
struct Writing<'p>(&'p Progress);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

const WAYS: [Way; 9] = [
    Way { name: "contents", write: write_contents, read: read_contents },
    Way { name: "replaced", write: replace, read: read_contents },
    Way { name: "appended", write: append, read: read_size },
    Way { name: "size", write: truncate, read: read_size },
    Way { name: "time", write: set_time, read: read_time },
    Way { name: "xattr", write: set_xattr, read: read_xattr },
    Way { name: "symlink", write: replace_symlink, read: read_symlink },
    Way { name: "links", write: link, read: read_links },
    Way { name: "listed", write: make_name, read: list_names },
];

fn write_contents(path: &Path, number: u64) {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all_at(&number.to_ne_bytes(), 0).unwrap();
}

/// An empty file has no number yet.
fn read_contents(path: &Path) -> Option<u64> {
    let bytes = found(fs::read(path))?;
    (!bytes.is_empty()).then(|| u64::from_ne_bytes(bytes.try_into().unwrap()))
}

fn replace(path: &Path, number: u64) {
    let new = path.with_extension("new");
    fs::write(&new, number.to_ne_bytes()).unwrap();
    fs::rename(new, path).unwrap();
}

fn append(path: &Path, number: u64) {
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create(true).open(path).unwrap();
    // The size is the number.
    let first = number - number % OBJECT_NUMBERS;
    let count = if number == first { number + 1 } else { 1 };
    std::io::Write::write_all(&mut file, &vec![b'x'; usize::try_from(count).unwrap()]).unwrap();
}

fn truncate(path: &Path, number: u64) {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(path).unwrap();
    file.set_len(number + 1).unwrap();
}

/// A size of 0 is that of a file which was made a moment ago.
fn read_size(path: &Path) -> Option<u64> {
    found(fs::metadata(path))?.len().checked_sub(1)
}

fn set_time(path: &Path, number: u64) {
    if number.is_multiple_of(OBJECT_NUMBERS) {
        File::create_new(path).unwrap();
    }
    let time = Timespec { tv_sec: i64::try_from(number).unwrap(), tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

fn read_time(path: &Path) -> Option<u64> {
    let seconds = found(fs::metadata(path))?.mtime();
    // Now, if it was made a moment ago.
    u64::try_from(seconds).ok().filter(|seconds| *seconds < 1_000_000_000)
}

fn set_xattr(path: &Path, number: u64) {
    if number.is_multiple_of(OBJECT_NUMBERS) {
        File::create_new(path).unwrap();
    }
    rustix::fs::setxattr(path, "user.n", &number.to_ne_bytes(), XattrFlags::empty()).unwrap();
}

fn read_xattr(path: &Path) -> Option<u64> {
    let mut value = [0; 8];
    let count = rustix::fs::getxattr(path, "user.n", &mut value).ok()?;
    (count == 8).then(|| u64::from_ne_bytes(value))
}

fn replace_symlink(path: &Path, number: u64) {
    let new = path.with_extension("new");
    symlink(number.to_string(), &new).unwrap();
    fs::rename(new, path).unwrap();
}

fn read_symlink(path: &Path) -> Option<u64> {
    Some(found(fs::read_link(path))?.to_str().unwrap().parse().unwrap())
}

fn link(path: &Path, number: u64) {
    if number.is_multiple_of(OBJECT_NUMBERS) {
        File::create_new(path).unwrap();
    } else {
        fs::hard_link(path, path.with_extension(number.to_string())).unwrap();
    }
}

/// By the count of links and by the names.
fn read_links(path: &Path) -> Option<u64> {
    let first = path.file_name().unwrap().to_str().unwrap();
    let first = first.parse::<u64>().unwrap() * OBJECT_NUMBERS;
    let is_there = |number: &u64| path.with_extension(number.to_string()).exists();
    let named = (first + 1..first + OBJECT_NUMBERS).take_while(is_there).last();
    let count = found(fs::metadata(path))?.nlink();
    let counted = first + count - 1;
    // The count is looked at later.
    assert!(named.unwrap_or(first) <= counted, "{named:?} of {first}, {count} links");
    Some(counted)
}

fn make_name(path: &Path, number: u64) {
    if number.is_multiple_of(OBJECT_NUMBERS) {
        // Under its name it has a first entry from the start.
        let new = path.with_extension("new");
        fs::create_dir(&new).unwrap();
        File::create_new(new.join(number.to_string())).unwrap();
        fs::rename(new, path).unwrap();
    } else {
        File::create_new(path.join(number.to_string())).unwrap();
    }
}

fn list_names(path: &Path) -> Option<u64> {
    let names = found(fs::read_dir(path))?.map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_str().unwrap().parse().unwrap()).max()
}

fn found<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}

impl Way {
    fn path(dir: &Path, number: u64) -> PathBuf {
        dir.join((number / OBJECT_NUMBERS).to_string())
    }

    fn write_all(self, dir: &Path, count: u64, Writing(progress): &Writing<'_>) {
        for number in 0..count {
            progress.begun.store(number + 1, Ordering::SeqCst);
            (self.write)(&Self::path(dir, number), number);
            progress.done.fetch_max(number + 1, Ordering::SeqCst);
            progress.done_there.fetch_max(number + 1, Ordering::SeqCst);
        }
    }

    /// Reads the object of the last number, and that of the next one, until all are written.
    fn read_all(self, (dir, is_writing): (&Path, bool), progress: &Progress) {
        let all_done = if is_writing { &progress.done_there } else { &progress.done };
        while !progress.over.load(Ordering::SeqCst) {
            let done = all_done.load(Ordering::SeqCst);
            for ahead in [0, 1] {
                let wanted = done + ahead;
                let Some(number) = wanted.checked_sub(1) else { continue };
                let seen = (self.read)(&Self::path(dir, number));
                let begun = progress.begun.load(Ordering::SeqCst);
                let context = format!("{}: {seen:?} at {}", self.name, dir.display());
                assert!(seen.is_none_or(|seen| seen < begun), "{context}, {begun} begun");
                let is_new = ahead == 1 && number.is_multiple_of(OBJECT_NUMBERS);
                let least = if is_new { None } else { done.checked_sub(1) };
                assert!(seen >= least, "{context}, {done} done");
                let seen_count = seen.map_or(0, |seen| seen + 1);
                progress.done.fetch_max(seen_count, Ordering::SeqCst);
                all_done.fetch_max(seen_count, Ordering::SeqCst);
            }
        }
    }
}

#[test]
fn a_call_shows_nothing_that_was_over_before_it_began() {
    let Some(fixture) = Fixture::new("lease_races") else { return };
    let long = std::env::var("LANEFS_TEST_LONG").is_ok_and(|long| long == "1");
    let count = if long { 3_000 } else { 60 };
    let roll = usize::try_from(crate::fixture::roll() % 3).unwrap();
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let mounts = MOUNTS.map(|(name, options)| fixture.mount(&server.address, name, options));
    for (way_no, way) in WAYS.into_iter().enumerate() {
        let dirs = mounts.each_ref().map(|mount| mount.dir.join(way.name));
        fs::create_dir(&dirs[0]).unwrap();
        let progress = Progress::default();
        std::thread::scope(|scope| {
            let writing = &dirs[(way_no + roll) % 3];
            let written = Writing(&progress);
            scope.spawn(move || way.write_all(writing, count, &written));
            for dir in &dirs {
                let progress = &progress;
                scope.spawn(move || way.read_all((dir, dir == writing), progress));
            }
        });
    }
    mounts.into_iter().for_each(Mount::stop);
}
