//! `Shard`: one metadata shard, as a lane sees it.

use crate::file_locks::{FileLocks, ShownWait};
use crate::handles::Handles;
use crate::locks::Locks;
use crate::state::State;
use crate::uses::KeyAccess;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use disk::{Change, Changes, Creation, Fault, PreVersions, TxnId};
use wire::{
    ClientUuid, Contents, InodeNo, Layout, Op, PrivilegedBits, Rule, Rules, ShardId, Squash,
    Status, Term, Timestamp, Transno, Wire, Writer,
};

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct MetaRequest<'a> {
    /// The operation.
    pub op: Op,
    /// The request's encoded body.
    pub body: &'a [u8],
    /// The client.
    pub client: ClientUuid,
    /// The squashing of its callers' ids.
    pub squash: Squash,
    /// The root of its export, if limited: the directories above it are hidden.
    pub export_root: Option<InodeNo>,
    /// The turn's time.
    pub now: Timestamp,
    /// Record in [`Shard::uses`] the keys that a request without changes reads.
    pub records_reads: bool,
    /// Directories that clients change behind: others are shown no attributes of them.
    pub changed_behind: Option<&'a BTreeMap<InodeNo, ClientUuid>>,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// The reply's status.
    pub status: Status,
    /// The transaction's number; 0: nothing durable was changed, nothing is recorded.
    pub transno: Transno,
    /// The versions before its changes.
    pub pre_versions: PreVersions,
    /// This inode has neither names nor handles any more: destroy its object once everything
    /// recorded so far is durable, then call [`Shard::destroyed`].
    pub orphan: Option<InodeNo>,
    /// Its effect on access times.
    pub access: Access,
    /// This file has no more writers: query its data shard, and call [`Shard::settle`] with this
    /// number when the contents are durable.
    pub settling: Option<(InodeNo, u64)>,
    /// The privileged bits of a file open for writing changed: send them to its data shard before
    /// any reply.
    pub privileged_bits: Option<(InodeNo, PrivilegedBits)>,
    /// A client of a limited export found this inode of another shard in this directory: notify
    /// that shard ([`Shard::record_found_name`]) before the reply.
    pub found: Option<(InodeNo, InodeNo)>,
}

/// The effect of a request on access times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// None.
    None,
    /// It reads this directory or symbolic link: call [`Shard::accessed`].
    Reads(InodeNo),
    /// It changes this file, and possibly another one, which were read since their last change:
    /// their data shards must report the next read.
    Ends(InodeNo, Option<InodeNo>),
}

impl Access {
    /// Adds a changed file.
    #[must_use]
    pub(crate) const fn ends(self, file: InodeNo) -> Self {
        match self {
            Self::Ends(first, _) if first.0 != file.0 => Self::Ends(first, Some(file)),
            Self::Ends(..) | Self::Reads(_) | Self::None => Self::Ends(file, None),
        }
    }
}

impl Effect {
    /// An outcome without changes.
    #[must_use]
    pub const fn unchanged(status: Status) -> Self {
        Self {
            status,
            transno: Transno(0),
            pre_versions: PreVersions::new(),
            orphan: None,
            access: Access::None,
            settling: None,
            privileged_bits: None,
            found: None,
        }
    }
}

/// One metadata shard: all its state, in memory.
#[derive(Debug)]
pub struct Shard {
    pub(crate) state: State,
    pub(crate) handles: Handles,
    pub(crate) file_locks: FileLocks,
    /// Scratch memory for listings.
    pub(crate) scratch: Vec<u8>,
    /// The keys that the last request depends on and changes.
    pub(crate) uses: Vec<KeyAccess>,
    /// Locks of transactions over several shards.
    pub(crate) locks: Locks,
    /// The transaction that the last request must wait for.
    pub(crate) blocker: Option<TxnId>,
    /// The placement of the next directory near the root.
    pub(crate) placement: Option<DirectoryPlacement>,
    /// Rules that a test may have disabled.
    pub(crate) rules: Rules,
}

/// The placement of a new directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryPlacement {
    /// The shard,
    pub shard: ShardId,
    /// for directories at most this deep; the root's entries are at depth 1. Values beyond 2 act as
    /// 2: deeper levels are not tracked.
    pub depth_max: u8,
}

impl Shard {
    /// A shard as created with its store. The same arguments give the same shard; this state is not
    /// in any log.
    #[must_use]
    pub fn new(shard: ShardId, made: Creation) -> Self {
        Self {
            state: State::new(shard, made),
            handles: Handles::new(),
            file_locks: FileLocks::default(),
            scratch: Vec::new(),
            uses: Vec::new(),
            locks: Locks::default(),
            blocker: None,
            placement: None,
            rules: Rules::default(),
        }
    }

    /// Hashes names by this key, before the first is put. Default: it follows from the creation.
    pub fn hash_names_by(&mut self, key: u64) {
        self.state.hash_names_by(key);
    }

    /// Sets the limit of open handles.
    pub const fn set_handle_limit(&mut self, count_max: usize) {
        self.handles.limit(count_max);
    }

    /// The number of handles by client, when most of the limit is used.
    pub fn crowded_handle_counts(&self) -> Option<impl Iterator<Item = (ClientUuid, usize)>> {
        self.handles.counts_if_crowded()
    }

    /// Disables rules, for a test that must detect it.
    pub const fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Sets the placement of the next directory near the root; `None`: beside its parent.
    pub const fn set_placement(&mut self, placement: Option<DirectoryPlacement>) {
        self.placement = placement;
    }

    /// The keys that the last executed request depends on and changes; without changes, the keys it
    /// read.
    #[must_use]
    pub fn uses(&self) -> &[KeyAccess] {
        &self.uses
    }

    /// flock and fcntl locks of its inodes. They depend on nothing in a log.
    pub fn file_locks(&mut self) -> &mut FileLocks {
        self.uses.clear();
        &mut self.file_locks
    }

    /// The files that a client has locked.
    pub fn locked_by(&self, client: ClientUuid) -> impl Iterator<Item = InodeNo> {
        self.file_locks.inodes_of(client)
    }

    /// All waits for locks on files: since when, and the clients whose locks conflict.
    pub fn file_lock_waits(&self) -> impl Iterator<Item = (u64, BTreeSet<ClientUuid>)> {
        self.file_locks.waits()
    }

    /// All waits for locks on files, for people.
    pub fn shown_lock_waits(&self) -> impl Iterator<Item = ShownWait> {
        self.file_locks.all_waits()
    }

    /// Loads a row of the store ([`disk::rows`]); rows come in the order of their keys.
    ///
    /// # Errors
    /// [`Fault`] when it contradicts earlier rows.
    pub fn load(&mut self, row: &disk::rows::Row<'_>) -> Result<(), Fault> {
        self.state.load(row)
    }

    /// Redoes the changes of one record.
    ///
    /// # Errors
    /// [`Fault`] when they are not what a shard records; its offset is within `changes`.
    pub fn replay(&mut self, transno: Transno, changes: &[u8]) -> Result<(), Fault> {
        self.stamp_from(self.state.next_transno());
        for change in Changes::new(changes) {
            self.state.apply(transno, &change?)?;
        }
        self.state.transno_last = self.state.transno_last.max(transno);
        Ok(())
    }

    /// Begins a term, later than every earlier one of the shard, after all records were redone:
    /// skips numbers that an earlier term may have assigned and lost. The clients' handles are
    /// unknown until [`Shard::end_grace`].
    pub fn start_term(&mut self, term: Term) {
        self.state.start_term(term);
        self.handles.forget();
        self.file_locks.start_term(term);
    }

    /// New files of each generation are spread over at most so many data shards.
    pub fn set_part_counts(&mut self, part_counts: Vec<u16>) {
        self.state.set_part_counts(part_counts);
    }

    /// New inodes are of this generation of the file system's shards from now on. Before a term begins,
    /// or within one. A shard that has no number left in it makes no inode any more.
    pub fn use_generation(&mut self, generation: u8) {
        self.state.use_generation(generation);
    }

    /// Reserves consecutive numbers for files that a client creates behind: the first one. `None`: too
    /// many are reserved and not used.
    pub fn reserve_inodes(&mut self, count: u32) -> Option<InodeNo> {
        self.state.reserve_inodes(count)
    }

    /// The layout of a file that its client will create with this number.
    #[must_use]
    pub fn layout_behind(&self, inode: InodeNo) -> Layout {
        self.state.layout_behind(inode)
    }

    /// Whether new files are spread from their first byte on, in directories that have no layout.
    #[must_use]
    pub fn spreads_new_files(&self) -> bool {
        self.state.layout(None, u8::MAX).is_spread()
    }

    /// Whether a client may claim, before recovery is over, that it changes the names of a directory
    /// behind, with these numbers.
    #[must_use]
    pub fn may_claim(&self, dir: InodeNo, first: InodeNo, count: u32) -> bool {
        // One that is not in memory is looked at when its names are changed.
        let is_named = self.state.inode(dir).is_none()
            || self.state.entries(dir).is_some_and(|(row, _)| row.nlink > 0);
        is_named && (count == 0 || self.state.may_have_given(first, count))
    }

    /// Ends the grace period for reopening handles: from now on an unknown handle does not exist.
    /// Destroy [`Shard::orphans`] now.
    pub const fn end_grace(&mut self) {
        self.handles.end_grace();
    }

    /// See [`Shard::set_placement`].
    #[must_use]
    pub const fn placement(&self) -> Option<DirectoryPlacement> {
        self.placement
    }

    /// Inodes without names and handles, in rising order; none during the grace period.
    pub fn orphans(&self) -> impl Iterator<Item = InodeNo> {
        self.state.orphans.iter().copied().filter(|inode| self.handles.is_free(*inode))
    }

    /// The privileged bits of files open for writing, as their data shards must know them.
    pub fn privileged_bits(&self) -> impl Iterator<Item = (InodeNo, PrivilegedBits)> {
        self.handles.privileged_bits()
    }

    /// The layout of an inode in memory.
    #[must_use]
    pub fn layout(&self, inode: InodeNo) -> Option<Option<Layout>> {
        self.state.inode(inode).map(|inode| inode.row.layout)
    }

    /// Whether an inode that was reported as an orphan still is one. `None` while a transaction
    /// over several shards has it locked.
    #[must_use]
    pub fn is_orphan(&self, inode: InodeNo) -> Option<bool> {
        let is_locked = self.locks.inode(inode, None).is_some();
        let is_free = self.state.orphans.contains(&inode) && self.handles.is_free(inode);
        (!is_locked).then_some(is_free)
    }

    /// The object of an orphan was removed durably: removes the inode. Appends the changes to
    /// record.
    pub fn destroyed(&mut self, inode: InodeNo, changes: &mut Vec<u8>) -> Effect {
        if !self.state.orphans.contains(&inode) || !self.handles.is_free(inode) {
            return Effect::unchanged(Status::Stale);
        }
        let transno = self.state.next_transno();
        let removed = Change::InodeRemoved { inode };
        removed.encode(&mut Writer::new(changes));
        #[expect(clippy::expect_used, reason = "taking an inode away cannot fail")]
        self.state.apply(transno, &removed).expect("an inode can always go");
        self.state.transno_last = transno;
        Effect { transno, ..Effect::unchanged(Status::Ok) }
    }

    /// Updates an inode's atime after a read; its contents were last changed at `write_time`, if
    /// the data shard knows. Only the first read after a change counts, and one a day. Appends the
    /// change to record.
    pub fn accessed(
        &mut self,
        inode: InodeNo,
        write_time: Option<Timestamp>,
        now: Timestamp,
        changes: &mut Vec<u8>,
    ) -> Effect {
        const DAY_SECS: i64 = 24 * 3600;
        let Some(row) = self.state.inode(inode).map(|known| known.row) else {
            return Effect::unchanged(Status::Stale);
        };
        let changed = row.mtime.max(row.ctime).max(write_time.unwrap_or(row.ctime));
        let old = now.secs.saturating_sub(row.atime.secs) >= DAY_SECS;
        if row.atime > changed && !old {
            return Effect::unchanged(Status::Ok);
        }
        let transno = self.take_transno();
        // A read in the same clock tick as a change must have a later time.
        let atime = if now == changed { now.next() } else { now };
        let accessed = Change::Accessed { inode, atime };
        accessed.encode(&mut Writer::new(changes));
        #[expect(clippy::expect_used, reason = "the inode was found")]
        self.state.apply(transno, &accessed).expect("an inode takes a time");
        Effect { transno, ..Effect::unchanged(Status::Ok) }
    }

    /// Takes over the contents' size, space and mtime from the data shard, as of query `number`,
    /// unless the file was opened for writing since. Appends the change to record.
    pub fn settle(
        &mut self,
        inode: InodeNo,
        number: u64,
        contents: Option<Contents>,
        changes: &mut Vec<u8>,
    ) -> Effect {
        let is_valid = self.handles.end_query(inode, number) || !self.rules.hold(Rule::SettleAsked);
        let row = self.state.inode(inode).map(|known| known.row);
        let settles = row.is_some_and(|row| row.size_at_data && row.nlink > 0);
        let Some(contents) = contents.filter(|_| is_valid && settles) else {
            return Effect::unchanged(Status::Stale);
        };
        let transno = self.take_transno();
        let settled = Change::Settled { inode, contents };
        settled.encode(&mut Writer::new(changes));
        #[expect(clippy::expect_used, reason = "the inode was found")]
        self.state.apply(transno, &settled).expect("an inode takes its size");
        Effect { transno, ..Effect::unchanged(Status::Ok) }
    }

    /// Whether a transaction over several shards has an inode locked: its times may be about to
    /// change.
    #[must_use]
    pub fn is_locked(&self, inode: InodeNo) -> bool {
        self.locks.inode(inode, None).is_some()
    }

    /// Drops all handles of a disconnected client; returns the resulting orphans, in rising order.
    pub fn drop_client(&mut self, client: ClientUuid) -> Vec<InodeNo> {
        let mut inodes = self.handles.drop_client(client);
        inodes.iter().for_each(|inode| self.state.export_tracking.touch(*inode));
        inodes.retain(|inode| self.state.orphans.contains(inode) && self.handles.is_free(*inode));
        inodes
    }

    /// Whether all handles that this client opened here in this boot are known. If not, it has to
    /// reopen them; handles of an earlier boot are never known.
    #[must_use]
    pub fn has_all_handles_of(&self, client: ClientUuid) -> bool {
        self.handles.has_all_handles_of(client)
    }

    /// Number of inodes.
    #[must_use]
    pub fn inode_count(&self) -> u64 {
        self.state.inode_count()
    }

    /// The number of the last transaction, 0 before the first.
    #[must_use]
    pub const fn transno_last(&self) -> Transno {
        self.state.transno_last
    }

    /// A number for a record of the lane's own, without changes here.
    pub const fn take_transno(&mut self) -> Transno {
        self.state.transno_last = self.state.next_transno();
        self.state.transno_last
    }

    /// The shard's id.
    #[must_use]
    pub const fn id(&self) -> ShardId {
        self.state.shard()
    }
}
