//! Typed rows: decoded keys and values.

use super::key::{part, table};
use crate::{
    BlockSum, BlockSums, ContentsChange, Fault, InodeRow, LogPosition, Promised, REPLY_BYTES_MAX,
    Record, SessionRow, ShardPosition, Share, TxnId,
};
use alloc::vec::Vec;
use wire::{
    Attr, Bytes, ClientUuid, DecodeError, Export, FileKind, FsUuid, InodeNo, LaneId, Layout, List,
    Name, Op, ProtocolError, Reader, SessionId, ShardId, Status, Term, Transno, Wire, Writer, Xid,
};

/// How far a shard's log was applied, and the bases of its next numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ShardRow {
    /// The LSN of the last applied record.
    pub lsn: u64,
    /// The term of that record, 0 without one.
    pub term: Term,
    /// The highest applied transaction.
    pub transno: Transno,
    /// A metadata shard's: higher than the count of every inode that ever existed.
    pub next_count: u64,
    /// A metadata shard's: number of inodes.
    pub inode_count: u64,
}

impl ShardRow {
    /// How far the log was applied.
    #[must_use]
    pub const fn position(&self) -> ShardPosition {
        ShardPosition { lsn: self.lsn, term: self.term }
    }

    /// A record was applied: it is the last one.
    pub(crate) fn advance(&mut self, record: &Record<'_>) {
        (self.lsn, self.term) = (record.lsn, record.term);
        self.transno = self.transno.max(record.transno);
    }
}

/// A directory entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirentRow {
    /// The cookie.
    pub cookie: u64,
    /// The inode.
    pub inode: InodeNo,
    /// The inode's kind.
    pub kind: FileKind,
    /// Transaction of its last change.
    pub version: Transno,
}

/// A data shard's object.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ObjectRow {
    /// Its size.
    pub size_bytes: u64,
    /// When it was last changed, in nanoseconds since 1970; 0: never.
    pub write_time_ns: u64,
    /// The checksum of its first block; the others have rows of their own.
    pub first_sum: BlockSum,
    /// The file's layout, if it ever had a stripe behind the first.
    pub layout: Option<Layout>,
}

impl ObjectRow {
    /// Redoes a write, truncation or allocation of this object, a change of its first block's
    /// checksum, or a further stripe. Times never go back, because replays of several clients come in any order.
    pub fn redo(&mut self, change: &ContentsChange) {
        if let ContentsChange::WriteList { pieces, write_time_ns, .. } = change {
            self.size_bytes = self.size_bytes.max(pieces.end());
            self.write_time_ns = self.write_time_ns.max(*write_time_ns);
        }
        if let ContentsChange::Write { object_offset, write_bytes, write_time_ns, .. } = *change {
            let end = object_offset.saturating_add(u64::from(write_bytes));
            self.size_bytes = self.size_bytes.max(end);
            self.write_time_ns = self.write_time_ns.max(write_time_ns);
        }
        if let ContentsChange::Truncate { size_bytes, write_time_ns, .. }
        | ContentsChange::Allocate { size_bytes, write_time_ns, .. } = *change
        {
            self.size_bytes = size_bytes;
            self.write_time_ns = self.write_time_ns.max(write_time_ns);
        }
        match change {
            ContentsChange::Sums { first_block: 0, sums, .. } if !sums.at(0).is_none() => {
                self.first_sum = sums.at(0);
            }
            ContentsChange::SumsRemoved { from_block: 0, until_block: 1.., .. } => {
                self.first_sum = BlockSum::NONE;
            }
            ContentsChange::Stripe { layout, .. } => self.layout = Some(*layout),
            ContentsChange::Sums { .. }
            | ContentsChange::SumsRemoved { .. }
            | ContentsChange::Write { .. }
            | ContentsChange::WriteList { .. }
            | ContentsChange::Truncate { .. }
            | ContentsChange::Allocate { .. }
            | ContentsChange::ObjectRemoved { .. }
            | ContentsChange::Logged { .. } => {}
        }
    }
}

/// The last request of a slot and its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotRow<'a> {
    /// The xid.
    pub xid: Xid,
    /// The operation.
    pub op: Op,
    /// The reply's status.
    pub status: Status,
    /// The transaction.
    pub transno: Transno,
    /// The reply's body.
    pub reply: &'a [u8],
}

/// The store's own row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreRow {
    /// The file system.
    pub fs: FsUuid,
    /// The last boot that used these rows. Every log is of this boot or an earlier one; otherwise
    /// the rows are an old copy.
    pub boot_id: u64,
    /// The boot that created the first logs, 0 if none has: no record is older.
    pub first_boot_id: u64,
    /// What was promised since the last completed recovery; none before the first start.
    pub promised: Option<Promised>,
}

/// The required extent of a lane's log in the last boot that created logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRow {
    /// The boot.
    pub boot_id: u64,
    /// Its number of lanes.
    pub lane_count: u16,
    /// The last segment created: it and those from `place` on must exist.
    pub segment_no_last: u32,
    /// The rows have the log up to here, so it was durable at least up to here.
    pub place: LogPosition,
    /// The last batch before `place`, 0 before the first.
    pub batch_no: u64,
    /// The server stopped and the rows have all of the log: it is not needed any more.
    pub is_applied: bool,
}

/// One row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the layout's table says what the fields are")]
pub enum Row<'a> {
    /// An inode.
    Inode(InodeRow),
    /// A symbolic link's target.
    Target { inode: InodeNo, target: &'a [u8] },
    /// An extended attribute.
    Xattr { inode: InodeNo, name: &'a [u8], value: &'a [u8] },
    /// An entry by its name.
    Dirent { dir: InodeNo, name: Name<'a>, row: DirentRow },
    /// An entry by its cookie.
    Listing { dir: InodeNo, name: Name<'a>, row: DirentRow },
    /// An inode without a name.
    Orphan { inode: InodeNo },
    /// A session at a shard; `away`: the next recovery does not wait for it.
    Session { shard: ShardId, session: SessionId, row: SessionRow, away: bool },
    /// A slot.
    Slot { shard: ShardId, session: SessionId, slot: u16, row: SlotRow<'a> },
    /// A shard's own row.
    Shard { shard: ShardId, row: ShardRow },
    /// An object.
    Object { shard: ShardId, inode: InodeNo, row: ObjectRow },
    /// Checksums of a group of an object's blocks, encoded [`BlockSums`]; that of its first block
    /// is in the object's row.
    Sums { shard: ShardId, inode: InodeNo, group: u64, sums: &'a [u8] },
    /// A stripe object behind a file's first one may exist.
    Stripe { shard: ShardId, inode: InodeNo, stripe_index: u32 },
    /// An evicted client and the evicting boot.
    Evicted { client: ClientUuid, boot_id: u64 },
    /// The last boot of evicted clients that are not remembered individually.
    EvictedLast { boot_id: u64 },
    /// Lost changes up to this transaction are not replayed to a shard any more.
    Recovered { shard: ShardId, transno: Transno },
    /// A client whose replay failed a version check.
    VbrFailed { client: ClientUuid },
    /// The store's own row.
    Store(StoreRow),
    /// The required extent of a lane's log.
    Log { lane: LaneId, row: LogRow },
    /// A part of a transaction over several shards, prepared by this transaction number.
    Prepared { shard: ShardId, txn: TxnId, transno: Transno, part: &'a [u8] },
    /// A committed transaction over several shards that is not forgotten.
    Decided { txn: TxnId, shards: List<'a, ShardId> },
    /// An export.
    Export(Export<'a>),
}

impl<'a> Row<'a> {
    /// Decodes a key and its value.
    ///
    /// # Errors
    /// [`Fault`] when that is no row.
    pub fn decode(key: &'a [u8], value: &'a [u8]) -> Result<Self, Fault> {
        read(&mut Number(key), value).ok_or_else(|| {
            let first = key.first().copied().unwrap_or(0);
            Fault::new("a row that does not decode", 0).numbers(0_u64, first)
        })
    }
}

/// Decodes numbers of a key.
struct Number<'a>(&'a [u8]);

impl<'a> Number<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*number)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn inode(&mut self) -> Option<InodeNo> {
        self.u64().map(InodeNo)
    }

    fn shard(&mut self) -> Option<ShardId> {
        self.u16().map(ShardId)
    }

    fn txn(&mut self) -> Option<TxnId> {
        Some(TxnId { coordinator: self.shard()?, number: self.u64()? })
    }

    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }
}

fn read<'a>(key: &mut Number<'a>, value: &'a [u8]) -> Option<Row<'a>> {
    let row = match key.u8()? {
        table::INODE => read_inode(key, value)?,
        table::DIRENT => {
            let (dir, name) = (key.inode()?, Name::new(key.rest()).ok()?);
            Row::Dirent { dir, name, row: whole(value)? }
        }
        table::LISTING => {
            let (dir, cookie) = (key.inode()?, key.u64()?);
            let (row, name) = read_listing(cookie, value)?;
            Row::Listing { dir, name, row }
        }
        table::ORPHAN => Row::Orphan { inode: key.inode()? },
        table::SESSION => {
            let (shard, session) = (key.shard()?, SessionId(key.u64()?));
            let mut from = Reader::new(value);
            let (row, away) = (from.read().ok()?, from.read().ok()?);
            Row::Session { shard, session, row, away }
        }
        table::SLOT => {
            let (shard, session, slot) = (key.shard()?, SessionId(key.u64()?), key.u16()?);
            Row::Slot { shard, session, slot, row: SlotRow::decode(value)? }
        }
        table::SHARD => Row::Shard { shard: key.shard()?, row: whole(value)? },
        table::OBJECT => {
            let (shard, inode) = (key.shard()?, key.inode()?);
            Row::Object { shard, inode, row: whole(value)? }
        }
        table::SUMS => {
            let (shard, inode, group) = (key.shard()?, key.inode()?, key.u64()?);
            let _: BlockSums = whole(value)?;
            Row::Sums { shard, inode, group, sums: value }
        }
        table::STRIPE => {
            let (shard, inode, stripe_index) = (key.shard()?, key.inode()?, key.u32()?);
            Row::Stripe { shard, inode, stripe_index }
        }
        table::EVICTED if key.0.is_empty() => Row::EvictedLast { boot_id: whole(value)? },
        table::EVICTED => Row::Evicted { client: ClientUuid(key.array()?), boot_id: whole(value)? },
        table::RECOVERED => Row::Recovered { shard: key.shard()?, transno: whole(value)? },
        table::VBR_FAILED => Row::VbrFailed { client: ClientUuid(key.array()?) },
        table::STORE => Row::Store(whole(value)?),
        table::LOG => Row::Log { lane: LaneId(key.u16()?), row: whole(value)? },
        table::PREPARED => {
            let (shard, txn) = (key.shard()?, key.txn()?);
            let mut from = Reader::new(value);
            let transno = from.read().ok()?;
            Row::Prepared { shard, txn, transno, part: from.take(from.left()).ok()? }
        }
        table::DECIDED => Row::Decided { txn: key.txn()?, shards: whole(value)? },
        table::EXPORT => {
            let export: Export<'a> = whole(value)?;
            if key.rest() != export.name.0 {
                return None;
            }
            Row::Export(export)
        }
        _ => return None,
    };
    key.0.is_empty().then_some(row)
}

fn read_inode<'a>(key: &mut Number<'a>, value: &'a [u8]) -> Option<Row<'a>> {
    let inode = key.inode()?;
    Some(match key.u8()? {
        part::ROW => {
            let row: InodeRow = whole(value)?;
            if row.inode != inode {
                return None;
            }
            Row::Inode(row)
        }
        part::TARGET => Row::Target { inode, target: value },
        part::XATTR => Row::Xattr { inode, name: key.rest(), value },
        _ => return None,
    })
}

fn whole<'a, T: Wire<'a>>(value: &'a [u8]) -> Option<T> {
    T::decode_all(value).ok()
}

fn read_listing(cookie: u64, value: &[u8]) -> Option<(DirentRow, Name<'_>)> {
    let mut from = Reader::new(value);
    let (inode, kind, version) = (from.read().ok()?, from.read().ok()?, from.read().ok()?);
    let name = Name::new(from.take(from.left()).ok()?).ok()?;
    Some((DirentRow { cookie, inode, kind, version }, name))
}

impl DirentRow {
    /// The attributes that an entry implies of an inode of another shard.
    #[must_use]
    pub const fn elsewhere(&self) -> Attr {
        Attr::elsewhere(self.inode, self.kind)
    }

    /// The value of its listing row.
    pub fn encode_listing(&self, name: Name<'_>, out: &mut Vec<u8>) {
        let mut to = Writer::new(out);
        to.write(&self.inode);
        to.write(&self.kind);
        to.write(&self.version);
        to.put(name.bytes());
    }
}

impl Wire<'_> for DirentRow {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.cookie);
        to.write(&self.inode);
        to.write(&self.kind);
        to.write(&self.version);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            cookie: from.read()?,
            inode: from.read()?,
            kind: from.read()?,
            version: from.read()?,
        })
    }
}

impl Wire<'_> for ObjectRow {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.size_bytes);
        to.write(&self.write_time_ns);
        to.write(&self.first_sum);
        to.write(&self.layout);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            size_bytes: from.read()?,
            write_time_ns: from.read()?,
            first_sum: from.read()?,
            layout: from.read()?,
        })
    }
}

impl Wire<'_> for ShardRow {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.lsn);
        to.write(&self.term);
        to.write(&self.transno);
        to.write(&self.next_count);
        to.write(&self.inode_count);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            lsn: from.read()?,
            term: from.read()?,
            transno: from.read()?,
            next_count: from.read()?,
            inode_count: from.read()?,
        })
    }
}

impl Wire<'_> for StoreRow {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.fs);
        to.write(&self.boot_id);
        to.write(&self.first_boot_id);
        to.write(&self.promised.map_or(0, |promised| promised.share.number()));
        to.write(&self.promised.map_or(0, |promised| promised.lease_term_ms));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (fs, boot_id, first_boot_id) = (from.read()?, from.read()?, from.read()?);
        let (share, lease_term_ms) = (from.read()?, from.read()?);
        let promised = match share {
            0_u8 => None,
            number => {
                let share = Share::from_number(number)
                    .ok_or(DecodeError::ProtocolError(ProtocolError::Malformed))?;
                Some(Promised { share, lease_term_ms })
            }
        };
        Ok(Self { fs, boot_id, first_boot_id, promised })
    }
}

impl Wire<'_> for LogRow {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.boot_id);
        to.write(&self.lane_count);
        to.write(&self.segment_no_last);
        to.write(&self.place.segment_no);
        to.write(&self.place.offset);
        to.write(&self.batch_no);
        to.write(&self.is_applied);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            boot_id: from.read()?,
            lane_count: from.read()?,
            segment_no_last: from.read()?,
            place: LogPosition { segment_no: from.read()?, offset: from.read()? },
            batch_no: from.read()?,
            is_applied: from.read()?,
        })
    }
}

impl<'a> SlotRow<'a> {
    /// The value.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut to = Writer::new(out);
        to.write(&self.xid);
        to.write(&self.op.number());
        to.write(&self.status);
        to.write(&self.transno);
        to.write(&Bytes(self.reply));
    }

    /// Decodes the xid only.
    pub(super) fn xid(value: &[u8]) -> Option<Xid> {
        Reader::new(value).read().ok()
    }

    pub(super) fn decode(value: &'a [u8]) -> Option<Self> {
        let mut from = Reader::new(value);
        let xid = from.read().ok()?;
        let op = Op::from_number(from.read().ok()?)?;
        let (status, transno) = (from.read().ok()?, from.read().ok()?);
        let reply: Bytes<'a> = from.read().ok()?;
        let fits = reply.0.len() <= REPLY_BYTES_MAX && from.left() == 0;
        fits.then_some(Self { xid, op, status, transno, reply: reply.0 })
    }
}
