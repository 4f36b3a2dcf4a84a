//! The evicted clients: who they are, whose eviction is not yet recorded or announced, and which
//! lanes have recorded it.
//!
//! ```text
//! add ─▶ unrecorded, unannounced ─▶ recorded here, and told to each lane that is connected
//!          told ─ EvictionsRecorded of each of these lanes ─▶ in force: what it held is released
//! ```
//! Told and recorded ones are counted for each connection: both sides begin anew with the next.

use crate::acknowledgements::{BatchNo, Gate};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{ClientUuid, PeerLane};

/// The evictions that this lane and another one have told each other over their connection.
#[derive(Clone, Copy, Default, Debug)]
struct Told {
    /// This lane has told so many, of which the other has recorded so many.
    sent_count: u64,
    recorded_count: u64,
    /// The other has told so many, of which it has heard that so many are recorded here.
    received_count: u64,
    confirmed_count: u64,
}

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
    /// Those whose locks and write leases are released when the evictions are in force.
    holding: BTreeSet<ClientUuid>,
    told: BTreeMap<PeerLane, Told>,
    /// The batch of the last record of one.
    recorded_in: BatchNo,
    /// Requests wait until the evictions are in force.
    is_awaited: bool,
    /// Something has changed since all evictions were in force.
    is_unsettled: bool,
}

impl Evictions {
    /// The evictions of earlier boots.
    pub(crate) fn new(remembered: BTreeSet<ClientUuid>, forgotten_last: u64) -> Self {
        let unrecorded = BTreeSet::new();
        let (unannounced, holding, told) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let (recorded_in, is_awaited, is_unsettled) = (BatchNo(0), false, false);
        Self {
            remembered,
            forgotten_last,
            unrecorded,
            unannounced,
            holding,
            told,
            recorded_in,
            is_awaited,
            is_unsettled,
        }
    }

    /// Adds a client, to be recorded and announced. Returns whether it was not evicted before.
    pub(crate) fn add(&mut self, client: ClientUuid) -> bool {
        let is_new = self.remembered.insert(client);
        if is_new {
            self.unrecorded.insert(client);
            self.unannounced.insert(client);
            self.is_unsettled = true;
        }
        is_new
    }

    /// Whether no client is known to be evicted.
    pub(crate) fn is_empty(&self) -> bool {
        self.remembered.is_empty()
    }

    /// An evicted client has locks or write leases, which it keeps for the time being.
    pub(crate) fn hold(&mut self, client: ClientUuid) {
        self.holding.insert(client);
    }

    /// Whether an evicted client still has its locks and write leases.
    pub(crate) fn is_holding(&self, client: ClientUuid) -> bool {
        self.holding.contains(&client)
    }

    /// The evicted clients that still have their locks and write leases.
    pub(crate) fn holding(&self) -> Vec<ClientUuid> {
        self.holding.iter().copied().collect()
    }

    /// What a client held is released.
    pub(crate) fn release(&mut self, client: ClientUuid) {
        self.holding.remove(&client);
    }

    /// A request waits until the evictions are in force.
    pub(crate) const fn set_awaited(&mut self) {
        (self.is_awaited, self.is_unsettled) = (true, true);
    }

    /// Takes whether requests wait.
    pub(crate) const fn take_awaited(&mut self) -> bool {
        core::mem::replace(&mut self.is_awaited, false)
    }

    /// An eviction is recorded in a batch.
    pub(crate) const fn set_recorded_in(&mut self, batch_no: BatchNo) {
        self.recorded_in = batch_no;
    }

    /// What has to be safe for the recorded evictions to be durable.
    pub(crate) const fn gate(&self) -> Gate {
        Gate::of_all(self.recorded_in)
    }

    /// Whether an eviction may not be in force, or something waits for it.
    pub(crate) const fn is_unsettled(&self) -> bool {
        self.is_unsettled
    }

    /// All evictions are in force; what clients hold is released, unless a lane is away.
    pub(crate) fn settle(&mut self) {
        self.is_unsettled = !self.holding.is_empty();
    }

    /// Whether an eviction is still to be recorded.
    pub(crate) fn is_recording(&self) -> bool {
        !self.unrecorded.is_empty()
    }

    /// Whether an eviction is still to be announced.
    pub(crate) fn is_announcing(&self) -> bool {
        !self.unannounced.is_empty()
    }

    /// A lane is told of an eviction.
    pub(crate) fn on_told(&mut self, lane: PeerLane) {
        self.is_unsettled = true;
        self.told.entry(lane).or_default().sent_count += 1;
    }

    /// A lane has told of an eviction.
    pub(crate) fn on_received(&mut self, lane: PeerLane) {
        self.is_unsettled = true;
        self.told.entry(lane).or_default().received_count += 1;
    }

    /// A lane has recorded so many of the evictions that it was told.
    pub(crate) fn on_recorded(&mut self, lane: PeerLane, count: u64) {
        let told = self.told.entry(lane).or_default();
        told.recorded_count = told.recorded_count.max(count);
    }

    /// The connection to a lane has ended.
    pub(crate) fn forget_lane(&mut self, lane: PeerLane) {
        self.told.remove(&lane);
    }

    /// Takes the lanes that are to hear how many evictions that they have told are recorded here.
    pub(crate) fn take_confirmed(
        &mut self,
        may_hear: impl Fn(PeerLane) -> bool,
    ) -> Vec<(PeerLane, u64)> {
        let due = |told: &Told| told.confirmed_count < told.received_count;
        let lanes = self.told.iter_mut().filter(|(lane, told)| due(told) && may_hear(**lane));
        let take = |(lane, told): (&PeerLane, &mut Told)| {
            told.confirmed_count = told.received_count;
            (*lane, told.confirmed_count)
        };
        lanes.map(take).collect()
    }

    /// Whether every connected lane has recorded what it was told.
    pub(crate) fn are_recorded_elsewhere(&self) -> bool {
        self.told.values().all(|told| told.recorded_count >= told.sent_count)
    }

    /// The clients that are remembered.
    pub(crate) fn remembered(&self) -> Vec<ClientUuid> {
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
