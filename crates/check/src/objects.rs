//! Objects: their records, their files, and their inodes.
//!
//! Bytes become durable before their record, so a file that is longer than recorded is sound, and a shorter
//! one has lost data. So has one whose blocks do not match the recorded checksums.

use crate::finding::{Finding, Kind};
use crate::mend::Mend;
use crate::names::number;
use crate::sums::{Tally, lack_of};
use crate::walk::{Depth, Outcome, Walk};
use disk::InodeRow;
use disk::rows::{Key, ObjectRow, Range, Row};
use std::path::Path;
use store::{FileObjects, OBJECTS, ObjectFile, ObjectFiles, ObjectName, Reader, StoreError, View};
use wire::{FileKind, InodeNo, Layout, ShardId, Wire};

impl Walk<'_> {
    /// Every recorded object, then every file of one.
    pub(crate) fn check_objects(&mut self, depth: Depth) -> Result<(), StoreError> {
        self.pass(if depth == Depth::Contents { "contents" } else { "objects" });
        self.each_row(&Range::start(), |walk, row, key| {
            if let Row::Object { shard, inode, row } = row
                && walk.here.has(*shard)
            {
                walk.check_recorded(depth, (*shard, *inode), (row, key))?;
            }
            Ok(())
        })?;
        self.pass("objects' files");
        let view = self.view;
        for (part, shown) in view.parts().zip(self.here.shown()) {
            let mut foreign = Vec::new();
            let feed = |file: ObjectFile| {
                self.looked();
                self.outcome.object_count += 1;
                self.check_file(&file)
            };
            part.object_files().each(feed, |path| foreign.push(path.to_owned()))?;
            for path in foreign {
                let path = shown.join(OBJECTS).join(path);
                self.find_file(Kind::ObjectForeign, &path, "no object has this name".to_owned());
            }
        }
        Ok(())
    }

    fn check_recorded(
        &mut self,
        depth: Depth,
        (shard, inode): (ShardId, InodeNo),
        (row, key): (&ObjectRow, &[u8]),
    ) -> Result<(), StoreError> {
        let objects = self.reader.file_objects(shard, inode)?;
        let name = objects.first;
        let Some(files) = self.here.files_of(shard).cloned() else { return Ok(()) };
        let file = files.find_all(&objects)?;
        let path = self.here.path_of(name);
        if !self.here.has_inode(inode) {
            // What its inode says is on another server.
            if file.is_some() && depth == Depth::Contents {
                self.check_contents(&files, objects, &path)?;
            }
            return Ok(());
        }
        if !self.is_file(inode) {
            if file.is_none() && !self.is_ahead(inode)? {
                let what = format!("{} bytes are recorded", row.size_bytes);
                let found = (what, Mend::DropRow(key.to_vec()));
                self.suspect(Kind::ObjectRowLeft, (Some(inode), None), Some(&path), found);
            }
            return Ok(()); // Its file is looked at below.
        }
        let of_inode = self.inode(inode)?;
        if of_inode.as_ref().is_some_and(|row| row.nlink == 0) {
            return Ok(()); // Its object is removed before it is.
        }
        let stated = of_inode.and_then(|row| row.layout);
        // The inode of a file that grows does not say whether it has.
        let differs = |recorded: &Layout| {
            stated != Some(*recorded) && stated.map(|stated| stated.widened()) != Some(*recorded)
        };
        if let Some(recorded) = row.layout.filter(differs) {
            let what = format!("{stated:?}, its objects have {recorded:?}");
            self.find(Kind::LayoutWrong, inode, (what, Mend::SetLayout(inode, recorded)));
        }
        if let Some((kind, what)) = lack_of(file.as_ref(), row.size_bytes) {
            self.suspect(kind, (Some(inode), None), Some(&path), (what, Mend::Leave));
        } else if file.is_some() && depth == Depth::Contents {
            self.check_contents(&files, objects, &path)?;
        }
        Ok(())
    }

    fn check_contents(
        &mut self,
        files: &ObjectFiles,
        objects: FileObjects,
        path: &Path,
    ) -> Result<(), StoreError> {
        let name = objects.first;
        let compared = self.reader.compare_contents(files, objects)?;
        let tally = Tally {
            block_count: compared.block_count,
            damaged_count: compared.damaged_count,
            first_damaged: compared.first.map(|first| first.block),
        };
        if let Some(what) = tally.what() {
            let found = (what, Mend::Leave);
            self.suspect(Kind::ContentsChanged, (Some(name.inode), None), Some(path), found);
        }
        Ok(())
    }

    fn check_file(&mut self, file: &ObjectFile) -> Result<(), StoreError> {
        let name = file.name;
        // Something else than a file has none; its first stripe would be here.
        let layout = self.inode(name.inode)?.and_then(|row| row.layout);
        let layout = layout.unwrap_or(Layout::ONE_OBJECT);
        let shard = ShardId::data(name.shard_index);
        let is_place = match self.here.placing {
            Some(counts) => counts.stripe_shard(name.inode, layout, name.stripe_index) == shard,
            // Its place is known to the registry.
            None => self.here.has(shard),
        };
        let path = self.here.path_of(name);
        if !self.here.has_inode(name.inode) {
            return Ok(());
        }
        let inode = Some(name.inode);
        if is_place && self.is_file(name.inode) {
            if !is_recorded(&self.reader, name)? {
                let what = format!("{} bytes of a stripe that is not recorded", file.size_bytes);
                let found = (what, Mend::RecordStripe(name));
                self.suspect(Kind::StripeNotRecorded, (inode, None), Some(&path), found);
            }
            return Ok(());
        }
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

    /// Whether an inode that is not there may have been made, only not durably: its number was not given
    /// yet, as far as that is durable, or perhaps to a client that creates files with it later
    /// (docs/protocol.md R20.30). Which numbers clients have is not recorded.
    fn is_ahead(&self, inode: InodeNo) -> Result<bool, StoreError> {
        let may_be_given = self.has_sessions || inode.count() >= self.next_count(inode.shard())?;
        Ok(self.here.has_inode(inode) && may_be_given)
    }
}

/// Looks again at what was found about objects while a server changed them, in a later view of the store while
/// nothing changes them. What is well is no finding any more.
///
/// # Errors
/// [`StoreError`] when the medium fails.
pub fn recheck_objects(view: &View, outcome: Outcome) -> Result<Outcome, StoreError> {
    let files = view.object_files();
    let mut confirmed = Outcome { findings: Vec::new(), mends: Vec::new(), ..outcome };
    for (finding, mend) in outcome.findings.into_iter().zip(outcome.mends) {
        if is_still_wrong((view, &files), &finding)? {
            confirmed.findings.push(finding);
            confirmed.mends.push(mend);
        }
    }
    Ok(confirmed)
}

/// Whether some of what was found is about objects' files.
#[must_use]
pub fn is_about_objects(outcome: &Outcome) -> bool {
    outcome.findings.iter().any(|finding| object_of(finding).is_some())
}

fn object_of(finding: &Finding) -> Option<ObjectName> {
    let path = finding.file.as_ref()?.strip_prefix(OBJECTS).ok()?;
    ObjectName::of_path(path)
}

fn is_still_wrong(
    (view, files): (&View, &ObjectFiles),
    finding: &Finding,
) -> Result<bool, StoreError> {
    let Some(name) = object_of(finding) else { return Ok(true) };
    let reader = view.reader();
    let inode = reader.get(&Key::inode(name.inode))?;
    let inode = inode.and_then(|value| InodeRow::decode_all(value).ok());
    let row = reader.get(&Key::object(ShardId::data(name.shard_index), name.inode))?;
    let row = row.and_then(|value| ObjectRow::decode_all(value).ok());
    let objects = reader.file_objects(ShardId::data(name.shard_index), name.inode)?;
    let file = files.find_all(&objects)?;
    let is_file = inode.is_some_and(|inode| inode.kind == FileKind::File);
    let size_bytes = row.map_or(0, |row| row.size_bytes);
    if matches!(finding.kind, Kind::ObjectMissing | Kind::ObjectShort) {
        let is_named = inode.is_some_and(|inode| inode.nlink > 0);
        let found = file.map(|file| file.size_bytes);
        return Ok(is_named && size_bytes > 0 && found.is_none_or(|found| found < size_bytes));
    }
    if finding.kind == Kind::ContentsChanged {
        return Ok(is_file && reader.compare_contents(files, objects)?.first.is_some());
    }
    if finding.kind == Kind::ObjectRowLeft {
        return Ok(!is_file && row.is_some() && file.is_none());
    }
    let exists = files.find(name)?.is_some();
    if finding.kind == Kind::StripeNotRecorded {
        return Ok(is_file && exists && !is_recorded(&reader, name)?);
    }
    // Files of objects without an inode.
    Ok(!is_file && exists)
}

/// Whether the records know that there may be this object of a file.
fn is_recorded(reader: &Reader<'_>, name: ObjectName) -> Result<bool, StoreError> {
    let shard = ShardId::data(name.shard_index);
    let is_first = name.stripe_index == 0;
    Ok(is_first || reader.get(&Key::stripe(shard, name.inode, name.stripe_index))?.is_some())
}
