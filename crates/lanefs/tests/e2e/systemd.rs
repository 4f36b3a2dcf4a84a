//! Being a service: notifications to systemd, SIGHUP, the log, and configuration files.

use crate::fixture::{Fixture, Process, failure, must, proc_of, program, run, until, wrap};
use crate::idle::secret;
use crate::raw_client::Raw;
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wire::{ClientUuid, Getattr, InodeNo, Op, Status};

/// What systemd hears.
struct Systemd {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Systemd {
    fn new(fixture: &Fixture, name: &str) -> Self {
        let path = fixture.path(name);
        Self { socket: UnixDatagram::bind(&path).unwrap(), path }
    }

    /// The command, with a session of its own, so that SIGHUP is no closed terminal.
    fn starts(&self, command: Command) -> Process {
        let mut command = wrap(program("setsid"), command);
        Process::start(command.env("NOTIFY_SOCKET", &self.path))
    }

    /// Waits for a message with this line; all of it.
    fn message_with(&self, line: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let count = self.socket.recv(&mut bytes).unwrap();
            let message = String::from_utf8(bytes[..count].to_vec()).unwrap();
            if message.lines().any(|found| found == line) {
                return message;
            }
        }
    }
}

fn serve(fixture: &Fixture, more: &[&str]) -> Command {
    let mut command = fixture.lanefs(["serve", "--listen", "127.0.0.1:0", "--store"]);
    command.arg(fixture.path("store")).args(more);
    command
}

#[test]
fn systemd_is_notified_when_a_server_serves_reloads_and_ends() {
    let Some(fixture) = Fixture::new("notify_serve") else { return };
    let systemd = Systemd::new(&fixture, "socket");
    let mut server = systemd.starts(serve(&fixture, &[]));
    let status = systemd.message_with("READY=1");
    let address = server.line_with("listening on ");
    let address = address.trim_start_matches("listening on ").split(',').next().unwrap();
    assert!(status.contains("STATUS=") && status.contains(address), "{status}");
    server.signal(Signal::HUP);
    let reloading = systemd.message_with("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    systemd.message_with("READY=1");
    server.line_with("read the secret again");
    server.signal(Signal::TERM);
    systemd.message_with("STOPPING=1");
    assert!(server.end().success(), "{}", server.said());
}

/// Whether a process catches SIGTERM.
fn catches_term(pid: u32) -> bool {
    let caught = proc_of(pid).unwrap().status().unwrap().sigcgt;
    caught & (1 << (Signal::TERM.as_raw() - 1)) != 0
}

#[test]
fn a_server_that_is_stopped_while_it_starts_ends_well() {
    let Some(fixture) = Fixture::new("stopped_early") else { return };
    // The first one makes the store, the others find it.
    for _ in 0..5 {
        let mut server = Process::start(&mut serve(&fixture, &["--lanes", "2"]));
        until("signals are caught", || catches_term(server.pid()));
        server.signal(Signal::TERM);
        assert_eq!(server.end().code(), Some(0), "{}", server.said());
    }
    must(fixture.lanefs(["check"]).arg(fixture.path("store")));
}

#[test]
fn systemd_is_notified_by_up_and_by_mounts() {
    let Some(fixture) = Fixture::new("notify_up") else { return };
    let systemd = Systemd::new(&fixture, "socket");
    let dir = fixture.path("mnt");
    let mut up = fixture.lanefs(["up", "--listen", "127.0.0.1:0"]);
    up.arg(&dir);
    let mut up = systemd.starts(up);
    let address = up.line_with("address ").replace("address ", "");
    let status = systemd.message_with("READY=1");
    assert!(status.contains(&format!("mounted on {}", dir.display())), "{status}");
    let second = Systemd::new(&fixture, "second-socket");
    let other = fixture.make_dir("other");
    let mut mount = fixture.lanefs(["mount", "--export", "up", &address]);
    mount.arg(&other);
    let mut mount = second.starts(mount);
    let status = second.message_with("READY=1");
    assert!(status.contains(&other.display().to_string()), "{status}");
    mount.signal(Signal::HUP);
    second.message_with("RELOADING=1");
    second.message_with("READY=1");
    mount.line_with("can be read: shown when the server refuses the one in use");
    mount.signal(Signal::TERM);
    second.message_with("STOPPING=1");
    assert!(mount.end().success(), "{}", mount.said());
    // Who goes to the background says who goes on.
    let mut detached = fixture.lanefs(["mount", "-d", "--export", "up", &address]);
    detached.arg(&other).env("NOTIFY_SOCKET", &second.path);
    must(&mut detached);
    let notification = second.message_with("READY=1");
    let notification = if notification.contains("MAINPID=") {
        notification
    } else {
        second.message_with("READY=1")
    };
    assert!(notification.contains("MAINPID="), "{notification}");
    must(fixture.lanefs(["umount"]).arg(&other));
    up.signal(Signal::TERM);
    systemd.message_with("STOPPING=1");
    assert!(up.end().success(), "{}", up.said());
}

/// Whether a line begins with a time of UTC and a level.
fn is_timed(line: &str, level: &str) -> bool {
    let Some((time, rest)) = line.split_once(' ') else { return false };
    let shape: String = time
        .chars()
        .map(|character| if character.is_ascii_digit() { '0' } else { character })
        .collect();
    shape == "0000-00-00T00:00:00.000Z" && rest.trim_start().starts_with(level)
}

#[test]
fn a_log_has_times_and_levels_and_the_level_is_chosen() {
    let Some(fixture) = Fixture::new("log_level") else { return };
    let reload = "read the secret again";
    let started = |more: &[&str], variable: Option<&str>| {
        let mut command = serve(&fixture, more);
        command.envs(variable.map(|value| ("RUST_LOG", value)));
        let mut server = Process::start(&mut wrap(program("setsid"), command));
        server.line_with("listening on ");
        server
    };
    let end = |mut server: Process| {
        server.signal(Signal::TERM);
        assert!(server.end().success(), "{}", server.said());
        server.said()
    };
    let mut usual = started(&[], None);
    usual.signal(Signal::HUP);
    let line = usual.line_with(reload);
    assert!(is_timed(&line, "INFO "), "{line}");
    end(usual);
    // The command line counts, then the variable. A further signal is answered in the order they came.
    for (more, variable, is_said) in [
        (&["--log-level", "warn"][..], Some("trace"), false),
        (&[], Some("warn"), false),
        (&["--log-level", "info"], Some("error"), true),
        (&[], Some("lanefs=loud"), true),
        (&[], Some("warn,lanefs::secret=info"), true),
        (&[], Some("info,lanefs::secret=warn"), false),
        (&["--log-level", "info"], Some("off"), true),
    ] {
        let mut server = started(more, variable);
        server.signal(Signal::HUP);
        if is_said {
            server.line_with(reload);
        }
        let said = end(server);
        assert_eq!(said.contains(reload), is_said, "{more:?} {variable:?}: {said}");
    }
}

#[test]
fn the_journal_gets_priorities_and_no_times() {
    let Some(fixture) = Fixture::new("journal") else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = OwnedFd::from(writer);
    let stat = rustix::fs::fstat(&writer).unwrap();
    let mut command = wrap(program("setsid"), serve(&fixture, &[]));
    command.env("JOURNAL_STREAM", format!("{}:{}", stat.st_dev, stat.st_ino));
    command.stdout(Stdio::piped()).stderr(Stdio::from(writer));
    let mut server = command.spawn().unwrap();
    drop(command);
    let mut first = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("listening on "), "{first}");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    let mut lines = BufReader::new(reader).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("secret"))).unwrap();
    assert!(line.starts_with("<6>read the secret again"), "{line}");
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    // A variable that another process's stderr is meant by changes nothing.
    let mut command = serve(&fixture, &["--driver", "epoll", "--log-level", "info"]);
    let mut other = Process::start(command.env("JOURNAL_STREAM", "1:1"));
    other.line_with("listening on ");
    other.signal(Signal::TERM);
    assert!(other.end().success() && !other.said().contains("<6>"), "{}", other.said());
}

#[test]
fn json_has_what_a_line_is_about() {
    let Some(fixture) = Fixture::new("log_json") else { return };
    let parsed = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let command = serve(&fixture, &["--log-format", "json"]);
    let mut server = Process::start(&mut wrap(program("setsid"), command));
    server.line_with("listening on ");
    server.signal(Signal::HUP);
    let line = parsed(&server.line_with("read the secret again"));
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["target"], "lanefs::secret::watched");
    assert!(line["message"].as_str().unwrap().starts_with("read the secret again"), "{line}");
    let line = format!("{} INFO", line["timestamp"].as_str().unwrap());
    assert!(is_timed(&line, "INFO"), "{line}");
    server.signal(Signal::TERM);
    assert!(server.end().success(), "{}", server.said());
    // `up` passes on what its children wrote, and says whose it is.
    let mut up = fixture.up(&["--log-format", "json"]);
    let server = i32::try_from(up.child("serve")).unwrap();
    let server = rustix::process::Pid::from_raw(server).unwrap();
    rustix::process::kill_process(server, Signal::HUP).unwrap();
    let line = parsed(&up.process.line_with("read the secret again"));
    assert_eq!((&line["process"], &line["level"]), (&"server".into(), &"INFO".into()));
    rustix::process::kill_process(server, Signal::KILL).unwrap();
    let line = parsed(&up.process.line_with("starting it again"));
    assert_eq!((&line["process"], &line["level"]), (&serde_json::Value::Null, &"WARN".into()));
}

/// A server whose stderr nobody reads goes on serving: its log lines are dropped.
#[test]
fn a_log_without_a_reader_does_not_block() {
    let Some(fixture) = Fixture::new("log_unread") else { return };
    let systemd = Systemd::new(&fixture, "socket");
    let (unread, mut writer) = std::io::pipe().unwrap();
    // The first line waits, because equal ones are not all written.
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut command = wrap(program("setsid"), serve(&fixture, &["--lanes", "1"]));
    command.env("NOTIFY_SOCKET", &systemd.path);
    command.stdout(Stdio::piped()).stderr(Stdio::from(OwnedFd::from(writer)));
    let mut server = command.spawn().unwrap();
    drop(command);
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    systemd.message_with("READY=1");
    let address = first.trim_start_matches("listening on ").split(',').next().unwrap();
    let mut client = Raw::new(address, &secret(&fixture), ("", 0), ClientUuid([1; 16]));
    let pid = rustix::process::Pid::from_child(&server);
    // A thread that waited for the reader would never come to the next of these steps.
    for _ in 0..2_000 {
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
        systemd.message_with("RELOADING=1");
        systemd.message_with("READY=1");
        let getattr = Getattr { inode: InodeNo::ROOT };
        assert_eq!(client.ask(Op::Getattr, InodeNo::ROOT.shard(), &getattr), Status::Ok);
    }
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    drop(unread);
}

fn write_config(fixture: &Fixture, text: &str) -> PathBuf {
    let path = fixture.path("serve.toml");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn options_come_from_a_file_and_the_command_line_wins() {
    let Some(fixture) = Fixture::new("config") else { return };
    let store = fixture.path("store");
    let text = format!("store = {:?}\nlisten = \"127.0.0.1:0\"\nlanes = 1\nplain = true\n", store);
    let config = write_config(&fixture, &text);
    let started = |more: &[&str]| {
        let mut command = fixture.lanefs(["serve", "--config"]);
        command.arg(&config).args(more);
        let mut server = Process::start(&mut command);
        let line = server.line_with("listening on ");
        server.signal(Signal::TERM);
        assert!(server.end().success(), "{}", server.said());
        line
    };
    assert!(started(&[]).ends_with(", 1 lane"));
    assert!(store.join("superblock").exists());
    assert!(started(&["--lanes=2", "--seal"]).ends_with(", 2 lanes"));
    // For mounts too.
    let server = fixture.serve_with("127.0.0.1:0", &[]);
    let dir = fixture.make_dir("mnt");
    let config = fixture.path("mount.toml");
    fs::write(&config, "export = \"up\"\nlanes = 1\no = \"ro\"\n").unwrap();
    let mut mount = fixture.lanefs(["mount", &server.address, "--config"]);
    let mut mount = Process::start(mount.arg(&config).arg(&dir));
    assert!(mount.line_with("mounted ").ends_with(", 1 lane"));
    assert!(fs::write(dir.join("a"), "b").is_err(), "it is read-only");
    mount.signal(Signal::TERM);
    assert!(mount.end().success(), "{}", mount.said());
}

#[test]
fn a_file_with_a_mistake_is_refused_with_its_line_and_what_is_right() {
    let Some(fixture) = Fixture::new("config_mistakes") else { return };
    for (text, parts) in [
        ("lanes = 2\nlog_level = 5\n", &["serve.toml:2: ", "log_level", "log-level"][..]),
        ("\n\nlanes = 99\n", &["serve.toml:3: ", "99", "1..=64"]),
        ("driver = \"epol\"\n", &["serve.toml:1: ", "epoll", "io-uring"]),
        ("lanes 2\n", &["serve.toml:1: "]),
    ] {
        let config = write_config(&fixture, text);
        let config = config.to_str().unwrap();
        let (code, stderr) = failure(&run(&mut serve(&fixture, &["--config", config])));
        assert_eq!(code, 2, "{stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{parts:?}: {stderr}");
    }
    let (code, stderr) = failure(&run(&mut serve(&fixture, &["--config", "/nowhere.toml"])));
    assert!(code == 2 && stderr.contains("/nowhere.toml"), "{code} {stderr}");
    assert!(!fixture.path("store").exists());
    let help = must(&mut fixture.lanefs(["serve", "--help"]));
    assert!(help.contains("/etc/lanefs/serve.toml"), "{help}");
}

/// `/etc` is another one in a namespace of its own.
#[test]
fn the_usual_file_is_read_where_none_is_named() {
    let Some(fixture) = Fixture::new("config_usual") else { return };
    let etc = fixture.make_dir("etc/lanefs");
    fs::write(etc.join("serve.toml"), "lanes = 1\n").unwrap();
    let script = "mount -t overlay -o lowerdir=\"$1\":/etc overlay /etc && shift && exec \"$@\"";
    let mut outer = program("unshare");
    outer.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    outer.arg(etc.parent().unwrap());
    let mut server = Process::start(&mut wrap(outer, serve(&fixture, &[])));
    assert!(server.line_with("listening on ").ends_with(", 1 lane"));
    server.signal(Signal::TERM);
    assert!(server.end().success(), "{}", server.said());
}

#[test]
fn a_signal_has_the_log_level_and_the_certificates_read_again() {
    let Some(fixture) = Fixture::new("reload") else { return };
    let folder = fixture.path("certs");
    must(fixture.lanefs(["cert", "ca"]).arg(&folder));
    must(fixture.lanefs(["cert", "server"]).arg(&folder).arg("localhost"));
    let file = |name: &str| format!("{}", folder.join(name).display());
    let text = format!(
        "cert = {:?}\nkey = {:?}\nca = {:?}\nlog-level = \"warn\"\n",
        file("localhost.crt"),
        file("localhost.key"),
        file("ca.crt")
    );
    let config = write_config(&fixture, &text);
    let command = serve(&fixture, &["--config", config.to_str().unwrap()]);
    let mut server = Process::start(&mut wrap(program("setsid"), command));
    server.line_with("listening on ");
    let again = format!("{}lanes = 2\n", text.replace("warn", "info"));
    write_config(&fixture, &again);
    server.signal(Signal::HUP);
    server.line_with("logging info and above");
    assert!(server.line_with("serve.toml again").ends_with("from the next start on: lanes"));
    server.line_with("the certificates can be read");
    let broken = fixture.path("certs/localhost.key");
    fs::rename(&broken, Path::new(&file("away"))).unwrap();
    write_config(&fixture, "lanes = 2\nlanse = 2\n");
    server.signal(Signal::HUP);
    let line = server.line_with("the earlier settings stay in force");
    assert!(line.contains("serve.toml:2") && is_timed(&line, "WARN "), "{line}");
    server.line_with("the certificates that were read before stay in use");
    server.signal(Signal::TERM);
    assert!(server.end().success(), "{}", server.said());
}
