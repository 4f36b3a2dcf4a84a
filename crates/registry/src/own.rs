//! `Own`: a running server in its cluster, and what a state of the registry means to it.

use crate::{Alive, Cluster, Compared, Known, Loss};
use wire::{Map, MapEpoch, ServerId};

/// A server in a start of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// Its id.
    pub server: ServerId,
    /// Its store, and the number of the start.
    pub alive: Alive,
}

/// What a state of the registry means to a running server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// Nothing.
    Nothing,
    /// Its lanes must learn of this map.
    Newer(Map),
    /// The entries are no map: they are not used.
    NoMap,
    /// They lack what the server knows: they are not used before that is put back.
    Lacks(Loss),
    /// They have something else in the place of what the server knows: they are not used.
    Differs(String),
    /// It may not go on, for this reason.
    Overtaken(String),
}

impl Own {
    /// Judges a state of the registry. `known`: what the server has used of it, and the epoch of the
    /// map that the lanes have.
    #[must_use]
    pub fn judge(&self, cluster: &Cluster, (known, epoch): (&Known, MapEpoch)) -> News {
        if let Some(line) = cluster.overtaken(self.server, &self.alive) {
            return News::Overtaken(line);
        }
        match cluster.compare(known) {
            Compared::HasAll => {}
            Compared::Lacks(loss) => return News::Lacks(loss),
            Compared::Differs(line) => return News::Differs(line),
        }
        match cluster.map() {
            Some(map) if map.epoch() > epoch => News::Newer(map),
            Some(_) => News::Nothing,
            None => News::NoMap,
        }
    }
}
