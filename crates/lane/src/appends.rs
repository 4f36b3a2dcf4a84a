//! Appends to files over several data shards (docs/protocol.md R13.36).
//!
//! ```text
//! home shard:  Reserve ─▶ held by the session ─ looks at all parts ─▶ the end
//!              Reserve, ends; or the session is no more ─▶ EndAppend to the parts
//! a part:      LookAtPart, for an append ─▶ closed for the session: only its appends move the end
//! ```
//! Invariants: one session holds the end of a file, and a truncation of it does not begin meanwhile;
//! a part executes no append of a session that it is not closed for. So what a session that was
//! taken for dead still sends does nothing.

use crate::Lane;
use crate::peers::message::PeerBody;
use crate::request::{Asked, ReceivedRequest};
use crate::response::Response;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use interface::{Mono, Turn};
use wire::{
    Allocate, ClientUuid, HEADER_BYTES, InodeNo, Layout, Op, PeerLane, Reserve, Rule, SessionId,
    Status, Truncate, Wire as _, Write, WriteList,
};

/// A session that was refused is the next one for so long.
const NEXT_MS: u64 = 100;
/// Sessions that were in the middle of an append return within this time after a recovery.
const RETURN_MS: u64 = 2_000;
/// Files whose last append is remembered.
const LAST_COUNT_MAX: usize = 4096;

/// Who may append to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    session: SessionId,
    client: ClientUuid,
    layout: Layout,
}

/// A part of a file whose end only appends of one session move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Closed {
    session: SessionId,
    /// The lane that looked at it.
    by: PeerLane,
}

/// The appends of a lane.
#[derive(Default, Debug)]
pub(crate) struct Appends {
    held: BTreeMap<InodeNo, Held>,
    /// Who was refused, and asks again until then.
    next: BTreeMap<InodeNo, (SessionId, Mono)>,
    /// Who has appended last: its bytes that may be lost do not delay its own next append.
    last: BTreeMap<InodeNo, SessionId>,
    closed: BTreeMap<InodeNo, Closed>,
    /// Until then no new append begins.
    returning_until: Option<Mono>,
}

impl Appends {
    /// The lane has recovered: appends that it does not know may be half written.
    pub(crate) fn recovered(&mut self, now: Mono) {
        self.returning_until = Some(now.after_ms(RETURN_MS));
    }

    fn is_returning(&mut self, now: Mono) -> bool {
        self.returning_until = self.returning_until.filter(|until| *until > now);
        self.returning_until.is_some()
    }

    /// The part is looked at for an append.
    pub(crate) fn close(&mut self, inode: InodeNo, session: SessionId, by: PeerLane) {
        self.closed.insert(inode, Closed { session, by });
    }

    /// The append has ended.
    pub(crate) fn open(&mut self, inode: InodeNo, session: SessionId) {
        if self.closed.get(&inode).is_some_and(|closed| closed.session == session) {
            self.closed.remove(&inode);
        }
    }

    /// The part is cut.
    pub(crate) fn forget(&mut self, inode: InodeNo) {
        self.closed.remove(&inode);
    }

    /// The connection to a lane has ended: it may look at the part for another session.
    pub(crate) fn forget_lane(&mut self, lane: PeerLane) {
        self.closed.retain(|_, closed| closed.by != lane);
    }

    /// Gives the end of a file to a session. Returns whether it has it.
    fn reserve(&mut self, now: Mono, inode: InodeNo, held: Held) -> bool {
        let session = held.session;
        let until = now.after_ms(NEXT_MS);
        if let Some(known) = self.held.get(&inode) {
            if known.session != session {
                let next = self.next.entry(inode).or_insert((session, until));
                if next.0 == session || next.1 <= now {
                    *next = (session, until);
                }
            }
            return known.session == session;
        }
        if self.next.get(&inode).is_some_and(|next| next.0 != session && next.1 > now) {
            return false;
        }
        self.next.remove(&inode);
        self.held.insert(inode, held);
        true
    }

    /// Sessions that were refused and did not ask again in time are not the next ones any more.
    fn forget_refused(&mut self, now: Mono) {
        if !self.next.is_empty() {
            self.next.retain(|_, (_, until)| *until > now);
        }
    }

    /// Whether a session has the end of a file.
    pub(crate) fn is_held(&self, inode: InodeNo, session: SessionId) -> bool {
        self.held.get(&inode).is_some_and(|held| held.session == session)
    }

    /// Whether all that a look for this session shows must be durable, because the last append was
    /// another's.
    pub(crate) fn follows_another(&mut self, inode: InodeNo, session: SessionId) -> bool {
        if self.last.len() >= LAST_COUNT_MAX {
            self.last.clear();
        }
        self.last.insert(inode, session) != Some(session)
    }
}

impl Lane {
    /// The connection to a lane has ended: it asks again for the appends that it still has.
    pub(crate) fn forget_appends_of(&mut self, lane: PeerLane) {
        if self.config.rules.hold(Rule::AppendReopened) {
            self.spread.appends.forget_lane(lane);
        }
    }

    /// An append that this lane was asked for has ended.
    pub(crate) fn on_end_append(&mut self, inode: InodeNo, session: SessionId) {
        for (_, asked) in &mut self.spread.early {
            // The home shard still waits for the answer.
            if let Asked::Look { inode: of, appends, .. } = asked
                && *of == inode
            {
                *appends = appends.filter(|known| *known != session);
            }
        }
        self.spread.appends.open(inode, session);
    }

    /// Answers a request about the end of a file that another session appends to. Returns whether
    /// it was answered.
    pub(crate) fn hinders_append(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let Some(status) = self.append_status(turn, received) else { return false };
        if status == Status::RetryLater {
            // Its slot is unchanged.
            let response = Response::plain(status, &[]);
            self.send(turn, received.conn, &received.header(), &response);
        } else {
            self.end_refused(turn, received, status);
        }
        true
    }

    /// The same for a request that has waited for leases: a session may have begun to append since.
    pub(crate) fn hinders_append_after_wait(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let Some(status) = self.append_status(turn, received) else { return false };
        if status == Status::RetryLater {
            self.reset_slot(received);
        }
        self.hinders_append(turn, received)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "no other op concerns the end of a file")]
    fn append_status(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Option<Status> {
        let layout = received.request.layout.filter(Layout::is_spread)?;
        let (op, session) = (received.request.op, received.request.session);
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        // What does not decode is refused where it is executed.
        let (inode, end) = match op {
            Op::Reserve => {
                let reserve = Reserve::decode_all(body).ok()?;
                let held = Held { session, client: received.open.client, layout };
                return self.on_reserve(turn, reserve, held);
            }
            Op::Truncate => {
                let Truncate { inode, .. } = Truncate::decode_all(body).ok()?;
                let is_held = self.spread.appends.held.contains_key(&inode);
                return is_held.then_some(Status::RetryLater);
            }
            Op::Write => {
                let write = Write::decode_all(body).ok()?;
                let closed = self.spread.appends.closed.get(&write.inode);
                if write.append {
                    let is_own = closed.is_some_and(|closed| closed.session == session);
                    let is_fenced = self.config.rules.hold(Rule::AppendFenced);
                    return (!is_own && is_fenced).then_some(Status::Stale);
                }
                let bytes = received.bulk.map_or(0, |bulk| bulk.bulk_bytes);
                let end = write.file_offset.saturating_add(bytes.into());
                (write.inode, if bytes == 0 { 0 } else { end })
            }
            Op::WriteList => {
                let list = WriteList::decode_all(body).ok()?;
                (list.inode, list.pieces.end())
            }
            Op::Allocate => {
                let Allocate { inode, file_offset, range_bytes, keep_size, .. } =
                    Allocate::decode_all(body).ok()?;
                let end = file_offset.saturating_add(range_bytes);
                (inode, if keep_size { 0 } else { end })
            }
            _ => return None,
        };
        let is_closed = self.spread.appends.closed.contains_key(&inode)
            && self.config.rules.hold(Rule::AppendCloses);
        if end == 0 || !is_closed {
            return None;
        }
        let size_bytes = self.data.known(inode, false).map(|contents| contents.size_bytes);
        size_bytes.is_none_or(|size_bytes| end > size_bytes).then_some(Status::RetryLater)
    }

    fn on_reserve(
        &mut self,
        turn: &mut Turn<'_>,
        Reserve { inode, begins, again }: Reserve,
        held: Held,
    ) -> Option<Status> {
        if !begins {
            if self.spread.appends.is_held(inode, held.session) {
                self.end_append(turn, inode);
            }
            return None;
        }
        if self.spread.appends.is_returning(turn.now.mono) && !again {
            return Some(Status::RetryLater);
        }
        let has_it = self.spread.appends.reserve(turn.now.mono, inode, held);
        (!has_it).then_some(Status::RetryLater)
    }

    fn end_append(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let Some(Held { session, layout, .. }) = self.spread.appends.held.remove(&inode) else {
            return;
        };
        let shards: Vec<_> = self.config.map.data_shards(inode, layout).collect();
        for shard in shards {
            if self.is_own(shard) {
                self.spread.appends.open(inode, session);
            } else {
                self.send_to_shard(turn, shard, &PeerBody::EndAppend { inode, session });
            }
        }
    }

    /// Once a turn: ends the appends of sessions that are no more, or are silent.
    pub(crate) fn settle_appends(&mut self, turn: &mut Turn<'_>) {
        self.spread.appends.forget_refused(turn.now.mono);
        if self.spread.appends.held.is_empty() {
            return;
        }
        let silent = self.sessions.clients().locks_expired();
        let is_over =
            |held: &Held| !self.sessions.has(held.session) || silent.contains(&held.client);
        let over = self.spread.appends.held.iter().filter(|(_, held)| is_over(held));
        let over: Vec<InodeNo> = over.map(|(inode, _)| *inode).collect();
        over.into_iter().for_each(|inode| self.end_append(turn, inode));
    }
}

#[cfg(test)]
mod tests {
    use super::{Appends, Held, NEXT_MS};
    use interface::Mono;
    use wire::{ClientUuid, InodeNo, Layout, SessionId};

    #[test]
    fn a_session_that_was_refused_is_the_next_one_for_a_time() {
        let (mut appends, file, begin) = (Appends::default(), InodeNo(7), Mono(0));
        let held = |session| {
            let (client, layout) = (ClientUuid::NONE, Layout::DEFAULT);
            Held { session: SessionId(session), client, layout }
        };
        assert!(appends.reserve(begin, file, held(1)));
        assert!(!appends.reserve(begin, file, held(2)));
        appends.held.remove(&file);
        assert!(!appends.reserve(begin, file, held(3)), "the other one was refused first");
        appends.forget_refused(begin.after_ms(NEXT_MS - 1));
        assert!(!appends.reserve(begin, file, held(3)));
        appends.forget_refused(begin.after_ms(NEXT_MS));
        assert!(appends.next.is_empty(), "it did not ask again");
        assert!(appends.reserve(begin.after_ms(NEXT_MS), file, held(3)));
    }
}
