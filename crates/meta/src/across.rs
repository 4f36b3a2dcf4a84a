//! Changes over several shards: what the coordinator wants to know and to have locked, what they tell it, their parts.
//!
//! The coordinator executes the operation as if all was its own, against a [`View`] of what other shards told; what
//! is missing it asks for and executes again: the checks are those of every request. What comes out is parted by shard.
//!
//! ```text
//! plan ─▶ wants ─▶ look (locks, tells) ─▶ View ─▶ plan ─▶ … ─▶ a failure, or parts
//!                            parts ─▶ prepared, decided ─▶ carry_out, release
//! ```

use crate::acl::Acl;
use crate::directory::Target;
use crate::dispatch::decoded;
use crate::hash::Seed;
use crate::locks::Locks;
use crate::ops;
use crate::shard::{Ask, Effect, Shard};
use crate::state::{Body, Inode, State};
use crate::txn::Txn;
use crate::uses::{self, How, Key, Use};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use disk::{Change, Changes, Fault, InodeRow, TxnChange, TxnId};
use wire::{
    Bytes, FileKind, Flaw, InodeNo, Op, ProtocolError, Reader, ShardId, Status, Transno, Wire,
    Writer,
};

mod codec;

/// Something the coordinator has to know, and needs unchanged until the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Want {
    /// All of an inode.
    Inode(InodeNo),
    /// A name, and its directory to stay.
    Entry(InodeNo, Box<[u8]>),
    /// A number for a new inode of this shard.
    New(ShardId),
    /// Which directory lies below which.
    Topology,
    /// Whether `inode` is `dir` or above it.
    Above {
        /// The lower one.
        dir: InodeNo,
        /// The upper one.
        inode: InodeNo,
    },
}

impl Want {
    /// The shard that knows.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        match self {
            Self::Inode(inode) | Self::Entry(inode, _) | Self::Above { dir: inode, .. } => {
                inode.shard()
            }
            Self::New(shard) => *shard,
            Self::Topology => ShardId::meta(0),
        }
    }

    /// What the answer tells of.
    fn reads(&self, seed: Seed, uses: &mut Vec<Use>) {
        let mut reads = |key| uses.push(Use { key, how: How::Depend });
        match self {
            Self::Inode(inode) => {
                reads(Key::Inode(*inode));
                reads(Key::Exists(*inode));
                reads(Key::Entries(*inode));
            }
            Self::Entry(dir, name) => {
                reads(Key::Inode(*dir));
                reads(Key::Exists(*dir));
                reads(Key::Name(*dir, seed.hash_name(name)));
            }
            Self::Above { .. } => reads(Key::Topology),
            Self::New(_) | Self::Topology => {}
        }
    }
}

/// How far up a shard could look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Climbed {
    /// The inode was found.
    Found,
    /// The root, or a directory that was removed.
    Top,
    /// This directory is another shard's.
    Left(InodeNo),
}

/// An inode as its shard tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    row: InodeRow,
    /// Its access control list; empty for none.
    acl: Box<[u8]>,
}

impl Told {
    fn of(inode: &Inode) -> Self {
        let acl = Acl::access(inode).map_or(&[][..], Acl::bytes).into();
        Self { row: inode.row, acl }
    }
}

/// What a shard tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Inode(InodeNo, Option<Told>),
    Entry { dir: InodeNo, name: Box<[u8]>, told: Option<Told>, target: Option<Target> },
    New(ShardId, Option<InodeNo>),
    Topology,
    Above { dir: InodeNo, inode: InodeNo, climbed: Climbed },
}

/// All that shards have told the coordinator so far.
#[derive(Clone, Default, Debug)]
pub struct View {
    seen: Vec<Seen>,
}

impl View {
    /// Adds what [`Shard::look`] said.
    ///
    /// # Errors
    /// [`Flaw`] when that is nothing a shard says.
    pub fn add(&mut self, told: &[u8]) -> Result<(), Flaw> {
        let mut from = Reader::new(told);
        while from.left() > 0 {
            self.seen.push(from.read()?);
        }
        Ok(())
    }

    pub(crate) fn has(&self, want: &Want) -> bool {
        self.seen.iter().any(|seen| match (seen, want) {
            (Seen::Inode(inode, _), Want::Inode(wanted)) => inode == wanted,
            (Seen::Entry { dir, name, .. }, Want::Entry(wanted, text)) => {
                dir == wanted && name == text
            }
            (Seen::New(shard, _), Want::New(wanted)) => shard == wanted,
            (Seen::Topology, Want::Topology) => true,
            (Seen::Above { dir, inode, .. }, Want::Above { dir: lower, inode: upper }) => {
                dir == lower && inode == upper
            }
            _ => false,
        })
    }

    /// An inode's row, or a directory's that was asked for a name.
    pub(crate) fn row(&self, wanted: InodeNo) -> Option<InodeRow> {
        self.told(wanted).map(|told| told.row)
    }

    /// Its access control list.
    pub(crate) fn acl(&self, wanted: InodeNo) -> Option<Acl<'_>> {
        self.told(wanted).and_then(|told| Acl::from_checked(&told.acl))
    }

    fn told(&self, wanted: InodeNo) -> Option<&Told> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Inode(inode, told) if *inode == wanted => told.as_ref(),
            Seen::Entry { dir, told, .. } if *dir == wanted => told.as_ref(),
            Seen::Inode(..)
            | Seen::Entry { .. }
            | Seen::New(..)
            | Seen::Topology
            | Seen::Above { .. } => None,
        })
    }

    pub(crate) fn target(&self, wanted: InodeNo, text: &[u8]) -> Option<Target> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Entry { dir, name, target, .. } if *dir == wanted && **name == *text => *target,
            Seen::Inode(..)
            | Seen::Entry { .. }
            | Seen::New(..)
            | Seen::Topology
            | Seen::Above { .. } => None,
        })
    }

    pub(crate) fn new_inode(&self) -> Option<InodeNo> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::New(_, inode) => *inode,
            Seen::Inode(..) | Seen::Entry { .. } | Seen::Topology | Seen::Above { .. } => None,
        })
    }

    pub(crate) fn climbed(&self, lower: InodeNo, upper: InodeNo) -> Option<Climbed> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Above { dir, inode, climbed } if (*dir, *inode) == (lower, upper) => {
                Some(*climbed)
            }
            Seen::Inode(..)
            | Seen::Entry { .. }
            | Seen::New(..)
            | Seen::Topology
            | Seen::Above { .. } => None,
        })
    }
}

/// What came of an attempt.
#[derive(Clone, Default, Debug)]
pub struct Plan {
    /// What is missing; when there is something, nothing else counts.
    pub wants: Vec<Want>,
    /// The reply's body.
    pub reply: Vec<u8>,
    /// The changes, by shard.
    pub parts: BTreeMap<ShardId, Vec<u8>>,
}

impl Plan {
    /// The files among the inodes that it changes.
    pub fn files(&self) -> impl Iterator<Item = InodeNo> {
        let changes = self.parts.values().flat_map(|part| Changes::new(part));
        changes.filter_map(|change| match change {
            Ok(Change::Inode { row }) if row.kind == FileKind::File => Some(row.inode),
            Ok(_) | Err(_) => None,
        })
    }

    pub(crate) fn clear(&mut self) {
        self.wants.clear();
        self.reply.clear();
        self.parts.clear();
    }
}

/// What a transaction over several shards works with.
#[derive(Debug)]
pub(crate) struct Across<'s> {
    pub(crate) txn: TxnId,
    pub(crate) view: &'s View,
    pub(crate) plan: &'s mut Plan,
}

impl Shard {
    /// Executes a request that takes several shards as far as `view` goes: `CrossDevice` with
    /// wants, `Busy` when something here is locked by another or [`Shard::missing`], or its outcome
    /// with the changes it takes. Nothing is changed yet.
    ///
    /// # Errors
    /// [`ProtocolError`] when the body is not what the op has.
    pub fn plan(
        &mut self,
        ask: &Ask<'_>,
        txn: TxnId,
        view: &View,
        plan: &mut Plan,
    ) -> Result<Status, ProtocolError> {
        plan.clear();
        macro_rules! attempt {
            ($op:ident) => {{
                let args = match decoded(ask.body) {
                    Ok(args) => args,
                    Err(refused) => return refused,
                };
                let mut needs = crate::needs::Needs::new();
                ops::$op::needs(&args, &mut needs);
                self.blocker = None;
                if !self.has(&needs) {
                    return Ok(Status::Busy);
                }
                self.blocker = self.locks.blocker(&needs, &self.state, Some(txn));
                if self.blocker.is_some() {
                    return Ok(Status::Busy);
                }
                self.uses.clear();
                if ask.tells_reads {
                    needs.reads(&self.state, &mut self.uses);
                }
                let (mut changes, mut reply) = (Vec::new(), Vec::new());
                let mut at_work = Txn::new(self, ask, &mut changes);
                at_work.across = Some(Across { txn, view, plan: &mut *plan });
                let executed = ops::$op::execute(&args, &mut at_work);
                let failed = executed.map(|answer| Writer::new(&mut reply).write(&answer)).err();
                plan.reply = reply;
                Ok(failed.unwrap_or(Status::Ok))
            }};
        }
        macro_rules! dispatch {
            ($($op:ident $module:ident $(($several:ident))?;)*) => {
                match ask.op {
                    $(Op::$op => dispatch!(@one $module $($several)?),)*
                    // Executed by another part of the server.
                    _ => Ok(Status::NotImplemented),
                }
            };
            // About one inode, or an entry and what it names: one shard's.
            (@one $module:ident) => { Ok(Status::NotImplemented) };
            (@one $module:ident several) => { attempt!($module) };
        }
        wire::metadata_operations!(dispatch)
    }

    /// Locks what a coordinator wants for `txn` and appends to `seen` what there is. `Busy` when another has
    /// locked any of it; then nothing more is locked, but what was stays. The same, named `txn` itself, when any
    /// of it is [`Shard::missing`]. What it tells of is in [`Shard::uses`].
    ///
    /// # Errors
    /// [`Flaw`] when `wants` is not what a coordinator sends.
    pub fn look(
        &mut self,
        txn: TxnId,
        wants: &[u8],
        seen: &mut Vec<u8>,
    ) -> Result<Result<(), TxnId>, Flaw> {
        if !self.has_wanted(wants)? {
            return Ok(Err(txn));
        }
        self.uses.clear();
        let mut from = Reader::new(wants);
        while from.left() > 0 {
            let want: Want = from.read()?;
            want.reads(self.state.seed, &mut self.uses);
            match self.look_at(txn, want) {
                Ok(found) => found.encode(&mut Writer::new(seen)),
                Err(holder) => return Ok(Err(holder)),
            }
        }
        Ok(Ok(()))
    }

    fn look_at(&mut self, txn: TxnId, want: Want) -> Result<Seen, TxnId> {
        let me = Some(txn);
        let free = |holder: Option<TxnId>| holder.map_or(Ok(()), Err);
        match want {
            Want::Inode(inode) => {
                free(self.locks.inode(inode, me).or_else(|| self.locks.entered(inode, me)))?;
                let mut told = self.state.inode(inode).map(Told::of);
                if let Some(told) = &mut told {
                    // Once nobody has it open, it goes.
                    told.row.linkable &= !self.handles.is_free(inode);
                }
                self.locks.take_inode(inode, txn);
                // Whoever does this is answered before it is made here.
                self.state.exported.touch(inode);
                self.state.exported.moved |= self.state.is_directory(inode);
                Ok(Seen::Inode(inode, told))
            }
            Want::Entry(dir, name) => {
                free(self.locks.inode(dir, me).or_else(|| self.locks.name(dir, &name, me)))?;
                self.locks.take_name(dir, &name, txn);
                let known = self.state.inode(dir);
                let target = match known.map(|known| &known.body) {
                    Some(Body::Directory(entries)) => entries.get(self.state.seed, &name),
                    Some(Body::File | Body::Symlink(_) | Body::Special) | None => None,
                };
                Ok(Seen::Entry { dir, name, told: known.map(Told::of), target })
            }
            Want::New(shard) => Ok(Seen::New(shard, self.state.reserve_inode())),
            Want::Topology => {
                free(self.locks.topology(me))?;
                self.locks.take_topology(txn);
                Ok(Seen::Topology)
            }
            Want::Above { dir, inode } => {
                let climbed = climb(&self.state, &self.locks, (dir, inode), me)?;
                Ok(Seen::Above { dir, inode, climbed })
            }
        }
    }

    /// Prepares a part of a change over several shards: gives it its version, which is this
    /// transaction's, and its places. Appends the change to record; the part is in it.
    ///
    /// # Errors
    /// [`Fault`] when the part is none.
    pub fn prepare(
        &mut self,
        txn: TxnId,
        part: &[u8],
        prepared: &mut Vec<u8>,
        changes: &mut Vec<u8>,
    ) -> Result<Effect, Fault> {
        let transno = self.take_transno();
        self.stamp(part, transno, prepared)?;
        let change = Change::Txn(TxnChange::Prepared { txn, part: Bytes(prepared) });
        change.encode(&mut Writer::new(changes));
        self.state.apply(transno, &change)?;
        Ok(Effect { transno, ..Effect::unchanged(Status::Ok) })
    }

    /// Makes a part that was prepared by that transaction. Appends the changes to record; `first`
    /// stands before them.
    ///
    /// # Errors
    /// [`Fault`] when the part is none.
    pub fn carry_out(
        &mut self,
        (prepared_by, part): (Transno, &[u8]),
        first: &Change<'_>,
        changes: &mut Vec<u8>,
    ) -> Result<Effect, Fault> {
        let transno = self.take_transno();
        self.make(part, (prepared_by, transno), Some(first), changes)
    }

    /// Makes the coordinator's own part, which nobody prepared.
    ///
    /// # Errors
    /// [`Fault`] when the part is none.
    pub fn decide(
        &mut self,
        part: &[u8],
        first: Option<&Change<'_>>,
        changes: &mut Vec<u8>,
    ) -> Result<Effect, Fault> {
        let transno = self.take_transno();
        let mut stamped = Vec::new();
        self.stamp(part, transno, &mut stamped)?;
        self.make(&stamped, (transno, transno), first, changes)
    }

    fn make(
        &mut self,
        part: &[u8],
        (prepared_by, transno): (Transno, Transno),
        first: Option<&Change<'_>>,
        changes: &mut Vec<u8>,
    ) -> Result<Effect, Fault> {
        self.uses.clear();
        let mut effect = Effect { transno, ..Effect::unchanged(Status::Ok) };
        if let Some(first) = first {
            first.encode(&mut Writer::new(changes));
        }
        for change in Changes::new(part) {
            let change = self.made_now(change?, prepared_by);
            if let Some(version) = self.state.version_before(&change) {
                effect.pre_versions.push(version);
            }
            uses::of_change(&self.state, &change, &mut self.uses);
            change.encode(&mut Writer::new(changes));
            self.state.apply(transno, &change)?;
            if let Change::Inode { row } = &change
                && row.nlink == 0
                && self.handles.is_free(row.inode)
            {
                effect.orphan = Some(row.inode);
            }
        }
        Ok(effect)
    }

    /// A prepared change as it is made: a directory without name and handle goes, and a time that
    /// somebody brought meanwhile stays.
    fn made_now<'c>(&self, change: Change<'c>, prepared_by: Transno) -> Change<'c> {
        if let Change::Inode { row } = change {
            let gone = row.kind == FileKind::Directory && row.nlink == 0;
            if gone && self.handles.is_free(row.inode) {
                return Change::InodeRemoved { inode: row.inode };
            }
        }
        if let Change::Touch { inode, mtime, ctime, nlink_delta, entry_delta } = change {
            let known = self.state.inode(inode).map(|known| known.row);
            let later = known.filter(|row| row.touched > prepared_by);
            let mtime = later.map_or(mtime, |row| row.mtime);
            return Change::Touch { inode, mtime, ctime, nlink_delta, entry_delta };
        }
        change
    }

    /// PrivilegedBits the changes of a part their version, and new entries their places.
    fn stamp(&self, part: &[u8], version: Transno, out: &mut Vec<u8>) -> Result<(), Fault> {
        for change in Changes::new(part) {
            let mut stamped = change?;
            match &mut stamped {
                Change::Inode { row } => row.version = version,
                Change::DirAttrs { version: old, .. } => *old = version,
                Change::Dirent { dir, cookie, version: old, .. } => {
                    let known = self.state.inode(*dir);
                    if *cookie == 0 {
                        *cookie = known.map_or(1, |known| known.row.next_cookie);
                    }
                    *old = version;
                }
                Change::Accessed { .. }
                | Change::Settled { .. }
                | Change::Touch { .. }
                | Change::DirentRemoved { .. }
                | Change::Symlink { .. }
                | Change::Xattr { .. }
                | Change::XattrRemoved { .. }
                | Change::InodeRemoved { .. } => {}
                Change::Contents(_) | Change::Client(_) | Change::Txn(_) | Change::Export(_) => {
                    return Err(Fault::new("no part of a change over several shards", 0));
                }
            }
            stamped.encode(&mut Writer::new(out));
        }
        Ok(())
    }

    /// PrivilegedBits back all that `txn` has locked here.
    pub fn release(&mut self, txn: TxnId) {
        self.locks.release(txn);
    }

    /// Whether nothing is locked.
    #[must_use]
    pub fn is_unlocked(&self) -> bool {
        self.locks.is_empty()
    }

    /// Whom the last request that was answered `Busy` has to wait for.
    #[must_use]
    pub const fn blocker(&self) -> Option<TxnId> {
        self.blocker
    }
}

/// The shard that a change is about.
pub(crate) fn owner(change: &Change<'_>) -> Option<ShardId> {
    match change {
        Change::Inode { row } => Some(row.inode.shard()),
        Change::Touch { inode, .. }
        | Change::DirAttrs { inode, .. }
        | Change::Accessed { inode, .. }
        | Change::Settled { inode, .. }
        | Change::Symlink { inode, .. }
        | Change::Xattr { inode, .. }
        | Change::XattrRemoved { inode, .. }
        | Change::InodeRemoved { inode } => Some(inode.shard()),
        Change::Dirent { dir, .. } | Change::DirentRemoved { dir, .. } => Some(dir.shard()),
        Change::Contents(_) | Change::Client(_) | Change::Txn(_) | Change::Export(_) => None,
    }
}

/// Looks for `inode` from `dir` upwards, as far as this shard goes. A directory that is about to be
/// moved is waited for.
pub(crate) fn climb(
    state: &State,
    locks: &Locks,
    (dir, inode): (InodeNo, InodeNo),
    me: Option<TxnId>,
) -> Result<Climbed, TxnId> {
    let mut at = dir;
    loop {
        if at == inode {
            return Ok(Climbed::Found);
        }
        if at.shard() != state.shard() {
            return Ok(Climbed::Left(at));
        }
        if let Some(holder) = locks.inode(at, me) {
            return Err(holder);
        }
        match state.inode(at) {
            Some(known) if known.row.parent != at => at = known.row.parent,
            Some(_) | None => return Ok(Climbed::Top),
        }
    }
}
