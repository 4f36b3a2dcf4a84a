//! Traces: a few calls in a fixed order with random timing. They reach orders that random calls
//! rarely reach.

use crate::due::{ClientLaneId, Due, End, Place};
use crate::simulation::Simulation;
use crate::work::{CallSpec, NameNo, Tag};
use wire::InodeNo;

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
    last: Option<Tag>,
    dir: Option<Tag>,
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
        let Some(step) = self.plan.trace.get(self.trace_progress.count).copied() else { return };
        if self.faults_stopped {
            return;
        }
        let mut pause_ns = self.plan.speeds.think_ns;
        let waits = match step {
            TraceStep::Call((client, lane), call) => {
                let Some(spec) = self.spec_of(call) else { return };
                if !self.mounts[client].alive {
                    return;
                }
                let tag = self.begin_call(client, lane, spec);
                self.trace_progress.last = Some(tag);
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
            TraceStep::KillClient(client) => {
                self.crash_client(client);
                false
            }
            TraceStep::CrashServer => {
                self.crash_server(0);
                false
            }
        };
        if waits {
            pause_ns = POLL_NS;
        } else {
            self.trace_progress.count += 1;
        }
        self.schedule_in(pause_ns, Due::TraceStep);
    }

    fn spec_of(&self, call: TraceCall) -> Option<CallSpec> {
        let made = self.trace_progress.dir.and_then(|tag| self.call_of(tag)?.result()?.inode);
        let inode = |place| if place == In::Root { Some(InodeNo::ROOT) } else { made };
        let (mode, exclusive) = (0o755, true);
        Some(match call {
            TraceCall::Mkdir(name) => CallSpec::Mkdir { parent: InodeNo::ROOT, name, mode },
            TraceCall::Rmdir(name) => CallSpec::Rmdir { parent: InodeNo::ROOT, name },
            TraceCall::Create(place, name) => {
                CallSpec::Create { parent: inode(place)?, name, mode, exclusive, open: None }
            }
            TraceCall::Unlink(place, name) => CallSpec::Unlink { parent: inode(place)?, name },
            TraceCall::Getattr => CallSpec::Getattr { inode: InodeNo::ROOT },
        })
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
