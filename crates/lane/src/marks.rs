//! Marks: who changed what last, for as long as it is not durable (PROTOCOL.md §6).
//!
//! One set per batch that is not durable: the open one and the one in flight. A set dies with its
//! batch, so nobody ever walks over the changes of a batch when it becomes durable.

use data::Seed;
use hashbrown::HashMap;
use meta::{AccessMode, DependencyKey, KeyAccess};
use wire::{ClientUuid, InodeNo, SessionId, ShardId, Transno, Xid};

/// A change: by whom, and where it is seen whether the client has the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) client: ClientUuid,
    pub(crate) session: SessionId,
    pub(crate) shard: ShardId,
    pub(crate) slot: u16,
    pub(crate) xid: Xid,
    pub(crate) transno: Transno,
}

/// Changes of a directory's entries, which do not depend on each other: the last, and the last by
/// another client than that. Whoever depends on all of them sees by these two whether any is not
/// his own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sharers {
    pub(crate) last: Mark,
    pub(crate) other: Option<Mark>,
}

/// The marks of one batch.
#[derive(Debug)]
pub(crate) struct Marks {
    keys: HashMap<DependencyKey, Mark, Seed>,
    entries: HashMap<InodeNo, Sharers, Seed>,
}

impl Marks {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { keys: HashMap::with_hasher(seed), entries: HashMap::with_hasher(seed) }
    }

    /// The change took place.
    pub(crate) fn insert(&mut self, used: &KeyAccess, mark: Mark) {
        match (used.mode, used.key) {
            (AccessMode::Depend | AccessMode::Whole | AccessMode::Durable, _) => {}
            (
                AccessMode::Change | AccessMode::Make | AccessMode::Share,
                DependencyKey::Entries(dir),
            ) => {
                let sharers =
                    self.entries.entry(dir).or_insert(Sharers { last: mark, other: None });
                if sharers.last.client != mark.client {
                    sharers.other = Some(sharers.last);
                }
                sharers.last = mark;
            }
            (AccessMode::Change | AccessMode::Make | AccessMode::Share, key) => {
                self.keys.insert(key, mark);
            }
        }
    }

    pub(crate) fn last(&self, key: DependencyKey) -> Option<&Mark> {
        self.keys.get(&key)
    }

    pub(crate) fn sharers(&self, dir: InodeNo) -> Option<&Sharers> {
        self.entries.get(&dir)
    }

    /// What it told of is durable. Keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }
}
