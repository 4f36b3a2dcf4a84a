//! `lanefs profile` names the process and the path that did most, and agrees with the load.

use crate::fixture::{Fixture, Process, failure, program};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{ChildStdin, Stdio};

/// A shell that does `work` in `dir` when it is told to. A shell writes by itself: it lives while it is recorded.
struct Worker {
    process: Process,
    orders: ChildStdin,
}

impl Worker {
    fn new(work: &str, dir: &Path) -> Self {
        let script = format!("echo ready; while read -r order; do {work}; echo worked; done");
        let mut command = program("sh");
        command.args(["-c", &script]).current_dir(dir).stdin(Stdio::piped());
        let mut process = Process::start(&mut command);
        process.line_with("ready");
        let orders = process.orders();
        Self { process, orders }
    }

    fn work(&mut self) {
        self.orders.write_all(b"work\n").unwrap();
        self.process.line_with("worked");
    }

    fn end(mut self) {
        drop(self.orders);
        self.process.end();
    }
}

/// Profiles while `work` is done.
fn profiled(fixture: &Fixture, options: &[&str], work: impl FnOnce()) -> String {
    let dir = fixture.path("mnt");
    let mut command = fixture.lanefs(["profile", "--time", "1h"]);
    let mut profile = Process::start(command.arg(dir).args(options));
    profile.line_with("recording ");
    work();
    profile.signal(Signal::INT);
    assert_eq!(profile.end().code(), Some(0), "{}", profile.said());
    profile.said()
}

/// Of the row of a process and a path; 0 without one.
fn number(rows: &[Value], (pid, path): (u32, &str), pointer: &str) -> u64 {
    let row = rows.iter().find(|row| row["pid"] == pid && row["path"] == path);
    row.and_then(|row| row.pointer(pointer)).and_then(Value::as_u64).unwrap_or_default()
}

#[test]
fn a_profile_names_the_process_and_the_path_that_did_most() {
    let Some(fixture) = Fixture::new("profile_most") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up", "--leases", "off"]);
    for dir in ["big/deep/deeper", "small"] {
        fs::create_dir_all(mount.dir.join(dir)).unwrap();
    }
    let much = "i=0; while [ $i -lt 200 ]; do echo xyz >big/deep/deeper/$i; i=$((i + 1)); done";
    let mut busy = Worker::new(much, &mount.dir);
    let mut idle = Worker::new("echo x >small/file", &mount.dir);
    let said = profiled(&fixture, &["--json", "--depth", "2"], || {
        busy.work();
        idle.work();
    });
    let rows: Vec<Value> =
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (big, small) = (busy.process.pid(), idle.process.pid());
    let most = &rows[0];
    assert_eq!((&most["command"], &most["pid"]), (&"sh".into(), &big.into()), "{said}");
    assert_eq!(most["path"], "/big/deep", "{said}");
    let of_big = |pointer: &str| number(&rows, (big, "/big/deep"), pointer);
    for op in ["create", "write"] {
        assert_eq!(of_big(&format!("/ops/{op}/requests")), 200, "{op}: {said}");
    }
    assert_eq!(of_big("/written_bytes"), 200 * 4);
    assert!(of_big("/time_us") >= of_big("/ops/create/time_us") && of_big("/p99_us") > 0, "{said}");
    // In the directory the file was made, and it was written itself.
    let of_small =
        |path: &str, op: &str| number(&rows, (small, path), &format!("/ops/{op}/requests"));
    assert_eq!(of_small("/small", "create"), 1, "{said}");
    assert_eq!(of_small("/small/file", "write"), 1, "{said}");

    // As a table; and nothing that was before is in it.
    let said = profiled(&fixture, &["--depth", "1"], || idle.work());
    let lines: Vec<&str> = said.lines().collect();
    let is_head = |line: &&str| line.starts_with("COMMAND") && line.ends_with("PATH");
    let head = lines.iter().position(is_head).unwrap_or_else(|| panic!("{said}"));
    assert!(lines[head + 1].starts_with("sh") && lines[head + 1].ends_with("/small"), "{said}");
    assert!(!said.contains("/big"), "{said}");
    busy.end();
    idle.end();
    mount.stop();
}

#[test]
fn only_a_mount_can_be_profiled() {
    let Some(fixture) = Fixture::new("profile_refused") else { return };
    let other = fixture.make_dir("other");
    let (code, stderr) = failure(&fixture.run(["profile", other.to_str().unwrap()]));
    assert!(code == 1 && stderr.contains("is no mount of lanefs"), "{code} {stderr}");
}
