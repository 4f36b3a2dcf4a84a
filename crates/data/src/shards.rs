//! `Shards`: the data shards of one lane, as the lane sees them.

use crate::hash::Seed;
use crate::object::Object;
use crate::recorded::Recorded;
use crate::request::{Pending, decode};
use crate::work::Job;
use crate::{Ask, Outcome};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use door::{Action, Ticket, Turn};
use hashbrown::HashMap;
use wire::{Breach, Flaw, InodeNo, LaneId, Map, ShardId, Status, Transno};

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
}

/// What is known of an object's size before the world is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proven {
    /// The log of earlier boots says so; the object was not looked at yet.
    Log(u64),
    /// The object was looked at in this boot: what it has is right.
    Object,
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
    pub(crate) proven: HashMap<InodeNo, Proven, Seed>,
    /// Last transaction, by shard index divided by the lane count.
    transnos: Vec<Transno>,
    pub(crate) outcomes: VecDeque<Outcome>,
    /// Objects with something written and no sync in flight.
    pub(crate) dirty: Vec<InodeNo>,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

impl Shards {
    /// The shards of a lane after a start; `recorded` are all of the lane's shards.
    #[must_use]
    pub fn new(shape: Shape, recorded: Vec<Recorded>) -> Self {
        let seed = Seed(shape.seed);
        let mut proven = HashMap::with_hasher(seed);
        let mut transnos = Vec::new();
        for shard in recorded {
            assert!(shape.map.lane(shard.shard()) == shape.lane, "a shard of this lane");
            let index = usize::from(shard.shard().index() / shape.map.lane_count);
            if transnos.len() <= index {
                transnos.resize(index + 1, Transno(0));
            }
            transnos[index] = shard.boot_transno();
            proven.extend(shard.sizes().map(|(inode, size)| (inode, Proven::Log(size))));
        }
        Self {
            shape,
            objects: HashMap::with_hasher(seed),
            order: VecDeque::new(),
            jobs: HashMap::with_hasher(seed),
            ticket_count: 0,
            proven,
            transnos,
            outcomes: VecDeque::new(),
            dirty: Vec::new(),
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    /// Takes a request. Its outcome comes through [`Shards::outcome`], perhaps at once.
    ///
    /// # Errors
    /// [`Breach`] when it is not what the op has: nothing was done, its buffer is released.
    pub fn ask(&mut self, turn: &mut Turn<'_>, ask: &Ask<'_>) -> Result<(), Breach> {
        match decode(ask, &self.shape.map) {
            Ok(decoded) => {
                self.wait(turn, decoded.inode, decoded.pending);
                Ok(())
            }
            Err(flaw) => {
                release(turn, ask.bulk);
                match flaw {
                    Flaw::Breach(breach) => Err(breach),
                    Flaw::Status(status) => {
                        let result = Err(status);
                        self.outcomes.push_back(Outcome::Answered { token: ask.token, result });
                        Ok(())
                    }
                }
            }
        }
    }

    /// Destroys a file's object; ends in [`Outcome::Removed`].
    pub fn remove(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        self.wait(turn, inode, Pending::Remove);
    }

    /// A change of this inode's size that was handed out ([`disk::Change::Truncate`]) has a durable
    /// record.
    pub fn on_logged(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        if let Some(object) = self.objects.get_mut(&inode) {
            object.fence_count = object.fence_count.saturating_sub(1);
            self.advance(turn, inode);
        }
    }

    /// Begins the syncs of this turn: one per object that was written and has none in flight.
    pub fn settle(&mut self, turn: &mut Turn<'_>) {
        let mut dirty = core::mem::take(&mut self.dirty);
        for inode in dirty.drain(..) {
            self.sync(turn, inode);
        }
        self.dirty = dirty;
    }

    /// The next thing for the lane to do.
    pub fn outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Whether no action is in flight and nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.dirty.is_empty() && self.outcomes.is_empty()
    }

    /// Whether nothing of what was written waits for being durable or being recorded.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        let settled =
            self.objects.values().all(|object| object.written.is_empty() && !object.sync_running);
        settled && self.outcomes.is_empty()
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
        self.outcomes.push_back(Outcome::Noted { shard, transno, change });
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
        let transno = &mut self.transnos[usize::from(shard.index() / self.shape.map.lane_count)];
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

    fn wait(&mut self, turn: &mut Turn<'_>, inode: InodeNo, pending: Pending) {
        let shard_index = self.shard(inode).index();
        if !self.objects.contains_key(&inode) {
            self.make_room();
            self.order.push_back(inode);
        }
        let object = self.objects.entry(inode).or_insert_with(|| Object::new(shard_index, inode));
        object.used = true;
        object.queue.push_back(pending);
        self.advance(turn, inode);
    }

    /// Forgets objects nobody used lately, so that one more fits. Objects in use may exceed the
    /// limit; the lane's limit on requests bounds them.
    fn make_room(&mut self) {
        const LOOK_COUNT_MAX: usize = 8;
        for _ in 0..LOOK_COUNT_MAX {
            // Names of objects that are gone stay in the order until they are met here.
            if self.order.len() < self.shape.object_count_max {
                return;
            }
            let Some(inode) = self.order.pop_front() else { return };
            match self.objects.get_mut(&inode) {
                Some(object) if object.used || !object.is_idle() => {
                    object.used = false;
                    self.order.push_back(inode);
                }
                Some(_) => {
                    self.objects.remove(&inode);
                }
                None => {}
            }
        }
    }

    /// Answers everything that waits at an object.
    pub(crate) fn fail_waiting(&mut self, turn: &mut Turn<'_>, inode: InodeNo, status: Status) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        for pending in object.queue.drain(..) {
            let token = match pending {
                Pending::Read { token, .. }
                | Pending::Glimpse { token }
                | Pending::Truncate { token, .. } => token,
                Pending::Write { token, bulk, .. } | Pending::Append { token, bulk } => {
                    release(turn, bulk);
                    token
                }
                Pending::Remove => {
                    let result = Err(status);
                    self.outcomes.push_back(Outcome::Removed { inode, result });
                    continue;
                }
            };
            self.outcomes.push_back(Outcome::Answered { token, result: Err(status) });
        }
    }
}

/// Gives a buffer back.
pub(crate) fn release(turn: &mut Turn<'_>, bulk: Option<door::Bulk>) {
    if let Some(bulk) = bulk {
        turn.act(Action::Release { buf: bulk.buf });
    }
}
