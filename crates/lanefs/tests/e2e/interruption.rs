//! Whatever call a program sits in while the server says nothing, it can be killed and interrupted;
//! and the mount can be taken away under it.

use crate::fixture::{Fixture, Mount, PATIENCE, Process, Server, is_mounted, kill, program, until};
use rustix::process::Signal;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Opens what the calls need, waits for a line, and makes one call; one that a cache may answer is
/// made until the cache has run dry.
const CALLER: &str = r#"
import mmap, os, sys, signal
os.chdir(sys.argv[1]); call = sys.argv[2]; me = str(os.getpid())
if sys.argv[3] == 'default': signal.signal(signal.SIGINT, signal.SIG_DFL)
fd = os.open('file', os.O_RDWR)
if call == 'synced': fresh = os.open('fresh', os.O_RDWR | os.O_CREAT)
if call == 'removed': os.stat('old')
def mapped():
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    with mmap.mmap(fd, 4096) as mapping: mapping[0]
def read():
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(fd, 100, 0)
def execute():
    try: os.execv('./file', ['file'])
    except PermissionError: pass
again = {
    'stat': lambda: os.stat('file'),
    'fstat': lambda: os.fstat(fd),
    'open': lambda: os.close(os.open('file', os.O_RDONLY)),
    'read': read,
    'readdir': lambda: os.listdir('many'),
    'statfs': lambda: os.statvfs('.'),
    'chdir': lambda: os.chdir('../' + call),
    'access': lambda: os.access('file', os.W_OK) or sys.exit('refused'),
    'mapped': mapped,
    'exec': execute,
}
sys.stdout.write('ready\n'); sys.stdout.flush(); sys.stdin.readline()
while call in again: again[call]()
if call == 'create': os.open('new' + me, os.O_WRONLY | os.O_CREAT)
if call == 'write': os.pwrite(fd, b'x' * 100, 0)
if call == 'largewrite': os.pwrite(fd, b'x' * 5000000, 0)
if call == 'fsync': os.pwrite(fd, b'x', 0); os.fsync(fd)
if call == 'rename': os.rename('old', 'other' + me)
if call == 'unlink': os.unlink('old')
if call == 'mkdir': os.mkdir('dir' + me)
if call == 'symlink': os.symlink('x', 'link' + me)
if call == 'truncate': os.ftruncate(fd, 5)
if call == 'chmod': os.chmod('file', 0o600)
if call == 'setxattr': os.setxattr('file', 'user.a', b'x')
# With leases the mount answers the first of both, and the second waits for what it has under way.
if call == 'synced': os.write(fresh, b'x'); os.fsync(fresh)
if call == 'removed': os.open('old', os.O_RDONLY); os.unlink('old')
if call == 'close':
    os.close(fd)
    while True: os.stat('file')
"#;

const CALLS: [&str; 24] = [
    "stat",
    "fstat",
    "open",
    "create",
    "read",
    "write",
    "largewrite",
    "fsync",
    "rename",
    "unlink",
    "mkdir",
    "symlink",
    "readdir",
    "truncate",
    "chmod",
    "setxattr",
    "statfs",
    "chdir",
    "exec",
    "access",
    "mapped",
    "close",
    "synced",
    "removed",
];

/// A server that can be made to say nothing, and a mount of it. Another mount has made what is there:
/// in directories of its own it creates and removes names without waiting.
fn begin(fixture: &Fixture) -> (Server, Mount) {
    let server = fixture.serve("127.0.0.1:0");
    let mount_at = |name| fixture.mount(&server.address, name, &["--export", "up"]);
    let maker = mount_at("maker");
    // Each has its own: the kernel lets nobody past who waits for the same directory.
    for call in CALLS {
        let home = maker.dir.join(call);
        fs::create_dir_all(home.join("many")).unwrap();
        fs::write(home.join("file"), "x".repeat(8192)).unwrap();
        fs::write(home.join("old"), "").unwrap();
    }
    maker.stop();
    let mount = mount_at("mnt");
    (server, mount)
}

struct Caller {
    call: &'static str,
    process: Process,
    go: std::io::PipeWriter,
}

impl Caller {
    fn start(dir: &Path, call: &'static str, on_interrupt: &str) -> Self {
        let (theirs, go) = std::io::pipe().unwrap();
        let mut command = program("python3");
        command.args(["-c", CALLER]).arg(dir.join(call)).args([call, on_interrupt]).stdin(theirs);
        Self { call, process: Process::start(&mut command), go }
    }

    /// Waits until it sits in a call to the mount that nothing answers: no switch of its process has
    /// followed that to the call for a while. A signal that it handles between two calls would not
    /// end the second one.
    fn sits_down(&mut self) {
        const LOOK_COUNT: u32 = 20;
        let (mut switches, mut look_count) = (String::new(), 0);
        until(self.call, || {
            assert!(!self.process.has_ended(), "{} had an answer", self.call);
            let stack = self.seen("stack");
            let before = std::mem::replace(&mut switches, self.switches());
            let sits = stack.contains("fuse") || stack.contains("folio_");
            look_count = if sits && before == switches { look_count + 1 } else { 0 };
            look_count == LOOK_COUNT
        });
    }

    /// How often its process has waited and was interrupted, and whether it runs.
    fn switches(&self) -> String {
        let status = self.seen("status");
        let says = |line: &&str| line.contains("ctxt_switches") || line.starts_with("State");
        status.lines().filter(says).collect()
    }

    /// What the kernel says of its process.
    fn seen(&self, what: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{what}", self.process.pid())).unwrap_or_default()
    }

    /// Waits for the end of its process, and says where it sits if that does not come.
    fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && !self.process.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(
            self.process.has_ended(),
            "{} goes on: {}\n{}\n{}",
            self.call,
            self.process.said(),
            self.seen("stack"),
            self.seen("status")
        );
        self.process.end()
    }
}

/// Those whose signal ends their process, or also those that handle it. The kernel lets no handled
/// signal end the wait of a page fault.
fn callers(dir: &Path, on_interrupt: &str) -> Vec<Caller> {
    let ends = |call: &str| on_interrupt == "default" || call != "mapped";
    let calls = CALLS.iter().filter(|call| ends(call));
    let mut callers: Vec<Caller> =
        calls.map(|call| Caller::start(dir, call, on_interrupt)).collect();
    for caller in &mut callers {
        caller.process.line_with("ready");
    }
    callers
}

/// Lets all of them call a server that says nothing.
fn sit_down(server: &Server, callers: &mut [Caller]) {
    stop(server);
    for caller in &mut *callers {
        caller.go.write_all(b"\n").unwrap();
    }
    callers.iter_mut().for_each(Caller::sits_down);
}

/// Not one of its threads runs any more; the signal alone does not wait for that.
fn stop(server: &Server) {
    server.process.signal(Signal::STOP);
    let tasks = format!("/proc/{}/task", server.process.pid());
    let state = |task: &Path| fs::read_to_string(task.join("status")).unwrap_or_default();
    until("the server stands still", || {
        let mut tasks = fs::read_dir(&tasks).unwrap();
        tasks.all(|task| state(&task.unwrap().path()).contains("State:\tT"))
    });
}

fn every_call_ends_by(test: &str, signal: Signal, on_interrupt: &str) {
    let Some(fixture) = Fixture::new(test) else { return };
    let (server, mount) = begin(&fixture);
    let mut callers = callers(&mount.dir, on_interrupt);
    sit_down(&server, &mut callers);
    for caller in &mut callers {
        caller.process.signal(signal);
    }
    for caller in &mut callers {
        let status = caller.end();
        let by_it = status.signal() == Some(signal.as_raw());
        assert!(by_it, "{}: {status} {}", caller.call, caller.process.said());
    }
    server.process.signal(Signal::CONT);
    fs::write(mount.dir.join("after"), "x").unwrap();
    assert_eq!(fs::metadata(mount.dir.join("after")).unwrap().len(), 1);
    mount.stop();
}

#[test]
fn every_call_can_be_killed() {
    every_call_ends_by("death_kill", Signal::KILL, "default");
}

#[test]
fn every_call_can_be_interrupted() {
    every_call_ends_by("death_int", Signal::INT, "default");
}

/// Python handles SIGINT, raises an exception and then ends itself by the same signal.
#[test]
fn a_handled_interrupt_ends_a_call_as_well() {
    every_call_ends_by("death_handled", Signal::INT, "handled");
}

#[test]
fn programs_with_timers_are_never_interrupted() {
    const SCRIPT: &str = "import ctypes,os,signal,sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
count = [0]
def on_alarm(*_): count[0] += 1
signal.signal(signal.SIGALRM, on_alarm)
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
def must(call, *args):
    result = getattr(libc, call)(*args)
    assert result >= 0, (call, os.strerror(ctypes.get_errno()))
    return result
data = ctypes.create_string_buffer(b'x' * 300000)
for n in range(60):
    name, other = b'f%d' % n, b'g%d' % n
    must('mkdir', name, 0o755); must('rename', name, other); must('rmdir', other)
    fd = must('open', name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    assert must('pwrite', fd, data, 300000, 0) == 300000
    assert must('pread', fd, data, 300000, 0) == 300000
    must('fsync', fd); must('ftruncate', fd, 5); must('close', fd)
    must('chmod', name, 0o600); must('unlink', name)
signal.setitimer(signal.ITIMER_REAL, 0)
assert count[0] > 0
print('alarms', count[0])
";
    let Some(fixture) = Fixture::new("death_timer") else { return };
    let mut up = fixture.up(&[]);
    let mut script = program("python3");
    let mut script = Process::start(script.args(["-c", SCRIPT]).arg(&up.dir));
    up.kill_server();
    let status = script.end();
    assert!(status.success(), "{}", script.said());
    up.stop();
}

/// Stores to a mapped page and has it written back.
const STORER: &str = "import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
with mmap.mmap(fd, 4096) as mapping:
    mapping[0] = mapping[4095]
    sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.readline()
    mapping[0:4096] = b'y' * 4096
    mapping.flush()
";

/// The kernel drops a page whose write-back fails, and tells nobody who reads it. No process waits for
/// a write-back, so there is none whose end could end it.
#[test]
fn what_was_stored_through_a_mapping_waits_for_a_server_that_is_away() {
    /// Longer than lanes over io_uring wait before they look at the processes of requests.
    const AWAY: Duration = Duration::from_secs(3);
    let Some(fixture) = Fixture::new("death_mapped") else { return };
    let fixture = fixture.mounting_on_io_uring();
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    let file = mount.dir.join("file");
    fs::write(&file, "x".repeat(4096)).unwrap();
    let (theirs, mut go) = std::io::pipe().unwrap();
    let mut storer = program("python3");
    let mut storer = Process::start(storer.args(["-c", STORER]).arg(&file).stdin(theirs));
    storer.line_with("ready");
    stop(&server);
    go.write_all(b"\n").unwrap();
    let stack = format!("/proc/{}/stack", storer.pid());
    until("it waits for the server", || {
        let stack = fs::read_to_string(&stack);
        stack.is_ok_and(|stack| stack.contains("fuse") || stack.contains("folio_"))
    });
    std::thread::sleep(AWAY);
    server.process.signal(Signal::CONT);
    assert!(storer.end().success(), "{}", storer.said());
    assert_eq!(fs::read_to_string(&file).unwrap(), "y".repeat(4096));
    mount.stop();
}

/// Ctrl-C of a mount whose programs sit in calls, while its server says nothing.
#[test]
fn a_mount_is_taken_away_under_programs_that_wait() {
    let Some(fixture) = Fixture::new("death_mount") else { return };
    let (server, mut mount) = begin(&fixture);
    let mut callers = callers(&mount.dir, "default");
    sit_down(&server, &mut callers);
    mount.process.signal(Signal::INT);
    until("it is out of the tree", || !is_mounted(&mount.dir));
    for caller in &mut callers {
        let status = caller.process.end();
        assert!(!status.success(), "{} had no answer", caller.call);
    }
    server.process.signal(Signal::CONT);
    assert_eq!(mount.process.end().code(), Some(0), "{}", mount.process.said());
    assert_eq!(fs::read_dir(&mount.dir).unwrap().count(), 0, "the directory below is bare");
}

/// The same with a server that never comes back.
#[test]
fn a_mount_of_a_dead_server_is_taken_away_under_programs_that_wait() {
    let Some(fixture) = Fixture::new("death_server") else { return };
    let (mut server, mut mount) = begin(&fixture);
    let mut callers = callers(&mount.dir, "default");
    sit_down(&server, &mut callers);
    kill(server.process.pid());
    server.process.end();
    mount.process.signal(Signal::INT);
    until("it is out of the tree", || !is_mounted(&mount.dir));
    for caller in &mut callers {
        assert!(!caller.process.end().success(), "{} had no answer", caller.call);
    }
    drop(fixture.serve(&server.address));
    mount.process.end();
    assert!(!is_mounted(&mount.dir));
}
