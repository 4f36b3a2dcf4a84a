//! A run: the hosts, their processes and etcd, and what must hold.

use crate::rng::Rng;
use registry::{
    Alive, Answer, Brought, Call, Cluster, Compared, Following, Founding, Keep, Known, LeaseId,
    MemoryEtcd, News, Next, Own, RegistryError, Retry, Server, ServerState, Shards, Start,
    Starting, Write,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use wire::{Layout, Map, MapEpoch, ServerId, ShardCounts};

const FS: [u8; 16] = [7; 16];
const COUNTS: ShardCounts = ShardCounts { meta: 2, data: 2 };
const HOST_COUNT: usize = 5;
/// The time from one act to the next.
const ACT_MS: u64 = 1_000;

/// What a process is doing, and the call that it makes next.
#[derive(Clone)]
enum Task {
    Add(ServerId, Vec<Write>),
    Start(Box<Start>, Option<Call>),
    Keep(Call),
    Drain(Vec<Write>),
    PutBack(Vec<Write>),
}

/// A server that runs.
struct Running {
    keep: Keep,
    following: Following,
    /// The epoch that its lanes have.
    epoch: MapEpoch,
}

/// A store, and the process that has it.
struct Host {
    uuid: String,
    boot_id: u64,
    /// Its server, and its first shards.
    member: Option<(ServerId, (u16, u16))>,
    task: Option<Task>,
    running: Option<Running>,
    /// What its store knows of the registry, and the latest map that its server has used.
    known: Known,
    used: Option<Map>,
}

impl Host {
    /// Its server uses a map: files of before lie there still.
    fn uses(&mut self, cluster: &Cluster, map: Map) -> Verdict {
        if self.used.as_ref().is_some_and(|before| !map.extends(before)) {
            return Err(format!("{map:?} has lost what is in {:?}", self.used));
        }
        (self.known, self.used) = (cluster.known(), Some(map));
        Ok(())
    }

    fn own(&self, server: ServerId) -> Own {
        Own { server, alive: Alive { uuid: self.uuid.clone(), boot_id: self.boot_id } }
    }

    fn crash(&mut self) {
        (self.task, self.running) = (None, None);
    }
}

#[derive(Default, Debug)]
pub(crate) struct Counts {
    pub(crate) starts: usize,
    pub(crate) joins: usize,
    pub(crate) conflicts: usize,
    pub(crate) copies: usize,
    pub(crate) refused: usize,
    pub(crate) waits: usize,
    pub(crate) overtaken: usize,
    pub(crate) restores: usize,
    pub(crate) compacted: usize,
    pub(crate) lost: usize,
    pub(crate) differs: usize,
}

pub(crate) struct Run {
    rng: Rng,
    now_ms: u64,
    etcd: MemoryEtcd,
    copy: Option<MemoryEtcd>,
    hosts: Vec<Host>,
    faults: Faults,
    /// Starts that were made: server, its term, and the store.
    started: BTreeSet<(ServerId, u64)>,
    /// The store that each server was given to, since the last restore.
    added: BTreeMap<ServerId, String>,
    maps: BTreeMap<MapEpoch, Map>,
    pub(crate) counts: Counts,
}

/// What goes wrong besides, on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    None,
    /// Transactions that add servers, or that begin starts, do not compare versions.
    AddsUncompared,
    StartsUncompared,
    /// A restored etcd has the revision of the copy.
    OldRevision,
    /// Stores do not remember what their servers have used.
    Forgetful,
    /// Servers are drained and added before what a restored etcd has lost was put back.
    Impatient,
}

pub(crate) type Verdict = Result<(), String>;

fn map_of(cluster: &Cluster) -> Result<Map, String> {
    cluster.map().ok_or_else(|| "the entries are no map".to_owned())
}

/// Whether a call of a start begins it, and does not only put back what is lost.
fn begins(call: &Call) -> bool {
    matches!(call, Call::Swap(writes) if writes.iter().any(|write| write.lease.is_some()))
}

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7001))
}

fn server(uuid: &str) -> Server {
    let (uuid, state) = (uuid.to_owned(), ServerState::Active);
    Server { uuid, weight: 100, state, address: address(), lanes: 1 }
}

impl Run {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let host = |number: usize| Host {
            uuid: format!("{number:032x}"),
            boot_id: 0,
            member: None,
            task: None,
            running: None,
            known: Known::default(),
            used: None,
        };
        let mut etcd = MemoryEtcd::default();
        etcd.set_bumps(faults != Faults::OldRevision);
        Self {
            rng: Rng(seed),
            now_ms: 0,
            etcd,
            copy: None,
            hosts: (1..=HOST_COUNT).map(host).collect(),
            faults,
            started: BTreeSet::new(),
            added: BTreeMap::new(),
            maps: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    fn cluster(&self) -> Cluster {
        Cluster::read(FS, &self.etcd.read()).unwrap()
    }

    /// One process does one step.
    pub(crate) fn act(&mut self) -> Verdict {
        self.now_ms += ACT_MS;
        let host = self.rng.below(self.hosts.len());
        match self.rng.below(20) {
            0 => self.hosts[host].crash(),
            1 => self.end_lease(),
            2 => self.etcd.compact(),
            3 if self.rng.one_in(3) => self.copy = Some(self.etcd.clone()),
            3 if self.rng.one_in(4) => self.restore(),
            4 if self.rng.one_in(3) => self.copy_store(host),
            5 => self.drain_or_undrain(host),
            6..=9 if self.hosts[host].running.is_some() => self.follow(host)?,
            _ if self.hosts[host].task.is_some() => self.go_on(host)?,
            _ if self.hosts[host].running.is_some() => self.keep(host, None),
            _ => self.begin(host),
        }
        self.check()
    }

    /// A lease ends: that of a process that died, or that etcd has not heard of.
    fn end_lease(&mut self) {
        let all: Vec<LeaseId> = self.etcd.leases();
        if !all.is_empty() {
            let lease = all[self.rng.below(all.len())];
            self.etcd.end_lease(lease);
        }
    }

    fn restore(&mut self) {
        let Some(copy) = self.copy.take() else { return };
        self.etcd.restore(copy);
        // What was added since the copy is foreign until it is put back.
        let cluster = self.cluster();
        self.added = cluster.servers().map(|(id, server, _)| (id, server.uuid.clone())).collect();
        let term = |id: &ServerId| {
            let found = cluster.servers().find(|(known, ..)| known == id);
            found.map_or(0, |(_, _, shards)| u64::from(shards.term))
        };
        self.started.retain(|(id, boot_id)| *boot_id <= term(id));
        self.counts.restores += 1;
    }

    /// Another process starts with a copy of a store.
    fn copy_store(&mut self, host: usize) {
        if self.hosts.len() < HOST_COUNT + 2 && self.hosts[host].member.is_some() {
            let Host { uuid, boot_id, member, known, used, .. } = &self.hosts[host];
            let (uuid, known, used) = (uuid.clone(), known.clone(), used.clone());
            let (boot_id, member, task, running) = (*boot_id, *member, None, None);
            self.hosts.push(Host { uuid, boot_id, member, task, running, known, used });
            self.counts.copies += 1;
        }
    }

    /// Whether servers are drained and added now: when the registry has all that servers know.
    fn may_change(&self) -> bool {
        let cluster = self.cluster();
        let has_all = |host: &Host| cluster.compare(&host.known) == Compared::HasAll;
        self.faults == Faults::Impatient || self.hosts.iter().all(has_all)
    }

    /// A store joins, or its server starts.
    fn begin(&mut self, host: usize) {
        let cluster = self.cluster();
        let beginning = &mut self.hosts[host];
        let Some((server_id, first)) = beginning.member else {
            if let Some((id, shards)) = cluster.server_of(&beginning.uuid) {
                // An answer was lost.
                beginning.member = Some((id, (shards.metas.0, shards.datas.0)));
                return;
            }
            let brought = Brought { server: server(&beginning.uuid), counts: COUNTS };
            let founding = Founding { layout: Layout::DEFAULT, epoch: MapEpoch(17) };
            let made = if cluster.exists() {
                cluster.add(&brought)
            } else {
                cluster.found(&brought, &founding)
            };
            let ((id, _), writes) = made.unwrap();
            beginning.task = Some(Task::Add(id, writes));
            return;
        };
        beginning.boot_id += 1;
        let (own, store, at) = (beginning.own(server_id), String::new(), (address(), 1));
        let known = beginning.known.clone();
        let start = Start::new(Starting { own, store, first, at, known });
        beginning.task = Some(Task::Start(Box::new(start), None));
    }

    fn drain_or_undrain(&mut self, host: usize) {
        let cluster = self.cluster();
        let ids: Vec<ServerId> = cluster.servers().map(|(id, ..)| id).collect();
        if ids.is_empty() || self.hosts[host].task.is_some() {
            return;
        }
        let id = ids[self.rng.below(ids.len())];
        let made = cluster.drain(id).or_else(|_| cluster.undrain(id));
        self.hosts[host].task = made.ok().map(Task::Drain);
    }

    /// A process makes its next call; the answer to a transaction may be lost.
    fn go_on(&mut self, host: usize) -> Verdict {
        match self.hosts[host].task.take() {
            Some(Task::Add(..) | Task::Drain(_)) if !self.may_change() => Ok(()),
            Some(Task::Add(id, writes)) => {
                let compares = self.faults != Faults::AddsUncompared;
                if self.call(&Call::Swap(writes), compares) == Some(Answer::Swapped(true)) {
                    return self.on_added(host, id);
                }
                Ok(())
            }
            Some(Task::Drain(writes) | Task::PutBack(writes)) => {
                let _made = self.call(&Call::Swap(writes), true);
                Ok(())
            }
            Some(Task::Keep(call)) => {
                let answer = self.call(&call, true).filter(|_| !self.rng.one_in(5));
                if answer.is_some() {
                    self.keep(host, answer);
                }
                Ok(())
            }
            Some(Task::Start(start, None)) => self.start(host, start, None),
            Some(Task::Start(start, Some(call))) => {
                let compares = self.faults != Faults::StartsUncompared;
                let Some(answer) = self.call(&call, compares) else { return Ok(()) };
                if answer == Answer::Swapped(true) && begins(&call) {
                    self.counts.starts += 1;
                    let Own { server, alive } = start.own();
                    if !self.started.insert((*server, alive.boot_id)) {
                        return Err(format!("two starts {} of server {server}", alive.boot_id));
                    }
                    if self.rng.one_in(5) {
                        return Ok(());
                    }
                }
                self.start(host, start, Some(answer))
            }
            None => Ok(()),
        }
    }

    /// Performs a call; `None` if it is refused, because a lease has ended.
    fn call(&mut self, call: &Call, compares: bool) -> Option<Answer> {
        self.etcd.set_compares(compares);
        let answer = self.etcd.perform(self.now_ms, (FS, call));
        self.counts.conflicts += usize::from(matches!(answer, Ok(Answer::Swapped(false))));
        match answer {
            Ok(answer) => Some(answer),
            Err(RegistryError::Refused(_)) => None,
            Err(other) => panic!("{other}"),
        }
    }

    fn on_added(&mut self, host: usize, id: ServerId) -> Verdict {
        self.counts.joins += 1;
        let cluster = self.cluster();
        let is_lost = self.rng.one_in(5);
        let adding = &mut self.hosts[host];
        if let Some(other) = self.added.insert(id, adding.uuid.clone()) {
            return Err(format!("server {id} is given to {other} and {}", adding.uuid));
        }
        let added = cluster.server_of(&adding.uuid).filter(|_| !is_lost);
        adding.member = added.map(|(id, shards)| (id, (shards.metas.0, shards.datas.0)));
        Ok(())
    }

    fn start(&mut self, host: usize, mut start: Box<Start>, answer: Option<Answer>) -> Verdict {
        let own = start.own().clone();
        match start.next(self.now_ms, answer) {
            Ok(Next::Call(call)) => self.hosts[host].task = Some(Task::Start(start, Some(call))),
            Ok(Next::Pause) => {
                self.counts.waits += 1;
                self.hosts[host].task = Some(Task::Start(start, None));
            }
            Ok(Next::Done(lease)) => {
                self.counts.lost += usize::from(start.loss().is_some());
                self.begin_life(host, &own, lease)?;
            }
            Err(RegistryError::State(line)) => {
                self.counts.refused += 1;
                self.counts.differs += usize::from(line.contains("It does not start"));
            }
            Err(other) => panic!("{other}"),
        }
        Ok(())
    }

    /// A start has begun: its server uses the map that has it.
    fn begin_life(&mut self, host: usize, own: &Own, lease: LeaseId) -> Verdict {
        let cluster = self.cluster();
        let starting = &mut self.hosts[host];
        match own.judge(&cluster, (&starting.known, MapEpoch(0))) {
            News::Newer(map) => {
                let mut following = Following::new(FS);
                following.on_read(&self.etcd.read()).unwrap();
                let (keep, epoch) = (Keep::new(own.clone(), lease), map.epoch());
                starting.running = Some(Running { keep, following, epoch });
                starting.uses(&cluster, map)?;
                if self.faults == Faults::Forgetful {
                    starting.known = Known::default();
                }
                Ok(())
            }
            // etcd was restored since the entries were read: it looks again.
            News::Lacks(loss) => {
                self.counts.lost += 1;
                let _made = self.call(&Call::Swap(loss.writes), true);
                self.begin_life(host, own, lease)
            }
            News::Overtaken(_) | News::Differs(_) => Ok(()),
            News::Nothing | News::NoMap => Err("the entries are no map".to_owned()),
        }
    }

    /// A running server says that it is there; if its lease has ended it begins another one.
    fn keep(&mut self, host: usize, answer: Option<Answer>) {
        let keeping = &mut self.hosts[host];
        let Some(running) = &mut keeping.running else { return };
        match running.keep.next(answer) {
            Ok(Next::Call(call)) => keeping.task = Some(Task::Keep(call)),
            Ok(Next::Done(())) => {}
            Ok(Next::Pause) => panic!("a lease is kept without a pause"),
            Err(RegistryError::State(_)) => {
                self.counts.overtaken += 1;
                keeping.crash();
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// A running server takes some changes, or reads everything anew.
    fn follow(&mut self, host: usize) -> Verdict {
        let breaks = self.rng.one_in(4);
        let (faults, host) = (self.faults, &mut self.hosts[host]);
        let Some((server, _)) = host.member else { return Ok(()) };
        let own = host.own(server);
        let Some(Running { following, epoch, .. }) = &mut host.running else { return Ok(()) };
        let snapshot = self.etcd.read();
        match self.etcd.behind(following.revision()) {
            Ok(changes) if !breaks => {
                // A watch gives the changes of one revision together.
                let next = changes.first().map(|change| change.version);
                let together = changes.into_iter().take_while(|it| Some(it.version) == next);
                following.on_changes(&together.collect::<Vec<_>>()).unwrap();
            }
            Err(error) if !breaks => {
                self.counts.compacted += 1;
                assert_eq!(following.on_failure(&error), Retry::Now);
                following.on_read(&snapshot).unwrap();
            }
            Ok(_) | Err(_) => {
                following.on_read(&snapshot).unwrap();
            }
        }
        let cluster = following.cluster().unwrap();
        let is_present = following.revision() == snapshot.revision;
        if is_present && *cluster != Cluster::read(FS, &snapshot).unwrap() {
            return Err("what was followed is not what is there".to_owned());
        }
        let cluster = cluster.clone();
        match own.judge(&cluster, (&host.known, *epoch)) {
            News::Overtaken(_) => {
                self.counts.overtaken += 1;
                host.crash();
                return Ok(());
            }
            News::Lacks(loss) => {
                self.counts.lost += 1;
                host.task.get_or_insert(Task::PutBack(loss.writes));
            }
            News::Differs(_) if faults != Faults::Impatient => {
                return Err("what was used has become something else".to_owned());
            }
            News::Differs(_) => self.counts.differs += 1,
            News::NoMap => return Err("the entries are no map".to_owned()),
            News::Newer(map) => {
                *epoch = map.epoch();
                host.uses(&cluster, map)?;
                if faults == Faults::Forgetful {
                    host.known = Known::default();
                }
            }
            News::Nothing => {}
        }
        let Own { alive, .. } = &own;
        let entry = cluster.server_of(&alive.uuid);
        let is_own = entry
            .is_some_and(|(id, shards)| (id, u64::from(shards.term)) == (server, alive.boot_id));
        if !is_own {
            return Err(format!("start {} of server {server} goes on", alive.boot_id));
        }
        Self::check_map(&mut self.maps, map_of(&cluster)?)
    }

    /// Who has the same epoch has the same map.
    fn check_map(maps: &mut BTreeMap<MapEpoch, Map>, map: Map) -> Verdict {
        let known = maps.entry(map.epoch()).or_insert_with(|| map.clone());
        if *known == map {
            return Ok(());
        }
        Err(format!("two maps have the epoch {:?}: {known:?} and {map:?}", map.epoch()))
    }

    /// In the end the servers that still run put back what the registry has lost.
    pub(crate) fn settle(&mut self) -> Verdict {
        for host in 0..self.hosts.len() {
            while self.hosts[host].running.is_some() {
                if matches!(self.hosts[host].task, Some(Task::PutBack(_))) {
                    self.go_on(host)?;
                }
                self.hosts[host].task = None;
                self.follow(host)?;
                let following = self.hosts[host].running.as_ref().map(|it| it.following.revision());
                if self.hosts[host].task.is_none() && following == Some(self.etcd.revision()) {
                    break;
                }
            }
        }
        let cluster = self.cluster();
        let mut running = self.hosts.iter().filter(|host| host.running.is_some());
        match running.find(|host| cluster.compare(&host.known) != Compared::HasAll) {
            Some(host) => Err(format!("{cluster:?} lacks what is in {:?}", host.known)),
            None => Ok(()),
        }
    }

    /// The entries fit together.
    fn check(&mut self) -> Verdict {
        let cluster = self.cluster();
        if !cluster.exists() {
            return Ok(());
        }
        let map = map_of(&cluster)?;
        let active: Vec<Shards> = cluster
            .servers()
            .filter(|(_, server, _)| server.state == ServerState::Active)
            .map(|(_, _, shards)| *shards)
            .collect();
        let number = map.generation();
        let writes = cluster.drain(ServerId(u16::MAX));
        assert!(writes.is_err(), "there is no such server");
        let shard_count: u16 = active.iter().map(|shards| shards.metas.1).sum();
        if map.directory_shard_count() != shard_count {
            return Err(format!("generation {number} is not that of the active servers"));
        }
        Self::check_map(&mut self.maps, map)
    }
}
