//! `lanefs why` names the cause: a disk that does not flush, a client that keeps its lease, a process
//! that sleeps with a lock.

use crate::fixture::{Fixture, Process, failure, kill, must, program, until};
use crate::idle::secret;
use crate::locks::Locker;
use crate::raw_client::{Raw, hello};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use wire::*;

const LEASES: [&str; 4] = ["--export", "up", "--leases", "on"];

fn why(fixture: &Fixture, server: &str, arguments: &[&str]) -> String {
    must(fixture.lanefs(["why", "--server", server]).args(arguments))
}

fn objects(fixture: &Fixture, server: &str, arguments: &[&str]) -> Vec<Value> {
    let said = why(fixture, server, &[&["--json"], arguments].concat());
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asks until a line says this; returns all that was said then.
#[track_caller]
fn until_said(fixture: &Fixture, server: &str, arguments: &[&str], parts: &[&str]) -> String {
    let mut said = String::new();
    until(&format!("`lanefs why` says {parts:?}"), || {
        said = why(fixture, server, arguments);
        said.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    });
    said
}

fn host() -> String {
    rustix::system::uname().nodename().to_str().unwrap().to_owned()
}

#[test]
fn a_disk_that_does_not_flush_is_named() {
    let Some(fixture) = Fixture::new("why_disk") else { return };
    let server =
        fixture.serve_with("127.0.0.1:0", &["--lanes", "1", "--sync", "--fault", "stall-log:1"]);
    assert!(why(&fixture, &server.address, &[]).starts_with("No such request waits"));
    let secret = secret(&fixture);
    let hello = hello(secret.credential(), ("up", 0), ClientUuid([7; 16]));
    let hello = Hello { host_name: Bytes(b"builder"), job: Bytes(b"night"), ..hello };
    let mut raw = Raw::of(&server.address, &secret, &hello).unwrap();
    let create = Create {
        caller: Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) },
        parent: InodeNo::ROOT,
        name: Name::new(b"stuck").unwrap(),
        mode: 0o644,
        umask: 0,
        exclusive: true,
        handle: None,
        behind: None,
    };
    raw.send(Op::Create, InodeNo::ROOT.shard(), |to| to.write(&create));
    let parts = ["the disk has been flushing the log for "];
    let said = until_said(&fixture, &server.address, &[], &parts);
    assert!(said.contains("builder (job night): create \"stuck\" in inode "), "{said}");
    let found = objects(&fixture, &server.address, &["--client", "builder"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["kept"], &found[0]["op"]), (&"waiting".into(), &"create".into()));
    assert_eq!(found[0]["waits"][0]["cause"], "batch");
    assert!(objects(&fixture, &server.address, &["--client", "other"]).is_empty());
    let file = fixture.path("trace.json");
    why(&fixture, &server.address, &["--chrome", file.to_str().unwrap()]);
    let trace: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|event| event["name"] == "wait: batch"), "{events:?}");
    kill(server.process.pid());
}

#[test]
fn a_stopped_client_that_has_a_lease_is_named() {
    let Some(fixture) = Fixture::new("why_lease") else { return };
    let more = ["--lease-term", "60s", "--lanes", "1", "--slow", "1ms"];
    let server = fixture.serve_with("127.0.0.1:0", &more);
    let holder =
        fixture.mount(&server.address, "holder", &[&LEASES[..], &["--job", "build"]].concat());
    let other = fixture.mount(&server.address, "other", &LEASES);
    fs::write(holder.dir.join("file"), "x").unwrap();
    let path = other.dir.join("file");
    assert_eq!(fs::read_to_string(&path).unwrap(), "x");
    assert_eq!(fs::metadata(holder.dir.join("file")).unwrap().mode() & 0o777, 0o644);
    holder.process.signal(Signal::STOP);
    let mut command = program("chmod");
    command.arg("600").arg(&path);
    let mut chmod = Process::start(&mut command);
    let name = format!("client {} (job build) to give up its lease of inode ", host());
    let head = format!("(chmod) in {}: setattr /file", other.dir.display());
    let mut said = String::new();
    // The mount is asked before the server, which may get the request in between.
    until("both sides of the request are told", || {
        said = why(&fixture, &server.address, &["--client", "build"]);
        let is_server = |line: &str| line.contains("waiting ") && line.contains(&name);
        said.contains(&head) && said.lines().any(is_server)
    });
    assert!(said.contains("of the server has not replied to setattr for "), "{said}");
    assert!(said.contains("holder: its process "), "it is named: {said}");
    // The same by the path: this mount still answers.
    let by_path = must(fixture.lanefs(["why"]).arg(&path));
    assert!(by_path.contains(&name), "{by_path}");
    holder.process.signal(Signal::CONT);
    assert!(chmod.end().success());
    let said = until_said(&fixture, &server.address, &["--slow"], &["waited ", &name]);
    assert!(said.contains(" ago ") && said.contains("the network and waiting for turns"), "{said}");
    // One story of both sides, joined by the trace id.
    let chmod = objects(&fixture, &server.address, &["--pid", &chmod.pid().to_string()]);
    let replies = chmod.iter().flat_map(|call| call["steps"].as_array().unwrap());
    let joined = replies.map(|step| &step["server"]).find(|server| server.is_object()).unwrap();
    assert_eq!((&joined["op"], &joined["waits"][0]["cause"]), (&"setattr".into(), &"lease".into()));
    other.stop();
    holder.stop();
}

#[test]
fn a_process_that_sleeps_with_a_lock_is_named() {
    let Some(fixture) = Fixture::new("why_lock") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1"]);
    let mounts =
        ["one", "two"].map(|name| fixture.mount(&server.address, name, &["--export", "up"]));
    fs::write(mounts[0].dir.join("f"), "").unwrap();
    let mut sleeper = Locker::new(&mounts[0].dir, "f");
    let mut waiter = Locker::new(&mounts[1].dir, "f");
    assert_eq!(sleeper.ask("lockf w 0 0"), "ok");
    waiter.blocks("lockf w 0 0");
    let inode = fs::metadata(mounts[0].dir.join("f")).unwrap().ino();
    let line = format!(
        "for a lock on inode {inode} that process {} (python3) of client {} holds",
        sleeper.pid,
        host()
    );
    until_said(&fixture, &server.address, &[], &["waiting ", &line]);
    // By both processes: the one that is waited for, and the one that waits, at the server of its mount.
    let server_of_mount = mounts[1].dir.to_str().unwrap();
    for (pid, server) in [(sleeper.pid, &*server.address), (waiter.pid, server_of_mount)] {
        let said = why(&fixture, server, &["--pid", &pid.to_string()]);
        assert!(said.contains(&line), "{said}");
    }
    assert_eq!(sleeper.ask("lockf u 0 0"), "ok");
    assert_eq!(waiter.answer("lockf w 0 0"), "ok");
    let ended = objects(&fixture, &server.address, &["--pid", &waiter.pid.to_string()]);
    assert!(ended.iter().all(|found| found["kept"] == "slow"), "{ended:?}");
    let line = format!("for a lock on inode {inode} that process {} ", sleeper.pid);
    let said = why(&fixture, &server.address, &["--slow"]);
    let waited = |it: &str| it.contains("waited ") && it.contains(&line) && it.ends_with(" held");
    assert!(said.lines().any(waited), "{said}");
    drop((sleeper, waiter));
    mounts.into_iter().for_each(crate::fixture::Mount::stop);
}

#[test]
fn a_server_that_cannot_be_reached_is_named_by_the_mount() {
    let Some(fixture) = Fixture::new("why_away") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1"]);
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    let path = mount.dir.join("file");
    fs::write(&path, "x").unwrap();
    let address = server.address.clone();
    kill(server.process.pid());
    drop(server);
    let mut command = program("chmod");
    command.arg("600").arg(&path);
    let mut chmod = Process::start(&mut command);
    // Neither the server nor the mount answers a look at the path.
    let mut said = String::new();
    until("the mount says what it waits for", || {
        said = must(fixture.lanefs(["why"]).arg(&path));
        said.contains(" for a connection to lane 0 of the server, which cannot be reached")
    });
    let head = format!("process {} (chmod) in {}: ", chmod.pid(), mount.dir.display());
    assert!(said.contains(&head), "{said}");
    assert!(said.contains("This is the mount's side alone, without the server: "), "{said}");
    let _server = fixture.serve_with(&address, &["--lanes", "1"]);
    assert!(chmod.end().success());
    let said = must(&mut fixture.lanefs(["why", "--slow"]));
    let waited =
        |line: &str| line.contains("waited ") && line.contains(" for a connection to lane 0");
    assert!(said.lines().any(waited), "{said}");
    mount.stop();
}

#[test]
fn only_who_administers_is_told() {
    let Some(fixture) = Fixture::new("why_secret") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &[]);
    let other = fixture.path("other_secret");
    fs::write(&other, format!("{}\n", "7".repeat(64))).unwrap();
    let mut command = fixture.lanefs(["why", "--server", &server.address, "--secret-file"]);
    let (code, said) = failure(&crate::fixture::run(command.arg(&other)));
    assert!(code != 0 && said.contains("secret"), "{code} {said}");
    // A server in the place of a path.
    let (_, said) = failure(&fixture.run(["why", &format!("lanefs://{}", server.address)]));
    assert!(said.contains(&format!("--server {}", server.address)), "{said}");
}
