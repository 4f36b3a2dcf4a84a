//! Last-writer records: the last change of each key (name, inode, directory), as long as it is not
//! durable (docs/protocol.md §6).
//!
//! One set per batch that is not durable: the open one and the one in flight. A set is dropped with
//! its batch, so the end of a batch costs no walk over its changes.

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
}

/// The changes of a directory's entries, which do not depend on each other: the last, and the last
/// by another client. These two suffice to see whether any change is another client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirWriters {
    pub(crate) last: LastWriter,
    pub(crate) other: Option<LastWriter>,
}

/// The last-writer records of one batch.
#[derive(Debug)]
pub(crate) struct LastWriters {
    keys: HashMap<DependencyKey, LastWriter, Seed>,
    entries: HashMap<InodeNo, DirWriters, Seed>,
}

impl LastWriters {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { keys: HashMap::with_hasher(seed), entries: HashMap::with_hasher(seed) }
    }

    /// Records a change.
    pub(crate) fn insert(&mut self, used: &KeyAccess, last_writer: LastWriter) {
        match (used.mode, used.key) {
            (AccessMode::Depend | AccessMode::Whole | AccessMode::Durable, _) => {}
            (
                AccessMode::Change | AccessMode::Make | AccessMode::Share,
                DependencyKey::Entries(dir),
            ) => {
                let dir_writers = self
                    .entries
                    .entry(dir)
                    .or_insert(DirWriters { last: last_writer, other: None });
                if dir_writers.last.client != last_writer.client {
                    dir_writers.other = Some(dir_writers.last);
                }
                dir_writers.last = last_writer;
            }
            (AccessMode::Change | AccessMode::Make | AccessMode::Share, key) => {
                self.keys.insert(key, last_writer);
            }
        }
    }

    pub(crate) fn last(&self, key: DependencyKey) -> Option<&LastWriter> {
        self.keys.get(&key)
    }

    pub(crate) fn dir_writers(&self, dir: InodeNo) -> Option<&DirWriters> {
        self.entries.get(&dir)
    }

    /// The batch is durable. Retains its memory.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }
}
