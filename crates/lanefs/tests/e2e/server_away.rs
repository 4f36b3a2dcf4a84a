//! While the server is away operations wait, can be killed, and go on when it is back.

use crate::fixture::{Fixture, kill, must, program, state_of, until};
use crate::idle::secret;
use library::{ConnectOptions, Volume};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn operations_wait_can_be_killed_and_go_on() {
    let Some(fixture) = Fixture::new("away") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    let address = server.address.clone();
    let mount = fixture.mount(&address, "mnt", &["--export", "up"]);
    fs::write(mount.dir.join("before"), "x").unwrap();
    kill(server.process.pid());
    server.process.end();

    let touch = |name: &str| {
        let mut command = program("touch");
        command.arg(mount.dir.join(name)).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let waits = |pid: u32| {
        until("it sleeps in the kernel", || matches!(state_of(pid), Some('S' | 'D')));
    };
    let mut killed = touch("killed");
    waits(killed.id());
    assert!(killed.try_wait().unwrap().is_none(), "it waits for the server");
    killed.kill().unwrap();
    assert!(!killed.wait().unwrap().success());

    let mut waiting = touch("waiting");
    waits(waiting.id());
    assert!(waiting.try_wait().unwrap().is_none(), "it waits for the server");
    let again = fixture.serve(&address);
    assert!(waiting.wait().unwrap().success());
    assert!(mount.dir.join("waiting").exists());
    assert_eq!(fs::read_to_string(mount.dir.join("before")).unwrap(), "x");
    mount.stop();
    drop(again);
}

#[test]
fn calls_on_a_soft_mount_fail_while_the_server_is_away() {
    let Some(fixture) = Fixture::new("away_soft") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    let address = server.address.clone();
    let mount = fixture.mount(&address, "mnt", &["--export", "up", "-o", "soft=1s"]);
    let kept = mount.dir.join("kept");
    let mut file = fs::File::create(&kept).unwrap();
    file.write_all(b"before ").unwrap();
    file.sync_all().unwrap();
    kill(server.process.pid());
    server.process.end();
    let is_io = |failed: io::Error| assert_eq!(failed.raw_os_error(), Some(5), "EIO: {failed}");
    is_io(fs::write(mount.dir.join("new"), "x").unwrap_err());
    is_io(fs::read_dir(mount.dir.join("absent")).map(drop).unwrap_err());
    // The write may be behind; the sync is not.
    is_io(file.write_all(b"lost").and_then(|()| file.sync_all()).unwrap_err());
    let again = fixture.serve(&address);
    until("the server is back", || fs::write(mount.dir.join("after"), "x").is_ok());
    assert!(fs::read_to_string(&kept).unwrap().starts_with("before "));
    drop(file);
    mount.stop();
    drop(again);
}

#[test]
fn a_mount_ends_while_its_server_is_away() {
    let Some(fixture) = Fixture::new("away_end") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    fs::write(mount.dir.join("x"), "x").unwrap();
    kill(server.process.pid());
    server.process.end();
    mount.stop();
}

/// A drop does not wait as long as a connection may take; `close` does.
#[test]
fn a_volume_is_dropped_soon_while_its_server_is_away() {
    let Some(fixture) = Fixture::new("away_drop") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    let options = ConnectOptions {
        connect_timeout: Duration::from_secs(24 * 60 * 60),
        ..ConnectOptions::new(server.address.parse().unwrap(), secret(&fixture))
    };
    let ((connected_sender, connected), (end, ended)) = (channel(), channel());
    let dropping = std::thread::spawn(move || {
        let volume = Volume::connect(&options).unwrap();
        connected_sender.send(()).unwrap();
        ended.recv().unwrap();
        drop(volume);
    });
    connected.recv().unwrap();
    kill(server.process.pid());
    server.process.end();
    end.send(()).unwrap();
    until("no connection is waited for in vain", || dropping.is_finished());
}

#[test]
fn an_open_file_without_a_name_survives_a_restart_of_the_server() {
    let Some(fixture) = Fixture::new("away_unlinked") else { return };
    let mut up = fixture.up(&[]);
    let path = up.dir.join("nameless");
    fs::write(&path, "still here").unwrap();
    let mut file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    up.kill_server();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    assert!(!path.exists());
    drop(file);
    up.stop();
}

#[test]
fn an_open_file_survives_a_restart_of_the_server() {
    let Some(fixture) = Fixture::new("away_open") else { return };
    let mut up = fixture.up(&[]);
    let path = up.dir.join("file");
    let mut script = program("sh");
    let text = "exec 3>\"$1\"; echo one >&3; echo ready; read line; echo two >&3; cat \"$1\"";
    script.args(["-c", text, "sh"]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.spawn().unwrap();
    until("the first line is there", || {
        fs::read_to_string(&path).is_ok_and(|text| text == "one\n")
    });
    up.kill_server();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ready\none\ntwo\n");
    must(program("rm").arg(&path));
    up.stop();
}
