//! PostgreSQL on the mount: it checks its own pages, and recovers when it, the server or the mount
//! is killed with -9 under load.

use crate::fixture::{Fixture, Process, Up, kill, must, program, run, skip, texts, until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A cluster on a mount, run by an unprivileged user: PostgreSQL refuses to be root.
struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    /// The socket's name must be short.
    sockets: TempDir,
}

impl Cluster {
    /// `None`, said aloud, where there is no PostgreSQL.
    fn new(test: &str, up: &Up) -> Option<Self> {
        let Some(programs) = programs() else {
            skip(test, "needs PostgreSQL in /usr/lib/postgresql");
            return None;
        };
        let sockets = tempfile::tempdir().unwrap();
        fs::set_permissions(sockets.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let home = up.dir.join("home");
        fs::create_dir(&home).unwrap();
        must(program("chown").arg("nobody").arg(&home));
        let cluster = Self { programs, data: home.join("data"), sockets };
        let initdb = ["--data-checksums", "--auth=trust", "--username=pg", "--no-locale"];
        // Nobody dies yet.
        let mut command = cluster.program("initdb");
        must(command.args(initdb).args(["--no-sync", "-D"]).arg(&cluster.data));
        let settings = "listen_addresses=''\nshared_buffers=16MB\nmax_wal_size=64MB\n\
                        checkpoint_timeout=30s\nlog_min_messages=log\n";
        let file = cluster.data.join("postgresql.conf");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text + settings).unwrap();
        Some(cluster)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = program("setpriv");
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
        command.arg(self.programs.join(name));
        command.env("PGHOST", self.sockets.path()).env("PGUSER", "pg").env("LC_ALL", "C");
        command.env("PGDATABASE", "postgres").current_dir("/");
        command
    }

    /// Starts it; recovers if it was killed.
    fn start(&self) -> Process {
        let mut command = self.program("postgres");
        command.arg("-D").arg(&self.data).arg("-k").arg(self.sockets.path());
        let mut process = Process::start(&mut command);
        process.line_with("ready to accept connections");
        process
    }

    /// Kills it with -9 and waits until its children have ended, too.
    fn kill(&self, mut postgres: Process) {
        kill(postgres.pid());
        postgres.end();
        until("its children have ended", || !self.has_processes());
    }

    /// Whether a process stands in the data directory, as those of PostgreSQL do.
    fn has_processes(&self) -> bool {
        fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .any(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == self.data))
    }

    fn sql(&self, text: &str) -> String {
        must(self.program("psql").args(["-X", "-A", "-t", "-q", "-c", text]))
    }

    /// Four clients with so many transactions each.
    fn bench(&self, transactions: u32) -> Command {
        let mut command = self.program("pgbench");
        command.args(["-n", "-c", "4", "-j", "2", "-t", &transactions.to_string()]);
        command
    }

    fn history_count(&self) -> u32 {
        self.sql("select count(*) from pgbench_history").trim().parse().unwrap()
    }

    /// What pgbench's transactions keep equal, and what PostgreSQL knows of its own pages.
    fn check(&self) {
        let equal = "select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) \
                     from pgbench_branches), (select sum(tbalance) from pgbench_tellers), \
                     (select sum(delta) from pgbench_history)";
        let sums = self.sql(equal);
        let sums: Vec<&str> = sums.trim().split('|').collect();
        assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
        must(self.program("pg_amcheck").args(["--install-missing", "--heapallindexed"]));
    }

    fn stop(&self, mut postgres: Process) {
        postgres.signal(Signal::INT);
        assert!(postgres.end().success(), "{}", postgres.said());
        let said = postgres.said();
        assert!(!said.contains("PANIC") && !said.contains("Interrupted"), "{said}");
        must(self.program("pg_checksums").args(["--check", "-D"]).arg(&self.data));
    }
}

fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    programs.filter(|programs| Path::new(&programs.join("initdb")).exists()).max()
}

/// How many transactions pgbench says were acknowledged.
fn acknowledged(said: &str) -> u32 {
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("number of transactions actually processed: "));
    line.unwrap_or_else(|| panic!("{said}")).split('/').next().unwrap().parse().unwrap()
}

#[test]
fn postgres_survives_kills_of_itself_of_the_server_and_of_the_mount() {
    let Some(fixture) = Fixture::new("postgres") else { return };
    let mut up = fixture.up(&[]);
    let Some(cluster) = Cluster::new("postgres", &up) else { return };
    let postgres = cluster.start();
    must(cluster.program("pgbench").args(["-i", "-s", "1", "-q"]));
    must(&mut cluster.bench(50));
    assert_eq!(cluster.history_count(), 200);

    // The server: PostgreSQL notices nothing.
    let load = cluster.bench(100).spawn_heard();
    until("the load runs", || cluster.history_count() > 250);
    up.kill_server();
    let said = load.ended(true);
    assert_eq!(acknowledged(&said), 400, "{said}");
    assert_eq!(cluster.history_count(), 600);
    cluster.check();

    // PostgreSQL itself: it has all that it acknowledged.
    let load = cluster.bench(100_000).spawn_heard();
    until("the load runs", || cluster.history_count() > 700);
    cluster.kill(postgres);
    let acked = acknowledged(&load.ended(false));
    let postgres = cluster.start();
    assert!(cluster.history_count() >= 600 + acked);
    cluster.check();

    // The mount: its open files are lost, a new mount has everything.
    let before = cluster.history_count();
    let load = cluster.bench(100_000).spawn_heard();
    until("the load runs", || cluster.history_count() > before + 100);
    kill(up.child("mount"));
    up.process.line_with("mount running again");
    let acked = acknowledged(&load.ended(false));
    cluster.kill(postgres);
    let postgres = cluster.start();
    assert!(cluster.history_count() >= before + acked);
    cluster.check();
    cluster.stop(postgres);
    up.stop();
}

/// A load that runs beside the test.
struct Load(std::thread::JoinHandle<std::process::Output>);

trait SpawnHeard {
    fn spawn_heard(self) -> Load;
}

impl SpawnHeard for Command {
    fn spawn_heard(mut self) -> Load {
        Load(std::thread::spawn(move || run(&mut self)))
    }
}

impl Load {
    /// What it said at its end, which must be a good one or a bad one.
    fn ended(self, well: bool) -> String {
        let output = self.0.join().unwrap();
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.success(), well, "{stdout}{stderr}");
        stdout + &stderr
    }
}
