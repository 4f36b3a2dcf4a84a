//! `Used`: what a server has used of the registry, as its store remembers it (docs/protocol.md R3.18).
//!
//! Invariant: it is durable before the lanes use it.

use anyhow::{Context as _, Result};
use registry::{Cluster, Compared, Known, Loss};
use std::path::{Path, PathBuf};

/// What a store's server has used of the registry.
#[derive(Clone)]
pub(super) struct Used {
    store: PathBuf,
    known: Known,
}

impl Used {
    /// As the store remembers it; nothing, if the server has used nothing yet.
    pub(super) fn of(store: &Path) -> Result<Self> {
        let text = store::used_registry(store)?;
        let read = text.as_deref().map(serde_json::from_str).transpose();
        let damaged = || format!("the file registry of {} is damaged", store.display());
        let known = read.with_context(damaged)?.unwrap_or_default();
        Ok(Self { store: store.to_owned(), known })
    }

    pub(super) const fn known(&self) -> &Known {
        &self.known
    }

    /// The server is about to use a state of the registry. A full disk may hold that up only if files
    /// may lie elsewhere by it.
    pub(super) fn record(&mut self, cluster: &Cluster) -> Result<()> {
        let known = cluster.known();
        if known == self.known {
            return Ok(());
        }
        match store::remember_registry(&self.store, &serde_json::to_string(&known)?) {
            Err(_) if known.places_as(&self.known) => {}
            written => written?,
        }
        self.known = known;
        Ok(())
    }

    /// What the registry has lost of it, in a sentence.
    pub(super) fn lost(&self, cluster: &Cluster) -> Option<String> {
        match cluster.compare(&self.known) {
            Compared::HasAll => None,
            Compared::Lacks(Loss { line, .. }) => Some(format!(
                "{line}. The server of this store puts that back when it runs: no server may be drained or \
                 added before"
            )),
            Compared::Differs(line) => Some(line),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use registry::{Brought, Founding, Server, ServerState, Shards, Snapshot, Versioned, Write};
    use wire::{Layout, MapEpoch, ShardCounts};

    const FS: [u8; 16] = [7; 16];

    fn brought(uuid: &str) -> Brought {
        let (uuid, state) = (uuid.to_owned(), ServerState::Active);
        let address = ([10, 0, 0, 1], 7117).into();
        let server = Server { uuid, weight: 100, state, address, lanes: 2 };
        Brought { server, counts: ShardCounts { meta: 4, data: 4 } }
    }

    fn with(cluster: &Cluster, writes: Vec<Write>) -> Cluster {
        let entry = |Write { key, value, .. }| Versioned { key, value, version: 1 };
        let entries: Vec<Versioned> = writes.into_iter().map(entry).collect();
        let mut changed = cluster.clone();
        changed.apply(&entries).unwrap();
        changed
    }

    #[test]
    fn what_cannot_be_recorded_is_used_only_if_files_lie_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let none = Cluster::read(FS, &Snapshot { revision: 1, entries: Vec::new() }).unwrap();
        let founding = Founding { layout: Layout::DEFAULT, epoch: MapEpoch(1) };
        let one = with(&none, none.found(&brought("one"), &founding).unwrap().1);
        let mut used = Used::of(folder.path()).unwrap();
        used.record(&one).unwrap();
        used = Used::of(folder.path()).unwrap();
        assert_eq!((used.known(), used.lost(&one)), (&one.known(), None));
        let two = with(&one, one.add(&brought("two")).unwrap().1);
        let (_, _, shards) = one.servers().next().unwrap();
        let value = Some(serde_json::to_string(&Shards { term: 2, ..*shards }).unwrap());
        let key = format!("{}shards/1", registry::prefix(FS));
        let started = with(&one, vec![Write { key, version: 1, value, lease: None }]);
        used.store = folder.path().join("full");
        used.record(&started).unwrap();
        assert!(used.record(&two).is_err(), "new files would lie elsewhere");
        assert_eq!(used.known(), &started.known());
        used.store = folder.path().to_owned();
        used.record(&two).unwrap();
        assert!(used.lost(&one).unwrap().contains("it has lost generation 1, server 2"));
    }
}
