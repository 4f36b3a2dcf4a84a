//! Requests that wait for something locked by a change over several shards. They are kept as they
//! came and executed when that change is over.

use super::Lane;
use crate::commit::Held;
use crate::conn::{Conn, Open};
use crate::dispatch::Arrived;
use crate::outbox::{Asked, Said};
use crate::session::{State, Target};
use alloc::vec::Vec;
use disk::TxnId;
use door::{ConnId, Turn};
use wire::{Head, Request, Retry, ShardId, Status};

/// A request that waits.
#[derive(Clone, Debug)]
pub(crate) struct Parked {
    conn: ConnId,
    open: Open,
    frame: Vec<u8>,
}

impl Lane {
    /// Lets a request wait for what its execution found locked.
    pub(crate) fn park(&mut self, turn: &Turn<'_>, arrived: &Arrived<'_>) {
        let request = arrived.request;
        let index = self.meta_index(request.shard);
        let Some(blocker) = self.metas[index].blocker() else { return };
        if request.op.row().retry == Retry::Once {
            let target = Target { conn: arrived.conn, trace_id: request.trace_id };
            let key = (request.shard, request.session);
            let slot = self.slots.entry(key).or_default().slot(request.slot);
            (slot.xid, slot.op) = (request.xid, request.op);
            slot.state = State::Running(target);
        }
        let frame = turn.arena.get(arrived.frame).to_vec();
        let parked = Parked { conn: arrived.conn, open: arrived.open, frame };
        self.txns.parked.entry((request.shard, blocker)).or_default().push(parked);
    }

    /// A read that waits is outstanding, unlike one that is answered as it comes.
    pub(crate) fn count_parked(&mut self, conn: ConnId) {
        if let Some(Conn::Open(open)) = self.conns.get_mut(&conn) {
            open.outstanding_count += 1;
        }
    }

    /// A change over several shards has given back what it had locked at a shard.
    pub(super) fn unpark(&mut self, shard: ShardId, txn: TxnId) {
        let index = self.meta_index(shard);
        self.metas[index].release(txn);
        if let Some(all) = self.txns.parked.remove(&(shard, txn)) {
            self.txns.due.extend(all);
        }
    }

    /// The log is broken: what they wait for may never end.
    pub(super) fn fail_parked(&mut self, turn: &mut Turn<'_>) {
        let parked = core::mem::take(&mut self.txns.parked);
        for Parked { conn, frame, .. } in parked.into_values().flatten() {
            let Ok((Head::Request(request), _)) = Head::decode(&frame) else { continue };
            let Request { shard, session, slot, .. } = request;
            match request.op.row().retry {
                Retry::Once => self.fail_held(turn, &Held { shard, session, slot }),
                Retry::Repeat => {
                    let said = Said::plain(Status::Io, &[]);
                    self.send(turn, conn, &Asked::from(&request), &said);
                }
            }
        }
    }

    /// Executes a request whose wait is over.
    pub(super) fn take_up(&mut self, turn: &mut Turn<'_>, parked: Parked) {
        if self.stopping {
            return; // It will be sent again to the next boot.
        }
        let frame = turn.arena.put(&parked.frame);
        let Ok((Head::Request(request), _)) = Head::decode(&parked.frame) else { return };
        let arrived =
            Arrived { conn: parked.conn, open: parked.open, request: &request, frame, bulk: None };
        match request.op.row().retry {
            Retry::Repeat => self.take_up_read(turn, &arrived),
            Retry::Once => {
                // It may have been sent again since, over another connection.
                let key = (request.shard, request.session);
                let Some(table) = self.slots.get_mut(&key) else { return };
                let slot = table.slot(request.slot);
                let State::Running(target) = slot.state else { return };
                if slot.xid != request.xid {
                    return;
                }
                let request = Request { trace_id: target.trace_id, ..request };
                let arrived = Arrived { conn: target.conn, request: &request, ..arrived };
                if let Err(breach) = self.run(turn, &arrived) {
                    self.breach(turn, arrived.conn, breach);
                }
            }
        }
    }

    fn take_up_read(&mut self, turn: &mut Turn<'_>, arrived: &Arrived<'_>) {
        let effect = match self.execute(turn, arrived) {
            Ok(effect) => effect,
            Err(breach) => return self.breach(turn, arrived.conn, breach),
        };
        if effect.status == Status::Busy {
            return self.park(turn, arrived);
        }
        let body = core::mem::take(&mut self.reply);
        let said = Said::plain(effect.status, &body);
        self.send(turn, arrived.conn, &Asked::from(arrived.request), &said);
        self.reply = body;
    }
}
