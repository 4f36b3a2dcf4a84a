//! Transactions over several shards: the coordinator's requirements, the participants'
//! observations, and the parts.
//!
//! The coordinator executes the operation as if all inodes were its own, against a [`View`] of
//! other shards' state. It requests what is missing, and executes the operation again: the checks
//! are those of every request. The resulting changes are split by shard.
//!
//! ```text
//! plan ─▶ requirements ─▶ lock_and_read ─▶ View ─▶ plan ─▶ … ─▶ a failure, or parts
//!                            parts ─▶ prepared, decided ─▶ apply_part, release
//! ```

use crate::decoded::decoded;
use crate::ops;
use crate::shard::{Effect, MetaRequest, Shard};
use crate::txn::Txn;
use crate::uses::{self};
use alloc::vec::Vec;
use disk::{Change, Changes, Fault, TxnChange, TxnId};
use wire::{
    Bytes, DecodeError, FileKind, Op, ProtocolError, Reader, Rule, Status, Transno, Wire, Writer,
};

mod codec;
mod plan;

use plan::InodeSnapshot;
pub(crate) use plan::{AncestorSearch, MultiShard, Observed, owner, search_ancestors};
pub use plan::{Plan, Requirement, View};

impl Shard {
    /// Executes a request over several shards as far as `view` goes. Returns `CrossDevice` with
    /// requirements, `Busy` when another transaction has locked something here or a unit is
    /// [`Shard::missing`], or the final status with the changes. Nothing is changed yet.
    ///
    /// # Errors
    /// [`ProtocolError`] when the body is not valid for the op.
    pub fn plan(
        &mut self,
        request: &MetaRequest<'_>,
        txn: TxnId,
        view: &View,
        plan: &mut Plan,
    ) -> Result<Status, ProtocolError> {
        plan.clear();
        macro_rules! attempt {
            ($op:ident) => {{
                let args = match decoded(request.body) {
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
                if request.records_reads {
                    needs.reads(&self.state, &mut self.uses);
                }
                let (mut changes, mut reply) = (Vec::new(), Vec::new());
                let mut at_work = Txn::new(self, request, &mut changes);
                at_work.multi_shard = Some(MultiShard { txn, view, plan: &mut *plan });
                let executed = ops::$op::execute(&args, &mut at_work);
                let failed = executed.map(|answer| Writer::new(&mut reply).write(&answer)).err();
                plan.reply = reply;
                Ok(failed.unwrap_or(Status::Ok))
            }};
        }
        macro_rules! dispatch {
            ($($op:ident $module:ident $(($several:ident))?;)*) => {
                match request.op {
                    $(Op::$op => dispatch!(@one $module $($several)?),)*
                    // Executed by another part of the server.
                    _ => Ok(Status::NotImplemented),
                }
            };
            // One inode, or an entry and its inode: one shard.
            (@one $module:ident) => { Ok(Status::NotImplemented) };
            (@one $module:ident several) => { attempt!($module) };
        }
        wire::metadata_operations!(dispatch)
    }

    /// Locks a coordinator's requirements for `txn` and appends the observations to `observed`.
    /// Returns the holder when another transaction has locked any of them; then no more locks are
    /// taken and earlier ones stay. Returns `txn` itself when a unit is [`Shard::missing`].
    /// [`Shard::uses`] has the keys observed.
    ///
    /// # Errors
    /// [`DecodeError`] when the requirements are invalid.
    pub fn lock_and_read(
        &mut self,
        txn: TxnId,
        requirements: &[u8],
        observed: &mut Vec<u8>,
    ) -> Result<Result<(), TxnId>, DecodeError> {
        if !self.has_required(requirements)? {
            return Ok(Err(txn));
        }
        self.uses.clear();
        let mut from = Reader::new(requirements);
        while from.left() > 0 {
            let requirement: Requirement = from.read()?;
            requirement.reads(&self.state.name_key, &mut self.uses);
            match self.lock_and_read_one(txn, requirement) {
                Ok(found) => found.encode(&mut Writer::new(observed)),
                Err(holder) => return Ok(Err(holder)),
            }
        }
        Ok(Ok(()))
    }

    fn lock_and_read_one(
        &mut self,
        txn: TxnId,
        requirement: Requirement,
    ) -> Result<Observed, TxnId> {
        let me = Some(txn);
        let free = |holder: Option<TxnId>| holder.map_or(Ok(()), Err);
        match requirement {
            Requirement::Inode(inode) => {
                free(self.locks.inode(inode, me).or_else(|| self.locks.entered(inode, me)))?;
                let mut snapshot = self.state.inode(inode).map(InodeSnapshot::of);
                if let Some(snapshot) = &mut snapshot {
                    // It is destroyed when no handle is left.
                    snapshot.row.linkable &= !self.handles.is_free(inode);
                }
                self.locks.take_inode(inode, txn);
                // The coordinator replies before the change is applied here.
                self.state.export_tracking.touch(inode);
                self.state.export_tracking.moved |= self.state.is_directory(inode);
                Ok(Observed::Inode(inode, snapshot))
            }
            Requirement::Entry(dir, name) => {
                free(self.locks.inode(dir, me).or_else(|| self.locks.name(dir, &name, me)))?;
                self.locks.take_name(dir, &name, txn);
                let known = self.state.inode(dir);
                let target = self.state.entry(dir, &name);
                Ok(Observed::Entry { dir, name, snapshot: known.map(InodeSnapshot::of), target })
            }
            Requirement::New(shard) => Ok(Observed::New(shard, self.state.reserve_inode())),
            Requirement::Topology => {
                free(self.locks.topology(me))?;
                self.locks.take_topology(txn);
                Ok(Observed::Topology)
            }
            Requirement::Ancestor { dir, inode } => {
                let search = search_ancestors(&self.state, &self.locks, (dir, inode), me)?;
                Ok(Observed::Ancestor { dir, inode, search })
            }
        }
    }

    /// Prepares a part of a transaction over several shards: assigns this transaction's number as
    /// its version, and its cookies. Appends the change to record, which contains the part.
    ///
    /// # Errors
    /// [`Fault`] when the part is invalid.
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
        // The coordinator may answer before the part is applied: also a new inode has to wait for
        // that, because a request for it may overtake the decision.
        for change in Changes::new(prepared) {
            if let Change::Inode { row } = change?
                && self.rules.hold(Rule::NewInodeLocked)
            {
                self.locks.take_inode(row.inode, txn);
            }
        }
        Ok(Effect { transno, ..Effect::unchanged(Status::Ok) })
    }

    /// Applies a part that was prepared by that transaction. Appends the changes to record, `first`
    /// before the others.
    ///
    /// # Errors
    /// [`Fault`] when the part is invalid.
    pub fn apply_part(
        &mut self,
        (prepared_by, part): (Transno, &[u8]),
        first: &Change<'_>,
        changes: &mut Vec<u8>,
    ) -> Result<Effect, Fault> {
        let transno = self.take_transno();
        self.make(part, (prepared_by, transno), Some(first), changes)
    }

    /// Applies the coordinator's own part, which is not prepared.
    ///
    /// # Errors
    /// [`Fault`] when the part is invalid.
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
            let change = self.as_applied_now(change?, prepared_by);
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

    /// A prepared change as applied: a directory without name and handle is removed, an mtime that is
    /// later than the preparation stays, and so does a size that was settled since.
    fn as_applied_now<'c>(&self, change: Change<'c>, prepared_by: Transno) -> Change<'c> {
        if let Change::Inode { row } = change {
            let is_removed = row.kind == FileKind::Directory && row.nlink == 0;
            if is_removed && self.handles.is_free(row.inode) {
                return Change::InodeRemoved { inode: row.inode };
            }
            let known = self.state.inode(row.inode).map(|known| known.row);
            if let Some(settled) = known.filter(|known| row.size_at_data && !known.size_at_data) {
                // It is locked since it was read: nobody has opened it to write.
                return Change::Inode { row: row.with_contents_of(&settled) };
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

    /// Assigns the version of a part's changes, and the cookies of new entries.
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

    /// Locks what a part changes that was prepared before a start, until the transaction's outcome
    /// is known. It is no less than what was locked then and is still needed.
    ///
    /// # Errors
    /// [`Fault`] when the part is invalid.
    pub fn lock_part(&mut self, txn: TxnId, part: &[u8]) -> Result<(), Fault> {
        for change in Changes::new(part) {
            match change? {
                Change::Dirent { dir, name, .. } | Change::DirentRemoved { dir, name } => {
                    self.locks.take_name(dir, name.bytes(), txn);
                }
                Change::Inode { row } => self.locks.take_inode(row.inode, txn),
                Change::Touch { inode, .. }
                | Change::DirAttrs { inode, .. }
                | Change::Accessed { inode, .. }
                | Change::Settled { inode, .. }
                | Change::Symlink { inode, .. }
                | Change::Xattr { inode, .. }
                | Change::XattrRemoved { inode, .. }
                | Change::InodeRemoved { inode } => self.locks.take_inode(inode, txn),
                Change::Contents(_) | Change::Client(_) | Change::Txn(_) | Change::Export(_) => {}
            }
        }
        Ok(())
    }

    /// Releases all locks of `txn` here.
    pub fn release(&mut self, txn: TxnId) {
        self.locks.release(txn);
    }

    /// Whether there are no locks.
    #[must_use]
    pub fn is_unlocked(&self) -> bool {
        self.locks.is_empty()
    }

    /// The transaction that the last request answered `Busy` must wait for.
    #[must_use]
    pub const fn blocker(&self) -> Option<TxnId> {
        self.blocker
    }
}
