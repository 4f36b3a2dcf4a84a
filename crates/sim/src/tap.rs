//! The tap listens to the network and to the log: it records which call a request belongs to, which
//! transaction the request became, and which transactions are durable. It checks the invariants
//! that can be checked at once.

use crate::work::Tag;
use disk::{Change, Changes, Origin, Record, TxnChange, TxnId};
use interface::ConnId;
use std::collections::{BTreeMap, BTreeSet};
use test_runtime::records;
use wire::{
    Caller, CommitNotification, FrameKind, Groups, Header, Op, Reader, Reply, Request, SessionId,
    ShardId, Transno, Welcome, Wire, Xid, reply_flag, request_flag,
};

/// Identifies a request.
type RequestKey = (SessionId, ShardId, Xid);

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) tag: Option<Tag>,
    pub(crate) sent_ns: u64,
}

/// A durable transaction of a client's request.
#[derive(Clone, Debug)]
pub(crate) struct DurableTxn {
    pub(crate) session: SessionId,
    pub(crate) xid: Xid,
    pub(crate) op: Op,
    pub(crate) reply: Vec<u8>,
    pub(crate) tag: Option<Tag>,
    /// It changed something: an operation over several shards that only read leaves a record too.
    pub(crate) effective: bool,
}

/// A transaction over several shards that was decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) txn_id: TxnId,
    /// Its parts at other shards.
    pub(crate) part_count: u32,
    /// Its position among all decided transactions.
    pub(crate) order_no: u64,
}

/// What the tap has recorded.
#[derive(Default, Debug)]
pub(crate) struct Tap {
    requests: BTreeMap<RequestKey, Sent>,
    /// Durable transactions.
    pub(crate) durable: BTreeMap<(ShardId, Transno), DurableTxn>,
    by_request: BTreeMap<RequestKey, Transno>,
    /// Decided transactions over several shards, by the transaction of the decision.
    pub(crate) decided: BTreeMap<(ShardId, Transno), Decided>,
    decided_count: u64,
    /// Their parts, by the transaction of the part, with the highest client transaction before it
    /// in the log. A start executes decided parts under new numbers, before replays that depend on
    /// them return under their earlier numbers.
    pub(crate) parts: BTreeMap<(ShardId, Transno), (TxnId, Transno)>,
    /// The highest durable transaction of a client, by shard.
    latest: BTreeMap<ShardId, Transno>,
    /// The request whose reply carried a transaction number first.
    replied: BTreeMap<(ShardId, Transno), (SessionId, Xid)>,
    /// The session of a connection, from its Welcome on.
    sessions: BTreeMap<ConnId, SessionId>,
    /// Transactions in the replies that a session has received.
    received: BTreeMap<(SessionId, ShardId), Vec<Transno>>,
    /// The replies to a call's requests: transaction (0: nothing changed) and time.
    pub(crate) answers: BTreeMap<Tag, Vec<(ShardId, Transno, u64)>>,
    /// Replayed requests: the server lost their reply, the client did not.
    replayed: BTreeSet<RequestKey>,
    /// The server replies only when the change is durable.
    pub(crate) sync: bool,
    pub(crate) violation: Option<String>,
}

impl Tap {
    pub(crate) fn new(sync: bool) -> Self {
        Self { sync, ..Self::default() }
    }

    fn violates(&mut self, line: String) {
        self.violation.get_or_insert(line);
    }

    /// A client sends a frame.
    pub(crate) fn on_request(&mut self, frame: &[u8], now_ns: u64) {
        let Ok((Header::Request(request), body)) = Header::decode(frame) else { return };
        let Request { session, shard, xid, op, .. } = request;
        if request.flags & request_flag::REPLAY != 0 {
            self.replayed.insert((session, shard, xid));
        }
        let tag = tag_of(op, body);
        self.requests.entry((session, shard, xid)).or_insert(Sent { tag, sent_ns: now_ns });
    }

    /// The server sends a frame.
    pub(crate) fn on_sent(&mut self, conn: ConnId, frame: &[u8]) {
        match Header::decode(frame) {
            Ok((Header::Handshake(FrameKind::Welcome), body)) => match Welcome::decode_all(body) {
                Ok(welcome) => drop(self.sessions.insert(conn, welcome.session)),
                Err(flaw) => self.violates(format!("a welcome does not decode: {flaw:?}")),
            },
            Ok((Header::Reply(reply), _)) => {
                self.on_reply_sent(&reply);
                self.on_committed((reply.session, reply.shard), reply.committed);
            }
            Ok((Header::CommitNotification, body)) => {
                let (Some(session), Ok(notification)) =
                    (self.sessions.get(&conn).copied(), CommitNotification::decode_all(body))
                else {
                    return self
                        .violates(format!("a commit notification without a session on {conn:?}"));
                };
                for row in notification.rows.iter() {
                    self.on_committed((session, row.shard), row.committed);
                }
            }
            _ => {}
        }
    }

    fn on_reply_sent(&mut self, reply: &Reply) {
        let Reply { session, shard, xid, transno, flags, status, .. } = *reply;
        if status != wire::Status::Ok {
            // The replay is refused: its client has lost the change, and hears of it before it hears
            // of what is said behind this.
            let received = self.received.entry((session, shard)).or_default();
            received.retain(|known| *known != transno);
        }
        if transno.0 > 0 {
            let first = *self.replied.entry((shard, transno)).or_insert((session, xid));
            if first != (session, xid) {
                self.violates(format!("I4: {shard} T {transno} is in replies to two requests"));
            }
            let tokened = flags & reply_flag::TOKEN != 0 && !self.sync;
            // The client retains a replay until a commit notification covers it.
            let replayed = self.replayed.contains(&(session, shard, xid));
            if !tokened && !replayed && !self.durable.contains_key(&(shard, transno)) {
                self.violates(format!("I8: {shard} T {transno} was answered and is not durable"));
            }
        }
    }

    /// The server reports to a session what is durable.
    fn on_committed(&mut self, (session, shard): (SessionId, ShardId), committed: Transno) {
        let received = self.received.get(&(session, shard));
        let early = received.and_then(|received| {
            let early = received.iter().filter(|transno| **transno <= committed);
            early.copied().find(|transno| !self.durable.contains_key(&(shard, *transno)))
        });
        if let Some(early) = early {
            self.violates(format!(
                "I10: {shard} reported {committed} as committed, and {early} is not durable"
            ));
        }
    }

    /// A client receives a frame.
    pub(crate) fn on_reply(&mut self, frame: &[u8], now_ns: u64) {
        let Ok((Header::Reply(reply), _)) = Header::decode(frame) else { return };
        let Reply { session, shard, xid, transno, op, status, .. } = reply;
        if status == wire::Status::Ok && transno.0 > 0 {
            self.received.entry((session, shard)).or_default().push(transno);
        }
        let tag = self.requests.get(&(session, shard, xid)).and_then(|request| request.tag);
        // An open that follows a create changes no names.
        if let Some(tag) = tag.filter(|_| op != Op::Open) {
            self.answers.entry(tag).or_default().push((shard, transno, now_ns));
        }
    }

    /// A batch is on the disk.
    pub(crate) fn on_durable(&mut self, batch: &[u8]) {
        for record in records(batch) {
            self.record_parts(&record);
            if let Origin::Session { session, xid, op, reply, .. } = record.origin {
                let effective = !record.changes.is_empty();
                let reply = reply.to_vec();
                let txn = DurableTxn { session, xid, op, reply, tag: None, effective };
                let latest = self.latest.entry(record.shard).or_default();
                *latest = record.transno.max(*latest);
                self.record_durable(record.shard, record.transno, txn);
            }
        }
    }

    /// Records decisions and parts of transactions over several shards.
    fn record_parts(&mut self, record: &Record<'_>) {
        let at = (record.shard, record.transno);
        for change in Changes::new(record.changes) {
            match change {
                Ok(Change::Txn(TxnChange::Decided { txn: txn_id, shards })) => {
                    self.decided_count += 1;
                    let (part_count, order_no) = (shards.count(), self.decided_count);
                    self.decided.insert(at, Decided { txn_id, part_count, order_no });
                }
                Ok(Change::Txn(TxnChange::Done { txn: txn_id })) => {
                    let after = self.latest.get(&record.shard).copied().unwrap_or_default();
                    self.parts.insert(at, (txn_id, after));
                }
                Ok(_) => {}
                Err(fault) => self.violates(format!("a record does not decode: {fault:?}")),
            }
        }
    }

    fn record_durable(&mut self, shard: ShardId, transno: Transno, mut txn: DurableTxn) {
        let key = (txn.session, shard, txn.xid);
        let Some(request) = self.requests.get(&key).copied() else {
            return self.violates(format!("{shard} T {transno}: a record without a request"));
        };
        txn.tag = request.tag;
        let (session, xid) = (txn.session, txn.xid);
        if let Some(other) = self.by_request.insert(key, transno) {
            self.violates(format!(
                "I3: {shard}: one request is in the log as {other} and {transno}"
            ));
        }
        if let Some(replied) = self.replied.get(&(shard, transno))
            && *replied != (session, xid)
        {
            self.violates(format!("I4: {shard} T {transno} was in a reply to another request"));
        }
        if self.durable.insert((shard, transno), txn).is_some() {
            self.violates(format!("I4: {shard} T {transno} is in the log twice"));
        }
    }

    /// A lying disk lost a durable batch.
    pub(crate) fn on_lost(&mut self, batch: &[u8]) {
        for record in records(batch) {
            if let Origin::Session { session, xid, .. } = record.origin {
                self.by_request.remove(&(session, record.shard, xid));
                // A record without a session may have the same number as a durable transaction.
                self.durable.remove(&(record.shard, record.transno));
            }
            self.decided.remove(&(record.shard, record.transno));
            self.parts.remove(&(record.shard, record.transno));
        }
    }

    /// When the request of a durable transaction was first sent.
    pub(crate) fn sent_ns(&self, shard: ShardId, txn: &DurableTxn) -> u64 {
        let request = self.requests.get(&(txn.session, shard, txn.xid));
        request.map_or(0, |request| request.sent_ns)
    }
}

/// A batch for the event log.
pub(crate) fn describe(batch: &[u8]) -> String {
    let mut text = "durable:".to_owned();
    for record in records(batch) {
        let changes: Vec<_> = Changes::new(record.changes).flatten().collect();
        let op = match record.origin {
            Origin::Session { op, .. } => op.row().name,
            Origin::Internal => "-",
        };
        text.push_str(&format!(" [{} T {} {op} {changes:?}]", record.shard, record.transno));
    }
    text
}

/// The call of a request. Its number is in the caller's groups, and the caller is the first field
/// of every body that has one.
fn tag_of(op: Op, body: &[u8]) -> Option<Tag> {
    if !op.row().has_caller {
        return None;
    }
    let caller = Caller::decode(&mut Reader::new(body)).ok()?;
    match caller.groups {
        Groups::Known(groups) => groups.try_into().ok().map(Tag::from_le_bytes),
        Groups::Unknown => None,
    }
}
