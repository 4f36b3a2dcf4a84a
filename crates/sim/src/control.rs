//! Worlds in which a rule counts: rolled like any other, then made such that what the rule is about
//! is likely to happen. Who keeps the rule comes through them unharmed: that is the control.

use crate::plan::{DiskBehaviour, Faults, MS, Plan, US};
use crate::trace::In::{Dir, Root};
use crate::trace::TraceCall::{Create, Getattr, Mkdir, Rmdir, Unlink};
use crate::trace::TraceStep::{self, Answered, Call, CrashServer, Delay, Idle, KillClient, Wait};
use crate::work::Kind;
use lane::Share;
use wire::Rule;

/// Another client's change of the entries, then an own one in the same batch, then the directory
/// goes. The other dies, and its change with it.
const ENTRIES_SECOND: &[TraceStep] = &[
    Call((0, 0), Mkdir(5)),
    Answered,
    Call((0, 0), Create(Dir, 0)),
    Call((1, 0), Create(Dir, 1)),
    Idle,
    // From here on the log is busy: the rest is one batch.
    Call((1, 0), Create(Root, 4)),
    Answered,
    Call((1, 0), Unlink(Dir, 1)),
    Answered,
    Call((0, 0), Unlink(Dir, 0)),
    Answered,
    Call((0, 0), Rmdir(5)),
    Wait(200 * US),
    KillClient(1),
    CrashServer,
];

/// An own change of the entries whose reply a peer lane lacks, one whose reply is there, then the
/// directory goes. The first is only sent again, behind the replays.
const ENTRIES_CUMULATIVE: &[TraceStep] = &[
    Call((0, 0), Mkdir(5)),
    Answered,
    Call((0, 0), Create(Dir, 0)),
    Call((0, 1), Create(Dir, 1)),
    Idle,
    Call((0, 1), Create(Root, 4)),
    Answered,
    Delay((0, 0), 100 * MS),
    Call((0, 0), Unlink(Dir, 0)),
    Wait(200 * US),
    Call((0, 1), Unlink(Dir, 1)),
    Answered,
    Call((0, 1), Rmdir(5)),
    Wait(200 * US),
    CrashServer,
];

/// Something is made in another client's new directory. The other dies, and its directory with it.
const EXIST_MARKS: &[TraceStep] = &[
    Call((0, 0), Create(Root, 0)),
    Call((1, 0), Create(Root, 1)),
    Idle,
    Call((1, 0), Mkdir(5)),
    Answered,
    Call((0, 0), Create(Dir, 0)),
    Wait(200 * US),
    KillClient(1),
    CrashServer,
];

/// The server's machine dies. A client that is known at two lanes hears of one, and has at the other
/// a change that is lost unless it comes there as well.
const DRAIN_PEER_LANES: &[TraceStep] = &[
    // The second comes to the second shard.
    Call((0, 0), Mkdir(4)),
    Answered,
    Call((0, 0), Mkdir(5)),
    Answered,
    Call((0, 0), Create(Dir, 0)),
    Answered,
    Call((0, 0), Create(Root, 1)),
    Idle,
    Call((0, 0), Create(Dir, 2)),
    Answered,
    CrashServer,
    Call((0, 0), Getattr),
    Answered,
];

/// The server dies, and a reply of it is read when another connection leads to the next one.
const LATE_REPLIES: &[TraceStep] = &[
    // The second comes to the second shard.
    Call((0, 0), Mkdir(4)),
    Answered,
    Call((0, 0), Mkdir(5)),
    Answered,
    Call((0, 0), Create(Dir, 0)),
    Answered,
    Call((0, 0), Create(Root, 1)),
    Idle,
    Delay((0, 0), 100 * MS),
    Call((0, 0), Create(Dir, 2)),
    Wait(200 * US),
    CrashServer,
];

impl Plan {
    /// A rule that is missing shows only where it counts: replies leave early, servers die.
    pub(crate) fn for_rule(mut self, rule: Rule) -> Self {
        self.sync = false;
        self.share_changes = false;
        self.share = match rule {
            Rule::OffUnacked => Share::Off,
            Rule::MergePeerLanes | Rule::EntriesCumulative => self.share,
            _ => self.share.max(Share::Write),
        };
        self.faults.disk = DiskBehaviour::Honest;
        self.faults.server_crash_count = self.faults.server_crash_count.max(1);
        self.name_count = self.name_count.min(3);
        match rule {
            Rule::EntriesSecond => self.play(ENTRIES_SECOND, &[1, 1]),
            Rule::EntriesCumulative => self.play(ENTRIES_CUMULATIVE, &[2]),
            Rule::ExistMarks => self.play(EXIST_MARKS, &[1, 1]),
            Rule::DrainPeerLanes => {
                self.play(DRAIN_PEER_LANES, &[1]);
                self.two_lanes();
                self.faults.silent = true;
                // Whoever asks for nothing would not hear of it.
                self.last_crash = false;
            }
            Rule::LateReplies => {
                self.play(LATE_REPLIES, &[1]);
                self.two_lanes();
            }
            Rule::S3Flush => {
                const MIX: [(Kind, u64); 7] = [
                    (Kind::Create, 4),
                    (Kind::Unlink, 2),
                    (Kind::Rename, 2),
                    (Kind::Setattr, 2),
                    (Kind::Open, 2),
                    (Kind::Write, 6),
                    (Kind::Close, 1),
                ];
                self.contend(&MIX);
                self.speeds.object_ns = 5 * MS;
                self.client_dies_too = false;
            }
            Rule::ListsWhole => {
                self.contend(&WRITES);
                self.speeds.object_ns = 5 * MS;
                self.client_dies_too = false;
            }
            Rule::SizeFlag | Rule::SettleDurable => self.contend(&WRITES),
            Rule::VerifyContents | Rule::OverwriteIntent => {
                self.contend(&REWRITES);
                (self.block_bytes, self.quiet_ms) = (16, 1);
                self.faults.server_crash_count = 3;
                self.rots = rule == Rule::VerifyContents;
                self.sync = self.rots;
            }
            Rule::VerifyEvicted => {
                self.contend(&REREADS);
                (self.block_bytes, self.quiet_ms) = (16, 1);
                // What rots has its rows, and is read again before everything calms down.
                (self.rots, self.sync, self.applies) = (true, true, true);
                self.speeds.log_ns = 100 * US;
                (self.call_count, self.faults_ns) = (60, 100 * MS);
            }
            Rule::SettleAsked => {
                // It ends while a file is open that was closed and is written again; no crash makes
                // anybody open it anew.
                const MIX: [(Kind, u64); 4] =
                    [(Kind::Create, 2), (Kind::Open, 4), (Kind::Write, 6), (Kind::Close, 4)];
                self.contend(&MIX);
                self.faults = Faults::NONE;
                self.last_crash = false;
            }
            Rule::OwnUnacked
            | Rule::Tombstones
            | Rule::Topology
            | Rule::MergePeerLanes
            | Rule::OffUnacked
            | Rule::TwoPhaseOrder
            | Rule::Parties => {}
        }
        self
    }

    /// Few clients meet in one directory, with a slow log, and one dies with the server.
    fn contend(&mut self, mix: &[(Kind, u64)]) {
        self.client_lanes.resize_with(self.client_lanes.len().clamp(2, 3), || 2);
        (self.meta_shard_count, self.server_lane_count_max) = (1, 1);
        self.choice_count = self.choice_count.min(2);
        self.name_count = self.name_count.min(2);
        self.slow_log();
        self.faults.server_crash_count = 1;
        self.client_dies_too = true;
        self.mix = mix.to_vec();
        self.call_count = self.call_count.min(25);
        self.faults_ns = self.faults_ns.min(20 * MS);
    }

    /// These clients, and nothing else that goes wrong. Some runs begin with random calls as well.
    fn play(&mut self, trace: &'static [TraceStep], client_lanes: &[usize]) {
        self.trace = trace;
        self.client_lanes = client_lanes.to_vec();
        (self.meta_shard_count, self.server_lane_count_max) = (1, 1);
        self.slow_log();
        self.speeds.reply_ns = self.speeds.request_ns;
        self.speeds.think_ns = 20 * US;
        self.call_count = if self.call_count > 25 { 0 } else { self.call_count / 2 };
        self.faults = Faults::NONE;
        self.faults_ns = 200 * MS;
    }

    /// Two lanes, mostly with a shard each.
    fn two_lanes(&mut self) {
        (self.meta_shard_count, self.server_lane_count_max) = (2, 2);
        self.call_count = 0;
    }

    /// Calls are much faster than the log.
    fn slow_log(&mut self) {
        self.speeds.log_ns = 5 * MS;
        self.speeds.turn_ns = 2 * US;
        self.speeds.restart_ns = MS;
        self.log_space_bytes = 1 << 40;
    }
}

const REWRITES: [(Kind, u64); 4] =
    [(Kind::Create, 2), (Kind::Open, 4), (Kind::Write, 9), (Kind::Read, 3)];

const REREADS: [(Kind, u64); 4] =
    [(Kind::Create, 2), (Kind::Open, 4), (Kind::Write, 4), (Kind::Read, 12)];

const WRITES: [(Kind, u64); 5] =
    [(Kind::Create, 3), (Kind::Open, 4), (Kind::Write, 6), (Kind::Close, 3), (Kind::Sync, 2)];
