//! `Cluster`: the entries of the registry, the map that follows from them, and the changes of them.
//!
//! ```text
//! /lanefs/FSUUID/fs           the generations (crates/wire/src/generation.rs), as ranges of shards;
//!                             layout of new files, and by how much epochs are above versions
//!                servers/ID   uuid, weight, state, address and lanes of the last start
//!                shards/ID    the shards of the server, and their term
//!                alive/ID     uuid and boot, under a lease: it ends with the server
//! ```
//! From the same entries follows the same map: its epoch is the highest version of those that it
//! is made of, above that of the map which the first server had alone. `alive` is none of them. Changes are made of a state that was read, and are refused by
//! etcd if that is not the present one.

mod known;

pub use known::{Compared, Known, Loss};

use crate::{LeaseId, RegistryError, Snapshot, Versioned, Write};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use wire::{
    Generation, Layout, Map, MapEpoch, ServerAddress, ServerId, ServerRow, ShardCounts, ShardId,
    ShardRange, ShardRun, ShardSet, Term,
};

/// Whether a server gets what is new.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// New directories and files are made there.
    Active,
    /// None are; what is there stays.
    Draining,
}

/// The entry of a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Server {
    /// That of its store, in hexadecimal.
    pub uuid: String,
    /// How many shards it has, in hundredths of a usual server's: so much of what is new it gets.
    pub weight: u32,
    /// Whether it takes what is new.
    pub state: ServerState,
    /// Where clients and servers reach it.
    pub address: SocketAddr,
    /// Its lanes.
    pub lanes: u16,
}

/// The entry of a server's shards: the first of each kind, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shards {
    /// Metadata shards.
    pub metas: (u16, u16),
    /// Data shards.
    pub datas: (u16, u16),
    /// Their term: that of the server's last start.
    pub term: u32,
}

/// The entry of a server that runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Alive {
    /// That of its store.
    pub uuid: String,
    /// The number of this start of it.
    pub boot_id: u64,
}

/// A range as it is written: its first shard, and how many.
type WrittenRange = (u16, u16);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct WrittenGeneration {
    metas: Vec<WrittenRange>,
    datas: Vec<WrittenRange>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Fs {
    generations: Vec<WrittenGeneration>,
    /// Unit and count of the stripes of new files.
    #[serde(default)]
    layout: Option<(u64, u16)>,
    /// The epoch of the last map of the first server alone.
    #[serde(default)]
    epoch_base: u64,
}

/// What a file system has that becomes a cluster's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Founding {
    /// The layout of new files.
    pub layout: Layout,
    /// The epoch of its map so far.
    pub epoch: MapEpoch,
}

/// What a server comes with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Brought {
    /// Its entry.
    pub server: Server,
    /// How many shards a server of weight 100 has.
    pub counts: ShardCounts,
}

/// The registry of a file system.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cluster {
    prefix: String,
    fs: (Fs, i64),
    servers: BTreeMap<u16, (Server, i64)>,
    shards: BTreeMap<u16, (Shards, i64)>,
    alive: BTreeMap<u16, (Alive, i64)>,
}

/// What the keys of a file system begin with.
#[must_use]
pub fn prefix(fs: [u8; 16]) -> String {
    format!("/lanefs/{}/", hex::encode(fs))
}

/// The key of what a join token opens. It is below no file system's prefix.
#[must_use]
pub fn join_key(token_id: [u8; 8]) -> String {
    format!("/lanefs/join/{}", hex::encode(token_id))
}

impl Cluster {
    /// What was read below the file system's prefix.
    ///
    /// # Errors
    /// [`RegistryError::Entry`] for an entry of a later version, or none of ours.
    pub fn read(fs: [u8; 16], snapshot: &Snapshot) -> Result<Self, RegistryError> {
        let mut cluster = Self { prefix: prefix(fs), ..Self::default() };
        cluster.apply(&snapshot.entries)?;
        Ok(cluster)
    }

    /// Changes in the order in which they were made.
    ///
    /// # Errors
    /// As of [`Cluster::read`].
    pub fn apply(&mut self, changes: &[Versioned]) -> Result<(), RegistryError> {
        changes.iter().try_for_each(|change| self.apply_one(change))
    }

    fn apply_one(&mut self, change: &Versioned) -> Result<(), RegistryError> {
        let unknown =
            |why: &str| RegistryError::Entry { key: change.key.clone(), why: why.to_owned() };
        let Some(name) = change.key.strip_prefix(&self.prefix) else {
            return Err(unknown("it is of another file system"));
        };
        if name == "fs" {
            self.fs = (decoded(change)?.unwrap_or_default(), change.version);
            return Ok(());
        }
        let (kind, id) = name.split_once('/').ok_or_else(|| unknown("its name is not known"))?;
        let id: u16 = id.parse().map_err(|_| unknown("it names no server"))?;
        match kind {
            "servers" => put(&mut self.servers, id, change),
            "shards" => put(&mut self.shards, id, change),
            "alive" => put(&mut self.alive, id, change),
            _ => Err(unknown("its name is not known")),
        }
    }

    /// Whether there is a cluster.
    #[must_use]
    pub const fn exists(&self) -> bool {
        self.fs.1 != 0
    }

    /// The servers, by id, with their shards.
    pub fn servers(&self) -> impl Iterator<Item = (ServerId, &Server, &Shards)> {
        self.servers.iter().filter_map(|(id, (server, _))| {
            let (shards, _) = self.shards.get(id)?;
            Some((ServerId(*id), server, shards))
        })
    }

    /// The server whose store has this uuid, with its shards.
    #[must_use]
    pub fn server_of(&self, uuid: &str) -> Option<(ServerId, Shards)> {
        let found = self.servers().find(|(_, server, _)| server.uuid == uuid);
        found.map(|(id, _, shards)| (id, *shards))
    }

    /// The layout of new files.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let written = self.fs.0.layout;
        written.map_or(Layout::DEFAULT, |(stripe_unit_bytes, count_bits)| {
            Layout::of_count_bits(stripe_unit_bytes, count_bits)
        })
    }

    /// The present start of a server, while it runs.
    #[must_use]
    pub fn alive(&self, id: ServerId) -> Option<&Alive> {
        self.alive.get(&id.0).map(|(alive, _)| alive)
    }

    /// The map; `None` while the entries are not complete.
    #[must_use]
    pub fn map(&self) -> Option<Map> {
        let versions = [&self.fs.1].into_iter();
        let versions = versions.chain(self.servers.values().map(|(_, version)| version));
        let epoch = versions.chain(self.shards.values().map(|(_, version)| version)).max()?;
        let row = |(id, server, _): (ServerId, &Server, &Shards)| ServerRow {
            id,
            lane_count: server.lanes,
            address: ServerAddress::At(server.address),
        };
        let servers: Vec<ServerRow> = self.servers().map(row).collect();
        let mut runs = Vec::new();
        for (server, _, shards) in self.servers() {
            let term = Term(shards.term);
            let run = |first, shard_count| ShardRun { first, shard_count, server, term };
            runs.push(run(ShardId::meta(shards.metas.0), shards.metas.1));
            runs.push(run(ShardId::data(shards.datas.0), shards.datas.1));
        }
        runs.sort_unstable_by_key(|run| run.first);
        let generations = self.fs.0.generations.iter().map(generation_of);
        let generations: Vec<Generation> = generations.collect::<Option<_>>()?;
        let epoch = u64::try_from(*epoch).ok()?;
        let epoch = MapEpoch(self.fs.0.epoch_base.saturating_add(epoch));
        let map = Map::new(epoch, self.counts(), servers.into(), runs.into())?;
        map.with_generations(generations.into())
    }

    /// All shards there are.
    fn counts(&self) -> ShardCounts {
        let end = |range: fn(&Shards) -> WrittenRange| {
            let ends = self.shards.values().map(|(shards, _)| {
                let (first, shard_count) = range(shards);
                first.saturating_add(shard_count)
            });
            ends.max().unwrap_or(0)
        };
        ShardCounts { meta: end(|shards| shards.metas), data: end(|shards| shards.datas) }
    }

    /// The writes that make a cluster of a file system: the server that has it becomes the first one,
    /// with all shards that there are; and what it is then.
    ///
    /// # Errors
    /// [`RegistryError::State`] if there is a cluster already.
    pub fn found(
        &self,
        brought: &Brought,
        founding: &Founding,
    ) -> Result<((ServerId, Shards), Vec<Write>), RegistryError> {
        if self.exists() {
            let line =
                "the file system is a cluster's already, and this store is none of its servers";
            return Err(RegistryError::State(line.to_owned()));
        }
        let (stripe_unit_bytes, stripe_count) =
            (founding.layout.stripe_unit_bytes, founding.layout.count_bits());
        let mut founded = self.clone();
        founded.fs.0.layout = Some((stripe_unit_bytes, stripe_count));
        founded.fs.0.epoch_base = founding.epoch.0;
        founded.add(brought)
    }

    /// The writes that add a server, as the next one, with its shards in their first term; and what it
    /// is then.
    ///
    /// # Errors
    /// [`RegistryError::State`] if its store is one of a server already, or if the limits of servers,
    /// shards or generations are reached.
    pub fn add(
        &self,
        brought: &Brought,
    ) -> Result<((ServerId, Shards), Vec<Write>), RegistryError> {
        let Brought { server, counts } = brought;
        let weighted = |count: u16| {
            let count = u64::from(count) * u64::from(server.weight) / 100;
            u16::try_from(count.max(1)).unwrap_or(u16::MAX)
        };
        let counts = ShardCounts { meta: weighted(counts.meta), data: weighted(counts.data) };
        let uuid = &server.uuid;
        if let Some((id, _)) = self.servers.iter().find(|(_, (known, _))| known.uuid == *uuid) {
            let line = format!("the store {uuid} is that of server {id} already");
            return Err(RegistryError::State(line));
        }
        let id = self.servers.keys().next_back().map_or(1, |last| last.saturating_add(1));
        let (before, state) = (self.counts(), RegistryError::State);
        let fits = |known: u16, more: u16| {
            known.checked_add(more).is_some_and(|count| more > 0 && count <= ShardCounts::MAX)
        };
        if self.servers.len() >= usize::from(Map::SERVER_COUNT_MAX) || id == u16::MAX {
            return Err(state(format!("the cluster has {} servers already", self.servers.len())));
        }
        if !fits(before.meta, counts.meta) || !fits(before.data, counts.data) {
            return Err(state(format!("{counts:?} and {before:?} are too many shards")));
        }
        let (metas, datas) = ((before.meta, counts.meta), (before.data, counts.data));
        let shards = Shards { metas, datas, term: 1 };
        let mut takes: Vec<Shards> = self.that_take().map(|(_, shards)| *shards).collect();
        takes.push(shards);
        let fs = self.with_generation(&takes)?;
        let writes = vec![
            self.write("fs", self.fs.1, &fs),
            self.write(&format!("servers/{id}"), 0, server),
            self.write(&format!("shards/{id}"), 0, &shards),
        ];
        Ok(((ServerId(id), shards), writes))
    }

    /// The writes after which a server gets nothing new.
    ///
    /// # Errors
    /// [`RegistryError::State`] if there is no such server, if it is the last one that takes what is
    /// new, or if the limit of generations is reached.
    pub fn drain(&self, id: ServerId) -> Result<Vec<Write>, RegistryError> {
        let (server, version) = self.servers.get(&id.0).ok_or_else(|| no_server(id))?;
        if server.state == ServerState::Draining {
            return Err(RegistryError::State(format!("server {id} is draining already")));
        }
        let others = self.that_take().filter(|(other, _)| *other != id);
        let takes: Vec<Shards> = others.map(|(_, shards)| *shards).collect();
        if takes.is_empty() {
            let line = format!("server {id} is the only one that takes new directories and files");
            return Err(RegistryError::State(line));
        }
        let server = Server { state: ServerState::Draining, ..server.clone() };
        self.with_state(id, (&server, *version), &takes)
    }

    /// The writes after which a drained server gets what is new again.
    ///
    /// # Errors
    /// [`RegistryError::State`] if there is no such server, if it is not draining, or if the limit of
    /// generations is reached.
    pub fn undrain(&self, id: ServerId) -> Result<Vec<Write>, RegistryError> {
        let (server, version) = self.servers.get(&id.0).ok_or_else(|| no_server(id))?;
        if server.state == ServerState::Active {
            return Err(RegistryError::State(format!("server {id} is not draining")));
        }
        let takes = self
            .servers()
            .filter(|(other, server, _)| *other == id || server.state == ServerState::Active);
        let takes: Vec<Shards> = takes.map(|(_, _, shards)| *shards).collect();
        let server = Server { state: ServerState::Active, ..server.clone() };
        self.with_state(id, (&server, *version), &takes)
    }

    fn with_state(
        &self,
        id: ServerId,
        (server, version): (&Server, i64),
        takes: &[Shards],
    ) -> Result<Vec<Write>, RegistryError> {
        Ok(vec![
            self.write("fs", self.fs.1, &self.with_generation(takes)?),
            self.write(&format!("servers/{id}"), version, server),
        ])
    }

    /// The writes with which a server's start begins: the term of its shards, where it is, and that it
    /// lives for as long as the lease.
    ///
    /// # Errors
    /// [`RegistryError::State`] if there is no such server, if another store has its id, if it runs
    /// already (as two copies of a store would), or if the store's last start was a later one.
    pub fn start(
        &self,
        id: ServerId,
        alive: &Alive,
        (address, lanes): (SocketAddr, u16),
        lease: LeaseId,
    ) -> Result<Vec<Write>, RegistryError> {
        let ((server, version), (shards, shards_version)) =
            self.servers.get(&id.0).zip(self.shards.get(&id.0)).ok_or_else(|| no_server(id))?;
        if server.uuid != alive.uuid {
            let line =
                format!("server {id} has another store ({}): this one is foreign", server.uuid);
            return Err(RegistryError::State(line));
        }
        if let Some((other, _)) = self.alive.get(&id.0) {
            let line = format!(
                "server {id} runs already, at {} in its start {}: if that is another process, one of the \
                 two stores is a copy; if it was killed, start it again in 5 s",
                server.address, other.boot_id
            );
            return Err(RegistryError::State(line));
        }
        let term = u32::try_from(alive.boot_id).ok().filter(|term| *term > shards.term);
        let term = term.or_else(|| (shards.term == 1 && alive.boot_id == 1).then_some(1));
        let Some(term) = term else {
            let line = format!(
                "the store was started {} times, and server {id} {} times: it is an older copy",
                alive.boot_id, shards.term
            );
            return Err(RegistryError::State(line));
        };
        let server = Server { address, lanes, ..server.clone() };
        let mut living = self.write(&format!("alive/{id}"), 0, alive);
        living.lease = Some(lease);
        Ok(vec![
            self.write(&format!("servers/{id}"), *version, &server),
            self.write(&format!("shards/{id}"), *shards_version, &Shards { term, ..*shards }),
            living,
        ])
    }

    /// Why a running server may not go on: it has been started again since, or etcd was restored from
    /// a copy that does not know this start, or not even the server.
    #[must_use]
    pub fn overtaken(&self, id: ServerId, alive: &Alive) -> Option<String> {
        let Alive { uuid, boot_id } = alive;
        let store = self.servers.get(&id.0).map(|(server, _)| &server.uuid);
        let term = self.shards.get(&id.0).map_or(0, |(shards, _)| u64::from(shards.term));
        if store != Some(uuid) {
            return Some(format!(
                "the registry has another store as server {id}, or none: etcd was restored from a copy of \
                 before the store {uuid} joined; this one ends, and may be started again"
            ));
        }
        match term.cmp(boot_id) {
            Ordering::Equal => None,
            Ordering::Greater => Some(format!(
                "server {id} was started elsewhere, with a copy of the store {uuid}: this one ends"
            )),
            Ordering::Less => Some(format!(
                "the registry knows start {term} of server {id} and not {boot_id}: etcd was restored from \
                 an older copy; this one ends, and may be started again"
            )),
        }
    }

    /// The write after which a running server is alive again whose lease has ended, as while etcd was
    /// away.
    ///
    /// # Errors
    /// [`RegistryError::State`] if the server has been started again since: with a copy of the store.
    pub fn revive(
        &self,
        id: ServerId,
        alive: &Alive,
        lease: LeaseId,
    ) -> Result<Vec<Write>, RegistryError> {
        if let Some(line) = self.overtaken(id, alive) {
            return Err(RegistryError::State(line));
        }
        // The answer to an earlier try may have been lost.
        let version = self.alive.get(&id.0).map_or(0, |(_, version)| *version);
        let mut living = self.write(&format!("alive/{id}"), version, alive);
        living.lease = Some(lease);
        Ok(vec![living])
    }

    fn that_take(&self) -> impl Iterator<Item = (ServerId, &Shards)> {
        let takes = |server: &Server| server.state == ServerState::Active;
        self.servers()
            .filter(move |(_, server, _)| takes(server))
            .map(|(id, _, shards)| (id, shards))
    }

    /// One more generation: these shards take what is new.
    fn with_generation(&self, takes: &[Shards]) -> Result<Fs, RegistryError> {
        const GENERATION_COUNT_MAX: usize = 255;
        let ranges = |of: fn(&Shards) -> WrittenRange| takes.iter().map(of).collect();
        let next = WrittenGeneration {
            metas: ranges(|shards| shards.metas),
            datas: ranges(|shards| shards.datas),
        };
        let mut fs = self.fs.0.clone();
        fs.generations.push(next);
        if fs.generations.len() > GENERATION_COUNT_MAX {
            let line = "servers were added and drained too often: 255 times".to_owned();
            return Err(RegistryError::State(line));
        }
        Ok(fs)
    }

    fn write(&self, name: &str, version: i64, value: &impl Serialize) -> Write {
        let value = serde_json::to_value(value).unwrap_or_default().to_string();
        Write { key: format!("{}{name}", self.prefix), version, value: Some(value), lease: None }
    }
}

fn no_server(id: ServerId) -> RegistryError {
    RegistryError::State(format!("the cluster has no server {id}"))
}

fn generation_of(written: &WrittenGeneration) -> Option<Generation> {
    let set = |ranges: &[WrittenRange]| {
        let range = |&(first, shard_count): &WrittenRange| ShardRange { first, shard_count };
        ShardSet::new(ranges.iter().map(range))
    };
    Some(Generation { metas: set(&written.metas)?, datas: set(&written.datas)? })
}

fn decoded<T: DeserializeOwned>(entry: &Versioned) -> Result<Option<T>, RegistryError> {
    let read = entry.value.as_deref().map(serde_json::from_str).transpose();
    read.map_err(|why| RegistryError::Entry { key: entry.key.clone(), why: why.to_string() })
}

/// Puts an entry into a table, or takes it out.
fn put<T: DeserializeOwned>(
    table: &mut BTreeMap<u16, (T, i64)>,
    id: u16,
    entry: &Versioned,
) -> Result<(), RegistryError> {
    match decoded(entry)? {
        Some(value) => table.insert(id, (value, entry.version)),
        None => table.remove(&id),
    };
    Ok(())
}
