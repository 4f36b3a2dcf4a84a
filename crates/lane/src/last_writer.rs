//! Last-writer records: the last change of each key (name, inode, directory), as long as its batch
//! is not safe (docs/protocol.md §6).
//!
//! Records carry their batch. They lie in two generations of maps, and a generation is dropped when
//! all its batches are safe for all shards: so the end of a batch costs no walk over its changes,
//! and a lookup two probes. All records of the young generation are of later batches than those of the old one.

use crate::acknowledgements::{Acknowledgements, BatchNo, Gate, Scope};
use hashbrown::HashMap;
use interface::Seed;
use meta::{AccessMode, DependencyKey, KeyAccess};
use wire::{ClientUuid, InodeNo, SessionId, ShardId, Transno, Xid};

/// The last change of a key: its client, and the slot that shows whether the client has its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastWriter {
    pub(crate) client: ClientUuid,
    pub(crate) session: SessionId,
    pub(crate) shard: ShardId,
    pub(crate) slot: u16,
    pub(crate) xid: Xid,
    pub(crate) transno: Transno,
    /// What makes it safe.
    pub(crate) until: Gate,
}

/// The changes of a directory's entries, which do not depend on each other: the last, and the last
/// by another client. These two suffice to see whether any change is another client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirWriters {
    pub(crate) last: LastWriter,
    pub(crate) other: Option<LastWriter>,
}

/// The last-writer records of some batches that follow each other.
#[derive(Debug)]
struct Generation {
    keys: HashMap<DependencyKey, LastWriter, Seed>,
    entries: HashMap<InodeNo, DirWriters, Seed>,
    /// The last batch with a record here.
    last_no: BatchNo,
}

impl Generation {
    const fn new(seed: Seed) -> Self {
        Self {
            keys: HashMap::with_hasher(seed),
            entries: HashMap::with_hasher(seed),
            last_no: BatchNo(0),
        }
    }

    /// Drops all records if they are safe. Retains the memory. Returns whether none is left.
    fn drop_safe(&mut self, safe: BatchNo) -> bool {
        let is_safe = self.last_no <= safe;
        if is_safe {
            self.keys.clear();
            self.entries.clear();
        }
        is_safe
    }
}

/// The last-writer records of all batches that are not safe.
#[derive(Debug)]
pub(crate) struct LastWriters {
    young: Generation,
    old: Generation,
}

impl LastWriters {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { young: Generation::new(seed), old: Generation::new(seed) }
    }

    /// Records a change.
    pub(crate) fn insert(&mut self, used: &KeyAccess, last_writer: LastWriter) {
        let Generation { keys, entries, last_no } = &mut self.young;
        match (used.mode, used.key) {
            (AccessMode::Depend | AccessMode::Whole | AccessMode::Durable, _) => return,
            (
                AccessMode::Change | AccessMode::Make | AccessMode::Share,
                DependencyKey::Entries(dir),
            ) => {
                let dir_writers =
                    entries.entry(dir).or_insert(DirWriters { last: last_writer, other: None });
                if dir_writers.last.client != last_writer.client {
                    dir_writers.other = Some(dir_writers.last);
                }
                dir_writers.last = last_writer;
            }
            (AccessMode::Change | AccessMode::Make | AccessMode::Share, key) => {
                let before = || keys.get(&key).or_else(|| self.old.keys.get(&key));
                let scope = last_writer.until.scope;
                // Shards have one key in common; its change before may be safe later than this one.
                let is_in_common = key == DependencyKey::Topology
                    && before().is_some_and(|before| before.until.scope != scope);
                let scope = if is_in_common { Scope::Lane } else { scope };
                let until = Gate { scope, ..last_writer.until };
                keys.insert(key, LastWriter { until, ..last_writer });
            }
        }
        *last_no = last_writer.until.batch_no;
    }

    /// The last change of a key, unless it is safe.
    pub(crate) fn last(
        &self,
        key: DependencyKey,
        acknowledgements: &Acknowledgements,
    ) -> Option<&LastWriter> {
        let last = self.young.keys.get(&key).or_else(|| self.old.keys.get(&key))?;
        (!acknowledgements.is_safe(last.until)).then_some(last)
    }

    /// The changes of a directory's entries, the latest first, without those that are safe.
    pub(crate) fn dir_writers(
        &self,
        dir: InodeNo,
        acknowledgements: &Acknowledgements,
    ) -> impl Iterator<Item = DirWriters> {
        let is_unsafe = |last_writer: &LastWriter| !acknowledgements.is_safe(last_writer.until);
        let found = [self.young.entries.get(&dir), self.old.entries.get(&dir)];
        found
            .into_iter()
            .flatten()
            .filter(move |found| is_unsafe(&found.last))
            .map(move |found| DirWriters { last: found.last, other: found.other.filter(is_unsafe) })
    }

    /// The batch of the latest records was sealed: later ones begin a generation, if the old one is
    /// safe.
    pub(crate) fn on_sealed(&mut self, safe: BatchNo) {
        if self.old.drop_safe(safe) {
            core::mem::swap(&mut self.young, &mut self.old);
        }
    }

    /// More batches are safe.
    pub(crate) fn on_safe(&mut self, safe: BatchNo) {
        self.old.drop_safe(safe);
        self.young.drop_safe(safe);
    }
}
