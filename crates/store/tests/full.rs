//! A store on a full disk.
#![allow(clippy::unwrap_used)]

use ring::Mesh;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Pace, RowStore, RowThreads};

/// A small disk, unmounted when dropped.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Some(c"size=32m");
        mount("lanefs-test", folder.path(), "tmpfs", MountFlags::empty(), options).unwrap();
        Self { folder }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn filler(&self) -> PathBuf {
        self.folder.path().join("filler")
    }

    /// Fills the remaining space.
    fn fill(&self) {
        let filler = File::create(self.filler()).unwrap();
        let mut offset = 0;
        for piece_bytes in [64 << 10, 4 << 10] {
            while filler.write_all_at(&vec![1; piece_bytes], offset).is_ok() {
                offset = filler.metadata().unwrap().len();
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(self.folder.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// Opens everything that a server opens, and ends.
fn start(path: &Path) -> Result<(), store::StoreError> {
    let mut store = store::open(path)?;
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX)?;
    store.redo(&row_store)?;
    let (_file, start_offset) = store.new_logs(&row_store, 1, 256 << 10)?.remove(0);
    let mut row_threads = RowThreads::new(row_store, Pace::default(), 1);
    let mailbox = Mesh::mailboxes(1).unwrap().pop().unwrap();
    drop(row_threads.feed(mailbox.waker(), start_offset));
    store.remove_earlier_logs()?;
    row_threads.start(&store, Arc::new(|line: &str| panic!("{line}")))?.stop();
    Ok(())
}

#[test]
fn a_full_disk_has_space_for_a_start_and_its_reserve_is_refilled() {
    let disk = Disk::new();
    store::create(&disk.store(), &store::Shape::default()).unwrap();
    start(&disk.store()).unwrap();
    let reserve = disk.store().join("reserve");
    let first = fs::metadata(&reserve).unwrap();
    let full_bytes = first.len();
    assert_eq!(full_bytes, 512 << 10);
    disk.fill();
    start(&disk.store()).unwrap();
    // Removed logs may have freed space for all of another one.
    let same = fs::metadata(&reserve).is_ok_and(|found| found.ino() == first.ino());
    assert!(!same, "the start took its space");
    fs::remove_file(disk.filler()).unwrap();
    start(&disk.store()).unwrap();
    assert_eq!(fs::metadata(&reserve).unwrap().len(), full_bytes);
    // Without the reserve the logs of earlier boots make space for the new ones.
    fs::remove_file(&reserve).unwrap();
    disk.fill();
    start(&disk.store()).unwrap();
}
