//! The evicted clients: who they are, and whose eviction is not yet recorded or announced.

use alloc::collections::BTreeSet;
use wire::ClientUuid;

/// The evicted clients of a lane.
#[derive(Debug)]
pub(crate) struct Evictions {
    /// Those that are remembered.
    remembered: BTreeSet<ClientUuid>,
    /// The last boot that evicted a client that is not remembered.
    forgotten_last: u64,
    /// Evicted in memory, not yet in the log.
    unrecorded: BTreeSet<ClientUuid>,
    /// Those that must be announced to the peer lanes.
    unannounced: BTreeSet<ClientUuid>,
}

impl Evictions {
    /// The evictions of earlier boots.
    pub(crate) fn new(remembered: BTreeSet<ClientUuid>, forgotten_last: u64) -> Self {
        let unrecorded = BTreeSet::new();
        let unannounced = BTreeSet::new();
        Self { remembered, forgotten_last, unrecorded, unannounced }
    }

    /// Adds a client, to be recorded, and to be announced if this lane decided it. Returns whether
    /// it was not evicted before.
    pub(crate) fn add(&mut self, client: ClientUuid, announces: bool) -> bool {
        let is_new = self.remembered.insert(client);
        if is_new {
            self.unrecorded.insert(client);
        }
        if is_new && announces {
            self.unannounced.insert(client);
        }
        is_new
    }

    /// The clients that are remembered.
    pub(crate) fn remembered(&self) -> alloc::vec::Vec<ClientUuid> {
        self.remembered.iter().copied().collect()
    }

    /// Takes the clients whose eviction is to be recorded.
    pub(crate) fn take_unrecorded(&mut self) -> BTreeSet<ClientUuid> {
        core::mem::take(&mut self.unrecorded)
    }

    /// Takes the clients whose eviction is to be announced.
    pub(crate) fn take_unannounced(&mut self) -> BTreeSet<ClientUuid> {
        core::mem::take(&mut self.unannounced)
    }

    /// Whether a client was evicted: it is remembered, or it is not known and has state from no
    /// later than the forgotten evictions.
    pub(crate) fn includes(&self, client: ClientUuid, boot_id_last: u64, is_known: bool) -> bool {
        let early = boot_id_last > 0 && boot_id_last <= self.forgotten_last;
        self.remembered.contains(&client) || (early && !is_known)
    }

    /// The number of remembered clients, and the last boot that evicted another one.
    #[cfg(test)]
    pub(crate) fn extent(&self) -> (usize, u64) {
        (self.remembered.len(), self.forgotten_last)
    }
}
