//! One pass through a tree: what is asked of each directory and each file, and the counts.
//!
//! Invariant: no symbolic link is followed below the first path, nor is another file system entered.

use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Read at a time: what a READ of the kernel has at most.
const READ_BYTES: usize = 1 << 20;

/// As many failures of a path are named.
const FAILURE_COUNT_MAX: usize = 50;

/// What a pass reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pass {
    /// Names, attributes, targets of links.
    Names,
    /// These, and what files contain.
    Contents,
}

/// Something to visit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Visit {
    /// What kind it is has to be found out.
    First(PathBuf),
    Dir(PathBuf),
    File(PathBuf),
}

impl Visit {
    pub(super) const fn is_dir(&self) -> bool {
        match self {
            Self::First(_) | Self::Dir(_) => true,
            Self::File(_) => false,
        }
    }
}

/// What was met so far.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Counts {
    pub(super) dir_count: u64,
    pub(super) file_count: u64,
    /// Symbolic links, fifos, sockets and devices.
    pub(super) other_count: u64,
    /// Directories of other file systems.
    pub(super) left_count: u64,
    /// Of all files together.
    pub(super) size_bytes: u64,
    pub(super) read_bytes: u64,
    pub(super) failure_count: u64,
    /// The first of them, with their paths.
    pub(super) failures: Vec<String>,
}

/// A pass, for several threads.
pub(super) struct Walk {
    device: u64,
    pass: Pass,
    dir_count: AtomicU64,
    file_count: AtomicU64,
    other_count: AtomicU64,
    left_count: AtomicU64,
    size_bytes: AtomicU64,
    read_bytes: AtomicU64,
    failures: Mutex<(u64, Vec<String>)>,
}

impl Walk {
    /// On the file system with this device number.
    pub(super) fn new(device: u64, pass: Pass) -> Self {
        Self {
            device,
            pass,
            dir_count: AtomicU64::new(0),
            file_count: AtomicU64::new(0),
            other_count: AtomicU64::new(0),
            left_count: AtomicU64::new(0),
            size_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            failures: Mutex::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (failure_count, failures) =
            self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Counts {
            dir_count: of(&self.dir_count),
            file_count: of(&self.file_count),
            other_count: of(&self.other_count),
            left_count: of(&self.left_count),
            size_bytes: of(&self.size_bytes),
            read_bytes: of(&self.read_bytes),
            failure_count,
            failures,
        }
    }

    /// Visits one; `push` gets what is found, and may give it back to be visited at once.
    pub(super) fn visit(
        &self,
        visit: &Visit,
        stopped: &AtomicBool,
        push: &mut dyn FnMut(Visit) -> Option<Visit>,
    ) {
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        let (path, visited) = match visit {
            Visit::First(path) => (path, self.meet(path, push)),
            Visit::Dir(path) => (path, self.list(path, stopped, push).map(|()| None)),
            Visit::File(path) => (path, self.read(path, stopped).map(|()| None)),
        };
        match visited {
            Ok(Some(at_once)) => self.visit(&at_once, stopped, push),
            Ok(None) => {}
            Err(error) => self.fail(path, &error),
        }
    }

    /// Looks at a path: its attributes, and what a link points to.
    fn meet(
        &self,
        path: &Path,
        push: &mut dyn FnMut(Visit) -> Option<Visit>,
    ) -> io::Result<Option<Visit>> {
        let found = path.symlink_metadata()?;
        if found.dev() != self.device {
            self.left_count.fetch_add(1, Ordering::Relaxed);
        } else if found.is_dir() {
            return Ok(push(Visit::Dir(path.to_owned())));
        } else if found.is_file() {
            self.file_count.fetch_add(1, Ordering::Relaxed);
            self.size_bytes.fetch_add(found.len(), Ordering::Relaxed);
            if self.pass == Pass::Contents {
                return Ok(push(Visit::File(path.to_owned())));
            }
        } else {
            self.other_count.fetch_add(1, Ordering::Relaxed);
            if found.is_symlink() {
                fs::read_link(path)?;
            }
        }
        Ok(None)
    }

    /// Reads the names of a directory. Its attributes were read before: a listing is known that was made
    /// under a lease of them.
    fn list(
        &self,
        path: &Path,
        stopped: &AtomicBool,
        push: &mut dyn FnMut(Visit) -> Option<Visit>,
    ) -> io::Result<()> {
        self.dir_count.fetch_add(1, Ordering::Relaxed);
        for entry in fs::read_dir(path)? {
            if stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            let path = entry?.path();
            match self.meet(&path, push) {
                Ok(None) => {}
                Ok(Some(at_once)) => self.visit(&at_once, stopped, push),
                Err(error) => self.fail(&path, &error),
            }
        }
        Ok(())
    }

    fn read(&self, path: &Path, stopped: &AtomicBool) -> io::Result<()> {
        // A fifo may have taken its place.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = File::from(open(path, flags, Mode::empty())?);
        let mut bytes = vec![0; READ_BYTES];
        while !stopped.load(Ordering::Relaxed) {
            match file.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fail(&self, path: &Path, error: &io::Error) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.0 += 1;
        if failures.1.len() < FAILURE_COUNT_MAX {
            failures.1.push(format!("{}: {error}", path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::pool::Pool;
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::Arc;
    use std::time::Duration;

    fn walked(dir: &Path, pass: Pass, job_count: u16) -> Counts {
        let device = dir.metadata().unwrap().dev();
        let walk = Walk::new(device, pass);
        let pool = Pool::start(walk, dir.to_owned(), job_count, Arc::default()).unwrap();
        while !pool.wait(Duration::from_secs(1)) {}
        pool.walk().counts()
    }

    #[test]
    fn a_tree_is_visited_once_by_any_number_of_threads() {
        let dir = tempfile::tempdir().unwrap();
        for name in 0..10 {
            let below = dir.path().join(format!("d{name}/e"));
            fs::create_dir_all(&below).unwrap();
            (0..20).for_each(|file| fs::write(below.join(format!("f{file}")), "12345").unwrap());
            symlink("/", below.join("link")).unwrap();
        }
        for job_count in [1, 7] {
            let counts = walked(dir.path(), Pass::Contents, job_count);
            let expected = Counts {
                dir_count: 21,
                file_count: 200,
                other_count: 10,
                size_bytes: 1000,
                read_bytes: 1000,
                ..Counts::default()
            };
            assert_eq!(counts, expected);
            let names = walked(dir.path(), Pass::Names, job_count);
            assert_eq!(names, Counts { read_bytes: 0, ..expected });
        }
    }

    #[test]
    fn failures_are_counted_and_named_and_the_rest_is_visited() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "x").unwrap();
        let walk = Walk::new(dir.path().metadata().unwrap().dev(), Pass::Contents);
        let stopped = AtomicBool::new(false);
        for count in 0..FAILURE_COUNT_MAX + 1 {
            walk.visit(&Visit::File(dir.path().join(format!("no{count}"))), &stopped, &mut |_| {
                None
            });
        }
        let counts = walk.counts();
        assert_eq!(counts.failure_count, FAILURE_COUNT_MAX as u64 + 1);
        assert_eq!(counts.failures.len(), FAILURE_COUNT_MAX);
        assert!(counts.failures[0].contains("/no0: No such file"), "{:?}", counts.failures[0]);
        // Given back, a file is read at once.
        walk.visit(&Visit::First(dir.path().join("f")), &stopped, &mut Some);
        assert_eq!(walk.counts().read_bytes, 1);
    }

    #[test]
    fn another_file_system_and_what_is_stopped_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let walk = Walk::new(dir.path().metadata().unwrap().dev() + 1, Pass::Names);
        let first = Visit::First(dir.path().to_owned());
        walk.visit(&first, &AtomicBool::new(true), &mut |_| None);
        assert_eq!(walk.counts(), Counts::default());
        walk.visit(&first, &AtomicBool::new(false), &mut |_| None);
        assert_eq!(walk.counts(), Counts { left_count: 1, ..Counts::default() });
    }
}
