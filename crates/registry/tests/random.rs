//! The registry as several processes change it at random: an etcd in memory that loses answers, ends
//! leases, compacts its history and is restored from an older copy, while servers join, start, die,
//! are drained, and are started from copies of their stores.
//!
//! The servers are the product's state machines ([`Start`], [`Keep`], [`Following`]). A change is what it is
//! in the product: everything is read, the writes follow from it ([`Cluster`]), and a transaction makes
//! them if no entry has changed since. Between two calls of a process others act.
#![allow(clippy::unwrap_used, missing_docs)]

use registry::{
    Alive, Answer, Brought, Call, Cluster, Following, Founding, Keep, LeaseId, MemoryEtcd, News,
    Next, Own, RegistryError, Retry, Server, ServerState, Shards, Start, Starting, Write,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use wire::{Layout, Map, MapEpoch, ServerId, ShardCounts};

const FS: [u8; 16] = [7; 16];
const COUNTS: ShardCounts = ShardCounts { meta: 2, data: 2 };
const HOST_COUNT: usize = 5;
const ACT_COUNT: usize = 400;
/// The time from one act to the next.
const ACT_MS: u64 = 1_000;

/// Splitmix64.
struct Rng(u64);

impl Rng {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.number() % u64::try_from(count).unwrap()).unwrap()
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

/// What a process is doing, and the call that it makes next.
#[derive(Clone)]
enum Task {
    Add(ServerId, Vec<Write>),
    Start(Start, Option<Call>),
    Keep(Call),
    Other(Vec<Write>),
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
}

impl Host {
    fn own(&self, server: ServerId) -> Own {
        Own { server, alive: Alive { uuid: self.uuid.clone(), boot_id: self.boot_id } }
    }

    fn crash(&mut self) {
        (self.task, self.running) = (None, None);
    }
}

#[derive(Default, Debug)]
struct Counts {
    starts: usize,
    joins: usize,
    conflicts: usize,
    copies: usize,
    refused: usize,
    waits: usize,
    overtaken: usize,
    restores: usize,
    compacted: usize,
}

struct Run {
    rng: Rng,
    now_ms: u64,
    etcd: MemoryEtcd,
    copy: Option<MemoryEtcd>,
    hosts: Vec<Host>,
    /// What compares versions.
    compares: Compares,
    /// Starts that were made: server, its term, and the store.
    started: BTreeSet<(ServerId, u64)>,
    /// The store that each server was given to, since the last restore.
    added: BTreeMap<ServerId, String>,
    maps: BTreeMap<MapEpoch, Map>,
    counts: Counts,
}

/// Which transactions compare versions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compares {
    All,
    AllButAdds,
    AllButStarts,
}

type Verdict = Result<(), String>;

fn map_of(cluster: &Cluster) -> Result<Map, String> {
    cluster.map().ok_or_else(|| "the entries are no map".to_owned())
}

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7001))
}

fn server(uuid: &str) -> Server {
    let (uuid, state) = (uuid.to_owned(), ServerState::Active);
    Server { uuid, weight: 100, state, address: address(), lanes: 1 }
}

impl Run {
    fn new(seed: u64, compares: Compares, bumps: bool) -> Self {
        let host = |number: usize| Host {
            uuid: format!("{number:032x}"),
            boot_id: 0,
            member: None,
            task: None,
            running: None,
        };
        let mut etcd = MemoryEtcd::default();
        etcd.set_bumps(bumps);
        Self {
            rng: Rng(seed),
            now_ms: 0,
            etcd,
            copy: None,
            hosts: (1..=HOST_COUNT).map(host).collect(),
            compares,
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
    fn act(&mut self) -> Verdict {
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
        // What was added since the copy is foreign now.
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
            let Host { ref uuid, boot_id, member, .. } = self.hosts[host];
            let uuid = uuid.clone();
            self.hosts.push(Host { uuid, boot_id, member, task: None, running: None });
            self.counts.copies += 1;
        }
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
        let start = Start::new(Starting { own, store, first, at });
        beginning.task = Some(Task::Start(start, None));
    }

    fn drain_or_undrain(&mut self, host: usize) {
        let cluster = self.cluster();
        let ids: Vec<ServerId> = cluster.servers().map(|(id, ..)| id).collect();
        if ids.is_empty() || self.hosts[host].task.is_some() {
            return;
        }
        let id = ids[self.rng.below(ids.len())];
        let made = cluster.drain(id).or_else(|_| cluster.undrain(id));
        self.hosts[host].task = made.ok().map(Task::Other);
    }

    /// A process makes its next call; the answer to a transaction may be lost.
    fn go_on(&mut self, host: usize) -> Verdict {
        match self.hosts[host].task.take() {
            Some(Task::Add(id, writes)) => {
                let compares = self.compares != Compares::AllButAdds;
                if self.call(&Call::Swap(writes), compares) == Some(Answer::Swapped(true)) {
                    return self.on_added(host, id);
                }
                Ok(())
            }
            Some(Task::Other(writes)) => {
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
                let compares = self.compares != Compares::AllButStarts;
                let Some(answer) = self.call(&call, compares) else { return Ok(()) };
                if answer == Answer::Swapped(true) {
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

    fn start(&mut self, host: usize, mut start: Start, answer: Option<Answer>) -> Verdict {
        let own = start.own().clone();
        match start.next(self.now_ms, answer) {
            Ok(Next::Call(call)) => self.hosts[host].task = Some(Task::Start(start, Some(call))),
            Ok(Next::Pause) => {
                self.counts.waits += 1;
                self.hosts[host].task = Some(Task::Start(start, None));
            }
            Ok(Next::Done(lease)) => {
                let mut following = Following::new(FS);
                following.on_read(&self.etcd.read()).unwrap();
                let epoch = map_of(&self.cluster())?.epoch();
                let keep = Keep::new(own, lease);
                self.hosts[host].running = Some(Running { keep, following, epoch });
            }
            Err(RegistryError::State(_)) => self.counts.refused += 1,
            Err(other) => panic!("{other}"),
        }
        Ok(())
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
        let host = &mut self.hosts[host];
        let Some((server, _)) = host.member else { return Ok(()) };
        let own = host.own(server);
        let Some(Running { following, epoch, .. }) = &mut host.running else { return Ok(()) };
        let snapshot = self.etcd.read();
        match self.etcd.behind(following.revision()) {
            Ok(changes) if !breaks => {
                // A watch gives the changes of one revision together.
                let Some(next) = changes.first().map(|change| change.version) else {
                    return Ok(());
                };
                let together = changes.into_iter().take_while(|change| change.version == next);
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
        match own.judge(cluster, *epoch) {
            News::Overtaken(_) => {
                self.counts.overtaken += 1;
                host.crash();
                return Ok(());
            }
            News::NoMap => return Err("the entries are no map".to_owned()),
            News::Newer(map) => *epoch = map.epoch(),
            News::Nothing => {}
        }
        let Own { alive, .. } = &own;
        let entry = cluster.server_of(&alive.uuid);
        let is_own = entry
            .is_some_and(|(id, shards)| (id, u64::from(shards.term)) == (server, alive.boot_id));
        if !is_own {
            return Err(format!("start {} of server {server} goes on", alive.boot_id));
        }
        Self::check_map(&mut self.maps, map_of(cluster)?)
    }

    /// Who has the same epoch has the same map.
    fn check_map(maps: &mut BTreeMap<MapEpoch, Map>, map: Map) -> Verdict {
        let known = maps.entry(map.epoch()).or_insert_with(|| map.clone());
        if *known == map {
            return Ok(());
        }
        Err(format!("two maps have the epoch {:?}: {known:?} and {map:?}", map.epoch()))
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

fn run(seed: u64, compares: Compares, bumps: bool) -> Result<Counts, String> {
    let mut run = Run::new(seed, compares, bumps);
    (0..ACT_COUNT).try_for_each(|_| run.act()).map(|()| run.counts)
}

#[test]
fn servers_that_come_and_go_agree_whatever_etcd_does() {
    let mut all = Counts::default();
    for seed in 100..140 {
        let found = run(seed, Compares::All, true);
        let counts = found.unwrap_or_else(|line| panic!("seed {seed}: {line}"));
        all.starts += counts.starts;
        all.joins += counts.joins;
        all.conflicts += counts.conflicts;
        all.copies += counts.copies;
        all.refused += counts.refused;
        all.waits += counts.waits;
        all.overtaken += counts.overtaken;
        all.restores += counts.restores;
        all.compacted += counts.compacted;
    }
    let Counts { starts, joins, conflicts, copies, .. } = all;
    let Counts { refused, waits, overtaken, restores, compacted, .. } = all;
    assert!(starts > 200 && joins > 80 && conflicts > 40, "{all:?}");
    assert!(copies > 10 && refused > 40 && waits > 40 && overtaken > 10, "{all:?}");
    assert!(restores > 10 && compacted > 20, "{all:?}");
}

fn finds(compares: Compares, bumps: bool, what: &str) {
    let mut lines = (0..40).filter_map(|seed| run(seed, compares, bumps).err());
    assert!(lines.any(|line| line.contains(what)), "{what} is not found");
}

#[test]
fn without_comparing_versions_two_servers_get_one_id() {
    finds(Compares::AllButAdds, true, "is given to");
}

#[test]
fn without_comparing_versions_two_copies_of_a_store_start() {
    finds(Compares::AllButStarts, true, "two starts");
}

/// Without a higher revision, the epochs of before are given to other maps.
#[test]
fn an_etcd_that_is_restored_with_its_old_revision_is_found() {
    finds(Compares::All, false, "two maps");
}
