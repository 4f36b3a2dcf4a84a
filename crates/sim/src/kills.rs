//! Programs that are killed while a call of theirs is under way, and mounts whose processes are started
//! again.

use crate::due::Due;
use crate::plan::{Injection, MS, Plan};
use crate::simulation::Simulation;
use crate::trace::TraceCall::{Append, Close, CreateOpen, Cut, Getattr, Open};
use crate::trace::TraceStep::{
    self, Answered, Call, CrashPart, Idle, KillProgram, LoseContents, Replace, Wait,
};
use crate::work::{CallRecord, CallSpec, Tag};
use test_runtime::Prng;
use wire::Rule;

/// A program is killed while it makes a file shorter, and the server with the file's contents cannot be
/// reached.
pub(crate) const ABANDONED_ENDED: &[TraceStep] = &[
    Call((0, 0), CreateOpen(0)),
    Answered,
    Call((0, 0), Append),
    Answered,
    Idle,
    LoseContents(0, 200 * MS),
    Call((0, 0), Cut(10)),
    Wait(MS),
    KillProgram,
];

/// A truncation waits for a server that is away. Its client is started again, and another one closes the
/// file.
pub(crate) const SETTLE_BEHIND_CUTS: &[TraceStep] = &[
    Call((0, 0), CreateOpen(0)),
    Answered,
    Call((0, 0), Append),
    Answered,
    Idle,
    CrashPart,
    Call((0, 0), Cut(10)),
    Wait(MS),
    Replace(0),
    Call((2, 0), Getattr),
    Answered,
    Call((1, 0), Open),
    Answered,
    Call((1, 0), Close),
    Answered,
];

impl Plan {
    /// Programs are killed, and mounts started again, in one of so many runs each.
    const KILLS_ONE_IN: u64 = 2;
    /// Makes the draws another stream than the run's. The seeds that were kept before have neither.
    const KILLS_STREAM: u64 = 0x26d;

    /// In some runs programs are killed, and mounts are started again.
    pub(crate) fn with_kills(mut self, seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ Self::KILLS_STREAM);
        (self.kills, self.replaces) = match self.injection {
            None => (prng.one_in(Self::KILLS_ONE_IN), prng.one_in(Self::KILLS_ONE_IN)),
            Some(
                Injection::Rule(Rule::AbandonedEnded) | Injection::Control(Rule::AbandonedEnded),
            ) => {
                return Self { kills: true, ..self };
            }
            Some(Injection::Rule(_) | Injection::Control(_)) => (false, false),
            Some(Injection::LostBatch | Injection::LostResend | Injection::LostSync) => {
                (false, false)
            }
        };
        self.kills &= self.faults.interrupt_count > 0;
        self.replaces &= self.faults.client_crash_count > 0;
        self
    }

    /// Some calls over several servers. A server that died comes back after so long.
    pub(crate) fn play_over_servers(
        &mut self,
        trace: &'static [TraceStep],
        client_lanes: &[usize],
        restart_ns: u64,
    ) {
        self.play(trace, client_lanes);
        self.speeds.restart_ns = restart_ns;
        (self.call_count, self.message_ms) = (0, 0);
        (self.last_crash, self.faults_ns) = (false, 500 * MS);
    }
}

impl Simulation {
    /// A call is answered: what follows for its client.
    pub(crate) fn follow_up(&mut self, client_lane: (usize, usize), tag: Tag, call: &CallRecord) {
        self.retry_when_cleared(client_lane, tag, call);
        if self.plan.kills && call.interrupted {
            self.close_killed(client_lane, call);
        }
    }

    /// A program was killed in a call on a file's contents: its kernel closes the file.
    fn close_killed(&mut self, (client, lane): (usize, usize), call: &CallRecord) {
        let Some(inode) = call.spec.contents() else { return };
        let handles = &self.mounts[client].handles;
        let Some(at) = handles.iter().position(|(_, opened, writes)| *opened == inode && *writes)
        else {
            return;
        };
        if self.is_in_use(client, inode) {
            return;
        }
        let (handle, ..) = self.mounts[client].handles.remove(at);
        self.mounts[client].early.end(inode);
        self.begin_call(client, lane, CallSpec::Close { handle });
    }

    /// A client process that has died is started again: the server need not wait for the one before.
    pub(crate) fn replace(&mut self, client: usize) {
        let (lane_count, uuid) = (self.mounts[client].lanes.len(), self.mounts[client].uuid);
        let client = self.mount(lane_count, false, uuid);
        self.log_line(|| format!("client {client} takes its place"));
        for lane in 0..lane_count {
            self.schedule_in(self.plan.speeds.think_ns, Due::NextCall { client, lane });
        }
    }
}
