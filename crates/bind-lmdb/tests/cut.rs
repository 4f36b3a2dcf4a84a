//! A file that is truncated while it is mapped ends its process with a message, not with a signal.
#![allow(clippy::unwrap_used, missing_docs)]

use bind_lmdb::{FILE, Table};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "LANEFS_TEST_CUT";
const BYTES_MAX: usize = 1 << 30;

/// The child process: opens the table, has its file truncated, and reads on.
fn read_truncated(folder: &Path) {
    let table = Table::open(folder, BYTES_MAX).unwrap();
    table.guard().unwrap();
    let file = OpenOptions::new().write(true).open(folder.join(FILE)).unwrap();
    file.set_len(4096).unwrap();
    let count = table.snapshot().unwrap().range(&[1], &[255]).unwrap().count();
    panic!("{count} rows were read from a truncated file");
}

#[test]
fn a_file_that_is_truncated_under_a_reader_is_named() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return read_truncated(Path::new(&folder));
    }
    // The list of mappings has the name as it is.
    let name = OsStr::from_bytes(b"not \xff utf8");
    let folder = tempfile::Builder::new().prefix(name).tempdir().unwrap();
    let keys: Vec<[u8; 9]> = (0..5000_u64)
        .map(|number| {
            let mut key = [1; 9];
            key[1..].copy_from_slice(&number.to_be_bytes());
            key
        })
        .collect();
    let rows = keys.iter().map(|key| (&key[..], Some(&[7_u8; 50][..])));
    Table::create(folder.path(), rows).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_file_that_is_truncated_under_a_reader_is_named", "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    let file = folder.path().join(FILE);
    assert!(message.contains(&format!("{} was damaged", file.display())), "{message}");
}
