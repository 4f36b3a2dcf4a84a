//! Who holds which lease, until when.
//!
//! The table is cut into parts by the hash of the keys, so that neither its growth nor a sweep of
//! expired leases ever takes a turn's time: each concerns one part. Invariants: a session holds a
//! key at most once; `count`, and that of each client, is the number of leases in the parts.

use alloc::vec::Vec;
use core::hash::BuildHasher as _;
use hashbrown::HashMap;
use interface::{Mono, Seed};
use meta::LeaseKey;
use wire::{ClientUuid, LeaseNo, SessionId};

/// A power of two.
const PART_COUNT: usize = 256;
/// A client's share is at least this many leases.
const SHARE_COUNT_MIN: usize = 4096;
/// After this many grants a part is swept.
const GRANTS_PER_SWEEP: usize = 64;

/// A lease of one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    pub(super) session: SessionId,
    pub(super) lease_no: LeaseNo,
    pub(super) until: Mono,
    /// It is being recalled.
    pub(super) recalled: bool,
}

/// The leases of one key: most have one holder.
#[derive(Debug)]
enum Holders {
    One(Lease),
    Several(Vec<Lease>),
}

impl Holders {
    fn as_slice(&self) -> &[Lease] {
        match self {
            Self::One(lease) => core::slice::from_ref(lease),
            Self::Several(leases) => leases,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Lease] {
        match self {
            Self::One(lease) => core::slice::from_mut(lease),
            Self::Several(leases) => leases,
        }
    }
}

/// A session that holds leases, or held some.
#[derive(Debug)]
struct Holder {
    client: ClientUuid,
    count: usize,
    /// Its leases up to this one have ended.
    dropped_until: LeaseNo,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    parts: Vec<HashMap<LeaseKey, Holders, Seed>>,
    seed: Seed,
    holders: HashMap<SessionId, Holder, Seed>,
    /// Leases by client.
    clients: HashMap<ClientUuid, usize, Seed>,
    count: usize,
    count_max: usize,
    grants_since_sweep: usize,
    sweep_index: usize,
}

/// Why a key was not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// It is being recalled.
    Recalled,
    /// The client, or all clients together, have too many.
    Share,
}

impl Table {
    pub(super) fn new(seed: Seed, count_max: usize) -> Self {
        Self {
            parts: (0..PART_COUNT).map(|_| HashMap::with_hasher(seed)).collect(),
            seed,
            holders: HashMap::with_hasher(seed),
            clients: HashMap::with_hasher(seed),
            count: 0,
            count_max,
            grants_since_sweep: 0,
            sweep_index: 0,
        }
    }

    /// The number of leases, expired ones that were not removed yet included.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    fn part_index(&self, key: &LeaseKey) -> usize {
        // The low bits choose the place within a part, the highest its control byte.
        usize::try_from(self.seed.hash_one(key) >> 32).unwrap_or(0) % PART_COUNT
    }

    /// The leases of a key that have not ended.
    pub(super) fn live(&mut self, key: LeaseKey, now: Mono) -> &mut [Lease] {
        let index = self.part_index(&key);
        if !self.parts[index].contains_key(&key) {
            return &mut [];
        }
        self.retain(index, key, |lease, holder| is_live(lease, holder, now));
        self.parts[index].get_mut(&key).map_or(&mut [], Holders::as_mut_slice)
    }

    /// Removes the leases of a key that `keep` does not keep.
    fn retain(
        &mut self,
        index: usize,
        key: LeaseKey,
        mut keep: impl FnMut(&Lease, Option<&Holder>) -> bool,
    ) {
        let Self { parts, holders, clients, count, .. } = self;
        let Some(found) = parts[index].get_mut(&key) else { return };
        let mut keeps = |lease: &Lease| {
            let kept = keep(lease, holders.get(&lease.session));
            if !kept {
                *count -= 1;
                uncount(holders, clients, lease.session);
            }
            kept
        };
        let is_empty = match found {
            Holders::One(lease) => !keeps(lease),
            Holders::Several(leases) => {
                leases.retain(keeps);
                leases.is_empty()
            }
        };
        if is_empty {
            parts[index].remove(&key);
        }
    }

    /// Begins to recall a key from all clients but this one. Adds the leases that were not being
    /// recalled yet. Returns when the last of all of them expires; `None`: there are none.
    pub(super) fn recall(
        &mut self,
        key: LeaseKey,
        client: ClientUuid,
        now: Mono,
        recalled: &mut Vec<Lease>,
    ) -> Option<Mono> {
        if self.live(key, now).is_empty() {
            return None;
        }
        let index = self.part_index(&key);
        let Self { parts, holders, .. } = self;
        let mut until = None;
        for lease in parts[index].get_mut(&key)?.as_mut_slice() {
            let holder = holders.get(&lease.session);
            if holder.is_some_and(|holder| holder.client == client) {
                continue;
            }
            if !core::mem::replace(&mut lease.recalled, true) {
                recalled.push(*lease);
            }
            until = until.max(Some(lease.until));
        }
        until
    }

    /// Ends the lease of a session, if its number is not above `up_to`.
    pub(super) fn end(&mut self, key: LeaseKey, session: SessionId, up_to: LeaseNo) {
        let index = self.part_index(&key);
        self.retain(index, key, |lease, _| lease.session != session || lease.lease_no > up_to);
    }

    /// Ends all leases of a session up to a number. They are removed later.
    pub(super) fn end_all(&mut self, session: SessionId, up_to: LeaseNo) {
        if let Some(holder) = self.holders.get_mut(&session) {
            holder.dropped_until = holder.dropped_until.max(up_to);
        }
    }

    /// A client's share.
    fn share_count_max(&self) -> usize {
        SHARE_COUNT_MIN.max(self.count_max / self.clients.len().max(1)).min(self.count_max)
    }

    /// Grants a key to a session of a client, or prolongs what it has.
    pub(super) fn grant(
        &mut self,
        key: LeaseKey,
        (session, client): (SessionId, ClientUuid),
        lease: Lease,
        now: Mono,
    ) -> Result<(), Refusal> {
        self.grants_since_sweep += 1;
        if self.grants_since_sweep >= GRANTS_PER_SWEEP {
            self.sweep(now);
        }
        let held = self.live(key, now);
        if held.iter().any(|held| held.recalled) {
            return Err(Refusal::Recalled);
        }
        if let Some(own) = held.iter_mut().find(|held| held.session == session) {
            *own = lease;
            return Ok(());
        }
        let client_count = self.clients.get(&client).copied().unwrap_or(0);
        if self.count >= self.count_max || client_count >= self.share_count_max() {
            // Expired ones may still be counted.
            self.sweep(now);
            return Err(Refusal::Share);
        }
        self.count += 1;
        *self.clients.entry(client).or_default() += 1;
        let new = Holder { client, count: 0, dropped_until: LeaseNo(0) };
        self.holders.entry(session).or_insert(new).count += 1;
        let index = self.part_index(&key);
        match self.parts[index].get_mut(&key) {
            None => {
                self.parts[index].insert(key, Holders::One(lease));
            }
            Some(Holders::Several(leases)) => leases.push(lease),
            Some(one @ Holders::One(_)) => {
                let first = one.as_slice()[0];
                *one = Holders::Several(Vec::from([first, lease]));
            }
        }
        Ok(())
    }

    /// Removes what has ended from the next part.
    fn sweep(&mut self, now: Mono) {
        self.grants_since_sweep = 0;
        let index = self.sweep_index;
        self.sweep_index = (index + 1) % PART_COUNT;
        let holders = &self.holders;
        let ended = |held: &Holders| {
            held.as_slice().iter().any(|lease| !is_live(lease, holders.get(&lease.session), now))
        };
        let keys = self.parts[index].iter().filter(|(_, held)| ended(held));
        let keys: Vec<LeaseKey> = keys.map(|(key, _)| *key).collect();
        for key in keys {
            self.retain(index, key, |lease, holder| is_live(lease, holder, now));
        }
    }

    /// The sessions of a client that hold leases.
    pub(super) fn sessions_of(&self, clients: &[ClientUuid]) -> Vec<SessionId> {
        let held = self.holders.iter().filter(|(_, holder)| clients.contains(&holder.client));
        let mut sessions: Vec<SessionId> = held.map(|(session, _)| *session).collect();
        sessions.sort_unstable();
        sessions
    }
}

/// Whether a lease has neither expired nor been dropped.
fn is_live(lease: &Lease, holder: Option<&Holder>, now: Mono) -> bool {
    let dropped_until = holder.map_or(LeaseNo(u64::MAX), |holder| holder.dropped_until);
    lease.until > now && lease.lease_no > dropped_until
}

/// A lease of a session has ended.
fn uncount(
    holders: &mut HashMap<SessionId, Holder, Seed>,
    clients: &mut HashMap<ClientUuid, usize, Seed>,
    session: SessionId,
) {
    let Some(holder) = holders.get_mut(&session) else { return };
    holder.count -= 1;
    let (client, is_last) = (holder.client, holder.count == 0);
    if is_last {
        holders.remove(&session);
    }
    if let Some(count) = clients.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            clients.remove(&client);
        }
    }
}
