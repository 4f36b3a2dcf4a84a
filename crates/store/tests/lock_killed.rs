//! A server that is killed while it has the store open. In a program of its own: for a moment a new
//! child process has copies of its parent's descriptors, which other tests would see as an open
//! store.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_killed_server_frees_the_store() {
    const HOLD: &str = "LANEFS_TEST_HOLD";
    if let Some(path) = std::env::var_os(HOLD) {
        // The child: has the store open until it is killed.
        let store = store::open(Path::new(&path)).unwrap();
        println!("\nheld by boot {}", store.boot_id());
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    store::create(&path, &store::Shape::default()).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "a_killed_server_frees_the_store"])
        .env(HOLD, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "held by boot 1"), "the child opens the store");
    let refused = store::open(&path).unwrap_err();
    assert!(refused.to_string().contains(&format!("process {}", child.id())), "{refused}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(store::open(&path).unwrap().boot_id(), 2);
}
