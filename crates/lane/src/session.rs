//! Sessions and their slots, which tell new requests from resent ones (docs/protocol.md §5).
//!
//! ```text
//! Free ─▶ Running ─▶ Deferred ─▶ Done ─▶ Acknowledged
//!            │                    ▲ │
//!            └────────────────────┘ └─▶ Running, under a higher xid
//! ```

use crate::acknowledgements::BatchNo;
use crate::keys::KeyNo;
use crate::leases::ReplyLease;
use crate::request_header::Target;
use alloc::vec::Vec;
use disk::SessionRow;
use interface::{ConnId, Mono, Party};
use wire::{InodeNo, Op, ProtocolError, SessionId, ShardId, Status, Transno, Xid};

/// Names a session at a shard.
pub(crate) type Key = (ShardId, SessionId);

/// The secret and the export of a session; if they change, it cannot be resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Basis {
    /// The store's secret that the last proven secret is derived from.
    pub(crate) key_no: KeyNo,
    /// The export's number, 0 for none.
    pub(crate) export_no: u64,
    /// The export's root.
    pub(crate) root: InodeNo,
}

impl Basis {
    /// No connection in this boot yet.
    pub(crate) const UNKNOWN: Self =
        Self { key_no: KeyNo::NONE, export_no: 0, root: InodeNo::ROOT };
}

/// The session of a client lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) row: SessionRow,
    /// The party that opened it in this boot.
    pub(crate) party: Party,
    pub(crate) basis: Basis,
    pub(crate) conn: Option<ConnId>,
    /// Of its latest connection; an older one is refused.
    pub(crate) conn_epoch: u32,
    /// It sent a request in this boot, so it received a Welcome and did what that asked for.
    pub(crate) request_seen: bool,
    /// Rises with every connection: orders sessions by their last use.
    pub(crate) opened_no: u64,
    /// When its last connection ended.
    pub(crate) left_at: Mono,
}

/// The outcome of a request, sufficient for replying again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    pub(crate) status: Status,
    pub(crate) transno: Transno,
    pub(crate) body: Vec<u8>,
}

/// The state of a slot's request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Never used.
    Free,
    /// Executing at the data shards, or suspended.
    Running(Target),
    /// Executed; the reply is deferred. With the redo token, if the reply may leave before its own
    /// change is durable.
    Deferred(Target, Done, Vec<u8>),
    /// Answered, or the connection had ended.
    Done(Done),
    /// The client has acknowledged the reply.
    Acknowledged,
}

/// One slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) xid: Xid,
    pub(crate) op: Op,
    pub(crate) state: State,
    /// The batch with its record, 0 without.
    pub(crate) batch_no: BatchNo,
    /// What its deferred reply grants.
    pub(crate) lease: Option<ReplyLease>,
}

/// What to do with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Execute it.
    New,
    /// Drop it: a late duplicate of an acknowledged request, or of one that is running for this
    /// very connection.
    Drop,
    /// Nothing now: it is running, and its reply goes to the new connection.
    Attached,
    /// Answer from the slot.
    Seen,
}

/// A session's slots at one shard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SlotTable {
    slots: Vec<Slot>,
    /// The batch with the record that names this session; 0: of an earlier boot.
    pub(crate) recorded_in: Option<BatchNo>,
    /// Highest transaction of the session known to be durable during recovery.
    pub(crate) committed: Transno,
    /// Highest transaction replayed in this boot.
    replayed_last: Transno,
    /// Highest transaction.
    transno_last: Transno,
    /// Highest transaction whose redo token its client holds.
    token_last: Transno,
    /// The durable transaction number that its client was sent last.
    committed_sent: Transno,
    /// Whether its client has sent Resume in this boot.
    resumed: bool,
    /// Whether it is in the list of sessions that are due a notification.
    notification_due: bool,
}

impl SlotTable {
    /// Whether the log knew the session when this boot began: only then it can have changes to
    /// replay.
    pub(crate) fn is_from_earlier_boot(&self) -> bool {
        self.recorded_in == Some(BatchNo(0))
    }

    /// A change of the session goes into the log's open batch. Returns whether it is the session's
    /// first record since the start.
    pub(crate) fn on_record(&mut self, open_no: BatchNo, transno: Transno) -> bool {
        let is_first = self.recorded_in.is_none();
        self.recorded_in.get_or_insert(open_no);
        self.transno_last = self.transno_last.max(transno);
        is_first
    }

    /// A record of an earlier boot has this transaction.
    pub(crate) fn on_restored(&mut self, transno: Transno) {
        self.committed = self.committed.max(transno);
        self.transno_last = self.committed;
    }

    /// The highest transaction of the session, recorded or replayed.
    pub(crate) const fn transno_last(&self) -> Transno {
        self.transno_last
    }

    /// The client replays this transaction.
    pub(crate) fn on_replay(&mut self, transno: Transno) {
        self.replayed_last = self.replayed_last.max(transno);
    }

    /// The highest transaction replayed in this boot.
    pub(crate) const fn replayed_last(&self) -> Transno {
        self.replayed_last
    }

    /// The client has sent Resume.
    pub(crate) const fn on_resume(&mut self) {
        self.resumed = true;
    }

    /// Whether the log knew the session when this boot began, and its client has not sent Resume
    /// yet: then its claims about earlier boots are evidence.
    pub(crate) fn may_claim(&self) -> bool {
        self.is_from_earlier_boot() && !self.resumed
    }

    /// A reply reported the durable transaction, and may have carried a redo token. Returns whether
    /// a notification has become due.
    pub(crate) fn on_committed_sent(&mut self, committed: Transno, token: Option<Transno>) -> bool {
        self.committed_sent = committed;
        token.is_some_and(|transno| self.owe_notification(transno))
    }

    /// The replayed changes are durable. Returns whether a notification has become due.
    pub(crate) fn on_replays_durable(&mut self) -> bool {
        self.replayed_last.0 > 0 && self.owe_notification(self.replayed_last)
    }

    fn owe_notification(&mut self, transno: Transno) -> bool {
        self.token_last = self.token_last.max(transno);
        !core::mem::replace(&mut self.notification_due, true)
    }

    /// A due notification is sent, if the client has a connection. Returns whether it has news.
    pub(crate) fn notify(&mut self, committed: Transno, has_conn: bool) -> bool {
        let is_news = has_conn && self.committed_sent < self.token_last.min(committed);
        if is_news {
            self.committed_sent = committed;
        }
        self.notification_due = committed < self.token_last;
        is_news
    }

    /// Whether it is in the list of sessions that are due a notification.
    pub(crate) const fn is_notification_due(&self) -> bool {
        self.notification_due
    }

    /// Slot `number`, from 1; made if it was never used.
    pub(crate) fn slot(&mut self, number: u16) -> &mut Slot {
        assert!(number > 0, "slots count from 1");
        let index = usize::from(number) - 1;
        if self.slots.len() <= index {
            let (state, batch_no) = (State::Free, BatchNo(0));
            let free = Slot { xid: Xid(0), op: Op::Ping, state, batch_no, lease: None };
            self.slots.resize(index + 1, free);
        }
        &mut self.slots[index]
    }

    /// Slot `number`, if it was ever used.
    pub(crate) fn at(&self, number: u16) -> Option<&Slot> {
        self.slots.get(usize::from(number).checked_sub(1)?)
    }

    /// Whether the client has received all replies of this session up to a transaction.
    pub(crate) fn is_received_up_to(&self, transno: Transno) -> bool {
        self.slots.iter().all(|slot| match &slot.state {
            State::Done(done) | State::Deferred(_, done, _) => {
                done.transno.0 == 0 || done.transno > transno
            }
            State::Free | State::Running(_) | State::Acknowledged => true,
        })
    }

    /// Judges a request. The client received all replies up to `ack_xid`.
    pub(crate) fn judge(
        &mut self,
        number: u16,
        (xid, op): (Xid, Op),
        target: Target,
    ) -> Result<Verdict, ProtocolError> {
        let slot = self.slot(number);
        if xid < slot.xid {
            return Ok(Verdict::Drop);
        }
        let again = xid == slot.xid;
        if again && op != slot.op {
            return Err(ProtocolError::Sequence);
        }
        match &mut slot.state {
            State::Running(to) | State::Deferred(to, ..) if again => {
                let before = core::mem::replace(to, target);
                if before.conn == target.conn {
                    return Ok(Verdict::Drop);
                }
                // The session has dropped what it was granted over the earlier connection.
                slot.lease = None;
                Ok(Verdict::Attached)
            }
            State::Running(_) | State::Deferred(..) => Err(ProtocolError::Sequence),
            State::Done(_) if again => Ok(Verdict::Seen),
            State::Acknowledged if again => Ok(Verdict::Drop),
            State::Free | State::Done(_) | State::Acknowledged => Ok(Verdict::New),
        }
    }

    /// The client has received the replies up to `ack_xid` and those that `sack` names: their
    /// bodies are no longer needed.
    pub(crate) fn acknowledge(&mut self, ack_xid: Xid, sack: u64) {
        for slot in &mut self.slots {
            let bit = slot.xid.0.checked_sub(ack_xid.0.saturating_add(1));
            let named = bit.is_some_and(|bit| bit < 64 && sack >> bit & 1 == 1);
            let received = slot.xid <= ack_xid || named;
            if received && matches!(slot.state, State::Done(_)) {
                slot.state = State::Acknowledged;
            }
        }
    }

    /// Whether a request is unanswered, or its reply not acknowledged.
    pub(crate) fn owes_answer(&self) -> bool {
        let owes = |slot: &Slot| !matches!(slot.state, State::Free | State::Acknowledged);
        self.slots.iter().any(owes)
    }

    /// Whether a request is running or its reply deferred.
    pub(crate) fn is_busy(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot.state, State::Running(_) | State::Deferred(..)))
    }
}
