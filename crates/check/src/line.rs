//! The lines of a dump: their fields, and conversions between rows and lines.
//!
//! `docs/formats.md` describes them. Numbers of inodes and transactions are JSON numbers below 2^64, times
//! are pairs of seconds since 1970 and nanoseconds, modes are octal text.

use crate::json::{bytes_of, text_and_hex};
use crate::mend::Place;
use crate::sums::Group;
use disk::rows::{DirentRow, Key, ObjectRow, Row, ShardRow};
use disk::{BLOCK_BYTES, GROUP_BLOCK_COUNT, InodeRow, Superblock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::{FileObjects, ObjectName};
use wire::{
    Bytes, Export, FileKind, InodeNo, Layout, Name, ShardId, Squash, SquashedIds, Term, Timestamp,
    Transno, Wire,
};

/// Groups of blocks lie before this one: places in files are below 2^63.
const GROUP_MAX: u64 = (1 << 63) / (GROUP_BLOCK_COUNT * BLOCK_BYTES as u64);

/// Seconds and nanoseconds.
type Time = (i64, u32);

/// One line.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Line {
    /// The first one.
    Dump {
        version: u32,
        fs: String,
        meta_shard_count: u16,
        data_shard_count: u16,
        stripe_unit_bytes: u64,
        stripe_count: u16,
        made_at_ns: u64,
        made_uid: u32,
        made_gid: u32,
    },
    Inode(Box<Inode>),
    Target {
        inode: u64,
        target: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target_hex: Option<String>,
    },
    Xattr {
        inode: u64,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name_hex: Option<String>,
        value_hex: String,
    },
    Entry {
        dir: u64,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name_hex: Option<String>,
        inode: u64,
        kind: Kind,
        cookie: u64,
        version: u64,
    },
    Nameless {
        inode: u64,
    },
    /// With the checksums of its first 64 blocks; lines with those of others follow it.
    Object {
        shard: u16,
        inode: u64,
        size_bytes: u64,
        write_time_ns: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stripes: Option<Stripes>,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        sums_hex: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        damaged_blocks: Vec<u64>,
    },
    /// Checksums of up to 64 blocks of the object before it.
    Sums {
        first_block: u64,
        sums_hex: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        damaged_blocks: Vec<u64>,
    },
    Shard {
        shard: u16,
        lsn: u64,
        term: u32,
        transno: u64,
        next_count: u64,
        inode_count: u64,
    },
    Export {
        id: u64,
        name: String,
        root: u64,
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path_hex: Option<String>,
        read_only: bool,
        squash: Who,
        anon_uid: u32,
        anon_gid: u32,
        closed: bool,
    },
    Session {
        shard: u16,
        session: u64,
        client: String,
        client_lane: u16,
        away: bool,
    },
    Slot {
        shard: u16,
        session: u64,
        slot: u16,
        xid: u64,
        op: u16,
        status: u16,
        transno: u64,
        reply_hex: String,
    },
    Evicted {
        client: String,
        boot_id: u64,
    },
    EvictedLast {
        boot_id: u64,
    },
    VbrFailed {
        client: String,
    },
    Recovered {
        shard: u16,
        transno: u64,
    },
    Store {
        boot_id: u64,
    },
    Prepared {
        shard: u16,
        coordinator: u16,
        number: u64,
        transno: u64,
        part_hex: String,
    },
    Decided {
        coordinator: u16,
        number: u64,
        shards: Vec<u16>,
    },
    /// The last one: how many lines are before it, the first one too, and the BLAKE3 hash of all their bytes.
    End {
        line_count: u64,
        blake3: String,
    },
}

/// An inode.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inode {
    pub(crate) inode: u64,
    pub(crate) kind: Kind,
    pub(crate) mode: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) size_bytes: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) size_at_data: bool,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) mtime_set: Time,
    pub(crate) ctime: Time,
    pub(crate) birth: Time,
    pub(crate) version: u64,
    pub(crate) touched: u64,
    pub(crate) parent: u64,
    pub(crate) next_cookie: u64,
    pub(crate) entry_count: u64,
    pub(crate) stripe_unit_bytes: u64,
    pub(crate) stripe_count: u16,
    /// It is at one data shard until it needs a second stripe.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub(crate) grows: bool,
    pub(crate) rdev: u32,
    pub(crate) linkable: bool,
}

/// The objects of a file behind its first.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stripes {
    pub(crate) stripe_unit_bytes: u64,
    pub(crate) stripe_count: u16,
    pub(crate) further: Vec<u32>,
}

/// What an inode is.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// Whose ids are not taken.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Who {
    None,
    Root,
    All,
}

impl Line {
    /// A row as a line; `None` for a place in listings, which follows from an
    /// entry, for what there must be of logs, which are no metadata, and for an object, which is told
    /// of with its checksums ([`Self::of_object`]).
    pub(crate) fn of_row(row: &Row<'_>) -> Option<Self> {
        Some(match *row {
            Row::Inode(row) => Self::Inode(Box::new(Inode::of_row(&row))),
            Row::Target { inode, target } => {
                let (target, target_hex) = text_and_hex(target);
                Self::Target { inode: inode.0, target, target_hex }
            }
            Row::Xattr { inode, name, value } => {
                let (name, name_hex) = text_and_hex(name);
                Self::Xattr { inode: inode.0, name, name_hex, value_hex: hex::encode(value) }
            }
            Row::Dirent { dir, name, row } => {
                let (name, name_hex) = text_and_hex(name.bytes());
                let DirentRow { cookie, inode, kind, version } = row;
                let (kind, version) = (Kind::of(kind), version.0);
                Self::Entry { dir: dir.0, name, name_hex, inode: inode.0, kind, cookie, version }
            }
            // An object's line has its checksums; its stripes are made as its data needs them.
            Row::Listing { .. }
            | Row::Log { .. }
            | Row::Object { .. }
            | Row::Sums { .. }
            | Row::Stripe { .. } => return None,
            Row::Orphan { inode } => Self::Nameless { inode: inode.0 },
            Row::Shard { shard, row } => {
                let ShardRow { lsn, term, transno, next_count, inode_count } = row;
                let (term, transno) = (term.0, transno.0);
                Self::Shard { shard: shard.0, lsn, term, transno, next_count, inode_count }
            }
            Row::Export(export) => Self::of_export(&export),
            Row::Session { .. }
            | Row::Slot { .. }
            | Row::Evicted { .. }
            | Row::EvictedLast { .. }
            | Row::Recovered { .. }
            | Row::VbrFailed { .. }
            | Row::Store(_)
            | Row::Prepared { .. }
            | Row::Decided { .. } => Self::of_client(row)?,
        })
    }

    /// An object with its first group of checksums.
    pub(crate) fn of_object(objects: &FileObjects, row: &ObjectRow, group: Group) -> Self {
        let ObjectRow { size_bytes, write_time_ns, first_sum: _, layout } = *row;
        let FileObjects { first: ObjectName { shard_index, inode, .. }, further, .. } = objects;
        let stripes = layout.map(|layout| Stripes {
            stripe_unit_bytes: layout.stripe_unit_bytes,
            stripe_count: layout.stripe_count,
            further: further.clone(),
        });
        let (shard, inode) = (ShardId::data(*shard_index).0, inode.0);
        let (sums_hex, damaged_blocks) = (group.text(), group.damaged_blocks);
        Self::Object { shard, inode, size_bytes, write_time_ns, stripes, sums_hex, damaged_blocks }
    }

    /// The objects of an object's line; `None` if it is none, or its values are out of range.
    pub(crate) fn file_objects(&self) -> Option<FileObjects> {
        let Self::Object { shard, inode, stripes, .. } = self else { return None };
        let single = FileObjects::single(ShardId(*shard).index(), InodeNo(*inode));
        let Some(Stripes { stripe_unit_bytes, stripe_count, further }) = stripes else {
            return Some(single);
        };
        let (stripe_unit_bytes, stripe_count) = (*stripe_unit_bytes, *stripe_count);
        let layout = Layout { stripe_unit_bytes, stripe_count, narrow: false };
        let in_order = further.is_sorted_by(|one, next| one < next) && !further.contains(&0);
        let is_valid = Superblock::can_have(layout) && in_order;
        is_valid.then(|| FileObjects { layout, further: further.clone(), ..single })
    }

    /// A further group of an object's checksums.
    pub(crate) fn of_group(group: Group) -> Self {
        let (first_block, sums_hex) = (group.group * GROUP_BLOCK_COUNT, group.text());
        Self::Sums { first_block, sums_hex, damaged_blocks: group.damaged_blocks }
    }

    /// The checksums of an object, or of further blocks of it; `None` if they are none that can be.
    pub(crate) fn group(&self) -> Option<Group> {
        if let Self::Object { sums_hex, damaged_blocks, .. } = self {
            return Group::of_text(0, sums_hex, damaged_blocks);
        }
        let Self::Sums { first_block, sums_hex, damaged_blocks } = self else { return None };
        let group = first_block / GROUP_BLOCK_COUNT;
        let is_place =
            (1..GROUP_MAX).contains(&group) && first_block.is_multiple_of(GROUP_BLOCK_COUNT);
        is_place.then(|| Group::of_text(group, sums_hex, damaged_blocks))?
    }

    /// An object or further blocks of it with what is known of them now.
    pub(crate) fn with_group(mut self, group: Group) -> Self {
        if let Self::Object { sums_hex, damaged_blocks, .. }
        | Self::Sums { sums_hex, damaged_blocks, .. } = &mut self
        {
            *sums_hex = group.text();
            *damaged_blocks = group.damaged_blocks;
        }
        self
    }

    /// Where an entry is; `None` if it is none, or has no name that can be.
    pub(crate) fn place(&self) -> Option<Place> {
        let Self::Entry { dir, name, name_hex, .. } = self else { return None };
        let name = bytes_of(name, name_hex.as_deref())?;
        Some(Place { dir: InodeNo(*dir), name })
    }

    /// A row about clients and what is in the middle.
    fn of_client(row: &Row<'_>) -> Option<Self> {
        Some(match *row {
            Row::Session { shard, session, row, away } => Self::Session {
                shard: shard.0,
                session: session.0,
                client: hex::encode(row.client.0),
                client_lane: row.client_lane.0,
                away,
            },
            Row::Slot { shard, session, slot, row } => Self::Slot {
                shard: shard.0,
                session: session.0,
                slot,
                xid: row.xid.0,
                op: row.op.number(),
                status: row.status.number(),
                transno: row.transno.0,
                reply_hex: hex::encode(row.reply),
            },
            Row::Evicted { client, boot_id } => {
                Self::Evicted { client: hex::encode(client.0), boot_id }
            }
            Row::EvictedLast { boot_id } => Self::EvictedLast { boot_id },
            Row::VbrFailed { client } => Self::VbrFailed { client: hex::encode(client.0) },
            Row::Recovered { shard, transno } => {
                Self::Recovered { shard: shard.0, transno: transno.0 }
            }
            Row::Store(row) => Self::Store { boot_id: row.boot_id },
            Row::Prepared { shard, txn, transno, part } => Self::Prepared {
                shard: shard.0,
                coordinator: txn.coordinator.0,
                number: txn.number,
                transno: transno.0,
                part_hex: hex::encode(part),
            },
            Row::Decided { txn, shards } => Self::Decided {
                coordinator: txn.coordinator.0,
                number: txn.number,
                shards: shards.iter().map(|shard| shard.0).collect(),
            },
            Row::Inode(_)
            | Row::Target { .. }
            | Row::Xattr { .. }
            | Row::Dirent { .. }
            | Row::Listing { .. }
            | Row::Orphan { .. }
            | Row::Shard { .. }
            | Row::Object { .. }
            | Row::Sums { .. }
            | Row::Stripe { .. }
            | Row::Log { .. }
            | Row::Export(_) => return None,
        })
    }

    fn of_export(export: &Export<'_>) -> Self {
        let (path, path_hex) = text_and_hex(export.path.0);
        Self::Export {
            id: export.id,
            name: String::from_utf8_lossy(export.name.0).into_owned(),
            root: export.root.0,
            path,
            path_hex,
            read_only: export.read_only,
            squash: Who::of(export.squash.ids),
            anon_uid: export.squash.anon_uid,
            anon_gid: export.squash.anon_gid,
            closed: export.closed,
        }
    }

    /// The rows of a line, for a new store; `None` if it is none that can be. What is about clients has none:
    /// nobody is connected to a new store. Those of objects are made where their contents are.
    pub(crate) fn put_rows(&self, rows: &mut BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Option<()> {
        let mut put = |key: Key, value: Vec<u8>| {
            rows.insert(key.bytes().to_vec(), Some(value));
        };
        match self {
            Self::Inode(inode) => {
                let row = inode.row()?;
                put(Key::inode(row.inode), row.to_bytes());
            }
            Self::Target { inode, target, target_hex } => {
                put(Key::target(InodeNo(*inode)), bytes_of(target, target_hex.as_deref())?);
            }
            Self::Xattr { inode, name, name_hex, value_hex } => {
                let name = bytes_of(name, name_hex.as_deref())?;
                put(Key::xattr(InodeNo(*inode), &name)?, hex::decode(value_hex).ok()?);
            }
            Self::Entry { dir, name, name_hex, inode, kind, cookie, version } => {
                let name = bytes_of(name, name_hex.as_deref())?;
                let name = Name::new(&name).ok()?;
                let (dir, inode, kind) = (InodeNo(*dir), InodeNo(*inode), kind.file_kind());
                let row = DirentRow { cookie: *cookie, inode, kind, version: Transno(*version) };
                put(Key::dirent(dir, name), row.to_bytes());
                let mut listing = Vec::new();
                row.encode_listing(name, &mut listing);
                put(Key::listing(dir, row.cookie), listing);
            }
            Self::Nameless { inode } => put(Key::orphan(InodeNo(*inode)), Vec::new()),
            // With what is found of their contents.
            Self::Object { .. } | Self::Sums { .. } => {}
            Self::Shard { shard, lsn, term: _, transno, next_count, inode_count } => {
                let transno = Transno(*transno);
                let (next_count, inode_count) = (*next_count, *inode_count);
                // The starts of a restored store, and so its terms, are counted anew.
                let term = Term(0);
                let row = ShardRow { lsn: *lsn, term, transno, next_count, inode_count };
                put(Key::shard(ShardId(*shard)), row.to_bytes());
            }
            Self::Export { .. } => self.put_export(&mut put)?,
            Self::Session { .. }
            | Self::Slot { .. }
            | Self::Evicted { .. }
            | Self::EvictedLast { .. }
            | Self::VbrFailed { .. }
            | Self::Recovered { .. }
            | Self::Store { .. }
            | Self::Decided { .. } => {}
            Self::Dump { .. } | Self::End { .. } | Self::Prepared { .. } => return None,
        }
        Some(())
    }

    fn put_export(&self, put: &mut impl FnMut(Key, Vec<u8>)) -> Option<()> {
        let Self::Export {
            id,
            name,
            root,
            path,
            path_hex,
            read_only,
            squash,
            anon_uid,
            anon_gid,
            closed,
        } = self
        else {
            return None;
        };
        let path = bytes_of(path, path_hex.as_deref())?;
        let export = Export {
            id: *id,
            name: Bytes(name.as_bytes()),
            root: InodeNo(*root),
            path: Bytes(&path),
            read_only: *read_only,
            squash: Squash { ids: squash.squashed(), anon_uid: *anon_uid, anon_gid: *anon_gid },
            closed: *closed,
        };
        put(Key::export(export.name.0)?, export.to_bytes());
        Some(())
    }
}

impl Inode {
    fn of_row(row: &InodeRow) -> Self {
        let time = |time: Timestamp| (time.secs, time.nanos);
        Self {
            inode: row.inode.0,
            kind: Kind::of(row.kind),
            mode: format!("{:04o}", row.mode),
            uid: row.uid,
            gid: row.gid,
            nlink: row.nlink,
            size_bytes: row.size_bytes,
            allocated_bytes: row.allocated_bytes,
            size_at_data: row.size_at_data,
            atime: time(row.atime),
            mtime: time(row.mtime),
            mtime_set: time(row.mtime_set),
            ctime: time(row.ctime),
            birth: time(row.birth),
            version: row.version.0,
            touched: row.touched.0,
            parent: row.parent.0,
            next_cookie: row.next_cookie,
            entry_count: row.entry_count,
            stripe_unit_bytes: row.layout.map_or(0, |layout| layout.stripe_unit_bytes),
            stripe_count: row.layout.map_or(0, |layout| layout.stripe_count),
            grows: row.layout.is_some_and(|layout| layout.narrow),
            rdev: row.rdev,
            linkable: row.linkable,
        }
    }

    fn row(&self) -> Option<InodeRow> {
        let time = |(secs, nanos): Time| Timestamp { secs, nanos };
        let layout = match (self.stripe_unit_bytes, self.stripe_count) {
            (0, 0) => None,
            (stripe_unit_bytes, stripe_count) => {
                let layout = Layout { stripe_unit_bytes, stripe_count, narrow: self.grows };
                Some(layout).filter(Layout::is_valid)?.into()
            }
        };
        Some(InodeRow {
            inode: InodeNo(self.inode),
            kind: self.kind.file_kind(),
            mode: u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o7777)?,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size_bytes: self.size_bytes,
            allocated_bytes: self.allocated_bytes,
            size_at_data: self.size_at_data,
            atime: time(self.atime),
            mtime: time(self.mtime),
            mtime_set: time(self.mtime_set),
            ctime: time(self.ctime),
            version: Transno(self.version),
            touched: Transno(self.touched),
            parent: InodeNo(self.parent),
            next_cookie: self.next_cookie,
            layout,
            entry_count: self.entry_count,
            rdev: self.rdev,
            linkable: self.linkable,
            birth: time(self.birth),
        })
    }
}

impl Kind {
    const fn of(kind: FileKind) -> Self {
        match kind {
            FileKind::File => Self::File,
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
            FileKind::Fifo => Self::Fifo,
            FileKind::Socket => Self::Socket,
            FileKind::CharDevice => Self::CharDevice,
            FileKind::BlockDevice => Self::BlockDevice,
        }
    }

    const fn file_kind(self) -> FileKind {
        match self {
            Self::File => FileKind::File,
            Self::Directory => FileKind::Directory,
            Self::Symlink => FileKind::Symlink,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
            Self::CharDevice => FileKind::CharDevice,
            Self::BlockDevice => FileKind::BlockDevice,
        }
    }
}

impl Who {
    const fn of(ids: SquashedIds) -> Self {
        match ids {
            SquashedIds::None => Self::None,
            SquashedIds::Root => Self::Root,
            SquashedIds::All => Self::All,
        }
    }

    const fn squashed(self) -> SquashedIds {
        match self {
            Self::None => SquashedIds::None,
            Self::Root => SquashedIds::Root,
            Self::All => SquashedIds::All,
        }
    }
}
