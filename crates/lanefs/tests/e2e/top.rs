//! `lanefs top` shows what a server does, and names what is wrong.

use crate::fixture::{
    Fixture, Mount, PATIENCE, Process, failure, kill, must, program, texts, until, wrap,
};
use crate::idle::secret;
use crate::leases::LEASES;
use crate::metrics::{ask, free_address, scrape};
use crate::mount_stats::total_of;
use crate::raw_client::{Raw, hello};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wire::*;

#[test]
fn one_screen_is_printed_and_logged() {
    let Some(fixture) = Fixture::new("top_once") else { return };
    let (code, stderr) = failure(&fixture.run(["top", "--once"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("no server runs here"), "{stderr}");
    let (code, stderr) = failure(&fixture.run(["top"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("`lanefs stats --interval 1s`"), "{stderr}");
    let (code, stderr) = failure(&fixture.run(["top", "--alert", "busy=1"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("flush-ms, busy-percent"), "{stderr}");

    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let log = fixture.path("top.jsonl");
    let mut top = fixture.lanefs(["top", "--once", "--interval", "100ms", "--log"]);
    let said = must(top.arg(&log));
    for part in ["lanefs top  ", &server.address, "2 lanes", "up ", "requests/s", "CPU "] {
        assert!(said.lines().take(4).any(|line| line.contains(part)), "{part}: {said}");
    }
    for panel in ["LANES", "OPERATIONS", "CLIENTS", "EXPORTS", "JOBS", "WAITS"] {
        assert!(said.lines().any(|line| line == panel), "{panel}: {said}");
    }
    // What it has asked for itself.
    assert!(said.lines().any(|line| line.starts_with("counters ")), "{said}");
    let logged = fs::read_to_string(&log).unwrap();
    let line: Value = serde_json::from_str(&logged).unwrap();
    assert_eq!(line["server"], server.address.as_str());
    assert!(line["interval_s"].as_f64() >= Some(0.1), "{line}");
    let rows = line["rows"].as_array().unwrap();
    assert_eq!(rows.iter().filter(|row| row["by"] == "lane").count(), 2, "{line}");
}

/// A terminal with a program in it, of which only the screen is read.
pub(crate) struct Pane {
    /// Where its tmux listens.
    folder: TempDir,
}

impl Pane {
    /// `lanefs top` in a terminal of so many columns and lines, and what the terminal says behind it.
    fn new(fixture: &Fixture, size: (u16, u16), arguments: &[&str]) -> Self {
        Self::running(fixture, size, &[&["top"], arguments].concat())
    }

    /// The same of any command.
    pub(crate) fn running(
        fixture: &Fixture,
        (columns, lines): (u16, u16),
        arguments: &[&str],
    ) -> Self {
        let pane = Self { folder: tempfile::tempdir().unwrap() };
        let mut outer = pane.tmux(&["-f", "/dev/null", "new-session", "-d"]);
        outer.args(["-x", &columns.to_string(), "-y", &lines.to_string()]);
        let script = "\"$@\"; echo ended with $?; stty -a; echo all shown; exec cat";
        outer.args(["sh", "-c", script, "sh"]);
        must(&mut wrap(outer, fixture.lanefs(arguments)));
        pane
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = program("tmux");
        command.arg("-u").arg("-S").arg(self.folder.path().join("tmux")).args(arguments);
        command
    }

    fn press(&self, keys: &[&str]) {
        must(&mut self.tmux(&[&["send-keys"], keys].concat()));
    }

    fn screen(&self) -> String {
        must(&mut self.tmux(&["capture-pane", "-p"]))
    }

    /// The screen, once it shows this.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, shows: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let deadline = Instant::now() + PATIENCE;
        while !shows(&screen) {
            assert!(Instant::now() < deadline, "the screen never shows {what}:\n{screen}");
            screen = self.screen();
        }
        screen
    }

    /// The same of a line that begins so.
    #[track_caller]
    fn line(&self, begin: &str) -> String {
        let is_it = |line: &&str| line.starts_with(begin);
        let screen = self.wait(begin, |screen| screen.lines().any(|line| is_it(&line)));
        screen.lines().find(is_it).unwrap().to_owned()
    }

    /// The program has ended, and left the terminal as it was.
    #[track_caller]
    pub(crate) fn ended(&self) {
        let screen = self.wait("the end", |screen| screen.contains("all shown"));
        assert!(screen.contains("ended with 0"), "{screen}");
        let words: Vec<&str> = screen.split(|at: char| at.is_whitespace() || at == ';').collect();
        for word in ["icanon", "echo", "isig", "opost"] {
            assert!(words.contains(&word), "{word}: {screen}");
        }
        assert!(!screen.contains("lanefs top"), "{screen}");
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        // It may have ended with its program.
        self.tmux(&["kill-server"]).output().ok();
    }
}

/// A client under a host name of its own.
fn client(address: &str, secret: &Secret, (number, host): (u8, &str)) -> Raw {
    let hello = hello(secret.credential(), ("up", 0), ClientUuid([number; 16]));
    let raw = Raw::of(address, secret, &Hello { host_name: Bytes(host.as_bytes()), ..hello });
    let raw = raw.unwrap();
    assert_eq!(raw.map.lane(InodeNo::ROOT.shard()), LaneId(0));
    raw
}

/// Work that goes on until it is dropped.
struct Load {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Repeats this, with a pause.
    fn repeat(pause: Duration, mut work: impl FnMut() + Send + 'static) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                work();
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }

    /// A client that asks now and then.
    fn modest(mut raw: Raw) -> Self {
        Self::repeat(Duration::from_millis(20), move || {
            let getattr = Getattr { inode: InodeNo::ROOT };
            assert_eq!(raw.ask(Op::Getattr, InodeNo::ROOT.shard(), &getattr), Status::Ok);
        })
    }

    /// A client that asks on and on, without waiting for the answers.
    fn greedy(mut raw: Raw) -> Self {
        let mut answers = raw.stream.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while answers.read(&mut bytes).is_ok_and(|count| count > 0) {}
        });
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                let getattr = Getattr { inode: InodeNo::ROOT };
                raw.send(Op::Getattr, InodeNo::ROOT.shard(), |to| to.write(&getattr));
            }
            raw.stream.shutdown(Shutdown::Both).unwrap();
            reader.join().unwrap();
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.take();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// The first number of a text.
fn number_in(text: &str) -> f64 {
    let from = text.find(|at: char| at.is_ascii_digit()).unwrap();
    let digits = &text[from..];
    let until = digits.find(|at: char| !at.is_ascii_digit() && at != '.').unwrap_or(digits.len());
    digits[..until].parse().unwrap()
}

#[test]
fn a_slow_disk_is_named() {
    let Some(fixture) = Fixture::new("top_disk") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1", "--fault", "slow-log:1"]);
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    let (dir, mut count) = (mount.dir.clone(), 0);
    let load = Load::repeat(Duration::from_millis(1), move || {
        count += 1;
        File::create(dir.join(format!("{count}"))).unwrap().sync_all().unwrap();
    });
    let pane = Pane::new(&fixture, (120, 30), &[&server.address, "--alert", "flush-ms=299"]);
    let line = pane.line("ALERT disk: ");
    assert!(line.starts_with("ALERT disk: flush of the log takes ") && line.contains(" at lane 0"));
    assert!(line.contains(" s (") || number_in(&line) >= 299.0, "{line}");
    drop(load);
    mount.stop();
}

#[test]
fn a_greedy_client_and_the_lane_that_it_fills_are_named() {
    let Some(fixture) = Fixture::new("top_greedy") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let secret = secret(&fixture);
    let _greedy = Load::greedy(client(&server.address, &secret, (0xaa, "greedy")));
    let _modest = Load::modest(client(&server.address, &secret, (0xbb, "modest")));
    // A released server is busy for a few percent with what one thread can ask.
    let alert = "client-percent=80,client-requests=100,busy-percent=1";
    let pane = Pane::new(&fixture, (120, 30), &[&server.address, "--alert", alert]);
    let line = pane.line("ALERT client: ");
    assert!(line.starts_with("ALERT client: greedy (id aaaaaaaa) has "), "{line}");
    assert!(number_in(line.split(" has ").nth(1).unwrap()) >= 80.0, "{line}");
    assert!(line.ends_with("requests/s; one other client has the rest"), "{line}");
    let line = pane.line("ALERT lane: ");
    assert!(line.starts_with("ALERT lane: lane 0 is "), "{line}");
    assert!(line.contains(" % busy, the other one "), "{line}");
    // The panel agrees: the client with the most requests is the first.
    pane.press(&["3"]);
    let row = pane.line("greedy ");
    assert!(row.split_whitespace().nth(4).unwrap().parse::<f64>().unwrap() >= 80.0, "{row}");
}

/// How many requests a mount has sent.
fn exchange_count(fixture: &Fixture, mount: &Mount) -> u64 {
    total_of(fixture, mount)["exchanges"].as_u64().unwrap()
}

/// A mount makes a directory, and has a lease of its attributes.
fn hold_directory(fixture: &Fixture, mount: &Mount) {
    // No data shard has a directory's size, so its attributes may be cached at once.
    let held = mount.dir.join("directory");
    fs::create_dir(&held).unwrap();
    until("its attributes are cached", || {
        let before = exchange_count(fixture, mount);
        assert!(fs::metadata(&held).unwrap().is_dir());
        exchange_count(fixture, mount) == before
    });
}

#[test]
fn a_stopped_mount_that_holds_a_lease_is_named() {
    let Some(fixture) = Fixture::new("top_stopped") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1", "--lease-term", "60s"]);
    let [here, there] = ["here", "there"].map(|name| {
        fixture.mount(&server.address, name, &[&LEASES[..], &["--job", name]].concat())
    });
    hold_directory(&fixture, &there);
    let path = here.dir.join("directory");
    let pane = Pane::new(
        &fixture,
        (160, 30),
        &[&server.address, "--alert", "recall-ms=500,flush-ms=100000"],
    );
    pane.line("no alerts");
    there.process.signal(Signal::STOP);
    let change = std::thread::spawn(move || {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    });
    let line = pane.line("ALERT client: ");
    assert!(line.contains(" (job there, id "), "{line}");
    assert!(line.contains(") does not answer: it has held on to leases for "), "{line}");
    there.process.signal(Signal::CONT);
    change.join().unwrap();
    pane.line("no alerts");
    here.stop();
    there.stop();
}

#[test]
fn a_killed_mount_that_held_a_lease_is_named() {
    let Some(fixture) = Fixture::new("top_killed") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1", "--lease-term", "60s"]);
    let [here, there] = ["here", "there"].map(|name| {
        fixture.mount(&server.address, name, &[&LEASES[..], &["--job", name]].concat())
    });
    hold_directory(&fixture, &there);
    let path = here.dir.join("directory");
    let alert = "recall-ms=500,flush-ms=100000";
    let pane = Pane::new(&fixture, (160, 30), &[&server.address, "--alert", alert]);
    pane.line("no alerts");
    kill(there.process.pid());
    let change = std::thread::spawn(move || {
        // It waits until the test ends the mount.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).ok();
    });
    let line = pane.line("ALERT client: ");
    assert!(line.contains(" (job there, id "), "{line}");
    assert!(line.contains(") has no connection, it is dead or cut off: it has held on to leases"));
    // It has a limit of its own, a second.
    until("why says so as well", || {
        let said = must(&mut fixture.lanefs(["why", "--server", &server.address]));
        said.contains("has no connection, it is dead or cut off")
    });
    drop(here);
    change.join().unwrap();
}

#[test]
fn a_full_log_is_named_by_top_why_and_doctor() {
    let Some(fixture) = Fixture::new("top_log") else { return };
    let full = ["--lanes", "1", "--segment", "4MiB", "--fault", "fail-log-reserve:1"];
    let server = fixture.serve_with("127.0.0.1:0", &full);
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    let dir = mount.dir.clone();
    let pane = Pane::new(&fixture, (160, 30), &[&server.address, "--alert", "flush-ms=100000"]);
    pane.line("no alerts");
    let mut count = 0;
    until("a create finds no space", || {
        count += 1;
        fs::create_dir(dir.join(format!("{count}"))).is_err_and(|error| {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            true
        })
    });
    let full = "log: lane 0 has had no space for changes for ";
    let line = pane.line(&format!("ALERT {full}"));
    assert!(line.contains("; the disk of the store is full: free space there"), "{line}");
    let said = must(&mut fixture.lanefs(["why", "--server", &server.address]));
    assert!(said.contains(full), "{said}");
    let doctor = fixture.lanefs(["doctor", &server.address]).output().unwrap();
    let (said, _) = texts(&doctor);
    assert!(
        said.lines().any(|line| line.contains("server-state") && line.contains(full)),
        "{said}"
    );
    mount.stop();
}

#[test]
fn shards_that_are_busy_with_a_change_over_two_lanes_are_named_by_top_and_why() {
    let Some(fixture) = Fixture::new("top_shards") else { return };
    // Each batch of the log takes 0.3 s, and the change needs several, one after the other.
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2", "--fault", "slow-log:1"]);
    let options = ["--export", "up", "--leases", "off"];
    let mount = fixture.mount(&server.address, "mnt", &options);
    let map = client(&server.address, &secret(&fixture), (1, "asks")).map;
    let lane = |dir: &Path| map.lane(InodeNo(dir.metadata().unwrap().ino()).shard());
    let dirs = (0..64).map(|number| mount.dir.join(format!("dir{number}")));
    let mut dirs = dirs.inspect(|dir| fs::create_dir(dir).unwrap());
    let first = dirs.next().unwrap();
    let second = dirs.find(|dir| lane(dir) != lane(&first)).unwrap();
    let names = [first, second].map(|dir| dir.join("moved"));
    File::create(&names[0]).unwrap();
    let looked_at = names.clone();
    let moving = Load::repeat(Duration::from_millis(1), move || {
        fs::rename(&names[0], &names[1]).unwrap();
        fs::rename(&names[1], &names[0]).unwrap();
    });
    let looking = Load::repeat(Duration::from_millis(1), move || {
        for name in &looked_at {
            // It may be at the other place.
            name.symlink_metadata().ok();
        }
    });
    let alert = "shard-ms=50,flush-ms=100000";
    let pane = Pane::new(&fixture, (160, 30), &[&server.address, "--alert", alert]);
    let line = pane.line("ALERT shards: ");
    assert!(line.contains(" for a change over several shards to end, the oldest for "), "{line}");
    let mut said = String::new();
    until("why names the change", || {
        said = must(&mut fixture.lanefs(["why", "--server", &server.address]));
        said.contains("for a change over several shards that ")
    });
    drop((moving, looking));
    mount.stop();
}

#[test]
fn a_held_lock_and_leases_that_go_back_and_forth_are_named() {
    let Some(fixture) = Fixture::new("top_shared") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let [here, there] = ["here", "there"].map(|name| {
        fixture.mount(&server.address, name, &[&LEASES[..], &["--job", name]].concat())
    });
    let alert = "lock-ms=500,recalls=5,flush-ms=100000";
    let pane = Pane::new(&fixture, (160, 30), &[&server.address, "--alert", alert]);
    pane.line("no alerts");

    let [held, wanted] = [&here, &there].map(|mount| mount.dir.join("locked"));
    let held = File::create(held).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let waiting = std::thread::spawn(move || {
        flock(File::open(wanted).unwrap(), FlockOperation::LockExclusive).unwrap();
    });
    let line = pane.line("ALERT lock: ");
    let begin = "ALERT lock: 1 request waits for locks on files that a process of client ";
    assert!(line.starts_with(begin) && line.contains(" (job here, id "), "{line}");
    drop(held);
    waiting.join().unwrap();

    // Of one file leases are soon refused: each of many is changed by one mount and looked at by both.
    let [changed, looked_at] = [here.dir.clone(), there.dir.clone()];
    (0..50).for_each(|number| drop(File::create(changed.join(format!("{number}"))).unwrap()));
    let mut number = 0;
    let load = Load::repeat(Duration::from_millis(1), move || {
        let name = format!("{}", number % 50);
        number += 1;
        looked_at.join(&name).metadata().unwrap();
        let mode = fs::Permissions::from_mode(if number % 100 < 50 { 0o600 } else { 0o640 });
        fs::set_permissions(changed.join(&name), mode).unwrap();
    });
    let line = pane.line("ALERT leases: ");
    assert!(number_in(&line) >= 5.0 && line.contains(" recalls/s beside "), "{line}");
    drop(load);
    here.stop();
    there.stop();
}

#[test]
fn keys_choose_filter_freeze_and_quit() {
    let Some(fixture) = Fixture::new("top_keys") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1"]);
    let secret = secret(&fixture);
    let _one = Load::modest(client(&server.address, &secret, (1, "alpha")));
    let _two = Load::modest(client(&server.address, &secret, (2, "beta")));
    let log = fixture.path("log");
    let quick = ["--interval", "200ms", "--alert", "flush-ms=100000"];
    let logged = ["--log", log.to_str().unwrap()];
    let arguments = [&[server.address.as_str()], &quick[..], &logged].concat();
    let pane = Pane::new(&fixture, (80, 24), &arguments);
    let screen = pane.wait("lanes", |screen| screen.contains("no alerts"));
    assert!(screen.lines().any(|line| line.starts_with("lane")), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    let has = |screen: &str, host: &str| screen.lines().any(|line| line.starts_with(host));
    pane.press(&["3"]);
    pane.wait("both clients", |screen| has(screen, "alpha ") && has(screen, "beta "));
    pane.press(&["/", "a", "l", "p"]);
    pane.wait("the filter", |screen| screen.contains("filter: alp_"));
    pane.press(&["Enter"]);
    pane.wait("one client", |screen| has(screen, "alpha ") && !has(screen, "beta "));
    pane.press(&["Escape"]);
    pane.wait("both clients again", |screen| has(screen, "alpha ") && has(screen, "beta "));
    pane.press(&["?"]);
    pane.wait("the help", |screen| screen.contains("freeze the screen"));
    pane.press(&["x"]);
    pane.wait("the panel", |screen| has(screen, "alpha "));

    pane.press(&["Space"]);
    let frozen = pane.wait("that it is frozen", |screen| screen.contains("FROZEN: "));
    let _three = Load::modest(client(&server.address, &secret, (3, "gamma")));
    until("the log goes on", || fs::read_to_string(&log).unwrap().contains("\"gamma\""));
    assert_eq!(pane.screen(), frozen);
    pane.press(&["Space"]);
    pane.wait("the third client", |screen| has(screen, "gamma ") && !screen.contains("FROZEN"));

    must(&mut pane.tmux(&["resize-window", "-x", "150", "-y", "45"]));
    let wide = |screen: &str| screen.contains("lanes (key 1)") && screen.contains("received/s");
    pane.wait("two tables", wide);
    must(&mut pane.tmux(&["resize-window", "-x", "30", "-y", "6"]));
    pane.wait("a small screen", |screen| screen.lines().next().is_some_and(|it| it.len() <= 30));
    must(&mut pane.tmux(&["resize-window", "-x", "100", "-y", "30"]));
    pane.wait("the table again", |screen| has(screen, "alpha "));
    pane.press(&["q"]);
    pane.ended();
    // Each line of the log is a sample.
    let text = fs::read_to_string(&log).unwrap();
    for line in text.lines() {
        let sample: Value = serde_json::from_str(line).unwrap();
        assert!(sample["interval_s"].as_f64() > Some(0.0), "{sample}");
    }
}

#[test]
fn a_mount_shows_its_requests_exchanges_and_hot_files_and_that_its_server_is_away() {
    let Some(fixture) = Fixture::new("top_mount") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1"]);
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up", "--leases", "off"]);
    fs::create_dir(mount.dir.join("hot")).unwrap();
    fs::write(mount.dir.join("hot/file"), "x").unwrap();
    let path = mount.dir.join("hot/file");
    let load = Load::repeat(Duration::from_millis(1), move || {
        assert_eq!(fs::read(&path).unwrap(), b"x");
    });
    let dir = mount.dir.to_str().unwrap();
    let pane = Pane::new(&fixture, (160, 40), &[dir, "--interval", "200ms"]);
    pane.wait("the mount", |screen| screen.contains(dir) && screen.contains("no alerts"));
    let has = |screen: &str, begin: &str| screen.lines().any(|line| line.starts_with(begin));
    pane.press(&["2"]);
    let screen = pane.wait("its requests", |screen| has(screen, "open ") && has(screen, "read "));
    assert!(screen.contains("alone %"), "{screen}");
    pane.press(&["3"]);
    pane.wait("its exchanges", |screen| has(screen, "exchange ") && has(screen, "open "));
    pane.press(&["4"]);
    pane.wait("what it waits for", |screen| has(screen, "connection ") && !has(screen, "freeze "));
    pane.press(&["5"]);
    let row = pane.line("/hot/file ");
    assert!(row.contains("e2e"), "the process is named: {row}");
    pane.press(&["/", "n", "o", "n", "e", "Enter"]);
    pane.wait("nothing of that name", |screen| screen.contains("no hot with \"none\""));
    pane.press(&["Escape"]);
    pane.line("/hot/file ");
    // Over the network: samples, named by what the asker's mount has seen.
    let over = Pane::new(&fixture, (160, 40), &[&server.address, "--interval", "1s"]);
    over.press(&["8"]);
    over.wait("the file by its path", |screen| has(screen, "/hot/file "));
    let said = must(fixture.lanefs(["top", "--once", "--interval", "300ms"]).arg(dir));
    for part in ["LANES", "OPERATIONS", "EXCHANGES", "WAITS", "HOT"] {
        assert!(said.lines().any(|line| line == part), "{part}: {said}");
    }
    assert!(said.lines().any(|line| line.starts_with("/hot/file ")), "{said}");
    let address = server.address.clone();
    kill(server.process.pid());
    drop(server);
    pane.line("ALERT server: it cannot be reached: ");
    let _server = fixture.serve_with(&address, &["--lanes", "1"]);
    drop(load);
    pane.press(&["q"]);
    pane.ended();
    mount.stop();
}

/// What each process does for each item of a mixed load, once: an operation that its name is counted under.
const MIXED: [&str; 7] = ["mkdir", "create", "write", "read", "getattr", "rename", "unlink"];

/// It is told how many items there are, and says when they are done.
const MIXED_WORKER: &str = r#"
import os, sys
os.chdir(sys.argv[1])
print("ready", flush=True)
for number in range(int(input())):
    os.mkdir(f"{sys.argv[2]}-d{number}")
    name, other = f"{sys.argv[2]}-f{number}", f"{sys.argv[2]}-g{number}"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.write(file, bytes(4096))
    os.fsync(file)
    os.pread(file, 4096, 0)
    os.fstat(file)
    os.close(file)
    os.rename(name, other)
    os.unlink(other)
print("worked", flush=True)
"#;

/// A process that is about to do its part of a mixed load.
fn mixed_worker(dir: &Path, number: usize) -> Process {
    let mut command = program("python3");
    command.args(["-c", MIXED_WORKER]).arg(dir).arg(number.to_string()).stdin(Stdio::piped());
    let mut process = Process::start(&mut command);
    process.line_with("ready");
    process
}

/// The requests of operations, as they are counted.
type Requests = BTreeMap<String, u64>;

/// Those of rows of JSON.
fn all_requests_of(rows: &[Value], by: &str) -> Requests {
    let counted = rows.iter().filter(|row| row["by"] == by);
    let named = counted.filter_map(|row| {
        Some((row["op"].as_str()?.to_owned(), row["requests"].as_u64().unwrap()))
    });
    named.collect()
}

/// Within 2 percent.
#[track_caller]
fn assert_agree(who: &str, (op, found): (&str, u64), wanted: u64) {
    let is_near = found.abs_diff(wanted) <= wanted / 50;
    assert!(is_near, "{who}: {found} {op}, the others {wanted}");
}

/// All that counts requests while a mixed load runs.
struct Counting<'a> {
    fixture: &'a Fixture,
    server: &'a str,
    dir: &'a str,
    metrics: &'a str,
}

impl Counting<'_> {
    fn stats(&self, target: &str, by: &str) -> Vec<Value> {
        let said = must(self.fixture.lanefs(["stats", "--json", "--by", by]).arg(target));
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Of the server by each way to ask it, the same each.
    fn of_server(&self) -> [Requests; 3] {
        let page = ask(self.metrics, "GET /api/counters HTTP/1.1\r\nHost: localhost").1;
        let page: Value = serde_json::from_str(&page).unwrap();
        let mut scraped = Requests::new();
        for (name, number) in scrape(self.metrics) {
            let labels = name.strip_prefix("lanefs_requests_total{").unwrap_or_default();
            if let Some(op) = labels.split("op=\"").nth(1) {
                let op = op.split('"').next().unwrap().to_owned();
                *scraped.entry(op).or_default() += format!("{number:.0}").parse::<u64>().unwrap();
            }
        }
        [
            all_requests_of(&self.stats(self.server, "op"), "op"),
            all_requests_of(page["rows"].as_array().unwrap(), "op"),
            scraped,
        ]
    }

    /// Of the mount: the kernel's requests, and its exchanges.
    fn of_mount(&self) -> [Requests; 2] {
        let rows = self.stats(self.dir, "op,exchange");
        ["op", "exchange"].map(|by| all_requests_of(&rows, by))
    }

    /// What `top` has logged of a target.
    fn of_top(&self, log: &Path, target: &str) -> Requests {
        let mut all = Requests::new();
        let logged = fs::read_to_string(log).unwrap();
        // The last line may not be whole yet.
        let lines = logged.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for line in lines.filter(|line| line["server"] == target) {
            for (op, count) in all_requests_of(line["rows"].as_array().unwrap(), "op") {
                *all.entry(op).or_default() += count;
            }
        }
        all
    }
}

fn grown(before: &Requests, after: &Requests, op: &str) -> u64 {
    let count = |of: &Requests| of.get(op).copied().unwrap_or(0);
    count(after) - count(before)
}

/// Several processes do a mixed load; everything that counts it agrees.
fn all_tools_agree_about_a_mixed_load(test: &str, leases: &str) {
    const COUNT: u64 = 60;
    const PROCESS_COUNT: usize = 3;
    let Some(fixture) = Fixture::new(test) else { return };
    let at = free_address();
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2", "--metrics", &at]);
    let options = ["--export", "up", "--job", "mixed", "--leases", leases];
    let mount = fixture.mount(&server.address, "mnt", &options);
    let (log, dir) = (fixture.path("log"), mount.dir.to_str().unwrap());
    let counting = Counting { fixture: &fixture, server: &server.address, dir, metrics: &at };
    let arguments = [&*server.address, dir, "--interval", "200ms", "--log", log.to_str().unwrap()];
    let pane = Pane::new(&fixture, (120, 30), &arguments);
    let mut workers: Vec<Process> =
        (0..PROCESS_COUNT).map(|number| mixed_worker(&mount.dir, number)).collect();
    let mut profile = fixture.lanefs(["profile", "--time", "1h", "--json"]);
    let mut profile = Process::start(profile.arg(&mount.dir));
    profile.line_with("recording ");
    // Both are asked for the first time before the load begins.
    let is_logged = |name: &&str| {
        let logged = fs::read_to_string(&log).unwrap_or_default();
        logged.contains(&format!("\"server\":\"{name}\""))
    };
    until("both are in the log", || [&*server.address, dir].iter().all(is_logged));
    let (before, mount_before) = (counting.of_server(), counting.of_mount());
    let top_before = [&*server.address, dir].map(|target| counting.of_top(&log, target));
    for worker in &mut workers {
        worker.orders().write_all(format!("{COUNT}\n").as_bytes()).unwrap();
    }
    for worker in &mut workers {
        worker.line_with("worked");
        assert_eq!(worker.end().code(), Some(0));
    }
    // What is written behind and closed is at the server.
    rustix::fs::syncfs(File::open(&mount.dir).unwrap()).unwrap();
    profile.signal(Signal::INT);
    assert_eq!(profile.end().code(), Some(0), "{}", profile.said());
    let (after, mount_after) = (counting.of_server(), counting.of_mount());

    // What a mount answers from its caches reaches no server, and what the kernel does no mount.
    let is_cached = |op: &str| leases == "on" && ["read", "getattr"].contains(&op);
    let said = profile.said();
    let profiled: Vec<Value> =
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for op in MIXED.into_iter().filter(|op| !is_cached(op)) {
        let done = COUNT * PROCESS_COUNT as u64;
        let sent = grown(&mount_before[1], &mount_after[1], op);
        // A mount asks for attributes of directories by itself, too.
        let at_server = if op == "getattr" { sent.max(done) } else { done };
        for (who, at) in ["stats", "page", "metrics"].into_iter().zip(0..) {
            assert_agree(who, (op, grown(&before[at], &after[at], op)), at_server);
        }
        assert_agree("the mount", (op, grown(&mount_before[0], &mount_after[0], op)), done);
        assert_agree("its exchanges", (op, sent), at_server);
        let of_op = |row: &Value| row["ops"][op]["requests"].as_u64().unwrap_or(0);
        assert_agree("profile", (op, profiled.iter().map(of_op).sum()), done);
        let targets = [(&*server.address, at_server), (dir, done)];
        for ((target, count), before) in targets.into_iter().zip(&top_before) {
            until(&format!("top has counted {op} at {target}"), || {
                grown(before, &counting.of_top(&log, target), op) >= count - count / 50
            });
            let found = grown(before, &counting.of_top(&log, target), op);
            assert_agree("top", (op, found), count);
        }
    }
    // Whatever the mount has sent, its server has counted.
    let mut compared = 0;
    for op in mount_after[1].keys() {
        let sent = grown(&mount_before[1], &mount_after[1], op);
        if sent >= 100 {
            assert_agree("stats", (op, grown(&before[0], &after[0], op)), sent);
            compared += 1;
        }
    }
    assert!(compared >= 5, "{mount_after:?}");
    let jobs = counting.stats(&server.address, "job");
    let job = jobs.iter().find(|row| row["job"] == "mixed").unwrap();
    let sent = counting.of_mount()[1].values().sum();
    assert_agree("the job", ("requests", job["requests"].as_u64().unwrap()), sent);
    pane.press(&["q"]);
    pane.ended();
    mount.stop();
}

#[test]
fn all_tools_count_a_mixed_load_as_its_generator_does() {
    all_tools_agree_about_a_mixed_load("top_agrees", "off");
}

#[test]
fn all_tools_count_what_caches_leave_of_a_mixed_load() {
    all_tools_agree_about_a_mixed_load("top_agrees_caches", "on");
}

#[test]
fn a_lost_server_is_named_until_it_is_back_and_an_interrupt_restores_the_terminal() {
    let Some(fixture) = Fixture::new("top_lost") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1"]);
    let address = server.address.clone();
    let pane = Pane::new(&fixture, (160, 30), &[&address, "--alert", "flush-ms=100000"]);
    pane.line("no alerts");
    kill(server.process.pid());
    drop(server);
    let line = pane.line("ALERT server: ");
    assert!(line.starts_with(&format!("ALERT server: {address} has not answered for ")), "{line}");
    pane.wait("that it goes on", |screen| screen.contains("; still trying"));
    let _server = fixture.serve_with(&address, &["--lanes", "1"]);
    pane.line("no alerts");
    pane.press(&["C-c"]);
    pane.ended();
}
