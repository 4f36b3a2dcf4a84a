//! `Shards`: the data shards of one lane, as the lane sees them.

use crate::decode::decode;
use crate::fan_out::FanOut;
use crate::fresh::Fresh;
use crate::in_flight::InFlight;
use crate::list::Writing;
use crate::log::logged_bytes;
use crate::object::{LoggedState, Object};
use crate::order::Order;
use crate::recorded::RecordedObject;
use crate::request::{
    Allocating, Glimpsing, QueuedOp, ReadingList, Seeking, Truncating, WritingList, release,
};
use crate::stripes::Stripes;
use crate::sums::Sums;
use crate::{DataConfig, DataRequest, LostWrite, Outcome, Recorded, SumRecording, Token};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use disk::Change;
use disk::rows::ObjectRow;
use hashbrown::HashMap;
use interface::{Mono, Seed, Ticket, Turn};
use wire::{
    ClearPrivileges, ClientUuid, Contents, DecodeError, InodeNo, PrivilegedBits, ProtocolError,
    ShardId, Status, Transno,
};

/// All data shards of one lane.
#[derive(Debug)]
pub struct Shards {
    pub(crate) shape: DataConfig,
    pub(crate) objects: HashMap<InodeNo, Object, Seed>,
    /// The objects in memory in the order of the eviction scan; may name removed ones.
    order: VecDeque<InodeNo>,
    /// Files without an object, of which nothing else is in memory.
    fresh: Fresh,
    pub(crate) in_flight: HashMap<u64, InFlight, Seed>,
    ticket_count: u64,
    /// List writes in progress, by number.
    pub(crate) writing: HashMap<u64, Writing, Seed>,
    pub(crate) list_count: u64,
    pub(crate) logged: HashMap<InodeNo, LoggedState, Seed>,
    /// The checksums of objects.
    pub(crate) sums: HashMap<InodeNo, Sums, Seed>,
    /// The objects of files that have several.
    pub(crate) stripes: HashMap<InodeNo, Stripes, Seed>,
    /// Operations on several objects, by number.
    pub(crate) fan_outs: HashMap<u64, FanOut, Seed>,
    pub(crate) fan_out_count: u64,
    /// Objects with blocks that wait for their checksums, and the time of the next scan.
    pub(crate) awaiting_sums: BTreeSet<InodeNo>,
    pub(crate) close_at: Option<Mono>,
    /// Reported damage, and when.
    pub(crate) reports: BTreeMap<(InodeNo, u64), Mono>,
    /// The privileged bits of files open for writing.
    privileged_bits: HashMap<InodeNo, PrivilegedBits, Seed>,
    /// The order of records, by shard index divided by the lane count.
    orders: Vec<Order>,
    /// The last durable transaction, by the same index.
    durables: Vec<Transno>,
    pub(crate) outcomes: VecDeque<Outcome>,
    /// Bytes for the log that are being loaded, or that wait for their turn among the records.
    pub(crate) held_bytes: u64,
    /// Objects with written bytes that no sync in flight covers.
    pub(crate) dirty: Vec<InodeNo>,
    /// Since when the first of them waits for a sync.
    unsynced_since: Option<Mono>,
    /// One of them may need a sync before its time.
    sync_urgent: bool,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Until then writes may be answered before they are in their objects; one wanted to.
    pub(crate) log_first_until: Mono,
    pub(crate) log_first_wanted: bool,
    pub(crate) log_first_count: u64,
    /// The objects that are still to be written, in the order of their writes.
    pub(crate) log_first: VecDeque<InodeNo>,
    /// When the first of them is to be, if it does not wait for the log.
    pub(crate) log_first_at: Option<Mono>,
    /// Nothing more will be recorded.
    pub(crate) fenced: bool,
}

impl Shards {
    /// The shards of a lane after a start; `recorded` has all of them.
    #[must_use]
    pub fn new(shape: DataConfig, recorded: Vec<Recorded>) -> Self {
        let seed = Seed(shape.seed);
        let mut logged = HashMap::with_hasher(seed);
        let mut sums = HashMap::with_hasher(seed);
        let mut stripes = HashMap::with_hasher(seed);
        let (mut orders, mut durables): (Vec<Order>, Vec<Transno>) = (Vec::new(), Vec::new());
        for shard in recorded {
            let place = shape.map.place(shard.shard());
            let is_own = (place.server, place.lane) == (shape.server, shape.lane);
            assert!(is_own, "a shard of this lane");
            let index = shape.map.index_at_lane(shard.shard());
            if orders.len() <= index {
                orders.resize_with(index + 1, Order::default);
                durables.resize(index + 1, Transno(0));
            }
            orders[index].transno_last = shard.start_transno();
            durables[index] = shard.start_transno();
            for RecordedObject { inode, row, sums: known, stripes: further } in shard.objects() {
                let ObjectRow { size_bytes, write_time_ns, first_sum: _, layout } = row;
                let further = layout.zip(further);
                let known_stripes = further.map(|(layout, further)| Stripes { layout, further });
                stripes.extend(known_stripes.map(|known| (inode, known)));
                logged.insert(inode, LoggedState { size_bytes: Some(size_bytes), write_time_ns });
                sums.extend(known.filter(|known| !known.is_empty()).map(|known| (inode, known)));
            }
        }
        let fresh = Fresh::new(seed, shape.object_count_max);
        Self {
            shape,
            objects: HashMap::with_hasher(seed),
            order: VecDeque::new(),
            fresh,
            in_flight: HashMap::with_hasher(seed),
            ticket_count: 0,
            writing: HashMap::with_hasher(seed),
            list_count: 0,
            logged,
            sums,
            stripes,
            fan_outs: HashMap::with_hasher(seed),
            fan_out_count: 0,
            awaiting_sums: BTreeSet::new(),
            close_at: None,
            reports: BTreeMap::new(),
            privileged_bits: HashMap::with_hasher(seed),
            orders,
            durables,
            outcomes: VecDeque::new(),
            held_bytes: 0,
            dirty: Vec::new(),
            unsynced_since: None,
            sync_urgent: false,
            read_bytes: 0,
            written_bytes: 0,
            log_first_until: Mono(0),
            log_first_wanted: false,
            log_first_count: 0,
            log_first: VecDeque::new(),
            log_first_at: None,
            fenced: false,
        }
    }

    /// Another map, which gives this lane the same shards.
    pub fn set_map(&mut self, map: wire::Map) {
        self.shape.map = map;
    }

    /// Submits a request. Its outcome comes through [`Shards::outcome`], possibly at once.
    ///
    /// # Errors
    /// [`ProtocolError`] when it is not valid for the op: nothing was done, its buffer is released.
    pub fn submit(
        &mut self,
        turn: &mut Turn<'_>,
        request: &DataRequest<'_>,
    ) -> Result<(), ProtocolError> {
        match decode(request, &self.shape) {
            Ok(decoded) if self.loses(decoded.inode, decoded.clears) => {
                let refused = VecDeque::from([decoded.pending]);
                self.fail_all(turn, decoded.inode, refused, Status::NeedClearPrivileges);
                Ok(())
            }
            Ok(decoded) => {
                let recorded = self.stripes.get(&decoded.inode).map(|stripes| stripes.layout);
                let object = self.known_or_new(decoded.inode);
                // What a Widen states holds behind what came before it.
                let stated = request.layout.filter(|_| request.op != wire::Op::Widen);
                object.layout = recorded.or(object.layout).or(stated);
                self.wait(turn, decoded.inode, decoded.pending);
                Ok(())
            }
            Err(error) => {
                release(turn, request.bulk);
                match error {
                    DecodeError::ProtocolError(protocol_error) => Err(protocol_error),
                    DecodeError::Status(status) => {
                        let result = Err(status);
                        let (token, shown) = (request.token, Transno(0));
                        self.outcomes.push_back(Outcome::Answered { token, result, shown });
                        Ok(())
                    }
                }
            }
        }
    }

    /// A file was created with a new inode number: it has no object.
    pub fn made(&mut self, inode: InodeNo) {
        match self.objects.get_mut(&inode) {
            Some(object) => object.made(),
            None => self.fresh.insert(inode),
        }
    }

    /// A file was created at another lane, since that and this one are connected: it has no object,
    /// unless something has happened to it here.
    pub fn made_elsewhere(&mut self, inode: InodeNo) {
        if !self.objects.contains_key(&inode) && !self.logged.contains_key(&inode) {
            self.fresh.insert(inode);
        }
    }

    /// Queries a file's contents for a caller that makes them durable elsewhere; ends in
    /// [`Outcome::Sized`], or in [`Outcome::Answered`] on failure.
    pub fn query_durable_size(&mut self, turn: &mut Turn<'_>, token: Token, inode: InodeNo) {
        let glimpsing = Glimpsing { token, durable: true, alone: false, client: ClientUuid::NONE };
        self.wait(turn, inode, QueuedOp::Glimpse(glimpsing));
    }

    /// Sets the privileged bits of a file open for writing.
    pub fn set_privileged_bits(&mut self, inode: InodeNo, privileged_bits: PrivilegedBits) {
        if privileged_bits == PrivilegedBits::default() {
            self.privileged_bits.remove(&inode);
        } else {
            self.privileged_bits.insert(inode, privileged_bits);
        }
    }

    /// Whether a file has privileged bits that a writer must clear.
    fn loses(&self, inode: InodeNo, clears: ClearPrivileges) -> bool {
        let privileged_bits = self.privileged_bits.get(&inode).copied().unwrap_or_default();
        privileged_bits.cleared_by(clears) != ClearPrivileges::Nothing
    }

    /// Destroys a file's object; ends in [`Outcome::Removed`].
    pub fn remove(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        self.privileged_bits.remove(&inode);
        self.wait(turn, inode, QueuedOp::Remove);
        if let Some(object) = self.objects.get_mut(&inode) {
            object.urgent = true;
            self.sync_urgent = true;
        }
    }

    /// The record of a fencing change of this inode's contents ([`disk::ContentsChange::fences`])
    /// is durable.
    pub fn on_logged(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        if let Some(object) = self.objects.get_mut(&inode) {
            object.fence_count = object.fence_count.saturating_sub(1);
            object.widening &= object.fence_count > 0;
            self.advance(turn, inode);
        }
    }

    /// Nothing more will be recorded: queued changes fail, and only reads are served from here on.
    pub fn fence(&mut self, turn: &mut Turn<'_>) {
        self.fenced = true;
        let mut inodes: Vec<InodeNo> = self.objects.keys().copied().collect();
        inodes.sort_unstable();
        for inode in inodes {
            let Some(object) = self.objects.get_mut(&inode) else { continue };
            object.fence_count = 0;
            let changes = object.take_changes();
            self.stop_widening(inode);
            self.fail_all(turn, inode, changes, Status::Io);
            self.advance(turn, inode);
        }
    }

    /// Begins the syncs of this turn: at most one per written object without a sync in flight. When
    /// one is due, all others are synced with it: many syncs cost hardly more writes of the file
    /// system's log than one. The log may take `log_bytes` of small changes that are waited for, in
    /// place of such syncs.
    pub fn settle(&mut self, turn: &mut Turn<'_>, sum_recording: SumRecording, log_bytes: u64) {
        self.close_quiet(turn, sum_recording);
        self.sync_dirty(turn, log_bytes);
        self.write_log_first(turn);
    }

    fn sync_dirty(&mut self, turn: &mut Turn<'_>, log_bytes: u64) {
        let time_has_come = self.sync_at().is_some_and(|at| at <= turn.now.mono);
        if !core::mem::take(&mut self.sync_urgent) && !time_has_come {
            return;
        }
        let mut dirty = core::mem::take(&mut self.dirty);
        dirty.retain(|inode| {
            let Some(object) = self.objects.get(inode) else { return false };
            if object.sync_running {
                return true;
            }
            if object.log_first.is_some() {
                let is_urgent = object.urgent;
                return !(is_urgent && self.load_log_first(turn, *inode, log_bytes));
            }
            let due = time_has_come
                || object.urgent
                || object.unsynced_bytes >= self.shape.unsynced_bytes_max;
            if due && !(object.urgent && self.load_for_log(turn, *inode, log_bytes)) {
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

    /// Schedules the sync of an object that was written, also during a sync.
    pub(crate) fn waits_for_sync(&mut self, inode: InodeNo) {
        let Some(object) = self.objects.get(&inode) else { return };
        if object.sync_running || object.written.is_empty() {
            return;
        }
        if object.log_first.is_some() {
            // It is not synced before it has ended.
            self.sync_urgent |= object.urgent;
            return;
        }
        let first = self.unsynced_since.unwrap_or(object.unsynced_since);
        self.unsynced_since = Some(first.min(object.unsynced_since));
        self.sync_urgent |= object.urgent || object.unsynced_bytes >= self.shape.unsynced_bytes_max;
    }

    /// The next time at which a sync or a scan for checksums is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.sync_at().into_iter().chain(self.close_at).chain(self.log_first_at).min()
    }

    fn sync_at(&self) -> Option<Mono> {
        self.unsynced_since.map(|since| since.after_ms(self.shape.sync_ms))
    }

    /// Requests durability of everything written to a shard (`None`: to any).
    pub fn request_sync(&mut self, shard: Option<ShardId>) {
        self.sync_urgent |= !self.dirty.is_empty();
        for index in 0..self.dirty.len() {
            let inode = self.dirty[index];
            if shard.is_none_or(|shard| shard == self.shard(inode))
                && let Some(object) = self.objects.get_mut(&inode)
            {
                object.urgent = true;
            }
        }
    }

    /// Records of a shard are durable up to this transaction.
    pub fn on_durable(&mut self, shard: ShardId, transno: Transno) {
        let index = self.shape.map.index_at_lane(shard);
        self.durables[index] = transno;
    }

    /// The last transaction of a shard, recorded or not.
    #[must_use]
    pub fn transno_last(&self, shard: ShardId) -> Transno {
        self.orders[self.shape.map.index_at_lane(shard)].transno_last
    }

    /// Replays a lost write. Ends in [`Outcome::Written`] and [`Outcome::Changed`], or in
    /// [`Outcome::Answered`] on failure.
    pub fn replay(&mut self, turn: &mut Turn<'_>, lost: LostWrite) {
        // Objects are written in any order, but replays are recorded in the order of their
        // requests: the last durable transaction of a session stands for all before it.
        let inode = lost.change.inode();
        let shard = self.shard(inode);
        let place_no = self.order(shard).push(None);
        self.wait(turn, inode, QueuedOp::Replay { lost, place_no });
    }

    /// The contents of a file, if known without a query. With `exact` the allocated bytes are
    /// current, otherwise possibly older.
    #[must_use]
    pub fn known(&self, inode: InodeNo, exact: bool) -> Option<Contents> {
        let Some(object) = self.objects.get(&inode) else {
            return self.fresh.contains(inode).then_some(Contents::EMPTY);
        };
        let fresh = object.allocated_change_no == object.change_no;
        let certain = !object.stat_running && !object.doubtful && !object.lost;
        let stat = object.stat.filter(|_| certain && (fresh || !exact))?;
        Some(object.contents(stat))
    }

    /// Takes the next outcome.
    pub fn outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Whether no action is in flight and nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let idle = self.in_flight.is_empty() && self.dirty.is_empty() && self.outcomes.is_empty();
        idle && self.awaiting_sums.is_empty() && self.log_first.is_empty()
    }

    /// Whether all written bytes are durable and recorded.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        let settled =
            self.objects.values().all(|object| object.written.is_empty() && !object.sync_running);
        let recorded = self.orders.iter().all(Order::is_empty);
        settled && recorded && self.outcomes.is_empty()
    }

    /// The shards, in their order.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        let map = &self.shape.map;
        let all = (0..map.shard_counts().data).map(ShardId::data);
        all.filter(|shard| {
            let place = map.place(*shard);
            (place.server, place.lane) == (self.shape.server, self.shape.lane)
        })
    }

    /// Adds a change of the lane's own to a shard's log, in order.
    pub fn record_for_lane(&mut self, shard: ShardId, change: disk::Change<'static>) {
        let transno = self.next_transno(shard);
        self.order(shard).push(Some(Outcome::Record { shard, transno, change }));
        self.record_next(shard);
    }

    /// Whether all changes of a shard are recorded.
    #[must_use]
    pub fn is_recorded(&self, shard: ShardId) -> bool {
        self.orders[self.shape.map.index_at_lane(shard)].is_empty()
    }

    pub(crate) fn order(&mut self, shard: ShardId) -> &mut Order {
        &mut self.orders[self.shape.map.index_at_lane(shard)]
    }

    pub(crate) fn durable(&self, shard: ShardId) -> Transno {
        self.durables[self.shape.map.index_at_lane(shard)]
    }

    /// The replay of a lost write failed. Its position among the records stays empty, so nothing
    /// behind it is recorded; and until a start at which the replay succeeds, the object cannot be
    /// read.
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

    /// Emits all outcomes that may be recorded.
    pub(crate) fn record_next(&mut self, shard: ShardId) {
        while let Some((mut outcome, change_no)) = self.order(shard).pop() {
            if let Outcome::Changed { change: Change::Contents(change), sums, logged, .. } =
                &mut outcome
            {
                *sums = self.bind(change, change_no);
                self.held_bytes -= logged.as_ref().map_or(0, logged_bytes);
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
        self.shape.map.data_shard(inode, self.part(inode))
    }

    /// The next transaction number of a shard.
    pub(crate) fn next_transno(&mut self, shard: ShardId) -> Transno {
        let transno = &mut self.order(shard).transno_last;
        transno.0 += 1;
        *transno
    }

    /// A ticket for an action.
    pub(crate) fn ticket(&mut self, in_flight: InFlight) -> Ticket {
        self.ticket_count += 1;
        let number = self.shape.ticket_tag | self.ticket_count;
        self.in_flight.insert(number, in_flight);
        Ticket(number)
    }

    pub(crate) fn known_or_new(&mut self, inode: InodeNo) -> &mut Object {
        if !self.objects.contains_key(&inode) {
            self.make_space();
            self.order.push_back(inode);
        }
        let object = self.objects.entry(inode).or_insert_with(|| {
            let write_time_ns = self.logged.get(&inode).map_or(0, |logged| logged.write_time_ns);
            let mut object = Object::new(write_time_ns);
            if self.fresh.remove(inode) {
                object.made();
            }
            object
        });
        object.used = true;
        object
    }

    pub(crate) fn wait(&mut self, turn: &mut Turn<'_>, inode: InodeNo, pending: QueuedOp) {
        let fenced = self.fenced;
        let object = self.known_or_new(inode);
        if object.lost || (fenced && pending.is_change()) {
            return self.fail_all(turn, inode, VecDeque::from([pending]), Status::Io);
        }
        object.queue.push_back(pending);
        self.advance(turn, inode);
    }

    /// Drops objects that were not used lately, so that one more fits. Objects in use may exceed
    /// the limit; the lane's limit on requests bounds them.
    fn make_space(&mut self) {
        const LOOK_COUNT_MAX: usize = 8;
        for _ in 0..LOOK_COUNT_MAX {
            // Removed objects stay in the order until the scan meets them.
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
                    if let Some(logged) = self.logged.get_mut(&inode) {
                        logged.write_time_ns = object.write_time_ns;
                    }
                    self.objects.remove(&inode);
                }
                None => {}
            }
        }
    }

    /// Fails all queued operations of an object.
    pub(crate) fn fail_waiting(&mut self, turn: &mut Turn<'_>, inode: InodeNo, status: Status) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        let waiting = core::mem::take(&mut object.queue);
        self.fail_all(turn, inode, waiting, status);
    }

    pub(crate) fn fail_all(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        all: VecDeque<QueuedOp>,
        status: Status,
    ) {
        for pending in all {
            let token = match pending {
                QueuedOp::Read { token, .. }
                | QueuedOp::ReadList(ReadingList { token, .. })
                | QueuedOp::Glimpse(Glimpsing { token, .. })
                | QueuedOp::Allocate(Allocating { token, .. })
                | QueuedOp::Seek(Seeking { token, .. })
                | QueuedOp::Widen { token, .. }
                | QueuedOp::Truncate(Truncating { token, .. }) => token,
                QueuedOp::Write { token, bulk, .. }
                | QueuedOp::WriteList(WritingList { token, bulk, .. })
                | QueuedOp::Append { token, bulk, .. } => {
                    release(turn, bulk);
                    token
                }
                QueuedOp::Replay { lost: LostWrite { token, bulk, .. }, .. } => {
                    release(turn, Some(bulk));
                    self.fail_replay(turn, inode, (token, status));
                    continue;
                }
                QueuedOp::Remove => {
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
