//! Restoring at a start: redoes the records of all earlier boots, in order, into shards and slots,
//! and then distributes the shards over the present lanes.

mod rows;

use crate::acknowledgements::BatchNo;
use crate::session::{Basis, Done, Session, SlotTable, State};
use crate::txns::{InDoubt, Kept, Resolved};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use data::Recorded;
use disk::{
    Change, Changes, ClientChange, Creation, ExportChange, Fault, Origin, Record, SessionRow,
    ShardPosition, TxnId,
};
use interface::{Mono, Party};
use wire::{
    ClientUuid, LaneId, Map, Op, ServerId, SessionId, ShardCounts, ShardId, Status, Term, Transno,
    Wire, Xid,
};

/// The state that is being restored.
#[derive(Debug)]
pub struct Restore {
    shards: ShardCounts,
    /// The memory of names has a limit.
    is_bounded: bool,
    metas: Vec<meta::Shard>,
    datas: Vec<Recorded>,
    positions: BTreeMap<ShardId, ShardPosition>,
    sessions: BTreeMap<SessionId, Session>,
    slots: BTreeMap<(ShardId, SessionId), SlotTable>,
    evicted: BTreeMap<ClientUuid, u64>,
    /// The last boot that evicted a client that is not remembered.
    evicted_last: u64,
    evicted_count_max: usize,
    /// By shard, the last transaction when a recovery last completed.
    recovered: BTreeMap<ShardId, Transno>,
    failed: BTreeSet<ClientUuid>,
    /// The exports, by name, as they were encoded.
    exports: BTreeMap<Vec<u8>, Vec<u8>>,
    record_count: u64,
    in_doubt: InDoubt,
}

/// The restored state of one lane.
#[derive(Debug)]
pub struct Restored {
    pub(crate) lane: LaneId,
    pub(crate) metas: Vec<meta::Shard>,
    pub(crate) datas: Vec<Recorded>,
    /// The ends of the shards' logs.
    pub(crate) positions: Vec<(ShardId, ShardPosition)>,
    pub(crate) sessions: Vec<(SessionId, Session)>,
    pub(crate) slots: Vec<((ShardId, SessionId), SlotTable)>,
    /// Sessions of evicted clients.
    pub(crate) evicted_sessions: Vec<(ShardId, SessionId)>,
    /// The evicted clients.
    pub(crate) evicted: BTreeSet<ClientUuid>,
    /// Up to which boot clients were evicted that are not remembered.
    pub(crate) evicted_last: u64,
    /// Evictions to forget, with their boots. Lane 0 records that.
    pub(crate) over: Vec<(ClientUuid, u64)>,
    /// By shard, the last transaction when a recovery last completed.
    pub(crate) recovered: BTreeMap<ShardId, Transno>,
    pub(crate) failed: BTreeSet<ClientUuid>,
    /// The exports recorded in the store, each as it was encoded.
    pub(crate) exports: Vec<Vec<u8>>,
    /// The outcomes of interrupted cross-shard transactions: to be recorded.
    pub(crate) resolved: Vec<Resolved>,
    /// What is prepared for coordinators of other servers.
    pub(crate) parts: Vec<Kept>,
    /// Decided cross-shard transactions that are not forgotten.
    pub(crate) decided: BTreeMap<TxnId, BTreeSet<ShardId>>,
}

impl Restored {
    /// The names of the exports recorded in the store.
    #[must_use]
    pub fn export_names(&self) -> Vec<alloc::string::String> {
        let exports = self.exports.iter().filter_map(|bytes| wire::Export::decode_all(bytes).ok());
        let named = exports.filter_map(|export| core::str::from_utf8(export.name.0).ok());
        named.map(Into::into).collect()
    }
}

impl Restore {
    /// Evicted clients remembered after a start, by default.
    const EVICTED_COUNT_MAX: usize = 4096;
    /// Highest slot number a record may name.
    const SLOT_COUNT_MAX: u16 = 64;

    /// A new store without records.
    #[must_use]
    pub fn new(shards: ShardCounts, made: Creation) -> Self {
        let metas = (0..shards.meta).map(ShardId::meta);
        let datas = (0..shards.data).map(ShardId::data);
        Self {
            shards,
            is_bounded: false,
            metas: metas.map(|shard| meta::Shard::new(shard, made)).collect(),
            datas: datas.map(Recorded::new).collect(),
            positions: BTreeMap::new(),
            sessions: BTreeMap::new(),
            slots: BTreeMap::new(),
            evicted: BTreeMap::new(),
            evicted_last: 0,
            evicted_count_max: Self::EVICTED_COUNT_MAX,
            recovered: BTreeMap::new(),
            failed: BTreeSet::new(),
            exports: BTreeMap::new(),
            record_count: 0,
            in_doubt: InDoubt::default(),
        }
    }

    /// Limits the memory of names to about this many bytes, in all shards together; before the first
    /// row is loaded.
    pub fn bound(&mut self, bytes_max: u64) {
        self.is_bounded = true;
        let shard_count = u64::from(self.shards.meta).max(1);
        self.metas.iter_mut().for_each(|meta| meta.bound(bytes_max / shard_count));
    }

    /// Hashes names by a secret, before the first is loaded: clients choose names, and must not be
    /// able to choose ones that collide.
    pub fn hash_names_by(&mut self, key: u64) {
        self.metas.iter_mut().for_each(|meta| meta.hash_names_by(key));
    }

    /// Limits the number of remembered evictions.
    pub const fn remember_evicted(&mut self, count_max: usize) {
        self.evicted_count_max = count_max;
    }

    /// Redoes a record. They must come boot by boot, and within a lane's log in order.
    fn feed(&mut self, record: &Record<'_>) -> Result<(), Fault> {
        let shard = record.shard;
        if !self.shards.has(shard) {
            return Err(Fault::new("a record of a shard the store does not have", 0)
                .numbers(0_u64, shard.0));
        }
        let position = self.positions.entry(shard).or_default();
        if !position.is_next(record)? {
            return Ok(()); // What it did is there already.
        }
        *position = record.position();
        let index = usize::from(shard.index());
        if shard.is_data() {
            self.datas[index].replay(record.transno, record.changes)?;
        } else {
            self.metas[index].replay(record.transno, record.changes)?;
            self.in_doubt.feed(record)?;
        }
        self.record_count += 1;
        self.remember(record)
    }

    /// Restores the reply into its slot.
    fn remember(&mut self, record: &Record<'_>) -> Result<(), Fault> {
        let Origin::Session { session, slot, xid, op, status, reply, opened } = record.origin
        else {
            return self.remember_own(record);
        };
        if slot == 0 || slot > Self::SLOT_COUNT_MAX {
            return Err(
                Fault::new("a record of an impossible slot", 0).numbers(Self::SLOT_COUNT_MAX, slot)
            );
        }
        if let Some(row) = opened {
            self.add_session(session, row, record.shard);
        }
        let known = self.slots.get(&(record.shard, session));
        if known.is_none_or(|table| table.recorded_in.is_none()) {
            return Err(Fault::new("a record of a session that was never opened", 0));
        }
        let replied = Replied { slot, xid, op, status, transno: record.transno };
        self.add_slot((record.shard, session), &replied, reply);
        Ok(())
    }

    /// Applies a lane's own record about clients and exports.
    fn remember_own(&mut self, record: &Record<'_>) -> Result<(), Fault> {
        for change in Changes::new(record.changes) {
            let change = change?;
            if let Change::Export(change) = change {
                self.remember_export(&change);
            }
            let Change::Client(change) = change else { continue };
            match change {
                ClientChange::SessionOpened { session, row } => {
                    self.add_session(session, row, record.shard);
                }
                ClientChange::SessionRemoved { session } => {
                    self.slots.remove(&(record.shard, session));
                }
                ClientChange::SessionAway { session } => {
                    if let Some(table) = self.slots.get_mut(&(record.shard, session)) {
                        table.recorded_in = None;
                    }
                }
                ClientChange::Evicted { client, boot_id } => self.add_evicted(client, boot_id),
                ClientChange::EvictionOver { client, boot_id } => {
                    self.evicted.remove(&client);
                    self.evicted_last = self.evicted_last.max(boot_id);
                }
                ClientChange::VbrFailed { client } => {
                    self.failed.insert(client);
                }
                ClientChange::Recovered => {
                    self.recovered.insert(record.shard, record.transno);
                }
            }
        }
        Ok(())
    }

    fn remember_export(&mut self, change: &ExportChange<'_>) {
        match change {
            ExportChange::Put(export) => {
                self.exports.insert(export.name.0.to_vec(), export.to_bytes());
            }
            ExportChange::Removed { name } => {
                self.exports.remove(name.0);
            }
        }
    }

    /// A session is known at a shard: recovery waits for it.
    fn add_session(&mut self, session: SessionId, row: SessionRow, shard: ShardId) {
        let known = self.sessions.entry(session).or_insert(Session {
            row,
            party: Party::NONE,
            basis: Basis::UNKNOWN,
            conn: None,
            conn_epoch: 0,
            request_seen: false,
            opened_no: 0,
            left_at: Mono(0),
        });
        known.row = row;
        self.slots.entry((shard, session)).or_default().recorded_in = Some(BatchNo(0));
    }

    /// The last reply of a slot, unless a later one is known.
    fn add_slot(&mut self, at: (ShardId, SessionId), replied: &Replied, reply: &[u8]) {
        if let Some(known) = self.sessions.get_mut(&at.1) {
            known.opened_no = self.record_count;
        }
        let table = self.slots.entry(at).or_default();
        let Replied { slot, xid, op, status, transno } = *replied;
        table.on_restored(transno);
        let place = table.slot(slot);
        if xid > place.xid {
            place.xid = xid;
            place.op = op;
            place.state = State::Done(Done { status, transno, body: reply.to_vec() });
        }
    }

    /// Adds an evicted client.
    fn add_evicted(&mut self, client: ClientUuid, boot_id: u64) {
        self.evicted.insert(client, boot_id);
        self.failed.remove(&client);
    }

    /// Removes the evictions to forget: the oldest ones, of clients without sessions.
    fn forget_evicted(&mut self) -> Vec<(ClientUuid, u64)> {
        let left: BTreeSet<ClientUuid> = self
            .slots
            .keys()
            .filter_map(|(_, id)| self.sessions.get(id).map(|session| session.row.client))
            .collect();
        let mut over: Vec<(ClientUuid, u64)> = self
            .evicted
            .iter()
            .filter(|(client, _)| !left.contains(*client))
            .map(|(client, boot_id)| (*client, *boot_id))
            .collect();
        over.sort_unstable_by_key(|(client, boot_id)| (*boot_id, *client));
        over.truncate(self.evicted.len().saturating_sub(self.evicted_count_max));
        for (client, boot_id) in &over {
            self.evicted.remove(client);
            self.evicted_last = self.evicted_last.max(*boot_id);
        }
        over
    }

    /// Begins boot `boot_id` of the only server with `lane_count` lanes: returns the state of each,
    /// in order.
    #[must_use]
    pub fn into_lanes(self, lane_count: u16, boot_id: u64) -> Vec<Restored> {
        assert!(lane_count > 0, "a server has a lane");
        let map = Map::single_server(lane_count, self.shards, Term::of_boot(boot_id));
        self.into_lanes_of(&map, ServerId::FIRST)
    }

    /// Begins the start of a server that a map describes: returns the state of each of its lanes,
    /// in order, with the shards that the map gives to it.
    #[must_use]
    pub fn into_lanes_of(mut self, map: &Map, server: ServerId) -> Vec<Restored> {
        let lane_count = map.lane_count(server).unwrap_or(0);
        assert!(lane_count > 0, "the map has the server");
        let over = self.forget_evicted();
        let evicted: BTreeSet<ClientUuid> = self.evicted.keys().copied().collect();
        let is_own = |shard: ShardId| map.place(shard).server == server;
        let mut lanes: Vec<Restored> = (0..lane_count)
            .map(|lane| Restored {
                lane: LaneId(lane),
                metas: Vec::new(),
                datas: Vec::new(),
                positions: Vec::new(),
                sessions: Vec::new(),
                slots: Vec::new(),
                evicted_sessions: Vec::new(),
                evicted: evicted.clone(),
                evicted_last: self.evicted_last,
                recovered: self.recovered.clone(),
                over: if lane == 0 { over.clone() } else { Vec::new() },
                failed: self.failed.clone(),
                exports: self.exports.values().cloned().collect(),
                resolved: Vec::new(),
                parts: Vec::new(),
                decided: BTreeMap::new(),
            })
            .collect();
        let place = |shard: ShardId| usize::from(map.lane(shard).0);
        let mut metas = self.metas;
        if map.generation() > 0 {
            metas.iter_mut().for_each(|shard| shard.use_generation(map.generation()));
        }
        metas.iter_mut().for_each(|shard| shard.start_term(map.place(shard.id()).term));
        let (resolved, kept, decided) = self.in_doubt.resolve(&mut metas, is_own);
        kept.into_iter().for_each(|kept| lanes[place(kept.shard)].parts.push(kept));
        for resolved in resolved {
            lanes[place(resolved.shard)].resolved.push(resolved);
        }
        for (txn, shards) in decided {
            lanes[place(txn.coordinator)].decided.insert(txn, shards);
        }
        for shard in metas.into_iter().filter(|shard| is_own(shard.id())) {
            lanes[place(shard.id())].metas.push(shard);
        }
        for mut shard in self.datas.into_iter().filter(|shard| is_own(shard.shard())) {
            shard.start_term(map.place(shard.shard()).term);
            lanes[place(shard.shard())].datas.push(shard);
        }
        for (shard, position) in self.positions {
            if !is_own(shard) {
                // Each store is made with the root directory.
                assert!(position.lsn == 0, "a store has records of its server's shards only");
                continue;
            }
            assert!(position.term < map.place(shard).term, "each start begins a later term");
            lanes[place(shard)].positions.push((shard, position));
        }
        for ((shard, id), table) in self.slots {
            let lane = &mut lanes[place(shard)];
            let session = self.sessions.get(&id);
            let Some(session) = session else { continue };
            if self.evicted.contains_key(&session.row.client) {
                lane.evicted_sessions.push((shard, id));
            } else {
                lane.sessions.push((id, *session));
                lane.slots.push(((shard, id), table));
            }
        }
        lanes
    }
}

/// The reply of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Replied {
    /// Its number, from 1.
    slot: u16,
    /// The request.
    xid: Xid,
    /// Its op.
    op: Op,
    /// The reply's status.
    status: Status,
    /// Its transaction.
    transno: Transno,
}
