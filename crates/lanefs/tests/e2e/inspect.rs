//! A store by the address of its server: the same findings, lines and copies as by its directory, for who administers,
//! by a process that ends with its client and with the server.

use crate::fixture::{
    Fixture, Mount, Process, Server, child_of, failure, is_alive, kill, must, program, run, texts,
    until,
};
use crate::idle::secret;
use crate::raw_client::{Raw, hello};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use store::ObjectName;
use wire::{
    ClientUuid, Credential, Hello, InodeNo, Inspect, Inspection, Op, Purpose, RefusalReason,
    ShardId, Status,
};

const START: Inspect = Inspect::Start(Inspection::Dump);

/// A server with a few files, and a mount of it.
fn used(fixture: &Fixture) -> (Server, Mount) {
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    must(program("cp").arg("-a").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/dist")).arg(&mount.dir));
    fs::hard_link(mount.dir.join("dist/serve.toml"), mount.dir.join("again")).unwrap_or_default();
    fs::write(mount.dir.join("file"), vec![7; 300_000]).unwrap();
    (server, mount)
}

/// A connection of who administers, at the first lane.
fn admin(fixture: &Fixture, server: &Server) -> Raw {
    let client = ClientUuid(library::random().unwrap());
    let hello = hello(Credential::Store, ("", 0), client);
    let hello = Hello { purpose: Purpose::Administer, ..hello };
    Raw::of(&server.address, &secret(fixture), &hello).unwrap()
}

fn ask(raw: &mut Raw, ask: Inspect) -> Status {
    raw.ask(Op::Inspect, ShardId::meta(0), &ask)
}

/// The process beside a server that reads its store.
fn reader(server: &Server) -> u32 {
    let mut found = None;
    until("a process reads the store", || {
        found = child_of(server.process.pid(), "inspect");
        found.is_some()
    });
    found.unwrap()
}

/// What a copy of the store never gets past, in its folder of objects.
fn make_obstacle(fixture: &Fixture) -> PathBuf {
    let name = ObjectName { shard_index: 0, inode: InodeNo(1 << 40), stripe_index: 7 };
    let path = fixture.path("store/objects").join(name.path());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
    path
}

/// A backup that does not come to its end, and the process that reads for it.
fn stuck_backup(fixture: &Fixture, server: &Server) -> (Process, u32) {
    let mut command = fixture.lanefs(["backup", &server.address]);
    let backup = Process::start(command.arg(fixture.path("backup")));
    let pid = reader(server);
    until("the folder is begun", || fixture.path("backup/unfinished").exists());
    (backup, pid)
}

fn assert_not_whole(fixture: &Fixture) {
    let output =
        run(fixture.lanefs(["restore"]).arg(fixture.path("backup")).arg(fixture.path("new")));
    let (code, said) = failure(&output);
    assert_eq!(code, 1);
    assert!(said.contains("no whole backup"), "{said}");
}

#[test]
fn a_store_is_the_same_by_its_servers_address_and_by_its_directory() {
    let Some(fixture) = Fixture::new("inspect_same") else { return };
    let (server, mount) = used(&fixture);
    mount.stop();
    let store = fixture.path("store");
    let both = |mut command: Command, after: &[&str]| -> [Output; 2] {
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let by_store = run(command.arg(&store).args(after));
        let by_address = run(fixture.lanefs(arguments).args([server.address.as_str()]).args(after));
        [by_store, by_address]
    };
    let same = |name: &str, after: &[&str], code: i32| -> String {
        let outputs = both(fixture.lanefs([name]), after);
        let [(here, here_said), (there, there_said)] = outputs.each_ref().map(texts);
        let codes = outputs.each_ref().map(|output| output.status.code());
        assert_eq!(codes, [Some(code); 2], "{here_said}{there_said}");
        assert_eq!(here, there, "{name} {after:?}");
        here
    };
    assert!(same("check", &[], 0).contains(": 0 damages, 0 warnings"));
    assert!(same("check", &["--skip-contents", "--json"], 0).contains("\"type\":\"summary\""));
    assert!(same("dump", &[], 0).lines().last().unwrap().starts_with("{\"type\":\"end\""));
    let [here, there] = ["here", "there"].map(|name| fixture.path(name));
    must(fixture.lanefs(["backup"]).arg(&store).arg(&here));
    let said = must(fixture.lanefs(["backup", &server.address]).arg(&there));
    let lines = fs::read_to_string(there.join("metadata.jsonl")).unwrap().lines().count();
    assert!(said.contains(&format!("the backup is whole: {} lines", lines - 1)), "{said}");
    must(program("diff").arg("-r").arg(&here).arg(&there));
    // The findings and the exit code are reported, too.
    let objects = program("find").arg(store.join("objects")).args(["-size", "+200k"]).output();
    let objects = String::from_utf8(objects.unwrap().stdout).unwrap();
    fs::remove_file(objects.trim_end()).unwrap();
    assert!(same("check", &["--json"], 8).contains("\"object-missing\""));
    assert!(same("check", &[], 8).contains("/file"));
    let (code, said) = failure(&run(&mut fixture.lanefs(["check", &server.address, "--repair"])));
    assert_eq!(code, 2);
    assert!(said.contains("stop the server, then run `lanefs check STORE --repair`"), "{said}");
    drop(server);
}

#[test]
fn only_administrators_may_inspect_a_store() {
    let Some(fixture) = Fixture::new("inspect_rights") else { return };
    let (server, mount) = used(&fixture);
    must(&mut fixture.lanefs(["export", "add", &server.address, "part", "/dist"]));
    let file = fixture.path("part-secret");
    let part = must(&mut fixture.lanefs(["export", "secret", &server.address, "part"]));
    fs::write(&file, part).unwrap();
    must(program("chmod").arg("600").arg(&file));
    for command in [&["check", &server.address][..], &["dump", &server.address]] {
        let (code, said) = failure(&run(fixture.lanefs(command).arg("--secret-file").arg(&file)));
        assert_eq!(code, 4, "{said}");
        assert!(said.contains("the secret of an export"), "{said}");
    }
    let dir = fixture.path("backup");
    let mut command = fixture.lanefs(["backup", &server.address]);
    let (code, _) = failure(&run(command.arg(&dir).arg("--secret-file").arg(&file)));
    assert_eq!((code, dir.exists()), (4, false));
    // Whatever a client says of itself: with the store's secret, but come to use it, and with an export's.
    let client = ClientUuid(library::random().unwrap());
    let mut user = Raw::new(&server.address, &secret(&fixture), ("", 0), client);
    assert_eq!(ask(&mut user, START), Status::NotPermitted);
    let part = library::secret::read(&file).unwrap();
    let hello = hello(Credential::Export, ("part", 0), ClientUuid(library::random().unwrap()));
    let hello = Hello { purpose: Purpose::Administer, ..hello };
    let refused = Raw::of(&server.address, &part, &hello).err();
    assert_eq!(refused, Some(RefusalReason::WrongSecret));
    assert_eq!(child_of(server.process.pid(), "inspect"), None);
    mount.stop();
}

#[test]
fn a_client_that_never_reads_takes_its_place_and_no_more() {
    let Some(fixture) = Fixture::new("inspect_places") else { return };
    let (mut server, mount) = used(&fixture);
    make_obstacle(&fixture);
    let backup = Inspect::Start(Inspection::Backup { freeze_ms_max: 1000 });
    let mut clients = [admin(&fixture, &server), admin(&fixture, &server)];
    for client in &mut clients {
        assert_eq!(ask(client, backup), Status::Ok);
        assert_eq!(ask(client, backup), Status::Invalid, "it has one");
        assert_eq!(ask(client, Inspect::Read { stream_offset: 1 }), Status::Invalid);
    }
    let (code, said) = failure(&run(&mut fixture.lanefs(["check", &server.address])));
    assert_eq!(code, 1);
    assert!(said.contains("try again when one of them is done"), "{said}");
    // By its directory it is read without the server.
    must(fixture.lanefs(["dump"]).arg(fixture.path("store")));
    fs::write(mount.dir.join("meanwhile"), vec![8; 300_000]).unwrap();
    assert_eq!(fs::read(mount.dir.join("meanwhile")).unwrap(), vec![8; 300_000]);
    let [first, mut second] = clients;
    drop(first);
    until("a place is free", || {
        run(&mut fixture.lanefs(["dump", &server.address])).status.success()
    });
    // One that waits for output does not keep the server from its end.
    let read = Inspect::Read { stream_offset: 0 };
    second.send(Op::Inspect, ShardId::meta(0), |to| to.write(&read));
    let pid = reader(&server);
    mount.stop();
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.end().code(), Some(0), "{}", server.process.said());
    until("what read for it has ended", || !is_alive(pid));
}

#[test]
fn a_backup_by_address_ends_with_its_client() {
    for signal in [Signal::INT, Signal::KILL] {
        let Some(fixture) = Fixture::new("inspect_client") else { return };
        let (server, mount) = used(&fixture);
        let obstacle = make_obstacle(&fixture);
        let (mut backup, pid) = stuck_backup(&fixture, &server);
        backup.signal(signal);
        backup.end();
        until("what read for it has ended", || !is_alive(pid));
        assert_not_whole(&fixture);
        // The same command begins anew there.
        fs::remove_file(obstacle).unwrap();
        must(fixture.lanefs(["backup", &server.address]).arg(fixture.path("backup")));
        must(fixture.lanefs(["restore"]).arg(fixture.path("backup")).arg(fixture.path("new")));
        mount.stop();
    }
}

#[test]
fn a_killed_server_or_process_is_reported_and_leaves_no_finished_backup() {
    let Some(fixture) = Fixture::new("inspect_server") else { return };
    let (mut server, mount) = used(&fixture);
    make_obstacle(&fixture);
    let (mut backup, pid) = stuck_backup(&fixture, &server);
    kill(pid);
    assert_eq!(backup.end().code(), Some(1));
    assert!(backup.said().contains("ended before it was done"), "{}", backup.said());
    assert_not_whole(&fixture);
    server.process.line_with("ended early");
    fs::write(mount.dir.join("after"), b"after").unwrap();
    mount.stop();
    let (mut backup, pid) = stuck_backup(&fixture, &server);
    server.process.signal(Signal::KILL);
    server.process.end();
    until("what read for it has ended", || !is_alive(pid));
    assert_eq!(backup.end().code(), Some(3), "{}", backup.said());
    assert!(backup.said().contains("lanefs backup: "), "{}", backup.said());
    assert_not_whole(&fixture);
}

#[test]
fn a_word_that_is_neither_directory_nor_address_is_refused() {
    let Some(fixture) = Fixture::new("inspect_targets") else { return };
    for command in
        [&["check", "80"][..], &["dump", "80"], &["backup", "80", "x"], &["status", "80"]]
    {
        let (code, said) = failure(&run(&mut fixture.lanefs(command)));
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("\"80\" names no host: HOST:80"), "{said}");
    }
    let (code, said) = failure(&run(&mut fixture.lanefs(["check", "/nowhere/store"])));
    assert_eq!(code, 1, "{said}");
}
