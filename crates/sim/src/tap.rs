//! The tap on wires and logs: which request belongs to which call, which transaction each came to,
//! and which of them are durable. What it sees go wrong at once, it says at once.

use crate::work::Tag;
use disk::{BATCH_HEADER_BYTES, BatchHeader, Change, Changes, Origin, Record, TxnChange, TxnId};
use interface::ConnId;
use std::collections::{BTreeMap, BTreeSet};
use wire::{
    Caller, CommitNotification, FrameKind, Groups, Header, Op, Reader, Reply, Request, SessionId,
    ShardId, Transno, Welcome, Wire, Xid, reply_flag, request_flag,
};

/// A request's name on the wire.
type RequestKey = (SessionId, ShardId, Xid);

/// What is known of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) tag: Option<Tag>,
    pub(crate) sent_ns: u64,
}

/// A durable transaction that a client asked for.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) session: SessionId,
    pub(crate) xid: Xid,
    pub(crate) op: Op,
    pub(crate) reply: Vec<u8>,
    pub(crate) tag: Option<Tag>,
    /// It changed something: what was only looked up over several shards leaves a record too.
    pub(crate) effective: bool,
}

/// A change over several shards that was decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) txn: TxnId,
    /// Its parts at other shards.
    pub(crate) part_count: u32,
    /// The how manyth it was.
    pub(crate) order_no: u64,
}

/// The tap.
#[derive(Default, Debug)]
pub(crate) struct Tap {
    requests: BTreeMap<RequestKey, Sent>,
    /// Durable, by shard and transaction.
    pub(crate) kept: BTreeMap<(ShardId, Transno), Kept>,
    by_request: BTreeMap<RequestKey, Transno>,
    /// Changes over several shards, by where each was decided.
    pub(crate) decided: BTreeMap<(ShardId, Transno), Decided>,
    decided_count: u64,
    /// Their parts, by the shard and transaction that made them, with the highest transaction of a
    /// client that stands before in the log. A start makes the parts that it finds decided under
    /// new numbers, before what builds on them comes back under its old ones.
    pub(crate) parts: BTreeMap<(ShardId, Transno), (TxnId, Transno)>,
    /// The highest durable transaction of a client, by shard.
    latest: BTreeMap<ShardId, Transno>,
    /// Who was ever told a transaction number.
    told: BTreeMap<(ShardId, Transno), (SessionId, Xid)>,
    /// Whose a connection is, once it was welcomed.
    sessions: BTreeMap<ConnId, SessionId>,
    /// What a session has received.
    received: BTreeMap<(SessionId, ShardId), Vec<Transno>>,
    /// What the replies to a call's requests said: transaction (0: nothing changed) and when.
    pub(crate) answers: BTreeMap<Tag, Vec<(ShardId, Transno, u64)>>,
    /// Requests whose reply was lost with the server's memory, not with the client's.
    replayed: BTreeSet<RequestKey>,
    /// Nothing is answered before it is durable.
    pub(crate) sync: bool,
    pub(crate) broken: Option<String>,
}

impl Tap {
    pub(crate) fn new(sync: bool) -> Self {
        Self { sync, ..Self::default() }
    }

    fn breaks(&mut self, line: String) {
        self.broken.get_or_insert(line);
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
                Err(flaw) => self.breaks(format!("a welcome makes no sense: {flaw:?}")),
            },
            Ok((Header::Reply(reply), _)) => {
                self.on_reply_sent(&reply);
                self.on_told((reply.session, reply.shard), reply.committed);
            }
            Ok((Header::CommitNotification, body)) => {
                let (Some(session), Ok(note)) =
                    (self.sessions.get(&conn).copied(), CommitNotification::decode_all(body))
                else {
                    return self.breaks(format!("a note to nobody on {conn:?}"));
                };
                for row in note.rows.iter() {
                    self.on_told((session, row.shard), row.committed);
                }
            }
            _ => {}
        }
    }

    fn on_reply_sent(&mut self, reply: &Reply) {
        let Reply { session, shard, xid, transno, flags, .. } = *reply;
        if transno.0 > 0 {
            let first = *self.told.entry((shard, transno)).or_insert((session, xid));
            if first != (session, xid) {
                self.breaks(format!("I4: {shard} T {transno} was given to two requests"));
            }
            let tokened = flags & reply_flag::TOKEN != 0 && !self.sync;
            // The client keeps a replay until it hears that it is durable.
            let replayed = self.replayed.contains(&(session, shard, xid));
            if !tokened && !replayed && !self.kept.contains_key(&(shard, transno)) {
                self.breaks(format!("I8: {shard} T {transno} was answered and is not durable"));
            }
        }
    }

    /// A session is told what is durable.
    fn on_told(&mut self, (session, shard): (SessionId, ShardId), committed: Transno) {
        let received = self.received.get(&(session, shard));
        let early = received.and_then(|received| {
            let told = received.iter().filter(|told| **told <= committed);
            told.copied().find(|told| !self.kept.contains_key(&(shard, *told)))
        });
        if let Some(early) = early {
            self.breaks(format!(
                "I10: {shard} said {committed} is committed, and {early} is not durable"
            ));
        }
    }

    /// A client takes a frame in.
    pub(crate) fn on_reply(&mut self, frame: &[u8], now_ns: u64) {
        let Ok((Header::Reply(reply), _)) = Header::decode(frame) else { return };
        let Reply { session, shard, xid, transno, op, status, .. } = reply;
        if status != wire::Status::Ok {
            // A replay that was refused: its client has lost it, and says so.
            let received = self.received.entry((session, shard)).or_default();
            received.retain(|known| *known != transno);
        } else if transno.0 > 0 {
            self.received.entry((session, shard)).or_default().push(transno);
        }
        let tag = self.requests.get(&(session, shard, xid)).and_then(|request| request.tag);
        // An open that follows a create changes no names.
        if let Some(tag) = tag.filter(|_| op != Op::Open) {
            self.answers.entry(tag).or_default().push((shard, transno, now_ns));
        }
    }

    /// A batch is on the medium.
    pub(crate) fn on_durable(&mut self, batch: &[u8]) {
        for record in records(batch) {
            self.keep_parts(&record);
            if let Origin::Session { session, xid, op, reply, .. } = record.origin {
                let effective = !record.changes.is_empty();
                let reply = reply.to_vec();
                let kept = Kept { session, xid, op, reply, tag: None, effective };
                let latest = self.latest.entry(record.shard).or_default();
                *latest = record.transno.max(*latest);
                self.keep(record.shard, record.transno, kept);
            }
        }
    }

    /// What a record says of changes over several shards.
    fn keep_parts(&mut self, record: &Record<'_>) {
        let at = (record.shard, record.transno);
        for change in Changes::new(record.changes) {
            match change {
                Ok(Change::Txn(TxnChange::Decided { txn, shards })) => {
                    self.decided_count += 1;
                    let (part_count, order_no) = (shards.count(), self.decided_count);
                    self.decided.insert(at, Decided { txn, part_count, order_no });
                }
                Ok(Change::Txn(TxnChange::Done { txn })) => {
                    let after = self.latest.get(&record.shard).copied().unwrap_or_default();
                    self.parts.insert(at, (txn, after));
                }
                Ok(_) => {}
                Err(fault) => self.breaks(format!("a record makes no sense: {fault:?}")),
            }
        }
    }

    fn keep(&mut self, shard: ShardId, transno: Transno, mut kept: Kept) {
        let key = (kept.session, shard, kept.xid);
        let Some(request) = self.requests.get(&key).copied() else {
            return self.breaks(format!("{shard} T {transno}: a record nobody asked for"));
        };
        kept.tag = request.tag;
        let (session, xid) = (kept.session, kept.xid);
        if let Some(other) = self.by_request.insert(key, transno) {
            self.breaks(format!("I3: {shard}: one request is in the log as {other} and {transno}"));
        }
        if let Some(told) = self.told.get(&(shard, transno))
            && *told != (session, xid)
        {
            self.breaks(format!("I4: {shard} T {transno} was told to another request"));
        }
        if self.kept.insert((shard, transno), kept).is_some() {
            self.breaks(format!("I4: {shard} T {transno} is in the log twice"));
        }
    }

    /// A batch that was called durable is gone: a lying disk.
    pub(crate) fn on_lost(&mut self, batch: &[u8]) {
        for record in records(batch) {
            if let Origin::Session { session, xid, .. } = record.origin {
                self.by_request.remove(&(session, record.shard, xid));
                // What nobody asked for may have the number of what is kept.
                self.kept.remove(&(record.shard, record.transno));
            }
            self.decided.remove(&(record.shard, record.transno));
            self.parts.remove(&(record.shard, record.transno));
        }
    }

    /// When a durable transaction's request was first sent.
    pub(crate) fn sent_ns(&self, shard: ShardId, kept: &Kept) -> u64 {
        let request = self.requests.get(&(kept.session, shard, kept.xid));
        request.map_or(0, |request| request.sent_ns)
    }
}

/// The records of a batch.
pub(crate) fn records(batch: &[u8]) -> Vec<Record<'_>> {
    let mut records = Vec::new();
    let Some(head) = BatchHeader::decode(batch) else { return records };
    let mut rest = batch.get(BATCH_HEADER_BYTES..).unwrap_or_default();
    for _ in 0..head.record_count {
        let Ok((record, left)) = Record::decode(rest) else { break };
        records.push(record);
        rest = left;
    }
    records
}

/// A batch in words.
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

/// The call that a request belongs to: it stands in the caller's groups, and the caller first in
/// the body of every op that has one.
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
