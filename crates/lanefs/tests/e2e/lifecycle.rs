//! Starting, stopping, refusing.

use crate::fixture::{
    Fixture, Process, failure, is_alive, is_mounted, kill, must, program, run, texts, until,
};
use rustix::process::Signal;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;

#[test]
fn up_serves_and_mounts_and_leaves_nothing_behind() {
    let Some(fixture) = Fixture::new("up_serves") else { return };
    let up = fixture.up(&[]);
    let (dir, url) = (up.dir.clone(), up.url("/"));
    fs::write(dir.join("hello"), "there").unwrap();
    assert_eq!(fs::read_to_string(dir.join("hello")).unwrap(), "there");
    assert_eq!(texts(&fixture.run(["ls", &url])).0, "hello\n");
    let server = up.child("serve");
    let said = up.stop();
    assert!(said.starts_with("address "), "the address comes first:\n{said}");
    let second = said.lines().find(|line| line.starts_with("second mount: ")).unwrap();
    assert!(second.contains(" mount 127.0.0.1:") && second.contains("--export up"), "{second}");
    assert!(!is_alive(server));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "the mount point is empty again");
    // The store is not locked: the next start finds the file.
    let up = fixture.up(&[]);
    assert_eq!(fs::read_to_string(up.dir.join("hello")).unwrap(), "there");
    up.stop();
}

#[test]
fn up_makes_no_new_store_for_one_that_was_moved_away() {
    let Some(fixture) = Fixture::new("moved_store") else { return };
    let mut up = fixture.up_without_mount();
    let (store, elsewhere) = (fixture.path("mnt.lanefs"), fixture.path("elsewhere"));
    fs::rename(&store, elsewhere).unwrap();
    kill(up.child("serve"));
    assert_eq!(up.process.end().code(), Some(1));
    let said = up.process.said();
    assert!(said.contains("was the store of file system"), "{said}");
    assert!(!store.exists(), "a new store was made");
}

#[test]
fn ctrl_c_ends_it_as_well() {
    let Some(fixture) = Fixture::new("ctrl_c") else { return };
    let mut up = fixture.up(&["--lanes", "1"]);
    up.process.signal(Signal::INT);
    assert_eq!(up.process.end().code(), Some(0));
    assert!(!is_mounted(&up.dir));
}

#[test]
fn in_the_background_it_returns_when_it_is_mounted() {
    let Some(fixture) = Fixture::new("background") else { return };
    let dir = fixture.path("mnt");
    let mut command = fixture.lanefs(["up", "-d", "--listen", "127.0.0.1:0"]);
    let said = must(command.arg(&dir));
    assert!(said.starts_with("address "), "{said}");
    assert!(is_mounted(&dir), "{said}");
    fs::write(dir.join("a"), "b").unwrap();
    let last = said.lines().last().unwrap();
    let mut words = last.split([' ', ',']);
    let pid: u32 = words.nth(2).unwrap().parse().unwrap_or_else(|_| panic!("{last}"));
    let log = last.rsplit_once("log ").unwrap().1;
    assert!(fs::read_to_string(log).unwrap().starts_with("address "), "{last}");
    must(program("kill").arg(pid.to_string()));
    until("the background process has ended", || !is_alive(pid));
    assert!(!is_mounted(&dir));
}

#[test]
fn a_mount_goes_to_the_background_as_well() {
    let Some(fixture) = Fixture::new("mount_background") else { return };
    let up = fixture.up(&[]);
    fs::write(up.dir.join("a"), "b").unwrap();
    let dir = fixture.make_dir("second");
    let said = must(fixture.lanefs(["mount", "-d", "--export", "up", &up.address]).arg(&dir));
    // Where lanes are not on io_uring, why comes first.
    assert!(said.lines().any(|line| line.starts_with("mounted ")), "{said}");
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "b");
    must(fixture.lanefs(["umount"]).arg(&dir));
    assert!(!is_mounted(&dir));
    up.stop();
}

#[test]
fn a_failure_in_the_background_is_reported() {
    let Some(fixture) = Fixture::new("background_failure") else { return };
    let dir = fixture.make_dir("mnt");
    fs::write(dir.join("in the way"), "").unwrap();
    let (code, stderr) = failure(&run(fixture.lanefs(["up", "-d"]).arg(&dir)));
    assert_eq!(code, 1);
    assert!(stderr.contains("did not start"), "{stderr}");
}

#[test]
fn a_wrong_secret_is_refused_before_anything_is_mounted() {
    let Some(fixture) = Fixture::new("wrong_secret") else { return };
    let up = fixture.up(&[]);
    let other = fixture.path("other-secret");
    let mut options = fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create_new(true), 0o600);
    let digits = "ab".repeat(32);
    options.open(&other).unwrap().write_all(digits.as_bytes()).unwrap();
    let dir = fixture.make_dir("second");
    let mut command = fixture.lanefs(["mount", &up.address]);
    let (code, stderr) = failure(&run(command.arg(&dir).arg("--secret-file").arg(&other)));
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("secret") && !stderr.contains(&digits), "{stderr}");
    assert!(!is_mounted(&dir));
    let mut command = fixture.lanefs(["ls", &up.url("/")]);
    let (code, stderr) = failure(&run(command.arg("--secret-file").arg(&other)));
    assert_eq!(code, 4, "{stderr}");
    up.stop();
}

#[test]
fn an_unknown_export_is_refused() {
    let Some(fixture) = Fixture::new("unknown_export") else { return };
    let up = fixture.up(&[]);
    let (code, stderr) = failure(&fixture.run(["ls", "--export", "none", &up.url("/")]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("no such export"), "{stderr}");
    up.stop();
}

#[test]
fn an_unreachable_server_is_an_error_of_its_own() {
    let Some(fixture) = Fixture::new("unreachable") else { return };
    fixture.up(&[]).stop();
    // A port that no other test can come to serve on.
    let url = "lanefs://127.0.0.1:1/";
    let (code, stderr) = failure(&fixture.run(["ls", "--connect-timeout", "1s", url]));
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("127.0.0.1:1"), "{stderr}");
}

#[test]
fn a_second_server_on_one_store_is_refused() {
    let Some(fixture) = Fixture::new("second_server") else { return };
    let mut first = fixture.serve("127.0.0.1:0");
    let mut command = fixture.lanefs(["serve", "--listen", "127.0.0.1:0", "--store"]);
    let (code, stderr) = failure(&run(command.arg(fixture.path("store"))));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("another server"), "{stderr}");
    assert!(!first.process.has_ended(), "the first one is not disturbed");
}

#[test]
fn a_port_in_use_is_named() {
    let Some(fixture) = Fixture::new("port_in_use") else { return };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = fixture.lanefs(["serve", "--listen", &address, "--store"]);
    let (code, stderr) = failure(&run(command.arg(fixture.path("store"))));
    assert_eq!(code, 1);
    assert!(stderr.contains(&address) && stderr.contains("in use"), "{stderr}");
    assert!(!fixture.path("store").exists(), "no store is made for a server that cannot serve");
}

#[test]
fn a_store_of_an_unknown_version_is_left_alone() {
    let Some(fixture) = Fixture::new("unknown_version") else { return };
    fixture.up(&[]).stop();
    let superblock = fixture.path("mnt.lanefs").join("superblock");
    let mut bytes = fs::read(&superblock).unwrap();
    bytes[8] = bytes[8].wrapping_add(1);
    fs::write(&superblock, &bytes).unwrap();
    let dir = fixture.path("mnt");
    let (code, stderr) = failure(&run(fixture.lanefs(["up", "--listen", "127.0.0.1:0"]).arg(&dir)));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("superblock") || stderr.contains("version"), "{stderr}");
    assert!(!is_mounted(&dir));
    assert_eq!(fs::read(&superblock).unwrap(), bytes);
}

#[test]
fn a_directory_that_is_not_empty_is_refused() {
    let Some(fixture) = Fixture::new("not_empty") else { return };
    let dir = fixture.make_dir("mnt");
    fs::write(dir.join("mine"), "").unwrap();
    let (code, stderr) = failure(&run(fixture.lanefs(["up"]).arg(&dir)));
    assert_eq!(code, 1);
    assert!(stderr.contains("not empty"), "{stderr}");
    assert!(!fixture.path("mnt.lanefs").exists());
}

#[test]
fn a_mounted_directory_is_refused() {
    let Some(fixture) = Fixture::new("mounted_already") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    let (code, stderr) = failure(&run(fixture.lanefs(["up"]).arg(&mount.dir)));
    assert_eq!(code, 1);
    assert!(stderr.contains("mounted there already"), "{stderr}");
    fs::write(mount.dir.join("still"), "works").unwrap();
    mount.stop();
}

#[test]
fn a_missing_mount_point_is_an_error() {
    let Some(fixture) = Fixture::new("missing_point") else { return };
    let up = fixture.up(&[]);
    let missing = fixture.path("missing");
    let (code, stderr) = failure(&run(fixture.lanefs(["mount", &up.address]).arg(&missing)));
    assert_eq!(code, 1);
    assert!(stderr.contains("missing"), "{stderr}");
    up.stop();
}

#[test]
fn a_busy_mount_is_detached_and_its_holder_named() {
    let Some(fixture) = Fixture::new("busy") else { return };
    let up = fixture.up(&[]);
    fs::write(up.dir.join("held"), "x").unwrap();
    let held = fs::File::open(up.dir.join("held")).unwrap();
    let (code, stderr) = failure(&run(fixture.lanefs(["umount"]).arg(&up.dir)));
    assert_eq!(code, 1);
    let me = format!("(pid {})", std::process::id());
    assert!(stderr.contains(&me), "{stderr}");
    assert!(is_mounted(&up.dir), "umount without --lazy leaves a busy mount");
    let said = up.stop();
    assert!(said.contains(&me) && said.contains("held"), "{said}");
    drop(held);
}

#[test]
fn umount_of_its_mount_ends_up_and_the_server() {
    let Some(fixture) = Fixture::new("umount") else { return };
    let mut up = fixture.up(&[]);
    let server = up.child("serve");
    fs::write(up.dir.join("kept"), "x").unwrap();
    must(fixture.lanefs(["umount"]).arg(&up.dir));
    assert_eq!(up.process.end().code(), Some(0), "{}", up.process.said());
    assert!(up.process.said().contains("it was unmounted"), "{}", up.process.said());
    assert!(!is_mounted(&up.dir) && !is_alive(server));
    let (code, stderr) = failure(&run(fixture.lanefs(["umount"]).arg(&up.dir)));
    assert_eq!((code, stderr.contains("nothing is mounted")), (1, true), "{stderr}");
}

/// A mount's process waits for its server after the end of the mount. What it finds then is none of
/// its own.
#[test]
fn a_mount_that_ends_late_leaves_the_next_one_alone() {
    let Some(fixture) = Fixture::new("late_end") else { return };
    let up = fixture.up_on("other", &[]);
    let mut server = fixture.serve("127.0.0.1:0");
    let export = ["--export", "up"];
    let mut first = fixture.mount(&server.address, "mnt", &export);
    fs::write(first.dir.join("a"), "x").unwrap();
    server.process.signal(Signal::STOP);
    must(fixture.lanefs(["umount"]).arg(&first.dir));
    kill(server.process.pid());
    server.process.end();
    let second = fixture.mount(&up.address, "mnt", &export);
    let mut command = fixture.lanefs(["serve", "--listen", &server.address]);
    let mut stranger = Process::start(command.arg("--store").arg(fixture.path("strange")));
    stranger.line_with("listening on ");
    first.process.end();
    assert!(is_mounted(&second.dir), "it took away what was not its own");
    fs::write(second.dir.join("b"), "x").unwrap();
    assert_eq!(texts(&fixture.run(["ls", &up.url("/")])).0, "b\n");
    second.stop();
    up.stop();
}

#[test]
fn when_up_is_killed_both_children_end_and_the_store_is_free() {
    let Some(fixture) = Fixture::new("up_killed") else { return };
    let mut up = fixture.up(&[]);
    fs::write(up.dir.join("kept"), "x").unwrap();
    let (server, mount) = (up.child("serve"), up.child("mount"));
    kill(up.process.pid());
    up.process.end();
    until("server and mount have ended", || !is_alive(server) && !is_alive(mount));
    assert!(!is_mounted(&up.dir));
    let up = fixture.up(&[]);
    assert_eq!(fs::read_to_string(up.dir.join("kept")).unwrap(), "x");
    up.stop();
}

#[test]
fn a_server_that_dies_often_is_started_again_each_time() {
    let Some(fixture) = Fixture::new("dies_often") else { return };
    let mut up = fixture.up(&[]);
    for round in 0..8 {
        up.kill_server();
        fs::write(up.dir.join(format!("file{round}")), "x").unwrap();
    }
    assert_eq!(fs::read_dir(&up.dir).unwrap().count(), 8);
    up.stop();
}

#[test]
fn a_killed_mount_is_restarted() {
    let Some(fixture) = Fixture::new("mount_killed") else { return };
    let mut up = fixture.up(&[]);
    fs::write(up.dir.join("kept"), "x").unwrap();
    kill(up.child("mount"));
    up.process.line_with("mount running again");
    assert_eq!(fs::read_to_string(up.dir.join("kept")).unwrap(), "x");
    up.stop();
}

#[test]
fn a_dead_mount_in_the_way_is_cleared() {
    let Some(fixture) = Fixture::new("stale") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mut mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    mount.process.signal(Signal::KILL);
    mount.process.end();
    assert!(is_mounted(&mount.dir), "a killed mount process leaves its mount in the tree");
    let up = fixture.up(&[]);
    fs::write(up.dir.join("a"), "b").unwrap();
    up.stop();
}

#[test]
fn without_the_right_to_mount_it_serves_and_prints_the_remedy() {
    let Some(fixture) = Fixture::new("no_right") else { return };
    let up = fixture.up_without_mount();
    let listed = fixture.run(["ls", &up.url("/")]);
    assert!(listed.status.success(), "{:?}", failure(&listed));
    let said = up.stop();
    let line = said.lines().find(|line| line.starts_with("mounted nowhere")).unwrap();
    assert!(line.contains("SYS_ADMIN"), "{line}");
}

#[test]
fn a_server_that_cannot_start_ends_up_with_its_reason() {
    let Some(fixture) = Fixture::new("give_up") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mut command = fixture.lanefs(["up", "--listen", "127.0.0.1:0", "--store"]);
    let output = run(command.arg(fixture.path("store")).arg(fixture.path("mnt")));
    let (code, stderr) = failure(&output);
    assert_eq!(code, 1);
    assert!(stderr.contains("the server did not start"), "{stderr}");
    assert!(stderr.contains("another server"), "{stderr}");
    drop(server);
}

#[test]
fn usage_errors_have_a_code_of_their_own() {
    let Some(fixture) = Fixture::new("usage") else { return };
    assert_eq!(fixture.run(["up"]).status.code(), Some(2));
    assert_eq!(fixture.run(["ls", "/tmp"]).status.code(), Some(2));
    let help = texts(&fixture.run(["--help"])).0;
    assert!(help.contains("Exit codes"), "{help}");
}
