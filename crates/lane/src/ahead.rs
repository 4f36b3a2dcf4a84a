//! `Ahead`: the clients that recovery waits for and that know of a later start of a server than this
//! lane (docs/protocol.md R9.21): by a newer map, or by one of before etcd was restored from an older
//! copy. Their requests are refused until this lane has a map with that start, so the time in which
//! they must be back does not pass meanwhile.
//!
//! Invariant: a client counts only while it goes on asking, so one that dies is evicted.

use alloc::collections::BTreeMap;
use interface::Mono;
use wire::{ClientUuid, MapEpoch};

/// The clients, with the epoch that each named last, and when.
#[derive(Default, Debug)]
pub(crate) struct Ahead(BTreeMap<ClientUuid, (MapEpoch, Mono)>);

impl Ahead {
    /// A request of a client names another epoch. Returns whether no client had.
    pub(crate) fn on_request(&mut self, client: ClientUuid, epoch: MapEpoch, now: Mono) -> bool {
        let is_first = self.0.is_empty();
        self.0.insert(client, (epoch, now));
        is_first
    }

    /// The lane has this map. Returns whether a client may have waited for it.
    pub(crate) fn on_map(&mut self, epoch: MapEpoch) -> bool {
        let before_count = self.0.len();
        self.0.retain(|_, (known, _)| *known > epoch);
        self.0.len() < before_count
    }

    /// Whether a client is refused for its map, and has asked within the last `silent_ms_max`.
    pub(crate) fn has(&self, client: ClientUuid, now: Mono, silent_ms_max: u64) -> bool {
        self.0.get(&client).is_some_and(|(_, at)| now <= at.after_ms(silent_ms_max))
    }

    /// Whether any client does.
    pub(crate) fn has_any(&self, now: Mono, silent_ms_max: u64) -> bool {
        self.0.keys().any(|client| self.has(*client, now, silent_ms_max))
    }

    /// Whether there are none, also of those that are silent by now.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Recovery does not wait for a client any more.
    pub(crate) fn forget(&mut self, client: ClientUuid) {
        self.0.remove(&client);
    }
}
