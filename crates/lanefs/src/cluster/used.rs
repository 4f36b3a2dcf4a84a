//! `Used`: what a server has used of the registry, as its store remembers it (docs/protocol.md R3.18).
//!
//! Invariant: it is durable before the lanes use it.

use anyhow::{Context as _, Result};
use registry::{Cluster, Known};
use std::path::{Path, PathBuf};

/// What a store's server has used of the registry.
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

    /// The server is about to use a state of the registry.
    pub(super) fn record(&mut self, cluster: &Cluster) -> Result<()> {
        let known = cluster.known();
        if known != self.known {
            store::remember_registry(&self.store, &serde_json::to_string(&known)?)?;
            self.known = known;
        }
        Ok(())
    }
}
