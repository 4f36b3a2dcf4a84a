//! Counters of a lane, for `Op::Stats`.

use crate::Lane;
use crate::response::Response;
use crate::waiters::Waiting;
use data::Token;
use interface::{Ticket, Turn, Usage};
use wire::{ObjectCounts, Op, RecoveryCounts, ReplyGatingCounts, Stats, Status, Wire as _, Writer};

/// The lane's own counters; others are counted by their modules.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counters {
    pub(crate) request_count: u64,
    pub(crate) change_count: u64,
    pub(crate) batch_count: u64,
    pub(crate) deferred_count: u64,
    pub(crate) from_slot_count: u64,
    pub(crate) protocol_error_count: u64,
    pub(crate) damage_count: u64,
    /// Waits for locks on files.
    pub(crate) lock_wait_count: u64,
    pub(crate) reply_gating: ReplyGatingCounts,
    pub(crate) recovery: RecoveryCounts,
}

impl Lane {
    /// The runtime's counters have arrived: replies to [`Op::Stats`] or [`Op::Counters`], or answers
    /// another thread.
    pub(crate) fn on_usage(&mut self, turn: &mut Turn<'_>, ticket: Ticket, usage: &Usage) {
        let number = ticket.0 & !crate::ticket::TICKET_TAG;
        if ticket.0 & crate::ticket::TICKET_TAG == crate::ticket::ASKED_TICKET {
            let snapshot = self.snapshot(usage).encode();
            return crate::questions::answer(turn, Ticket(number), &snapshot);
        }
        let Some(Waiting { conn, header, .. }) = self.waiters.answers.take_request(Token(number))
        else {
            return;
        };
        if header.op == Op::Counters {
            let body = self.snapshot(usage).encode();
            return self.send(turn, conn, &header, &Response::plain(Status::Ok, &body));
        }
        let mut body = self.scratch.empty();
        self.counters(usage).encode(&mut Writer::new(&mut body));
        self.send(turn, conn, &header, &Response::plain(Status::Ok, &body));
        self.scratch.recycle(body);
    }

    /// All counters of this lane, with those of the runtime.
    pub(crate) fn counters(&self, usage: &Usage) -> Stats {
        Stats {
            request_count: self.stats.request_count,
            change_count: self.stats.change_count,
            batch_count: self.stats.batch_count,
            deferred_count: self.stats.deferred_count,
            from_slot_count: self.stats.from_slot_count,
            turn_count: usage.turn_count,
            read_bytes: self.data.read_bytes(),
            written_bytes: self.data.written_bytes(),
            conn_count: u64::try_from(self.connections.count()).unwrap_or(u64::MAX),
            protocol_error_count: self.stats.protocol_error_count,
            inode_count: self.inode_count(),
            cpu_ns: usage.cpu_ns,
            voluntary_switch_count: usage.voluntary_switch_count,
            involuntary_switch_count: usage.involuntary_switch_count,
            syscall_count: usage.syscall_count,
            clock_read_count: usage.clock_read_count,
            message_out_count: usage.message_out_count,
            send_count: usage.send_count,
            spin_count: usage.spin_count,
            spin_hit_count: usage.spin_hit_count,
            turn_ns_max: usage.turn_ns_max,
            reply_gating: self.stats.reply_gating,
            recovery: self.stats.recovery,
            objects: ObjectCounts {
                handed_count: usage.object_offloaded_count,
                thread_count: usage.object_thread_count.into(),
                under_way_max: usage.object_in_flight_max.into(),
                under_way_one_max: usage.object_in_flight_one_max.into(),
                damage_count: self.stats.damage_count,
            },
            peers: self.peers.counts(),
            leases: self.leases.counts(),
        }
    }

    /// Inodes in this lane's metadata shards.
    pub(crate) fn inode_count(&self) -> u64 {
        self.metas.iter().map(meta::Shard::inode_count).sum()
    }
}
