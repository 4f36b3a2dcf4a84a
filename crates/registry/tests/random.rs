//! The registry as several processes change it at random: an etcd in memory that loses answers, ends
//! leases, compacts its history and is restored from an older copy, while servers join, start, die,
//! are drained, and are started from copies of their stores.
//!
//! A change is what it is in the product: everything is read, the writes follow from it
//! ([`Cluster`]), and a transaction makes them if no entry has changed since. Between both, other
//! processes act. Each running server follows the registry as `follow` does.
#![allow(clippy::unwrap_used, missing_docs)]

use registry::{
    Alive, Brought, Cluster, Founding, LeaseId, RegistryError, Server, ServerState, Shards,
    Snapshot, Versioned, Write,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use wire::{Layout, Map, MapEpoch, ServerId, ShardCounts};

const FS: [u8; 16] = [7; 16];
const COUNTS: ShardCounts = ShardCounts { meta: 2, data: 2 };
const HOST_COUNT: usize = 5;
const ACT_COUNT: usize = 400;
/// By how much revisions rise with a restore, as `etcdutl snapshot restore --bump-revision` does.
const BUMP: i64 = 1_000_000;

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

/// What an etcd has.
#[derive(Clone, Default)]
struct Keys {
    revision: i64,
    /// By key: value, version, lease.
    entries: BTreeMap<String, (String, i64, Option<LeaseId>)>,
    /// The changes behind the compacted revision.
    history: Vec<Versioned>,
    compacted: i64,
}

impl Keys {
    fn read(&self) -> Snapshot {
        let entry = |(key, (value, version, _)): (&String, &(String, i64, Option<LeaseId>))| {
            Versioned { key: key.clone(), value: Some(value.clone()), version: *version }
        };
        Snapshot { revision: self.revision, entries: self.entries.iter().map(entry).collect() }
    }

    /// `compares`: as etcd does.
    fn swap(&mut self, writes: &[Write], compares: bool) -> bool {
        let version = |key: &String| self.entries.get(key).map_or(0, |(_, version, _)| *version);
        if compares && writes.iter().any(|write| version(&write.key) != write.version) {
            return false;
        }
        self.revision += 1;
        for Write { key, value, lease, version: _ } in writes {
            self.put(key, value.as_deref(), *lease);
        }
        true
    }

    fn put(&mut self, key: &str, value: Option<&str>, lease: Option<LeaseId>) {
        match value {
            Some(value) => {
                self.entries.insert(key.to_owned(), (value.to_owned(), self.revision, lease));
            }
            None => drop(self.entries.remove(key)),
        }
        let (key, value, version) = (key.to_owned(), value.map(str::to_owned), self.revision);
        self.history.push(Versioned { key, value, version });
    }

    fn end_lease(&mut self, lease: LeaseId) {
        let under = |(key, (.., held)): (&String, &(String, i64, Option<LeaseId>))| {
            (*held == Some(lease)).then(|| key.clone())
        };
        let keys: Vec<String> = self.entries.iter().filter_map(under).collect();
        if !keys.is_empty() {
            self.revision += 1;
        }
        keys.iter().for_each(|key| self.put(key, None, None));
    }

    fn compact(&mut self) {
        self.compacted = self.revision;
        self.history.clear();
    }

    /// The changes behind a revision, if they are there.
    fn behind(&self, revision: i64) -> Option<Vec<Versioned>> {
        let is_there = (self.compacted..=self.revision).contains(&revision);
        let later = self.history.iter().filter(|change| change.version > revision);
        is_there.then(|| later.cloned().collect())
    }
}

/// What the process of a server knows of the registry.
struct Follower {
    cluster: Cluster,
    revision: i64,
    /// The epoch that its lanes have.
    epoch: MapEpoch,
}

/// What a process is about to write.
#[derive(Clone)]
enum Pending {
    Add(ServerId, Vec<Write>),
    Start(LeaseId, Vec<Write>),
    Other(Vec<Write>),
}

/// A store, and the process that has it.
struct Host {
    uuid: String,
    boot_id: u64,
    member: Option<ServerId>,
    pending: Option<Pending>,
    running: Option<(LeaseId, Follower)>,
}

impl Host {
    fn alive(&self) -> Alive {
        Alive { uuid: self.uuid.clone(), boot_id: self.boot_id }
    }

    fn crash(&mut self) {
        (self.pending, self.running) = (None, None);
    }
}

#[derive(Default, Debug)]
struct Counts {
    starts: usize,
    joins: usize,
    conflicts: usize,
    copies: usize,
    refused: usize,
    overtaken: usize,
    restores: usize,
    compacted: usize,
}

struct Run {
    rng: Rng,
    keys: Keys,
    copy: Option<Keys>,
    hosts: Vec<Host>,
    lease_last: i64,
    /// What compares versions.
    compares: Compares,
    /// Revisions rise with a restore.
    bumps: bool,
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

fn server(uuid: &str) -> Server {
    let address = SocketAddr::from(([10, 0, 0, 1], 7001));
    let (uuid, state) = (uuid.to_owned(), ServerState::Active);
    Server { uuid, weight: 100, state, address, lanes: 1 }
}

impl Run {
    fn new(seed: u64, compares: Compares, bumps: bool) -> Self {
        let host = |number: usize| Host {
            uuid: format!("{number:032x}"),
            boot_id: 0,
            member: None,
            pending: None,
            running: None,
        };
        Self {
            rng: Rng(seed),
            keys: Keys { revision: 1, ..Keys::default() },
            copy: None,
            hosts: (1..=HOST_COUNT).map(host).collect(),
            lease_last: 0,
            compares,
            bumps,
            started: BTreeSet::new(),
            added: BTreeMap::new(),
            maps: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    fn cluster(&self) -> Cluster {
        Cluster::read(FS, &self.keys.read()).unwrap()
    }

    /// One process does one step.
    fn act(&mut self) -> Verdict {
        let host = self.rng.below(self.hosts.len());
        match self.rng.below(20) {
            0 => self.hosts[host].crash(),
            1 => self.end_lease(),
            2 => self.keys.compact(),
            3 if self.rng.one_in(3) => self.copy = Some(self.keys.clone()),
            3 if self.rng.one_in(4) => self.restore(),
            4 if self.rng.one_in(3) => self.copy_store(host),
            5 => self.drain_or_undrain(host),
            6..=9 if self.hosts[host].running.is_some() => self.follow(host)?,
            _ if self.hosts[host].pending.is_some() => self.commit(host)?,
            _ if self.hosts[host].running.is_some() => self.keep(host),
            _ => self.begin(host),
        }
        self.check()
    }

    /// A lease ends: that of a process that died, or that etcd has not heard of.
    fn end_lease(&mut self) {
        let all: Vec<LeaseId> =
            self.keys.entries.values().filter_map(|(.., lease)| *lease).collect();
        if !all.is_empty() {
            let lease = all[self.rng.below(all.len())];
            self.keys.end_lease(lease);
        }
    }

    fn restore(&mut self) {
        let Some(copy) = self.copy.take() else { return };
        let revision_last = self.keys.revision;
        self.keys = copy;
        if self.bumps {
            self.keys.revision = self.keys.revision.max(revision_last) + BUMP;
        }
        self.keys.compact();
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
            self.hosts.push(Host { uuid, boot_id, member, pending: None, running: None });
            self.counts.copies += 1;
        }
    }

    /// Reads everything, and decides what to write.
    fn begin(&mut self, host: usize) {
        let cluster = self.cluster();
        let joining = &mut self.hosts[host];
        let alive = joining.alive();
        let Some(id) = joining.member else {
            if let Some((id, _)) = cluster.server_of(&joining.uuid) {
                joining.member = Some(id); // An answer was lost.
                return;
            }
            let brought = Brought { server: server(&joining.uuid), counts: COUNTS };
            let founding = Founding { layout: Layout::DEFAULT, epoch: MapEpoch(17) };
            let made = if cluster.exists() {
                cluster.add(&brought)
            } else {
                cluster.found(&brought, &founding)
            };
            let ((id, _), writes) = made.unwrap();
            joining.pending = Some(Pending::Add(id, writes));
            return;
        };
        if cluster.server_of(&joining.uuid).map(|(id, _)| id) != Some(id) {
            return; // A foreign store: refused.
        }
        joining.boot_id += 1;
        self.lease_last += 1;
        let (alive, lease) = (Alive { boot_id: alive.boot_id + 1, ..alive }, self.lease_last);
        let at = (SocketAddr::from(([10, 0, 0, 1], 7001)), 1);
        match cluster.start(id, &alive, at, LeaseId(lease)) {
            Ok(writes) => joining.pending = Some(Pending::Start(LeaseId(lease), writes)),
            Err(RegistryError::State(_)) => self.counts.refused += 1,
            Err(other) => panic!("{other}"),
        }
    }

    fn drain_or_undrain(&mut self, host: usize) {
        let cluster = self.cluster();
        let ids: Vec<ServerId> = cluster.servers().map(|(id, ..)| id).collect();
        if ids.is_empty() || self.hosts[host].pending.is_some() {
            return;
        }
        let id = ids[self.rng.below(ids.len())];
        let made = cluster.drain(id).or_else(|_| cluster.undrain(id));
        self.hosts[host].pending = made.ok().map(Pending::Other);
    }

    /// Makes the transaction; its answer may be lost.
    fn commit(&mut self, host: usize) -> Verdict {
        let Some(pending) = self.hosts[host].pending.take() else { return Ok(()) };
        let (Pending::Add(_, writes) | Pending::Start(_, writes) | Pending::Other(writes)) =
            &pending;
        let compares = match pending {
            Pending::Add(..) => self.compares != Compares::AllButAdds,
            Pending::Start(..) => self.compares != Compares::AllButStarts,
            Pending::Other(_) => true,
        };
        let made = self.keys.swap(writes, compares);
        let is_lost = self.rng.one_in(5);
        self.counts.conflicts += usize::from(!made);
        let Self { hosts, keys, .. } = self;
        let writer = &mut hosts[host];
        match pending {
            Pending::Add(id, ..) if made => {
                self.counts.joins += 1;
                if let Some(other) = self.added.insert(id, writer.uuid.clone()) {
                    return Err(format!("server {id} is given to {other} and {}", writer.uuid));
                }
                writer.member = Some(id).filter(|_| !is_lost);
            }
            Pending::Start(lease, _) if made => {
                let id = writer.member.unwrap();
                self.counts.starts += 1;
                if !self.started.insert((id, writer.boot_id)) {
                    return Err(format!("two starts {} of server {id}", writer.boot_id));
                }
                if is_lost {
                    writer.crash();
                } else {
                    let snapshot = keys.read();
                    let cluster = Cluster::read(FS, &snapshot).unwrap();
                    let (revision, epoch) = (snapshot.revision, map_of(&cluster)?.epoch());
                    writer.running = Some((lease, Follower { cluster, revision, epoch }));
                }
            }
            Pending::Add(..) | Pending::Start(..) | Pending::Other(_) => {}
        }
        Ok(())
    }

    /// A running server says that it is there; if its lease has ended it begins another one.
    fn keep(&mut self, host: usize) {
        let cluster = self.cluster();
        let keeping = &mut self.hosts[host];
        let (Some((lease, _)), Some(id)) = (&mut keeping.running, keeping.member) else { return };
        if self.keys.entries.values().any(|(.., held)| *held == Some(*lease)) {
            return;
        }
        self.lease_last += 1;
        *lease = LeaseId(self.lease_last);
        let alive = Alive { uuid: keeping.uuid.clone(), boot_id: keeping.boot_id };
        match cluster.revive(id, &alive, LeaseId(self.lease_last)) {
            Ok(writes) => drop(self.keys.swap(&writes, true)),
            Err(_) => {
                self.counts.overtaken += 1;
                keeping.crash();
            }
        }
    }

    /// A running server takes some changes, or reads everything anew.
    fn follow(&mut self, host: usize) -> Verdict {
        let breaks = self.rng.one_in(4);
        let following = &mut self.hosts[host];
        let alive = following.alive();
        let (Some((_, known)), Some(id)) = (&mut following.running, following.member) else {
            return Ok(());
        };
        let changes = self.keys.behind(known.revision).filter(|_| !breaks);
        if let Some(changes) = changes {
            // A watch gives the changes of one revision together.
            let Some(next) = changes.first().map(|change| change.version) else { return Ok(()) };
            let together = changes.iter().take_while(|change| change.version == next);
            known.cluster.apply(&together.cloned().collect::<Vec<_>>()).unwrap();
            known.revision = next;
        } else {
            self.counts.compacted += usize::from(!breaks);
            let snapshot = self.keys.read();
            known.cluster = Cluster::read(FS, &snapshot).unwrap();
            known.revision = snapshot.revision;
        }
        let is_present = known.revision == self.keys.revision;
        if is_present && known.cluster != Cluster::read(FS, &self.keys.read()).unwrap() {
            return Err("what was followed is not what is there".to_owned());
        }
        if known.cluster.overtaken(id, &alive).is_some() {
            self.counts.overtaken += 1;
            following.crash();
            return Ok(());
        }
        let entry = known.cluster.server_of(&alive.uuid);
        let is_own = entry
            .is_some_and(|(known, shards)| (known, u64::from(shards.term)) == (id, alive.boot_id));
        if !is_own {
            return Err(format!("start {} of server {id} goes on", alive.boot_id));
        }
        let map = map_of(&known.cluster)?;
        if map.epoch() > known.epoch {
            known.epoch = map.epoch();
        }
        Self::check_map(&mut self.maps, map)
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
        all.overtaken += counts.overtaken;
        all.restores += counts.restores;
        all.compacted += counts.compacted;
    }
    let Counts { starts, joins, conflicts, copies, refused, overtaken, restores, compacted } = all;
    assert!(starts > 200 && joins > 80 && conflicts > 40, "{all:?}");
    assert!(copies > 10 && refused > 40 && overtaken > 10, "{all:?}");
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
