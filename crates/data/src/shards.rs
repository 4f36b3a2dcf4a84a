//! `Shards`: the data shards of one lane, as the lane sees them.

use crate::allocate::{Allocating, Seeking};
use crate::decode::decode;
use crate::hash::Seed;
use crate::list::{ReadingList, Writing, WritingList};
use crate::object::Object;
use crate::order::Order;
use crate::recorded::Recorded;
use crate::request::{Glimpsing, Pending};
use crate::sums::Sums;
use crate::work::Job;
use crate::{Ask, Lost, Outcome, Token};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use disk::Change;
use disk::rows::ObjectRow;
use hashbrown::HashMap;
use interface::{Action, Mono, Ticket, Turn};
use wire::{
    ClearPrivileges, ClientUuid, Contents, Flaw, InodeNo, LaneId, Map, PrivilegedBits,
    ProtocolError, Rules, ShardId, Status, Transno,
};

/// What the shards are told when they begin.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Where shards and inodes live.
    pub map: Map,
    /// Whose shards these are.
    pub lane: LaneId,
    /// Objects remembered at most, apart from those in use.
    pub object_count_max: usize,
    /// Or'ed into every ticket, so that the lane knows them; its lower 48 bits are zero.
    pub ticket_tag: u64,
    /// Key of the maps.
    pub seed: u64,
    /// What was written is made durable after this many milliseconds at the latest.
    pub sync_ms: u64,
    /// Or when this many bytes of an object are not.
    pub unsynced_bytes_max: u64,
    /// Bytes of a block that has a checksum: [`disk::BLOCK_BYTES`], or fewer in tests.
    pub block_bytes: u32,
    /// Touched blocks get their checksums when nobody has written to their object for this long.
    pub quiet_ms: u64,
    /// Rules of the protocol that a test may take away.
    pub rules: Rules,
}

/// Whether blocks get checksums that wait for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closes {
    /// Those of objects that are quiet.
    Quiet,
    /// Not now: the log has no room for what that takes.
    Later,
    /// All of them: the lane is about to end.
    All,
    /// None of them any more: the lane is about to end, and the log has no room.
    GiveUp,
}

/// What is known of an object before the world is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Proven {
    /// The size that the log of earlier boots says; `None`: the object was looked at in this boot,
    /// and what it has is right.
    pub(crate) size_bytes: Option<u64>,
    /// When the contents were last changed; of an object that is remembered, that knows better.
    pub(crate) write_time_ns: u64,
}

/// All data shards of one lane.
#[derive(Debug)]
pub struct Shards {
    pub(crate) shape: Shape,
    pub(crate) objects: HashMap<InodeNo, Object, Seed>,
    /// The remembered objects in the order the cache looks at them; may name some that are gone.
    order: VecDeque<InodeNo>,
    pub(crate) jobs: HashMap<u64, Job, Seed>,
    ticket_count: u64,
    /// Lists whose pieces are being written, by number.
    pub(crate) writing: HashMap<u64, Writing, Seed>,
    pub(crate) list_count: u64,
    pub(crate) proven: HashMap<InodeNo, Proven, Seed>,
    /// The checksums of objects that have any.
    pub(crate) sums: HashMap<InodeNo, Sums, Seed>,
    /// Objects with blocks that wait for their checksums, and when they are looked at.
    pub(crate) unbound: BTreeSet<InodeNo>,
    pub(crate) close_at: Option<Mono>,
    /// Damaged places that were reported, and when.
    pub(crate) reports: BTreeMap<(InodeNo, u64), Mono>,
    /// What files give that somebody writes who may not know it.
    gives: HashMap<InodeNo, PrivilegedBits, Seed>,
    /// What is recorded in which order, by shard index divided by the lane count.
    orders: Vec<Order>,
    /// The last durable transaction, in the same places.
    durables: Vec<Transno>,
    pub(crate) outcomes: VecDeque<Outcome>,
    /// Objects with something written that no sync in flight is about.
    pub(crate) dirty: Vec<InodeNo>,
    /// Since when the first of them is waiting that is not being synced.
    unsynced_since: Option<Mono>,
    /// One of them may have to be synced before its time.
    presses: bool,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Nothing more will be recorded.
    pub(crate) fenced: bool,
}

impl Shards {
    /// The shards of a lane after a start; `recorded` are all of the lane's shards.
    #[must_use]
    pub fn new(shape: Shape, recorded: Vec<Recorded>) -> Self {
        let seed = Seed(shape.seed);
        let mut proven = HashMap::with_hasher(seed);
        let mut sums = HashMap::with_hasher(seed);
        let (mut orders, mut durables): (Vec<Order>, Vec<Transno>) = (Vec::new(), Vec::new());
        for shard in recorded {
            assert!(shape.map.lane(shard.shard()) == shape.lane, "a shard of this lane");
            let index = usize::from(shard.shard().index() / shape.map.lane_count);
            if orders.len() <= index {
                orders.resize_with(index + 1, Order::default);
                durables.resize(index + 1, Transno(0));
            }
            orders[index].transno_last = shard.boot_transno();
            durables[index] = shard.boot_transno();
            for (inode, row, known) in shard.objects() {
                let ObjectRow { size_bytes, write_time_ns, first_sum: _ } = row;
                proven.insert(inode, Proven { size_bytes: Some(size_bytes), write_time_ns });
                sums.extend(known.filter(|known| !known.is_empty()).map(|known| (inode, known)));
            }
        }
        Self {
            shape,
            objects: HashMap::with_hasher(seed),
            order: VecDeque::new(),
            jobs: HashMap::with_hasher(seed),
            ticket_count: 0,
            writing: HashMap::with_hasher(seed),
            list_count: 0,
            proven,
            sums,
            unbound: BTreeSet::new(),
            close_at: None,
            reports: BTreeMap::new(),
            gives: HashMap::with_hasher(seed),
            orders,
            durables,
            outcomes: VecDeque::new(),
            dirty: Vec::new(),
            unsynced_since: None,
            presses: false,
            read_bytes: 0,
            written_bytes: 0,
            fenced: false,
        }
    }

    /// Takes a request. Its outcome comes through [`Shards::outcome`], perhaps at once.
    ///
    /// # Errors
    /// [`ProtocolError`] when it is not what the op has: nothing was done, its buffer is released.
    pub fn ask(&mut self, turn: &mut Turn<'_>, ask: &Ask<'_>) -> Result<(), ProtocolError> {
        match decode(ask, &self.shape.map) {
            Ok(decoded) if self.loses(decoded.inode, decoded.takes) => {
                let refused = VecDeque::from([decoded.pending]);
                self.fail_all(turn, decoded.inode, refused, Status::NeedClearPrivileges);
                Ok(())
            }
            Ok(decoded) => {
                self.wait(turn, decoded.inode, decoded.pending);
                Ok(())
            }
            Err(flaw) => {
                release(turn, ask.bulk);
                match flaw {
                    Flaw::ProtocolError(protocol_error) => Err(protocol_error),
                    Flaw::Status(status) => {
                        let result = Err(status);
                        let (token, shown) = (ask.token, Transno(0));
                        self.outcomes.push_back(Outcome::Answered { token, result, shown });
                        Ok(())
                    }
                }
            }
        }
    }

    /// A file was made whose number nobody ever had: there is no object of it.
    pub fn made(&mut self, inode: InodeNo) {
        self.known_or_new(inode).made();
    }

    /// Looks for what is kept of a file, for somebody who will make it durable elsewhere; ends in
    /// [`Outcome::Sized`], or in [`Outcome::Answered`] if it cannot be had.
    pub fn ask_size(&mut self, turn: &mut Turn<'_>, token: Token, inode: InodeNo) {
        let glimpsing = Glimpsing { token, durable: true, client: ClientUuid::NONE };
        self.wait(turn, inode, Pending::Glimpse(glimpsing));
    }

    /// What a file gives to whoever runs it, of one that is being written.
    pub fn set_gives(&mut self, inode: InodeNo, gives: PrivilegedBits) {
        if gives == PrivilegedBits::default() {
            self.gives.remove(&inode);
        } else {
            self.gives.insert(inode, gives);
        }
    }

    /// Whether a file gives what a writer may not leave.
    fn loses(&self, inode: InodeNo, takes: ClearPrivileges) -> bool {
        let gives = self.gives.get(&inode).copied().unwrap_or_default();
        gives.lost_to(takes) != ClearPrivileges::Nothing
    }

    /// Destroys a file's object; ends in [`Outcome::Removed`].
    pub fn remove(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        self.gives.remove(&inode);
        self.wait(turn, inode, Pending::Remove);
        if let Some(object) = self.objects.get_mut(&inode) {
            object.urgent = true;
            self.presses = true;
        }
    }

    /// A change of this inode's contents that was handed out and keeps others waiting
    /// ([`disk::ContentsChange::fences`]) has a durable record.
    pub fn on_logged(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        if let Some(object) = self.objects.get_mut(&inode) {
            object.fence_count = object.fence_count.saturating_sub(1);
            self.advance(turn, inode);
        }
    }

    /// Nothing more will be recorded: what waits to change something fails, and only readers are
    /// served from here on.
    pub fn fence(&mut self, turn: &mut Turn<'_>) {
        self.fenced = true;
        let mut inodes: Vec<InodeNo> = self.objects.keys().copied().collect();
        inodes.sort_unstable();
        for inode in inodes {
            let Some(object) = self.objects.get_mut(&inode) else { continue };
            object.fence_count = 0;
            let changes = object.take_changes();
            self.fail_all(turn, inode, changes, Status::Io);
            self.advance(turn, inode);
        }
    }

    /// Begins the syncs of this turn: at most one per object that was written and has none in flight.
    /// When one's time has come, all others go with it: many are durable with hardly more writes of
    /// the file system's log than one.
    pub fn settle(&mut self, turn: &mut Turn<'_>, closes: Closes) {
        self.close_quiet(turn, closes);
        let time_has_come = self.sync_at().is_some_and(|at| at <= turn.now.mono);
        if !core::mem::take(&mut self.presses) && !time_has_come {
            return;
        }
        let mut dirty = core::mem::take(&mut self.dirty);
        dirty.retain(|inode| {
            let Some(object) = self.objects.get(inode) else { return false };
            if object.sync_running {
                return true;
            }
            let due = time_has_come
                || object.urgent
                || object.unsynced_bytes >= self.shape.unsynced_bytes_max;
            if due {
                self.sync(turn, *inode);
            }
            !due
        });
        self.dirty = dirty;
        self.unsynced_since = None;
        for index in 0..self.dirty.len() {
            self.waits_for_sync(self.dirty[index]);
        }
    }

    /// An object was written, or has been synced and written meanwhile.
    pub(crate) fn waits_for_sync(&mut self, inode: InodeNo) {
        let Some(object) = self.objects.get(&inode) else { return };
        if object.sync_running || object.written.is_empty() {
            return;
        }
        let first = self.unsynced_since.unwrap_or(object.unsynced_since);
        self.unsynced_since = Some(first.min(object.unsynced_since));
        self.presses |= object.urgent || object.unsynced_bytes >= self.shape.unsynced_bytes_max;
    }

    /// When something has to be made durable or to get its checksums at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.sync_at().into_iter().chain(self.close_at).min()
    }

    fn sync_at(&self) -> Option<Mono> {
        self.unsynced_since.map(|since| since.after_ms(self.shape.sync_ms))
    }

    /// Somebody waits for everything that was written to a shard (`None`: to any) being durable.
    pub fn urge(&mut self, shard: Option<ShardId>) {
        self.presses |= !self.dirty.is_empty();
        for index in 0..self.dirty.len() {
            let inode = self.dirty[index];
            if shard.is_none_or(|shard| shard == self.shard(inode))
                && let Some(object) = self.objects.get_mut(&inode)
            {
                object.urgent = true;
            }
        }
    }

    /// Records of a shard are durable up to here.
    pub fn on_durable(&mut self, shard: ShardId, transno: Transno) {
        let index = usize::from(shard.index() / self.shape.map.lane_count);
        self.durables[index] = transno;
    }

    /// The last transaction of a shard, recorded or not.
    #[must_use]
    pub fn transno_last(&self, shard: ShardId) -> Transno {
        self.orders[usize::from(shard.index() / self.shape.map.lane_count)].transno_last
    }

    /// Takes a write that was lost. It ends in [`Outcome::Written`] and [`Outcome::Changed`], or in
    /// [`Outcome::Answered`] if it cannot be done.
    pub fn replay(&mut self, turn: &mut Turn<'_>, lost: Lost) {
        // Objects are written in any order, but what was replayed is recorded as it was asked for:
        // of what is durable of a session the last stands for all before it.
        let inode = lost.change.inode();
        let shard = self.shard(inode);
        let place_no = self.order(shard).push(None);
        self.wait(turn, inode, Pending::Replay { lost, place_no });
    }

    /// The contents of a file, if they are known without asking anybody. With `exact` the allocated
    /// bytes are those of now, else of some time ago.
    #[must_use]
    pub fn known(&self, inode: InodeNo, exact: bool) -> Option<Contents> {
        let object = self.objects.get(&inode)?;
        let fresh = object.allocated_change_no == object.change_no;
        let certain = !object.asking && !object.doubtful && !object.lost;
        let stat = object.stat.filter(|_| certain && (fresh || !exact))?;
        Some(object.contents(stat))
    }

    /// The next thing for the lane to do.
    pub fn outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Whether no action is in flight and nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let idle = self.jobs.is_empty() && self.dirty.is_empty() && self.outcomes.is_empty();
        idle && self.unbound.is_empty()
    }

    /// Whether nothing of what was written waits for being durable or being recorded.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        let settled =
            self.objects.values().all(|object| object.written.is_empty() && !object.sync_running);
        let recorded = self.orders.iter().all(Order::is_empty);
        settled && recorded && self.outcomes.is_empty()
    }

    /// The shards, in their order.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        let map = self.shape.map;
        (self.shape.lane.0..map.data_shard_count)
            .step_by(usize::from(map.lane_count))
            .map(ShardId::data)
    }

    /// Something of the lane's own for a shard's log, in its place there.
    pub fn note_of_lane(&mut self, shard: ShardId, change: disk::Change<'static>) {
        let transno = self.next_transno(shard);
        self.order(shard).push(Some(Outcome::Noted { shard, transno, change }));
        self.record_next(shard);
    }

    pub(crate) fn order(&mut self, shard: ShardId) -> &mut Order {
        &mut self.orders[usize::from(shard.index() / self.shape.map.lane_count)]
    }

    pub(crate) fn durable(&self, shard: ShardId) -> Transno {
        self.durables[usize::from(shard.index() / self.shape.map.lane_count)]
    }

    /// A write that was lost cannot be brought back now. Its place among the records stays empty, so
    /// nothing behind it is recorded; and until a start that can, nobody sees the object without it.
    pub(crate) fn fail_replay(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        (token, status): (crate::Token, Status),
    ) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.lost = true;
        self.outcomes.push_back(Outcome::Failed { status });
        let result = Err(status);
        self.outcomes.push_back(Outcome::Answered { token, result, shown: Transno(0) });
        self.fail_waiting(turn, inode, status);
    }

    /// Lets be recorded what may be.
    pub(crate) fn record_next(&mut self, shard: ShardId) {
        while let Some((mut outcome, change_no)) = self.order(shard).pop() {
            if let Outcome::Changed { change: Change::Contents(change), sums, .. } = &mut outcome {
                *sums = self.bind(change, change_no);
            }
            self.outcomes.push_back(outcome);
        }
    }

    /// Bytes read from files since the start.
    #[must_use]
    pub const fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Bytes written to files since the start.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The shard of an inode's object.
    pub(crate) fn shard(&self, inode: InodeNo) -> ShardId {
        self.shape.map.data_shard(inode, 0)
    }

    /// The next transaction number of a shard.
    pub(crate) fn next_transno(&mut self, shard: ShardId) -> Transno {
        let transno = &mut self.order(shard).transno_last;
        transno.0 += 1;
        *transno
    }

    /// A ticket for an action.
    pub(crate) fn ticket(&mut self, job: Job) -> Ticket {
        self.ticket_count += 1;
        let number = self.shape.ticket_tag | self.ticket_count;
        self.jobs.insert(number, job);
        Ticket(number)
    }

    fn known_or_new(&mut self, inode: InodeNo) -> &mut Object {
        let shard_index = self.shard(inode).index();
        if !self.objects.contains_key(&inode) {
            self.make_space();
            self.order.push_back(inode);
        }
        let object = self.objects.entry(inode).or_insert_with(|| {
            let write_time_ns = self.proven.get(&inode).map_or(0, |proven| proven.write_time_ns);
            Object::new(shard_index, inode, write_time_ns)
        });
        object.used = true;
        object
    }

    fn wait(&mut self, turn: &mut Turn<'_>, inode: InodeNo, pending: Pending) {
        let fenced = self.fenced;
        let object = self.known_or_new(inode);
        if object.lost || (fenced && pending.is_change()) {
            return self.fail_all(turn, inode, VecDeque::from([pending]), Status::Io);
        }
        object.queue.push_back(pending);
        self.advance(turn, inode);
    }

    /// Forgets objects nobody used lately, so that one more fits. Objects in use may exceed the
    /// limit; the lane's limit on requests bounds them.
    fn make_space(&mut self) {
        const LOOK_COUNT_MAX: usize = 8;
        for _ in 0..LOOK_COUNT_MAX {
            // Names of objects that are gone stay in the order until they are met here.
            if self.order.len() < self.shape.object_count_max {
                return;
            }
            let Some(inode) = self.order.pop_front() else { return };
            let durable = self.durable(self.shard(inode));
            if let Some(object) = self.objects.get_mut(&inode) {
                object.unstable.settle(durable);
            }
            match self.objects.get_mut(&inode) {
                Some(object) if object.used || !object.is_idle() => {
                    object.used = false;
                    self.order.push_back(inode);
                }
                Some(object) => {
                    if let Some(proven) = self.proven.get_mut(&inode) {
                        proven.write_time_ns = object.write_time_ns;
                    }
                    self.objects.remove(&inode);
                }
                None => {}
            }
        }
    }

    /// Answers everything that waits at an object.
    pub(crate) fn fail_waiting(&mut self, turn: &mut Turn<'_>, inode: InodeNo, status: Status) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        let waiting = core::mem::take(&mut object.queue);
        self.fail_all(turn, inode, waiting, status);
    }

    pub(crate) fn fail_all(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        all: VecDeque<Pending>,
        status: Status,
    ) {
        for pending in all {
            let token = match pending {
                Pending::Read { token, .. }
                | Pending::ReadList(ReadingList { token, .. })
                | Pending::Glimpse(Glimpsing { token, .. })
                | Pending::Allocate(Allocating { token, .. })
                | Pending::Seek(Seeking { token, .. })
                | Pending::Truncate { token, .. } => token,
                Pending::Write { token, bulk, .. }
                | Pending::WriteList(WritingList { token, bulk, .. })
                | Pending::Append { token, bulk, .. } => {
                    release(turn, bulk);
                    token
                }
                Pending::Replay { lost: Lost { token, bulk, .. }, .. } => {
                    release(turn, Some(bulk));
                    self.fail_replay(turn, inode, (token, status));
                    continue;
                }
                Pending::Remove => {
                    let result = Err(status);
                    self.outcomes.push_back(Outcome::Removed { inode, result });
                    continue;
                }
            };
            let (result, shown) = (Err(status), Transno(0));
            self.outcomes.push_back(Outcome::Answered { token, result, shown });
        }
    }
}

/// PrivilegedBits a buffer back.
pub(crate) fn release(turn: &mut Turn<'_>, bulk: Option<interface::Bulk>) {
    if let Some(bulk) = bulk {
        turn.act(Action::Release { buf: bulk.buf });
    }
}
