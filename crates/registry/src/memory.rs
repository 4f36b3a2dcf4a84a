//! `MemoryEtcd`: an etcd in memory, for tests and the simulator. It does what it is asked at once; its user
//! loses answers, delays calls, lets leases end, compacts the history and restores older copies.

use crate::{Answer, Call, Cluster, LeaseId, RegistryError, Snapshot, TTL_S, Versioned, Write};
use std::collections::BTreeMap;

/// By how much revisions rise with a restore, as `etcdutl snapshot restore --bump-revision` does.
const BUMP: i64 = 1_000_000;

/// A value, its version, and the lease that it is under.
type Entry = (String, i64, Option<LeaseId>);

/// What an etcd has.
#[derive(Clone, Debug)]
pub struct MemoryEtcd {
    revision: i64,
    entries: BTreeMap<String, Entry>,
    /// The changes behind the compacted revision.
    history: Vec<Versioned>,
    compacted: i64,
    /// When each lease ends.
    leases: BTreeMap<LeaseId, u64>,
    lease_last: i64,
    compares: bool,
    bumps: bool,
}

impl Default for MemoryEtcd {
    fn default() -> Self {
        Self {
            revision: 1,
            entries: BTreeMap::new(),
            history: Vec::new(),
            compacted: 0,
            leases: BTreeMap::new(),
            lease_last: 0,
            compares: true,
            bumps: true,
        }
    }
}

impl MemoryEtcd {
    /// Transactions compare versions, or with `false` a fault: they are always made.
    pub const fn set_compares(&mut self, compares: bool) {
        self.compares = compares;
    }

    /// Revisions rise with a restore, or with `false` a fault: they are those of the copy.
    pub const fn set_bumps(&mut self, bumps: bool) {
        self.bumps = bumps;
    }

    /// The present revision.
    #[must_use]
    pub const fn revision(&self) -> i64 {
        self.revision
    }

    /// All entries.
    #[must_use]
    pub fn read(&self) -> Snapshot {
        let entry = |(key, (value, version, _)): (&String, &Entry)| Versioned {
            key: key.clone(),
            value: Some(value.clone()),
            version: *version,
        };
        Snapshot { revision: self.revision, entries: self.entries.iter().map(entry).collect() }
    }

    /// The changes behind a revision.
    ///
    /// # Errors
    /// [`RegistryError::Compacted`] if they are not there any more.
    pub fn behind(&self, revision: i64) -> Result<Vec<Versioned>, RegistryError> {
        if !(self.compacted..=self.revision).contains(&revision) {
            return Err(RegistryError::Compacted);
        }
        let later = self.history.iter().filter(|change| change.version > revision);
        Ok(later.cloned().collect())
    }

    /// Performs a call for a file system, whose entries are the only ones.
    ///
    /// # Errors
    /// As of [`Cluster::read`] and [`MemoryEtcd::swap`].
    pub fn perform(
        &mut self,
        now_ms: u64,
        (fs, call): ([u8; 16], &Call),
    ) -> Result<Answer, RegistryError> {
        Ok(match call {
            Call::Read => Answer::Entries(Cluster::read(fs, &self.read())?),
            Call::Grant => {
                self.lease_last += 1;
                let lease = LeaseId(self.lease_last);
                self.leases.insert(lease, lease_end_ms(now_ms));
                Answer::Granted(lease)
            }
            Call::Swap(writes) => Answer::Swapped(self.swap(writes)?),
            Call::Keep(lease) => Answer::Kept(match self.leases.get_mut(lease) {
                Some(end_ms) => {
                    *end_ms = lease_end_ms(now_ms);
                    true
                }
                None => false,
            }),
        })
    }

    /// Makes a transaction, if each key has the version that it must have; whether it did.
    ///
    /// # Errors
    /// [`RegistryError::Refused`] if it would write under a lease that has ended.
    pub fn swap(&mut self, writes: &[Write]) -> Result<bool, RegistryError> {
        let version = |key: &String| self.entries.get(key).map_or(0, |(_, version, _)| *version);
        if self.compares && writes.iter().any(|write| version(&write.key) != write.version) {
            return Ok(false);
        }
        let mut leases = writes.iter().filter_map(|write| write.lease);
        if leases.any(|lease| !self.leases.contains_key(&lease)) {
            return Err(RegistryError::Refused("the lease has ended".to_owned()));
        }
        self.revision += 1;
        for Write { key, value, lease, version: _ } in writes {
            self.put(key, value.as_deref(), *lease);
        }
        Ok(true)
    }

    /// The leases that have not ended.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseId> {
        self.leases.keys().copied().collect()
    }

    /// Ends the leases whose time is over.
    pub fn end_leases(&mut self, now_ms: u64) {
        let over = self.leases.iter().filter(|(_, end_ms)| **end_ms < now_ms);
        let over: Vec<LeaseId> = over.map(|(lease, _)| *lease).collect();
        over.into_iter().for_each(|lease| self.end_lease(lease));
    }

    /// Leases last for their whole time from now, as after a start of etcd.
    pub fn renew_leases(&mut self, now_ms: u64) {
        self.leases.values_mut().for_each(|end_ms| *end_ms = lease_end_ms(now_ms));
    }

    /// A lease ends, and what is under it.
    pub fn end_lease(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let under =
            |(key, (.., held)): (&String, &Entry)| (*held == Some(lease)).then(|| key.clone());
        let keys: Vec<String> = self.entries.iter().filter_map(under).collect();
        if !keys.is_empty() {
            self.revision += 1;
        }
        keys.iter().for_each(|key| self.put(key, None, None));
    }

    /// The history is forgotten.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
        self.history.clear();
    }

    /// It becomes an older copy of itself.
    pub fn restore(&mut self, copy: Self) {
        let before = std::mem::replace(self, copy);
        if self.bumps {
            self.revision = self.revision.max(before.revision) + BUMP;
        }
        // Ids of leases are random in etcd.
        self.lease_last = before.lease_last;
        self.compact();
    }

    fn put(&mut self, key: &str, value: Option<&str>, lease: Option<LeaseId>) {
        match value {
            Some(value) => {
                self.entries.insert(key.to_owned(), (value.to_owned(), self.revision, lease));
            }
            None => drop(self.entries.remove(key)),
        }
        let (key, value, version) = (key.to_owned(), value.map(str::to_owned), self.revision);
        self.history.push(Versioned { key, value, version });
    }
}

fn lease_end_ms(now_ms: u64) -> u64 {
    now_ms + u64::from(TTL_S) * 1_000
}
