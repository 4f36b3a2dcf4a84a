//! etcd in a run with several servers: the calls of servers, how long they take, and the faults. It is
//! away for a while, loses answers, ends leases, forgets its history, and is restored from an older copy.
//!
//! Calls of a process that has died may still be executed.

use crate::due::Due;
use crate::plan::{MS, US};
use crate::simulation::Simulation;
use registry::{Answer, Call, MemoryEtcd, RegistryError, Versioned};
use std::collections::BTreeMap;
use test_runtime::Prng;
use wire::FsUuid;

/// Makes its draws another stream than the run's.
const STREAM: u64 = 0xe7cd_0000;

/// A process that calls etcd: that of a server, or with the number behind the last server an
/// administrator's command; and which of its processes.
pub(crate) type Caller = (usize, u64);

/// A call under way.
struct PendingCall {
    by: Caller,
    call: Call,
    answer: Option<Result<Answer, RegistryError>>,
}

/// etcd, and the calls under way.
pub(crate) struct Etcd {
    pub(crate) keys: MemoryEtcd,
    pub(crate) prng: Prng,
    copy: Option<MemoryEtcd>,
    away_until_ns: u64,
    pending: BTreeMap<u64, PendingCall>,
    call_count: u64,
}

impl Etcd {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            keys: MemoryEtcd::default(),
            prng: Prng::new(seed ^ STREAM),
            copy: None,
            away_until_ns: 0,
            pending: BTreeMap::new(),
            call_count: 0,
        }
    }

    /// A server is about to join or to be drained: a copy is of before that.
    pub(crate) fn copy_before_change(&mut self) {
        self.copy.get_or_insert_with(|| self.keys.clone());
    }

    /// Until when it is away; `None` if it is there.
    pub(crate) fn away_until_ns(&self, now_ns: u64) -> Option<u64> {
        (self.away_until_ns > now_ns).then_some(self.away_until_ns)
    }
}

/// etcd does not answer.
pub(crate) fn away() -> RegistryError {
    RegistryError::Away { endpoint: "etcd".to_owned(), why: "it is away".to_owned() }
}

pub(crate) const fn now_ms(now_ns: u64) -> u64 {
    now_ns / MS
}

impl Simulation {
    /// The file system, as keys of etcd name it.
    pub(crate) const fn fs_key(&self) -> [u8; 16] {
        let FsUuid(fs) = self.fs;
        fs
    }

    /// A process makes a call.
    pub(crate) fn call_etcd(&mut self, by: Caller, call: Call) {
        let etcd = &mut self.etcd;
        etcd.call_count += 1;
        let number = etcd.call_count;
        etcd.pending.insert(number, PendingCall { by, call, answer: None });
        self.schedule_etcd(number);
    }

    fn schedule_etcd(&mut self, number: u64) {
        let delay_ns = self.etcd.prng.span_ns(self.plan.etcd.call_ns);
        self.schedule_at(self.now_ns + delay_ns, Due::Etcd(number));
    }

    /// A call arrives at etcd, or its answer at the process.
    pub(crate) fn move_etcd_call(&mut self, number: u64) {
        let Some(pending) = self.etcd.pending.remove(&number) else { return };
        let PendingCall { by, call, answer } = pending;
        let is_there = by.1 == self.life_of_caller(by.0);
        if let Some(answer) = answer {
            if is_there {
                self.on_etcd_answer(by.0, answer);
            }
            return;
        }
        if !is_there && self.etcd.prng.one_in(2) {
            return;
        }
        let must_wait = self.is_change(by.0, &call) && !self.is_whole();
        let answer = if must_wait { Err(away()) } else { self.execute_etcd_call(&call) };
        let lost_one_in = if self.faults_stopped { 0 } else { self.plan.etcd.lost_one_in };
        let is_lost = lost_one_in > 0 && self.etcd.prng.one_in(lost_one_in);
        let answer = if is_lost { Err(away()) } else { answer };
        self.log_line(|| format!("etcd: {} of {by:?}: {}", named(&call), shown(&answer)));
        self.etcd.pending.insert(number, PendingCall { by, call, answer: Some(answer) });
        self.schedule_etcd(number);
    }

    /// etcd executes a call, if it is there.
    pub(crate) fn execute_etcd_call(&mut self, call: &Call) -> Result<Answer, RegistryError> {
        if self.etcd.away_until_ns(self.now_ns).is_some() {
            return Err(away());
        }
        let (now_ms, fs) = (now_ms(self.now_ns), self.fs_key());
        let before = self.etcd.keys.revision();
        self.etcd.keys.end_leases(now_ms);
        let answer = self.etcd.keys.perform(now_ms, (fs, call));
        if self.etcd.keys.revision() != before {
            self.on_registry_changed();
        }
        answer
    }

    /// Something goes wrong with etcd.
    pub(crate) fn inject_etcd_fault(&mut self) {
        let now_ns = self.now_ns;
        let away_ns_max = self.plan.etcd.away_ns_max;
        let etcd = &mut self.etcd;
        let number = etcd.prng.number() % 8;
        let line = match number {
            0..=3 => {
                let span_ns = etcd.prng.number() % (away_ns_max + 1);
                etcd.away_until_ns = etcd.away_until_ns.max(now_ns + span_ns);
                // Leases go on where only the servers cannot reach it.
                if etcd.prng.one_in(2) {
                    etcd.keys.renew_leases(now_ms(etcd.away_until_ns));
                }
                format!("etcd: away for {} us", span_ns / US)
            }
            4 => {
                let leases = etcd.keys.leases();
                if let Some(lease) = etcd.prng.pick(&leases) {
                    etcd.keys.end_lease(lease);
                }
                "etcd: a lease ends".to_owned()
            }
            5 => {
                etcd.keys.compact();
                "etcd: the history is compacted".to_owned()
            }
            _ => match etcd.copy.take() {
                None => {
                    etcd.copy = Some(etcd.keys.clone());
                    "etcd: is copied".to_owned()
                }
                Some(copy) => {
                    etcd.keys.restore(copy);
                    "etcd: is restored from a copy".to_owned()
                }
            },
        };
        self.log_line(|| line);
        self.on_registry_changed();
    }

    /// Which process of a server, or which command, calls now.
    pub(crate) fn life_of_caller(&self, by: usize) -> u64 {
        self.servers.get(by).map_or(0, |server| server.life)
    }

    /// Some of the revisions behind one, at least one: a watch gives the changes of one together.
    pub(crate) fn some_of(&mut self, mut changes: Vec<Versioned>) -> Vec<Versioned> {
        if self.faults_stopped {
            return changes;
        }
        let mut versions: Vec<i64> = changes.iter().map(|change| change.version).collect();
        versions.dedup();
        let last = versions.get(self.etcd.prng.below(versions.len())).copied();
        changes.retain(|change| last.is_none_or(|last| change.version <= last));
        changes
    }
}

fn named(call: &Call) -> &'static str {
    match call {
        Call::Read => "read",
        Call::Grant => "grant",
        Call::Swap(_) => "transaction",
        Call::Keep(_) => "keep-alive",
    }
}

fn shown(answer: &Result<Answer, RegistryError>) -> String {
    match answer {
        Ok(Answer::Entries(cluster)) => format!("{:?}", cluster.map().map(|map| map.epoch())),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}
