//! Which shards the stores have that are looked at, and which files have their objects.
//!
//! Of a file system of one server that is all. Of a cluster it is what the servers have whose stores were named;
//! what lies on others cannot be judged.

use disk::Superblock;
use disk::rows::{Range, Row};
use hashbrown::HashMap;
use std::path::{Path, PathBuf};
use store::{OBJECTS, ObjectFiles, ObjectName, ScanControl, StoreError, View};
use wire::{InodeNo, ShardCounts, ShardId};

/// Shards that are here.
pub(crate) struct Here {
    parts: Vec<Part>,
    /// All of the file system's: what is not here is nowhere.
    pub(crate) is_whole: bool,
    /// Of one server: they say where an object belongs. Of a cluster its registry does.
    pub(crate) placing: Option<ShardCounts>,
    /// Of a cluster: the data shard that has records of a file's contents; none where several have.
    recorded: HashMap<InodeNo, Option<ShardId>>,
}

/// A store.
struct Part {
    superblock: Superblock,
    /// Where it is, where there are several.
    shown: PathBuf,
    files: ObjectFiles,
}

impl Here {
    /// Those of a view, and of the views that it is joined with.
    pub(crate) fn of(view: &View, is_whole: bool) -> Result<Self, StoreError> {
        let is_one = view.parts().count() == 1;
        let parts = view.parts().map(|part| Part {
            superblock: *part.superblock(),
            shown: if is_one { PathBuf::new() } else { part.path().to_owned() },
            files: part.object_files(),
        });
        let superblock = view.superblock();
        let placing = superblock.member.is_none().then(|| superblock.shard_counts());
        let is_whole = is_whole || placing.is_some();
        let mut here = Self { parts: parts.collect(), is_whole, placing, recorded: HashMap::new() };
        if placing.is_none() {
            here.look_for_contents(view)?;
        }
        Ok(here)
    }

    fn look_for_contents(&mut self, view: &View) -> Result<(), StoreError> {
        view.reader().scan(&Range::start(), |key, value| {
            if let Ok(Row::Object { shard, inode, .. }) = Row::decode(key, value) {
                let known = self.recorded.entry(inode).or_insert(Some(shard));
                *known = known.filter(|known| *known == shard);
            }
            Ok(ScanControl::Continue)
        })
    }

    /// Whether one of the stores has this shard.
    pub(crate) fn has(&self, shard: ShardId) -> bool {
        self.part(shard).is_some()
    }

    /// Whether what an inode has is here.
    pub(crate) fn has_inode(&self, inode: InodeNo) -> bool {
        self.has(inode.shard())
    }

    /// The data shard of a file's contents; `None`: not known.
    pub(crate) fn contents_shard(&self, inode: InodeNo) -> Option<ShardId> {
        match self.placing {
            Some(counts) => Some(counts.data_shard(inode, 0)),
            None => self.recorded.get(&inode).copied().flatten(),
        }
    }

    /// Whether it is known that no store has contents of a file.
    pub(crate) fn is_without_contents(&self, inode: InodeNo) -> bool {
        self.is_whole && self.placing.is_none() && !self.recorded.contains_key(&inode)
    }

    /// The objects' files of a data shard's store.
    pub(crate) fn files_of(&self, shard: ShardId) -> Option<&ObjectFiles> {
        self.part(shard).map(|part| &part.files)
    }

    /// Where each store is, where there are several.
    pub(crate) fn shown(&self) -> Vec<PathBuf> {
        self.parts.iter().map(|part| part.shown.clone()).collect()
    }

    /// The path of an object, in its store.
    pub(crate) fn path_of(&self, name: ObjectName) -> PathBuf {
        let part = self.part(ShardId::data(name.shard_index));
        let shown = part.map_or(Path::new(""), |part| &part.shown);
        shown.join(OBJECTS).join(name.path())
    }

    fn part(&self, shard: ShardId) -> Option<&Part> {
        self.parts.iter().find(|part| {
            let counts = part.superblock.shard_counts();
            let (first_meta, first_data) = part
                .superblock
                .member
                .map_or((0, 0), |member| (member.first_meta, member.first_data));
            let (first, count) =
                if shard.is_data() { (first_data, counts.data) } else { (first_meta, counts.meta) };
            shard.index().checked_sub(first).is_some_and(|index| index < count)
        })
    }
}
