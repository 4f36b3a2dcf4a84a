//! `Shard`: one metadata shard, as a lane sees it.

use crate::file_locks::FileLocks;
use crate::handles::Handles;
use crate::locks::Locks;
use crate::state::State;
use crate::uses::Use;
use alloc::vec::Vec;
use disk::{Change, Changes, Fault, Made, PreVersions, TxnId};
use wire::{
    ClientUuid, Contents, InodeNo, Op, PrivilegedBits, Rule, Rules, ShardId, Squash, Status,
    Timestamp, Transno, Wire, Writer,
};

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What is asked for.
    pub op: Op,
    /// The request's body as it came.
    pub body: &'a [u8],
    /// Who asks.
    pub client: ClientUuid,
    /// As whom he acts.
    pub squash: Squash,
    /// The root of what he may see, if that is not all: nothing above it is told.
    pub top: Option<InodeNo>,
    /// The turn's time.
    pub now: Timestamp,
    /// [`Shard::uses`] shall say what a request looked at that changes nothing.
    pub tells_reads: bool,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// The answer.
    pub status: Status,
    /// The transaction's number; 0: nothing durable was changed, there is nothing to record.
    pub transno: Transno,
    /// Versions of what it touched, before.
    pub pre_versions: PreVersions,
    /// This inode has neither names nor handles any more: destroy its object once everything
    /// recorded so far is durable, then say [`Shard::destroyed`].
    pub orphan: Option<InodeNo>,
    /// What it has to do with a time of access.
    pub access: Access,
    /// Nobody writes to this file any more: ask its data shard what it keeps of it, and say
    /// [`Shard::settle`] with this number when all of that is durable.
    pub settling: Option<(InodeNo, u64)>,
    /// A file that is being written gives this now to whoever runs it: tell its data shard before
    /// anybody is answered.
    pub gives: Option<(InodeNo, PrivilegedBits)>,
    /// Who may not see everything found this inode of another shard in this directory: tell it
    /// ([`Shard::found_at`]) before he is answered.
    pub found: Option<(InodeNo, InodeNo)>,
}

/// What a request has to do with a time of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing.
    None,
    /// It reads this directory or symbolic link: say [`Shard::accessed`].
    Reads(InodeNo),
    /// It changes this file, and perhaps another one, which were read since their last change: their
    /// data shards have to tell of the next read.
    Ends(InodeNo, Option<InodeNo>),
}

impl Access {
    /// This file, too, is changed.
    #[must_use]
    pub(crate) const fn ends(self, file: InodeNo) -> Self {
        match self {
            Self::Ends(first, _) if first.0 != file.0 => Self::Ends(first, Some(file)),
            Self::Ends(..) | Self::Reads(_) | Self::None => Self::Ends(file, None),
        }
    }
}

impl Effect {
    /// An answer that changed nothing.
    #[must_use]
    pub const fn unchanged(status: Status) -> Self {
        Self {
            status,
            transno: Transno(0),
            pre_versions: PreVersions::new(),
            orphan: None,
            access: Access::None,
            settling: None,
            gives: None,
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
    /// Where listings are put together.
    pub(crate) scratch: Vec<u8>,
    /// What the last request depends on and changes.
    pub(crate) uses: Vec<Use>,
    /// What changes over several shards have locked.
    pub(crate) locks: Locks,
    /// Whom the last request has to wait for.
    pub(crate) blocker: Option<TxnId>,
    /// Where the next directory near the root goes.
    pub(crate) spread: Option<Spread>,
    /// Rules that a test may have taken away.
    pub(crate) rules: Rules,
}

/// Where a new directory goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    /// To this shard,
    pub shard: ShardId,
    /// when it lies at most this deep; the root's entries lie at depth 1. Beyond 2 is as 2: what
    /// lies deeper does not know it.
    pub depth_max: u8,
}

impl Shard {
    /// A shard as the making of its store left it. The same arguments
    /// give the same shard; it is not in any log.
    #[must_use]
    pub fn new(shard: ShardId, made: Made) -> Self {
        Self {
            state: State::new(shard, made),
            handles: Handles::new(),
            file_locks: FileLocks::default(),
            scratch: Vec::new(),
            uses: Vec::new(),
            locks: Locks::default(),
            blocker: None,
            spread: None,
            rules: Rules::default(),
        }
    }

    /// So many handles at most are open here.
    pub const fn limit_handles(&mut self, count_max: usize) {
        self.handles.limit(count_max);
    }

    /// How many handles each client has, when there is little room for more.
    pub fn crowd_of_handles(&self) -> Option<impl Iterator<Item = (ClientUuid, usize)>> {
        self.handles.crowd()
    }

    /// Takes rules away, for a test that must notice.
    pub const fn plant(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Says where the next directory goes if it lies near the root; `None`: beside its parent.
    pub const fn spread(&mut self, spread: Option<Spread>) {
        self.spread = spread;
    }

    /// What the last request that was executed depends on and changes; for one that changed
    /// nothing, what it looked at.
    #[must_use]
    pub fn uses(&self) -> &[Use] {
        &self.uses
    }

    /// flock and fcntl locks of its inodes. Whoever asks for them depends on nothing that a log has.
    pub fn file_locks(&mut self) -> &mut FileLocks {
        self.uses.clear();
        &mut self.file_locks
    }

    /// Takes over a row of the cold store ([`disk::rows`]); rows come in the order of their keys.
    ///
    /// # Errors
    /// [`Fault`] when it does not fit those before.
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

    /// Begins boot `boot_id` (1 or more, higher at every start of the store), after all records
    /// were redone: numbers an earlier boot may have given out and lost are left behind, and what
    /// handles clients hold is unknown until [`Shard::end_grace`].
    pub fn start_boot(&mut self, boot_id: u64) {
        self.state.start_boot(boot_id);
        self.handles.forget();
        self.file_locks.start_boot(boot_id);
    }

    /// Clients had their time to open again what they held: from here on a handle that is not
    /// known does not exist. Destroy [`Shard::orphans`] now.
    pub const fn end_grace(&mut self) {
        self.handles.end_grace();
    }

    /// See [`Shard::spread`].
    #[must_use]
    pub const fn spread_now(&self) -> Option<Spread> {
        self.spread
    }

    /// Inodes without names and handles, in rising order; none during the grace time.
    pub fn orphans(&self) -> impl Iterator<Item = InodeNo> {
        self.state.orphans.iter().copied().filter(|inode| self.handles.is_free(*inode))
    }

    /// Whether an inode that was reported as an orphan still is one: it got no name since. `None`
    /// while a change over several shards has it locked.
    #[must_use]
    pub fn is_orphan(&self, inode: InodeNo) -> Option<bool> {
        let is_locked = self.locks.inode(inode, None).is_some();
        let is_free = self.state.orphans.contains(&inode) && self.handles.is_free(inode);
        (!is_locked).then_some(is_free)
    }

    /// The object of an orphan is gone, durably: so is the inode. Appends the changes to record.
    pub fn destroyed(&mut self, inode: InodeNo, changes: &mut Vec<u8>) -> Effect {
        if !self.state.orphans.contains(&inode) || !self.handles.is_free(inode) {
            return Effect::unchanged(Status::Stale);
        }
        let transno = self.state.next_transno();
        let gone = Change::InodeRemoved { inode };
        gone.encode(&mut Writer::new(changes));
        #[expect(clippy::expect_used, reason = "taking an inode away cannot fail")]
        self.state.apply(transno, &gone).expect("an inode can always go");
        self.state.transno_last = transno;
        Effect { transno, ..Effect::unchanged(Status::Ok) }
    }

    /// An inode is read; its contents were last changed at `write_time`, if the data shard knows. Of
    /// a time of access only the first after a change counts, and one a day. Appends the change to
    /// record.
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
        // Of a read right after a change, by the same clock reading, it must be seen that it came
        // later.
        let atime = if now == changed { now.next() } else { now };
        let accessed = Change::Accessed { inode, atime };
        accessed.encode(&mut Writer::new(changes));
        #[expect(clippy::expect_used, reason = "the inode was found")]
        self.state.apply(transno, &accessed).expect("an inode takes a time");
        Effect { transno, ..Effect::unchanged(Status::Ok) }
    }

    /// What the data shard keeps of an inode that nobody wrote to when the question `number` was
    /// asked: its size, space and time of last change are here from now on, if nobody has opened it for writing
    /// since. Appends the change to record.
    pub fn settle(
        &mut self,
        inode: InodeNo,
        number: u64,
        contents: Option<Contents>,
        changes: &mut Vec<u8>,
    ) -> Effect {
        let asked = self.handles.answered(inode, number) || !self.rules.hold(Rule::SettleAsked);
        let row = self.state.inode(inode).map(|known| known.row);
        let settles = row.is_some_and(|row| row.size_at_data && row.nlink > 0);
        let Some(contents) = contents.filter(|_| asked && settles) else {
            return Effect::unchanged(Status::Stale);
        };
        let transno = self.take_transno();
        let settled = Change::Settled { inode, contents };
        settled.encode(&mut Writer::new(changes));
        #[expect(clippy::expect_used, reason = "the inode was found")]
        self.state.apply(transno, &settled).expect("an inode takes its size");
        Effect { transno, ..Effect::unchanged(Status::Ok) }
    }

    /// Whether a change over several shards has an inode locked: what it tells now of its times is
    /// not the last word.
    #[must_use]
    pub fn is_locked(&self, inode: InodeNo) -> bool {
        self.locks.inode(inode, None).is_some()
    }

    /// Drops all handles of a client that is gone; the orphans that result, in rising order.
    pub fn client_gone(&mut self, client: ClientUuid) -> Vec<InodeNo> {
        let mut inodes = self.handles.client_gone(client);
        inodes.iter().for_each(|inode| self.state.exported.touch(*inode));
        inodes.retain(|inode| self.state.orphans.contains(inode) && self.handles.is_free(*inode));
        inodes
    }

    /// Whether all handles this client opened here in this boot are still known. If not, it has to
    /// reopen them; handles of an earlier boot are never known.
    #[must_use]
    pub fn knows_handles_of(&self, client: ClientUuid) -> bool {
        self.handles.knows(client)
    }

    /// Inodes in it.
    #[must_use]
    pub fn inode_count(&self) -> u64 {
        self.state.inode_count()
    }

    /// The number of the last transaction, 0 before the first.
    #[must_use]
    pub const fn transno_last(&self) -> Transno {
        self.state.transno_last
    }

    /// A number for a record of the lane's own, which changes nothing here.
    pub const fn take_transno(&mut self) -> Transno {
        self.state.transno_last = self.state.next_transno();
        self.state.transno_last
    }

    /// Which shard it is.
    #[must_use]
    pub const fn id(&self) -> ShardId {
        self.state.shard()
    }
}
