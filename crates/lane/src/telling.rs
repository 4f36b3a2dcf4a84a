//! Files of which other lanes are being told what no reply may overtake: privileged bits of a file that
//! is open for writing, and that a write lease was taken (docs/protocol.md R12.18). What names such a
//! file waits until all these lanes have acknowledged, whichever server is away; nothing else does.
//!
//! ```text
//! Setattr ─ executed ─▶ PrivilegedBits ─▶ being told ─ all have acknowledged ─▶ its reply leaves
//! silent holder ──────▶ WriterFenced ───▶     │                                       ▲
//!                            others name it: suspended ──────────▶ they are executed ─┘
//! ```

use crate::Lane;
use crate::request::ReceivedRequest;
use crate::request_header::{RequestHeader, SlotId};
use crate::waiters::Cause;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use interface::{ConnId, NetAction, Turn};
use meta::{LeaseConflict, LeaseKey};
use wire::{Executor, HEADER_BYTES, InodeNo, Op, Xid};

/// A file that is being told.
#[derive(Default, Debug)]
struct Told {
    /// Messages that are not acknowledged.
    count: usize,
    /// Replies that wait.
    replies: Vec<(ConnId, Vec<u8>)>,
}

/// The files that are being told.
#[derive(Default, Debug)]
pub(crate) struct Telling {
    files: BTreeMap<InodeNo, Told>,
    /// The requests whose replies wait.
    slots: BTreeMap<SlotId, (Xid, InodeNo)>,
}

impl Telling {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// A lane is sent a message about a file.
    pub(crate) fn begin(&mut self, inode: InodeNo) {
        self.files.entry(inode).or_default().count += 1;
    }

    /// It has acknowledged that. Returns the replies that leave when it was the last one.
    fn end(&mut self, inode: InodeNo) -> Option<Vec<(ConnId, Vec<u8>)>> {
        let told = self.files.get_mut(&inode)?;
        told.count -= 1;
        if told.count > 0 {
            return None;
        }
        self.slots.retain(|_, (_, of)| *of != inode);
        self.files.remove(&inode).map(|told| told.replies)
    }

    /// The file that the reply to a request waits for.
    pub(crate) fn awaited_by(&self, header: &RequestHeader) -> Option<InodeNo> {
        if self.slots.is_empty() {
            return None;
        }
        let RequestHeader { shard, session, slot, .. } = *header;
        let (xid, inode) = self.slots.get(&SlotId { shard, session, slot })?;
        (*xid == header.xid).then_some(*inode)
    }

    pub(crate) fn defer(&mut self, inode: InodeNo, conn: ConnId, frame: Vec<u8>) {
        self.files.entry(inode).or_default().replies.push((conn, frame));
    }

    /// The first file that is being told of those that a request names.
    pub(crate) fn first_of(&self, named: &[LeaseConflict]) -> Option<InodeNo> {
        let mut named = named.iter().filter_map(|conflict| match conflict.key {
            LeaseKey::Writing(inode) => Some(inode),
            LeaseKey::Attributes(_)
            | LeaseKey::Name(..)
            | LeaseKey::Contents(_)
            | LeaseKey::Pages(_) => None,
        });
        named.find(|inode| self.files.contains_key(inode))
    }
}

impl Lane {
    /// The file that is being told of those that a request names.
    fn named_while_told(&self, turn: &Turn<'_>, received: &ReceivedRequest<'_>) -> Option<InodeNo> {
        let request = received.request;
        let is_of_names = request.op.row().executor == Executor::Metadata;
        // A Reopen shows nothing, and recovery waits for it.
        if self.telling.is_empty() || !is_of_names || request.op == Op::Reopen {
            return None;
        }
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let mut named = Vec::new();
        self.metas[self.meta_index(request.shard)]
            .writing_conflicts((request.op, body), &mut named);
        self.telling.first_of(&named)
    }

    /// Suspends a request that names a file which is being told. Returns whether it did.
    pub(crate) fn waits_until_told(
        &mut self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let Some(inode) = self.named_while_told(turn, received) else { return false };
        let key = LeaseKey::Writing(inode);
        self.leases.begin_wait(&[key], turn.now.mono);
        self.suspend_for_leases(turn, received, (key, Box::from([key])));
        true
    }

    /// A request was executed that names a file which is being told, perhaps by this request: its reply
    /// waits.
    pub(crate) fn answer_when_told(&mut self, turn: &Turn<'_>, received: &ReceivedRequest<'_>) {
        if let Some(inode) = self.named_while_told(turn, received) {
            let request = received.request;
            let slot_id =
                SlotId { shard: request.shard, session: request.session, slot: request.slot };
            self.telling.slots.insert(slot_id, (request.xid, inode));
        }
    }

    /// Messages about these files are acknowledged, or their receiver is no lane any more: what waited
    /// for the last one of a file goes on.
    pub(crate) fn on_told(&mut self, turn: &mut Turn<'_>, inodes: Vec<InodeNo>) {
        let mut any = false;
        for inode in inodes {
            let Some(replies) = self.telling.end(inode) else { continue };
            any = true;
            for (conn, frame) in replies {
                if self.peers.defers_replies() {
                    self.peers.defer(conn, frame);
                } else {
                    let frame = turn.arena.put(&frame);
                    turn.act(NetAction::Send { conn, frame, bulk: None });
                }
            }
            self.waiters.make_due(&Cause::Lease(LeaseKey::Writing(inode)));
        }
        if any {
            self.work(turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{SessionId, ShardId};

    #[test]
    fn what_waits_goes_on_with_the_last_acknowledgement_of_its_own_file() {
        let (file, other, conn) = (InodeNo(5), InodeNo(6), ConnId(3));
        let mut telling = Telling::default();
        [file, other, file].into_iter().for_each(|inode| telling.begin(inode));
        let (shard, session) = (ShardId::meta(0), SessionId(1));
        let header = |slot, xid| RequestHeader {
            op: Op::Setattr,
            shard,
            slot,
            session,
            xid: Xid(xid),
            trace_id: 0,
            times: crate::request_header::Times::default(),
        };
        for (slot, inode) in [(1, file), (2, other)] {
            telling.slots.insert(SlotId { shard, session, slot }, (Xid(9), inode));
        }
        assert_eq!(telling.awaited_by(&header(1, 9)), Some(file));
        assert_eq!(telling.awaited_by(&header(1, 10)), None, "the slot's next request");
        assert_eq!(telling.awaited_by(&header(3, 9)), None);
        telling.defer(file, conn, b"reply".to_vec());
        assert_eq!(telling.end(file), None, "another lane does not know");
        assert_eq!(telling.end(file), Some(Vec::from([(conn, b"reply".to_vec())])));
        assert_eq!(telling.awaited_by(&header(1, 9)), None);
        assert_eq!(telling.awaited_by(&header(2, 9)), Some(other));
        assert_eq!(telling.end(other), Some(Vec::new()));
        assert!(telling.is_empty());
    }
}
