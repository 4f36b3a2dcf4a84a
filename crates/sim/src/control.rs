//! Plans for runs in which one rule of the protocol matters: a random plan, changed so that the
//! situation of the rule is likely. Without the rule such runs must show a violation; with it (the
//! control run) they must show none.

use crate::cuts::{CUT_HOME_ONCE, CUT_ONCE};
use crate::kills::{ABANDONED_ENDED, SETTLE_BEHIND_CUTS};
use crate::plan::{DiskBehaviour, Faults, MS, Plan, US};
use crate::trace::In::{Dir, Root};
use crate::trace::TraceCall;
use crate::trace::TraceCall::{Create, Getattr, Mkdir, Rmdir, Unlink};
use crate::trace::TraceStep::{
    self, Answered, Call, CrashServer, Delay, Hold, Idle, KillClient, Wait,
};
use crate::work::Kind;
use lane::Share;
use wire::Rule;

/// In one batch: another client changes a directory's entries, then this client changes them and
/// removes the directory. The other client dies, and its change is lost.
const ENTRIES_SECOND: &[TraceStep] = &[
    Call((0, 0), Mkdir(5)),
    Answered,
    Call((0, 0), Create(Dir, 0)),
    Call((1, 0), Create(Dir, 1)),
    Idle,
    // The log is busy from here on: the following changes form one batch.
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

/// A client changes a directory's entries over two lanes and removes the directory. The reply to
/// the first change is delayed; after the crash that change is resent, after the replays.
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

/// A client removes a file over one lane, and makes it again over another one before the first one has
/// the reply, which is delayed. After the crash the removal is resent, after the replays.
const PEER_LANE_RECEIVED: &[TraceStep] = &[
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
    Call((0, 1), Create(Dir, 0)),
    Wait(200 * US),
    CrashServer,
];

/// A client creates a file in another client's new directory. The other client dies, and the
/// directory is lost.
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

/// The server's machine dies. A client with sessions at two lanes learns it from one of them; its
/// change at the other lane is lost unless the client reconnects there too.
const DRAIN_PEER_LANES: &[TraceStep] = &[
    // The second directory is placed on the second shard.
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

/// The server dies. A reply of it arrives after the client is connected to the next server process.
const LATE_REPLIES: &[TraceStep] = &[
    // The second directory is placed on the second shard.
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

/// A client is silent for a term. Another one has its write lease taken, and looks at the file. The
/// first one's write arrives meanwhile.
const FENCE_TOLD: &[TraceStep] = &[
    // With the first grant the server asks for its free space, and before that it records the client.
    Call((0, 0), TraceCall::CreateOpen(1)),
    Answered,
    Wait(20 * MS),
    Call((0, 0), TraceCall::CreateOpen(2)),
    Answered,
    Wait(20 * MS),
    Call((0, 0), TraceCall::CreateOpen(0)),
    Answered,
    Call((0, 0), TraceCall::Append),
    Idle,
    Hold((0, 0), 1_000 * MS),
    Call((0, 0), TraceCall::Append),
    Call((1, 0), TraceCall::Look),
    Answered,
    Idle,
    Call((1, 0), TraceCall::Look),
];

impl Plan {
    /// Changes the plan so that the rule matters: replies precede durability, servers crash.
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
            Rule::PeerLaneReceived => self.play(PEER_LANE_RECEIVED, &[2]),
            Rule::DrainPeerLanes => {
                self.play(DRAIN_PEER_LANES, &[1]);
                self.two_lanes();
                self.faults.silent = true;
                // A client without requests would not learn of a crash.
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
            Rule::SessionShards => {
                self.contend(&WRITES);
                self.data_shard_count = 4;
                self.client_dies_too = false;
            }
            Rule::SizeFlag | Rule::SettleDurable => self.contend(&WRITES),
            Rule::AppendFenced
            | Rule::AppendCloses
            | Rule::AppendReopened
            | Rule::CutEndFirst
            | Rule::CutsDurable
            | Rule::LooksWait
            | Rule::SyncParts
            | Rule::NarrowRefused
            | Rule::ReadAgain => self.spread(rule),
            Rule::VerifyContents | Rule::OverwriteIntent => {
                self.contend(&REWRITES);
                (self.block_bytes, self.quiet_ms) = (16, 1);
                self.faults.server_crash_count = 3;
                self.has_bit_rot = rule == Rule::VerifyContents;
                self.sync = self.has_bit_rot;
            }
            Rule::ContentsFlush | Rule::ContentsOrder | Rule::LogFirst => self.log_contents(rule),
            Rule::VerifyEvicted => {
                self.contend(&REREADS);
                (self.block_bytes, self.quiet_ms) = (16, 1);
                // Recorded blocks rot and are read again before the faults stop.
                (self.has_bit_rot, self.sync, self.applies) = (true, true, true);
                self.speeds.log_ns = 100 * US;
                (self.call_count, self.faults_ns) = (60, 100 * MS);
            }
            Rule::SettleAsked => {
                // The run ends while a file is open that was closed once and is written again. No
                // crash makes a client reopen it.
                const MIX: [(Kind, u64); 4] =
                    [(Kind::Create, 2), (Kind::Open, 4), (Kind::Write, 6), (Kind::Close, 4)];
                self.contend(&MIX);
                self.faults = Faults::NONE;
                self.last_crash = false;
            }
            Rule::PeerOnce | Rule::PeerResend => {
                const MIX: [(Kind, u64); 4] =
                    [(Kind::Mkdir, 3), (Kind::Rename, 4), (Kind::Rmdir, 2), (Kind::Unlink, 1)];
                self.mix = MIX.to_vec();
                (self.meta_shard_count, self.server_lane_count_max) = (5, 3);
                self.call_count = self.call_count.max(25);
                self.peer_faults = true;
            }
            Rule::BitsTold => self.set_bits(),
            Rule::FenceTold => {
                (self.leases, self.lease_term_ms, self.term_changes) = (true, 1_000, false);
                self.play(FENCE_TOLD, &[1, 1]);
                self.over_late_lanes();
                // Random calls might close the file.
                (self.call_count, self.faults_ns) = (0, 1_500 * MS);
                self.last_crash = false;
            }
            Rule::AbandonedEnded => self.play_over_servers(ABANDONED_ENDED, &[1, 1], MS),
            Rule::SettleBehindCuts => {
                self.play_over_servers(SETTLE_BEHIND_CUTS, &[1, 1], 1_000 * MS)
            }
            Rule::CutOnce => self.play_over_servers(CUT_ONCE, &[1, 1], MS),
            Rule::CutHomeOnce => self.play_over_servers(CUT_HOME_ONCE, &[1, 1], MS),
            Rule::MapAwaited => {
                // Two servers restart, and each learns late of the other's start.
                self.contend(&WRITES);
                self.client_dies_too = false;
                (self.last_crash, self.last_client_crash) = (true, false);
                self.faults = Faults { server_crash_count: 4, ..Faults::NONE };
            }
            Rule::PreparedKept
            | Rule::DecidedKept
            | Rule::OutcomeAsked
            | Rule::PresumedAbort
            | Rule::LocksReleased
            | Rule::UndecidedGivenUp
            | Rule::ConnectionAnew
            | Rule::OldConnectionEnded
            | Rule::NewInodeLocked => self.across_servers(rule),
            Rule::LeaseRecall
            | Rule::LeaseLateGrant
            | Rule::LeaseTerm
            | Rule::LeaseReconnect
            | Rule::LeaseRestart
            | Rule::KnownNames
            | Rule::NamedInodes
            | Rule::OwnChanges
            | Rule::LeasePages
            | Rule::CutPages
            | Rule::PageParts
            | Rule::WriteBehind
            | Rule::WriteOpened
            | Rule::LocalRegistered
            | Rule::LocalWritten => self.lease(rule),
            Rule::OwnUnacked
            | Rule::Tombstones
            | Rule::Topology
            | Rule::MergePeerLanes
            | Rule::OffUnacked
            | Rule::TwoPhaseOrder
            | Rule::LeaseWaiter
            | Rule::Parties => {}
        }
        self
    }

    /// Few clients use one directory, the log is slow, and a client dies with the server.
    pub(crate) fn contend(&mut self, mix: &[(Kind, u64)]) {
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

    /// Changes of names over servers that die at each step of them, or lose each other.
    fn across_servers(&mut self, rule: Rule) {
        const MIX: [(Kind, u64); 7] = [
            (Kind::Mkdir, 6),
            (Kind::Rename, 4),
            (Kind::Create, 2),
            (Kind::Link, 1),
            (Kind::Rmdir, 2),
            (Kind::Unlink, 1),
            (Kind::Getattr, 3),
        ];
        // An inode that was removed is rightly missing.
        let stays = |kind: Kind| !matches!(kind, Kind::Rename | Kind::Rmdir | Kind::Unlink);
        let fits = |kind| rule != Rule::NewInodeLocked || stays(kind);
        self.mix = MIX.into_iter().filter(|(kind, _)| fits(*kind)).collect();
        (self.choice_count, self.depth) = (4, 2);
        self.call_count = self.call_count.clamp(25, 50);
        self.peer_faults = false;
        self.faults = match rule {
            Rule::NewInodeLocked => Faults::NONE,
            Rule::LocksReleased | Rule::UndecidedGivenUp | Rule::ConnectionAnew => {
                Faults { cut_count: 6, ..Faults::NONE }
            }
            Rule::OldConnectionEnded => Faults { cut_count: 12, ..Faults::NONE },
            _ => Faults { server_crash_count: 1, point_per_mille: 60, ..Faults::NONE },
        };
    }

    /// A few clients change one file that is spread over all servers.
    fn spread(&mut self, rule: Rule) {
        const APPENDS: [(Kind, u64); 3] = [(Kind::Create, 1), (Kind::Open, 4), (Kind::Write, 12)];
        const READS: [(Kind, u64); 4] =
            [(Kind::Create, 1), (Kind::Open, 4), (Kind::Write, 8), (Kind::Read, 8)];
        const CUTS: [(Kind, u64); 6] = [
            (Kind::Create, 1),
            (Kind::Open, 4),
            (Kind::Write, 6),
            (Kind::Resize, 6),
            (Kind::Read, 3),
            (Kind::Getattr, 9),
        ];
        const LOOKS: [(Kind, u64); 5] = [
            (Kind::Create, 1),
            (Kind::Open, 3),
            (Kind::Write, 4),
            (Kind::Resize, 5),
            (Kind::Getattr, 16),
        ];
        const SYNCS: [(Kind, u64); 4] =
            [(Kind::Create, 1), (Kind::Open, 4), (Kind::Write, 6), (Kind::Sync, 6)];
        let mix: &[(Kind, u64)] = match rule {
            Rule::AppendFenced | Rule::AppendReopened => &APPENDS,
            Rule::AppendCloses | Rule::ReadAgain | Rule::NarrowRefused => &READS,
            Rule::SyncParts => &SYNCS,
            Rule::LooksWait => &LOOKS,
            _ => &CUTS,
        };
        self.contend(mix);
        (self.choice_count, self.name_count) = (1, 1);
        (self.call_count, self.faults_ns) = (60, 100 * MS);
        self.client_dies_too =
            matches!(rule, Rule::CutEndFirst | Rule::SyncParts | Rule::AppendReopened);
        let (server_crash_count, cut_count, pause_count) = match rule {
            Rule::AppendFenced => (4, 6, 4),
            Rule::AppendReopened => (3, 3, 0),
            Rule::CutEndFirst | Rule::SyncParts => (1, 0, 0),
            Rule::CutsDurable => (6, 0, 0),
            _ => (0, 0, 0),
        };
        if rule != Rule::AppendFenced {
            self.client_lanes.fill(1);
            self.call_count = 40;
        }
        if matches!(rule, Rule::AppendCloses | Rule::ReadAgain | Rule::NarrowRefused) {
            self.last_crash = false;
        }
        if rule == Rule::LooksWait {
            // Only what was written before a truncation shows that a size lies in between: few calls
            // run beside each other.
            (self.depth, self.last_crash) = (1, false);
            (self.call_count, self.faults_ns) = (60, 200 * MS);
        }
        self.faults = Faults { server_crash_count, cut_count, pause_count, ..Faults::NONE };
    }

    /// Clients cache what few others change, and are stopped or cut off while they do.
    fn lease(&mut self, rule: Rule) {
        const MIX: [(Kind, u64); 11] = [
            (Kind::Lookup, 6),
            (Kind::Getattr, 6),
            (Kind::Create, 2),
            (Kind::Unlink, 2),
            (Kind::Rename, 1),
            (Kind::Mkdir, 1),
            (Kind::Setattr, 2),
            (Kind::Open, 3),
            (Kind::Read, 4),
            (Kind::Write, 2),
            (Kind::Close, 1),
        ];
        (self.leases, self.lease_term_ms, self.term_changes) = (true, 1_000, false);
        self.client_lanes.resize_with(self.client_lanes.len().clamp(2, 3), || 1);
        self.mix = MIX.to_vec();
        (self.choice_count, self.name_count) = (2, 2);
        self.speeds.think_ns = 5 * MS;
        (self.call_count, self.faults_ns) = (120, 200 * MS);
        let (pause_count, cut_count, server_crash_count) = match rule {
            Rule::LeaseTerm => (3, 0, 0),
            Rule::LeaseReconnect => (3, 4, 0),
            Rule::LeaseRestart => (3, 0, 2),
            _ => (0, 0, 0),
        };
        self.faults = Faults { pause_count, cut_count, server_crash_count, ..Faults::NONE };
        (self.last_crash, self.client_dies_too) = (false, false);
        match rule {
            Rule::OwnChanges => self.client_lanes.fill(2),
            Rule::KnownNames => {
                // Directories that one client has made, and names in them that another one makes.
                const MIX: [(Kind, u64); 5] = [
                    (Kind::Lookup, 8),
                    (Kind::Getattr, 3),
                    (Kind::Create, 4),
                    (Kind::Mkdir, 3),
                    (Kind::Readdir, 3),
                ];
                self.mix = MIX.to_vec();
                (self.choice_count, self.name_count) = (3, 4);
            }
            Rule::NamedInodes => {
                // Names that the client does not know, of files that have others as well.
                const MIX: [(Kind, u64); 6] = [
                    (Kind::Getattr, 8),
                    (Kind::Create, 2),
                    (Kind::Link, 4),
                    (Kind::Unlink, 4),
                    (Kind::Rename, 2),
                    (Kind::Lookup, 2),
                ];
                self.mix = MIX.to_vec();
                (self.choice_count, self.name_count) = (2, 4);
            }
            Rule::LeasePages => {
                // Files that are open for writing at several clients.
                const MIX: [(Kind, u64); 4] =
                    [(Kind::Create, 1), (Kind::Open, 2), (Kind::Read, 6), (Kind::Write, 6)];
                self.mix = MIX.to_vec();
                (self.choice_count, self.name_count) = (1, 1);
                self.write_bytes_max = 300;
            }
            Rule::CutPages | Rule::PageParts => {
                // The same, over several servers.
                const MIX: [(Kind, u64); 4] =
                    [(Kind::Create, 1), (Kind::Open, 2), (Kind::Read, 8), (Kind::Write, 4)];
                self.mix = MIX.to_vec();
                if rule == Rule::CutPages {
                    self.mix.push((Kind::Resize, 2));
                }
                // Pages that are recalled soon after they were read are not leased.
                (self.speeds.think_ns, self.faults_ns) = (60 * MS, 2_000 * MS);
                (self.choice_count, self.name_count) = (1, 1);
                self.write_bytes_max = 300;
            }
            Rule::WriteBehind if self.depth.is_multiple_of(2) => self.change_names_behind(),
            Rule::WriteBehind => self.write_files_behind(),
            Rule::WriteOpened => self.write_opened_behind(),
            _ => {}
        }
    }

    /// Clients write new files that others look at.
    pub(crate) fn write_files_behind(&mut self) {
        const MIX: [(Kind, u64); 9] = [
            (Kind::Create, 6),
            (Kind::Setattr, 4),
            (Kind::Getattr, 4),
            (Kind::Unlink, 5),
            (Kind::Open, 6),
            (Kind::Read, 8),
            (Kind::Write, 12),
            (Kind::Resize, 2),
            (Kind::Close, 4),
        ];
        self.mix = MIX.to_vec();
        (self.choice_count, self.name_count) = (2, 6);
        self.write_bytes_max = 300;
    }

    /// Clients write a file behind that they open, and that others have open or look at.
    pub(crate) fn write_opened_behind(&mut self) {
        const MIX: [(Kind, u64); 6] = [
            (Kind::Create, 1),
            (Kind::Getattr, 4),
            (Kind::Open, 8),
            (Kind::Read, 8),
            (Kind::Write, 10),
            (Kind::Close, 8),
        ];
        self.mix = MIX.to_vec();
        (self.choice_count, self.name_count) = (1, 1);
        self.write_bytes_max = 300;
    }

    /// Clients make directories, and create and remove names in them, where others look.
    pub(crate) fn change_names_behind(&mut self) {
        const MIX: [(Kind, u64); 10] = [
            (Kind::Create, 14),
            (Kind::Unlink, 9),
            (Kind::Mkdir, 6),
            (Kind::Lookup, 4),
            (Kind::Getattr, 2),
            (Kind::Readdir, 1),
            (Kind::Rmdir, 1),
            (Kind::Rename, 1),
            (Kind::Link, 1),
            (Kind::Close, 5),
        ];
        self.mix = MIX.to_vec();
        (self.choice_count, self.name_count) = (6, 6);
        self.client_lanes.truncate(3);
        self.slot_count = 16;
        // Most directories that lie high up would be at other shards than their parents.
        if self.data_shard_count < 4 {
            (self.meta_shard_count, self.server_lane_count_max) = (1, 1);
        }
        self.speeds.think_ns = 3 * MS;
        (self.call_count, self.faults_ns) = (150, 200 * MS);
    }

    /// These clients and this trace, and no other faults. Some runs begin with random calls as
    /// well.
    pub(crate) fn play(&mut self, trace: &'static [TraceStep], client_lanes: &[usize]) {
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

    /// One server of several lanes, between which messages are late.
    pub(crate) fn over_late_lanes(&mut self) {
        (self.meta_shard_count, self.data_shard_count) = (5, 4);
        (self.server_lane_count_max, self.peer_faults) = (3, true);
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

pub(crate) const WRITES: [(Kind, u64); 5] =
    [(Kind::Create, 3), (Kind::Open, 4), (Kind::Write, 6), (Kind::Close, 3), (Kind::Sync, 2)];
