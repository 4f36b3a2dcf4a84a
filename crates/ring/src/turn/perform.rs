//! Performs the core's actions: one arm for each.

use super::{LaneState, Parts, present};
use crate::conn::Admission;
use crate::fault::FaultPoint;
use crate::job::JobKind;
use crate::kernel::Answer;
use crate::lists::Part;
use crate::mailbox::QueuedMessage;
use crate::sums::Wanted;
use interface::{
    Action, Event, KernelAction, LogLevel, NetAction, Object, ObjectAction, ObjectPiece,
    PeerAction, Span, StoreAction, Ticket,
};
use wire::{Allocation, LaneId, Reader};

impl Parts {
    pub(super) fn perform(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            self.act(action);
        }
        self.actions = actions;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Net(action) => self.act_net(action),
            Action::Peer(action) => self.act_peer(action),
            Action::Store(action) => self.act_store(action),
            Action::Object(action) => self.act_object(action),
            Action::Kernel(action) => self.act_kernel(action),
            Action::Retain { as_buf, bulk } => {
                self.named_buffers.copy(as_buf, bulk, &mut self.io.pool)
            }
            Action::Zeros { as_buf, bulk_bytes } => {
                self.named_buffers.make(as_buf, bulk_bytes, &mut self.io.pool);
            }
            Action::Copy { to, at, bulk } => {
                self.named_buffers.fill((to, at), bulk, &mut self.io.pool);
            }
            Action::Release { buf } => self.io.pool.release(self.named_buffers.release(buf)),
            Action::Point(point) => drop(self.io.inject(FaultPoint::Place(point))),
            Action::Recovered => (self.recovered)(),
            Action::ReadSecrets => self.read_secrets(),
            Action::Answer { ticket, answer } => self.answer(ticket, answer),
            Action::Usage { ticket } => self.report_usage(ticket),
            Action::WakeAt { at } => self.alarms.add(at),
            Action::Log { level, line } => self.log_line(level, line),
            Action::Stopped => self.life = LaneState::Stopping,
        }
    }

    fn act_net(&mut self, action: NetAction) {
        let io = &mut self.io;
        match action {
            NetAction::Connect { ticket, address } => self.conns.connect(ticket, address, io),
            NetAction::Admit { conn, writes, party } => {
                self.conns.admit(conn, Admission { writes, party });
            }
            NetAction::Send { conn, frame, bulk } => {
                let bulk = bulk.map(|bulk| self.named_buffers.resolve(bulk));
                self.conns.send(conn, frame, bulk, io);
            }
            NetAction::Close { conn } => self.conns.close(conn, io),
            NetAction::HandOver { conn, lane, hello } => self.hand_over(conn, lane, hello),
            NetAction::Proxy { conn, lane, hello } => {
                let hello: Box<[u8]> = io.arena.get(hello).into();
                self.conns.relay(conn, usize::from(lane.0), hello, io);
            }
        }
    }

    fn act_peer(&mut self, action: PeerAction) {
        let (to, message) = match action {
            PeerAction::Message { to, message } => (to, QueuedMessage::Mount(message)),
            PeerAction::Send { to, body } => {
                (to, QueuedMessage::Peer(self.io.arena.get(body).into()))
            }
        };
        self.mailbox.send(usize::from(to.0), message);
    }

    fn act_store(&mut self, action: StoreAction) {
        match action {
            StoreAction::ReadRows { ticket, from, until, row_count_max } => {
                self.read_rows(ticket, (from, until), row_count_max);
            }
            StoreAction::LogAppend { ticket, batch } => self.log_append(ticket, batch),
            StoreAction::Inspect { conn, ask } => self.inspect(conn, Some(ask)),
            StoreAction::InspectEnd { conn } => self.inspect(conn, None),
            StoreAction::HoldRows { number } => self.io.log_first.hold_rows(number),
            StoreAction::ReleaseRows { number, has_failed } => {
                self.io.log_first.release_rows(number, has_failed);
                // This may be the last turn.
                present(&mut self.log).pass_on(&mut self.io);
            }
            StoreAction::Space { ticket } => {
                let space = present(&mut self.objects).space(ticket, &mut self.io);
                self.io.events.push(space);
            }
        }
    }

    fn act_object(&mut self, action: ObjectAction) {
        let io = &mut self.io;
        let (object, kind) = match action {
            ObjectAction::Read {
                ticket,
                object,
                object_offset: offset,
                read_bytes,
                only_cached,
            } => (object, JobKind::Read { ticket, offset, read_bytes, only_cached }),
            ObjectAction::ReadList { ticket, object, pieces, only_cached } => {
                return self.read_list(ticket, object, (pieces, only_cached));
            }
            ObjectAction::Write { ticket, object, object_offset: offset, bulk, block_bytes } => {
                io.pool.retain(bulk.buf);
                (object, JobKind::Write { ticket, offset, bulk, block_bytes })
            }
            ObjectAction::LoadWrite { ticket, bulk } => {
                io.pool.retain(bulk.buf);
                return io.log_first.load(ticket, bulk);
            }
            ObjectAction::Sums { ticket, object, ranges } => {
                let sums = io.sum_jobs.begin(ticket, Wanted::Sums, io.arena.get(ranges));
                (object, JobKind::Sum { sums })
            }
            ObjectAction::Load { ticket, object, ranges } => {
                let sums = io.sum_jobs.begin(ticket, Wanted::Bytes, io.arena.get(ranges));
                (object, JobKind::Sum { sums })
            }
            ObjectAction::Truncate { ticket, object, size_bytes } => {
                (object, JobKind::Truncate { ticket, size_bytes })
            }
            ObjectAction::Allocate {
                ticket,
                object,
                object_offset: offset,
                range_bytes,
                allocation,
                keep_size,
            } => {
                let mode = mode_of(allocation, keep_size);
                (object, JobKind::Allocate { ticket, offset, range_bytes, mode })
            }
            ObjectAction::GiveBack {
                ticket,
                object,
                object_offset: offset,
                range_bytes,
                size_bytes,
            } => (object, JobKind::GiveBack { ticket, offset, range_bytes, size_bytes }),
            ObjectAction::Seek { ticket, object, object_offset: offset, hole } => {
                (object, JobKind::Seek { ticket, offset, hole })
            }
            ObjectAction::Sync { ticket, object } => (object, JobKind::Sync { ticket }),
            ObjectAction::Stat { ticket, object, may_make } => {
                (object, JobKind::Stat { ticket, may_make })
            }
            ObjectAction::Remove { ticket, object } => (object, JobKind::Remove { ticket }),
        };
        self.begin(object, kind);
    }

    fn act_kernel(&mut self, action: KernelAction) {
        match action {
            KernelAction::Reply { slot, status, payload, bulk } => {
                let bulk = bulk.map(|bulk| self.named_buffers.resolve(bulk));
                self.kernel_reply(Answer { slot, status, payload, bulk });
            }
            KernelAction::CallerGroups { ticket, process: who } => {
                self.groups_wanted.push((ticket, who))
            }
            KernelAction::CallerSignals { ticket, pid } => self.signals_wanted.push((ticket, pid)),
            KernelAction::Notify { ticket, notify } => {
                present(&mut self.kernel).notify(ticket, notify, &mut self.io);
            }
        }
    }

    fn hand_over(&mut self, conn: interface::ConnId, lane: LaneId, hello: Span) {
        // The connections write to the arena, so it cannot be borrowed.
        let hello: Box<[u8]> = self.io.arena.get(hello).into();
        self.conns.hand_over(conn, usize::from(lane.0), &hello, &mut self.io);
    }

    pub(super) fn log_append(&mut self, ticket: Ticket, batch: Span) {
        let log = present(&mut self.log);
        match log.append(ticket, self.io.arena.get(batch)) {
            Some(event) => self.io.events.push(event),
            None => log.write(&mut self.io),
        }
    }

    fn read_list(&mut self, ticket: Ticket, object: Object, (pieces, only_cached): (Span, bool)) {
        let mut from = Reader::new(self.io.arena.get(pieces));
        let pieces: Vec<ObjectPiece> = std::iter::from_fn(|| from.read().ok()).collect();
        let list_bytes = pieces.iter().map(|piece| piece.piece_bytes as usize).sum();
        let list = self.io.lists.begin(ticket, pieces.len(), list_bytes);
        let mut start = 0;
        for ObjectPiece { stripe_index, object_offset: offset, piece_bytes: read_bytes } in pieces {
            let part = Part::new(list, start);
            start += read_bytes as usize;
            let object = Object { stripe_index, ..object };
            self.begin(object, JobKind::Part { part, offset, read_bytes, only_cached });
        }
    }

    fn begin(&mut self, object: Object, kind: JobKind) {
        present(&mut self.objects).begin(object, kind, &mut self.io);
    }

    fn report_usage(&mut self, ticket: Ticket) {
        let lane_time = self.lane_time();
        self.io.events.push(Event::LaneTime(lane_time));
        let usage = self.usage();
        self.io.events.push(Event::Usage { ticket, usage });
    }

    fn kernel_reply(&mut self, answer: Answer) {
        let kernel = present(&mut self.kernel);
        kernel.reply(answer, &mut self.io);
        if std::mem::take(&mut kernel.opened) && kernel.has_queues() {
            kernel.register(&mut self.io);
            let own = usize::from(self.mailbox.lane().0);
            for lane in (0..self.mailbox.lane_count()).filter(|lane| *lane != own) {
                self.mailbox.send(lane, QueuedMessage::RegisterKernelQueues);
            }
        }
    }

    fn log_line(&mut self, level: LogLevel, line: Span) {
        (self.say)(level, &String::from_utf8_lossy(self.io.arena.get(line)));
    }
}

/// The mode of fallocate(2).
const fn mode_of(allocation: Allocation, keep_size: bool) -> i32 {
    let keep = if keep_size { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
    let what = match allocation {
        Allocation::Reserve => 0,
        Allocation::Punch => libc::FALLOC_FL_PUNCH_HOLE,
        Allocation::Zero => libc::FALLOC_FL_ZERO_RANGE,
    };
    keep | what
}
