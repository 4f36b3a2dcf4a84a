//! Who holds which lease, until when: the leases of a session have one term, which each of its
//! requests renews. What is being recalled is not renewed any more.
//!
//! The table is cut into parts by the hash of the keys, so that neither its growth nor a sweep of
//! expired leases ever takes a turn's time: each concerns one part. Invariants: a session holds a
//! key at most once; `count`, and that of each client, is the number of leases in the parts; what has
//! ended with a term stays ended when the session begins another one.

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
/// After this many refusals in turn, each with a sweep of a part, leases are recalled.
const REFUSALS_PER_RECALL: usize = PART_COUNT;

/// A lease of one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    pub(super) session: SessionId,
    pub(super) lease_no: LeaseNo,
    pub(super) granted_at: Mono,
    /// It ends then at the latest: a term after its recall began.
    pub(super) ends_at: Mono,
}

impl Lease {
    pub(super) const fn new(session: SessionId, lease_no: LeaseNo, granted_at: Mono) -> Self {
        Self { session, lease_no, granted_at, ends_at: Mono(u64::MAX) }
    }

    pub(super) const fn is_recalled(&self) -> bool {
        self.ends_at.0 < u64::MAX
    }
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
    /// Its term ends, unless it is renewed.
    until: Mono,
    /// Its leases up to this one have ended.
    dropped_until: LeaseNo,
}

/// The leases of a client.
#[derive(Clone, Copy, Default, Debug)]
struct ClientLeases {
    count: usize,
    /// Grants that were refused since the last one because it has too many.
    refused_count: usize,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    parts: Vec<HashMap<LeaseKey, Holders, Seed>>,
    seed: Seed,
    holders: HashMap<SessionId, Holder, Seed>,
    clients: HashMap<ClientUuid, ClientLeases, Seed>,
    count: usize,
    count_max: usize,
    /// Grants that were refused since the last one because there are too many leases.
    refused_count: usize,
    grants_since_sweep: usize,
    sweep_index: usize,
}

/// Why a key was not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// It is being recalled.
    Recalled,
    /// The client, or all clients together, have too many. Everything is to be recalled from this
    /// session for that, because nothing has ended that could be removed.
    Share(Option<SessionId>),
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
            refused_count: 0,
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

    /// Begins to recall a key from all clients but this one, until `ends_at` at the latest. Adds the
    /// leases that were not being recalled yet. Returns whether there are any, recalled before or
    /// now.
    pub(super) fn recall(
        &mut self,
        key: LeaseKey,
        client: ClientUuid,
        (now, ends_at): (Mono, Mono),
        recalled: &mut Vec<Lease>,
    ) -> bool {
        if self.live(key, now).is_empty() {
            return false;
        }
        let index = self.part_index(&key);
        let Self { parts, holders, .. } = self;
        let mut any = false;
        let leases = parts[index].get_mut(&key).map_or(&mut [][..], Holders::as_mut_slice);
        for lease in leases {
            let holder = holders.get(&lease.session);
            if holder.is_some_and(|holder| holder.client == client) {
                continue;
            }
            if !lease.is_recalled() {
                lease.ends_at = ends_at;
                recalled.push(*lease);
            }
            any = true;
        }
        any
    }

    /// Whether a lease of a client is being recalled.
    pub(super) fn is_recalled_from(
        &mut self,
        key: LeaseKey,
        client: ClientUuid,
        now: Mono,
    ) -> bool {
        if self.live(key, now).is_empty() {
            return false;
        }
        let index = self.part_index(&key);
        let Self { parts, holders, .. } = self;
        let leases = parts[index].get(&key).map_or(&[][..], Holders::as_slice);
        leases.iter().any(|lease| {
            let holder = holders.get(&lease.session);
            lease.is_recalled() && holder.is_some_and(|holder| holder.client == client)
        })
    }

    /// When the last of the recalled leases of a key ends, unless its holder's term is renewed.
    pub(super) fn recalled_until(&mut self, key: LeaseKey, now: Mono) -> Option<Mono> {
        let index = self.part_index(&key);
        if self.live(key, now).is_empty() {
            return None;
        }
        let Self { parts, holders, .. } = self;
        let recalled = parts[index].get(&key)?.as_slice().iter().filter(|it| it.is_recalled());
        let ends = recalled.map(|lease| {
            let until = holders.get(&lease.session).map_or(Mono(0), |holder| holder.until);
            until.min(lease.ends_at)
        });
        ends.max()
    }

    /// A session has sent a request: its term ends at `until`. What it held in an earlier term, up
    /// to `last`, has ended for good.
    pub(super) fn renew(&mut self, session: SessionId, (now, until): (Mono, Mono), last: LeaseNo) {
        let Some(holder) = self.holders.get_mut(&session) else { return };
        if holder.until <= now {
            holder.dropped_until = holder.dropped_until.max(last);
        }
        holder.until = holder.until.max(until);
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

    /// Grants a key to a session of a client whose term has been renewed, unless it is being
    /// recalled. The client's leases end at `until`, if they are its first ones.
    pub(super) fn grant(
        &mut self,
        key: LeaseKey,
        client: ClientUuid,
        lease: Lease,
        times: (Mono, Mono),
    ) -> Result<(), Refusal> {
        if self.live(key, times.0).iter().any(Lease::is_recalled) {
            return Err(Refusal::Recalled);
        }
        self.hold(key, client, lease, times)
    }

    /// The same, also while the key is being recalled.
    pub(super) fn hold(
        &mut self,
        key: LeaseKey,
        client: ClientUuid,
        lease: Lease,
        (now, until): (Mono, Mono),
    ) -> Result<(), Refusal> {
        let session = lease.session;
        self.grants_since_sweep += 1;
        if self.grants_since_sweep >= GRANTS_PER_SWEEP {
            self.sweep(now);
        }
        let held = self.live(key, now);
        if let Some(own) = held.iter_mut().find(|held| held.session == session) {
            *own = lease;
            return Ok(());
        }
        let client_count = self.clients.get(&client).map_or(0, |leases| leases.count);
        if self.count >= self.count_max || client_count >= self.share_count_max() {
            let session = self.refuse_share(client);
            // Those that have ended may still be counted.
            self.sweep(now);
            return Err(Refusal::Share(session));
        }
        self.count += 1;
        self.refused_count = 0;
        self.clients.insert(client, ClientLeases { count: client_count + 1, refused_count: 0 });
        let new = Holder { client, count: 0, until, dropped_until: LeaseNo(0) };
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

    /// A client is refused a grant. Returns the session from which everything is to be recalled, once
    /// the whole table was swept in vain: the largest of all, or of the client if it has too many.
    fn refuse_share(&mut self, client: ClientUuid) -> Option<SessionId> {
        let is_full = self.count >= self.count_max;
        let own = self.clients.get_mut(&client).map(|leases| &mut leases.refused_count);
        let refused_count =
            if is_full { &mut self.refused_count } else { own.unwrap_or(&mut self.refused_count) };
        *refused_count += 1;
        if *refused_count < REFUSALS_PER_RECALL {
            return None;
        }
        *refused_count = 0;
        let holders = self.holders.iter();
        let held = holders.filter(|(_, holder)| is_full || holder.client == client);
        held.max_by_key(|(session, holder)| (holder.count, **session)).map(|(session, _)| *session)
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
    holder.is_some_and(|holder| {
        holder.until.min(lease.ends_at) > now && lease.lease_no > holder.dropped_until
    })
}

/// A lease of a session has ended.
fn uncount(
    holders: &mut HashMap<SessionId, Holder, Seed>,
    clients: &mut HashMap<ClientUuid, ClientLeases, Seed>,
    session: SessionId,
) {
    let Some(holder) = holders.get_mut(&session) else { return };
    holder.count -= 1;
    let (client, is_last) = (holder.client, holder.count == 0);
    if is_last {
        holders.remove(&session);
    }
    if let Some(leases) = clients.get_mut(&client) {
        leases.count -= 1;
        if leases.count == 0 {
            clients.remove(&client);
        }
    }
}
