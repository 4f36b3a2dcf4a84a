//! What every test stands on: folders of its own, the binary, and processes that are ended
//! whatever happens.

use ring::{DriverChoice, DriverKind};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take before a test gives up; never how long a test waits. A disk of 3 MB/s needs
/// minutes for what some tests write.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The same for whole programs: a tree is unpacked, a language's own tests run.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(1800);

/// The same for the end of what a failed test leaves running.
const FAILED_PATIENCE: Duration = Duration::from_secs(10);

/// Lines of each process and each log that a failed test shows.
const SHOWN_COUNT: usize = 40;

/// What picks the drivers and leases of each test, as a number.
const ROLL: &str = "LANEFS_TEST_ROLL";

/// The binary that is tested: `LANEFS_BINARY`, else that which cargo built with these tests.
pub(crate) fn binary() -> OsString {
    std::env::var_os("LANEFS_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_lanefs").into())
}

/// Says that a test was left out, and why.
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("{test}: {reason}\n");
    eprint!("SKIPPED {line}");
    if let Some(file) = std::env::var_os("LANEFS_SKIPPED_FILE") {
        let mut options = fs::OpenOptions::new();
        let file = options.append(true).create(true).mode(0o644).open(file);
        file.unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// The drivers of what a test starts, unless a command line names others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Drivers {
    /// Of servers and benchmarks.
    pub(crate) server: DriverKind,
    pub(crate) mount: DriverKind,
}

impl Drivers {
    /// Opposite ones; which is which follows from the test's name and from [`ROLL`]. Where io_uring
    /// cannot be used or `LANEFS_DRIVER` is set, both are the one that this leaves.
    fn of(test: &str) -> Self {
        let found = DriverChoice::Auto.find().unwrap().kind;
        let asked = std::env::var("LANEFS_DRIVER").ok();
        let named = DriverKind::ALL.into_iter().find(|kind| asked.as_deref() == Some(kind.text()));
        if asked.is_some() || found == DriverKind::Epoll {
            let kind = named.unwrap_or(found);
            return Self { server: kind, mount: kind };
        }
        let drivers = Self { server: DriverKind::IoUring, mount: DriverKind::Epoll };
        if hash(test).wrapping_add(roll()).is_multiple_of(2) { drivers } else { drivers.swapped() }
    }

    fn swapped(self) -> Self {
        Self { server: self.mount, mount: self.server }
    }
}

/// Whether a test's mounts cache, unless a command line says so: the test's name and [`ROLL`] choose,
/// apart from the drivers. `LANEFS_LEASES` decides for all.
fn leases_of(test: &str) -> OsString {
    let of_name =
        if (hash(test) / 2).wrapping_add(roll()).is_multiple_of(2) { "on" } else { "off" };
    std::env::var_os("LANEFS_LEASES").unwrap_or_else(|| of_name.into())
}

/// Whether a test is among one of `of`, by its name and [`ROLL`].
pub(crate) fn chosen(test: &str, of: u64) -> bool {
    (hash(test) / 4).wrapping_add(roll()).is_multiple_of(of)
}

/// Whether etcd is installed; if not, says that a part of a test is left out.
pub(crate) fn has_etcd(test: &str) -> bool {
    let is_installed = program("etcd").arg("--version").output().is_ok();
    if !is_installed {
        skip(test, "needs etcd (Debian's etcd-server)");
    }
    is_installed
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The number that this run's choices follow from.
pub(crate) fn roll() -> u64 {
    std::env::var(ROLL).map_or(0, |text| text.parse().expect(ROLL))
}

/// Why requests of the kernel cannot come over io_uring to lanes on this driver, if that is so.
pub(crate) fn no_fuse_over_io_uring(driver: DriverKind) -> Option<&'static str> {
    match fs::read_to_string("/sys/module/fuse/parameters/enable_uring") {
        Err(_) => Some("this kernel has no FUSE over io_uring (before 6.14)"),
        Ok(_) if driver == DriverKind::Epoll => Some("lanes are on epoll in this run"),
        Ok(switch) if switch.starts_with('Y') => None,
        Ok(_) => Some("enable_uring is off (`cargo xtask ci` turns it on)"),
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where a program runs.
pub(crate) trait Place {
    /// The same program, there.
    fn inside(&self, command: Command) -> Command;
}

/// `command` as the last arguments of `outer`, which runs it in the environment that it names.
pub(crate) fn wrap(mut outer: Command, command: Command) -> Command {
    outer.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Runs what is behind it without the right to mount.
pub(crate) fn without_right_to_mount() -> Command {
    let mut setpriv = program("setpriv");
    setpriv.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
    setpriv
}

/// Where this process is.
struct Everywhere;

impl Place for Everywhere {
    fn inside(&self, command: Command) -> Command {
        command
    }
}

/// The folders of one test.
pub(crate) struct Fixture {
    folder: TempDir,
    /// Where processes say what they are.
    running: TempDir,
    pub(crate) drivers: Drivers,
    leases: OsString,
}

impl Fixture {
    /// `None`, said aloud, where this machine or user cannot mount.
    pub(crate) fn new(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip(test, "needs root, to mount and to be several users");
            return None;
        }
        if fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
            skip(test, "needs /dev/fuse");
            return None;
        }
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = tempfile::Builder::new().prefix(test).tempdir_in(place).unwrap();
        // Other users shall be able to reach the mounts below.
        let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(folder.path(), open).unwrap();
        let running = tempfile::Builder::new().prefix("running").tempdir_in(place).unwrap();
        Some(Self { folder, running, drivers: Drivers::of(test), leases: leases_of(test) })
    }

    /// Whether this test's mounts have leases.
    pub(crate) fn caches(&self) -> bool {
        self.leases == "on"
    }

    /// The same with mounts on io_uring, if servers or mounts are.
    pub(crate) fn mounting_on_io_uring(mut self) -> Self {
        if self.drivers.mount == DriverKind::Epoll {
            self.drivers = self.drivers.swapped();
        }
        self
    }

    /// Where this test's processes say what they are.
    pub(crate) fn running_dir(&self) -> &Path {
        self.running.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn make_dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// The binary, with this test's configuration folder and drivers.
    pub(crate) fn lanefs<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).stdin(Stdio::null());
        command.env("XDG_CONFIG_HOME", self.path("config")).env_remove("LANEFS_SECRET_FILE");
        command.env("LANEFS_RUN_DIR", self.running.path());
        for foreign in ["RUST_LOG", "NOTIFY_SOCKET", "JOURNAL_STREAM"] {
            command.env_remove(foreign);
        }
        command.env("LANEFS_LEASES", &self.leases);
        let Drivers { server, mount } = self.drivers;
        let is_mount = command.get_args().next().is_some_and(|name| name == "mount");
        command.env("LANEFS_DRIVER", if is_mount { mount } else { server }.text());
        command.env("LANEFS_MOUNT_DRIVER", mount.text());
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        run(&mut self.lanefs(arguments))
    }

    /// `lanefs up` on `mnt`, running.
    pub(crate) fn up(&self, more: &[&str]) -> Up {
        self.up_on("mnt", more)
    }

    pub(crate) fn up_on(&self, name: &str, more: &[&str]) -> Up {
        self.up_in(&Everywhere, name, &[&["--listen", "127.0.0.1:0"], more].concat())
    }

    pub(crate) fn up_in(&self, place: &impl Place, name: &str, more: &[&str]) -> Up {
        let dir = self.path(name);
        let mut command = self.lanefs(["up"]);
        command.arg(&dir).args(more);
        let mut process = Process::start(&mut place.inside(command));
        let address = process.line_with("address ").replace("address ", "");
        process.line_with("stop ");
        Up { process, address, dir }
    }

    /// `lanefs up` on `mnt` without the right to mount, serving.
    pub(crate) fn up_without_mount(&self) -> Up {
        let dir = self.path("mnt");
        let mut command = self.lanefs(["up", "--listen", "127.0.0.1:0"]);
        command.arg(&dir);
        let mut process = Process::start(&mut wrap(without_right_to_mount(), command));
        let address = process.line_with("address ").replace("address ", "");
        process.line_with("stop ");
        Up { process, address, dir }
    }

    /// `lanefs serve` of `store` on `listen`, running.
    pub(crate) fn serve(&self, listen: &str) -> Server {
        self.serve_with(listen, &[])
    }

    pub(crate) fn serve_with(&self, listen: &str, more: &[&str]) -> Server {
        // Who serves again on the same address must find it free, whatever others listen on or connect from.
        let listen = if listen == "127.0.0.1:0" { own_address() } else { listen.to_owned() };
        let mut command = self.lanefs(["serve", "--export", "up=no-root-squash"]);
        command.arg("--store").arg(self.path("store")).args(["--listen", &listen]).args(more);
        let mut process = Process::start(&mut command);
        let line = process.line_with("listening on ");
        let address = line.trim_start_matches("listening on ").split(',').next().unwrap();
        Server { address: address.to_owned(), process }
    }

    /// `lanefs mount`, mounted.
    pub(crate) fn mount(&self, address: &str, name: &str, more: &[&str]) -> Mount {
        self.mount_in(&Everywhere, address, name, more)
    }

    pub(crate) fn mount_in(
        &self,
        place: &impl Place,
        address: &str,
        name: &str,
        more: &[&str],
    ) -> Mount {
        let dir = self.make_dir(name);
        let mut command = self.lanefs(["mount", address]);
        command.arg(&dir).args(more);
        let mut process = Process::start(&mut place.inside(command));
        process.line_with("mounted ");
        Mount { process, dir }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let Drivers { server, mount } = self.drivers;
        let (server, mount) = (server.name(), mount.name());
        let leases = self.leases.display();
        eprintln!(
            "-- server on {server}, mount on {mount}, leases {leases}: again with {ROLL}={}",
            roll()
        );
        // Names alone: a mount that is left would not answer.
        let entries = fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        eprintln!("-- left: {paths:?}");
        for log in paths.iter().filter(|path| path.extension().is_some_and(|it| it == "log")) {
            let text = fs::read(log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            show(&log.file_name().unwrap_or_default().to_string_lossy(), &lines);
        }
    }
}

/// A port of an address of loopback that no other test uses.
pub(crate) fn own_address() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id().wrapping_mul(4) + COUNT.fetch_add(1, Ordering::Relaxed);
    let [_, a, b, c] = number.to_be_bytes();
    format!("127.{a}.{b}.{c}:0")
}

/// Writes the last of some lines to stderr, each with the name of who said it.
fn show(name: &str, lines: &[impl AsRef<str>]) {
    for line in &lines[lines.len().saturating_sub(SHOWN_COUNT)..] {
        eprintln!("{name}: {}", line.as_ref());
    }
}

/// Runs a command to its end; one that hangs is killed and fails the test.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pid = Pid::from_child(&child);
    let (done, finished) = channel();
    let waiting = std::thread::spawn(move || {
        let output = child.wait_with_output().unwrap();
        done.send(()).ok();
        output
    });
    if finished.recv_timeout(PROGRAM_PATIENCE).is_err() {
        kill_process(pid, Signal::KILL).ok();
        // Its children may hold its output open.
        let said = finished.recv_timeout(FAILED_PATIENCE).map(|()| texts(&waiting.join().unwrap()));
        panic!("not within {PROGRAM_PATIENCE:?}: {command:?}; it said {said:#?}");
    }
    waiting.join().unwrap()
}

/// Runs a command that must succeed; returns its stdout.
#[track_caller]
pub(crate) fn must(command: &mut Command) -> String {
    let output = run(command);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    stdout
}

/// stdout and stderr.
pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The exit code and stderr of a run.
pub(crate) fn failure(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), texts(output).1)
}

/// A running program whose lines, of stdout and stderr together, can be waited for.
pub(crate) struct Process {
    child: Child,
    /// As it was started.
    command: String,
    lines: Receiver<String>,
    said: Vec<String>,
    /// How it was found at the end of the test.
    found: Option<String>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let command = format!("{command:?}");
        let (line_sender, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let line_sender = line_sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    if line_sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, command, lines, said: Vec::new(), found: None }
    }

    /// What it reads, if that was to be a pipe; once.
    pub(crate) fn orders(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that contains `part`, among those not waited for yet.
    #[track_caller]
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.contains(part) {
                        return line;
                    }
                }
                // What it said instead is shown when it is dropped.
                Err(error) => panic!("{}: no line with {part:?}: {error}", self.name()),
            }
        }
    }

    /// Sends a signal. A process that is to stop has stopped then: until then its threads that are on
    /// another CPU go on, so that a mount may still give up its leases.
    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).ok();
        if signal == Signal::STOP {
            until("the process stops", || self.has_stopped());
        }
    }

    /// Whether no thread can run. One that waits in the kernel (`D`) stops before it leaves it.
    fn has_stopped(&self) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid())) else { return true };
        let stats =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
        let states = stats.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next());
        states.into_iter().all(|state| !matches!(state, 'R' | 'S'))
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn end(&mut self) -> ExitStatus {
        let mut status = None;
        until("the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        self.said.extend(self.lines.iter());
        status.unwrap()
    }

    /// The next line that it has said, of those not waited for yet.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        let line = self.lines.try_recv().ok()?;
        self.said.push(line.clone());
        Some(line)
    }

    /// Everything it said; after its end.
    pub(crate) fn said(&self) -> String {
        self.said.join("\n")
    }
}

impl Process {
    /// A name for it that is short: the binary's command, else the program's own.
    fn name(&self) -> String {
        let words: Vec<&str> = self.command.split('"').collect();
        let binary = binary();
        let at = words.iter().position(|word| OsStr::new(word) == binary);
        let name = at.and_then(|at| words.get(at + 2)).or_else(|| words.get(1)).unwrap_or(&"");
        format!("{name} {}", self.pid())
    }

    /// Waits for the end as long as is worth waiting.
    pub(crate) fn linger(&mut self) {
        let failed = std::thread::panicking();
        let deadline = Instant::now() + if failed { FAILED_PATIENCE } else { PATIENCE };
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it if it runs; for a failed test, prints its command and output.
    fn finish(&mut self) {
        if self.found.is_some() {
            return;
        }
        let status = self.child.try_wait().unwrap();
        let found = status.map_or("still running".to_owned(), |status| status.to_string());
        self.found = Some(found.clone());
        if status.is_none() {
            self.signal(Signal::TERM);
            self.linger();
            self.signal(Signal::KILL);
            self.child.wait().ok();
        }
        if std::thread::panicking() {
            // Its children may hold its output open.
            while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(500)) {
                self.said.push(line);
            }
            eprintln!("-- {}: {found}: {}", self.name(), self.command);
            show(&self.name(), &self.said);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Takes a mount away that a failed test left behind.
fn clear(dir: &Path) {
    while is_mounted(dir) && ring_unmount(dir) {}
}

fn ring_unmount(dir: &Path) -> bool {
    rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH).is_ok()
}

/// Whether something is mounted exactly there. Never asks the mount itself.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    mounted(dir).is_some()
}

/// The topmost mount exactly there.
pub(crate) fn mounted(dir: &Path) -> Option<ring::Mounted> {
    ring::mount_table(None).unwrap().into_iter().rfind(|mounted| mounted.point == dir)
}

/// A running `lanefs up`.
pub(crate) struct Up {
    pub(crate) process: Process,
    pub(crate) address: String,
    pub(crate) dir: PathBuf,
}

impl Up {
    /// The process id of its `serve` or `mount`.
    #[track_caller]
    pub(crate) fn child(&self, command: &str) -> u32 {
        let mut found = None;
        until("up has its child", || {
            found = child_of(self.process.pid(), command);
            found.is_some()
        });
        found.unwrap()
    }

    /// Kills its server with -9 and waits until the next one runs.
    #[track_caller]
    pub(crate) fn kill_server(&mut self) {
        kill(self.child("serve"));
        self.process.line_with("server running again");
    }

    /// Ends it in order.
    #[track_caller]
    pub(crate) fn stop(mut self) -> String {
        self.process.signal(Signal::TERM);
        let status = self.process.end();
        let said = self.process.said();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(!is_mounted(&self.dir), "still mounted\n{said}");
        said
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("lanefs://{}{path}", self.address)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.process.finish();
        clear(&self.dir);
    }
}

/// A running `lanefs serve`.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: String,
}

/// A running `lanefs mount`.
pub(crate) struct Mount {
    pub(crate) process: Process,
    pub(crate) dir: PathBuf,
}

impl Mount {
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.process.signal(Signal::TERM);
        let status = self.process.end();
        assert_eq!(status.code(), Some(0), "{}", self.process.said());
        assert!(!is_mounted(&self.dir), "still mounted");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.process.finish();
        clear(&self.dir);
    }
}

/// Kills a process with -9.
pub(crate) fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// Whether a process lives (a zombie does not).
pub(crate) fn is_alive(pid: u32) -> bool {
    state_of(pid).is_some_and(|state| state != 'Z')
}

/// The state of a process, as in `/proc/PID/stat`.
pub(crate) fn state_of(pid: u32) -> Option<char> {
    Some(proc_of(pid).ok()?.stat().ok()?.state)
}

/// The child of a process that runs this command of the binary.
pub(crate) fn child_of(parent: u32, command: &str) -> Option<u32> {
    let parent = i32::try_from(parent).unwrap();
    let mut processes = procfs::process::all_processes().unwrap().flatten();
    let found = processes.find(|process| {
        process.stat().is_ok_and(|stat| stat.ppid == parent)
            && process.cmdline().is_ok_and(|line| line.get(1).is_some_and(|word| word == command))
    });
    found.map(|process| process.pid().unsigned_abs())
}

/// What `/proc` has of a process.
pub(crate) fn proc_of(pid: u32) -> procfs::ProcResult<procfs::process::Process> {
    procfs::process::Process::new(i32::try_from(pid).unwrap())
}

/// Bytes of memory that a process has now.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    proc_of(pid).unwrap().statm().unwrap().resident * procfs::page_size()
}

/// A command by name.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    command
}
