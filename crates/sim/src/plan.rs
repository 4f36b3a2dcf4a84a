//! The plan of a run: sizes, speeds, the mix of calls, and the faults.
//!
//! Most runs are short and use few names, so that changes conflict.

use crate::etcd_plan::EtcdPlan;
use crate::number::narrow_u16;
use crate::servers::Servers;
use crate::trace::TraceStep;
use crate::work::Kind;
use lane::Share;
use test_runtime::Prng;
use wire::{Layout, Rule};

/// How the disk behaves besides losing unsynced data in a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DiskBehaviour {
    /// Writes that it reported durable survive crashes.
    Honest,
    /// Some operations fail.
    Failing,
    /// It loses batches that it reported durable. The clients must raise an alarm.
    Lying,
}

/// A fault injected to prove that the checks find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injection {
    /// A crash loses a batch that was reported durable.
    LostBatch,
    /// Requests that a client resends after a lost connection are dropped.
    LostResend,
    /// A sync of an object makes nothing durable.
    LostSync,
    /// A rule of the protocol is removed.
    Rule(Rule),
    /// A control run: the plan made for the rule, with the rule in force.
    Control(Rule),
}

impl Injection {
    /// Faults injected into the simulated network and disk, with their names.
    pub const INJECTED: [(Self, &'static str); 3] = [
        (Self::LostBatch, "lost-batch"),
        (Self::LostResend, "lost-resend"),
        (Self::LostSync, "lost-sync"),
    ];

    /// Injected faults and removable rules, with their names.
    fn all() -> impl Iterator<Item = (Self, &'static str)> {
        let removable = if cfg!(feature = "removable-rules") { Rule::ALL } else { &[] };
        let rules = removable.iter().map(|(rule, name)| (Self::Rule(*rule), *name));
        Self::INJECTED.into_iter().chain(rules)
    }

    /// The injected fault of this name.
    #[must_use]
    pub fn fault(name: &str) -> Option<Self> {
        Self::INJECTED.into_iter().find(|(_, known)| *known == name).map(|(fault, _)| fault)
    }

    /// The removal of the rule of this name, if this build can remove rules.
    #[must_use]
    pub fn without_rule(name: &str) -> Option<Self> {
        Rule::named(name).filter(|_| cfg!(feature = "removable-rules")).map(Self::Rule)
    }

    /// The command-line option for it.
    #[must_use]
    pub fn flag(self) -> String {
        let controls = Rule::ALL.iter().map(|(rule, name)| (Self::Control(*rule), *name));
        let flag = match self {
            Self::LostBatch | Self::LostResend | Self::LostSync => "inject",
            Self::Rule(_) => "without-rule",
            Self::Control(_) => "control",
        };
        let name = Self::all().chain(controls).find(|(injection, _)| *injection == self);
        format!("--{flag} {}", name.map_or("", |(_, name)| name))
    }
}

/// How many faults of each kind, and their chances.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) server_crash_count: u64,
    pub(crate) client_crash_count: u64,
    pub(crate) cut_count: u64,
    pub(crate) partition_count: u64,
    /// Servers that join, 1 at most.
    pub(crate) join_count: u64,
    pub(crate) drain_count: u64,
    pub(crate) pause_count: u64,
    pub(crate) clock_count: u64,
    pub(crate) interrupt_count: u64,
    /// Chance that the server crashes at a point that a lane marks (`Action::Point`).
    pub(crate) point_per_mille: u64,
    pub(crate) disk: DiskBehaviour,
    pub(crate) disk_rates: DiskFaultRates,
    /// The server's machine dies with the process: no packet closes its connections.
    pub(crate) silent: bool,
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        server_crash_count: 0,
        client_crash_count: 0,
        cut_count: 0,
        partition_count: 0,
        join_count: 0,
        drain_count: 0,
        pause_count: 0,
        clock_count: 0,
        interrupt_count: 0,
        point_per_mille: 0,
        disk: DiskBehaviour::Honest,
        disk_rates: DiskFaultRates::NONE,
        silent: false,
    };
}

/// Chances, per thousand, that a disk operation of each kind fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskFaultRates {
    pub(crate) log: u64,
    pub(crate) change: u64,
    pub(crate) sync: u64,
    pub(crate) read: u64,
}

impl DiskFaultRates {
    pub(crate) const NONE: Self = Self { log: 0, change: 0, sync: 0, read: 0 };
}

/// Mean durations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speeds {
    pub(crate) request_ns: u64,
    pub(crate) reply_ns: u64,
    pub(crate) turn_ns: u64,
    pub(crate) log_ns: u64,
    pub(crate) object_ns: u64,
    pub(crate) think_ns: u64,
    pub(crate) restart_ns: u64,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) server_count: usize,
    /// Lanes of each client.
    pub(crate) client_lanes: Vec<usize>,
    pub(crate) server_lane_count_max: u64,
    pub(crate) meta_shard_count: u16,
    pub(crate) data_shard_count: u16,
    pub(crate) slot_count: u16,
    pub(crate) name_count: usize,
    /// How many of the latest inodes the calls choose among.
    pub(crate) choice_count: usize,
    pub(crate) depth: usize,
    pub(crate) call_count: u64,
    pub(crate) write_bytes_max: u64,
    pub(crate) mix: Vec<(Kind, u64)>,
    pub(crate) speeds: Speeds,
    pub(crate) faults: Faults,
    /// The faults are spread over this time.
    pub(crate) faults_ns: u64,
    /// The server crashes once more at the end, with or without a client.
    pub(crate) last_crash: bool,
    pub(crate) last_client_crash: bool,
    /// A client dies whenever the server does.
    pub(crate) client_dies_too: bool,
    pub(crate) log_space_bytes: u64,
    /// Which replies wait for durability.
    pub(crate) share: Share,
    /// Every start may choose another mode.
    pub(crate) share_changes: bool,
    /// Every reply waits for its own change.
    pub(crate) sync: bool,
    /// How long a log batch gathers that no request waits for.
    pub(crate) log_ms: u64,
    /// How long messages between lanes gather that nothing waits for.
    pub(crate) message_ms: u64,
    /// The applier runs beside the lanes, not only at a start.
    pub(crate) applies: bool,
    /// Memory for names at each server, if it is limited; 0 evicts whatever it can.
    pub(crate) meta_memory_bytes: Option<u64>,
    /// The log takes at most this many bytes of a file in place of a sync, in pages of so many.
    pub(crate) logged_bytes_max: u64,
    pub(crate) page_bytes: u64,
    /// Bytes of a block that has a checksum, and after which idle time the checksums of an object
    /// are recorded.
    pub(crate) block_bytes: u32,
    /// Bytes of a stripe: with few of them, ordinary operations change several objects.
    pub(crate) stripe_unit_bytes: u64,
    /// Each file has stripes at all servers.
    pub(crate) spreads: bool,
    /// But only once it has a second one.
    pub(crate) grows: bool,
    pub(crate) quiet_ms: u64,
    /// At a start of the server a bit of a recorded block may flip.
    pub(crate) has_bit_rot: bool,
    /// The clients cache under leases.
    pub(crate) leases: bool,
    pub(crate) lease_term_ms: u64,
    /// Each start of the server chooses another term.
    pub(crate) term_changes: bool,
    /// How long a kernel needs for a recall at most.
    pub(crate) recall_ns_max: u64,
    /// Messages between the server's lanes get lost, repeated, delayed and reordered.
    pub(crate) peer_faults: bool,
    /// How etcd behaves, if there are several servers.
    pub(crate) etcd: EtcdPlan,
    /// Clients set set-id bits, and most writes must clear them.
    pub(crate) sets_id: bool,
    /// A program whose call is interrupted ends: its file is closed.
    pub(crate) kills: bool,
    /// A client process that dies is started again, and says so.
    pub(crate) replaces: bool,
    /// The scripted calls of the run.
    pub(crate) trace: &'static [TraceStep],
    pub(crate) injection: Option<Injection>,
}

/// A recall takes at most this many times longer than a request travels.
const RECALL_FACTOR: u64 = 20;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

impl Plan {
    /// The layout of all files.
    pub(crate) fn layout(&self) -> Layout {
        if self.spreads {
            let stripe_unit_bytes = Layout::SPREAD_UNIT_BYTES_MIN;
            let stripe_count = narrow_u16(self.server_count);
            return Layout { stripe_unit_bytes, stripe_count, narrow: self.grows };
        }
        Layout { stripe_unit_bytes: self.stripe_unit_bytes, ..Layout::DEFAULT }
    }

    /// The bytes of a stripe of files over several servers; of other files all.
    pub(crate) fn spread_unit_bytes(&self) -> u64 {
        if self.spreads { self.layout().stripe_unit_bytes } else { u64::MAX }
    }

    /// A place in a file: near its beginning or, if its stripes are spread, near the end of one of
    /// them.
    pub(crate) fn place(&self, number: u64) -> u64 {
        const STRIPES: u64 = 5;
        let within = number % (self.write_bytes_max + 1);
        if !self.spreads {
            return within;
        }
        // A file that grows is to be used while it has one stripe.
        let is_first = self.grows && !(number >> 40).is_multiple_of(4);
        let stripe = if is_first { 0 } else { (number >> 32) % STRIPES };
        let start = stripe * Layout::SPREAD_UNIT_BYTES_MIN;
        start.saturating_sub(self.write_bytes_max / 2) + within
    }

    /// Some runs have several servers, each with a store of its own.
    pub(crate) fn with_servers(self, seed: u64) -> Self {
        let servers = match self.injection {
            None => Servers::of_seed(seed),
            Some(Injection::Rule(rule) | Injection::Control(rule)) => Servers::for_rule(rule, seed),
            Some(Injection::LostBatch | Injection::LostResend | Injection::LostSync) => None,
        };
        let etcd = match self.injection {
            Some(Injection::Rule(rule) | Injection::Control(rule)) => {
                EtcdPlan::for_rule(rule, seed)
            }
            _ => EtcdPlan::of_seed(seed),
        };
        match servers {
            Some(servers) => Self { etcd, ..self }.over(servers),
            None => self,
        }
    }

    /// The same plan over several servers.
    pub(crate) fn over(mut self, servers: Servers) -> Self {
        let Servers {
            server_count,
            meta_count,
            data_count,
            partition_count,
            crash_count,
            joins,
            drain_count,
            spreads,
            writes_stripes,
            grows,
        } = servers;
        (self.spreads, self.grows) = (spreads, spreads && grows);
        if spreads && writes_stripes {
            let rule = Rule::WriteBehind;
            let injection = [Injection::Rule(rule), Injection::Control(rule)];
            if self.injection.is_some_and(|it| injection.contains(&it)) {
                self.write_files_behind();
                self.call_count = self.call_count.max(50);
            }
            self.write_bytes_max = Layout::SPREAD_UNIT_BYTES_MIN * 3 / 2;
        }
        let count = narrow_u16(server_count);
        self.server_count = server_count;
        (self.meta_shard_count, self.data_shard_count) = (meta_count * count, data_count * count);
        self.server_lane_count_max = self.server_lane_count_max.min(2);
        self.faults.partition_count += partition_count;
        self.faults.join_count = u64::from(joins);
        self.faults.drain_count = drain_count;
        self.faults.server_crash_count = self.faults.server_crash_count.max(crash_count);
        if self.faults.disk == DiskBehaviour::Lying {
            self.faults.disk = DiskBehaviour::Honest;
        }
        self
    }

    /// Whether replies may precede the durability of their change.
    pub(crate) const fn shared(&self) -> bool {
        !self.sync
    }

    pub(crate) fn roll(prng: &mut Prng, injection: Option<Injection>) -> Self {
        let client_count = 1 + prng.below(4);
        let client_lanes = (0..client_count).map(|_| 1 + prng.below(3)).collect();
        let mean = [20 * US, 100 * US, 500 * US, 5 * MS];
        let speeds = Speeds {
            request_ns: prng.pick(&mean[..2]).unwrap_or(US),
            reply_ns: prng.pick(&mean).unwrap_or(US),
            turn_ns: prng.pick(&[2 * US, 20 * US, 200 * US]).unwrap_or(US),
            log_ns: prng.pick(&mean[1..]).unwrap_or(US),
            object_ns: prng.pick(&mean).unwrap_or(US),
            think_ns: prng.pick(&mean[..3]).unwrap_or(US),
            restart_ns: prng.pick(&[MS, 50 * MS, 3_000 * MS]).unwrap_or(MS),
        };
        let call_count = prng.pick(&[6, 12, 25, 50, 120]).unwrap_or(12);
        // About the time the calls take, so that faults hit them.
        let call_ns = speeds.request_ns + speeds.reply_ns + speeds.think_ns + speeds.log_ns;
        let lanes = client_count * 2;
        let faults_ns = (call_ns * call_count / crate::number::wide(lanes)).max(MS);
        let has_bit_rot = injection.is_none() && prng.clone().one_in(6);
        let mut faults = roll_faults(prng);
        let leases = injection.is_none() && prng.clone().one_in(2);
        if leases {
            // A call that was interrupted changes something after its answer: a kernel shows what it
            // has cached before until the term ends.
            faults.interrupt_count = 0;
        }
        // Disk faults need more calls before the faults stop.
        let faults_ns = faults_ns * if faults.disk == DiskBehaviour::Honest { 1 } else { 4 };
        let names_behind = leases && prng.clone().number().is_multiple_of(6);
        let mut plan = Self {
            server_count: 1,
            client_lanes,
            server_lane_count_max: 1 + prng.number() % 3,
            meta_shard_count: prng.pick(&[1, 2, 3, 5]).unwrap_or(1),
            data_shard_count: prng.pick(&[1, 2, 4]).unwrap_or(1),
            slot_count: prng.pick(&[wire::SLOT_COUNT_MIN, 3, 16]).unwrap_or(3),
            name_count: 1 + prng.below(4),
            choice_count: 1 + prng.below(6),
            depth: 1 + prng.below(4),
            call_count,
            write_bytes_max: prng.pick(&[16, 300, 9000]).unwrap_or(16),
            mix: roll_mix(prng),
            speeds,
            faults,
            faults_ns,
            last_crash: prng.one_in(2),
            last_client_crash: prng.one_in(3),
            client_dies_too: false,
            log_space_bytes: if prng.one_in(12) {
                1_400_000 + prng.number() % 40_000
            } else {
                1 << 40
            },
            share: prng
                .pick(&[Share::Off, Share::Write, Share::Write, Share::Strict])
                .unwrap_or_default(),
            share_changes: prng.one_in(6),
            // A replay does not verify the rest of a block that it overwrites in part.
            sync: prng.one_in(8) || has_bit_rot,
            // From a clone, so that the following draws do not depend on it.
            log_ms: prng.clone().pick(&[0, 0, 1, 5, 40]).unwrap_or(0),
            message_ms: prng.clone().pick(&[0, 10, 1, 40]).unwrap_or(0),
            applies: injection != Some(Injection::LostBatch) && prng.one_in(2),
            meta_memory_bytes: prng.pick(&[None, None, None, Some(0), Some(8 << 10)]).flatten(),
            logged_bytes_max: prng.clone().pick(&[0, 64, 64 << 10, 64 << 10]).unwrap_or(0),
            page_bytes: prng.clone().pick(&[16, 4096]).unwrap_or(4096),
            block_bytes: roll_block_bytes(&mut prng.clone()),
            stripe_unit_bytes: roll_stripe_unit(prng.clone()),
            spreads: false,
            grows: false,
            has_bit_rot,
            quiet_ms: prng.clone().pick(&[1, 1, 20, 3_000]).unwrap_or(1),
            leases,
            lease_term_ms: prng.clone().pick(&[1_000, 10_000]).unwrap_or(10_000),
            term_changes: prng.clone().one_in(5),
            recall_ns_max: speeds.request_ns * RECALL_FACTOR,
            peer_faults: prng.clone().one_in(3),
            etcd: EtcdPlan::NONE,
            sets_id: false,
            kills: false,
            replaces: false,
            trace: &[],
            injection,
        };
        if names_behind {
            plan.change_names_behind();
        }
        plan
    }
}

/// In half of the runs a stripe is one block or a few.
fn roll_stripe_unit(mut prng: Prng) -> u64 {
    let block_bytes = u64::from(roll_block_bytes(&mut prng.clone()));
    prng.number();
    let default = Layout::DEFAULT.stripe_unit_bytes;
    let unit_bytes = prng.pick(&[default, default, 64, 4096]).unwrap_or(default);
    unit_bytes.max(block_bytes)
}

fn roll_block_bytes(prng: &mut Prng) -> u32 {
    prng.pick(&[16, 16, 512, disk::BLOCK_BYTES]).unwrap_or(16)
}

/// Every kind of call has a weight; many have none, so that runs differ.
fn roll_mix(prng: &mut Prng) -> Vec<(Kind, u64)> {
    let theme = prng.number() % 4;
    let mut mix = Vec::new();
    for kind in Kind::ALL {
        let preferred = match theme {
            0 => kind.is_of_names(),
            1 => kind.is_of_bytes(),
            2 => kind.is_of_names() || kind.is_of_bytes(),
            _ => true,
        };
        let weight = match (preferred, prng.number() % 4) {
            (_, 0) => 0,
            (true, _) => 1 + prng.number() % 8,
            (false, 1) => 1,
            (false, _) => 0,
        };
        mix.push((kind, weight));
    }
    // Without creates a run would have nothing to work on.
    mix.push((Kind::Create, 3));
    mix
}

fn roll_faults(prng: &mut Prng) -> Faults {
    let mut count = |chance: u64, most: u64| {
        if prng.one_in(chance) { 1 + prng.number() % most } else { 0 }
    };
    let mut faults = Faults {
        server_crash_count: count(2, 3),
        client_crash_count: count(3, 2),
        cut_count: count(2, 6),
        partition_count: count(5, 2),
        join_count: 0,
        drain_count: 0,
        pause_count: count(3, 4),
        clock_count: count(6, 3),
        interrupt_count: count(5, 4),
        point_per_mille: count(3, 60),
        disk: DiskBehaviour::Honest,
        disk_rates: DiskFaultRates::NONE,
        silent: false,
    };
    let roll = prng.number() % 24;
    // Runs are short: faults with small chances would mostly not occur.
    let mut per_mille = || prng.pick(&[0, 0, 10, 60, 250]).unwrap_or(0);
    let (log, change, sync, read) = (per_mille(), per_mille(), per_mille(), per_mille());
    if roll < 3 {
        faults.disk = DiskBehaviour::Failing;
        faults.disk_rates = DiskFaultRates { log, change, sync, read };
    } else if roll == 3 {
        faults.disk = DiskBehaviour::Lying;
        faults.server_crash_count = faults.server_crash_count.max(1);
    }
    faults
}
