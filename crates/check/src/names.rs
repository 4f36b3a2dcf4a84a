//! Names and inodes: every name's inode, every inode's names, and directories up to the root.

use crate::finding::Kind;
use crate::mend::{Mend, Place};
use crate::paths::Paths;
use crate::tally::Tally;
use crate::walk::Walk;
use disk::InodeRow;
use disk::rows::{DirentRow, Key, ObjectRow, Range, Row};
use hashbrown::HashSet;
use store::StoreError;
use wire::{FileKind, InodeNo, Name, Wire};

/// A directory whose entries are being looked at.
struct Entries {
    dir: InodeNo,
    /// Its row, if it is a directory.
    row: Option<InodeRow>,
    count: u64,
    subdir_count: u32,
    /// Behind the last place of an entry.
    next_cookie: u64,
}

impl Walk<'_> {
    /// Which inodes there are.
    pub(crate) fn tally_inodes(&mut self) -> Result<(), StoreError> {
        self.pass("inodes");
        self.each_row(&Range::inodes(), |walk, row, _| {
            if let Row::Inode(row) = row {
                walk.tally(row);
            }
            Ok(())
        })?;
        if self.here.has_inode(InodeNo::ROOT) && !self.tallies.contains_key(&InodeNo::ROOT) {
            let what = "the root directory has no row".to_owned();
            self.find(Kind::RootMissing, InodeNo::ROOT, (what, Mend::MakeRoot));
        }
        Ok(())
    }

    fn tally(&mut self, row: &InodeRow) {
        self.outcome.inode_count += 1;
        let shard = self.shards.entry(row.inode.shard()).or_default();
        shard.inode_count += 1;
        shard.count_max = shard.count_max.max(row.inode.count());
        shard.version_max = shard.version_max.max(row.version.0);
        let tally = Tally {
            kind: row.kind,
            name_count: 0,
            subdir_count: 0,
            entry_count: 0,
            within: None,
            parent_fits: false,
            parent: row.parent,
        };
        self.tallies.insert(row.inode, tally);
    }

    /// Every entry by its name.
    pub(crate) fn check_entries(&mut self) -> Result<(), StoreError> {
        self.pass("names");
        let mut at: Option<Entries> = None;
        self.each_row(&Range::all_dirents(), |walk, row, _| {
            let Row::Dirent { dir, name, row } = row else { return Ok(()) };
            if at.as_ref().is_none_or(|entries| entries.dir != *dir) {
                walk.end_entries(at.take());
                at = Some(walk.begin_entries(*dir)?);
            }
            if let Some(entries) = &mut at {
                walk.check_entry(entries, *name, row)?;
            }
            Ok(())
        })?;
        self.end_entries(at);
        self.check_named_twice()
    }

    fn begin_entries(&self, dir: InodeNo) -> Result<Entries, StoreError> {
        let row = self.inode(dir)?.filter(|row| row.kind == FileKind::Directory);
        Ok(Entries { dir, row, count: 0, subdir_count: 0, next_cookie: 0 })
    }

    fn end_entries(&mut self, entries: Option<Entries>) {
        let Some(Entries { dir, row: Some(row), count, subdir_count, next_cookie }) = entries
        else {
            return;
        };
        if let Some(tally) = self.tallies.get_mut(&dir) {
            (tally.entry_count, tally.subdir_count) = (count, subdir_count);
        }
        if next_cookie > row.next_cookie {
            let what = format!(
                "an entry has place {}, the next one would get {}",
                next_cookie - 1,
                row.next_cookie
            );
            let mend = Mend::RaiseCookie { dir, next_cookie };
            self.find(Kind::CookieReused, dir, (what, mend));
        }
    }

    fn check_entry(
        &mut self,
        entries: &mut Entries,
        name: Name<'_>,
        row: &DirentRow,
    ) -> Result<(), StoreError> {
        self.outcome.name_count += 1;
        let place = Place { dir: entries.dir, name: name.bytes().to_vec() };
        let at = (place.clone(), row.inode);
        if entries.row.is_none() {
            let what = format!("{} is no directory", number(entries.dir));
            self.find_at(Kind::EntryWithoutDirectory, at, (what, Mend::DropName(place)));
            return Ok(());
        }
        entries.count += 1;
        entries.next_cookie = entries.next_cookie.max(row.cookie.saturating_add(1));
        self.check_listed(&place, name, row)?;
        if !self.here.has_inode(row.inode) {
            self.outcome.elsewhere_count += 1;
            entries.subdir_count += u32::from(row.kind == FileKind::Directory);
            return Ok(());
        }
        let Some(tally) = self.tallies.get_mut(&row.inode) else {
            // A `mkdir` under way has counted the directory that its prepared part will make.
            let is_under_way = self.in_flux.contains(&row.inode);
            entries.subdir_count += u32::from(is_under_way && row.kind == FileKind::Directory);
            let what = format!("there is no inode {}", number(row.inode));
            self.find_at(Kind::NameWithoutInode, at, (what, Mend::DropName(place)));
            return Ok(());
        };
        tally.name_count = tally.name_count.saturating_add(1);
        tally.parent_fits |= tally.parent == entries.dir;
        let (kind, is_second) = (tally.kind, tally.within.is_some());
        tally.within.get_or_insert(entries.dir);
        if kind == FileKind::Directory {
            entries.subdir_count += 1;
            if is_second || row.inode == InodeNo::ROOT {
                self.named_twice.push(row.inode);
            }
        }
        if kind != row.kind {
            let what = format!("the entry says {:?}, the inode {kind:?}", row.kind);
            self.find_at(Kind::NameOfOtherKind, at, (what, Mend::SetKind(place, kind)));
        }
        Ok(())
    }

    /// An entry stands at its place in listings.
    fn check_listed(
        &mut self,
        place: &Place,
        name: Name<'_>,
        row: &DirentRow,
    ) -> Result<(), StoreError> {
        let mut wanted = Vec::new();
        row.encode_listing(name, &mut wanted);
        let found = self.reader.get(&Key::listing(place.dir, row.cookie))?;
        let what = match found {
            Some(found) if found == wanted => return Ok(()),
            Some(_) => format!("place {} in listings is another entry's", row.cookie),
            None => format!("there is no place {} in listings", row.cookie),
        };
        let mend = Mend::List(place.clone(), *row);
        self.find_at(Kind::NameWithoutListing, (place.clone(), row.inode), (what, mend));
        Ok(())
    }

    /// Every entry by its place.
    pub(crate) fn check_listings(&mut self) -> Result<(), StoreError> {
        self.pass("listings");
        self.each_row(&Range::all_listings(), |walk, row, _| {
            let Row::Listing { dir, name, row } = row else { return Ok(()) };
            let known = walk.reader.get(&Key::dirent(*dir, *name))?;
            let known = known.and_then(|value| DirentRow::decode_all(value).ok());
            if known.is_some_and(|known| known.cookie == row.cookie) {
                return Ok(()); // The check of its name reports a difference.
            }
            let place = Place { dir: *dir, name: name.bytes().to_vec() };
            let is_there = walk.tallies.contains_key(&row.inode) || !walk.here.has_inode(row.inode);
            let in_dir = walk.tallies.get(dir).is_some_and(|dir| dir.kind == FileKind::Directory);
            let (what, mend) = match known {
                Some(known) => (
                    format!("the name has place {}, not {}", known.cookie, row.cookie),
                    Mend::Unlist { dir: *dir, cookie: row.cookie },
                ),
                None if is_there && in_dir => (
                    format!("the entry at place {} has no name", row.cookie),
                    Mend::Name(place.clone(), *row),
                ),
                None => (
                    format!("the entry at place {} has no name and nothing to name", row.cookie),
                    Mend::Unlist { dir: *dir, cookie: row.cookie },
                ),
            };
            walk.find_at(Kind::ListingWithoutName, (place, row.inode), (what, mend));
            Ok(())
        })
    }

    /// A directory has one name: the one where its parent is.
    fn check_named_twice(&mut self) -> Result<(), StoreError> {
        let twice: HashSet<InodeNo> = std::mem::take(&mut self.named_twice).into_iter().collect();
        let names = Paths::new(&self.reader, &self.tallies).names_of(&twice)?;
        for (inode, places) in names {
            let parent = self.tallies.get(&inode).map(|tally| tally.parent);
            let fits = places.iter().position(|place| Some(place.dir) == parent);
            let retained = if inode == InodeNo::ROOT { None } else { Some(fits.unwrap_or(0)) };
            if let (Some(retained), Some(tally)) = (retained, self.tallies.get_mut(&inode)) {
                tally.within = Some(places[retained].dir);
            }
            for (index, place) in places.into_iter().enumerate() {
                if Some(index) != retained {
                    let what = format!("directory {} has another name", number(inode));
                    let mend = Mend::DropName(place.clone());
                    self.find_at(Kind::DirectoryNamedTwice, (place, inode), (what, mend));
                }
            }
        }
        Ok(())
    }

    /// Every inode against what was counted.
    pub(crate) fn check_inodes(&mut self) -> Result<(), StoreError> {
        self.pass("link counts");
        self.each_row(&Range::inodes(), |walk, row, key| {
            if let Row::Inode(row) = row {
                return walk.check_inode(row);
            }
            if let Row::Target { inode, .. } | Row::Xattr { inode, .. } = *row
                && !walk.tallies.contains_key(&inode)
            {
                let what = format!("of inode {}", number(inode));
                let mend = Mend::DropRow(key.to_vec());
                walk.find(Kind::AttributeWithoutInode, inode, (what, mend));
            }
            Ok(())
        })
    }

    fn check_inode(&mut self, row: &InodeRow) -> Result<(), StoreError> {
        let Some(&tally) = self.tallies.get(&row.inode) else { return Ok(()) };
        let inode = row.inode;
        if row.kind == FileKind::Directory && tally.entry_count != row.entry_count {
            let what =
                format!("it has {} entries and counts {}", tally.entry_count, row.entry_count);
            let mend = Mend::SetEntries { dir: inode, entry_count: tally.entry_count };
            self.find(Kind::EntryCount, inode, (what, mend));
        }
        self.check_links(row, &tally)?;
        self.check_parent(row, &tally);
        if row.kind == FileKind::Symlink && self.reader.get(&Key::target(inode))?.is_none() {
            let what = format!("inode {}", number(inode));
            self.find(Kind::SymlinkWithoutTarget, inode, (what, Mend::Leave));
        }
        // What a part of a file over several data shards has is less than all of it.
        let may_spread = row.layout.is_some_and(|layout| layout.may_spread());
        let is_settled = row.size_bytes > 0 && !row.size_at_data && !may_spread;
        if row.kind == FileKind::File && row.nlink > 0 && is_settled {
            self.check_size(row)?;
        }
        Ok(())
    }

    fn check_links(&mut self, row: &InodeRow, tally: &Tally) -> Result<(), StoreError> {
        let inode = row.inode;
        let is_named = tally.name_count > 0 || inode == InodeNo::ROOT;
        if !is_named && row.nlink == 0 {
            if self.reader.get(&Key::orphan(inode))?.is_none() {
                let what = format!("inode {}", number(inode));
                self.find(Kind::OrphanUnmarked, inode, (what, Mend::MarkOrphan(inode)));
            }
            return Ok(());
        }
        if !is_named && !self.here.is_whole {
            return Ok(()); // Its name may be on another server.
        }
        if !is_named {
            let what = format!("inode {} has {} links", number(inode), row.nlink);
            let mend = Mend::Adopt { inode, from: Vec::new() };
            self.find(Kind::InodeWithoutName, inode, (what, mend));
            return Ok(());
        }
        let is_directory = row.kind == FileKind::Directory;
        let links =
            if is_directory { tally.subdir_count.saturating_add(2) } else { tally.name_count };
        let more_elsewhere = !is_directory && !self.here.is_whole && links < row.nlink;
        if row.nlink != links && !more_elsewhere {
            let what = format!("it has {links} links and counts {}", row.nlink);
            let mend = Mend::SetLinks { inode, nlink: links };
            self.find(Kind::LinkCount, inode, (what, mend));
        }
        Ok(())
    }

    /// A directory's parent has its name; of anything else one is known, or none.
    fn check_parent(&mut self, row: &InodeRow, tally: &Tally) {
        let Some(within) = tally.within else { return };
        let is_directory = row.kind == FileKind::Directory;
        let fits = tally.parent_fits || (!is_directory && row.parent == InodeNo(0));
        let is_elsewhere = !self.here.has_inode(row.parent) && row.parent != InodeNo(0);
        if row.inode == InodeNo::ROOT || fits || is_elsewhere {
            return;
        }
        let what = format!("parent {}, but it lies in {}", number(row.parent), number(within));
        let mend = Mend::SetParent { inode: row.inode, parent: within };
        self.find(Kind::ParentWrong, row.inode, (what, mend));
    }

    fn check_size(&mut self, row: &InodeRow) -> Result<(), StoreError> {
        let inode = row.inode;
        let Some(shard) = self.here.contents_shard(inode) else {
            if self.here.is_without_contents(inode) {
                let what = format!("{} bytes, and no object is recorded", row.size_bytes);
                self.find(Kind::ObjectMissing, inode, (what, Mend::Leave));
            }
            return Ok(());
        };
        let object = self.reader.get(&Key::object(shard, inode))?;
        let Some(object) = object else {
            let what = format!("{} bytes, and no object is recorded", row.size_bytes);
            self.find(Kind::ObjectMissing, inode, (what, Mend::Leave));
            return Ok(());
        };
        if let Ok(object) = ObjectRow::decode_all(object)
            && object.size_bytes != row.size_bytes
        {
            let what = format!("{} bytes, its object has {}", row.size_bytes, object.size_bytes);
            self.find(Kind::SizeWrong, inode, (what, Mend::MeasureSize(inode)));
        }
        Ok(())
    }

    /// Every directory that has a name lies below the root.
    pub(crate) fn check_directories(&mut self) -> Result<(), StoreError> {
        self.pass("directories");
        let mut reached: HashSet<InodeNo> = HashSet::new();
        let mut cycles = Vec::new();
        let directories =
            self.tallies.iter().filter(|(_, tally)| tally.kind == FileKind::Directory);
        for (&dir, _) in directories {
            let (mut way, mut at) = (Vec::new(), dir);
            let mut on_way = HashSet::new();
            while at != InodeNo::ROOT && !reached.contains(&at) {
                if !on_way.insert(at) {
                    let from = way.iter().position(|known| *known == at).unwrap_or(0);
                    cycles.extend(way[from..].iter().min().copied());
                    break;
                }
                way.push(at);
                // What has no name was found to have none.
                let Some(within) = self.tallies.get(&at).and_then(|tally| tally.within) else {
                    break;
                };
                at = within;
            }
            reached.extend(way);
        }
        let names =
            Paths::new(&self.reader, &self.tallies).names_of(&cycles.iter().copied().collect())?;
        for inode in cycles {
            let from = names.get(&inode).cloned().unwrap_or_default();
            let what = format!("directory {} lies in itself", number(inode));
            self.find(Kind::DirectoryCycle, inode, (what, Mend::Adopt { inode, from }));
        }
        Ok(())
    }

    /// The row of an inode.
    pub(crate) fn inode(&self, inode: InodeNo) -> Result<Option<InodeRow>, StoreError> {
        let value = self.reader.get(&Key::inode(inode))?;
        Ok(value.and_then(|value| InodeRow::decode_all(value).ok()))
    }
}

/// An inode's number as it is in the names of objects.
pub(crate) fn number(inode: InodeNo) -> String {
    format!("{:016x}", inode.0)
}
