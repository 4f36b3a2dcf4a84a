//! Leases: what clients may cache, and how a change waits until they have dropped it
//! (docs/protocol.md §20).
//!
//! ```text
//! request ─ foreign leases on its keys? ─ no ─▶ execute ─▶ reply, with what is granted
//!              │ yes: recall, suspend                             ▲
//!              └──▶ acknowledged, dropped, expired or left ───────┘ looked at anew
//! ```
//! Invariants: a request that changes a key is executed only while no other client has a lease of
//! it; while a request waits for a key, or it is being recalled, nobody is granted it; what is here
//! is lost with the lane, so only sessions that the next recovery awaits are granted anything.

mod barriers;
mod behind;
mod directories;
mod grant;
mod heat;
mod made;
mod numbers;
mod opened;
mod outgoing;
mod pages;
mod recall;
mod settled;
mod table;
mod writing;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
pub(crate) use barriers::BarrierNo;
use barriers::Barriers;
pub(crate) use behind::is_behind;
pub(crate) use grant::ReplyLease;
use hashbrown::HashMap;
use heat::Heat;
use interface::{Mono, Seed};
pub(crate) use made::makes_inode;
use meta::{LeaseConflict, LeaseKey};
pub(crate) use outgoing::LeaseWait;
use outgoing::{Outgoing, Recalled, SentRecall};
pub(crate) use pages::PagesGrant;
use settled::Settled;
use table::{Lease, Table};
use wire::{ClientUuid, InodeNo, LeaseCounts, LeaseNo, RecallNo, Rule, Rules, SessionId, ShardId};
use writing::Writing;

/// How long the holder of a claimed file or directory is waited for where leases have no term.
const CLAIM_MS: u64 = 10_000;
/// A coordinator that found a lease at a participant retries within this time.
const RETRY_MS: u64 = 100;
/// Keys that coordinators have found leased, remembered at a time.
const RETRIED_COUNT_MAX: usize = 4096;
/// Sessions of which a record is remembered at a time.
const RECORDED_COUNT_MAX: usize = 1 << 16;

/// Who waits for a key.
#[derive(Clone, Copy, Default, Debug)]
struct Wait {
    /// Suspended requests.
    count: usize,
    /// A coordinator retries until then.
    retried_until: Mono,
    /// Since when requests wait without interruption.
    since: Mono,
}

/// The leases of a lane.
#[derive(Debug)]
pub(crate) struct Leases {
    table: Table,
    heat: Heat,
    writing: Writing,
    settled: Settled,
    barriers: Barriers,
    waits: HashMap<LeaseKey, Wait, Seed>,
    /// Recalls that are not acknowledged.
    recalls: BTreeMap<RecallNo, SentRecall>,
    /// Recalls of this turn.
    outgoing: BTreeMap<SessionId, Outgoing>,
    /// When the last recalled lease of each key expires, in both orders.
    expiries: BTreeSet<(Mono, LeaseKey)>,
    expires_at: BTreeMap<LeaseKey, Mono>,
    lease_no_last: LeaseNo,
    recall_no_last: RecallNo,
    /// A shard at which a session that was granted something is durably recorded.
    recorded: BTreeMap<SessionId, ShardId>,
    /// 0: nothing is granted.
    term_ms: u64,
    /// So long is waited for holders that are silent.
    wait_ms: u64,
    counts: LeaseCounts,
}

impl Leases {
    pub(crate) fn new(seed: Seed, term_ms: u64, count_max: usize, rules: Rules) -> Self {
        // Without the rule, the server trusts in half of what the client does.
        // Without leases a file may still be claimed that was written behind before the restart.
        let term_or_default_ms = if term_ms == 0 { CLAIM_MS } else { term_ms };
        let shortened = !rules.hold(Rule::LeaseTerm);
        let wait_ms = if shortened { term_or_default_ms / 2 } else { term_or_default_ms };
        Self {
            table: Table::new(seed, count_max),
            heat: Heat::new(seed),
            writing: Writing::new(),
            settled: Settled::default(),
            barriers: Barriers::default(),
            waits: HashMap::with_hasher(seed),
            recalls: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            expiries: BTreeSet::new(),
            expires_at: BTreeMap::new(),
            lease_no_last: LeaseNo(0),
            recall_no_last: RecallNo(0),
            recorded: BTreeMap::new(),
            term_ms,
            wait_ms,
            counts: LeaseCounts::default(),
        }
    }

    /// Whether no client has a lease.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.count() == 0 && !self.writing.has_any()
    }

    /// The counters.
    pub(crate) fn counts(&self) -> LeaseCounts {
        let held_count = self.table.count() + self.writing_count();
        let held_count = u64::try_from(held_count).unwrap_or(u64::MAX);
        LeaseCounts { held_count, ..self.counts }
    }

    pub(crate) const fn count_ping(&mut self) {
        self.counts.ping_count += 1;
    }

    /// Recalls a key from all clients but this one. Returns whether any of them has a lease of it.
    pub(crate) fn recall(
        &mut self,
        conflict: &LeaseConflict,
        client: ClientUuid,
        now: Mono,
    ) -> bool {
        let LeaseConflict { key, name } = conflict;
        if let LeaseKey::Writing(inode) = key {
            return self.recall_writing(*inode, client, now);
        }
        let mut recalled = Vec::new();
        let times = (now, self.term_from(now));
        if !self.table.recall(*key, client, times, &mut recalled) {
            return false;
        }
        if let Some(granted_at) = recalled.iter().map(|lease| lease.granted_at).max() {
            self.heat.recalled(*key, granted_at, now);
        }
        for lease in recalled {
            self.counts.recalled_count += 1;
            let outgoing = self.outgoing.entry(lease.session).or_default();
            outgoing.add(Recalled { lease, key: *key }, name);
        }
        // Of all clients: others' requests may wait for leases that expire later.
        if let Some(until) = self.table.recalled_until(*key, now) {
            self.set_expiry(*key, until);
        }
        true
    }

    fn set_expiry(&mut self, key: LeaseKey, until: Mono) {
        if let Some(before) = self.expires_at.insert(key, until) {
            self.expiries.remove(&(before, key));
        }
        self.expiries.insert((until, key));
    }

    /// When a term ends that begins, or is renewed, now.
    const fn term_from(&self, now: Mono) -> Mono {
        now.after_ms(self.wait_ms)
    }

    /// Until when the clients of an export that is read-only from now on may send what they have
    /// answered early. The lane that has the lease may hear of the definition later, and takes the
    /// lease a term after that.
    pub(crate) const fn behind_until(&self, now: Mono) -> Mono {
        now.after_ms(2 * self.wait_ms)
    }

    /// A session has sent a request: whatever it holds lasts for another term. Its client counts
    /// that term from before.
    pub(crate) fn renew(&mut self, session: SessionId, now: Mono) {
        if !self.is_empty() {
            self.table.renew(session, (now, self.term_from(now)), self.lease_no_last);
        }
    }

    /// A request is suspended until leases of its keys end.
    pub(crate) fn begin_wait(&mut self, keys: &[LeaseKey], now: Mono) {
        self.counts.wait_count += 1;
        for key in keys {
            let wait = self.waits.entry(*key).or_default();
            if wait.count == 0 {
                wait.since = now;
            }
            wait.count += 1;
        }
    }

    /// A suspended request is looked at anew, or fails.
    pub(crate) fn end_wait(&mut self, keys: &[LeaseKey], now: Mono) {
        for key in keys {
            let Some(wait) = self.waits.get_mut(key) else { continue };
            wait.count = wait.count.saturating_sub(1);
            if wait.count == 0 && wait.retried_until <= now {
                self.waits.remove(key);
            }
        }
    }

    /// A coordinator will retry and needs these keys.
    fn begin_retry(&mut self, keys: &[LeaseKey], now: Mono) {
        if self.waits.len() + keys.len() > RETRIED_COUNT_MAX {
            self.waits.retain(|_, wait| wait.count > 0 || wait.retried_until > now);
        }
        for key in keys {
            self.waits.entry(*key).or_default().retried_until = now.after_ms(RETRY_MS);
        }
    }

    /// The sessions whose leases of a key are being recalled.
    pub(crate) fn recalled_from(&mut self, key: LeaseKey, now: Mono) -> Vec<SessionId> {
        if let LeaseKey::Writing(inode) = key {
            return self.recalled_writer(inode).into_iter().collect();
        }
        let leases = self.table.live(key, now).iter();
        leases.filter(|lease| lease.is_recalled()).map(|lease| lease.session).collect()
    }

    /// The size of a file was settled: who holds its attributes is told them with a later reply.
    pub(crate) fn on_settled(&mut self, inode: InodeNo, now: Mono) {
        let leases = self.table.live(LeaseKey::Attributes(inode), now);
        if let Some(lease) = leases.iter().find(|lease| !lease.is_recalled()) {
            self.settled.add(lease.session, inode);
        }
    }

    /// Whether anybody waits for a key.
    fn is_awaited(&mut self, key: LeaseKey, now: Mono) -> bool {
        let Some(wait) = self.waits.get(&key) else { return false };
        let is_over = wait.count == 0 && wait.retried_until <= now;
        if is_over {
            self.waits.remove(&key);
        }
        !is_over
    }

    /// Whether all recalled leases of a key have ended. Then nothing waits for it.
    fn has_ended(&mut self, key: LeaseKey, now: Mono) -> bool {
        let ended = match key {
            LeaseKey::Writing(inode) => !self.writing.has(inode),
            LeaseKey::Attributes(_)
            | LeaseKey::Name(..)
            | LeaseKey::Contents(_)
            | LeaseKey::Pages(_) => !self.table.live(key, now).iter().any(Lease::is_recalled),
        };
        if ended && let Some(at) = self.expires_at.remove(&key) {
            self.expiries.remove(&(at, key));
        }
        ended
    }

    /// Takes the next key whose recalled leases have expired.
    fn next_expired(&mut self, now: Mono) -> Option<LeaseKey> {
        loop {
            let (at, key) = self.expiries.first().copied()?;
            if at > now {
                return None;
            }
            self.expiries.pop_first();
            self.expires_at.remove(&key);
            if let LeaseKey::Writing(_) = key {
                self.counts.expired_count += 1;
                return Some(key);
            }
            // The holder's term may have been renewed since.
            let Some(until) = self.table.recalled_until(key, now) else {
                self.counts.expired_count += 1;
                return Some(key);
            };
            self.set_expiry(key, until);
        }
    }

    /// Forgets recalls that a client has not acknowledged in a whole term: their leases have
    /// expired.
    fn forget_recalls(&mut self, now: Mono) {
        while let Some(first) = self.recalls.first_entry()
            && first.get().until <= now
        {
            first.remove();
        }
    }

    /// The sessions of the recalls that are not acknowledged, each with the time since its recall.
    pub(crate) fn unanswered(&self, now: Mono) -> impl Iterator<Item = (SessionId, u64)> {
        self.recalls.values().map(move |recall| {
            // They end a term after they were sent.
            let left_ns = recall.until.since_ns(now);
            (recall.session, (self.wait_ms * 1_000_000).saturating_sub(left_ns) / 1000)
        })
    }

    /// When recalled leases expire next.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.expiries.first().map(|(at, _)| *at)
    }
}
