//! Which clients delay others now: by leases that they do not give back, and by locks that they hold.

use super::accounts::Accounts;
use crate::Lane;
use alloc::collections::BTreeMap;
use interface::Mono;
use wire::ClientUuid;
use wire::counters::{Metric, Row};

/// Waits for locks of a shard that are looked at; further ones are not counted.
const LOCK_WAIT_COUNT_MAX: usize = 256;

/// What delays others.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Delay {
    recall_count: u64,
    recall_age_us: u64,
    lock_wait_count: u64,
    lock_wait_age_us: u64,
}

/// What clients delay.
#[derive(Default, Debug)]
pub(super) struct Delays {
    /// A wait for locks of several clients counts once.
    all: Delay,
    by_client: BTreeMap<ClientUuid, Delay>,
}

impl Delay {
    fn add_recall(&mut self, age_us: u64) {
        self.recall_count += 1;
        self.recall_age_us = self.recall_age_us.max(age_us);
    }

    fn add_lock_wait(&mut self, age_us: u64) {
        self.lock_wait_count += 1;
        self.lock_wait_age_us = self.lock_wait_age_us.max(age_us);
    }

    /// Adds it to a row.
    pub(super) fn set(&self, row: &mut Row) {
        let Self { recall_count, recall_age_us, lock_wait_count, lock_wait_age_us } = *self;
        row.set_numbers(&[
            (Metric::RecallsUnanswered, recall_count),
            (Metric::RecallAge, recall_age_us),
            (Metric::WaitingFileLock, lock_wait_count),
            (Metric::FileLockAge, lock_wait_age_us),
        ]);
    }
}

impl Delays {
    /// All clients together.
    pub(super) const fn all(&self) -> &Delay {
        &self.all
    }

    /// Adds to the rows of clients that delay others what they delay.
    pub(super) fn set_clients(&self, accounts: &Accounts, rows: &mut [Row]) {
        for (client, delay) in &self.by_client {
            let Some(labels) = accounts.labels_of(client) else { continue };
            if let Some(row) = rows.iter_mut().find(|row| row.labels == *labels) {
                delay.set(row);
            }
        }
    }
}

impl Lane {
    /// What clients delay now.
    pub(super) fn delays(&self, now: Mono) -> Delays {
        let mut delays = Delays::default();
        for (session, age_us) in self.leases.unanswered(now) {
            delays.all.add_recall(age_us);
            if let Some(client) = self.sessions.client_of(session) {
                delays.by_client.entry(client).or_default().add_recall(age_us);
            }
        }
        let waits = |shard: &'_ meta::Shard| -> alloc::vec::Vec<_> {
            shard.file_lock_waits().take(LOCK_WAIT_COUNT_MAX).collect()
        };
        for (since_ns, holders) in self.metas.iter().flat_map(waits) {
            let age_us = now.since_ns(Mono(since_ns)) / 1000;
            delays.all.add_lock_wait(age_us);
            for client in holders {
                delays.by_client.entry(client).or_default().add_lock_wait(age_us);
            }
        }
        delays
    }
}
