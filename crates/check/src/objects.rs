//! Objects: what is recorded of them, their files, and whose they are.
//!
//! Bytes become durable before their record, so a file that is longer than recorded is well, and one that is
//! shorter has lost something.

use crate::finding::Kind;
use crate::mend::Mend;
use crate::names::number;
use crate::walk::Walk;
use disk::rows::{ObjectRow, Range, Row};
use std::path::{Path, PathBuf};
use store::{ObjectFile, ObjectFiles, ObjectName, StoreError};
use wire::{FileKind, InodeNo, ShardId};

impl Walk<'_> {
    /// Every recorded object, then every file of one.
    pub(crate) fn check_objects(&mut self) -> Result<(), StoreError> {
        self.pass("objects");
        let files = ObjectFiles::new(self.view.objects_path());
        self.each_row(&Range::start(), |walk, row, key| {
            if let Row::Object { shard, inode, row } = row
                && walk.map.has(*shard)
            {
                walk.check_recorded(&files, (*shard, *inode), (row, key))?;
            }
            Ok(())
        })?;
        self.pass("objects' files");
        let mut foreign = Vec::new();
        let feed = |file: ObjectFile| {
            self.looked();
            self.outcome.object_count += 1;
            self.check_file(&file)
        };
        files.each(feed, |path| foreign.push(path.to_owned()))?;
        for path in foreign {
            self.find_file(Kind::ObjectForeign, &in_store(&path), "no object has this name".to_owned());
        }
        Ok(())
    }

    fn check_recorded(
        &mut self,
        files: &ObjectFiles,
        (shard, inode): (ShardId, InodeNo),
        (row, key): (&ObjectRow, &[u8]),
    ) -> Result<(), StoreError> {
        let name = ObjectName { shard_index: shard.index(), inode, stripe_index: 0 };
        let file = files.find(name)?;
        let path = in_store(&name.path());
        if !self.is_file(inode) {
            if file.is_none() && !self.is_ahead(inode)? {
                let what = format!("{} bytes are recorded", row.size_bytes);
                let found = (what, Mend::DropRow(key.to_vec()));
                self.suspect(Kind::ObjectRowLeft, (Some(inode), None), Some(&path), found);
            }
            return Ok(()); // Its file is looked at below.
        }
        if self.inode(inode)?.is_some_and(|row| row.nlink == 0) {
            return Ok(()); // Its object is removed before it is.
        }
        match file {
            None if row.size_bytes > 0 => {
                let what = format!("{} bytes are recorded, and there is no file", row.size_bytes);
                let found = (what, Mend::Leave);
                self.suspect(Kind::ObjectMissing, (Some(inode), None), Some(&path), found);
            }
            Some(file) if file.size_bytes < row.size_bytes => {
                let (size, recorded) = (file.size_bytes, row.size_bytes);
                let what = format!("{recorded} bytes are recorded, the file has {size}");
                let found = (what, Mend::Leave);
                self.suspect(Kind::ObjectShort, (Some(inode), None), Some(&path), found);
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    fn check_file(&mut self, file: &ObjectFile) -> Result<(), StoreError> {
        let name = file.name;
        let is_place = self.map.data_shard(name.inode, name.stripe_index)
            == ShardId::data(name.shard_index);
        if is_place && self.is_file(name.inode) {
            return Ok(());
        }
        let path = in_store(&name.path());
        let inode = Some(name.inode);
        if is_place && self.is_ahead(name.inode)? {
            let what = format!("inode {} was not made durably", number(name.inode));
            self.suspect(Kind::ObjectAhead, (inode, None), Some(&path), (what, Mend::Leave));
            return Ok(());
        }
        let what = match is_place {
            true => format!("{} bytes of inode {}", file.size_bytes, number(name.inode)),
            false => format!("{} bytes at a shard that is not theirs", file.size_bytes),
        };
        let found = (what, Mend::Quarantine(name));
        self.suspect(Kind::ObjectWithoutInode, (inode, None), Some(&path), found);
        Ok(())
    }

    fn is_file(&self, inode: InodeNo) -> bool {
        self.tallies.get(&inode).is_some_and(|tally| tally.kind == FileKind::File)
    }

    /// Whether an inode's number was not given yet, as far as it is durable.
    fn is_ahead(&self, inode: InodeNo) -> Result<bool, StoreError> {
        Ok(self.map.has(inode.shard()) && inode.count() >= self.next_count(inode.shard())?)
    }
}

fn in_store(path: &Path) -> PathBuf {
    Path::new("objects").join(path)
}
