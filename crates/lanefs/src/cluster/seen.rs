//! What a server has seen last of its cluster, for the page of `--metrics`.
//!
//! Invariant: nothing is asked for this; it is what the thread that follows the registry knows anyhow.

use super::show::{ServerLine, ShardsLine, lines};
use registry::Cluster;
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};
use wire::ServerId;

/// The latest state, shared by the thread that follows the registry and those that answer browsers.
#[derive(Clone)]
pub(crate) struct Seen(Arc<Mutex<State>>);

/// A cluster as one of its servers sees it.
#[derive(Clone, Serialize)]
pub(crate) struct State {
    /// The server that says this.
    own: u16,
    /// The registry does not answer: the rest is what it said last.
    is_away: bool,
    servers: Vec<ServerLine>,
    shards: Vec<ShardsLine>,
}

impl Seen {
    pub(super) fn new(own: ServerId) -> Self {
        let (servers, shards) = (Vec::new(), Vec::new());
        Self(Arc::new(Mutex::new(State { own: own.0, is_away: false, servers, shards })))
    }

    pub(super) fn is(&self, cluster: &Cluster) {
        let (servers, shards) = lines(cluster);
        self.change(|state| {
            *state = State { own: state.own, is_away: false, servers, shards };
        });
    }

    pub(super) fn fails(&self) {
        self.change(|state| state.is_away = true);
    }

    pub(crate) fn state(&self) -> State {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
