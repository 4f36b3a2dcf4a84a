//! Marks: who changed what last, for as long as it is not durable (PROTOCOL.md §6).
//!
//! One set per batch that is not durable: the open one and the one in flight. A set dies with its
//! batch, so nobody ever walks over the changes of a batch when it becomes durable.

use data::Seed;
use hashbrown::HashMap;
use meta::{How, Key, Use};
use wire::{ClientUuid, InodeNo, SessionId, ShardId, Transno, Xid};

/// A change: by whom, and where it is seen whether the client has the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastWriter {
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
pub(crate) struct DirWriters {
    pub(crate) last: LastWriter,
    pub(crate) other: Option<LastWriter>,
}

/// The marks of one batch.
#[derive(Debug)]
pub(crate) struct LastWriters {
    keys: HashMap<Key, LastWriter, Seed>,
    entries: HashMap<InodeNo, DirWriters, Seed>,
}

impl LastWriters {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { keys: HashMap::with_hasher(seed), entries: HashMap::with_hasher(seed) }
    }

    /// The change took place.
    pub(crate) fn insert(&mut self, used: &Use, last_writer: LastWriter) {
        match (used.how, used.key) {
            (How::Depend | How::Whole | How::Durable, _) => {}
            (How::Change | How::Make | How::Share, Key::Entries(dir)) => {
                let dir_writers = self
                    .entries
                    .entry(dir)
                    .or_insert(DirWriters { last: last_writer, other: None });
                if dir_writers.last.client != last_writer.client {
                    dir_writers.other = Some(dir_writers.last);
                }
                dir_writers.last = last_writer;
            }
            (How::Change | How::Make | How::Share, key) => {
                self.keys.insert(key, last_writer);
            }
        }
    }

    pub(crate) fn last(&self, key: Key) -> Option<&LastWriter> {
        self.keys.get(&key)
    }

    pub(crate) fn dir_writers(&self, dir: InodeNo) -> Option<&DirWriters> {
        self.entries.get(&dir)
    }

    /// What it told of is durable. Keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }
}
