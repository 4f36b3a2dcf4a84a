//! `Known`: what a server has used of the registry, as its store remembers it, and what a state of the
//! registry lacks of that (docs/protocol.md R3.18).
//!
//! An etcd that was restored from an older copy has lost generations, and servers that have joined
//! since. Files lie where these say, so the servers that know them put them back. Invariant: what is
//! put back was used by a server; of what the registry has, only whether servers take what is new
//! changes, as the last generation says.

use super::{Cluster, Fs, Server, ServerState, Shards, WrittenGeneration, generation_of};
use crate::Write;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a server has used of the registry; at first nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Known {
    generations: Vec<WrittenGeneration>,
    servers: BTreeMap<u16, (Server, Shards)>,
}

/// A state of the registry, compared with what a server knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compared {
    /// It has all that is known.
    HasAll,
    /// It lacks some of it.
    Lacks(Loss),
    /// It has something else in its place, as the sentence says.
    Differs(String),
}

/// What a registry has lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The writes that put it back.
    pub writes: Vec<Write>,
    /// It, in a sentence.
    pub line: String,
}

impl Known {
    /// Whether files lie as they do in `other`: terms, addresses and lanes may differ.
    #[must_use]
    pub fn places_as(&self, other: &Self) -> bool {
        self.generations == other.generations
            && self.servers.len() == other.servers.len()
            && self.servers.iter().all(|(id, (server, shards))| {
                let there = other.servers.get(id);
                there.is_some_and(|(it, its)| server.uuid == it.uuid && shards.are(its))
            })
    }
}

impl Cluster {
    /// What a server knows that uses this state.
    #[must_use]
    pub fn known(&self) -> Known {
        let servers = self.servers();
        let servers = servers.map(|(id, server, shards)| (id.0, (server.clone(), *shards)));
        Known { generations: self.fs.0.generations.clone(), servers: servers.collect() }
    }

    /// Whether the registry has what a server knows.
    #[must_use]
    pub fn compare(&self, known: &Known) -> Compared {
        let here = &self.fs.0.generations;
        let mut both = here.iter().zip(&known.generations);
        if let Some(no) = both.position(|(one, other)| generation_of(one) != generation_of(other)) {
            return Compared::Differs(format!(
                "generation {no} of the registry is not the one with which this server has made files: \
                 etcd was restored from an older copy, and a server was drained or added before the \
                 servers that knew generation {no} had put it back"
            ));
        }
        let mut lost: Vec<u16> = Vec::new();
        for (id, (server, shards)) in &known.servers {
            match self.servers.get(id).zip(self.shards.get(id)) {
                Some(((other, _), (there, _)))
                    if other.uuid == server.uuid && there.are(shards) => {}
                None if !self.servers.contains_key(id) && !self.shards.contains_key(id) => {
                    lost.push(*id);
                }
                Some(_) | None => {
                    return Compared::Differs(format!(
                        "server {id} of the registry is not the one that this server knows (its store \
                         was {}): etcd was restored from an older copy, and another one has joined \
                         before the servers that knew it had put it back",
                        server.uuid
                    ));
                }
            }
        }
        let from = here.len();
        if lost.is_empty() && from >= known.generations.len() {
            return Compared::HasAll;
        }
        self.loss(known, &lost).map_or_else(
            || Compared::Differs("the registry's entries do not fit what this server knows".into()),
            Compared::Lacks,
        )
    }

    /// What is lost, if the registry is one of servers and shards with it.
    fn loss(&self, known: &Known, lost: &[u16]) -> Option<Loss> {
        let mut whole = self.clone();
        let mut writes = Vec::new();
        for id in lost {
            let (server, shards) = known.servers.get(id)?;
            whole.servers.insert(*id, (server.clone(), 0));
            whole.shards.insert(*id, (*shards, 0));
            writes.push(self.write(&format!("shards/{id}"), 0, shards));
        }
        let from = self.fs.0.generations.len();
        if from < known.generations.len() {
            let generations = known.generations.clone();
            let last = generations.last()?.metas.clone();
            whole.fs.0 = Fs { generations, ..whole.fs.0 };
            for (id, (server, _)) in &mut whole.servers {
                let takes = whole.shards.get(id).is_some_and(|(its, _)| last.contains(&its.metas));
                server.state = if takes { ServerState::Active } else { ServerState::Draining };
            }
            writes.push(self.write("fs", self.fs.1, &whole.fs.0));
        }
        for (id, (server, version)) in &whole.servers {
            if self.servers.get(id).is_none_or(|(here, _)| here != server) {
                writes.push(self.write(&format!("servers/{id}"), *version, server));
            }
        }
        let fits = whole.map().is_some();
        let numbers = from..known.generations.len();
        let line = format!("etcd was restored from an older copy: it has lost {}", {
            let servers = lost.iter().map(|id| format!("server {id}"));
            let all = numbers.map(|no| format!("generation {no}")).chain(servers);
            all.collect::<Vec<_>>().join(", ")
        });
        fits.then_some(Loss { writes, line })
    }
}

impl Shards {
    /// Whether these are the same shards, in any term.
    fn are(&self, other: &Self) -> bool {
        (self.metas, self.datas) == (other.metas, other.datas)
    }
}
