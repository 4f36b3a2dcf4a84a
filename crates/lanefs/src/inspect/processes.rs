//! The server's end: a thread that starts a process for each inspection and forwards its output.
//!
//! Invariants: a pipe is read only when its client asks, so memory holds at most one reply's bytes of it. A
//! process whose connection has closed is killed. No lane waits for this thread.

use crate::args::{Inspect as Args, InspectWhat};
use anyhow::{Context as _, Result};
use ring::{InspectQueue, InspectRequest, Waker};
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use wire::{Bytes, INSPECTED_BYTES_MAX, Inspect, Inspected, Inspection, LaneId, Status, Wire as _};

/// Inspections at a time.
const COUNT_MAX: usize = 2;
/// The time limit between two requests of a client. Meanwhile its process keeps a snapshot of the rows, and the rows'
/// file grows.
const IDLE_MAX: Duration = Duration::from_mins(10);

/// A connection of a lane.
type Key = (LaneId, interface::ConnId);
/// Starts a process with pipes for its stdin and stdout.
type Spawn = Box<dyn Fn(Inspection) -> io::Result<Child> + Send>;
/// Answers the last question of a connection.
type SendReply = Box<dyn Fn(Key, Status, Box<[u8]>) + Send>;

/// What the thread hears.
enum Input {
    /// From a lane.
    Ask(InspectRequest),
    /// A process has written these bytes; none: it ended.
    Output { number: u64, bytes: Vec<u8> },
}

/// An inspection under way.
struct Running {
    /// Whose it is; `None`: it was killed and has not ended yet.
    key: Option<Key>,
    child: Child,
    stdin: ChildStdin,
    /// Has the pipe read once; when it is dropped, nothing of it is kept any more.
    wants: Option<Sender<()>>,
    /// How many bytes were passed on.
    stream_offset: u64,
    /// Its client waits for bytes.
    asked: bool,
    heard_at: Instant,
}

struct Processes {
    spawn: Spawn,
    reply_to: SendReply,
    idle_max: Duration,
    inputs: Receiver<Input>,
    sender: Sender<Input>,
    /// By number.
    running: BTreeMap<u64, Running>,
    count: u64,
}

/// Starts the thread; returns each lane's request channel.
pub(crate) fn start(store: &Path, wakers: Vec<Waker>) -> Result<Vec<InspectQueue>> {
    let (sender, inputs) = channel();
    let asks = sender.clone();
    // Nobody listens any more when the process is about to end.
    let ask = Arc::new(move |ask| drop(asks.send(Input::Ask(ask))));
    let queues: Vec<InspectQueue> =
        wakers.into_iter().map(|waker| InspectQueue::new(waker, ask.clone())).collect();
    let lanes = queues.clone();
    let reply_to = move |(lane, conn): Key, status, reply| {
        if let Some(queue) = lanes.iter().find(|queue| queue.lane() == lane) {
            queue.reply(conn, status, reply);
        }
    };
    let store = store.to_owned();
    let spawn = Box::new(move |inspection| command(&store, inspection).spawn());
    let (reply_to, running) = (Box::new(reply_to), BTreeMap::new());
    let processes =
        Processes { spawn, reply_to, idle_max: IDLE_MAX, inputs, sender, running, count: 0 };
    // The kernel ties processes to the thread that started them, so this one lives as long as the server.
    let thread = std::thread::Builder::new().name("inspections".to_owned());
    thread.spawn(move || processes.run()).context("cannot start a thread")?;
    Ok(queues)
}

/// The server's own binary, as [`super::child`] has it run.
fn command(store: &Path, inspection: Inspection) -> Command {
    let what = match inspection {
        Inspection::Check { json, skip_contents } => InspectWhat::Check { json, skip_contents },
        Inspection::Dump => InspectWhat::Dump,
        Inspection::Backup { freeze_ms_max } => InspectWhat::Backup { freeze_ms_max },
    };
    let args = Args { store: store.to_owned(), parent_pid: std::process::id(), what };
    let mut command = Command::new("/proc/self/exe");
    command.arg0("lanefs").args(args.texts()).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

impl Processes {
    fn run(mut self) {
        loop {
            let now = Instant::now();
            let idle = self.running.values().filter(|running| running.is_idle());
            let first = idle.map(|running| running.heard_at).min();
            let wait = first.map(|at| self.idle_max.saturating_sub(now.duration_since(at)));
            let input = match wait {
                None => self.inputs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => self.inputs.recv_timeout(wait),
            };
            match input {
                Ok(Input::Ask(InspectRequest { lane, conn, inspect: Some(ask) })) => {
                    self.on_ask((lane, conn), ask);
                }
                Ok(Input::Ask(InspectRequest { lane, conn, inspect: None })) => {
                    self.end((lane, conn))
                }
                Ok(Input::Output { number, bytes }) => self.on_output(number, &bytes),
                Err(RecvTimeoutError::Timeout) => self.end_idle(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn on_ask(&mut self, key: Key, ask: Inspect) {
        let known = self.running.iter_mut().find(|(_, running)| running.key == Some(key));
        let answer = match (ask, known) {
            (Inspect::Start(_), Some(_)) => Err(Status::Invalid),
            (Inspect::Start(inspection), None) => self.start(key, inspection),
            (Inspect::Read { .. } | Inspect::Held, None) => Err(Status::NotFound),
            (Inspect::Read { stream_offset }, Some((_, running))) => {
                if running.stream_offset == stream_offset
                    && let Some(wants) = &running.wants
                    && wants.send(()).is_ok()
                {
                    running.asked = true;
                    return; // Answered when there are bytes.
                }
                Err(Status::Invalid)
            }
            (Inspect::Held, Some((_, running))) => {
                running.heard_at = Instant::now();
                // It does not block: a client that says it too often is not let in.
                running.stdin.write_all(&[1]).map_err(|_| Status::Invalid)
            }
        };
        match answer {
            Ok(()) => (self.reply_to)(key, Status::Ok, reply(false, &[])),
            Err(status) => (self.reply_to)(key, status, Box::default()),
        }
    }

    fn start(&mut self, key: Key, inspection: Inspection) -> Result<(), Status> {
        if self.running.len() >= COUNT_MAX {
            return Err(Status::Busy);
        }
        let what = name_of(inspection);
        let number = self.count;
        self.count += 1;
        match (self.spawn)(inspection).and_then(|child| self.keep(child, (number, key))) {
            Ok(pid) => {
                info!(pid, "process {pid} reads the store for a client: {what}");
                Ok(())
            }
            Err(error) => {
                warn!("cannot start a process that reads the store for a client: {error}");
                Err(Status::Io)
            }
        }
    }

    fn keep(&mut self, mut child: Child, (number, key): (u64, Key)) -> io::Result<u32> {
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(io::Error::other("it has no pipes"));
        };
        let (wants, wanted) = channel();
        let sender = self.sender.clone();
        let thread = std::thread::Builder::new().name("inspection".to_owned());
        let ready = set_nonblocking(&stdin)
            .and_then(|()| thread.spawn(move || read(stdout, &wanted, (number, &sender))));
        if let Err(error) = ready {
            kill(&mut child);
            return Err(error);
        }
        let pid = child.id();
        let (wants, heard_at) = (Some(wants), Instant::now());
        let (key, asked) = (Some(key), false);
        let running = Running { key, child, stdin, wants, stream_offset: 0, asked, heard_at };
        self.running.insert(number, running);
        Ok(pid)
    }

    fn on_output(&mut self, number: u64, bytes: &[u8]) {
        let Some(running) = self.running.get_mut(&number) else { return };
        if bytes.is_empty() {
            let key = running.key;
            self.reap(number);
            if let Some(key) = key {
                (self.reply_to)(key, Status::Ok, reply(true, &[]));
            }
            return;
        }
        let Some(key) = running.key else { return };
        running.asked = false;
        running.heard_at = Instant::now();
        running.stream_offset += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        (self.reply_to)(key, Status::Ok, reply(false, bytes));
    }

    /// A process has closed its stdout: it has ended, or is about to.
    fn reap(&mut self, number: u64) {
        let Some(Running { mut child, key, .. }) = self.running.remove(&number) else { return };
        let pid = child.id();
        let status = child.try_wait().and_then(|ended| match ended {
            Some(status) => Ok(status),
            None => {
                child.kill()?;
                child.wait()
            }
        });
        match status {
            Ok(status) if status.success() || key.is_none() => {}
            Ok(status) => {
                warn!(
                    pid,
                    "process {pid}, which read the store for a client, ended early: {status}"
                );
            }
            Err(error) => warn!(pid, "cannot learn how process {pid} ended: {error}"),
        }
    }

    /// A connection has closed.
    fn end(&mut self, key: Key) {
        let of_key = self.running.values_mut().filter(|running| running.key == Some(key));
        of_key.for_each(Running::kill);
    }

    /// Ends processes whose clients exceeded the time limit.
    fn end_idle(&mut self) {
        let (now, idle_max) = (Instant::now(), self.idle_max);
        let is_over = |running: &&mut Running| {
            running.is_idle() && now.duration_since(running.heard_at) >= idle_max
        };
        for running in self.running.values_mut().filter(is_over) {
            let pid = running.child.id();
            warn!("a client has not asked for {idle_max:?} what process {pid} found: it is ended");
            running.kill();
        }
    }
}

impl Running {
    /// Whether its client is the one to do something.
    const fn is_idle(&self) -> bool {
        self.key.is_some() && !self.asked
    }

    /// Kills it; it is waited for when its pipe is at its end.
    fn kill(&mut self) {
        self.key = None;
        self.wants = None;
        if let Err(error) = self.child.kill() {
            warn!("cannot kill process {}: {error}", self.child.id());
        }
    }
}

/// Reads a process's stdout: once each time that it is wanted, and to its end when nothing is wanted any more.
fn read(mut stdout: ChildStdout, wanted: &Receiver<()>, (number, sender): (u64, &Sender<Input>)) {
    let mut buffer = vec![0; INSPECTED_BYTES_MAX];
    loop {
        let is_wanted = wanted.recv().is_ok();
        // What cannot be read is at its end.
        let read = stdout.read(&mut buffer).unwrap_or(0);
        if read == 0 {
            // Nobody listens any more when the server is about to end.
            let _unheard = sender.send(Input::Output { number, bytes: Vec::new() });
            return;
        }
        if is_wanted {
            let bytes = buffer[..read].to_vec();
            let _unheard = sender.send(Input::Output { number, bytes });
        }
    }
}

fn set_nonblocking(stdin: &ChildStdin) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(stdin)?;
    Ok(rustix::fs::fcntl_setfl(stdin, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Ends a process without a reader.
fn kill(child: &mut Child) {
    if let Err(error) = child.kill().and_then(|()| child.wait()) {
        warn!("cannot kill process {}: {error}", child.id());
    }
}

fn reply(end: bool, bytes: &[u8]) -> Box<[u8]> {
    Inspected { end, bytes: Bytes(bytes) }.to_bytes().into()
}

const fn name_of(inspection: Inspection) -> &'static str {
    match inspection {
        Inspection::Check { .. } => "check",
        Inspection::Dump => "dump",
        Inspection::Backup { .. } => "backup",
    }
}

#[cfg(test)]
mod tests;
