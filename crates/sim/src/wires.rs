//! The simulated network: connects, sends, delivers, closes and cuts.

use crate::due::{Due, End, Place};
use crate::net::{Conn, Direction, SentFrame};
use crate::simulation::Simulation;
use interface::{CloseReason, ConnId, Errno, NetEvent, Ticket};
use test_runtime::Incoming;

const REFUSED: Errno = Errno(111);
const TIMED_OUT: Errno = Errno(110);

impl Simulation {
    /// Completes a lane's attempt to connect to a server.
    pub(crate) fn connect(&mut self, by: Place, life: u64, (ticket, to): (Ticket, usize)) {
        if life != self.life(by) || self.lane_state(by).is_none() {
            return;
        }
        let partitioned = self.is_parted(by, to);
        if partitioned || !self.servers[to].up {
            let errno = if partitioned { TIMED_OUT } else { REFUSED };
            let reason = CloseReason::Failed(errno);
            return self.deliver(by, NetEvent::ConnectFailed { ticket, reason });
        }
        self.conn_count += 1;
        let conn = ConnId(self.conn_count);
        let lane_count = self.servers[to].lanes.len();
        let slow = |simulation: &mut Self| {
            if simulation.prng.one_in(6) { 1 + simulation.prng.number() % 12 } else { 1 }
        };
        let server_lane = self.choose(lane_count);
        let (up, down) = (slow(self), slow(self));
        self.conns.insert(
            conn,
            Conn {
                dialler: by,
                dialler_life: life,
                server: to,
                server_lane,
                server_life: self.servers[to].life,
                up: Direction { slowness: up, ..Direction::default() },
                down: Direction { slowness: down, ..Direction::default() },
                cut: false,
            },
        );
        self.log_line(|| format!("{by:?}: connected as {conn:?}"));
        self.deliver(by, NetEvent::Connected { ticket, conn });
    }

    /// The lane at an end of a connection, and whether its process has ended since.
    fn lane_at(&self, conn: ConnId, end: End) -> Option<(Place, bool)> {
        let (place, life) = self.conns.get(&conn)?.at(end);
        let stale = matches!(place, Place::Server(..)) && life != self.life(place);
        Some((place, stale))
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, conn: ConnId, to: End, sent: SentFrame) {
        let Some((place, _)) = self.lane_at(conn, to) else { return };
        let to_server = matches!(place, Place::Server(..));
        let speeds = &self.plan.speeds;
        let mean_ns = if to_server { speeds.request_ns } else { speeds.reply_ns };
        let delay_ns = self.prng.span_ns(mean_ns);
        let now_ns = self.now_ns;
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let direction = known.direction_to(to);
        if direction.dead || direction.closed {
            if to_server && self.plan.faults.silent {
                // The restarted machine does not know the connection.
                self.schedule_in(self.plan.speeds.restart_ns, Due::CloseEnd(conn, to.other()));
            }
            return;
        }
        let at_ns = direction.arrival_ns(now_ns, delay_ns);
        let head = wire::Header::decode(&sent.frame).map(|(head, _)| head);
        direction.queue.push_back(sent);
        self.log_line(|| format!("{conn:?} to {to:?} by {}: {}", at_ns / 1000, short(&head)));
        self.schedule_at(at_ns, Due::Arrive(conn, to));
    }

    /// The next frame of a direction arrives.
    pub(crate) fn arrive(&mut self, conn: ConnId, to: End) {
        let now_ns = self.now_ns;
        let Some((place, stale)) = self.lane_at(conn, to) else { return };
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let direction = known.direction_to(to);
        if direction.held_until_ns > now_ns {
            let at_ns = direction.held_until_ns;
            return self.schedule_at(at_ns, Due::Arrive(conn, to));
        }
        let Some(sent) = direction.queue.pop_front() else { return };
        if direction.closed || stale {
            return;
        }
        let SentFrame { frame, bulk } = sent;
        self.log_line(|| format!("{conn:?} arrived at {place:?}"));
        self.deliver(place, Incoming::frame(conn, frame, bulk));
    }

    /// An end learns that the connection is closed, after the frames that were still under way to
    /// it.
    pub(crate) fn close_end(&mut self, conn: ConnId, end: End) {
        const AGAIN_NS: u64 = 1_000;
        let now_ns = self.now_ns;
        let Some((place, stale)) = self.lane_at(conn, end) else { return };
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let direction = known.direction_to(end);
        if direction.parted_until_ns > now_ns && !stale {
            let at_ns = direction.parted_until_ns;
            return self.schedule_at(at_ns, Due::CloseEnd(conn, end));
        }
        if !direction.queue.is_empty() && !stale {
            let at_ns = now_ns.max(direction.last_ns).max(direction.held_until_ns) + AGAIN_NS;
            return self.schedule_at(at_ns, Due::CloseEnd(conn, end));
        }
        if std::mem::replace(&mut direction.closed, true) || stale {
            return;
        }
        self.log_line(|| format!("{conn:?} is closed for {place:?}"));
        self.deliver(place, NetEvent::Closed { conn, reason: CloseReason::Ended });
    }

    /// A lane closes a connection. Frames that it sent before still arrive; then the other end
    /// learns of the close.
    pub(crate) fn close(&mut self, conn: ConnId, by: End) {
        let other = by.other();
        let delay_ns = self.prng.span_ns(self.plan.speeds.request_ns);
        let Some(known) = self.conns.get_mut(&conn) else { return };
        known.direction_to(by).closed = true;
        let direction = known.direction_to(other);
        direction.dead = true;
        let at_ns = self.now_ns.max(direction.last_ns) + delay_ns;
        self.schedule_at(at_ns, Due::CloseEnd(conn, other));
    }

    /// Cuts a connection: in each direction only some of the frames under way still arrive, perhaps
    /// much later.
    pub(crate) fn cut(&mut self, conn: ConnId) {
        const LATE_NS: [u64; 3] = [0, 2_000_000, 200_000_000];
        let Some(known) = self.conns.get_mut(&conn) else { return };
        if std::mem::replace(&mut known.cut, true) {
            return;
        }
        for end in [End::Dialler, End::Listener] {
            let late_ns = self.prng.pick(&LATE_NS).unwrap_or(0);
            let hang_ns = self.now_ns + late_ns + self.prng.span_ns(self.plan.speeds.request_ns);
            let Some(known) = self.conns.get_mut(&conn) else { return };
            let direction = known.direction_to(end);
            let retained_count = self.prng.below(direction.queue.len() + 1);
            direction.cut(retained_count);
            // What a partition holds back stays so.
            direction.held_until_ns = direction.parted_until_ns.max(self.now_ns + late_ns);
            self.schedule_at(hang_ns, Due::CloseEnd(conn, end));
        }
    }

    /// The process at one end died: it receives nothing more, and the other end gets some of the
    /// frames that it had sent.
    pub(crate) fn end_died(&mut self, conn: ConnId, died: End) {
        const SILENCE_NS: u64 = 60_000_000_000;
        let other = died.other();
        let Some((place, _)) = self.lane_at(conn, died) else { return };
        let delay_ns = self.prng.span_ns(self.plan.speeds.request_ns);
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let in_flight_count = known.direction_to(other).queue.len();
        let retained_count = self.prng.below(in_flight_count + 1);
        let Some(known) = self.conns.get_mut(&conn) else { return };
        let dead = known.direction_to(died);
        dead.cut(0);
        dead.closed = true;
        let direction = known.direction_to(other);
        direction.cut(retained_count);
        let silent = matches!(place, Place::Server(..)) && self.plan.faults.silent;
        let silence_ns = if silent { SILENCE_NS } else { 0 };
        let at_ns = self.now_ns.max(direction.last_ns) + delay_ns + silence_ns;
        self.schedule_at(at_ns, Due::CloseEnd(conn, other));
    }
}

/// A frame's header for the event log.
fn short(head: &Result<wire::Header, wire::ProtocolError>) -> String {
    match head {
        Ok(wire::Header::Handshake(kind)) => format!("{kind:?}"),
        Ok(wire::Header::Request(request)) => {
            let wire::Request { op, shard, slot, xid, flags, transno, .. } = request;
            format!("{op:?} {shard} slot {slot} xid {} flags {flags} T {transno}", xid.0 & 0xffff)
        }
        Ok(wire::Header::Reply(reply)) => {
            let wire::Reply { op, shard, slot, xid, status, transno, committed, .. } = reply;
            let xid = xid.0 & 0xffff;
            format!("{op:?} {shard} slot {slot} xid {xid}: {status:?} T {transno} ({committed})")
        }
        Ok(wire::Header::CommitNotification) => "CommitNotification".to_owned(),
        Ok(wire::Header::Grant) => "Grant".to_owned(),
        Ok(wire::Header::Recall) => "Recall".to_owned(),
        Ok(wire::Header::RecallAck) => "RecallAck".to_owned(),
        Ok(wire::Header::Received) => "Received".to_owned(),
        Ok(wire::Header::PeerMessage) => "PeerMessage".to_owned(),
        Ok(wire::Header::MapNote) => "MapNote".to_owned(),
        Err(protocol_error) => protocol_error.text().to_owned(),
    }
}
