//! `lanefs doctor`: what it finds and names, its exit code, and what it leaves: nothing, and no secret in
//! a report. It runs where it sees no mount of another test.

use crate::fixture::{
    Fixture, Place, Process, kill, must, own_address, program, run, texts, until, wrap,
};
use crate::mount_namespace::{Private, User, secret_file};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

/// What `--json` says, of which the last line and the exit code say how bad it is.
#[track_caller]
fn findings(mut doctor: Command) -> Vec<Value> {
    let output = run(doctor.arg("--json"));
    let (said, complaints) = texts(&output);
    let mut all: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = all.pop().unwrap_or_else(|| panic!("{complaints}"));
    assert_eq!(summary["type"], "summary", "{said}{complaints}");
    let count = |severity: &str| all.iter().filter(|it| it["severity"] == severity).count();
    let (errors, warnings) = (count("error"), count("warning"));
    assert_eq!(summary["error_count"], errors);
    assert_eq!(summary["warning_count"], warnings);
    let code = if errors > 0 {
        10
    } else if warnings > 0 {
        9
    } else {
        0
    };
    assert_eq!(output.status.code(), Some(code), "{said}{complaints}");
    for finding in &all {
        let is_bad = ["error", "warning"].iter().any(|bad| finding["severity"] == *bad);
        assert!(!is_bad || finding["remedy"].is_string(), "{finding}");
    }
    all
}

/// The finding of a check.
#[track_caller]
fn of<'a>(all: &'a [Value], check: &str) -> &'a Value {
    all.iter().find(|it| it["check"] == check).unwrap_or_else(|| panic!("no {check}: {all:#?}"))
}

/// An error of a check, with these parts of what was found and of its remedy.
#[track_caller]
fn assert_error(all: &[Value], check: &str, found: &str, remedy: &str) {
    let finding = of(all, check);
    assert_eq!(finding["severity"], "error", "{finding}");
    assert!(finding["found"].as_str().unwrap().contains(found), "{finding}");
    assert!(finding["remedy"].as_str().unwrap().contains(remedy), "{finding}");
}

/// `lanefs doctor` there.
fn doctor<S: AsRef<std::ffi::OsStr>>(
    fixture: &Fixture,
    place: &impl Place,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = fixture.lanefs(["doctor"]);
    command.args(arguments);
    place.inside(command)
}

#[test]
fn a_machine_is_looked_at_by_root_and_by_others() {
    let Some(fixture) = Fixture::new("doctor_machine") else { return };
    let place = Private::new(&fixture, "");
    let checks = ["version", "kernel", "io-uring", "fuse-over-io-uring", "mounting", "open-files"];
    let more =
        ["processors", "memory", "hypervisor", "clock-source", "clock-synchronised", "wake-up"];
    let all = findings(doctor(&fixture, &place, [""; 0]));
    for check in checks.iter().chain(&more) {
        of(&all, check);
    }
    assert_eq!(of(&all, "mount")["severity"], "ok");
    assert!(of(&all, "wake-up")["median_us"].is_u64());
    let all = findings(doctor(&fixture, &User(&place), [""; 0]));
    for check in checks.iter().chain(&more).chain(&["allow-other", "user-namespaces"]) {
        of(&all, check);
    }
    // As lines, each with its remedy below it.
    let said = texts(&run(&mut doctor(&fixture, &place, [""; 0]))).0;
    assert!(said.contains("version: lanefs ") && said.contains(" ok\n"), "{said}");
}

#[test]
fn too_few_open_files_are_named() {
    let Some(fixture) = Fixture::new("doctor_files") else { return };
    let place = Private::new(&fixture, "");
    let mut limited = program("sh");
    limited.args(["-c", "ulimit -n 64 && exec \"$@\"", "sh"]);
    let all = findings(wrap(limited, doctor(&fixture, &place, [""; 0])));
    assert_error(&all, "open-files", "64 files", "ulimit -Hn");
}

#[test]
fn a_server_that_is_away_is_named() {
    let Some(fixture) = Fixture::new("doctor_away") else { return };
    let place = Private::new(&fixture, "");
    let address = own_address().replace(":0", ":1");
    let all = findings(doctor(&fixture, &place, [&address]));
    assert_error(&all, "server-connection", "nothing listens", "lanefs serve");
    assert_eq!(of(&all, "server-connection")["about"], address.as_str());
    let all = findings(doctor(&fixture, &place, ["no-such-host.invalid:1"]));
    assert_error(&all, "server-address", "no-such-host.invalid", "spelling");
    // What listens there and is no server.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let server = fixture.serve("127.0.0.1:0");
    let all = findings(doctor(&fixture, &place, [&*address, "--connect-timeout", "200ms"]));
    assert_error(&all, "server-login", "does not answer as a lanefs server", "lanefs --version");
    drop(server);
}

#[test]
fn a_full_disk_is_named() {
    let Some(fixture) = Fixture::new("doctor_full") else { return };
    let setup = "mkdir disk; mount -t tmpfs -o size=1m tmpfs disk; head -c 2000000 /dev/zero >disk/f || true";
    let place = Private::new(&fixture, setup);
    let disk = fixture.path("private/disk");
    let all = findings(doctor(&fixture, &place, [&disk]));
    assert_error(&all, "space", "full: 0 B of 1.00 MiB", "remove files");
    assert_eq!(of(&all, "space")["about"], disk.to_str().unwrap());
    assert_eq!(of(&all, "flush")["severity"], "note", "it cannot be measured");
}

#[test]
fn a_store_in_memory_is_named() {
    let Some(fixture) = Fixture::new("doctor_memory") else { return };
    let place = Private::new(&fixture, "");
    // It is to be made there.
    let store = fixture.path("private/store");
    let all = findings(doctor(&fixture, &place, [&store]));
    assert!(of(&all, "directory")["found"].as_str().unwrap().contains("does not exist yet"));
    let honesty = of(&all, "flush-honesty");
    assert_eq!(honesty["severity"], "warning", "{honesty}");
    assert!(honesty["found"].as_str().unwrap().contains("in memory"), "{honesty}");
    assert!(of(&all, "flush")["median_us"].is_u64());
    assert!(!fixture.path("private/store").exists());
}

#[test]
fn a_wrong_secret_is_named() {
    let Some(fixture) = Fixture::new("doctor_secret") else { return };
    let place = Private::new(&fixture, "");
    let server = fixture.serve("127.0.0.1:0");
    let wrong = fixture.path("wrong");
    fs::write(&wrong, "0123456789abcdef".repeat(4)).unwrap();
    fs::set_permissions(&wrong, Permissions::from_mode(0o600)).unwrap();
    let with = |file: &Path| {
        let file = file.to_str().unwrap();
        findings(doctor(&fixture, &place, [&*server.address, "--secret-file", file]))
    };
    let all = with(&wrong);
    assert_eq!(of(&all, "server-connection")["severity"], "ok");
    assert_error(&all, "server-login", "another secret", "copy the server's secret file");
    let all = with(&fixture.path("none"));
    assert_error(&all, "server-login", "no secret", "copy the server's secret file");
    fs::set_permissions(&wrong, Permissions::from_mode(0o644)).unwrap();
    assert_error(&with(&wrong), "server-login", "no secret", "chmod 600");
}

#[test]
fn a_server_and_its_store_are_found_and_looked_at() {
    let Some(fixture) = Fixture::new("doctor_server") else { return };
    let place = Private::new(&fixture, "");
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount_in(&place, &server.address, "mnt", &["--export", "up"]);
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<std::collections::BTreeSet<_>>()
    };
    let store = fixture.path("store");
    let before = names(&store);
    let by_address = findings(doctor(&fixture, &place, [&server.address]));
    let by_store = findings(doctor(&fixture, &place, [&store]));
    let by_mount = findings(doctor(&fixture, &place, [&mount.dir.join("below")]));
    let by_itself = findings(doctor(&fixture, &place, [""; 0]));
    for all in [&by_address, &by_store, &by_mount, &by_itself] {
        for check in ["server-connection", "server-login", "server-version", "clock-difference"] {
            let finding = of(all, check);
            assert_eq!(finding["severity"], "ok", "{finding}");
            assert_eq!(finding["about"], server.address.as_str());
        }
        let connection = of(all, "server-connection")["found"].as_str().unwrap();
        assert!(connection.contains("over loopback"), "{connection}");
        assert!(of(all, "round-trip")["median_us"].is_u64());
        assert!(of(all, "mount")["found"].as_str().unwrap().contains("it answers"));
        let logins = all.iter().filter(|it| it["check"] == "server-login").count();
        assert_eq!(logins, 1, "a server is looked at once");
    }
    for all in [&by_store, &by_itself] {
        assert!(of(all, "flush")["median_us"].is_u64());
        assert_eq!(of(all, "flush")["about"], store.to_str().unwrap());
    }
    assert_eq!(names(&store), before);
    mount.stop();
}

#[test]
fn what_was_killed_is_named() {
    let Some(fixture) = Fixture::new("doctor_dead") else { return };
    let place = Private::new(&fixture, "");
    let server = fixture.serve("127.0.0.1:0");
    let mut mount = fixture.mount_in(&place, &server.address, "mnt", &["--export", "up"]);
    let pid = mount.process.pid();
    kill(pid);
    mount.process.end();
    let mut all = Vec::new();
    // The kernel ends the connection of a killed process when its last thread has ended.
    until("the mount is dead", || {
        all = findings(doctor(&fixture, &place, [""; 0]));
        of(&all, "mount")["severity"] == "error"
    });
    let dir = mount.dir.to_str().unwrap();
    assert_error(&all, "mount", "its process has ended", &format!("lanefs umount --lazy {dir}"));
    let dead = of(&all, "dead-process");
    let found = dead["found"].as_str().unwrap();
    assert!(found.contains(&format!("mount process {pid} of {dir} was killed")), "{found}");
    must(&mut place.inside(fixture.lanefs(["umount", "--lazy", dir])));
    let all = findings(doctor(&fixture, &place, [""; 0]));
    assert!(of(&all, "mount")["found"].as_str().unwrap().contains("nothing of lanefs is mounted"));
}

#[test]
fn a_report_has_the_ends_of_logs_and_no_secret() {
    let Some(fixture) = Fixture::new("doctor_report") else { return };
    let place = Private::new(&fixture, "");
    let server = fixture.serve("127.0.0.1:0");
    let dir = fixture.make_dir("mnt");
    let mut mount = fixture.lanefs(["mount", "-d", &server.address, "--export", "up"]);
    mount.arg(&dir);
    must(&mut place.inside(mount));
    let secret = fs::read_to_string(secret_file(&fixture)).unwrap();
    let log = fixture.path("mnt.lanefs-mount.log");
    let line = format!("marked line\nsecret {}\nexport:{secret}", secret.trim());
    OpenOptions::new().append(true).open(&log).unwrap().write_all(line.as_bytes()).unwrap();
    let report = fixture.path("report");
    let shown = report.to_str().unwrap();
    let output = run(&mut doctor(&fixture, &place, [&*server.address, "--report", shown]));
    let printed = run(&mut doctor(&fixture, &place, [&*server.address, "--report", "-"]));
    let (said, complaints) = texts(&output);
    let written = fs::read_to_string(&report).unwrap();
    assert_eq!(report.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    for text in [&written, &texts(&printed).0] {
        for part in ["## Findings", "server-login", "fuse.lanefs", "marked line", "secret [hex]"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    for text in [&written, &said, &complaints, &texts(&printed).0] {
        assert!(!text.contains(secret.trim()) && !text.contains(&secret[..32]), "{text}");
    }
    must(&mut place.inside(fixture.lanefs(["umount", dir.to_str().unwrap()])));
    let both = run(&mut doctor(&fixture, &place, ["--json", "--report", "-"]));
    assert_eq!(both.status.code(), Some(2));
    let nowhere = run(&mut doctor(&fixture, &place, ["--report", "/nowhere/report"]));
    assert_eq!(nowhere.status.code(), Some(1));
}

#[test]
fn an_interrupted_doctor_leaves_nothing() {
    let Some(fixture) = Fixture::new("doctor_interrupted") else { return };
    let place = Private::new(&fixture, "");
    let dir = fixture.make_dir("dir");
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    fixture.serve("127.0.0.1:0");
    let mut command = doctor(&fixture, &place, [dir.to_str().unwrap(), &address]);
    let mut process = Process::start(command.args(["--connect-timeout", "1h"]));
    // Its first connection; it waits for an answer at the second one.
    let connections = [server.accept().unwrap(), server.accept().unwrap()];
    process.signal(Signal::INT);
    assert_eq!(process.end().signal(), Some(Signal::INT.as_raw()));
    drop(connections);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}
