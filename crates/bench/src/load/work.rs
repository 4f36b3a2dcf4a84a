//! What the clients of a load do: one operation, again and again.

use super::client::Client;
use interface::{Bulk, NetAction, Turn};
use std::fmt::Write as _;
use wire::{
    Caller, Create, Getattr, Groups, Header, InodeNo, LaneId, Layout, Map, MapEpoch, Name, Op,
    Piece, Read, ReadList, Request, Retry, Route, SetTime, Setattr, ShardId, Wire, Write,
    WriteList, Xid,
};

/// A changing operation needs a slot, and a session has so many.
const SLOT_COUNT: u32 = 16;
/// Requests that may be under way on a connection.
const CREDITS: u32 = 64;

/// A file that is read or written piece by piece, from the beginning again when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    pub(crate) file_bytes: u64,
    pub(crate) piece_bytes: u32,
}

impl Pieces {
    /// Where piece `index` begins.
    const fn offset(&self, index: u64) -> u64 {
        let piece_bytes = self.piece_bytes as u64;
        let count = self.file_bytes / piece_bytes;
        if count == 0 { 0 } else { index % count * piece_bytes }
    }

    /// The offset of a random piece, another one for each number of each client.
    pub(crate) fn anywhere(&self, client_index: u64, number: u64) -> u64 {
        // Loads of the same region read the same offsets.
        self.offset(fastrand::Rng::with_seed(client_index << 40 ^ number).u64(..))
    }
}

/// Lists of pieces of a file at equal distances; the next list lies beside the last one, until the
/// whole file was used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided {
    pub(crate) file_bytes: u64,
    pub(crate) piece_bytes: u32,
    pub(crate) piece_count: u32,
    pub(crate) step_bytes: u64,
    /// Each piece is a request of its own, in the same order.
    pub(crate) one_by_one: bool,
}

impl Strided {
    /// Where a piece of list `index` begins.
    fn offset(&self, index: u64, piece_no: u64) -> u64 {
        let span_bytes = self.step_bytes * u64::from(self.piece_count);
        let beside_count = (self.step_bytes / u64::from(self.piece_bytes)).max(1);
        let span_count = (self.file_bytes / span_bytes).max(1);
        let span_offset = index / beside_count % span_count * span_bytes;
        let beside = index % beside_count * u64::from(self.piece_bytes);
        span_offset + beside + piece_no * self.step_bytes
    }

    /// Where the only piece of request `number` begins.
    fn single(&self, number: u64) -> u64 {
        let piece_count = u64::from(self.piece_count);
        self.offset(number / piece_count, number % piece_count)
    }

    fn pieces(&self, number: u64) -> wire::Pieces {
        let piece = |piece_no| Piece {
            file_offset: self.offset(number, piece_no),
            piece_bytes: self.piece_bytes,
        };
        let pieces = (0..u64::from(self.piece_count)).map(piece).collect();
        match wire::Pieces::new(pieces) {
            Ok(pieces) => pieces,
            Err(flaw) => panic!("no list that may be sent: {flaw:?}"),
        }
    }

    /// Bytes of one request.
    pub(crate) const fn request_bytes(&self) -> u32 {
        if self.one_by_one { self.piece_bytes } else { self.piece_bytes * self.piece_count }
    }
}

/// The operation.
#[derive(Debug)]
pub(crate) enum Work {
    /// A Ping.
    Ping,
    /// The attributes of one inode.
    Getattr { inode: InodeNo },
    /// The attributes of the client's file.
    Look { files: Vec<InodeNo> },
    /// A new file, in the client's directory (client n has `parents[n % len]`);
    /// `load_no` keeps the names of several loads apart.
    Create { parents: Vec<InodeNo>, uid: u32, gid: u32, load_no: u64 },
    /// The mode of an inode, as root; client n has `inodes[n % len]`, so that several share each.
    Chmod { inodes: Vec<InodeNo> },
    /// So many of ten clients do one thing, the others another changing operation.
    Mixed { of_ten: u32, these: Box<Work>, others: Box<Work> },
    /// A piece of the client's file.
    Read { files: Vec<InodeNo>, pieces: Pieces },
    /// A piece at a random offset of the client's region: its own file, or its part of the shared
    /// one.
    ReadAnywhere { files: Vec<InodeNo>, region: Pieces },
    /// Bytes into the client's file.
    Write { files: Vec<InodeNo>, pieces: Pieces, bulk: Bulk },
    /// Many pieces of the client's file.
    ReadList { files: Vec<InodeNo>, strided: Strided },
    /// Bytes into many ranges of the client's file.
    WriteList { files: Vec<InodeNo>, strided: Strided, bulk: Bulk },
}

impl Work {
    /// The work of a client.
    fn of(&self, client_index: usize) -> &Self {
        let Self::Mixed { of_ten, these, others } = self else { return self };
        if client_index % 10 < *of_ten as usize { these } else { others }
    }

    fn op(&self) -> Op {
        match self {
            Self::Mixed { these, .. } => these.op(),
            Self::Ping => Op::Ping,
            Self::Getattr { .. } | Self::Look { .. } => Op::Getattr,
            Self::Create { .. } => Op::Create,
            Self::Chmod { .. } => Op::Setattr,
            Self::ReadList { strided, .. } if !strided.one_by_one => Op::ReadList,
            Self::WriteList { strided, .. } if !strided.one_by_one => Op::WriteList,
            Self::Read { .. } | Self::ReadAnywhere { .. } | Self::ReadList { .. } => Op::Read,
            Self::Write { .. } | Self::WriteList { .. } => Op::Write,
        }
    }

    /// Operations that a client may have under way.
    pub(crate) fn depth_max(&self) -> u32 {
        match self.op().row().retry {
            Retry::Repeat => CREDITS,
            Retry::Once => SLOT_COUNT,
        }
    }

    /// Bulk bytes of a request.
    pub(crate) const fn sent_bytes(&self) -> u64 {
        match self {
            Self::Write { bulk, .. } | Self::WriteList { bulk, .. } => bulk.bulk_bytes as u64,
            Self::Ping
            | Self::Getattr { .. }
            | Self::Look { .. }
            | Self::Create { .. }
            | Self::Chmod { .. }
            | Self::Mixed { .. }
            | Self::ReadAnywhere { .. }
            | Self::Read { .. }
            | Self::ReadList { .. } => 0,
        }
    }

    fn inode(&self, client_index: usize) -> InodeNo {
        match self {
            Self::Ping => InodeNo::ROOT,
            Self::Mixed { .. } => self.of(client_index).inode(client_index),
            Self::Getattr { inode } => *inode,
            Self::Create { parents: inodes, .. }
            | Self::Chmod { inodes }
            | Self::Look { files: inodes }
            | Self::Read { files: inodes, .. }
            | Self::ReadAnywhere { files: inodes, .. }
            | Self::ReadList { files: inodes, .. }
            | Self::WriteList { files: inodes, .. }
            | Self::Write { files: inodes, .. } => inodes[client_index % inodes.len()],
        }
    }

    fn shard(&self, client_index: usize, map: Option<&Map>) -> ShardId {
        let op = self.of(client_index).op();
        let shard = map.and_then(|map| map.shard(op, self.inode(client_index), (None, 0)));
        shard.unwrap_or(ShardId::meta(0))
    }

    /// The lane that owns the client's inode.
    pub(crate) fn server_lane(&self, client_index: u32, map: Option<&Map>) -> LaneId {
        let shard = self.shard(client_index as usize, map);
        map.map_or(LaneId(0), |map| map.lane(shard))
    }

    /// Sends the client's next request; its reply belongs to `place`.
    pub(crate) fn ask(
        &self,
        turn: &mut Turn<'_>,
        (client, place): (&mut Client, u16),
        (client_index, map): (usize, Option<&Map>),
    ) {
        if let Self::Mixed { .. } = self {
            return self.of(client_index).ask(turn, (client, place), (client_index, map));
        }
        let shard = self.shard(client_index, map);
        let head = request(client, self.op(), (place, shard), map);
        let number = client.asked_count;
        let inode = self.inode(client_index);
        let frame = turn.arena.write(|out| match self {
            Self::Ping | Self::Mixed { .. } => head.encode(out, None, |_| {}),
            Self::Getattr { .. } | Self::Look { .. } => {
                head.encode(out, None, |to| Getattr { inode }.encode(to))
            }
            Self::Create { uid, gid, load_no, .. } => {
                let mut text = String::new();
                // Writing to a string cannot fail.
                let _written = write!(text, "{load_no:x}.{client_index:x}.{number:x}");
                let Ok(name) = Name::new(text.as_bytes()) else { panic!("{text} is a name") };
                let caller = Caller { uid: *uid, gid: *gid, groups: Groups::Known(&[]) };
                let create = Create {
                    caller,
                    parent: inode,
                    name,
                    mode: 0o644,
                    umask: 0,
                    exclusive: true,
                    handle: None,
                    behind: None,
                };
                head.encode(out, None, |to| create.encode(to));
            }
            Self::Chmod { .. } => {
                let setattr = Setattr {
                    caller: Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) },
                    inode,
                    mode: Some(if number & 1 == 0 { 0o755 } else { 0o750 }),
                    uid: None,
                    gid: None,
                    atime: SetTime::Keep,
                    mtime: SetTime::Keep,
                    clears: wire::ClearPrivileges::Nothing,
                };
                head.encode(out, None, |to| setattr.encode(to));
            }
            Self::Read { pieces, .. } => {
                let file_offset = pieces.offset(number);
                let read =
                    Read { inode, file_offset, read_bytes: pieces.piece_bytes, accesses: true };
                head.encode(out, None, |to| read.encode(to));
            }
            Self::ReadAnywhere { files, region } => {
                // Regions of a shared file follow each other.
                let region_index = if files.len() == 1 { client_index as u64 } else { 0 };
                let file_offset =
                    region_index * region.file_bytes + region.anywhere(client_index as u64, number);
                let read =
                    Read { inode, file_offset, read_bytes: region.piece_bytes, accesses: true };
                head.encode(out, None, |to| read.encode(to));
            }
            Self::Write { pieces, bulk, .. } => {
                let write = Write {
                    inode,
                    file_offset: pieces.offset(number),
                    append: false,
                    clears: wire::ClearPrivileges::Nothing,
                };
                let lengths = Some((bulk.bulk_bytes, bulk.crc32c));
                head.encode(out, lengths, |to| write.encode(to));
            }
            Self::ReadList { strided, .. } => encode_read(out, &head, inode, strided, number),
            Self::WriteList { strided, bulk, .. } => {
                encode_write(out, &head, (inode, *bulk), strided, number);
            }
        });
        let bulk = match self {
            Self::Write { bulk, .. } | Self::WriteList { bulk, .. } => Some(*bulk),
            Self::Ping
            | Self::Getattr { .. }
            | Self::Look { .. }
            | Self::Create { .. }
            | Self::Chmod { .. }
            | Self::Mixed { .. }
            | Self::Read { .. }
            | Self::ReadAnywhere { .. }
            | Self::ReadList { .. } => None,
        };
        turn.act(NetAction::Send { conn: client.conn, frame, bulk });
    }
}

/// A list, or the read of one of its pieces.
fn encode_read(out: &mut Vec<u8>, head: &Header, inode: InodeNo, strided: &Strided, number: u64) {
    let accesses = true;
    if strided.one_by_one {
        let (file_offset, read_bytes) = (strided.single(number), strided.piece_bytes);
        let read = Read { inode, file_offset, read_bytes, accesses };
        return head.encode(out, None, |to| read.encode(to));
    }
    let read = ReadList { inode, pieces: strided.pieces(number), accesses };
    head.encode(out, None, |to| read.encode(to));
}

/// A list, or the write of one of its pieces.
fn encode_write(
    out: &mut Vec<u8>,
    head: &Header,
    (inode, bulk): (InodeNo, Bulk),
    strided: &Strided,
    number: u64,
) {
    let (lengths, clears) = (Some((bulk.bulk_bytes, bulk.crc32c)), wire::ClearPrivileges::Nothing);
    if strided.one_by_one {
        let write = Write { inode, file_offset: strided.single(number), append: false, clears };
        return head.encode(out, lengths, |to| write.encode(to));
    }
    let write = WriteList { inode, pieces: strided.pieces(number), clears };
    head.encode(out, lengths, |to| write.encode(to));
}

/// Requests a lane's counters.
pub(crate) fn ask_stats(turn: &mut Turn<'_>, client: &mut Client, map: Option<&Map>) {
    let head = request(client, Op::Stats, (0, ShardId::meta(0)), map);
    let frame = turn.arena.write(|out| head.encode(out, None, |_| {}));
    turn.act(NetAction::Send { conn: client.conn, frame, bulk: None });
}

fn request(
    client: &mut Client,
    op: Op,
    (place, shard): (u16, ShardId),
    map: Option<&Map>,
) -> Header {
    client.asked_count += 1;
    let slot = if op.row().retry == Retry::Once { place + 1 } else { 0 };
    // If it has one request at a time, the one before was answered: its own changes are no reason
    // to wait.
    let ack_xid = if client.depth() == 1 { Xid(client.asked_count - 1) } else { Xid(0) };
    Header::Request(Request {
        ack_xid,
        lane_hint: client.server_lane,
        shard,
        slot,
        session: client.session(),
        xid: Xid(client.asked_count),
        conn_epoch: 1,
        trace_id: u64::from(place),
        map_epoch: map.map_or(MapEpoch(0), Map::epoch),
        // `lanefs serve` makes stores of this layout.
        layout: (op.row().route == Route::Data).then_some(Layout::DEFAULT),
        ..Request::of(op)
    })
}
