//! Changes of rows that are being collected, over the existing rows.
//!
//! Invariant: nothing is written here; the caller writes all changes at once.

use crate::mend::{Mend, Place};
use crate::names::number;
use disk::InodeRow;
use disk::rows::{DirentRow, Key, ObjectRow, Range, Row, ShardRow};
use std::collections::BTreeMap;
use store::{Reader, ScanControl, StoreError, View};
use wire::{FileKind, InodeNo, Name, ShardId, Timestamp, Wire};

/// Inode numbers and places in listings that are left out before those that a repair gives: a client may bring
/// back changes that were not durable, which have the next ones.
const LEFT_OUT_COUNT: u64 = 1 << 20;
/// Where inodes without a name get one.
const LOST_AND_FOUND: &str = "lost+found";

/// Rows to be written; `None`: taken away.
pub(crate) type Rows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Gathers.
pub(crate) struct Edits<'v> {
    view: &'v View,
    reader: Reader<'v>,
    pub(crate) rows: Rows,
}

impl<'v> Edits<'v> {
    pub(crate) fn new(view: &'v View) -> Result<Self, StoreError> {
        Ok(Self { view, reader: view.reader(), rows: Rows::new() })
    }

    /// What stands under a key before all changes.
    pub(crate) fn before(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.reader.get_bytes(key).map(|value| value.map(<[u8]>::to_vec))
    }

    /// Gathers what mends something.
    pub(crate) fn apply(&mut self, mend: &Mend) -> Result<(), StoreError> {
        match mend {
            Mend::Leave | Mend::Quarantine(_) => {}
            Mend::DropRow(key) => {
                self.rows.insert(key.clone(), None);
            }
            Mend::MakeRoot => self.make_root()?,
            Mend::DropName(place) => self.drop_name(place)?,
            Mend::SetKind(place, kind) => {
                if let Some(row) = self.entry(place)? {
                    self.put_entry(place, DirentRow { kind: *kind, ..row });
                }
            }
            Mend::List(place, row) | Mend::Name(place, row) => self.put_entry(place, *row),
            Mend::Unlist { dir, cookie } => {
                self.rows.insert(Key::listing(*dir, *cookie).bytes().to_vec(), None);
            }
            Mend::Adopt { inode, from } => {
                for place in from {
                    self.drop_name(place)?;
                }
                self.adopt(*inode)?;
            }
            Mend::RaiseCookie { dir, next_cookie } => {
                self.change(*dir, |row| row.next_cookie = *next_cookie)?;
            }
            Mend::SetLinks { inode, nlink } => {
                self.change(*inode, |row| row.nlink = *nlink)?;
                self.rows.insert(Key::orphan(*inode).bytes().to_vec(), None);
            }
            Mend::SetEntries { dir, entry_count } => {
                self.change(*dir, |row| row.entry_count = *entry_count)?;
            }
            Mend::SetParent { inode, parent } => {
                self.change(*inode, |row| row.parent = *parent)?;
            }
            Mend::MarkOrphan(inode) => {
                self.rows.insert(Key::orphan(*inode).bytes().to_vec(), Some(Vec::new()));
            }
            Mend::UnmarkOrphan(inode) => {
                self.rows.insert(Key::orphan(*inode).bytes().to_vec(), None);
            }
            Mend::SetShard { shard, next_count, inode_count, transno } => {
                let key = Key::shard(*shard);
                let row: ShardRow = self.read(&key)?.unwrap_or_default();
                let row = ShardRow {
                    next_count: row.next_count.max(*next_count),
                    inode_count: *inode_count,
                    transno: row.transno.max(*transno),
                    ..row
                };
                self.put(&key, &row);
            }
            Mend::RecordStripe(name) => {
                let shard = ShardId::data(name.shard_index);
                let key = Key::object(shard, name.inode);
                let row: ObjectRow = self.read(&key)?.unwrap_or_default();
                let of_inode = self.inode(name.inode)?.and_then(|row| row.layout);
                let Some(layout) = row.layout.or(of_inode) else { return Ok(()) };
                self.put(&key, &ObjectRow { layout: Some(layout), ..row });
                let key = Key::stripe(shard, name.inode, name.stripe_index);
                self.rows.insert(key.bytes().to_vec(), Some(Vec::new()));
            }
            Mend::SetLayout(inode, layout) => {
                self.change(*inode, |row| row.layout = Some(*layout))?;
            }
            Mend::MeasureSize(inode) => self.change(*inode, |row| row.size_at_data = true)?,
        }
        Ok(())
    }

    fn make_root(&mut self) -> Result<(), StoreError> {
        let made = self.view.superblock().creation;
        let mut row = InodeRow::root(made);
        self.reader.scan(&Range::dirents(InodeNo::ROOT), |key, value| {
            if let Ok(Row::Dirent { row: entry, .. }) = Row::decode(key, value) {
                row.next_cookie = row.next_cookie.max(entry.cookie.saturating_add(1));
            }
            Ok(ScanControl::Continue)
        })?;
        self.put(&Key::inode(InodeNo::ROOT), &row);
        Ok(())
    }

    fn drop_name(&mut self, place: &Place) -> Result<(), StoreError> {
        let Some(row) = self.entry(place)? else { return Ok(()) };
        self.rows.insert(entry_key(place), None);
        let listing = Key::listing(place.dir, row.cookie);
        let is_its = match self.value(&listing)? {
            Some(value) => {
                let mut own = Vec::new();
                encode_listing(place, row, &mut own);
                value == own
            }
            None => false,
        };
        if is_its {
            self.rows.insert(listing.bytes().to_vec(), None);
        }
        Ok(())
    }

    /// Gives an inode a name in `/lost+found`.
    fn adopt(&mut self, inode: InodeNo) -> Result<(), StoreError> {
        let dir = self.lost_and_found()?;
        let text = format!("#{}", number(inode));
        let Some(place) = self.free_name(dir, &text)? else { return Ok(()) };
        let Some(row) = self.inode(inode)? else { return Ok(()) };
        let (kind, version) = (row.kind, row.version);
        self.link(&place, DirentRow { cookie: 0, inode, kind, version })?;
        self.change(inode, |row| {
            row.parent = dir;
            row.nlink = if kind == FileKind::Directory { row.nlink.max(2) } else { 1 };
        })
    }

    /// The directory; made if there is none.
    fn lost_and_found(&mut self) -> Result<InodeNo, StoreError> {
        let mut no = 0;
        let place = loop {
            let name =
                if no == 0 { LOST_AND_FOUND.to_owned() } else { format!("{LOST_AND_FOUND}.{no}") };
            let place = Place { dir: InodeNo::ROOT, name: name.into_bytes() };
            match self.entry(&place)? {
                Some(row)
                    if row.kind == FileKind::Directory && self.inode(row.inode)?.is_some() =>
                {
                    return Ok(row.inode);
                }
                Some(_) => no += 1,
                None => break place,
            }
        };
        let shard = InodeNo::ROOT.shard();
        let key = Key::shard(shard);
        let numbers: ShardRow = self.read(&key)?.unwrap_or_default();
        let count = numbers.next_count.max(1) + LEFT_OUT_COUNT;
        let inode = InodeNo::new(shard.index(), count);
        let now = self.inode(InodeNo::ROOT)?.map_or(Timestamp::from_ns(0), |root| root.ctime);
        let version = numbers.transno;
        let row = InodeRow {
            nlink: 2,
            parent: InodeNo::ROOT,
            version,
            ..InodeRow::new(inode, FileKind::Directory, 0o700, now)
        };
        self.put(&Key::inode(inode), &row);
        let inode_count = numbers.inode_count + 1;
        self.put(&key, &ShardRow { next_count: count + 1, inode_count, ..numbers });
        self.link(&place, DirentRow { cookie: 0, inode, kind: FileKind::Directory, version })?;
        self.change(InodeNo::ROOT, |root| root.nlink += 1)?;
        Ok(inode)
    }

    /// A name that a directory does not have.
    fn free_name(&self, dir: InodeNo, text: &str) -> Result<Option<Place>, StoreError> {
        const TRY_COUNT: u32 = 1000;
        for no in 0..TRY_COUNT {
            let name = if no == 0 { text.to_owned() } else { format!("{text}.{no}") };
            let place = Place { dir, name: name.into_bytes() };
            if self.entry(&place)?.is_none() {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Makes an entry at a place of its own.
    fn link(&mut self, place: &Place, row: DirentRow) -> Result<(), StoreError> {
        let Some(dir) = self.inode(place.dir)? else { return Ok(()) };
        let cookie = dir.next_cookie.saturating_add(LEFT_OUT_COUNT);
        self.put_entry(place, DirentRow { cookie, ..row });
        self.change(place.dir, |dir| {
            dir.next_cookie = cookie + 1;
            dir.entry_count += 1;
        })
    }

    fn put_entry(&mut self, place: &Place, row: DirentRow) {
        self.rows.insert(entry_key(place), Some(row.to_bytes()));
        let mut listing = Vec::new();
        encode_listing(place, row, &mut listing);
        let key = Key::listing(place.dir, row.cookie).bytes().to_vec();
        self.rows.insert(key, Some(listing));
    }

    fn change(
        &mut self,
        inode: InodeNo,
        change: impl FnOnce(&mut InodeRow),
    ) -> Result<(), StoreError> {
        if let Some(mut row) = self.inode(inode)? {
            change(&mut row);
            self.put(&Key::inode(inode), &row);
        }
        Ok(())
    }

    fn put<'a>(&mut self, key: &Key, row: &impl Wire<'a>) {
        self.rows.insert(key.bytes().to_vec(), Some(row.to_bytes()));
    }

    fn inode(&self, inode: InodeNo) -> Result<Option<InodeRow>, StoreError> {
        self.read(&Key::inode(inode))
    }

    fn entry(&self, place: &Place) -> Result<Option<DirentRow>, StoreError> {
        let value = self.value_of(&entry_key(place))?;
        Ok(value.and_then(|value| DirentRow::decode_all(&value).ok()))
    }

    fn read<T: for<'b> Wire<'b>>(&self, key: &Key) -> Result<Option<T>, StoreError> {
        Ok(self.value(key)?.and_then(|value| T::decode_all(&value).ok()))
    }

    fn value(&self, key: &Key) -> Result<Option<Vec<u8>>, StoreError> {
        self.value_of(key.bytes())
    }

    fn value_of(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.rows.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.before(key),
        }
    }
}

fn name_of(place: &Place) -> Name<'_> {
    #[expect(
        clippy::expect_used,
        reason = "a place has a name that was checked when its row was read"
    )]
    Name::new(&place.name).expect("a name")
}

fn entry_key(place: &Place) -> Vec<u8> {
    Key::dirent(place.dir, name_of(place)).bytes().to_vec()
}

fn encode_listing(place: &Place, row: DirentRow, out: &mut Vec<u8>) {
    row.encode_listing(name_of(place), out);
}
