//! Applies records to rows, with the same result as redoing them on a shard in memory.

use super::blocks;
use super::row::{DirentRow, ObjectRow, ShardRow, SlotRow};
use super::{Key, Range, Rows};
use crate::{
    Change, Changes, ClientChange, ContentsChange, Creation, ExportChange, Fault, InodeRow, Origin,
    Record, SessionRow, TxnChange, TxnId,
};
use alloc::vec::Vec;
use wire::{FileKind, InodeNo, Name, SessionId, ShardId, Transno, Wire, Writer};

/// Creates the rows of a new store: the root directory, if missing. Returns whether it was missing.
///
/// # Errors
/// [`Fault`] when the medium fails.
pub fn begin(made: Creation, rows: &mut impl Rows) -> Result<bool, Fault> {
    let shard = Key::shard(InodeNo::ROOT.shard());
    if rows.get(shard.bytes())?.is_some() {
        return Ok(false);
    }
    rows.put(Key::inode(InodeNo::ROOT).bytes(), &InodeRow::root(made).to_bytes());
    let next_count = InodeNo::ROOT.count() + 1;
    let row = ShardRow { next_count, inode_count: 1, ..ShardRow::default() };
    rows.put(shard.bytes(), &row.to_bytes());
    Ok(true)
}

/// Applies a record, unless the rows already have it; returns whether it was applied. `shard` is
/// the row of the record's shard, which the caller stores after a number of records.
///
/// # Errors
/// [`Fault`] when records in between are missing, the record contradicts the rows, or the medium
/// fails.
pub fn apply(
    record: &Record<'_>,
    shard: &mut ShardRow,
    rows: &mut impl Rows,
) -> Result<bool, Fault> {
    if !shard.position().is_next(record)? {
        return Ok(false);
    }
    let mut applying = Applying { record, shard, rows, value: Vec::new(), dir: None };
    for change in Changes::new(record.changes) {
        applying.change(&change?)?;
    }
    applying.put_dir();
    applying.remember()?;
    shard.advance(record);
    Ok(true)
}

/// Salvage: applies the applicable changes of a record to incomplete rows, unless they already have
/// it; returns the number of inapplicable changes. Missing earlier records are ignored.
///
/// # Errors
/// [`Fault`] when the record does not decode.
pub fn apply_partially(
    record: &Record<'_>,
    shard: &mut ShardRow,
    rows: &mut impl Rows,
) -> Result<u64, Fault> {
    if record.lsn <= shard.lsn {
        return Ok(0);
    }
    let mut applying = Applying { record, shard, rows, value: Vec::new(), dir: None };
    let mut left_out_count = 0;
    for change in Changes::new(record.changes) {
        left_out_count += u64::from(applying.change(&change?).is_err());
    }
    applying.put_dir();
    left_out_count += u64::from(applying.remember().is_err());
    shard.advance(record);
    Ok(left_out_count)
}

struct Applying<'a, R> {
    record: &'a Record<'a>,
    shard: &'a mut ShardRow,
    rows: &'a mut R,
    /// Scratch.
    value: Vec<u8>,
    /// The directory that this record changed last; its row is not stored yet.
    dir: Option<InodeRow>,
}

impl<R: Rows> Applying<'_, R> {
    const fn id(&self) -> ShardId {
        self.record.shard
    }

    fn change(&mut self, change: &Change<'_>) -> Result<(), Fault> {
        match change {
            Change::Inode { row } => self.put_inode(row)?,
            Change::Touch { inode, .. } | Change::DirAttrs { inode, .. } => {
                let mut row = self.known(*inode)?;
                row.redo(self.record.transno, change)?;
                self.change_dir(row);
            }
            Change::Accessed { inode, .. } | Change::Settled { inode, .. } => {
                let mut row = self.known(*inode)?;
                row.redo(self.record.transno, change)?;
                if row.kind == FileKind::Directory {
                    self.change_dir(row);
                } else {
                    self.put(&Key::inode(*inode), &row);
                }
            }
            Change::Dirent { dir, name, cookie, inode, kind, version } => {
                let (cookie, inode, kind, version) = (*cookie, *inode, *kind, *version);
                self.put_entry(*dir, *name, DirentRow { cookie, inode, kind, version })?;
            }
            Change::DirentRemoved { dir, name } => self.drop_entry(*dir, *name)?,
            Change::Symlink { inode, target } => {
                self.of_names()?;
                self.rows.put(Key::target(*inode).bytes(), target.0);
            }
            Change::Xattr { inode, name, value } => {
                let key = Key::xattr(*inode, name.0)
                    .ok_or_else(|| Fault::new("an attribute's name beyond its limit", 0))?;
                self.of_names()?;
                self.rows.put(key.bytes(), value.0);
            }
            Change::XattrRemoved { inode, name } => {
                if let Some(key) = Key::xattr(*inode, name.0) {
                    self.rows.delete(key.bytes());
                }
            }
            Change::InodeRemoved { inode } => self.drop_inode(*inode)?,
            Change::Contents(change) => self.change_contents(change)?,
            Change::Client(change) => self.change_client(change)?,
            Change::Txn(change) => self.change_txn(change)?,
            Change::Export(change) => self.change_export(change),
        }
        Ok(())
    }

    fn change_contents(&mut self, change: &ContentsChange) -> Result<(), Fault> {
        match change {
            ContentsChange::Write { inode, .. }
            | ContentsChange::WriteList { inode, .. }
            | ContentsChange::Truncate { inode, .. }
            | ContentsChange::Allocate { inode, .. } => {
                self.change_object(*inode, change)?;
            }
            ContentsChange::ObjectRemoved { inode } => {
                self.rows.delete(Key::object(self.id(), *inode).bytes());
                self.rows.delete_range(&Range::sums(self.id(), *inode, 0..u64::MAX))?;
                self.rows.delete_range(&Range::stripes(self.id(), *inode))?;
            }
            ContentsChange::Stripe { inode, stripe_index, .. } => {
                self.change_object(*inode, change)?;
                self.rows.put(Key::stripe(self.id(), *inode, *stripe_index).bytes(), &[]);
            }
            ContentsChange::Sums { inode, first_block, sums } => {
                if *first_block == 0 {
                    self.change_object(*inode, change)?;
                }
                blocks::put(self.rows, (self.id(), *inode), *first_block, sums)?;
            }
            // For the object's file.
            ContentsChange::Logged { .. } => {}
            ContentsChange::SumsRemoved { inode, from_block, until_block } => {
                if *from_block == 0 {
                    self.change_object(*inode, change)?;
                }
                blocks::take(self.rows, (self.id(), *inode), *from_block..*until_block)?;
            }
        }
        Ok(())
    }

    fn change_client(&mut self, change: &ClientChange) -> Result<(), Fault> {
        match change {
            ClientChange::SessionOpened { session, row } => self.open_session(*session, row),
            ClientChange::SessionRemoved { session } => {
                self.rows.delete(Key::session(self.id(), *session).bytes());
                self.rows.delete_range(&Range::slots(self.id(), *session))?;
            }
            ClientChange::SessionAway { session } => self.send_away(*session)?,
            ClientChange::Evicted { client, boot_id } => {
                self.put(&Key::evicted(*client), boot_id);
                self.rows.delete(Key::vbr_failed(*client).bytes());
            }
            ClientChange::VbrFailed { client } => {
                self.rows.put(Key::vbr_failed(*client).bytes(), &[]);
            }
            ClientChange::EvictionOver { client, boot_id } => {
                self.rows.delete(Key::evicted(*client).bytes());
                let known: u64 = self.read(&Key::evicted_last())?.unwrap_or(0);
                self.put(&Key::evicted_last(), &known.max(*boot_id));
            }
            ClientChange::Recovered => {
                let transno = self.record.transno;
                self.put(&Key::recovered(self.id()), &transno);
            }
        }
        Ok(())
    }

    fn change_export(&mut self, change: &ExportChange<'_>) {
        match change {
            ExportChange::Put(export) => {
                if let Some(key) = Key::export(export.name.0) {
                    self.put(&key, export);
                }
            }
            ExportChange::Removed { name } => {
                if let Some(key) = Key::export(name.0) {
                    self.rows.delete(key.bytes());
                }
            }
        }
    }

    fn change_txn(&mut self, change: &TxnChange<'_>) -> Result<(), Fault> {
        match change {
            TxnChange::Prepared { txn, part } => self.prepare(*txn, part.0)?,
            TxnChange::Done { txn } | TxnChange::Aborted { txn } => {
                self.rows.delete(Key::prepared(self.id(), *txn).bytes());
            }
            TxnChange::Decided { txn, shards } => self.put(&Key::decided(*txn), shards),
            TxnChange::Forgotten { txn } => self.rows.delete(Key::decided(*txn).bytes()),
        }
        Ok(())
    }

    /// Stores a prepared part and reserves the cookies of its entries.
    fn prepare(&mut self, txn: TxnId, part: &[u8]) -> Result<(), Fault> {
        self.of_names()?;
        for change in Changes::new(part) {
            if let Change::Dirent { dir, cookie, .. } = change? {
                let mut row = self.known(dir)?;
                row.next_cookie = row.next_cookie.max(cookie.saturating_add(1));
                self.change_dir(row);
            }
        }
        self.value.clear();
        let mut to = Writer::new(&mut self.value);
        to.write(&self.record.transno);
        to.put(part);
        self.rows.put(Key::prepared(self.id(), txn).bytes(), &self.value);
        Ok(())
    }

    /// Changes a directory's row in memory. Most records change one directory several times: the
    /// row is stored when another directory is changed, when all rows of the inode are read, or at
    /// the record's end.
    fn change_dir(&mut self, row: InodeRow) {
        if self.dir.is_none_or(|dir| dir.inode != row.inode) {
            self.put_dir();
        }
        self.dir = Some(row);
    }

    fn put_dir(&mut self) {
        if let Some(row) = self.dir.take() {
            self.put(&Key::inode(row.inode), &row);
        }
    }

    /// Fails at a data shard: names live in metadata shards.
    fn of_names(&self) -> Result<(), Fault> {
        let wrong = || Fault::new("a metadata change at a data shard", 0);
        if self.id().is_data() { Err(wrong()) } else { Ok(()) }
    }

    fn change_object(&mut self, inode: InodeNo, change: &ContentsChange) -> Result<(), Fault> {
        if !self.id().is_data() {
            let fault = Fault::new("a change of contents in a metadata shard", 0);
            return Err(fault.numbers(0_u64, inode.0));
        }
        let key = Key::object(self.id(), inode);
        let mut row: ObjectRow = self.read(&key)?.unwrap_or_default();
        row.redo(change);
        self.put(&key, &row);
        Ok(())
    }

    fn open_session(&mut self, session: SessionId, row: &SessionRow) {
        self.value.clear();
        let mut to = Writer::new(&mut self.value);
        to.write(row);
        to.write(&false);
        self.rows.put(Key::session(self.id(), session).bytes(), &self.value);
    }

    fn send_away(&mut self, session: SessionId) -> Result<(), Fault> {
        let key = Key::session(self.id(), session);
        let Some(value) = self.rows.get(key.bytes())? else { return Ok(()) };
        let mut value = value.into_owned();
        if let Some(away) = value.last_mut() {
            *away = 1;
        }
        self.rows.put(key.bytes(), &value);
        Ok(())
    }

    fn drop_entry(&mut self, dir: InodeNo, name: Name<'_>) -> Result<(), Fault> {
        self.of_names()?;
        let key = Key::dirent(dir, name);
        if let Some(old) = self.read::<DirentRow>(&key)? {
            self.rows.delete(Key::listing(dir, old.cookie).bytes());
            self.rows.delete(key.bytes());
        }
        Ok(())
    }

    fn put_inode(&mut self, row: &InodeRow) -> Result<(), Fault> {
        let (inode, count) = (row.inode, row.inode.count());
        if inode.shard() != self.id() || count == 0 {
            return Err(Fault::new("redo names an inode of another shard", 0)
                .numbers(u64::from(self.id().0), inode.0));
        }
        self.put_dir();
        // An inode with a new number has no rows.
        let is_new = count >= self.shard.next_count;
        let known: Option<InodeRow> = if is_new { None } else { self.read(&Key::inode(inode))? };
        match (known.map(|known| known.nlink == 0), row.nlink == 0) {
            (Some(true), false) => self.rows.delete(Key::orphan(inode).bytes()),
            (Some(false) | None, true) => self.rows.put(Key::orphan(inode).bytes(), &[]),
            (Some(true), true) | (Some(false) | None, false) => {}
        }
        self.shard.next_count = self.shard.next_count.max(count + 1);
        self.shard.inode_count += u64::from(known.is_none());
        self.put(&Key::inode(inode), row);
        Ok(())
    }

    fn drop_inode(&mut self, inode: InodeNo) -> Result<(), Fault> {
        self.put_dir();
        let Some(row) = self.read::<InodeRow>(&Key::inode(inode))? else { return Ok(()) };
        self.rows.delete_range(&Range::inode(inode))?;
        if row.kind == FileKind::Directory {
            self.rows.delete_range(&Range::dirents(inode))?;
            self.rows.delete_range(&Range::listing(inode, 0))?;
        }
        if row.nlink == 0 {
            self.rows.delete(Key::orphan(inode).bytes());
        }
        self.shard.inode_count = self.shard.inode_count.saturating_sub(1);
        Ok(())
    }

    fn put_entry(&mut self, dir: InodeNo, name: Name<'_>, row: DirentRow) -> Result<(), Fault> {
        let fault = || Fault::new("redo puts two names at one place", 0).numbers(row.cookie, dir.0);
        let behind = row.cookie.checked_add(1).ok_or_else(fault)?;
        let mut dir_row = self.known(dir)?;
        if dir_row.kind != FileKind::Directory {
            return Err(wrong_kind(dir));
        }
        let key = Key::dirent(dir, name);
        if behind > dir_row.next_cookie {
            // An unused cookie is assigned to a new name only.
            dir_row.next_cookie = behind;
            self.change_dir(dir_row);
        } else {
            let old: Option<DirentRow> = self.read(&key)?;
            if let Some(old) = old.filter(|old| old.cookie != row.cookie) {
                self.rows.delete(Key::listing(dir, old.cookie).bytes());
            }
        }
        self.put(&key, &row);
        self.value.clear();
        row.encode_listing(name, &mut self.value);
        self.rows.put(Key::listing(dir, row.cookie).bytes(), &self.value);
        Ok(())
    }

    /// Stores the reply record in its slot.
    fn remember(&mut self) -> Result<(), Fault> {
        let Origin::Session { session, slot, xid, op, status, reply, opened } = self.record.origin
        else {
            return Ok(());
        };
        if let Some(row) = opened {
            self.open_session(session, &row);
        }
        let key = Key::slot(self.id(), session, slot);
        let known = self.rows.get(key.bytes())?;
        let known = known.as_deref().and_then(SlotRow::xid);
        if known.is_none_or(|known| xid > known) {
            self.value.clear();
            let transno = self.record.transno;
            SlotRow { xid, op, status, transno, reply }.encode(&mut self.value);
            self.rows.put(key.bytes(), &self.value);
        }
        Ok(())
    }

    fn put<'a>(&mut self, key: &Key, row: &impl Wire<'a>) {
        self.value.clear();
        Writer::new(&mut self.value).write(row);
        self.rows.put(key.bytes(), &self.value);
    }

    fn read<T: for<'v> Wire<'v>>(&self, key: &Key) -> Result<Option<T>, Fault> {
        let Some(value) = self.rows.get(key.bytes())? else { return Ok(None) };
        let row = T::decode_all(&value);
        row.map(Some).map_err(|_| Fault::new("a row that does not decode", 0))
    }

    fn known(&self, inode: InodeNo) -> Result<InodeRow, Fault> {
        if let Some(dir) = self.dir.filter(|dir| dir.inode == inode) {
            return Ok(dir);
        }
        self.read(&Key::inode(inode))?.ok_or_else(|| {
            Fault::new("redo names an inode that does not exist", 0).numbers(0_u64, inode.0)
        })
    }
}

fn wrong_kind(inode: InodeNo) -> Fault {
    Fault::new("redo takes an inode for another kind", 0).numbers(0_u64, inode.0)
}

impl InodeRow {
    /// Redoes a [`Change::Touch`], [`Change::DirAttrs`], [`Change::Accessed`] or
    /// [`Change::Settled`] of transaction `transno` on its inode's row; ignores other changes.
    ///
    /// # Errors
    /// [`Fault`] when a count falls below 0 or the inode is no directory.
    pub fn redo(&mut self, transno: Transno, change: &Change<'_>) -> Result<(), Fault> {
        if let Change::Touch { inode, mtime, ctime, nlink_delta, entry_delta } = *change {
            let below = || Fault::new("redo counts below 0", 0).numbers(0_u64, inode.0);
            self.nlink = self.nlink.checked_add_signed(nlink_delta).ok_or_else(below)?;
            self.entry_count =
                self.entry_count.checked_add_signed(entry_delta.into()).ok_or_else(below)?;
            self.ctime = self.ctime.max(ctime);
            if transno > self.touched {
                (self.touched, self.mtime) = (transno, mtime);
            }
        }
        if let Change::Accessed { atime, .. } = *change {
            self.atime = atime;
        }
        if let Change::Settled { contents, .. } = change {
            self.settle(contents);
        }
        if let Change::DirAttrs { inode, mode, uid, gid, atime, mtime, ctime, parent, version } =
            *change
        {
            if self.kind != FileKind::Directory {
                return Err(wrong_kind(inode));
            }
            (self.mode, self.uid, self.gid, self.atime) = (mode, uid, gid, atime);
            self.ctime = self.ctime.max(ctime);
            (self.parent, self.version) = (parent, version);
            if let Some((mtime, set)) = mtime {
                self.mtime_set = self.mtime_set.max(set);
                if transno > self.touched {
                    (self.mtime, self.touched) = (mtime, transno);
                }
            }
        }
        Ok(())
    }
}
