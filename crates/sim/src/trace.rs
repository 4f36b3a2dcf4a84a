//! Traces: a few calls in a fixed order with random timing. They reach orders that random calls
//! rarely reach.

use crate::cluster::Machine;
use crate::due::{ClientLaneId, Due, End, Place};
use crate::simulation::Simulation;
use crate::work::{CallSpec, NameNo, Tag};
use wire::{ClearPrivileges, InodeNo, OpenFor};

/// A step of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TraceStep {
    /// A client lane begins a call.
    Call(ClientLaneId, TraceCall),
    /// Waits until the last call is answered.
    Answered,
    /// Waits until no lane has work to do and everything is durable.
    Idle,
    /// Waits for about so many nanoseconds.
    Wait(u64),
    /// Delays the frames to a client lane on its present connections by about so many nanoseconds.
    Delay(ClientLaneId, u64),
    /// Holds back what a client lane sends on its present connections for so many nanoseconds, and a
    /// little more.
    Hold(ClientLaneId, u64),
    /// A client and the server with the first stripe of the file lose each other for about so many
    /// nanoseconds.
    LoseContents(usize, u64),
    /// The servers with the first two stripes of the file do.
    LoseParts(u64),
    /// The program dies whose call was begun last.
    KillProgram,
    /// The server with the second stripe of the file dies.
    CrashPart,
    /// A client process dies, and is started again as another client.
    Replace(usize),
    /// A client process dies.
    KillClient(usize),
    /// The server process dies.
    CrashServer,
}

/// A call of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TraceCall {
    /// Makes a directory in the root. `In::Dir` is the last one made.
    Mkdir(NameNo),
    Rmdir(NameNo),
    Create(In, NameNo),
    Unlink(In, NameNo),
    /// Of the root.
    Getattr,
    /// Makes a file in the root, and opens it for writing.
    CreateOpen(NameNo),
    /// Opens the last file that the trace made for writing.
    Open,
    /// Writes 100 bytes to its end.
    Append,
    /// Writes this value to 100 bytes of it.
    Write(u64, u8),
    /// Reads 200 bytes of it.
    Read(u64),
    /// Makes it so long. The client has it open.
    Cut(u64),
    /// Looks at its attributes.
    Look,
    /// Closes the file that the client has open.
    Close,
}

/// A directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum In {
    Root,
    /// The last directory that the trace made.
    Dir,
}

/// The position in the trace.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct TraceProgress {
    count: usize,
    /// How often the present step has waited.
    waited_count: u64,
    last: Option<Tag>,
    dir: Option<Tag>,
    file: Option<Tag>,
}

impl Simulation {
    /// Begins the trace of the plan, if it has one.
    pub(crate) fn begin_trace(&mut self) {
        if !self.plan.trace.is_empty() {
            self.schedule_in(self.plan.speeds.think_ns, Due::TraceStep);
        }
    }

    /// Takes the next step, or waits.
    pub(crate) fn take_trace_step(&mut self) {
        const POLL_NS: u64 = 50_000;
        /// Later less often.
        const POLL_COUNT: u64 = 100;
        const POLL_LATE_NS: u64 = 1_000_000;
        let Some(step) = self.plan.trace.get(self.trace_progress.count).copied() else { return };
        if self.faults_stopped {
            return;
        }
        let mut pause_ns = self.plan.speeds.think_ns;
        let waits = match step {
            TraceStep::Call((client, lane), call) => {
                let Some(spec) = self.spec_of(client, call) else { return };
                if !self.mounts[client].alive {
                    return;
                }
                let tag = self.begin_call(client, lane, spec);
                let call_made = self.calls[self.calls.len() - 1].clone();
                self.record_change(tag, &call_made);
                self.trace_progress.last = Some(tag);
                if matches!(call, TraceCall::CreateOpen(_)) {
                    self.trace_progress.file = Some(tag);
                }
                if matches!(call, TraceCall::Mkdir(_)) {
                    self.trace_progress.dir = Some(tag);
                }
                false
            }
            TraceStep::Answered => {
                let call = self.trace_progress.last.and_then(|tag| self.call_of(tag));
                call.is_some_and(|call| call.ended_ns.is_none())
            }
            TraceStep::Idle => !self.is_quiet(),
            TraceStep::Wait(mean_ns) => {
                pause_ns = mean_ns;
                false
            }
            TraceStep::Delay(client_lane, late_ns) => {
                self.delay(client_lane, late_ns);
                false
            }
            TraceStep::Hold(client_lane, hold_ns) => {
                self.hold(client_lane, hold_ns);
                false
            }
            TraceStep::LoseContents(client, mean_ns) => {
                let home = self.part_server(0).map(Machine::Server);
                self.lose_each_other(home, Some(Machine::Client(client)), mean_ns);
                false
            }
            TraceStep::LoseParts(mean_ns) => {
                let [one, other] = [0, 1].map(|part| self.part_server(part).map(Machine::Server));
                self.lose_each_other(one, other, mean_ns);
                false
            }
            TraceStep::KillProgram => {
                let last = self.trace_progress.last;
                last.into_iter().for_each(|tag| self.interrupt_call(tag));
                false
            }
            TraceStep::CrashPart => {
                // The metadata is at the first server.
                let server = self.part_server(1).filter(|server| *server > 0);
                server.into_iter().for_each(|server| self.crash_server(server));
                false
            }
            TraceStep::Replace(client) => {
                self.crash_client(client);
                self.replace(client);
                false
            }
            TraceStep::KillClient(client) => {
                self.crash_client(client);
                false
            }
            TraceStep::CrashServer => {
                self.crash_server(0);
                false
            }
        };
        let progress = &mut self.trace_progress;
        if waits {
            progress.waited_count += 1;
            pause_ns = if progress.waited_count > POLL_COUNT { POLL_LATE_NS } else { POLL_NS };
        } else {
            (progress.count, progress.waited_count) = (progress.count + 1, 0);
        }
        self.schedule_in(pause_ns, Due::TraceStep);
    }

    fn spec_of(&self, client: usize, call: TraceCall) -> Option<CallSpec> {
        let made = self.trace_progress.dir.and_then(|tag| self.call_of(tag)?.result()?.inode);
        let inode = |place| if place == In::Root { Some(InodeNo::ROOT) } else { made };
        let file = self.file();
        let write = |inode, at: Option<u64>, value| {
            let (append, file_offset, write_bytes) = (at.is_none(), at.unwrap_or(0), 100);
            let (sync, clears) = (false, ClearPrivileges::Nothing);
            CallSpec::Write { inode, file_offset, append, write_bytes, value, sync, clears }
        };
        let (mode, exclusive) = (0o755, true);
        Some(match call {
            TraceCall::Mkdir(name) => CallSpec::Mkdir { parent: InodeNo::ROOT, name, mode },
            TraceCall::Rmdir(name) => CallSpec::Rmdir { parent: InodeNo::ROOT, name },
            TraceCall::Create(place, name) => {
                CallSpec::Create { parent: inode(place)?, name, mode, exclusive, open: None }
            }
            TraceCall::Unlink(place, name) => CallSpec::Unlink { parent: inode(place)?, name },
            TraceCall::Getattr => CallSpec::Getattr { inode: InodeNo::ROOT },
            TraceCall::CreateOpen(name) => {
                let (parent, open) = (InodeNo::ROOT, Some(OpenFor::ReadWrite));
                CallSpec::Create { parent, name, mode, exclusive, open }
            }
            TraceCall::Open => {
                CallSpec::Open { inode: file?, open_for: OpenFor::ReadWrite, sizes: false }
            }
            TraceCall::Append => write(file?, None, u8::MAX),
            TraceCall::Write(file_offset, value) => write(file?, Some(file_offset), value),
            TraceCall::Read(file_offset) => {
                CallSpec::Read { inode: file?, file_offset, read_bytes: 200 }
            }
            TraceCall::Cut(size_bytes) => {
                CallSpec::Resize { inode: file?, size_bytes, open_for_write: true }
            }
            TraceCall::Look => CallSpec::Getattr { inode: file? },
            TraceCall::Close => {
                let (handle, ..) = *self.mounts[client].handles.first()?;
                CallSpec::Close { handle }
            }
        })
    }

    /// The last file that the trace made.
    fn file(&self) -> Option<InodeNo> {
        self.trace_progress.file.and_then(|tag| self.call_of(tag)?.result()?.inode)
    }

    /// The server with a part of it.
    fn part_server(&self, part: u32) -> Option<usize> {
        self.file().map(|inode| self.server_of(self.map().data_shard(inode, part)))
    }

    fn lose_each_other(&mut self, one: Option<Machine>, other: Option<Machine>, mean_ns: u64) {
        let (Some(one), Some(other)) = (one, other) else { return };
        let span_ns = self.prng.span_ns(mean_ns);
        if one != other {
            self.part_for((one, other), span_ns);
        }
    }

    fn hold(&mut self, (client, lane): ClientLaneId, hold_ns: u64) {
        const MORE_NS: u64 = 40_000_000;
        let until_ns = self.now_ns + hold_ns + self.prng.number() % MORE_NS;
        self.log_line(|| format!("client {client}.{lane}: is silent until {}", until_ns / 1000));
        let ours = |conn: &&mut crate::net::Conn| conn.dialler == Place::Client(client, lane);
        for conn in self.conns.values_mut().filter(ours) {
            conn.direction_to(End::Listener).held_until_ns = until_ns;
        }
    }

    fn delay(&mut self, (client, lane): ClientLaneId, late_ns: u64) {
        let until_ns = self.now_ns + self.prng.span_ns(late_ns);
        self.log_line(|| {
            format!("client {client}.{lane}: frames are delayed until {}", until_ns / 1000)
        });
        let ours = |conn: &&mut crate::net::Conn| conn.dialler == Place::Client(client, lane);
        for conn in self.conns.values_mut().filter(ours) {
            conn.direction_to(End::Dialler).held_until_ns = until_ns;
        }
    }
}
