//! Several servers: joining, one file system over all of them, servers that die, and etcd away.

use crate::fixture::{
    Fixture, Mount, Process, Server, failure, kill, must, own_address, program, skip, state_of,
    texts, until,
};
use crate::metrics::{ask, free_address};
use registry::{LocalError, LocalEtcd};
use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Output};

/// Metadata shards of each server.
const SHARD_COUNT: u64 = 64;

/// An etcd, and stores of servers.
pub(crate) struct Cluster {
    pub(crate) fixture: Fixture,
    etcd: Option<LocalEtcd>,
    /// Where it listens for clients and for members.
    at: [SocketAddr; 2],
}

impl Cluster {
    /// `None`, said aloud, where etcd is not installed, or nothing can be mounted.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let fixture = Fixture::new(test)?;
        let at = [2379, 2380].map(|port| {
            let address: SocketAddr = own_address().parse().unwrap();
            SocketAddr::new(address.ip(), port)
        });
        let mut cluster = Self { fixture, etcd: None, at };
        match cluster.try_start_etcd() {
            Ok(()) => Some(cluster),
            Err(LocalError::NotInstalled) => {
                skip(test, "needs etcd (Debian's etcd-server)");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn try_start_etcd(&mut self) -> Result<(), LocalError> {
        let data = self.fixture.path("etcd");
        self.etcd = Some(LocalEtcd::start(&data, self.at[0], self.at[1])?);
        Ok(())
    }

    /// Again, on its data.
    pub(crate) fn start_etcd(&mut self) {
        self.try_start_etcd().unwrap();
    }

    pub(crate) fn stop_etcd(&mut self) {
        self.etcd = None;
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.at[0])
    }

    fn store(&self, name: &str) -> PathBuf {
        self.fixture.path(name)
    }

    /// A store whose server is the first one of a cluster.
    pub(crate) fn init(&self) {
        self.init_with(&[]);
    }

    pub(crate) fn init_with(&self, more: &[&str]) {
        let mut command = self.fixture.lanefs(["cluster", "init", "--etcd", &self.url()]);
        let said = must(command.args(more).arg("--store").arg(self.store("one")));
        assert!(said.contains("server 1 of cluster"), "{said}");
        assert!(said.contains("lanefs cluster token --store"), "{said}");
    }

    fn token(&self, more: &[&str]) -> String {
        let mut command = self.fixture.lanefs(["cluster", "token"]);
        must(command.args(more).arg("--store").arg(self.store("one"))).trim().to_owned()
    }

    fn serving(&self, store: &str, listen: &str, more: &[&str]) -> Process {
        let mut command = self.fixture.lanefs(["serve", "--export", "up=no-root-squash"]);
        command.args(["--lanes", "2", "--listen", listen]).args(more);
        Process::start(command.arg("--store").arg(self.store(store)))
    }

    pub(crate) fn serve(&self, store: &str, listen: &str, more: &[&str]) -> Server {
        let mut process = self.serving(store, listen, more);
        let line = process.line_with("listening on ");
        let address = line.trim_start_matches("listening on ").split(',').next().unwrap();
        Server { address: address.to_owned(), process }
    }

    /// A new server, which joins.
    pub(crate) fn join(&self, store: &str) -> Server {
        self.join_with(store, &[])
    }

    pub(crate) fn join_with(&self, store: &str, more: &[&str]) -> Server {
        let (url, token) = (self.url(), self.token(&[]));
        let join = ["--cluster", &url, "--join", &token];
        self.serve(store, &own_address(), &[&join[..], more].concat())
    }

    /// A start that must fail: its exit code and what it says.
    pub(crate) fn refused(&self, store: &str, more: &[&str]) -> (i32, String) {
        failure(&self.start_of(store, more))
    }

    fn start_of(&self, store: &str, more: &[&str]) -> Output {
        let listen = own_address();
        let mut command = self.fixture.lanefs(["serve", "--listen", &listen]);
        crate::fixture::run(command.args(more).arg("--store").arg(self.store(store)))
    }

    /// The servers that etcd counts as alive.
    pub(crate) fn up_servers(&self) -> Vec<u64> {
        let said = must(&mut self.fixture.lanefs(["servers", &self.url(), "--json"]));
        let lines = said.lines().map(|line| serde_json::from_str(line).unwrap());
        let up = lines.filter(|line: &serde_json::Value| line["up"] == true);
        up.map(|line| line["id"].as_u64().unwrap()).collect()
    }

    pub(crate) fn mount(&self, server: &Server, name: &str) -> Mount {
        self.fixture.mount(&server.address, name, &["--export", "up"])
    }
}

/// The server that has the metadata of a file or directory, from 1.
pub(crate) fn server_of(path: &Path) -> u64 {
    let inode = wire::InodeNo(fs::metadata(path).unwrap().ino());
    u64::from(inode.shard().index()) / SHARD_COUNT + 1
}

/// Directories with files of different sizes, durable; those that each server has.
pub(crate) fn fill(dir: &Path, server_count: u64) -> Vec<Vec<PathBuf>> {
    let mut dirs = vec![Vec::new(); usize::try_from(server_count).unwrap()];
    for number in 0..24 * server_count {
        let path = dir.join(format!("dir{number}"));
        fs::create_dir(&path).unwrap();
        for size in [0, 1, 5000, 300_000] {
            let mut file = fs::File::create(path.join(format!("file{size}"))).unwrap();
            file.write_all(&contents(number, size)).unwrap();
            file.sync_all().unwrap();
        }
        dirs[usize::try_from(server_of(&path) - 1).unwrap()].push(path);
    }
    dirs
}

fn contents(number: u64, size: usize) -> Vec<u8> {
    let text = number.to_string();
    text.bytes().cycle().take(size).collect()
}

pub(crate) fn check(dir: &Path, server_count: u64) {
    for number in 0..24 * server_count {
        for size in [0, 1, 5000, 300_000] {
            let path = dir.join(format!("dir{number}/file{size}"));
            assert!(fs::read(&path).unwrap() == contents(number, size), "{path:?}");
        }
    }
}

/// How often a server has executed an operation.
pub(crate) fn count_of(cluster: &Cluster, server: &Server, op: &str) -> u64 {
    let said =
        must(&mut cluster.fixture.lanefs(["stats", &server.address, "--by", "op", "--json"]));
    let lines =
        said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of_op = lines.filter(|line| line["op"] == op);
    of_op.filter_map(|line| line["requests"].as_u64()).sum()
}

fn touch(path: &Path) -> Child {
    program("touch").arg(path).spawn().unwrap()
}

fn waits(child: &mut Child) {
    until("it sleeps in the kernel", || matches!(state_of(child.id()), Some('S' | 'D')));
    assert!(child.try_wait().unwrap().is_none(), "it waits for its server");
}

#[test]
fn a_server_joins_and_files_and_directories_are_on_both() {
    let Some(cluster) = Cluster::new("cluster_two") else { return };
    cluster.init();
    let one = cluster.serve("one", &own_address(), &[]);
    let mount = cluster.mount(&one, "mnt");
    fs::write(mount.dir.join("before"), "before").unwrap();
    // The mount learns of the new server while it works.
    let two = cluster.join("two");
    until("new directories are on both", || {
        let path = mount.dir.join("probe");
        fs::create_dir(&path).unwrap();
        let is_new = server_of(&path) == 2;
        fs::remove_dir(&path).unwrap();
        is_new
    });
    let dirs = fill(&mount.dir, 2);
    assert!(dirs.iter().all(|dirs| dirs.len() > 4), "{dirs:?}");
    for server in [&one, &two] {
        for op in ["create", "write"] {
            assert!(count_of(&cluster, server, op) > 0, "{op} at {}", server.address);
        }
    }
    let other = cluster.mount(&two, "other");
    check(&other.dir, 2);
    assert_eq!(fs::read_to_string(other.dir.join("before")).unwrap(), "before");
    // Over servers: a file's name and a directory go from one to the other.
    fs::rename(dirs[0][0].join("file5000"), dirs[1][0].join("moved")).unwrap();
    fs::rename(&dirs[1][1], dirs[0][0].join("below")).unwrap();
    let there = |path: &Path| other.dir.join(path.strip_prefix(&mount.dir).unwrap());
    assert_eq!(fs::metadata(there(&dirs[1][0].join("moved"))).unwrap().len(), 5000);
    assert_eq!(fs::metadata(there(&dirs[0][0]).join("below/file1")).unwrap().len(), 1);
    fs::remove_dir_all(there(&dirs[0][0])).unwrap();
    assert!(!dirs[0][0].exists());
    other.stop();
    mount.stop();
}

#[test]
fn a_dead_server_delays_only_what_lies_on_it() {
    let Some(cluster) = Cluster::new("cluster_dead") else { return };
    cluster.init();
    let one = cluster.serve("one", &own_address(), &[]);
    let mut two = cluster.join("two");
    let mut three = cluster.join("three");
    let mount = cluster.mount(&one, "mnt");
    let options = ["--export", "up", "--soft", "2s"];
    let soft = cluster.fixture.mount(&one.address, "soft", &options);
    let dirs = fill(&mount.dir, 3);
    assert!(dirs.iter().all(|dirs| dirs.len() > 4), "{dirs:?}");
    let of_soft = |dir: &Path| soft.dir.join(dir.file_name().unwrap());
    kill(two.process.pid());
    two.process.end();
    let mut waiting = touch(&dirs[1][0].join("new"));
    waits(&mut waiting);
    // Names alone: contents of their files may be on the dead one.
    for dir in [&dirs[0][0], &dirs[2][0]] {
        symlink("target", dir.join("new")).unwrap();
        assert_eq!(fs::read_link(dir.join("new")).unwrap(), Path::new("target"));
        assert_eq!(fs::read_dir(dir).unwrap().count(), 5);
    }
    let failed = symlink("target", of_soft(&dirs[1][0]).join("soft")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5), "EIO");
    symlink("target", of_soft(&dirs[0][0]).join("soft")).unwrap();
    assert!(waiting.try_wait().unwrap().is_none(), "its server is still away");
    until("etcd counts it as away", || cluster.up_servers() == [1, 3]);
    let status = must(&mut cluster.fixture.lanefs(["cluster", "status", &cluster.url()]));
    assert!(status.contains("2 of 3 servers up"), "{status}");
    assert!(status.contains("server 2 is away: what lies on it waits"), "{status}");
    // Without an option: the store knows its cluster.
    let two = cluster.serve("two", &two.address, &[]);
    assert!(waiting.wait().unwrap().success());
    check(&mount.dir, 3);
    check(&soft.dir, 3);
    soft.stop();
    three.process.signal(Signal::TERM);
    assert_eq!(three.process.end().code(), Some(0), "{}", three.process.said());
    let _three = cluster.serve("three", &three.address, &[]);
    check(&mount.dir, 3);
    mount.stop();
    drop(two);
}

/// Also the one that the mount was started with.
#[test]
fn servers_that_start_at_other_addresses_are_found() {
    let Some(cluster) = Cluster::new("cluster_moved") else { return };
    cluster.init();
    let mut one = cluster.serve("one", &own_address(), &[]);
    let mut two = cluster.join("two");
    let mount = cluster.mount(&one, "mnt");
    let dirs = fill(&mount.dir, 2);
    for (at, store, server) in [(1, "two", &mut two), (0, "one", &mut one)] {
        let path = dirs[at][0].join("new");
        fs::write(&path, "not synced").unwrap();
        kill(server.process.pid());
        server.process.end();
        let elsewhere = cluster.serve(store, &own_address(), &[]);
        assert_ne!(elsewhere.address, server.address);
        *server = elsewhere;
        assert_eq!(fs::read_to_string(&path).unwrap(), "not synced");
        check(&mount.dir, 2);
    }
    mount.stop();
}

#[test]
fn files_are_served_while_etcd_is_away() {
    let Some(mut cluster) = Cluster::new("cluster_etcd") else { return };
    cluster.init();
    let mut one = cluster.serve("one", &own_address(), &[]);
    let mut two = cluster.join("two");
    let mount = cluster.mount(&one, "mnt");
    cluster.stop_etcd();
    one.process.line_with("etcd does not answer");
    two.process.line_with("etcd does not answer");
    let dirs = fill(&mount.dir, 2);
    check(&mount.dir, 2);
    fs::write(dirs[0][0].join("more"), "m").unwrap();
    // A mount needs no etcd either.
    let other = cluster.mount(&two, "other");
    check(&other.dir, 2);
    fs::rename(dirs[0][0].join("more"), dirs[1][0].join("moved")).unwrap();
    assert_eq!(
        fs::read(other.dir.join(dirs[1][0].file_name().unwrap()).join("moved")).unwrap().len(),
        1
    );
    let (code, said) = cluster.refused("two", &[]);
    assert_ne!(code, 0);
    assert!(said.contains("has the store"), "{said}");
    kill(two.process.pid());
    two.process.end();
    let start = || {
        let mut two = cluster.serving("two", &two.address, &[]);
        two.line_with("This server starts once it is back");
        two
    };
    let mut asked_to_end = start();
    asked_to_end.signal(Signal::TERM);
    assert_eq!(asked_to_end.end().code(), Some(0), "{}", asked_to_end.said());
    let mut two = start();
    cluster.start_etcd();
    one.process.line_with("etcd answers again");
    two.line_with("listening on ");
    check(&mount.dir, 2);
    // It is alive in the registry as before, whether or not its lease ended meanwhile.
    assert!(cluster.token(&[]).starts_with("lanefs-join-"));
    other.stop();
    mount.stop();
}

#[test]
fn the_page_of_a_server_shows_all_servers_and_which_is_away() {
    let Some(cluster) = Cluster::new("cluster_page") else { return };
    cluster.init();
    let at = free_address();
    let _one = cluster.serve("one", &own_address(), &["--metrics", &at]);
    let two = cluster.join("two");
    let seen = || {
        let (_, body) = ask(&at, "GET /api/counters HTTP/1.1\r\nHost: localhost");
        let page: serde_json::Value = serde_json::from_str(&body).unwrap();
        page["cluster"].clone()
    };
    let up = |cluster: &serde_json::Value| -> Vec<bool> {
        let servers = cluster["servers"].as_array().unwrap();
        servers.iter().map(|server| server["up"] == true).collect()
    };
    until("both are up", || up(&seen()) == [true, true]);
    let page = seen();
    assert_eq!((page["own"].as_u64(), page["is_away"].as_bool()), (Some(1), Some(false)));
    assert_eq!(page["servers"][1]["address"], two.address.as_str());
    assert_eq!(page["shards"][1]["metadata"][0], SHARD_COUNT);
    kill(two.process.pid());
    drop(two);
    until("the second is away", || up(&seen()) == [true, false]);
}

#[test]
fn tokens_work_once_and_foreign_stores_are_refused() {
    let Some(cluster) = Cluster::new("cluster_tokens") else { return };
    cluster.init();
    let url = cluster.url();
    let one = cluster.serve("one", &own_address(), &[]);
    let token = cluster.token(&["--valid", "2h"]);
    let join =
        |store: &str, token: &str| cluster.refused(store, &["--cluster", &url, "--join", token]);
    let mut wrong = token.clone();
    let last = if wrong.ends_with('0') { '1' } else { '0' };
    wrong.pop();
    wrong.push(last);
    for (text, why) in [
        ("nonsense", "this is no token"),
        (&wrong, "the token is wrong"),
        (&token.replacen("join-", "join-f", 1)[..token.len()], "this is no token"),
    ] {
        let (code, said) = join("two", text);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(why), "{text}: {said}");
    }
    assert!(!cluster.store("two").exists(), "a refused token makes no store");
    let (code, said) = cluster.refused("two", &["--cluster", &url]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("add --join TOKEN"), "{said}");
    let two = cluster.serve("two", &own_address(), &["--cluster", &url, "--join", &token]);
    let (code, said) = join("three", &token);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("it was used"), "{said}");
    assert!(!cluster.store("three").exists());
    // A copy of a store that runs; made while it runs, as a thief of it would.
    let copied =
        program("cp").arg("-a").args([cluster.store("two"), cluster.store("copy")]).status();
    assert!(copied.unwrap().success());
    let (code, said) = cluster.refused("copy", &[]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("runs already, at") && said.contains("is a copy"), "{said}");
    // It cuts a running one off, whose lease has ended: that one ends.
    let etcd = registry::Etcd::new(&registry::Access::to_endpoints(&url)).unwrap();
    let entry = etcd.read("/lanefs/").unwrap().entries;
    let entry = entry.into_iter().find(|entry| entry.key.ends_with("/alive/2")).unwrap();
    let (key, version) = (entry.key, entry.version);
    let ends = registry::Write { key, version, value: None, lease: None };
    assert!(etcd.swap(&[ends]).unwrap().is_some());
    let _copy = cluster.serve("copy", &own_address(), &[]);
    let mut two = two;
    assert_eq!(two.process.end().code(), Some(1));
    assert!(two.process.said().contains("was started elsewhere, with a copy of the store"));
    let (code, said) = cluster.refused("two", &[]);
    assert_eq!(code, 1, "{said}");
    // A store with a file system of its own.
    let mut alone = cluster.serve("alone", &own_address(), &[]);
    alone.process.signal(Signal::TERM);
    alone.process.end();
    let (code, said) = cluster.refused("alone", &["--cluster", &url]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("lanefs cluster init"), "{said}");
    let (code, said) = cluster.refused("alone", &["--cluster", &url, "--join", &token]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("another file system"), "{said}");
    let dump =
        cluster.fixture.run([std::ffi::OsStr::new("dump"), cluster.store("alone").as_os_str()]);
    assert!(dump.status.success(), "{:?}", texts(&dump));
    let dump =
        cluster.fixture.run([std::ffi::OsStr::new("dump"), cluster.store("two").as_os_str()]);
    assert!(!dump.status.success());
    assert!(texts(&dump).1.contains("of a cluster"), "{:?}", texts(&dump));
    drop(one);
}

#[test]
fn space_is_shown_for_each_server_and_summed_up() {
    let Some(cluster) = Cluster::new("cluster_space") else { return };
    cluster.init();
    let one = cluster.serve("one", &own_address(), &[]);
    let mut two = cluster.join("two");
    let mount = cluster.mount(&one, "mnt");
    let url = format!("lanefs://{}", one.address);
    let df = |more: &[&str]| {
        let mut command = cluster.fixture.lanefs(["df", "--export", "up", &url]);
        texts(&crate::fixture::run(command.args(more)))
    };
    let (said, errors) = df(&["--json"]);
    let rows: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3, "{said}{errors}");
    assert_eq!((&rows[0]["server"], &rows[1]["server"]), (&1.into(), &2.into()), "{said}");
    // Both are on one medium, whose size does not change.
    let bytes = |row: &serde_json::Value| row["total_bytes"].as_u64().unwrap();
    assert_eq!(bytes(&rows[2]), bytes(&rows[0]) + bytes(&rows[1]), "{said}");
    let space = rustix::fs::statvfs(&mount.dir).unwrap();
    assert_eq!(space.f_blocks * space.f_frsize, bytes(&rows[2]), "the mount has the sum");
    let listed = || {
        let said = must(&mut cluster.fixture.lanefs(["servers", &cluster.url(), "--json"]));
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>()
    };
    for row in listed() {
        let row: serde_json::Value = row;
        let sum = row["used_bytes"].as_u64().unwrap() + row["free_bytes"].as_u64().unwrap();
        assert!(sum > 0 && sum <= bytes(&rows[0]), "{row}");
    }
    kill(two.process.pid());
    two.process.end();
    until("etcd counts it as away", || cluster.up_servers() == [1]);
    let rows = listed();
    assert!(rows[0]["free_bytes"].is_u64() && rows[1]["free_bytes"].is_null(), "{rows:?}");
    let (said, errors) = df(&["--connect-timeout", "500ms"]);
    assert_eq!(said.lines().count(), 3, "{said}");
    assert!(said.lines().last().unwrap().starts_with("total "), "{said}");
    assert!(errors.contains("server 2 is not in the sum"), "{errors}");
    let _two = cluster.serve("two", &two.address, &[]);
    mount.stop();
}

#[test]
fn a_drained_server_takes_nothing_new_until_that_is_undone() {
    let Some(cluster) = Cluster::new("cluster_drain") else { return };
    cluster.init();
    let one = cluster.serve("one", &own_address(), &[]);
    let _two = cluster.join("two");
    let mount = cluster.mount(&one, "mnt");
    let drain = |more: &[&str]| {
        let mut command = cluster.fixture.lanefs(["drain"]);
        crate::fixture::run(command.args(more).arg(cluster.url()))
    };
    let servers_of_new = || {
        let mut servers: Vec<u64> = Vec::new();
        for number in 0..32 {
            let path = mount.dir.join(format!("probe{number}"));
            fs::create_dir(&path).unwrap();
            servers.push(server_of(&path));
            fs::remove_dir(&path).unwrap();
        }
        servers.sort_unstable();
        servers.dedup();
        servers
    };
    until("new directories are on both", || servers_of_new() == [1, 2]);
    let dirs = fill(&mount.dir, 2);
    let (code, said) = failure(&drain(&["2"]));
    assert!(code == 2 && said.contains("--new-only"), "{code} {said}");
    assert!(drain(&["2", "--new-only"]).status.success());
    // A running mount follows.
    until("nothing new is made there", || servers_of_new() == [1]);
    let new = mount.dir.join("new");
    fs::create_dir(&new).unwrap();
    fs::write(new.join("file"), "new").unwrap();
    assert_eq!((server_of(&new), server_of(&new.join("file"))), (1, 1));
    for (arguments, shown) in
        [(&["servers"][..], "up, draining"), (&["cluster", "status"], "up, draining")]
    {
        let mut command = cluster.fixture.lanefs(arguments);
        let said = must(command.arg(cluster.url()));
        assert_eq!(said.matches(shown).count(), 1, "{said}");
    }
    // What is there stays, and can be changed.
    check(&mount.dir, 2);
    fs::write(dirs[1][0].join("file1"), contents(0, 2)).unwrap();
    fs::remove_dir_all(&dirs[1][0]).unwrap();
    for (arguments, why) in [
        (&["2", "--new-only"][..], "draining already"),
        (&["1", "--new-only"], "the only one"),
        (&["7", "--new-only"], "no server 7"),
        (&["1", "--undo"], "not draining"),
    ] {
        let (code, said) = failure(&drain(arguments));
        assert!(code == 1 && said.contains(why), "{code} {said}");
    }
    assert!(drain(&["2", "--undo"]).status.success());
    until("new directories are on both", || servers_of_new() == [1, 2]);
    mount.stop();
}

/// Ends a server in order.
pub(crate) fn stop(mut server: Server) {
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.end().code(), Some(0), "{}", server.process.said());
}

#[test]
fn a_check_judges_stores_alone_and_all_together() {
    let Some(cluster) = Cluster::new("cluster_check") else { return };
    cluster.init();
    let (one, two) = (cluster.serve("one", &own_address(), &[]), cluster.join("two"));
    let mount = cluster.mount(&one, "mnt");
    until("new directories are on both", || {
        let path = mount.dir.join("probe");
        fs::create_dir(&path).unwrap();
        let is_new = server_of(&path) == 2;
        fs::remove_dir(&path).unwrap();
        is_new
    });
    let dirs = fill(&mount.dir, 2);
    // Names, links and directories over servers.
    fs::rename(dirs[0][0].join("file5000"), dirs[1][0].join("moved")).unwrap();
    fs::hard_link(dirs[1][1].join("file1"), dirs[0][1].join("link")).unwrap();
    fs::rename(&dirs[1][2], dirs[0][2].join("below")).unwrap();
    fs::remove_dir_all(&dirs[0][3]).unwrap();
    fs::remove_file(dirs[1][1].join("file5000")).unwrap();
    mount.stop();
    let addresses = [one.address.clone(), two.address.clone()];
    let check = |stores: &[&str], more: &[&str]| {
        let mut command = cluster.fixture.lanefs(["check"]);
        command.args(more).args(stores.iter().map(|store| cluster.store(store)));
        let output = crate::fixture::run(&mut command);
        let (stdout, stderr) = texts(&output);
        (output.status.code().unwrap(), stdout, stderr)
    };
    let (code, _, said) = check(&["one"], &[]);
    assert!(code == 1 && said.contains("stop it first"), "{code} {said}");
    stop(two);
    stop(one);
    for store in ["one", "two"] {
        let (code, found, said) = check(&[store], &[]);
        assert_eq!(code, 0, "{found}{said}");
        assert!(said.contains("not judged"), "{said}");
    }
    let (code, found, said) = check(&["one", "two"], &["--cluster"]);
    assert_eq!((code, &*said), (0, ""), "{found}");
    assert!(found.contains("0 damages, 0 warnings"), "{found}");
    for (stores, more, expected, why) in [
        (&["two"][..], &["--cluster"][..], 1, "those of all servers"),
        (&["one"], &["--cluster"], 1, "those of all servers"),
        (&["one", "one"], &[], 1, "both of server 1"),
        (&["one"], &["--repair"], 2, "is checked only"),
    ] {
        let (code, found, said) = check(stores, more);
        assert!(code == expected && said.contains(why), "{code} {found}{said}");
    }
    // Of the copies each knows what the other forgets.
    let copy = |store: &str, name: &str| {
        let copied =
            program("cp").arg("-a").args([cluster.store(store), cluster.store(name)]).status();
        assert!(copied.unwrap().success());
    };
    copy("one", "one-before");
    copy("two", "two-before");
    let one = cluster.serve("one", &addresses[0], &[]);
    let mut two = cluster.serve("two", &addresses[1], &[]);
    let mount = cluster.mount(&one, "mnt");
    for number in 0..16 {
        fs::create_dir(mount.dir.join(format!("new{number}"))).unwrap();
    }
    fs::write(dirs[0][1].join("large"), contents(7, 300_000)).unwrap();
    fs::File::open(dirs[0][1].join("large")).unwrap().sync_all().unwrap();
    mount.stop();
    // One is killed: what it has in its logs is looked at as well.
    kill(two.process.pid());
    two.process.end();
    stop(one);
    let (code, found, _) = check(&["one", "two"], &["--cluster"]);
    assert_eq!(code, 0, "{found}");
    let (code, found, _) = check(&["one", "two-before"], &["--cluster"]);
    assert_eq!(code, 8, "{found}");
    assert!(found.contains("damage: name-without-inode: /new"), "{found}");
    let (code, found, _) = check(&["one-before", "two"], &["--cluster"]);
    assert_eq!(code, 8, "{found}");
    assert!(found.contains("damage: inode-without-name"), "{found}");
    // An object whose inode may be at the other server.
    let mut objects = Vec::new();
    objects_below(&cluster.store("two").join("objects"), &mut objects);
    let lost = objects.iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    fs::remove_file(lost).unwrap();
    let (code, found, _) = check(&["one", "two"], &["--cluster"]);
    assert_eq!(code, 8, "{found}");
    assert!(found.contains("damage: object-missing: /dir"), "{found}");
}

fn objects_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { objects_below(&path, found) } else { found.push(path) }
    }
}

/// Asks etcd's gateway.
pub(crate) fn ask_etcd(
    host: SocketAddr,
    path: &str,
    body: &serde_json::Value,
) -> serde_json::Value {
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST /v3/{path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (_, reply) = reply.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(reply).unwrap()
}

#[test]
fn a_token_ends_with_its_time_and_joins_when_etcd_is_back() {
    let Some(mut cluster) = Cluster::new("cluster_token_time") else { return };
    cluster.init();
    let _one = cluster.serve("one", &own_address(), &[]);
    let (url, token) = (cluster.url(), cluster.token(&["--valid", "2h"]));
    // "/lanefs/join/" and what comes behind it.
    let range =
        serde_json::json!({ "key": "L2xhbmVmcy9qb2luLw==", "range_end": "L2xhbmVmcy9qb2luMA==" });
    let lease = ask_etcd(cluster.at[0], "kv/range", &range)["kvs"][0]["lease"].clone();
    let time = ask_etcd(cluster.at[0], "lease/timetolive", &serde_json::json!({ "ID": lease }));
    assert_eq!(time["grantedTTL"], "7200", "{time}");
    let ends = ask_etcd(cluster.at[0], "lease/revoke", &serde_json::json!({ "ID": lease }));
    assert!(ends["error"].is_null(), "{ends}");
    let join = ["--cluster", &url, "--join"];
    let (code, said) = cluster.refused("two", &[&join[..], &[&token]].concat());
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("its time is over"), "{said}");
    let token = cluster.token(&[]);
    cluster.stop_etcd();
    let (code, said) = cluster.refused("two", &[&join[..], &[&token]].concat());
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("etcd does not answer"), "{said}");
    assert!(!cluster.store("two").exists(), "a refused token makes no store");
    // It was not used up.
    cluster.start_etcd();
    let _two = cluster.serve("two", &own_address(), &[&join[..], &[&token]].concat());
    until("etcd counts both as alive", || cluster.up_servers() == [1, 2]);
}
