//! The tests that languages have of their own file functions, run on the mount.

use crate::fixture::{Fixture, must, program, skip};
use std::fs;
use std::process::Stdio;

/// A Python that has its own tests.
fn python() -> Option<&'static str> {
    ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        let mut command = program(python);
        command.args(["-c", "import test.test_os"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

fn python_passes(name: &str) {
    let Some(fixture) = Fixture::new(name) else { return };
    let Some(python) = python() else {
        return skip(name, "needs Python's own tests (libpython3.11-testsuite)");
    };
    let up = fixture.up(&[]);
    let folder = up.dir.join("tests");
    fs::create_dir(&folder).unwrap();
    let mut suite = program(python);
    suite.args(["-m", "test", "-v", "--tempdir"]).arg(&folder).arg(name);
    // They allow 50 ms between two calls; `times` has the same without a limit.
    suite.args(["--ignore", "test_utime_current*"]);
    // The same calls once more, with paths of another type.
    suite.args(["--ignore", "test.test_os.Bytes*"]);
    suite.current_dir(&folder).env("TMPDIR", &folder).env("PYTHONDONTWRITEBYTECODE", "1");
    let said = must(&mut suite);
    assert!(said.contains("Tests result: SUCCESS"), "{said}");
    let ran_line = said.lines().find_map(|line| line.strip_prefix("Ran ")).unwrap();
    let count: u32 = ran_line.split(' ').next().unwrap().parse().unwrap();
    assert!(count > 10, "{ran_line}");
    up.stop();
}

#[test]
fn python_s_tests_of_os_pass() {
    python_passes("test_os");
}

#[test]
fn python_s_tests_of_shutil_pass() {
    python_passes("test_shutil");
}

#[test]
fn python_s_tests_of_mmap_pass() {
    python_passes("test_mmap");
}

#[test]
fn python_s_tests_of_fcntl_pass() {
    python_passes("test_fcntl");
}

#[test]
fn python_s_tests_of_mailboxes_pass() {
    python_passes("test_mailbox");
}

#[test]
fn python_s_tests_of_tempfile_pass() {
    python_passes("test_tempfile");
}
